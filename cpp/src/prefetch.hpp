// Requests for memory that will be read: the processor looks ahead by itself, but not beyond a
// page.
#pragma once

namespace dpgep {

inline void expect_to_read([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
  __builtin_prefetch(address);
#endif
}

// Into the second-level cache, where the first has no room for it yet.
inline void expect_to_read_later([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
  __builtin_prefetch(address, 0, 1);
#endif
}

}  // namespace dpgep
