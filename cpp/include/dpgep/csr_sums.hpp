// Sums over sparse rows, each multiplied by a factor.
#pragma once

#include "dpgep/csr.hpp"

namespace dpgep {

// Both take one pass over the rows, and give the same bits for any number of threads. They throw
// std::invalid_argument unless rows are canonical (csr.hpp), there are as many factors, and
// n_threads >= 1.

// out_j = sum_i (f_i x_ij)^2: the diagonal of the second moment.
template <class Scalar, class Integer>
void csr_squares(const Csr<Scalar, Integer>& rows, const ConstVectorView<double>& factors,
                 VectorView<double> out, int n_threads);

// out (n_features, n_groups), out_jg = sum of f_i x_ij over the rows i of group g. No groups:
// everybody is in the first, if there is one. Throws as well unless out is contiguous, and
// otherwise there is a group in [0, n_groups) for each row.
template <class Scalar, class Integer>
void csr_group_sums(const Csr<Scalar, Integer>& rows, const ConstVectorView<double>& factors,
                    const ConstVectorView<std::int64_t>& groups, Rows<double> out, int n_threads);

}  // namespace dpgep
