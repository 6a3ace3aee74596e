// Requests for memory that will be read: the processor looks ahead by itself, but not beyond a
// page.
#pragma once

#include <algorithm>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// GCC takes a function that does nothing else for one without effects, and removes its calls,
// unless there is a statement that it must keep.

inline void expect_to_read([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
  __builtin_prefetch(address);
  asm volatile("");
#endif
}

// Once: what else a solve works with may stay in the caches. Between six sweeps over 40 MB, Python
// took 3.5 ms instead of 4.2.
inline void expect_to_read_once([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
  __builtin_prefetch(address, 0, 0);
  asm volatile("");
#endif
}

// Into the second-level cache, where the first has no room for it yet.
inline void expect_to_read_later([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
  __builtin_prefetch(address, 0, 1);
  asm volatile("");
#endif
}

// How many rows after one, 8 KB beyond it, a row is asked for while that one is used: nearer ones
// memory has not sent yet when they are read, and of those further away it has sent the first in
// vain.
template <class Scalar>
inline Index row_distance(Index d) {
  return 1 + (Index{1} << 13) / (std::max<Index>(1, d) * static_cast<Index>(sizeof(Scalar)));
}

}  // namespace dpgep
