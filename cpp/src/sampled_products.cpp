#include "dpgep/sampled_products.hpp"

#include <type_traits>
#include <utility>

#include "dpgep/rows_product.hpp"

namespace dpgep {
namespace {

std::unique_ptr<const ExactProducts> products_of(const AnyRows& rows, Index n_features,
                                                 ConstVectorView<double> factors, double scale,
                                                 int n_threads) {
  return std::visit(
      [&](const auto& seen) -> std::unique_ptr<const ExactProducts> {
        if constexpr (std::is_constructible_v<AnyCsr, decltype(seen)>) {
          return std::make_unique<CsrRows>(seen, n_features, factors, scale, n_threads);
        } else {
          return std::make_unique<DenseRows>(std::vector<FloatingRows>{seen}, factors, scale,
                                             n_threads);
        }
      },
      rows);
}

Noise noise_of(const PaidAnswers& answers, double scale, const SamplingDesign& design,
               NoiseStream& stream) {
  Noise noise;
  noise.mode = design.noisy ? NoiseMode::fresh : NoiseMode::none;
  noise.scales = {answers.deviation * scale};
  noise.n_products = answers.n_paid;
  noise.stream = &stream;
  noise.n_threads = design.n_threads;
  return noise;
}

}  // namespace

SampledProducts::SampledProducts(const AnyRows& rows, Index n_features,
                                 ConstVectorView<double> factors, const Owners& owners,
                                 const SamplingDesign& design, NoiseStream& stream)
    : all_rows_(products_of(rows, n_features, factors, 1.0 / design.n_people, design.n_threads)),
      sampled_rows_(rows, n_features, factors, owners, 1.0 / (design.rate * design.n_people),
                    design.rate, stream, design.n_threads),
      full_(*all_rows_, noise_of(design.full, 1.0 / design.n_people, design, stream)),
      sampled_(sampled_rows_,
               noise_of(design.sampled, 1.0 / (design.rate * design.n_people), design, stream)) {}

Block SampledProducts::full(const ConstBlock& V) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::move(full_.times(V)[0]);
}

Ascent SampledProducts::ascend(const ConstBlock& V, const ConstVectorView<double>& step_sizes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Ascent ascent = sampled_ascent(sampled_, V, step_sizes);
  n_rejected_steps_ += ascent.n_rejected_steps;
  return ascent;
}

Ascent SampledProducts::ascend_reduced(const ConstBlock& V, const ConstBlock& anchor,
                                       const ConstBlock& gradient,
                                       const ConstVectorView<double>& step_sizes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Ascent ascent = reduced_ascent(sampled_, V, anchor, gradient, step_sizes);
  n_rejected_steps_ += ascent.n_rejected_steps;
  return ascent;
}

}  // namespace dpgep
