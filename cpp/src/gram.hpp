// X^T X of integers in columns, whose sums are exact in double precision in any order. People lie
// in lanes, so that no entry has to be copied to all of them, as in products made for any shapes.
#pragma once

#include "lanes.hpp"
#include "wide_registers.hpp"

namespace dpgep {

// Columns of a tile: nine sums, and what they are made of, fit sixteen registers.
inline constexpr Index tile_columns = 3;

// People are multiplied in multiples of the lanes of the widest register.
inline constexpr Index gram_lanes = 8;

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

#if defined(DPGEP_WIDE_REGISTERS)
inline constexpr Index wide_rows = 2 * tile_columns;

// The same of six columns with three, whose sums fit these registers.
[[gnu::target("avx512f")]] inline void add_wide_tile(const double* left, const double* right,
                                                     Index stride, Index n, Rows<double> gram) {
  __m512d sums[wide_rows][tile_columns] = {};
  for (Index i = 0; i < n; i += gram_lanes) {
    __m512d b[tile_columns];
    for (Index c = 0; c < tile_columns; ++c) b[c] = _mm512_loadu_pd(right + c * stride + i);
    for (Index r = 0; r < wide_rows; ++r) {
      const __m512d a = _mm512_loadu_pd(left + r * stride + i);
      for (Index c = 0; c < tile_columns; ++c) sums[r][c] = _mm512_fmadd_pd(a, b[c], sums[r][c]);
    }
  }
  for (Index r = 0; r < wide_rows; ++r) {
    for (Index c = 0; c < tile_columns; ++c) {
      // One by one: GCC 12 warns of what its own header does to add these up.
      double lanes[gram_lanes];
      _mm512_storeu_pd(lanes, sums[r][c]);
      for (const double lane : lanes) gram(r, c) += lane;
    }
  }
}
#endif

// gram_ij += sum over n people of columns(i, .) columns(j, .) for j >= i, and for some others.
// There are whole tiles of columns; n is a multiple of gram_lanes. Before products of tiles, which
// read no memory, calls ask(), n_tiles times or a few more.
template <class Ask>
void add_gram(const Rows<double>& columns, Index n, RowMajorMatrix<double>& gram, const Ask& ask) {
  const Index stride = columns.outerStride();
  const Eigen::OuterStride<> gram_stride(gram.cols());
  Index i = 0;
#if defined(DPGEP_WIDE_REGISTERS)
  for (; has_wide_registers() && i + wide_rows <= columns.rows(); i += wide_rows) {
    for (Index j = i; j < columns.rows(); j += tile_columns) {
      ask();
      ask();
      add_wide_tile(columns.data() + i * stride, columns.data() + j * stride, stride, n,
                    {&gram(i, j), wide_rows, tile_columns, gram_stride});
    }
  }
#endif
  for (; i < columns.rows(); i += tile_columns) {
    for (Index j = i; j < columns.rows(); j += tile_columns) {
      ask();
      add_tile(columns.data() + i * stride, columns.data() + j * stride, stride, n,
               {&gram(i, j), tile_columns, tile_columns, gram_stride});
    }
  }
}

}  // namespace dpgep
