#include "dpgep/dense_moments.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dpgep/fixed_point.hpp"
#include "dpgep/fixed_point_turned.hpp"
#include "dpgep/integer_moments.hpp"
#include "dpgep/parallel.hpp"
#include "gram.hpp"
#include "prefetch.hpp"
#include "row_mapper.hpp"

namespace dpgep {

// Measured with AVX-512, and with AVX2, beside the same: 0.9 of BLAS's time at this width; without
// fused operations, SSE2 takes 0.8 beside the same at 300 columns, and 1.3 at 100 beside AVX.
#if defined(__FMA__) || defined(__aarch64__)
const Index narrow_dimension = has_wide_registers() ? 800 : 500;
#else
const Index narrow_dimension = 100;
#endif

namespace {

// Rows of this many entries stay in the first-level cache.
constexpr Index gathered_entries = Index{1} << 11;
// Rows that are multiplied together: at a hundred columns they fill a third of a second-level
// cache.
constexpr Index block_rows = 384;
// Columns of a buffer begin in different sets of the cache, and each at a line of it: a wide
// register that is read from two takes twice as long.
constexpr Index line_entries = 8;
constexpr Index buffer_stride = block_rows + line_entries;
static_assert(block_rows % line_entries == 0 && line_entries % gram_lanes == 0);

double* next_line(double* from) {
  constexpr std::uintptr_t bytes = line_entries * sizeof(double);
  const std::uintptr_t beyond = reinterpret_cast<std::uintptr_t>(from) % bytes;
  return from + (bytes - beyond) % bytes / sizeof(double);
}

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

// Rows whose weights are looked at together: many enough for most of their weights to have a
// block's rows, few enough to stay in the last-level cache.
constexpr Index rows_by_weight = Index{1} << 16;

// Rows of one weight: those of some numbers, or `n` from the number `first` on where null.
struct Run {
  const Index* numbers;
  Index first, n;
  std::int64_t weight;

  Index number(Index i) const { return numbers == nullptr ? first + i : numbers[i]; }
};

// Some rows in the order of their weights.
class RowsByWeight {
 public:
  // The rows first, ..., first + n - 1 in runs of at most `most`, which last until the next call.
  const std::vector<Run>& runs(const RowWeights& weights, Index first, Index n, Index most) {
    runs_.clear();
    if (weights.size() == 0) {
      for (Index i = 0; i < n; i += most) {
        runs_.push_back({nullptr, first + i, std::min(most, n - i), 1});
      }
      return runs_;
    }
    const std::int16_t* const weight = weights.data() + first;
    counts_.assign(static_cast<std::size_t>(*std::max_element(weight, weight + n)) + 1, 0);
    for (Index i = 0; i < n; ++i) ++counts_[static_cast<std::size_t>(weight[i])];
    numbers_.resize(static_cast<std::size_t>(n));
    Index begin = 0;
    for (std::size_t w = 0; w < counts_.size(); ++w) {
      const Index end = begin + std::exchange(counts_[w], begin);
      for (; begin < end; begin += most) {
        runs_.push_back({numbers_.data() + begin, 0, std::min(most, end - begin),
                         static_cast<std::int64_t>(w)});
      }
      begin = end;
    }
    for (Index i = 0; i < n; ++i) {
      numbers_[static_cast<std::size_t>(counts_[static_cast<std::size_t>(weight[i])]++)] =
          first + i;
    }
    return runs_;
  }

 private:
  std::vector<Run> runs_;
  std::vector<Index> counts_, numbers_;
};

// Rows that lie apart, where the processor does not look ahead: asked for a few at a time, while
// others are multiplied.
class RowsAhead {
 public:
  RowsAhead() = default;
  RowsAhead(const std::vector<Column>&, const Run&) {}
  template <class Scalar>
  RowsAhead(const ConstRows<Scalar>& rows, const Run& run)
      : begin_(reinterpret_cast<const char*>(rows.data())),
        stride_(rows.outerStride() * static_cast<Index>(sizeof(Scalar))),
        size_(rows.cols() * static_cast<Index>(sizeof(Scalar))),
        run_(run),
        n_(run.numbers == nullptr ? 0 : run.n) {}

  // Says how many times `ask` will be called.
  void spread(Index n_times) { at_once_ = (n_ + n_times - 1) / n_times; }

  void ask() {
    for (const Index end = std::min(n_, i_ + at_once_); i_ < end; ++i_) {
      const char* const row = begin_ + run_.numbers[i_] * stride_;
      for (Index j = 0; j < size_; j += line) expect_to_read_later(row + j);
      expect_to_read_later(row + size_ - 1);
    }
  }

 private:
  static constexpr Index line = 64;  // bytes of a cache

  const char* begin_ = nullptr;
  Index stride_ = 0, size_ = 0;
  Run run_ = {nullptr, 0, 0, 0};
  Index n_ = 0, i_ = 0, at_once_ = 0;
};

// Blocks of [rows on the grid; marks], held by columns, and what they add to a Gram matrix.
class PeopleBlock {
 public:
  explicit PeopleBlock(Index width)
      : memory_(Vector<double>::Zero(whole_tiles(width) * buffer_stride + line_entries)),
        columns_(next_line(memory_.data()), whole_tiles(width), buffer_stride,
                 Eigen::OuterStride<>(buffer_stride)) {}

