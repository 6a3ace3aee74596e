// Enforcing the public bound on the norm of a row.
#pragma once

#include "dpgep/typedefs.hpp"

namespace dpgep {

// out_i = rows_i / bound, shrunk into the unit ball: where the computed norm of rows_i / bound
// exceeds 1 - gamma, gamma = (d + 16) 2^-53, the row is also multiplied by (1 - gamma) / norm.
// gamma covers every rounding of the sum of squares, the root, the quotients and the products, so
// the exact norm of each row of out is at most 1. out may be the memory of rows.
//
// False if an entry is NaN or infinite (which one is not told: that would reveal data).
// Throws std::invalid_argument unless bound > 0 and both bound and 1 / bound are finite.
template <class Scalar>
bool clip_rows(const ConstRows<Scalar>& rows, double bound, Rows<double> out);

// The factors alone, for rows that stay as they are: out_i = 1 where the computed norm of rows_i is
// at most bound (1 - gamma), else bound (1 - gamma) / norm, rounded down; 0 for a row longer than
// 2^500 bound, whose products would leave the range of a double. The exact norm of out_i rows_i is
// at most bound. False and exceptions as above.
template <class Scalar>
bool clip_factors(const ConstRows<Scalar>& rows, double bound, VectorView<double> out);

// The same for compressed sparse rows without duplicates; d in gamma is the number of entries of
// the row. Throws std::invalid_argument if indptr is not valid (csr.hpp).
template <class Scalar, class Integer>
bool clip_factors(const ConstVectorView<Scalar>& data, const ConstVectorView<Integer>& indptr,
                  double bound, VectorView<double> out);

}  // namespace dpgep
