#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "dpgep/csr_sums.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

// Calls body(rows) for CSR rows of the arrays' own types, which share no memory with out.
template <class Map, class Body>
void with_rows(const py::array& data, const py::array& indices, const py::array& indptr,
               const Map& out, const Body& body) {
  visit_floating(data, "data", [&](auto scalar) {
    using Scalar = decltype(scalar);
    visit_index(indptr, "indptr", [&](auto integer) {
      using Integer = decltype(integer);
      const Csr<Scalar, Integer> rows{const_vector<Scalar>(data, "data"),
                                      const_vector<Integer>(indices, "indices"),
                                      const_vector<Integer>(indptr, "indptr")};
      require_disjoint(rows.data, "data", out, "out");
      require_disjoint(rows.indices, "indices", out, "out");
      require_disjoint(rows.indptr, "indptr", out, "out");
      // Safe: only raw memory is touched, and the caller's references keep the arrays alive.
      const py::gil_scoped_release no_gil;
      body(rows);
    });
  });
}

void squares(const py::array& data, const py::array& indices, const py::array& indptr,
             const py::array& factors, py::array& out, int n_threads) {
  const auto factor = const_vector<double>(factors, "factors");
  const auto target = mutable_vector<double>(out, "out");
  require_disjoint(factor, "factors", target, "out");
  with_rows(data, indices, indptr, target,
            [&](const auto& rows) { csr_squares(rows, factor, target, n_threads); });
}

void group_sums(const py::array& data, const py::array& indices, const py::array& indptr,
                const py::array& factors, const std::optional<py::array>& groups, py::array& out,
                int n_threads) {
  const auto factor = const_vector<double>(factors, "factors");
  const ConstVectorView<std::int64_t> nobody(nullptr, 0);
  const auto group = groups ? const_vector<std::int64_t>(*groups, "groups") : nobody;
  const auto target = mutable_rows<double>(out, "out");
  require_disjoint(factor, "factors", target, "out");
  require_disjoint(group, "groups", target, "out");
  with_rows(data, indices, indptr, target,
            [&](const auto& rows) { csr_group_sums(rows, factor, group, target, n_threads); });
}

}  // namespace

void register_csr_sums(py::module_& module) {
  module.def("csr_squares", &squares, py::arg("data").noconvert(), py::arg("indices").noconvert(),
             py::arg("indptr").noconvert(), py::arg("factors").noconvert(),
             py::arg("out").noconvert(), py::arg("n_threads").noconvert() = 1, R"(
out_j = sum_i (f_i x_ij)**2 for sparse rows x_i: the diagonal of their second moment, in one pass.

data: float32 or float64, of the rows of a SciPy csr_array in canonical format (indices sorted, no
duplicates); indices and indptr: both int32 or both int64. factors: (n,) float64; out: (d,) float64,
contiguous. The same bits for every n_threads.

Raises ValueError for rows in another format, shapes that do not fit, and unless n_threads >= 1;
TypeError for another dtype.
)");
  module.def("csr_group_sums", &group_sums, py::arg("data").noconvert(),
             py::arg("indices").noconvert(), py::arg("indptr").noconvert(),
             py::arg("factors").noconvert(), py::arg("groups").noconvert(),
             py::arg("out").noconvert(), py::arg("n_threads").noconvert() = 1, R"(
out_jg = sum of f_i x_ij over the rows i of group g, for sparse rows x_i, in one pass.

groups: (n,) int64 in [0, g), or None: everybody is in the first of g <= 1. out: (d, g) float64,
contiguous. Otherwise as csr_squares.
)");
}
