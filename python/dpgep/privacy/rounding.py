"""What rounding can add to the difference of neighbours, and the noise that covers it: docs/exactness.md, section 4.

Sums too costly to compute in integers are computed in floating point, rounded to a grid far below the noise, and
get exactly rounded normal deviates. This is a Gaussian mechanism whose sensitivity is that of the real sums plus twice
a bound on the error. An `Allowance` states what this adds to mu; noise is calibrated to the remaining mu. All numbers
here are public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpgep.models.model import PublicFacts
from dpgep.models.moments import MomentNoise
from dpgep.privacy.noise import MOST_BITS

_UNIT = 2.0**-53
# The grid of `core.PairOracle` is at most this part of the deviation.
_GRID = 2.0**-28
# Tolerance of the orthonormality of directions (grid_noise.cpp).
_ORTHONORMAL = 2.0**-36
# Successive additions in a kernel's sum over people: blocks of 2^16 rows, and one per block (csr_rows.cpp); fewer for
# dense rows, in blocks of 4096, while they are fewer than 2^28 (dense_rows.cpp). Of people with several rows, of whose
# number nothing may depend, at most 2^14 rows are added by a kernel (docs/mathematics.md, section 12).
_ROWS_IN_A_ROW = (1 << 16) + 256
# The largest data set if the number of people is protected, so that nothing depends on that number.
MOST_PEOPLE = 1 << 24
# The most rows of people who have any number of them, where samples are taken.
MOST_ROWS = 1 << 28
# Largest Frobenius norm of a given matrix, in deviations of its noise: beyond it, int64 would overflow.
_LARGEST_RADIUS = 2.0**30
# Terms of second order, (1 + u)^k - 1 - k u, while k u is below 2^-10.
_SECOND_ORDER = 1 + 2.0**-9
_ROUND_UP = 1 + 2.0**-40
_IID_WEIGHT = 2 * math.hypot(math.sqrt(2), 32)


@dataclass(frozen=True)
class Allowance:
    """Answers with noise for mu' cost at most mu' (1 + relative) + absolute."""

    relative: float
    absolute: float

    def cost(self, mu: float) -> float:
        """The cost of answers with noise for ``mu``."""
        return mu * (1 + self.relative) + self.absolute

    def within(self, mu: float) -> float:
        """The mu' that costs at most ``mu``, rounded down: ValueError if rounding would take half of it, or more."""
        if math.isinf(mu):
            return mu
        left = (mu - self.absolute * _ROUND_UP) / (1 + self.relative * _ROUND_UP) / _ROUND_UP
        if not left >= mu / 2:
            raise ValueError(
                f"with mu = {mu:.3g} floating-point rounding would take more than half of the budget: use "
                'method="release", whose sums are exact integers, or a larger budget; nothing was read or spent'
            )
        return left


def most_people(facts: PublicFacts, n: int) -> int:
    """A public bound on the number n of people, for bounding the rounding of their sums: n itself where it is public.

    ValueError if there are more people, which is all that becomes known about their number.
    """
    if facts.adjacency == "replace-one":
        return n
    most = max(MOST_PEOPLE, 4 * (facts.n or 0))
    if n > most:
        raise ValueError(
            f"there are more than {most} people, the limit for products with vectors if the number of people is "
            'protected: give public_n, a public estimate of that number, or use method="release"; nothing was '
            "released"
        )
    return most


def moments_allowance(base: MomentNoise, n: int, d: int, directions: int, bits: int = MOST_BITS) -> Allowance:
    """For one noisy second moment known through its products with that many directions, and exact sums and counts.

    ``base`` is the noise for mu = 1. Errors of m products move the answers, in multiples of noise, by sqrt(12 m) times
    the error of one (weights 2/s^2 across and 1/s^2 along a direction, twice for two neighbours).
    """
    relative = (math.sqrt(12 * directions) * product_error(n, d, directions) + _tilt(directions)) / base.second
    if base.sums:
        relative += 2 * (math.sqrt(d) * 2.0**-bits + 2 * (d + 16) * _UNIT) / base.sums
    return Allowance(relative, _grid_shift(d, directions))


def iid_allowance(base: MomentNoise, n: int, d: int) -> Allowance:
    """For a product with one direction under independent noise: one entry may have as little as 2^-5 of the deviation
    of its own, and each entry has two rounded values (grid_noise.hpp).
    """
    return Allowance(_IID_WEIGHT * product_error(n, d, 1) / base.second, _iid_shift(d))


