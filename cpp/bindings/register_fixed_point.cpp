#include "arrays.hpp"
#include "dpgep/fixed_point.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

bool to_fixed_point(const py::array& rows, double bound, int bits, py::array& out, int n_threads) {
  const Rows<double> target = mutable_rows<double>(out, "out");
  return visit_row_scalar(rows, [&](auto scalar) {
    using Scalar = decltype(scalar);
    const auto source = const_rows<Scalar>(rows, "rows");
    if (source.rows() != target.rows() || source.cols() != target.cols()) {
      throw py::value_error("out must have the shape of rows: " + shape_of(out) +
                            " != " + shape_of(rows));
    }
    require_same_or_disjoint(source, target);
    // Safe: only raw memory is touched, and the caller's references keep both arrays alive.
    const py::gil_scoped_release no_gil;
    return fixed_point_rows<Scalar>(source, bound, bits, target, n_threads);
  });
}

bool csr_to_fixed_point(const py::array& data, const py::array& indptr, double bound, int bits,
                        py::array& out, int n_threads) {
  const auto target = mutable_vector<std::int32_t>(out, "out");
  return visit_floating(data, "data", [&](auto scalar) {
    using Scalar = decltype(scalar);
    return visit_index(indptr, "indptr", [&](auto integer) {
      using Integer = decltype(integer);
      const auto source = const_vector<Scalar>(data, "data");
      const auto ends = const_vector<Integer>(indptr, "indptr");
      if (source.size() != target.size()) {
        throw py::value_error("out must have the shape of data: " + shape_of(out) +
                              " != " + shape_of(data));
      }
      require_disjoint(source, "data", target, "out");
      require_disjoint(ends, "indptr", target, "out");
      // Safe: as above.
      const py::gil_scoped_release no_gil;
      return fixed_point_csr<Scalar, Integer>(source, ends, bound, bits, target, n_threads);
    });
  });
}

}  // namespace

void register_fixed_point(py::module_& module) {
  module.def("fixed_point_rows", &to_fixed_point, py::arg("rows").noconvert(), py::arg("bound"),
             py::arg("bits").noconvert(), py::arg("out").noconvert(),
             py::arg("n_threads").noconvert() = 1, R"(
Write trunc(2**bits * rows / bound) to out, a longer row being shrunk onto the ball of radius bound.

The entries of out are integers, toward zero (zeros are positive), and sum_j out_ij**2 <= 4**bits holds
exactly: while it does not, the scale of the row is multiplied by 1 - 2**-20.

rows: (n, d) uint8, float32 or float64, row-contiguous. out: (n, d) float64, row-contiguous; may be the
memory of rows itself. Entries whose squares overflow or underflow are served. The same bits for every
n_threads.

Returns False if an entry is NaN or infinite; out is then unspecified.

Raises ValueError unless 4 <= bits <= 20, n_threads >= 1, 0 < bound < inf and 1 / bound < inf, and for
shapes, strides or overlaps that do not fit; TypeError for another dtype.
)");
  module.def("fixed_point_csr", &csr_to_fixed_point, py::arg("data").noconvert(),
             py::arg("indptr").noconvert(), py::arg("bound"), py::arg("bits").noconvert(),
             py::arg("out").noconvert(), py::arg("n_threads").noconvert() = 1, R"(
fixed_point_rows for the rows data[indptr[i]:indptr[i + 1]], without duplicates; entries that become 0 stay.

data: float32 or float64. indptr: int32 or int64. out: int32, the shape of data, not overlapping it.

Returns False if an entry is NaN or infinite; out is then unspecified. Raises as fixed_point_rows, and
ValueError unless indptr rises from 0 to len(data).
)");
}
