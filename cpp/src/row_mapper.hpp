// Rows mapped some at a time, several columns in a register.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>

#include "dpgep/row_map.hpp"
#include "lanes.hpp"

namespace dpgep {

// Columns of a row that one register holds.
constexpr Index n_at_once = static_cast<Index>(sizeof(Register) / sizeof(double));
// n of the entries from here on, n <= n_at_once, then zeros.
template <class Scalar>
inline void load_some(const Scalar* from, Index n, Register& to) {
  if (n == n_at_once) {
    load(from, to);
    return;
  }
  const auto entry = [&](Index t) { return t < n ? static_cast<double>(from[t]) : 0.0; };
  to = Register{};  // by lanes: a copy in memory would have to arrive there first
  to[0] = entry(0);
  if (n_at_once > 2) {
    to[n_at_once / 4] = entry(n_at_once / 4);
    to[n_at_once / 2] = entry(n_at_once / 2);
  }
}

// Numbers of n columns in whole registers: `rest` where none are given, and beyond the last column.
inline Vector<double> in_registers(const ConstVectorView<double>& values, Index n, double rest) {
  Vector<double> padded = Vector<double>::Constant(n + n_at_once - 1, rest);
  padded.head(values.size()) = values;
  return padded;
}

inline void require_map(const RowMap& map, Index d) {
  const auto fits = [=](const auto& values) {
    return values.data() == nullptr || values.size() == d;
  };
  if (!fits(map.location) || !fits(map.scale)) {
    throw std::invalid_argument("location and scale must have an entry for each column, or none");
  }
  if (!(map.largest >= 0.0)) throw std::invalid_argument("largest must be at least 0");
}

class RowMapper {
 public:
  // Throws std::invalid_argument for a map of rows of another width, or a negative `largest`.
  RowMapper(const RowMap& map, Index d) : largest_(map.largest), missing_(map.missing), d_(d) {
    require_map(map, d);
    location_ = in_registers(map.location, d, 0.0);
    scale_ = in_registers(map.scale, d, 1.0);
    factor_ = scale_.cwiseInverse();
    for (Index j = 0; j < d; ++j) {
      // then no difference but zero is below 2^-853, and no quotient below 2^-953
      by_products_ &= std::abs(location_[j]) >= 0x1p-800 && scale_[j] <= 0x1p100;
      // NaN, by which nothing is decided, where it is no number of full precision
      if (!(factor_[j] >= 0x1p-900 && factor_[j] <= 0x1p900)) factor_[j] = std::nan("");
    }
  }

  Index width() const { return d_; }

  // False where an entry is infinite or, unless it is missing, NaN. `out` may be the row.
  template <class Scalar>
  bool operator()(const Scalar* row, double* out) const {
    if (by_products_ && static_cast<const void*>(row) != out && mapped<true>(row, out)) return true;
    return mapped<false>(row, out);
  }

  // The sum of squares of a mapped row, by products with 1/scale: wrong by less than 2^-48 of
  // itself. NaN where an entry is refused, and where nobody knows.
  template <class Scalar>
  double about_square(const Scalar* row) const {
    return missing_ ? squared<true>(row) : squared<false>(row);
  }

 private:
  template <bool missing, class Scalar>
  double squared(const Scalar* row) const {
    const Register end = Register{} + largest_;
    Register all = {};
    Register squares[2] = {};
    const auto add = [&](const Register& x, Index left, Register& to) {
      Register m;
      Register factor;
      load(location_.data() + left, m);
      load(factor_.data() + left, factor);
      m = (x - m) * factor;
      if (missing) m = x == x ? m : Register{};
      all += m;
      clamp_to(-end, end, m);
      to += m * m;
    };
    Register x;
    Index left = 0;
    for (; left + 2 * n_at_once <= d_; left += 2 * n_at_once) {
      for (Index r = 0; r < 2; ++r) {
        load(row + left + r * n_at_once, x);
        add(x, left + r * n_at_once, squares[r]);
      }
    }
    for (; left < d_; left += n_at_once) {
      load_some(row + left, std::min(d_ - left, n_at_once), x);
      add(x, left, squares[0]);
    }
    const double sum = total(all);
    return total(squares[0] + squares[1]) + (sum - sum);
  }

  template <bool by_products, class Scalar>
  bool mapped(const Scalar* row, double* out) const {
    return missing_ ? mapped<by_products, true>(row, out) : mapped<by_products, false>(row, out);
  }

  // The last entries are in a register of their own, which shares some with the one before, and is
  // read before that is written.
  // By products, false as well where these do not decide.
  template <bool by_products, bool missing, class Scalar>
  bool mapped(const Scalar* row, double* out) const {
    const double* const location = location_.data();
    const double* const scale = scale_.data();
    const double* const factor = factor_.data();
    const Register end = Register{} + largest_;
    Register refused = {};
    const auto find = [&](Register& x, Index left) {
      Register m;
      Register s;
      load(location + left, m);
      load(scale + left, s);
      m = x - m;
      if (by_products) {
        Register f;
        load(factor + left, f);
        divide(s, f, m);
      } else {
        m = m / s;
      }
      if (missing) {
        m = x == x ? m : Register{};
        x = x == x ? x : Register{};
      }
      refused += by_products ? m : x - x;
      clamp_to(-end, end, m);
      x = m;
    };
    Register x;
    if (d_ < n_at_once) {
      load_some(row, d_, x);
      find(x, 0);
      out[0] = x[0];
      for (int t = 1; t < d_; ++t) out[t] = x[t];
      return is_finite(total(refused));
    }
    const Index last = d_ - n_at_once;
    Register end_of_row;
    load(row + last, end_of_row);
    for (Index left = 0; left < last; left += n_at_once) {
      load(row + left, x);
      find(x, left);
      store(x, out + left);
    }
    find(end_of_row, last);
    store(end_of_row, out + last);
    return is_finite(total(refused));
  }

  static bool is_finite(double x) { return x - x == 0.0; }

  Vector<double> location_, scale_, factor_;
  double largest_;
  bool missing_;
  Index d_;
  // the whole chain of products is waited for in short rows
  bool by_products_ = has_fused_products && d_ >= 40;
};

}  // namespace dpgep
