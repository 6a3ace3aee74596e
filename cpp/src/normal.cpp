#include "dpgep/normal.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "box_muller.hpp"
#include "dpgep/wipe.hpp"

namespace dpgep {
namespace {

constexpr Index chunk_pairs = 128;

struct Pair {
  std::uint64_t radius_word;
  std::uint64_t angle_word;
};

std::uint64_t from_little_endian(std::uint64_t word) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return __builtin_bswap64(word);
#else
  return word;
#endif
}

NormalPair normal_pair_of(const Pair& words) {
  return normal_pair(from_little_endian(words.radius_word), from_little_endian(words.angle_word));
}

}  // namespace

void fill_normal(NoiseStream::Lease& stream, double* out, Index n) {
  std::array<Pair, chunk_pairs> pairs;
  Index most_pairs = 0;
  while (n > 0) {
    const Index n_pairs = std::min(chunk_pairs, (n + 1) / 2);
    most_pairs = std::max(most_pairs, n_pairs);
    stream.read(reinterpret_cast<std::uint8_t*>(pairs.data()),
                static_cast<std::size_t>(n_pairs) * sizeof(Pair));
    const Index n_whole = std::min(n_pairs, n / 2);
    for (Index i = 0; i < n_whole; ++i) {
      const NormalPair normals = normal_pair_of(pairs[static_cast<std::size_t>(i)]);
      out[2 * i] = normals.first;
      out[2 * i + 1] = normals.second;
    }
    if (n_whole < n_pairs) {
      out[2 * n_whole] = normal_pair_of(pairs[static_cast<std::size_t>(n_whole)]).first;
    }
    out += 2 * n_pairs;
    n -= 2 * n_pairs;
  }
  wipe(pairs.data(), static_cast<std::size_t>(most_pairs) * sizeof(Pair));
}

}  // namespace dpgep
