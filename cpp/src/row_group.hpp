// The two things that a product does with R neighbouring rows: their inner products with a vector,
// and a combination of them added to a vector. R rows at a time, since the vector is then loaded
// once for all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "lanes.hpp"
#include "prefetch.hpp"

namespace dpgep {

inline constexpr Index group_rows = 4;

template <std::size_t R, class Scalar>
using RowGroup = std::array<const Scalar*, R>;

// Rows i, ..., i + R - 1, from column `first` on.
template <std::size_t R, class Scalar>
RowGroup<R, Scalar> row_group(const ConstRows<Scalar>& rows, Index i, Index first = 0) {
  RowGroup<R, Scalar> group;
  for (const Scalar*& row : group) row = rows.data() + i++ * rows.outerStride() + first;
  return group;
}

// What add_dots has summed so far, per row and lane.
template <std::size_t R>
struct LaneSums {
  Lanes sum[R] = {};
  double dot(std::size_t r) const { return total(sum[r]); }
};

template <std::size_t R>
using Coefficients = std::array<double, R>;

template <std::size_t R>
using GroupSize = std::integral_constant<std::size_t, R>;

// Calls body(GroupSize<R>, i) for the groups, from row i on, that cover the rows [first, last).
template <class Body>
void for_each_group(Index first, Index last, const Body& body) {
  Index i = first;
  for (; i + group_rows <= last; i += group_rows) {
    body(GroupSize<group_rows>{}, i);
  }
  for (; i < last; ++i) body(GroupSize<1>{}, i);
}

// The entries of a row that lie in one cache line, nearly.
template <class Scalar>
inline constexpr Index line_entries = 64 / static_cast<Index>(sizeof(Scalar));

// The kernels take rows, coefficients and sums by value or as copies: what they write could be any
// double, and would make the compiler load these again.

// sums_r += sum_j rows_r[j] v_j over n entries.
template <std::size_t R, class Scalar>
void add_dots(const RowGroup<R, Scalar> rows, const double* v, Index n, LaneSums<R>& sums) {
  LaneSums<R> local = sums;
  const Index n_whole = n - n % n_lanes;
  for (Index j = 0; j < n_whole; j += n_lanes) {
    Lanes x;
    load(v + j, x);
    for (std::size_t r = 0; r < R; ++r) {
      Lanes a;
      load(rows[r] + j, a);
      local.sum[r] += a * x;
    }
  }
  for (Index j = n_whole; j < n; ++j) {
    for (std::size_t r = 0; r < R; ++r) {
      add_to_lane(j - n_whole, static_cast<double>(rows[r][j]) * v[j], local.sum[r]);
    }
  }
  sums = local;
}

// out_j += sum_r c_r rows_r[j] over n entries; those of `next` are fetched meanwhile, if asked for.
template <bool fetch_next, std::size_t R, class Scalar>
void add_combination(const Coefficients<R> c, const RowGroup<R, Scalar> rows, Index n, double* out,
                     const RowGroup<R, Scalar> next) {
  const Index n_whole = n - n % n_lanes;
  for (Index j = 0; j < n_whole; j += n_lanes) {
    if (fetch_next && j % line_entries<Scalar> == 0) {
      for (const Scalar* const row : next) expect_to_read(row + j);
    }
    Lanes sum;
    load(out + j, sum);
    for (std::size_t r = 0; r < R; ++r) {
      Lanes a;
      load(rows[r] + j, a);
      sum += c[r] * a;
    }
    store(sum, out + j);
  }
  for (Index j = n_whole; j < n; ++j) {
    for (std::size_t r = 0; r < R; ++r) out[j] += c[r] * static_cast<double>(rows[r][j]);
  }
}

template <std::size_t R, class Scalar>
void add_combination(const Coefficients<R>& c, const RowGroup<R, Scalar>& rows, Index n,
                     double* out) {
  add_combination<false, R, Scalar>(c, rows, n, out, rows);
}

// The inner products of some rows, and a combination of those before them:
//   sums_r += sum_j rows_r[j] v_j and out_j += sum_r c_r before_r[j] over n entries.
// The latter lie in a cache, so that memory is read all the time. The rows `after` are fetched into
// the second-level cache: the first has room for the others alone.
template <std::size_t R, class Scalar>
void add_dots_and_combination(const RowGroup<R, Scalar> rows, const double* v,
                              const Coefficients<R> c, const RowGroup<R, Scalar> before, Index n,
                              LaneSums<R>& sums, double* out, const RowGroup<R, Scalar> after) {
  LaneSums<R> local = sums;
  const Index n_whole = n - n % n_lanes;
  for (Index j = 0; j < n_whole; j += n_lanes) {
    if (j % line_entries<Scalar> == 0) {
      for (const Scalar* const row : after) expect_to_read_later(row + j);
    }
    Lanes x;
    Lanes sum;
    load(v + j, x);
    load(out + j, sum);
    for (std::size_t r = 0; r < R; ++r) {
      Lanes a;
      Lanes b;
      load(rows[r] + j, a);
      load(before[r] + j, b);
      local.sum[r] += a * x;
      sum += c[r] * b;
    }
    store(sum, out + j);
  }
  for (Index j = n_whole; j < n; ++j) {
    for (std::size_t r = 0; r < R; ++r) {
      add_to_lane(j - n_whole, static_cast<double>(rows[r][j]) * v[j], local.sum[r]);
      out[j] += c[r] * static_cast<double>(before[r][j]);
    }
  }
  sums = local;
}

// Both in one pass: sums_r += sum_j rows_r[j] v_j and out_j += sum_r c_r rows_r[j]. Entries are
// fetched well ahead, since the processor does not look beyond a page.
template <std::size_t R, class Scalar>
void add_dots_and_combination(const RowGroup<R, Scalar> rows, const double* v,
                              const Coefficients<R> c, Index n, LaneSums<R>& sums, double* out) {
  constexpr Index ahead = 12 * line_entries<Scalar>;
  LaneSums<R> local = sums;
  const Index n_whole = n - n % n_lanes;
  for (Index j = 0; j < n_whole; j += n_lanes) {
    if (j % line_entries<Scalar> == 0) {
      for (const Scalar* const row : rows) expect_to_read(row + std::min(j + ahead, n - 1));
    }
    Lanes x;
    Lanes sum;
    load(v + j, x);
    load(out + j, sum);
    for (std::size_t r = 0; r < R; ++r) {
      Lanes a;
      load(rows[r] + j, a);
      local.sum[r] += a * x;
      sum += c[r] * a;
    }
    store(sum, out + j);
  }
  for (Index j = n_whole; j < n; ++j) {
    for (std::size_t r = 0; r < R; ++r) {
      const auto a = static_cast<double>(rows[r][j]);
      add_to_lane(j - n_whole, a * v[j], local.sum[r]);
      out[j] += c[r] * a;
    }
  }
  sums = local;
}

}  // namespace dpgep
