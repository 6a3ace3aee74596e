// Rows that count several times: of the rows of one person, each has a part of the person's weight.
#pragma once

#include <cstdint>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// How often each row counts, at most 2^13 times; without entries, each counts once.
inline constexpr std::int16_t largest_weight = 1 << 13;
using RowWeights = ConstVectorView<std::int16_t>;

inline RowWeights once_each() {
  return {nullptr, 0};
}

// Throws std::invalid_argument unless there is a weight from 0 to 2^13 for each row, or none.
void require_weights(const RowWeights& weights, Index n_rows);

// keys_i = a hash of row i and its group: mix(sum_j word_j factor_j + (group_i + 1) factor_d) mod
// 2^64 with the bits of the entries as doubles, of which -0 is 0 and every NaN the same: word = b ^
// b >> 32, then word ^ word >> 20. Without groups, the last term is left out. There are d + 1
// factors. Throws std::invalid_argument for lengths that do not fit, and unless n_threads >= 1.
template <class Scalar>
void hash_rows(const ConstRows<Scalar>& rows, const ConstVectorView<std::uint64_t>& factors,
               const ConstVectorView<std::int64_t>& groups, VectorView<std::uint64_t> keys,
               int n_threads);

}  // namespace dpgep
