"""The moment matrix that serves every model of rows: sum over people of z z^T with z = [x; e(group)].

x is the clipped row in the unit ball, e(group) marks a class, a slice, or (one group) everybody. Its blocks are the
second moment, the sums per group and the counts per group; one symmetric rank-k update per block of rows computes all
of them.

Their noise moves a generalized eigenvector, to first order, as follows. With B-orthonormal eigenvectors v_j, the
coefficient of v_j in the error of v_i is v_j^T (dA - lambda_i dB) v_i over lambda_i - lambda_j. Every A and B here is a
combination of two Schur complements of the moment matrix M,

    total   T = M_xx - m m^T                   (complement of the one column "everybody"),
    within  W = M_xx - sum_g S_g S_g^T / c_g   (complement of all group columns),

and the derivative of a Schur complement is dT = F^T Z F with F v = [v; -(m.v) 1], dW = E^T Z E with E v = [v;
-(S_g.v)/c_g]_g, Z being the noise of the release. So the coefficient is a linear form in Z and its variance a closed
form.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpgep._show import Shown
from dpgep.models.model import Matrix, MatrixPencil, Model, PublicFacts, slices_of

Blocks = Literal["whole", "between", "within"]

_EPSILON = float(np.finfo(float).eps)
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


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedGroups(Shown):
    """Released sums and counts, normalized by n and in the units of the data: everything here is public.

    In simulations arrays may have an axis before those below, for releases of one law: what makes pencils of them
    makes one of each.

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


@dataclass(frozen=True, eq=False, repr=False)
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
        return float(self.noise.second * np.sqrt(2 * self.second.shape[-1]))

    @property
    def rounding(self) -> float:
        """Size of the floating-point errors of matrices computed from ``second``."""
        d: int = self.second.shape[-1]
        return 4 * d * _EPSILON * float(np.abs(np.diagonal(self.second, axis1=-2, axis2=-1)).max())

    def restricted(self, features: NDArray[np.intp]) -> ReleasedMoments:
        """A copy for some of the features."""
        return replace(self, second=self.second[np.ix_(features, features)], sums=self.sums[features])


NO_NOISE = MomentNoise(0.0, 0.0, 0.0)


def pooled(first: ReleasedMoments, second: ReleasedMoments) -> ReleasedMoments:
    """Two releases of one layout about the same people, a public number, as one: weighted by their precision.

    Their noise is independent, and its scales have one proportion: so has what is pooled, as if bought at once.
    """
    assert first.n == second.n
    precisions = np.array([each.noise.second**-2 for each in (first, second)])
    p, q = precisions / precisions.sum()
    of_second, of_sums, of_counts = (
        math.hypot(p * one, q * other) for one, other in zip(astuple(first.noise), astuple(second.noise), strict=True)
    )
    return replace(
        first,
        second=p * first.second + q * second.second,
        sums=p * first.sums + q * second.sums,
        counts=p * first.counts + q * second.counts,
        noise=MomentNoise(of_second, of_sums, of_counts),
    )


@dataclass(frozen=True, eq=False)
class PencilPart:
    """One matrix of a pencil: some blocks of M + F^T diag(weights) F, or, without ``moment``, of F^T diag(weights) F.

    Attributes
    ----------
    weights : (r,), one for each of the pencil's factors.
    moment : whether the second moment M is a part of it.
    blocks : all of it, or for several views the blocks "between" views or those "within" a view; the others are zero.
    """

    weights: Matrix
    moment: bool = True
    blocks: Blocks = "whole"

    def matrix(self, second: Matrix, factors: Matrix, views: Sequence[slice]) -> Matrix:
        """The matrix for M = ``second``, which is overwritten."""
        if not self.moment:
            second[...] = 0.0
        used = self.weights.any(axis=tuple(range(self.weights.ndim - 1)))
        if used.any():
            rows, weights = factors.compress(used, axis=-2), self.weights.compress(used, axis=-1)
            second += (rows.swapaxes(-1, -2) * weights[..., None, :]) @ rows
        if self.blocks != "whole":
            for i, rows_of in enumerate(views):
                for j, columns_of in enumerate(views):
                    if (i == j) == (self.blocks == "between"):
                        second[..., rows_of, columns_of] = 0.0
        return second

    def diagonal(self, second: Matrix, factors: Matrix) -> Matrix:
        """Its diagonal, from that of M."""
        if self.blocks == "between":
            return np.zeros_like(second)
        return np.asarray(self.weights @ factors**2 + second * self.moment)


