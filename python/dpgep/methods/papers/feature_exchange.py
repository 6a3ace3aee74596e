"""Exchange the features of sparse components until no exchange helps, by products with single coordinates.

A truncated flow rests where a step brings no feature in: a component on features that are all wrong gets no gradient
from the right ones. Exact solutions on the support and on the features of largest residual beside it, truncated again,
leave such places (subspace pursuit: Dai and Milenkovic 2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgep.methods.eigen import bordered, solve_pair
from dpgep.models.model import Matrix
from dpgep.privacy.products import NoisyProducts

# Largest support that is exchanged: each of its features is a product, and each exchange an eigenproblem of twice its
# size.
LARGEST_SUPPORT = 250
MOST_EXCHANGES = 50
# An exchange helps where the objective gains this part of itself; less may be rounding.
_GAIN = 1e-9
# Directions of B on a support below this part of its trace are rounding: features that repeat each other.
_ROUNDING = 1e-10
_CHUNK = 16


@dataclass(frozen=True, eq=False)
class Exchanged:
    """Unit rows (K, d) on one support, the number of exchanges, and whether none is left that helps."""

    vectors: Matrix
    n_exchanges: int
    at_rest: bool


@dataclass(frozen=True, eq=False)
class _Solution:
    """The K leading solutions on a support (k,): quotients (K,), vectors (K, k) with V B V^T = I."""

    support: NDArray[np.intp]
    values: Matrix
    vectors: Matrix

    @property
    def objective(self) -> float:
        return float(self.values.sum())


class _Submatrices:
    """Principal submatrices of A and B + ridge I. A feature is asked for once."""

    def __init__(self, products: NoisyProducts, ridge: float, reserve: int) -> None:
        self._products = products
        self._ridge = ridge
        self._reserve = reserve
        self._features = np.empty(0, np.intp)
        self._a = np.empty((0, 0))
        self._b = np.empty((0, 0))

    def expand(self, features: NDArray[np.intp]) -> bool:
        """Ask for the features that are new; False, and none asked, where they have no room."""
        new = np.setdiff1d(features, self._features)
        if len(new) + self._reserve > self._products.capacity:
            return False
        for first in range(0, len(new), _CHUNK):
            self._append(new[first : first + _CHUNK])
        return True

    def _append(self, new: NDArray[np.intp]) -> None:
        units = np.zeros((len(new), self._products.oracle.n_features))
        units[np.arange(len(new)), new] = 1.0
        self._features = np.append(self._features, new)
        of_a, of_b = (answer[:, self._features] for answer in self._products.times(units))
        self._a, self._b = bordered(self._a, of_a), bordered(self._b, of_b)

    def solve(self, support: NDArray[np.intp], k: int) -> _Solution | None:
        """The k leading solutions on features that were asked for; None where B has fewer directions there."""
        places = self._places(support)
        a, b = (matrix[np.ix_(places, places)] for matrix in (self._a, self._b))
        b.flat[:: len(support) + 1] += self._ridge
        system = solve_pair(a, b, regularization=0.0, rounding=_ROUNDING * abs(float(np.trace(b))))
        if len(system.values) < k:
            return None
        return _Solution(support, system.values[:k], system.vectors[:, :k].T)

    def scales(self, support: NDArray[np.intp]) -> Matrix:
        """Roots of the diagonal of B + ridge I: what makes features of different units comparable."""
        return np.sqrt(np.maximum(np.diagonal(self._b)[self._places(support)] + self._ridge, 0.0))

    def _places(self, support: NDArray[np.intp]) -> NDArray[np.intp]:
        order = np.argsort(self._features)
        return np.asarray(order[np.searchsorted(self._features, support, sorter=order)])


def exchange_features(products: NoisyProducts, vectors: Matrix, ridge: float) -> Exchanged | None:
    """Raise the sum of the K leading quotients by exchanging features of the rows' common support; its size k stays.

    From the solutions on the support: the k features of largest residual (A - rho B) v join, the pair is solved on all
    2k, the k largest features stay, and the pair is solved on these. Where that is no gain, half as many join, down to
    one. Asks the products for each feature that it looks at, once.

    None where the support is larger than LARGEST_SUPPORT, or there is no room to ask for it.
    """
    d, n_components = vectors.shape[1], len(vectors)
    support = np.flatnonzero(vectors.any(axis=0))
    if len(support) > LARGEST_SUPPORT:
        return None
    # the solutions found are asked for once more
    submatrices = _Submatrices(products, ridge, reserve=n_components * products.n_views)
    if not submatrices.expand(support) or (found := submatrices.solve(support, n_components)) is None:
        return None
    n_exchanges, at_rest = 0, False
    while not at_rest and n_exchanges < MOST_EXCHANGES:
        joining = _largest_residuals(products, found, ridge, d)
        if not submatrices.expand(joining):
            break
        better = _first_gain(submatrices, found, joining)
        at_rest = better is None
        if better is not None:
            found, n_exchanges = better, n_exchanges + 1
    unit = _embedded(found, d)
    return Exchanged(unit / np.linalg.norm(unit, axis=1, keepdims=True), n_exchanges, at_rest)


def _largest_residuals(products: NoisyProducts, found: _Solution, ridge: float, d: int) -> NDArray[np.intp]:
    """Features off the support by descending residual, at most as many as the support has."""
    vectors = _embedded(found, d)
    of_a, of_b = products.times(vectors)
    sizes = np.linalg.norm(of_a - found.values[:, None] * (of_b + ridge * vectors), axis=0)
    sizes[found.support] = -np.inf
    return np.argsort(-sizes, kind="stable")[: min(len(found.support), d - len(found.support))]


def _first_gain(submatrices: _Submatrices, found: _Solution, joining: NDArray[np.intp]) -> _Solution | None:
    """The first exchange that helps: many features at once are tried first."""
    size = len(joining)
    while size >= 1:
        better = _exchange(submatrices, found, joining[:size])
        if better is not None and better.objective > found.objective + _GAIN * abs(found.objective):
            return better
        size //= 2
    return None


def _exchange(submatrices: _Submatrices, found: _Solution, joining: NDArray[np.intp]) -> _Solution | None:
    union = np.sort(np.concatenate([found.support, joining]))
    both = submatrices.solve(union, len(found.values))
    if both is None:
        return None
    weights = np.linalg.norm(both.vectors, axis=0) * submatrices.scales(union)
    kept = np.sort(union[np.argsort(-weights, kind="stable")[: len(found.support)]])
    return submatrices.solve(kept, len(found.values))


def _embedded(found: _Solution, d: int) -> Matrix:
    full = np.zeros((len(found.values), d))
    full[:, found.support] = found.vectors
    return full
