// How the rows are split between the arrays of partial sums: by shapes alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "row_group.hpp"

namespace dpgep {

struct RowChunks {
  Index n_rows;
  Index rows_per_chunk;

  Index count() const { return (n_rows + rows_per_chunk - 1) / rows_per_chunk; }
  Index first(Index chunk) const { return chunk * rows_per_chunk; }
  Index last(Index chunk) const { return std::min(n_rows, (chunk + 1) * rows_per_chunk); }
};

// At most 128 chunks (threads then end at about the same time), with sums of at most 64 MB in all,
// and no more than pay: a chunk should have at least as many entries as there are sums.
inline RowChunks split_rows(Index n_rows, double n_entries, Index n_sums) {
  const double size = std::max(1.0, static_cast<double>(n_sums));
  const double most =
      std::min({128.0, 8.0e6 / size, n_entries / size, static_cast<double>(n_rows)});
  const auto n_chunks = static_cast<Index>(std::max(1.0, most));
  const Index rows = std::max<Index>(1, (n_rows + n_chunks - 1) / n_chunks);
  return {n_rows, (rows + group_rows - 1) / group_rows * group_rows};
}

inline void require_factors(Index n_rows, const ConstVectorView<double>& factors, double scale) {
  if (factors.size() != n_rows) {
    throw std::invalid_argument("factors must have an entry for each of the " +
                                std::to_string(n_rows) + " rows, not " +
                                std::to_string(factors.size()));
  }
  if (!std::isfinite(scale)) throw std::invalid_argument("scale must be finite");
}

}  // namespace dpgep
