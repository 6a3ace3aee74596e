#include "dpgep/clipped_products.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <string>

#include "dpgep/fixed_point.hpp"
#include "partial_sums.hpp"
#include "row_chunks.hpp"

namespace dpgep {
namespace {

// Entries on the grid that are multiplied while they are in a cache.
constexpr Index block_entries = Index{1} << 14;
// Terms of at most 4^max_clipped_bits whose sums are exact in doubles.
constexpr Index most_rows_in_a_row = Index{1} << 16;
constexpr int max_clipped_bits = 18;
// Rounding of a quotient, a root and a product leaves a norm of 2^bits times this at most 2^bits.
constexpr double shrunk = 1.0 - 0x1p-40;

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// Rounds to the nearest integer, ties to even, |x| <= 2^51.
inline double nearest(double x) {
  constexpr double shift = 0x1.8p52;
  return (x + shift) - shift;
}

// products_rk = v_k x_r - offset_k for R rows on the grid that follow each other.
template <std::size_t R>
void multiply(const RowGroup<R, double>& rows, const Directions& directions, double* products) {
  const Index m = directions.vectors.rows();
  for (Index k = 0; k < m; ++k) {
    LaneSums<R> sums;
    add_dots<R>(rows, &directions.vectors.coeffRef(k, 0), directions.vectors.cols(), sums);
    for (std::size_t r = 0; r < R; ++r) {
      products[static_cast<Index>(r) * m + k] = sums.dot(r) - directions.offset[k];
    }
  }
}

// Products of a person become steps that are clipped to a norm of `radius`.
void clip(double* products, Index n, double unit, double radius) {
  double square = 0.0;
  for (Index k = 0; k < n; ++k) {
    products[k] = nearest(products[k] * unit);
    square += products[k] * products[k];
  }
  if (square <= radius * radius) return;
  const double factor = shrunk * radius / std::sqrt(square);
  for (Index k = 0; k < n; ++k) products[k] = std::trunc(products[k] * factor);
}

// body(GroupSize<R>, first of its rows, rows on the grid) for groups that cover the rows of a
// chunk; false if one of them is not finite.
template <class Scalar, class Body>
bool for_rows_on_grid(const ConstRows<Scalar>& rows, double bound, int bits, Index first,
                      Index last, const Body& body) {
  const Index d = rows.cols();
  const Index height = std::max(group_rows, block_entries / d / group_rows * group_rows);
  RowMajorMatrix<double> block(std::min(height, last - first), d);
  for (Index begin = first; begin < last; begin += height) {
    const Index n = std::min(height, last - begin);
    const ConstRows<Scalar> some(&rows.coeffRef(begin, 0), n, d,
                                 Eigen::OuterStride<>(rows.outerStride()));
    const Rows<double> on_grid(block.data(), n, d, Eigen::OuterStride<>(d));
    if (!fixed_point_rows<Scalar>(some, bound, bits, on_grid, 1)) return false;
    const ConstRows<double> read(block.data(), n, d, Eigen::OuterStride<>(d));
    for_each_group(0, n, [&](auto R, Index i) { body(R, begin + i, row_group<R>(read, i)); });
  }
  return true;
}

template <class Scalar>
void require_sizes(const ConstRows<Scalar>& rows, double bound, int bits,
                   const Directions& directions, int n_threads) {
  require_grid(bound, bits);
  require_threads(n_threads);
  require(rows.cols() >= 1, "rows must have columns");
  require(directions.vectors.cols() == rows.cols(), "vectors must have the columns of rows");
  require(directions.offset.size() == directions.vectors.rows(),
          "offset must have an entry for each of the vectors");
}

// serve(first, last) for chunks of the rows; false if it is for one of them.
template <class Scalar, class Serve>
bool in_chunks(const ConstRows<Scalar>& rows, Index n_products, Index n_sums, int n_threads,
               const Serve& serve) {
  const auto n_entries = static_cast<double>(rows.size());
  RowChunks chunks = split_rows(rows.rows(), n_entries, n_sums);
  chunks.rows_per_chunk = std::min(chunks.rows_per_chunk, most_rows_in_a_row);
  std::atomic<bool> all_finite{true};
  parallel_for(chunks.count(), threads_for(n_entries * static_cast<double>(n_products), n_threads),
               [&](Index chunk) {
                 if (!serve(chunks.first(chunk), chunks.last(chunk))) all_finite = false;
               });
  return all_finite;
}

}  // namespace

template <class Scalar>
bool products_on_grid(const ConstRows<Scalar>& rows, double bound, int bits,
                      const Directions& directions, Rows<double> out, int n_threads) {
  require_sizes(rows, bound, bits, directions, n_threads);
  const Index m = directions.vectors.rows();
  require(out.rows() == rows.rows() && out.cols() == m && out.outerStride() == m,
          "out must have a row for each row and a column for each vector, in one piece");
  return in_chunks(rows, m, 1, n_threads, [&](Index first, Index last) {
    return for_rows_on_grid(rows, bound, bits, first, last,
                            [&](auto R, Index i, const auto& group) {
                              multiply<R>(group, directions, out.data() + i * m);
                            });
  });
}

template <class Scalar>
bool add_clipped_products(const ConstRows<Scalar>& rows, double bound, int bits,
                          const Directions& directions, const std::vector<Factors>& factors,
                          Rows<std::int64_t> total, int n_threads) {
  require_sizes(rows, bound, bits, directions, n_threads);
  require(bits <= max_clipped_bits, "bits must be at most 18");
  const Index d = rows.cols();
  const Index m = directions.vectors.rows();
  const Index K = total.rows();
  require(total.cols() == d + 1, "total must have a column for each feature and one more");
  require(!factors.empty(), "there must be factors");
  for (const Factors& each : factors) {
    require(each.first_feature >= 0 && each.n_features >= 0 &&
                each.n_features <= d - each.first_feature && each.first_direction >= 0 &&
                each.first_direction <= m - K,
            "factors must be within the features and the vectors");
  }
  const double radius = std::ldexp(1.0, bits);
  std::mutex total_mutex;
  return in_chunks(rows, 2 * m, K * (d + 1), n_threads, [&](Index first, Index last) {
    Vector<double> sums = Vector<double>::Zero(K * (d + 1));
    Vector<double> products(group_rows * m);
    Vector<double> clipped(group_rows * K);
    const bool is_finite =
        for_rows_on_grid(rows, bound, bits, first, last, [&](auto R, Index, const auto& group) {
          multiply<R>(group, directions, products.data());
          for (const Factors& each : factors) {
            for (Index r = 0; r < static_cast<Index>(R); ++r) {
              double* const own = clipped.data() + r * K;
              std::copy_n(products.data() + r * m + each.first_direction, K, own);
              clip(own, K, each.unit, radius);
            }
            auto part = group;
            for (auto& row : part) row += each.first_feature;
            for (Index k = 0; k < K; ++k) {
              Coefficients<R> c;
              for (std::size_t r = 0; r < R; ++r) c[r] = clipped[static_cast<Index>(r) * K + k];
              double* const out = sums.data() + k * (d + 1);
              add_combination<R>(c, part, each.n_features, out + each.first_feature);
              if (&each == &factors.front()) {
                for (const double q : c) out[d] += q;
              }
            }
          }
        });
    const std::lock_guard<std::mutex> lock(total_mutex);
    for (Index k = 0; k < K; ++k) {
      for (Index j = 0; j <= d; ++j) {
        total(k, j) += static_cast<std::int64_t>(sums[k * (d + 1) + j]);
      }
    }
    return is_finite;
  });
}

template bool products_on_grid(const ConstRows<std::uint8_t>&, double, int, const Directions&,
                               Rows<double>, int);
template bool products_on_grid(const ConstRows<float>&, double, int, const Directions&,
                               Rows<double>, int);
template bool products_on_grid(const ConstRows<double>&, double, int, const Directions&,
                               Rows<double>, int);
template bool add_clipped_products(const ConstRows<std::uint8_t>&, double, int, const Directions&,
                                   const std::vector<Factors>&, Rows<std::int64_t>, int);
template bool add_clipped_products(const ConstRows<float>&, double, int, const Directions&,
                                   const std::vector<Factors>&, Rows<std::int64_t>, int);
template bool add_clipped_products(const ConstRows<double>&, double, int, const Directions&,
                                   const std::vector<Factors>&, Rows<std::int64_t>, int);

}  // namespace dpgep
