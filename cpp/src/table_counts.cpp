#include "dpgep/table_counts.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "dpgep/csr.hpp"
#include "dpgep/parallel.hpp"
#include "lanes.hpp"
#include "partial_sums.hpp"
#include "prefetch.hpp"
#include "row_mapper.hpp"
#include "squared_length.hpp"

namespace dpgep {
namespace {

constexpr double largest_finite = std::numeric_limits<double>::max();
// A thread's own counts cost as much as this many entries for each.
constexpr double entries_per_count = 8.0;
// Rows that are multiplied together, so that the matrix is read seldom enough.
constexpr Index mixed_rows = 256;
// Rows whose places are added up in doubles, which are exact far beyond, whatever their weights.
constexpr Index rows_per_sum = 512;
constexpr Index n_partial = 8;
constexpr Index largest_bin = Index{1} << 20;
constexpr int square_bits = 36;

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

void require_columns(const ConstIntegers& columns, Index n_features) {
  require((columns.array() >= 0).all() && (columns.array() < n_features).all(),
          "columns must be columns of the rows");
}

void require_interval(const ConstVectorView<double>& middle, const ConstVectorView<double>& half,
                      Index n) {
  require(middle.size() == n && half.size() == n, "an interval must be given for each column");
  require(middle.array().isFinite().all(), "middle must be finite");
  require((half.array() > 0.0).all(), "half must be positive");
}

// Rounds to the nearest integer, ties to even, |x| <= 2^51: in two additions, which every processor
// has for several numbers at once.
inline double nearest(double x) {
  constexpr double shift = 0x1.8p52;
  return (x + shift) - shift;
}

inline std::int64_t weight_of(const RowWeights& weights, Index i) {
  return weights.size() == 0 ? 1 : weights[i];
}

// counts += what add(first, last, counts) adds for the rows from first to last; false if it does
// for some of them.
template <class Add>
bool sum_over_rows(Index n_rows, Index width, Integers counts, int n_threads, const Add& add) {
  require_threads(n_threads);
  const double work = static_cast<double>(n_rows) * static_cast<double>(std::max<Index>(1, width));
  const double size = entries_per_count * static_cast<double>(std::max<Index>(1, counts.size()));
  const auto most = static_cast<Index>(std::min(work / size, static_cast<double>(n_rows)));
  const Index n_chunks = std::clamp<Index>(most, 1, threads_for(work, n_threads));
  const Index height = (n_rows + n_chunks - 1) / n_chunks;
  std::vector<std::vector<std::int64_t>> others(static_cast<std::size_t>(n_chunks - 1));
  std::atomic<bool> finite{true};
  parallel_for(n_chunks, n_threads, [&](Index chunk) {
    std::int64_t* own = counts.data();
    if (chunk > 0) {
      auto& other = others[static_cast<std::size_t>(chunk - 1)];
      other.assign(static_cast<std::size_t>(counts.size()), 0);
      own = other.data();
    }
    if (!add(chunk * height, std::min(n_rows, (chunk + 1) * height), own)) finite = false;
  });
  for (const auto& other : others) {
    for (Index j = 0; j < counts.size(); ++j) counts[j] += other[static_cast<std::size_t>(j)];
  }
  return finite;
}

// Those that are counted before their bins are looked at.
constexpr Index counted_entries = 1 << 15;
// Columns whose bins are found before any is counted.
constexpr Index tile = 64;
// Signs with exponents of a column; counts of these, in sets of the cache that no other column has.
constexpr Index n_exponents = 1 << 12;
constexpr Index exponent_stride = n_exponents + 16;
// Rows, and columns, whose exponents are counted before any octave.
constexpr Index exponent_rows = 1 << 15;
constexpr Index exponent_columns = 1 << 8;
// Rows whose places are found together.
constexpr Index placed_rows = 8;
// Bins of which two rows' are counted together, in half the time; counts of these pairs, in sets of
// the cache that no other column has; rows that 16 bits can count.
constexpr std::uint32_t paired_bins = 32;
constexpr Index pair_stride = paired_bins * paired_bins + 32;
constexpr Index paired_rows = 1 << 16;
// Fewer rows take longer with them.
constexpr Index pairing_rows = 1 << 11;

// Calls each() n times, in runs whose lengths the compiler knows: processors guess wrong where
// short loops end.
template <class Each>
inline void for_columns(Index n, const Each& each) {
  const auto run = [&](auto length) {
    for (Index c = 0; c < length; ++c) each();
  };
  for (; n >= 8; n -= 8) run(std::integral_constant<Index, 8>{});
  if ((n & 4) != 0) run(std::integral_constant<Index, 4>{});
  if ((n & 2) != 0) run(std::integral_constant<Index, 2>{});
  if ((n & 1) != 0) each();
}

// Registers are arguments and never results, as in lanes.hpp.

// Calls find(x, left) for registers x of neighbouring columns from `left` on, the last one with
// zeros.
template <class Find>
inline void for_registers(const double* row, Index n, const Find& find) {
  const Index n_whole = n - n % n_at_once;
  Register x;
  for (Index left = 0; left < n_whole; left += n_at_once) {
    load(row + left, x);
    find(x, left);
  }
  if (n > n_whole) {
    load_some(row + n_whole, n - n_whole, x);
    find(x, n_whole);
  }
}

// Calls find(left) for registers of neighbouring columns from `left` on, at most n; the last one
// shares some with the one before.
template <class Find>
inline void for_lefts(Index n, const Find& find) {
  const Index last = std::max<Index>(0, n - n_at_once);
  for (Index left = 0; left < last; left += n_at_once) find(left);
  find(last);
}

// Parts of columns' intervals by products: division takes longer than all the rest. A part, counted
// from the first of its column, and how much of it is behind x, is found as x times a factor, plus
// an offset: an integer with the part in its first 16 bits and, in the others, 2^16 times what is
// behind, and 1; wrong by little more than 1. Nothing is decided below 3, of parts 2^15 away, of
// infinities and NaN, whose integers end in zeros, and in columns whose factor is NaN.
class Parts {
 public:
  // Parts are 1/scale of half an interval; the first begins `shift` of a part before the interval;
  // `last` is the last one.
  Parts(const ConstVectorView<double>& middle, const ConstVectorView<double>& half, double scale,
        double shift, double last)
      : factors_(in_registers(half, half.size(), 1.0)),
        amid_(unit * (std::floor(scale) + 0.5)),
        last_(static_cast<std::int16_t>(std::min(last, 0x1p15 - 1.0))) {
    const Index n = half.size();
    factors_ = scale / factors_.array();
    offsets_ = Vector<double>::Zero(factors_.size());
    for (Index c = 0; c < factors_.size(); ++c) {
      const double from = c < n ? middle[c] * factors_[c] : 0.25;
      const bool decides = factors_[c] >= 0x1p-900 && factors_[c] <= 0x1p900 &&
                           std::abs(from) <= 0x1p20 && last < 0x1p15;
      factors_[c] = decides ? unit * factors_[c] : std::nan("");
      offsets_[c] = unit * (scale + shift - from) + 1.0;
    }
  }

