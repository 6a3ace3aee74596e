#include "dpgep/stochastic.hpp"

#include <stdexcept>
#include <string>
#include <utility>

#include "dpgep/orthonormal.hpp"

namespace dpgep {
namespace {

void require_steps(const ConstVectorView<double>& step_sizes) {
  if (step_sizes.size() == 0) throw std::invalid_argument("step_sizes must not be empty");
  if (!(step_sizes.array() >= 0.0).all() || !step_sizes.allFinite()) {
    throw std::invalid_argument("step_sizes must be finite and not negative");
  }
}

void require_block(const ConstBlock& V) {
  if (V.rows() >= 1 && V.rows() <= V.cols()) return;
  throw std::invalid_argument("V must have from 1 to d = " + std::to_string(V.cols()) +
                              " rows, not " + std::to_string(V.rows()));
}

void require_shape_of(const ConstBlock& V, const ConstBlock& other, const char* name) {
  if (other.rows() == V.rows() && other.cols() == V.cols()) return;
  throw std::invalid_argument(std::string(name) + " must have the shape of V, (" +
                              std::to_string(V.rows()) + ", " + std::to_string(V.cols()) + ")");
}

// V <- orth(V + move), if that is finite and has as many directions.
bool step(Block& V, const Block& move) {
  const Block moved = V + move;
  if (!moved.allFinite()) return false;
  Block directions = expand(view(moved), view(Block(0, V.cols()))).directions;
  if (directions.rows() < V.rows()) return false;
  V = std::move(directions);
  return true;
}

template <class Gradient>
Ascent ascend(const ConstBlock& start, const ConstVectorView<double>& step_sizes,
              const Gradient& gradient) {
  require_block(start);
  require_steps(step_sizes);
  Ascent ascent{start, Block::Zero(start.rows(), start.rows()), 0};
  Block& V = ascent.vectors;
  for (const double step_size : step_sizes) {
    const Block G = gradient(V);
    ascent.quotients += inner_products(view(V), view(G));
    if (!step(V, step_size * G)) ++ascent.n_rejected_steps;
  }
  ascent.quotients /= static_cast<double>(step_sizes.size());
  return ascent;
}

}  // namespace

Ascent sampled_ascent(NoisyProducts& sampled, const ConstBlock& V,
                      const ConstVectorView<double>& step_sizes) {
  return ascend(V, step_sizes, [&](const Block& at) { return sampled.times(view(at))[0]; });
}

Ascent reduced_ascent(NoisyProducts& sampled, const ConstBlock& V, const ConstBlock& anchor,
                      const ConstBlock& gradient, const ConstVectorView<double>& step_sizes) {
  require_shape_of(V, anchor, "anchor");
  require_shape_of(V, gradient, "gradient");
  return ascend(V, step_sizes, [&](const Block& at) -> Block {
    const Block moved = at - anchor;
    if (moved.isZero(0.0)) return gradient;
    return gradient + sampled.times(view(moved))[0];
  });
}

}  // namespace dpgep
