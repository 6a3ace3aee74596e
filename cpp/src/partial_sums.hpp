// Sums that are made in pieces: every chunk of the work has an array of its own, and the arrays are
// added in order, so that the bits do not depend on the threads.
#pragma once

#include <algorithm>

#include "dpgep/parallel.hpp"
#include "large_array.hpp"

namespace dpgep {

// Below this many additions a thread costs more than it saves.
inline constexpr double work_of_a_thread = 5e5;

inline int threads_for(double work, int n_threads) {
  return work < work_of_a_thread ? 1 : n_threads;
}

class PartialSums {
 public:
  PartialSums(Index n_chunks, Index size)
      : n_chunks_(n_chunks), size_(size), sums_(n_chunks * size) {}

  // Zeros: set by the thread that fills them.
  double* start(Index chunk) {
    double* const sums = sums_.data() + chunk * size_;
    std::fill_n(sums, size_, 0.0);
    return sums;
  }

  // out = factor * (sum of all chunks).
  void add_up(double factor, double* out, int n_threads) const {
    constexpr Index tile = 4096;
    const Index n_tiles = (size_ + tile - 1) / tile;
    const double work = static_cast<double>(n_chunks_) * static_cast<double>(size_);
    parallel_for(n_tiles, threads_for(work, n_threads), [&](Index task) {
      const Index first = task * tile;
      const Index last = std::min(size_, first + tile);
      std::fill(out + first, out + last, 0.0);
      for (Index chunk = 0; chunk < n_chunks_; ++chunk) {
        const double* const sums = sums_.data() + chunk * size_;
        for (Index j = first; j < last; ++j) out[j] += sums[j];
      }
      for (Index j = first; j < last; ++j) out[j] *= factor;
    });
  }

 private:
  Index n_chunks_, size_;
  LargeArray<double> sums_;
};

}  // namespace dpgep