  // Calls found(pairs, i) for each four rows of some neighbouring columns from `left` on, read(x,
  // row) of which reads their entries: first the pairs of rows 4 i and 4 i + 1, then the others.
  // What is missing counts as amid its column. `near` is for is_clear.
  template <bool missing, class Read, class Found>
  void find(Index left, Index n_fours, const Read& read, Words& near, const Found& found) const {
    Register factor;
    Register offset;
    load(factors_.data() + left, factor);
    load(offsets_.data() + left, offset);
    for (Index i = 0; i < n_fours; ++i) {
      Register parts[4];
      for (Index r = 0; r < 4; ++r) {
        Register x;
        read(x, 4 * i + r);
        parts[r] = offset;
        add_exact_product(x, factor, parts[r]);
        if (missing) parts[r] = x == x ? parts[r] : Register{} + amid_;
      }
      Words words[2];
      for (Index r = 0; r < 2; ++r) {
        take_words(parts[r], parts[r + 2], words[r]);
        note_near(words[r], near);
      }
      Words pairs = (words[0] >> 16) | (words[1] & 0xffff0000);
      clamp_pairs(last_, pairs);
      found(pairs, i);
    }
  }

 private:
  static constexpr double unit = 0x1p16;
  Vector<double> factors_, offsets_;
  double amid_;
  std::int16_t last_;
};

struct Entries {
  const double* first;
  Index stride;  // from row to row
};

// In which of n_bins equal parts of their columns' intervals entries lie: at most placed_rows rows
// in n columns of a tile from the column `left` on.
class Bins {
 public:
  Bins(const ConstVectorView<double>& middle, const ConstVectorView<double>& half, Index n_bins)
      : n_bins_(n_bins),
        half_(static_cast<double>(n_bins) / 2),
        middles_(in_registers(middle, middle.size(), 0.0)),
        halves_(in_registers(half, half.size(), 1.0)),
        parts_(middle, half, half_, 0.0, static_cast<double>(n_bins - 1)) {}

  // The bins, `width` for each row, or 32 times the first one's and the second one's of each pair
  // of rows. False where products do not decide.
  template <bool missing, bool paired>
  bool multiply(Entries rows, Index n_rows, Index left, Index n, Index width,
                std::uint32_t* bins) const {
    Words near = {};
    const Words factors = Words{} + (paired_bins | 1 << 16);
    for_lefts(n, [&](Index c) {
      parts_.find<missing>(
          left + c, paired ? placed_rows / 4 : (n_rows + 3) / 4,
          [&](Register& x, Index i) {
            load_some(rows.first + (paired ? i : std::min(i, n_rows - 1)) * rows.stride + c,
                      std::min(n, n_at_once), x);
          },
          near,
          [&](const Words& pairs, Index i) {
            if (paired) {
              Words both = {};
              add_products(pairs, factors, both);
              store_words(both, bins + 2 * i * width + c, bins + (2 * i + 1) * width + c);
            } else {
              std::uint32_t* const of_four = bins + 4 * i * width + c;
              store_words(pairs & 0xffff, of_four, of_four + 2 * width);
              store_words(pairs >> 16, of_four + width, of_four + 3 * width);
            }
          });
    });
    return is_clear(near);
  }

  // The bins, `width` for each row. False for entries that are refused.
  template <bool missing>
  bool divide(Entries rows, Index n_rows, Index left, Index n, Index width,
              std::uint32_t* bins) const {
    const Register one = Register{} + 1.0;
    const Register last = Register{} + static_cast<double>(n_bins_ - 1);
    Register refused = {};
    for (Index i = 0; i < n_rows; ++i, rows.first += rows.stride, bins += width) {
      for_lefts(n, [&](Index c) {
        Register x;
        Register middle;
        Register half;
        load_some(rows.first + c, std::min(n, n_at_once), x);
        load(middles_.data() + left + c, middle);
        load(halves_.data() + left + c, half);
        Register place = (x - middle) / half;
        clamp_to(-one, one, place);
        place = (place + 1.0) * half_;
        clamp_to(Register{}, last, place);
        for (Index t = 0; t < n_at_once; ++t) bins[c + t] = static_cast<std::uint32_t>(place[t]);
        if (missing) x = x == x ? x : Register{};
        refused += x - x;
      });
    }
    return total(refused) == 0.0;
  }

