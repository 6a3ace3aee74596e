// Euclidean norms with the same bits on every processor.
#pragma once

#include "dpgep/typedefs.hpp"

namespace dpgep {

// A norm as a product, so that it can be stated where it overflows or underflows.
struct FactoredNorm {
  double scale;     // 1, or the largest |v_i| where the squares leave the range of a double
  double relative;  // ||v / scale||
  double value() const { return scale * relative; }
};

// ||v|| in double precision, summed in a fixed order: eight partial sums, which any vector register
// holds in whole multiples, added up pairwise. NaN or infinite entries give a non-finite scale or
// relative norm.
template <class Scalar>
FactoredNorm norm(const Scalar* v, Index n);

}  // namespace dpgep
