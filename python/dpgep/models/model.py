"""What a problem asks, free of data: the model names A and B as functions of one release.

`Model` objects hold public facts only, so methods may see them; `Problem` objects hold the rows and stay with the
curator.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_people

Matrix: TypeAlias = NDArray[np.float64]
Adjacency = Literal["replace-one", "add-remove"]


@dataclass(frozen=True, eq=False)
class MatrixPencil:
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


class PlausibleTruth(Protocol):
    """What a release may have been before the noise, to repeat the release in a simulation. Made of released values."""

    def pair(self) -> MatrixPencil:
        """A and B before the noise; B is positive definite."""

    def noisy_pair(self, generator: np.random.Generator, n_draws: int | None = None) -> MatrixPencil:
        """A and B with new noise of the release's law; with ``n_draws``, the results of that many calls, stacked."""


class Released(Protocol):
    """What a curator released for a model: moments of rows, or the two matrices themselves. All public."""

    @property
    def noiseless(self) -> bool:
        """Whether nothing in it carries noise."""

    @property
    def clipped(self) -> float:
        """Share of the people whose rows were beyond the bound; known only where there is no noise."""


@dataclass(frozen=True)
class Traits:
    """What holds of a model's answer, whatever the data are.

    Attributes
    ----------
    scale_free : whether it stays the same if the columns of the rows are multiplied by factors.
    shift_free : whether it does if all rows are shifted.
    linear_free : whether it does if the rows of each view are multiplied by any invertible matrix.
    identity_b : whether B is the identity.
    standardized : whether columns are divided by deviations, which only a released matrix shows.
    is_second_moment : whether A is the second moment of the rows and B the identity: a sum over people, and no more.
    is_covariance : whether A is their second moment or covariance, and B the identity.
    has_clipped_products : whether sums of clipped products are known to serve it.
    asks_sizes : whether it is about sizes, variances and coefficients, as much as about directions.
    isotropic_noise : whether the noise is the same in all directions.
    noise_order : the power of the noise in which the eigenvalues of a pair without signal grow.
    equal_eigenvalues : whether these are all equal, as where A is a moment itself; if not, they are zero.
    largest_eigenvalue : what no eigenvalue exceeds without noise.
    shift : a flow ascends the quotient of (A + shift B, B), whose solutions are those of (A, B): with eigenvalues of at
        least -shift, no step divides by a quotient near zero, and none follows the negative ones; None: they are those
        of -A, in the units of the data.
    """

    scale_free: bool = True
    shift_free: bool = True
    linear_free: bool = True
    identity_b: bool = False
    standardized: bool = False
    is_second_moment: bool = False
    is_covariance: bool = False
    has_clipped_products: bool = False
    asks_sizes: bool = False
    isotropic_noise: bool = True
    noise_order: int = 1
    equal_eigenvalues: bool = False
    largest_eigenvalue: float = math.inf
    shift: float | None = 0.0


