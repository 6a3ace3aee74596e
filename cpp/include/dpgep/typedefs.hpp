// The array types of the kernels: views of memory that the caller owns, never copies.
#pragma once

#include <Eigen/Core>
#include <cstdint>

namespace dpgep {

using Index = Eigen::Index;

template <class Scalar>
using RowMajorMatrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class Scalar>
using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;

// Row-contiguous: consecutive entries of a row are neighbours, rows are any distance apart. So a
// column slice of a buffer, or a corner of a matrix, works in place.
template <class Scalar>
using Rows = Eigen::Map<RowMajorMatrix<Scalar>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <class Scalar>
using ConstRows = Eigen::Map<const RowMajorMatrix<Scalar>, Eigen::Unaligned, Eigen::OuterStride<>>;

template <class Scalar>
using VectorView = Eigen::Map<Vector<Scalar>>;
template <class Scalar>
using ConstVectorView = Eigen::Map<const Vector<Scalar>>;

}  // namespace dpgep
