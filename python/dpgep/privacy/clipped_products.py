"""Sums of clipped products with noise: what a power method with little noise asks of rows.

A person adds x q^T, |x| <= 1 their row in bounds, q = clip(V^T (x - m)) their clipped product, |q| <= c, V with
orthonormal columns. Added or removed, that moves the sum by at most c in Frobenius norm. Replaced, by at most 2 c; and
for m = 0 by at most the root of

    4 c^2 (1 - c^2)  where c^2 <= 1/2 (one direction) or 1/3 (several),    1  or  (1 + c^2)^2/2  beyond,

which is attained (docs/mathematics.md, section 11; proofs/ClippedProducts.v). About a mean m, rows have s = |m| at
their end, (x, s) in the place of x, so that the sum of (x - m) q^T follows: the bounds are sqrt(1 + s^2) times as
large. Of two views x and y, of joint norm at most 1, a person adds both x q_y^T/c_y and y q_x^T/c_x, q_y and q_x the
clipped products of the other view: together of norm at most 1, and of at most 2 replaced.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.integer_sums import (
    BITS,
    MOST_PEOPLE,
    CellCounts,
    ClippedSums,
    Directions,
    Factors,
    GridSums,
    ProductMoment,
    ProductNormCounts,
    direction_error,
)
from dpgep.data.rows import S
from dpgep.models.bins import LARGEST_THRESHOLD, LEAST_THRESHOLD
from dpgep.models.model import Adjacency, Matrix
from dpgep.models.moments import MomentLayout
from dpgep.privacy.curator import row_bound
from dpgep.privacy.ledger import Charge, LedgerEntry, NoiseBlock
from dpgep.privacy.noise import MOST_SCALE_BITS, least_scale
from dpgep.problems.problem import Problem, rows_of

# Directions are orthonormal up to this, in Frobenius norm.
_ORTHONORMAL = 2.0**-36
# The least part of the mean's length that is left when it is brought to the unit ball.
_INSIDE = 1 - 2.0**-40
_ROUND_UP = 1 + 2.0**-48

# C of each view, in bounds.
Thresholds = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Asked:
    """V^T (x - m): ``vectors`` (K, d), and the ``location`` m (d,) in the units of the rows. All public.

    Vectors have an operator norm of at most 1. Where each of two views has products of its own, the first half of them
    is that by whose products the second view is multiplied.
    """

    vectors: Matrix
    location: Matrix | None = None


@dataclass(frozen=True, eq=False)
class NoisyMean:
    """A mean over people plus independent noise in each entry, in the units of the rows; public."""

    values: Matrix
    deviation: float  # of the noise; where those of entries differ, the root of the mean of their squares
    n: int


class _Query(ABC):
    """A query of clipped rows. Raises ValueError where the number of people is not public."""

    def answer(self, problem: Problem, mu: float, stream: core.NoiseStream, charge: Charge) -> NoisyMean:
        return self.of(ClippedProducts(problem, stream), mu, charge)

    @abstractmethod
    def of(self, rows: ClippedProducts, mu: float, charge: Charge) -> NoisyMean: ...


@dataclass(frozen=True)
class Mean(_Query):
    """The mean of the rows, (d,)."""

    def of(self, rows: ClippedProducts, mu: float, charge: Charge) -> NoisyMean:
        layout = MomentLayout(rows.problem.model.n_features, 1, sums=True, counts=False)
        sums = rows.summed(partial(GridSums, layout, BITS))
        squared = (4 if rows.replaces else 1) * Fraction(4**BITS)
        scale = rows.add_noise(sums.sums, squared, mu, BITS, "mean of the rows", charge)
        return rows.mean_of(sums.sums[:, 0], sums.n, BITS, rows.bound, scale)


@dataclass(frozen=True, eq=False)
class ProductNorms(_Query):
    """The share of the people with a norm |V^T (x - m)|, in bounds, below, between or beyond `PRODUCT_EDGES`."""

    asked: Asked

    def of(self, rows: ClippedProducts, mu: float, charge: Charge) -> NoisyMean:
        sums = rows.summed(partial(ProductNormCounts, rows.directions(self.asked)))
        return rows.shares(sums.total, sums.n, mu, "histogram of norms of products", charge)


@dataclass(frozen=True, eq=False)
class Cells(_Query):
    """The share of the people of each group with V^T (x - m) in each cell between ``edges`` (2, G - 1), in bounds.

    (n_groups, G, G); of a single direction, with edges (1, G - 1), (n_groups, G). A person is in one cell, or shared by
    several with weights that sum to one: replaced, the counts move by at most sqrt(2); added or removed, by 1.
    """

    asked: Asked
    edges: Matrix

    def of(self, rows: ClippedProducts, mu: float, charge: Charge) -> NoisyMean:
        n_groups = max(rows.problem.layout.n_groups, 1)  # of sums that nobody asks for there are none
        directions = rows.directions(self.asked, BITS)  # counts have room for people's weights beside a fine grid
        sums = rows.summed(partial(CellCounts, directions, self.edges, n_groups))
        found = rows.shares(sums.total.ravel(), sums.n, mu, "histogram of scores", charge)
        return replace(found, values=found.values.reshape(sums.total.shape))


@dataclass(frozen=True, eq=False)
class ClippedMean(_Query):
    """The mean of (x - m) clip(V^T (x - m)), (K, d), clipped to a norm of this many bounds: for PCA and PLS.

    Of two views, of x clip(V^T (x - m)), clip of the other view.
    """

    asked: Asked
    thresholds: Thresholds

    def of(self, rows: ClippedProducts, mu: float, charge: Charge) -> NoisyMean:
        asked, factors = self.asked, rows.factors(self.asked, self.thresholds)
        location = rows.location(asked) if len(factors) == 1 else None
        constant = 0 if location is None else math.ceil(math.ldexp(float(np.linalg.norm(location)), rows.bits))
        sums = rows.summed(partial(ClippedSums, rows.directions(asked), factors, constant))
        if len(factors) == 1:
            k, d = asked.vectors.shape
            defect = np.linalg.norm(asked.vectors @ asked.vectors.T - np.eye(k))
            if not defect <= _ORTHONORMAL:
                raise ValueError(f"directions must be orthonormal, they miss it by {defect:.3g}")
            located = asked.location is not None
            change = product_sensitivity(self.thresholds[0], k, d, rows.adjacency, located=located, bits=rows.bits)
        else:
            change = views_sensitivity(rows.adjacency)
        squared = Fraction(change) ** 2 * 4**rows.bits * (4**rows.bits + constant**2)
        summed = "(x, |m|) clip(V^T (x - m))" if constant else "x clip(V^T x)"
        query = f"sum of {summed}, norms of {_named(self.thresholds)} bounds"
        scale = rows.add_noise(sums.total, squared, mu, 2 * rows.bits, query, charge)
        units = np.empty(asked.vectors.shape[1])
        for each in factors:
            units[each.features] = rows.bound * rows.bound * each.threshold
        if location is None or not constant:
            return rows.mean_of(sums.total.T, sums.n, 2 * rows.bits, units, scale)
        # noise of the last row, too: |m|^2/s^2 of its variance, shared by d entries
        shared = scale * math.sqrt(1 + 1 / len(units))
        answer = rows.mean_of(sums.total[:-1].T, sums.n, 2 * rows.bits, units, shared)
        clipped = rows.mean_of(sums.total[-1], sums.n, 2 * rows.bits, units[0], scale).values
        return replace(answer, values=answer.values - np.outer(clipped, location * (2.0**rows.bits / constant)))


@dataclass(frozen=True, eq=False)
class ClippedMoment(_Query):
    """The mean of p p^T, p = clip(V^T (x - m)), (K, K); noise is independent, also in entries that mirror others.

    One person adds a matrix of norm at most C^2, and replacing it moves the sum by at most sqrt(2) C^2; of one
    direction, where p^2 is a number from 0 to C^2, by C^2. Of two views it is the mean of p_x p_y^T, of norm at most
    C_x C_y; p_x' = -p_x moves the sum by twice that.
    """

    asked: Asked
    thresholds: Thresholds

    def of(self, rows: ClippedProducts, mu: float, charge: Charge) -> NoisyMean:
        factors = rows.factors(self.asked, self.thresholds)
        sums = rows.summed(partial(ProductMoment, rows.directions(self.asked), factors))
        most = 2 * len(factors) if len(self.asked.vectors) > 1 else 1
        squared = (most if rows.replaces else 1) * Fraction(16**rows.bits)
        query = f"second moment of V^T x, norms of {_named(self.thresholds)} bounds"
        scale = rows.add_noise(sums.total, squared, mu, 2 * rows.bits, query, charge)
        unit = rows.bound * rows.bound * self.thresholds[0] * self.thresholds[-1]
        return rows.mean_of(sums.total, sums.n, 2 * rows.bits, unit, scale)


@dataclass(frozen=True)
class AffordsClippedProducts:
    """Whether mu is enough for a `ClippedMean` and a `ClippedMoment`, and people are few enough: of public facts."""

    def answer(self, problem: Problem, mu: float, stream: core.NoiseStream, charge: Charge) -> bool:
        rows = ClippedProducts(problem, stream)
        if not rows.fit(rows.problem.facts.n or 0):
            return False
        most = 2 * (4 if rows.replaces else 1) * Fraction(16**rows.bits)  # of rows with s = 1 at their end
        return math.isinf(mu) or rows.scale_of(most, mu).bit_length() <= MOST_SCALE_BITS


class ClippedProducts:
    """Sums over the rows of ``problem``, and their noise from ``stream``. Raises ValueError where n is not public.

    Where people have several rows, a person weighs 2^w in all sums, and rows are on a coarser grid of ``bits``.
    """

    def __init__(self, problem: Problem, stream: core.NoiseStream) -> None:
        self.problem, self._stream = rows_of(problem, "products that are clipped row by row"), stream
        if not problem.model.traits.has_clipped_products:
            raise ValueError(
                f"clipped products are for pca, pls and cca, whose sums have a proof, not {problem.model.name}"
            )
        if not problem.facts.n_is_public:
            raise ValueError("clipped products are divided by a public number of people: give public_n to the problem")
        self.adjacency, self.bound = problem.facts.adjacency, row_bound(problem.facts)
        self.replaces = self.adjacency == "replace-one"
        self._weight_bits = self.problem.dataset.weight_bits
        self.bits = BITS - self._weight_bits // 2

    def factors(self, asked: Asked, thresholds: Thresholds) -> tuple[Factors, ...]:
        """Each view with the products of the other one; with one threshold, the whole row with all products."""
        views = self.problem.model.views
        if len(thresholds) == 1:
            views = [slice(0, self.problem.model.n_features)]
        if len(thresholds) != len(views):
            raise ValueError(f"thresholds must be one, or one for each of {len(views)} views, got {thresholds}")
        for threshold in thresholds:
            if not LEAST_THRESHOLD <= threshold <= LARGEST_THRESHOLD:
                raise ValueError(
                    f"threshold must be between {LEAST_THRESHOLD} and {LARGEST_THRESHOLD}, got {threshold}"
                )
        k = len(asked.vectors) // len(views)
        others = reversed(range(len(views)))
        return tuple(
            Factors(features, slice(other * k, (other + 1) * k), thresholds[other])
            for features, other in zip(views, others, strict=True)
        )

    def directions(self, asked: Asked, bits: int | None = None) -> Directions:
        longest = np.linalg.norm(asked.vectors, 2)
        if not longest <= 1 + _ORTHONORMAL:
            raise ValueError(f"directions must have an operator norm of at most 1, got {longest:.17g}")
        return Directions.on_grid(asked.vectors, self.location(asked), self.bits if bits is None else bits)

    def location(self, asked: Asked) -> Matrix | None:
        """The location in bounds, of a norm below 1."""
        if asked.location is None:
            return None
        if not np.isfinite(asked.location).all():
            raise ValueError("location must be finite")
        location = asked.location / self.bound
        return np.asarray(location * min(1.0, _INSIDE / max(float(np.linalg.norm(location)), _INSIDE)))

    def summed(self, make: Callable[[], S]) -> S:
        """One pass. Raises ValueError where the public number of people is so large that sums might overflow."""
        sums: Any = self.problem.dataset.accumulate(make, weight_bits=self._weight_bits)
        sums.n >>= self._weight_bits
        n = sums.n if self.replaces else self.problem.facts.n or 0
        if not self.fit(n):
            raise ValueError(f"clipped products are for fewer than {MOST_PEOPLE} people, not {n}: use a release")
        return sums  # type: ignore[no-any-return]

    def fit(self, n: int) -> bool:
        """Whether 63 bits hold sums over n people, a public number; twice as many, where it is only an estimate."""
        return n < (MOST_PEOPLE if self.replaces else MOST_PEOPLE // 2)

    def add_noise(self, sums: Any, squared: Fraction, mu: float, grid_bits: int, query: str, charge: Charge) -> int:
        """Add noise to ``sums``, in steps of 2^-grid_bits, which one row of weight 1 moves by sqrt(squared) at most."""
        if math.isinf(mu):
            charge(LedgerEntry(query, mu, ()))
            return 0
        scale, grid_bits = self.scale_of(squared, mu), grid_bits + self._weight_bits
        if scale.bit_length() > MOST_SCALE_BITS:
            raise ValueError(f"mu = {mu:.3g} of a clipped product is too little: use a larger budget or fewer steps")
        deviation = math.ldexp(scale, -grid_bits)
        charge(LedgerEntry(query, mu, (NoiseBlock(query, "independent", deviation, scale),), grid_bits // 2))
        # Where the number of people is secret, none is refused. Sums are taken modulo 2^63, before the noise and after
        # it: a function of the noisy sum alone, whether sums over many people have wrapped or not.
        if not self.replaces:
            _wrap(sums)
        core.add_exact_noise(sums, scale, self._stream, thread_count())  # below 2^62 + 127 2^55
        if not self.replaces:
            _wrap(sums)
        return scale

    def shares(self, counts: Any, n: int, mu: float, query: str, charge: Charge) -> NoisyMean:
        """Shares of the people, each of whom is counted once."""
        counts = counts << BITS
        squared = (2 if self.replaces else 1) * Fraction(4**BITS)
        scale = self.add_noise(counts, squared, mu, BITS, query, charge)
        return self.mean_of(counts, n, BITS, 1.0, scale)

    def scale_of(self, squared: Fraction, mu: float) -> int:
        """The noise of such sums, in steps of them: a person is moved whole."""
        return least_scale(squared * 4**self._weight_bits, mu)

    def mean_of(self, sums: Any, n: int, grid_bits: int, unit: Matrix | float, scale: float) -> NoisyMean:
        """``unit``: 2^grid_bits steps of the sums, or of each of their columns, for one person."""
        n = self.problem.facts.n or n
        unit = np.ldexp(unit, -grid_bits - self._weight_bits)
        values = np.ascontiguousarray(sums, dtype=np.float64) * (unit / n)
        return NoisyMean(values, scale * float(np.sqrt(np.mean(np.square(unit)))) / n, n)


def _wrap(sums: Any) -> None:
    """Reduce integers modulo 2^63, to -2^62 up to 2^62, in place."""
    np.left_shift(sums, 1, out=sums)
    np.right_shift(sums, 1, out=sums)


def _named(thresholds: Thresholds) -> str:
    return " and ".join(f"{threshold:.4g}" for threshold in thresholds)


def product_sensitivity(
    threshold: float,
    n_directions: int,
    n_features: int,
    adjacency: Adjacency,
    *,
    located: bool = False,
    bits: int = BITS,
) -> float:
    """What one person moves a sum of `ClippedMean` by, of one view, in Frobenius norm and in bounds times thresholds.

    Rounded up. ``located``: whether there is an m. The bound for m = 0 holds of exact products; those on the grid are
    at most ``error`` away from it, so that two people's sums are at most twice that.
    """
    if adjacency == "add-remove":
        return 1.0
    if located:
        return 2.0
    square = threshold * threshold
    if square <= (1 / 2 if n_directions == 1 else 1 / 3):
        exact = 2 * math.sqrt(1 - square)
    else:
        exact = (1.0 if n_directions == 1 else (1 + square) / math.sqrt(2)) / threshold
    # V on its grid, and orthonormal; rounded to the nearest step, then shrunk and cut to a step
    error = (direction_error(n_directions, n_features) + _ORTHONORMAL) / threshold
    error += (1.5 * math.sqrt(n_directions) + 1) * 2.0**-bits
    return min(2.0, (exact + 2 * error) * _ROUND_UP)


def views_sensitivity(adjacency: Adjacency) -> float:
    """The same where each of two views is multiplied by products of its own, both sums together; exact on the grid."""
    return 2.0 if adjacency == "replace-one" else 1.0
