"""Noise: how much a release of the moment matrix needs, and exactly rounded deviates on a public grid.

The low-order bits of values on a grid reveal nothing. Rows lie in the unit ball and sums are not divided by n. Noise:
GOE with diagonal deviation s1 on the second moment, independent s2 on the sums per group, independent s3 on the counts.
For neighbours x, x' the Gaussian-DP parameter is

    mu^2 = |xx^T - x'x'^T|_F^2 / s1^2 + |change of sums|^2 / s2^2 + |change of counts|^2 / s3^2,

whose worst cases are those of `moment_mu`: docs/mathematics.md, section 3, and proofs/ThreeScales.v, which Coq checks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.integer_sums import GridSums
from dpgep.data.rows import HALF
from dpgep.models.model import Adjacency, Matrix
from dpgep.models.moments import NO_NOISE, MomentLayout, MomentNoise
from dpgep.privacy.ledger import NoiseBlock
from dpgep.problems.problem import MatrixProblem

# Rows have 20 bits in fixed point, fewer only where the noise is so large that its integer scale would exceed 2^56.
MOST_BITS, FEWEST_BITS = 20, 4
MOST_SCALE_BITS = 55

# How the ledger names the blocks of a moment matrix, and that of one person under the local model.
SECOND, SUMS = "second moment of rows/bound, sum over people", "sums of rows/bound per group"
COUNTS, TOTAL = "counts per group", "total weight of people"
RECORD = "x x^T of one record/bound"
MOMENT_BLOCKS = frozenset({SECOND, SUMS, COUNTS, TOTAL, RECORD})

# Rounding of the dozen operations below, in the direction of more noise.
_ROUND_UP = 1 + 2.0**-48

# The limits of the theorem on noise in shares: within them the distance of docs/masked.md, (3), is below 2^-466000
# (tests/privacy/test_shares.py). Entries: their masks, 16 bytes each, are all that ChaCha20 has for one key (RFC 8439:
# 2^32 blocks of 64 bytes).
LEAST_SCALE, MOST_PARTIES, MOST_ENTRIES = 1 << 8, 1 << 16, 1 << 34
LEAST_MU, LARGEST_MU = 2.0**-20, 32.0
# Noise is drawn for a mu that is smaller by this part than the mu that is paid.
_MARGIN = 2.0**-40
# Deviates are drawn on a grid of 2^-28 deviations; values beyond 2^61 steps are clipped to that.
_BITS = 28
_MOST_UNITS = 2.0**61


def add_grid_noise(values: Matrix, deviation: float, stream: core.NoiseStream, *, symmetric: bool = False) -> Matrix:
    """``values`` rounded to the grid of 2^-28 deviation, plus independent noise of at least that deviation.

    As in `core.PairOracle`; deviation 0 adds none. Values beyond 2^61 steps are clipped to that. To a ``symmetric``
    matrix is added GOE noise, of this deviation on the diagonal.
    """
    if deviation == 0:
        return values
    unit = math.ldexp(1.0, math.frexp(deviation)[1] - 1 - _BITS)
    scale = math.ceil(deviation / unit)
    with np.errstate(over="ignore"):
        units = values / unit
    integers = np.rint(np.clip(units, -_MOST_UNITS, _MOST_UNITS, out=units), out=units).astype(np.int64)
    if symmetric:
        core.add_exact_symmetric_noise(integers, scale, root_of_part(scale, 2), stream, thread_count())
    else:
        core.add_exact_noise(integers, scale, stream, thread_count())
    noisy = unit * integers.astype(np.float64)
    if symmetric:
        core.mirror_upper(noisy)
    return np.asarray(noisy)


def noisy_squares(sums: GridSums, scale: int, stream: core.NoiseStream) -> Matrix:
    """(d,), exact sums of squares in the unit ball plus noise of deviation scale 4^-bits, both of a person's weight."""
    high, low = (part.copy() for part in sums.squares())
    # carried to 0 <= low < 2^20, the two parts are unique: even the rounding of their sum follows from the released
    # integer
    core.add_exact_noise(low, scale, stream, thread_count(), high, HALF)
    unit = -2 * sums.bits - sums.weight_bits
    return np.asarray(np.ldexp(np.ldexp(high.astype(np.float64), HALF) + low, unit))


def noisy_groups(exact: GridSums, of_sums: int, of_counts: int, stream: core.NoiseStream) -> tuple[Matrix, Matrix]:
    """Exact sums and counts per group plus noise of these deviations times 2^-bits, all of the weight of a person."""
    sums, counts, unit = exact.sums.copy(), exact.counts << exact.bits, -exact.bits - exact.weight_bits
    core.add_exact_noise(sums, of_sums, stream, thread_count())
    core.add_exact_noise(counts, of_counts, stream, thread_count())
    return np.ldexp(sums.astype(np.float64), unit), np.ldexp(counts.astype(np.float64), unit)