class Model(ABC):
    """A generalized eigenvalue problem as a function of released values."""

    name: str
    n_features: int
    # names of the features, where the columns of the data have any
    feature_names: tuple[str, ...] | None = None
    # the number of features of each view, in their order; empty where there is one view
    view_sizes: tuple[int, ...] = ()
    traits: Traits = Traits()

    @property
    @abstractmethod
    def max_components(self) -> int:
        """How many directions carry information."""

    @property
    @abstractmethod
    def max_components_reason(self) -> str:
        """Why there are no more, for the error message."""

    @abstractmethod
    def pair(self, released: Any) -> MatrixPencil:
        """A and B from the released values. May overwrite the second moment of ``released``."""

    @abstractmethod
    def error_variances(self, released: Any, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        """Var of u_j^T (dA - lambda_i dB) v_i, shape (K, r), to first order in the noise.

        u_j are the columns of ``left`` (d, r), an array or a SciPy sparse matrix; v_i those of ``right`` (d, K), with
        their ``eigenvalues`` (K,).
        """

    @abstractmethod
    def noise_alone(
        self, released: Any, values: Matrix, generator: np.random.Generator, n_draws: int
    ) -> Iterator[Matrix]:
        """A (d, d) of each of ``n_draws`` more releases of data without signal, noise drawn from its known law.

        Without signal means: no covariance between views, no differences between groups, or, where A is a moment
        itself, A = c B, with c the mean of ``values``, the eigenvalues released.
        """

    def leading_noise(
        self, released: Any, values: Matrix, basis: Matrix | None, seed: int, n_draws: int
    ) -> Matrix | None:
        """(n_draws,), the largest eigenvalue of each V^T N V, where that needs no d x d matrices N = `noise_alone`.

        Where all are equal without signal, less their mean. The columns of V are ``basis``, as many as ``values``;
        None: all of an orthonormal basis. Where it does need them, None.
        """
        return None

    @abstractmethod
    def noise_of_b(self, released: Any) -> float | None:
        """Expected operator norm of the noise in B, the noise level of its pair; None where B is the identity."""

    def plausible_truth(self, released: Any, most_features: int) -> PlausibleTruth:
        """A pair that may have been before the noise, and its noise; asked only where B carries noise.

        A problem of many features is thinned out to about ``most_features`` of a kind: of neighbouring directions in
        the spectrum of B a few are kept, with as much more noise and signal in each. Leaves ``released`` as it is.
        """
        raise TypeError(f"the model of {self.name} does not say what may have been before the noise (plausible_truth)")

    @abstractmethod
    def restricted(self, features: NDArray[np.intp]) -> Any:
        """The same model of some of the features (ascending indices)."""

    def mean(self, released: Any) -> Matrix | None:
        """The released mean of the rows, where the model has one."""
        return None

    def standardization(self, released: Any) -> Standardization | None:
        """For a model of standardized columns: `pair` and all that follows are in coordinates v * scale."""
        return None

    def views_of(self, components: Matrix) -> tuple[Matrix, ...]:
        """The parts of the components that belong to each view."""
        return tuple(components[:, view] for view in self.views)

    @property
    def views(self) -> list[slice]:
        """The features of each view."""
        return slices_of(self.view_sizes or (self.n_features,))


@cache
def traits_of(kind: type[Model], **known: bool) -> Traits:
    """The traits of a class of models, with those that depend on the model: one record for all that are alike."""
    return replace(kind.traits, **known)


def view_labels(n_views: int) -> tuple[str, ...]:
    """What views are called: X, X and Y, or X1, X2 and so on."""
    return ("X", "Y")[:n_views] if n_views <= 2 else tuple(f"X{i}" for i in range(1, n_views + 1))


def slices_of(sizes: Sequence[int]) -> list[slice]:
    """Neighbouring slices of these sizes."""
    return [slice(first, end) for first, end in pairwise(accumulate(sizes, initial=0))]


@dataclass(frozen=True, eq=False)
class Standardization:
    """By what the columns of a standardized model are divided: all of it follows from released values.

    Attributes
    ----------
    variances : (d,), released variances of the columns (mean squares, if not centred); noise may make one negative.
    scale : (d,), their roots, but for a floor by the noise; 0 for a column that is constant up to rounding.
    drowned : (d,), whether the variance is below the floor, which stands for it.
    """

    variances: Matrix
    scale: Matrix
    drowned: NDArray[np.bool_]


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


@dataclass(frozen=True, eq=False)
class PublicSide:
    """What is public about a problem.

    Attributes
    ----------
    model, facts : what is to be computed, from how many people and within which bound.
    largest_b : an upper bound on the largest eigenvalue of B; None where no public one exists.
    at_hand : whether there are rows in memory, so that many passes over them cost little.
    mapped : whether each pass maps them first.
    read_once : whether there can be only one pass over the data.
    mixes_columns : whether rows are multiplied by a matrix, so that features are no columns of the table.
    preprocessing : the public map of the rows; None where there is none, or none yet.
    """

    model: Model
    facts: PublicFacts
    largest_b: float | None = None
    at_hand: bool = False
    mapped: bool = False
    read_once: bool = False
    mixes_columns: bool = False
    preprocessing: Any = None  # a Preprocessing, which models do not know


def check_adjacency(adjacency: Any, n: int | None, public_n: Any) -> int | None:
    """The public number of people: under replace-one n (None: not counted yet), under add-remove ``public_n``."""
    if adjacency == "replace-one":
        if public_n is not None:
            raise ValueError('public_n requires adjacency="add-remove": under "replace-one" n itself is public')
        return n
    if adjacency != "add-remove":
        raise ValueError(f'adjacency must be "replace-one" or "add-remove", got {adjacency!r}')
    return None if public_n is None else require_people("public_n", public_n)
