"""What a problem asks, free of data: the model names A and B as functions of one release.

`Model` objects hold public facts only, so methods may see them; `Problem` objects hold the rows and stay with the
curator.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

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
    low_rank : (F, w) with A = F^T diag(w) F, where A is known so; else None.
    """

    a: Matrix
    b: Matrix | None
    noise_level: float
    rounding: float
    low_rank: tuple[Matrix, Matrix] | None = None


@dataclass(frozen=True, eq=False)
class PairForm:
    """A and B of a model of rows, as functions of the second moment M of the rows and of released vectors F (r, d).

        A = second_a M + F^T diag(weights_a) F,    B = second_b M + F^T diag(weights_b) F, or the identity.

    For two views, ``split`` = d_x > 0: both are blocks of the covariance C = M + F^T diag(weights_a) F, namely A =
    [[0, C_xy], [C_yx, 0]] and B = blockdiag(C_xx, C_yy). That says all of A and B: ``second_a``, ``second_b`` and
    ``identity_b`` are refused beside it, as ``second_b`` is beside ``identity_b``.
    """

    factors: Matrix
    weights_a: Matrix
    weights_b: Matrix
    second_a: bool = False
    second_b: bool = False
    identity_b: bool = False
    split: int = 0

    def __post_init__(self) -> None:
        d = self.factors.shape[1]
        if not 0 <= self.split < d:
            raise ValueError(f"split must lie between 0 and d - 1 = {d - 1}, got {self.split}")
        if self.split:
            for flag in ("second_a", "second_b", "identity_b"):
                if getattr(self, flag):
                    raise ValueError(f"split makes A and B of the covariance's blocks: {flag} must be False beside it")
        if self.identity_b and self.second_b:
            raise ValueError("identity_b leaves nothing of M in B: second_b must be False beside it")

    def matrices(self, second: Matrix) -> tuple[Matrix, Matrix | None]:
        """A and B (None: the identity) for M = ``second``, which is overwritten."""
        low_a = self._low_rank(self.weights_a)
        if self.split:
            return self._blocks(_add(second, low_a))
        copied = second.copy() if self.second_a and self.second_b else second
        a = _add(copied, low_a) if self.second_a else _alone(low_a, second)
        if self.identity_b:
            return a, None
        low_b = self._low_rank(self.weights_b)
        return a, _add(second, low_b) if self.second_b else _alone(low_b, second)

    def diagonals(self, second: Matrix) -> tuple[Matrix, Matrix]:
        """Diagonals of A and B from that of M."""
        squared = self.factors**2
        a, b = self.weights_a @ squared, self.weights_b @ squared
        if self.split:
            return np.zeros_like(second), second + a
        return a + second * self.second_a, np.ones_like(second) if self.identity_b else b + second * self.second_b

    def _low_rank(self, weights: Matrix) -> Matrix | None:
        used = weights != 0
        factors = self.factors[used]
        return (factors.T * weights[used]) @ factors if len(factors) else None

    def _blocks(self, joint: Matrix) -> tuple[Matrix, Matrix]:
        x, y = slice(0, self.split), slice(self.split, None)
        a = np.zeros_like(joint)
        a[x, y], a[y, x] = joint[x, y], joint[y, x]
        joint[x, y] = 0.0
        joint[y, x] = 0.0
        return a, joint


def _add(second: Matrix, low_rank: Matrix | None) -> Matrix:
    if low_rank is not None:
        second += low_rank
    return second


def _alone(low_rank: Matrix | None, like: Matrix) -> Matrix:
    return np.zeros_like(like) if low_rank is None else low_rank


class PlausibleTruth(Protocol):
    """What a release may have been before the noise, to repeat the release in a simulation. Made of released values."""

    def pair(self) -> MatrixPair:
        """A and B before the noise; B is positive definite."""

    def noisy_pair(self, generator: np.random.Generator) -> MatrixPair:
        """A and B with new noise of the law that the release had."""


class Model(ABC):
    """A generalized eigenvalue problem as a function of released values."""

    name: str
    n_features: int
    # a flow ascends the quotient of (A + shift B, B), whose solutions are those of (A, B): with eigenvalues of at least
    # -shift, no step divides by a quotient near zero
    shift: float = 0.0
    # the power of the noise in which the eigenvalues of a pair without signal grow
    noise_order: int = 1
    # what no eigenvalue exceeds without noise
    largest_eigenvalue: float = math.inf

    @property
    def is_second_moment(self) -> bool:
        """Whether A is the second moment of the rows of people and B the identity: a sum over people, and no more."""
        return False

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
    def error_variances(self, released: Any, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        """Var of u_j^T (dA - lambda_i dB) v_i, shape (K, r), to first order in the noise.

        u_j are the columns of ``left`` (d, r), an array or a SciPy sparse matrix; v_i those of ``right`` (d, K), with
        their ``eigenvalues`` (K,).
        """

    @abstractmethod
    def noise_alone(self, released: Any, values: Matrix, generator: np.random.Generator) -> Matrix:
        """A of one more release of data without signal, noise drawn from its known law: (d, d).

        Without signal means: no covariance between views, no differences between groups, or, where A is a moment
        itself, A = `centre` (values) B; ``values`` are the eigenvalues released.
        """

    def centre(self, values: Matrix) -> float:
        """The eigenvalue that all directions would have without signal."""
        return 0.0

    @abstractmethod
    def noise_of_b(self, released: Any) -> float | None:
        """Expected operator norm of the noise in B, the noise level of its pair; None where B is the identity."""

    def plausible_truth(self, released: Any, most_features: int) -> PlausibleTruth:
        """A pair that may have been before the noise, and its noise; asked only where B carries noise.

        A problem of many features is thinned out to about ``most_features`` of a kind: of neighbouring directions in
        the spectrum of B a few are kept, with as much more noise and signal in each. Leaves ``released`` as it is.
        """
        raise NotImplementedError(f"B of {self.name} carries no noise")

    @abstractmethod
    def restricted(self, features: NDArray[np.intp]) -> Any:
        """The same model of some of the features (ascending indices)."""

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
    n : number of people where it is public (replace-one, or the public_n given for add-remove), else None; also None
        under replace-one while the rows of a source have not been counted.
    """

    adjacency: Adjacency
    bound: float | None
    n: int | None

    @property
    def n_is_public(self) -> bool:
        """Whether the number of people is public, counted or not."""
        return self.adjacency == "replace-one" or self.n is not None


def check_adjacency(adjacency: Any, n: int | None, public_n: Any) -> int | None:
    """The public number of people: under replace-one n (None: not counted yet), under add-remove ``public_n``."""
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
