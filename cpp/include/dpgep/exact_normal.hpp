// Normal deviates rounded exactly to integers: no floating point, no approximation.
//
// The law. A cell i = 0, 1, ... is 1/32 of a deviation wide:
//   C1  i with a probability in proportion to e^(-i^2 / 2048), from a table (normal_cells.hpp);
//   C2  x uniform in (0, 1);
//   C3  a trial of probability e^(-x (2i + x) / 2048) must succeed, else C1: the density of (i, x)
//       is then ~ e^(-i^2 / 2048 - x (2i + x) / 2048) = e^(-((i + x) / 32)^2 / 2), so that
//       (i + x) / 32 is |N|, N standard normal;
//   C4  a fair sign.
// It is Karney's algorithm N ("Sampling exactly from the normal distribution", ACM Trans. Math.
// Softw. 42 (2016) 3) with narrow cells, chosen from a table rather than by trials: of his trials,
// of which each may go either way, one is left, and 98 of 100 succeed.
//
// Why the cell is exact. U, uniform in (0, 1), chooses the cell i with c_(i-1) <= U < c_i, where
// c_i = sum_(j <= i) e^(-j^2 / 2048) / 41. Beyond the limit of c, 0.99, it is drawn again. The
// first 480 binary digits of each c_i are known, and decide unless they are those of U, an
// exception.
//
// Why the trial is exact (von Neumann 1951). For independent uniform U1, U2, ..., and t in (0, 1),
//   P(t > U1 > ... > Un) = t^n / n!,   so that the longest such run has an even length with
//   probability sum_n (-t)^n / n! = e^(-t).
// Here t = x, and each step of the run is also kept with probability p = (2i + x) / 2048 < 1,
// decided by one more uniform R < p: then t^n becomes (p x)^n.
//
// Why no comparison is approximate. A uniform is a sequence of independent digits of 16 bits, drawn
// when they are first looked at. Two uniforms are compared at the first digit where they differ.
// R < p, that is 2048 R < 2i + x, is decided by as many digits of R and x as leave no doubt, in
// integers. Every digit, once drawn, belongs to its number for good: x keeps the digits that the
// trial drew. So the decisions are functions of infinitely precise uniforms.
//
// Why the rounding is exact. round(scale (i + x) / 32) = floor((scale i + floor(scale x) + 16) /
// 32), and the known digits enclose x; digits are added until both ends of the enclosure agree in
// floor(scale x). This ends with probability one; a number that needs more than 4096 bits
// (probability 2^-4095 a comparison) or is too near the end of a cell (2^-470 a deviate) is an
// exception, not an approximation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "dpgep/normal_cells.hpp"
#include "dpgep/wipe.hpp"

#if defined(__GNUC__)
#define DPGEP_RARE __attribute__((noinline, cold))
#define DPGEP_RARELY(condition) __builtin_expect(static_cast<bool>(condition), 0)
#else
#define DPGEP_RARE
#define DPGEP_RARELY(condition) (condition)
#endif

namespace dpgep {

inline constexpr std::uint64_t max_exact_scale = std::uint64_t{1} << 56;

inline void require_exact_scale(std::int64_t scale, const char* name) {
  if (scale < 0 || scale > static_cast<std::int64_t>(max_exact_scale)) {
    throw std::invalid_argument(std::string(name) + " must satisfy 0 <= " + name +
                                " <= 2**56, not " + std::to_string(scale));
  }
}

// Draws deviates from a source of independent uniform bits, in a fixed order:
//   Source::half() -> 32 bits;  Source::word() -> 64 bits.
// U takes a half, and words while its digits are those of the end of a cell. x takes a word, of
// which the highest 16 bits are its first digit. Each step of C3 takes a half: the first digits of
// U (low) and R (high). A number of one digit that needs another takes a word and uses its upper 48
// bits; a number of four digits or more takes a word whole. Signs are single bits, from the lowest
// up, of one word after another.
template <class Source>
class ExactNormal {
 public:
  explicit ExactNormal(Source& source) : source_(source) {}
  ~ExactNormal() {
    wipe(&bits_, sizeof bits_);
    wipe(&x_, sizeof x_);
    wipe(&spare_, sizeof spare_);
    wipe(&fraction_, sizeof fraction_);
    wipe(&tie_, sizeof tie_);
  }
  ExactNormal(const ExactNormal&) = delete;
  ExactNormal& operator=(const ExactNormal&) = delete;

