// libFuzzer target: the kernels on arbitrary bytes. Built and run by .ci/native-checks; by hand,
// with clang and Eigen 3.4 (its folder, or that of the cmeel-eigen wheel, as <prefix>):
//
//   cmake -S . -B build/fuzz -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_PREFIX_PATH=<prefix>
//   -DDPGEP_FUZZ=ON cmake --build build/fuzz && build/fuzz/fuzz_kernels -max_total_time=60
//
// Each input runs one kernel, whose postcondition is then checked in wider arithmetic. With
// DPGEP_FUZZ_CONTROL=1 in the environment a condition that does not hold is checked as well: the
// fuzzer must then fail.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "dpgep/clip.hpp"
#include "dpgep/csr_moments.hpp"
#include "dpgep/dense_moments.hpp"
#include "dpgep/exact_noise.hpp"
#include "dpgep/fixed_point.hpp"
#include "dpgep/fixed_point_columns.hpp"
#include "dpgep/integer_moments.hpp"
#include "dpgep/night_sums.hpp"
#include "dpgep/people.hpp"
#include "dpgep/people_runs.hpp"
#include "dpgep/row_weights.hpp"
#include "dpgep/rows_product.hpp"
#include "dpgep/sampled_rows.hpp"
#include "dpgep/stochastic.hpp"
#include "dpgep/table_counts.hpp"
#include "dpgep/truncate.hpp"

using namespace dpgep;

