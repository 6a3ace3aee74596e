#include "dpgep/fixed_point_turned.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "dpgep/clip.hpp"
#include "dpgep/fixed_point.hpp"
#include "lanes.hpp"
#include "prefetch.hpp"
#include "row_group.hpp"
#include "row_mapper.hpp"

namespace dpgep {
namespace {

// Rows that are served together: their entries stay in the first-level cache.
constexpr Index tile_rows = 32;

constexpr auto lanes_of_group = static_cast<std::size_t>(n_lanes);
template <class Scalar>
using Group = RowGroup<lanes_of_group, Scalar>;

using OfRows = std::array<double, tile_rows>;

// n of the entries from here on, n <= n_lanes, then zeros.
template <class Scalar>
inline void load_some(const Scalar* from, Index n, Lanes& to) {
  if (n == n_lanes) {
    load(from, to);
    return;
  }
  fill(0.0, to);  // by lanes: a copy in memory would have to arrive there first
  for (Index t = 0; t < n_lanes - 1; ++t) {
    if (t < n) add_to_lane(t, static_cast<double>(from[t]), to);
  }
}

// The columns begin, begin + 1, begin + 2, begin + 3, begin + 8, ... of four rows, those whose
// squares have the same partial sums in `norm`: writes them to `to`, a column each `stride`, and
// adds their squares. Of half of the columns, these fit sixteen registers.
template <class Scalar>
inline void turn_half(const Group<Scalar>& rows, Index begin, Index d, double* to, Index stride,
                      Lanes (&squares)[n_lanes]) {
  for (Index j = begin; j < d; j += 2 * n_lanes) {
    const Index n = std::min(n_lanes, d - j);
    Lanes x[n_lanes];
    for (std::size_t t = 0; t < lanes_of_group; ++t) load_some(rows[t] + j, n, x[t]);
    turn(x[0], x[1], x[2], x[3]);
    for (Index c = 0; c < n_lanes; ++c) {
      squares[c] += x[c] * x[c];
      if (c < n) store(x[c], to + (j + c) * stride);
    }
  }
}

// Writes four rows to `to`, a column each `stride`, and their sums of squares in the order that
// `norm` states.
template <class Scalar>
void turn_rows(const Group<Scalar> rows, Index d, double* to, Index stride, double* squares) {
  Lanes low[n_lanes] = {};
  Lanes high[n_lanes] = {};
  turn_half(rows, 0, d, to, stride, low);
  turn_half(rows, n_lanes, d, to, stride, high);
  store(((low[0] + high[0]) + (low[2] + high[2])) + ((low[1] + high[1]) + (low[3] + high[3])),
        squares);
}

void set_scales(const OfRows& squares, double bound, double radius, OfRows& scales) {
  for (std::size_t i = 0; i < tile_rows; ++i) {
    const double length = std::sqrt(squares[i]);
    scales[i] = counts_as_zero({1.0, length}, bound) ? 0.0 : radius / std::max(bound, length);
  }
}

// Rounds four rows to the grid, and sums the squares of what they become.
void round(const double* scales, Index d, double* entries, Index stride, double* squares) {
  Lanes scale;
  load(scales, scale);
  Lanes sum = {};
  for (Index j = 0; j < d; ++j) {
    Lanes x;
    load(entries + j * stride, x);
    x = x * scale;
    truncate(x);
    sum += x * x;
    store(x, entries + j * stride);
  }
  store(sum, squares);
}

template <class Scalar>
class Turning {
 public:
  Turning(const ConstRows<Scalar>& rows, const Index* numbers, double bound, int bits,
          Rows<double> out, const RowMapper* mapper)
      : rows_(rows),
        numbers_(numbers),
        mapper_(mapper),
        mapped_(mapper == nullptr ? 0 : tile_rows, rows.cols()),
        bound_(bound),
        bits_(bits),
        radius_(std::ldexp(1.0, bits)),
        bound_is_usual_(bound >= 0x1p-449 && bound <= 0x1p900),
        out_(out) {}

  // Serves the rows first, ..., last - 1, at most tile_rows. False if an entry is refused.
  bool serve(Index first, Index last) {
    if constexpr (std::is_floating_point_v<Scalar>) {
      if (mapper_ != nullptr) {
        for (Index i = first; i < last; ++i) {
          if (!(*mapper_)(row(i), &mapped_(i - first, 0))) return false;
        }
        return serve(first, last, [&](Index i) { return &mapped_(i - first, 0); });
      }
    }
    return serve(first, last, [&](Index i) { return row(i); });
  }

