// The checksum CRC-32 of zlib, gzip and PNG.
#pragma once

#include <cstdint>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// That of `bytes` after others, whose checksum is `before` (0: none).
std::uint32_t crc32(const ConstVectorView<std::uint8_t>& bytes, std::uint32_t before);

}  // namespace dpgep
