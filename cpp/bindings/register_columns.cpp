#include <vector>

#include "columns.hpp"
#include "dpgep/gather.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

template <class Scalar, class Out>
void gather(const std::vector<py::array>& columns, Index first, Rows<Out> out, int n_threads) {
  std::vector<const Scalar*> sources;
  sources.reserve(columns.size());
  for (const py::array& each : columns) {
    sources.push_back(beginning<Scalar>(each, first, out.rows(), out));
  }
  // Safe: only raw memory is touched; `columns` holds the columns, and the caller out.
  const py::gil_scoped_release no_gil;
  gather_rows<Scalar, Out>(sources, out, n_threads);
}

void gather_into(const py::list& list, Index first, py::array& out, int n_threads) {
  require_first(first);
  const std::vector<py::array> columns = arrays_of(list);
  const bool is_single = columns.empty() || py::isinstance<py::array_t<float>>(columns[0]);
  visit_floating(out, "out", [&](auto scalar) {
    using Out = decltype(scalar);
    const Rows<Out> target = mutable_rows<Out>(out, "out");
    if (is_single) return gather<float, Out>(columns, first, target, n_threads);
    if constexpr (std::is_same_v<Out, double>) {
      return gather<double, double>(columns, first, target, n_threads);
    } else {
      throw py::type_error("out must have dtype float64 for columns of another dtype than float32");
    }
  });
}

bool columns_to_fixed_point(const py::list& list, Index first, double bound, int bits,
                            py::array& out, int n_threads) {
  require_first(first);
  const std::vector<py::array> arrays = arrays_of(list);
  const auto target = mutable_rows<double>(out, "out");
  const std::vector<Column> columns = columns_of(arrays, first, target.cols(), target);
  // Safe: as above.
  const py::gil_scoped_release no_gil;
  return fixed_point_columns(columns, bound, bits, target, n_threads);
}

}  // namespace

void register_columns(py::module_& module) {
  module.def("gather_rows", &gather_into, py::arg("columns").noconvert(),
             py::arg("first").noconvert(), py::arg("out").noconvert(),
             py::arg("n_threads").noconvert() = 1, R"(
Write out[i, j] = columns[j][first + i].

columns: a list of contiguous vectors, all float32 or all float64, of at least first + n entries. out: (n, d)
row-contiguous, float64, or float32 for columns in float32; no memory in common with them. The same for
every n_threads.

Raises ValueError for lengths, strides or overlaps that do not fit, first < 0 or n_threads < 1; TypeError for
another dtype.
)");
  module.def("fixed_point_columns", &columns_to_fixed_point, py::arg("columns").noconvert(),
             py::arg("first").noconvert(), py::arg("bound"), py::arg("bits").noconvert(),
             py::arg("out").noconvert(), py::arg("n_threads").noconvert() = 1, R"(
fixed_point_rows for the rows (columns[0][first + i], columns[1][first + i], ...), row i into out[:, i].

columns: a list of contiguous vectors of at least first + n entries, each float32, float64, or integers of any
size; integers beyond 2**53 are rounded. out: (d, n) float64, row-contiguous; no memory in common with the
columns. The same bits for every n_threads.

Returns False if an entry is NaN or infinite; out is then unspecified. Raises as fixed_point_rows, and for
lengths that do not fit or first < 0.
)");
}
