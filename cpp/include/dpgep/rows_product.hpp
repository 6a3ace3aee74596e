// Products with the second moment of rows, which is never formed:
//   M = scale sum_i (f_i z_i)(f_i z_i)^T.
#pragma once

#include "dpgep/csr.hpp"
#include "dpgep/exact_products.hpp"

namespace dpgep {

// The row of person i is z_i, the concatenation of the rows i of all views. A few rows at a time
// are multiplied by v and, still in the cache, added to the product: one pass over the data. Views
// and factors are seen, not copied.
class DenseRows : public ExactProducts {
 public:
  // Throws std::invalid_argument unless there is a view, all have as many rows as there are
  // factors, scale is finite and n_threads >= 1.
  DenseRows(std::vector<FloatingRows> views, ConstVectorView<double> factors, double scale,
            int n_threads);

  Index n_features() const override { return n_features_; }
  Index n_matrices() const override { return 1; }
  std::vector<Block> times(const ConstBlock& V) const override;

 private:
  std::vector<FloatingRows> views_;
  ConstVectorView<double> factors_;
  double scale_;
  Index n_features_;
  int n_threads_;
};

// The same for sparse rows.
class CsrRows : public ExactProducts {
 public:
  // Throws std::invalid_argument unless the rows are valid (csr.hpp), there are as many as factors,
  // scale is finite and n_threads >= 1.
  CsrRows(AnyCsr rows, Index n_features, ConstVectorView<double> factors, double scale,
          int n_threads);

  Index n_features() const override { return n_features_; }
  Index n_matrices() const override { return 1; }
  std::vector<Block> times(const ConstBlock& V) const override;

 private:
  void multiply(const double* v, Index K, double* product) const;
  Block times_batch(const ConstBlock& V) const;

  AnyCsr rows_;
  bool sorted_ = false;
  Index n_features_;
  ConstVectorView<double> factors_;
  double scale_;
  int n_threads_;
};

}  // namespace dpgep
