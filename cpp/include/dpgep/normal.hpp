// Normal deviates from the noise stream.
#pragma once

#include "dpgep/noise_stream.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

// Fills out with n deviates N(0, 1) by Box and Muller: a pair of 64-bit words w1, w2 gives
// u = (w1 + 1) 2^-64, r = sqrt(-2 log u), t = 2 pi (w2 >> 11) 2^-53 and the pair r cos t, r sin t.
// Nothing is rejected, so a deviate's place in the stream is known; the tail reaches 9.4. An odd n
// drops the last sine. Nothing but arithmetic that is rounded as IEEE 754 says: the same bits from
// every processor, compiler and library.
void fill_normal(NoiseStream::Lease& stream, double* out, Index n);

}  // namespace dpgep
