#include <algorithm>
#include <stdexcept>
#include <string>

#include "dpgep/rows_product.hpp"
#include "partial_sums.hpp"
#include "row_chunks.hpp"
#include "row_group.hpp"

namespace dpgep {
namespace {

Index n_rows_of(const FloatingRows& view) {
  return std::visit([](const auto& rows) { return rows.rows(); }, view);
}

Index width_of(const FloatingRows& view) {
  return std::visit([](const auto& rows) { return rows.cols(); }, view);
}

// Calls body(rows of the view, first column of the view) for every view.
template <class Body>
void for_each_view(const std::vector<FloatingRows>& views, const Body& body) {
  Index first = 0;
  for (const FloatingRows& view : views) {
    std::visit(
        [&](const auto& rows) {
          body(rows, first);
          first += rows.cols();
        },
        view);
  }
}

// f_i^2 (z_i . v) for R rows.
template <std::size_t R>
Coefficients<R> coefficients(const LaneSums<R>& sums, const double* factors) {
  Coefficients<R> c;
  for (std::size_t r = 0; r < R; ++r) {
    // a row with the factor 0 may be so long that its product overflows
    c[r] = factors[r] == 0.0 ? 0.0 : factors[r] * sums.dot(r) * factors[r];
  }
  return c;
}

// The same for the rows from i on.
template <std::size_t R>
Coefficients<R> coefficients(const std::vector<FloatingRows>& views, const double* factors, Index i,
                             const double* v) {
  LaneSums<R> sums;
  for_each_view(views, [&](const auto& rows, Index first) {
    add_dots<R>(row_group<R>(rows, i), v + first, rows.cols(), sums);
  });
  return coefficients(sums, factors + i);
}

template <bool fetch_next, std::size_t R>
void add_rows(const std::vector<FloatingRows>& views, const Coefficients<R>& c, Index i, Index next,
              double* out) {
  for_each_view(views, [&](const auto& rows, Index first) {
    add_combination<fetch_next>(c, row_group<R>(rows, i), rows.cols(), out + first,
                                row_group<R>(rows, next));
  });
}

// The rows first, ..., last - 1 times one vector: those of a group are added to the product while
// the next are multiplied by v.
void add_product(const std::vector<FloatingRows>& views, const double* factors, Index first,
                 Index last, const double* v, double* out) {
  constexpr std::size_t R = group_rows;
  Index i = first;
  if (i + group_rows <= last) {
    Coefficients<R> c = coefficients<R>(views, factors, i, v);
    for (; i + 2 * group_rows <= last; i += group_rows) {
      const Index next = i + group_rows;
      const Index after = next + 2 * group_rows <= last ? next + group_rows : next;
      LaneSums<R> sums;
      for_each_view(views, [&](const auto& rows, Index column) {
        add_dots_and_combination<R>(row_group<R>(rows, next), v + column, c, row_group<R>(rows, i),
                                    rows.cols(), sums, out + column, row_group<R>(rows, after));
      });
      c = coefficients(sums, factors + next);
    }
    add_rows<false>(views, c, i, i, out);
    i += group_rows;
  }
  for (; i < last; ++i) add_rows<false>(views, coefficients<1>(views, factors, i, v), i, i, out);
}

// The same for several vectors, for which the rows of a group stay in the cache.
void add_products(const std::vector<FloatingRows>& views, const double* factors, Index first,
                  Index last, const ConstBlock& V, double* out) {
  const Index K = V.rows();
  for_each_group(first, last, [&](auto R, Index i) {
    constexpr auto n = static_cast<Index>(R);
    const Index next = i + 2 * n <= last ? i + n : i;
    for (Index k = 0; k < K; ++k) {
      const auto c = coefficients<R>(views, factors, i, row(V, k));
      double* const product = out + k * V.cols();
      if (k < K - 1) {
        add_rows<false>(views, c, i, next, product);
      } else {
        add_rows<true>(views, c, i, next, product);
      }
    }
  });
}

}  // namespace

// Rows whose products are added to an array of their own first, so that no sum has more than 4096
// + c + n / (4096 c) additions in a row, c being the number of chunks: docs/exactness.md.
constexpr Index most_rows_in_a_row = 4096;

DenseRows::DenseRows(std::vector<FloatingRows> views, ConstVectorView<double> factors, double scale,
                     int n_threads)
    : views_(std::move(views)),
      factors_(factors),
      scale_(scale),
      n_features_(0),
      n_threads_(n_threads) {
  require_threads(n_threads);
  if (views_.empty()) throw std::invalid_argument("views must not be empty");
  for (const FloatingRows& view : views_) {
    require_factors(n_rows_of(view), factors, scale);
    n_features_ += width_of(view);
  }
  if (n_features_ < 1) throw std::invalid_argument("views must have columns");
}

std::vector<Block> DenseRows::times(const ConstBlock& V) const {
  require_features(V, n_features_);
  const Index K = V.rows();
  const Index d = n_features_;
  const double n_entries = static_cast<double>(factors_.size()) * static_cast<double>(d);
  const RowChunks chunks = split_rows(factors_.size(), n_entries, K * d);
  const int n_threads = threads_for(n_entries * static_cast<double>(K), n_threads_);
  PartialSums partials(chunks.count(), K * d);
  parallel_for(chunks.count(), n_threads, [&](Index chunk) {
    const Index last = chunks.last(chunk);
    VectorView<double> sums(partials.start(chunk), K * d);
    Vector<double> of_block(chunks.rows_per_chunk > most_rows_in_a_row ? K * d : 0);
    for (Index first = chunks.first(chunk); first < last; first += most_rows_in_a_row) {
      const Index end = std::min(last, first + most_rows_in_a_row);
      double* const out = of_block.size() == 0 ? sums.data() : of_block.setZero().data();
      if (K == 1) {
        add_product(views_, factors_.data(), first, end, row(V, 0), out);
      } else {
        add_products(views_, factors_.data(), first, end, V, out);
      }
      if (of_block.size() > 0) sums += of_block;
    }
  });
  Block product(K, d);
  partials.add_up(scale_, product.data(), n_threads);
  return {std::move(product)};
}

}  // namespace dpgep
