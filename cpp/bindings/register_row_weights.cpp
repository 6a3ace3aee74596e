#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "dpgep/row_weights.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

// Releasing the GIL is safe in every function here: only raw memory is touched, which the caller's
// references keep alive.

void hash(const py::array& rows, const py::array& factors, const std::optional<py::array>& groups,
          py::array& keys, int n_threads) {
  const auto factor = const_vector<std::uint64_t>(factors, "factors");
  const auto group = optional_vector<std::int64_t>(groups, "groups");
  const auto target = mutable_vector<std::uint64_t>(keys, "keys");
  require_disjoint(factor, "factors", target, "keys");
  require_disjoint(group, "groups", target, "keys");
  visit_floating(rows, "rows", [&](auto scalar) {
    const auto view = const_rows<decltype(scalar)>(rows, "rows");
    require_disjoint(view, "rows", target, "keys");
    const py::gil_scoped_release no_gil;
    hash_rows(view, factor, group, target, n_threads);
  });
}

}  // namespace

void register_row_weights(py::module_& module) {
  module.def("hash_rows", &hash, py::arg("rows").noconvert(), py::arg("factors").noconvert(),
             py::arg("groups").noconvert(), py::arg("keys").noconvert(),
             py::arg("n_threads").noconvert() = 1, R"(
keys_i = a hash of row i and its group: mix(sum_j w_ij factors_j + (groups_i + 1) factors_d) modulo 2**64,
w = v ^ v >> 20, v = b ^ b >> 32, b the bits of an entry as float64, -0 being 0 and every NaN the same. mix is the finalizer of
SplitMix64. Without groups, the last term is left out.

rows: (n, d) float32 or float64, row-contiguous; factors: (d + 1,) uint64; groups: (n,) int64, or None; keys: (n,)
uint64. Raises ValueError for lengths that do not fit, TypeError for other dtypes.
)");
}