namespace {

__extension__ using Wide = __int128;

bool is_control() {
  static const bool control = std::getenv("DPGEP_FUZZ_CONTROL") != nullptr;
  return control;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

// The bytes of an input, zeros once they are used up.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t n) : data_(data), n_(n) {}

  template <class T>
  T take() {
    T value{};
    const std::size_t n = n_ < sizeof value ? n_ : sizeof value;
    if (n > 0) std::memcpy(&value, data_, n);
    data_ += n;
    n_ -= n;
    return value;
  }

  // In [low, high].
  int take_between(int low, int high) { return low + take<std::uint8_t>() % (high - low + 1); }

  // All that is left, as whole entries, at most `most`.
  template <class T>
  std::vector<T> take_rest(std::size_t most) {
    std::vector<T> values;
    while (n_ >= sizeof(T) && values.size() < most) values.push_back(take<T>());
    return values;
  }

 private:
  const std::uint8_t* data_;
  std::size_t n_;
};

Integers view_of(Vector<std::int64_t>& values) {
  return {values.data(), values.size()};
}

template <class Scalar>
bool has_nan(const std::vector<Scalar>& values, Index n) {
  for (Index i = 0; i < n; ++i) {
    if (std::isnan(values[static_cast<std::size_t>(i)])) return true;
  }
  return false;
}

template <class T>
ConstRows<T> const_view(const std::vector<T>& values, Index n, Index d) {
  return {values.data(), n, d, Eigen::OuterStride<>(d)};
}

template <class T>
Rows<T> view(std::vector<T>& values, Index n, Index d) {
  return {values.data(), n, d, Eigen::OuterStride<>(d)};
}

template <class T>
bool all_finite(const std::vector<T>& values) {
  for (const T value : values) {
    if (!std::isfinite(static_cast<double>(value))) return false;
  }
  return true;
}

// The same rows by columns that lie apart, and their moment matrix from either form.
template <class Scalar>
void compare_columns(const std::vector<Scalar>& rows, Index n, Index d, double bound, int bits,
                     bool is_finite, const std::vector<double>& on_grid) {
  std::vector<Scalar> transposed(rows.size());
  std::vector<Column> columns;
  for (Index j = 0; j < d; ++j) {
    Scalar* const column = transposed.data() + j * n;
    for (Index i = 0; i < n; ++i) column[i] = rows[static_cast<std::size_t>(i * d + j)];
    columns.emplace_back(column);
  }
  std::vector<double> out(rows.size());
  require(fixed_point_columns(columns, bound, bits, view(out, d, n), 1) == is_finite,
          "columns of finite rows are served, others are not");
  std::vector<std::int64_t> of_rows(static_cast<std::size_t>(d * d));
  std::vector<std::int64_t> of_columns(of_rows);
  const ConstVectorView<std::int64_t> nobody(nullptr, 0);
  require(add_dense_moments(const_view(rows, n, d), n, nobody, 0, bound, bits, view(of_rows, d, d),
                            1) == is_finite &&
              add_dense_moments(columns, n, nobody, 0, bound, bits, view(of_columns, d, d), 1) ==
                  is_finite,
          "moments of finite rows are served, others are not");
  require(of_rows == of_columns, "the same moments of rows and of columns");
  if (!is_finite) return;
  for (Index j = 0; j < d; ++j) {
    for (Index k = j; k < d; ++k) {
      std::int64_t sum = 0;
      for (Index i = 0; i < n; ++i) {
        sum += static_cast<std::int64_t>(on_grid[static_cast<std::size_t>(i * d + j)]) *
               static_cast<std::int64_t>(on_grid[static_cast<std::size_t>(i * d + k)]);
      }
      require(sum == of_rows[static_cast<std::size_t>(j * d + k)], "the sum of products");
    }
    for (Index i = 0; i < n; ++i) {
      require(
          out[static_cast<std::size_t>(j * n + i)] == on_grid[static_cast<std::size_t>(i * d + j)],
          "the grid of rows");
    }
  }
}

template <class Scalar>
void fuzz_fixed_point(Bytes bytes) {
  const auto bound = bytes.take<double>();
  const int bits = bytes.take_between(min_grid_bits, max_grid_bits);
  const Index d = bytes.take_between(1, 40);
  std::vector<Scalar> rows = bytes.take_rest<Scalar>(400);
  const Index n = static_cast<Index>(rows.size()) / d;
  rows.resize(static_cast<std::size_t>(n * d));
  std::vector<double> out(rows.size());
  bool is_served = false;
  try {
    is_served = fixed_point_rows<Scalar>(const_view(rows, n, d), bound, bits, view(out, n, d), 1);
  } catch (const std::invalid_argument&) {
    require(!(bound > 0 && std::isfinite(bound) && std::isfinite(1.0 / bound)), "bound refused");
    return;
  }
  require(is_served == all_finite(rows), "finite rows are served, others are not");
  compare_columns(rows, n, d, bound, bits, is_served, out);
  if (!is_served) return;
  for (Index i = 0; i < n; ++i) {
    Wide sum = 0;
    for (Index j = 0; j < d; ++j) {
      const double q = out[static_cast<std::size_t>(i * d + j)];
      require(std::trunc(q) == q && std::abs(q) <= 0x1p20, "integers of at most 2^20");
      sum += static_cast<Wide>(q) * static_cast<Wide>(q);
    }
    require(sum <= Wide{1} << (2 * bits), "the exact norm is at most 2^bits");
    require(!is_control() || sum < Wide{1} << (2 * bits), "control: no row reaches the sphere");
  }
  if constexpr (std::is_same_v<Scalar, double>) {
    require(fixed_point_rows<double>(const_view(rows, n, d), bound, bits, view(rows, n, d), 1) &&
                rows == out,
            "the same in place");
  }
}

template <class Scalar>
void fuzz_clip(Bytes bytes) {
  const auto bound = bytes.take<double>();
  const Index d = bytes.take_between(1, 40);
  std::vector<Scalar> rows = bytes.take_rest<Scalar>(400);
  const Index n = static_cast<Index>(rows.size()) / d;
  rows.resize(static_cast<std::size_t>(n * d));
  std::vector<double> out(rows.size());
  try {
    if (!clip_rows<Scalar>(const_view(rows, n, d), bound, view(out, n, d))) return;
  } catch (const std::invalid_argument&) {
    return;
  }
  for (Index i = 0; i < n; ++i) {
    long double sum = 0;
    for (Index j = 0; j < d; ++j) {
      const long double x = out[static_cast<std::size_t>(i * d + j)];
      sum += x * x;
    }
    require(sum <= 1.0L, "a clipped row has at most unit norm");
  }
}

template <class Scalar>
void fuzz_clip_factors(Bytes bytes) {
  const auto bound = bytes.take<double>();
  const Index d = bytes.take_between(1, 40);
  std::vector<Scalar> rows = bytes.take_rest<Scalar>(400);
  const Index n = static_cast<Index>(rows.size()) / d;
  rows.resize(static_cast<std::size_t>(n * d));
  std::vector<double> out(static_cast<std::size_t>(n));
  try {
    const bool is_served =
        clip_factors<Scalar>(const_view(rows, n, d), bound, VectorView<double>(out.data(), n));
    require(is_served == all_finite(rows), "finite rows are served, others are not");
    if (!is_served) return;
  } catch (const std::invalid_argument&) {
    return;
  }
  for (Index i = 0; i < n; ++i) {
    const long double factor = out[static_cast<std::size_t>(i)];
    require(factor >= 0 && factor <= 1, "factors only shrink");
    long double sum = 0;
    for (Index j = 0; j < d; ++j) {
      const long double x = factor * rows[static_cast<std::size_t>(i * d + j)];
      sum += x * x;
    }
    require(sum <= static_cast<long double>(bound) * bound, "a shrunk row is within the bound");
  }
}

// What is not refused is multiplied: an index that slipped through would be seen by the sanitizer.
template <class Scalar, class Integer>
void fuzz_csr(Bytes bytes) {
  const Index d = bytes.take_between(1, 20);
  const Index K = bytes.take_between(1, 6);
  std::vector<Integer> indptr(static_cast<std::size_t>(bytes.take_between(0, 12)));
  for (Integer& end : indptr) end = bytes.take<std::int8_t>();
  std::vector<Integer> indices(static_cast<std::size_t>(bytes.take_between(0, 30)));
  for (Integer& index : indices) index = bytes.take<std::int8_t>();
  std::vector<Scalar> data(static_cast<std::size_t>(bytes.take_between(0, 30)));
  for (Scalar& entry : data) entry = bytes.take<std::int8_t>();
  const std::size_t n = indptr.empty() ? 0 : indptr.size() - 1;
  const std::vector<double> factors(n, 0.5);
  const Csr<Scalar, Integer> rows{{data.data(), static_cast<Index>(data.size())},
                                  {indices.data(), static_cast<Index>(indices.size())},
                                  {indptr.data(), static_cast<Index>(indptr.size())}};
  bool is_valid = !indptr.empty() && indptr.front() == 0 && indices.size() == data.size() &&
                  indptr.back() == static_cast<Integer>(data.size());
  for (std::size_t i = 0; i < n; ++i) is_valid = is_valid && indptr[i] <= indptr[i + 1];
  for (const Integer index : indices) is_valid = is_valid && index >= 0 && index < d;
  try {
    const CsrRows exact(rows, d, {factors.data(), static_cast<Index>(n)}, 4.0, 1);
    require(is_valid, "rows that are not valid are refused");
    RowMajorMatrix<double> dense = RowMajorMatrix<double>::Zero(static_cast<Index>(n), d);
    for (std::size_t i = 0; i < n; ++i) {
      for (Integer p = indptr[i]; p < indptr[i + 1]; ++p) {
        const auto at = static_cast<std::size_t>(p);
        dense(static_cast<Index>(i), static_cast<Index>(indices[at])) += data[at];
      }
    }
    const Block V = Block::Constant(K, d, 3.0);  // small integers: no rounding
    const Block product = V * dense.transpose() * dense;
    require(exact.times(dpgep::view(V))[0] == product, "M V of the dense rows");
    NoiseStream stream(chacha20::Key{}, 0);
    const SampledRows sampled(rows, d, {factors.data(), static_cast<Index>(n)}, {}, 4.0, 1.0,
                              stream, 1);
    require(sampled.times(dpgep::view(V))[0] == product, "the same where all are in the sample");
  } catch (const std::invalid_argument&) {
    require(!is_valid, "valid rows are served");
  }
}

// Rows of integers: what is canonical is added up as the dense rows would be, the rest is refused.
template <class Integer>
void fuzz_csr_moments(Bytes bytes) {
  const Index d = bytes.take_between(0, 20);
  const Index n_groups = bytes.take_between(0, 3);
  const auto mark = bytes.take<std::int16_t>();
  const Index sums_in_cache = bytes.take_between(0, 1) == 0 ? 0 : Index{1} << 20;
  std::vector<Integer> indptr(static_cast<std::size_t>(bytes.take_between(0, 12)));
  for (Integer& end : indptr) end = bytes.take<std::int8_t>();
  const std::size_t n = indptr.empty() ? 0 : indptr.size() - 1;
  std::vector<std::int64_t> groups(bytes.take_between(0, 1) == 0 ? 0 : n);
  for (std::int64_t& group : groups) group = bytes.take<std::int8_t>();
  std::vector<Integer> indices(static_cast<std::size_t>(bytes.take_between(0, 30)));
  for (Integer& index : indices) index = bytes.take<std::int8_t>();
  std::vector<std::int32_t> values(static_cast<std::size_t>(bytes.take_between(0, 30)));
  for (std::int32_t& value : values) value = bytes.take<std::int16_t>();
  const Csr<std::int32_t, Integer> rows{{values.data(), static_cast<Index>(values.size())},
                                        {indices.data(), static_cast<Index>(indices.size())},
                                        {indptr.data(), static_cast<Index>(indptr.size())}};
  bool is_valid = !indptr.empty() && indptr.front() == 0 && indices.size() == values.size() &&
                  indptr.back() == static_cast<Integer>(values.size());
  for (std::size_t i = 0; i < n; ++i) is_valid = is_valid && indptr[i] <= indptr[i + 1];
  for (const Integer index : indices) is_valid = is_valid && index >= 0 && index < d;
  for (std::size_t i = 0; is_valid && i < n; ++i) {
    for (Integer p = indptr[i] + 1; p < indptr[i + 1]; ++p) {
      const auto at = static_cast<std::size_t>(p);
      is_valid = is_valid && indices[at - 1] < indices[at];
    }
  }
  is_valid = is_valid && (n_groups <= 1 || groups.size() == n);
  for (const std::int64_t group : groups) is_valid = is_valid && group >= 0 && group < n_groups;
  RowMajorMatrix<std::int64_t> total =
      RowMajorMatrix<std::int64_t>::Constant(d + n_groups, d + n_groups, 5);
  RowMajorMatrix<std::int64_t> expected = total;
  try {
    add_csr_moments<Integer>(
        rows, d, {groups.data(), static_cast<Index>(groups.size())}, mark,
        {total.data(), total.rows(), total.cols(), Eigen::OuterStride<>(total.cols())}, 1,
        sums_in_cache);
    require(is_valid, "rows that are not canonical are refused");
  } catch (const std::invalid_argument&) {
    require(!is_valid, "canonical rows are served");
  }
  if (is_valid) {
    RowMajorMatrix<std::int64_t> z =
        RowMajorMatrix<std::int64_t>::Zero(static_cast<Index>(n), d + n_groups);
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = static_cast<Index>(i);
      for (Integer p = indptr[i]; p < indptr[i + 1]; ++p) {
        const auto at = static_cast<std::size_t>(p);
        z(row, static_cast<Index>(indices[at])) = values[at];
      }
      if (n_groups > 0) z(row, d + (groups.empty() ? 0 : groups[i])) = mark;
    }
    for (Index j = 0; j < z.cols(); ++j) {
      for (Index k = j; k < z.cols(); ++k) expected(j, k) += z.col(j).dot(z.col(k));
    }
  }
  require(total == expected, "the sum of the dense rows, or nothing");
}

