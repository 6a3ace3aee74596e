#include "dpgep/normal.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "dpgep/wipe.hpp"

namespace dpgep {
namespace {

constexpr double two_pi = 6.283185307179586476925286766559;
constexpr Index chunk_pairs = 128;

struct Pair {
  std::uint64_t radius_word;
  std::uint64_t angle_word;
};

std::uint64_t from_little_endian(std::uint64_t word) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return __builtin_bswap64(word);
#else
  return word;
#endif
}

double radius(std::uint64_t word) {
  return std::sqrt(-2.0 * std::log((static_cast<double>(word) + 1.0) * 0x1p-64));
}

double angle(std::uint64_t word) {
  return two_pi * (static_cast<double>(word >> 11) * 0x1p-53);
}

}  // namespace

void fill_normal(NoiseStream::Lease& stream, double* out, Index n) {
  std::array<Pair, chunk_pairs> pairs;
  Index most_pairs = 0;
  while (n > 0) {
    const Index n_pairs = std::min(chunk_pairs, (n + 1) / 2);
    most_pairs = std::max(most_pairs, n_pairs);
    stream.read(reinterpret_cast<std::uint8_t*>(pairs.data()),
                static_cast<std::size_t>(n_pairs) * sizeof(Pair));
    for (Index i = 0; i < n_pairs; ++i) {
      const Pair& pair = pairs[static_cast<std::size_t>(i)];
      const double r = radius(from_little_endian(pair.radius_word));
      const double t = angle(from_little_endian(pair.angle_word));
      out[2 * i] = r * std::cos(t);
      if (2 * i + 1 < n) out[2 * i + 1] = r * std::sin(t);
    }
    out += 2 * n_pairs;
    n -= 2 * n_pairs;
  }
  wipe(pairs.data(), static_cast<std::size_t>(most_pairs) * sizeof(Pair));
}

NormalSequence::~NormalSequence() {
  wipe(buffer_.data(), static_cast<std::size_t>(n_used_) * sizeof(double));
}

void NormalSequence::refill() {
  n_ready_ = std::min(capacity, n_left_);
  eigen_assert(n_ready_ > 0 && "the sequence is longer than was announced");
  fill_normal(lease_, buffer_.data(), n_ready_);
  n_left_ -= n_ready_;
  n_used_ = std::max(n_used_, n_ready_);
  position_ = 0;
}

}  // namespace dpgep