  // round(scale N), 0 <= scale <= 2^56: less than 28 * 2^56 in magnitude.
  std::int64_t operator()(std::uint64_t scale) {
    const std::uint64_t i = draw_cell();
    const Wide sum = static_cast<Wide>(scale) * i + floor_of_multiple_of_x(scale);
    const auto magnitude = static_cast<std::uint64_t>((sum + NormalCells::in_one / 2) >> 5);
    const std::uint64_t minus = std::uint64_t{0} - static_cast<std::uint64_t>(take_bit());
    return static_cast<std::int64_t>((magnitude ^ minus) - minus);
  }

 private:
  static constexpr int digit_bits = 16;
  static constexpr std::size_t max_words = 64;
  static_assert(NormalCells::in_one == 32, "cells are 1/32 of a deviation wide");
  __extension__ using Wide = unsigned __int128;

  // A uniform number of [0, 1): its digits so far, the first one highest in its word.
  class Uniform {
   public:
    void start_with_digit(std::uint32_t digit) {
      first_ = digit;
      words_[0] = static_cast<std::uint64_t>(digit) << 48;
      n_digits_ = 1;
    }
    void start_with_word(std::uint64_t word) {
      first_ = static_cast<std::uint32_t>(word >> 48);
      words_[0] = word;
      n_digits_ = 4;
    }
    std::uint32_t first_digit() const { return first_; }
    std::uint32_t digit(std::size_t i, Source& source) {
      if (i >= n_digits_) extend(source);
      return static_cast<std::uint32_t>(words_[i / 4] >> (48 - digit_bits * (i % 4))) & 0xffffu;
    }
    std::uint64_t word(std::size_t i, Source& source) {
      if (4 * i >= n_digits_) extend(source);
      return words_[i];
    }

   private:
    DPGEP_RARE void extend(Source& source) {
      if (n_digits_ == 1) {
        words_[0] |= source.word() >> digit_bits;
        n_digits_ = 4;
        return;
      }
      if (n_digits_ == 4 * max_words) {
        throw std::runtime_error("a comparison of random numbers is open after 4096 bits");
      }
      words_[n_digits_ / 4] = source.word();
      n_digits_ += 4;
    }

    std::uint32_t first_ = 0;
    std::size_t n_digits_ = 0;
    std::array<std::uint64_t, max_words> words_;
  };

  // C1 to C3: returns i and leaves x in x_.
  std::uint64_t draw_cell() {
    for (;;) {
      const std::uint32_t u = source_.half();
      if (u > cells_.last_end()) continue;
      std::size_t i = cells_.first_of(u);
      while (DPGEP_RARELY(u >= cells_.end(i))) {
        if (u == cells_.end(i)) {
          i = cell_among_ties(u, i);
          break;
        }
        ++i;
      }
      if (DPGEP_RARELY(i == NormalCells::n_cells)) continue;
      x_.start_with_word(source_.word());
      if (accepts(i)) return i;
    }
  }

  // The first cell from i on whose end is beyond U, which starts with u as the end of i does.
  DPGEP_RARE std::size_t cell_among_ties(std::uint32_t u, std::size_t i) {
    std::size_t n_drawn = 0;
    for (; i < NormalCells::n_cells && u == cells_.end(i); ++i) {
      const NormalCells::Digits& end = cells_.digits_of_end(i);
      for (std::size_t word = 0;; ++word) {
        if (word == end.size()) {
          throw std::runtime_error("a deviate is within 2^-480 of the end of a cell");
        }
        if (word == n_drawn) tie_[n_drawn++] = source_.word();
        if (tie_[word] == end[word]) continue;
        if (tie_[word] < end[word]) return i;
        break;
      }
    }
    return i;
  }

