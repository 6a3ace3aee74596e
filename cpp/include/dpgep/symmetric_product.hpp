// Products with symmetric matrices that are stored.
#pragma once

#include "dpgep/exact_products.hpp"

namespace dpgep {

// A, or A and B, (d, d) with both triangles, which must be equal (not checked). The matrices are
// seen, not copied: they must stay as they are while this object is used.
//
// A dense v is multiplied by the upper triangle alone, each entry read once for v_i and once for
// v_j, of A and B in one sweep. For a v of at most d / 8 nonzeros the rows j with v_j != 0 are
// combined instead.
class SymmetricMatrices : public ExactProducts {
 public:
  // Throws std::invalid_argument unless there are one or two square matrices of one size and
  // n_threads >= 1.
  SymmetricMatrices(std::vector<FloatingRows> matrices, int n_threads);

  Index n_features() const override { return n_features_; }
  Index n_matrices() const override { return static_cast<Index>(matrices_.size()); }
  std::vector<Block> times(const ConstBlock& V) const override;

 private:
  std::vector<Block> sweep(const Block& V) const;
  std::vector<Block> gather(const Block& V) const;

  std::vector<FloatingRows> matrices_;
  Index n_features_;
  int n_threads_;
};

}  // namespace dpgep
