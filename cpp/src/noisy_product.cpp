#include "dpgep/noisy_product.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "dpgep/orthonormal.hpp"
#include "dpgep/parallel.hpp"

namespace dpgep {
namespace {

void require_noise(const Noise& noise, Index n_matrices) {
  if (noise.mode != NoiseMode::none && static_cast<Index>(noise.scales.size()) != n_matrices) {
    throw std::invalid_argument("there must be a scale for each matrix, " +
                                std::to_string(n_matrices) + ", not " +
                                std::to_string(noise.scales.size()));
  }
  for (const double scale : noise.scales) {
    if (scale >= 0.0 && std::isfinite(scale)) continue;
    throw std::invalid_argument("scale must satisfy 0 <= scale < inf, not " +
                                std::to_string(scale));
  }
  if (noise.n_products < 0) {
    throw std::invalid_argument("n_products must satisfy n_products >= 0, not " +
                                std::to_string(noise.n_products));
  }
  if (noise.max_directions < 0) {
    throw std::invalid_argument("max_directions must satisfy max_directions >= 0, not " +
                                std::to_string(noise.max_directions));
  }
  require_threads(noise.n_threads);
  if (noise.mode == NoiseMode::lazy && noise.shape != NoiseShape::goe) {
    throw std::invalid_argument("lazy noise must have the shape 'goe'");
  }
  const bool draws = std::any_of(noise.scales.begin(), noise.scales.end(),
                                 [](double scale) { return scale > 0.0; });
  if (noise.mode != NoiseMode::none && draws && noise.stream == nullptr) {
    throw std::invalid_argument("stream must be given where noise is drawn");
  }
}

}  // namespace

NoiseMode parse_noise_mode(std::string_view name) {
  if (name == "none") return NoiseMode::none;
  if (name == "fresh") return NoiseMode::fresh;
  if (name == "lazy") return NoiseMode::lazy;
  throw std::invalid_argument("noise must be 'none', 'fresh' or 'lazy', not '" + std::string(name) +
                              "'");
}

NoiseShape parse_noise_shape(std::string_view name) {
  if (name == "goe") return NoiseShape::goe;
  if (name == "iid") return NoiseShape::iid;
  throw std::invalid_argument("shape must be 'goe' or 'iid', not '" + std::string(name) + "'");
}

NoisyProducts::NoisyProducts(const ExactProducts& exact, Noise noise)
    : exact_(exact), noise_(std::move(noise)), asked_(exact.n_features(), exact.n_matrices()) {
  require_noise(noise_, exact.n_matrices());
  if (noise_.mode == NoiseMode::none) return;
  for (const double scale : noise_.scales) {
    grids_.push_back(scale > 0.0 ? std::optional<Grid>(scale) : std::nullopt);
  }
}

std::vector<Block> NoisyProducts::times(const ConstBlock& V) {
  require_features(V, n_features());
  if (!V.allFinite()) throw std::invalid_argument("V must be finite");
  if (noise_.mode == NoiseMode::none) return exact_times(V);
  if (generation_ != fork_generation()) {
    throw std::runtime_error(
        "noisy products belong to the process that paid for them: a forked copy cannot answer");
  }
  return noise_.mode == NoiseMode::fresh ? fresh(V) : lazy(V);
}

std::vector<Block> NoisyProducts::exact_times(const ConstBlock& V) {
  std::vector<Block> products = exact_.times(V);
  ++n_passes_;
  return products;
}

std::vector<Block> NoisyProducts::fresh(const ConstBlock& V) {
  if (n_answered_ == noise_.n_products) {
    throw std::runtime_error("all n_products = " + std::to_string(noise_.n_products) +
                             " products that were paid for have been answered");
  }
  const auto [known, L, Q] = expand(V, view(Block(0, n_features())));
  if (noise_.shape == NoiseShape::iid && Q.rows() > 1) {
    throw std::invalid_argument("noise of shape 'iid' answers one direction at a time, not " +
                                std::to_string(Q.rows()) + ": use 'goe'");
  }
  Asked asked(n_features(), exact_.n_matrices());
  learn(Q, asked);
  ++n_answered_;
  std::vector<Block> products;
  for (const GrowingBlock& answers : asked.answers) {
    products.push_back(combinations(view(L), answers.view()));
  }
  return products;
}

std::vector<Block> NoisyProducts::lazy(const ConstBlock& V) {
  const auto [known, added, directions] = expand(V, asked_.basis.view());
  if (directions.rows() > noise_.max_directions - asked_.basis.rows()) {
    throw CapacityExceeded("no room for " + std::to_string(directions.rows()) +
                           " more directions: " + std::to_string(asked_.basis.rows()) +
                           " of max_directions = " + std::to_string(noise_.max_directions) +
                           " are remembered");
  }
  if (directions.rows() > 0) learn(directions, asked_);
  Block coefficients(V.rows(), known.cols() + added.cols());
  coefficients << known, added;
  std::vector<Block> products;
  for (const GrowingBlock& answers : asked_.answers) {
    products.push_back(combinations(view(coefficients), answers.view()));
  }
  return products;
}

void NoisyProducts::learn(const Block& directions, Asked& asked) {
  const std::vector<Block> exact = exact_times(view(directions));
  // Room first: basis and answers must grow together or not at all.
  asked.basis.reserve(directions.rows());
  for (GrowingBlock& answers : asked.answers) answers.reserve(directions.rows());
  std::vector<Vector<double>> answers(exact.size());
  for (Index j = 0; j < directions.rows(); ++j) {
    const ConstVectorView<double> q(directions.data() + j * directions.cols(), directions.cols());
    for (std::size_t m = 0; m < exact.size(); ++m) {
      answers[m] = answer(q, exact[m].data() + j * exact[m].cols(), m, asked);
    }
    for (std::size_t m = 0; m < exact.size(); ++m) asked.answers[m].append(answers[m].data());
    asked.basis.append(q.data());
  }
}

Vector<double> NoisyProducts::answer(const ConstVectorView<double>& q, const double* exact,
                                     std::size_t m, const Asked& asked) const {
  Vector<double> y = ConstVectorView<double>(exact, q.size());
  if (!grids_[m]) return y;
  if (noise_.shape == NoiseShape::iid) {
    return iid_answer_on_grid(q, std::move(y), *grids_[m], *noise_.stream, noise_.n_threads);
  }
  return answer_on_grid(q, std::move(y), *grids_[m], asked.basis.view(), asked.answers[m].view(),
                        *noise_.stream, noise_.n_threads);
}

}  // namespace dpgep
