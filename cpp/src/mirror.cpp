#include "dpgep/mirror.hpp"

#include <algorithm>

namespace dpgep {
namespace {

// The edge of a tile: two cache lines, so that both reads and writes use whole lines.
constexpr Index tile = 16;

}  // namespace

void mirror_upper(Rows<double> matrix) {
  const Index d = matrix.cols();
  for (Index first = 0; first < d; first += tile) {
    const Index last = std::min(first + tile, d);
    for (Index i = first; i < last; ++i) {
      for (Index j = i + 1; j < last; ++j) matrix(j, i) = matrix(i, j);
    }
    for (Index left = last; left < d; left += tile) {
      const Index width = std::min(tile, d - left);
      matrix.block(left, first, width, last - first) =
          matrix.block(first, left, last - first, width).transpose();
    }
  }
}

}  // namespace dpgep
