// The threaded kernels without Python, for the thread sanitizer. Built and run by
// .ci/native-checks; by hand, with Eigen 3.4 (its folder, or that of the cmeel-eigen wheel, as
// <prefix>):
//
//   cmake -S . -B build/threads -DCMAKE_PREFIX_PATH=<prefix> -DDPGEP_SANITIZE=thread
//   cmake --build build/threads && build/threads/threads_driver
//
// Every kernel runs with several threads, and several callers at once, and must give what one
// thread gives. `threads_driver race` races on purpose: the sanitizer must then report it.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "dpgep/clipped_products.hpp"
#include "dpgep/csr_moments.hpp"
#include "dpgep/csr_sums.hpp"
#include "dpgep/dense_moments.hpp"
#include "dpgep/exact_noise.hpp"
#include "dpgep/fixed_point.hpp"
#include "dpgep/fixed_point_columns.hpp"
#include "dpgep/gather.hpp"
#include "dpgep/integer_moments.hpp"
#include "dpgep/pair_oracle.hpp"
#include "dpgep/parallel.hpp"
#include "dpgep/people.hpp"
#include "dpgep/row_weights.hpp"
#include "dpgep/rows_product.hpp"
#include "dpgep/sampled_rows.hpp"
#include "dpgep/stochastic.hpp"
#include "dpgep/symmetric_product.hpp"
#include "dpgep/table_counts.hpp"

using namespace dpgep;

namespace {

constexpr int n_threads = 4;
constexpr Index n_deviates = 40000;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::exit(1);
}

chacha20::Key key_of(int number) {
  chacha20::Key key{};
  key[0] = static_cast<std::uint8_t>(number);
  return key;
}

std::vector<std::int64_t> deviates(NoiseStream& stream, int threads) {
  std::vector<std::int64_t> out(n_deviates);
  exact_normal({out.data(), n_deviates}, std::int64_t{1} << 43, stream, threads);
  return out;
}

RowMajorMatrix<std::int64_t> symmetric(NoiseStream& stream, int threads) {
  RowMajorMatrix<std::int64_t> matrix = RowMajorMatrix<std::int64_t>::Zero(200, 200);
  add_exact_symmetric_noise({matrix.data(), 200, 200, Eigen::OuterStride<>(200)}, 1000, 700, stream,
                            threads);
  return matrix;
}

RowMajorMatrix<double> on_grid(int threads) {
  RowMajorMatrix<double> rows(3000, 100);
  for (Index i = 0; i < rows.size(); ++i) {
    rows.data()[i] = std::sin(static_cast<double>(i));
  }
  Rows<double> view(rows.data(), 3000, 100, Eigen::OuterStride<>(100));
  require(fixed_point_rows<double>({rows.data(), 3000, 100, Eigen::OuterStride<>(100)}, 1.0, 20,
                                   view, threads),
          "finite rows are served");
  return rows;
}

constexpr Index table_rows = 5000;
constexpr Index table_columns = 100;

std::vector<float> column_entries() {
  std::vector<float> entries(static_cast<std::size_t>(table_rows * table_columns));
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = static_cast<float>(i % 1000);
  return entries;
}

template <class Pointer>
std::vector<Pointer> columns_in(const std::vector<float>& entries) {
  std::vector<Pointer> columns;
  for (Index j = 0; j < table_columns; ++j) columns.push_back(entries.data() + j * table_rows);
  return columns;
}

RowMajorMatrix<double> gathered(int threads) {
  const std::vector<float> entries = column_entries();
  RowMajorMatrix<double> rows(table_rows, table_columns);
  gather_rows<float, double>(
      columns_in<const float*>(entries),
      {rows.data(), table_rows, table_columns, Eigen::OuterStride<>(table_columns)}, threads);
  return rows;
}

RowMajorMatrix<double> columns_on_grid(int threads) {
  const std::vector<float> entries = column_entries();
  RowMajorMatrix<double> out(table_columns, table_rows);
  require(fixed_point_columns(
              columns_in<Column>(entries), 5000.0, 20,
              {out.data(), table_columns, table_rows, Eigen::OuterStride<>(table_rows)}, threads),
          "finite columns are served");
  return out;
}

