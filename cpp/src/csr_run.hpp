// One vector and a run of neighbouring sparse rows. Row by row, the processor guesses wrong where
// most short rows end, and does not look far ahead for memory. Here all entries of the run are
// multiplied by those of v, then added up by rows, a stretch at a time that need not be full, and
// weighted in one loop again: no branch depends on where a row of at most a stretch ends.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "dpgep/csr.hpp"
#include "lanes.hpp"
#include "prefetch.hpp"

namespace dpgep {

// What is held of a run, v and the sums of some hundred features fit the first-level cache.
inline constexpr Index most_run_entries = 256;
inline constexpr Index stretch_entries = 16;

inline constexpr std::array<std::int64_t, 2 * stretch_entries> first_masks = [] {
  std::array<std::int64_t, 2 * stretch_entries> masks{};
  for (std::size_t i = 0; i < stretch_entries; ++i) masks[i] = -1;
  return masks;
}();

// Masks of a stretch whose first n entries are kept.
inline const std::int64_t* mask_of_first(Index n) {
  return first_masks.data() + stretch_entries - std::min(n, stretch_entries);
}

// The sum of n products, in lanes; some after them are read.
inline double sum_of(const double* products, Index n) {
  Lanes sum = {};
  Index p = 0;
  do {
    const std::int64_t* const mask = mask_of_first(n - p);
    for (Index t = 0; t < stretch_entries; t += n_lanes) {
      Lanes x;
      load_kept(products + p + t, mask + t, x);
      sum += x;
    }
    p += stretch_entries;
  } while (p < n);
  return total(sum);
}

// Writes `value` n times, and over some entries after them.
inline void fill_stretches(double* to, Index n, double value) {
  Lanes values;
  fill(value, values);
  Index p = 0;
  do {
    for (Index t = 0; t < stretch_entries; t += n_lanes) store(values, to + p + t);
    p += stretch_entries;
  } while (p < n);
}

// The first row that does not belong to a run from row `first` on: it has no factor, or the run
// would have too many entries.
template <class Scalar, class Integer>
Index end_of_run(const Csr<Scalar, Integer>& rows, const double* factors, Index first, Index last) {
  const Index most = static_cast<Index>(rows.indptr[first]) + most_run_entries;
  Index i = first;
  while (i < last && factors[i] != 0.0 && static_cast<Index>(rows.indptr[i + 1]) <= most) ++i;
  return i;
}

// sums += sum of f_i (f_i z_i . v) z_i over the rows of a run. What comes after it is fetched:
// indices first, and entries later, since the processor waits for a few lines only at a time.
template <class Scalar, class Integer>
void add_run(const Csr<Scalar, Integer>& rows, Index first, Index last, const double* factors,
             const double* v, double* sums) {
  constexpr Index ahead = 2 * most_run_entries;
  constexpr Index line_entries = 64 / static_cast<Index>(sizeof(Scalar));
  constexpr Index line_indices = 64 / static_cast<Index>(sizeof(Integer));
  double products[most_run_entries + stretch_entries];
  double weights[most_run_entries + stretch_entries];
  const auto begin = static_cast<Index>(rows.indptr[first]);
  const Index n = static_cast<Index>(rows.indptr[last]) - begin;
  const Scalar* const data = rows.data.data() + begin;
  const Integer* const indices = rows.indices.data() + begin;
  const auto after = [&](Index p) { return std::min(begin + p + ahead, rows.data.size() - 1); };
  for (Index line = 0; line < n; line += line_indices) {
    expect_to_read(rows.indices.data() + after(line));
    const Index end = std::min(n, line + line_indices);
    for (Index p = line; p < end; ++p) products[p] = static_cast<double>(data[p]) * v[indices[p]];
  }
  fill_stretches(products + n, 1, 0.0);
  for (Index i = first; i < last; ++i) {
    const Index p = static_cast<Index>(rows.indptr[i]) - begin;
    const auto n_entries = static_cast<Index>(rows.indptr[i + 1] - rows.indptr[i]);
    const double dot = sum_of(products + p, n_entries);
    fill_stretches(weights + p, n_entries, factors[i] * dot * factors[i]);
  }
  const Index n_whole = n - n % line_entries;
  for (Index line = 0; line < n_whole; line += line_entries) {
    expect_to_read(rows.data.data() + after(line));
    double addends[64 / sizeof(Scalar)];
    for (Index t = 0; t < line_entries; t += n_lanes) {
      Lanes entries;
      Lanes their_weights;
      load(data + line + t, entries);
      load(weights + line + t, their_weights);
      store(their_weights * entries, addends + t);
    }
    for (Index t = 0; t < line_entries; ++t) sums[indices[line + t]] += addends[t];
  }
  for (Index p = n_whole; p < n; ++p) {
    sums[indices[p]] += weights[p] * static_cast<double>(data[p]);
  }
}

}  // namespace dpgep
