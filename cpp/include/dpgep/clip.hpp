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

}  // namespace dpgep