RowMajorMatrix<std::int64_t> clipped_products(int threads) {
  const std::vector<float> entries = column_entries();
  const Eigen::OuterStride<> stride(table_columns);
  const RowMajorMatrix<double> vectors = RowMajorMatrix<double>::Constant(2, table_columns, 0x1p20);
  const Vector<double> offset = Vector<double>::Zero(2);
  RowMajorMatrix<std::int64_t> total = RowMajorMatrix<std::int64_t>::Zero(2, table_columns + 1);
  require(
      add_clipped_products<float>(
          {entries.data(), table_rows, table_columns, stride}, 5000.0, 18,
          {{vectors.data(), 2, table_columns, stride}, {offset.data(), 2}},
          {{0, table_columns, 0, 0x1p-30}},
          {total.data(), 2, table_columns + 1, Eigen::OuterStride<>(table_columns + 1)}, threads),
      "finite rows are served");
  return total;
}

RowMajorMatrix<std::int64_t> dense_moments(int threads) {
  const std::vector<float> entries = column_entries();
  RowMajorMatrix<std::int64_t> total =
      RowMajorMatrix<std::int64_t>::Zero(table_columns, table_columns);
  require(add_dense_moments(
              columns_in<Column>(entries), table_rows, {nullptr, 0}, 0, 5000.0, 20,
              {total.data(), table_columns, table_columns, Eigen::OuterStride<>(table_columns)},
              threads),
          "finite people are served");
  return total;
}

// Of each row, in an order that mixes them.
std::vector<std::int16_t> some_weights(Index n) {
  std::vector<std::int16_t> weights(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<std::int16_t>(i % 7 == 0 ? largest_weight : i % 5);
  }
  return weights;
}

std::vector<RowMajorMatrix<std::int64_t>> weighted_moments(int threads) {
  const std::vector<float> entries = column_entries();
  const std::vector<std::int16_t> weights = some_weights(table_rows);
  std::vector<std::int64_t> groups(weights.size());
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<std::int64_t>(i % 3);
  constexpr Index width = table_columns + 3;
  std::vector<RowMajorMatrix<std::int64_t>> limbs(2,
                                                  RowMajorMatrix<std::int64_t>::Zero(width, width));
  const auto limb = [&](std::size_t i) {
    return Rows<std::int64_t>(limbs[i].data(), width, width, Eigen::OuterStride<>(width));
  };
  require(add_dense_moments(ConstRows<float>(entries.data(), table_rows, table_columns,
                                             Eigen::OuterStride<>(table_columns)),
                            table_rows, {groups.data(), table_rows}, 3, 5000.0, 20, limb(0),
                            threads, {weights.data(), table_rows}, limb(1)),
          "finite people are served");
  carry_triangle(limb(0), limb(1));
  return limbs;
}

RowMajorMatrix<std::int64_t> folded(int threads) {
  RowMajorMatrix<double> block = RowMajorMatrix<double>::Constant(300, 300, 0x1p52 + 1.0);
  RowMajorMatrix<std::int64_t> total = RowMajorMatrix<std::int64_t>::Zero(300, 300);
  fold_triangle({block.data(), 300, 300, Eigen::OuterStride<>(300)},
                {total.data(), 300, 300, Eigen::OuterStride<>(300)}, threads);
  return total;
}

Block waves(Index n_rows, Index n_columns, double frequency) {
  Block block(n_rows, n_columns);
  for (Index i = 0; i < block.size(); ++i) {
    block.data()[i] = std::sin(frequency * static_cast<double>(i));
  }
  return block;
}

Block symmetric_waves(Index d) {
  const Block half = waves(d, d, 0.7);
  return half + half.transpose();
}

// A block of two dense rows and a sparse one.
Block questions(Index d) {
  Block V = waves(3, d, 1.3);
  V.row(1).tail(d - d / 10).setZero();
  return V;
}

