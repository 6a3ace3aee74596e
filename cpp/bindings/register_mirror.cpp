#include "dpgep/mirror.hpp"

#include "arrays.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

void mirror(py::array& matrix) {
  require_square(matrix, "matrix");
  const Rows<double> view = mutable_rows<double>(matrix, "matrix");
  // Safe: only memory is touched that the caller's reference keeps alive.
  const py::gil_scoped_release no_gil;
  mirror_upper(view);
}

}  // namespace

void register_mirror(py::module_& module) {
  module.def("mirror_upper", &mirror, py::arg("matrix").noconvert(), R"(
Copy the upper triangle of matrix, (d, d) float64, row-contiguous, to the lower one.

Raises ValueError for an array that is not square or not writeable, TypeError for another dtype.
)");
}
