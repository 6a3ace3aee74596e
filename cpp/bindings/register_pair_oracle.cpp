#include <pybind11/stl.h>

#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "exact_products.hpp"
#include "held_oracle.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

constexpr const char* name_of(NoiseMode mode) {
  switch (mode) {
    case NoiseMode::fresh:
      return "fresh";
    case NoiseMode::lazy:
      return "lazy";
    default:
      return "none";
  }
}

HeldNoise held_noise(std::string_view mode, std::vector<double> scales, std::string_view shape,
                     Index n_products, NoiseStream* stream, std::optional<Index> max_directions,
                     int n_threads) {
  HeldNoise noise;
  noise.mode = parse_noise_mode(mode);
  noise.scales = std::move(scales);
  noise.shape = parse_noise_shape(shape);
  noise.n_products = n_products;
  noise.stream = stream;
  if (max_directions) noise.max_directions = *max_directions;
  noise.n_threads = n_threads;
  noise.owner = py::cast(stream, py::return_value_policy::reference);
  return noise;
}

std::unique_ptr<HeldOracle> of_matrices(const Matrices& matrices, const HeldNoise& noise) {
  return std::make_unique<HeldOracle>(
      matrices, py::cast(matrices, py::return_value_policy::reference), noise, MatrixPair{});
}

const ExactProducts& rows_of(const py::object& rows) {
  if (py::isinstance<Dense>(rows)) return rows.cast<const Dense&>();
  if (py::isinstance<Sparse>(rows)) return rows.cast<const Sparse&>();
  if (py::isinstance<Callback>(rows)) return rows.cast<const Callback&>();
  throw py::type_error("rows must be DenseRows, CsrRows or CallbackProducts, not " +
                       py::str(py::type::of(rows)).cast<std::string>());
}

Blocks parse_blocks(std::string_view name) {
  if (name == "whole") return Blocks::whole;
  if (name == "between") return Blocks::between;
  if (name == "within") return Blocks::within;
  throw py::value_error("blocks must be \"whole\", \"between\" or \"within\", not \"" +
                        std::string(name) + "\"");
}

PencilPart pencil_part(const py::array& weights, double share, std::string_view blocks) {
  return {const_vector<double>(weights, "weights"), share, parse_blocks(blocks)};
}

std::unique_ptr<HeldOracle> of_rows(const py::object& rows, const HeldNoise& noise,
                                    const py::array& factors, const PencilPart& a,
                                    const PencilPart* b, std::vector<Index> view_sizes) {
  Pencil pencil{const_rows<double>(factors, "factors"), {a}, std::move(view_sizes)};
  if (b != nullptr) pencil.parts.push_back(*b);
  return std::make_unique<HeldOracle>(rows_of(rows), rows, noise, std::move(pencil));
}

py::tuple times(HeldOracle& oracle, const py::array& V) {
  const auto block = const_rows<double>(V, "V");
  PairProducts products = [&] {
    // Safe: only raw memory is touched, which the oracle and the caller keep alive. The oracle's
    // lock is taken and given back without the GIL.
    const py::gil_scoped_release no_gil;
    return oracle.times(block);
  }();
  return py::make_tuple(as_array(std::move(products.A)), as_array(std::move(products.B)));
}

}  // namespace

void register_pair_oracle(py::module_& module) {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const CapacityExceeded& error) {
      PyErr_SetString(PyExc_MemoryError, error.what());
    }
  });
  py::class_<PencilPart>(module, "PencilPart", py::module_local(), py::is_final(), R"(
One matrix of a pair: the blocks "whole", "between" or "within" views of share M + F^T diag(weights) F.

weights: (r,) float64, copied, and public; M and F belong to the PairOracle.
)")
      .def(py::init(&pencil_part), py::arg("weights").noconvert(), py::arg("share") = 0.0,
           py::arg("blocks") = "whole");
  py::class_<HeldNoise>(module, "Noise", py::module_local(), py::is_final(), R"(
What is added to products with symmetric matrices, and what is paid for.

mode "none": the exact products; scales are not used. "fresh": every call draws a new symmetric noise
matrix Z for each matrix; n_products calls are paid for. "lazy": one Z for good, by deferred decisions;
shape "goe". Every answer is a combination of noisy products with orthonormal directions; a part of a
row of at most 1e-10 of its norm beyond the others is dropped. scales: one for each matrix; a matrix of
scale 0 is public.

A product with a direction is rounded to the grid of 2^-28 scale (the next power of two below), and the
noise is a normal deviate rounded exactly to it, of the least deviation on the grid that is not below
scale: all else is computed from released integers. n_threads draw it; the bits do not depend on them.

Lazy noise remembers every direction asked and its answers; a call that would need more than
max_directions raises MemoryError, and changes nothing.

Raises ValueError for another mode or shape. The oracle that takes it raises ValueError for other numbers of scales,
for a scale that is negative or not finite, n_products < 0, max_directions < 0, lazy noise of shape "iid", and where
noise is to be drawn without a stream.

Source: docs/mathematics, section 7; docs/exactness.
)")
      .def(py::init(&held_noise), py::arg("mode"), py::arg("scales") = py::tuple(),
           py::arg("shape") = "goe", py::arg("n_products").noconvert() = 0,
           py::arg("stream") = py::none(), py::arg("max_directions") = py::none(),
           py::arg("n_threads").noconvert() = 1);
  py::class_<HeldOracle>(module, "PairOracle", py::module_local(), py::is_final(), R"(
Products with a pair (A, B) of symmetric matrices, noise included.
)")
      .def_static("of_matrices", &of_matrices, py::arg("matrices"), py::arg("noise"),
                  "The matrices a and b, or a and I, each with noise of its own.")
      .def_static("of_rows", &of_rows, py::arg("rows"), py::arg("noise"),
                  py::arg("factors").noconvert(), py::arg("a"), py::arg("b") = py::none(),
                  py::arg("view_sizes") = std::vector<Index>(), R"(
A and B (None: the identity) made of the second moment of rows, M~ = M + Z, and released vectors, the rows of F = factors:
each is a PencilPart, the blocks of share M~ + F^T diag(weights) F for views of view_sizes features, in their order;
empty: one view.

M~ is asked once for both, and not at all where neither needs it; where blocks are kept, for K rows a view, zero
outside of it, the views in their order.

rows: DenseRows, CsrRows or CallbackProducts. factors: (r, d) float64, copied, and public.
Raises ValueError or TypeError for other shapes, weights or shares that are not finite, unless view_sizes is empty or
lists two positive sizes or more that add up to d, and where blocks are kept of one view.
)")
      .def_property_readonly("n_features", &HeldOracle::n_features)
      .def_property_readonly("noise", [](const HeldOracle& self) { return name_of(self.mode()); })
      .def_property_readonly("n_directions", &HeldOracle::n_directions,
                             "Directions asked so far, with lazy noise.")
      .def_property_readonly("n_answered", &HeldOracle::n_answered, "Calls answered so far.")
      .def_property_readonly("n_passes", &HeldOracle::n_passes,
                             "Blocks of exact products computed so far: passes over the rows.")
      .def("times", &times, py::arg("V").noconvert(), R"(
(A V, B V) for the rows of V, (K, d) float64, row-contiguous. Calls from several threads take turns.

Raises RuntimeError beyond the calls that were paid; MemoryError beyond max_directions; ValueError for V of other width or not finite, and
for several directions at once of noise of shape "iid".
)");
}
