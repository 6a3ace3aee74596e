"""What a problem asks, free of data: the model names A and B as functions of one release.

`Model` objects hold public facts only, so methods may see them; `Problem` objects hold the rows and stay with the
curator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float64]
Adjacency = Literal["replace-one", "add-remove"]


@dataclass(frozen=True, eq=False)
class MatrixPair:
    """A v = lambda B v, both symmetric, computed from released values only.

    Attributes
    ----------
    a, b : (d, d) arrays; ``b`` is None for the identity. The solver may overwrite both.
    noise_level : expected operator norm of the noise in B (in A where B is the identity): deviation x sqrt(2 d).
    rounding : size of the rounding errors in B, below which an eigenvalue of B means nothing.
    """

    a: Matrix
    b: Matrix | None
    noise_level: float
    rounding: float


class Model(ABC):
    """A generalized eigenvalue problem as a function of released values."""

    name: str
    n_features: int

    @property
    @abstractmethod
    def max_components(self) -> int:
        """How many directions carry information."""

    @property
    @abstractmethod
    def max_components_reason(self) -> str:
        """Why there are no more, for the error message."""

    @abstractmethod
    def pair(self, released: Any) -> MatrixPair:
        """A and B from the released values. May overwrite the second moment of ``released``."""

    @abstractmethod
    def error_variances(self, released: Any, vectors: Matrix, eigenvalues: Matrix) -> Matrix:
        """Var of v_j^T (dA - lambda_i dB) v_i, shape (K, r), to first order in the noise.

        j runs over all columns of ``vectors`` (d, r), i over the K leading ones, whose ``eigenvalues`` are given.
        """

    def mean(self, released: Any) -> Matrix | None:
        """The released mean of the rows, where the model has one."""
        return None

    def split(self, components: Matrix) -> tuple[Matrix, ...]:
        """The parts of the components that belong to each view."""
        return (components,)


@dataclass(frozen=True)
class PublicFacts:
    """What everybody may know about a problem besides its model.

    Attributes
    ----------
    adjacency : which data sets are neighbours.
    bound : enforced bound on the row norm; None where the caller vouches for sensitivities instead.
    n : number of people where it is public (replace-one, or the public_n given for add-remove), else None.
    """

    adjacency: Adjacency
    bound: float | None
    n: int | None


def check_adjacency(adjacency: Any, n: int, public_n: Any) -> int | None:
    """The public number of people: n itself under replace-one, ``public_n`` (may be None) under add-remove."""
    if adjacency == "replace-one":
        if public_n is not None:
            raise ValueError('public_n belongs to adjacency="add-remove": under "replace-one" n itself is public')
        return n
    if adjacency != "add-remove":
        raise ValueError(f'adjacency must be "replace-one" or "add-remove", got {adjacency!r}')
    if public_n is None:
        return None
    if isinstance(public_n, bool) or int(public_n) != public_n or public_n < 1:
        raise ValueError(f"public_n must be a positive whole number, got {public_n!r}")
    return int(public_n)
