#include <vector>

#include "arrays.hpp"
#include "columns.hpp"
#include "dpgep/keyed_sums.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

py::tuple sums(const py::array& bytes, const py::array& k, const py::array& l) {
  const auto block = const_vector<std::uint8_t>(bytes, "bytes");
  const auto first = const_vector<std::uint64_t>(k, "k");
  const auto second = const_vector<std::uint64_t>(l, "l");
  const auto result = [&] {
    // Safe: only memory is read that the caller's references keep alive.
    const py::gil_scoped_release no_gil;
    return keyed_sums(block, first, second);
  }();
  return py::make_tuple(result.first, result.second);
}

void column_sums(const py::list& columns, Index begun, const py::array& k, const py::array& l,
                 py::array& sums, int n_threads) {
  std::vector<ConstVectorView<std::uint8_t>> sources;
  auto target = mutable_rows<std::uint64_t>(sums, "sums");
  const std::vector<py::array> arrays = arrays_of(columns);
  for (const py::array& each : arrays) {
    sources.push_back(const_vector<std::uint8_t>(each, "a column"));
    require_disjoint(sources.back(), "a column", target, "sums");
  }
  const auto first = const_vector<std::uint64_t>(k, "k");
  const auto second = const_vector<std::uint64_t>(l, "l");
  const py::gil_scoped_release no_gil;
  keyed_column_sums(sources, begun, first, second, target, n_threads);
}

}  // namespace

void register_keyed_sums(py::module_& module) {
  module.def("keyed_sums", &sums, py::arg("bytes").noconvert(), py::arg("k").noconvert(),
             py::arg("l").noconvert(), R"(
(sum_j k_j w_j, sum_j l_j b(w_j)) mod 2**64, w_j the words of 8 bytes, b reversing the bytes of a word.

bytes: (8 n,) uint8; k, l: at least n uint64; contiguous. Raises ValueError for other lengths.
)");
  module.def("keyed_column_sums", &column_sums, py::arg("columns").noconvert(), py::arg("begun"),
             py::arg("k").noconvert(), py::arg("l").noconvert(), py::arg("sums").noconvert(),
             py::arg("n_threads"), R"(
The same of each block of columns of words: of as many rows as there are keys, the first of which lacks ``begun``.

columns: list of (8 n,) uint8; k, l: (height,) uint64; sums: (blocks, 2 * columns) uint64, two of each column, written.
Raises ValueError and TypeError for other shapes and dtypes.
)");
}
