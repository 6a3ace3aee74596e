// Exact products over NumPy arrays.
#pragma once

#include <utility>
#include <vector>

#include "arrays.hpp"
#include "dpgep/rows_product.hpp"
#include "dpgep/symmetric_product.hpp"

namespace dpgep::bindings {

// The kernel sees the memory of arrays; these references keep it.
template <class Kernel>
struct Holding : Kernel {
  Holding(Kernel kernel, std::vector<py::array> seen)
      : Kernel(std::move(kernel)), arrays(std::move(seen)) {}

  std::vector<py::array> arrays;
};

using Matrices = Holding<SymmetricMatrices>;
using Dense = Holding<DenseRows>;
using Sparse = Holding<CsrRows>;

inline FloatingRows floating_rows(const py::array& array, const char* name) {
  return visit_floating(array, name, [&](auto scalar) -> FloatingRows {
    return const_rows<decltype(scalar)>(array, name);
  });
}

}  // namespace dpgep::bindings
