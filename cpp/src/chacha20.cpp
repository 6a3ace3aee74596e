#include "dpgep/chacha20.hpp"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "dpgep/wipe.hpp"
#include "wide_registers.hpp"

namespace dpgep::chacha20 {
namespace {

// As many blocks at once as fit one register file: word i of all of them is one vector, so the
// sixteen words occupy sixteen registers. The lane count changes the speed, never a byte.
#if defined(__GNUC__)
#define DPGEP_INLINE [[gnu::always_inline]] inline
#if defined(__AVX2__)
constexpr std::size_t n_lanes = 8;
#else
constexpr std::size_t n_lanes = 4;
#endif
template <std::size_t n>
struct LanesOf {
  using Type __attribute__((vector_size(4 * n))) = std::uint32_t;
};
#else
#define DPGEP_INLINE inline
constexpr std::size_t n_lanes = 1;
template <std::size_t n>
struct LanesOf {
  using Type = std::uint32_t;
};
#endif
template <std::size_t n>
using Lanes = typename LanesOf<n>::Type;

std::uint32_t load_little_endian(const std::uint8_t* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) | static_cast<std::uint32_t>(bytes[1]) << 8 |
         static_cast<std::uint32_t>(bytes[2]) << 16 | static_cast<std::uint32_t>(bytes[3]) << 24;
}

inline void store_little_endian(std::uint32_t word, std::uint8_t* bytes) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  std::memcpy(bytes, &word, sizeof word);
#else
  for (int i = 0; i < 4; ++i) {
    bytes[i] = static_cast<std::uint8_t>(word >> (8 * i));
  }
#endif
}

template <int bits, class Word>
DPGEP_INLINE void rotate_left(Word& word) {
  word = (word << bits) | (word >> (32 - bits));
}

template <class Word>
DPGEP_INLINE void quarter_round(Word& a, Word& b, Word& c, Word& d) {
  a += b, d ^= a, rotate_left<16>(d);
  c += d, b ^= c, rotate_left<12>(b);
  a += b, d ^= a, rotate_left<8>(d);
  c += d, b ^= c, rotate_left<7>(b);
}

template <class Word>
DPGEP_INLINE void twenty_rounds(Word (&x)[16]) {
  for (int round = 0; round < 20; round += 2) {
    quarter_round(x[0], x[4], x[8], x[12]);
    quarter_round(x[1], x[5], x[9], x[13]);
    quarter_round(x[2], x[6], x[10], x[14]);
    quarter_round(x[3], x[7], x[11], x[15]);
    quarter_round(x[0], x[5], x[10], x[15]);
    quarter_round(x[1], x[6], x[11], x[12]);
    quarter_round(x[2], x[7], x[8], x[13]);
    quarter_round(x[3], x[4], x[9], x[14]);
  }
}

// The 64-bit block counter of `state`, moved on by n_blocks.
void count(State& state, std::size_t n_blocks) {
  const std::uint64_t counter =
      (static_cast<std::uint64_t>(state[15]) << 32 | state[12]) + n_blocks;
  state[12] = static_cast<std::uint32_t>(counter);
  state[15] = static_cast<std::uint32_t>(counter >> 32);
}

void one_block(const State& state, std::uint8_t* out) {
  std::uint32_t x[16];
  std::memcpy(x, state.data(), sizeof x);
  twenty_rounds(x);
  for (std::size_t i = 0; i < 16; ++i) {
    store_little_endian(x[i] + state[i], out + 4 * i);
  }
}

