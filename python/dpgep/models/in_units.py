"""A model with B = I of rows that were divided by public scales, in the units of the rows: A = S A' S.

Released is A' with noise that is isotropic in the coordinates of the divided rows. With u = S v, v^T dA v = u^T dA' u:
all that is known about the noise in A' holds for A, at vectors multiplied by S.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import diags_array

from dpgep.models.model import Matrix, MatrixPencil, Model
from dpgep.models.moments import MomentModel, ReleasedMoments


@dataclass(frozen=True, eq=False)
class InUnits(Model):
    """``inner``, of rows divided by ``scale`` (d,), as if they had not been."""

    inner: MomentModel
    scale: Matrix
    scale_free = False
    isotropic_noise = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.inner.n_features

    @property
    def max_components(self) -> int:
        return self.inner.max_components

    @property
    def max_components_reason(self) -> str:
        return self.inner.max_components_reason

    def pair(self, released: ReleasedMoments) -> MatrixPencil:
        inner, largest = self.inner.pair(released), float(self.scale.max()) ** 2
        # the edge of noise with entries of variance (s D_a D_b)^2 / 2
        spread = largest * math.sqrt(float(np.mean(self.scale**2 / largest)))
        return MatrixPencil(self._scaled(inner.a), None, inner.noise_level * spread, inner.rounding * largest)

    def error_variances(self, released: Any, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        scaled = diags_array(self.scale)
        return self.inner.error_variances(released, scaled @ left, np.asarray(scaled @ right), eigenvalues)

    def noise_alone(
        self, released: Any, values: Matrix, generator: np.random.Generator, n_draws: int
    ) -> Iterator[Matrix]:
        return map(self._scaled, self.inner.noise_alone(released, values, generator, n_draws))

    def centre(self, values: Matrix) -> float:
        return self.inner.centre(values)

    def noise_of_b(self, released: Any) -> None:
        return None

    def restricted(self, features: NDArray[np.intp]) -> InUnits:
        return InUnits(self.inner.restricted(features), self.scale[features])

    def mean(self, released: Any) -> Matrix | None:
        mean = self.inner.mean(released)
        return None if mean is None else mean * self.scale

    def views_of(self, components: Matrix) -> tuple[Matrix, ...]:
        return self.inner.views_of(components)

    def _scaled(self, matrix: Matrix) -> Matrix:
        matrix *= self.scale[:, None]
        matrix *= self.scale
        return matrix
