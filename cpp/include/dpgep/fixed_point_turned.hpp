// Rows on the integer grid, turned into columns.
#pragma once

#include "dpgep/typedefs.hpp"

namespace dpgep {

class RowMapper;

// The bits of fixed_point_rows; row j of out has the grid's entries of column j. Columns of rows
// are as many as rows of out, and the other way round; they share no memory. With `numbers`, only
// the rows with these numbers are read, in this order: out has a column for each. With a mapper,
// rows of floating-point numbers are mapped first.
//
// False if an entry is NaN or infinite, or the mapper refuses it; out is then unspecified. Throws
// std::invalid_argument as fixed_point_rows.
template <class Scalar>
bool fixed_point_turned(const ConstRows<Scalar>& rows, double bound, int bits, Rows<double> out,
                        const Index* numbers = nullptr, const RowMapper* mapper = nullptr);

}  // namespace dpgep
