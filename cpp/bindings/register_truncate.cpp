#include "arrays.hpp"
#include "dpgep/truncate.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

// Releasing the GIL is safe in every function here: only raw memory is touched, which the caller's
// references keep alive.

namespace {

using Indices = std::vector<std::int64_t>;

py::array_t<std::int64_t> as_array(const Indices& indices) {
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(indices.size()), indices.data());
}

py::array_t<std::int64_t> truncate_vector(py::array& v, Index k) {
  return as_array(visit_floating(v, "v", [&](auto scalar) {
    using Scalar = decltype(scalar);
    const auto view = mutable_vector<Scalar>(v, "v");
    const py::gil_scoped_release no_gil;
    return truncate_top_k<Scalar>(view, k);
  }));
}

py::array_t<std::int64_t> truncate_rows(py::array& V, Index k) {
  return as_array(visit_floating(V, "V", [&](auto scalar) {
    using Scalar = decltype(scalar);
    const auto view = mutable_rows<Scalar>(V, "V");
    const py::gil_scoped_release no_gil;
    return truncate_rows_top_k<Scalar>(view, k);
  }));
}

}  // namespace

void register_truncate(py::module_& module) {
  module.def("truncate_top_k", &truncate_vector, py::arg("v").noconvert(), py::arg("k").noconvert(),
             R"(
Keep the k entries of largest magnitude, set the others to zero, in place. O(d).

Of equal magnitudes the lower index is kept. v: (d,) float32 or float64, contiguous. Returns the
indices kept, int64, ascending.

Raises ValueError unless 1 <= k <= d, and if v contains NaN; TypeError for another dtype.
)");
  module.def("truncate_rows_top_k", &truncate_rows, py::arg("V").noconvert(),
             py::arg("k").noconvert(), R"(
truncate_top_k for the rows of V, (d, K) row-contiguous, by their Euclidean norm.
)");
}
