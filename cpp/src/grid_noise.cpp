#include "dpgep/grid_noise.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "dpgep/block.hpp"
#include "dpgep/exact_noise.hpp"

namespace dpgep {
namespace {

constexpr int grid_bits = 28;
constexpr double most_units = 0x1p61;
constexpr double least_share = 0x1p-10;  // of the variance, for an entry along q
__extension__ using Wide = unsigned __int128;

std::int64_t off_diagonal_of(std::int64_t diagonal) {
  const auto squared = static_cast<Wide>(diagonal) * static_cast<Wide>(diagonal);
  auto t = static_cast<std::int64_t>(static_cast<double>(diagonal) * 0.70710678118654752) - 2;
  while (2 * static_cast<Wide>(t) * static_cast<Wide>(t) < squared) ++t;
  return t;
}

ConstRows<double> one_row(const double* entries, Index d) {
  return {entries, 1, d, Eigen::OuterStride<>(d)};
}

Rows<std::int64_t> row_of(Vector<std::int64_t>& entries) {
  return {entries.data(), 1, entries.size(), Eigen::OuterStride<>(entries.size())};
}

// D x for each of the rows x of X, (K, r).
Block coordinates(const Block& X, const ConstRows<double>& D) {
  return inner_products(D, view(X)).transpose();
}

// y += c D + a q.
void add_span(const ConstRows<double>& D, const Block& c, const ConstVectorView<double>& q,
              double a, Vector<double>& y) {
  Rows<double> out(y.data(), 1, y.size(), Eigen::OuterStride<>(y.size()));
  add_combinations(view(c), D, out);
  add_combinations(view(Block::Constant(1, 1, a)), one_row(q.data(), q.size()), out);
}

// The calibration allows for directions that are orthonormal to this (docs/exactness.md).
void require_orthonormal(const Block& across, double squared_length) {
  constexpr double tolerance = 0x1p-36;
  if ((across.array().abs() <= tolerance).all() && std::abs(squared_length - 1.0) <= tolerance) {
    return;
  }
  throw std::logic_error("directions are not orthonormal to 2^-36");
}

}  // namespace

Grid::Grid(double scale) {
  if (!(scale >= 0x1p-900 && scale <= 0x1p900)) {
    std::ostringstream message;
    message << "scale must satisfy 2**-900 <= scale <= 2**900 where noise is drawn, not " << scale;
    throw std::invalid_argument(message.str());
  }
  unit = std::ldexp(1.0, std::ilogb(scale) - grid_bits);
  diagonal = static_cast<std::int64_t>(std::ceil(scale / unit));
  off_diagonal = off_diagonal_of(diagonal);
}

std::int64_t Grid::nearest(double value) const {
  const double units = value / unit;
  if (std::isnan(units)) return 0;
  return static_cast<std::int64_t>(std::nearbyint(std::clamp(units, -most_units, most_units)));
}

Vector<double> answer_on_grid(const ConstVectorView<double>& q, Vector<double> y, const Grid& grid,
                              const ConstRows<double>& known, const ConstRows<double>& answers,
                              NoiseStream& stream, int n_threads) {
  const Index d = q.size();
  Block y_and_q(2, d);
  y_and_q << y.transpose(), q.transpose();
  const Block seen = coordinates(y_and_q, known);
  const Block of_q = inner_products(one_row(q.data(), d), view(y_and_q));
  require_orthonormal(seen.row(1), of_q(0, 1));
  const double along = of_q(0, 0);
  add_span(known, -seen.row(0), q, -along, y);

  Vector<std::int64_t> units(d);
  for (Index i = 0; i < d; ++i) units[i] = grid.nearest(y[i]);
  add_exact_noise(row_of(units), grid.off_diagonal, stream, n_threads);
  const Block released = grid.unit * units.cast<double>().transpose();
  Vector<std::int64_t> unit_along(1);
  unit_along[0] = grid.nearest(along);
  add_exact_noise(row_of(unit_along), grid.diagonal, stream, 1);
  const double alpha = grid.unit * static_cast<double>(unit_along[0]);

  // From here on everything is public.
  const Block owed = inner_products(answers, one_row(q.data(), d)).transpose();
  const double surplus = inner_products(one_row(q.data(), d), view(released))(0, 0);
  Vector<double> answer = released.transpose();
  add_span(known, owed - coordinates(released, known), q, alpha - surplus, answer);
  return answer;
}

Vector<double> iid_answer_on_grid(const ConstVectorView<double>& q, Vector<double> y,
                                  const Grid& grid, NoiseStream& stream, int n_threads) {
  const Index d = q.size();
  const auto diagonal = static_cast<double>(grid.diagonal);
  Vector<std::int64_t> scales(d);
  Vector<std::int64_t> units(d);
  for (Index i = 0; i < d; ++i) {
    const double share = std::max((1.0 - q[i]) * (1.0 + q[i]), least_share);
    scales[i] = static_cast<std::int64_t>(std::ceil(diagonal * std::sqrt(share)));
    units[i] = grid.nearest(y[i]);
  }
  add_exact_noise_along(VectorView<std::int64_t>(units.data(), d),
                        ConstVectorView<std::int64_t>(scales.data(), d), q, grid.diagonal, stream,
                        n_threads);
  return grid.unit * units.cast<double>();
}

}  // namespace dpgep
