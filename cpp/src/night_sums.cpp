#include "dpgep/night_sums.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dpgep {
namespace {

constexpr int half_bits = 32;  // of a half by which multiples of noise are summed
constexpr int most_bits = 62;
constexpr int high_bits = 54;  // and one more once a night is added
constexpr Index most_steps = 1 << 12;
constexpr std::int64_t largest_step = 1 << 16;
constexpr std::size_t stretch = 256;  // whose multiples are summed in the first-level cache

constexpr std::int64_t low_mask = (std::int64_t{1} << night_limb_bits) - 1;

// 0 where -2^bits <= x < 2^bits.
std::uint64_t beyond(std::int64_t x, int bits) {
  return (static_cast<std::uint64_t>(x) + (std::uint64_t{1} << bits)) >> (bits + 1);
}

// 0 where -2^62 <= x <= 2^62.
std::uint64_t beyond_one_limb(std::int64_t x) {
  const std::uint64_t place = static_cast<std::uint64_t>(x) + (std::uint64_t{1} << most_bits);
  return (place - (place >> 63)) >> 63;
}

// Modulo 2^64: of numbers that are refused, anything.
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

std::int64_t difference(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

std::int64_t shifted(std::int64_t a, int bits) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << bits);
}

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

void require_shape(Index n_unpacked, Index n, NightShape shape) {
  const bool fits =
      shape.d >= 1 && shape.n_matrices >= 1 && shape.n_matrices <= n_unpacked / shape.d / shape.d;
  require(fits && n_unpacked - n == shape.n_matrices * (shape.d * (shape.d - 1) / 2),
          "values and sums must have the sizes of n_matrices of d columns, whole and packed");
}

// visit(packed, unpacked, length) for all rows of triangles, and for what follows them.
template <class Visit>
void for_each_row(Index n, NightShape shape, const Visit& visit) {
  Index packed = 0;
  Index unpacked = 0;
  for (Index matrix = 0; matrix < shape.n_matrices; ++matrix) {
    for (Index i = 0; i < shape.d; ++i) {
      const Index length = shape.d - i;
      visit(packed, unpacked + i, length);
      packed += length;
      unpacked += shape.d;
    }
  }
  visit(packed, unpacked, n - packed);
}

// low += step l and high += step h, where 2^32 h + l are the numbers of a row, and -2^31 <= l <
// 2^31.
void add_multiple(const std::int64_t* row, std::int64_t step, std::size_t n, std::int64_t* low,
                  std::int64_t* high) {
  std::size_t j = 0;
#if defined(__AVX2__)
  const __m256i steps = _mm256_set1_epi64x(step);
  const __m256i half = _mm256_set1_epi64x(std::int64_t{1} << (half_bits - 1));
  const auto add_to = [](std::int64_t* place, __m256i product) {
    auto* const four = reinterpret_cast<__m256i*>(place);
    _mm256_storeu_si256(four, _mm256_add_epi64(_mm256_loadu_si256(four), product));
  };
  for (; j + 4 <= n; j += 4) {
    const __m256i four = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + j));
    const __m256i upper = _mm256_srli_epi64(_mm256_add_epi64(four, half), half_bits);
    add_to(low + j, _mm256_mul_epi32(four, steps));
    add_to(high + j, _mm256_mul_epi32(upper, steps));
  }
#endif
  for (; j < n; ++j) {
    const auto lower = static_cast<std::int32_t>(row[j]);
    low[j] += step * lower;
    high[j] += step * static_cast<std::int32_t>(difference(row[j], lower) >> half_bits);
  }
}

// out = round(2^-6 sum_k steps_k before_k), halves upwards. 0 where all are within 2^62.
std::uint64_t combine(const ConstRows<std::int64_t>& before,
                      const ConstVectorView<std::int64_t>& steps, std::vector<std::int64_t>& out) {
  constexpr std::int64_t mask = (std::int64_t{1} << half_bits) - 1;
  std::array<std::int64_t, stretch> low;
  std::array<std::int64_t, stretch> high;
  std::uint64_t wrong = 0;
  for (std::size_t first = 0; first < out.size(); first += stretch) {
    const std::size_t n = std::min(stretch, out.size() - first);
    low.fill(std::int64_t{1} << (night_factor_bits - 1));
    high.fill(0);
    for (Index k = 0; k < steps.size(); ++k) {
      add_multiple(before.data() + k * before.outerStride() + static_cast<Index>(first), steps[k],
                   n, low.data(), high.data());
    }
    for (std::size_t j = 0; j < n; ++j) {
      const std::int64_t carried = high[j] + (low[j] >> half_bits);
      wrong |= beyond(carried, most_bits - half_bits + night_factor_bits);
      out[first + j] = sum(shifted(carried, half_bits - night_factor_bits),
                           (low[j] & mask) >> night_factor_bits);
    }
  }
  return wrong;
}

}  // namespace

