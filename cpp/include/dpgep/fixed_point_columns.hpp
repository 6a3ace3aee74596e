// Rows on the integer grid, of a matrix whose columns lie apart, as tables hold them.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// Where the entries of a column begin; they follow each other in memory.
using Column = std::variant<const float*, const double*, const std::int8_t*, const std::int16_t*,
                            const std::int32_t*, const std::int64_t*, const std::uint8_t*,
                            const std::uint16_t*, const std::uint32_t*, const std::uint64_t*>;

// The bits of fixed_point_rows for the rows (columns[0][i], columns[1][i], ...), each entry rounded
// to a double if need be. Row j of out has the grid's entries of columns[j]: the columns are never
// turned into rows. The columns have as many entries as out has columns, and share no memory with
// it. The same bits for any number of threads.
//
// False if an entry is NaN or infinite; out is then unspecified. Throws std::invalid_argument as
// fixed_point_rows, and unless there are as many columns as out has rows.
bool fixed_point_columns(const std::vector<Column>& columns, double bound, int bits,
                         Rows<double> out, int n_threads);

}  // namespace dpgep
