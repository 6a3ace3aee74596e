#include "dpgep/crc32.hpp"

#include <array>
#include <cstring>

#if defined(__PCLMUL__)
#include <immintrin.h>
#endif

namespace dpgep {
namespace {

constexpr Index stride = 16;

using Tables = std::array<std::array<std::uint32_t, 256>, stride>;

// tables[k][b]: what byte b does to the remainder when k more bytes follow it.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1) * 0xedb88320u;
    tables[0][byte] = remainder;
  }
  for (std::size_t k = 1; k < stride; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t last = tables[k - 1][byte];
      tables[k][byte] = last >> 8 ^ tables[0][last & 0xff];
    }
  }
  return tables;
}

constexpr Tables tables = make_tables();

std::uint32_t remainder_of(const std::uint8_t* bytes, Index n, std::uint32_t remainder) {
  for (; n >= stride; n -= stride, bytes += stride) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < stride; ++i) {
      const std::uint32_t before = i < 4 ? remainder >> 8 * i : 0;
      next ^= tables[stride - 1 - i][(bytes[i] ^ before) & 0xff];
    }
    remainder = next;
  }
  for (; n > 0; --n, ++bytes) remainder = remainder >> 8 ^ tables[0][(*bytes ^ remainder) & 0xff];
  return remainder;
}

#if defined(__PCLMUL__)
constexpr Index folded_bytes = 64;

// Four words of 16 bytes that leave the remainder which whole blocks of 64 bytes leave after
// `remainder`: each word, times x^512 modulo the polynomial, is added to the one four after it
// (Gopal and others, "Fast CRC computation for generic polynomials using PCLMULQDQ", 2009).
std::array<std::uint8_t, folded_bytes> folded(const std::uint8_t* bytes, Index n_blocks,
                                              std::uint32_t remainder) {
  const auto word = [](const std::uint8_t* place) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(place));
  };
  const __m128i powers = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);  // x^480 and x^544, reflected
  __m128i words[4];
  for (std::size_t i = 0; i < 4; ++i) words[i] = word(bytes + 16 * i);
  words[0] = _mm_xor_si128(words[0], _mm_cvtsi32_si128(static_cast<int>(remainder)));
  for (Index block = 1; block < n_blocks; ++block) {
    bytes += folded_bytes;
    for (std::size_t i = 0; i < 4; ++i) {
      const __m128i first = _mm_clmulepi64_si128(words[i], powers, 0x00);
      const __m128i second = _mm_clmulepi64_si128(words[i], powers, 0x11);
      words[i] = _mm_xor_si128(_mm_xor_si128(first, second), word(bytes + 16 * i));
    }
  }
  std::array<std::uint8_t, folded_bytes> found;
  std::memcpy(found.data(), words, found.size());
  return found;
}
#endif

}  // namespace

std::uint32_t crc32(const ConstVectorView<std::uint8_t>& bytes, std::uint32_t before) {
  const std::uint8_t* rest = bytes.data();
  Index n = bytes.size();
  std::uint32_t remainder = ~before;
#if defined(__PCLMUL__)
  if (const Index n_blocks = n / folded_bytes; n_blocks > 1) {
    const auto words = folded(rest, n_blocks, remainder);
    remainder = remainder_of(words.data(), folded_bytes, 0);
    rest += n_blocks * folded_bytes;
    n -= n_blocks * folded_bytes;
  }
#endif
  return ~remainder_of(rest, n, remainder);
}

}  // namespace dpgep
