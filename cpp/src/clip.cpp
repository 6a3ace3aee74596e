#include "dpgep/clip.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

#include "dpgep/csr.hpp"
#include "dpgep/norm.hpp"

namespace dpgep {
namespace {

void require_invertible(double bound) {
  if (!(bound > 0.0 && std::isfinite(bound) && std::isfinite(1.0 / bound))) {
    throw std::invalid_argument("bound must satisfy 0 < bound < inf with a finite 1/bound, not " +
                                std::to_string(bound));
  }
}

bool has_exact_reciprocal(double x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5 && std::isfinite(1.0 / x);
}

// 1 - gamma.
double safe_radius(Index d) {
  return 1.0 - static_cast<double>(d + 16) * 0x1p-53;
}

// out = row / divisor * shrink, each operation rounded once. The reciprocal of a power of two is
// exact, so its product has the bits of the quotient and costs a fraction of it.
template <class Scalar>
void scale_row(const Scalar* row, Index d, double divisor, double shrink, double* out) {
  const auto source = ConstVectorView<Scalar>(row, d).array().template cast<double>();
  auto target = VectorView<double>(out, d).array();
  if (has_exact_reciprocal(divisor)) {
    target = source * (1.0 / divisor) * shrink;
  } else {
    target = source / divisor * shrink;
  }
}

// The row is read from memory for its norm and again, from the cache, to be written.
template <class Scalar>
bool clip_row(const Scalar* row, Index d, double bound, double radius, double* out) {
  const FactoredNorm length = norm(row, d);
  if (!std::isfinite(length.relative)) return false;
  if (counts_as_zero(length, bound)) {
    VectorView<double>(out, d).setZero();
    return true;
  }
  const bool is_direct = length.scale == 1.0;
  const double ratio = is_direct ? length.relative / bound : length.scale / bound * length.relative;
  if (ratio <= radius) {
    scale_row(row, d, bound, 1.0, out);
  } else if (is_direct) {
    scale_row(row, d, bound, radius / ratio, out);
  } else {
    scale_row(row, d, length.scale, radius / length.relative, out);
  }
  return true;
}

// Of the quotients the second is last, since it alone may be subnormal: a step down makes up for
// its rounding, whatever it lost.
template <class Scalar>
bool clip_factor(const Scalar* row, Index d, double bound, double& out) {
  const FactoredNorm length = norm(row, d);
  if (!std::isfinite(length.relative)) return false;
  const double radius = bound * safe_radius(d);
  if (counts_as_zero(length, bound)) {
    out = 0.0;
  } else if (length.value() <= radius) {
    out = 1.0;
  } else {
    out = std::nextafter(radius / length.relative / length.scale, 0.0);
  }
  return true;
}

}  // namespace

template <class Scalar>
bool clip_rows(const ConstRows<Scalar>& rows, double bound, Rows<double> out) {
  require_invertible(bound);
  const Index d = rows.cols();
  const double radius = safe_radius(d);
  bool all_finite = true;
  for (Index i = 0; i < rows.rows(); ++i) {
    all_finite &= clip_row(rows.data() + i * rows.outerStride(), d, bound, radius,
                           out.data() + i * out.outerStride());
  }
  return all_finite;
}

template <class Scalar>
bool clip_factors(const ConstRows<Scalar>& rows, double bound, VectorView<double> out) {
  require_invertible(bound);
  bool all_finite = true;
  for (Index i = 0; i < rows.rows(); ++i) {
    const Scalar* const row = rows.data() + i * rows.outerStride();
    all_finite &= clip_factor(row, rows.cols(), bound, out[i]);
  }
  return all_finite;
}

template <class Scalar, class Integer>
bool clip_factors(const ConstVectorView<Scalar>& data, const ConstVectorView<Integer>& indptr,
                  double bound, VectorView<double> out) {
  require_invertible(bound);
  require_indptr(indptr, data.size());
  bool all_finite = true;
  for (Index i = 0; i + 1 < indptr.size(); ++i) {
    const Scalar* const row = data.data() + indptr[i];
    all_finite &= clip_factor(row, static_cast<Index>(indptr[i + 1] - indptr[i]), bound, out[i]);
  }
  return all_finite;
}

template bool clip_rows(const ConstRows<float>&, double, Rows<double>);
template bool clip_rows(const ConstRows<double>&, double, Rows<double>);
template bool clip_factors(const ConstRows<float>&, double, VectorView<double>);
template bool clip_factors(const ConstRows<double>&, double, VectorView<double>);
template bool clip_factors(const ConstVectorView<float>&, const ConstVectorView<std::int32_t>&,
                           double, VectorView<double>);
template bool clip_factors(const ConstVectorView<float>&, const ConstVectorView<std::int64_t>&,
                           double, VectorView<double>);
template bool clip_factors(const ConstVectorView<double>&, const ConstVectorView<std::int32_t>&,
                           double, VectorView<double>);
template bool clip_factors(const ConstVectorView<double>&, const ConstVectorView<std::int64_t>&,
                           double, VectorView<double>);

}  // namespace dpgep
