#include "dpgep/table_counts.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "dpgep/parallel.hpp"
#include "partial_sums.hpp"

namespace dpgep {
namespace {

constexpr double largest_finite = std::numeric_limits<double>::max();
// A thread's own counts cost as much as this many entries for each.
constexpr double entries_per_count = 8.0;
// Rows whose places are added up in doubles, which are exact far beyond.
constexpr Index rows_per_sum = 1024;
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
  require((half.array() > 0.0).all(), "half must be positive");
}

// Rounds to the nearest integer, ties to even, |x| <= 2^51: in two additions, which every processor
// has for several numbers at once.
inline double nearest(double x) {
  constexpr double shift = 0x1.8p52;
  return (x + shift) - shift;
}

// `low` for NaN.
inline double clamp(double x, double low, double high) {
  const double above = x > low ? x : low;
  return above < high ? above : high;
}

// Where an entry lies in an interval.
inline double place(double x, double middle, double half) {
  return clamp((x - middle) / half, -1.0, 1.0);
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

// Columns that are looked at together, so that the compiler finds several in a register.
constexpr Index tile = 64;

// Entries of some columns of a row in float64.
template <class Scalar>
void gather(const Scalar* row, const std::int64_t* columns, Index n, double* __restrict values) {
  for (Index c = 0; c < n; ++c) values[c] = static_cast<double>(row[columns[c]]);
}

// Whether no value is infinite or, unless it is `missing`, NaN.
inline bool all_there(const double* __restrict values, Index n, bool missing) {
  std::int64_t infinite = 0;
  std::int64_t no_number = 0;
  for (Index c = 0; c < n; ++c) {
    infinite |= std::abs(values[c]) > largest_finite ? 1 : 0;
    no_number |= values[c] == values[c] ? 0 : 1;
  }
  return infinite == 0 && (missing || no_number == 0);
}

inline void places_of(const double* __restrict values, const double* __restrict middle,
                      const double* __restrict half, Index n, double* __restrict places) {
  for (Index c = 0; c < n; ++c) places[c] = place(values[c], middle[c], half[c]);
}

// Counts who is there, and puts who is not in the middle, where nothing is added.
inline void take_out(double* __restrict values, const double* __restrict middle, Index n,
                     double* __restrict there) {
  for (Index c = 0; c < n; ++c) {
    const bool is_there = values[c] == values[c];
    there[c] += is_there ? 1.0 : 0.0;
    values[c] = is_there ? values[c] : middle[c];
  }
}

inline void map_tile(const double* __restrict values, const double* __restrict location,
                     const double* __restrict scale, double largest, Index n,
                     double* __restrict out) {
  for (Index c = 0; c < n; ++c) {
    const double mapped = clamp((values[c] - location[c]) / scale[c], -largest, largest);
    out[c] = values[c] == values[c] ? mapped : 0.0;
  }
}

template <class Scalar>
bool sums_of_places(const ConstRows<Scalar>& rows, Index first, Index last, bool missing,
                    const ConstVectorView<double>& middle, const ConstVectorView<double>& half,
                    double unit, std::int64_t* counts) {
  const Index d = rows.cols();
  for (Index left = 0; left < d; left += tile) {
    const Index n = std::min(tile, d - left);
    const double* const m = middle.data() + left;
    for (Index begin = first; begin < last; begin += rows_per_sum) {
      double sum[tile] = {};
      double square[tile] = {};
      double there[tile] = {};
      for (Index i = begin; i < std::min(last, begin + rows_per_sum); ++i) {
        const Scalar* const row = &rows.coeffRef(i, left);
        double values[tile];
        for (Index j = 0; j < n; ++j) values[j] = static_cast<double>(row[j]);
        if (!all_there(values, n, missing)) return false;
        if (missing) take_out(values, m, n, there);
        double places[tile];
        places_of(values, m, half.data() + left, n, places);
        for (Index j = 0; j < n; ++j) {
          const double p = nearest(unit * places[j]);
          sum[j] += p;
          square[j] += p * p;
        }
      }
      const auto n_rows = static_cast<double>(std::min(last, begin + rows_per_sum) - begin);
      if (!missing) std::fill_n(there, n, n_rows);
      for (Index j = 0; j < n; ++j) {
        counts[left + j] += static_cast<std::int64_t>(sum[j]);
        counts[d + left + j] += static_cast<std::int64_t>(square[j]);
        counts[2 * d + left + j] += static_cast<std::int64_t>(there[j]);
      }
    }
  }
  return true;
}

// own (n_columns, n_bins) += how often entries are in each bin, which bins_of(values, first column,
// n, bins) finds for a tile of a row. False where an entry is refused.
template <class Scalar, class BinsOf>
bool add_to_bins(const ConstRows<Scalar>& rows, Index first, Index last,
                 const ConstIntegers& columns, bool missing, Index n_bins, const BinsOf& bins_of,
                 std::int64_t* own) {
  for (Index left = 0; left < columns.size(); left += tile) {
    const Index n = std::min(tile, columns.size() - left);
    for (Index i = first; i < last; ++i) {
      double values[tile];
      gather(&rows.coeffRef(i, 0), columns.data() + left, n, values);
      if (!all_there(values, n, missing)) return false;
      std::int32_t bins[tile];
      bins_of(values, left, n, bins);
      std::int64_t* counts = own + left * n_bins;
      for (Index c = 0; c < n; ++c, counts += n_bins) {
        counts[bins[c]] += missing && values[c] != values[c] ? 0 : 1;
      }
    }
  }
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

}  // namespace

template <class Scalar>
bool count_magnitudes(const ConstRows<Scalar>& rows, const ConstIntegers& columns, bool missing,
                      Index first_octave, Index n_octaves, Integers counts, int n_threads) {
  const Index n_bins = n_octaves + 1;
  require(n_octaves >= 1 && n_octaves < largest_bin && std::abs(first_octave) < largest_bin,
          "octaves must be between -2^20 and 2^20, at least one");
  require(counts.size() == columns.size() * 2 * n_bins,
          "counts must have shape (n_columns, 2, n_octaves + 1)");
  require_columns(columns, rows.cols());
  const auto bins_of = [=](const double* values, Index, Index n, std::int32_t* __restrict bins) {
    const auto shift = static_cast<std::int32_t>(1022 + first_octave);
    const auto most = static_cast<std::int32_t>(n_octaves);
    for (Index c = 0; c < n; ++c) {
      std::uint64_t bits;
      std::memcpy(&bits, values + c, sizeof bits);
      const auto high = static_cast<std::uint32_t>(bits >> 32);
      const auto low = static_cast<std::uint32_t>(bits);
      const auto exponent = static_cast<std::int32_t>((high >> 20) & 0x7ff);
      const std::int32_t octave = std::clamp(exponent - shift, 1, most);
      const std::int32_t signed_octave = octave + (high >> 31 ? most + 1 : 0);
      bins[c] = ((high << 1) | low) == 0 ? 0 : signed_octave;
    }
  };
  const auto add = [&](Index first, Index last, std::int64_t* own) {
    return add_to_bins(rows, first, last, columns, missing, 2 * n_bins, bins_of, own);
  };
  return sum_over_rows(rows.rows(), columns.size(), counts, n_threads, add);
}

template <class Scalar>
bool count_places(const ConstRows<Scalar>& rows, const ConstIntegers& columns, bool missing,
                  const ConstVectorView<double>& middle, const ConstVectorView<double>& half,
                  Integers counts, int n_threads) {
  require(columns.size() == 0 ? counts.size() == 0 : counts.size() % columns.size() == 0,
          "counts must have shape (n_columns, n_bins)");
  if (columns.size() == 0) return true;
  const Index n_bins = counts.size() / columns.size();
  require(n_bins >= 1 && n_bins < largest_bin, "counts must have between 1 and 2^20 bins");
  require_columns(columns, rows.cols());
  require_interval(middle, half, columns.size());
  const double bins_per_unit = static_cast<double>(n_bins) / 2;
  const auto bins_of = [&](const double* values, Index left, Index n,
                           std::int32_t* __restrict bins) {
    double places[tile];
    places_of(values, middle.data() + left, half.data() + left, n, places);
    const auto last = static_cast<std::int32_t>(n_bins - 1);
    for (Index c = 0; c < n; ++c) {
      const auto bin = static_cast<std::int32_t>((places[c] + 1.0) * bins_per_unit);
      bins[c] = bin < last ? bin : last;
    }
  };
  const auto add = [&](Index first, Index last, std::int64_t* own) {
    return add_to_bins(rows, first, last, columns, missing, n_bins, bins_of, own);
  };
  return sum_over_rows(rows.rows(), columns.size(), counts, n_threads, add);
}

template <class Scalar>
bool sum_places(const ConstRows<Scalar>& rows, bool missing, const ConstVectorView<double>& middle,
                const ConstVectorView<double>& half, int bits, Integers counts, int n_threads) {
  require(counts.size() == 3 * rows.cols(), "counts must have shape (3, d)");
  require(bits >= 0 && bits <= 10, "bits must be between 0 and 10");
  require_interval(middle, half, rows.cols());
  if (rows.cols() == 0) return true;
  return sum_over_rows(
      rows.rows(), rows.cols(), counts, n_threads, [&](Index first, Index last, std::int64_t* own) {
        return sums_of_places(rows, first, last, missing, middle, half, std::ldexp(1.0, bits), own);
      });
}

template <class Scalar>
bool count_norms(const ConstRows<Scalar>& rows, const ConstVectorView<double>& steps, Index zero,
                 Index first, Integers counts, int n_threads) {
  require(counts.size() >= 1, "counts must have bins");
  require(std::abs(zero) < largest_bin && std::abs(first) < largest_bin,
          "zero and first must be between -2^20 and 2^20");
  const Index d = rows.cols();
  const auto add = [&](Index begin, Index end, std::int64_t* own) {
    for (Index i = begin; i < end; ++i) {
      const Scalar* const row = d == 0 ? nullptr : &rows.coeffRef(i, 0);
      const double largest = largest_of(row, d);
      if (largest > largest_finite) return false;
      Index k = zero;
      if (largest > 0.0) {
        const auto squares = static_cast<double>(sum_of_squares(row, d, largest));
        int exponent = 0;
        int further = 0;
        const double part = std::frexp(largest, &exponent);
        const double m = std::frexp(part * std::sqrt(std::ldexp(squares, -square_bits)), &further);
        k = (steps.size() + 1) * (exponent + further - 1);
        for (const double step : steps) k += step <= m;
      }
      own[std::clamp<Index>(k - first, 0, counts.size() - 1)] += 1;
    }
    return true;
  };
  return sum_over_rows(rows.rows(), d, counts, n_threads, add);
}

template <class Scalar>
bool map_rows(const ConstRows<Scalar>& rows, const ConstVectorView<double>& location,
              const ConstVectorView<double>& scale, double largest, bool missing, Rows<double> out,
              int n_threads) {
  require_threads(n_threads);
  const Index d = rows.cols();
  require(out.rows() == rows.rows() && out.cols() == d, "out must have the shape of the rows");
  require(
      (location.size() == 0 || location.size() == d) && (scale.size() == 0 || scale.size() == d),
      "location and scale must have an entry for each column, or none");
  require(largest >= 0.0, "largest must be at least 0");
  if (rows.size() == 0) return true;
  const Vector<double> middle =
      location.size() == 0 ? Vector<double>::Zero(d) : Vector<double>(location);
  const Vector<double> unit = scale.size() == 0 ? Vector<double>::Ones(d) : Vector<double>(scale);
  const double* const m = middle.data();
  const double* const s = unit.data();
  const Index n_chunks =
      std::min<Index>(threads_for(static_cast<double>(rows.size()), n_threads), rows.rows());
  const Index height = (rows.rows() + n_chunks - 1) / n_chunks;
  std::atomic<bool> finite{true};
  parallel_for(n_chunks, n_threads, [&](Index chunk) {
    for (Index i = chunk * height; i < std::min(rows.rows(), (chunk + 1) * height); ++i) {
      for (Index left = 0; left < d; left += tile) {
        const Index n = std::min(tile, d - left);
        const Scalar* const row = &rows.coeffRef(i, left);
        double values[tile];
        for (Index j = 0; j < n; ++j) values[j] = static_cast<double>(row[j]);
        if (!all_there(values, n, missing)) finite = false;
        map_tile(values, m + left, s + left, largest, n, &out.coeffRef(i, left));
      }
    }
  });
  return finite;
}

template bool count_magnitudes(const ConstRows<float>&, const ConstIntegers&, bool, Index, Index,
                               Integers, int);
template bool count_places(const ConstRows<float>&, const ConstIntegers&, bool,
                           const ConstVectorView<double>&, const ConstVectorView<double>&, Integers,
                           int);
template bool sum_places(const ConstRows<float>&, bool, const ConstVectorView<double>&,
                         const ConstVectorView<double>&, int, Integers, int);
template bool count_norms(const ConstRows<float>&, const ConstVectorView<double>&, Index, Index,
                          Integers, int);
template bool map_rows(const ConstRows<float>&, const ConstVectorView<double>&,
                       const ConstVectorView<double>&, double, bool, Rows<double>, int);
template bool count_magnitudes(const ConstRows<double>&, const ConstIntegers&, bool, Index, Index,
                               Integers, int);
template bool count_places(const ConstRows<double>&, const ConstIntegers&, bool,
                           const ConstVectorView<double>&, const ConstVectorView<double>&, Integers,
                           int);
template bool sum_places(const ConstRows<double>&, bool, const ConstVectorView<double>&,
                         const ConstVectorView<double>&, int, Integers, int);
template bool count_norms(const ConstRows<double>&, const ConstVectorView<double>&, Index, Index,
                          Integers, int);
template bool map_rows(const ConstRows<double>&, const ConstVectorView<double>&,
                       const ConstVectorView<double>&, double, bool, Rows<double>, int);

}  // namespace dpgep
