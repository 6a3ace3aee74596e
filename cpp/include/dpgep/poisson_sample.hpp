// Poisson samples: everybody belongs to a sample independently, with the same probability. Who does
// is secret, so it is drawn from the stream of the noise.
#pragma once

#include <vector>

#include "dpgep/noise_stream.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

class PoissonSampler {
 public:
  // Throws std::invalid_argument unless n >= 0 and 0 < rate <= 1.
  PoissonSampler(Index n, double rate);

  Index n() const { return n_; }
  double rate() const { return rate_; }

  // Replaces members by a new sample of 0, ..., n - 1, ascending. Each takes one 64-bit word w of
  // the stream, and the end one more: with u = (w + 1) 2^-64, floor(log u / log(1 - rate)) of the n
  // are passed over before the next member. Those are not looked at.
  void draw(NoiseStream& stream, std::vector<Index>& members) const;

 private:
  Index n_;
  double rate_;
  double log_miss_;
};

}  // namespace dpgep
