#include "arrays.hpp"
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

}  // namespace

void register_keyed_sums(py::module_& module) {
  module.def("keyed_sums", &sums, py::arg("bytes").noconvert(), py::arg("k").noconvert(),
             py::arg("l").noconvert(), R"(
(sum_j k_j w_j, sum_j l_j b(w_j)) mod 2**64, w_j the words of 8 bytes, b reversing the bytes of a word.

bytes: (8 n,) uint8; k, l: at least n uint64; contiguous. Raises ValueError for other lengths.
)");
}
