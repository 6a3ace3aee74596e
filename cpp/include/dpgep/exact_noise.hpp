// Integer noise: exactly rounded normal deviates, drawn in parallel from streams of their own.
//
// A call takes a key of 32 bytes from the stream. Chunk c of its sequence, 4096 deviates, is drawn
// from the ChaCha20 stream of that key and nonce c, so the deviates do not depend on the number of
// threads. The key is wiped at the end.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dpgep/noise_stream.hpp"
#include "dpgep/transcript.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

// out_i = round(scale N_i), N_i independent N(0, 1). With scale 0 nothing is drawn.
// Throws std::invalid_argument unless 0 <= scale <= 2^56 and n_threads >= 1.
void exact_normal(VectorView<std::int64_t> out, std::int64_t scale, NoiseStream& stream,
                  int n_threads);

// The same with a scale for each entry: out_i = round(scales_i N_i). Where a scale is 0 its deviate
// is drawn all the same. Also throws std::invalid_argument for another number of scales.
void exact_normal(VectorView<std::int64_t> out, const ConstVectorView<std::int64_t>& scales,
                  NoiseStream& stream, int n_threads);

// array_ij += round(scale N_ij), in row-major order. Also throws std::invalid_argument if a sum
// would leave int64; array is then unspecified. Of two limbs, noise is added to the lower one,
// which is then brought to 0 <= low < 2^bits: a function of the sum.
void add_exact_noise(const Limbs& values, std::int64_t scale, NoiseStream& stream, int n_threads);
void add_exact_noise(Rows<std::int64_t> array, std::int64_t scale, NoiseStream& stream,
                     int n_threads);

// matrix_ii += round(diagonal_scale N_ii), matrix_ij += round(off_diagonal_scale N_ij) for j > i,
// in row-major order of the upper triangle; the lower triangle is neither read nor written. A
// deviate whose scale is 0 is drawn all the same unless both are 0. Limbs, and what it throws: as
// add_exact_noise.
void add_exact_symmetric_noise(const Limbs& matrix, std::int64_t diagonal_scale,
                               std::int64_t off_diagonal_scale, NoiseStream& stream, int n_threads);
void add_exact_symmetric_noise(Rows<std::int64_t> matrix, std::int64_t diagonal_scale,
                               std::int64_t off_diagonal_scale, NoiseStream& stream, int n_threads);

// out_i += round(scales_i N_i) + nearest(shared_scale direction_i H), H one more deviate, rounded
// to 2^-40, that all entries share. Throws as add_exact_noise.
void add_exact_noise_along(VectorView<std::int64_t> out,
                           const ConstVectorView<std::int64_t>& scales,
                           const ConstVectorView<double>& direction, std::int64_t shared_scale,
                           NoiseStream& stream, int n_threads);

// out filled as by exact_normal, from the given words, each of two halves, the lower first. Returns
// the number of words begun. Throws std::invalid_argument when they run out.
Index exact_normal_scripted(const ConstVectorView<std::uint64_t>& words, std::int64_t scale,
                            VectorView<std::int64_t> out);

}  // namespace dpgep