std::vector<Block> symmetric_products(int threads) {
  const Block a = symmetric_waves(600);
  const RowMajorMatrix<float> b = a.cast<float>();
  const ConstRows<float> b_rows(b.data(), 600, 600, Eigen::OuterStride<>(600));
  return SymmetricMatrices({view(a), b_rows}, threads).times(view(questions(600)));
}

std::vector<Block> dense_products(int threads) {
  const Block rows = waves(3001, 90, 0.3);
  const Vector<double> factors = waves(1, 3001, 0.1).row(0);
  const DenseRows exact({view(rows)}, {factors.data(), factors.size()}, 0.5, threads);
  return exact.times(view(questions(90)));
}

// Sorted rows without duplicates, entries `stride` columns apart, the first in column i % stride.
struct SparseRows {
  SparseRows(Index n, Index per_row, Index stride)
      : data(waves(1, n * per_row, 0.3).row(0)),
        factors(waves(1, n, 0.1).row(0)),
        indices(n * per_row),
        indptr(n + 1) {
    for (Index p = 0; p < indices.size(); ++p) {
      indices[p] = static_cast<std::int32_t>(p % per_row * stride + p / per_row % stride);
    }
    for (Index i = 0; i <= n; ++i) indptr[i] = static_cast<std::int32_t>(i * per_row);
  }

  template <class Scalar>
  Csr<Scalar, std::int32_t> rows(const Vector<Scalar>& values) const {
    return {{values.data(), values.size()},
            {indices.data(), indices.size()},
            {indptr.data(), indptr.size()}};
  }
  Index n_rows() const { return factors.size(); }
  ConstVectorView<double> factor() const { return {factors.data(), factors.size()}; }

  Vector<double> data, factors;
  Vector<std::int32_t> indices, indptr;
};

// In one pass, or, with this many features, in two.
std::vector<Block> sparse_products(Index stride, int threads) {
  const SparseRows sparse(5000, 12, stride);
  const Index d = 12 * stride;
  const CsrRows exact(sparse.rows(sparse.data), d, sparse.factor(), 1.0, threads);
  return exact.times(view(questions(d)));
}

Vector<std::int32_t> sparse_on_grid(const SparseRows& sparse, int threads) {
  Vector<std::int32_t> values(sparse.data.size());
  require(
      fixed_point_csr<double, std::int32_t>(
          {sparse.data.data(), sparse.data.size()}, {sparse.indptr.data(), sparse.indptr.size()},
          1.0, 20, VectorView<std::int32_t>(values.data(), values.size()), threads),
      "finite sparse rows are served");
  return values;
}

RowMajorMatrix<std::int64_t> sparse_moments(int threads, Index sums_in_cache) {
  const SparseRows sparse(20000, 12, 20);
  const Vector<std::int32_t> values = sparse_on_grid(sparse, threads);
  Vector<std::int64_t> groups(sparse.n_rows());
  for (Index i = 0; i < groups.size(); ++i) groups[i] = i % 3;
  RowMajorMatrix<std::int64_t> total = RowMajorMatrix<std::int64_t>::Zero(243, 243);
  add_csr_moments<std::int32_t>(sparse.rows(values), 240, {groups.data(), groups.size()}, 1 << 20,
                                {total.data(), 243, 243, Eigen::OuterStride<>(243)}, threads,
                                sums_in_cache);
  return total;
}

Vector<double> sparse_diagonal(int threads) {
  const SparseRows sparse(60000, 12, 20);
  Vector<double> out(240);
  csr_squares<double, std::int32_t>(sparse.rows(sparse.data), sparse.factor(), {out.data(), 240},
                                    threads);
  return out;
}

RowMajorMatrix<double> sparse_sums(int threads) {
  const SparseRows sparse(60000, 12, 20);
  RowMajorMatrix<double> out(240, 1);
  csr_group_sums<double, std::int32_t>(sparse.rows(sparse.data), sparse.factor(), {nullptr, 0},
                                       {out.data(), 240, 1, Eigen::OuterStride<>(1)}, threads);
  return out;
}

