#include "dpgep/sampled_rows.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "dpgep/wipe.hpp"
#include "partial_sums.hpp"
#include "row_chunks.hpp"

namespace dpgep {
namespace {

// The members of a sample, which nobody may know; then their rows.
class Sample {
 public:
  Sample(const PoissonSampler& sampler, NoiseStream& stream) {
    // room for all but one sample in 10^23, so that no copies are left behind
    const double mean = static_cast<double>(sampler.n()) * sampler.rate();
    members_.reserve(static_cast<std::size_t>(mean + 10.0 * std::sqrt(mean) + 64.0));
    sampler.draw(stream, members_);
  }
  Sample(const Sample& people, const Owners& owners) {
    if (owners.starts.size() == 0) return;
    Index n_rows = 0;
    for (const Index i : people.members_) n_rows += owners.starts[i + 1] - owners.starts[i];
    members_.reserve(static_cast<std::size_t>(n_rows));
    for (const Index i : people.members_) {
      const std::int64_t* const order = owners.order.data();
      members_.insert(members_.end(), order + owners.starts[i], order + owners.starts[i + 1]);
    }
  }
  ~Sample() { wipe(members_.data(), members_.size() * sizeof(Index)); }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  Index size() const { return static_cast<Index>(members_.size()); }
  Index operator[](Index i) const { return members_[static_cast<std::size_t>(i)]; }

 private:
  std::vector<Index> members_;
};

// A thread is given at least this many rows, and adds up at most so many before others are added:
// what rounding loses of a sum follows from the number of people, whatever that of their rows.
constexpr Index rows_of_a_chunk = 128, most_rows_of_a_chunk = Index{1} << 16;

// Additions in one sample above which threads, started for each step anew, are sure to pay.
constexpr double work_for_threads = 2e7;

RowChunks chunks_of(Index n_members) {
  const Index rows = std::clamp((n_members + 31) / 32, rows_of_a_chunk, most_rows_of_a_chunk);
  return {n_members, (rows + group_rows - 1) / group_rows * group_rows};
}

template <std::size_t R, class Scalar>
RowGroup<R, Scalar> sampled_group(const ConstRows<Scalar>& rows, const Sample& sample, Index i) {
  RowGroup<R, Scalar> group;
  for (const Scalar*& row : group) row = rows.data() + sample[i++] * rows.outerStride();
  return group;
}

// The rows of a group in double precision, to be read more than once; the next are fetched
// meanwhile.
template <std::size_t R, class Scalar>
RowGroup<R, double> converted(const RowGroup<R, Scalar>& group, const RowGroup<R, Scalar>& next,
                              Index n, double* scratch) {
  RowGroup<R, double> copies;
  for (std::size_t r = 0; r < R; ++r) {
    double* const copy = scratch + static_cast<Index>(r) * n;
    for (Index j = 0; j < n; j += line_entries<Scalar>) {
      expect_to_read(next[r] + j);
      const Index end = std::min(n, j + line_entries<Scalar>);
      for (Index i = j; i < end; ++i) copy[i] = static_cast<double>(group[r][i]);
    }
    copies[r] = copy;
  }
  return copies;
}

template <class Scalar>
struct DenseWork {
  const ConstRows<Scalar>& rows;
  const double* factors;
  const ConstBlock& V;

  Index entries_of_a_row() const { return rows.cols() * V.rows(); }

  // sums (K, d) += sum over the members first, ..., last - 1.
  void add(const Sample& sample, Index first, Index last, double* sums) const {
    const Index d = rows.cols();
    const bool converts = std::is_same_v<Scalar, float> && V.rows() > 1;
    std::vector<double> scratch(static_cast<std::size_t>(converts ? group_rows * d : 0));
    for_each_group(first, last, [&](auto R, Index i) {
      const auto group = sampled_group<R>(rows, sample, i);
      const Index next = i + 2 * static_cast<Index>(R) <= last ? i + static_cast<Index>(R) : i;
      const auto coming = sampled_group<R>(rows, sample, next);
      if (converts) {
        const auto copies = converted<R>(group, coming, d, scratch.data());
        add_group<R, double>(sample, i, copies, nullptr, sums);
      } else {
        add_group<R, Scalar>(sample, i, group, &coming, sums);
      }
    });
  }

  template <std::size_t R, class Entry>
  void add_group(const Sample& sample, Index i, const RowGroup<R, Entry>& group,
                 const RowGroup<R, Entry>* coming, double* sums) const {
    const Index d = rows.cols();
    for (Index k = 0; k < V.rows(); ++k) {
      LaneSums<R> dots;
      add_dots<R>(group, row(V, k), d, dots);
      Coefficients<R> c;
      for (std::size_t r = 0; r < R; ++r) {
        const double factor = factors[sample[i + static_cast<Index>(r)]];
        // a row with the factor 0 may be so long that its product overflows
        c[r] = factor == 0.0 ? 0.0 : factor * dots.dot(r) * factor;
      }
      if (k == 0 && coming != nullptr) {
        add_combination<true>(c, group, d, sums + k * d, *coming);
      } else {
        add_combination(c, group, d, sums + k * d);
      }
    }
  }

