#include "arrays.hpp"
#include "dpgep/integer_moments.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

// Releasing the GIL is safe in every function here: only raw memory is touched, which the caller's
// references keep alive.

namespace {

void require_same_square(const py::array& a, const char* a_name, const py::array& b,
                         const char* b_name) {
  require_square(a, a_name);
  require_square(b, b_name);
  if (a.shape(0) == b.shape(0)) return;
  throw py::value_error(std::string(a_name) + " must have the shape of " + b_name + ": " +
                        shape_of(a) + " != " + shape_of(b));
}

void fold(py::array& block, py::array& total, int n_threads) {
  require_same_square(block, "block", total, "total");
  const auto source = mutable_rows<double>(block, "block");
  const auto target = mutable_rows<std::int64_t>(total, "total");
  require_disjoint(source, "block", target, "total");
  const py::gil_scoped_release no_gil;
  fold_triangle(source, target, n_threads);
}

void carry(py::array& total, py::array& high) {
  require_same_square(total, "total", high, "high");
  const auto low_limb = mutable_rows<std::int64_t>(total, "total");
  const auto high_limb = mutable_rows<std::int64_t>(high, "high");
  require_disjoint(low_limb, "total", high_limb, "high");
  const py::gil_scoped_release no_gil;
  carry_triangle(low_limb, high_limb);
}

}  // namespace

void register_integer_moments(py::module_& module) {
  module.def("fold_triangle", &fold, py::arg("block").noconvert(), py::arg("total").noconvert(),
             py::arg("n_threads").noconvert() = 1, R"(
total_ij += block_ij exactly, then block_ij = 0, for j >= i. The lower triangles are not touched.

block: (d, d) float64, holding integers of magnitude below 2**53; total: (d, d) int64; both
row-contiguous, not overlapping.

Raises ValueError if an entry of block is no such integer, OverflowError if a sum leaves int64 (both
arrays are then unspecified); ValueError or TypeError for other shapes, strides or dtypes.
)");
  module.def("carry_triangle", &carry, py::arg("total").noconvert(), py::arg("high").noconvert(),
             R"(
high_ij += floor(total_ij / 2**40), total_ij mod 2**40 stays, for j >= i: high * 2**40 + total is kept.

Both (d, d) int64, row-contiguous, not overlapping. Raises OverflowError if high leaves int64.
)");
}