// Whatever the rows and steps: the vectors stay finite and orthonormal.
void fuzz_ascent(Bytes bytes) {
  const Index d = bytes.take_between(1, 6);
  const Index K = bytes.take_between(1, static_cast<int>(d));
  const double rate = bytes.take_between(1, 255) / 255.0;
  std::vector<double> steps(static_cast<std::size_t>(bytes.take_between(0, 4)));
  for (double& step : steps) step = bytes.take<double>();
  std::vector<double> rows = bytes.take_rest<double>(60);
  const Index n = static_cast<Index>(rows.size()) / d;
  const std::vector<double> factors(static_cast<std::size_t>(n), 0.5);
  bool are_steps = !steps.empty();
  for (const double step : steps) are_steps = are_steps && std::isfinite(step) && step >= 0.0;
  NoiseStream stream(chacha20::Key{}, 0);
  const SampledRows sampled(const_view(rows, n, d), d, {factors.data(), n}, {}, 1.0, rate, stream,
                            1);
  NoisyProducts products(sampled, {NoiseMode::fresh, {1.0}, NoiseShape::goe, 4, &stream});
  try {
    const Ascent ascent = sampled_ascent(products, dpgep::view(Block(Block::Identity(K, d))),
                                         {steps.data(), static_cast<Index>(steps.size())});
    require(are_steps, "steps that are none are refused");
    require(ascent.n_rejected_steps <= static_cast<Index>(steps.size()), "no more than there are");
    const Block& V = ascent.vectors;
    require((V * V.transpose() - Block::Identity(K, K)).norm() < 1e-9, "orthonormal vectors");
  } catch (const std::invalid_argument&) {
    require(!are_steps, "steps are taken or held");
  }
}

