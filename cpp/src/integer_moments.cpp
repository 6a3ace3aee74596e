#include "dpgep/integer_moments.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "dpgep/parallel.hpp"

namespace dpgep {
namespace {

constexpr Index rows_per_task = 16;
constexpr const char* beyond_int64 = "total leaves int64: carry before";
constexpr std::int64_t limb = std::int64_t{1} << limb_bits;

bool adds_within_range(std::int64_t a, std::int64_t b) {
  using Range = std::numeric_limits<std::int64_t>;
  return b >= 0 ? a <= Range::max() - b : a >= Range::min() - b;
}

std::uint64_t bits_of(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// An integer of magnitude up to 2^51 is what its sum with this has in its last bits: neither SSE2
// nor AVX2 has an instruction that converts one.
constexpr double shift = 0x1.8p52;

// Whether all entries are such integers. No for -0, too.
bool are_small_integers(const double* block, Index n) {
  std::uint64_t exponents = 0;
  std::uint64_t lost = 0;
  for (Index j = 0; j < n; ++j) {
    const double shifted = block[j] + shift;
    exponents |= bits_of(shifted) ^ bits_of(shift);
    lost |= bits_of(shifted - shift) ^ bits_of(block[j]);
  }
  return exponents >> 52 == 0 && lost == 0;
}

// Whether all sums stay in range. A sum leaves it where its sign is that of neither term.
bool fold_small_integers(double* block, std::int64_t* total, Index n) {
  std::uint64_t signs = 0;
  for (Index j = 0; j < n; ++j) {
    const std::uint64_t value = bits_of(block[j] + shift) - bits_of(shift);
    const auto before = static_cast<std::uint64_t>(total[j]);
    const std::uint64_t sum = before + value;
    signs |= (sum ^ before) & (sum ^ value);
    total[j] = static_cast<std::int64_t>(sum);
    block[j] = 0.0;
  }
  return signs >> 63 == 0;
}

bool fold_integers(double* block, std::int64_t* total, Index n, std::int64_t times) {
  bool all_integers = true;
  bool all_in_range = true;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / times;
  for (Index j = 0; j < n; ++j) {
    // NaN fails the first test; only what passes it may be converted.
    const bool is_small = block[j] > -0x1p53 && block[j] < 0x1p53;
    const std::int64_t value = is_small ? static_cast<std::int64_t>(block[j]) : 0;
    all_integers &= is_small && static_cast<double>(value) == block[j];
    const bool fits = value <= most && value >= -most;
    all_in_range &= fits && adds_within_range(total[j], fits ? times * value : 0);
    total[j] = static_cast<std::int64_t>(static_cast<std::uint64_t>(total[j]) +
                                         static_cast<std::uint64_t>(times) *
                                             static_cast<std::uint64_t>(value));
    block[j] = 0.0;
  }
  if (!all_integers) {
    throw std::invalid_argument("block must hold integers with |block_ij| < 2**53");
  }
  return all_in_range;
}

void fold(double* block, std::int64_t* total, Index n, std::int64_t times) {
  constexpr Index stretch = 256;  // looked at, then found in the first-level cache
  bool all_in_range = true;
  for (Index j = 0; j < n; j += stretch) {
    const Index length = std::min(stretch, n - j);
    all_in_range &= times == 1 && are_small_integers(block + j, length)
                        ? fold_small_integers(block + j, total + j, length)
                        : fold_integers(block + j, total + j, length, times);
  }
  if (!all_in_range) throw std::overflow_error(beyond_int64);
}

}  // namespace

void fold_triangle(Rows<double> block, Rows<std::int64_t> total, int n_threads,
                   std::int64_t times) {
  if (times < 1) throw std::invalid_argument("times must be at least 1");
  const Index d = block.rows();
  const Index n_tasks = (d + rows_per_task - 1) / rows_per_task;
  parallel_for(n_tasks, n_threads, [&](Index task) {
    const Index last = std::min(d, (task + 1) * rows_per_task);
    for (Index i = task * rows_per_task; i < last; ++i)
      fold(&block(i, i), &total(i, i), d - i, times);
  });
}

void add_triangle(Rows<std::int64_t> addend, Rows<std::int64_t> total) {
  for (Index i = 0; i < total.rows(); ++i) {
    for (Index j = i; j < total.cols(); ++j) {
      if (!adds_within_range(total(i, j), addend(i, j))) throw std::overflow_error(beyond_int64);
      total(i, j) += addend(i, j);
    }
  }
}

void carry_triangle(Rows<std::int64_t> total, Rows<std::int64_t> high) {
  const Index d = total.rows();
  for (Index i = 0; i < d; ++i) {
    for (Index j = i; j < d; ++j) {
      const std::int64_t low = total(i, j) & (limb - 1);
      const std::int64_t carried = (total(i, j) - low) / limb;
      if (!adds_within_range(high(i, j), carried)) {
        throw std::overflow_error("high leaves int64");
      }
      high(i, j) += carried;
      total(i, j) = low;
    }
  }
}

}  // namespace dpgep
