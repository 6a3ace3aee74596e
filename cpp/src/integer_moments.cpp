#include "dpgep/integer_moments.hpp"

#include <algorithm>
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

void fold(double* block, std::int64_t* total, Index n) {
  bool all_integers = true;
  bool all_in_range = true;
  for (Index j = 0; j < n; ++j) {
    // NaN fails the first test; only what passes it may be converted.
    const bool is_small = block[j] > -0x1p53 && block[j] < 0x1p53;
    const std::int64_t value = is_small ? static_cast<std::int64_t>(block[j]) : 0;
    all_integers &= is_small && static_cast<double>(value) == block[j];
    all_in_range &= adds_within_range(total[j], value);
    total[j] = static_cast<std::int64_t>(static_cast<std::uint64_t>(total[j]) +
                                         static_cast<std::uint64_t>(value));
    block[j] = 0.0;
  }
  if (!all_integers) {
    throw std::invalid_argument("block must hold integers with |block_ij| < 2**53");
  }
  if (!all_in_range) throw std::overflow_error(beyond_int64);
}

}  // namespace

void fold_triangle(Rows<double> block, Rows<std::int64_t> total, int n_threads) {
  const Index d = block.rows();
  const Index n_tasks = (d + rows_per_task - 1) / rows_per_task;
  parallel_for(n_tasks, n_threads, [&](Index task) {
    const Index last = std::min(d, (task + 1) * rows_per_task);
    for (Index i = task * rows_per_task; i < last; ++i) fold(&block(i, i), &total(i, i), d - i);
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
