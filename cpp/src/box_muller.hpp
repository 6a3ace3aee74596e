// Box and Muller's pair from two words, in additions, products, quotients and square roots alone:
// the same bits from every processor and library, in loops that compilers turn into vectors.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace dpgep {

struct NormalPair {
  double first, second;
};

namespace box_muller {

inline double from_bits(std::uint64_t bits) {
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline std::uint64_t to_bits(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// n < 2^52, exactly: the bits of 2^52 + n.
inline double to_double(std::uint64_t n) {
  return from_bits(0x4330000000000000 | n) - 0x1p52;
}

// log u for 2^-64 <= u <= 1, u = 2^k m with m in [sqrt(1/2), sqrt(2)): the series of
// log((1 + s) / (1 - s)) = log m, with the coefficients of FreeBSD's e_log.c.
inline double log_of_fraction(double u) {
  constexpr std::uint64_t one = 0x3ff0000000000000;
  constexpr std::uint64_t sqrt_half = 0x3fe6a09e667f3bcd;
  const std::uint64_t shifted = to_bits(u) + (one - sqrt_half);
  const double k = to_double(shifted >> 52) - 1023.0;
  const double f = from_bits((shifted & 0x000fffffffffffff) + sqrt_half) - 1.0;
  const double half_square = 0.5 * f * f;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double w = z * z;
  const double odd = z * (6.666666666666735130e-01 +
                          w * (2.857142874366239149e-01 +
                               w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double even = w * (3.999999999940941908e-01 +
                           w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double tail = s * (half_square + (odd + even)) + k * 1.90821492927058770002e-10;
  return k * 6.93147180369123816490e-01 - ((half_square - tail) - f);
}

inline double sine(double x) {
  const double z = x * x;
  const double series =
      8.33333333332248946124e-03 +
      z * (-1.98412698298579493134e-04 +
           z * (2.75573137070700676789e-06 +
                z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
  return x + x * z * (-1.66666666666666324348e-01 + z * series);
}

inline double cosine(double x) {
  const double z = x * x;
  const double series =
      4.16666666666666019037e-02 +
      z * (-1.38888888888741095749e-03 +
           z * (2.48015872894767294178e-05 +
                z * (-2.75573143513906633035e-07 +
                     z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))));
  const double half = 0.5 * z;
  const double most = 1.0 - half;
  return most + (((1.0 - most) - half) + z * z * series);
}

}  // namespace box_muller

inline NormalPair normal_pair(std::uint64_t radius_word, std::uint64_t angle_word) {
  using namespace box_muller;
  const double word = to_double(radius_word >> 32) * 0x1p32 + to_double(radius_word & 0xffffffff);
  const double r = std::sqrt(-2.0 * log_of_fraction((word + 1.0) * 0x1p-64));
  const std::uint64_t v = angle_word >> 11;
  const double turns = (to_double(v >> 21) * 0x1p21 + to_double(v & 0x1fffff)) * 0x1p-53;
  // The nearest quarter turn, read from the last bits of a sum that leaves room for no others.
  constexpr double whole = 0x1.8p52;
  const double rounded = 4.0 * turns + whole;
  const std::uint64_t quarter = to_bits(rounded);
  const double x = 6.283185307179586476925286766559 * (turns - 0.25 * (rounded - whole));
  const std::uint64_t sin_x = to_bits(sine(x));
  const std::uint64_t cos_x = to_bits(cosine(x));
  // cos and sin of x + quarter pi / 2: swapped in the odd quarters, signs by the quarter.
  const std::uint64_t swap = 0 - (quarter & 1);
  const std::uint64_t first = (cos_x & ~swap) | (sin_x & swap);
  const std::uint64_t second = (sin_x & ~swap) | (cos_x & swap);
  const double c = from_bits(first ^ (((quarter + 1) & 2) << 62));
  const double s = from_bits(second ^ ((quarter & 2) << 62));
  return {r * c, r * s};
}

}  // namespace dpgep
