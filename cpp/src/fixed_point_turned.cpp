#include "dpgep/fixed_point_turned.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "dpgep/clip.hpp"
#include "dpgep/fixed_point.hpp"
#include "lanes.hpp"
#include "prefetch.hpp"
#include "row_group.hpp"

namespace dpgep {
namespace {

// Rows that are served together: their entries stay in the first-level cache.
constexpr Index tile_rows = 32;

constexpr auto lanes_of_group = static_cast<std::size_t>(n_lanes);
template <class Scalar>
using Group = RowGroup<lanes_of_group, Scalar>;

using OfRows = std::array<double, tile_rows>;

// Writes four columns of four rows to `to`, a column each `stride`, and adds their squares.
template <class Scalar>
inline void turn_columns(const Group<Scalar>& rows, Index j, Index n_columns, double* to,
                         Index stride, Lanes (&squares)[n_lanes]) {
  Lanes x[n_lanes];
  for (std::size_t t = 0; t < lanes_of_group; ++t) load(rows[t] + j, x[t]);
  turn(x[0], x[1], x[2], x[3]);
  for (Index c = 0; c < n_lanes; ++c) {
    squares[c] += x[c] * x[c];
    if (c < n_columns) store(x[c], to + (j + c) * stride);
  }
}

// The columns begin, begin + 1, begin + 2, begin + 3, begin + 8, ...: those whose squares have the
// same partial sums in `norm`. Of half of them, these fit sixteen registers.
template <class Scalar>
inline void turn_half(const Group<Scalar>& rows, Index begin, Index d, double* to, Index stride,
                      Lanes (&squares)[n_lanes]) {
  Index j = begin;
  for (; j + n_lanes <= d; j += 2 * n_lanes) turn_columns(rows, j, n_lanes, to, stride, squares);
  if (j >= d) return;
  Scalar rest[lanes_of_group][lanes_of_group] = {};
  Group<Scalar> rest_of_rows;
  for (std::size_t t = 0; t < lanes_of_group; ++t) {
    std::copy(rows[t] + j, rows[t] + d, rest[t]);
    rest_of_rows[t] = rest[t];
  }
  turn_columns(rest_of_rows, 0, d - j, to + j * stride, stride, squares);
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
          Rows<double> out)
      : rows_(rows),
        numbers_(numbers),
        bound_(bound),
        bits_(bits),
        radius_(std::ldexp(1.0, bits)),
        bound_is_usual_(bound >= 0x1p-449 && bound <= 0x1p900),
        out_(out) {}

  // Serves the rows first, ..., last - 1, at most tile_rows. False if an entry is not finite.
  bool serve(Index first, Index last) {
    const Index d = rows_.cols();
    const Index stride = out_.outerStride();
    const Index n_grouped = (last - first) / n_lanes * n_lanes;
    OfRows squares = {};
    OfRows scales;
    for (Index i = 0; i < n_grouped; i += n_lanes) {
      expect_to_read_group(first + i + tile_rows);
      Group<Scalar> group;
      for (std::size_t t = 0; t < lanes_of_group; ++t) {
        group[t] = row(first + i + static_cast<Index>(t));
      }
      turn_rows(group, d, entries(first + i), stride, &squares[at(i)]);
    }
    set_scales(squares, bound_, radius_, scales);
    OfRows on_grid;
    on_grid.fill(std::numeric_limits<double>::infinity());
    for (Index i = 0; i < n_grouped; i += n_lanes) {
      if (are_usual(&squares[at(i)])) {
        round(&scales[at(i)], d, entries(first + i), stride, &on_grid[at(i)]);
      }
    }
    bool all_finite = true;
    for (Index i = 0; i < last - first; ++i) {
      // as in fit_to_ball: exact while it matters
      if (on_grid[at(i)] <= radius_ * radius_) continue;
      all_finite &= serve_alone(first + i);
    }
    return all_finite;
  }

 private:
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

  bool serve_alone(Index i) {
    const Index d = rows_.cols();
    Vector<double> on_grid(d);
    const Eigen::OuterStride<> stride(d);
    if (!fixed_point_rows(ConstRows<Scalar>(row(i), 1, d, stride), bound_, bits_,
                          Rows<double>(on_grid.data(), 1, d, stride), 1)) {
      return false;
    }
    out_.col(i) = on_grid;
    return true;
  }

  // The processor does not look ahead beyond a page.
  void expect_to_read_group(Index first) const {
    const Index last = std::min(first + n_lanes, out_.cols());
    for (Index i = first; i < last; ++i) {
      const Scalar* const begin = row(i);
      for (Index j = 0; j < rows_.cols(); j += line_entries<Scalar>) expect_to_read(begin + j);
    }
  }

  ConstRows<Scalar> rows_;
  const Index* numbers_;  // of the rows that are served; null for all of them
  double bound_;
  int bits_;
  double radius_;
  bool bound_is_usual_;
  Rows<double> out_;
};

}  // namespace

template <class Scalar>
bool fixed_point_turned(const ConstRows<Scalar>& rows, double bound, int bits, Rows<double> out,
                        const Index* numbers) {
  require_grid(bound, bits);
  Turning<Scalar> turning(rows, numbers, bound, bits, out);
  bool all_finite = true;
  for (Index i = 0; i < out.cols(); i += tile_rows) {
    all_finite &= turning.serve(i, std::min(i + tile_rows, out.cols()));
  }
  return all_finite;
}

template bool fixed_point_turned(const ConstRows<std::uint8_t>&, double, int, Rows<double>,
                                 const Index*);
template bool fixed_point_turned(const ConstRows<float>&, double, int, Rows<double>, const Index*);
template bool fixed_point_turned(const ConstRows<double>&, double, int, Rows<double>, const Index*);

}  // namespace dpgep
