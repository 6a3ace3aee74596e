// Histograms and sums over the people of a table, in integers: of columns whose scale nobody knows
// yet, and of the norms of rows.
#pragma once

#include "dpgep/row_map.hpp"
#include "dpgep/row_weights.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

// All add to `counts` what each row adds, as often as its weight says, and return whether no entry
// that was looked at is infinite or, unless NaN stands for a `missing` value and adds nothing, NaN;
// else the counts mean nothing. Rows are read once. The same integers for any number of threads.
// They throw std::invalid_argument for shapes that do not fit, and unless n_threads >= 1.

using Integers = VectorView<std::int64_t>;
using ConstIntegers = ConstVectorView<std::int64_t>;

// counts (n_columns, 2, n_octaves + 1): zeros of a column in the first bin; x = m 2^e, 1/2 <= |m|
// < 1, in the bin e - first_octave, or the nearest of the others. Positive entries, then negative.
template <class Scalar>
bool count_magnitudes(const ConstRows<Scalar>& rows, const ConstIntegers& columns, bool missing,
                      Index first_octave, Index n_octaves, Integers counts, int n_threads,
                      const RowWeights& weights = once_each());

// counts (n_columns, n_bins): entries in each of n_bins equal parts of their column's interval,
// middle_c +- half_c, finite, with half_c > 0. What lies beyond an end counts as there.
template <class Scalar>
bool count_places(const ConstRows<Scalar>& rows, const ConstIntegers& columns, bool missing,
                  const ConstVectorView<double>& middle, const ConstVectorView<double>& half,
                  Integers counts, int n_threads, const RowWeights& weights = once_each());

// counts (3, d): sums of p and p^2, p = round(2^bits u), of the places -1 <= u <= 1 of the entries
// in their column's interval; then the number of entries that are there. 0 <= bits <= 10.
template <class Scalar>
bool sum_places(const ConstRows<Scalar>& rows, bool missing, const ConstVectorView<double>& middle,
                const ConstVectorView<double>& half, int bits, Integers counts, int n_threads,
                const RowWeights& weights = once_each());

// Bins of norms m 2^e, 1/2 <= m < 1, by K = n_steps (e - 1) + (how many of the n_steps - 1
// ascending steps are at most m), which is `zero` of a row of zeros: the bin K - first or the
// nearest.
struct NormBins {
  ConstVectorView<double> steps;
  Index zero;
  Index first;
};

// counts (n_bins): rows by their norm max |x_j| sqrt(sum (x_j / max)^2), squares in integers; of
// mapped rows, with a map.
template <class Scalar>
bool count_norms(const ConstRows<Scalar>& rows, const NormBins& bins, Integers counts,
                 int n_threads, const RowWeights& weights = once_each(),
                 const RowMap* map = nullptr);

// The same of the rows data[indptr[i]:indptr[i + 1]], without duplicates.
template <class Scalar, class Integer>
bool count_norms_csr(const ConstVectorView<Scalar>& data, const ConstVectorView<Integer>& indptr,
                     const NormBins& bins, Integers counts, int n_threads,
                     const RowWeights& weights = once_each());

// Rows may be their own output.
template <class Scalar>
bool map_rows(const ConstRows<Scalar>& rows, const RowMap& map, Rows<double> out, int n_threads);

// rows = round(2^bits rows) 2^-bits linear. The same bits for any threads and order of additions if
// sums of 2^bits rows times linear, in units of its grid, are integers below 2^53.
void mix_rows(Rows<double> rows, const ConstRows<double>& linear, int bits, int n_threads);

}  // namespace dpgep
