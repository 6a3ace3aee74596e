// Stochastic ascent of the trace of V A V^T over K orthonormal rows V: A is known by noisy products
// alone, most of them with the second moment of a sample (sampled_rows.hpp).
#pragma once

#include "dpgep/noisy_product.hpp"

namespace dpgep {

struct Ascent {
  Block vectors;    // (K, d), orthonormal
  Block quotients;  // (K, K), mean of V G^T over the steps; its diagonal estimates eigenvalues
  // Steps not taken: they would have left the finite numbers, or fewer than K directions.
  Index n_rejected_steps;
};

// A step for each of step_sizes:   G = V (M + Z),   V <- orth(V + eta G),
// M + Z new for each step, orth by Gram-Schmidt. A step too large to have an orth is not taken:
// what has been paid for is not lost. Throws std::invalid_argument without steps, for step sizes
// that are negative or not finite, and unless 1 <= K <= d; std::runtime_error where the products
// that are paid for are used up.
Ascent sampled_ascent(NoisyProducts& sampled, const ConstBlock& V,
                      const ConstVectorView<double>& step_sizes);

// The same with less variance, from a gradient that is known at an anchor V_0:
//   G = gradient + (V - V_0)(M + Z).
// Its noise is as small as V - V_0; where that is zero, nothing is asked.
Ascent reduced_ascent(NoisyProducts& sampled, const ConstBlock& V, const ConstBlock& anchor,
                      const ConstBlock& gradient, const ConstVectorView<double>& step_sizes);

}  // namespace dpgep
