#pragma once

#include <cstdint>

namespace dpgep {

// The finalizer of SplitMix64: a bijection whose every bit depends on all.
inline std::uint64_t splitmix(std::uint64_t word) {
  word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
  word = (word ^ word >> 27) * 0x94D049BB133111EBu;
  return word ^ word >> 31;
}

}  // namespace dpgep
