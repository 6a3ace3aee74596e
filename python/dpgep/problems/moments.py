"""The moment matrix that serves every model of rows: sum over people of z z^T with z = [x; e(group)].

x is the clipped row in the unit ball, e(group) marks a class, a slice, or (one group) everybody. Its blocks are the
second moment, the sums per group and the counts per group; one symmetric rank-k update per block of rows computes all
of them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from dpgep._dispatch import core
from dpgep.problems.feature_sums import cross_norms, energies
from dpgep.problems.model import Matrix, MatrixPair, Model, PairForm, PublicFacts
from dpgep.problems.row_products import RowProducts
from dpgep.problems.rows import Rows

# Exact sums are kept below 2^62: room in int64 for noise, whose scale is at most 2^56.
_LIMB_BITS = 62


@dataclass(frozen=True)
class MomentLayout:
    """Which blocks of the moment matrix a release contains.

    Attributes
    ----------
    n_features : d, the length of x.
    n_groups : number of groups (0: none, 1: everybody).
    sums : whether the d x n_groups sums are released.
    counts : whether the counts are released; where not, they are public.
    """

    n_features: int
    n_groups: int
    sums: bool
    counts: bool

    @property
    def has_groups(self) -> bool:
        """Whether anything but the second moment is released."""
        return self.sums or self.counts

    @property
    def dimension(self) -> int:
        return self.n_features + self.n_groups

    def blocks(self, matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """(second moment, sums, counts) of a moment matrix: the first a view, all without what is not released."""
        d = self.n_features
        sums = matrix[:d, d:].copy() if self.sums else np.empty((d, 0), matrix.dtype)
        counts = np.diagonal(matrix)[d:].copy() if self.counts else np.empty(0, matrix.dtype)
        return matrix[:d, :d], sums, counts


@dataclass(frozen=True)
class MomentNoise:
    """Deviations of the noise in the three blocks: second moment (GOE, its diagonal), sums and counts (independent)."""

    second: float
    sums: float
    counts: float

    def scaled(self, second: float, sums: float, counts: float) -> MomentNoise:
        return MomentNoise(self.second * second, self.sums * sums, self.counts * counts)


@dataclass(frozen=True, eq=False)
class NoisyGroups:
    """Released sums and counts, normalized by n and in the units of the data: everything here is public.

    Attributes
    ----------
    sums : (d, n_groups), (1/n) sum of x per group plus noise; (d, 0) where not released.
    counts : (n_groups,), share of people per group plus noise; exact where public.
    n : number of people used for normalization: public, or a released noisy count.
    noise : deviations in the same units; that of the second moment belongs to an answer about it.
    """

    sums: Matrix
    counts: Matrix
    n: float
    noise: MomentNoise


@dataclass(frozen=True, eq=False)
class NoisyMoments(NoisyGroups):
    """Released second moment, sums and counts.

    Attributes
    ----------
    second : (d, d), second moment (1/n) sum x x^T plus noise.
    """

    second: Matrix

    @property
    def second_noise_level(self) -> float:
        """Expected operator norm of the noise in ``second``: the GOE edge, deviation x sqrt(2 d)."""
        return self.noise.second * float(np.sqrt(2 * len(self.second)))

    @property
    def rounding(self) -> float:
        """Size of the floating-point errors of matrices computed from ``second``."""
        d = len(self.second)
        return 4 * d * float(np.finfo(float).eps) * float(np.abs(np.diagonal(self.second)).max())


@dataclass(frozen=True, eq=False)
class IntegerMoments:
    """Exact sums over people in units of 4^-bits: second moment (upper triangle), sums and counts per group.

    ``high`` holds multiples of 2^40 to be added to the three, where int64 alone might overflow.
    """

    second: NDArray[np.int64]
    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    high: tuple[NDArray[np.int64], ...] | None
    bits: int

    def to_float(self) -> tuple[Matrix, Matrix, Matrix]:
        """(second, sums, counts) in units of rows in the unit ball. Rounds, so for released values only."""
        low = (self.second, self.sums, self.counts)
        high = self.high or (None, None, None)
        second, sums, counts = (_limbs_to_float(h, part, -2 * self.bits) for h, part in zip(high, low, strict=True))
        return second, sums, counts


class MomentModel(Model):
    """A model of rows: A and B follow from their moment matrix.

    ``first_view`` is the number of features of the first of two views, 0 where there is one view; ``identity_b`` says
    whether B is the identity.
    """

    identity_b: bool = False

    @property
    def first_view(self) -> int:
        return 0

    @abstractmethod
    def form(self, released: NoisyGroups) -> PairForm:
        """A and B as functions of the second moment, given the released sums and counts."""

    @abstractmethod
    def restricted(self, features: NDArray[np.intp]) -> MomentModel: ...

    def pair(self, released: NoisyMoments) -> MatrixPair:
        level, rounding = released.second_noise_level, released.rounding
        return MatrixPair(*self.form(released).matrices(released.second), level, rounding)


@dataclass(frozen=True, eq=False)
class MomentProblem:
    """Rows of people and the model to fit to them. Built by `pca`, `cca`, `fda` and `sir`."""

    model: MomentModel
    facts: PublicFacts
    layout: MomentLayout
    rows: Rows
    groups: NDArray[np.intp] | None = None

    def moment_matrix(self) -> Matrix:
        """Upper triangle (row-major) of the sum over all people of z z^T, rows scaled to the unit ball, in float64."""
        total = self._zeros(np.float64)
        for rows, block in self.rows.clipped_blocks(self.layout.n_groups):
            self._mark_groups(rows, block, 1.0)
            total = _add_products(block, total)
        return total

    def integer_moments(self, bits: int) -> IntegerMoments:
        """The same sum with rows in fixed point, exact: the same bits for any block size, order of rows, machine.

        All entries are integers in units of 4^-bits: rows of norm at most 2^bits, groups marked by 2^bits. The products
        of blocks are summed by BLAS in float64, exactly while there are fewer than 2^(53 - 2 bits) rows: every partial
        sum is an integer below 2^53, whatever the order. Then they are added in int64, with a second limb beyond 2^62.
        """
        limb_rows = 1 << (_LIMB_BITS - 2 * bits)
        exact_rows = min((1 << (53 - 2 * bits)) - 1, limb_rows)
        partial, total, high = self._zeros(np.float64), self._zeros(np.int64), None
        in_partial = in_total = 0
        for rows, block in self.rows.clipped_blocks(self.layout.n_groups, bits, exact_rows):
            if in_partial + len(block) > exact_rows:
                core.fold_triangle(partial, total)
                in_total, in_partial = in_total + in_partial, 0
            if in_total + exact_rows > limb_rows:
                high = self._zeros(np.int64) if high is None else high
                core.carry_triangle(total, high)
                in_total = 0
            self._mark_groups(rows, block, float(1 << bits))
            partial = _add_products(block, partial)
            in_partial += len(block)
        core.fold_triangle(partial, total)
        return IntegerMoments(
            *self.layout.blocks(total), high=None if high is None else self.layout.blocks(high), bits=bits
        )

    @property
    def largest_b(self) -> float:
        """A public upper bound of the largest eigenvalue of B: covariances are at most the squared row bound."""
        return 1.0 if self.model.identity_b else self.rows.bound**2

    def row_products(self) -> RowProducts:
        """Rows for products with the second moment, and the sums per group."""
        return RowProducts(self.rows, self.groups, self.layout.n_groups if self.layout.sums else 0)

    def counts(self) -> NDArray[np.int64]:
        """Number of people per group."""
        if self.groups is None:
            return np.full(self.layout.n_groups, self.rows.n)
        return np.bincount(self.groups, minlength=self.layout.n_groups)

    def diagonal(self) -> Matrix:
        """Diagonal of the second moment, sum over people of clipped rows in the unit ball."""
        return energies(self.rows)

    def cross_norms(self) -> Matrix:
        """Norm of each feature's row of the cross-covariance of two views (its second moment, if not centred).

        Sums over people of clipped rows in the unit ball, sum (x - m_x)(y - m_y)^T: not divided by n.
        """
        return cross_norms(self.rows, self.model.first_view, centred=self.layout.sums)

    def restricted(self, features: NDArray[np.intp], bound: float) -> MomentProblem:
        """The same problem of some of the features, rows clipped to ``bound`` (public) after the others are dropped."""
        layout = replace(self.layout, n_features=len(features))
        facts = replace(self.facts, bound=bound)
        rows = self.rows.restricted(features, bound)
        return MomentProblem(self.model.restricted(features), facts, layout, rows, self.groups)

    def _zeros(self, dtype: type) -> NDArray[Any]:
        return np.zeros((self.layout.dimension,) * 2, dtype=dtype)

    def _mark_groups(self, rows: slice, block: Matrix, mark: float) -> None:
        indicator = block[:, self.layout.n_features :]
        if self.groups is None:
            indicator[:] = mark
        else:
            indicator[:] = 0.0
            indicator[np.arange(len(indicator)), self.groups[rows]] = mark

    def __repr__(self) -> str:
        facts = self.facts
        size = f"n={facts.n}, " if facts.n is not None else ""
        return f"{self.model.name}({size}d={self.model.n_features}, bound={facts.bound:g}, {facts.adjacency})"


def _limbs_to_float(high: NDArray[np.int64] | None, low: NDArray[np.int64], exponent: int) -> Matrix:
    """(high 2^40 + low) 2^exponent, rounded; a function of that sum alone, however it is split into the limbs."""
    if high is None:
        value = low.astype(np.float64)
    else:
        # 0 <= low < 2^40 makes the split unique: noise was added to the low limb only
        high += low >> 40
        low &= (1 << 40) - 1
        value = high.astype(np.float64)
        np.ldexp(value, 40, out=value)
        value += low
    return np.asarray(np.ldexp(value, exponent, out=value))


def _add_products(block: Matrix, total: Matrix) -> Matrix:
    """Add block^T block to the upper triangle of total, in place."""
    # The transposes are Fortran-order views: BLAS reads and writes the buffers as they lie, lower triangle for upper
    return np.asarray(dsyrk(1.0, block.T, beta=1.0, c=total.T, lower=1, overwrite_c=1).T)


def moment_layout(d: int, n_groups: int, *, sums: bool, facts: PublicFacts) -> MomentLayout:
    """Blocks to release: counts of classes always, the total alone only where n is not public."""
    if n_groups > 1:
        return MomentLayout(d, n_groups, sums=True, counts=True)
    if facts.n is None:
        return MomentLayout(d, 1, sums=sums, counts=True)
    return MomentLayout(d, int(sums), sums=sums, counts=False)


def total_mean(moments: NoisyGroups) -> Matrix:
    """Mean of all rows from the sums per group."""
    return np.asarray(moments.sums.sum(axis=1))


def mean_factor(moments: NoisyGroups) -> Matrix:
    """The mean m as the one factor (1, d) of m m^T; (0, d) where no sums were released."""
    return total_mean(moments)[None, :] if moments.sums.size else np.empty((0, len(moments.sums)))


def group_factors(moments: NoisyGroups) -> tuple[Matrix, Matrix]:
    """(S, w) with sum_g w_g S_g S_g^T the raw between-group moment: S_g (rows) the sums, 1/w_g the counts per group.

    A group that noise drowns (an empty class, say) would add a large spurious direction. So sums are shrunk towards
    zero by the positive-part James-Stein factor 1 - (d - 2) s^2 / |S_g|^2, and counts below their noise count as that:
    both follow from released values and public deviations alone, and neither matters for a group well above the noise.
    """
    return np.asarray((moments.sums * _james_stein(moments)).T), 1 / effective_counts(moments)


def effective_counts(moments: NoisyGroups) -> Matrix:
    """Counts per group as shares of n: at least one person, and at least one deviation of their noise."""
    return np.maximum(moments.counts, max(1.0 / moments.n, moments.noise.counts))


def _james_stein(moments: NoisyGroups) -> Matrix:
    d = len(moments.sums)
    squared = np.einsum("ij,ij->j", moments.sums, moments.sums)
    noise = max(d - 2, 0) * moments.noise.sums**2
    return np.asarray(np.clip(1 - np.divide(noise, squared, out=np.zeros_like(squared), where=squared > 0), 0.0, 1.0))
