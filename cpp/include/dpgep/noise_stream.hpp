// The stream of random bytes that all noise is made of: a ChaCha20 key stream, safe to share
// between threads and across fork.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "dpgep/chacha20.hpp"
#include "dpgep/transcript.hpp"

namespace dpgep {

// Counts the forks between the first process and this one.
std::uint64_t fork_generation();

class NoiseStream {
 public:
  // Keyed by the operating system, and keyed again in a forked child: otherwise parent and child
  // would add the same noise, and the difference of their answers would be exact.
  explicit NoiseStream(std::uint64_t nonce = 0);

  // Deterministic, in a forked child too.
  NoiseStream(const chacha20::Key& key, std::uint64_t nonce);

  ~NoiseStream();
  NoiseStream(const NoiseStream&) = delete;
  NoiseStream& operator=(const NoiseStream&) = delete;

  bool seeded() const { return seeded_; }

  // An audit's, which keeps, or gives, what is drawn from here on; null in all other runs.
  void attach(std::shared_ptr<Transcript> transcript) { transcript_ = std::move(transcript); }
  Transcript* transcript() const { return transcript_.get(); }

  // Exclusive use of the stream while it lives, so that a call draws one unbroken sequence.
  class Lease {
   public:
    explicit Lease(NoiseStream& stream);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    // The next n bytes of the key stream.
    void read(std::uint8_t* out, std::size_t n);

   private:
    NoiseStream& stream_;
  };

 private:
  static constexpr std::size_t buffer_blocks = 16;

  void lock();
  void unlock();
  void set_key(const chacha20::Key& key);
  void set_key_from_operating_system();
  void forget_parent_of_fork();
  void refill();

  const bool seeded_;
  const std::uint64_t nonce_;
  std::uint64_t generation_ = 0;          // of forks, when the key was set
  std::atomic<std::uint64_t> holder_{0};  // 0: free; else 1 + generation of the process that holds
  chacha20::State state_{};
  std::array<std::uint8_t, buffer_blocks * chacha20::block_size> buffer_{};
  std::size_t position_ = 0;
  std::shared_ptr<Transcript> transcript_;
};

}  // namespace dpgep
