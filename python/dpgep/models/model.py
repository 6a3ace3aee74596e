"""What a problem asks, free of data: the model names A and B as functions of one release.

`Model` objects hold public facts only, so methods may see them; `Problem` objects hold the rows and stay with the
curator.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float64]
Adjacency = Literal["replace-one", "add-remove"]
Blocks = Literal["whole", "between", "within"]


@dataclass(frozen=True, eq=False)
class MatrixPencil:
    """A v = lambda B v, both symmetric, computed from released values only."""

    # a, b: (d, d) arrays; ``b`` is None for the identity. The solver may overwrite both.
    a: Matrix
    b: Matrix | None
    noise_level: float  # expected operator norm of the noise in B (in A where B is the identity): deviation x sqrt(2 d)
    rounding: float  # size of the rounding errors in B, below which an eigenvalue of B means nothing
    low_rank: tuple[Matrix, Matrix] | None = None  # (F, w) with A = F^T diag(w) F, where A is known so; else None


class PlausibleTruth(Protocol):
    """What a release may have been before the noise, to repeat the release in a simulation. Made of released values."""

    def pair(self) -> MatrixPencil:
        """A and B before the noise; B is positive definite."""

    def noisy_pair(self, generator: np.random.Generator, n_draws: int | None = None) -> MatrixPencil:
        """A and B with new noise of the release's law; with ``n_draws``, the results of that many calls, stacked."""


@dataclass(frozen=True)
class Scatter:
    """total T + within W, or some blocks of it: one of the two matrices of a model of rows.

    T is the scatter of rows around their mean (their second moment, where no mean is released), W the one around the
    means of their groups, both divided by n; T - W is the scatter of these means.

    Attributes
    ----------
    total, within : what T and W are multiplied by. Their sum, the part that the second moment has, is 1 or 0.
    blocks : all of it, or for several views the blocks "between" views or those "within" a view; the others are zero.
    """

    total: float = 0.0
    within: float = 0.0
    blocks: Blocks = "whole"

    def __post_init__(self) -> None:
        if self.total + self.within not in (0.0, 1.0):
            raise ValueError(f"total and within must add up to 1 or 0, got {self.total:g} and {self.within:g}")

    @cached_property
    def moment(self) -> bool:
        """Whether the second moment is a part of it."""
        return self.total + self.within != 0


TOTAL, WITHIN_GROUPS = Scatter(total=1.0), Scatter(within=1.0)
BETWEEN, WITHIN = Scatter(total=1.0, blocks="between"), Scatter(total=1.0, blocks="within")
MEANS = Scatter(total=1.0, within=-1.0)  # the scatter of the means of groups, at most of rank groups - 1


