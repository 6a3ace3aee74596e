// The moment matrix of sparse rows of integers, which are never filled in.
#pragma once

#include <cstdint>

#include "dpgep/csr.hpp"

namespace dpgep {

// total_jk += sum_i z_ij z_ik for k >= j, with z_i = [row i; mark e(groups_i)]: exact, the same for
// any number of threads. The lower triangle is neither read nor written. No groups: everybody is in
// the first, if total has a column for it. Sums that leave int64 wrap around: the caller keeps
// sum_i |z_ij z_ik| below 2^63.
//
// Up to sums_in_cache, threads but the first have sums of their own, 64 MB at most. Of a larger
// total, a copy of the rows is sorted, a batch at a time: half the memory of total, or 64 MB.
//
// Throws std::invalid_argument, before total is touched, unless rows are canonical (csr.hpp), total
// has n_features + n_groups rows and columns, there are no groups (then n_groups <= 1) or one in
// [0, n_groups) for each row, and n_threads >= 1.
template <class Integer>
void add_csr_moments(const Csr<std::int32_t, Integer>& rows, Index n_features,
                     const ConstVectorView<std::int64_t>& groups, std::int32_t mark,
                     Rows<std::int64_t> total, int n_threads, Index sums_in_cache = Index{1} << 20);

}  // namespace dpgep
