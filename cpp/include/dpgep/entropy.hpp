// Randomness from the operating system.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpgep {

// Fills n bytes from the operating system's generator for keys. Throws std::system_error when it
// cannot; there is no weaker fallback.
void fill_from_operating_system(std::uint8_t* out, std::size_t n);

}  // namespace dpgep
