// Compressed sparse rows.
#pragma once

#include <cstdint>
#include <variant>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// Row i has the entries data[p] in the columns indices[p], indptr[i] <= p < indptr[i + 1].
template <class Scalar, class Integer>
struct Csr {
  ConstVectorView<Scalar> data;
  ConstVectorView<Integer> indices;
  ConstVectorView<Integer> indptr;

  Index n_rows() const { return indptr.size() - 1; }
};

using AnyCsr = std::variant<Csr<float, std::int32_t>, Csr<float, std::int64_t>,
                            Csr<double, std::int32_t>, Csr<double, std::int64_t>>;

// Throws std::invalid_argument unless indptr rises, not strictly, from 0 to n_entries.
template <class Integer>
void require_indptr(const ConstVectorView<Integer>& indptr, Index n_entries);

// And unless there are as many indices as entries, all in [0, n_features).
template <class Scalar, class Integer>
void require_csr(const Csr<Scalar, Integer>& rows, Index n_features);

// Whether the indices of each row rise, not strictly. The rows must be valid.
template <class Scalar, class Integer>
bool has_sorted_rows(const Csr<Scalar, Integer>& rows, int n_threads);

// As require_csr, and unless the indices of each row rise strictly: sorted, no duplicates.
template <class Scalar, class Integer>
void require_canonical_csr(const Csr<Scalar, Integer>& rows, Index n_features, int n_threads);

}  // namespace dpgep