  // C3: succeeds with probability e^(-x (2i + x) / 2048) (Karney's algorithm B).
  bool accepts(std::uint64_t i) {
    const std::uint64_t bound = (2 * i << digit_bits) + x_.first_digit();
    Uniform* previous = &x_;
    std::uint32_t previous_digit = x_.first_digit();
    for (bool even = true;; even = !even) {
      const std::uint32_t half = source_.half();
      const std::uint32_t u = half & 0xffffu;
      const std::uint64_t r = trial * (half >> 16);  // 2048 R lies in [r, r + 2048) 2^-16
      // All three without a branch: doubt is rare.
      const bool goes_on = (u < previous_digit) & (r < bound);
      const bool in_doubt = (u == previous_digit) | ((r <= bound) & (r + trial > bound));
      if (DPGEP_RARELY(in_doubt)) {
        Uniform* const next = previous == &spare_[0] ? &spare_[1] : &spare_[0];
        next->start_with_digit(u);
        if (!is_less(*next, *previous) || !is_below_p(half >> 16, i)) return even;
        previous = next;
      } else {
        if (!DPGEP_RARELY(goes_on)) return even;
        previous = previous == &spare_[0] ? &spare_[1] : &spare_[0];
        previous->start_with_digit(u);
      }
      previous_digit = u;
    }
  }

  // Whether 2048 R < 2i + x, R starting with the digit r.
  DPGEP_RARE bool is_below_p(std::uint32_t r, std::uint64_t i) {
    const auto m = static_cast<std::int64_t>(trial);
    fraction_.start_with_digit(r);
    // The difference of the two sides lies in (difference - 1, difference + m) 2^(-16 (n + 1)).
    std::int64_t difference = -2 * static_cast<std::int64_t>(i);
    for (std::size_t n = 0;; ++n) {
      const auto r_digit = static_cast<std::int64_t>(fraction_.digit(n, source_));
      const auto x_digit = static_cast<std::int64_t>(x_.digit(n, source_));
      difference = difference * (std::int64_t{1} << digit_bits) + m * r_digit - x_digit;
      if (difference + m <= 0) return true;
      if (difference >= 1) return false;
    }
  }

  bool is_less(Uniform& a, Uniform& b) {
    if (a.first_digit() != b.first_digit()) return a.first_digit() < b.first_digit();
    return is_less_after_tie(a, b);
  }

  DPGEP_RARE bool is_less_after_tie(Uniform& a, Uniform& b) {
    for (std::size_t i = 1;; ++i) {
      const std::uint32_t a_digit = a.digit(i, source_);
      const std::uint32_t b_digit = b.digit(i, source_);
      if (a_digit != b_digit) return a_digit < b_digit;
    }
  }

  // ---- rounding ----

  // floor(scale x).
  std::uint64_t floor_of_multiple_of_x(std::uint64_t scale) {
    const Wide lowest = static_cast<Wide>(scale) * x_.word(0, source_);
    const auto floor = static_cast<std::uint64_t>(lowest >> 64);
    const auto fraction = static_cast<std::uint64_t>(lowest);
    // With y = 2^64 x mod 1 still to be known: is fraction + scale y >= 2^64 ?
    const std::uint64_t missing = std::uint64_t{0} - fraction;  // 2^64 - fraction, or 0 for 2^64
    if (fraction == 0 || missing >= scale) return floor;
    return floor + (reaches(scale, missing) ? 1u : 0u);
  }

  // Whether scale y >= missing, 0 < missing < scale, y being x without its first word.
  DPGEP_RARE bool reaches(std::uint64_t scale, std::uint64_t missing) {
    for (std::size_t i = 1;; ++i) {
      const Wide lowest = static_cast<Wide>(scale) * x_.word(i, source_);
      const Wide target = static_cast<Wide>(missing) << 64;
      if (lowest >= target) return true;
      if (target - lowest >= scale) return false;
      missing = static_cast<std::uint64_t>(target - lowest);
    }
  }

  // ---- single bits ----

  std::uint32_t take_bit() {
    if (n_bits_ == 0) {
      bits_ = source_.word();
      n_bits_ = 64;
    }
    const auto bit = static_cast<std::uint32_t>(bits_ & 1u);
    bits_ >>= 1;
    --n_bits_;
    return bit;
  }

  static constexpr std::uint64_t trial = 2 * NormalCells::in_one * NormalCells::in_one;

  Source& source_;
  const NormalCells& cells_ = NormalCells::get();
  std::uint64_t bits_ = 0;  // the lowest n_bits_ are unused, those above are zero
  int n_bits_ = 0;
  Uniform x_;
  Uniform spare_[2];
  Uniform fraction_;
  NormalCells::Digits tie_{};
};

}  // namespace dpgep
