#include "dpgep/exact_noise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "dpgep/exact_normal.hpp"
#include "dpgep/parallel.hpp"

namespace dpgep {
namespace {

constexpr Index chunk_size = 4096;
constexpr Index fewest_shared = 1 << 15;  // deviates for which other threads are begun
constexpr int shared_bits = 40;           // of a deviate that several entries share

std::uint64_t from_little_endian(std::uint64_t word) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return __builtin_bswap64(word);
#else
  return word;
#endif
}

std::uint32_t from_little_endian(std::uint32_t half) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return __builtin_bswap32(half);
#else
  return half;
#endif
}

// The key stream of one chunk, four bytes at a time.
class KeyStream {
 public:
  KeyStream(const chacha20::Key& key, std::uint64_t nonce)
      : state_(chacha20::initial_state(key, 0, nonce_bytes(nonce))) {}
  ~KeyStream() {
    wipe(state_.data(), sizeof state_);
    wipe(buffer_.data(), sizeof buffer_);
  }
  KeyStream(const KeyStream&) = delete;
  KeyStream& operator=(const KeyStream&) = delete;

  std::uint32_t half() {
    if (DPGEP_RARELY(position_ == buffer_.size())) refill();
    std::uint32_t half;
    std::memcpy(&half, buffer_.data() + position_, sizeof half);
    position_ += sizeof half;
    return from_little_endian(half);
  }

  std::uint64_t word() {
    if (DPGEP_RARELY(position_ + sizeof(std::uint64_t) > buffer_.size())) return two_halves();
    std::uint64_t word;
    std::memcpy(&word, buffer_.data() + position_, sizeof word);
    position_ += sizeof word;
    return from_little_endian(word);
  }

 private:
  static constexpr std::size_t buffer_blocks = 32;

  static chacha20::Nonce nonce_bytes(std::uint64_t nonce) {
    chacha20::Nonce bytes{};
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(nonce >> (8 * i));
    return bytes;
  }

  DPGEP_RARE std::uint64_t two_halves() {
    const std::uint64_t low = half();
    return low | static_cast<std::uint64_t>(half()) << 32;
  }

  DPGEP_RARE void refill() {
    chacha20::advance(state_, buffer_.data(), buffer_blocks);
    position_ = 0;
  }

  chacha20::State state_;
  std::array<std::uint8_t, buffer_blocks * chacha20::block_size> buffer_{};
  std::size_t position_ = sizeof buffer_;
};

// Given words in place of a key stream.
class Script {
 public:
  explicit Script(const ConstVectorView<std::uint64_t>& words) : words_(words) {}

  std::uint32_t half() {
    if (n_halves_ == 2 * words_.size()) {
      throw std::invalid_argument("digits must hold more than " + std::to_string(words_.size()) +
                                  " words");
    }
    const std::uint64_t word = words_[n_halves_ / 2];
    return static_cast<std::uint32_t>(n_halves_++ % 2 == 0 ? word : word >> 32);
  }

  std::uint64_t word() {
    const std::uint64_t low = half();
    return low | static_cast<std::uint64_t>(half()) << 32;
  }

  Index n_words_begun() const { return (n_halves_ + 1) / 2; }

 private:
  const ConstVectorView<std::uint64_t>& words_;
  Index n_halves_ = 0;
};

using Sampler = ExactNormal<KeyStream>;

// The key of one call.
class CallKey {
 public:
  explicit CallKey(NoiseStream& stream) {
    NoiseStream::Lease(stream).read(key_.data(), key_.size());
    if (stream.transcript() != nullptr) stream.transcript()->drew(key_);
  }
  ~CallKey() { wipe(key_.data(), key_.size()); }
  CallKey(const CallKey&) = delete;
  CallKey& operator=(const CallKey&) = delete;

  const chacha20::Key& get() const { return key_; }

 private:
  chacha20::Key key_{};
};

