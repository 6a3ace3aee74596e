#include "dpgep/csr_sums.hpp"

#include <stdexcept>

#include "groups.hpp"
#include "partial_sums.hpp"
#include "row_chunks.hpp"

namespace dpgep {
namespace {

// An array of sums costs as much as this many entries for each sum.
constexpr double entries_per_sum = 16.0;

// out = the sum over rows of what add(i, p, sums) adds for entry p of row i.
template <class Sparse, class Add>
void sum_entries(const Sparse& rows, Index n_sums, int n_threads, const Add& add, double* out) {
  const auto work = static_cast<double>(rows.data.size());
  const RowChunks chunks = split_rows(rows.n_rows(), work / entries_per_sum, n_sums);
  const int n_useful = threads_for(work, n_threads);
  PartialSums partials(chunks.count(), n_sums);
  parallel_for(chunks.count(), n_useful, [&](Index chunk) {
    double* const sums = partials.start(chunk);
    for (Index i = chunks.first(chunk); i < chunks.last(chunk); ++i) {
      const auto end = static_cast<Index>(rows.indptr[i + 1]);
      for (auto p = static_cast<Index>(rows.indptr[i]); p < end; ++p) add(i, p, sums);
    }
  });
  partials.add_up(1.0, out, n_useful);
}

}  // namespace

template <class Scalar, class Integer>
void csr_squares(const Csr<Scalar, Integer>& rows, const ConstVectorView<double>& factors,
                 VectorView<double> out, int n_threads) {
  require_threads(n_threads);
  require_canonical_csr(rows, out.size(), n_threads);
  require_factors(rows.n_rows(), factors, 1.0);
  sum_entries(
      rows, out.size(), n_threads,
      [&](Index i, Index p, double* sums) {
        const double x = factors[i] * static_cast<double>(rows.data[p]);
        sums[rows.indices[p]] += x * x;
      },
      out.data());
}

template <class Scalar, class Integer>
void csr_group_sums(const Csr<Scalar, Integer>& rows, const ConstVectorView<double>& factors,
                    const ConstVectorView<std::int64_t>& groups, Rows<double> out, int n_threads) {
  require_threads(n_threads);
  const Index n_groups = out.cols();
  if (out.rows() > 1 && out.outerStride() != n_groups) {
    throw std::invalid_argument("out must be contiguous, not the columns of a wider array");
  }
  require_canonical_csr(rows, out.rows(), n_threads);
  require_factors(rows.n_rows(), factors, 1.0);
  require_groups(groups, rows.n_rows(), n_groups);
  if (n_groups == 0) return;
  sum_entries(
      rows, out.size(), n_threads,
      [&](Index i, Index p, double* sums) {
        const Index place = static_cast<Index>(rows.indices[p]) * n_groups + group_of(groups, i);
        sums[place] += factors[i] * static_cast<double>(rows.data[p]);
      },
      out.data());
}

template void csr_squares(const Csr<float, std::int32_t>&, const ConstVectorView<double>&,
                          VectorView<double>, int);
template void csr_squares(const Csr<float, std::int64_t>&, const ConstVectorView<double>&,
                          VectorView<double>, int);
template void csr_squares(const Csr<double, std::int32_t>&, const ConstVectorView<double>&,
                          VectorView<double>, int);
template void csr_squares(const Csr<double, std::int64_t>&, const ConstVectorView<double>&,
                          VectorView<double>, int);
template void csr_group_sums(const Csr<float, std::int32_t>&, const ConstVectorView<double>&,
                             const ConstVectorView<std::int64_t>&, Rows<double>, int);
template void csr_group_sums(const Csr<float, std::int64_t>&, const ConstVectorView<double>&,
                             const ConstVectorView<std::int64_t>&, Rows<double>, int);
template void csr_group_sums(const Csr<double, std::int32_t>&, const ConstVectorView<double>&,
                             const ConstVectorView<std::int64_t>&, Rows<double>, int);
template void csr_group_sums(const Csr<double, std::int64_t>&, const ConstVectorView<double>&,
                             const ConstVectorView<std::int64_t>&, Rows<double>, int);

}  // namespace dpgep
