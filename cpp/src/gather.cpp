#include "dpgep/gather.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "dpgep/parallel.hpp"

namespace dpgep {
namespace {

// Read side by side: eight doubles fill a cache line of the row, and as many streams are fetched
// ahead by the processor.
constexpr Index n_together = 8;
// Rows of this many entries stay in the second-level cache until all columns have been written.
constexpr Index entries_per_task = Index{1} << 17;

template <class Scalar, class Out>
void gather_together(const Scalar* const* columns, Index first, Index last, Out* out,
                     Index stride) {
  const Scalar* column[n_together];
  for (Index j = 0; j < n_together; ++j) column[j] = columns[j];
  for (Index i = first; i < last; ++i) {
    Out* const row = out + i * stride;
    for (Index j = 0; j < n_together; ++j) row[j] = static_cast<Out>(column[j][i]);
  }
}

}  // namespace

template <class Scalar, class Out>
void gather_rows(const std::vector<const Scalar*>& columns, Rows<Out> out, int n_threads) {
  require_threads(n_threads);
  const Index n = out.rows();
  const Index d = out.cols();
  if (static_cast<Index>(columns.size()) != d) {
    throw std::invalid_argument("out must have " + std::to_string(columns.size()) +
                                " columns, not " + std::to_string(d));
  }
  if (d == 0) return;
  const Index stride = out.outerStride();
  const Index rows_per_task = std::max<Index>(1, entries_per_task / d);
  parallel_for((n + rows_per_task - 1) / rows_per_task, n_threads, [&](Index task) {
    const Index first = task * rows_per_task;
    const Index last = std::min(n, first + rows_per_task);
    Index j = 0;
    for (; j + n_together <= d; j += n_together) {
      gather_together(columns.data() + j, first, last, out.data() + j, stride);
    }
    for (; j < d; ++j) {
      const Scalar* const column = columns[static_cast<std::size_t>(j)];
      for (Index i = first; i < last; ++i) out.data()[i * stride + j] = static_cast<Out>(column[i]);
    }
  });
}

template void gather_rows(const std::vector<const float*>&, Rows<float>, int);
template void gather_rows(const std::vector<const float*>&, Rows<double>, int);
template void gather_rows(const std::vector<const double*>&, Rows<double>, int);

}  // namespace dpgep
