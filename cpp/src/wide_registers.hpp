// Registers of AVX-512: twice as wide as those of AVX2, and twice as many. Functions that are
// marked `gnu::target("avx512f")` use them where the processor has them; a variant of its own for
// these few would cost as much as all others.
#pragma once

namespace dpgep {

#if defined(__AVX2__) && defined(__GNUC__)
#define DPGEP_WIDE_REGISTERS
inline const bool has_wide_registers = __builtin_cpu_supports("avx512f") != 0;
#else
inline constexpr bool has_wide_registers = false;
#endif

}  // namespace dpgep
