"""Any generalized eigenvalue problem in matrix form, with sensitivities that the caller vouches for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep._checks import require_people
from dpgep.models.denoise import mixed_directions, signal_of, spectrum_before_noise
from dpgep.models.model import Adjacency, Matrix, MatrixPencil, Model, PublicFacts
from dpgep.models.moments import goe, goe_of, normals, symmetric_form_variance
from dpgep.models.tridiagonal_noise import leading_of_noise
from dpgep.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class ReleasedMatrices:
    """Released A and B (None: the identity) and the deviations of their noise (GOE, of the diagonal)."""

    a: Matrix
    b: Matrix | None
    noise_a: float
    noise_b: float

    clipped = 0.0  # there are no rows

    @property
    def noiseless(self) -> bool:
        """Whether epsilon was infinite, or both matrices public."""
        return self.noise_a == 0 and self.noise_b == 0


@dataclass(frozen=True, eq=False)
class PlausibleMatrices:
    """Plausible A and B before the noise of a release, and that noise."""

    a: Matrix
    b: Matrix | None
    noise_a: float
    noise_b: float

    def pair(self) -> MatrixPencil:
        b = None if self.b is None else self.b.copy()
        return GepModel(len(self.a)).pair(ReleasedMatrices(self.a.copy(), b, 0.0, 0.0))

    def noisy_pair(self, generator: np.random.Generator, n_draws: int | None = None) -> MatrixPencil:
        d = len(self.a)
        of_a, *of_b = normals(generator, n_draws, *[(d, d)] * (1 if self.b is None else 2))
        a = self.a + goe_of(of_a, self.noise_a)
        b = None if self.b is None else self.b + goe_of(of_b[0], self.noise_b)
        return GepModel(d).pair(ReleasedMatrices(a, b, self.noise_a, self.noise_b))


@dataclass(frozen=True)
class GepModel(Model):
    """max v^T A v / v^T B v for given symmetric A and B."""

    n_features: int
    name = "gep"

    @property
    def max_components(self) -> int:
        return self.n_features

    @property
    def max_components_reason(self) -> str:
        return f"a {self.n_features} x {self.n_features} problem has {self.n_features} components"

    def pair(self, released: ReleasedMatrices) -> MatrixPencil:
        b = released.b
        noise = released.noise_a if b is None else released.noise_b
        scale = 0.0 if b is None else float(np.abs(np.diagonal(b, axis1=-2, axis2=-1)).max())
        rounding = self.n_features * float(np.finfo(float).eps) * scale
        return MatrixPencil(released.a, b, noise * float(np.sqrt(2 * self.n_features)), rounding)

    def error_variances(self, released: ReleasedMatrices, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        variance = released.noise_a**2 + (eigenvalues * released.noise_b) ** 2
        return variance[:, None] * symmetric_form_variance(left, right)

    def noise_alone(
        self, released: ReleasedMatrices, values: Matrix, generator: np.random.Generator, n_draws: int
    ) -> Iterator[Matrix]:
        # A - c B is noise alone where A = c B
        deviation = math.hypot(released.noise_a, self.centre(values) * released.noise_b)
        for _ in range(n_draws):
            yield goe(self.n_features, deviation, generator)

    def leading_noise(
        self, released: ReleasedMatrices, values: Matrix, basis: Matrix | None, seed: int, n_draws: int
    ) -> Matrix | None:
        return None if released.b is not None else leading_of_noise(len(values), released.noise_a, 0.0, seed, n_draws)

    def centre(self, values: Matrix) -> float:
        return float(values.mean())

    def noise_of_b(self, released: ReleasedMatrices) -> float | None:
        return None if released.b is None else released.noise_b * float(np.sqrt(2 * self.n_features))

    def plausible_truth(self, released: ReleasedMatrices, most_features: int) -> PlausibleMatrices:
        a = signal_of(released.a, released.noise_a)
        # the basis in which a large problem is thinned out: that of B, or of A where B is the identity
        values, vectors = scipy.linalg.eigh(a if released.b is None else released.b, check_finite=False)
        values = values if released.b is None else spectrum_before_noise(values, released.noise_b)
        thinning = max(self.n_features / most_features, 1.0)
        directions, root = vectors, math.sqrt(thinning)
        if thinning > 1:
            directions = mixed_directions(vectors, most_features, np.random.default_rng(0))
        in_basis = directions.T @ vectors
        a = thinning * (directions.T @ a @ directions)
        b = None if released.b is None else (in_basis * values) @ in_basis.T
        return PlausibleMatrices(a, b, root * released.noise_a, root * released.noise_b)

    def restricted(self, features: NDArray[np.intp]) -> GepModel:
        return GepModel(len(features))


@dataclass(frozen=True, eq=False)
class MatrixProblem(Problem):
    """A and B with Frobenius sensitivities sensitivity_a/n and sensitivity_b/n. Built by `gep`."""

    model: GepModel
    facts: PublicFacts
    a: Matrix
    b: Matrix | None
    sensitivity_a: float
    sensitivity_b: float

    @property
    def n(self) -> int:
        assert self.facts.n is not None  # `gep` demands it
        return self.facts.n

    @property
    def largest_b(self) -> float | None:
        """The largest eigenvalue of B where B is public; None where it is not."""
        if self.b is None:
            return 1.0
        return float(np.linalg.norm(self.b, 2)) if self.sensitivity_b == 0 else None

    def restricted(self, features: NDArray[np.intp], bound: float) -> MatrixProblem:
        """The same problem restricted to some features; the caller's sensitivities apply, no bound does."""
        corner = np.ix_(features, features)
        b = None if self.b is None else self.b[corner]
        return replace(self, model=self.model.restricted(features), a=self.a[corner], b=b)

    def __repr__(self) -> str:
        return f"gep(n={self.n}, d={self.model.n_features}, {self.facts.adjacency})"


