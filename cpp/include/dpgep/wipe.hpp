// Erasing secrets from memory.
#pragma once

#include <cstddef>
#include <cstring>

namespace dpgep {

// Sets n bytes to zero. The compiler may drop an ordinary memset of memory that is about to die;
// it cannot drop this one, since the assembler statement claims to read the memory afterwards.
inline void wipe(void* memory, std::size_t n) {
  if (n == 0) return;  // an empty vector's memory may be null, which memset must not be given
#if defined(__GNUC__)
  std::memset(memory, 0, n);
  __asm__ __volatile__("" : : "r"(memory) : "memory");
#else
  volatile unsigned char* byte = static_cast<volatile unsigned char*>(memory);
  while (n-- > 0) *byte++ = 0;
#endif
}

}  // namespace dpgep
