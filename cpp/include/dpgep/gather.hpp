// Rows of a matrix whose columns lie apart in memory, as tables hold them.
#pragma once

#include <vector>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// out_ij = columns[j][i]. The columns have as many entries as out has rows, and share no memory
// with it. Throws std::invalid_argument unless there are as many columns as out has, and
// n_threads >= 1.
template <class Scalar, class Out>
void gather_rows(const std::vector<const Scalar*>& columns, Rows<Out> out, int n_threads);

}  // namespace dpgep
