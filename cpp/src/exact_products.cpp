#include "dpgep/exact_products.hpp"

#include <stdexcept>
#include <string>

namespace dpgep {

void require_features(const ConstBlock& V, Index n_features) {
  if (V.cols() == n_features) return;
  throw std::invalid_argument("V must have n_features = " + std::to_string(n_features) +
                              " columns, not " + std::to_string(V.cols()));
}

}  // namespace dpgep