// Block l is made of lane l of the sixteen words: a transposition.
template <std::size_t n>
DPGEP_INLINE void store_lanes(const Lanes<n> (&words)[16], std::uint8_t* out) {
  std::uint32_t rows[16][n];
  std::memcpy(rows, words, sizeof rows);
#if defined(__SSE2__)
  // Four words of four lanes at a time; lane by lane it would cost half as much as the rounds.
  for (std::size_t i = 0; i < 16; i += 4) {
    for (std::size_t l = 0; l < n; l += 4) {
      __m128i a[4];
      std::memcpy(&a[0], &rows[i + 0][l], 16);
      std::memcpy(&a[1], &rows[i + 1][l], 16);
      std::memcpy(&a[2], &rows[i + 2][l], 16);
      std::memcpy(&a[3], &rows[i + 3][l], 16);
      const __m128i lanes01_words01 = _mm_unpacklo_epi32(a[0], a[1]);
      const __m128i lanes01_words23 = _mm_unpacklo_epi32(a[2], a[3]);
      const __m128i lanes23_words01 = _mm_unpackhi_epi32(a[0], a[1]);
      const __m128i lanes23_words23 = _mm_unpackhi_epi32(a[2], a[3]);
      a[0] = _mm_unpacklo_epi64(lanes01_words01, lanes01_words23);
      a[1] = _mm_unpackhi_epi64(lanes01_words01, lanes01_words23);
      a[2] = _mm_unpacklo_epi64(lanes23_words01, lanes23_words23);
      a[3] = _mm_unpackhi_epi64(lanes23_words01, lanes23_words23);
      for (std::size_t k = 0; k < 4; ++k) {
        std::memcpy(out + block_size * (l + k) + 4 * i, &a[k], 16);
      }
    }
  }
#else
  for (std::size_t l = 0; l < n; ++l) {
    for (std::size_t i = 0; i < 16; ++i) {
      store_little_endian(rows[i][l], out + block_size * l + 4 * i);
    }
  }
#endif
}

// The n blocks from `state` on; the low half of the counter must not wrap among them.
template <std::size_t n>
DPGEP_INLINE void blocks_in_lanes(const State& state, std::uint8_t* out) {
  Lanes<n> initial[16];
  for (std::size_t i = 0; i < 16; ++i) {
    initial[i] = Lanes<n>{} + state[i];
  }
  std::uint32_t offsets[n];
  for (std::size_t l = 0; l < n; ++l) {
    offsets[l] = static_cast<std::uint32_t>(l);
  }
  Lanes<n> offset;
  std::memcpy(&offset, offsets, sizeof offset);
  initial[12] += offset;
  Lanes<n> x[16];
  std::memcpy(x, initial, sizeof x);
  twenty_rounds(x);
  for (std::size_t i = 0; i < 16; ++i) {
    x[i] += initial[i];
  }
  wipe(initial, sizeof initial);  // holds the key
  store_lanes<n>(x, out);
}

#if defined(DPGEP_WIDE_REGISTERS)
constexpr std::size_t n_wide_lanes = 2 * n_lanes;

[[gnu::target("avx512f")]] void wide_blocks(const State& state, std::uint8_t* out) {
  blocks_in_lanes<n_wide_lanes>(state, out);
}
#endif

}  // namespace

State initial_state(const Key& key, std::uint32_t counter, const Nonce& nonce) {
  State state{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};  // "expand 32-byte k"
  for (std::size_t i = 0; i < 8; ++i) {
    state[4 + i] = load_little_endian(&key[4 * i]);
  }
  state[12] = counter;
  for (std::size_t i = 0; i < 3; ++i) {
    state[13 + i] = load_little_endian(&nonce[4 * i]);
  }
  return state;
}

Block block(const State& state) {
  Block out;
  one_block(state, out.data());
  return out;
}

void advance(State& state, std::uint8_t* out, std::size_t n_blocks) {
  while (n_blocks > 0) {
    const auto fit = [&](std::size_t n) {
      return n <= n_blocks && state[12] <= UINT32_MAX - static_cast<std::uint32_t>(n - 1);
    };
    std::size_t n_done = fit(n_lanes) ? n_lanes : 1;
#if defined(DPGEP_WIDE_REGISTERS)
    if (has_wide_registers() && fit(n_wide_lanes)) n_done = n_wide_lanes;
    if (n_done == n_wide_lanes) wide_blocks(state, out);
#endif
    if (n_done == 1) {
      one_block(state, out);
    } else if (n_done == n_lanes) {
      blocks_in_lanes<n_lanes>(state, out);
    }
    count(state, n_done);
    out += n_done * block_size;
    n_blocks -= n_done;
  }
}

}  // namespace dpgep::chacha20
