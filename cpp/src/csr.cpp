#include "dpgep/csr.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dpgep {

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
  require_indptr(rows.indptr, rows.data.size());
  if (rows.indices.size() != rows.data.size()) {
    throw std::invalid_argument(
        "indices must have as many entries as data: " + std::to_string(rows.indices.size()) +
        " != " + std::to_string(rows.data.size()));
  }
  const bool in_range = (rows.indices.array() >= 0).all() &&
                        (rows.indices.template cast<std::int64_t>().array() < n_features).all();
  if (!in_range) {
    throw std::invalid_argument("indices must satisfy 0 <= index < n_features = " +
                                std::to_string(n_features));
  }
}

template void require_indptr(const ConstVectorView<std::int32_t>&, Index);
template void require_indptr(const ConstVectorView<std::int64_t>&, Index);
template void require_csr(const Csr<float, std::int32_t>&, Index);
template void require_csr(const Csr<float, std::int64_t>&, Index);
template void require_csr(const Csr<double, std::int32_t>&, Index);
template void require_csr(const Csr<double, std::int64_t>&, Index);

}  // namespace dpgep
