#include "arrays.hpp"
#include "dpgep/symmetric_noise.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

// Releasing the GIL is safe in every function here: only raw memory is touched, which the caller's
// references keep alive, and the stream has a lock of its own, taken and given back without the
// GIL.

namespace {

void add_symmetric(py::array& matrix, double scale, std::string_view shape, NoiseStream& stream) {
  require_square(matrix, "matrix");
  const Rows<double> view = mutable_rows<double>(matrix, "matrix");
  const NoiseShape noise_shape = parse_noise_shape(shape);
  const py::gil_scoped_release no_gil;
  add_symmetric_noise(view, scale, noise_shape, stream);
}

void add_symmetric_packed(py::array& packed, double scale, std::string_view shape,
                          NoiseStream& stream) {
  const VectorView<double> view = mutable_vector<double>(packed, "packed");
  const NoiseShape noise_shape = parse_noise_shape(shape);
  const py::gil_scoped_release no_gil;
  add_symmetric_noise_packed(view, scale, noise_shape, stream);
}

void add_independent(py::array& array, double scale, NoiseStream& stream) {
  const Rows<double> view = mutable_rows_of_one_or_two_axes<double>(array, "array");
  const py::gil_scoped_release no_gil;
  add_noise(view, scale, stream);
}

}  // namespace

void register_symmetric_noise(py::module_& module) {
  module.def("add_symmetric_noise", &add_symmetric, py::arg("matrix").noconvert(), py::arg("scale"),
             py::arg("shape"), py::arg("stream"), R"(
Add a symmetric Gaussian noise matrix Z in place: matrix becomes U + Z, exactly symmetric.

shape "goe": Var Z_ii = scale**2, Var Z_ij = scale**2 / 2; "iid": Var Z_ij = scale**2 for i <= j.
U is read from the upper triangle of matrix alone. Z is drawn in row-major order of the upper
triangle, as by one call of stream.normal. With scale == 0 nothing is drawn, and matrix is mirrored.

matrix: (d, d) float64, row-contiguous, so a corner M[:d, :d] works.

Raises ValueError for a scale that is negative or not finite, another shape, or an array that is not
square, row-contiguous and writeable; TypeError for another dtype.
)");
  module.def("add_symmetric_noise_packed", &add_symmetric_packed, py::arg("packed").noconvert(),
             py::arg("scale"), py::arg("shape"), py::arg("stream"), R"(
add_symmetric_noise for the row-major upper triangle, (d (d + 1) / 2,) float64: the same deviates in
the same order.
)");
  module.def("add_noise", &add_independent, py::arg("array").noconvert(), py::arg("scale"),
             py::arg("stream"), R"(
Add independent N(0, scale**2) to every entry, in place, in row-major order.

array: 1-D or 2-D float64, row-contiguous. Raises as add_symmetric_noise.
)");
}
