#include <pybind11/stl.h>

#include <optional>

#include "exact_products.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

// Releasing the GIL is safe in every function here: only raw memory is touched, which the object
// and the caller's references keep alive, and the products change nothing.

namespace {

std::vector<Block> products(const ExactProducts& exact, const py::array& V) {
  const auto block = const_rows<double>(V, "V");
  const py::gil_scoped_release no_gil;
  return exact.times(block);
}

Matrices make_matrices(const py::array& a, const std::optional<py::array>& b, int n_threads) {
  require_square(a, "a");
  std::vector<py::array> arrays{a};
  std::vector<FloatingRows> matrices{floating_rows(a, "a")};
  if (b) {
    require_square(*b, "b");
    if (b->shape(0) != a.shape(0)) {
      throw py::value_error("b must have the shape of a: " + shape_of(*b) + " != " + shape_of(a));
    }
    if (!b->dtype().is(a.dtype())) throw py::type_error("a and b must have the same dtype");
    arrays.push_back(*b);
    matrices.push_back(floating_rows(*b, "b"));
  }
  return {SymmetricMatrices(std::move(matrices), n_threads), std::move(arrays)};
}

py::tuple matrices_times(const Matrices& matrices, const py::array& V) {
  std::vector<Block> blocks = products(matrices, V);
  py::object of_b = py::none();
  if (blocks.size() == 2) of_b = as_array(std::move(blocks[1]));
  return py::make_tuple(as_array(std::move(blocks[0])), of_b);
}

Dense make_dense(std::vector<py::array> views, const py::array& factors, double scale,
                 int n_threads) {
  std::vector<FloatingRows> rows;
  for (const py::array& view : views) rows.push_back(floating_rows(view, "views"));
  const auto factor = const_vector<double>(factors, "factors");
  views.push_back(factors);
  return {DenseRows(std::move(rows), factor, scale, n_threads), std::move(views)};
}

template <class Scalar, class Integer>
AnyCsr csr(const py::array& data, const py::array& indices, const py::array& indptr) {
  return Csr<Scalar, Integer>{const_vector<Scalar>(data, "data"),
                              const_vector<Integer>(indices, "indices"),
                              const_vector<Integer>(indptr, "indptr")};
}

Sparse make_sparse(const py::array& data, const py::array& indices, const py::array& indptr,
                   Index n_features, const py::array& factors, double scale, int n_threads) {
  const AnyCsr rows = visit_floating(data, "data", [&](auto scalar) {
    using Scalar = decltype(scalar);
    return visit_index(indptr, "indptr", [&](auto integer) {
      return csr<Scalar, decltype(integer)>(data, indices, indptr);
    });
  });
  const auto factor = const_vector<double>(factors, "factors");
  auto kernel = [&] {
    const py::gil_scoped_release no_gil;
    return CsrRows(rows, n_features, factor, scale, n_threads);
  }();
  return {std::move(kernel), {data, indices, indptr, factors}};
}

template <class Rows>
py::array_t<double> rows_times(const Rows& rows, const py::array& V) {
  return as_array(std::move(products(rows, V)[0]));
}

}  // namespace

void register_exact_products(py::module_& module) {
  py::class_<Matrices>(module, "SymmetricMatrices", py::module_local(), py::is_final(), R"(
Products with one symmetric matrix a, or with two, each entry of the upper triangles read once.

a, b: (d, d) float32 or float64, both the same, row-contiguous, with both triangles, which must be
equal (not checked). They are not copied and must not change while this object is used.

Raises ValueError for other shapes or strides and unless n_threads >= 1, TypeError for another dtype.
)")
      .def(py::init(&make_matrices), py::arg("a").noconvert(),
           py::arg("b").noconvert() = py::none(), py::arg("n_threads").noconvert() = 1)
      .def_property_readonly("n_features", &Matrices::n_features)
      .def("times", &matrices_times, py::arg("V").noconvert(), R"(
(A V, B V or None) in float64 for the rows of V, (K, d) float64, row-contiguous.

A row of V with at most d / 8 nonzeros costs the rows of a and b that it picks. The bits do not
depend on n_threads.
)");
  py::class_<Dense>(module, "DenseRows", py::module_local(), py::is_final(), R"(
Products with M = scale sum_i (f_i z_i)(f_i z_i)^T, which is never formed: one pass over the rows.

views: arrays (n, d_j), float32 or float64, row-contiguous; z_i is the concatenation of their rows
i, d = sum d_j. factors: (n,) float64. Nothing is copied, and nothing may change while this object
is used.

Raises ValueError for other shapes or strides, an infinite scale, and unless n_threads >= 1;
TypeError for another dtype.
)")
      .def(py::init(&make_dense), py::arg("views"), py::arg("factors").noconvert(),
           py::arg("scale"), py::arg("n_threads").noconvert() = 1)
      .def_property_readonly("n_features", &Dense::n_features)
      .def("times", &rows_times<Dense>, py::arg("V").noconvert(), R"(
M v for the rows v of V, (K, d) float64, row-contiguous. The bits do not depend on n_threads.
)");
  py::class_<Sparse>(module, "CsrRows", py::module_local(), py::is_final(), R"(
DenseRows for compressed sparse rows, the n rows of a SciPy csr_array with these attributes.

data: float32 or float64; indices and indptr: both int32 or both int64. Duplicates count as their
sum in M (but not in clip_factors_csr). Nothing is copied, and nothing may change while this object
is used: the indices are looked at once, now.

Raises ValueError unless indptr rises from 0 to the number of entries and 0 <= indices < n_features;
otherwise as DenseRows.
)")
      .def(py::init(&make_sparse), py::arg("data").noconvert(), py::arg("indices").noconvert(),
           py::arg("indptr").noconvert(), py::arg("n_features").noconvert(),
           py::arg("factors").noconvert(), py::arg("scale"), py::arg("n_threads").noconvert() = 1)
      .def_property_readonly("n_features", &Sparse::n_features)
      .def("times", &rows_times<Sparse>, py::arg("V").noconvert(), R"(
M v for the rows v of V, (K, n_features) float64, row-contiguous. The bits do not depend on
n_threads.
)");
  py::class_<Callback>(module, "CallbackProducts", py::module_local(), py::is_final(), R"(
Products with a symmetric matrix M (not checked) that a callable answers: rows that are streamed, or that
other machines hold.

callable(V) gets an array (K, n_features) float64 of its own and returns M v for its rows, an array of the
same shape and dtype, row-contiguous. It is called from the thread that asks, and must not ask the oracle
that it answers: that raises RuntimeError. What it raises, its asker sees; then nothing was drawn and
nothing is remembered.

Raises ValueError unless n_features >= 1.
)")
      .def(py::init<py::function, Index>(), py::arg("callable"), py::arg("n_features").noconvert())
      .def_property_readonly("n_features", &Callback::n_features)
      .def("times", &rows_times<Callback>, py::arg("V").noconvert(), R"(
The answer for the rows of V, (K, n_features) float64, row-contiguous.

Raises TypeError for an answer that is not an array of float64; ValueError for one of another shape or not
finite; and what the callable raises.
)");
}
