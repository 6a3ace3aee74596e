#include "dpgep/noisy_product.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "dpgep/noise_product.hpp"
#include "dpgep/normal.hpp"
#include "dpgep/orthonormal.hpp"

namespace dpgep {
namespace {

void require_noise(const Noise& noise, Index n_matrices) {
  if (static_cast<Index>(noise.scales.size()) != n_matrices) {
    throw std::invalid_argument("there must be a scale for each matrix, " +
                                std::to_string(n_matrices) + ", not " +
                                std::to_string(noise.scales.size()));
  }
  for (const double scale : noise.scales) require_noise_scale(scale);
  if (noise.n_products < 0) {
    throw std::invalid_argument("n_products must satisfy n_products >= 0, not " +
                                std::to_string(noise.n_products));
  }
  if (noise.max_directions < 0) {
    throw std::invalid_argument("max_directions must satisfy max_directions >= 0, not " +
                                std::to_string(noise.max_directions));
  }
  if (noise.mode == NoiseMode::lazy && noise.shape != NoiseShape::goe) {
    throw std::invalid_argument("lazy noise must have the shape 'goe'");
  }
  const bool draws = std::any_of(noise.scales.begin(), noise.scales.end(),
                                 [](double scale) { return scale > 0.0; });
  if (noise.mode != NoiseMode::none && draws && noise.stream == nullptr) {
    throw std::invalid_argument("stream must be given where noise is drawn");
  }
}

Block times(const Block& C, const ConstBlock& Y) {
  Block product = Block::Zero(C.rows(), Y.cols());
  add_combinations(view(C), Y, mutable_view(product));
  return product;
}

}  // namespace

NoiseMode parse_noise_mode(std::string_view name) {
  if (name == "none") return NoiseMode::none;
  if (name == "fresh") return NoiseMode::fresh;
  if (name == "lazy") return NoiseMode::lazy;
  throw std::invalid_argument("noise must be 'none', 'fresh' or 'lazy', not '" + std::string(name) +
                              "'");
}

NoisyProducts::NoisyProducts(const ExactProducts& exact, Noise noise)
    : exact_(exact),
      noise_(std::move(noise)),
      basis_(exact.n_features()),
      answers_(noise_.scales.size(), GrowingBlock(exact.n_features())) {
  require_noise(noise_, exact.n_matrices());
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
  std::vector<Block> products = exact_times(view(Q));
  ++n_answered_;
  for (std::size_t m = 0; m < products.size(); ++m) {
    if (noise_.scales[m] > 0.0) add_fresh_noise(Q, noise_.scales[m], products[m]);
    products[m] = dpgep::times(L, view(products[m]));
  }
  return products;
}

void NoisyProducts::add_fresh_noise(const Block& directions, double scale, Block& products) const {
  if (directions.rows() == 0) return;
  if (directions.rows() == 1) {
    const ConstVectorView<double> q(directions.data(), directions.size());
    products.row(0) += noise_times_vector<double>(q, scale, noise_.shape, *noise_.stream);
    return;
  }
  const Block columns = directions.transpose();
  products += noise_times_block<double>(view(columns), scale, *noise_.stream).transpose();
}

std::vector<Block> NoisyProducts::lazy(const ConstBlock& V) {
  const auto [known, added, directions] = expand(V, basis_.view());
  if (directions.rows() > 0) learn(directions);
  Block coefficients(V.rows(), known.cols() + added.cols());
  coefficients << known, added;
  std::vector<Block> products;
  for (const GrowingBlock& answers : answers_) {
    products.push_back(dpgep::times(coefficients, answers.view()));
  }
  return products;
}

void NoisyProducts::learn(const Block& directions) {
  if (directions.rows() > noise_.max_directions - basis_.rows()) {
    throw NoRoom("no room for " + std::to_string(directions.rows()) +
                 " more directions: " + std::to_string(basis_.rows()) + " of max_directions = " +
                 std::to_string(noise_.max_directions) + " are remembered");
  }
  std::vector<Block> exact = exact_times(view(directions));
  // Room first: basis and answers must grow together or not at all.
  basis_.reserve(directions.rows());
  for (GrowingBlock& answers : answers_) answers.reserve(directions.rows());
  std::vector<Block> answer(exact.size());
  for (Index j = 0; j < directions.rows(); ++j) {
    const Block q = directions.row(j);
    for (std::size_t m = 0; m < exact.size(); ++m) {
      answer[m] = lazy_answer(q, exact[m].row(j), noise_.scales[m], answers_[m].view());
    }
    for (std::size_t m = 0; m < exact.size(); ++m) answers_[m].append(answer[m].data());
    basis_.append(q.data());
  }
}

Block NoisyProducts::lazy_answer(const Block& q, Block product, double scale,
                                 const ConstBlock& answers) const {
  if (scale == 0.0) return product;
  const Index d = q.size();
  Vector<double> deviates(d + 1);
  {
    NoiseStream::Lease lease(*noise_.stream);
    fill_normal(lease, deviates.data(), d + 1);
  }
  const double along_q = inner_products(view(q), view(product))(0, 0) + scale * deviates[d];
  product.row(0) += off_diagonal_scale(scale, NoiseShape::goe) * deviates.head(d);
  // What the product has in the directions known is replaced by what they are owed.
  Block correction =
      inner_products(answers, view(q)) - inner_products(basis_.view(), view(product));
  correction.transposeInPlace();
  const double surplus = inner_products(view(q), view(product))(0, 0);
  add_combinations(view(correction), basis_.view(), mutable_view(product));
  product += (along_q - surplus) * q;
  return product;
}

}  // namespace dpgep
