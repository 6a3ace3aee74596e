// Gaussian noise added to arrays in place.
#pragma once

#include <string_view>

#include "dpgep/noise_stream.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

// The law of a symmetric noise matrix Z of scale s.
enum class NoiseShape {
  goe,  // Var Z_ii = s^2, Var Z_ij = s^2 / 2: orthogonally invariant
  iid,  // Var Z_ij = s^2 for all i <= j
};

// Throws std::invalid_argument, listing both names, for any other.
NoiseShape parse_noise_shape(std::string_view name);

// Throws std::invalid_argument unless 0 <= scale < inf.
void require_noise_scale(double scale);

// The standard deviation of Z_ij, i != j.
double off_diagonal_scale(double scale, NoiseShape shape);

// matrix (d, d) becomes the symmetric U + Z: U is read from the upper triangle alone, Z is drawn in
// row-major order of the upper triangle, and the sum is written to both triangles. With scale 0
// nothing is drawn.
void add_symmetric_noise(Rows<double> matrix, double scale, NoiseShape shape, NoiseStream& stream);

// The same for the row-major upper triangle alone, d (d + 1) / 2 entries.
void add_symmetric_noise_packed(VectorView<double> packed, double scale, NoiseShape shape,
                                NoiseStream& stream);

// Independent N(0, scale^2) on every entry, in row-major order.
void add_noise(Rows<double> array, double scale, NoiseStream& stream);

}  // namespace dpgep
