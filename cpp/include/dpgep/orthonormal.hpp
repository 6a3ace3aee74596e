// Rows in terms of orthonormal directions.
#pragma once

#include "dpgep/block.hpp"

namespace dpgep {

// V = known Q + added D, up to rounding: Q the given directions, D new ones.
struct Expansion {
  Block known;       // (K, number of rows of Q)
  Block added;       // (K, r)
  Block directions;  // D (r, d), orthonormal, and orthogonal to Q
};

// Gram-Schmidt, every row projected twice. What remains of a row adds a direction if it is longer
// than 1e-10 of the row; otherwise it is dropped. Throws std::invalid_argument if an entry of V is
// not finite.
Expansion expand(const ConstBlock& V, const ConstBlock& Q);

}  // namespace dpgep
