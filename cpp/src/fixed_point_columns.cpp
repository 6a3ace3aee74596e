#include "dpgep/fixed_point_columns.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "dpgep/fixed_point.hpp"
#include "dpgep/parallel.hpp"
#include "prefetch.hpp"
#include "row_scales.hpp"

namespace dpgep {
namespace {

// Rows that are served together: enough for whole cache lines of every column, few enough for their
// entries to stay in the second-level cache.
constexpr Index tile_rows = 128;
// Partial sums of a row's squares, as in norm().
constexpr std::size_t n_partial = 8;

using OfRows = std::array<double, tile_rows>;

// Writes n entries as doubles, and adds their squares.
template <class Scalar>
void read(const Scalar* column, Index n, double* out, double* squares) {
  for (Index i = 0; i < n; ++i) {
    const auto entry = static_cast<double>(column[i]);
    out[i] = entry;
    squares[i] += entry * entry;
  }
}

template <class Scalar>
void expect_to_read_entries(const Scalar* column, Index n) {
  constexpr auto line_entries = static_cast<Index>(64 / sizeof(Scalar));
  for (Index i = 0; i < n; i += line_entries) expect_to_read_once(column + i);
}

// Rounds n entries to the grid, and adds the squares of what they become.
void round(const double* scale, Index n, double* entries, double* squares) {
  for (Index i = 0; i < n; ++i) {
    const auto rounded = static_cast<double>(static_cast<std::int32_t>(entries[i] * scale[i]));
    entries[i] = rounded;
    squares[i] += rounded * rounded;
  }
}

class Tiles {
 public:
  Tiles(const std::vector<Column>& columns, double bound, int bits, Rows<double> out)
      : columns_(columns),
        bound_(bound),
        bits_(bits),
        radius_(std::ldexp(1.0, bits)),
        out_(out),
        bound_is_usual_(bound >= 0x1p-449 && bound <= 0x1p900) {}

  // The rows first, ..., first + n - 1. False if an entry is not finite.
  bool serve(Index first, Index n) {
    OfRows scale;
    if (!read_tile(first, n, scale)) return false;
    OfRows squares = {};
    for (Index j = 0; j < out_.rows(); ++j) round(scale.data(), n, &out_(j, first), squares.data());
    for (Index i = 0; i < n; ++i) {
      // as in fit_to_ball: exact while it matters
      if (squares[at(i)] > radius_ * radius_ && !serve_alone(first + i)) return false;
    }
    return true;
  }

 private:
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }

  // Copies the rows to out, and finds what takes them to the grid. The few whose squares overflow
  // are served at once; where squares underflow, the row is shorter than the bound all the same.
  bool read_tile(Index first, Index n, OfRows& scale) {
    std::array<OfRows, n_partial> partial = {};
    const Index ahead = std::min(tile_rows, out_.cols() - first - n);
    for (Index j = 0; j < out_.rows(); ++j) {
      std::visit(
          [&](const auto* column) {
            expect_to_read_entries(column + first + n, ahead);
            read(column + first, n, &out_(j, first), partial[at(j) % n_partial].data());
          },
          columns_[at(j)]);
    }
    OfRows squares;
    for (std::size_t i = 0; i < tile_rows; ++i) {
      squares[i] = ((partial[0][i] + partial[4][i]) + (partial[2][i] + partial[6][i])) +
                   ((partial[1][i] + partial[5][i]) + (partial[3][i] + partial[7][i]));
    }
    set_scales(squares, bound_, radius_, scale);
    for (Index i = 0; i < n; ++i) {
      if (bound_is_usual_ && squares[at(i)] <= std::numeric_limits<double>::max()) continue;
      if (!serve_alone(first + i)) return false;
      scale[at(i)] = 1.0;  // it is on the grid
    }
    return true;
  }

  bool serve_alone(Index i) {
    Vector<double> row(out_.rows());
    for (Index j = 0; j < row.size(); ++j) {
      row(j) = std::visit([i](const auto* column) { return static_cast<double>(column[i]); },
                          columns_[at(j)]);
    }
    const Eigen::OuterStride<> stride(row.size());
    const Rows<double> on_grid(row.data(), 1, row.size(), stride);
    if (!fixed_point_rows(ConstRows<double>(row.data(), 1, row.size(), stride), bound_, bits_,
                          on_grid, 1)) {
      return false;
    }
    for (Index j = 0; j < row.size(); ++j) out_(j, i) = row(j);
    return true;
  }

  const std::vector<Column>& columns_;
  double bound_;
  int bits_;
  double radius_;
  Rows<double> out_;
  bool bound_is_usual_;
};

}  // namespace

bool fixed_point_columns(const std::vector<Column>& columns, double bound, int bits,
                         Rows<double> out, int n_threads) {
  require_threads(n_threads);
  require_grid(bound, bits);
  if (static_cast<Index>(columns.size()) != out.rows()) {
    throw std::invalid_argument("out must have " + std::to_string(columns.size()) + " rows, not " +
                                std::to_string(out.rows()));
  }
  Tiles tiles(columns, bound, bits, out);
  std::atomic<bool> all_finite{true};
  parallel_for((out.cols() + tile_rows - 1) / tile_rows, n_threads, [&](Index task) {
    const Index first = task * tile_rows;
    if (!tiles.serve(first, std::min(tile_rows, out.cols() - first))) all_finite = false;
  });
  return all_finite;
}

}  // namespace dpgep