def moment_mu(noise: MomentNoise, layout: MomentLayout, adjacency: Adjacency) -> float:
    """Gaussian-DP parameter of one release of the blocks in ``layout``, rounded up."""
    second = _precision(noise.second)
    sums = _precision(noise.sums) if layout.sums else 0.0
    counts = _precision(noise.counts) if layout.counts else 0.0
    one_row = second + sums + counts
    if adjacency == "add-remove":
        return math.sqrt(one_row) * _ROUND_UP
    t = min(1.0, noise.second**2 / (2 * noise.sums**2)) if layout.sums else 0.0  # -x.x' of the worst unit rows
    same_group = 2 * (1 - t * t) * second + 2 * (1 + t) * sums
    other_group = 2 * one_row if layout.n_groups > 1 else one_row  # of a single group: a person who leaves it
    return math.sqrt(max(same_group, other_group)) * _ROUND_UP


def mu_of_blocks(blocks: Sequence[NoiseBlock], adjacency: Adjacency) -> float:
    """What the blocks of a moment matrix in a ledger cost, rounded up; of different names, others are left out."""
    found = {SECOND if block.name == RECORD else block.name: block.deviation for block in blocks}
    is_total = TOTAL in found
    noise = MomentNoise(*(found.get(name, math.inf) for name in (SECOND, SUMS, TOTAL if is_total else COUNTS)))
    # counts are released of a single group only where the number of people is protected, or their total weight
    several = adjacency == "replace-one" and COUNTS in found
    layout = MomentLayout(1, 1 + several, SUMS in found, is_total or COUNTS in found)
    return moment_mu(noise, layout, adjacency)


def calibrate_moments(mu: float, layout: MomentLayout, adjacency: Adjacency) -> MomentNoise:
    """The noise of a release that costs mu: fixed proportions of the three scales, times the worst-case factor.

    Groups: (1, 1, 2), where s3 = 2 s2^2/s1 makes the counts free under replace-one. Second moments by group: (1, 2, 4).
    A mean only: (1, 2, .). A lone count: 4. A total weight under replace-one is free from 0.89 on: 1.
    """
    if layout.by_group:
        return _scaled_to(mu, MomentNoise(1.0, 2.0, 4.0), layout, adjacency)
    if layout.n_groups > 1:
        return _scaled_to(mu, MomentNoise(1.0, 1.0, 2.0), layout, adjacency)
    sums, counts = (2.0, 2.0) if layout.sums else (0.0, 4.0)
    counts = 1.0 if adjacency == "replace-one" else counts
    return _scaled_to(mu, MomentNoise(1.0, sums, counts if layout.counts else 0.0), layout, adjacency)


def calibrate_groups(mu: float, layout: MomentLayout, adjacency: Adjacency) -> MomentNoise:
    """The noise of a release of sums and counts only, without the second moment (infinite noise)."""
    return _scaled_to(mu, MomentNoise(math.inf, 1.0, 1.0), layout, adjacency)


def calibrate_vector(sensitivity: float, mu: float) -> float:
    """Deviation of independent noise on a vector that one person changes by at most ``sensitivity``."""
    return sensitivity / mu * _ROUND_UP


def matrix_deviations(problem: MatrixProblem, mu: float) -> tuple[float, float]:
    """GOE deviations for A and B: (D_a/s_a)^2 + (D_b/s_b)^2 = mu^2, split equally between the private ones."""
    constants = (problem.sensitivity_a, problem.sensitivity_b)
    parts = sum(c > 0 for c in constants)
    noise_a, noise_b = (calibrate_vector(c / problem.n * math.sqrt(parts), mu) for c in constants)
    if any(c > 0 and s < 1e-290 and mu < math.inf for c, s in zip(constants, (noise_a, noise_b), strict=True)):
        raise ValueError("the noise underflows: rescale A, B and their sensitivities to larger units")
    deviations = noise_a, noise_b
    if math.isfinite(mu):  # what the noise costs as it will be drawn, in exact arithmetic
        changes = [(Fraction(c) / problem.n, Fraction(s)) for c, s in zip(constants, deviations, strict=True) if c > 0]
        if sum((change / deviation) ** 2 for change, deviation in changes) > Fraction(mu) ** 2:
            raise ArithmeticError(f"noise with deviations {deviations} in A and B exceeds mu = {mu}; nothing was spent")
    return deviations


def _scaled_to(mu: float, proportions: MomentNoise, layout: MomentLayout, adjacency: Adjacency) -> MomentNoise:
    if math.isinf(mu):
        return NO_NOISE
    scale = moment_mu(proportions, layout, adjacency) / mu * _ROUND_UP
    noise = proportions.scaled(scale, scale, scale)
    while moment_mu(noise, layout, adjacency) > mu:
        scale *= _ROUND_UP
        noise = proportions.scaled(scale, scale, scale)
    return noise


@dataclass(frozen=True)
class IntegerNoise:
    """Deviations of an exact release in units of its grid 4^-bits 2^-weight_bits, each rounded up.

    ``off_diagonal`` is that of the second moment's entries above the diagonal, at least diagonal/sqrt(2).
    a person's weight in the sums has ``weight_bits`` (`IntegerMoments`).
    """

    bits: int
    diagonal: int
    off_diagonal: int
    sums: int
    counts: int
    weight_bits: int = 0

    def deviations(self) -> MomentNoise:
        """The same in units of rows in the unit ball: exact, as the grid is a power of two."""
        unit = -2 * self.bits - self.weight_bits
        return MomentNoise(*(math.ldexp(scale, unit) for scale in (self.diagonal, self.sums, self.counts)))


