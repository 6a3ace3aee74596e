#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "dpgep/exact_noise.hpp"
#include "dpgep/normal_cells.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

// Releasing the GIL is safe in every function here: only raw memory is touched, which the caller's
// references keep alive, and the stream has a lock of its own, taken and given back without the
// GIL.

namespace {

void fill_exact(py::array& out, std::int64_t scale, NoiseStream& stream, int n_threads) {
  const auto view = mutable_vector<std::int64_t>(out, "out");
  const py::gil_scoped_release no_gil;
  exact_normal(view, scale, stream, n_threads);
}

void fill_exact_each(py::array& out, const py::array& scales, NoiseStream& stream, int n_threads) {
  const auto view = mutable_vector<std::int64_t>(out, "out");
  const auto scale = const_vector<std::int64_t>(scales, "scales");
  const py::gil_scoped_release no_gil;
  exact_normal(view, scale, stream, n_threads);
}

// An array, with the high limbs of its entries where there are such.
Limbs limbs_of(py::array& array, const char* name, std::optional<py::array>& high, int bits) {
  const auto low = mutable_rows_of_one_or_two_axes<std::int64_t>(array, name);
  if (!high) return {low, Rows<std::int64_t>(nullptr, 0, 0, Eigen::OuterStride<>(0))};
  const auto upper = mutable_rows_of_one_or_two_axes<std::int64_t>(*high, "high");
  if (upper.rows() != low.rows() || upper.cols() != low.cols()) {
    throw py::value_error("high must have the shape of " + std::string(name));
  }
  if (bits < 1 || bits > 62) {
    throw py::value_error("low_bits must satisfy 1 <= low_bits <= 62, not " + std::to_string(bits));
  }
  return {low, upper, bits};
}

void add_exact_independent(py::array& array, std::int64_t scale, NoiseStream& stream, int n_threads,
                           std::optional<py::array> high, int low_bits) {
  const Limbs values = limbs_of(array, "array", high, low_bits);
  const py::gil_scoped_release no_gil;
  add_exact_noise(values, scale, stream, n_threads);
}

void add_exact_symmetric(py::array& matrix, std::int64_t diagonal_scale,
                         std::int64_t off_diagonal_scale, NoiseStream& stream, int n_threads,
                         std::optional<py::array> high, int low_bits) {
  require_square(matrix, "matrix");
  const Limbs values = limbs_of(matrix, "matrix", high, low_bits);
  const py::gil_scoped_release no_gil;
  add_exact_symmetric_noise(values, diagonal_scale, off_diagonal_scale, stream, n_threads);
}

py::tuple scripted(const py::array& digits, std::int64_t scale, Index n) {
  const auto words = const_vector<std::uint64_t>(digits, "digits");
  if (n < 0) throw py::value_error("n must satisfy n >= 0, not " + std::to_string(n));
  py::array_t<std::int64_t> out(n);
  const VectorView<std::int64_t> view(out.mutable_data(), n);
  Index n_words = 0;
  {
    const py::gil_scoped_release no_gil;
    n_words = exact_normal_scripted(words, scale, view);
  }
  return py::make_tuple(out, n_words);
}

}  // namespace

void register_exact_noise(py::module_& module) {
  // Now, not at the first draw: a child that is forked while another thread makes it would wait for
  // that thread, which it does not have, for ever.
  NormalCells::get();
  module.def("exact_normal", &fill_exact, py::arg("out").noconvert(), py::arg("scale").noconvert(),
             py::arg("stream"), py::arg("n_threads").noconvert() = 1, R"(
Fill out, 1-D contiguous int64, with independent round(scale * N), N ~ N(0, 1), without approximation.

After Karney's algorithm N (ACM Trans. Math. Softw. 42, 2016): a cell i is chosen from a table with a
probability in proportion to exp(-i**2 / 2048). x, uniform in (0, 1), is kept if a trial of probability
exp(-x (2i + x) / 2048) succeeds, hence (i, x) with density proportional to exp(-((i + x) / 32)**2 / 2).
The trial asks whether the longest run x > U1 > U2 > ... of uniforms, in which each step also passes
R < (2i + x) / 2048, is even (von Neumann). Uniforms are sequences of random digits, drawn as comparisons ask
for them, so every decision is one about real numbers. Last, digits are added to x until scale * (i + x) / 32
can only round to one integer. So the law is exactly that of a normal variable rounded to the nearest integer.

A call takes a 32-byte key from stream; deviates 4096 c to 4096 c + 4095 come from the ChaCha20 stream of
that key and nonce c: the same for every n_threads. With scale == 0 nothing is drawn.

Raises ValueError unless 0 <= scale <= 2**56 and n_threads >= 1.
)");
  module.def("exact_normal", &fill_exact_each, py::arg("out").noconvert(),
             py::arg("scales").noconvert(), py::arg("stream"), py::arg("n_threads").noconvert() = 1,
             R"(
The same with a scale for each entry: scales, 1-D contiguous int64, as long as out. Deviates of scale 0 are
drawn all the same.
)");
  module.def("add_exact_noise", &add_exact_independent, py::arg("array").noconvert(),
             py::arg("scale").noconvert(), py::arg("stream"), py::arg("n_threads").noconvert() = 1,
             py::arg("high").noconvert() = py::none(), py::arg("low_bits").noconvert() = 0, R"(
Add independent round(scale * N) to every entry, in row-major order: the deviates of exact_normal.

array: 1-D or 2-D int64, row-contiguous. With high, of the same shape, entries are high 2**low_bits + array; noise
is added to array, and what it then has below 0 or beyond is carried, 0 <= array < 2**low_bits: a function of
the sum. Raises ValueError as exact_normal, and if a sum would leave int64 (array is then unspecified).
)");
  module.def("add_exact_symmetric_noise", &add_exact_symmetric, py::arg("matrix").noconvert(),
             py::arg("diagonal_scale").noconvert(), py::arg("off_diagonal_scale").noconvert(),
             py::arg("stream"), py::arg("n_threads").noconvert() = 1,
             py::arg("high").noconvert() = py::none(), py::arg("low_bits").noconvert() = 0, R"(
Add round(diagonal_scale * N) on the diagonal and round(off_diagonal_scale * N) above it.

The deviates are those of exact_normal, in row-major order of the upper triangle; the lower triangle is
neither read nor written. With both scales 0 nothing is drawn.

matrix: (d, d) int64, row-contiguous. high, low_bits, and what it raises: as add_exact_noise.
)");
  module.def("exact_normal_scripted", &scripted, py::arg("digits").noconvert(),
             py::arg("scale").noconvert(), py::arg("n").noconvert(), R"(
n deviates of exact_normal from the given words in place of a key stream: for tests.

digits: 1-D contiguous uint64, each word two halves of 32 bits, the lower first. Returns the deviates and
the number of words begun. Raises ValueError when the words run out, or for a number still undecided
after 4096 bits RuntimeError.
)");
}
