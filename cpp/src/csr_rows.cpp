#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "dpgep/rows_product.hpp"
#include "partial_sums.hpp"
#include "row_chunks.hpp"

namespace dpgep {
namespace {

Index n_rows_of(const AnyCsr& rows) {
  return std::visit([](const auto& csr) { return csr.n_rows(); }, rows);
}

// An array of sums costs as much as the work on this many entries for each sum.
constexpr double entries_per_sum = 16.0;

// One vector: sums += sum over rows of f^2 z (z . v).
template <class Scalar, class Integer>
void add_rows(const Csr<Scalar, Integer>& rows, const double* factors, Index first, Index last,
              const double* v, double* sums) {
  for (Index i = first; i < last; ++i) {
    if (factors[i] == 0.0) continue;  // its product might overflow
    const auto begin = static_cast<Index>(rows.indptr[i]);
    const auto end = static_cast<Index>(rows.indptr[i + 1]);
    double dot[n_lanes] = {};
    const Index whole = end - (end - begin) % n_lanes;
    for (Index p = begin; p < whole; p += n_lanes) {
      for (Index t = 0; t < n_lanes; ++t) {
        dot[t] += static_cast<double>(rows.data[p + t]) * v[rows.indices[p + t]];
      }
    }
    for (Index p = whole; p < end; ++p) {
      dot[p - whole] += static_cast<double>(rows.data[p]) * v[rows.indices[p]];
    }
    const double c = factors[i] * ((dot[0] + dot[2]) + (dot[1] + dot[3])) * factors[i];
    for (Index p = begin; p < end; ++p) {
      sums[rows.indices[p]] += c * static_cast<double>(rows.data[p]);
    }
  }
}

// Vectors are worked on in batches of at most this many lanes.
constexpr Index most_lanes = 4;

// Several vectors side by side, (d, G lanes): an entry meets all of them in few cache lines.
template <std::size_t G, class Scalar, class Integer>
void add_rows_side_by_side(const Csr<Scalar, Integer>& rows, const double* factors, Index first,
                           Index last, const double* v, double* sums) {
  constexpr auto width = static_cast<Index>(G) * n_lanes;
  for (Index i = first; i < last; ++i) {
    if (factors[i] == 0.0) continue;  // its product might overflow
    const auto begin = static_cast<Index>(rows.indptr[i]);
    const auto end = static_cast<Index>(rows.indptr[i + 1]);
    Lanes c[G] = {};
    for (Index p = begin; p < end; ++p) {
      const auto z = static_cast<double>(rows.data[p]);
      const double* const entries = v + static_cast<Index>(rows.indices[p]) * width;
      for (std::size_t g = 0; g < G; ++g) {
        Lanes x;
        load(entries + g * n_lanes, x);
        c[g] += z * x;
      }
    }
    for (std::size_t g = 0; g < G; ++g) c[g] = factors[i] * (factors[i] * c[g]);
    for (Index p = begin; p < end; ++p) {
      const auto z = static_cast<double>(rows.data[p]);
      double* const entries = sums + static_cast<Index>(rows.indices[p]) * width;
      for (std::size_t g = 0; g < G; ++g) {
        Lanes sum;
        load(entries + g * n_lanes, sum);
        sum += z * c[g];
        store(sum, entries + g * n_lanes);
      }
    }
  }
}

// Calls body(G) for the G lanes that hold K vectors.
template <class Body>
void with_lanes(Index K, const Body& body) {
  switch ((K + n_lanes - 1) / n_lanes) {
    case 1:
      return body(std::integral_constant<std::size_t, 1>{});
    case 2:
      return body(std::integral_constant<std::size_t, 2>{});
    case 3:
      return body(std::integral_constant<std::size_t, 3>{});
    default:
      return body(std::integral_constant<std::size_t, most_lanes>{});
  }
}

}  // namespace

CsrRows::CsrRows(AnyCsr rows, Index n_features, ConstVectorView<double> factors, double scale,
                 int n_threads)
    : rows_(rows),
      n_features_(n_features),
      factors_(factors),
      scale_(scale),
      n_threads_(n_threads) {
  require_threads(n_threads);
  if (n_features < 1) {
    throw std::invalid_argument("n_features must satisfy n_features >= 1, not " +
                                std::to_string(n_features));
  }
  std::visit([&](const auto& csr) { require_csr(csr, n_features); }, rows_);
  require_factors(n_rows_of(rows_), factors, scale);
}

Block CsrRows::times_batch(const ConstBlock& V) const {
  const Index K = V.rows();
  const Index width = K == 1 ? 1 : (K + n_lanes - 1) / n_lanes * n_lanes;
  const Index size = n_features_ * width;
  Block columns = Block::Zero(n_features_, width);
  columns.leftCols(K) = V.transpose();
  Block product(n_features_, width);
  std::visit(
      [&](const auto& rows) {
        const double work = static_cast<double>(rows.data.size()) * static_cast<double>(width);
        const RowChunks chunks = split_rows(rows.n_rows(), work / entries_per_sum, size);
        const int n_threads = threads_for(work, n_threads_);
        PartialSums partials(chunks.count(), size);
        parallel_for(chunks.count(), n_threads, [&](Index chunk) {
          double* const sums = partials.start(chunk);
          const Index first = chunks.first(chunk);
          const Index last = chunks.last(chunk);
          if (K == 1) {
            add_rows(rows, factors_.data(), first, last, columns.data(), sums);
            return;
          }
          with_lanes(K, [&](auto G) {
            add_rows_side_by_side<G.value>(rows, factors_.data(), first, last, columns.data(),
                                           sums);
          });
        });
        partials.add_up(scale_, product.data(), n_threads);
      },
      rows_);
  return product.leftCols(K).transpose();
}

std::vector<Block> CsrRows::times(const ConstBlock& V) const {
  require_features(V, n_features_);
  constexpr Index most = most_lanes * n_lanes;
  Block products(V.rows(), n_features_);
  for (Index first = 0; first < V.rows(); first += most) {
    const Index n = std::min(most, V.rows() - first);
    const ConstBlock batch(row(V, first), n, n_features_, Eigen::OuterStride<>(V.outerStride()));
    products.middleRows(first, n) = times_batch(batch);
  }
  return {std::move(products)};
}

}  // namespace dpgep