@dataclass(frozen=True)
class Traits:
    """A and B, and what holds of the answer whatever the data are.

    Attributes
    ----------
    a, b : the two matrices as combinations of scatters; ``b`` is None for the identity. Without ``a``: of no rows.
    shift_free : whether the answer stays the same if all rows are shifted: a mean is released and subtracted.
    standardized : whether columns are divided by deviations, which only a released matrix shows.
    has_clipped_products : whether sums of clipped products are known to serve it.
    by_group : whether each group has a second moment of its own.
    asks_sizes : whether it is about sizes, variances and coefficients, as much as about directions.
    largest_eigenvalue, least_eigenvalue : what no eigenvalue exceeds, and none is below, without noise.
    """

    a: Scatter | None = None
    b: Scatter | None = None
    shift_free: bool = True
    standardized: bool = False
    has_clipped_products: bool = False
    by_group: bool = False
    asks_sizes: bool = False
    largest_eigenvalue: float = math.inf
    least_eigenvalue: float = 0.0

    def __post_init__(self) -> None:
        a, b = self.a, self.b
        if a is None:
            return
        if b is None:
            known = a in ((TOTAL,) if self.standardized else (TOTAL, WITHIN_GROUPS, MEANS, BETWEEN))
        elif a == MEANS:
            known = b.moment and b.blocks == "whole"
        else:
            known = (a, b) == (BETWEEN, WITHIN)
        if not known:  # simulations of such a release would be wrong, and with them intervals and lost components
            raise ValueError(
                "a is T, W, T - W or T between views; b none (I), T or W under T - W, T within views under T between "
                "them. Where a holds b, take b from it: components stay, eigenvalues fall by 1"
            )

    @cached_property
    def identity_b(self) -> bool:
        """Whether B is the identity."""
        return self.a is not None and self.b is None

    @cached_property
    def scale_free(self) -> bool:
        """Whether the answer stays the same if the columns of the rows are multiplied by factors."""
        return self.standardized or not self.identity_b

    @cached_property
    def linear_free(self) -> bool:
        """Whether it does if the rows of each view are multiplied by any invertible matrix."""
        return self.b is not None

    @cached_property
    def is_covariance(self) -> bool:
        """Whether A is the covariance of the rows, or their second moment, and B the identity."""
        return self.a == Scatter(total=1.0) and self.b is None and not self.standardized

    @cached_property
    def is_second_moment(self) -> bool:
        """Whether A is the second moment of the rows and B the identity: a sum over people, and no more."""
        return self.is_covariance and not self.shift_free

    @cached_property
    def of_means(self) -> bool:
        """Whether A is the scatter of the means of groups: its noise is of second order."""
        return self.a is not None and not self.a.moment

    @cached_property
    def noise_order(self) -> int:
        """The power of the noise in which the eigenvalues of a pair without signal grow."""
        return 2 if self.of_means else 1

    @cached_property
    def equal_eigenvalues(self) -> bool:
        """Whether these are all equal, as where A is a moment itself; if not, they are zero."""
        return self.a is None or (self.b is None and self.a.moment and self.a.blocks == "whole")

    @cached_property
    def shift(self) -> float | None:
        """A flow ascends the quotient of (A + shift B, B), which has the solutions of (A, B).

        With eigenvalues of at least -shift, no step divides by a quotient near zero, and none follows the negative
        ones. Between views A + B is a covariance: no eigenvalue is below -1. None: without B they come in pairs,
        lambda and -lambda, in the units of the data.
        """
        if self.a is None or self.a.blocks != "between":
            return 0.0
        return None if self.b is None else 1.0