void fuzz_truncate(Bytes bytes) {
  const Index k = bytes.take<std::int8_t>();
  std::vector<double> v = bytes.take_rest<double>(300);
  try {
    const auto kept =
        truncate_top_k<double>(VectorView<double>(v.data(), static_cast<Index>(v.size())), k);
    require(kept.size() == static_cast<std::size_t>(k), "k indices are kept");
    std::size_t n_nonzero = 0;
    for (const double x : v) n_nonzero += x != 0.0 ? 1 : 0;
    require(n_nonzero <= kept.size(), "at most k entries are left");
  } catch (const std::invalid_argument&) {
  }
}

// Sums of nights are those of whole numbers, or refused, whatever a register holds.
void fuzz_night(Bytes bytes) {
  const Index d = bytes.take_between(1, 5);
  const Index n_matrices = bytes.take_between(1, 2);
  const Index others = bytes.take_between(0, 9);
  const Index n_steps = bytes.take_between(0, 3);
  const int shift = bytes.take_between(0, 40);
  NightShape shape{n_matrices, d};
  if (bytes.take_between(0, 3) == 0) {
    shape = {bytes.take<std::int64_t>(), bytes.take<std::int64_t>()};
  }
  const auto numbers = [&](Index size, int bits) {
    std::vector<std::int64_t> found = bytes.take_rest<std::int64_t>(static_cast<std::size_t>(size));
    found.resize(static_cast<std::size_t>(size));
    for (std::int64_t& x : found) x >>= bits;
    return found;
  };
  const Index n = n_matrices * (d * (d + 1) / 2) + others;
  const Index m = n_matrices * d * d + others;
  std::vector<std::int64_t> steps = numbers(n_steps, bytes.take_between(46, 63));
  std::vector<std::int64_t> values = numbers(2 * m, shift);
  std::vector<std::int64_t> exact = numbers(2 * n, shift);
  const std::vector<std::int64_t> before = numbers(n_steps * n, std::max(shift, 1));
  const auto whole = [](const std::vector<std::int64_t>& limbs, Index size, Index j) {
    return limbs[static_cast<std::size_t>(j)] +
           static_cast<Wide>(limbs[static_cast<std::size_t>(size + j)]) * (Wide{1} << limb_bits);
  };
  std::vector<Index> places;
  for (Index at = 0; at < m; ++at) {
    const Index in_matrix = at % (d * d);
    if (at >= n_matrices * d * d || in_matrix % d >= in_matrix / d) places.push_back(at);
  }
  std::vector<Wide> sums;
  for (Index j = 0; j < n; ++j) {
    sums.push_back(whole(exact, n, j) + whole(values, m, places[static_cast<std::size_t>(j)]));
  }
  std::vector<std::int64_t> noise(static_cast<std::size_t>(n));
  std::vector<double> published(noise.size());
  try {
    begin_night(view(values, 2, m), view(exact, 2, n), const_view(before, n_steps, n),
                {steps.data(), n_steps}, shape);
    for (Index j = 0; j < n; ++j) {
      Wide carried = 1 << (night_factor_bits - 1);
      for (Index k = 0; k < n_steps; ++k) {
        carried += static_cast<Wide>(steps[static_cast<std::size_t>(k)]) *
                   before[static_cast<std::size_t>(k * n + j)];
      }
      const Wide sum = sums[static_cast<std::size_t>(j)];
      const Wide expected = sum * (1 << night_factor_bits) - (carried >> night_factor_bits);
      require(whole(exact, n, j) == sum, "exact sums add up");
      require(whole(values, m, places[static_cast<std::size_t>(j)]) == expected,
              "noise before is subtracted");
    }
    end_night(const_view(values, 2, m), const_view(exact, 2, n), 0.5, {noise.data(), n},
              {published.data(), n}, shape);
  } catch (const std::invalid_argument&) {
    return;
  }
  for (Index j = 0; j < n; ++j) {
    const Wide value = whole(values, m, places[static_cast<std::size_t>(j)]);
    require(
        value - whole(exact, n, j) * (1 << night_factor_bits) == noise[static_cast<std::size_t>(j)],
        "noise is what is left");
  }
}

