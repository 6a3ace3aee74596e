#include "dpgep/dense_moments.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <string>

#include "dpgep/fixed_point.hpp"
#include "dpgep/fixed_point_turned.hpp"
#include "dpgep/integer_moments.hpp"
#include "dpgep/parallel.hpp"
#include "gram.hpp"

namespace dpgep {
namespace {

// Rows that are multiplied together: at a hundred columns they fill a third of a second-level
// cache.
constexpr Index block_rows = 384;
// Columns of a buffer begin in different sets of the cache.
constexpr Index buffer_stride = block_rows + 8;

// Below this many products, about a millisecond's, a thread costs more than it saves. To be put on
// the grid takes a row as long as this many more columns.
constexpr double work_for_threads = 4e7;
constexpr Index columns_of_a_row = 32;

template <class Scalar>
Rows<Scalar> corner(RowMajorMatrix<Scalar>& matrix, Index size) {
  return {matrix.data(), size, size, Eigen::OuterStride<>(matrix.cols())};
}

template <class Scalar>
Rows<Scalar> all_of(RowMajorMatrix<Scalar>& matrix) {
  return corner(matrix, matrix.rows());
}

struct Grid {
  double bound;
  int bits;
};

// Blocks of [rows on the grid; marks], held by columns, and what they add to a Gram matrix.
class PeopleBlock {
 public:
  explicit PeopleBlock(Index width)
      : columns_(RowMajorMatrix<double>::Zero(whole_tiles(width), buffer_stride)) {}

  template <class Scalar>
  bool read(const ConstRows<Scalar>& rows, Index first, Index n, Grid grid) {
    const ConstRows<Scalar> part(rows.data() + first * rows.outerStride(), n, rows.cols(),
                                 Eigen::OuterStride<>(rows.outerStride()));
    return fixed_point_turned(part, grid.bound, grid.bits, features(rows.cols(), n));
  }

  bool read(const std::vector<Column>& columns, Index first, Index n, Grid grid) {
    std::vector<Column> part = columns;
    for (Column& column : part) std::visit([first](auto*& begin) { begin += first; }, column);
    const auto d = static_cast<Index>(part.size());
    return fixed_point_columns(part, grid.bound, grid.bits, features(d, n), 1);
  }

  double& entry(Index row, Index column) { return columns_(column, row); }

  // Of the first n people. Nobody's entries, up to the last of the lanes, are zeros.
  void add_gram(Index n, RowMajorMatrix<double>& gram) {
    const Index n_in_lanes = (n + n_lanes - 1) / n_lanes * n_lanes;
    columns_.middleCols(n, n_in_lanes - n).setZero();
    dpgep::add_gram(columns_, n_in_lanes, gram);
  }

 private:
  Rows<double> features(Index d, Index n) {
    return {columns_.data(), d, n, Eigen::OuterStride<>(buffer_stride)};
  }

  RowMajorMatrix<double> columns_;
};

Index width_of(const std::vector<Column>& columns) {
  return static_cast<Index>(columns.size());
}

template <class Scalar>
Index width_of(const ConstRows<Scalar>& rows) {
  return rows.cols();
}

void mark_groups(const ConstVectorView<std::int64_t>& groups, Index n_groups, Index first, Index n,
                 Index n_features, double mark, PeopleBlock& block) {
  for (Index g = 0; g < n_groups; ++g) {
    for (Index i = 0; i < n; ++i) {
      const bool is_in = groups.size() == 0 || groups(first + i) == g;
      block.entry(i, n_features + g) = is_in ? mark : 0.0;
    }
  }
}

// Sums of one thread: exact in double precision for as many rows as fit, then in integers.
class Sums {
 public:
  Sums(Index width, int bits)
      : gram_(RowMajorMatrix<double>::Zero(whole_tiles(width), whole_tiles(width))),
        total_(RowMajorMatrix<std::int64_t>::Zero(width, width)),
        exact_rows_((Index{1} << (53 - 2 * bits)) - 1) {}

  void add(PeopleBlock& block, Index n) {
    if (n_in_gram_ + n > exact_rows_) fold();
    block.add_gram(n, gram_);
    n_in_gram_ += n;
  }

  RowMajorMatrix<std::int64_t>& total() {
    fold();
    return total_;
  }

 private:
  void fold() {
    if (n_in_gram_ > 0) fold_triangle(corner(gram_, total_.rows()), all_of(total_), 1);
    n_in_gram_ = 0;
  }

  RowMajorMatrix<double> gram_;
  RowMajorMatrix<std::int64_t> total_;
  Index exact_rows_;
  Index n_in_gram_ = 0;
};

void require_groups(const ConstVectorView<std::int64_t>& groups, Index n, Index n_groups) {
  const bool fits = groups.size() == n || (groups.size() == 0 && n_groups <= 1);
  const bool in_range = std::all_of(groups.data(), groups.data() + groups.size(),
                                    [&](std::int64_t g) { return g >= 0 && g < n_groups; });
  if (fits && in_range) return;
  throw std::invalid_argument(
      "groups must be a group below n_groups for each row, or none for at "
      "most one group");
}

}  // namespace

bool add_dense_moments(const DensePeople& people, Index n, ConstVectorView<std::int64_t> groups,
                       Index n_groups, double bound, int bits, Rows<std::int64_t> total,
                       int n_threads) {
  require_threads(n_threads);
  require_grid(bound, bits);
  require_groups(groups, n, n_groups);
  const auto sum_up = [&](const auto& source) {
    const Index d = width_of(source);
    if (total.rows() - d != n_groups || total.cols() != total.rows()) {
      throw std::invalid_argument("total must have a row and a column for each feature and group");
    }
    const Index height = std::min(block_rows, (Index{1} << (53 - 2 * bits)) - 1);
    const Index n_blocks = (n + height - 1) / height;
    std::atomic<Index> next{0};
    std::atomic<bool> all_finite{true};
    std::mutex mutex;
    RowMajorMatrix<std::int64_t> whole =
        RowMajorMatrix<std::int64_t>::Zero(total.rows(), total.cols());
    const double side = static_cast<double>(total.rows() + columns_of_a_row);
    const double work = static_cast<double>(n) * side * side;
    const int n_shares = work < work_for_threads ? 1 : n_threads;
    parallel_for(std::min<Index>(n_shares, n_blocks), n_shares, [&](Index) {
      Sums sums(total.rows(), bits);
      PeopleBlock block(total.rows());
      for (Index b = next++; b < n_blocks && all_finite; b = next++) {
        const Index first = b * height;
        const Index in_block = std::min(height, n - first);
        if (!block.read(source, first, in_block, {bound, bits})) {
          all_finite = false;
          return;
        }
        mark_groups(groups, n_groups, first, in_block, d, std::ldexp(1.0, bits), block);
        sums.add(block, in_block);
      }
      const std::lock_guard<std::mutex> lock(mutex);
      add_triangle(all_of(sums.total()), all_of(whole));
    });
    if (all_finite) add_triangle(all_of(whole), total);
    return all_finite.load();
  };
  return std::visit(sum_up, people);
}

}  // namespace dpgep
