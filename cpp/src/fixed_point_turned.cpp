#include "dpgep/fixed_point_turned.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "dpgep/fixed_point.hpp"
#include "lanes.hpp"
#include "prefetch.hpp"
#include "row_group.hpp"
#include "row_mapper.hpp"
#include "row_scales.hpp"

namespace dpgep {
namespace {

// Rows that are served together, at most: their entries stay in the first-level cache.
constexpr Index tile_rows = 32;
constexpr Index tile_entries = Index{1} << 11;

constexpr auto lanes_of_group = static_cast<std::size_t>(n_lanes);
template <class Scalar>
using Group = RowGroup<lanes_of_group, Scalar>;

using OfRows = std::array<double, tile_rows>;

// n < n_lanes of the entries from here on, then zeros: by lanes, since a copy in memory would have
// to arrive there first.
template <class Scalar>
inline void load_rest(const Scalar* from, Index n, Lanes& to) {
  fill(0.0, to);
  for (Index t = 0; t < n_lanes - 1; ++t) {
    if (t < n) add_to_lane(t, static_cast<double>(from[t]), to);
  }
}

// Writes four columns of four rows, or the `n_columns` that are left, to `to`, a column each
// `stride`, and adds their squares.
template <bool whole, class Scalar>
inline void turn_columns(const Group<Scalar>& rows, Index j, Index n_columns, double* to,
                         Index stride, Lanes (&squares)[n_lanes]) {
  Lanes x[n_lanes];
  for (std::size_t t = 0; t < lanes_of_group; ++t) {
    whole ? load(rows[t] + j, x[t]) : load_rest(rows[t] + j, n_columns, x[t]);
  }
  turn(x[0], x[1], x[2], x[3]);
  for (Index c = 0; c < n_lanes; ++c) {
    squares[c] += x[c] * x[c];
    if (whole || c < n_columns) store(x[c], to + (j + c) * stride);
  }
}

// The columns begin, begin + 1, begin + 2, begin + 3, begin + 8, ...: those whose squares have the
// same partial sums in `norm`. Of half of them, these fit sixteen registers.
template <class Scalar>
inline void turn_half(const Group<Scalar>& rows, Index begin, Index d, double* to, Index stride,
                      Lanes (&squares)[n_lanes]) {
  Index j = begin;
  for (; j + n_lanes <= d; j += 2 * n_lanes) {
    turn_columns<true>(rows, j, n_lanes, to, stride, squares);
  }
  if (j < d) turn_columns<false>(rows, j, d - j, to, stride, squares);
}

// Writes four rows to `to`, a column each `stride`, and their sums of squares in the order that
// `norm` states. Inlined: of narrow rows, as much time passes until a call has the pointers.
template <class Scalar>
[[gnu::always_inline]] inline void turn_rows(const Group<Scalar> rows, Index d, double* to,
                                             Index stride, double* squares) {
  Lanes low[n_lanes] = {};
  Lanes high[n_lanes] = {};
  turn_half(rows, 0, d, to, stride, low);
  turn_half(rows, n_lanes, d, to, stride, high);
  store(((low[0] + high[0]) + (low[2] + high[2])) + ((low[1] + high[1]) + (low[3] + high[3])),
        squares);
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
      expect_to_read_group(last + i);
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
      for (Index j = 0; j < rows_.cols(); j += line_entries<Scalar>) expect_to_read_once(begin + j);
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
  const Index height = std::clamp<Index>(
      tile_entries / std::max<Index>(1, rows.cols()) / n_lanes * n_lanes, n_lanes, tile_rows);
  for (Index i = 0; i < out.cols(); i += height) {
    all_finite &= turning.serve(i, std::min(i + height, out.cols()));
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
