#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "csr_run.hpp"
#include "dpgep/rows_product.hpp"
#include "large_array.hpp"
#include "partial_sums.hpp"
#include "row_chunks.hpp"

namespace dpgep {
namespace {

Index n_rows_of(const AnyCsr& rows) {
  return std::visit([](const auto& csr) { return csr.n_rows(); }, rows);
}

// Weights of rows: what their inner products with one vector, v (d,), make of them.
struct One {
  using Weights = double;
  static constexpr Index width = 1;

  template <class Scalar, class Integer>
  static void dot(const Csr<Scalar, Integer>& rows, Index begin, Index end, double factor,
                  const double* v, Weights& c) {
    double sum[n_lanes] = {};
    const Index whole = end - (end - begin) % n_lanes;
    for (Index p = begin; p < whole; p += n_lanes) {
      for (Index t = 0; t < n_lanes; ++t) {
        sum[t] += static_cast<double>(rows.data[p + t]) * v[rows.indices[p + t]];
      }
    }
    for (Index p = whole; p < end; ++p) {
      sum[p - whole] += static_cast<double>(rows.data[p]) * v[rows.indices[p]];
    }
    c = factor * ((sum[0] + sum[2]) + (sum[1] + sum[3])) * factor;
  }

  template <class Scalar, class Integer>
  static void add(const Csr<Scalar, Integer>& rows, Index begin, Index end, const Weights& c,
                  double* sums) {
    const double weight = c;
    for (Index p = begin; p < end; ++p) {
      sums[rows.indices[p]] += weight * static_cast<double>(rows.data[p]);
    }
  }
};

// Vectors are worked on in batches of at most this many lanes.
constexpr Index most_lanes = 4;

// Several vectors side by side, (d, G lanes): an entry meets all of them in few cache lines.
template <std::size_t G>
struct SideBySide {
  struct Weights {
    Lanes lanes[G];
  };
  static constexpr Index width = static_cast<Index>(G) * n_lanes;

  template <class Scalar, class Integer>
  static void dot(const Csr<Scalar, Integer>& rows, Index begin, Index end, double factor,
                  const double* v, Weights& c) {
    Lanes sum[G] = {};
    for (Index p = begin; p < end; ++p) {
      const auto z = static_cast<double>(rows.data[p]);
      const double* const entries = v + static_cast<Index>(rows.indices[p]) * width;
      for (std::size_t g = 0; g < G; ++g) {
        Lanes x;
        load(entries + g * n_lanes, x);
        sum[g] += z * x;
      }
    }
    for (std::size_t g = 0; g < G; ++g) c.lanes[g] = factor * (factor * sum[g]);
  }

