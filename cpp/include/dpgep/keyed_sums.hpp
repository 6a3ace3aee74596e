// The two checksums of a block of 64-bit words, which no change escapes that does not know the
// keys.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// (sum_j k_j w_j, sum_j l_j b(w_j)) mod 2^64 for the words w_j that the bytes hold in the order of
// this machine, eight each; b reverses the bytes of a word. They may begin at any address. Throws
// std::invalid_argument for other than whole words, and for fewer keys k or l than words.
std::pair<std::uint64_t, std::uint64_t> keyed_sums(const ConstVectorView<std::uint8_t>& bytes,
                                                   const ConstVectorView<std::uint64_t>& k,
                                                   const ConstVectorView<std::uint64_t>& l);

// The same of columns of words, blocks of as many as there are keys: sums(i, 2 j) and (i, 2 j + 1)
// are of block i of column j. The first block lacks `begun` words before the first. Throws
// std::invalid_argument for columns of several lengths or that are no whole words, and for other
// numbers of keys and sums.
void keyed_column_sums(const std::vector<ConstVectorView<std::uint8_t>>& columns, Index begun,
                       const ConstVectorView<std::uint64_t>& k,
                       const ConstVectorView<std::uint64_t>& l, Rows<std::uint64_t> sums,
                       int n_threads);

}  // namespace dpgep
