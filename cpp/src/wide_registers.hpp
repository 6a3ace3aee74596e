// Registers of AVX-512: twice as wide as those of AVX2, and twice as many. Functions that are
// marked `gnu::target("avx512f")` use them where the processor has them; a variant of its own for
// these few would cost as much as all others.
#pragma once

#if defined(__AVX2__) && defined(__GNUC__)
#define DPGEP_WIDE_REGISTERS
#include <cpuid.h>
#endif

namespace dpgep {

#if defined(DPGEP_WIDE_REGISTERS)
// The processor has them, and the operating system saves them (XCR0, which can be read wherever AVX
// runs). In wheels __builtin_cpu_supports says no: the run time of zig has no table for it.
inline bool find_wide_registers() {
  constexpr unsigned avx512f = 1u << 16, all_saved = 0xe6;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0, saved = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  __asm__("xgetbv" : "=a"(saved), "=d"(edx) : "c"(0));
  return (ebx & avx512f) != 0 && (saved & all_saved) == all_saved;
}

// A function: compilers set inline variables after others of a file, which may ask for them.
inline bool has_wide_registers() {
  static const bool found = find_wide_registers();
  return found;
}
#else
inline bool has_wide_registers() {
  return false;
}
#endif

}  // namespace dpgep
