#include "dpgep/csr_moments.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "dpgep/parallel.hpp"
#include "groups.hpp"
#include "large_array.hpp"
#include "prefetch.hpp"

namespace dpgep {
namespace {

// Column below, value above: one load brings both, and a row is one stretch of memory.
using Entry = std::uint64_t;

Entry entry(Index column, std::int32_t value) {
  return static_cast<Entry>(static_cast<std::uint32_t>(value)) << 32 |
         static_cast<std::uint32_t>(column);
}

std::uint32_t column_of(Entry entry) {
  return static_cast<std::uint32_t>(entry);
}

// Signed, in the arithmetic of unsigned integers, which wraps around.
std::uint64_t value_of(Entry entry) {
  return static_cast<std::uint64_t>(
      static_cast<std::int64_t>(static_cast<std::int32_t>(entry >> 32)));
}

// Rows z_i. The mark is one more entry, behind the features, so that nothing else knows of groups.
template <class Integer>
class MarkedRows {
 public:
  MarkedRows(const Csr<std::int32_t, Integer>& rows, Index n_features, Index n_groups,
             const ConstVectorView<std::int64_t>& groups, std::int32_t mark)
      : rows_(rows), groups_(groups), n_features_(n_features), n_groups_(n_groups), mark_(mark) {}

  Index size() const { return rows_.n_rows(); }

  // Where row i begins, counted in entries of all rows.
  Index start(Index i) const {
    return static_cast<Index>(rows_.indptr[i]) + (n_groups_ > 0 ? i : 0);
  }

