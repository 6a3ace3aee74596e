// Four doubles at a time, with the same bits on every processor: each lane is a sum of its own,
// whether one register holds four lanes, two, or one. Spelled out, since compilers asked to find
// the lanes by themselves shuffle them instead, and keep what is wider than a register in memory.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX__) || defined(__SSE2__)
#include <immintrin.h>
#endif

#include "dpgep/typedefs.hpp"

namespace dpgep {

inline constexpr Index n_lanes = 4;

// Results are arguments: a vector returned by value would depend on the instruction set's ABI.

#if defined(__AVX__)

using Lanes = double __attribute__((vector_size(n_lanes * sizeof(double))));
using Register = Lanes;

inline void load(const double* from, Lanes& to) {
  to = _mm256_loadu_pd(from);  // a copy of bytes would go through two halves
}

inline void load(const float* from, Lanes& to) {
  to = _mm256_cvtps_pd(_mm_loadu_ps(from));
}

inline void store(const Lanes& from, double* to) {
  _mm256_storeu_pd(to, from);
}

inline void load_kept(const double* from, const std::int64_t* mask, Lanes& to) {
  to = _mm256_and_pd(
      _mm256_loadu_pd(from),
      _mm256_castsi256_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(mask))));
}

inline void fill(double value, Lanes& to) {
  to = Lanes{value, value, value, value};
}

inline void add_to_lane(Index t, double value, Lanes& to) {
  to[t] += value;
}

inline void truncate(Lanes& x) {
  x = _mm256_cvtepi32_pd(_mm256_cvttpd_epi32(x));
}

inline void turn(Lanes& a, Lanes& b, Lanes& c, Lanes& d) {
  const Lanes even_ab = _mm256_unpacklo_pd(a, b);
  const Lanes odd_ab = _mm256_unpackhi_pd(a, b);
  const Lanes even_cd = _mm256_unpacklo_pd(c, d);
  const Lanes odd_cd = _mm256_unpackhi_pd(c, d);
  a = _mm256_permute2f128_pd(even_ab, even_cd, 0x20);
  b = _mm256_permute2f128_pd(odd_ab, odd_cd, 0x20);
  c = _mm256_permute2f128_pd(even_ab, even_cd, 0x31);
  d = _mm256_permute2f128_pd(odd_ab, odd_cd, 0x31);
}

