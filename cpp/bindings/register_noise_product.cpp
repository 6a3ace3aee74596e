#include "arrays.hpp"
#include "dpgep/noise_product.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

// Releasing the GIL is safe in every function here: only raw memory is touched, which the caller's
// references keep alive, and the stream has a lock of its own, taken and given back without the
// GIL.

namespace {

template <class Product>
auto without_gil(Product product) {
  const py::gil_scoped_release no_gil;
  return product();
}

py::array times_vector(const py::array& v, double scale, std::string_view shape,
                       NoiseStream& stream) {
  const NoiseShape noise_shape = parse_noise_shape(shape);
  return visit_floating(v, "v", [&](auto scalar) -> py::array {
    using Scalar = decltype(scalar);
    const auto view = const_vector<Scalar>(v, "v");
    const Vector<Scalar> product =
        without_gil([&] { return noise_times_vector<Scalar>(view, scale, noise_shape, stream); });
    return py::array_t<Scalar>(product.size(), product.data());
  });
}

py::array times_block(const py::array& V, double scale, NoiseStream& stream) {
  return visit_floating(V, "V", [&](auto scalar) -> py::array {
    using Scalar = decltype(scalar);
    const auto view = const_rows<Scalar>(V, "V");
    const RowMajorMatrix<Scalar> product =
        without_gil([&] { return noise_times_block<Scalar>(view, scale, stream); });
    return py::array_t<Scalar>({product.rows(), product.cols()}, product.data());
  });
}

}  // namespace

void register_noise_product(py::module_& module) {
  module.def("noise_times_vector", &times_vector, py::arg("v").noconvert(), py::arg("scale"),
             py::arg("shape"), py::arg("stream"), R"(
Z v for a fresh symmetric noise matrix Z that is never formed; v may have any norm.

From g (d deviates) and then h (one), in float64 and cast at the end:

    goe: scale / sqrt(2) * (||v|| g + h v)
    iid: scale * (sqrt(||v||**2 - v_i**2) g_i + v_i h)_i

v: (d,) float32 or float64, contiguous. Returns (d,) of the same dtype. With scale == 0 nothing is
drawn.

Raises ValueError for a scale that is negative or not finite, or another shape; TypeError for another
dtype.
)");
  module.def("noise_times_block", &times_block, py::arg("V").noconvert(), py::arg("scale"),
             py::arg("stream"), R"(
Z V for a fresh noise matrix Z of shape "goe" that is never formed, V with orthonormal columns:

    scale / sqrt(2) * (W - V (V^T W)) + V G

W (d, K) independent N(0, 1), drawn first, row-major; G (K, K) of shape "goe" and the same scale, upper
triangle row-major.

V: (d, K) float32 or float64, row-contiguous. Returns (d, K) of the same dtype. With scale == 0
nothing is drawn.

Raises ValueError unless max |V^T V - I| <= 1e-8 (float32: 1e-6), and for a scale that is negative or
not finite; TypeError for another dtype.
)");
}
