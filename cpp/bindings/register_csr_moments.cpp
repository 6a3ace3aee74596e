#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "dpgep/csr_moments.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

void add_moments(const py::array& values, const py::array& indices, const py::array& indptr,
                 Index n_features, const std::optional<py::array>& groups, std::int32_t mark,
                 py::array& total, int n_threads, Index sums_in_cache) {
  require_square(total, "total");
  const auto target = mutable_rows<std::int64_t>(total, "total");
  const auto entries = const_vector<std::int32_t>(values, "values");
  const ConstVectorView<std::int64_t> nobody(nullptr, 0);
  const auto group = groups ? const_vector<std::int64_t>(*groups, "groups") : nobody;
  visit_index(indptr, "indptr", [&](auto integer) {
    using Integer = decltype(integer);
    const Csr<std::int32_t, Integer> rows{entries, const_vector<Integer>(indices, "indices"),
                                          const_vector<Integer>(indptr, "indptr")};
    require_disjoint(rows.data, "values", target, "total");
    require_disjoint(rows.indices, "indices", target, "total");
    require_disjoint(rows.indptr, "indptr", target, "total");
    require_disjoint(group, "groups", target, "total");
    // Safe: only raw memory is touched, and the caller's references keep the arrays alive.
    const py::gil_scoped_release no_gil;
    add_csr_moments<Integer>(rows, n_features, group, mark, target, n_threads, sums_in_cache);
  });
}

}  // namespace

void register_csr_moments(py::module_& module) {
  module.def("add_csr_moments", &add_moments, py::arg("values").noconvert(),
             py::arg("indices").noconvert(), py::arg("indptr").noconvert(),
             py::arg("n_features").noconvert(), py::arg("groups").noconvert(),
             py::arg("mark").noconvert(), py::arg("total").noconvert(),
             py::arg("n_threads").noconvert() = 1,
             py::arg("sums_in_cache").noconvert() = Index{1} << 20, R"(
total_jk += sum_i z_ij z_ik for k >= j, z_i = [row i; mark e(groups_i)], exactly: rows are never filled in.

values: int32, of the rows of a SciPy csr_array in canonical format (indices sorted, no duplicates);
indices and indptr: both int32 or both int64. groups: (n,) int64 in [0, g), or None: everybody is in
the first of g <= 1. total: (n_features + g, n_features + g) int64, row-contiguous, whose lower triangle
is not touched. The same bits for every n_threads, and for every sums_in_cache: rows are sorted where
total has more entries.

Not checked: sums that leave int64 wrap around. The caller keeps sum_i |z_ij z_ik| < 2**63.

Raises ValueError, before total is touched, for rows in another format, groups or shapes that do not
fit, and unless n_threads >= 1; TypeError for another dtype.
)");
}
