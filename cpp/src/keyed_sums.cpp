#include "dpgep/keyed_sums.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

namespace dpgep {
namespace {

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
  for (Index j = 0; j < n; ++j) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + 8 * j, sizeof word);
    first += k[j] * word;
    second += l[j] * reversed(word);
  }
  return {first, second};
}

}  // namespace dpgep
