// What takes rows to the grid, from their sums of squares.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "dpgep/clip.hpp"

namespace dpgep {

// scales_i = radius / max(bound, length_i), 0 where a row counts as zero. A loop for each step, of
// which the compiler makes lanes: roots and quotients one after the other took a quarter of the
// time of rows of 20 columns.
template <std::size_t n>
void set_scales(const std::array<double, n>& squares, double bound, double radius,
                std::array<double, n>& scales) {
  std::array<double, n> lengths;
  for (std::size_t i = 0; i < n; ++i) lengths[i] = std::sqrt(squares[i]);
  for (std::size_t i = 0; i < n; ++i) scales[i] = radius / std::max(bound, lengths[i]);
  for (std::size_t i = 0; i < n; ++i) {
    scales[i] = counts_as_zero({1.0, lengths[i]}, bound) ? 0.0 : scales[i];
  }
}

}  // namespace dpgep
