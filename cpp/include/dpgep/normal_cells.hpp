// The cells from which exact normal deviates are drawn: i / 32 <= |N| < (i + 1) / 32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace dpgep {

// Binary digits of c_i = sum_(j <= i) e^(-j^2 / 2048) / 41, the ends of the cells: the first 480,
// in a half of 32 bits and 7 words, the highest first. The limit of c, about 0.99, has the digits
// of the last c_i: what lies beyond, e^(-392), is as far from a digit as the rounding of the
// others.
class NormalCells {
 public:
  static constexpr std::size_t n_cells = 896, in_one = 32;
  using Digits = std::array<std::uint64_t, 7>;

  // The table of this process, made when it is first asked for, which has to be before any fork. It
  // throws std::logic_error if rounding could have changed a digit: it does nowhere, as the table
  // is the same everywhere.
  static const NormalCells& get();

  std::uint32_t end(std::size_t cell) const { return ends_[cell]; }
  std::uint32_t last_end() const { return ends_[n_cells - 1]; }
  const Digits& digits_of_end(std::size_t cell) const { return digits_[cell]; }

  // The first cell that a number may be in that starts with this half, at most the last end.
  std::size_t first_of(std::uint32_t half) const { return first_[half >> 21]; }

 private:
  NormalCells();

  std::array<std::uint32_t, n_cells> ends_{};
  std::array<std::uint16_t, 2048> first_{};
  std::array<Digits, n_cells> digits_{};
};

}  // namespace dpgep
