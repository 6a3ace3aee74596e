"""The moment matrix that serves every model of rows: sum over people of z z^T with z = [x; e(group)].

x is the clipped row in the unit ball, e(group) marks a class, a slice, or (one group) everybody. Its blocks are the
second moment, the sums per group and the counts per group; one symmetric rank-k update per block of rows computes all
of them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.models.denoise import goe
from dpgep.models.model import Matrix, MatrixPencil, Model, Pencil, PublicFacts

# Deviations from which on a released total differs from 1, and what rounding may make of shares that add up to it.
_SHOWN, _ROUNDING = 4.0, 1e-9


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
class ReleasedGroups:
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

    @property
    def noiseless(self) -> bool:
        """Whether epsilon was infinite."""
        return self.noise.second == 0


@dataclass(frozen=True, eq=False)
class ReleasedMoments(ReleasedGroups):
    """Released second moment, sums and counts.

    Attributes
    ----------
    second : (d, d), second moment (1/n) sum x x^T plus noise.
    clipped : share of the people whose rows were beyond the bound; known only where there is no noise.
    """

    second: Matrix
    clipped: float = 0.0

    @property
    def second_noise_level(self) -> float:
        """Expected operator norm of the noise in ``second``: the GOE edge, deviation x sqrt(2 d)."""
        return self.noise.second * float(np.sqrt(2 * len(self.second)))

    @property
    def rounding(self) -> float:
        """Size of the floating-point errors of matrices computed from ``second``."""
        d = len(self.second)
        return 4 * d * float(np.finfo(float).eps) * float(np.abs(np.diagonal(self.second)).max())


NO_NOISE = MomentNoise(0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class PlausibleMoments:
    """Moments that may have been before the noise of a release, and that noise.

    ``numbers`` (d,): for how many directions of the whole problem each feature stands. The variance of its noise is as
    many times larger.
    """

    model: MomentModel
    moments: ReleasedMoments
    noise: MomentNoise
    numbers: Matrix

    def pair(self) -> MatrixPencil:
        return self.model.pair(replace(self.moments, second=self.moments.second.copy()))

    def noisy_pair(self, generator: np.random.Generator) -> MatrixPencil:
        moments, noise, d = self.moments, self.noise, len(self.numbers)
        roots, mean_root = np.sqrt(self.numbers), math.sqrt(float(self.numbers.mean()))
        noisy = ReleasedMoments(
            sums=moments.sums + noise.sums * roots[:, None] * generator.standard_normal(moments.sums.shape),
            counts=moments.counts + noise.counts * generator.standard_normal(moments.counts.shape),
            n=moments.n,
            noise=noise.scaled(mean_root, mean_root, 1.0),
            second=moments.second + goe(d, noise.second, generator) * np.maximum.outer(roots, roots),
        )
        return self.model.pair(noisy)


class MomentModel(Model):
    """A model of rows: A and B follow from their moment matrix.

    ``first_view`` is the number of features of the first of two views, 0 where there is one view; ``identity_b`` says
    whether B is the identity.
    """

    identity_b: bool = False

    @property
    def first_view_size(self) -> int:
        return 0

    @abstractmethod
    def layout(self, facts: PublicFacts) -> MomentLayout:
        """What a release contains."""

    @abstractmethod
    def pencil(self, released: ReleasedGroups) -> Pencil:
        """A and B as functions of the second moment, given the released sums and counts."""

    @abstractmethod
    def restricted(self, features: NDArray[np.intp]) -> MomentModel: ...

    def noise_alone(
        self, released: ReleasedGroups, values: Matrix, generator: np.random.Generator, n_draws: int
    ) -> Iterator[Matrix]:
        d, noise, mean = self.n_features, released.noise, mean_factor(released)
        sums, second_of_mean = mean.T * _shares(released), mean.T @ mean
        for _ in range(n_draws):
            groups = ReleasedGroups(
                sums=sums + noise.sums * generator.standard_normal(released.sums.shape),
                counts=released.counts + noise.counts * generator.standard_normal(released.counts.shape),
                n=released.n,
                noise=noise,
            )
            pencil = self.pencil(groups)
            second = np.zeros((d, d))
            if pencil.a.moment:
                second += goe(d, noise.second, generator)
                second += second_of_mean
            yield pencil.matrices(second)[0]

    def noise_of_b(self, released: ReleasedMoments) -> float | None:
        return None if self.identity_b else released.second_noise_level

    def pair(self, released: ReleasedMoments) -> MatrixPencil:
        level, rounding = released.second_noise_level, released.rounding
        pencil = self.pencil(released)
        low_rank = None if pencil.a.moment else (pencil.factors, pencil.a.weights)
        return MatrixPencil(*pencil.matrices(released.second), level, rounding, low_rank)


def moment_layout(d: int, n_groups: int, *, sums: bool, facts: PublicFacts) -> MomentLayout:
    """Blocks to release: counts of classes always, the total alone only where n is not public."""
    if n_groups > 1:
        return MomentLayout(d, n_groups, sums=True, counts=True)
    if not facts.n_is_public:
        return MomentLayout(d, 1, sums=sums, counts=True)
    return MomentLayout(d, int(sums), sums=sums, counts=False)


def total_share(moments: ReleasedGroups) -> float:
    """The share of people who belong to a group, which A, B and the mean are about.

    1 where one group holds everybody, and where released counts do not show otherwise by four deviations of their
    total: to divide by that noise would cost more than it corrects.
    """
    if len(moments.counts) < 2:
        return 1.0
    total, deviation = float(moments.counts.sum()), moments.noise.counts * math.sqrt(len(moments.counts))
    if abs(total - 1) <= max(_SHOWN * deviation, _ROUNDING):
        return 1.0
    return max(total, deviation, 1 / moments.n)


def total_mean(moments: ReleasedGroups) -> Matrix:
    """Mean of the rows of all groups from their sums."""
    return np.asarray(moments.sums.sum(axis=1)) / total_share(moments)


def mean_factor(moments: ReleasedGroups) -> Matrix:
    """The mean m as the one factor (1, d) of m m^T; (0, d) where no sums were released."""
    return total_mean(moments)[None, :] if moments.sums.size else np.empty((0, len(moments.sums)))


def _shares(moments: ReleasedGroups) -> Matrix:
    """Share of people per group, as if they were sure: they sum to 1."""
    if not moments.sums.size:
        return np.empty(0)
    counts = effective_counts(moments)
    return np.asarray(counts / counts.sum())


def group_factors(moments: ReleasedGroups) -> tuple[Matrix, Matrix]:
    """(S, w) with sum_g w_g S_g S_g^T the raw between-group moment: S_g (rows) the sums, 1/w_g the counts per group.

    A group that noise drowns (an empty class, say) would add a large spurious direction. So sums are shrunk towards
    zero by the positive-part James-Stein factor 1 - (d - 2) s^2 / |S_g|^2, and counts below their noise count as that:
    both follow from released values and public deviations alone, and neither matters for a group well above the noise.
    """
    return np.asarray((moments.sums * _james_stein(moments)).T), 1 / effective_counts(moments)


def effective_counts(moments: ReleasedGroups) -> Matrix:
    """Counts per group as shares of n: at least one person, and at least one deviation of their noise."""
    return np.maximum(moments.counts, max(1.0 / moments.n, moments.noise.counts))


def _james_stein(moments: ReleasedGroups) -> Matrix:
    d = len(moments.sums)
    squared = np.einsum("ij,ij->j", moments.sums, moments.sums)
    noise = max(d - 2, 0) * moments.noise.sums**2
    return np.asarray(np.clip(1 - np.divide(noise, squared, out=np.zeros_like(squared), where=squared > 0), 0.0, 1.0))
