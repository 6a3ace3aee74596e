#include "dpgep/fixed_point.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "dpgep/clip.hpp"
#include "dpgep/csr.hpp"
#include "dpgep/norm.hpp"
#include "dpgep/parallel.hpp"
#include "lanes.hpp"
#include "prefetch.hpp"
#include "squared_length.hpp"

namespace dpgep {
namespace {

constexpr double shrink = 1.0 - 0x1p-20;
constexpr int max_turns = 64;
constexpr Index n_partial = 8;
// Entries below which a thread costs more than it saves.
constexpr Index entries_per_task = Index{1} << 16;

// Widths of rows below that are constants of the compiler: a loop over so few entries costs more
// than they do.
constexpr Index n_narrow = 8;

// body(width), width of type Index or, of narrow rows, std::integral_constant<Index, d>.
template <Index narrow = 1, class Body>
void with_width(Index d, const Body& body) {
  if constexpr (narrow == n_narrow) {
    body(d);
  } else {
    if (d == narrow) {
      body(std::integral_constant<Index, narrow>{});
    } else {
      with_width<narrow + 1>(d, body);
    }
  }
}

template <class Scalar, class Width>
FactoredNorm norm_of(const Scalar* row, Width d) {
  if constexpr (std::is_integral_v<Scalar>) {
    std::int64_t sum = 0;
    for (Index i = 0; i < d; ++i) {
      const auto entry = static_cast<std::int32_t>(row[i]);
      sum += entry * entry;
    }
    return {1.0, std::sqrt(static_cast<double>(sum))};
  } else {
    const double squared = squared_length(row, d);
    return is_accurate(squared) ? FactoredNorm{1.0, std::sqrt(squared)} : norm(row, d);
  }
}

// What takes an entry to the grid: trunc(entry * lift * scale). The lift is a power of two that
// keeps the scale within the range of a double where bound or norm are near its ends; an entry that
// underflows under it is nothing beside the others.
struct Scale {
  double lift;
  double scale;
};

// A product beyond 2^31 cannot occur: the entries are at most the norm, and norm * lift * scale is
// 2^bits up to rounding. The conversion truncates, and loses the sign of zero.
template <class Scalar>
inline double to_grid(Scalar entry, Scale by) {
  const double scaled = static_cast<double>(entry) * by.lift * by.scale;
  return static_cast<double>(static_cast<std::int32_t>(scaled));
}

// The sum of squares of the row on the grid, which is also written where `write`. Exact where it is
// at most 2^53, and otherwise no less than 2^53: sums of integers that do not decrease. A later row
// is fetched from memory meanwhile: the processor does not look ahead beyond a page.
template <bool write, class Scalar, class Width, class Grid>
double squared_norm_on_grid(const Scalar* row, const Scalar* later_row, Width width, Scale by,
                            Grid* out) {
  Lanes low = {};
  Lanes high = {};
  const Index d = width;
  const Index n_blocked = d - d % n_partial;
  for (Index i = 0; i < n_blocked; i += n_partial) {
    if constexpr (write) expect_to_read(later_row + i);
    double q[n_partial];
    for (Index j = 0; j < n_partial; ++j) q[j] = to_grid(row[i + j], by);
    Lanes x;
    load(q, x);
    low += x * x;
    load(q + n_lanes, x);
    high += x * x;
    if constexpr (write) {
      for (Index j = 0; j < n_partial; ++j) out[i + j] = static_cast<Grid>(q[j]);
    }
  }
  double sum = 0.0;
  for (Index i = n_blocked; i < d; ++i) {
    const double q = to_grid(row[i], by);
    sum += q * q;
    if constexpr (write) out[i] = static_cast<Grid>(q);
  }
  for (Index t = 0; t < n_lanes; ++t) sum += low[t];
  for (Index t = 0; t < n_lanes; ++t) sum += high[t];
  return sum;
}

// Shrinks the scale until the row on the grid is in the ball.
template <bool write, class Scalar, class Width, class Grid>
void fit_to_ball(const Scalar* row, const Scalar* later_row, Width d, double radius, Scale& by,
                 Grid* out) {
  for (int turn = 0; squared_norm_on_grid<write>(row, later_row, d, by, out) > radius * radius;
       ++turn) {
    if (turn == max_turns) throw std::logic_error("a row cannot be shrunk onto the ball");
    by.scale *= shrink;
  }
}

// The row is read from memory once; what follows its norm finds it in the cache.
template <class Scalar, class Width, class Grid>
bool row_to_grid(const Scalar* row, const FactoredNorm& length, const Scalar* later_row, Width d,
                 double bound, double radius, Grid* out) {
  if (!std::isfinite(length.scale) || !std::isfinite(length.relative)) return false;
  const double size = std::max(bound, length.scale == 1.0 ? length.relative : length.scale);
  const double lift = size > 0x1p900 ? 0x1p-100 : (size < 0x1p-900 ? 0x1p100 : 1.0);
  const double lifted_norm = length.scale * lift * length.relative;
  const double lifted_bound = bound * lift;
  const bool is_zero = counts_as_zero(length, bound);
  Scale by{lift, is_zero ? 0.0 : radius / std::max(lifted_bound, lifted_norm)};
  // Rounding lifts only such a row out of the ball. If it is its own output, it must be looked at
  // before it is overwritten.
  const bool is_near = lifted_norm > lifted_bound * shrink;
  if (is_near && static_cast<const void*>(row) == out) {
    fit_to_ball<false>(row, later_row, d, radius, by, out);
  }
  fit_to_ball<true>(row, later_row, d, radius, by, out);
  return true;
}

}  // namespace

void require_grid(double bound, int bits) {
  if (!(bound > 0.0 && std::isfinite(bound) && std::isfinite(1.0 / bound))) {
    throw std::invalid_argument("bound must satisfy 0 < bound < inf with a finite 1/bound, not " +
                                std::to_string(bound));
  }
  if (bits < min_grid_bits || bits > max_grid_bits) {
    throw std::invalid_argument("bits must satisfy " + std::to_string(min_grid_bits) +
                                " <= bits <= " + std::to_string(max_grid_bits) + ", not " +
                                std::to_string(bits));
  }
}

template <class Scalar>
bool fixed_point_rows(const ConstRows<Scalar>& rows, double bound, int bits, Rows<double> out,
                      int n_threads) {
  require_grid(bound, bits);
  require_threads(n_threads);
  const Index n = rows.rows();
  const Index d = rows.cols();
  const double radius = std::ldexp(1.0, bits);
  const Index rows_per_task = std::max<Index>(1, entries_per_task / std::max<Index>(1, d));
  const Index n_tasks = (n + rows_per_task - 1) / rows_per_task;
  std::atomic<bool> all_finite{true};
  with_width(d, [&](auto width) {
    const Index ahead = 1 + row_distance<Scalar>(d);
    parallel_for(n_tasks, n_threads, [&](Index task) {
      const Index last = std::min(n, (task + 1) * rows_per_task);
      const auto row = [&](Index i) {
        return rows.data() + std::min(i, last - 1) * rows.outerStride();
      };
      // The norm of the row after it is independent work while a row waits for a root and a
      // quotient.
      FactoredNorm next_length = norm_of(row(task * rows_per_task), width);
      for (Index i = task * rows_per_task; i < last; ++i) {
        const FactoredNorm length = next_length;
        if (i + 1 < last) next_length = norm_of(row(i + 1), width);
        double* const out_row = out.data() + i * out.outerStride();
        if (!row_to_grid(row(i), length, row(i + ahead), width, bound, radius, out_row)) {
          all_finite = false;
        }
      }
    });
  });
  return all_finite;
}

// A task has the rows that begin in its stretch of entries, however long or short they are. Rows
// that follow each other need not be fetched ahead.
template <class Scalar, class Integer>
bool fixed_point_csr(const ConstVectorView<Scalar>& data, const ConstVectorView<Integer>& indptr,
                     double bound, int bits, VectorView<std::int32_t> out, int n_threads) {
  require_grid(bound, bits);
  require_threads(n_threads);
  require_indptr(indptr, data.size());
  const double radius = std::ldexp(1.0, bits);
  const Index n_tasks = (data.size() + entries_per_task - 1) / entries_per_task;
  std::atomic<bool> all_finite{true};
  parallel_for(n_tasks, n_threads, [&](Index task) {
    const Integer* const end = indptr.data() + indptr.size() - 1;
    const Integer* row = std::lower_bound(indptr.data(), end, task * entries_per_task);
    const Integer* const last = std::lower_bound(row, end, (task + 1) * entries_per_task);
    for (; row < last; ++row) {
      const Scalar* const entries = data.data() + row[0];
      const auto n_entries = static_cast<Index>(row[1] - row[0]);
      const FactoredNorm length = norm_of(entries, n_entries);
      std::int32_t* const out_row = out.data() + row[0];
      if (!row_to_grid(entries, length, entries, n_entries, bound, radius, out_row)) {
        all_finite = false;
      }
    }
  });
  return all_finite;
}

template bool fixed_point_rows(const ConstRows<std::uint8_t>&, double, int, Rows<double>, int);
template bool fixed_point_rows(const ConstRows<float>&, double, int, Rows<double>, int);
template bool fixed_point_rows(const ConstRows<double>&, double, int, Rows<double>, int);
template bool fixed_point_csr(const ConstVectorView<float>&, const ConstVectorView<std::int32_t>&,
                              double, int, VectorView<std::int32_t>, int);
template bool fixed_point_csr(const ConstVectorView<float>&, const ConstVectorView<std::int64_t>&,
                              double, int, VectorView<std::int32_t>, int);
template bool fixed_point_csr(const ConstVectorView<double>&, const ConstVectorView<std::int32_t>&,
                              double, int, VectorView<std::int32_t>, int);
template bool fixed_point_csr(const ConstVectorView<double>&, const ConstVectorView<std::int64_t>&,
                              double, int, VectorView<std::int32_t>, int);

}  // namespace dpgep