// fill(sampler, first, last) for every chunk [first, last) of n deviates.
template <class Fill>
void for_each_chunk(Index n, NoiseStream& stream, int n_threads, const Fill& fill) {
  require_threads(n_threads);
  const CallKey key(stream);
  const int n_useful = n < fewest_shared ? 1 : n_threads;
  parallel_for((n + chunk_size - 1) / chunk_size, n_useful, [&](Index chunk) {
    KeyStream source(key.get(), static_cast<std::uint64_t>(chunk));
    Sampler sampler(source);
    fill(sampler, chunk * chunk_size, std::min(n, (chunk + 1) * chunk_size));
  });
}

void add_checked(std::int64_t& entry, std::int64_t noise) {
  const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(entry) +
                                             static_cast<std::uint64_t>(noise));
  if (DPGEP_RARELY(((entry ^ sum) & (noise ^ sum)) < 0)) {  // no branch on a sign: half are taken
    throw std::invalid_argument("entry + noise must stay within int64");
  }
  entry = sum;
}

// draw() adds noise of the query's law to the values, or an audit's script gives the answer.
template <class Draw>
void answer(NoiseStream& stream, Query query, const Limbs& values, const Draw& draw) {
  if (stream.transcript() == nullptr) {
    draw();
  } else {
    stream.transcript()->noise(std::move(query), values, draw);
  }
}

Limbs one_limb(Rows<std::int64_t> low) {
  return {low, Rows<std::int64_t>(nullptr, 0, 0, Eigen::OuterStride<>(0))};
}

// Brings low limbs to 0 <= low < 2^bits; of a matrix that is symmetric, those of its upper
// triangle.
void carry(const Limbs& values, bool symmetric) {
  if (values.high.size() == 0) return;
  Rows<std::int64_t> low = values.low;
  Rows<std::int64_t> high = values.high;
  for (Index i = 0; i < low.rows(); ++i) {
    for (Index j = symmetric ? i : 0; j < low.cols(); ++j) {
      high(i, j) += low(i, j) >> values.bits;
      low(i, j) &= (std::int64_t{1} << values.bits) - 1;
    }
  }
}

// The number of entries of the upper triangle of a (d, d) matrix above row i.
Index entries_above(Index i, Index d) {
  return i * d - i * (i - 1) / 2;
}

// The row of the upper triangle with entry number `entry` of its row-major order.
Index row_of_entry(Index entry, Index d) {
  Index low = 0;
  Index high = d;
  while (high - low > 1) {
    const Index middle = low + (high - low) / 2;
    (entries_above(middle, d) <= entry ? low : high) = middle;
  }
  return low;
}

}  // namespace

void exact_normal(VectorView<std::int64_t> out, std::int64_t scale, NoiseStream& stream,
                  int n_threads) {
  require_exact_scale(scale, "scale");
  require_threads(n_threads);
  if (scale == 0) {
    out.setZero();
    return;
  }
  for_each_chunk(out.size(), stream, n_threads, [&](Sampler& sampler, Index first, Index last) {
    for (Index i = first; i < last; ++i) out[i] = sampler(static_cast<std::uint64_t>(scale));
  });
}

void exact_normal(VectorView<std::int64_t> out, const ConstVectorView<std::int64_t>& scales,
                  NoiseStream& stream, int n_threads) {
  if (scales.size() != out.size()) {
    throw std::invalid_argument("scales must have an entry for each of " +
                                std::to_string(out.size()) + ", not " +
                                std::to_string(scales.size()));
  }
  for (const std::int64_t scale : scales) require_exact_scale(scale, "scales");
  require_threads(n_threads);
  for_each_chunk(out.size(), stream, n_threads, [&](Sampler& sampler, Index first, Index last) {
    for (Index i = first; i < last; ++i) out[i] = sampler(static_cast<std::uint64_t>(scales[i]));
  });
}

