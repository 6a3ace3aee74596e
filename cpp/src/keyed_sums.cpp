#include "dpgep/keyed_sums.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "dpgep/parallel.hpp"
#include "partial_sums.hpp"
#include "prefetch.hpp"

namespace dpgep {
namespace {

// Lines of the cache are asked for this far ahead, which took three quarters of the time of words
// in memory, where keys are read beside them.
constexpr Index bytes_ahead = 2048;
constexpr Index words_of_a_line = 8;
constexpr Index words_at_once = 64;

std::uint64_t reversed(std::uint64_t word) {
#if defined(__GNUC__)
  return __builtin_bswap64(word);
#else
  std::uint64_t result = 0;
  for (int i = 0; i < 8; ++i) result = result << 8 | (word >> 8 * i & 0xffu);
  return result;
#endif
}

}  // namespace

std::pair<std::uint64_t, std::uint64_t> keyed_sums(const ConstVectorView<std::uint8_t>& bytes,
                                                   const ConstVectorView<std::uint64_t>& k,
                                                   const ConstVectorView<std::uint64_t>& l) {
  if (bytes.size() % 8 != 0) {
    throw std::invalid_argument("bytes must be whole words of 8, not " +
                                std::to_string(bytes.size()));
  }
  const Index n = bytes.size() / 8;
  if (k.size() < n || l.size() < n) {
    throw std::invalid_argument("keys must be as many as the words, " + std::to_string(n));
  }
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  const auto add = [&](Index j) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + 8 * j, sizeof word);
    first += k[j] * word;
    second += l[j] * reversed(word);
  };
  Index j = 0;
  for (; j + words_at_once <= n; j += words_at_once) {
    for (Index i = 0; i < words_at_once; i += words_of_a_line) {
      expect_to_read(bytes.data() + 8 * (j + i) + bytes_ahead);
    }
    for (Index i = 0; i < words_at_once; ++i) add(j + i);
  }
  for (; j < n; ++j) add(j);
  return {first, second};
}

void keyed_column_sums(const std::vector<ConstVectorView<std::uint8_t>>& columns, Index begun,
                       const ConstVectorView<std::uint64_t>& k,
                       const ConstVectorView<std::uint64_t>& l, Rows<std::uint64_t> sums,
                       int n_threads) {
  require_threads(n_threads);
  const auto d = static_cast<Index>(columns.size());
  const Index n = d == 0 ? 0 : columns.front().size() / 8;
  for (const auto& column : columns) {
    if (column.size() != 8 * n) {
      throw std::invalid_argument("columns must be as long as each other, in whole words of 8");
    }
  }
  const Index height = k.size();
  if (l.size() != height || begun < 0 || begun >= height) {
    throw std::invalid_argument("keys must be as many as others, and more than begun");
  }
  if (sums.rows() != (begun + n + height - 1) / height || sums.cols() != 2 * d) {
    throw std::invalid_argument("sums must have a row for each block, two for each column");
  }
  const double work = static_cast<double>(n) * static_cast<double>(d);
  parallel_for(sums.rows() * d, threads_for(work, n_threads), [&](Index task) {
    const Index i = task / d;
    const Index j = task % d;
    const Index first = std::max<Index>(0, i * height - begun);
    const Index last = std::min(n, (i + 1) * height - begun);
    const Index place = first + begun - i * height;
    const auto found =
        keyed_sums({columns[static_cast<std::size_t>(j)].data() + 8 * first, 8 * (last - first)},
                   {k.data() + place, last - first}, {l.data() + place, last - first});
    sums(i, 2 * j) = found.first;
    sums(i, 2 * j + 1) = found.second;
  });
}

}  // namespace dpgep
