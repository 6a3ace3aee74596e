// What a night adds to the sums of all nights before it: a term of the factor of
// docs/mathematics.md, section 13, in whole numbers.
//
// Packed, n numbers are the upper triangles of n_matrices (d, d) matrices, by rows, and others;
// unpacked, they are the matrices, of which nothing is said below the diagonal, and the same
// others. Whole numbers have two limbs, low + 2^40 high.
#pragma once

#include <cstdint>

#include "dpgep/typedefs.hpp"

namespace dpgep {

constexpr int night_limb_bits = 40;
constexpr int night_factor_bits = 6;  // of the steps of the factor, and of a night's weight in it

struct NightShape {
  Index n_matrices;
  Index d;
};

// exact += values; then values = 2^6 exact - round(2^-6 sum_k steps_k before_k), halves upwards.
//
// values: (2, m) unpacked; exact: (2, n), of which the low limbs are in [0, 2^40) afterwards;
// before: a row of n numbers for each step, all in [-2^62, 2^62).
//
// Throws std::invalid_argument for other shapes, over 2^12 steps or one beyond 2^16; for low limbs
// beyond 2^62, high limbs beyond 2^54 and a rounded number outside [-2^62, 2^62). Both arrays are
// then unspecified.
void begin_night(Rows<std::int64_t> values, Rows<std::int64_t> exact,
                 const ConstRows<std::int64_t>& before, const ConstVectorView<std::int64_t>& steps,
                 NightShape shape);

// noise = values - 2^6 exact, and published = unit values, rounded twice: as a sum of limbs, and by
// the unit. Sizes as above.
//
// Throws std::invalid_argument for other shapes, for noise outside [-2^62, 2^62), for limbs of
// exact as above, and for high limbs of values from 2^62 on. What is written is then unspecified.
void end_night(const ConstRows<std::int64_t>& values, const ConstRows<std::int64_t>& exact,
               double unit, VectorView<std::int64_t> noise, VectorView<double> published,
               NightShape shape);

}  // namespace dpgep
