// Blocks of vectors: every row of a block is one vector. The sums have a fixed order, so all
// processors give the same bits, as Eigen's own products would not.
#pragma once

#include "dpgep/typedefs.hpp"

namespace dpgep {

using Block = RowMajorMatrix<double>;  // (K, d)
using ConstBlock = ConstRows<double>;

inline ConstBlock view(const Block& block) {
  return {block.data(), block.rows(), block.cols(), Eigen::OuterStride<>(block.cols())};
}

inline ConstBlock top_rows(const Block& block, Index n) {
  return {block.data(), n, block.cols(), Eigen::OuterStride<>(block.cols())};
}

inline Rows<double> mutable_view(Block& block) {
  return {block.data(), block.rows(), block.cols(), Eigen::OuterStride<>(block.cols())};
}

inline const double* row(const ConstBlock& block, Index k) {
  return block.data() + k * block.outerStride();
}

// X Y^T.
Block inner_products(const ConstBlock& X, const ConstBlock& Y);

// out += C Y.
void add_combinations(const ConstBlock& C, const ConstBlock& Y, Rows<double> out);

// C Y.
Block combinations(const ConstBlock& C, const ConstBlock& Y);

}  // namespace dpgep