// A run is within the histogram, whatever counts and tails are.
void fuzz_people_run(Bytes bytes) {
  const auto deviation = bytes.take<double>();
  const RunTails tails{bytes.take<double>(), bytes.take<double>(), bytes.take<double>()};
  std::vector<double> counts(bytes.take<std::uint8_t>() % 64);
  for (double& count : counts) count = bytes.take<double>();
  const auto n = static_cast<Index>(counts.size());
  const PeopleRun run = people_run(counts.data(), n, deviation, tails);
  require(0 <= run.first && run.first <= n, "a run begins within the bins");
  require(-1 <= run.last && run.last < n, "a run ends within the bins");
}

void fuzz_sampler(Bytes bytes) {
  const auto scale =
      static_cast<std::int64_t>(bytes.take<std::uint64_t>() >> bytes.take_between(8, 63));
  const int n = bytes.take_between(1, 8);
  const std::vector<std::uint64_t> words = bytes.take_rest<std::uint64_t>(512);
  std::vector<std::int64_t> out(static_cast<std::size_t>(n));
  try {
    const auto n_words = static_cast<Index>(words.size());
    const Index n_used =
        exact_normal_scripted(ConstVectorView<std::uint64_t>(words.data(), n_words), scale,
                              VectorView<std::int64_t>(out.data(), n));
    require(n_used > 0 && n_used <= n_words, "no more words than were given");
    for (const std::int64_t deviate : out) {
      const Wide magnitude = deviate < 0 ? -static_cast<Wide>(deviate) : static_cast<Wide>(deviate);
      require(magnitude <= static_cast<Wide>(scale) * 28, "|deviate| <= 28 scale");
    }
  } catch (const std::invalid_argument&) {  // out of words
  } catch (const std::runtime_error&) {     // open after 4096 bits, or at the end of a cell
  }
}

void fuzz_sums(Bytes bytes) {
  const Index d = bytes.take_between(1, 5);
  const auto size = static_cast<std::size_t>(d * d);
  std::vector<double> block = bytes.take_rest<double>(size);
  block.resize(size);
  std::vector<std::int64_t> total = bytes.take_rest<std::int64_t>(size);
  total.resize(size);
  std::vector<std::int64_t> high = bytes.take_rest<std::int64_t>(size);
  high.resize(size);
  const std::vector<double> summand = block;
  std::vector<Wide> expected(size);
  for (std::size_t i = 0; i < size; ++i) {
    expected[i] = total[i] + static_cast<Wide>(high[i]) * (Wide{1} << limb_bits);
  }
  try {
    fold_triangle(view(block, d, d), view(total, d, d), 1);
    carry_triangle(view(total, d, d), view(high, d, d));
  } catch (const std::invalid_argument&) {
    return;
  } catch (const std::overflow_error&) {
    return;
  }
  for (Index i = 0; i < d; ++i) {
    for (Index j = 0; j < d; ++j) {
      const auto at = static_cast<std::size_t>(i * d + j);
      if (j >= i) expected[at] += static_cast<Wide>(summand[at]);
      require(total[at] + static_cast<Wide>(high[at]) * (Wide{1} << limb_bits) == expected[at],
              "limbs add up exactly");
    }
  }
}

