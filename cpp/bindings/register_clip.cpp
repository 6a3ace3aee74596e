#include <algorithm>

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

VectorView<double> factors_of(py::array& out, Index n_rows) {
  const VectorView<double> factors = mutable_vector<double>(out, "out");
  if (factors.size() != n_rows) {
    throw py::value_error("out must have an entry for each of the " + std::to_string(n_rows) +
                          " rows, not shape " + shape_of(out));
  }
  return factors;
}

bool factors(const py::array& rows, double bound, py::array& out) {
  return visit_floating(rows, "rows", [&](auto scalar) {
    using Scalar = decltype(scalar);
    const auto source = const_rows<Scalar>(rows, "rows");
    const auto target = factors_of(out, source.rows());
    // Safe: as above.
    const py::gil_scoped_release no_gil;
    return clip_factors<Scalar>(source, bound, target);
  });
}

bool factors_csr(const py::array& data, const py::array& indptr, double bound, py::array& out) {
  return visit_floating(data, "data", [&](auto scalar) {
    using Scalar = decltype(scalar);
    return visit_index(indptr, "indptr", [&](auto integer) {
      using Integer = decltype(integer);
      const auto entries = const_vector<Scalar>(data, "data");
      const auto ends = const_vector<Integer>(indptr, "indptr");
      const auto target = factors_of(out, std::max<Index>(ends.size(), 1) - 1);
      // Safe: as above.
      const py::gil_scoped_release no_gil;
      return clip_factors<Scalar, Integer>(entries, ends, bound, target);
    });
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
  module.def("clip_factors", &factors, py::arg("rows").noconvert(), py::arg("bound"),
             py::arg("out").noconvert(), R"(
Write to out_i the factor that shrinks row i to the bound: the exact norm of out_i * rows_i is <= bound.

With gamma = (d + 16) 2**-53, out_i = 1 where the computed norm of rows_i is at most
bound (1 - gamma), else bound (1 - gamma) / norm, rounded down.

rows: (n, d) float32 or float64, row-contiguous. out: (n,) float64, contiguous.

Returns False if an entry is NaN or infinite; out is then unspecified. Raises as clip_rows.
)");
  module.def("clip_factors_csr", &factors_csr, py::arg("data").noconvert(),
             py::arg("indptr").noconvert(), py::arg("bound"), py::arg("out").noconvert(), R"(
clip_factors for the rows data[indptr[i]:indptr[i + 1]], without duplicates; d in gamma is their length.

indptr: int32 or int64. Raises ValueError unless indptr rises from 0 to len(data).
)");
}