 private:
  Index n_bins_;
  double half_;
  Vector<double> middles_, halves_;
  Parts parts_;
};

// Some columns' sums of p and p^2, and how many entries are there: doubles, which are exact for
// rows_per_sum people and far beyond.
struct PlaceSums {
  Register sum = {};
  Register square = {};
  Register there = {};
};

// `refused` is NaN once an entry was.
template <bool missing, bool weighted>
inline void add_places(Register x, const double* middle, const double* half, double unit,
                       std::int64_t weight, PlaceSums& sums, Register& refused) {
  constexpr double shift = 0x1.8p52;  // as in `nearest`
  const Register one = Register{} + 1.0;
  const Register times = Register{} + static_cast<double>(weight);
  Register m;
  Register h;
  load(middle, m);
  load(half, h);
  if (missing) {  // who is not there is put in the middle, where nothing is added
    const auto is_there = x == x;
    sums.there += is_there ? times : Register{};
    x = is_there ? x : m;
  }
  refused += x - x;
  Register p = (x - m) / h;
  clamp_to(-one, one, p);
  p = (unit * p + shift) - shift;
  const Register square = p * p;
  sums.sum += weighted ? p * times : p;
  sums.square += weighted ? square * times : square;
}

// Sums of parts, and of their squares, of some pairs of rows, and how many entries are there.
struct PartSums {
  Words sum = {};
  Words square = {};
  Register there = {};
};

// Of each row, registers of neighbouring columns. Rows that count once are added some together, by
// products where these decide.
template <bool missing, bool weighted, class Scalar>
bool sums_of_places(const ConstRows<Scalar>& rows, Index first, Index last,
                    const Vector<double>& middle, const Vector<double>& half, const Parts& parts,
                    double unit, const RowWeights& weights, std::int64_t* counts) {
  const Index d = rows.cols();
  const Index tail = std::max<Index>(0, d - n_at_once);
  const auto n_registers = static_cast<std::size_t>((d + n_at_once - 1) / n_at_once);
  std::vector<PlaceSums> sums(n_registers);
  std::vector<PartSums> before(n_registers);
  std::vector<PartSums> after(n_registers);
  // False, and nothing added, where products do not decide.
  const auto add_some = [&](const Scalar* row) {
    Words near = {};
    const PartSums* from = before.data();
    PartSums* to = after.data();
    for_lefts(d, [&](Index left) {
      PartSums own = *from++;
      parts.find<missing>(
          left, placed_rows / 4,
          [&](Register& x, Index i) {
            load_some(row + i * rows.outerStride() + left, std::min(d, n_at_once), x);
            if (missing) own.there += x == x ? Register{} + 1.0 : Register{};
          },
          near,
          [&](const Words& pairs, Index) {
            add_products(pairs, Words{} + 0x10001, own.sum);
            add_products(pairs, pairs, own.square);
          });
      *to++ = own;
    });
    const bool decided = is_clear(near);
    if (decided) before.swap(after);
    return decided;
  };
  const Index ahead = std::max(placed_rows, row_distance<Scalar>(d)) * rows.outerStride();
  constexpr Index line = 64 / static_cast<Index>(sizeof(Scalar));
  for (Index begin = first; begin < last; begin += rows_per_sum) {
    const Index end = std::min(last, begin + rows_per_sum);
    std::fill(sums.begin(), sums.end(), PlaceSums{});
    std::fill(before.begin(), before.end(), PartSums{});
    Register refused = {};
    std::int64_t n_people = 0;
    std::int64_t n_added = 0;
    for (Index i = begin; i < end;) {
      const Scalar* const row = &rows.coeffRef(i, 0);
      if (!weighted && (i - begin) % placed_rows == 0 && end - i >= placed_rows) {
        for (Index k = 0; k < placed_rows; ++k) {
          for (Index j = 0; j < d; j += line)
            expect_to_read_once(row + k * rows.outerStride() + ahead + j);
        }
        if (add_some(row)) {
          n_added += placed_rows;
          i += placed_rows;
          continue;
        }
      }
      const std::int64_t weight = weight_of(weights, i);
      n_people += weight;
      PlaceSums* own = sums.data();
      for_lefts(d, [&](Index left) {
        Register x;
        load_some(row + left, std::min(d, n_at_once), x);
        add_places<missing, weighted>(x, middle.data() + left, half.data() + left, unit, weight,
                                      *own++, refused);
      });
      ++i;
    }
    if (total(refused) != 0.0) return false;
    const auto whole = static_cast<std::int64_t>(unit);
    for (Index j = 0; j < d; ++j) {
      const auto r = static_cast<std::size_t>(j / n_at_once);
      const auto t = static_cast<int>(j - std::min(j / n_at_once * n_at_once, tail));
      const auto both = [t](const Words& of) { return std::int64_t{of[t]} + of[t + n_at_once]; };
      const std::int64_t sum = both(before[r].sum);
      const std::int64_t square = both(before[r].square);
      counts[j] += static_cast<std::int64_t>(sums[r].sum[t]) + sum - n_added * whole;
      counts[d + j] += static_cast<std::int64_t>(sums[r].square[t]) + square -
                       (2 * sum - n_added * whole) * whole;
      counts[2 * d + j] += missing
                               ? static_cast<std::int64_t>(sums[r].there[t] + before[r].there[t])
                               : n_people + n_added;
    }
  }
  return true;
}

// Some columns of a block of rows in float64: as they lie, or copied to `memory`.
template <class Block>
Entries entries_of(const Block& block, const std::int64_t* columns, Index n,
                   std::vector<double>& memory) {
  using Scalar = typename Block::Scalar;
  if constexpr (std::is_same_v<Scalar, double>) {
    bool neighbours = true;
    for (Index c = 1; c < n; ++c) neighbours = neighbours && columns[c] == columns[0] + c;
    if (neighbours) return {&block.coeffRef(0, columns[0]), block.outerStride()};
  }
  memory.resize(static_cast<std::size_t>(block.rows() * tile));
  double* row = memory.data();
  for (Index i = 0; i < block.rows(); ++i, row += tile) {
    for (Index c = 0; c < n; ++c) row[c] = static_cast<double>(block.coeff(i, columns[c]));
  }
  return {memory.data(), tile};
}

// Columns of later rows, asked for row by row while the rows of a block are counted. Where these
// are all of a row, it is `soon` needed, and nothing stays in the second-level cache. From tile to
// tile of a wide matrix the processor does not look ahead: these are rows of the next block.
class LaterRows {
 public:
  template <class Block>
  LaterRows(const Block& block, const std::int64_t* columns, Index n, bool soon)
      : soon_(soon),
        row_(block.size() == 0 ? nullptr
                               : reinterpret_cast<const char*>(block.data() + columns[0])),
        stride_(block.outerStride() * static_cast<Index>(sizeof(typename Block::Scalar))),
        size_((columns[n - 1] - columns[0] + 1) *
              static_cast<Index>(sizeof(typename Block::Scalar))),
        n_rows_(block.rows()) {}