// Weighted moments of people in groups, in two limbs, against a sum of products.
template <class Scalar>
void fuzz_weighted_moments(Bytes bytes) {
  const int bits = bytes.take_between(min_grid_bits, max_grid_bits);
  const double bound = bytes.take_between(1, 200);
  const Index d = bytes.take_between(1, 9);
  const Index n_groups = bytes.take_between(0, 3);
  const Index n = bytes.take_between(0, 250);
  std::vector<std::int16_t> weights(static_cast<std::size_t>(n));
  std::vector<std::int64_t> groups(n_groups == 0 ? 0 : weights.size());
  bool are_valid = true;
  for (std::int16_t& weight : weights) {
    weight = static_cast<std::int16_t>(largest_weight >> bytes.take_between(0, 13));
    if (bytes.take<std::uint8_t>() == 255) weight = bytes.take<std::int16_t>();
    are_valid = are_valid && weight >= 0 && weight <= largest_weight;
  }
  for (std::int64_t& group : groups) {
    group = bytes.take<std::uint8_t>() & 3;
    are_valid = are_valid && group < n_groups;
  }
  std::vector<Scalar> rows(static_cast<std::size_t>(n * d));
  for (Scalar& entry : rows) entry = bytes.take<std::uint8_t>();
  std::vector<double> on_grid(rows.size());
  require(fixed_point_rows<Scalar>(const_view(rows, n, d), bound, bits, view(on_grid, n, d), 1),
          "finite rows are served");
  const Index width = d + n_groups;
  std::vector<std::int64_t> total(static_cast<std::size_t>(width * width));
  std::vector<std::int64_t> high(total);
  try {
    require(add_dense_moments(const_view(rows, n, d), n,
                              {groups.data(), static_cast<Index>(groups.size())}, n_groups, bound,
                              bits, view(total, width, width), 1, {weights.data(), n},
                              view(high, width, width)),
            "moments of finite rows are served");
    require(are_valid, "groups and weights out of range are refused");
  } catch (const std::invalid_argument&) {
    require(!are_valid, "groups and weights in range are served");
    return;
  }
  const auto entry = [&](Index i, Index j) -> Wide {
    if (j < d) return static_cast<Wide>(on_grid[static_cast<std::size_t>(i * d + j)]);
    return groups[static_cast<std::size_t>(i)] == j - d ? Wide{1} << bits : Wide{0};
  };
  for (Index j = 0; j < width; ++j) {
    for (Index k = j; k < width; ++k) {
      Wide sum = 0;
      for (Index i = 0; i < n; ++i) {
        sum += weights[static_cast<std::size_t>(i)] * entry(i, j) * entry(i, k);
      }
      const auto at = static_cast<std::size_t>(j * width + k);
      require(sum == total[at] + static_cast<Wide>(high[at]) * (Wide{1} << limb_bits),
              "the weighted sum of products");
    }
  }
}

// Equal rows have equal keys, in either precision; shares of a person add up.
void fuzz_row_weights(Bytes bytes) {
  const Index d = bytes.take_between(0, 70);
  const Index n_persons = bytes.take_between(0, 4);
  std::vector<std::int64_t> persons(static_cast<std::size_t>(bytes.take_between(0, 300)));
  std::vector<std::int64_t> groups(persons.size());
  std::vector<std::uint64_t> short_keys(persons.size());
  const bool are_any = bytes.take_between(0, 7) == 0;
  for (std::int64_t& person : persons) {
    person = bytes.take<std::int8_t>();
    if (!are_any) person = std::abs(person) % std::max<Index>(n_persons, 1);
  }
  for (std::int64_t& group : groups) group = bytes.take<std::int64_t>();
  for (std::uint64_t& key : short_keys) key = bytes.take<std::uint8_t>();
  const auto n = static_cast<Index>(persons.size());
  std::vector<std::uint64_t> factors(static_cast<std::size_t>(d) + 1);
  for (std::uint64_t& factor : factors) factor = bytes.take<std::uint64_t>();
  std::vector<float> rows(static_cast<std::size_t>(n * d));
  for (float& entry : rows) entry = bytes.take<float>();
  const std::vector<double> wide(rows.begin(), rows.end());
  std::vector<std::uint64_t> keys(persons.size());
  std::vector<std::uint64_t> keys_of_wide(keys);
  const ConstVectorView<std::uint64_t> factor(factors.data(), d + 1);
  hash_rows<float>(const_view(rows, n, d), factor, {groups.data(), n},
                   VectorView<std::uint64_t>(keys.data(), n), 1);
  hash_rows<double>(const_view(wide, n, d), factor, {groups.data(), n},
                    VectorView<std::uint64_t>(keys_of_wide.data(), n), 1);
  require(keys == keys_of_wide, "equal rows have equal keys");

  bool is_valid = true;
  std::int64_t n_people = 0;
  for (const std::int64_t p : persons) {
    is_valid = is_valid && p >= 0 && p < 8 * n;
    n_people = std::max(n_people, p + 1);
  }
  const int bits = bytes.take_between(0, 1) ? 12 : 40;
  const bool weighted = bytes.take_between(0, 1) == 1;
  Shares counted(bytes.take_between(1, 20), bits, weighted);
  std::vector<std::int64_t> units(weighted ? persons.size() : 0);
  for (std::int64_t& unit : units) {
    unit = static_cast<std::int64_t>(bytes.take<std::uint64_t>() & ((std::uint64_t{1} << 40) - 1));
  }
  std::vector<std::int64_t> shares(persons.size());
  const ConstVectorView<std::int64_t> person(persons.data(), n);
  const ConstVectorView<std::uint64_t> key(short_keys.data(), n);
  const ConstVectorView<std::int64_t> unit(units.data(), weighted ? n : 0);
  try {
    counted.count(person, key, unit);
    require(is_valid, "persons that do not fit are refused");
  } catch (const std::invalid_argument&) {
    require(!is_valid, "persons that fit are served");
    return;
  }
  while (counted.end_pass()) counted.count(person, key, unit);
  std::vector<std::uint8_t> are_open(static_cast<std::size_t>(n_people + 7) / 8, 255);
  counted.share(person, key, unit, {are_open.data(), static_cast<Index>(are_open.size())},
                VectorView<std::int64_t>(shares.data(), n));
  for (Index p = 0; p < n_people; ++p) {
    Index sum = 0;
    for (std::size_t i = 0; i < persons.size(); ++i) {
      if (persons[i] != p) continue;
      require(shares[i] >= 0, "no share is below nothing");
      sum += shares[i];
    }
    require(sum <= Index{1} << bits, "all shares of a person are at most the whole");
  }
}

