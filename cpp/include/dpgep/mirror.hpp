// Symmetric matrices of which the upper triangle is known.
#pragma once

#include "dpgep/typedefs.hpp"

namespace dpgep {

// Copies the upper triangle of matrix (d, d) to the lower one.
void mirror_upper(Rows<double> matrix);

}  // namespace dpgep
