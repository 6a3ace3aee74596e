"""The moment matrix that serves every model of rows: sum over people of z z^T with z = [x; e(group)].

x is the clipped row in the unit ball, e(group) marks a class, a slice, or (one group) everybody. Its blocks are the
second moment, the sums per group and the counts per group. Every A and B is a combination of two Schur complements of
it, T and W; the error of v_i along v_j, v_j^T (dA - lambda_i dB) v_i, is a linear form in its noise, also of
standardized columns, and its variance a closed form (docs/mathematics.md, section 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import accumulate, combinations
from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used
from numpy.typing import NDArray

from dpgep._show import Shown
from dpgep.models.clipping import Clipping
from dpgep.models.model import Matrix, Standardization
from dpgep.models.pairwise import Pairs, mark_of, pair_moments

_EPSILON = float(np.finfo(float).eps)
# Deviations from which on a released total differs from 1, and what rounding may make of shares that add up to it.
_SHOWN, _ROUNDING = 4.0, 1e-9
_FLOOR = 2.0  # a released variance counts as at least this many deviations of its noise: a public constant
# Rounding of a second moment: of exact sums, and, for each person, of sums in floating point.
_EXACT, _SUMMED = 4 * float(np.finfo(float).eps), float(np.finfo(float).eps)


@dataclass(frozen=True)
class MomentLayout:
    """Which blocks of the moment matrix a release contains."""

    n_features: int  # d, the length of x
    n_groups: int  # number of groups (0: none, 1: everybody)
    sums: bool  # whether the d x n_groups sums are released
    counts: bool  # whether the counts are released; where not, they are public
    # whether the second half of x are marks of what is absent in the first (`dpgep.models.pairwise`)
    marked: bool = False
    by_group: bool = False  # whether each group has a second moment of its own, and so a moment matrix

    @property
    def mark(self) -> float:
        """Of ``marked`` values, the mark in units of the bound on rows."""
        return mark_of(self.n_features // 2)

    @property
    def has_groups(self) -> bool:
        """Whether anything but the second moment is released."""
        return self.sums or self.counts

    @property
    def dimension(self) -> int:
        """Rows of a moment matrix."""
        return self.n_features + (1 if self.by_group else self.n_groups)

    @property
    def n_matrices(self) -> int:
        """How many moment matrices there are."""
        return self.n_groups if self.by_group else 1

    @property
    def of_one_group(self) -> MomentLayout:
        """The moment matrix of one of the groups."""
        return MomentLayout(self.n_features, 1, sums=True, counts=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the moment matrix, or of a stack of one for each group."""
        return (self.n_groups,) * self.by_group + (self.dimension,) * 2

    def blocks(self, matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """(second moment, sums, counts) of a moment matrix: the first a view, all without what is not released.

        By group, of a stack of the matrices of the groups: (G, d, d), (d, G) and (G,).
        """
        d = self.n_features
        if self.by_group:
            return matrix[:, :d, :d], matrix[:, :d, d].T.copy(), matrix[:, d, d].copy()
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
    """

    sums: Matrix  # (d, n_groups), (1/n) sum of x per group plus noise; (d, 0) where not released
    counts: Matrix  # (n_groups,), share of people per group plus noise; exact where public
    n: float  # number of people used for normalization: public, or a released noisy count
    noise: MomentNoise  # deviations in the same units; that of the second moment belongs to an answer about it
    # of moments that were found pair by pair, from those with marks, what is known of pairs; None elsewhere
    pairs: Pairs | None = field(default=None, kw_only=True)

    @property
    def mean(self) -> Matrix | None:
        """Mean of the rows of all groups; None where no sums were released."""
        return total_mean(self) if self.sums.size else None

    @property
    def by_group(self) -> bool:
        """Whether each group has a second moment of its own."""
        return False

    @property
    def noiseless(self) -> bool:
        """Whether epsilon was infinite."""
        return self.noise.second == 0

    @property
    def profile(self) -> Matrix | float:
        """(d, d), variances of the noise in entries of the second moment, in units of those of GOE noise; or 1."""
        return 1.0 if self.pairs is None else self.pairs.profile


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedMoments(ReleasedGroups):
    """Released second moment, sums and counts."""

    # (d, d), second moment (1/n) sum x x^T plus noise; or (G, d, d), that of each group, with noise of its own
    second: Matrix
    clipped: float = 0.0  # share of the people whose rows were beyond the bound; known only where there is no noise
    # of moments that were put back as they were before the clipping, what is known of that; None elsewhere
    clipping: Clipping | None = None
    # of moments of values and of marks of what is absent, the mark; None where there are no marks
    mark: float | None = None

    @property
    def by_group(self) -> bool:
        return self.second.ndim > self.sums.ndim

    @property
    def second_noise_level(self) -> float:
        """Expected operator norm of the noise in ``second``: the GOE edge, deviation x sqrt(2 d)."""
        return self.noise.second * math.sqrt(2 * self.second.shape[-1])

    @property
    def profile_of_squares(self) -> Matrix:
        """(d,), the diagonal of ``profile``."""
        return np.ones(self.second.shape[-1]) if self.pairs is None else self.pairs.profile.diagonal()

    @property
    def rounding(self) -> float:
        """Size of the floating-point errors of matrices computed from ``second``."""
        d: int = self.second.shape[-1]
        return 4 * d * _EPSILON * float(np.abs(np.diagonal(self.second, axis1=-2, axis2=-1)).max())

    def restricted(self, features: NDArray[np.intp]) -> ReleasedMoments:
        """A copy for some of the features, and their marks."""
        if self.mark is not None:
            features = np.concatenate([features, len(self.second) // 2 + features])
        clipping = None if self.clipping is None else self.clipping.restricted(features)
        second = self.second[..., features[:, None], features]
        pairs = None if self.pairs is None else self.pairs.restricted(features)
        return replace(self, second=second, sums=self.sums[features], clipping=clipping, pairs=pairs)


NO_NOISE = MomentNoise(0.0, 0.0, 0.0)


def pooled(first: ReleasedMoments, second: ReleasedMoments, shares: tuple[float, float], n: float) -> ReleasedMoments:
    """Two releases of one layout as one of n people, in these shares; independent noise adds in quadrature."""
    p, q = shares
    of_second, of_sums, of_counts = (
        math.hypot(p * one, q * other) for one, other in zip(astuple(first.noise), astuple(second.noise), strict=True)
    )
    return replace(
        first,
        n=n,
        second=p * first.second + q * second.second,
        sums=p * first.sums + q * second.sums,
        counts=p * first.counts + q * second.counts,
        clipped=p * first.clipped + q * second.clipped,
        noise=MomentNoise(of_second, of_sums, of_counts),
    )


def pooled_by_precision(first: ReleasedMoments, second: ReleasedMoments) -> ReleasedMoments:
    """Two releases about the same people, a public number, whose noise keeps one proportion, as if bought at once."""
    assert first.n == second.n
    precisions = np.array([each.noise.second**-2 for each in (first, second)])
    p, q = precisions / precisions.sum()
    return pooled(first, second, (p, q), first.n)


def groups_alone(released: ReleasedGroups, of_sums: Matrix, of_counts: Matrix) -> ReleasedGroups:
    """Sums and counts of releases of groups without differences, by stacks of normal deviates: one mean, new noise."""
    noise, shares = released.noise, np.empty(0)
    if released.sums.size:  # of people per group, as if they were sure: they sum to 1
        shares = effective_counts(released)
        shares = shares / shares.sum()
    sums = mean_factor(released).T * shares + noise.sums * of_sums
    return ReleasedGroups(sums, released.counts + noise.counts * of_counts, released.n, noise)


def normals(generator: np.random.Generator, n_draws: int | None, *shapes: tuple[int, ...]) -> list[Matrix]:
    """Normal deviates of these shapes; with ``n_draws``, the results of that many calls, stacked."""
    sizes = [math.prod(shape) for shape in shapes]
    leading = () if n_draws is None else (n_draws,)
    drawn = generator.standard_normal((*leading, sum(sizes)))
    parts = zip(accumulate(sizes), sizes, shapes, strict=True)
    return [drawn[..., end - size : end].reshape(*leading, *shape) for end, size, shape in parts]


def goe(d: int, deviation: float, generator: np.random.Generator) -> Matrix:
    """A GOE matrix for a simulation; nothing is protected by it."""
    return goe_of(generator.standard_normal((d, d)), deviation)


def goe_of(deviates: Matrix, deviation: float) -> Matrix:
    """The GOE matrices of independent normal deviates (..., d, d), which may be overwritten."""
    deviates += deviates.swapaxes(-1, -2)
    deviates *= deviation / 2
    return deviates


def total_share(moments: ReleasedGroups) -> float:
    """`total_shares` of one release."""
    return float(total_shares(moments))


def total_shares(moments: ReleasedGroups) -> Matrix:
    """The share of people who belong to a group, which A, B and the mean are about; of each release of a simulation.

    1 where one group holds everybody, and where released counts do not show otherwise by four deviations of their
    total: to divide by that noise would cost more than it corrects.
    """
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


def together(moments: ReleasedMoments) -> ReleasedMoments:
    """Moments of values with one second moment: `paired`, and of all groups the sum, whose noise adds up, too."""
    if not moments.by_group:
        return paired(moments)
    noise = moments.noise.scaled(math.sqrt(moments.second.shape[-3]), 1.0, 1.0)
    return replace(moments, second=moments.second.sum(axis=-3), noise=noise)


def paired(moments: ReleasedMoments) -> ReleasedMoments:
    """Moments of values pair by pair, the covariance projected, from those of values and marks; others as they are."""
    if getattr(moments, "mark", None) is None:  # sums of groups alone have none
        return moments
    moments = replace(moments, counts=effective_counts(moments))
    mean, covariance, deviation, pairs = pair_moments(moments)
    values, vectors = np.linalg.eigh(covariance)
    if values[0] < 0:
        covariance = (vectors * np.maximum(values, 0.0)) @ vectors.T
    second = covariance + np.outer(mean, mean)
    n, noise = moments.n * float(moments.counts[0]), MomentNoise(deviation, 0.0, 0.0)
    return replace(
        moments, second=second, sums=mean[:, None], counts=np.ones(1), n=n, noise=noise, mark=None, pairs=pairs
    )


def of_group(moments: ReleasedMoments, group: int) -> ReleasedMoments:
    """Moments of the people of one group alone, of second moments by group, as a release of nobody else has them."""
    share = float(effective_counts(moments)[group])
    return replace(
        moments,
        second=moments.second[group] / share,
        sums=moments.sums[:, [group]] / share,
        counts=np.ones(1),
        n=moments.n * share,
        noise=moments.noise.scaled(1 / share, 1 / share, 1 / share),
    )


def of_groups(groups: Sequence[ReleasedMoments], moments: ReleasedMoments) -> ReleasedMoments:
    """Moments by group of people in the shares of others, from the moments of each group alone: `of_group` undone."""
    shares = effective_counts(moments)
    second = np.stack([share * group.second for share, group in zip(shares, groups, strict=True)])
    return replace(moments, second=second, sums=np.hstack([group.sums for group in groups]) * shares, counts=shares)


def in_one_group(moments: ReleasedMoments) -> ReleasedMoments:
    """Moments of the people of all groups together, as a release of one group has them. Shares what is unchanged.

    Who belongs to no group is left out: the second moment, a sum over the others, is divided by their number as well.
    Of values with marks of what is absent, over the people who have each pair of columns.
    """
    moments = together(moments)
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


def group_factors(moments: ReleasedGroups) -> tuple[Matrix, Matrix]:
    """(S, w) with sum_g w_g S_g S_g^T the raw between-group moment: S_g (rows) the sums, 1/w_g the counts per group.

    A group that noise drowns (an empty class, say) would add a large spurious direction. So sums are shrunk towards
    zero by the positive-part James-Stein factor 1 - (d - 2) s^2 / |S_g|^2, and counts below their noise count as that.
    """
    squared = np.einsum("...ij,...ij->...j", moments.sums, moments.sums)
    noise = max(moments.sums.shape[-2] - 2, 0) * moments.noise.sums**2
    kept = np.clip(1 - np.divide(noise, squared, out=np.zeros_like(squared), where=squared > 0), 0.0, 1.0)
    shrunk = moments.sums * kept[..., None, :]
    return np.asarray(shrunk.swapaxes(-1, -2)), 1 / effective_counts(moments)


def effective_counts(moments: ReleasedGroups) -> Matrix:
    """Counts per group as shares of n: at least one person, and at least one deviation of their noise."""
    return np.maximum(moments.counts, max(1.0 / moments.n, moments.noise.counts))


def symmetric_form_variance(left: Any, right: Matrix, profile: Matrix | float = 1.0) -> Matrix:
    """Var of u_j^T Z v_i for Z GOE with unit diagonal deviation: (|u_j|^2 |v_i|^2 + (u_j.v_i)^2) / 2.

    ``left`` (d, r) holds the u_j, ``right`` (d, k) the v_i as columns; the result is (k, r). With a profile s, entries
    ab of Z have s_ab times that variance: sum_ab s_ab (u_a^2 v_b^2 + u_a v_a u_b v_b) / 2.
    """
    if isinstance(profile, np.ndarray):
        left = left.toarray() if hasattr(left, "toarray") else left
        mixed = [np.sum(left * v[:, None] * (profile @ (left * v[:, None])), axis=0) for v in right.T]
        doubled = (right**2).T @ profile @ left**2 + np.reshape(mixed, (right.shape[1], -1))
        return np.asarray(np.maximum(doubled, 0.0) / 2)  # rounding may leave less than none
    return np.asarray((np.outer(squares(right), squares(left)) + (right.T @ left) ** 2) / 2)


def schur_form_variance(
    moments: ReleasedGroups, left: Any, right: Matrix, *, total: Matrix | float, within: Matrix | float
) -> Matrix:
    """Var of u_j^T (total_i dT + within_i dW) v_i, shape (k, r), for columns u_j of ``left`` and v_i of ``right``."""
    k = right.shape[1]
    t, w = np.broadcast_to(total, k)[:, None], np.broadcast_to(within, k)[:, None]
    noise = moments.noise
    variance = noise.second**2 * (t + w) ** 2 * symmetric_form_variance(left, right, moments.profile)
    if moments.sums.size == 0:
        return np.asarray(variance)
    # -(m.v) for each group (the same), and -(S_g.v)/c_g for each group g
    mean, counts = total_mean(moments), effective_counts(moments)[:, None]
    mean_left, mean_right = (np.tile(-(mean @ v), (moments.sums.shape[1], 1)) for v in (left, right))
    group_left, group_right = (np.asarray(-(moments.sums.T @ v) / counts) for v in (left, right))
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


def block_form_variance(
    released: ReleasedGroups, views: Sequence[slice], left: Any, right: Matrix, within: Matrix | float
) -> Matrix:
    """Var of u_j^T dT_i v_i, shape (k, r), dT_i the derivative of the covariance, its diagonal blocks times ``within``.

    The blocks carry independent noise: first the second moment, diagonal blocks (GOE) and the others (entries of
    variance s^2/2), then the sums of each view. The noise of n itself (add-remove) is of smaller order and left out.
    """
    weight = np.broadcast_to(within, right.shape[1])[:, None]
    if isinstance(released.profile, np.ndarray):  # such moments have a mean without noise
        weights = np.ones((right.shape[1], *released.profile.shape))
        for view in views:
            weights[:, view, view] = weight[:, :, None]
        each = (
            symmetric_form_variance(left, v[:, None], released.profile * w**2)
            for v, w in zip(right.T, weights, strict=True)
        )
        return np.asarray(released.noise.second**2 * np.concatenate([*each]))
    parts = [(left[view], right[view]) for view in views]
    variance = weight**2 * sum(symmetric_form_variance(u, v) for u, v in parts)
    for (ux, vx), (uy, vy) in combinations(parts, 2):
        # |u_x v_y^T + v_x u_y^T|_F^2 / 2
        variance += np.outer(squares(vy), squares(ux)) / 2 + np.outer(squares(vx), squares(uy)) / 2
        variance += (vx.T @ ux) * (vy.T @ uy)
    variance *= released.noise.second**2
    if released.sums.size:
        mean = total_mean(released)
        along = [(mean[view] @ u, mean[view] @ v) for view, (u, v) in zip(views, parts, strict=True)]
        for i, (u, v) in enumerate(parts):
            # noise in this view's sums meets the mean of its own part and of the other parts (weight 1)
            others = along[:i] + along[i + 1 :]
            a_left = -(weight * along[i][0] + sum(of_left for of_left, _ in others))
            a_right = -(weight[:, 0] * along[i][1] + sum(of_right for _, of_right in others))
            variance += released.noise.sums**2 * rank_two_squares(u, v, a_left[:, None, :], a_right[:, None])
    return np.asarray(variance)


def rank_two_squares(left: Any, right: Matrix, a_left: Matrix, a_right: Matrix) -> Matrix:
    """|u_j b_i^T + v_i c_ij^T|_F^2, shape (k, r), with b_i = a_right[i] (k, g) and c_ij = a_left[i, :, j] (k, g, r)."""
    return np.asarray(
        np.outer(np.einsum("kg,kg->k", a_right, a_right), squares(left))
        + np.einsum("kgr,kgr->kr", a_left, a_left) * squares(right)[:, None]
        + 2 * (right.T @ left) * np.einsum("kg,kgr->kr", a_right, a_left)
    )


def squares(columns: Any) -> Matrix:
    """Squared norm of every column, also of a sparse matrix."""
    if hasattr(columns, "multiply"):
        return np.asarray(columns.multiply(columns).sum(axis=0)).ravel()
    return np.asarray(np.einsum("ij,ij->j", columns, columns))


def standardization_of(released: ReleasedMoments) -> Standardization:
    """Deviations of the columns, at least the root of ``_FLOOR`` deviations of the noise in their squares."""
    second = np.diagonal(released.second)
    mean_square = np.square(mean_factor(released)).sum(axis=0)  # 0 where no mean is subtracted
    noise, variances = released.noise, second - mean_square
    of_second = noise.second**2 * released.profile_of_squares
    # first order: Z_jj - 2 m_j e_j + m_j^2 times the noise of n
    deviations = np.sqrt(of_second + 4 * mean_square * noise.sums**2 + (mean_square * noise.counts) ** 2)
    rounding = np.abs(second) * (_SUMMED * released.n if released.noiseless else _EXACT)
    floored = np.maximum(variances, _FLOOR * deviations)
    scale = np.sqrt(np.where(floored > rounding, floored, 0.0))
    return Standardization(variances, scale, variances < _FLOOR * deviations)


def correlations(covariance: Matrix, standard: Standardization) -> Matrix:
    """R of covariances, which are overwritten; its diagonal is 1, or less where the variance is below the floor."""
    covariance /= standard.scale[:, None]
    covariance /= standard.scale
    np.einsum("...ii->...i", covariance)[...] = standard.variances / standard.scale**2
    return covariance


def correlation_form_variance(released: ReleasedMoments, left: Any, right: Matrix) -> Matrix:
    """Var of u_j^T dR v_i, shape (k, r), for columns u_j of ``left`` and v_i of ``right``.

    With p = u / scale, q = v / scale, x = R u / scale and y = R v / scale, it is that of p^T dC q - sum_a g_a dC_aa,
    g = (p o y + x o q) / 2, to which a column divided by the floor contributes nothing. Here dC_aa = Z_aa - 2 m_a e_a +
    m_a^2 c, with independent noises Z, e and c of second moment, sums and count: what g changes is added for each.
    """
    standard, m = standardization_of(released), mean_factor(released)
    unit = scipy.sparse.diags_array(1 / standard.scale)
    p, q = unit @ left, np.asarray(unit @ right)
    varying = scipy.sparse.diags_array(np.where(standard.drowned, 0.0, 1 / standard.scale**2))
    x, y = (np.asarray(varying @ (released.second @ side - m.T @ (m @ side))) for side in (p, q))
    variance = schur_form_variance(released, p, q, total=1.0, within=0.0)
    noise, pp, px, xx = released.noise, p * p, p * x, x * x

    def on_diagonal(weights: Matrix) -> tuple[Matrix, Matrix]:
        """sum_a weights_a g_a p_a q_a and sum_a weights_a g_a^2."""
        qq, qy, yy = weights * q * q, weights * q * y, weights * y * y
        return (qy.T @ pp + qq.T @ px) / 2, (yy.T @ pp + 2 * qy.T @ px + qq.T @ xx) / 4

    shared, squared = on_diagonal(released.profile_of_squares[:, None])
    variance += noise.second**2 * (squared - 2 * shared)
    if released.sums.size:
        m = m.T
        p_mean, q_mean = np.ravel(m.T @ p), np.ravel(m.T @ q)[:, None]
        with_q = ((m * q * y).T @ p + (m * q * q).T @ x) / 2
        with_p = ((m * y).T @ pp + (m * q).T @ px) / 2
        _, squared = on_diagonal(m * m)
        variance += 4 * noise.sums**2 * (squared - p_mean * with_q - q_mean * with_p)
        of_count = ((m * m * y).T @ p + (m * m * q).T @ x) / 2
        variance += noise.counts**2 * of_count * (of_count - 2 * p_mean * q_mean)
    return np.asarray(np.maximum(variance, 0.0))


def correlation_noise(released: ReleasedMoments, standard: Standardization) -> float:
    """Expected operator norm of the noise in R, at most: the edge of entries of variance s^2/(2 D_a D_b)."""
    inverse = 1 / standard.scale**2
    largest = 1.0 if released.pairs is None else float(released.pairs.profile.max())
    return released.noise.second * math.sqrt(largest) * math.sqrt(2 * inverse.sum() * inverse.max())
