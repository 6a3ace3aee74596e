// Four doubles at a time, with the same bits on every processor: each lane is a sum of its own,
// whether one register holds four lanes, two, or one. Spelled out, since compilers asked to find
// the lanes by themselves shuffle them instead.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "dpgep/typedefs.hpp"

namespace dpgep {

inline constexpr Index n_lanes = 4;

#if defined(__GNUC__)

using Lanes = double __attribute__((vector_size(n_lanes * sizeof(double))));

// Results are arguments: a vector returned by value would depend on the instruction set's ABI.
inline void load(const double* from, Lanes& to) {
  std::memcpy(&to, from, sizeof to);
}

inline void load(const float* from, Lanes& to) {
#if defined(__AVX__)
  to = _mm256_cvtps_pd(_mm_loadu_ps(from));  // GCC makes two halves of the conversion below
#else
  using Floats = float __attribute__((vector_size(n_lanes * sizeof(float))));
  Floats narrow;
  std::memcpy(&narrow, from, sizeof narrow);
  to = __builtin_convertvector(narrow, Lanes);
#endif
}

inline void store(const Lanes& from, double* to) {
  std::memcpy(to, &from, sizeof from);
}

// to_t = from_t where mask_t is -1, and 0 where it is 0, whatever is there.
inline void load_kept(const double* from, const std::int64_t* mask, Lanes& to) {
  using Masks = std::int64_t __attribute__((vector_size(n_lanes * sizeof(std::int64_t))));
  Masks bits;
  Masks kept;
  std::memcpy(&bits, from, sizeof bits);
  std::memcpy(&kept, mask, sizeof kept);
  kept &= bits;
  std::memcpy(&to, &kept, sizeof to);
}

#else

struct Lanes {
  double lane[n_lanes] = {};
  double& operator[](Index t) { return lane[t]; }
  double operator[](Index t) const { return lane[t]; }
  Lanes& operator+=(const Lanes& other) {
    for (Index t = 0; t < n_lanes; ++t) lane[t] += other.lane[t];
    return *this;
  }
};

inline Lanes operator+(Lanes a, const Lanes& b) {
  return a += b;
}

inline Lanes operator*(const Lanes& a, const Lanes& b) {
  Lanes product;
  for (Index t = 0; t < n_lanes; ++t) product[t] = a[t] * b[t];
  return product;
}

inline Lanes operator*(double a, const Lanes& b) {
  Lanes product;
  for (Index t = 0; t < n_lanes; ++t) product[t] = a * b[t];
  return product;
}

template <class Scalar>
void load(const Scalar* from, Lanes& to) {
  for (Index t = 0; t < n_lanes; ++t) to[t] = static_cast<double>(from[t]);
}

inline void store(const Lanes& from, double* to) {
  std::memcpy(to, from.lane, sizeof from.lane);
}

inline void load_kept(const double* from, const std::int64_t* mask, Lanes& to) {
  for (Index t = 0; t < n_lanes; ++t) to[t] = mask[t] == 0 ? 0.0 : from[t];
}

#endif

inline double total(const Lanes& lanes) {
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

}  // namespace dpgep
