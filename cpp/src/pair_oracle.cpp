#include "dpgep/pair_oracle.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dpgep {
namespace {

void require_form(const MatrixPair&, Index) {}

void require_part(const PencilPart& part, const Pencil& pencil, const char* name) {
  const auto refuse = [name](const std::string& what) {
    throw std::invalid_argument(std::string(name) + what);
  };
  const Index n_factors = pencil.F.rows();
  if (part.weights.size() != n_factors) {
    refuse(".weights must have an entry for each of the " + std::to_string(n_factors) +
           " rows of factors, not " + std::to_string(part.weights.size()));
  }
  if (!part.weights.allFinite()) refuse(".weights must be finite");
  if (!std::isfinite(part.share)) refuse(".share must be finite");
  if (part.blocks != Blocks::whole && pencil.view_sizes.empty()) {
    refuse(".blocks must be \"whole\" of one view: view_sizes is empty");
  }
}

void require_views(const std::vector<Index>& sizes, Index n_features) {
  if (sizes.empty()) return;
  if (sizes.size() < 2) throw std::invalid_argument("view_sizes must list two views or more");
  Index left = n_features;
  for (const Index size : sizes) {
    if (size < 1 || size > left) {
      throw std::invalid_argument("view_sizes must be positive and add up to n_features = " +
                                  std::to_string(n_features));
    }
    left -= size;
  }
  if (left > 0) {
    throw std::invalid_argument(
        "view_sizes must add up to n_features = " + std::to_string(n_features) +
        ", they leave out " + std::to_string(left));
  }
}

void require_form(const Pencil& pencil, Index n_features) {
  if (pencil.F.cols() != n_features) {
    throw std::invalid_argument("factors must have n_features = " + std::to_string(n_features) +
                                " columns, not " + std::to_string(pencil.F.cols()));
  }
  require_views(pencil.view_sizes, n_features);
  require_part(pencil.parts.at(0), pencil, "a");
  if (pencil.parts.size() > 1) require_part(pencil.parts[1], pencil, "b");
}

bool keeps_blocks(const PencilPart& part) {
  return part.blocks != Blocks::whole;
}

bool needs_moment(const PencilPart& part) {
  return part.share != 0.0;
}

template <class Predicate>
bool any(const Pencil& pencil, Predicate predicate) {
  return std::any_of(pencil.parts.begin(), pencil.parts.end(), predicate);
}

// `visit(view, begin, size)` for the features of each view.
template <class Visit>
void for_each_view(const std::vector<Index>& sizes, Visit visit) {
  Index begin = 0;
  for (std::size_t view = 0; view < sizes.size(); ++view) {
    visit(static_cast<Index>(view), begin, sizes[view]);
    begin += sizes[view];
  }
}

// The rows of V once for each view, zero outside of it.
Block views_apart(const ConstBlock& V, const std::vector<Index>& sizes) {
  const Index K = V.rows();
  Block views = Block::Zero(static_cast<Index>(sizes.size()) * K, V.cols());
  for_each_view(sizes, [&](Index view, Index begin, Index size) {
    views.block(view * K, begin, K, size) = V.middleCols(begin, size);
  });
  return views;
}

// The blocks of a matrix times V, from the matrix times `views_apart` V.
Block kept(const Block& products, Blocks blocks, const std::vector<Index>& sizes) {
  const Index n_views = static_cast<Index>(sizes.size());
  const Index K = products.rows() / n_views;
  Block result = Block::Zero(K, products.cols());
  for_each_view(sizes, [&](Index view, Index begin, Index size) {
    for (Index other = 0; other < n_views; ++other) {
      if (blocks == Blocks::between && other == view) continue;
      if (blocks == Blocks::within && other != view) continue;
      result.middleCols(begin, size) += products.block(other * K, begin, K, size);
    }
  });
  return result;
}

// V F^T, (K, r).
Block components(const ConstBlock& V, const Block& F) {
  return inner_products(view(F), V).transpose();
}

// products += (components diag(weights)) F.
void add_released(const Block& components, const Vector<double>& weights, const Block& F,
                  Block& products) {
  const Block weighted = components * weights.asDiagonal();
  add_combinations(view(weighted), view(F), mutable_view(products));
}

}  // namespace

PairProducts MatrixPair::answer(const ConstBlock& V, NoisyProducts& noisy) const {
  std::vector<Block> products = noisy.times(V);
  if (products.size() == 1) return {std::move(products[0]), V};
  return {std::move(products[0]), std::move(products[1])};
}

PairProducts Pencil::answer(const ConstBlock& V, NoisyProducts& noisy) const {
  const bool of_views = any(*this, keeps_blocks);
  const Block views = of_views ? views_apart(V, view_sizes) : Block();
  const ConstBlock asked = of_views ? view(views) : V;
  const Block moment =
      any(*this, needs_moment) ? noisy.times(asked)[0] : Block::Zero(asked.rows(), asked.cols());
  const Block in_factors = components(asked, F);
  const auto times = [&](const PencilPart& part) {
    Block products = part.share * moment;
    add_released(in_factors, part.weights, F, products);
    return of_views ? kept(products, part.blocks, view_sizes) : products;
  };
  Block of_a = times(parts[0]);
  return {std::move(of_a), parts.size() > 1 ? times(parts[1]) : Block(V)};
}

PairOracle::PairOracle(const ExactProducts& exact, Noise noise, PairForm form)
    : noisy_(exact, std::move(noise)), form_(std::move(form)) {
  std::visit([&](const auto& pair) { require_form(pair, exact.n_features()); }, form_);
}

PairProducts PairOracle::times(const ConstBlock& V) {
  require_features(V, n_features());
  const auto self = std::this_thread::get_id();
  if (asking_ == self) throw std::logic_error("exact products must not ask the oracle they answer");
  const std::lock_guard<std::mutex> lock(mutex_);
  asking_ = self;
  try {
    PairProducts products = answer(V);
    asking_ = std::thread::id();
    return products;
  } catch (...) {
    asking_ = std::thread::id();
    throw;
  }
}

PairProducts PairOracle::answer(const ConstBlock& V) {
  PairProducts products =
      std::visit([&](const auto& pair) { return pair.answer(V, noisy_); }, form_);
  n_directions_ = noisy_.n_directions();
  n_passes_ = noisy_.n_passes();
  ++n_answered_;
  return products;
}

}  // namespace dpgep
