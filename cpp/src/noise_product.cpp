#include "dpgep/noise_product.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <type_traits>

#include "dpgep/norm.hpp"
#include "dpgep/normal.hpp"

namespace dpgep {
namespace {

using Matrix = RowMajorMatrix<double>;

template <class Scalar>
constexpr double orthonormality_tolerance = std::is_same_v<Scalar, float> ? 1e-6 : 1e-8;

// The products are written as sums of scaled rows rather than as Eigen's matrix products: those
// fuse and reorder by instruction set, and the variants would no longer agree in bits.

Matrix transpose_times(const Matrix& left, const Matrix& right) {
  Matrix product = Matrix::Zero(left.cols(), right.cols());
  for (Index i = 0; i < left.rows(); ++i) {
    for (Index a = 0; a < left.cols(); ++a) product.row(a) += left(i, a) * right.row(i);
  }
  return product;
}

void add_product(const Matrix& left, const Matrix& right, Matrix& sum) {
  for (Index i = 0; i < left.rows(); ++i) {
    for (Index a = 0; a < left.cols(); ++a) sum.row(i) += left(i, a) * right.row(a);
  }
}

void require_orthonormal_columns(const Matrix& V, double tolerance) {
  const Matrix gram = transpose_times(V, V);
  const Matrix deviation = gram - Matrix::Identity(V.cols(), V.cols());
  // NaN compares false, so it is refused as well.
  if ((deviation.array().abs() <= tolerance).all()) return;
  std::ostringstream message;
  message << "V (" << V.rows() << ", " << V.cols()
          << ") must have orthonormal columns: max |V'V - I| = "
          << deviation.cwiseAbs().maxCoeff<Eigen::PropagateNaN>() << " > " << tolerance;
  throw std::invalid_argument(message.str());
}

Matrix symmetric_noise(Index K, double scale, NormalSequence& normals) {
  const double off_scale = off_diagonal_scale(scale, NoiseShape::goe);
  Matrix G(K, K);
  for (Index a = 0; a < K; ++a) {
    G(a, a) = scale * normals.next();
    for (Index b = a + 1; b < K; ++b) G(a, b) = G(b, a) = off_scale * normals.next();
  }
  return G;
}

// sqrt(norm^2 - x^2), without the overflow of the squares.
double other_leg(double norm, double x) {
  return std::sqrt(std::max(norm - std::abs(x), 0.0)) * std::sqrt(norm + std::abs(x));
}

}  // namespace

template <class Scalar>
Vector<Scalar> noise_times_vector(const ConstVectorView<Scalar>& v, double scale, NoiseShape shape,
                                  NoiseStream& stream) {
  require_noise_scale(scale);
  const Index d = v.size();
  if (scale == 0.0) return Vector<Scalar>::Zero(d);
  NormalSequence normals(stream, d + 1);
  Vector<double> g(d);
  for (Index i = 0; i < d; ++i) g[i] = normals.next();
  const double h = normals.next();

  const double v_norm = norm(v.data(), d).value();
  const double off_scale = off_diagonal_scale(scale, shape);
  Vector<Scalar> product(d);
  for (Index i = 0; i < d; ++i) {
    const auto v_i = static_cast<double>(v[i]);
    const double leg = shape == NoiseShape::goe ? v_norm : other_leg(v_norm, v_i);
    product[i] = static_cast<Scalar>(off_scale * (leg * g[i] + h * v_i));
  }
  return product;
}

template <class Scalar>
RowMajorMatrix<Scalar> noise_times_block(const ConstRows<Scalar>& V_view, double scale,
                                         NoiseStream& stream) {
  require_noise_scale(scale);
  const Matrix V = V_view.template cast<double>();
  require_orthonormal_columns(V, orthonormality_tolerance<Scalar>);
  const Index d = V.rows();
  const Index K = V.cols();
  if (scale == 0.0) return RowMajorMatrix<Scalar>::Zero(d, K);
  NormalSequence normals(stream, d * K + K * (K + 1) / 2);
  Matrix W(d, K);
  for (Index i = 0; i < W.size(); ++i) W.data()[i] = normals.next();
  const Matrix G = symmetric_noise(K, scale, normals);

  // scale / sqrt 2 (W - V V^T W) + V G = scale / sqrt 2 W + V (G - scale / sqrt 2 V^T W)
  const double off_scale = off_diagonal_scale(scale, NoiseShape::goe);
  const Matrix inner = G - off_scale * transpose_times(V, W);
  W *= off_scale;
  add_product(V, inner, W);
  return W.template cast<Scalar>();
}

template Vector<float> noise_times_vector(const ConstVectorView<float>&, double, NoiseShape,
                                          NoiseStream&);
template Vector<double> noise_times_vector(const ConstVectorView<double>&, double, NoiseShape,
                                           NoiseStream&);
template RowMajorMatrix<float> noise_times_block(const ConstRows<float>&, double, NoiseStream&);
template RowMajorMatrix<double> noise_times_block(const ConstRows<double>&, double, NoiseStream&);

}  // namespace dpgep
