// Normal deviates rounded exactly to integers: no floating point, no approximation.
//
// The law. Let H succeed with probability e^(-1/2). The sampler is algorithm N of Karney, "Sampling
// exactly from the normal distribution", ACM Trans. Math. Softw. 42 (2016) 3:
//   N1  k = the number of successes of H before the first failure:   P(k) ~ e^(-k/2);
//   N2  k (k - 1) more trials of H must all succeed, else N1:        P(k) ~ e^(-k^2 / 2);
//   N3  x uniform in (0, 1);
//   N4  k + 1 trials, each of probability e^(-x (2k + x) / (2k + 2)), must all succeed, else N1:
//       the density of (k, x) is then ~ e^(-k^2/2 - x (2k + x)/2) = e^(-(k + x)^2 / 2),
//       so that k + x is |N|, N standard normal;
//   N5  a fair sign.
//
// Why each trial is exact (von Neumann 1951). For independent uniform U1, U2, ..., and t in (0, 1),
//   P(t > U1 > ... > Un) = t^n / n!,   so that the longest such run has an even length with
//   probability sum_n (-t)^n / n! = e^(-t).
// H is the case t = 1/2. In N4 each step of the run is also kept with probability
// p = (2k + x) / (2k + 2), decided by one more uniform R < p: then t^n becomes (p x)^n.
//
// Why no comparison is approximate. A uniform is a sequence of independent digits of 16 bits, drawn
// when they are first looked at. Two uniforms are compared at the first digit where they differ.
// R < p, that is (2k + 2) R < 2k + x, is decided by as many digits of R and x as leave no doubt, in
// integers. Every digit, once drawn, belongs to its number for good: x keeps the digits that the
// trials drew. So the decisions are functions of infinitely precise uniforms.
//
// Why the rounding is exact. round(scale (k + x)) = scale k + floor(scale x + 1/2), and the known
// digits enclose x; digits are added until both ends of the enclosure round alike. This ends with
// probability one; a number that needs more than 4096 bits (probability 2^-4095 a comparison) is an
// exception, not an approximation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

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
// N1, N2, N5 take single bits, from the lowest up, of one word after another. The first bit of a
// trial of H says whether U1 >= 1/2, a success; otherwise a half gives 15 more bits of U1 (low) and
// 16 of U2 (high), and each later number of the run takes 16 bits (low) of a half. x takes a word,
// of which the highest 16 bits are its first digit. Each step of N4 takes a half: the first digits
// of U (low) and R (high). A number of one digit that needs another takes a word and uses its upper
// 48 bits; a number of four digits or more takes a word whole.
template <class Source>
class ExactNormal {
 public:
  explicit ExactNormal(Source& source) : source_(source) {}
  ~ExactNormal() {
    wipe(&bits_, sizeof bits_);
    wipe(&x_, sizeof x_);
    wipe(&spare_, sizeof spare_);
    wipe(&fraction_, sizeof fraction_);
  }
  ExactNormal(const ExactNormal&) = delete;
  ExactNormal& operator=(const ExactNormal&) = delete;

  // round(scale N), 0 <= scale <= 2^56.
  std::int64_t operator()(std::uint64_t scale) {
    const std::uint64_t k = draw_modulus();
    if (k > largest_k) throw std::overflow_error("a deviate leaves int64");
    const std::uint64_t magnitude = scale * k + rounded_multiple_of_x(scale);
    const std::uint64_t minus = std::uint64_t{0} - static_cast<std::uint64_t>(take_bit());
    return static_cast<std::int64_t>((magnitude ^ minus) - minus);
  }

 private:
  static constexpr int digit_bits = 16;
  static constexpr std::size_t max_words = 64;
  static constexpr std::uint64_t largest_k = 126;  // (126 + 1) 2^56 < 2^63; P(k > 126) < 2^-11600
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

  // N1 to N4: returns k and leaves x in x_.
  std::uint64_t draw_modulus() {
    for (;;) {
      const std::uint64_t k = count_successes();
      if (k > 1 && !all_succeed(k * (k - 1))) continue;
      x_.start_with_word(source_.word());
      std::uint64_t n_left = k + 1;
      while (n_left > 0 && accepts(k)) --n_left;
      if (n_left == 0) return k;
    }
  }

  // ---- H ----

  std::uint64_t count_successes() {
    std::uint64_t n = 0;
    for (;;) {
      n += take_run_of_ones();
      if (!succeeds_below_half()) return n;
      ++n;
    }
  }

