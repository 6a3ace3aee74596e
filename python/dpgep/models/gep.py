"""A v = lambda B v for given symmetric A and B."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep.models.model import Matrix, MatrixPencil, Model, NoisyPencil
from dpgep.models.moments import goe, goe_of, normals, symmetric_form_variance
from dpgep.models.null import leading_of_noise, mixed_directions, signal_of, spectrum_before_noise, upright
from dpgep.serialization import stored_as


@dataclass(frozen=True, eq=False)
class ReleasedMatrices:
    """Released A and B (None: the identity) and the deviations of their noise (GOE, of the diagonal)."""

    a: Matrix
    b: Matrix | None
    noise_a: float
    noise_b: float

    mean, clipped = None, 0.0  # there are no rows

    @property
    def noiseless(self) -> bool:
        """Whether epsilon was infinite, or both matrices public."""
        return self.noise_a == 0 and self.noise_b == 0


@dataclass(frozen=True, eq=False)
class MatricesPencil(NoisyPencil):
    """Released A and B, and the law of their noise."""

    model: GepModel
    released: ReleasedMatrices

    @property
    def noise_of_b(self) -> float | None:
        return None if self.released.b is None else self.released.noise_b * float(np.sqrt(2 * self.model.n_features))

    def pair(self) -> MatrixPencil:
        released, d = self.released, self.model.n_features
        b = released.b
        noise = released.noise_a if b is None else released.noise_b
        scale = 0.0 if b is None else float(np.abs(np.diagonal(b, axis1=-2, axis2=-1)).max())
        return MatrixPencil(released.a, b, noise * float(np.sqrt(2 * d)), d * float(np.finfo(float).eps) * scale)

    def error_variances(self, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        variance = self.released.noise_a**2 + (eigenvalues * self.released.noise_b) ** 2
        return variance[:, None] * symmetric_form_variance(left, right)

    def noise_alone(
        self, values: Matrix, generator: np.random.Generator, n_draws: int, *, people: bool = False
    ) -> Iterator[Matrix]:
        # A - c B is noise alone where A = c B
        deviation = math.hypot(self.released.noise_a, float(values.mean()) * self.released.noise_b)
        for _ in range(n_draws):
            yield goe(self.model.n_features, deviation, generator)

    def leading_noise(self, values: Matrix, basis: Matrix | None, seed: int, n_draws: int) -> Matrix | None:
        released = self.released
        return None if released.b is not None else released.noise_a * leading_of_noise(len(values), 0, seed, n_draws)

    def plausible_truth(self, most_features: int) -> PlausibleMatrices:
        released, d = self.released, self.model.n_features
        a = signal_of(released.a, released.noise_a)
        # the basis in which a large problem is thinned out: that of B, or of A where B is the identity
        values, vectors = scipy.linalg.eigh(a if released.b is None else released.b, check_finite=False)
        vectors = upright(vectors)
        values = values if released.b is None else spectrum_before_noise(values, released.noise_b)
        thinning = max(d / most_features, 1.0)
        directions, root = vectors, math.sqrt(thinning)
        if thinning > 1:
            directions = mixed_directions(vectors, most_features, np.random.default_rng(0))
        in_basis = directions.T @ vectors
        a = thinning * (directions.T @ a @ directions)
        b = None if released.b is None else (in_basis * values) @ in_basis.T
        return PlausibleMatrices(a, b, root * released.noise_a, root * released.noise_b)


@dataclass(frozen=True, eq=False)
class PlausibleMatrices(ReleasedMatrices):
    """Plausible A and B before the noise of a release, and that noise."""

    def pair(self) -> MatrixPencil:
        b = None if self.b is None else self.b.copy()
        return GepModel(len(self.a)).noisy(ReleasedMatrices(self.a.copy(), b, 0.0, 0.0)).pair()

    def noisy_pair(self, generator: np.random.Generator, n_draws: int | None = None) -> MatrixPencil:
        d = len(self.a)
        of_a, *of_b = normals(generator, n_draws, *[(d, d)] * (1 if self.b is None else 2))
        a = self.a + goe_of(of_a, self.noise_a)
        b = None if self.b is None else self.b + goe_of(of_b[0], self.noise_b)
        return GepModel(d).noisy(ReleasedMatrices(a, b, self.noise_a, self.noise_b)).pair()


@stored_as("gep")
@dataclass(frozen=True)
class GepModel(Model):
    """max v^T A v / v^T B v for given symmetric A and B."""

    n_features: int
    name = "gep"

    def noisy(self, released: ReleasedMatrices) -> MatricesPencil:
        return MatricesPencil(self, released)

    def restricted(self, features: NDArray[np.intp]) -> GepModel:
        return GepModel(len(features))
