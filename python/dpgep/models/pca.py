"""Principal components: A = covariance (or second moment), B = I; or its diagonal, for standardized columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.models.denoise import merged_directions, spectrum_before_noise, upright
from dpgep.models.model import Matrix, MatrixPencil, PublicFacts, Standardization, Traits
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
from dpgep.models.row_model import RowModel
from dpgep.models.standardized import (
    correlation_form_variance,
    correlation_noise,
    correlations,
    standardization_of,
)
from dpgep.models.tridiagonal_noise import leading_of_noise
from dpgep.serialization import stored_as


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
        traits = replace(type(self).traits, shift_free=self.center, is_second_moment=is_second_moment)
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
