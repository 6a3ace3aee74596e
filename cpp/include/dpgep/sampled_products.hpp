// Products with the second moment of people, noise included: of all of them, or of samples.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "dpgep/sampled_rows.hpp"
#include "dpgep/stochastic.hpp"

namespace dpgep {

// Noise of one kind of answer: its deviation in a sum over people, and the answers paid for.
struct PaidAnswers {
  double deviation;
  Index n_paid;
};

struct SamplingDesign {
  double n_people, rate;
  PaidAnswers full, sampled;
  bool noisy;
  int n_threads;
};

// full:     V (M + Z) / n_people,            M = sum_i (f_i z_i)(f_i z_i)^T
// sampled:  V (M_S + Z) / (rate n_people),   over the rows of a Poisson sample of people, drawn
// anew
//
// One call at a time: others wait.
class SampledProducts {
 public:
  // Throws as SampledRows and NoisyProducts. Rows, factors, owners and stream must outlive this.
  SampledProducts(const AnyRows& rows, Index n_features, ConstVectorView<double> factors,
                  const Owners& owners, const SamplingDesign& design, NoiseStream& stream);

  Index n_features() const { return sampled_rows_.n_features(); }
  // Steps of all ascents so far that were too large to be taken.
  Index n_rejected_steps() const { return n_rejected_steps_; }

  Block full(const ConstBlock& V);

  // stochastic.hpp, with products of samples.
  Ascent ascend(const ConstBlock& V, const ConstVectorView<double>& step_sizes);
  Ascent ascend_reduced(const ConstBlock& V, const ConstBlock& anchor, const ConstBlock& gradient,
                        const ConstVectorView<double>& step_sizes);

 private:
  std::mutex mutex_;
  std::atomic<Index> n_rejected_steps_{0};
  std::unique_ptr<const ExactProducts> all_rows_;
  SampledRows sampled_rows_;
  NoisyProducts full_, sampled_;
};

}  // namespace dpgep
