"""A model with B = I of rows that were divided by public scales, in the units of the rows: A = S A' S.

Released is A' with noise that is isotropic in the coordinates of the divided rows. With u = S v, v^T dA v = u^T dA' u:
all that is known about the noise in A' holds for A, at vectors multiplied by S.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used
from numpy.typing import NDArray

from dpgep.models.model import Matrix, MatrixPencil, PublicFacts, Traits
from dpgep.models.moments import (
    NO_NOISE,
    MomentLayout,
    MomentModel,
    Pencil,
    PlausibleMoments,
    ReleasedGroups,
    ReleasedMoments,
    mean_factor,
)
from dpgep.models.null import low_rank_before_noise, spectrum_before_noise
from dpgep.models.preprocessing import Preprocessing


def in_units(model: MomentModel, preprocessing: Preprocessing | None) -> tuple[MomentModel, Preprocessing | None]:
    """A model that depends on the scales of columns, where these differ, in their units; preprocessing of one scale.

    That is the power of two near the largest: no square of a variance overflows.
    """
    if (
        model.traits.scale_free
        or preprocessing is None
        or preprocessing.scale is None
        or np.ptp(preprocessing.scale) == 0
    ):
        return model, preprocessing
    scale = preprocessing.scale
    unit = 2.0 ** (math.frexp(float(scale.max()))[1] - 1)
    return InUnits(model, scale / unit), replace(preprocessing, scale=np.full(len(scale), unit), variance_error=None)


@dataclass(frozen=True, eq=False)
class InUnits(MomentModel):
    """``inner``, of rows divided by ``scale`` (d,), as if they had not been."""

    inner: MomentModel
    scale: Matrix

    def __post_init__(self) -> None:
        equal = self.inner.traits.equal_eigenvalues
        traits = Traits(scale_free=False, isotropic_noise=False, identity_b=True, equal_eigenvalues=equal)
        object.__setattr__(self, "traits", traits)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.inner.n_features

    @property
    def view_sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.inner.view_sizes

    @property
    def max_components(self) -> int:
        return self.inner.max_components

    @property
    def max_components_reason(self) -> str:
        return self.inner.max_components_reason

    def layout(self, facts: PublicFacts) -> MomentLayout:
        return self.inner.layout(facts)

    def pencil(self, released: ReleasedGroups) -> Pencil:
        """A' and B: those of the divided rows."""
        return self.inner.pencil(released)

    def duals(self, pencil: Pencil, second: Matrix, vectors: Matrix) -> Matrix:
        return np.asarray(vectors / self.scale[:, None])

    def plausible_population(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        """What is A' without noise, which is isotropic there; nothing is thinned out."""
        mean, deviation = mean_factor(released), released.noise.second
        covariance = released.second - mean.T @ mean
        if self.view_sizes:
            x, y = self.views
            signal = low_rank_before_noise(covariance[x, y], deviation / math.sqrt(2))
            covariance[x, y] = (signal.left * signal.sizes) @ signal.right
            covariance[y, x] = covariance[x, y].T
        values, vectors = np.linalg.eigh(covariance)
        several = bool(self.view_sizes)
        values = np.maximum(values, 0.0) if several else spectrum_before_noise(values[::-1], deviation)[::-1]
        second = (vectors * values) @ vectors.T + mean.T @ mean
        moments = replace(released, second=second, noise=NO_NOISE)
        basis = None if self.view_sizes else np.eye(len(values))
        return PlausibleMoments(self, moments, released.noise, np.ones(len(values)), basis)

    def pair(self, released: ReleasedMoments) -> MatrixPencil:
        inner, largest = self.inner.pair(released), float(self.scale.max()) ** 2
        # the edge of noise with entries of variance (s D_a D_b)^2 / 2
        spread = largest * math.sqrt(float(np.mean(self.scale**2 / largest)))
        return MatrixPencil(self._scaled(inner.a), None, inner.noise_level * spread, inner.rounding * largest)

    def error_variances(self, released: Any, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        scaled = scipy.sparse.diags_array(self.scale)
        return self.inner.error_variances(released, scaled @ left, np.asarray(scaled @ right), eigenvalues)

    def noise_alone(
        self, released: Any, values: Matrix, generator: np.random.Generator, n_draws: int
    ) -> Iterator[Matrix]:
        return map(self._scaled, self.inner.noise_alone(released, values, generator, n_draws))

    def noise_of_b(self, released: Any) -> None:
        return None

    def restricted(self, features: NDArray[np.intp]) -> InUnits:
        return InUnits(self.inner.restricted(features), self.scale[features])

    def mean(self, released: Any) -> Matrix | None:
        mean = self.inner.mean(released)
        return None if mean is None else mean * self.scale

    def _scaled(self, matrix: Matrix) -> Matrix:
        matrix *= self.scale[:, None]
        matrix *= self.scale
        return matrix