 private:
  // The same of the rows read(first), ..., of floating-point numbers or bytes.
  template <class Read>
  bool serve(Index first, Index last, const Read& read) {
    using Entry = std::remove_cv_t<std::remove_pointer_t<decltype(read(first))>>;
    const Index d = rows_.cols();
    const Index stride = out_.outerStride();
    const Index n_grouped = (last - first) / n_lanes * n_lanes;
    OfRows squares = {};
    OfRows scales;
    for (Index i = 0; i < n_grouped; i += n_lanes) {
      Group<Entry> group;
      for (std::size_t t = 0; t < lanes_of_group; ++t) {
        group[t] = read(first + i + static_cast<Index>(t));
      }
      turn_rows(group, d, entries(first + i), stride, &squares[at(i)]);
    }
    set_scales(squares, bound_, radius_, scales);
    OfRows on_grid;
    on_grid.fill(std::numeric_limits<double>::infinity());
    for (Index i = 0; i < n_grouped; i += n_lanes) {
      // not while rows are turned: what they are written to comes from the second-level cache
      expect_to_read_group(first + i + tile_rows);
      if (are_usual(&squares[at(i)])) {
        round(&scales[at(i)], d, entries(first + i), stride, &on_grid[at(i)]);
      }
    }
    bool all_finite = true;
    for (Index i = 0; i < last - first; ++i) {
      // as in fit_to_ball: exact while it matters
      if (on_grid[at(i)] <= radius_ * radius_) continue;
      all_finite &= serve_alone(first + i, read(first + i));
    }
    return all_finite;
  }

  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }

  double* entries(Index i) { return out_.data() + i; }

  const Scalar* row(Index i) const {
    return rows_.data() + (numbers_ == nullptr ? i : numbers_[i]) * rows_.outerStride();
  }

  // As in fixed_point_columns: where squares underflow, the row is shorter than the bound.
  bool are_usual(const double* squares) const {
    return bound_is_usual_ && std::all_of(squares, squares + n_lanes, [](double squared) {
             return squared <= std::numeric_limits<double>::max();
           });
  }

  template <class Entry>
  bool serve_alone(Index i, const Entry* read) {
    const Index d = rows_.cols();
    Vector<double> on_grid(d);
    const Eigen::OuterStride<> stride(d);
    if (!fixed_point_rows(ConstRows<Entry>(read, 1, d, stride), bound_, bits_,
                          Rows<double>(on_grid.data(), 1, d, stride), 1)) {
      return false;
    }
    out_.col(i) = on_grid;
    return true;
  }

  // The processor does not look ahead beyond a page.
  void expect_to_read_group(Index first) const {
    const Index end = numbers_ == nullptr ? rows_.rows() : out_.cols();
    for (Index i = first; i < std::min(first + n_lanes, end); ++i) {
      const Scalar* const begin = row(i);
      for (Index j = 0; j < rows_.cols(); j += line_entries<Scalar>) expect_to_read(begin + j);
    }
  }

  ConstRows<Scalar> rows_;
  const Index* numbers_;  // of the rows that are served; null for all of them
  const RowMapper* mapper_;
  RowMajorMatrix<double> mapped_;  // rows that are served together
  double bound_;
  int bits_;
  double radius_;
  bool bound_is_usual_;
  Rows<double> out_;
};

}  // namespace

template <class Scalar>
bool fixed_point_turned(const ConstRows<Scalar>& rows, double bound, int bits, Rows<double> out,
                        const Index* numbers, const RowMapper* mapper) {
  require_grid(bound, bits);
  Turning<Scalar> turning(rows, numbers, bound, bits, out, mapper);
  bool all_finite = true;
  for (Index i = 0; i < out.cols(); i += tile_rows) {
    all_finite &= turning.serve(i, std::min(i + tile_rows, out.cols()));
  }
  return all_finite;
}

template bool fixed_point_turned(const ConstRows<std::uint8_t>&, double, int, Rows<double>,
                                 const Index*, const RowMapper*);
template bool fixed_point_turned(const ConstRows<float>&, double, int, Rows<double>, const Index*,
                                 const RowMapper*);
template bool fixed_point_turned(const ConstRows<double>&, double, int, Rows<double>, const Index*,
                                 const RowMapper*);

}  // namespace dpgep
