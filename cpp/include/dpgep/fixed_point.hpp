// Rows on an integer grid, exactly inside the ball.
#pragma once

#include <cstdint>

#include "dpgep/typedefs.hpp"

namespace dpgep {

inline constexpr int min_grid_bits = 4;
inline constexpr int max_grid_bits = 20;

// Throws std::invalid_argument unless 4 <= bits <= 20, bound > 0, and both bound and 1 / bound are
// finite.
void require_grid(double bound, int bits);

// out_i = trunc(2^bits rows_i / bound), the row being shrunk onto the ball of radius bound where
// its norm exceeds that, and 0 where it counts as zero (clip.hpp): integers, held in doubles,
// toward zero, zeros positive. Whatever the rounding, sum_j out_ij^2 <= 4^bits holds exactly: the
// sum is an integer below 2^53, hence exact in double precision; while it is too large the scale is
// multiplied by 1 - 2^-20. out may be the memory of rows. The same bits for any number of threads.
//
// False if an entry is NaN or infinite (which one is not told: that would reveal data); out is then
// unspecified. Throws std::invalid_argument unless 4 <= bits <= 20, n_threads >= 1, bound > 0, and
// both bound and 1 / bound are finite.
template <class Scalar>
bool fixed_point_rows(const ConstRows<Scalar>& rows, double bound, int bits, Rows<double> out,
                      int n_threads);

// The same for the rows data[indptr[i]], ..., data[indptr[i + 1] - 1], without duplicates; entries
// that become 0 stay. out has as many entries as data and shares no memory with it. Throws
// std::invalid_argument as well unless indptr rises from 0 to the number of entries.
template <class Scalar, class Integer>
bool fixed_point_csr(const ConstVectorView<Scalar>& data, const ConstVectorView<Integer>& indptr,
                     double bound, int bits, VectorView<std::int32_t> out, int n_threads);

}  // namespace dpgep
