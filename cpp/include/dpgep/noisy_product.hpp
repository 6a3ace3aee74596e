// Products with noisy symmetric matrices M + Z. Every answer is a combination of noisy products
// with orthonormal directions: no product of M leaves without its noise, not even with a remainder
// that is too short for a direction of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "dpgep/exact_products.hpp"
#include "dpgep/grid_noise.hpp"
#include "dpgep/noise_stream.hpp"

namespace dpgep {

enum class NoiseMode {
  none,   // the exact products
  fresh,  // a new Z for every call
  lazy,   // one Z for the life of the object
};

// Throws std::invalid_argument, listing the names, for any other.
NoiseMode parse_noise_mode(std::string_view name);

// The law of a symmetric noise matrix Z of scale s.
enum class NoiseShape {
  goe,  // Var Z_ii = s^2, Var Z_ij = s^2 / 2: orthogonally invariant
  iid,  // Var Z_ij = s^2 for all i <= j
};

// Throws std::invalid_argument, listing both names, for any other.
NoiseShape parse_noise_shape(std::string_view name);

struct Noise {
  NoiseMode mode = NoiseMode::none;
  std::vector<double> scales;  // one for each matrix; 0: the matrix is public. Not used with `none`
  NoiseShape shape = NoiseShape::goe;
  Index n_products = 0;  // calls that are paid for, with `fresh`
  NoiseStream* stream = nullptr;
  Index max_directions = std::numeric_limits<Index>::max();  // to be remembered, with `lazy`
  int n_threads = 1;  // that draw; the bits do not depend on it
};

// Lazy noise would have to remember more directions than it may. Nothing was drawn.
class CapacityExceeded : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// lazy: Z by deferred decisions. Every new direction, orthogonal to those asked so far, is answered
// on a public grid (grid_noise.hpp), for each matrix in turn. All else is a combination of answers.
// Memory O(d) for each direction and matrix.
//
// fresh: with V = L Q, Q orthonormal, the answer is L (Q M + Q Z), the rows of Q being answered as
// those of lazy noise that ends with the call.
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
  Index n_directions() const { return asked_.basis.rows(); }
  // Blocks that the exact products were asked for: passes over the data.
  Index n_passes() const { return n_passes_; }

  // For each matrix the products with the rows of V. Throws std::runtime_error beyond the calls
  // that are paid, CapacityExceeded beyond max_directions, std::invalid_argument for V not finite
  // or of other width, and for several directions of fresh noise of shape iid; std::logic_error
  // should directions not be orthonormal to 2^-36, which the calibration relies on.
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

  // Orthonormal directions asked and, for each matrix, the answers.
  struct Asked {
    GrowingBlock basis;
    std::vector<GrowingBlock> answers;
    Asked(Index n_features, Index n_matrices)
        : basis(n_features),
          answers(static_cast<std::size_t>(n_matrices), GrowingBlock(n_features)) {}
  };

  std::vector<Block> exact_times(const ConstBlock& V);
  std::vector<Block> fresh(const ConstBlock& V);
  std::vector<Block> lazy(const ConstBlock& V);
  void learn(const Block& directions, Asked& asked);
  Vector<double> answer(const ConstVectorView<double>& q, const double* exact, std::size_t m,
                        const Asked& asked) const;

  const ExactProducts& exact_;
  Noise noise_;
  const std::uint64_t generation_ = fork_generation();
  Index n_answered_ = 0;
  Index n_passes_ = 0;
  std::vector<std::optional<Grid>> grids_;  // none where the matrix is public
  Asked asked_;
};

}  // namespace dpgep
