// The Rayleigh flow: ascent of the quotient v.Av / v.Bv by products alone.
#pragma once

#include <functional>

#include "dpgep/block.hpp"

namespace dpgep {

struct FlowSettings {
  Index n_iterations = 1;
  double step_size = 1.0;
  double shift = 0.0;
  double ridge = 0.0;
  Index sparsity = 0;  // entries kept of each vector; 0: all
  bool separate_supports = false;
  double tolerance = 0.0;
};

struct Flow {
  Block vectors;    // (K, d), unit rows
  Block quotients;  // (n_done, K)
  bool converged;
};

// An iteration takes unit rows v, with products A v and B v (the ridge included), to
//   rho = v.Av / v.Bv,   w = |rho + shift| v + step_size (A v - rho B v),   v <- w / ||w||.
// Several rows are first rotated to B-orthonormal Ritz vectors, rho descending. With sparsity k,
// the k largest |w_i| are kept; of several rows the k largest columns, unless separate_supports.
// Stops, converged, when no v moves by more than the tolerance, up to its sign; and before a w that
// is zero or not finite. check() is called once an iteration and may throw.
//
// Oracle: times(V) gives {A, B}, the blocks of products. Throws std::invalid_argument for settings
// out of range and unless V0 (K, d) has 1 <= K <= d finite rows, none zero; and as Oracle::times.
template <class Oracle>
Flow rayleigh_flow(Oracle& oracle, const ConstBlock& V0, const FlowSettings& settings,
                   const std::function<void()>& check);

}  // namespace dpgep
