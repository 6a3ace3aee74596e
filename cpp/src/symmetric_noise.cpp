#include "dpgep/symmetric_noise.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "dpgep/normal.hpp"

namespace dpgep {
namespace {

// Rows that are drawn before they are mirrored, and the edge of a mirrored tile: two cache lines.
constexpr Index tile = 16;

// Row i of the upper triangle: the diagonal entry, then the d - 1 - i entries to its right.
void add_noise_to_upper_row(double* diagonal, Index n_right, double scale, double off_scale,
                            NormalSequence& normals) {
  diagonal[0] += scale * normals.next();
  normals.add_to(diagonal + 1, n_right, off_scale);
}

// Copies rows [first, last) of the upper triangle to the columns below the diagonal, a tile at a
// time, so that both the reads and the writes use whole cache lines.
void mirror_rows(Rows<double>& matrix, Index first, Index last) {
  const Index d = matrix.cols();
  for (Index i = first; i < last; ++i) {
    for (Index j = i + 1; j < last; ++j) matrix(j, i) = matrix(i, j);
  }
  for (Index left = last; left < d; left += tile) {
    const Index width = std::min(tile, d - left);
    matrix.block(left, first, width, last - first) =
        matrix.block(first, left, last - first, width).transpose();
  }
}

// The largest d with d (d + 1) / 2 <= size.
Index triangle_side(Index size) {
  auto d = static_cast<Index>(std::sqrt(2.0 * static_cast<double>(size))) + 1;
  while (d > 0 && d * (d + 1) / 2 > size) --d;
  return d;
}

}  // namespace

NoiseShape parse_noise_shape(std::string_view name) {
  if (name == "goe") return NoiseShape::goe;
  if (name == "iid") return NoiseShape::iid;
  throw std::invalid_argument("shape must be 'goe' or 'iid', not '" + std::string(name) + "'");
}

void require_noise_scale(double scale) {
  if (!(scale >= 0.0 && std::isfinite(scale))) {
    throw std::invalid_argument("scale must satisfy 0 <= scale < inf, not " +
                                std::to_string(scale));
  }
}

double off_diagonal_scale(double scale, NoiseShape shape) {
  return shape == NoiseShape::goe ? scale / std::sqrt(2.0) : scale;
}

void add_symmetric_noise(Rows<double> matrix, double scale, NoiseShape shape, NoiseStream& stream) {
  require_noise_scale(scale);
  const Index d = matrix.cols();
  const double off_scale = off_diagonal_scale(scale, shape);
  NormalSequence normals(stream, d * (d + 1) / 2);
  for (Index first = 0; first < d; first += tile) {
    const Index last = std::min(first + tile, d);
    if (scale > 0.0) {
      for (Index i = first; i < last; ++i) {
        add_noise_to_upper_row(&matrix(i, i), d - 1 - i, scale, off_scale, normals);
      }
    }
    mirror_rows(matrix, first, last);
  }
}

void add_symmetric_noise_packed(VectorView<double> packed, double scale, NoiseShape shape,
                                NoiseStream& stream) {
  require_noise_scale(scale);
  const Index d = triangle_side(packed.size());
  if (d * (d + 1) / 2 != packed.size()) {
    throw std::invalid_argument("packed must have d (d + 1) / 2 entries for some d, not " +
                                std::to_string(packed.size()));
  }
  if (scale == 0.0) return;
  const double off_scale = off_diagonal_scale(scale, shape);
  NormalSequence normals(stream, packed.size());
  double* diagonal = packed.data();
  for (Index n_right = d - 1; n_right >= 0; --n_right) {
    add_noise_to_upper_row(diagonal, n_right, scale, off_scale, normals);
    diagonal += n_right + 1;
  }
}

void add_noise(Rows<double> array, double scale, NoiseStream& stream) {
  require_noise_scale(scale);
  if (scale == 0.0) return;
  NormalSequence normals(stream, array.size());
  for (Index i = 0; i < array.rows(); ++i) {
    normals.add_to(array.data() + i * array.outerStride(), array.cols(), scale);
  }
}

}  // namespace dpgep
