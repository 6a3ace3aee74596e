#include "dpgep/row_weights.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "dpgep/parallel.hpp"
#include "partial_sums.hpp"
#include "splitmix.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dpgep {
namespace {

// Entries of a row in single precision that are looked at together.
constexpr Index tile = 64;

std::uint64_t word_of(double value) {
  value = value == value ? value + 0.0 : std::numeric_limits<double>::quiet_NaN();
  std::uint64_t word;
  std::memcpy(&word, &value, sizeof word);
  word ^= word >> 32;  // the last bits of short numbers are zeros
  return word ^ word >> 20;
}

// sum_j word_j factor_j modulo 2^64.
std::uint64_t sum_of_words(const double* row, const std::uint64_t* factors, Index n) {
  std::uint64_t sum = 0;
  Index j = 0;
#if defined(__AVX2__)
  // Four at once, of which the processor multiplies halves: products of the low ones, and of one
  // low and one high, which count 2^32 times and of which 32 bits are enough.
  const __m256d nothing = _mm256_setzero_pd();
  __m256i low = _mm256_setzero_si256();
  __m256i high = _mm256_setzero_si256();
  __m256d any = nothing;  // no number if an entry is none
  for (; j + 4 <= n; j += 4) {
    const __m256d value = _mm256_add_pd(_mm256_loadu_pd(row + j), nothing);
    any = _mm256_add_pd(any, value);
    __m256i word = _mm256_castpd_si256(value);
    word = _mm256_xor_si256(word, _mm256_srli_epi64(word, 32));
    word = _mm256_xor_si256(word, _mm256_srli_epi64(word, 20));
    const __m256i factor = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(factors + j));
    low = _mm256_add_epi64(low, _mm256_mul_epu32(word, factor));
    high = _mm256_add_epi32(high, _mm256_mullo_epi32(word, _mm256_shuffle_epi32(factor, 0xb1)));
  }
  double values[4];
  _mm256_storeu_pd(values, any);
  const double checked = values[0] + values[1] + values[2] + values[3];
  if (checked != checked) {
    j = 0;
  } else {
    high = _mm256_add_epi32(high, _mm256_srli_epi64(high, 32));
    low = _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
    std::uint64_t sums[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), low);
    for (const std::uint64_t each : sums) sum += each;
  }
#endif
  for (; j < n; ++j) sum += word_of(row[j]) * factors[j];
  return sum;
}

std::uint64_t sum_of_words(const float* row, const std::uint64_t* factors, Index n) {
  std::uint64_t sum = 0;
  for (Index first = 0; first < n; first += tile) {
    const Index m = std::min(tile, n - first);
    double values[tile];
    for (Index j = 0; j < m; ++j) values[j] = static_cast<double>(row[first + j]);
    sum += sum_of_words(values, factors + first, m);
  }
  return sum;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

}  // namespace

void require_weights(const RowWeights& weights, Index n_rows) {
  require(weights.data() == nullptr || weights.size() == n_rows,
          "weights must have an entry for each row, or be None");
  require((weights.array() >= 0).all() && (weights.array() <= largest_weight).all(),
          "weights must be between 0 and 8192");
}

template <class Scalar>
void hash_rows(const ConstRows<Scalar>& rows, const ConstVectorView<std::uint64_t>& factors,
               const ConstVectorView<std::int64_t>& groups, VectorView<std::uint64_t> keys,
               int n_threads) {
  require_threads(n_threads);
  const Index n = rows.rows();
  const Index d = rows.cols();
  require(factors.size() == d + 1, "factors must be one more than columns");
  require(keys.size() == n, "keys must have an entry for each row");
  require(groups.data() == nullptr || groups.size() == n,
          "groups must have an entry for each row, or be None");
  constexpr Index height = 1024;
  const Index n_tasks = (n + height - 1) / height;
  parallel_for(n_tasks, threads_for(static_cast<double>(rows.size()), n_threads), [&](Index task) {
    for (Index i = task * height; i < std::min(n, (task + 1) * height); ++i) {
      const Scalar* const row = rows.data() + i * rows.outerStride();
      std::uint64_t sum = sum_of_words(row, factors.data(), d);
      if (groups.size() > 0) sum += (static_cast<std::uint64_t>(groups[i]) + 1) * factors[d];
      keys[i] = splitmix(sum);
    }
  });
}

template void hash_rows(const ConstRows<float>&, const ConstVectorView<std::uint64_t>&,
                        const ConstVectorView<std::int64_t>&, VectorView<std::uint64_t>, int);
template void hash_rows(const ConstRows<double>&, const ConstVectorView<std::uint64_t>&,
                        const ConstVectorView<std::int64_t>&, VectorView<std::uint64_t>, int);

}  // namespace dpgep
