// Exact sums of integer moment matrices: products of integer rows, made in double precision block
// by block, are added up in 64-bit integers, and beyond those in two limbs.
#pragma once

#include <cstdint>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// The low limb of a two-limb sum, high 2^40 + low, has this many bits.
inline constexpr int limb_bits = 40;

// total_ij += times block_ij, block_ij = 0 for j >= i, times >= 1; the lower triangles are neither
// read nor written.
// Throws std::invalid_argument if an entry of block is not an integer below 2^53 in magnitude: then
// it cannot be trusted to be a sum without rounding. Throws std::overflow_error if a sum leaves
// int64. Both arrays are then unspecified.
void fold_triangle(Rows<double> block, Rows<std::int64_t> total, int n_threads,
                   std::int64_t times = 1);

// total_ij += addend_ij for j >= i. Throws std::overflow_error if a sum leaves int64, total being
// unspecified then.
void add_triangle(Rows<std::int64_t> addend, Rows<std::int64_t> total);

// high_ij += floor(total_ij / 2^40), total_ij mod 2^40 stays, for j >= i. The value
// high 2^40 + total is unchanged. Throws std::overflow_error if high leaves int64.
void carry_triangle(Rows<std::int64_t> total, Rows<std::int64_t> high);

}  // namespace dpgep
