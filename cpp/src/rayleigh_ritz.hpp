// The Rayleigh-Ritz step: the best vectors in the span of a block.
#pragma once

#include "dpgep/block.hpp"

namespace dpgep {

// For the rows of V and their products: the quotients rho, descending. Several rows are rotated,
// together with their products, to solutions of R c = rho G c, R = V A V^T, G = V B V^T, so that
// V B V^T = I; one row stays as it is. Noise can make B indefinite: the directions that are too
// short in G are taken to be longer. NaN where the products are not finite.
Vector<double> to_ritz_vectors(Block& V, Block& AV, Block& BV);

}  // namespace dpgep
