#include <pybind11/stl.h>

#include <tuple>
#include <vector>

#include "arrays.hpp"
#include "dpgep/clipped_products.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

Directions directions_of(const py::array& vectors, const py::array& offset) {
  return {const_rows<double>(vectors, "vectors"), const_vector<double>(offset, "offset")};
}

bool products(const py::array& rows, double bound, int bits, const py::array& vectors,
              const py::array& offset, py::array& out, int n_threads) {
  const Directions directions = directions_of(vectors, offset);
  const Rows<double> target = mutable_rows<double>(out, "out");
  return visit_row_scalar(rows, [&](auto scalar) {
    using Scalar = decltype(scalar);
    const auto source = const_rows<Scalar>(rows, "rows");
    require_disjoint(source, "rows", target, "out");
    require_disjoint(directions.vectors, "vectors", target, "out");
    require_disjoint(directions.offset, "offset", target, "out");
    // Safe: only raw memory is touched, and the caller's references keep all arrays alive.
    const py::gil_scoped_release no_gil;
    return products_on_grid<Scalar>(source, bound, bits, directions, target, n_threads);
  });
}

bool add_products(const py::array& rows, double bound, int bits, const py::array& vectors,
                  const py::array& offset,
                  const std::vector<std::tuple<Index, Index, Index, double>>& factors,
                  py::array& total, int n_threads) {
  const Directions directions = directions_of(vectors, offset);
  const Rows<std::int64_t> target = mutable_rows<std::int64_t>(total, "total");
  std::vector<Factors> parts;
  for (const auto& [feature, n_features, direction, unit] : factors) {
    parts.push_back({feature, n_features, direction, unit});
  }
  return visit_row_scalar(rows, [&](auto scalar) {
    using Scalar = decltype(scalar);
    const auto source = const_rows<Scalar>(rows, "rows");
    require_disjoint(source, "rows", target, "total");
    require_disjoint(directions.vectors, "vectors", target, "total");
    require_disjoint(directions.offset, "offset", target, "total");
    // Safe: as above.
    const py::gil_scoped_release no_gil;
    return add_clipped_products<Scalar>(source, bound, bits, directions, parts, target, n_threads);
  });
}

}  // namespace

void register_clipped_products(py::module_& module) {
  module.def("products_on_grid", &products, py::arg("rows").noconvert(), py::arg("bound"),
             py::arg("bits").noconvert(), py::arg("vectors").noconvert(),
             py::arg("offset").noconvert(), py::arg("out").noconvert(),
             py::arg("n_threads").noconvert() = 1, R"(
Write vectors @ x - offset of each row x to out, x the row as fixed_point_rows makes it.

vectors (m, d) and offset (m,) are whole numbers in float64, so small that partial sums are exact. rows: (n, d) uint8,
float32 or float64, row-contiguous. out: (n, m) float64, in one piece. The same bits for every n_threads.

Returns False if an entry of rows is NaN or infinite; out is then unspecified. Raises as fixed_point_rows.
)");
  module.def("add_clipped_products", &add_products, py::arg("rows").noconvert(), py::arg("bound"),
             py::arg("bits").noconvert(), py::arg("vectors").noconvert(),
             py::arg("offset").noconvert(), py::arg("factors"), py::arg("total").noconvert(),
             py::arg("n_threads").noconvert() = 1, R"(
Add the sum of q (x, 1)^T over people to total, (K, d + 1) int64: every feature with the q of its factors.

factors: of each (first feature, their number, first of its K directions, steps of a product). Its products, as of
products_on_grid, are rounded to steps (ties to even); where their norm exceeds 2**bits, they are multiplied by
(1 - 2**-40) 2**bits / norm and truncated: q. The last column has the q of the first factor. bits is at most 18. The
same sums for every n_threads.

Returns False if an entry of rows is NaN or infinite; total is then unspecified. Raises as fixed_point_rows.
)");
}