  void ask_for_a_row() { ask_for_rows(1); }

  void ask_for_rows(Index n) {
    n = std::min(n, n_rows_);
    n_rows_ -= n;
    const bool together = stride_ < size_ + 64;
    const Index n_runs = together ? std::min<Index>(n, 1) : n;
    const Index length = together ? n * stride_ : size_;
    for (Index i = 0; i < n_runs; ++i) {
      for (Index j = 0; j < length; j += 64) {
        const char* const line = row_ + i * stride_ + j;
        soon_ ? expect_to_read_once(line) : expect_to_read_later(line);
      }
    }
    row_ += n * stride_;
  }

 private:
  bool soon_;
  const char* row_;
  Index stride_, size_, n_rows_;
};

// Counts n columns' signs and exponents, exponent_stride for each: the first 12 bits of the
// entries. Not inlined, so that what it needs stays in registers.
[[gnu::noinline]] void count_exponents(Entries entries, LaterRows later, Index n_rows, Index n,
                                       const std::int16_t* weight, std::int32_t* counts) {
  for (Index i = 0; i < n_rows; ++i, entries.first += entries.stride) {
    later.ask_for_a_row();
    const std::int32_t once = weight == nullptr ? 1 : weight[i];
    std::int32_t* of_column = counts;
    const double* value = entries.first;
    for_columns(n, [&] {
      std::uint64_t bits;
      std::memcpy(&bits, value++, sizeof bits);
      of_column[bits >> 52] += once;
      of_column += exponent_stride;
    });
  }
}

// Adds rows' bins, as `Bins` found them.
template <bool missing>
[[gnu::noinline]] void count_bins(const std::uint32_t* bins, Index width, Entries entries,
                                  Index n_rows, Index n, Index n_bins, const std::int16_t* weight,
                                  std::int64_t* counts) {
  for (Index i = 0; i < n_rows; ++i, entries.first += entries.stride, bins += width) {
    const std::int64_t once = weight == nullptr ? 1 : weight[i];
    const std::uint32_t* bin = bins;
    const double* value = entries.first;
    std::int64_t* of_column = counts;
    for_columns(n, [&] {
      of_column[*bin++] += missing ? once * static_cast<std::int64_t>(*value == *value) : once;
      of_column += n_bins;
      ++value;
    });
  }
}

// Adds pairs of bins, pair_stride counts for each column.
[[gnu::noinline]] void count_pairs(const std::uint32_t* pairs, Index width, Index n,
                                   std::uint16_t* counts) {
  for (Index i = 0; i < placed_rows / 2; ++i, pairs += width) {
    const std::uint32_t* pair = pairs;
    std::uint16_t* of_column = counts;
    for_columns(n, [&] {
      ++of_column[*pair++];
      of_column += pair_stride;
    });
  }
}

// Adds a column's pairs to its bins, and sets them to zero.
void sum_pairs(std::uint16_t* pairs, Index n_bins, std::int64_t* counts) {
  std::uint32_t seconds[paired_bins] = {};
  for (Index bin = 0; bin < n_bins; ++bin, pairs += paired_bins) {
    std::uint32_t firsts = 0;
    for (Index k = 0; k < Index{paired_bins}; ++k) {
      firsts += pairs[k];
      seconds[k] += pairs[k];
      pairs[k] = 0;
    }
    counts[bin] += firsts;
  }
  for (Index bin = 0; bin < n_bins; ++bin) counts[bin] += seconds[bin];
}

// What some entries hold.
struct Look {
  bool refused;    // an infinity or, unless it is `missing`, NaN
  bool subnormal;  // numbers with fewer digits than others
};

template <bool missing>
inline Look look_at(Entries entries, Index n_rows, Index n) {
  Register refused = {};  // NaN once an entry is
  Register subnormal = {};
  for (Index i = 0; i < n_rows; ++i, entries.first += entries.stride) {
    for_registers(entries.first, n, [&](const Register& x, Index) {
      Register none = x - x;
      if (missing) none = x == x ? none : Register{};
      refused += none;
      note_subnormal(x, subnormal);
    });
  }
  return {total(refused) != 0.0, total(subnormal) != 0.0};
}

// Calls count(entries, later rows, n_rows, first column, n, weights, counts of that column) for a
// tile of each block of rows, which adds to counts (n_columns, n_bins); `weights` begin at the
// first of the rows; null: each counts once. False once it refuses an entry. After `most` rows, and
// the last, sum_up() adds what was counted elsewhere.
template <class Scalar, class Count, class SumUp>
bool count_tiles(const ConstRows<Scalar>& rows, Index first, Index last,
                 const ConstIntegers& columns, const RowWeights& weights, Index n_bins, Index most,
                 const Count& count, const SumUp& sum_up, std::int64_t* own) {
  const Index height = std::max<Index>(1, counted_entries / std::max<Index>(tile, rows.cols()));
  const Index ahead = 2 * row_distance<Scalar>(rows.cols());
  std::vector<double> gathered;
  for (Index begin = first; begin < last; begin += height) {
    if ((begin - first) % (most / height * height) == 0 && begin > first) sum_up();
    for (Index left = 0; left < columns.size(); left += tile) {
      const Index n = std::min(tile, columns.size() - left);
      const auto block = rows.middleRows(begin, std::min(height, last - begin));
      const bool soon = columns.size() <= tile;
      const Index from = std::min(last, begin + (soon ? ahead : height));
      const LaterRows later(rows.middleRows(from, std::min(height, last - from)),
                            columns.data() + left, n, soon);
      const Entries entries = entries_of(block, columns.data() + left, n, gathered);
      const std::int16_t* const weight = weights.size() == 0 ? nullptr : weights.data() + begin;
      if (!count(entries, later, block.rows(), left, n, weight, own + left * n_bins)) return false;
    }
  }
  sum_up();
  return true;
}

// The largest |x_j| of a row; infinite if an entry is, or is NaN.
template <class Scalar>
double largest_of(const Scalar* row, Index d) {
  double largest[n_partial] = {};
  std::int64_t refused[n_partial] = {};
  const Index n_blocked = d - d % n_partial;
  const auto look_at = [&](Index t, double x) {
    const double size = std::abs(x);
    largest[t] = size > largest[t] ? size : largest[t];
    refused[t] |= size <= largest_finite ? 0 : 1;
  };
  for (Index i = 0; i < n_blocked; i += n_partial) {
    for (Index t = 0; t < n_partial; ++t) look_at(t, static_cast<double>(row[i + t]));
  }
  for (Index i = n_blocked; i < d; ++i) look_at(i - n_blocked, static_cast<double>(row[i]));
  double most = 0.0;
  for (Index t = 0; t < n_partial; ++t) {
    most = std::max(most, refused[t] != 0 ? std::numeric_limits<double>::infinity() : largest[t]);
  }
  return most;
}

// sum_j round(2^36 (x_j / largest)^2), exact in doubles for 2^16 entries.
template <class Scalar>
std::int64_t sum_of_squares(const Scalar* row, Index d, double largest) {
  constexpr Index n_exact = Index{1} << 16;
  std::int64_t total = 0;
  for (Index begin = 0; begin < d; begin += n_exact) {
    const Index n = std::min(n_exact, d - begin);
    const Index n_blocked = n - n % n_partial;
    double partial[n_partial] = {};
    const auto square = [&](Index j) {
      const double ratio = static_cast<double>(row[begin + j]) / largest;
      return nearest(std::ldexp(1.0, square_bits) * (ratio * ratio));
    };
    for (Index i = 0; i < n_blocked; i += n_partial) {
      for (Index t = 0; t < n_partial; ++t) partial[t] += square(i + t);
    }
    for (Index i = n_blocked; i < n; ++i) partial[i - n_blocked] += square(i);
    for (const double sum : partial) total += static_cast<std::int64_t>(sum);
  }
  return total;
}

// K of a row that is not zero, as count_norms defines it.
template <class Scalar>
Index exact_norm(const Scalar* row, Index d, double largest, const ConstVectorView<double>& steps) {
  const auto squares = static_cast<double>(sum_of_squares(row, d, largest));
  int exponent = 0;
  int further = 0;
  const double part = std::frexp(largest, &exponent);
  const double m = std::frexp(part * std::sqrt(std::ldexp(squares, -square_bits)), &further);
  Index k = (steps.size() + 1) * (exponent + further - 1);
  for (const double step : steps) k += step <= m;
  return k;
}

// Sum of squares as it comes.
template <class Scalar>
inline double about_square(const Scalar* row, Index d) {
  Register sums[2] = {};
  Index j = 0;
  for (; j + 2 * n_at_once <= d; j += 2 * n_at_once) {
    for (Index r = 0; r < 2; ++r) {
      Register x;
      load(row + j + r * n_at_once, x);
      sums[r] += x * x;
    }
  }
  double rest = 0.0;
  for (; j < d; ++j) {
    const auto x = static_cast<double>(row[j]);
    rest += x * x;
  }
  return total(sums[0] + sums[1]) + rest;
}

// Rows whose norms are found together.
constexpr Index normed_rows = 32;

// K of some rows from their sums of squares as they come, and whether it is sure: their norm is not
// so near an end of a bin that rounding might decide. `squared_steps`: of twice the steps.
void about_norms(const double* squares, Index n, Index d, const Vector<double>& squared_steps,
                 std::int64_t* k, std::int64_t* is_sure) {
  // squares are rounded to 2^-36 of the largest, by half of that each: twice as much, and a root
  const double error = std::ldexp(static_cast<double>(d), 1 - square_bits);
  const auto n_steps = static_cast<std::uint64_t>(squared_steps.size() + 1);
  const auto lowest = static_cast<std::int64_t>(512 * n_steps);
  constexpr std::uint64_t whole = 0xffffffff;
  double low[normed_rows];
  double high[normed_rows];
  std::int64_t n_high[normed_rows];
  for (Index i = 0; i < n; ++i) {
    // square = 4^e m with 1 <= m < 4
    std::uint64_t bits;
    std::memcpy(&bits, squares + i, sizeof bits);
    const std::uint64_t exponent = bits >> 52;
    // of 32 bits, for lack of a product of 64 in registers
    k[i] = static_cast<std::int64_t>(((exponent + 1) >> 1 & whole) * (n_steps & whole)) - lowest;
    bits = (bits & ((std::uint64_t{1} << 52) - 1)) | ((1023 + ((exponent + 1) & 1)) << 52);
    double m;
    std::memcpy(&m, &bits, sizeof m);
    low[i] = m * (1.0 - error);
    high[i] = m * (1.0 + error);
    n_high[i] = k[i];
    is_sure[i] = error <= 0.125 && is_accurate(squares[i]) ? 1 : 0;
  }
  for (const double step : squared_steps) {
    for (Index i = 0; i < n; ++i) {
      k[i] += step <= low[i];
      n_high[i] += step <= high[i];
    }
  }
  for (Index i = 0; i < n; ++i) {
    is_sure[i] &= (low[i] >= 1.0) & (high[i] < 4.0) & (k[i] == n_high[i]);
  }
}

}  // namespace

template <class Scalar>
bool count_magnitudes(const ConstRows<Scalar>& rows, const ConstIntegers& columns, bool missing,
                      Index first_octave, Index n_octaves, Integers counts, int n_threads,
                      const RowWeights& weights) {
  const Index n_bins = n_octaves + 1;
  require(n_octaves >= 1 && n_octaves < largest_bin && std::abs(first_octave) < largest_bin,
          "octaves must be between -2^20 and 2^20, at least one");
  require(counts.size() == columns.size() * 2 * n_bins,
          "counts must have shape (n_columns, 2, n_octaves + 1)");
  require_columns(columns, rows.cols());
  require_weights(weights, rows.rows());
  const auto shift = static_cast<std::int32_t>(1022 + first_octave);
  const auto most = static_cast<std::int32_t>(n_octaves);
  const auto bin = [=](std::uint64_t bits) {
    const auto exponent = static_cast<std::int32_t>((bits >> 52) & 0x7ff);
    const std::int32_t octave = std::clamp(exponent - shift, 1, most);
    return bits << 1 == 0 ? 0 : octave + (bits >> 63 ? most + 1 : 0);
  };
  const auto sum_up = [=](std::int32_t* of_exponents, Index n, std::int64_t* own) {
    constexpr Index run = 16;
    for (Index c = 0; c < n; ++c, own += 2 * n_bins, of_exponents += exponent_stride) {
      for (Index begin = 0; begin < n_exponents; begin += run) {
        std::int32_t any = 0;
        for (Index e = begin; e < begin + run; ++e) any |= of_exponents[e];
        for (Index e = begin; any != 0 && e < begin + run; ++e) {
          const bool there = (e & 0x7ff) != 0x7ff;  // infinities are refused
          own[bin(static_cast<std::uint64_t>(e) << 52)] += there ? of_exponents[e] : 0;
          of_exponents[e] = 0;
        }
      }
    }
  };
  // Entries with the exponents of zeros, infinities and what is missing: these are looked at.
  const auto unclear = [=](const std::int32_t* of_exponents, Index n) {
    std::int64_t sum = 0;
    for (Index c = 0; c < n; ++c, of_exponents += exponent_stride) {
      for (const Index e : {0, 2047, 2048, 4095}) sum += of_exponents[e];
    }
    return sum;
  };
  const auto look_again = [=](Entries entries, Index n_rows, Index n, const std::int16_t* weight,
                              std::int32_t* of_exponents, std::int64_t* own) {
    const Look look =
        missing ? look_at<true>(entries, n_rows, n) : look_at<false>(entries, n_rows, n);
    for (Index i = 0; i < n_rows && look.subnormal; ++i, entries.first += entries.stride) {
      const std::int32_t once = weight == nullptr ? 1 : weight[i];
      for (Index c = 0; c < n; ++c) {
        std::uint64_t bits;
        std::memcpy(&bits, entries.first + c, sizeof bits);
        if (((bits >> 52) & 0x7ff) != 0) continue;
        of_exponents[c * exponent_stride + static_cast<Index>(bits >> 52)] -= once;
        own[c * 2 * n_bins + bin(bits)] += once;
      }
    }
    return !look.refused;
  };
  // `columns` are few enough for their exponents to be kept.
  const auto add_some = [&](Index first, Index last, const ConstIntegers& some, std::int64_t* own) {
    std::vector<std::int32_t> of_exponents(static_cast<std::size_t>(some.size() * exponent_stride));
    const auto count = [=, exponents = of_exponents.data()](
                           const Entries& entries, const LaterRows& later, Index n_rows, Index left,
                           Index n, const std::int16_t* weight, std::int64_t* counted) {
      std::int32_t* const those = exponents + left * exponent_stride;
      const std::int64_t before = unclear(those, n);
      count_exponents(entries, later, n_rows, n, weight, those);
      if (weight == nullptr && unclear(those, n) == before) return true;
      return look_again(entries, n_rows, n, weight, those, counted);
    };
    // few enough for 32 bits, whatever the weights
    return count_tiles(
        rows, first, last, some, weights, 2 * n_bins, exponent_rows, count,
        [&] { sum_up(of_exponents.data(), some.size(), own); }, own);
  };
  const auto add = [&](Index first, Index last, std::int64_t* own) {
    bool accepted = true;
    for (Index left = 0; left < columns.size(); left += exponent_columns) {
      const Index n = std::min(exponent_columns, columns.size() - left);
      const ConstIntegers some(columns.data() + left, n);
      accepted = add_some(first, last, some, own + left * 2 * n_bins) && accepted;
    }
    return accepted;
  };
  return sum_over_rows(rows.rows(), columns.size(), counts, n_threads, add);
}

template <class Scalar>
bool count_places(const ConstRows<Scalar>& rows, const ConstIntegers& columns, bool missing,
                  const ConstVectorView<double>& middle, const ConstVectorView<double>& half,
                  Integers counts, int n_threads, const RowWeights& weights) {
  require(columns.size() == 0 ? counts.size() == 0 : counts.size() % columns.size() == 0,
          "counts must have shape (n_columns, n_bins)");
  if (columns.size() == 0) return true;
  const Index n_bins = counts.size() / columns.size();
  require(n_bins >= 1 && n_bins < largest_bin, "counts must have between 1 and 2^20 bins");
  require_columns(columns, rows.cols());
  require_weights(weights, rows.rows());
  require_interval(middle, half, columns.size());
  const Bins bins(middle, half, n_bins);
  const bool pairs_of_bins = !missing && weights.size() == 0 && n_bins <= Index{paired_bins};
  const auto add = [&](Index first, Index last, std::int64_t* own) {
    const bool paired = pairs_of_bins && last - first >= pairing_rows;
    std::vector<std::uint16_t> pairs(
        static_cast<std::size_t>(paired ? columns.size() * pair_stride : 0));
    const auto count = [&](const Entries& entries, LaterRows later, Index n_rows, Index left,
                           Index n, const std::int16_t* weight, std::int64_t* of_tile) {
      std::uint32_t found[placed_rows * tile];
      const Index width = std::max(n, n_at_once);
      for (Index begin = 0; begin < n_rows; begin += placed_rows) {
        const Index n_some = std::min(placed_rows, n_rows - begin);
        later.ask_for_rows(n_some);
        const Entries some{entries.first + begin * entries.stride, entries.stride};
        const bool both = paired && n_some == placed_rows;
        if (both && bins.multiply<false, true>(some, n_some, left, n, width, found)) {
          count_pairs(found, width, n, pairs.data() + left * pair_stride);
          continue;
        }
        const auto with = [&](auto is_missing) {
          constexpr bool m = decltype(is_missing)::value;
          if ((both || !bins.multiply<m, false>(some, n_some, left, n, width, found)) &&
              !bins.divide<m>(some, n_some, left, n, width, found)) {
            return false;
          }
          count_bins<m>(found, width, some, n_some, n, n_bins,
                        weight == nullptr ? nullptr : weight + begin, of_tile);
          return true;
        };
        if (!(missing ? with(std::true_type{}) : with(std::false_type{}))) return false;
      }
      return true;
    };
    const auto sum_up = [&] {
      for (Index c = 0; paired && c < columns.size(); ++c) {
        sum_pairs(pairs.data() + c * pair_stride, n_bins, own + c * n_bins);
      }
    };
    return count_tiles(rows, first, last, columns, weights, n_bins, paired_rows, count, sum_up,
                       own);
  };
  return sum_over_rows(rows.rows(), columns.size(), counts, n_threads, add);
}

template <class Scalar>
bool sum_places(const ConstRows<Scalar>& rows, bool missing, const ConstVectorView<double>& middle,
                const ConstVectorView<double>& half, int bits, Integers counts, int n_threads,
                const RowWeights& weights) {
  require(counts.size() == 3 * rows.cols(), "counts must have shape (3, d)");
  require(bits >= 0 && bits <= 10, "bits must be between 0 and 10");
  require_weights(weights, rows.rows());
  require_interval(middle, half, rows.cols());
  if (rows.cols() == 0) return true;
  const Vector<double> m = in_registers(middle, middle.size(), 0.0);
  const Vector<double> h = in_registers(half, half.size(), 1.0);
  const double unit = std::ldexp(1.0, bits);
  const Parts parts(middle, half, unit, 0.5, 2.0 * unit);
  const auto add = [&](Index first, Index last, std::int64_t* own) {
    const auto sum_up = [&](auto sums) {
      return sums(rows, first, last, m, h, parts, unit, weights, own);
    };
    if (weights.size() == 0) {
      return missing ? sum_up(sums_of_places<true, false, Scalar>)
                     : sum_up(sums_of_places<false, false, Scalar>);
    }
    return missing ? sum_up(sums_of_places<true, true, Scalar>)
                   : sum_up(sums_of_places<false, true, Scalar>);
  };
  return sum_over_rows(rows.rows(), rows.cols(), counts, n_threads, add);
}

// Counts n rows by their norms: about(i) is the sum of squares of row i as it comes, longest(i, m)
// at least the lengths of rows i to i + m, and exactly(i, k) finds K as count_norms defines it.
template <class About, class Longest, class Exactly>
bool count_by_norm(Index n_rows, Index mean_length, const NormBins& bins, Integers counts,
                   int n_threads, const RowWeights& weights, const About& about,
                   const Longest& longest, const Exactly& exactly) {
  require(counts.size() >= 1, "counts must have bins");
  require(std::abs(bins.zero) < largest_bin && std::abs(bins.first) < largest_bin,
          "zero and first must be between -2^20 and 2^20");
  require_weights(weights, n_rows);
  const Vector<double> squared_steps = 4.0 * bins.steps.cwiseMax(0.0).cwiseAbs2();
  const auto add = [&](Index begin, Index end, std::int64_t* own) {
    double squares[normed_rows] = {};
    std::int64_t k[normed_rows];
    std::int64_t is_sure[normed_rows];
    for (Index top = begin; top < end; top += normed_rows) {
      const Index n = std::min(normed_rows, end - top);
      for (Index i = 0; i < n; ++i) squares[i] = about(top + i);
      about_norms(squares, n, longest(top, n), squared_steps, k, is_sure);
      for (Index i = 0; i < n; ++i) {
        if (is_sure[i] == 0 && !exactly(top + i, k[i])) return false;
        const Index bin = std::clamp<Index>(k[i] - bins.first, 0, counts.size() - 1);
        own[bin] += weight_of(weights, top + i);
      }
    }
    return true;
  };
  return sum_over_rows(n_rows, mean_length, counts, n_threads, add);
}

// K of a row, and whether it is finite.
template <class Scalar>
bool find_norm(const Scalar* row, Index d, const NormBins& bins, std::int64_t& k) {
  const double largest = largest_of(row, d);
  k = largest > 0.0 && largest <= largest_finite ? exact_norm(row, d, largest, bins.steps)
                                                 : bins.zero;
  return largest <= largest_finite;
}

template <class Scalar>
bool count_norms(const ConstRows<Scalar>& rows, const NormBins& bins, Integers counts,
                 int n_threads, const RowWeights& weights, const RowMap* map) {
  const Index d = rows.cols();
  const Index ahead = row_distance<Scalar>(d) * rows.outerStride();
  constexpr Index line = 64 / static_cast<Index>(sizeof(Scalar));
  const Index asked = d < 3 * line ? 0 : d;  // short rows share lines, which processors ask for
  const auto row_of = [&](Index i) { return d == 0 ? nullptr : &rows.coeffRef(i, 0); };
  const auto next_row = [&](Index i) {
    const Scalar* const row = row_of(i);
    for (Index j = 0; j < asked; j += line) expect_to_read_once(row + ahead + j);
    return row;
  };
  const auto count = [&](const auto& about, const auto& exactly) {
    return count_by_norm(
        rows.rows(), d, bins, counts, n_threads, weights, about, [d](Index, Index) { return d; },
        exactly);
  };
  if (map == nullptr || d == 0) {
    return count([&](Index i) { return about_square(next_row(i), d); },
                 [&](Index i, std::int64_t& k) { return find_norm(row_of(i), d, bins, k); });
  }
  const RowMapper mapper(*map, d);
  return count([&](Index i) { return mapper.about_square(next_row(i)); },
               [&](Index i, std::int64_t& k) {
                 std::vector<double> mapped(static_cast<std::size_t>(d));
                 return mapper(row_of(i), mapped.data()) && find_norm(mapped.data(), d, bins, k);
               });
}

template <class Scalar, class Integer>
bool count_norms_csr(const ConstVectorView<Scalar>& data, const ConstVectorView<Integer>& indptr,
                     const NormBins& bins, Integers counts, int n_threads,
                     const RowWeights& weights) {
  require_indptr(indptr, data.size());
  const Index n = indptr.size() - 1;
  const auto row_of = [&](Index i) { return data.data() + indptr[i]; };
  const auto length = [&](Index i) { return static_cast<Index>(indptr[i + 1] - indptr[i]); };
  return count_by_norm(
      n, data.size() / std::max<Index>(n, 1) + 1, bins, counts, n_threads, weights,
      [&](Index i) { return about_square(row_of(i), length(i)); },
      [&](Index first, Index m) {
        Index most = 0;
        for (Index i = first; i < first + m; ++i) most = std::max(most, length(i));
        return most;
      },
      [&](Index i, std::int64_t& k) { return find_norm(row_of(i), length(i), bins, k); });
}

template <class Scalar>
bool map_rows(const ConstRows<Scalar>& rows, const RowMap& map, Rows<double> out, int n_threads) {
  require_threads(n_threads);
  const Index d = rows.cols();
  require(out.rows() == rows.rows() && out.cols() == d, "out must have the shape of the rows");
  const RowMapper mapper(map, d);
  const Index ahead = row_distance<Scalar>(d) * rows.outerStride();
  constexpr Index line = 64 / static_cast<Index>(sizeof(Scalar));
  if (rows.size() == 0) return true;
  const Index n_chunks =
      std::min<Index>(threads_for(static_cast<double>(rows.size()), n_threads), rows.rows());
  const Index height = (rows.rows() + n_chunks - 1) / n_chunks;
  std::atomic<bool> finite{true};
  parallel_for(n_chunks, n_threads, [&](Index chunk) {
    const Index last = std::min(rows.rows(), (chunk + 1) * height);
    bool all = true;
    for (Index i = chunk * height; i < last; ++i) {
      const Scalar* const row = &rows.coeffRef(i, 0);
      // beyond the last one, too: blocks that follow each other in memory are mapped one by one
      for (Index j = 0; j < d; j += line) expect_to_read_once(row + ahead + j);
      all = mapper(row, &out.coeffRef(i, 0)) && all;
    }
    if (!all) finite = false;
  });
  return finite;
}

void mix_rows(Rows<double> rows, const ConstRows<double>& linear, int bits, int n_threads) {
  require_threads(n_threads);
  const Index d = rows.cols();
  require(linear.rows() == d && linear.cols() == d, "linear must have shape (d, d)");
  require(std::abs(bits) <= 1000, "bits must be between -1000 and 1000");
  if (rows.size() == 0) return;
  const double up = std::ldexp(1.0, bits);
  const double down = std::ldexp(1.0, -bits);
  const double work = static_cast<double>(rows.size()) * static_cast<double>(d);
  const Index n_blocks = (rows.rows() + mixed_rows - 1) / mixed_rows;
  const Index n_chunks = std::min<Index>(threads_for(work, n_threads), n_blocks);
  const Index n_each = (n_blocks + n_chunks - 1) / n_chunks;
  parallel_for(n_chunks, n_threads, [&](Index chunk) {
    RowMajorMatrix<double> on_grid(std::min(mixed_rows, rows.rows()), d);
    const Index last = std::min(rows.rows(), (chunk + 1) * n_each * mixed_rows);
    for (Index begin = chunk * n_each * mixed_rows; begin < last; begin += mixed_rows) {
      const Index n = std::min(mixed_rows, last - begin);
      for (Index i = 0; i < n; ++i) {
        const double* const row = &rows.coeffRef(begin + i, 0);
        double* const grid = &on_grid.coeffRef(i, 0);
        for (Index j = 0; j < d; ++j) grid[j] = nearest(row[j] * up) * down;
      }
      rows.middleRows(begin, n).noalias() = on_grid.topRows(n) * linear;
    }
  });
}

template bool count_magnitudes(const ConstRows<float>&, const ConstIntegers&, bool, Index, Index,
                               Integers, int, const RowWeights&);
template bool count_places(const ConstRows<float>&, const ConstIntegers&, bool,
                           const ConstVectorView<double>&, const ConstVectorView<double>&, Integers,
                           int, const RowWeights&);
template bool sum_places(const ConstRows<float>&, bool, const ConstVectorView<double>&,
                         const ConstVectorView<double>&, int, Integers, int, const RowWeights&);
template bool count_norms(const ConstRows<float>&, const NormBins&, Integers, int,
                          const RowWeights&, const RowMap*);
template bool count_norms_csr(const ConstVectorView<float>&, const ConstVectorView<std::int32_t>&,
                              const NormBins&, Integers, int, const RowWeights&);
template bool count_norms_csr(const ConstVectorView<float>&, const ConstVectorView<std::int64_t>&,
                              const NormBins&, Integers, int, const RowWeights&);
template bool map_rows(const ConstRows<float>&, const RowMap&, Rows<double>, int);
template bool count_magnitudes(const ConstRows<double>&, const ConstIntegers&, bool, Index, Index,
                               Integers, int, const RowWeights&);
template bool count_places(const ConstRows<double>&, const ConstIntegers&, bool,
                           const ConstVectorView<double>&, const ConstVectorView<double>&, Integers,
                           int, const RowWeights&);
template bool sum_places(const ConstRows<double>&, bool, const ConstVectorView<double>&,
                         const ConstVectorView<double>&, int, Integers, int, const RowWeights&);
template bool count_norms(const ConstRows<double>&, const NormBins&, Integers, int,
                          const RowWeights&, const RowMap*);
template bool count_norms_csr(const ConstVectorView<double>&, const ConstVectorView<std::int32_t>&,
                              const NormBins&, Integers, int, const RowWeights&);
template bool count_norms_csr(const ConstVectorView<double>&, const ConstVectorView<std::int64_t>&,
                              const NormBins&, Integers, int, const RowWeights&);
template bool map_rows(const ConstRows<double>&, const RowMap&, Rows<double>, int);

}  // namespace dpgep
