// How rows are mapped: shifted, scaled, and cut off.
#pragma once

#include <limits>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// (x_j - location_j) / scale_j, no further from zero than `largest`; 0 for a missing value, NaN. A
// vector without entries changes nothing.
struct RowMap {
  ConstVectorView<double> location = {nullptr, 0};
  ConstVectorView<double> scale = {nullptr, 0};
  double largest = std::numeric_limits<double>::infinity();
  bool missing = false;
};

}  // namespace dpgep