inline double total(const Lanes& lanes) {
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

#else

using Pair = double __attribute__((vector_size(2 * sizeof(double))));
using Register = Pair;

struct Lanes {
  Pair low;
  Pair high;
  double operator[](Index t) const { return t < 2 ? low[t] : high[t - 2]; }
  Lanes& operator+=(const Lanes& other) {
    low += other.low;
    high += other.high;
    return *this;
  }
};

inline Lanes operator+(Lanes a, const Lanes& b) {
  return a += b;
}

inline Lanes operator*(const Lanes& a, const Lanes& b) {
  return {a.low * b.low, a.high * b.high};
}

inline Lanes operator*(double a, const Lanes& b) {
  return {a * b.low, a * b.high};
}

inline void load(const double* from, Pair& to) {
  std::memcpy(&to, from, sizeof to);
}

inline void load(const double* from, Lanes& to) {
  load(from, to.low);
  load(from + 2, to.high);
}

inline void load(const float* from, Pair& to) {
  using Floats = float __attribute__((vector_size(2 * sizeof(float))));
  Floats two;
  std::memcpy(&two, from, sizeof two);
  to = __builtin_convertvector(two, Pair);
}

inline void load(const float* from, Lanes& to) {
  load(from, to.low);
  load(from + 2, to.high);
}

inline void store(const Pair& from, double* to) {
  std::memcpy(to, &from, sizeof from);
}

inline void store(const Lanes& from, double* to) {
  store(from.low, to);
  store(from.high, to + 2);
}

inline void load_kept(const double* from, const std::int64_t* mask, Pair& to) {
  using Masks = std::int64_t __attribute__((vector_size(2 * sizeof(std::int64_t))));
  Masks bits;
  Masks kept;
  std::memcpy(&bits, from, sizeof bits);
  std::memcpy(&kept, mask, sizeof kept);
  kept &= bits;
  std::memcpy(&to, &kept, sizeof to);
}

inline void load_kept(const double* from, const std::int64_t* mask, Lanes& to) {
  load_kept(from, mask, to.low);
  load_kept(from + 2, mask + 2, to.high);
}

inline void fill(double value, Lanes& to) {
  to.low = Pair{value, value};
  to.high = to.low;
}

inline void add_to_lane(Index t, double value, Lanes& to) {
  (t < 2 ? to.low : to.high)[t % 2] += value;
}

inline void truncate(Pair& x) {
  using Short = std::int32_t __attribute__((vector_size(2 * sizeof(std::int32_t))));
  x = __builtin_convertvector(__builtin_convertvector(x, Short), Pair);
}

inline void truncate(Lanes& x) {
  truncate(x.low);
  truncate(x.high);
}

inline void turn(Lanes& a, Lanes& b, Lanes& c, Lanes& d) {
  const Lanes first{Pair{a.low[0], b.low[0]}, Pair{c.low[0], d.low[0]}};
  const Lanes second{Pair{a.low[1], b.low[1]}, Pair{c.low[1], d.low[1]}};
  const Lanes third{Pair{a.high[0], b.high[0]}, Pair{c.high[0], d.high[0]}};
  const Lanes fourth{Pair{a.high[1], b.high[1]}, Pair{c.high[1], d.high[1]}};
  a = first;
  b = second;
  c = third;
  d = fourth;
}

inline double total(const Pair& pair) {
  return pair[0] + pair[1];
}

inline double total(const Lanes& lanes) {
  return total(lanes.low + lanes.high);
}

#endif

// Both forms have Register, as many of the lanes as one holds, which can be loaded, stored,
// truncated and totalled, too; load(from, to) of four neighbours and store(from, to);
// load_kept(from, mask, to), to_t = from_t where mask_t is -1, and 0 where it is 0, whatever is
// there; fill(value, to); add_to_lane(t, value, to); truncate(x) towards zero, |x_t| < 2^31,
// without the sign of zero; turn(a, b, c, d), which exchanges rows and columns of the matrix with
// these rows.

inline void load(const std::uint8_t* from, Lanes& to) {
  double entries[n_lanes];
  for (Index t = 0; t < n_lanes; ++t) entries[t] = static_cast<double>(from[t]);
  load(entries, to);
}

// sum_t += a_t b_t where it is no matter whether the product is rounded before it is added, as it
// is none of integers below 2^53.
inline void add_exact_product(const Register& a, const Register& b, Register& sum) {
#if defined(__FMA__)
  sum = _mm256_fmadd_pd(a, b, sum);
#elif defined(__aarch64__)
  for (int t = 0; t < 2; ++t) sum[t] = __builtin_fma(a[t], b[t], sum[t]);
#else
  sum += a * b;
#endif
}

// x_t /= s_t, rounded once as division rounds, where f_t is 1 / s_t rounded. By products where
// these are fused (Brisebarre, Muller, Raina: Accelerating correctly rounded floating-point
// division when the divisor is known in advance, 2004): unless a quotient or a remainder leaves the
// range of full precision. A zero keeps its sign.
#if defined(__FMA__)
inline constexpr bool has_fused_products = true;

inline void divide(const Register& s, const Register& f, Register& x) {
  const Register q = x * f;
  const Register beyond = _mm256_fmsub_pd(q, s, x);
  x = _mm256_fnmadd_pd(beyond, f, q);
}
#else
inline constexpr bool has_fused_products = false;

inline void divide(const Register& s, const Register&, Register& x) {
  x = x / s;
}
#endif

// found_t becomes something else than zero if x_t is a number that has fewer digits than others.
inline void note_subnormal(const Register& x, Register& found) {
#if defined(__AVX__)
  const Register none = _mm256_setzero_pd();
  const Register size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
  const Register small = _mm256_cmp_pd(size, none + 0x1p-1022, _CMP_LT_OQ);
  found = _mm256_or_pd(found, _mm256_and_pd(small, size));
#elif defined(__SSE2__)
  const Register none = _mm_setzero_pd();
  const Register size = _mm_andnot_pd(_mm_set1_pd(-0.0), x);
  found = _mm_or_pd(found, _mm_and_pd(_mm_cmplt_pd(size, none + 0x1p-1022), size));
#else
  const Register size = x < Register{} ? -x : x;
  found += size < Register{} + 0x1p-1022 ? size : Register{};
#endif
}

// Integers of the lanes of two registers, or of pairs of them: two of 16 bits in each.
using Words = std::uint32_t __attribute__((vector_size(sizeof(Register))));

// The lanes of a, then those of b, as integers less than 1 away; 2^31 where none has 32 bits.
inline void take_words(const Register& a, const Register& b, Words& to) {
#if defined(__AVX__)
  to = reinterpret_cast<Words>(_mm256_set_m128i(_mm256_cvttpd_epi32(b), _mm256_cvttpd_epi32(a)));
#elif defined(__SSE2__)
  to = reinterpret_cast<Words>(_mm_unpacklo_epi64(_mm_cvttpd_epi32(a), _mm_cvttpd_epi32(b)));
#else
  constexpr double beyond = 0x1p31;
  const Register* const from[] = {&a, &b};
  for (int t = 0; t < 4; ++t) {
    const double x = (*from[t / 2])[t % 2];
    to[t] = x > -beyond && x < beyond ? static_cast<std::uint32_t>(static_cast<std::int32_t>(x))
                                      : std::uint32_t{1} << 31;
  }
#endif
}

// What was taken from a, and what from b.
inline void store_words(const Words& from, std::uint32_t* of_a, std::uint32_t* of_b) {
  constexpr std::size_t half = sizeof from / 2;
  std::memcpy(of_a, &from, half);
  std::memcpy(of_b, reinterpret_cast<const char*>(&from) + half, half);
}

// x, y -> the nearest numbers from 0 to `most` < 2^15, of integers of 16 bits.
inline void clamp_pairs(std::int16_t most, Words& pairs) {
#if defined(__AVX2__)
  const __m256i least = _mm256_max_epi16(reinterpret_cast<__m256i>(pairs), __m256i{});
  pairs = reinterpret_cast<Words>(_mm256_min_epi16(least, _mm256_set1_epi16(most)));
#elif defined(__SSE2__) && !defined(__AVX__)
  const __m128i least = _mm_max_epi16(reinterpret_cast<__m128i>(pairs), __m128i{});
  pairs = reinterpret_cast<Words>(_mm_min_epi16(least, _mm_set1_epi16(most)));
#else
  using Shorts = std::int16_t __attribute__((vector_size(sizeof(Words))));
  Shorts each;
  std::memcpy(&each, &pairs, sizeof each);
  each = each > 0 ? each : Shorts{};
  each = each < most ? each : Shorts{} + most;
  std::memcpy(&pairs, &each, sizeof each);
#endif
}

// sum_t += x_t u_t + y_t v_t of pairs of integers (x, y) and (u, v) from 0 to 2^15 - 1.
inline void add_products(const Words& xy, const Words& uv, Words& sum) {
#if defined(__AVX2__)
  sum += reinterpret_cast<Words>(
      _mm256_madd_epi16(reinterpret_cast<__m256i>(xy), reinterpret_cast<__m256i>(uv)));
#elif defined(__SSE2__) && !defined(__AVX__)
  sum += reinterpret_cast<Words>(
      _mm_madd_epi16(reinterpret_cast<__m128i>(xy), reinterpret_cast<__m128i>(uv)));
#else
  sum += (xy & 0xffff) * (uv & 0xffff) + (xy >> 16) * (uv >> 16);
#endif
}

// found_t becomes something else than zero in its last 16 bits where those of x_t are below 3; its
// other bits mean nothing.
inline void note_near(const Words& x, Words& found) {
#if defined(__AVX2__)
  found |= reinterpret_cast<Words>(
      _mm256_subs_epu16(_mm256_set1_epi32(3), reinterpret_cast<__m256i>(x)));
#elif defined(__SSE2__) && !defined(__AVX__)
  found |= reinterpret_cast<Words>(_mm_subs_epu16(_mm_set1_epi32(3), reinterpret_cast<__m128i>(x)));
#else
  found |= reinterpret_cast<Words>((x & 0xffff) < 3);
#endif
}

// Whether note_near found nothing.
inline bool is_clear(const Words& found) {
  const Words near = found & 0xffff;
  std::uint64_t words[sizeof near / sizeof(std::uint64_t)];
  std::memcpy(words, &near, sizeof near);
  std::uint64_t any = 0;
  for (const std::uint64_t word : words) any |= word;
  return any == 0;
}

// The nearest of the numbers from low to high; low for NaN.
inline void clamp_to(const Register& low, const Register& high, Register& x) {
#if defined(__AVX__)
  x = _mm256_min_pd(_mm256_max_pd(x, low), high);
#elif defined(__SSE2__)
  x = _mm_min_pd(_mm_max_pd(x, low), high);
#else
  x = x > low ? x : low;
  x = x < high ? x : high;
#endif
}

}  // namespace dpgep
