// Products with a fresh symmetric noise matrix Z that is never formed: for a vector or block that
// was fixed before Z is drawn, the product has a normal law of its own, drawn in O(d) or O(d K).
#pragma once

#include "dpgep/symmetric_noise.hpp"

namespace dpgep {

// Z v for v of any norm, from g (d deviates) and then h (one):
//   goe: scale / sqrt 2 (||v|| g + h v)
//   iid: scale (sqrt(||v||^2 - v_i^2) g_i + v_i h)_i
template <class Scalar>
Vector<Scalar> noise_times_vector(const ConstVectorView<Scalar>& v, double scale, NoiseShape shape,
                                  NoiseStream& stream);

// Z V for V (d, K) with orthonormal columns and Z of the orthogonally invariant shape:
//   scale / sqrt 2 (W - V (V^T W)) + V G,
// W (d, K) independent N(0, 1), drawn first, row-major; G (K, K) symmetric of the same scale and
// shape, upper triangle row-major. Throws std::invalid_argument unless
// max |V^T V - I| <= 1e-8 (float: 1e-6): for other V the covariance would be wrong.
template <class Scalar>
RowMajorMatrix<Scalar> noise_times_block(const ConstRows<Scalar>& V, double scale,
                                         NoiseStream& stream);

}  // namespace dpgep