void add_exact_noise(const Limbs& values, std::int64_t scale, NoiseStream& stream, int n_threads) {
  require_exact_scale(scale, "scale");
  require_threads(n_threads);
  Rows<std::int64_t> array = values.low;
  if (scale == 0 || array.size() == 0) return;
  const Index width = array.cols();
  answer(stream, {"independent", 0, 0, {scale}}, values, [&] {
    for_each_chunk(array.size(), stream, n_threads, [&](Sampler& sampler, Index first, Index last) {
      for (Index i = first; i < last; ++i) {
        add_checked(array(i / width, i % width), sampler(static_cast<std::uint64_t>(scale)));
      }
    });
    carry(values, false);
  });
}

void add_exact_noise(Rows<std::int64_t> array, std::int64_t scale, NoiseStream& stream,
                     int n_threads) {
  add_exact_noise(one_limb(array), scale, stream, n_threads);
}

void add_exact_symmetric_noise(const Limbs& values, std::int64_t diagonal_scale,
                               std::int64_t off_diagonal_scale, NoiseStream& stream,
                               int n_threads) {
  require_exact_scale(diagonal_scale, "diagonal_scale");
  require_exact_scale(off_diagonal_scale, "off_diagonal_scale");
  require_threads(n_threads);
  if (diagonal_scale == 0 && off_diagonal_scale == 0) return;
  Rows<std::int64_t> matrix = values.low;
  const Index d = matrix.cols();
  const auto add = [&](Sampler& sampler, Index first, Index last) {
    Index i = row_of_entry(first, d);
    Index j = i + first - entries_above(i, d);
    for (Index entry = first; entry < last; ++entry) {
      const std::int64_t scale = i == j ? diagonal_scale : off_diagonal_scale;
      add_checked(matrix(i, j), sampler(static_cast<std::uint64_t>(scale)));
      if (++j == d) j = ++i;
    }
  };
  answer(stream, {"symmetric", 0, 0, {diagonal_scale, off_diagonal_scale}}, values, [&] {
    for_each_chunk(entries_above(d, d), stream, n_threads, add);
    carry(values, true);
  });
}

void add_exact_symmetric_noise(Rows<std::int64_t> matrix, std::int64_t diagonal_scale,
                               std::int64_t off_diagonal_scale, NoiseStream& stream,
                               int n_threads) {
  add_exact_symmetric_noise(one_limb(matrix), diagonal_scale, off_diagonal_scale, stream,
                            n_threads);
}

void add_exact_noise_along(VectorView<std::int64_t> out,
                           const ConstVectorView<std::int64_t>& scales,
                           const ConstVectorView<double>& direction, std::int64_t shared_scale,
                           NoiseStream& stream, int n_threads) {
  const Rows<std::int64_t> row(out.data(), 1, out.size(), Eigen::OuterStride<>(out.size()));
  Query query{"along", 0, 0, {scales.begin(), scales.end()}, {direction.begin(), direction.end()}};
  query.scales.push_back(shared_scale);
  answer(stream, std::move(query), one_limb(row), [&] {
    Vector<std::int64_t> noise(out.size());
    exact_normal(VectorView<std::int64_t>(noise.data(), noise.size()), scales, stream, n_threads);
    std::int64_t deviate = 0;
    exact_normal(VectorView<std::int64_t>(&deviate, 1), std::int64_t{1} << shared_bits, stream, 1);
    const double h = std::ldexp(static_cast<double>(deviate), -shared_bits);
    for (Index i = 0; i < out.size(); ++i) {
      const double shared = static_cast<double>(shared_scale) * (direction[i] * h);
      add_checked(out[i], noise[i]);
      add_checked(out[i], static_cast<std::int64_t>(std::nearbyint(shared)));
    }
  });
}

Index exact_normal_scripted(const ConstVectorView<std::uint64_t>& words, std::int64_t scale,
                            VectorView<std::int64_t> out) {
  require_exact_scale(scale, "scale");
  Script source(words);
  ExactNormal<Script> sampler(source);
  for (Index i = 0; i < out.size(); ++i) out[i] = sampler(static_cast<std::uint64_t>(scale));
  return source.n_words_begun();
}

}  // namespace dpgep
