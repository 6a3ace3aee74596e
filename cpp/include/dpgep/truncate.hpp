// Keeping the largest entries of a vector, or rows of a block.
#pragma once

#include <vector>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// Keeps the k entries of largest |v_i|, sets the others to zero, and returns the indices kept,
// ascending. Of equal magnitudes the lower index is kept. O(d). Throws std::invalid_argument unless
// 1 <= k <= d, and if an entry is NaN.
template <class Scalar>
std::vector<std::int64_t> truncate_top_k(VectorView<Scalar> v, Index k);

// The same for the rows of V (d, K), by Euclidean norm.
template <class Scalar>
std::vector<std::int64_t> truncate_rows_top_k(Rows<Scalar> V, Index k);

}  // namespace dpgep
