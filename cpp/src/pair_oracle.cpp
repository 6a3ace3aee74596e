#include "dpgep/pair_oracle.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace dpgep {
namespace {

void require_weights(const Vector<double>& weights, Index n, const char* name) {
  if (weights.size() != n) {
    throw std::invalid_argument(std::string(name) + " must have an entry for each of the " +
                                std::to_string(n) + " rows of factors, not " +
                                std::to_string(weights.size()));
  }
  if (!weights.allFinite()) throw std::invalid_argument(std::string(name) + " must be finite");
}

void require_released(const Released& released, Index n_features) {
  if (released.F.cols() != n_features) {
    throw std::invalid_argument("factors must have n_features = " + std::to_string(n_features) +
                                " columns, not " + std::to_string(released.F.cols()));
  }
  require_weights(released.weights_a, released.F.rows(), "weights_a");
  require_weights(released.weights_b, released.F.rows(), "weights_b");
}

void require_form(const MatrixPair&, Index) {}

void require_form(const MomentPair& pair, Index n_features) {
  require_released(pair.released, n_features);
  if (!std::isfinite(pair.second_a)) throw std::invalid_argument("second_a must be finite");
  if (!std::isfinite(pair.second_b)) throw std::invalid_argument("second_b must be finite");
}

void require_form(const CrossPair& pair, Index n_features) {
  require_released(pair.released, n_features);
  if (pair.split > 0 && pair.split < n_features) return;
  throw std::invalid_argument("split must satisfy 0 < split < n_features = " +
                              std::to_string(n_features) + ", not " + std::to_string(pair.split));
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

PairProducts MomentPair::answer(const ConstBlock& V, NoisyProducts& noisy) const {
  const auto& [F, weights_a, weights_b] = released;
  const double share_b = identity_b ? 0.0 : second_b;
  const bool needs_moment = second_a != 0.0 || share_b != 0.0;
  const Block moment = needs_moment ? noisy.times(V)[0] : Block::Zero(V.rows(), V.cols());
  const Block parts = components(V, F);
  PairProducts products{second_a * moment, identity_b ? Block(V) : Block(share_b * moment)};
  add_released(parts, weights_a, F, products.A);
  if (!identity_b) add_released(parts, weights_b, F, products.B);
  return products;
}

PairProducts CrossPair::answer(const ConstBlock& V, NoisyProducts& noisy) const {
  const Index K = V.rows();
  const Index n_right = V.cols() - split;
  Block views = Block::Zero(2 * K, V.cols());
  views.topLeftCorner(K, split) = V.leftCols(split);
  views.bottomRightCorner(K, n_right) = V.rightCols(n_right);
  Block moment = std::move(noisy.times(view(views))[0]);
  add_released(components(view(views), released.F), released.weights_a, released.F, moment);
  PairProducts products{Block(K, V.cols()), Block(K, V.cols())};
  products.A << moment.bottomLeftCorner(K, split), moment.topRightCorner(K, n_right);
  products.B << moment.topLeftCorner(K, split), moment.bottomRightCorner(K, n_right);
  return products;
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