@lru_cache(maxsize=128)  # runs in a row ask for the same noise
def integer_noise(
    mu: float, layout: MomentLayout, adjacency: Adjacency, grid_bits: int | None, weight_bits: int = 0
) -> tuple[IntegerNoise, MomentNoise]:
    """The noise of one exact release that costs at most ``mu``, on its grid and in units of rows in the unit ball."""
    noise = on_grid(calibrate_moments(mu, layout, adjacency), grid_bits, weight_bits)
    deviations = noise.deviations()
    require_cost(moment_mu(deviations, layout, adjacency), mu)
    return noise, deviations


def on_grid(noise: MomentNoise, grid_bits: int | None = None, weight_bits: int = 0) -> IntegerNoise:
    """Integer deviations no smaller than ``noise`` on the finest grid that the sampler supports, or on a given one, in
    sums in which a person weighs 2^``weight_bits``. Raises ValueError if the budget is too small for any grid.
    """
    largest = max(noise.second, noise.sums, noise.counts)
    finest = min(MOST_BITS, (MOST_SCALE_BITS - weight_bits - math.frexp(largest)[1]) // 2)
    bits = finest if grid_bits is None else grid_bits
    if finest < max(bits, FEWEST_BITS):
        why = f"which a grid of {bits} bits cannot represent: use a larger budget, or moments summed with bits={finest}"
        if finest < FEWEST_BITS:
            why = "more than a release can represent: use a larger budget"
        raise ValueError(f"this budget requires noise of {largest:.3g} times the row bound in sums over people, {why}")
    unit = 2 * bits + weight_bits
    diagonal, sums, counts = (math.ceil(math.ldexp(s, unit)) for s in (noise.second, noise.sums, noise.counts))
    return IntegerNoise(bits, diagonal, root_of_part(diagonal, 2), sums, counts, weight_bits)


def finest_bits(noise: MomentNoise, weight_bits: int) -> int:
    """Bits of the finest grid for about this noise, with capacity for twice as much; a person weighs 2^weight_bits."""
    return on_grid(noise.scaled(2.0, 2.0, 2.0), weight_bits=weight_bits).bits


def least_scale(squared: Fraction, mu: float) -> int:
    """The least whole deviation that makes a change of sqrt(squared) steps cost at most mu."""
    least = math.ceil(squared / Fraction(mu) ** 2)
    scale = math.isqrt(least)
    return scale + (scale * scale < least)


def require_cost(cost: float, mu: float) -> None:
    """Raise ArithmeticError if the noise, as drawn, would cost more than the ledger pays: a final check."""
    if cost > mu:
        raise ArithmeticError(f"the noise costs mu = {cost!r}, more than mu = {mu!r}; nothing was released or spent")


def _precision(deviation: float) -> float:
    return math.inf if deviation == 0 else 1 / (deviation * deviation)


def share_noise(
    mu: float, layout: MomentLayout, adjacency: Adjacency, bits: int, honest: int, weight_bits: int = 0
) -> IntegerNoise:
    """The scales of one share: ``honest`` of them together, without the others, cost at most ``mu``.

    Its sum of rounded deviates has, within less than a double can hold, the law of post-processing of a Gaussian
    mechanism (docs/masked.md, section 3), and a margin of mu makes room for that. No noise for mu = inf. Raises
    ValueError beyond the limits of the theorem.
    """
    if layout.n_matrices * layout.dimension**2 > MOST_ENTRIES or honest > MOST_PARTIES:
        raise ValueError(f"noise in shares is for at most 2^34 entries and {MOST_PARTIES} parties")
    if math.isinf(mu):
        return IntegerNoise(bits, 0, 0, 0, 0, weight_bits)
    if not LEAST_MU <= mu <= LARGEST_MU:
        raise ValueError(f"noise in shares needs a mu between 2^-20 and {LARGEST_MU:g}, this budget has mu = {mu:.6g}")
    whole, _ = integer_noise(mu * (1 - _MARGIN), layout, adjacency, bits, weight_bits)
    scales = (whole.diagonal, whole.off_diagonal, whole.sums, whole.counts)
    diagonal, off_diagonal, sums, counts = (root_of_part(scale, honest) for scale in scales)
    share = IntegerNoise(bits, diagonal, off_diagonal, sums, counts, weight_bits)
    if min(scale for scale in (share.diagonal, share.off_diagonal, share.sums, share.counts) if scale) < LEAST_SCALE:
        raise ValueError(
            f"a share of the noise is less than {LEAST_SCALE} steps of the grid of {bits} bits: use more bits, or a "
            "smaller budget"
        )
    return share


def root_of_part(scale: int, parts: int) -> int:
    """The least s with parts s^2 >= scale^2."""
    return math.isqrt((scale * scale - 1) // parts) + 1 if scale else 0
