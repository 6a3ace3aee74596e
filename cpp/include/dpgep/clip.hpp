// Enforcing the public bound on the norm of a row.
#pragma once

#include "dpgep/norm.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

// Whether a row of this norm counts as zero: beyond 2^500 bounds its products would leave the range
// of a double. All kernels ask this, for what a person adds to one sum and to another must be one
// row. The product with 2^-500 is exact wherever the answer hangs on it.
inline bool counts_as_zero(const FactoredNorm& length, double bound) {
  return length.scale * 0x1p-500 * length.relative > bound;
}

// out_i = rows_i / bound, shrunk into the unit ball: where the computed norm of rows_i / bound
// exceeds 1 - gamma, gamma = (d + 16) 2^-53, the row is also multiplied by (1 - gamma) / norm; 0
// where it counts as zero. gamma covers every rounding of the sum of squares, the root, the
// quotients and the products, so the exact norm of each row of out is at most 1. out may be the
// memory of rows.
//
// False if an entry is NaN or infinite (which one is not told: that would reveal data).
// Throws std::invalid_argument unless bound > 0 and both bound and 1 / bound are finite.
template <class Scalar>
bool clip_rows(const ConstRows<Scalar>& rows, double bound, Rows<double> out);

// The factors alone, for rows that stay as they are: out_i = 1 where the computed norm of rows_i is
// at most bound (1 - gamma), else bound (1 - gamma) / norm, rounded down; 0 where it counts as
// zero. The exact norm of out_i rows_i is at most bound. False and exceptions as above.
template <class Scalar>
bool clip_factors(const ConstRows<Scalar>& rows, double bound, VectorView<double> out);

// The same for compressed sparse rows without duplicates; d in gamma is the number of entries of
// the row. Throws std::invalid_argument if indptr is not valid (csr.hpp).
template <class Scalar, class Integer>
bool clip_factors(const ConstVectorView<Scalar>& data, const ConstVectorView<Integer>& indptr,
                  double bound, VectorView<double> out);

}  // namespace dpgep