void begin_night(Rows<std::int64_t> values, Rows<std::int64_t> exact,
                 const ConstRows<std::int64_t>& before, const ConstVectorView<std::int64_t>& steps,
                 NightShape shape) {
  const Index n = exact.cols();
  require(values.rows() == 2 && exact.rows() == 2, "values and exact must have two limbs");
  require_shape(values.cols(), n, shape);
  require(before.rows() == steps.size() && (steps.size() == 0 || before.cols() == n),
          "before must have a row of the size of exact for each step");
  require(steps.size() <= most_steps, "steps must be at most 2^12");
  for (const std::int64_t step : steps) {
    require(step <= largest_step && step >= -largest_step, "steps must be at most 2^16");
  }
  std::vector<std::int64_t> combination(static_cast<std::size_t>(n));
  std::uint64_t wrong = combine(before, steps, combination);
  for_each_row(n, shape, [&](Index packed, Index unpacked, Index length) {
    const std::int64_t* const combined = combination.data() + packed;
    std::int64_t* const low = values.data() + unpacked;
    std::int64_t* const high = low + values.outerStride();
    std::int64_t* const exact_low = exact.data() + packed;
    std::int64_t* const exact_high = exact_low + exact.outerStride();
    for (Index j = 0; j < length; ++j) {
      wrong |= beyond(exact_low[j], most_bits) | beyond(exact_high[j], high_bits) |
               beyond_one_limb(low[j]) | beyond(high[j], high_bits);
      const std::int64_t total = sum(exact_low[j], low[j]);
      exact_low[j] = total & low_mask;
      exact_high[j] = sum(sum(exact_high[j], high[j]), total >> night_limb_bits);
      low[j] = difference(shifted(exact_low[j], night_factor_bits), combined[j]);
      high[j] = shifted(exact_high[j], night_factor_bits);
    }
  });
  require(wrong == 0, "sums, or noise of nights before, are larger than a register holds");
}

void end_night(const ConstRows<std::int64_t>& values, const ConstRows<std::int64_t>& exact,
               double unit, VectorView<std::int64_t> noise, VectorView<double> published,
               NightShape shape) {
  const Index n = exact.cols();
  require(values.rows() == 2 && exact.rows() == 2, "values and exact must have two limbs");
  require_shape(values.cols(), n, shape);
  require(noise.size() == n && published.size() == n, "noise and published must have n entries");
  std::uint64_t wrong = 0;
  for_each_row(n, shape, [&](Index packed, Index unpacked, Index length) {
    const std::int64_t* const low = values.data() + unpacked;
    const std::int64_t* const high = low + values.outerStride();
    const std::int64_t* const exact_low = exact.data() + packed;
    const std::int64_t* const exact_high = exact_low + exact.outerStride();
    for (Index j = 0; j < length; ++j) {
      wrong |= static_cast<std::uint64_t>(exact_low[j]) >> night_limb_bits |
               beyond(exact_high[j], high_bits + 1) | beyond(high[j], most_bits);
      const std::int64_t rest = low[j] & low_mask;
      const std::int64_t above = sum(high[j], low[j] >> night_limb_bits);
      const std::int64_t lower = difference(rest, shifted(exact_low[j], night_factor_bits));
      const std::int64_t upper = sum(difference(above, shifted(exact_high[j], night_factor_bits)),
                                     lower >> night_limb_bits);
      wrong |= beyond(upper, most_bits - night_limb_bits);
      noise[packed + j] = sum(lower & low_mask, shifted(upper, night_limb_bits));
      published[packed + j] =
          (static_cast<double>(above) * 0x1p40 + static_cast<double>(rest)) * unit;
    }
  });
  require(wrong == 0,
          "the noise of all nights together is more than the file can hold: begin another");
}

}  // namespace dpgep