@dataclass(frozen=True, eq=False)
class NoisyPencil(ABC):
    """A and B of a model as they were released, and the law of their noise: public values alone."""

    model: Model
    released: Any  # moments of rows, or the two matrices themselves
    # expected operator norm of the noise in B, the noise level of its pair; None where B is the identity
    noise_of_b: float | None = field(init=False)
    isotropic: bool = field(init=False, default=True)  # whether the noise is the same in all directions
    # of a model of standardized columns: `pair` and all that follows are in coordinates v * scale
    standardization: Standardization | None = field(init=False, default=None)

    @property
    def mean(self) -> Matrix | None:
        """The released mean of the rows, where there is one."""
        mean: Matrix | None = self.released.mean
        return mean

    @abstractmethod
    def pair(self) -> MatrixPencil:
        """A and B. May overwrite the second moment of ``released``."""

    @abstractmethod
    def error_variances(self, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        """Var of u_j^T (dA - lambda_i dB) v_i, shape (K, r), to first order in the noise.

        u_j are the columns of ``left`` (d, r), an array or a SciPy sparse matrix; v_i those of ``right`` (d, K), with
        their ``eigenvalues`` (K,).
        """

    @abstractmethod
    def noise_alone(
        self, values: Matrix, generator: np.random.Generator, n_draws: int, *, people: bool = False
    ) -> Iterator[Matrix]:
        """A (d, d) of each of ``n_draws`` more releases of data without signal, noise drawn from its known law.

        Without signal means: no covariance between views, no differences between groups, or, where A is a moment
        itself, A = c B, with c the mean of ``values``, the eigenvalues released. With ``people``, that is so of a
        population, from which as many people are drawn, where rows are known.
        """

    @abstractmethod
    def leading_noise(self, values: Matrix, basis: Matrix | None, seed: int, n_draws: int) -> Matrix | None:
        """(n_draws,), the largest eigenvalue of each V^T N V, where that needs no d x d matrices N = `noise_alone`.

        Where all are equal without signal, less their mean. The columns of V are ``basis``, as many as ``values``;
        None: all of an orthonormal basis. Where it does need them, None.
        """

    def most_noise(self, r: int, seed: int, n_draws: int) -> float | None:
        """What the largest eigenvalue of no such draw exceeds, in r dimensions, without the draws: as if every column
        had as much noise as the noisiest. None where that is not known.
        """
        return None

    @abstractmethod
    def plausible_truth(self, most_features: int) -> PlausibleTruth:
        """A pair that may have been before the noise, and its noise.

        A problem of many features is thinned out to about ``most_features`` of a kind: of neighbouring directions in
        the spectrum of B a few are kept, with as much more noise and signal in each. Leaves ``released`` as it is.
        """


class Model(ABC):
    """A generalized eigenvalue problem as a function of released values."""

    name: str
    n_features: int
    # names of the features, where the columns of the data have any
    feature_names: tuple[str, ...] | None = None
    # the number of features of each view, in their order; empty where there is one view
    view_sizes: tuple[int, ...] = ()
    # the features that are the indicators of one categorical column, for each such column
    indicators: tuple[tuple[int, ...], ...] = ()
    # the features that are dates, in days since 1970: said by the data, of use to who prints
    _dates: tuple[int, ...] = ()
    traits: Traits = Traits()

    @property
    def max_components(self) -> int:
        """How many directions carry information."""
        return self.n_features

    @property
    def views(self) -> list[slice]:
        """The features of each view."""
        return slices_of(self.view_sizes or (self.n_features,))

    @abstractmethod
    def noisy(self, released: Any) -> NoisyPencil:
        """A and B from released values, and the law of their noise."""

    @abstractmethod
    def restricted(self, features: NDArray[np.intp]) -> Any:
        """The same model of some of the features (ascending indices)."""


def slices_of(sizes: Sequence[int]) -> list[slice]:
    """Neighbouring slices of these sizes."""
    return [slice(first, end) for first, end in pairwise(accumulate(sizes, initial=0))]


@dataclass(frozen=True, eq=False)
class Standardization:
    """By what the columns of a standardized model are divided: all of it follows from released values."""

    # (d,), released variances of the columns (mean squares, if not centred); noise may make one negative
    variances: Matrix
    scale: Matrix  # (d,), their roots, but for a floor by the noise; 0 for a column that is constant up to rounding
    drowned: NDArray[np.bool_]  # (d,), whether the variance is below the floor, which stands for it


@dataclass(frozen=True)
class PublicFacts:
    """What everybody may know about a problem besides its model."""

    adjacency: Adjacency  # which data sets are neighbours
    bound: float | None  # enforced bound on the row norm; None where the caller vouches for sensitivities instead
    # number of people where it is public (replace-one, or the public_n given for add-remove), else None; also
    # None under replace-one while the rows of a source have not been counted
    n: int | None
    # name of the ids that say whose each row is, where people may have several, all of which neighbours may
    # differ in; None where a person has one row
    person: str | None = None
    # rows, largest_weight: up to how many rows of a person count alike, and the largest weight; None where each
    # person counts once. Sums are divided by the total weight then, in people of the largest: it is not public.
    rows: int | None = None
    largest_weight: float | None = None

    @property
    def several_rows(self) -> bool:
        """Whether a person may have several rows."""
        return self.person is not None

    @property
    def weighted(self) -> bool:
        """Whether people may count less than once."""
        return self.rows is not None or self.largest_weight is not None

    @property
    def n_is_public(self) -> bool:
        """Whether sums are divided by a number of people that is public, counted or not."""
        return (self.adjacency == "replace-one" and not self.weighted) or self.n is not None


@dataclass(frozen=True, eq=False)
class PublicSide:
    """What is public about a problem."""

    # model, facts: what is to be computed, from how many people and within which bound
    model: Model
    facts: PublicFacts
    largest_b: float | None = None  # an upper bound on the largest eigenvalue of B; None where no public one exists
    at_hand: bool = False  # whether there are rows in memory, so that many passes over them cost little
    mapped: bool = False  # whether each pass maps them first
    read_once: bool = False  # whether there can be only one pass over the data
    mixes_columns: bool = False  # whether rows are multiplied by a matrix, so that features are no columns of the table
    # the public map of the rows; None where there is none, or none yet
    preprocessing: Any = None  # a Preprocessing, which models do not know
    # whether covariances are over the people who have both columns, which a released matrix alone shows
    pairwise: bool = False
