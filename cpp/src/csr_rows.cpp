#include <stdexcept>
#include <string>

#include "dpgep/rows_product.hpp"
#include "partial_sums.hpp"
#include "row_chunks.hpp"

namespace dpgep {
namespace {

Index n_rows_of(const AnyCsr& rows) {
  return std::visit([](const auto& csr) { return csr.n_rows(); }, rows);
}

// One vector: sums += sum over rows of f^2 z (z . v).
template <class Scalar, class Integer>
void add_rows(const Csr<Scalar, Integer>& rows, const double* factors, Index first, Index last,
              const double* v, double* sums) {
  for (Index i = first; i < last; ++i) {
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

// K vectors side by side, (d, K): an entry meets them in one cache line.
template <class Scalar, class Integer>
void add_rows(const Csr<Scalar, Integer>& rows, const double* factors, Index first, Index last,
              const double* v, Index K, double* sums) {
  std::vector<double> c(static_cast<std::size_t>(K));
  for (Index i = first; i < last; ++i) {
    const auto begin = static_cast<Index>(rows.indptr[i]);
    const auto end = static_cast<Index>(rows.indptr[i + 1]);
    std::fill(c.begin(), c.end(), 0.0);
    for (Index p = begin; p < end; ++p) {
      const auto z = static_cast<double>(rows.data[p]);
      const double* const entries = v + static_cast<Index>(rows.indices[p]) * K;
      for (Index k = 0; k < K; ++k) c[static_cast<std::size_t>(k)] += z * entries[k];
    }
    for (double& c_k : c) c_k = factors[i] * c_k * factors[i];
    for (Index p = begin; p < end; ++p) {
      const auto z = static_cast<double>(rows.data[p]);
      double* const entries = sums + static_cast<Index>(rows.indices[p]) * K;
      for (Index k = 0; k < K; ++k) entries[k] += c[static_cast<std::size_t>(k)] * z;
    }
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

std::vector<Block> CsrRows::times(const ConstBlock& V) const {
  require_features(V, n_features_);
  const Index K = V.rows();
  const Index d = n_features_;
  const Block columns = V.transpose();
  return std::visit(
      [&](const auto& rows) -> std::vector<Block> {
        const auto n_entries = static_cast<double>(rows.data.size()) * static_cast<double>(K);
        const RowChunks chunks = split_rows(rows.n_rows(), n_entries, K * d);
        const int n_threads = threads_for(n_entries, n_threads_);
        PartialSums partials(chunks.count(), K * d);
        parallel_for(chunks.count(), n_threads, [&](Index chunk) {
          double* const sums = partials.start(chunk);
          const Index first = chunks.first(chunk);
          const Index last = chunks.last(chunk);
          if (K == 1) {
            add_rows(rows, factors_.data(), first, last, columns.data(), sums);
          } else {
            add_rows(rows, factors_.data(), first, last, columns.data(), K, sums);
          }
        });
        Block product(d, K);
        partials.add_up(scale_, product.data(), n_threads);
        return {product.transpose()};
      },
      rows_);
}

}  // namespace dpgep