// Equal identities have equal numbers, others others, in the order in which they come.
void fuzz_numbering(Bytes bytes) {
  Numbering numbering(bytes.take<std::uint64_t>());
  std::vector<std::uint64_t> known;
  for (int batch = 0; batch < 3; ++batch) {
    const Index n = bytes.take_between(0, 200);
    std::vector<std::uint64_t> words(static_cast<std::size_t>(2 * n));
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = i % 2 ? 0 : bytes.take<std::uint8_t>();
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
    const bool is_open = batch != 1;
    numbering.number(const_view(words, n, 2), VectorView<std::int64_t>(numbers.data(), n), is_open);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto found = std::find(known.begin(), known.end(), words[2 * i]);
      if (found == known.end() && !is_open) {
        require(numbers[i] == -1, "nobody is new in a numbering that is not open");
        continue;
      }
      require(numbers[i] == found - known.begin(), "who is known has the same number");
      if (found == known.end()) known.push_back(words[2 * i]);
    }
  }
  require(numbering.size() == static_cast<Index>(known.size()), "each person is counted once");
}

// What the first rows add with weights, against what each adds alone, times its weight.
template <class Scalar, class Count>
void check_weights(const ConstRows<Scalar>& rows, const std::vector<std::int16_t>& weights,
                   Index size, const Count& count) {
  const Index n = std::min(rows.rows(), static_cast<Index>(weights.size()));
  const auto part = [&](Index first, Index height) {
    return ConstRows<Scalar>(rows.data() + first * rows.outerStride(), height, rows.cols(),
                             Eigen::OuterStride<>(rows.outerStride()));
  };
  Vector<std::int64_t> counts = Vector<std::int64_t>::Zero(size);
  Vector<std::int64_t> expected = counts;
  require(count(part(0, n), view_of(counts), RowWeights(weights.data(), n)),
          "weighted rows are counted");
  for (Index i = 0; i < n; ++i) {
    Vector<std::int64_t> alone = Vector<std::int64_t>::Zero(size);
    require(count(part(i, 1), view_of(alone), once_each()), "a row alone is counted");
    expected += std::int64_t{weights[static_cast<std::size_t>(i)]} * alone;
  }
  require(counts == expected, "a row counts as often as its weight says");
}

