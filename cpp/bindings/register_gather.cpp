#include <vector>

#include "arrays.hpp"
#include "dpgep/gather.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

std::vector<py::array> arrays_of(const py::list& columns) {
  std::vector<py::array> arrays;
  arrays.reserve(columns.size());
  for (const py::handle& each : columns) {
    if (!py::isinstance<py::array>(each)) throw py::type_error("columns must be NumPy arrays");
    arrays.push_back(py::reinterpret_borrow<py::array>(each));
  }
  return arrays;
}

// Where each column begins, at its entry `first`. The message has no lengths: they may be secret.
template <class Scalar>
std::vector<const Scalar*> beginnings(const std::vector<py::array>& columns, Index first,
                                      Index n_rows) {
  std::vector<const Scalar*> found;
  found.reserve(columns.size());
  for (const py::array& each : columns) {
    const auto column = const_vector<Scalar>(each, "a column");
    if (first > column.size() || n_rows > column.size() - first) {
      throw py::value_error("a column has fewer entries than first and the rows of out");
    }
    found.push_back(column.data() + first);
  }
  return found;
}

template <class Scalar, class Out>
void gather(const std::vector<py::array>& columns, Index first, Rows<Out> out, int n_threads) {
  const std::vector<const Scalar*> sources = beginnings<Scalar>(columns, first, out.rows());
  for (const Scalar* const source : sources) {
    require_disjoint(ConstVectorView<Scalar>(source, out.rows()), "a column", out, "out");
  }
  // Safe: only raw memory is touched; `columns` holds the columns, and the caller out.
  const py::gil_scoped_release no_gil;
  gather_rows<Scalar, Out>(sources, out, n_threads);
}

void gather_into(const py::list& list, Index first, py::array& out, int n_threads) {
  if (first < 0) throw py::value_error("first must be >= 0, not " + std::to_string(first));
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

}  // namespace

void register_gather(py::module_& module) {
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
}
