// Exact moment matrices of dense rows, from data to integers in one pass.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "dpgep/fixed_point_columns.hpp"
#include "dpgep/row_map.hpp"
#include "dpgep/row_weights.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

// A matrix by rows, or by columns that lie apart.
using DensePeople =
    std::variant<ConstRows<std::uint8_t>, ConstRows<float>, ConstRows<double>, std::vector<Column>>;

// Up to that many features and groups in all, add_dense_moments is at least as fast as BLAS: of
// this variant, which bindings that are compiled once for all of them cannot know.
extern const Index narrow_dimension;

// Adds sum_i w_i z_i z_i^T to total for j >= i, z_i = [row i on the grid; 2^bits e(groups_i)]: the
// rows are those of fixed_point_rows, and stay in the cache until they have been multiplied. There
// are n rows, and n_groups groups; without groups, everybody is in the first of at most one;
// without weights, each counts once. Rows of weight 0 are looked at as well. The same for any
// number of threads, each of which holds a matrix of the size of total twice.
//
// With `high`, of the shape of total, what does not fit total is carried there, as in
// carry_triangle; without rows, nothing is.
//
// With a map, rows of floating-point numbers are mapped first, and refused as by map_rows.
//
// False if an entry is NaN or infinite; both are then as before. Throws std::invalid_argument as
// fixed_point_rows, and unless total has the size of z_i and the groups are in range; throws
// std::overflow_error if a sum leaves int64, total being unspecified.
bool add_dense_moments(const DensePeople& people, Index n, ConstVectorView<std::int64_t> groups,
                       Index n_groups, double bound, int bits, Rows<std::int64_t> total,
                       int n_threads, const RowWeights& weights = once_each(),
                       Rows<std::int64_t> high = {nullptr, 0, 0, Eigen::OuterStride<>(0)},
                       const RowMap* map = nullptr);

}  // namespace dpgep