  // The last row that begins at the position or before.
  Index row_at(Index position) const {
    Index low = 0;
    Index high = size();
    while (low < high) {
      const Index middle = high - (high - low) / 2;
      if (start(middle) <= position) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  template <class Body>
  void for_each_entry(Index i, const Body& body) const {
    const auto end = static_cast<Index>(rows_.indptr[i + 1]);
    for (auto p = static_cast<Index>(rows_.indptr[i]); p < end; ++p) {
      body(entry(static_cast<Index>(rows_.indices[p]), rows_.data[p]));
    }
    if (n_groups_ == 0) return;
    body(entry(n_features_ + group_of(groups_, i), mark_));
  }

  // sums_of(j)[k] += z_ij z_ik for k >= j.
  template <class SumsOf>
  void add_products(Index i, const SumsOf& sums_of) const {
    const Integer* const indices = rows_.indices.data();
    const std::int32_t* const values = rows_.data.data();
    const auto end = static_cast<Index>(rows_.indptr[i + 1]);
    const Index group = n_groups_ == 0 ? 0 : n_features_ + group_of(groups_, i);
    for (auto p = static_cast<Index>(rows_.indptr[i]); p < end; ++p) {
      std::uint64_t* const sums = sums_of(indices[p]);
      const std::int64_t value = values[p];
      for (Index q = p; q < end; ++q) {
        sums[indices[q]] += static_cast<std::uint64_t>(value * values[q]);
      }
      if (n_groups_ > 0) sums[group] += static_cast<std::uint64_t>(value * mark_);
    }
    if (n_groups_ == 0) return;
    sums_of(group)[group] += static_cast<std::uint64_t>(std::int64_t{mark_} * mark_);
  }

 private:
  const Csr<std::int32_t, Integer>& rows_;
  const ConstVectorView<std::int64_t>& groups_;
  Index n_features_, n_groups_;
  std::int32_t mark_;
};

// An entry and those behind it in its row: what the row adds to one row of the moment matrix.
struct Tail {
  std::uint32_t begin, end;
};

// sums += the products of the first entry with all. Four entries are loaded before sums change,
// which might be the same memory for all the compiler knows.
void add_tail(const Entry* begin, const Entry* end, std::uint64_t* sums) {
  const std::uint64_t value = value_of(*begin);
  const Entry* next = begin;
  for (; end - next >= 4; next += 4) {
    const std::array<Entry, 4> four{next[0], next[1], next[2], next[3]};
    for (const Entry other : four) sums[column_of(other)] += value * value_of(other);
  }
  for (; next < end; ++next) sums[column_of(*next)] += value * value_of(*next);
}

// Signed and unsigned integers of one size may share memory.
std::uint64_t* unsigned_row(Rows<std::int64_t>& total, Index column) {
  return reinterpret_cast<std::uint64_t*>(total.data()) + column * total.outerStride();
}

// How far ahead memory is fetched: tails, and entries of each.
constexpr Index tails_ahead = 16;
constexpr std::uint32_t line_entries = 64 / sizeof(Entry);
constexpr std::uint32_t entries_ahead = 4 * line_entries;

// Chunks of rows that threads copy and sort. Each has a counter for every column.
constexpr Index most_chunks = 16;
constexpr Index entries_per_counter = 4;

// Some rows, packed, and their tails ordered by column: the transposed rows.
class Batch {
 public:
  // The rows first, ..., last - 1.
  template <class Integer>
  Batch(const MarkedRows<Integer>& rows, Index first, Index last, Index n_columns, int n_threads)
      : base_(rows.start(first)),
        n_entries_(rows.start(last) - base_),
        n_columns_(n_columns),
        n_chunks_(std::clamp(n_entries_ / (entries_per_counter * std::max<Index>(1, n_columns)),
                             Index{1}, most_chunks)),
        entries_(n_entries_ + entries_ahead),
        tails_(n_entries_),
        places_(static_cast<std::size_t>(n_chunks_ * n_columns)),
        starts_(static_cast<std::size_t>(n_columns + 1)) {
    const auto chunk_start = [&](Index chunk) {
      const Index position = base_ + n_entries_ / n_chunks_ * chunk;
      return chunk == n_chunks_ ? last : std::clamp(rows.row_at(position), first, last);
    };
    parallel_for(n_chunks_, n_threads, [&](Index chunk) {
      pack(rows, chunk_start(chunk), chunk_start(chunk + 1), places_of(chunk));
    });
    place_columns();
    parallel_for(n_chunks_, n_threads, [&](Index chunk) {
      sort(rows, chunk_start(chunk), chunk_start(chunk + 1), places_of(chunk));
    });
  }

  // Adds to row `column` of the moment matrix, which stays in the cache meanwhile.
  void add_to(std::uint64_t* sums, Index column) const {
    const Tail* const end = tails_.data() + starts_[static_cast<std::size_t>(column) + 1];
    for (const Tail* tail = tails_.data() + starts_[static_cast<std::size_t>(column)]; tail < end;
         ++tail) {
      expect_to_read_tail(tail[std::min(tails_ahead, end - 1 - tail)].begin);
      add_tail(entries_.data() + tail->begin, entries_.data() + tail->end, sums);
    }
  }

 private:
  // Tails are short and lie anywhere: without this the processor waits for each.
  void expect_to_read_tail(std::uint32_t begin) const {
    for (std::uint32_t p = 0; p < entries_ahead; p += line_entries) {
      expect_to_read(entries_.data() + begin + p);
    }
  }

  Index* places_of(Index chunk) { return places_.data() + chunk * n_columns_; }

  template <class Integer>
  void pack(const MarkedRows<Integer>& rows, Index first, Index last, Index* counts) {
    Entry* out = entries_.data() + (rows.start(first) - base_);
    for (Index i = first; i < last; ++i) {
      rows.for_each_entry(i, [&](Entry next) {
        ++counts[column_of(next)];
        *out++ = next;
      });
    }
  }

  // Turns the counts into the places of the tails: column by column, in each chunk by chunk.
  void place_columns() {
    Index place = 0;
    for (Index column = 0; column < n_columns_; ++column) {
      starts_[static_cast<std::size_t>(column)] = place;
      for (Index chunk = 0; chunk < n_chunks_; ++chunk) {
        Index& here = places_of(chunk)[column];
        const Index count = here;
        here = place;
        place += count;
      }
    }
    starts_.back() = place;
  }

  template <class Integer>
  void sort(const MarkedRows<Integer>& rows, Index first, Index last, Index* places) {
    for (Index i = first; i < last; ++i) {
      const auto end = static_cast<std::uint32_t>(rows.start(i + 1) - base_);
      for (auto p = static_cast<std::uint32_t>(rows.start(i) - base_); p < end; ++p) {
        tails_.data()[places[column_of(entries_.data()[p])]++] = {p, end};
      }
    }
  }

  Index base_, n_entries_, n_columns_, n_chunks_;
  LargeArray<Entry> entries_;
  LargeArray<Tail> tails_;
  std::vector<Index> places_, starts_;
};

// Large enough that going through total once for each batch is little beside the work on it; small
// enough to take less memory than total, or 64 MB, and to be counted in 32 bits.
Index entries_per_batch(Index n_columns) {
  return std::clamp(n_columns * n_columns / 4, Index{1} << 22, Index{1} << 31);
}

constexpr Index rows_per_task = 4;

// Sorted by column first: the sums of one column stay in the cache.
template <class Integer>
void add_in_batches(const MarkedRows<Integer>& rows, Rows<std::int64_t> total, int n_threads) {
  const Index n_columns = total.rows();
  const Index most = entries_per_batch(n_columns);
  for (Index first = 0; first < rows.size();) {
    const Index last = std::max(first + 1, rows.row_at(rows.start(first) + most));
    const Batch batch(rows, first, last, n_columns, n_threads);
    const Index n_tasks = (n_columns + rows_per_task - 1) / rows_per_task;
    parallel_for(n_tasks, n_threads, [&](Index task) {
      const Index end = std::min(n_columns, (task + 1) * rows_per_task);
      for (Index column = task * rows_per_task; column < end; ++column) {
        batch.add_to(unsigned_row(total, column), column);
      }
    });
    first = last;
  }
}

constexpr Index most_sums_of_threads = Index{1} << 23;
constexpr double products_per_sum = 4.0;  // that pay for sums of a thread's own

// Row after row, for sums that stay in the cache: the processor knows how long its tails are, each
// shorter by one than the last, and does not know it of sorted ones. Sums of threads but the first
// are added to total in the end.
template <class Integer>
void add_in_order(const MarkedRows<Integer>& rows, Rows<std::int64_t> total, int n_threads) {
  const Index n_columns = total.rows();
  const Index n_sums = std::max<Index>(1, total.size());
  const Index n_entries = rows.start(rows.size());
  const double length =
      static_cast<double>(n_entries) / std::max(1.0, static_cast<double>(rows.size()));
  const double products = static_cast<double>(n_entries) * (length + 1.0) / 2.0;
  const double pay = products / (products_per_sum * static_cast<double>(n_sums));
  const Index most = std::clamp<Index>(most_sums_of_threads / n_sums, 1, n_threads);
  const auto n_shares = static_cast<Index>(std::clamp(pay, 1.0, static_cast<double>(most)));
  LargeArray<std::uint64_t> others((n_shares - 1) * n_sums);
  const auto sums_of = [&](Index share) {
    std::uint64_t* const first =
        share == 0 ? unsigned_row(total, 0) : others.data() + (share - 1) * n_sums;
    const Index stride = share == 0 ? total.outerStride() : n_columns;
    return [first, stride](Index column) { return first + column * stride; };
  };
  const auto first_row = [&](Index share) {
    return share == n_shares ? rows.size() : rows.row_at(n_entries / n_shares * share);
  };
  parallel_for(n_shares, n_threads, [&](Index share) {
    const auto sums = sums_of(share);
    for (Index column = 0; share > 0 && column < n_columns; ++column) {
      std::fill_n(sums(column) + column, n_columns - column, 0);
    }
    for (Index i = first_row(share); i < first_row(share + 1); ++i) rows.add_products(i, sums);
  });
  parallel_for(n_shares == 1 ? 0 : n_columns, n_threads, [&](Index column) {
    std::uint64_t* const out = sums_of(0)(column);
    for (Index share = 1; share < n_shares; ++share) {
      const std::uint64_t* const sums = sums_of(share)(column);
      for (Index k = column; k < n_columns; ++k) out[k] += sums[k];
    }
  });
}

}  // namespace

template <class Integer>
void add_csr_moments(const Csr<std::int32_t, Integer>& rows, Index n_features,
                     const ConstVectorView<std::int64_t>& groups, std::int32_t mark,
                     Rows<std::int64_t> total, int n_threads, Index sums_in_cache) {
  require_threads(n_threads);
  const Index n_columns = total.rows();
  if (total.cols() != n_columns || n_features < 0 || n_features > n_columns) {
    throw std::invalid_argument("total must have n_features + n_groups rows and columns, not " +
                                std::to_string(total.rows()) + " x " +
                                std::to_string(total.cols()) +
                                " for n_features = " + std::to_string(n_features));
  }
  require_canonical_csr(rows, n_features, n_threads);
  require_groups(groups, rows.n_rows(), n_columns - n_features);
  const MarkedRows<Integer> marked(rows, n_features, n_columns - n_features, groups, mark);
  if (total.size() <= sums_in_cache) {
    add_in_order(marked, total, n_threads);
  } else {
    add_in_batches(marked, total, n_threads);
  }
}

template void add_csr_moments(const Csr<std::int32_t, std::int32_t>&, Index,
                              const ConstVectorView<std::int64_t>&, std::int32_t,
                              Rows<std::int64_t>, int, Index);
template void add_csr_moments(const Csr<std::int32_t, std::int64_t>&, Index,
                              const ConstVectorView<std::int64_t>&, std::int32_t,
                              Rows<std::int64_t>, int, Index);

}  // namespace dpgep
