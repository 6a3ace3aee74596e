#include "dpgep/csr.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "dpgep/parallel.hpp"

namespace dpgep {
namespace {

constexpr Index rows_per_task = 4096;

template <class Scalar, class Integer>
void require_lengths(const Csr<Scalar, Integer>& rows) {
  require_indptr(rows.indptr, rows.data.size());
  if (rows.indices.size() == rows.data.size()) return;
  throw std::invalid_argument(
      "indices must have as many entries as data: " + std::to_string(rows.indices.size()) +
      " != " + std::to_string(rows.data.size()));
}

// 0 <= index < n: a negative index is a large one without its sign.
template <class Integer>
bool is_below(Integer index, Index n) {
  return static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(n);
}

std::string out_of_range(Index n_features) {
  return "indices must satisfy 0 <= index < n_features = " + std::to_string(n_features);
}

// Calls body(begin, end) for the indices of each row that has any.
template <class Scalar, class Integer, class Body>
void for_each_row(const Csr<Scalar, Integer>& rows, int n_threads, const Body& body) {
  const Integer* const indices = rows.indices.data();
  const Index n_tasks = (rows.n_rows() + rows_per_task - 1) / rows_per_task;
  parallel_for(n_tasks, n_threads, [&](Index task) {
    const Index last = std::min(rows.n_rows(), (task + 1) * rows_per_task);
    for (Index i = task * rows_per_task; i < last; ++i) {
      if (rows.indptr[i] == rows.indptr[i + 1]) continue;
      body(indices + rows.indptr[i], indices + rows.indptr[i + 1]);
    }
  });
}

}  // namespace

template <class Integer>
void require_indptr(const ConstVectorView<Integer>& indptr, Index n_entries) {
  const Integer* const begin = indptr.data();
  const Integer* const end = begin + indptr.size();
  if (begin == end || *begin != 0 || *(end - 1) != n_entries || !std::is_sorted(begin, end)) {
    throw std::invalid_argument("indptr must rise from 0 to the number of entries, " +
                                std::to_string(n_entries));
  }
}

template <class Scalar, class Integer>
void require_csr(const Csr<Scalar, Integer>& rows, Index n_features) {
  require_lengths(rows);
  bool in_range = true;
  for (Index p = 0; p < rows.indices.size(); ++p) in_range &= is_below(rows.indices[p], n_features);
  if (!in_range) throw std::invalid_argument(out_of_range(n_features));
}

template <class Scalar, class Integer>
bool has_sorted_rows(const Csr<Scalar, Integer>& rows, int n_threads) {
  std::atomic<bool> sorted{true};
  for_each_row(rows, n_threads, [&](const Integer* begin, const Integer* end) {
    bool rises = true;
    for (const Integer* index = begin + 1; index < end; ++index) rises &= index[-1] <= index[0];
    if (!rises) sorted = false;
  });
  return sorted;
}

template <class Scalar, class Integer>
void require_canonical_csr(const Csr<Scalar, Integer>& rows, Index n_features, int n_threads) {
  require_lengths(rows);
  for_each_row(rows, n_threads, [&](const Integer* begin, const Integer* end) {
    bool rises = true;
    for (const Integer* index = begin + 1; index < end; ++index) rises &= index[-1] < index[0];
    if (!is_below(*begin, n_features) || !is_below(end[-1], n_features)) {
      throw std::invalid_argument(out_of_range(n_features));
    }
    if (!rises) {
      throw std::invalid_argument(
          "indices must rise strictly in each row: sort them and sum duplicates");
    }
  });
}

template void require_indptr(const ConstVectorView<std::int32_t>&, Index);
template void require_indptr(const ConstVectorView<std::int64_t>&, Index);
template void require_csr(const Csr<float, std::int32_t>&, Index);
template void require_csr(const Csr<float, std::int64_t>&, Index);
template void require_csr(const Csr<double, std::int32_t>&, Index);
template void require_csr(const Csr<double, std::int64_t>&, Index);
template void require_csr(const Csr<std::int32_t, std::int32_t>&, Index);
template void require_csr(const Csr<std::int32_t, std::int64_t>&, Index);
template bool has_sorted_rows(const Csr<float, std::int32_t>&, int);
template void require_canonical_csr(const Csr<float, std::int32_t>&, Index, int);
template bool has_sorted_rows(const Csr<float, std::int64_t>&, int);
template void require_canonical_csr(const Csr<float, std::int64_t>&, Index, int);
template bool has_sorted_rows(const Csr<double, std::int32_t>&, int);
template void require_canonical_csr(const Csr<double, std::int32_t>&, Index, int);
template bool has_sorted_rows(const Csr<double, std::int64_t>&, int);
template void require_canonical_csr(const Csr<double, std::int64_t>&, Index, int);
template void require_canonical_csr(const Csr<std::int32_t, std::int32_t>&, Index, int);
template void require_canonical_csr(const Csr<std::int32_t, std::int64_t>&, Index, int);

}  // namespace dpgep
