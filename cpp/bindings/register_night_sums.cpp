#include "arrays.hpp"
#include "dpgep/night_sums.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

// Releasing the GIL is safe in both functions: only raw memory is touched, which the caller's
// references keep alive.

namespace {

void begin(py::array& values, py::array& exact, const py::array& before, const py::array& steps,
           Index n_matrices, Index d) {
  const auto sums = mutable_rows<std::int64_t>(values, "values");
  const auto so_far = mutable_rows<std::int64_t>(exact, "exact");
  const auto noise = const_rows<std::int64_t>(before, "before");
  const auto weights = const_vector<std::int64_t>(steps, "steps");
  require_disjoint(sums, "values", so_far, "exact");
  require_disjoint(sums, "values", noise, "before");
  require_disjoint(so_far, "exact", noise, "before");
  const py::gil_scoped_release no_gil;
  begin_night(sums, so_far, noise, weights, {n_matrices, d});
}

void end(const py::array& values, const py::array& exact, double unit, py::array& noise,
         py::array& published, Index n_matrices, Index d) {
  const auto sums = const_rows<std::int64_t>(values, "values");
  const auto so_far = const_rows<std::int64_t>(exact, "exact");
  const auto rest = mutable_vector<std::int64_t>(noise, "noise");
  const auto all = mutable_vector<double>(published, "published");
  require_disjoint(rest, "noise", all, "published");
  require_disjoint(rest, "noise", sums, "values");
  require_disjoint(rest, "noise", so_far, "exact");
  require_disjoint(all, "published", sums, "values");
  require_disjoint(all, "published", so_far, "exact");
  const py::gil_scoped_release no_gil;
  end_night(sums, so_far, unit, rest, all, {n_matrices, d});
}

}  // namespace

void register_night_sums(py::module_& module) {
  module.def("begin_night", &begin, py::arg("values").noconvert(), py::arg("exact").noconvert(),
             py::arg("before").noconvert(), py::arg("steps").noconvert(),
             py::arg("n_matrices").noconvert(), py::arg("d").noconvert(), R"(
exact += values; then values = 2**6 exact - floor(2**-6 sum_k steps_k before_k + 1/2).

Numbers have two limbs, low + 2**40 high, of which the low one of exact is in [0, 2**40).

values: (2, m) int64, n_matrices (d, d) matrices, of which the upper triangles count, and other numbers;
exact: (2, n) int64, the triangles by rows, and the others; before: (k, n) int64, in [-2**62, 2**62);
steps: (k,) int64.

Raises ValueError for other shapes, overlaps, more than 2**12 steps, one beyond 2**16, and for numbers that
no register holds (values and exact are then unspecified).
)");
  module.def("end_night", &end, py::arg("values").noconvert(), py::arg("exact").noconvert(),
             py::arg("unit").noconvert(), py::arg("noise").noconvert(),
             py::arg("published").noconvert(), py::arg("n_matrices").noconvert(),
             py::arg("d").noconvert(), R"(
noise = values - 2**6 exact, and published = unit values: of values and exact as in begin_night.

noise: (n,) int64; published: (n,) float64; both contiguous. Raises ValueError for other shapes, overlaps, and
noise outside [-2**62, 2**62) (both are then unspecified).
)");
}
