// The threaded kernels without Python, for the thread sanitizer. Built and run by
// .ci/native-checks; by hand, with Eigen 3.4 (its folder, or that of the cmeel-eigen wheel, as
// <prefix>):
//
//   cmake -S . -B build/threads -DCMAKE_PREFIX_PATH=<prefix> -DDPGEP_SANITIZE=thread
//   cmake --build build/threads && build/threads/threads_driver
//
// Every kernel runs with several threads, and several callers at once, and must give what one
// thread gives. `threads_driver race` races on purpose: the sanitizer must then report it.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "dpgep/exact_noise.hpp"
#include "dpgep/fixed_point.hpp"
#include "dpgep/integer_moments.hpp"
#include "dpgep/parallel.hpp"

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

RowMajorMatrix<std::int64_t> folded(int threads) {
  RowMajorMatrix<double> block = RowMajorMatrix<double>::Constant(300, 300, 0x1p52 + 1.0);
  RowMajorMatrix<std::int64_t> total = RowMajorMatrix<std::int64_t>::Zero(300, 300);
  fold_triangle({block.data(), 300, 300, Eigen::OuterStride<>(300)},
                {total.data(), 300, 300, Eigen::OuterStride<>(300)}, threads);
  return total;
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
  require(folded(1) == folded(n_threads), "fold_triangle");
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

int race() {
  int unguarded = 0;
  parallel_for(100000, n_threads, [&](Index) { ++unguarded; });
  return unguarded > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "race") == 0) return race();
  for (int round = 0; round < 3; ++round) {
    check_results();
    check_exceptions();
    check_shared_stream();
  }
  std::puts("threaded kernels: as with one thread, and no race reported");
  return 0;
}