RowMajorMatrix<double> waves(Index n, Index d) {
  return RowMajorMatrix<double>::NullaryExpr(
      n, d, [](Index i, Index j) { return std::sin(static_cast<double>(i * 31 + j)); });
}

std::vector<std::uint64_t> row_keys(int threads) {
  const RowMajorMatrix<double> table = waves(60000, 20);
  const std::vector<std::uint64_t> factors(21, 0x9E3779B97F4A7C15u);
  const std::vector<std::int64_t> groups(60000, 2);
  std::vector<std::uint64_t> keys(60000);
  hash_rows<double>({table.data(), 60000, 20, Eigen::OuterStride<>(20)}, {factors.data(), 21},
                    {groups.data(), 60000}, {keys.data(), 60000}, threads);
  return keys;
}

// Histograms, sums and norms of a table, one after the other.
std::vector<std::int64_t> table_counts(int threads) {
  const Index d = 20;
  const RowMajorMatrix<double> table = waves(60000, d);
  const ConstRows<double> rows(table.data(), table.rows(), d, Eigen::OuterStride<>(d));
  const Vector<std::int64_t> columns = Vector<std::int64_t>::LinSpaced(d, 0, d - 1);
  const Vector<double> ones = Vector<double>::Ones(d);
  const ConstVectorView<double> one(ones.data(), d);
  const ConstIntegers column(columns.data(), d);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(d * 22 + d * 8 + 3 * d + 40));
  const std::vector<std::int16_t> weights = some_weights(table.rows());
  const RowWeights w(weights.data(), table.rows());
  std::int64_t* next = counts.data();
  const auto take = [&](Index size) {
    next += size;
    return Integers(next - size, size);
  };
  bool finite = count_magnitudes(rows, column, false, -5, 10, take(d * 22), threads, w);
  finite = count_places(rows, column, false, one, one, take(d * 8), threads, w) && finite;
  finite = sum_places(rows, false, one, one, 10, take(3 * d), threads, w) && finite;
  finite = count_norms(rows, {{nullptr, 0}, 0, -20}, take(40), threads, w) && finite;
  require(finite, "tables of finite entries are counted");
  return counts;
}

RowMajorMatrix<double> mapped(int threads) {
  const RowMajorMatrix<double> table = waves(60000, 20);
  RowMajorMatrix<double> out(60000, 20);
  map_rows<double>({table.data(), 60000, 20, Eigen::OuterStride<>(20)},
                   {{nullptr, 0}, {nullptr, 0}, 0.5, false},
                   {out.data(), 60000, 20, Eigen::OuterStride<>(20)}, threads);
  const RowMajorMatrix<double> linear = RowMajorMatrix<double>::Identity(20, 20);
  mix_rows({out.data(), 60000, 20, Eigen::OuterStride<>(20)},
           {linear.data(), 20, 20, Eigen::OuterStride<>(20)}, 20, threads);
  return out;
}

// Steps with noisy products of samples, which the stream draws too.
std::vector<Block> ascent(const AnyRows& rows, Index d, ConstVectorView<double> factors,
                          int threads) {
  NoiseStream stream(key_of(5), 0);
  const SampledRows sampled(rows, d, factors, {}, 1e-3, 0.7, stream, threads);
  NoisyProducts products(sampled, {NoiseMode::fresh, {0.01}, NoiseShape::goe, 4, &stream});
  const Vector<double> step_sizes = Vector<double>::Constant(4, 0.5);
  Ascent result = sampled_ascent(products, view(Block(Block::Identity(3, d))),
                                 {step_sizes.data(), step_sizes.size()});
  return {std::move(result.vectors), std::move(result.quotients)};
}

std::vector<Block> dense_ascent(int threads) {
  const Block rows = waves(6001, 90, 0.3);
  const Vector<double> factors = waves(1, 6001, 0.1).row(0);
  return ascent(view(rows), 90, {factors.data(), factors.size()}, threads);
}

std::vector<Block> sparse_ascent(int threads) {
  const SparseRows sparse(60000, 12, 20);
  return ascent(sparse.rows(sparse.data), 240, sparse.factor(), threads);
}

