// X^T X of integers in columns, whose sums are exact in double precision in any order. People lie
// in lanes, so that no entry has to be copied to all of them, as in products made for any shapes.
#pragma once

#include "lanes.hpp"

namespace dpgep {

// Columns of a tile: nine sums, and what they are made of, fit sixteen registers.
inline constexpr Index tile_columns = 3;

inline Index whole_tiles(Index n_columns) {
  return (n_columns + tile_columns - 1) / tile_columns * tile_columns;
}

inline Index n_tiles(Index n_columns) {
  const Index n = n_columns / tile_columns;
  return n * (n + 1) / 2;
}

// gram += the products of three columns with three, each `stride` after the one before it.
inline void add_tile(const double* left, const double* right, Index stride, Index n,
                     Rows<double> gram) {
  constexpr auto width = static_cast<Index>(sizeof(Register) / sizeof(double));
  Register sums[tile_columns][tile_columns] = {};
  for (Index i = 0; i < n; i += width) {
    Register b[tile_columns];
    for (Index c = 0; c < tile_columns; ++c) load(right + c * stride + i, b[c]);
    for (Index r = 0; r < tile_columns; ++r) {
      Register a;
      load(left + r * stride + i, a);
      for (Index c = 0; c < tile_columns; ++c) add_exact_product(a, b[c], sums[r][c]);
    }
  }
  for (Index r = 0; r < tile_columns; ++r) {
    for (Index c = 0; c < tile_columns; ++c) gram(r, c) += total(sums[r][c]);
  }
}

// gram_ij += sum over n people of columns(i, .) columns(j, .) for j >= i, and for some others.
// There are whole tiles of columns; n is a multiple of n_lanes. Before each of n_tiles products of
// tiles, which read no memory, calls ask().
template <class Ask>
void add_gram(const RowMajorMatrix<double>& columns, Index n, RowMajorMatrix<double>& gram,
              const Ask& ask) {
  const Index stride = columns.cols();
  const Eigen::OuterStride<> gram_stride(gram.cols());
  for (Index i = 0; i < columns.rows(); i += tile_columns) {
    for (Index j = i; j < columns.rows(); j += tile_columns) {
      ask();
      add_tile(columns.data() + i * stride, columns.data() + j * stride, stride, n,
               {&gram(i, j), tile_columns, tile_columns, gram_stride});
    }
  }
}

}  // namespace dpgep