  bool all_succeed(std::uint64_t n_trials) {
    for (; n_trials > 0; --n_trials) {
      if (take_bit() == 0 && !succeeds_below_half()) return false;
    }
    return true;
  }

  // A trial of H whose U1 is below 1/2: a run of length one so far.
  bool succeeds_below_half() {
    const std::uint32_t half = source_.half();
    const std::uint32_t first = half & 0x7fffu;
    const std::uint32_t second = half >> 16;
    if (second > first) return false;
    return longer_run_is_even(first, second);
  }

  bool longer_run_is_even(std::uint32_t first, std::uint32_t second) {
    Uniform* previous = &spare_[0];
    Uniform* next = &spare_[1];
    previous->start_with_digit(first);
    next->start_with_digit(second);
    bool even = false;
    while (is_less(*next, *previous)) {
      even = !even;
      std::swap(previous, next);
      next->start_with_digit(source_.half() & 0xffffu);
    }
    return even;
  }

  // ---- N4: succeeds with probability e^(-x (2k + x) / (2k + 2)) (Karney's algorithm B) ----

  bool accepts(std::uint64_t k) {
    const std::uint64_t m = 2 * k + 2;
    const std::uint64_t bound = (2 * k << digit_bits) + x_.first_digit();
    Uniform* previous = &x_;
    std::uint32_t previous_digit = x_.first_digit();
    for (bool even = true;; even = !even) {
      const std::uint32_t half = source_.half();
      const std::uint32_t u = half & 0xffffu;
      const std::uint64_t r = m * (half >> 16);  // (2k + 2) R lies in [r, r + m) 2^-16
      // All three without a branch: the outcome is hard to predict, doubt is not.
      const bool goes_on = (u < previous_digit) & (r < bound);
      const bool in_doubt = (u == previous_digit) | ((r <= bound) & (r + m > bound));
      if (DPGEP_RARELY(in_doubt)) {
        Uniform* const next = previous == &spare_[0] ? &spare_[1] : &spare_[0];
        next->start_with_digit(u);
        if (!is_less(*next, *previous) || !is_below_p(half >> 16, k)) return even;
        previous = next;
      } else {
        if (!goes_on) return even;
        previous = previous == &spare_[0] ? &spare_[1] : &spare_[0];
        previous->start_with_digit(u);
      }
      previous_digit = u;
    }
  }

  // Whether (2k + 2) R < 2k + x, R starting with the digit r.
  DPGEP_RARE bool is_below_p(std::uint32_t r, std::uint64_t k) {
    const auto m = static_cast<std::int64_t>(2 * k + 2);
    fraction_.start_with_digit(r);
    // The difference of the two sides lies in (difference - 1, difference + m) times 2^-16 (i + 1).
    std::int64_t difference = -(m - 2);
    for (std::size_t i = 0;; ++i) {
      const auto r_digit = static_cast<std::int64_t>(fraction_.digit(i, source_));
      const auto x_digit = static_cast<std::int64_t>(x_.digit(i, source_));
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

  // floor(scale x + 1/2), halves away from zero (an event of probability zero).
  std::uint64_t rounded_multiple_of_x(std::uint64_t scale) {
    const Wide lowest = static_cast<Wide>(scale) * x_.word(0, source_) + (Wide{1} << 63);
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
    if (n_bits_ == 0) refill_bits();
    const auto bit = static_cast<std::uint32_t>(bits_ & 1u);
    bits_ >>= 1;
    --n_bits_;
    return bit;
  }

  // The number of ones before the next zero; takes them and the zero.
  std::uint64_t take_run_of_ones() {
    std::uint64_t n = 0;
    for (;;) {
      if (n_bits_ == 0) refill_bits();
      const int run = trailing_ones(bits_);
      if (run < n_bits_) {
        bits_ = bits_ >> run >> 1;
        n_bits_ -= run + 1;
        return n + static_cast<std::uint64_t>(run);
      }
      n += static_cast<std::uint64_t>(n_bits_);
      n_bits_ = 0;
    }
  }

  void refill_bits() {
    bits_ = source_.word();
    n_bits_ = 64;
  }

  static int trailing_ones(std::uint64_t word) {
    if (~word == 0) return 64;
#if defined(__GNUC__)
    return __builtin_ctzll(~word);
#else
    int n = 0;
    for (; (word & 1u) != 0; word >>= 1) ++n;
    return n;
#endif
  }

  Source& source_;
  std::uint64_t bits_ = 0;  // the lowest n_bits_ are unused, those above are zero
  int n_bits_ = 0;
  Uniform x_;
  Uniform spare_[2];
  Uniform fraction_;
};

}  // namespace dpgep
