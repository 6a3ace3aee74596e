"""Principal components: A = covariance (or second moment), B = I; or its diagonal, for standardized columns.

In coordinates u = D^(1/2) v, D = diag(C), the pair (C, D) is (R, I) with R = D^(-1/2) C D^(-1/2), the correlation
matrix of the released covariance. Its diagonal carries no noise, as that of D is that of C. The coefficient of v_j in
the error of v_i is v_j^T (dC - lambda_i diag(dC)) v_i over lambda_i - lambda_j: a linear form in the noise again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used
from numpy.typing import NDArray

from dpgep.models.model import Matrix, MatrixPencil, PublicFacts, Standardization, Traits, traits_of
from dpgep.models.moments import (
    NO_NOISE,
    MomentLayout,
    Pencil,
    PencilPart,
    PlausibleMoments,
    ReleasedGroups,
    ReleasedMoments,
    mean_factor,
    moment_layout,
    schur_form_variance,
    total_mean,
    total_share,
)
from dpgep.models.null import leading_of_noise, merged_directions, spectrum_before_noise, upright
from dpgep.models.row_model import RowModel
from dpgep.serialization import stored_as

# A released variance counts as at least this many deviations of its noise: a public constant.
_FLOOR = 2.0
# Rounding of a second moment: of exact sums, and, for each person, of sums in floating point.
_EXACT, _SUMMED = 4 * float(np.finfo(float).eps), float(np.finfo(float).eps)


@stored_as("pca")
@dataclass(frozen=True)
class PcaModel(RowModel):
    """max v^T A v over unit v, A the covariance of the rows (``center``) or their second moment."""

    n_features: int
    center: bool
    name = "pca"
    traits = Traits(
        scale_free=False,
        linear_free=False,
        identity_b=True,
        is_covariance=True,
        has_clipped_products=True,
        equal_eigenvalues=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        is_second_moment = not (self.center or self.traits.standardized)
        traits = traits_of(type(self), shift_free=self.center, is_second_moment=is_second_moment)
        object.__setattr__(self, "traits", traits)

    @property
    def max_components(self) -> int:
        return self.n_features

    @property
    def max_components_reason(self) -> str:
        return f"PCA of {self.n_features} features has {self.n_features} components"

    def layout(self, facts: PublicFacts) -> MomentLayout:
        return moment_layout(self.n_features, 0, sums=self.center, facts=facts)

    def pencil(self, released: ReleasedGroups) -> Pencil:
        mean = mean_factor(released)
        return Pencil(mean, PencilPart(-np.ones(mean.shape[:-1])), None)

    def error_variances(self, released: ReleasedGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        return schur_form_variance(released, left, right, total=1.0, within=0.0)

    def leading_noise(
        self, released: ReleasedGroups, values: Matrix, basis: Matrix | None, seed: int, n_draws: int
    ) -> Matrix | None:
        mean, noise = mean_factor(released), released.noise
        # that of the mean's noise e; -e e^T lowers the mean of all eigenvalues by |e|^2/d
        deviation = noise.sums * math.sqrt(released.sums.shape[1]) / total_share(released)
        size = float(np.linalg.norm(mean if basis is None else mean @ basis))
        return leading_of_noise(len(values), noise.second, size * deviation, seed, n_draws) + deviation**2

    def plausible_population(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        mean = mean_factor(released)
        values, vectors = np.linalg.eigh(released.second - mean.T @ mean)
        values, vectors = spectrum_before_noise(values[::-1], released.noise.second), upright(vectors[:, ::-1])
        rows = (mean @ vectors).T
        if len(values) > most_features:  # half of them as they are
            half = most_features // 2
            rest = merged_directions(values[half:], rows[half:], most_features - half)
            parts = (values[:half], rows[:half], np.ones(half)), rest
            values, rows, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
        else:
            numbers = np.ones(len(values))
        moments = replace(released, sums=rows, noise=NO_NOISE, second=np.diag(values) + rows @ rows.T)
        model = self.restricted(np.arange(len(values)))
        return PlausibleMoments(model, moments, released.noise, numbers, basis=vectors)

    def restricted(self, features: NDArray[np.intp]) -> PcaModel:
        return type(self)(len(features), self.center)

    def mean(self, released: ReleasedGroups) -> Matrix | None:
        return total_mean(released) if self.center else None


@stored_as("standardized-pca")
@dataclass(frozen=True)
class StandardizedPcaModel(PcaModel):
    """max v^T C v over v^T diag(C) v = 1, C the covariance of the rows (``center``) or their second moment.

    `pair`, `error_variances` and `noise_alone` are in coordinates u = v * scale, in which the pair is (R, I).
    """

    name = "standardized-pca"
    traits = Traits(linear_free=False, identity_b=True, standardized=True, equal_eigenvalues=True)

    def standardization(self, released: ReleasedMoments) -> Standardization:
        return standardization_of(released)

    def pair(self, released: ReleasedMoments) -> MatrixPencil:
        standard = standardization_of(released)
        covariance, _ = self.pencil(released).matrices(released.second.copy())  # its diagonal is asked for again
        return MatrixPencil(
            correlations(covariance, standard), None, correlation_noise(released, standard), released.rounding
        )

    def plausible_population(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        """In the coordinates of the columns, which their deviations belong to; nothing is thinned out."""
        mean, deviation = mean_factor(released), released.noise.second
        values, vectors = np.linalg.eigh(released.second - mean.T @ mean)
        covariance = (vectors * spectrum_before_noise(values[::-1], deviation)[::-1]) @ vectors.T
        moments = replace(released, second=covariance + mean.T @ mean, noise=NO_NOISE)
        return PlausibleMoments(self, moments, released.noise, np.ones(len(values)), basis=np.eye(len(values)))

    def error_variances(self, released: Any, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        return correlation_form_variance(released, left, right)

    def leading_noise(
        self, released: ReleasedGroups, values: Matrix, basis: Matrix | None, seed: int, n_draws: int
    ) -> None:
        return None  # divided by deviations, it is not the same in all directions

    def noise_alone(
        self, released: Any, values: Matrix, generator: np.random.Generator, n_draws: int
    ) -> Iterator[Matrix]:
        standard = standardization_of(released)
        for noise in super().noise_alone(released, values, generator, n_draws):
            alone = correlations(noise, standard)  # with the diagonal released: 1, whatever the noise
            alone.flat[:: len(alone) + 1] -= np.diagonal(alone).mean()
            yield alone


def standardization_of(released: ReleasedMoments) -> Standardization:
    """Deviations of the columns, at least the root of ``_FLOOR`` deviations of the noise in their squares."""
    second = np.diagonal(released.second)
    mean_square = np.square(mean_factor(released)).sum(axis=0)  # 0 where no mean is subtracted
    noise, variances = released.noise, second - mean_square
    # first order: Z_jj - 2 m_j e_j + m_j^2 times the noise of n
    deviations = np.sqrt(noise.second**2 + 4 * mean_square * noise.sums**2 + (mean_square * noise.counts) ** 2)
    rounding = np.abs(second) * (_SUMMED * released.n if released.noiseless else _EXACT)
    floored = np.maximum(variances, _FLOOR * deviations)
    scale = np.sqrt(np.where(floored > rounding, floored, 0.0))
    return Standardization(variances, scale, variances < _FLOOR * deviations)


def correlations(covariance: Matrix, standard: Standardization) -> Matrix:
    """R of a covariance, which is overwritten; its diagonal is 1, or less where the variance is below the floor."""
    covariance /= standard.scale[:, None]
    covariance /= standard.scale
    np.fill_diagonal(covariance, standard.variances / standard.scale**2)
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

    shared, squared = on_diagonal(np.ones((len(q), 1)))
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
    return released.noise.second * float(np.sqrt(2 * inverse.sum() * inverse.max()))
