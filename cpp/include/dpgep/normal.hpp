// Normal deviates from the noise stream.
#pragma once

#include <array>
#include <cstdint>

#include "dpgep/noise_stream.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

// Fills out with n deviates N(0, 1) by Box and Muller: a pair of 64-bit words w1, w2 gives
// u = (w1 + 1) 2^-64, r = sqrt(-2 log u), t = 2 pi (w2 >> 11) 2^-53 and the pair r cos t, r sin t.
// Nothing is rejected, so a deviate's place in the stream is known; the tail reaches 9.4. An odd n
// drops the last sine. Nothing but arithmetic that is rounded as IEEE 754 says: the same bits from
// every processor, compiler and library.
void fill_normal(NoiseStream::Lease& stream, double* out, Index n);

// A sequence of a known length, handed out one deviate at a time; the same deviates as a single
// fill_normal, in O(1) memory. Holds the stream while it lives.
class NormalSequence {
 public:
  NormalSequence(NoiseStream& stream, Index length) : lease_(stream), n_left_(length) {}
  ~NormalSequence();
  NormalSequence(const NormalSequence&) = delete;
  NormalSequence& operator=(const NormalSequence&) = delete;

  double next() {
    if (position_ == n_ready_) refill();
    return buffer_[static_cast<std::size_t>(position_++)];
  }

  // out_j += scale * next() for j = 0, ..., n - 1.
  void add_to(double* out, Index n, double scale);

 private:
  static constexpr Index capacity = 512;  // even: no pair is split

  void refill();

  NoiseStream::Lease lease_;
  Index n_left_;  // not yet drawn into the buffer
  Index position_ = 0;
  Index n_ready_ = 0;
  Index n_used_ = 0;  // of the buffer, ever: what has to be wiped
  std::array<double, capacity> buffer_;
};

}  // namespace dpgep
