// Sums of squares in the order that `norm` states, inlined: of a width that the compiler knows no
// loop is left.
#pragma once

#include <limits>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// Sum of term(v_i). Width is Index or std::integral_constant<Index, n>.
template <class Scalar, class Width, class Term>
inline double blocked_sum(const Scalar* v, Width width, Term term) {
  constexpr Index n_partial = 8;
  const Index n = width;
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

template <class Scalar, class Width>
inline double squared_length(const Scalar* v, Width width) {
  return blocked_sum(v, width, [](double x) { return x * x; });
}

// Squares that underflow lose at most n 2^-1075, nothing beside a sum above 2^-900.
inline bool is_accurate(double squared_length) {
  return squared_length >= 0x1p-900 && squared_length <= std::numeric_limits<double>::max();
}

}  // namespace dpgep