  template <class Scalar>
  bool read(const ConstRows<Scalar>& rows, const Run& run, Grid grid, const RowMapper* mapper) {
    const Index first = run.numbers == nullptr ? run.first : 0;
    const ConstRows<Scalar> part(rows.data() + first * rows.outerStride(), rows.rows() - first,
                                 rows.cols(), Eigen::OuterStride<>(rows.outerStride()));
    return fixed_point_turned(part, grid.bound, grid.bits, features(rows.cols(), run.n),
                              run.numbers, mapper);
  }

  bool read(const std::vector<Column>& columns, const Run& run, Grid grid,
            const RowMapper* mapper) {
    return mapper == nullptr ? read(columns, run, grid) : gather(columns, run, grid, *mapper);
  }

  // Columns that are to be mapped become rows, a few at a time.
  bool gather(const std::vector<Column>& columns, const Run& run, Grid grid,
              const RowMapper& mapper) {
    const auto d = static_cast<Index>(columns.size());
    gathered_.resize(std::clamp<Index>(gathered_entries / d, 1, block_rows), d);
    for (Index i = 0; i < run.n; i += gathered_.rows()) {
      const Index n = std::min(gathered_.rows(), run.n - i);
      for (Index j = 0; j < d; ++j) {
        const auto gather = [&](const auto* column) {
          for (Index k = 0; k < n; ++k) {
            gathered_(k, j) = static_cast<double>(column[run.number(i + k)]);
          }
        };
        std::visit(gather, columns[static_cast<std::size_t>(j)]);
      }
      const ConstRows<double> rows(gathered_.data(), n, d, Eigen::OuterStride<>(d));
      const Rows<double> out(&entry(i, 0), d, n, Eigen::OuterStride<>(buffer_stride));
      if (!fixed_point_turned(rows, grid.bound, grid.bits, out, nullptr, &mapper)) return false;
    }
    return true;
  }

  bool read(const std::vector<Column>& columns, const Run& run, Grid grid) {
    std::vector<Column> part = columns;
    const auto d = static_cast<Index>(part.size());
    if (run.numbers == nullptr) {
      for (Column& column : part) std::visit([&](auto*& begin) { begin += run.first; }, column);
    } else {
      taken_.resize(d, block_rows);
      for (Index j = 0; j < d; ++j) {
        double* const out = &taken_(j, 0);
        std::visit(
            [&](const auto* column) {
              for (Index i = 0; i < run.n; ++i)
                out[i] = static_cast<double>(column[run.numbers[i]]);
            },
            part[static_cast<std::size_t>(j)]);
        part[static_cast<std::size_t>(j)] = out;
      }
    }
    return fixed_point_columns(part, grid.bound, grid.bits, features(d, run.n), 1);
  }

  double& entry(Index row, Index column) { return columns_(column, row); }

  // Of the first n people. Nobody's entries, up to the last of the lanes, are zeros. The `next`
  // rows are asked for meanwhile.
  void add_gram(Index n, RowMajorMatrix<double>& gram, RowsAhead next) {
    const Index n_in_lanes = (n + gram_lanes - 1) / gram_lanes * gram_lanes;
    columns_.middleCols(n, n_in_lanes - n).setZero();
    next.spread(n_tiles(columns_.rows()));
    dpgep::add_gram(columns_, n_in_lanes, gram, [&] { next.ask(); });
  }

 private:
  Rows<double> features(Index d, Index n) {
    return {columns_.data(), d, n, Eigen::OuterStride<>(buffer_stride)};
  }

  Vector<double> memory_;
  Rows<double> columns_;
  RowMajorMatrix<double> taken_;     // entries of columns, of rows that lie apart
  RowMajorMatrix<double> gathered_;  // rows of columns that are to be mapped
};

Index width_of(const std::vector<Column>& columns) {
  return static_cast<Index>(columns.size());
}

template <class Scalar>
Index width_of(const ConstRows<Scalar>& rows) {
  return rows.cols();
}

void mark_groups(const ConstVectorView<std::int64_t>& groups, Index n_groups, const Run& run,
                 Index n_features, double mark, PeopleBlock& block) {
  for (Index g = 0; g < n_groups; ++g) {
    for (Index i = 0; i < run.n; ++i) {
      const bool is_in = groups.size() == 0 || groups(run.number(i)) == g;
      block.entry(i, n_features + g) = is_in ? mark : 0.0;
    }
  }
}

// Sums in two limbs, or in one.
struct Limbs {
  RowMajorMatrix<std::int64_t> low, high;

  Limbs(Index width, bool are_two)
      : low(RowMajorMatrix<std::int64_t>::Zero(width, width)),
        high(RowMajorMatrix<std::int64_t>::Zero(are_two ? width : 0, are_two ? width : 0)) {}

  bool are_two() const { return high.size() > 0; }

