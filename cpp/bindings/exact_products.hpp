// Exact products over NumPy arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
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

// What a Python callable answers for M V. Only its calls hold the GIL.
class Callback : public ExactProducts {
 public:
  Callback(py::function callable, Index n_features)
      : callable_(std::move(callable)), n_features_(n_features) {
    if (n_features >= 1) return;
    throw py::value_error("n_features must satisfy n_features >= 1, not " +
                          std::to_string(n_features));
  }

  Index n_features() const override { return n_features_; }
  Index n_matrices() const override { return 1; }

  // Throws what the callable raises, and as Python's errors what is wrong with its answer.
  std::vector<Block> times(const ConstBlock& V) const override {
    require_features(V, n_features_);
    const py::gil_scoped_acquire gil;
    // A copy: the callable may keep it.
    const py::object answer = callable_(as_array(Block(V)));
    if (!py::isinstance<py::array>(answer)) {
      throw py::type_error("the answer of a callback must be an array, not " +
                           py::str(py::type::of(answer)).cast<std::string>());
    }
    const auto array = py::reinterpret_borrow<py::array>(answer);
    const auto products = const_rows<double>(array, "the answer of a callback");
    if (products.rows() != V.rows() || products.cols() != n_features_) {
      throw py::value_error("the answer of a callback must have the shape of its question, (" +
                            std::to_string(V.rows()) + ", " + std::to_string(n_features_) +
                            "), not " + shape_of(array));
    }
    if (!products.allFinite()) {
      throw py::value_error("the answer of a callback must be finite");
    }
    return {Block(products)};
  }

 private:
  py::function callable_;
  Index n_features_;
};

inline FloatingRows floating_rows(const py::array& array, const char* name) {
  return visit_floating(array, name, [&](auto scalar) -> FloatingRows {
    return const_rows<decltype(scalar)>(array, name);
  });
}

}  // namespace dpgep::bindings
