"""Any generalized eigenvalue problem in matrix form, with sensitivities that the caller vouches for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_people
from dpgep.models.gep import GepModel
from dpgep.models.model import Adjacency, Matrix, PublicFacts, PublicSide
from dpgep.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class MatrixProblem(Problem):
    """A and B with Frobenius sensitivities sensitivity_a/n and sensitivity_b/n. Built by `gep`."""

    model: GepModel
    facts: PublicFacts
    a: Matrix
    b: Matrix | None
    sensitivity_a: float
    sensitivity_b: float
    kind = "matrices"

    @property
    def n(self) -> int:
        assert self.facts.n is not None  # `gep` demands it
        return self.facts.n

    @cached_property
    def public(self) -> PublicSide:
        """What a method may see, with the largest eigenvalue of B where B is public."""
        if self.b is None:
            return PublicSide(self.model, self.facts, 1.0)
        return PublicSide(self.model, self.facts, None if self.sensitivity_b else float(np.linalg.norm(self.b, 2)))

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