template <class Exception, class Call>
void require_throws(const Call& call, const char* what) {
  try {
    call();
  } catch (const Exception&) {
    return;
  }
  require(false, what);
}

void check_results() {
  NoiseStream one(key_of(1), 0);
  NoiseStream several(key_of(1), 0);
  require(deviates(one, 1) == deviates(several, n_threads), "exact_normal");
  require(symmetric(one, 1) == symmetric(several, n_threads), "add_exact_symmetric_noise");
  require(on_grid(1) == on_grid(n_threads), "fixed_point_rows");
  require(gathered(1) == gathered(n_threads), "gather_rows");
  require(columns_on_grid(1) == columns_on_grid(n_threads), "fixed_point_columns");
  require(clipped_products(1) == clipped_products(n_threads), "add_clipped_products");
  require(dense_moments(1) == dense_moments(n_threads), "add_dense_moments");
  require(weighted_moments(1) == weighted_moments(n_threads), "add_dense_moments with weights");
  require(row_keys(1) == row_keys(n_threads), "hash_rows");
  require(folded(1) == folded(n_threads), "fold_triangle");
  require(symmetric_products(1) == symmetric_products(n_threads), "SymmetricMatrices");
  require(dense_products(1) == dense_products(n_threads), "DenseRows");
  require(sparse_products(20, 1) == sparse_products(20, n_threads), "CsrRows");
  require(sparse_products(20000, 1) == sparse_products(20000, n_threads), "CsrRows in two passes");
  require(dense_ascent(1) == dense_ascent(n_threads), "SampledRows, dense");
  require(sparse_ascent(1) == sparse_ascent(n_threads), "SampledRows, sparse");
  const auto moments = sparse_moments(1, Index{1} << 20);
  require(moments == sparse_moments(n_threads, Index{1} << 20), "add_csr_moments");
  require(moments == sparse_moments(n_threads, 0), "add_csr_moments of sorted rows");
  require(sparse_diagonal(1) == sparse_diagonal(n_threads), "csr_squares");
  require(sparse_sums(1) == sparse_sums(n_threads), "csr_group_sums");
  require(table_counts(1) == table_counts(n_threads), "counts and sums of a table");
  require(mapped(1) == mapped(n_threads), "map_rows and mix_rows");
}

void check_exceptions() {
  RowMajorMatrix<double> block = RowMajorMatrix<double>::Constant(300, 300, 0.5);
  RowMajorMatrix<std::int64_t> total = RowMajorMatrix<std::int64_t>::Zero(300, 300);
  require_throws<std::invalid_argument>(
      [&] {
        fold_triangle({block.data(), 300, 300, Eigen::OuterStride<>(300)},
                      {total.data(), 300, 300, Eigen::OuterStride<>(300)}, n_threads);
      },
      "fold_triangle carries an exception to its caller");
  const std::vector<double> people(static_cast<std::size_t>(table_rows * 99), 1.0);
  const std::vector<std::int16_t> weights(static_cast<std::size_t>(table_rows), largest_weight);
  require_throws<std::overflow_error>(
      [&] {
        add_dense_moments(
            ConstRows<double>(people.data(), table_rows, 99, Eigen::OuterStride<>(99)), table_rows,
            {nullptr, 0}, 1, 1.0, 20, {total.data(), 100, 100, Eigen::OuterStride<>(300)},
            n_threads, {weights.data(), table_rows});
      },
      "add_dense_moments carries an exception to its caller");
  std::vector<std::int64_t> edge(n_deviates, INT64_MAX);
  NoiseStream stream(key_of(2), 0);
  require_throws<std::invalid_argument>(
      [&] {
        add_exact_noise({edge.data(), 1, n_deviates, Eigen::OuterStride<>(n_deviates)}, 1000,
                        stream, n_threads);
      },
      "add_exact_noise carries an exception to its caller");
}

