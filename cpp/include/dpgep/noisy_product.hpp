// Products with noisy symmetric matrices M + Z. Every answer is a combination of noisy products
// with orthonormal directions: no product of M leaves without its noise, not even with a remainder
// that is too short for a direction of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "dpgep/exact_products.hpp"
#include "dpgep/noise_stream.hpp"
#include "dpgep/symmetric_noise.hpp"

namespace dpgep {

enum class NoiseMode {
  none,   // the exact products
  fresh,  // a new Z for every call
  lazy,   // one Z for the life of the object
};

// Throws std::invalid_argument, listing the names, for any other.
NoiseMode parse_noise_mode(std::string_view name);

struct Noise {
  NoiseMode mode = NoiseMode::none;
  std::vector<double> scales;  // one for each matrix; 0: the matrix is public. Not used with `none`
  NoiseShape shape = NoiseShape::goe;
  Index n_products = 0;  // calls that are paid for, with `fresh`
  NoiseStream* stream = nullptr;
  Index max_directions = std::numeric_limits<Index>::max();  // to be remembered, with `lazy`
};

// Lazy noise would have to remember more directions than it may. Nothing was drawn.
class NoRoom : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// fresh: with V = L Q, Q orthonormal, the answer is L (Q M + Q Z); Q Z as of noise_times_vector for
// one direction, of noise_times_block for several.
//
// lazy: Z by deferred decisions. With the basis Q of the directions asked so far and Y = Q (M + Z),
// a new direction q, orthogonal to Q, is answered by
//   Q^T (Y q) + q (q . M q + s h) + (I - Q^T Q - q q^T)(M q + s / sqrt 2 g),
// drawn for each new direction in turn, for each matrix in turn: g (d deviates), then h (one). All
// else is a combination of answers. Memory O(d) for each direction and matrix.
//
// A public matrix answers exactly, and nothing is drawn for it.
//
// The answers belong to the process that made the object: a forked copy would draw other noise for
// the same paid answer, so it throws std::runtime_error.
class NoisyProducts {
 public:
  // Throws std::invalid_argument unless there are as many scales as matrices, all 0 <= scale < inf,
  // n_products >= 0, max_directions >= 0, and, where noise is to be drawn, a stream; lazy noise
  // must have the shape goe.
  NoisyProducts(const ExactProducts& exact, Noise noise);

  Index n_features() const { return exact_.n_features(); }
  NoiseMode mode() const { return noise_.mode; }
  Index n_directions() const { return basis_.rows(); }
  // Blocks that the exact products were asked for: passes over the data.
  Index n_passes() const { return n_passes_; }

  // For each matrix the products with the rows of V. Throws std::runtime_error beyond the calls
  // that are paid, NoRoom beyond max_directions, std::invalid_argument for V not finite or of
  // other width, and for several directions of fresh noise of shape iid.
  std::vector<Block> times(const ConstBlock& V);

 private:
  // Rows that are appended to, in room that grows geometrically.
  class GrowingBlock {
   public:
    explicit GrowingBlock(Index width) : width_(width) {}
    Index rows() const { return static_cast<Index>(entries_.size()) / width_; }
    ConstBlock view() const {
      return {entries_.data(), rows(), width_, Eigen::OuterStride<>(width_)};
    }
    void reserve(Index more) {
      const std::size_t needed = entries_.size() + static_cast<std::size_t>(more * width_);
      if (needed > entries_.capacity()) {
        entries_.reserve(std::max(needed, 2 * entries_.capacity()));
      }
    }
    // Does not throw where room was reserved.
    void append(const double* row) { entries_.insert(entries_.end(), row, row + width_); }

   private:
    Index width_;
    std::vector<double> entries_;
  };

  std::vector<Block> exact_times(const ConstBlock& V);
  std::vector<Block> fresh(const ConstBlock& V);
  std::vector<Block> lazy(const ConstBlock& V);
  void learn(const Block& directions);
  void add_fresh_noise(const Block& directions, double scale, Block& products) const;
  Block lazy_answer(const Block& q, Block product, double scale, const ConstBlock& answers) const;

  const ExactProducts& exact_;
  Noise noise_;
  const std::uint64_t generation_ = fork_generation();
  Index n_answered_ = 0;
  Index n_passes_ = 0;
  GrowingBlock basis_;
  std::vector<GrowingBlock> answers_;
};

}  // namespace dpgep
