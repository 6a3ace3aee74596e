#include "dpgep/norm.hpp"

#include <cmath>

#include "squared_length.hpp"

namespace dpgep {
namespace {

// Infinite when an entry is infinite, NaN when one is NaN.
template <class Scalar>
double largest_magnitude(const Scalar* v, Index n) {
  double largest = 0.0;
  for (Index i = 0; i < n; ++i) {
    const double magnitude = std::abs(static_cast<double>(v[i]));
    if (!(magnitude <= largest)) largest = magnitude;
    if (std::isnan(largest)) return largest;
  }
  return largest;
}

}  // namespace

template <class Scalar>
FactoredNorm norm(const Scalar* v, Index n) {
  const double direct = squared_length(v, n);
  if (is_accurate(direct)) return {1.0, std::sqrt(direct)};
  const double largest = largest_magnitude(v, n);
  if (largest == 0.0 || !std::isfinite(largest)) return {1.0, largest};
  const double relative = blocked_sum(v, n, [largest](double x) {
    const double ratio = x / largest;
    return ratio * ratio;
  });
  return {largest, std::sqrt(relative)};
}

template FactoredNorm norm(const float*, Index);
template FactoredNorm norm(const double*, Index);

}  // namespace dpgep