@dataclass(frozen=True, eq=False)
class Pencil:
    """A and B of a model of rows, made of the second moment M of the rows and of released vectors.

    Attributes
    ----------
    factors : (r, d), the released vectors F.
    a, b : the two matrices; ``b`` is None for the identity.
    view_sizes : number of features of each view, in their order; empty where there is one view.
    """

    factors: Matrix
    a: PencilPart
    b: PencilPart | None
    view_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        d = self.factors.shape[-1]
        if self.view_sizes and (len(self.view_sizes) < 2 or min(self.view_sizes) < 1 or sum(self.view_sizes) != d):
            raise ValueError(f"view_sizes must be two or more that add up to d = {d}, got {self.view_sizes}")
        if self.keeps_blocks and not self.view_sizes:
            raise ValueError('blocks "between" or "within" views need views: view_sizes is empty')

    @property
    def views(self) -> list[slice]:
        """The features of each view."""
        return slices_of(self.view_sizes)

    @property
    def keeps_blocks(self) -> bool:
        """Whether a product asks M about each view by itself."""
        return any(part is not None and part.blocks != "whole" for part in (self.a, self.b))

    def matrices(self, second: Matrix) -> tuple[Matrix, Matrix | None]:
        """A and B (None: the identity) for M = ``second``, which is overwritten."""
        if self.b is None:
            return self.a.matrix(second, self.factors, self.views), None
        other = second.copy() if self.a.moment and self.b.moment else np.empty_like(second)
        for_a, for_b = (other, second) if self.b.moment else (second, other)
        a = self.a.matrix(for_a, self.factors, self.views)
        return a, self.b.matrix(for_b, self.factors, self.views)

    def diagonals(self, second: Matrix) -> tuple[Matrix, Matrix]:
        """Diagonals of A and B from that of M."""
        of_b = np.ones_like(second) if self.b is None else self.b.diagonal(second, self.factors)
        return self.a.diagonal(second, self.factors), of_b


@dataclass(frozen=True, eq=False)
class PlausibleMoments:
    """Moments that may have been before the noise of a release, and that noise.

    ``numbers`` (d,): for how many directions of the whole problem each feature stands. The variance of its noise is as
    many times larger. ``basis`` (d', sum of numbers): the directions themselves, in their order, as columns; None where
    some of them are not known.
    """

    model: MomentModel
    moments: ReleasedMoments
    noise: MomentNoise
    numbers: Matrix
    basis: Matrix | None = None

    def pair(self) -> MatrixPencil:
        return self.model.pair(replace(self.moments, second=self.moments.second.copy()))

    def noisy_pair(self, generator: np.random.Generator, n_draws: int | None = None) -> MatrixPencil:
        moments, noise, d = self.moments, self.noise, len(self.numbers)
        roots, mean_root = np.sqrt(self.numbers), math.sqrt(float(self.numbers.mean()))
        of_sums, of_counts, of_second = normals(generator, n_draws, moments.sums.shape, moments.counts.shape, (d, d))
        noisy = ReleasedMoments(
            sums=moments.sums + noise.sums * roots[:, None] * of_sums,
            counts=moments.counts + noise.counts * of_counts,
            n=moments.n,
            noise=noise.scaled(mean_root, mean_root, 1.0),
            second=moments.second + goe_of(of_second, noise.second) * np.maximum.outer(roots, roots),
        )
        return self.model.pair(noisy)