  Block product(Block&& sums) const { return std::move(sums); }
};

// K vectors side by side, (d, K): an entry meets them in one cache line.
template <class Scalar, class Integer>
struct CsrWork {
  const Csr<Scalar, Integer>& rows;
  const double* factors;
  Index K;
  Block columns;

  Index entries_of_a_row() const {
    return rows.data.size() * K / std::max<Index>(1, rows.n_rows());
  }

  void add(const Sample& sample, Index first, Index last, double* sums) const {
    std::vector<double> c(static_cast<std::size_t>(K));
    for (Index m = first; m < last; ++m) {
      const Index i = sample[m];
      if (factors[i] == 0.0) continue;  // its product might overflow
      const auto begin = static_cast<Index>(rows.indptr[i]);
      const auto end = static_cast<Index>(rows.indptr[i + 1]);
      std::fill(c.begin(), c.end(), 0.0);
      for (Index p = begin; p < end; ++p) {
        const auto z = static_cast<double>(rows.data[p]);
        const double* const entries = columns.data() + static_cast<Index>(rows.indices[p]) * K;
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

  Block product(Block&& sums) const {
    return Eigen::Map<const Block>(sums.data(), columns.rows(), K).transpose();
  }
};

template <class Scalar>
DenseWork<Scalar> work_on(const ConstRows<Scalar>& rows, const double* factors,
                          const ConstBlock& V) {
  return {rows, factors, V};
}

template <class Scalar, class Integer>
CsrWork<Scalar, Integer> work_on(const Csr<Scalar, Integer>& rows, const double* factors,
                                 const ConstBlock& V) {
  return {rows, factors, V.rows(), V.transpose()};
}

template <class Work>
Block sum_over(const Sample& sample, const Work& work, Index K, Index d, double scale,
               int n_threads) {
  const RowChunks chunks = chunks_of(sample.size());
  const double n_entries =
      static_cast<double>(sample.size()) * static_cast<double>(work.entries_of_a_row());
  PartialSums partials(chunks.count(), K * d);
  parallel_for(chunks.count(), n_entries < work_for_threads ? 1 : n_threads, [&](Index chunk) {
    work.add(sample, chunks.first(chunk), chunks.last(chunk), partials.start(chunk));
  });
  Block sums(K, d);
  partials.add_up(scale, sums.data(), 1);
  return work.product(std::move(sums));
}

template <class Scalar>
Index n_rows_of(const ConstRows<Scalar>& rows) {
  return rows.rows();
}

template <class Scalar, class Integer>
Index n_rows_of(const Csr<Scalar, Integer>& rows) {
  return rows.n_rows();
}

template <class Scalar>
void require_rows(const ConstRows<Scalar>& rows, Index n_features) {
  if (rows.cols() == n_features) return;
  throw std::invalid_argument("rows must have n_features = " + std::to_string(n_features) +
                              " columns, not " + std::to_string(rows.cols()));
}

template <class Scalar, class Integer>
void require_rows(const Csr<Scalar, Integer>& rows, Index n_features) {
  require_csr(rows, n_features);
}

bool are_owners(const Owners& owners, Index n_rows) {
  const auto& [starts, order] = owners;
  return starts.size() > 0 && starts[0] == 0 && starts[starts.size() - 1] == order.size() &&
         std::is_sorted(starts.begin(), starts.end()) &&
         std::all_of(order.begin(), order.end(),
                     [&](std::int64_t row) { return row >= 0 && row < n_rows; });
}

}  // namespace

SampledRows::SampledRows(AnyRows rows, Index n_features, ConstVectorView<double> factors,
                         Owners owners, double scale, double rate, NoiseStream& stream,
                         int n_threads)
    : rows_(rows),
      n_features_(n_features),
      factors_(factors),
      owners_(owners),
      scale_(scale),
      sampler_(owners.starts.size() == 0 ? factors.size() : owners.starts.size() - 1, rate),
      stream_(stream),
      n_threads_(n_threads) {
  require_threads(n_threads);
  std::visit(
      [&](const auto& seen) {
        require_rows(seen, n_features);
        require_factors(n_rows_of(seen), factors, scale);
      },
      rows_);
  if (owners.starts.size() + owners.order.size() > 0 && !are_owners(owners, factors.size())) {
    throw std::invalid_argument("starts and order must tell which rows each person has");
  }
}

std::vector<Block> SampledRows::times(const ConstBlock& V) const {
  require_features(V, n_features_);
  if (V.rows() == 0) return {Block(0, n_features_)};
  const Sample people(sampler_, stream_);
  const Sample of_rows(people, owners_);
  const Sample& sample = owners_.starts.size() == 0 ? people : of_rows;
  return std::visit(
      [&](const auto& rows) -> std::vector<Block> {
        const auto work = work_on(rows, factors_.data(), V);
        return {sum_over(sample, work, V.rows(), n_features_, scale_, n_threads_)};
      },
      rows_);
}

}  // namespace dpgep