def gep(
    A: Any,
    B: Any = None,
    *,
    n: int,
    sensitivity_a: float,
    sensitivity_b: float | None = None,
    adjacency: Adjacency = "replace-one",
) -> MatrixProblem:
    """The generalized eigenvalue problem A v = lambda B v in matrix form, as in the papers.

    Parameters
    ----------
    A, B : array_like of shape (d, d)
        Symmetric matrices computed from the data of n people; B positive semidefinite, None for the identity.
        Copied, never modified.
    n : int
        Public number of people.
    sensitivity_a, sensitivity_b : float
        Constants C such that one person changes the matrix by at most C/n in Frobenius norm. **Not checked**: the
        guarantee is as good as these numbers. docs/mathematics.md lists some; the row models (`pca`, `cca`, ...)
        enforce theirs and spend less: prefer them where they apply. Required for B if B is given; 0 declares a
        matrix public. They must hold for the matrices as computed, rounding included.
    adjacency : {"replace-one", "add-remove"}
        The relation for which the constants hold.

    Returns
    -------
    MatrixProblem
        For `dpgep.solve`.

    Raises
    ------
    TypeError, ValueError
        If A or B is not a finite real symmetric matrix, shapes differ, or a parameter is out of range.
    """
    a = _symmetric(A, "A")
    b = None if B is None else _symmetric(B, "B")
    if b is not None and b.shape != a.shape:
        raise ValueError(f"A and B must have the same shape, got {a.shape} and {b.shape}")
    if b is None and sensitivity_b:
        raise ValueError("sensitivity_b needs a B: the identity does not depend on the data")
    if b is not None and sensitivity_b is None:
        raise ValueError("B needs sensitivity_b: how far one person can change it (0 declares B public)")
    sensitivity_b = sensitivity_b or 0.0
    n = require_people("n", n)
    if adjacency not in ("replace-one", "add-remove"):
        raise ValueError(f'adjacency must be "replace-one" or "add-remove", got {adjacency!r}')
    for name, value in (("sensitivity_a", sensitivity_a), ("sensitivity_b", sensitivity_b)):
        if not 0 <= value < np.inf:
            raise ValueError(f"{name} must be a non-negative finite number, got {value!r}")
    if not sensitivity_a and not sensitivity_b:
        raise ValueError("sensitivity_a and sensitivity_b are both 0: public matrices need no noise")
    facts = PublicFacts(adjacency, None, n)
    return MatrixProblem(GepModel(len(a)), facts, a, b, float(sensitivity_a), float(sensitivity_b))


def _symmetric(values: Any, name: str) -> Matrix:
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] < 1:
        raise ValueError(f"{name} must be a square matrix, got shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    matrix = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} contains NaN or infinite values")
    if np.abs(matrix - matrix.T).max() > 1e-8 * np.abs(matrix).max():
        raise ValueError(f"{name} must be symmetric; pass ({name} + {name}.T) / 2 if the difference is rounding")
    # a projection: unlike copying one triangle, it moves no two matrices further apart than they were
    return np.asarray(matrix / 2 + matrix.T / 2)
