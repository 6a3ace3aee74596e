// Products with a pair (A, B) of symmetric matrices, noise included: all that an iterative method
// sees of the data.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "dpgep/noisy_product.hpp"

namespace dpgep {

struct PairProducts {
  Block A, B;  // (K, d): the rows A v and B v
};

// A, and B or I, are the noisy matrices themselves.
struct MatrixPair {
  PairProducts answer(const ConstBlock& V, NoisyProducts& noisy) const;
};

// Which blocks of a matrix are kept, for several views: those off the diagonal, or those on it.
enum class Blocks { whole, between, within };

// The `blocks` of  share M~ + F^T diag(weights) F;  weights: (r,).
struct PencilPart {
  Vector<double> weights;
  double share;
  Blocks blocks;
};

// A, and B or I, made of one noisy second moment M~ and of released vectors, the rows of F (r, d):
// `parts` are A and, if it is not I, B.
// `view_sizes`: the number of features of each view, in their order; empty where there is one view.
// M~ is asked once for both, and not at all if neither needs it; where blocks are kept, for K rows
// a view, which are zero outside of it: the rows of the first view, then of the second, and so on.
struct Pencil {
  Block F;
  std::vector<PencilPart> parts;
  std::vector<Index> view_sizes;
  PairProducts answer(const ConstBlock& V, NoisyProducts& noisy) const;
};

using PairForm = std::variant<MatrixPair, Pencil>;

class PairOracle {
 public:
  // Throws std::invalid_argument if released vectors or weights have other sizes than n_features
  // and r, for a weight or share that is not finite, and unless view_sizes is empty, or lists two
  // views or more, of at least one feature each and n_features in all; and where blocks are kept of
  // one view.
  PairOracle(const ExactProducts& exact, Noise noise, PairForm form);

  Index n_features() const { return noisy_.n_features(); }
  NoiseMode mode() const { return noisy_.mode(); }
  Index n_directions() const { return n_directions_; }
  Index n_answered() const { return n_answered_; }
  Index n_passes() const { return n_passes_; }

  // One call at a time: others wait. Throws as NoisyProducts::times, and std::logic_error where the
  // exact products ask the oracle that asked them.
  PairProducts times(const ConstBlock& V);

 private:
  PairProducts answer(const ConstBlock& V);

  std::mutex mutex_;
  std::atomic<std::thread::id> asking_{};  // the thread whose call is under way
  NoisyProducts noisy_;
  PairForm form_;
  // Of the calls that are done: to be read while another is under way.
  std::atomic<Index> n_directions_{0};
  std::atomic<Index> n_answered_{0};
  std::atomic<Index> n_passes_{0};
};

}  // namespace dpgep
