// Noise on a public grid: values computed in floating point are rounded to it, and the noise is an
// exactly rounded normal deviate. The last bits of a sum say nothing then about its terms.
#pragma once

#include <cstdint>
#include <vector>

#include "dpgep/noise_stream.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

// The grid for noise of a scale s > 0 and the scales of the noise in its units, rounded up. The
// unit is the power of two 2^-28 s, nearly, so that rounding moves nothing that noise does not
// hide.
struct Grid {
  double unit;
  std::int64_t diagonal;      // the least integer with diagonal unit >= s
  std::int64_t off_diagonal;  // the least integer t with 2 t^2 >= diagonal^2

  // Throws std::invalid_argument unless 2^-900 <= scale <= 2^900.
  explicit Grid(double scale);

  // The nearest point of the grid, in units, halves to even. Beyond 2^61 the end of the range,
  // which moves no two values further apart. NaN, which no sum of bounded rows is, becomes 0.
  std::int64_t nearest(double value) const;
};

// The answer Z q + M q of a symmetric matrix with noise Z for one direction q, from y = M q.
//
// `known`, D (r, d), and q are orthonormal rows, and answers, Y = D (M + Z), were given before:
//   D^T (Y q) + q alpha + (I - D^T D - q q^T) w,
//   alpha = u (nearest(q . y) + round(diagonal N)),
//   w_i = u (nearest(y'_i) + round(off_diagonal N_i)),   y' = (I - D^T D - q q^T) y.
// The d deviates of w are drawn first, then that of alpha. Everything but y' and q . y is a
// function of released values: rounding before the noise, combinations after it. With r = 0 it is
// the answer of a matrix Z drawn for this question alone.
Vector<double> answer_on_grid(const ConstVectorView<double>& q, Vector<double> y, const Grid& grid,
                              const ConstRows<double>& known, const ConstRows<double>& answers,
                              NoiseStream& stream, int n_threads);

// The same for Z with independent entries N(0, s^2) on and above the diagonal, drawn for this
// question: covariance s^2 (I + q q^T - diag(q_i^2)), from
//   u (nearest(y_i) + round(s_i N_i) + nearest'(s q_i h)),   s_i^2 = s^2 max(1 - q_i^2, 2^-10),
// h = N rounded to 2^-40. The floor adds 0.1 % to the variance of an entry whose q_i is nearly 1.
// The d deviates are drawn first, then h.
Vector<double> iid_answer_on_grid(const ConstVectorView<double>& q, Vector<double> y,
                                  const Grid& grid, NoiseStream& stream, int n_threads);

}  // namespace dpgep
