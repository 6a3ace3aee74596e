"""Exchange the coordinates of a support until no exchange helps: how every search for sparse components ends.

A truncated flow rests where a step brings no coordinate in. Exact solutions on the support and on the most promising
coordinates off it, truncated again, leave such places (subspace pursuit: Dai and Milenkovic 2009). An oracle solves the
pair on few coordinates: of a matrix in memory (`methods.sparse`), or by products, which are asked for once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgep.methods.eigen import embedded, solve_pair
from dpgep.models.model import Matrix
from dpgep.privacy.products import NoisyProducts

Support: TypeAlias = NDArray[np.intp]

DROPPED = 3  # a coordinate that joins alone takes the place of each of this many smallest ones in turn
# Largest support that is exchanged by products: each of its features is a product, and each exchange an eigenproblem of
# twice its size.
LARGEST_SUPPORT = 250
MOST_EXCHANGES = 50
# By products, an exchange helps where the objective gains this part of itself; less may be rounding.
_GAIN = 1e-9
# Directions of B on a support below this part of its trace are rounding: features that repeat each other.
_ROUNDING = 1e-10
_CHUNK = 16


@dataclass(frozen=True)
class Size:
    """How large a support is: k coordinates; with ``views``, this many of each."""

    k: int
    views: tuple[slice, ...] = ()
    counts: tuple[int, ...] = ()

    @classmethod
    def of(cls, sparsity: int | tuple[int, ...], views: Sequence[slice]) -> Size:
        return cls(sum(sparsity), tuple(views), sparsity) if isinstance(sparsity, tuple) else cls(int(sparsity))

    def largest(self, values: Matrix) -> Support:
        """The support of the largest values (d,)."""
        if not self.views:
            return largest_of(values, self.k)
        parts = zip(self.views, self.counts, strict=True)
        return np.concatenate([view.start + largest_of(values[view], count) for view, count in parts])

    def largest_with(self, values: Matrix, j: np.intp) -> Support:
        """The support of the largest values and a coordinate j, whose own value is 0."""
        if not self.views:
            return np.append(largest_of(values, self.k - 1), j)
        first = values.copy()
        first[j] = np.inf
        return self.largest(first)

    def largest_among(self, coordinates: Support, values: Matrix) -> Support:
        """The support of the largest values of some coordinates."""
        if not self.views:
            return coordinates[largest_of(values, self.k)]
        spread = np.full(self.views[-1].stop, -np.inf)
        spread[coordinates] = values
        return self.largest(spread)

    def exchangeable(self, support: Support, j: np.intp) -> NDArray[np.bool_]:
        """Which coordinates of a support j may take the place of."""
        starts = [view.start for view in self.views[1:]]
        return np.asarray(np.searchsorted(starts, support, "right") == np.searchsorted(starts, j, "right"))


@dataclass(frozen=True, eq=False)
class Candidate:
    """The K leading eigenpairs on one support: values (K,) descending, vectors (k, K) with V^T B_SS V = I."""

    support: Support
    values: Matrix
    vectors: Matrix

    @property
    def objective(self) -> float:
        return float(self.values.sum())

    def full_rows(self, d: int) -> Matrix:
        """The vectors as rows (K, d)."""
        return embedded(self.vectors.T, self.support, d)


class Oracle(Protocol):
    """Solves the pair on few coordinates."""

    def eigenpairs(self, support: Support, n_components: int) -> Candidate | None:
        """The K leading ones on a support; None where B has fewer directions there."""

    def scales(self, support: Support) -> Matrix:
        """Roots of the diagonal of B + ridge I: they make coordinates of different units comparable."""

    def promising(self, found: Candidate) -> Support | None:
        """Coordinates off the support, the most promising first; None where there is no room to try any."""

    def n_singles(self, k: int) -> int:
        """How many coordinates to try one at a time, where many at once do not help."""


def exchanged(
    oracle: Oracle, found: Candidate, size: Size, *, gain: float, most: float = math.inf
) -> tuple[Candidate, int, bool]:
    """Raise the objective by exchanges, of many coordinates first; their number, and whether none is left to help."""
    n_exchanges = 0
    while n_exchanges < most and (ranking := oracle.promising(found)) is not None:
        needed = found.objective + gain * abs(found.objective)
        neighbours = itertools.chain(_batches(oracle, found, ranking, size), _singles(oracle, found, ranking, size))
        better = next((other for other in neighbours if other is not None and other.objective > needed), None)
        if better is None:
            return found, n_exchanges, True
        found, n_exchanges = better, n_exchanges + 1
    return found, n_exchanges, False


def _batches(oracle: Oracle, found: Candidate, ranking: Support, size: Size) -> Iterator[Candidate | None]:
    """The most promising coordinates, half as many each time: added, solved with, and the largest rows kept."""
    n_components, many = found.vectors.shape[1], min(len(found.support), len(ranking))
    while many >= 1:
        union = oracle.eigenpairs(np.concatenate([found.support, ranking[:many]]), n_components)
        if union is not None:
            weights = row_norms(union.vectors * oracle.scales(union.support)[:, None])
            yield oracle.eigenpairs(np.sort(size.largest_among(union.support, weights)), n_components)
        many //= 2


def _singles(oracle: Oracle, found: Candidate, ranking: Support, size: Size) -> Iterator[Candidate | None]:
    """Each coordinate for each of those with the smallest rows in turn."""
    weights = row_norms(found.vectors * oracle.scales(found.support)[:, None])
    order = np.argsort(weights, kind="stable")
    for added in ranking[: oracle.n_singles(len(found.support))]:
        for dropped in order[size.exchangeable(found.support, added)[order]][:DROPPED]:
            support = found.support.copy()
            support[dropped] = added
            support.sort()
            yield oracle.eigenpairs(support, found.vectors.shape[1])


def largest_of(values: Matrix, k: int) -> Support:
    """Indices of the k largest values."""
    if k >= len(values):
        return np.arange(len(values))
    return np.argpartition(values, len(values) - k)[len(values) - k :] if k > 0 else np.empty(0, np.intp)


def row_norms(columns: Matrix) -> Matrix:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", columns, columns)))


class _ByProducts:
    """Principal submatrices of A and B + ridge I from products with features, each asked for once."""

    def __init__(self, products: NoisyProducts, ridge: float, reserve: int) -> None:
        self._products, self._ridge, self._reserve = products, ridge, reserve
        self._d = products.oracle.n_features
        self._features = np.empty(0, np.intp)
        self._a, self._b = np.empty((0, 0)), np.empty((0, 0))

    def expand(self, features: Support) -> bool:
        """Ask for the features that are new; False, and none asked, where they have no room."""
        new = np.setdiff1d(features, self._features)
        if len(new) + self._reserve > self._products.capacity:
            return False
        for some in np.split(new, range(_CHUNK, len(new), _CHUNK)) if len(new) else ():
            self._features = np.append(self._features, some)
            units = embedded(np.eye(len(some)), some, self._d)
            of_a, of_b = (answer[:, self._features] for answer in self._products.times(units))
            self._a, self._b = bordered(self._a, of_a), bordered(self._b, of_b)
        return True

    def promising(self, found: Candidate) -> Support | None:
        """Features of largest residual (A - rho B) v, as many as the support has."""
        vectors, d = found.full_rows(self._d), self._d
        of_a, of_b = self._products.times(vectors)
        sizes = np.linalg.norm(of_a - found.values[:, None] * (of_b + self._ridge * vectors), axis=0)
        sizes[found.support] = -np.inf
        ranking = np.argsort(-sizes, kind="stable")[: min(len(found.support), d - len(found.support))]
        return ranking if self.expand(ranking) else None

    def n_singles(self, k: int) -> int:
        return 0

    def eigenpairs(self, support: Support, n_components: int) -> Candidate | None:
        support = np.sort(support)
        places = self._places(support)
        a, b = (matrix[np.ix_(places, places)] for matrix in (self._a, self._b))
        b.flat[:: len(support) + 1] += self._ridge
        system = solve_pair(a, b, regularization=0.0, rounding=_ROUNDING * abs(float(np.trace(b))))
        if len(system.values) < n_components:
            return None
        return Candidate(support, system.values[:n_components], system.vectors[:, :n_components])

    def scales(self, support: Support) -> Matrix:
        return np.sqrt(np.maximum(np.diagonal(self._b)[self._places(support)] + self._ridge, 0.0))

    def _places(self, support: Support) -> Support:
        order = np.argsort(self._features)
        return np.asarray(order[np.searchsorted(self._features, support, sorter=order)])


def exchange_features(products: NoisyProducts, vectors: Matrix, ridge: float) -> tuple[Matrix, int, bool] | None:
    """Raise the sum of the K leading quotients by exchanging features of the rows' common support; its size k stays.

    Returns unit rows (K, d) on one support, the number of exchanges, and whether none is left that helps; None where
    the support is larger than LARGEST_SUPPORT, or there is no room to ask for it.
    """
    d, n_components = vectors.shape[1], len(vectors)
    support = np.flatnonzero(vectors.any(axis=0))
    if len(support) > LARGEST_SUPPORT:
        return None
    # the solutions found are asked for once more
    oracle = _ByProducts(products, ridge, reserve=n_components * products.n_views)
    if not oracle.expand(support) or (start := oracle.eigenpairs(support, n_components)) is None:
        return None
    found, n_exchanges, at_rest = exchanged(oracle, start, Size(len(support)), gain=_GAIN, most=MOST_EXCHANGES)
    unit = found.full_rows(d)
    return unit / np.linalg.norm(unit, axis=1, keepdims=True), n_exchanges, at_rest


def bordered(matrix: Matrix, rows: Matrix) -> Matrix:
    """A symmetric matrix (j, j) with ``rows`` (m, j + m) added below, and on the right."""
    j, total = len(matrix), rows.shape[1]
    grown = np.empty((total, total))
    grown[:j, :j] = matrix
    grown[j:, :j] = rows[:, :j]
    grown[:j, j:] = rows[:, :j].T
    grown[j:, j:] = (rows[:, j:] + rows[:, j:].T) / 2
    return grown