// Everybody is counted once for each column, and mapped rows stay within what is asked.
template <class Scalar>
void fuzz_table(Bytes bytes) {
  const Index d = bytes.take_between(1, 70);
  const bool missing = bytes.take_between(0, 1) == 1;
  const Index n_bins = bytes.take_between(1, 9);
  const int bits = bytes.take_between(0, 10);
  std::vector<double> middle(static_cast<std::size_t>(d));
  std::vector<double> half(static_cast<std::size_t>(d));
  for (auto& each : middle) each = bytes.take<double>();
  for (auto& each : half) each = bytes.take<double>();
  std::vector<std::int16_t> weights(16);
  for (auto& each : weights) each = bytes.take<std::int16_t>() & 0x1fff;
  const std::vector<Scalar> entries = bytes.take_rest<Scalar>(1000);
  const auto n = static_cast<Index>(entries.size()) / d;
  const ConstRows<Scalar> rows = const_view(entries, n, d);
  const Vector<std::int64_t> columns = Vector<std::int64_t>::LinSpaced(d, 0, d - 1);
  const ConstIntegers column(columns.data(), d);
  const ConstVectorView<double> m(middle.data(), d);
  const ConstVectorView<double> h(half.data(), d);
  Vector<std::int64_t> octaves = Vector<std::int64_t>::Zero(d * 22);
  Vector<std::int64_t> places = Vector<std::int64_t>::Zero(d * n_bins);
  Vector<std::int64_t> sums = Vector<std::int64_t>::Zero(3 * d);
  Vector<std::int64_t> norms = Vector<std::int64_t>::Zero(40);
  std::vector<double> out(static_cast<std::size_t>(n * d));
  bool finite = false;
  try {
    finite = count_magnitudes(rows, column, missing, -5, 10, view_of(octaves), 1);
    require(count_norms(rows, {{nullptr, 0}, 0, -20}, view_of(norms), 1) ==
                (finite && !has_nan(entries, n * d)),
            "norms refuse what histograms refuse, and NaN");
    Vector<std::int64_t> sparse = Vector<std::int64_t>::Zero(40);
    const Vector<std::int64_t> ends = Vector<std::int64_t>::LinSpaced(n + 1, 0, n * d);
    const ConstVectorView<Scalar> data(entries.data(), n * d);
    const bool said = count_norms_csr(data, ConstIntegers(ends.data(), n + 1),
                                      {{nullptr, 0}, 0, -20}, view_of(sparse), 1);
    require(!finite || has_nan(entries, n * d) || (said && sparse == norms),
            "rows in CSR have the same norms");
    require(count_places(rows, column, missing, m, h, view_of(places), 1) == finite,
            "histograms refuse the same");
    require(sum_places(rows, missing, m, h, bits, view_of(sums), 1) == finite, "and sums");
    const RowMap map{m, h, 3.0, missing};
    require(map_rows(rows, map, view(out, n, d), 1) == finite, "and maps");
    Vector<std::int64_t> mapped = Vector<std::int64_t>::Zero(40);
    Vector<std::int64_t> apart = Vector<std::int64_t>::Zero(40);
    require(
        count_norms(rows, {{nullptr, 0}, 0, -20}, view_of(mapped), 1, once_each(), &map) == finite,
        "and norms of mapped rows");
    require(!finite || (count_norms(ConstRows<double>(out.data(), n, d, Eigen::OuterStride<>(d)),
                                    {{nullptr, 0}, 0, -20}, view_of(apart), 1) &&
                        apart == mapped),
            "which are the same when they are mapped before");
  } catch (const std::invalid_argument&) {
    return;
  }
  if (!finite) return;
  check_weights(rows, weights, octaves.size(), [&](const auto& r, Integers c, const RowWeights& w) {
    return count_magnitudes(r, column, missing, -5, 10, c, 1, w);
  });
  check_weights(rows, weights, places.size(), [&](const auto& r, Integers c, const RowWeights& w) {
    return count_places(r, column, missing, m, h, c, 1, w);
  });
  check_weights(rows, weights, sums.size(), [&](const auto& r, Integers c, const RowWeights& w) {
    return sum_places(r, missing, m, h, bits, c, 1, w);
  });
  if (!has_nan(entries, n * d)) {
    check_weights(rows, weights, norms.size(), [&](const auto& r, Integers c, const RowWeights& w) {
      return count_norms(r, {{nullptr, 0}, 0, -20}, c, 1, w);
    });
  }
  const std::int64_t there = sums.tail(d).sum();
  require(octaves.sum() == there && places.sum() == there, "everybody is counted once");
  require(missing || there == n * d, "nobody is missing");
  for (const double each : out) require(std::abs(each) <= 3.0, "mapped rows are cut");
  const std::vector<double> one(static_cast<std::size_t>(d * d), 1.0);
  std::vector<double> mixed = out;
  mix_rows(view(mixed, n, d), const_view(one, d, d), 20, 1);
  for (std::size_t i = 0; i < out.size(); i += static_cast<std::size_t>(d)) {
    double sum = 0.0;
    for (Index j = 0; j < d; ++j)
      sum += std::ldexp(std::nearbyint(std::ldexp(out[i + static_cast<std::size_t>(j)], 20)), -20);
    for (Index j = 0; j < d; ++j)
      require(mixed[i + static_cast<std::size_t>(j)] == sum, "sums of a row on the grid");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  switch (bytes.take_between(0, 22)) {
    case 0:
      fuzz_fixed_point<double>(bytes);
      break;
    case 1:
      fuzz_fixed_point<float>(bytes);
      break;
    case 2:
      fuzz_fixed_point<std::uint8_t>(bytes);
      break;
    case 3:
      fuzz_clip<double>(bytes);
      break;
    case 4:
      fuzz_clip<float>(bytes);
      break;
    case 5:
      fuzz_truncate(bytes);
      break;
    case 6:
      fuzz_sampler(bytes);
      break;
    case 7:
      fuzz_clip_factors<double>(bytes);
      break;
    case 8:
      fuzz_clip_factors<float>(bytes);
      break;
    case 9:
      fuzz_csr<double, std::int32_t>(bytes);
      break;
    case 10:
      fuzz_csr<float, std::int64_t>(bytes);
      break;
    case 11:
      fuzz_csr_moments<std::int32_t>(bytes);
      break;
    case 12:
      fuzz_csr_moments<std::int64_t>(bytes);
      break;
    case 13:
      fuzz_ascent(bytes);
      break;
    case 14:
      fuzz_table<double>(bytes);
      break;
    case 15:
      fuzz_table<float>(bytes);
      break;
    case 16:
      fuzz_weighted_moments<double>(bytes);
      break;
    case 17:
      fuzz_weighted_moments<float>(bytes);
      break;
    case 18:
      fuzz_row_weights(bytes);
      break;
    case 19:
      fuzz_numbering(bytes);
      break;
    case 20:
      fuzz_people_run(bytes);
      break;
    case 21:
      fuzz_night(bytes);
      break;
    default:
      fuzz_sums(bytes);
      break;
  }
  return 0;
}
