#include "dpgep/block.hpp"

#include <algorithm>

#include "row_group.hpp"

namespace dpgep {
namespace {

// Columns that are worked on while they are in the first cache.
constexpr Index tile = 512;

}  // namespace

// Tile by tile, so that a sum of d products has no more than 140 + d / 512 additions in a row: the
// error bound of docs/exactness.md.
Block inner_products(const ConstBlock& X, const ConstBlock& Y) {
  Block products = Block::Zero(X.rows(), Y.rows());
  for_each_group(0, X.rows(), [&](auto R, Index i) {
    for (Index first = 0; first < X.cols(); first += tile) {
      const Index width = std::min(tile, X.cols() - first);
      const auto rows = row_group<R>(X, i, first);
      for (Index k = 0; k < Y.rows(); ++k) {
        LaneSums<R> sums;
        add_dots<R>(rows, row(Y, k) + first, width, sums);
        for (std::size_t r = 0; r < R; ++r) products(i + static_cast<Index>(r), k) += sums.dot(r);
      }
    }
  });
  return products;
}

void add_combinations(const ConstBlock& C, const ConstBlock& Y, Rows<double> out) {
  for (Index first = 0; first < Y.cols(); first += tile) {
    const Index width = std::min(tile, Y.cols() - first);
    for_each_group(0, Y.rows(), [&](auto R, Index i) {
      const auto rows = row_group<R>(Y, i, first);
      for (Index k = 0; k < C.rows(); ++k) {
        Coefficients<R> c;
        std::copy_n(row(C, k) + i, R, c.begin());
        add_combination<R>(c, rows, width, &out(k, first));
      }
    });
  }
}

Block combinations(const ConstBlock& C, const ConstBlock& Y) {
  Block result = Block::Zero(C.rows(), Y.cols());
  add_combinations(C, Y, mutable_view(result));
  return result;
}

}  // namespace dpgep
