// Products with symmetric matrices that are known by their products alone.
#pragma once

#include <variant>
#include <vector>

#include "dpgep/block.hpp"

namespace dpgep {

// Data as they are stored; the arithmetic is in double precision.
using FloatingRows = std::variant<ConstRows<float>, ConstRows<double>>;

// One symmetric matrix or several of one size, of which a block asks together: storage is read once
// for all.
class ExactProducts {
 public:
  virtual ~ExactProducts() = default;

  virtual Index n_features() const = 0;
  virtual Index n_matrices() const = 0;

  // For each matrix M the block of rows M v, for the rows v of V (K, n_features).
  // Throws std::invalid_argument for another number of columns.
  virtual std::vector<Block> times(const ConstBlock& V) const = 0;

 protected:
  ExactProducts() = default;
  ExactProducts(const ExactProducts&) = default;
  ExactProducts(ExactProducts&&) = default;
  ExactProducts& operator=(const ExactProducts&) = default;
  ExactProducts& operator=(ExactProducts&&) = default;
};

// Throws std::invalid_argument unless V has n_features columns.
void require_features(const ConstBlock& V, Index n_features);

}  // namespace dpgep
