#include <pybind11/stl.h>

#include <optional>

#include "columns.hpp"
#include "dpgep/dense_moments.hpp"
#include "register.hpp"
#include "row_map.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

// The rows first, ..., first + n - 1 of a matrix.
template <class Scalar>
ConstRows<Scalar> some_rows(const py::array& matrix, Index first, Index n,
                            const Rows<std::int64_t>& total) {
  const auto rows = const_rows<Scalar>(matrix, "people");
  if (first > rows.rows() || n > rows.rows() - first) {
    throw py::value_error("people has fewer rows than first and n");
  }
  require_disjoint(rows, "people", total, "total");
  return {rows.data() + first * rows.outerStride(), n, rows.cols(),
          Eigen::OuterStride<>(rows.outerStride())};
}

DensePeople rows_of(const py::array& matrix, Index first, Index n,
                    const Rows<std::int64_t>& total) {
  if (py::isinstance<py::array_t<std::uint8_t>>(matrix)) {
    return some_rows<std::uint8_t>(matrix, first, n, total);
  }
  return visit_floating(matrix, "people, if not uint8,", [&](auto scalar) -> DensePeople {
    return some_rows<decltype(scalar)>(matrix, first, n, total);
  });
}

bool add_dense(const py::object& people, Index first, Index n,
               const std::optional<py::array>& groups, Index n_groups, double bound, int bits,
               py::array& total, int n_threads, const std::optional<py::array>& weights,
               std::optional<py::array>& high, const std::optional<MapArguments>& map) {
  require_first(first);
  if (n < 0) throw py::value_error("n must be >= 0, not " + std::to_string(n));
  if (n_groups < 0) throw py::value_error("n_groups must be >= 0");
  require_square(total, "total");
  const auto target = mutable_rows<std::int64_t>(total, "total");
  const auto group = optional_vector<std::int64_t>(groups, "groups");
  const auto weight = optional_vector<std::int16_t>(weights, "weights");
  require_disjoint(group, "groups", target, "total");
  require_disjoint(weight, "weights", target, "total");
  Rows<std::int64_t> high_limb(nullptr, 0, 0, Eigen::OuterStride<>(0));
  if (high) {
    new (&high_limb) Rows<std::int64_t>(mutable_rows<std::int64_t>(*high, "high"));
    require_disjoint(high_limb, "high", target, "total");
    require_disjoint(group, "groups", high_limb, "high");
    require_disjoint(weight, "weights", high_limb, "high");
  }
  const bool by_columns = py::isinstance<py::list>(people);
  if (!by_columns && !py::isinstance<py::array>(people)) {
    throw py::type_error("people must be a matrix, or a list of columns");
  }
  const auto arrays = by_columns ? arrays_of(people) : std::vector<py::array>{people};
  const DensePeople source =
      by_columns ? columns_of(arrays, first, n, target) : rows_of(arrays.front(), first, n, target);
  const RowMap how = map ? row_map(*map) : RowMap{};
  // Safe: only raw memory is touched; `arrays` holds the people, and the caller all else.
  const py::gil_scoped_release no_gil;
  return add_dense_moments(source, n, group, n_groups, bound, bits, target, n_threads, weight,
                           high_limb, map ? &how : nullptr);
}

}  // namespace

void register_dense_moments(py::module_& module) {
  module.attr("narrow_dimension") = narrow_dimension;
  module.def("add_dense_moments", &add_dense, py::arg("people").noconvert(),
             py::arg("first").noconvert(), py::arg("n").noconvert(), py::arg("groups").noconvert(),
             py::arg("n_groups").noconvert(), py::arg("bound"), py::arg("bits").noconvert(),
             py::arg("total").noconvert(), py::arg("n_threads").noconvert() = 1,
             py::arg("weights").noconvert() = py::none(), py::arg("high").noconvert() = py::none(),
             py::arg("map") = py::none(), R"(
total_jk += sum_i w_i z_ij z_ik for k >= j, z_i = [row i on the grid; 2**bits e(groups_i)], exactly, i = first, ...,
first + n - 1. The grid is that of fixed_point_rows.

people: a matrix as fixed_point_rows takes it, or a list of columns as fixed_point_columns does. groups: (n,) int64
in [0, n_groups), or None: everybody is in the first of n_groups <= 1. weights: w, (n,) int16, or None: each row
counts once. total: (d + n_groups, d + n_groups) int64,
row-contiguous, whose lower triangle is not touched; no memory in common with the others. The same bits for
every n_threads.

high: int64 of the shape of total, or None: what does not fit is carried there, as by carry_triangle, so that
high 2**40 + total is the sum.

map: location, scale, largest and missing of map_rows, by which rows of floating-point numbers are mapped first, or
None.

Returns False if an entry is NaN, unless that is missing, or infinite; both are then as before.

Raises ValueError, before total is touched, for lengths, groups, weights, bound, bits or shapes that do not fit, and
unless n_threads >= 1; TypeError for another dtype; OverflowError if a sum leaves int64, total being unspecified.
)");
}
