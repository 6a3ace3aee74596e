"""The moment matrix that serves every model of rows: sum over people of z z^T with z = [x; e(group)].

x is the clipped row in the unit ball, e(group) marks a class, a slice, or (one group) everybody. Its blocks are the
second moment, the sums per group and the counts per group; one symmetric rank-k update per block of rows computes all
of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from dpgep.problems.model import Matrix, Model, PublicFacts
from dpgep.problems.rows import Rows


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
    def dimension(self) -> int:
        return self.n_features + self.n_groups


@dataclass(frozen=True)
class MomentNoise:
    """Deviations of the noise in the three blocks: second moment (GOE, its diagonal), sums and counts (independent)."""

    second: float
    sums: float
    counts: float

    def scaled(self, second: float, sums: float, counts: float) -> MomentNoise:
        return MomentNoise(self.second * second, self.sums * sums, self.counts * counts)


@dataclass(frozen=True)
class NoisyMoments:
    """Released moments, normalized by n and in the units of the data: everything here is public.

    Attributes
    ----------
    second : (d, d), second moment (1/n) sum x x^T plus noise.
    sums : (d, n_groups), (1/n) sum of x per group plus noise; empty where not released.
    counts : (n_groups,), share of people per group plus noise; exact where public.
    n : number of people used for normalization: public, or a released noisy count.
    noise : deviations in the same units.
    """

    second: Matrix
    sums: Matrix
    counts: Matrix
    n: float
    noise: MomentNoise

    @property
    def second_noise_level(self) -> float:
        """Expected operator norm of the noise in ``second``: the GOE edge, deviation x sqrt(2 d)."""
        return self.noise.second * float(np.sqrt(2 * len(self.second)))

    @property
    def rounding(self) -> float:
        """Size of the floating-point errors of matrices computed from ``second``."""
        d = len(self.second)
        return 4 * d * float(np.finfo(float).eps) * float(np.abs(np.diagonal(self.second)).max())


@dataclass(frozen=True)
class MomentProblem:
    """Rows of people and the model to fit to them. Built by `pca`, `cca`, `fda` and `sir`."""

    model: Model
    facts: PublicFacts
    layout: MomentLayout
    rows: Rows
    groups: NDArray[np.intp] | None = None

    def moment_matrix(self) -> Matrix:
        """Upper triangle (row-major) of the sum over all people of z z^T, rows scaled to the unit ball."""
        d, size = self.layout.n_features, self.layout.dimension
        total = np.zeros((size, size), order="F")
        for rows, block in self.rows.clipped_blocks(self.layout.n_groups):
            self._mark_groups(rows, block[:, d:])
            # block.T is a Fortran-order view: BLAS reads the buffer as it lies; its lower triangle is our upper one
            total = dsyrk(1.0, block.T, beta=1.0, c=total, lower=1, overwrite_c=1)
        return np.asarray(total.T)

    def _mark_groups(self, rows: slice, indicator: Matrix) -> None:
        if self.groups is None:
            indicator[:] = 1.0
        else:
            indicator[:] = 0.0
            indicator[np.arange(len(indicator)), self.groups[rows]] = 1.0

    def __repr__(self) -> str:
        facts = self.facts
        size = f"n={facts.n}, " if facts.n is not None else ""
        return f"{self.model.name}({size}d={self.model.n_features}, bound={facts.bound:g}, {facts.adjacency})"


def moment_layout(d: int, n_groups: int, *, sums: bool, facts: PublicFacts) -> MomentLayout:
    """Blocks to release: counts of classes always, the total alone only where n is not public."""
    if n_groups > 1:
        return MomentLayout(d, n_groups, sums=True, counts=True)
    if facts.n is None:
        return MomentLayout(d, 1, sums=sums, counts=True)
    return MomentLayout(d, int(sums), sums=sums, counts=False)


def total_mean(moments: NoisyMoments) -> Matrix:
    """Mean of all rows from the sums per group."""
    return np.asarray(moments.sums.sum(axis=1))


def covariance(moments: NoisyMoments) -> Matrix:
    """Second moment minus m m^T, in its place; the second moment as it is where no sums were released."""
    if moments.sums.size == 0:
        return moments.second
    mean = total_mean(moments)
    moments.second[:] -= np.outer(mean, mean)
    return moments.second


def between_groups(moments: NoisyMoments) -> Matrix:
    """sum_g S_g S_g^T / c_g with S_g the sums and c_g the counts per group (shares of n): the raw between-group moment.

    A group that noise drowns (an empty class, say) would add a large spurious direction. So sums are shrunk towards
    zero by the positive-part James-Stein factor 1 - (d - 2) s^2 / |S_g|^2, and counts below their noise count as that:
    both follow from released values and public deviations alone, and neither matters for a group well above the noise.
    """
    sums = moments.sums * _james_stein(moments)
    return np.asarray(sums / effective_counts(moments) @ sums.T)


def effective_counts(moments: NoisyMoments) -> Matrix:
    """Counts per group as shares of n: at least one person, and at least one deviation of their noise."""
    return np.maximum(moments.counts, max(1.0 / moments.n, moments.noise.counts))


def _james_stein(moments: NoisyMoments) -> Matrix:
    d = len(moments.sums)
    squared = np.einsum("ij,ij->j", moments.sums, moments.sums)
    noise = max(d - 2, 0) * moments.noise.sums**2
    return np.asarray(np.clip(1 - np.divide(noise, squared, out=np.zeros_like(squared), where=squared > 0), 0.0, 1.0))
