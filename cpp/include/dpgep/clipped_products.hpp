// Sums over people of x clip(V (x - m))^T, for rows x on an integer grid: exact.
#pragma once

#include <cstdint>
#include <vector>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// V and V m in whole numbers, held in doubles, so small that partial sums of V x - V m are exact.
struct Directions {
  ConstRows<double> vectors;       // (m, d)
  ConstVectorView<double> offset;  // (m)
};

// Some features of a row, which are multiplied by clipped products with some directions: as many as
// there are of every other factor. `unit` brings a product to steps.
struct Factors {
  Index first_feature, n_features, first_direction;
  double unit;
};

// out_i = V x_i - V m for the rows as fixed_point_rows makes them. The same bits for any number of
// threads. False, and throws, as fixed_point_rows does; also for shapes that do not fit.
template <class Scalar>
bool products_on_grid(const ConstRows<Scalar>& rows, double bound, int bits,
                      const Directions& directions, Rows<double> out, int n_threads);

// total, (K, d + 1), += the sum over people of q (x, 1)^T, every feature with the q of its factors,
// the 1 with that of the first: integers. The K products of a person in steps, rounded to the
// nearest integers (ties to even), are q; where their norm exceeds 2^bits, they are multiplied by
// (1 - 2^-40) 2^bits / norm and truncated. Squares of steps must have sums below 2^53.
template <class Scalar>
bool add_clipped_products(const ConstRows<Scalar>& rows, double bound, int bits,
                          const Directions& directions, const std::vector<Factors>& factors,
                          Rows<std::int64_t> total, int n_threads);

}  // namespace dpgep
