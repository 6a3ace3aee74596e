#include "dpgep/noise_stream.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "dpgep/entropy.hpp"
#include "dpgep/wipe.hpp"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace dpgep {
namespace {

std::atomic<std::uint64_t> forks_since_start{0};

void count_forks() {
#if !defined(_WIN32)
  static const int error = ::pthread_atfork(
      nullptr, nullptr, [] { forks_since_start.fetch_add(1, std::memory_order_relaxed); });
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "pthread_atfork failed");
  }
#endif
}

chacha20::Nonce nonce_bytes(std::uint64_t nonce) {
  chacha20::Nonce bytes{};
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::uint8_t>(nonce >> (8 * i));
  }
  return bytes;
}

}  // namespace

std::uint64_t fork_generation() {
  return forks_since_start.load(std::memory_order_relaxed);
}

NoiseStream::NoiseStream(std::uint64_t nonce) : seeded_(false), nonce_(nonce) {
  count_forks();
  set_key_from_operating_system();
}

NoiseStream::NoiseStream(const chacha20::Key& key, std::uint64_t nonce)
    : seeded_(true), nonce_(nonce) {
  count_forks();
  set_key(key);
}

NoiseStream::~NoiseStream() {
  wipe(state_.data(), sizeof state_);
  wipe(buffer_.data(), sizeof buffer_);
}

void NoiseStream::set_key(const chacha20::Key& key) {
  wipe(buffer_.data(), sizeof buffer_);
  generation_ = fork_generation();
  state_ = chacha20::initial_state(key, 0, nonce_bytes(nonce_));
  position_ = buffer_.size();
}

void NoiseStream::set_key_from_operating_system() {
  chacha20::Key key{};
  fill_from_operating_system(key.data(), key.size());
  set_key(key);
  wipe(key.data(), key.size());
}

void NoiseStream::forget_parent_of_fork() {
  if (!seeded_ && generation_ != fork_generation()) set_key_from_operating_system();
}

void NoiseStream::refill() {
  chacha20::advance(state_, buffer_.data(), buffer_blocks);
  position_ = 0;
}

// A lock that a fork cannot orphan. A std::mutex held by another thread at the moment of a fork
// stays locked in the child for ever; here the child sees that the holder is of an older
// generation, hence a thread that does not exist in this process, and takes the lock over.
void NoiseStream::lock() {
  const std::uint64_t mine = fork_generation() + 1;
  for (int attempt = 0;; ++attempt) {
    std::uint64_t holder = holder_.load(std::memory_order_relaxed);
    if (holder != mine && holder_.compare_exchange_weak(holder, mine, std::memory_order_acquire)) {
      return;
    }
    if (attempt < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

void NoiseStream::unlock() {
  holder_.store(0, std::memory_order_release);
}

NoiseStream::Lease::Lease(NoiseStream& stream) : stream_(stream) {
  if (stream.transcript() != nullptr) stream.transcript()->require_query();
  stream_.lock();
}

NoiseStream::Lease::~Lease() {
  stream_.unlock();
}

void NoiseStream::Lease::read(std::uint8_t* out, std::size_t n) {
  while (n > 0) {
    stream_.forget_parent_of_fork();
    if (stream_.position_ == stream_.buffer_.size()) stream_.refill();
    const std::size_t n_ready = std::min(n, stream_.buffer_.size() - stream_.position_);
    std::memcpy(out, stream_.buffer_.data() + stream_.position_, n_ready);
    stream_.position_ += n_ready;
    out += n_ready;
    n -= n_ready;
  }
}

}  // namespace dpgep