def iid_matrix_allowance(mu: float, d: int) -> tuple[Allowance, float]:
    """The same for a symmetric matrix, and the radius as in `matrix_allowance`."""
    depth = _IID_WEIGHT * _SECOND_ORDER * _UNIT * (3 * d + 200)
    radius = min(mu * 2.0**-7 / depth, _LARGEST_RADIUS)
    return Allowance(0.0, radius * depth + _iid_shift(d)), radius


def covering_multiplier(multiplier: float, error: float, d: int) -> float:
    """The noise whose answers, of sums in the unit ball with this ``error``, cost no more than exact ones would."""
    covering = multiplier * (1 + math.sqrt(12 * d) * error + _tilt(d)) * _ROUND_UP
    shift = covering * _grid_shift(d, d)
    if shift > 0.5:
        raise ValueError(
            f"noise of {multiplier:.3g} times the squared bound is too large for the grid of the answers: "
            "use a larger budget; nothing was read or spent"
        )
    return covering / (1 - shift) * _ROUND_UP


def matrix_allowance(mu: float, d: int, directions: int) -> tuple[Allowance, float]:
    """For products with a symmetric matrix of Frobenius norm at most a radius, in deviations of the noise; and the
    radius, at which rounding of the products takes 2^-7 of ``mu``.
    """
    depth = _SECOND_ORDER * _UNIT * math.sqrt(12 * directions) * (3 * d + 200 + _projection_depth(d, directions))
    radius = min(mu * 2.0**-7 / depth, _LARGEST_RADIUS)
    return Allowance(_tilt(directions), radius * depth + _grid_shift(d, directions)), radius


def released_matrix_allowance(mu: float, d: int) -> tuple[Allowance, float]:
    """The same for a symmetric matrix released entry by entry."""
    depth = 2 * _SECOND_ORDER * _UNIT * (d + 4)
    radius = min(mu * 2.0**-7 / depth, _LARGEST_RADIUS)
    return Allowance(0.0, d * _GRID + radius * depth), radius


def vector_allowance(size: int, sensitivity: float, error: float) -> Allowance:
    """For ``size`` values computed with an error of at most this Euclidean norm."""
    return Allowance(2 * error / sensitivity, math.sqrt(size) * _GRID)


def product_error(n: int, d: int, directions: int) -> float:
    """Euclidean norm of the error of (I - Q^T Q) S q, S the sum of x x^T over n people in the unit ball, apart from
    rounding to the grid: of the inner products with q (d), the sum over people, and the projection.
    """
    return _error(n, d, directions, _ROWS_IN_A_ROW + n / 2**16)


def sampled_product_error(n: int, d: int) -> float:
    """The same for a sample of at most n people, in chunks of n/32 rows, and d directions."""
    return _error(n, d, d, n / 32 + 160)


def error_by_person(n: int, d: int) -> float:
    """The same for all people or a sample, whose rows, MOST_ROWS at most, have weights that add up to one for each."""
    return _error(n, d, d, _ROWS_IN_A_ROW + MOST_ROWS / 2**16)


def _error(n: int, d: int, directions: int, rows_in_a_row: float) -> float:
    return _SECOND_ORDER * _UNIT * n * (d + rows_in_a_row + _projection_depth(d, directions))


def _iid_shift(d: int) -> float:
    return _IID_WEIGHT * (math.sqrt(d) * _GRID + 2.0**-40)


def screen_error(n: int, d: int, bits: int) -> float:
    """Euclidean norm of the error of all row norms of a cross-covariance (of its entries, its means, and the norms) and
    of the squares of one row on the integer grid of 2^-bits.
    """
    return _SECOND_ORDER * _UNIT * n * (4 * _ROWS_IN_A_ROW + d) + 2.0 ** (2 - bits)


def _projection_depth(d: int, directions: int) -> float:
    """Roundings in (I - Q^T Q) y, relative to |y|: coefficients by tiles of 512 entries, then one subtraction each."""
    m = directions
    return (math.sqrt(m) + 1) * (140 + d / 512) + m + 2 * math.sqrt(m) + 64


def _tilt(directions: int) -> float:
    """Nearly orthonormal directions: 16 m tolerance |S|_F, and |S|_F <= sqrt 2."""
    return 16 * math.sqrt(2) * directions * _ORTHONORMAL


def _grid_shift(d: int, directions: int) -> float:
    """Rounding of d entries to the grid, by at most half a unit each, weighted as above."""
    return math.sqrt(12 * directions * d) * _GRID / 2
