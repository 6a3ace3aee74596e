#include "dpgep/norm.hpp"

#include <cmath>
#include <limits>

namespace dpgep {
namespace {

constexpr Index n_partial = 8;

template <class Scalar, class Term>
inline double blocked_sum(const Scalar* v, Index n, Term term) {
  double partial[n_partial] = {};
  const Index n_blocked = n - n % n_partial;
  for (Index i = 0; i < n_blocked; i += n_partial) {
    for (Index j = 0; j < n_partial; ++j) partial[j] += term(static_cast<double>(v[i + j]));
  }
  for (Index i = n_blocked; i < n; ++i) {
    partial[i - n_blocked] += term(static_cast<double>(v[i]));
  }
  return ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
         ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

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
  // Squares that underflow lose at most n 2^-1075, nothing beside a sum above 2^-900.
  const double direct = blocked_sum(v, n, [](double x) { return x * x; });
  if (direct >= 0x1p-900 && direct <= std::numeric_limits<double>::max()) {
    return {1.0, std::sqrt(direct)};
  }
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