class MomentModel(Model):
    """A model of rows: A and B follow from their moment matrix."""

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
        mean = mean_factor(released)
        for _ in range(n_draws):
            pencil = self.pencil(groups_alone(released, generator))
            if pencil.a.moment:
                second = goe(self.n_features, released.noise.second, generator)
                second += mean.T @ mean
            else:
                second = np.zeros((self.n_features, self.n_features))
            yield pencil.matrices(second)[0]

    def plausible_population(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        """`plausible_truth`, of models whose B carries no noise as well."""
        return self.plausible_truth(released, most_features)  # type: ignore[return-value]

    def duals(self, pencil: Pencil, second: Matrix, vectors: Matrix) -> Matrix:
        """The w of solutions v for which A + sum_i c_i w_i w_i^T has eigenvalues that are larger by c_i: B v."""
        _, b = pencil.matrices(second.copy())
        return vectors if b is None else np.asarray(b @ vectors)

    def noise_of_b(self, released: ReleasedMoments) -> float | None:
        return None if self.traits.identity_b else released.second_noise_level

    def pair(self, released: ReleasedMoments) -> MatrixPencil:
        level, rounding = released.second_noise_level, released.rounding
        pencil = self.pencil(released)
        low_rank = None if pencil.a.moment else (pencil.factors, pencil.a.weights)
        return MatrixPencil(*pencil.matrices(released.second), level, rounding, low_rank)


def with_eigenvalues(
    model: MomentModel, moments: ReleasedMoments, vectors: Matrix, old: Matrix, new: Matrix
) -> ReleasedMoments:
    """Moments without noise whose pair has ``new`` eigenvalues in place of ``old`` ones, B and ``vectors`` (d, K) kept.

    A changes by sum_i (new_i - old_i) (B v_i)(B v_i)^T; between two views, where -lambda comes with lambda, by twice
    that; between more, by what changes each eigenvalue so to first order. A scatter of group means changes with them:
    along B v_i they are multiplied by the root of new_i/old_i.
    """
    pencil = model.pencil(moments)
    duals = model.duals(pencil, moments.second, vectors)
    if pencil.a.moment:
        steps, between = new - old, pencil.a.blocks == "between"
        if between:
            steps = _steps_between(steps, duals, vectors, pencil.views)
        change = (duals * steps) @ duals.T
        if between:
            for view in pencil.views:
                change[view, view] = 0.0
        return replace(moments, second=moments.second + change)
    factors = np.sqrt(np.divide(new, old, out=np.ones_like(old), where=old > 0)) - 1
    shares = moments.counts / moments.counts.sum()
    contrasts = moments.sums - np.outer(moments.sums.sum(axis=1), shares)
    sums = moments.sums + (duals * factors) @ (vectors.T @ contrasts)
    second = moments.second
    if pencil.b is not None and pencil.b.weights[:-1].any():  # B is the scatter within groups
        second = second + (sums / moments.counts) @ sums.T - (moments.sums / moments.counts) @ moments.sums.T
    return replace(moments, sums=sums, second=second)


def _steps_between(steps: Matrix, duals: Matrix, vectors: Matrix, views: Sequence[slice]) -> Matrix:
    """The c for which the blocks of sum_i c_i (B v_i)(B v_i)^T between views change eigenvalues by ``steps``.

    To first order eigenvalue k changes by sum_i c_i ((v_k^T B v_i)^2 - sum over views w of (v_kw^T B_w v_iw)^2), where
    v_k^T B v_i is 1 for k = i, else 0. Of two views each has half of it: c is twice the step.
    """
    if len(views) == 2:
        return 2 * steps
    within = np.sum([(vectors[view].T @ duals[view]) ** 2 for view in views], axis=0)
    return np.asarray(np.linalg.lstsq(np.eye(len(steps)) - within, steps, rcond=None)[0])


def groups_alone(
    released: ReleasedGroups, generator: np.random.Generator, n_draws: int | None = None
) -> ReleasedGroups:
    """Sums and counts of a release of groups without differences: the released mean in all of them, and fresh noise."""
    noise = released.noise
    of_sums, of_counts = normals(generator, n_draws, released.sums.shape, released.counts.shape)
    return ReleasedGroups(
        sums=mean_factor(released).T * _shares(released) + noise.sums * of_sums,
        counts=released.counts + noise.counts * of_counts,
        n=released.n,
        noise=noise,
    )


def normals(generator: np.random.Generator, n_draws: int | None, *shapes: tuple[int, ...]) -> list[Matrix]:
    """Normal deviates of these shapes; with ``n_draws``, the results of that many calls, stacked."""
    sizes = [math.prod(shape) for shape in shapes]
    leading = () if n_draws is None else (n_draws,)
    drawn = np.split(generator.standard_normal((*leading, sum(sizes))), list(accumulate(sizes))[:-1], axis=-1)
    return [part.reshape(*leading, *shape) for part, shape in zip(drawn, shapes, strict=True)]


def goe(d: int, deviation: float, generator: np.random.Generator) -> Matrix:
    """A GOE matrix for a simulation; nothing is protected by it."""
    return goe_of(generator.standard_normal((d, d)), deviation)


def goe_of(deviates: Matrix, deviation: float) -> Matrix:
    """The GOE matrices of independent normal deviates (..., d, d), which may be overwritten."""
    deviates += deviates.swapaxes(-1, -2)
    deviates *= deviation / 2
    return deviates


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
    return 1.0 if len(moments.counts) < 2 else float(total_shares(moments))


def total_shares(moments: ReleasedGroups) -> Matrix:
    """`total_share` as an array without axes, or of each release of a simulation."""
    n_groups = moments.counts.shape[-1]
    if n_groups < 2:
        return np.ones(moments.counts.shape[:-1])
    total, deviation = np.asarray(moments.counts.sum(axis=-1)), moments.noise.counts * math.sqrt(n_groups)
    is_one = np.abs(total - 1) <= max(_SHOWN * deviation, _ROUNDING)
    return np.where(is_one, 1.0, np.maximum(total, max(deviation, 1 / moments.n)))


def total_mean(moments: ReleasedGroups) -> Matrix:
    """Mean of the rows of all groups from their sums."""
    total = np.asarray(moments.sums.sum(axis=-1))
    return total if moments.counts.shape[-1] < 2 else np.asarray(total / total_shares(moments)[..., None])


def in_one_group(moments: ReleasedMoments) -> ReleasedMoments:
    """Moments of the people of all groups together, as a release of one group has them. Shares what is unchanged.

    Who belongs to no group is left out: the second moment, a sum over the others, is divided by their number as well.
    """
    n_groups, share, noise = moments.sums.shape[1], total_share(moments), moments.noise
    if n_groups < 2:
        return moments
    root = math.sqrt(n_groups) / share
    # n is public where released counts do not add up to it, and then exact where they show nobody without a group
    exact = share == 1.0 and abs(float(moments.counts.sum()) - 1) > _ROUNDING
    return replace(
        moments,
        second=moments.second / share,
        sums=total_mean(moments)[:, None],
        counts=np.ones(1),
        n=moments.n * share,
        noise=MomentNoise(noise.second / share, noise.sums * root, 0.0 if exact else noise.counts * root),
    )


def mean_factor(moments: ReleasedGroups) -> Matrix:
    """The mean m as the one factor (1, d) of m m^T; (0, d) where no sums were released."""
    if moments.sums.size:
        return total_mean(moments)[..., None, :]
    *leading, d, _ = moments.sums.shape
    return np.empty((*leading, 0, d))


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
    shrunk = moments.sums * _james_stein(moments)[..., None, :]
    return np.asarray(shrunk.swapaxes(-1, -2)), 1 / effective_counts(moments)


def effective_counts(moments: ReleasedGroups) -> Matrix:
    """Counts per group as shares of n: at least one person, and at least one deviation of their noise."""
    return np.maximum(moments.counts, max(1.0 / moments.n, moments.noise.counts))


def _james_stein(moments: ReleasedGroups) -> Matrix:
    d = moments.sums.shape[-2]
    squared = np.einsum("...ij,...ij->...j", moments.sums, moments.sums)
    noise = max(d - 2, 0) * moments.noise.sums**2
    return np.asarray(np.clip(1 - np.divide(noise, squared, out=np.zeros_like(squared), where=squared > 0), 0.0, 1.0))


def symmetric_form_variance(left: Any, right: Matrix) -> Matrix:
    """Var of u_j^T Z v_i for Z GOE with unit diagonal deviation: (|u_j|^2 |v_i|^2 + (u_j.v_i)^2) / 2.

    ``left`` (d, r) holds the u_j, ``right`` (d, k) the v_i as columns; the result is (k, r).
    """
    return np.asarray((np.outer(squares(right), squares(left)) + (right.T @ left) ** 2) / 2)


def schur_form_variance(
    moments: ReleasedGroups, left: Any, right: Matrix, *, total: Matrix | float, within: Matrix | float
) -> Matrix:
    """Var of u_j^T (total_i dT + within_i dW) v_i, shape (k, r), for columns u_j of ``left`` and v_i of ``right``."""
    k = right.shape[1]
    t, w = np.broadcast_to(total, k)[:, None], np.broadcast_to(within, k)[:, None]
    noise = moments.noise
    variance = noise.second**2 * (t + w) ** 2 * symmetric_form_variance(left, right)
    if moments.sums.size == 0:
        return np.asarray(variance)
    mean_left, mean_right = _mean_part(moments, left), _mean_part(moments, right)
    group_left, group_right = _group_part(moments, left), _group_part(moments, right)
    # Z_xe multiplies u a_v^T + v a_u^T with a = total * (mean part) + within * (group part)
    a_left = t[:, :, None] * mean_left + w[:, :, None] * group_left
    a_right = t * mean_right.T + w * group_right.T
    variance += noise.sums**2 * rank_two_squares(left, right, a_left, a_right)
    if noise.counts > 0:
        on_counts = (
            t[:, :, None] * mean_right.T[:, :, None] * mean_left
            + w[:, :, None] * group_right.T[:, :, None] * group_left
        )
        variance += noise.counts**2 * np.einsum("kgr,kgr->kr", on_counts, on_counts)
    return np.asarray(variance)


def rank_two_squares(left: Any, right: Matrix, a_left: Matrix, a_right: Matrix) -> Matrix:
    """|u_j b_i^T + v_i c_ij^T|_F^2, shape (k, r), with b_i = a_right[i] (k, g) and c_ij = a_left[i, :, j] (k, g, r)."""
    return np.asarray(
        np.outer(np.einsum("kg,kg->k", a_right, a_right), squares(left))
        + np.einsum("kgr,kgr->kr", a_left, a_left) * squares(right)[:, None]
        + 2 * (right.T @ left) * np.einsum("kg,kgr->kr", a_right, a_left)
    )


def squares(columns: Any) -> Matrix:
    """Squared norm of every column; the columns may be those of a sparse matrix."""
    if hasattr(columns, "multiply"):
        return np.asarray(columns.multiply(columns).sum(axis=0)).ravel()
    return np.asarray(np.einsum("ij,ij->j", columns, columns))


def _mean_part(moments: ReleasedGroups, vectors: Matrix) -> Matrix:
    """-(m.v) for each group (the same) and each column v."""
    groups = moments.sums.shape[1]
    return np.tile(-(total_mean(moments) @ vectors), (groups, 1))


def _group_part(moments: ReleasedGroups, vectors: Matrix) -> Matrix:
    """-(S_g.v)/c_g for each group g and each column v."""
    return np.asarray(-(moments.sums.T @ vectors) / effective_counts(moments)[:, None])