  template <class Scalar, class Integer>
  static void add(const Csr<Scalar, Integer>& rows, Index begin, Index end, const Weights& c,
                  double* sums) {
    const Weights weights = c;
    for (Index p = begin; p < end; ++p) {
      const auto z = static_cast<double>(rows.data[p]);
      double* const entries = sums + static_cast<Index>(rows.indices[p]) * width;
      for (std::size_t g = 0; g < G; ++g) {
        Lanes sum;
        load(entries + g * n_lanes, sum);
        sum += z * weights.lanes[g];
        store(sum, entries + g * n_lanes);
      }
    }
  }
};

// Calls body(Vectors{}) for the form that K vectors take.
template <class Body>
void with_vectors(Index K, const Body& body) {
  if (K == 1) return body(One{});
  switch ((K + n_lanes - 1) / n_lanes) {
    case 1:
      return body(SideBySide<1>{});
    case 2:
      return body(SideBySide<2>{});
    case 3:
      return body(SideBySide<3>{});
    default:
      return body(SideBySide<most_lanes>{});
  }
}

// Rows whose products are added up by themselves, so that no sum has more than 2^16 + n / 2^16
// additions in a row: the error bound of docs/exactness.md.
constexpr Index most_rows_in_a_row = Index{1} << 16;

// What the product of some rows is made of.
template <class Sparse>
struct Task {
  Sparse rows;
  const double* factors;
  double scale;
  const double* v;
  double* product;
  Index n_features;
  int n_threads;
};

// An array of sums costs as much as the work on this many entries for each sum.
constexpr double entries_per_sum = 16.0;

template <class Vectors, class Sparse>
void add_row(const Task<Sparse>& task, Index i, double* sums) {
  if (task.factors[i] == 0.0) return;  // its product might overflow
  const auto begin = static_cast<Index>(task.rows.indptr[i]);
  const auto end = static_cast<Index>(task.rows.indptr[i + 1]);
  typename Vectors::Weights c;
  Vectors::dot(task.rows, begin, end, task.factors[i], task.v, c);
  Vectors::add(task.rows, begin, end, c, sums);
}

// sums += sum of f^2 z (z . v) over the rows first, ..., last - 1.
template <class Vectors, class Sparse>
void add_rows(const Task<Sparse>& task, Index first, Index last, double* sums) {
  if constexpr (Vectors::width > 1) {
    for (Index i = first; i < last; ++i) add_row<Vectors>(task, i, sums);
  } else {
    for (Index i = first; i < last;) {
      const Index end = end_of_run(task.rows, task.factors, i, last);
      if (end > i) {
        add_run(task.rows, i, end, task.factors, task.v, sums);
        i = end;
      } else {
        add_row<Vectors>(task, i++, sums);
      }
    }
  }
}

// One pass over the rows: product = scale * sum over rows of f^2 z (z . v).
template <class Vectors, class Sparse>
void multiply_in_one_pass(const Task<Sparse>& task) {
  const auto& rows = task.rows;
  const double work = static_cast<double>(rows.data.size()) * static_cast<double>(Vectors::width);
  const Index n_sums = task.n_features * Vectors::width;
  const RowChunks chunks = split_rows(rows.n_rows(), work / entries_per_sum, n_sums);
  const int n_threads = threads_for(work, task.n_threads);
  PartialSums partials(chunks.count(), n_sums);
  parallel_for(chunks.count(), n_threads, [&](Index chunk) {
    add_rows<Vectors>(task, chunks.first(chunk), chunks.last(chunk), partials.start(chunk));
  });
  partials.add_up(task.scale, task.product, n_threads);
}

// Where the sums leave the cache, v and sums had better be read here and there one at a time: first
// all weights, then all sums.
constexpr Index most_sums_in_cache = Index{1} << 19;

// The columns are split so that each stripe has about as many entries.
template <class Integer>
std::vector<Index> stripe_ends(const ConstVectorView<Integer>& indices, Index n_features,
                               Index n_stripes) {
  const Index n_entries = indices.size();
  const Index n_seen = std::min(n_entries, 256 * n_stripes);
  std::vector<Integer> seen(static_cast<std::size_t>(n_seen));
  for (Index s = 0; s < n_seen; ++s) {
    seen[static_cast<std::size_t>(s)] = indices[n_entries / n_seen * s];
  }
  std::sort(seen.begin(), seen.end());
  std::vector<Index> ends{0};
  for (Index stripe = 1; stripe < n_stripes; ++stripe) {
    ends.push_back(n_seen == 0 ? 0 : seen[static_cast<std::size_t>(n_seen * stripe / n_stripes)]);
  }
  ends.push_back(n_features);
  return ends;
}

// The sums of a stripe of columns, in the order of the rows, so that the bits do not depend on the
// stripes.
template <class Vectors, class Sparse>
void add_stripe(const Task<Sparse>& task, const typename Vectors::Weights* weights,
                Index first_column, Index last_column) {
  const auto& rows = task.rows;
  double* const begin_of_sums = task.product + first_column * Vectors::width;
  double* const end_of_sums = task.product + last_column * Vectors::width;
  const auto* const indices = rows.indices.data();
  const bool is_all = first_column == 0 && last_column == task.n_features;
  std::fill(begin_of_sums, end_of_sums, 0.0);
  for (Index i = 0; i < rows.n_rows(); ++i) {
    if (task.factors[i] == 0.0) continue;
    const auto* begin = indices + rows.indptr[i];
    const auto* end = indices + rows.indptr[i + 1];
    if (!is_all) {
      begin = std::lower_bound(begin, end, first_column);
      end = std::lower_bound(begin, end, last_column);
    }
    Vectors::add(rows, begin - indices, end - indices, weights[i], task.product);
  }
  for (double* sum = begin_of_sums; sum < end_of_sums; ++sum) *sum *= task.scale;
}

template <class Vectors, class Sparse>
void multiply_in_two_passes(const Task<Sparse>& task, bool sorted) {
  const auto& rows = task.rows;
  LargeArray<typename Vectors::Weights> weights(rows.n_rows());
  constexpr Index rows_per_task = 1024;
  const Index n_tasks = (rows.n_rows() + rows_per_task - 1) / rows_per_task;
  parallel_for(n_tasks, task.n_threads, [&](Index number) {
    const Index last = std::min(rows.n_rows(), (number + 1) * rows_per_task);
    for (Index i = number * rows_per_task; i < last; ++i) {
      if (task.factors[i] == 0.0) continue;  // its product might overflow
      Vectors::dot(rows, static_cast<Index>(rows.indptr[i]), static_cast<Index>(rows.indptr[i + 1]),
                   task.factors[i], task.v, weights.data()[i]);
    }
  });
  const Index n_stripes = sorted ? task.n_threads : 1;
  const std::vector<Index> ends = stripe_ends(rows.indices, task.n_features, n_stripes);
  parallel_for(n_stripes, task.n_threads, [&](Index stripe) {
    const auto at = static_cast<std::size_t>(stripe);
    add_stripe<Vectors>(task, weights.data(), ends[at], ends[at + 1]);
  });
}

// The rows first, ..., last - 1: their places in data and indices.
template <class Scalar, class Integer>
Csr<Scalar, Integer> rows_of(const Csr<Scalar, Integer>& rows, Index first, Index last) {
  return {rows.data, rows.indices, {rows.indptr.data() + first, last - first + 1}};
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
  std::visit(
      [&](const auto& csr) {
        require_csr(csr, n_features);
        sorted_ = has_sorted_rows(csr, n_threads);
      },
      rows_);
  require_factors(n_rows_of(rows_), factors, scale);
}

// product (d, width) for v (d, width), both row-major; width is what K vectors take.
void CsrRows::multiply(const double* v, Index K, double* product) const {
  std::visit(
      [&](const auto& rows) {
        using Sparse = std::decay_t<decltype(rows)>;
        with_vectors(K, [&](auto vectors) {
          using Vectors = decltype(vectors);
          const Index size = n_features_ * Vectors::width;
          Vector<double> of_block(rows.n_rows() > most_rows_in_a_row ? size : 0);
          for (Index first = 0; first == 0 || first < rows.n_rows(); first += most_rows_in_a_row) {
            const Index end = std::min(rows.n_rows(), first + most_rows_in_a_row);
            double* const out = first == 0 ? product : of_block.data();
            const Task<Sparse> task{rows_of(rows, first, end),
                                    factors_.data() + first,
                                    scale_,
                                    v,
                                    out,
                                    n_features_,
                                    n_threads_};
            if (size <= most_sums_in_cache) {
              multiply_in_one_pass<Vectors>(task);
            } else {
              multiply_in_two_passes<Vectors>(task, sorted_);
            }
            if (first > 0) VectorView<double>(product, size) += of_block;
          }
        });
      },
      rows_);
}

Block CsrRows::times_batch(const ConstBlock& V) const {
  const Index K = V.rows();
  const Index width = (K + n_lanes - 1) / n_lanes * n_lanes;
  Block columns = Block::Zero(n_features_, width);
  columns.leftCols(K) = V.transpose();
  Block product(n_features_, width);
  multiply(columns.data(), K, product.data());
  return product.leftCols(K).transpose();
}

std::vector<Block> CsrRows::times(const ConstBlock& V) const {
  require_features(V, n_features_);
  constexpr Index most = most_lanes * n_lanes;
  Block products(V.rows(), n_features_);
  for (Index first = 0; first < V.rows(); first += most) {
    const Index n = std::min(most, V.rows() - first);
    if (n == 1) {
      multiply(row(V, first), 1, products.row(first).data());
      continue;
    }
    const ConstBlock batch(row(V, first), n, n_features_, Eigen::OuterStride<>(V.outerStride()));
    products.middleRows(first, n) = times_batch(batch);
  }
  return {std::move(products)};
}

}  // namespace dpgep
