// Products with the second moment of a Poisson sample of people, a new sample for every call:
//   M = scale sum_{i in S} sum over the rows z of person i of (f z)(f z)^T.
#pragma once

#include <variant>

#include "dpgep/csr.hpp"
#include "dpgep/exact_products.hpp"
#include "dpgep/poisson_sample.hpp"

namespace dpgep {

using AnyRows =
    std::variant<ConstRows<float>, ConstRows<double>, Csr<float, std::int32_t>,
                 Csr<float, std::int64_t>, Csr<double, std::int32_t>, Csr<double, std::int64_t>>;

// Whose the rows are: person i has the rows order[starts[i]], ..., order[starts[i + 1] - 1].
// Without entries each row is a person.
struct Owners {
  ConstVectorView<std::int64_t> starts{nullptr, 0}, order{nullptr, 0};
};

// Rows, factors and owners are seen, not copied; a call reads the rows of its sample alone.
//
// No product is clipped: a row of norm at most R moves the sum x (x . v) over a block V by at most
// R^2 ||V||_op, whatever the row, so that clipping the rows, by their factors, is all there is.
class SampledRows : public ExactProducts {
 public:
  // Throws std::invalid_argument unless there are as many rows as factors, sparse rows are valid
  // (csr.hpp), owners have rows that there are, starts from 0 on that do not decrease and end with
  // the rows in order, scale is finite, 0 < rate <= 1 and n_threads >= 1. The stream must outlive
  // this.
  SampledRows(AnyRows rows, Index n_features, ConstVectorView<double> factors, Owners owners,
              double scale, double rate, NoiseStream& stream, int n_threads);

  Index n_features() const override { return n_features_; }
  Index n_matrices() const override { return 1; }

  // No sample is drawn for a block without rows: nothing was asked.
  std::vector<Block> times(const ConstBlock& V) const override;

 private:
  AnyRows rows_;
  Index n_features_;
  ConstVectorView<double> factors_;
  Owners owners_;
  double scale_;
  PoissonSampler sampler_;
  NoiseStream& stream_;
  int n_threads_;
};

}  // namespace dpgep
