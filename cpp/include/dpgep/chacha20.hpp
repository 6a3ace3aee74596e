// The ChaCha20 block function of RFC 8439, section 2.3.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace dpgep::chacha20 {

inline constexpr std::size_t key_size = 32;
inline constexpr std::size_t nonce_size = 12;
inline constexpr std::size_t block_size = 64;

using Key = std::array<std::uint8_t, key_size>;
using Nonce = std::array<std::uint8_t, nonce_size>;
using Block = std::array<std::uint8_t, block_size>;
using State = std::array<std::uint32_t, 16>;

// The sixteen input words: constants, key, block counter, nonce.
State initial_state(const Key& key, std::uint32_t counter, const Nonce& nonce);

Block block(const State& state);

// Blocks state, state + 1, ..., in order. Word 12 is the low and word 15 the high half of a 64-bit
// block counter; it is left at the first block not written.
void advance(State& state, std::uint8_t* out, std::size_t n_blocks);

}  // namespace dpgep::chacha20