// Callers that share a stream: each call is atomic, so together they draw what one caller would.
void check_shared_stream() {
  NoiseStream shared(key_of(3), 0);
  std::vector<std::vector<std::int64_t>> drawn(6);
  std::vector<std::thread> callers;
  for (auto& mine : drawn) {
    callers.emplace_back([&shared, &mine] { mine = deviates(shared, 2); });
  }
  for (std::thread& caller : callers) caller.join();
  NoiseStream alone(key_of(3), 0);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const auto expected = deviates(alone, 1);
    int n_equal = 0;
    for (const auto& mine : drawn) n_equal += mine == expected ? 1 : 0;
    require(n_equal == 1, "each piece of the shared stream is drawn once");
  }
}

// Callers take turns: all that is answered, in whatever order, is of one noisy matrix.
void check_shared_oracle() {
  constexpr Index d = 40;
  const Block a = symmetric_waves(d);
  const SymmetricMatrices exact({view(a)}, n_threads);
  NoiseStream stream(key_of(4), 0);
  PairOracle oracle(exact, {NoiseMode::lazy, {1.0}, NoiseShape::goe, 0, &stream}, MatrixPair{});
  std::vector<Block> asked(n_threads), answered(n_threads);
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < n_threads; ++i) {
    callers.emplace_back([&, i] {
      asked[i] = waves(3, d, 0.2 + 0.1 * static_cast<double>(i));
      answered[i] = oracle.times(view(asked[i])).A;
    });
  }
  for (std::thread& caller : callers) caller.join();
  require(oracle.n_answered() == n_threads, "every call is counted");
  const Block noisy = oracle.times(view(Block(Block::Identity(d, d)))).A;
  for (std::size_t i = 0; i < n_threads; ++i) {
    require((answered[i] - asked[i] * noisy).norm() < 1e-9, "one noisy matrix");
  }
}

// Callers number the same people at once, and count their rows: calls take turns.
void check_shared_people() {
  constexpr Index n = 20000;
  Numbering numbering(1);
  Shares shares(1, 12, false);
  RowMajorMatrix<std::uint64_t> words(n, 2);
  for (Index i = 0; i < n; ++i) words(i, 0) = words(i, 1) = static_cast<std::uint64_t>(i % 5000);
  const std::vector<std::uint64_t> keys(n, 1);
  const ConstVectorView<std::uint64_t> key(keys.data(), n);
  std::vector<std::vector<std::int64_t>> numbers(n_threads, std::vector<std::int64_t>(n));
  std::vector<std::thread> callers;
  for (auto& mine : numbers) {
    callers.emplace_back([&] {
      numbering.number({words.data(), n, 2, Eigen::OuterStride<>(2)}, {mine.data(), n}, true);
      shares.count({mine.data(), n}, key, {nullptr, 0});
    });
  }
  for (std::thread& caller : callers) caller.join();
  require(numbering.size() == 5000, "everybody is numbered once");
  require(!shares.end_pass(), "nobody has many rows");
  std::vector<std::int16_t> each(n);
  std::vector<std::uint8_t> are_open(625, 255);
  shares.share<std::int16_t>({numbers[0].data(), n}, key, {nullptr, 0}, {are_open.data(), 625},
                             {each.data(), n});
  for (const auto& mine : numbers) require(mine == numbers[0], "a person has one number");
  require(each.back() == 4096 / (4 * n_threads), "all rows were counted");
}

// All tasks have begun before one goes on: those that one thread runs after another do not race.
int race() {
  int unguarded = 0;
  std::atomic<int> n_begun{0};
  parallel_for(n_threads, n_threads, [&](Index) {
    n_begun.fetch_add(1, std::memory_order_relaxed);
    while (n_begun.load(std::memory_order_relaxed) < n_threads) std::this_thread::yield();
    ++unguarded;
  });
  return unguarded > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "race") == 0) return race();
  for (int round = 0; round < 3; ++round) {
    check_results();
    check_exceptions();
    check_shared_stream();
    check_shared_oracle();
    check_shared_people();
  }
  std::puts("threaded kernels: as with one thread, and no race reported");
  return 0;
}
