#include "arrays.hpp"
#include "dpgep/clip.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

bool clip(const py::array& rows, double bound, py::array& out) {
  const Rows<double> target = mutable_rows<double>(out, "out");
  return visit_floating(rows, "rows", [&](auto scalar) {
    using Scalar = decltype(scalar);
    const auto source = const_rows<Scalar>(rows, "rows");
    if (source.rows() != target.rows() || source.cols() != target.cols()) {
      throw py::value_error("out must have the shape of rows: " + shape_of(out) +
                            " != " + shape_of(rows));
    }
    require_same_or_disjoint(source, target);
    // Safe: only raw memory is touched, and the caller's references keep both arrays alive.
    const py::gil_scoped_release no_gil;
    return clip_rows<Scalar>(source, bound, target);
  });
}

}  // namespace

void register_clip(py::module_& module) {
  module.def("clip_rows", &clip, py::arg("rows").noconvert(), py::arg("bound"),
             py::arg("out").noconvert(), R"(
Write rows / bound to out, every row shrunk into the unit ball.

With gamma = (d + 16) 2**-53, a row whose computed norm ||rows_i / bound|| exceeds 1 - gamma is also
multiplied by (1 - gamma) / norm, so that the exact Euclidean norm of every row of out is at most 1,
whatever the rounding. Other rows are only divided; with bound == 1 they are copied exactly.

rows: (n, d) float32 or float64, row-contiguous. out: (n, d) float64, row-contiguous; may be the
memory of rows itself. Entries whose squares overflow or underflow are served.

Returns False if an entry is NaN or infinite; out is then unspecified.

Raises ValueError unless 0 < bound < inf and 1 / bound < inf, and for shapes, strides or overlaps that
do not fit; TypeError for another dtype.
)");
}
