#include "dpgep/symmetric_product.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "partial_sums.hpp"
#include "row_group.hpp"

namespace dpgep {
namespace {

// A chunk of rows is worth its own array of sums if it has this many.
constexpr Index least_rows = 64;
constexpr Index most_chunks = 64;
constexpr Index tile = 512;

// Row at which chunk c begins: the chunks have equal parts of the triangle, in whole groups.
Index first_row(Index c, Index n_chunks, Index d) {
  if (c == n_chunks) return d;
  const double part = static_cast<double>(c) / static_cast<double>(n_chunks);
  const auto row = static_cast<Index>(static_cast<double>(d) * (1.0 - std::sqrt(1.0 - part)));
  return row - row % group_rows;
}

// The triangle that the rows [first, last) have on the diagonal.
template <class Scalar>
void add_corner(const ConstRows<Scalar>& matrix, Index first, Index last, const double* v,
                double* out) {
  for (Index r = first; r < last; ++r) {
    out[r] += static_cast<double>(matrix(r, r)) * v[r];
    for (Index c = r + 1; c < last; ++c) {
      const auto a = static_cast<double>(matrix(r, c));
      out[r] += a * v[c];
      out[c] += a * v[r];
    }
  }
}

// Rows i, ..., i + R - 1 of the upper triangle: each entry serves both of its places.
template <std::size_t R, class Scalar>
void add_group(const ConstRows<Scalar>& matrix, Index i, const Block& V, double* out) {
  const Index d = matrix.cols();
  const Index K = V.rows();
  const Index last = i + static_cast<Index>(R);
  std::vector<LaneSums<R>> sums(static_cast<std::size_t>(K));
  const Index width = K == 1 ? d : tile;
  for (Index first = last; first < d; first += width) {
    const Index n = std::min(width, d - first);
    const auto rows = row_group<R>(matrix, i, first);
    for (Index k = 0; k < K; ++k) {
      Coefficients<R> c;
      std::copy_n(&V(k, i), R, c.begin());
      add_dots_and_combination<R>(rows, &V(k, first), c, n, sums[static_cast<std::size_t>(k)],
                                  out + k * d + first);
    }
  }
  for (Index k = 0; k < K; ++k) {
    add_corner(matrix, i, last, V.data() + k * d, out + k * d);
    double* const out_i = out + k * d + i;
    for (std::size_t r = 0; r < R; ++r) out_i[r] += sums[static_cast<std::size_t>(k)].dot(r);
  }
}

bool is_sparse(const double* v, Index d) {
  return std::count_if(v, v + d, [](double x) { return x != 0.0; }) <= d / 8;
}

std::vector<Index> support(const double* v, Index d) {
  std::vector<Index> indices;
  for (Index j = 0; j < d; ++j) {
    if (v[j] != 0.0) indices.push_back(j);
  }
  return indices;
}

// out = sum_j v_j (row j) over the support and the columns [first, first + n).
template <class Scalar>
void combine_rows(const ConstRows<Scalar>& matrix, const std::vector<Index>& support,
                  const double* v, Index first, Index n, double* out) {
  std::fill_n(out, n, 0.0);
  for_each_group(0, static_cast<Index>(support.size()), [&](auto R, Index at) {
    RowGroup<R, Scalar> rows;
    Coefficients<R> c;
    for (std::size_t r = 0; r < R; ++r) {
      const Index j = support[static_cast<std::size_t>(at) + r];
      rows[r] = matrix.data() + j * matrix.outerStride() + first;
      c[r] = v[j];
    }
    add_combination<R>(c, rows, n, out);
  });
}

Block select(const ConstBlock& V, const std::vector<Index>& rows) {
  Block selected(static_cast<Index>(rows.size()), V.cols());
  for (std::size_t k = 0; k < rows.size(); ++k) {
    selected.row(static_cast<Index>(k)) = V.row(rows[k]);
  }
  return selected;
}

}  // namespace

SymmetricMatrices::SymmetricMatrices(std::vector<FloatingRows> matrices, int n_threads)
    : matrices_(std::move(matrices)), n_features_(0), n_threads_(n_threads) {
  require_threads(n_threads);
  if (matrices_.empty() || matrices_.size() > 2) {
    throw std::invalid_argument("there must be one matrix or two, not " +
                                std::to_string(matrices_.size()));
  }
  const auto shape = [](const auto& matrix) { return std::pair(matrix.rows(), matrix.cols()); };
  n_features_ = std::visit(shape, matrices_[0]).second;
  if (n_features_ < 1) throw std::invalid_argument("the matrices must not be empty");
  for (const FloatingRows& matrix : matrices_) {
    const auto [n_rows, n_columns] = std::visit(shape, matrix);
    if (n_rows == n_features_ && n_columns == n_features_) continue;
    throw std::invalid_argument("the matrices must be square and of one size, not (" +
                                std::to_string(n_rows) + ", " + std::to_string(n_columns) +
                                ") beside d = " + std::to_string(n_features_));
  }
}

std::vector<Block> SymmetricMatrices::sweep(const Block& V) const {
  const Index d = n_features_;
  const Index size = V.rows() * d;
  const Index n_chunks = std::clamp<Index>(d / least_rows, 1, most_chunks);
  PartialSums partials(n_chunks, size * n_matrices());
  const double work = static_cast<double>(size) * static_cast<double>(d * n_matrices());
  const int n_threads = threads_for(work, n_threads_);
  parallel_for(n_chunks, n_threads, [&](Index chunk) {
    double* const sums = partials.start(chunk);
    const Index first = first_row(chunk, n_chunks, d);
    const Index last = first_row(chunk + 1, n_chunks, d);
    for_each_group(first, last, [&](auto R, Index i) {
      for (std::size_t m = 0; m < matrices_.size(); ++m) {
        std::visit(
            [&](const auto& matrix) {
              add_group<R>(matrix, i, V, sums + static_cast<Index>(m) * size);
            },
            matrices_[m]);
      }
    });
  });
  // One tall block for all matrices, cut afterwards.
  Block all(n_matrices() * V.rows(), d);
  partials.add_up(1.0, all.data(), n_threads);
  if (n_matrices() == 1) return {std::move(all)};
  return {all.topRows(V.rows()), all.bottomRows(V.rows())};
}

std::vector<Block> SymmetricMatrices::gather(const Block& V) const {
  const Index d = n_features_;
  std::vector<std::vector<Index>> supports;
  double work = 0.0;
  for (Index k = 0; k < V.rows(); ++k) {
    supports.push_back(support(V.data() + k * d, d));
    work += static_cast<double>(d) * static_cast<double>(supports.back().size());
  }
  std::vector<Block> products(matrices_.size(), Block(V.rows(), d));
  const Index n_tiles = (d + tile - 1) / tile;
  parallel_for(n_tiles * V.rows(), threads_for(work, n_threads_), [&](Index task) {
    const Index k = task / n_tiles;
    const Index first = task % n_tiles * tile;
    const Index n = std::min(tile, d - first);
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      std::visit(
          [&](const auto& matrix) {
            combine_rows(matrix, supports[static_cast<std::size_t>(k)], V.data() + k * d, first, n,
                         &products[m](k, first));
          },
          matrices_[m]);
    }
  });
  return products;
}

std::vector<Block> SymmetricMatrices::times(const ConstBlock& V) const {
  require_features(V, n_features_);
  std::vector<Index> sparse, dense;
  for (Index k = 0; k < V.rows(); ++k) {
    (is_sparse(V.data() + k * V.outerStride(), n_features_) ? sparse : dense).push_back(k);
  }
  if (dense.empty()) return gather(V);
  if (sparse.empty()) return sweep(V);
  const std::vector<Block> of_sparse = gather(select(V, sparse));
  const std::vector<Block> of_dense = sweep(select(V, dense));
  std::vector<Block> products(matrices_.size(), Block(V.rows(), V.cols()));
  for (std::size_t m = 0; m < products.size(); ++m) {
    for (std::size_t k = 0; k < sparse.size(); ++k) {
      products[m].row(sparse[k]) = of_sparse[m].row(static_cast<Index>(k));
    }
    for (std::size_t k = 0; k < dense.size(); ++k) {
      products[m].row(dense[k]) = of_dense[m].row(static_cast<Index>(k));
    }
  }
  return products;
}

}  // namespace dpgep
