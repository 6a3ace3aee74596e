// NumPy arrays as views of the core's types. An array is used as it is or refused: the kernels
// write in place, so a silent copy or conversion would lose their result.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "dpgep/typedefs.hpp"

namespace dpgep::bindings {

namespace py = pybind11;

inline std::string shape_of(const py::array& array) {
  return py::str(array.attr("shape")).cast<std::string>();
}

// Calls with_scalar(Scalar{}) for the array's own type, float or double.
template <class WithScalar>
auto visit_floating(const py::array& array, const char* name, WithScalar with_scalar) {
  if (py::isinstance<py::array_t<double>>(array)) return with_scalar(double{});
  if (py::isinstance<py::array_t<float>>(array)) return with_scalar(float{});
  throw py::type_error(std::string(name) + " must have dtype float32 or float64, not " +
                       py::str(array.dtype()).cast<std::string>());
}

// The same for what fixed_point_rows reads: uint8, too.
template <class WithScalar>
auto visit_row_scalar(const py::array& rows, WithScalar with_scalar) {
  if (py::isinstance<py::array_t<double>>(rows)) return with_scalar(double{});
  if (py::isinstance<py::array_t<float>>(rows)) return with_scalar(float{});
  if (py::isinstance<py::array_t<std::uint8_t>>(rows)) return with_scalar(std::uint8_t{});
  throw py::type_error("rows must have dtype uint8, float32 or float64, not " +
                       py::str(rows.dtype()).cast<std::string>());
}

// The same for int32 or int64.
template <class WithInteger>
auto visit_index(const py::array& array, const char* name, WithInteger with_integer) {
  if (py::isinstance<py::array_t<std::int32_t>>(array)) return with_integer(std::int32_t{});
  if (py::isinstance<py::array_t<std::int64_t>>(array)) return with_integer(std::int64_t{});
  throw py::type_error(std::string(name) + " must have dtype int32 or int64, not " +
                       py::str(array.dtype()).cast<std::string>());
}

template <class Scalar>
void require_dtype(const py::array& array, const char* name) {
  if (py::isinstance<py::array_t<Scalar>>(array)) return;
  throw py::type_error(std::string(name) + " must have dtype " +
                       py::str(py::dtype::of<Scalar>()).cast<std::string>() + ", not " +
                       py::str(array.dtype()).cast<std::string>());
}

inline void require_ndim(const py::array& array, py::ssize_t ndim, const char* name) {
  if (array.ndim() == ndim) return;
  throw py::value_error(std::string(name) + " must have ndim == " + std::to_string(ndim) +
                        ", not shape " + shape_of(array));
}

inline void require_writeable(const py::array& array, const char* name) {
  if (!array.writeable()) throw py::value_error(std::string(name) + " must be writeable");
}

inline void require_aligned(const py::array& array, const char* name) {
  const auto address = reinterpret_cast<std::uintptr_t>(array.data());
  if (address % static_cast<std::uintptr_t>(array.itemsize()) != 0) {
    throw py::value_error(std::string(name) + " must be aligned to its itemsize");
  }
}

// Strides of an axis with fewer than two entries mean nothing, so they are not looked at.
template <class Scalar>
void require_contiguous_last_axis(const py::array& array, const char* name) {
  require_dtype<Scalar>(array, name);
  require_aligned(array, name);
  const py::ssize_t last = array.ndim() - 1;
  if (array.shape(last) > 1 && array.size() > 0 && array.strides(last) != array.itemsize()) {
    throw py::value_error(std::string(name) + " must have a contiguous last axis: stride " +
                          std::to_string(array.strides(last)) + " != itemsize " +
                          std::to_string(array.itemsize()) + ", shape " + shape_of(array));
  }
}

// The distance between rows, in entries.
template <class Scalar>
Index row_stride(const py::array& array, const char* name) {
  require_contiguous_last_axis<Scalar>(array, name);
  const py::ssize_t width = array.shape(1);
  if (array.shape(0) <= 1 || width == 0) return width;
  const py::ssize_t stride = array.strides(0);
  if (stride < width * array.itemsize() || stride % array.itemsize() != 0) {
    throw py::value_error(std::string(name) +
                          " must be row-contiguous: row stride >= width in whole entries, not "
                          "stride " +
                          std::to_string(stride) + " bytes for shape " + shape_of(array));
  }
  return stride / array.itemsize();
}

template <class Scalar>
ConstRows<Scalar> const_rows(const py::array& array, const char* name) {
  require_dtype<Scalar>(array, name);
  require_ndim(array, 2, name);
  const Eigen::OuterStride<> stride(row_stride<Scalar>(array, name));
  return {static_cast<const Scalar*>(array.data()), array.shape(0), array.shape(1), stride};
}

template <class Scalar>
Rows<Scalar> mutable_rows(py::array& array, const char* name) {
  require_dtype<Scalar>(array, name);
  require_ndim(array, 2, name);
  const Eigen::OuterStride<> stride(row_stride<Scalar>(array, name));
  require_writeable(array, name);
  return {static_cast<Scalar*>(array.mutable_data()), array.shape(0), array.shape(1), stride};
}

template <class Scalar>
ConstVectorView<Scalar> const_vector(const py::array& array, const char* name) {
  require_dtype<Scalar>(array, name);
  require_ndim(array, 1, name);
  require_contiguous_last_axis<Scalar>(array, name);
  return {static_cast<const Scalar*>(array.data()), array.shape(0)};
}

// Without entries for None.
template <class Scalar>
ConstVectorView<Scalar> optional_vector(const std::optional<py::array>& array, const char* name) {
  return array ? const_vector<Scalar>(*array, name) : ConstVectorView<Scalar>(nullptr, 0);
}

template <class Scalar>
VectorView<Scalar> mutable_vector(py::array& array, const char* name) {
  require_dtype<Scalar>(array, name);
  require_ndim(array, 1, name);
  require_contiguous_last_axis<Scalar>(array, name);
  require_writeable(array, name);
  return {static_cast<Scalar*>(array.mutable_data()), array.shape(0)};
}

// A new array that owns what was the matrix: nothing is copied.
template <class Scalar>
py::array_t<Scalar> as_array(RowMajorMatrix<Scalar>&& matrix) {
  auto owner = std::make_unique<RowMajorMatrix<Scalar>>(std::move(matrix));
  const auto& kept = *owner;
  const py::capsule free(owner.get(),
                         [](void* p) { delete static_cast<RowMajorMatrix<Scalar>*>(p); });
  owner.release();
  return py::array_t<Scalar>({kept.rows(), kept.cols()}, kept.data(), free);
}

// A vector is seen as one row.
template <class Scalar>
Rows<Scalar> mutable_rows_of_one_or_two_axes(py::array& array, const char* name) {
  if (array.ndim() == 2) return mutable_rows<Scalar>(array, name);
  if (array.ndim() != 1) {
    throw py::value_error(std::string(name) + " must have ndim 1 or 2, not shape " +
                          shape_of(array));
  }
  VectorView<Scalar> view = mutable_vector<Scalar>(array, name);
  return {view.data(), 1, view.size(), Eigen::OuterStride<>(view.size())};
}

inline void require_square(const py::array& array, const char* name) {
  if (array.ndim() == 2 && array.shape(0) == array.shape(1)) return;
  throw py::value_error(std::string(name) + " must be square (d, d), not " + shape_of(array));
}

// The bytes that an array may touch.
struct Extent {
  std::uintptr_t begin, end;
};

template <class Map>
Extent extent(const Map& rows) {
  const auto begin = reinterpret_cast<std::uintptr_t>(rows.data());
  if (rows.size() == 0) return {begin, begin};
  Index n_entries = rows.size();
  if constexpr (!Map::IsVectorAtCompileTime) {
    n_entries = (rows.rows() - 1) * rows.outerStride() + rows.cols();
  }
  return {begin, begin + static_cast<std::uintptr_t>(n_entries) * sizeof(typename Map::Scalar)};
}

inline bool are_disjoint(const Extent& a, const Extent& b) {
  return a.end <= b.begin || b.end <= a.begin;
}

template <class Map, class OtherMap>
void require_disjoint(const Map& a, const char* a_name, const OtherMap& b, const char* b_name) {
  if (are_disjoint(extent(a), extent(b))) return;
  throw py::value_error(std::string(a_name) + " and " + b_name + " must not overlap");
}

// Row by row, writing the same row in place is safe; writing a row that is still to be read is not.
template <class Scalar>
void require_same_or_disjoint(const ConstRows<Scalar>& rows, const Rows<double>& out) {
  const Extent read = extent(rows);
  const Extent written = extent(out);
  const bool same = std::is_same_v<Scalar, double> && read.begin == written.begin &&
                    rows.outerStride() == out.outerStride();
  if (!are_disjoint(read, written) && !same) {
    throw py::value_error(
        "out must be the memory of rows (float64, same strides) or not overlap it");
  }
}

}  // namespace dpgep::bindings
