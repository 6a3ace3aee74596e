// Lists of NumPy vectors as the columns of a matrix.
#pragma once

#include <type_traits>
#include <vector>

#include "arrays.hpp"
#include "dpgep/fixed_point_columns.hpp"

namespace dpgep::bindings {

inline std::vector<py::array> arrays_of(const py::list& columns) {
  std::vector<py::array> arrays;
  arrays.reserve(columns.size());
  for (const py::handle& each : columns) {
    if (!py::isinstance<py::array>(each)) throw py::type_error("columns must be NumPy arrays");
    arrays.push_back(py::reinterpret_borrow<py::array>(each));
  }
  return arrays;
}

inline void require_first(Index first) {
  if (first < 0) throw py::value_error("first must be >= 0, not " + std::to_string(first));
}

// Where the column has its entry `first`, `n_rows` to be read from there on; apart from what is
// written. The message has no lengths: they may be secret.
template <class Scalar, class Out>
const Scalar* beginning(const py::array& array, Index first, Index n_rows, const Rows<Out>& out) {
  const auto column = const_vector<Scalar>(array, "a column");
  if (first > column.size() || n_rows > column.size() - first) {
    throw py::value_error("a column has fewer entries than first and the rows asked for");
  }
  require_disjoint(column, "a column", out, "out");
  return column.data() + first;
}

// The alternative of Column that the array's dtype is, from the I-th on.
template <std::size_t I = 0, class Out>
Column column_of(const py::array& array, Index first, Index n_rows, const Rows<Out>& out) {
  if constexpr (I == std::variant_size_v<Column>) {
    throw py::type_error("a column must hold floating-point numbers or integers, not " +
                         py::str(array.dtype()).cast<std::string>());
  } else {
    using Scalar =
        std::remove_const_t<std::remove_pointer_t<std::variant_alternative_t<I, Column>>>;
    if (py::isinstance<py::array_t<Scalar>>(array)) {
      return beginning<Scalar>(array, first, n_rows, out);
    }
    return column_of<I + 1>(array, first, n_rows, out);
  }
}

template <class Out>
std::vector<Column> columns_of(const std::vector<py::array>& arrays, Index first, Index n_rows,
                               const Rows<Out>& out) {
  std::vector<Column> columns;
  columns.reserve(arrays.size());
  for (const py::array& each : arrays) columns.push_back(column_of(each, first, n_rows, out));
  return columns;
}

}  // namespace dpgep::bindings