  void carry() { carry_triangle(all_of(low), all_of(high)); }

  void add(Limbs& other) {
    if (are_two()) {
      other.carry();
      add_triangle(all_of(other.high), all_of(high));
    }
    add_triangle(all_of(other.low), all_of(low));
    if (are_two()) carry();
  }
};

// Sums of one thread: exact in double precision for as many rows of one weight as fit, then in
// integers, multiplied by the weight.
class Sums {
 public:
  Sums(Index width, int bits, bool in_two_limbs)
      : gram_(RowMajorMatrix<double>::Zero(whole_tiles(width), whole_tiles(width))),
        total_(width, in_two_limbs),
        exact_rows_((Index{1} << (53 - 2 * bits)) - 1),
        most_in_limb_(Index{1} << (62 - 2 * bits)) {}

  void add(PeopleBlock& block, Index n, std::int64_t weight, const RowsAhead& next) {
    if (weight == 0) return;
    // a limb has room for the largest weight of a block
    const Index most = std::min(exact_rows_, most_in_limb_ / weight);
    if (weight != weight_ || n_in_gram_ + n > most) fold();
    weight_ = weight;
    block.add_gram(n, gram_, next);
    n_in_gram_ += n;
  }

  Limbs& total() {
    fold();
    return total_;
  }

 private:
  void fold() {
    if (n_in_gram_ == 0) return;
    if (total_.are_two() && in_limb_ + weight_ * n_in_gram_ > most_in_limb_) {
      total_.carry();
      in_limb_ = 0;
    }
    fold_triangle(corner(gram_, total_.low.rows()), all_of(total_.low), 1, weight_);
    in_limb_ += weight_ * n_in_gram_;
    n_in_gram_ = 0;
  }

  RowMajorMatrix<double> gram_;
  Limbs total_;
  Index exact_rows_, most_in_limb_;
  Index n_in_gram_ = 0;
  Index in_limb_ = 0;        // the weights of rows in the low limb that were not carried
  std::int64_t weight_ = 1;  // of the rows in the gram matrix
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
                       int n_threads, const RowWeights& weights, Rows<std::int64_t> high,
                       const RowMap* map) {
  require_threads(n_threads);
  require_grid(bound, bits);
  require_groups(groups, n, n_groups);
  require_weights(weights, n);
  if (map != nullptr && std::holds_alternative<ConstRows<std::uint8_t>>(people)) {
    throw std::invalid_argument("rows that are mapped must not be a matrix of bytes");
  }
  const auto sum_up = [&](const auto& source) {
    const Index d = width_of(source);
    if (total.rows() - d != n_groups || total.cols() != total.rows()) {
      throw std::invalid_argument("total must have a row and a column for each feature and group");
    }
    if (high.size() > 0 && (high.rows() != total.rows() || high.cols() != total.cols())) {
      throw std::invalid_argument("high must have the shape of total");
    }
    std::optional<RowMapper> mapper;
    if (map != nullptr) mapper.emplace(*map, d);
    const RowMapper* const mapped = mapper && d > 0 ? &*mapper : nullptr;
    const Index height = std::min(block_rows, (Index{1} << (53 - 2 * bits)) - 1);
    const double side = static_cast<double>(total.rows() + columns_of_a_row);
    const double work = static_cast<double>(n) * side * side;
    const int n_shares = work < work_for_threads ? 1 : n_threads;
    // of which a thread takes one after the other
    const Index stretch =
        weights.size() == 0 ? height : std::clamp(n / n_shares + 1, height, rows_by_weight);
    const Index n_stretches = (n + stretch - 1) / stretch;
    std::atomic<Index> next{0};
    std::atomic<bool> all_finite{true};
    std::mutex mutex;
    const bool are_two = high.size() > 0;
    Limbs whole(total.rows(), are_two);
    parallel_for(std::min<Index>(n_shares, n_stretches), n_shares, [&](Index) {
      Sums sums(total.rows(), bits, are_two);
      PeopleBlock block(total.rows());
      RowsByWeight by_weight;
      for (Index s = next++; s < n_stretches && all_finite; s = next++) {
        const Index first = s * stretch;
        const auto& runs = by_weight.runs(weights, first, std::min(stretch, n - first), height);
        for (std::size_t r = 0; r < runs.size(); ++r) {
          if (!block.read(source, runs[r], {bound, bits}, mapped)) {
            all_finite = false;
            return;
          }
          mark_groups(groups, n_groups, runs[r], d, std::ldexp(1.0, bits), block);
          const RowsAhead ahead =
              r + 1 < runs.size() ? RowsAhead(source, runs[r + 1]) : RowsAhead();
          sums.add(block, runs[r].n, runs[r].weight, ahead);
        }
      }
      const std::lock_guard<std::mutex> lock(mutex);
      whole.add(sums.total());
    });
    if (!all_finite) return false;
    add_triangle(all_of(whole.low), total);
    if (are_two) add_triangle(all_of(whole.high), high);
    return true;
  };
  return std::visit(sum_up, people);
}

}  // namespace dpgep
