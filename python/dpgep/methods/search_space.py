"""The leading solutions of a released pair that is known by its products: Rayleigh-Ritz on all that was asked.

With the orthonormal directions V asked so far (rows), the pair is compressed to V A V^T and V B V^T and solved as the
whole pair would be; the residuals of the K leading solutions are asked next, and, while the subspace grows by less than
an eighth, what the pencil makes of the last directions. For B = I this is the block Lanczos method without restarts. As
lazy noise remembers its answers anyway, nothing is gained by forgetting any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from dpgep.methods.eigen import Eigensystem, bordered, solve_pair
from dpgep.models.model import Matrix, Model
from dpgep.privacy.products import NoisyProducts

# The span has come to rest where a step turns none of its directions by more than this sine, far below the noise. A
# noisy B is cut at zero: a function with a kink, which subspaces approach slowly.
TOLERANCE = 1e-6
_TOLERANCE_CUT = 3e-3
# The compressed pair is solved again when the subspace has grown by one part in so many.
_GROWTH = 8
# A unit row has nothing new to ask where less than this is left of it beyond the directions asked.
_LEAST_REMAINDER = 1e-8
# Rows to an array, of the directions kept: products with many rows at a time are faster.
_CHUNK = 16
# Most directions asked, whatever the memory: the small eigenproblems grow with their cube.
_MOST_DIRECTIONS = 500


@dataclass(frozen=True, eq=False)
class Leading:
    """Leading solutions in the subspace asked.

    Attributes
    ----------
    vectors : (K, d) rows; fewer than K where B has no more directions.
    system : all solutions in the subspace; coordinates in the directions asked.
    largest_b : largest eigenvalue of the compressed B (1 for the identity), without regularization.
    n_directions : number of directions asked.
    movement : sine of the largest angle by which the last step turned the span.
    converged : whether that is at most TOLERANCE, or there was nothing left to ask.
    """

    vectors: Matrix
    system: Eigensystem
    largest_b: float
    n_directions: int
    movement: float
    converged: bool


class _GrowingRows:
    """Rows in arrays of _CHUNK: room that is not used yet is not touched, and nothing is copied to grow."""

    def __init__(self) -> None:
        self._arrays: list[Matrix] = []
        self._n = 0

    def append(self, rows: Matrix) -> None:
        for row in rows:
            if self._n == _CHUNK * len(self._arrays):
                self._arrays.append(np.empty((_CHUNK, len(row))))
            self._arrays[-1][self._n % _CHUNK] = row
            self._n += 1

    def chunks(self) -> Iterator[Matrix]:
        for index, array in enumerate(self._arrays):
            yield array[: self._n - _CHUNK * index]


class SearchSpace:
    """Directions asked and the pair compressed to them.

    Each lies in one of the ``views`` of the model, exactly: what rounding left in another would be a new direction to
    the noise, which is drawn for each view.
    """

    def __init__(self, products: NoisyProducts, views: list[slice]) -> None:
        self._products = products
        self._views = views
        self._directions = _GrowingRows()
        self.a = np.empty((0, 0))
        self.b = np.empty((0, 0))

    def __len__(self) -> int:
        return len(self.a)

    def expand(self, rows: Matrix, most: int) -> tuple[Matrix, Matrix, Matrix]:
        """Ask for V what the rows (m, d) have in each view beyond the directions asked, at most so many: (V, A V, B V).

        V is empty where there is nothing new, or no memory for more answers.
        """
        new = np.concatenate([self._orthonormal(rows, view) for view in self._views])[: max(most, 0)]
        if not len(new):
            return new, new, new
        try:
            of_a, of_b = self._products.times(new)
        except MemoryError:
            return new[:0], new[:0], new[:0]
        self._directions.append(new)
        self.a, self.b = bordered(self.a, self._inner(of_a)), bordered(self.b, self._inner(of_b))
        return new, of_a, of_b

    def combine(self, coordinates: Matrix) -> Matrix:
        """Rows (m, d) with these coordinates (m, j) in the directions asked."""
        total, column = np.zeros((len(coordinates), self._products.oracle.n_features)), 0
        for chunk in self._directions.chunks():
            total += coordinates[:, column : column + len(chunk)] @ chunk
            column += len(chunk)
        return total

    def _inner(self, rows: Matrix) -> Matrix:
        """Coordinates (m, j) of the rows' parts in the subspace."""
        return np.concatenate([rows @ chunk.T for chunk in self._directions.chunks()], axis=1)

    def _orthonormal(self, rows: Matrix, view: slice) -> Matrix:
        """Orthonormal rows that span what the rows have in a view beyond the directions asked."""
        rows = _only(rows[:, view], view, rows.shape[1])
        for _ in range(2):  # the second time for what rounding left of a small remainder
            rows = _unit_rows(rows)
            if len(self):
                rows = rows - self.combine(self._inner(rows))
                rows = rows[np.linalg.norm(rows, axis=1) > _LEAST_REMAINDER]
        if not len(rows):
            return rows
        q, r, _ = scipy.linalg.qr(rows[:, view].T, mode="economic", pivoting=True, check_finite=False)
        size = np.abs(np.diagonal(r))
        return _only(q[:, size > _LEAST_REMAINDER * size[0]].T, view, rows.shape[1])


def leading_solutions(
    products: NoisyProducts,
    model: Model,
    start: Matrix,
    n_components: int,
    *,
    regularization: float,
    fallback: float,
    most_directions: float,
) -> Leading:
    """The K leading solutions of A v = lambda (B_+ + xi I) v, A and B compressed to what is asked from ``start`` on.

    ``most_directions`` bounds how many are asked. Raises MemoryError where there is no room for any.
    """
    subspace = SearchSpace(products, model.views)
    most = int(min(most_directions, _MOST_DIRECTIONS))
    tolerance = TOLERANCE if products.identity_b or products.noise_level == 0 else _TOLERANCE_CUT
    wanted, coordinates = start, np.empty((0, 0))
    while True:
        exhausted = not _grow(subspace, model, wanted, most)
        if not len(subspace):
            raise MemoryError("no memory left for new directions: create the operator with a larger memory_limit")
        system = _solve(subspace, products, regularization, fallback)
        k = min(n_components, len(system.values))
        movement = _movement(coordinates, system.vectors[:, :k].T)
        coordinates = system.vectors[:, :k].T
        vectors = subspace.combine(coordinates)
        converged = exhausted or movement <= tolerance
        if converged or len(subspace) >= most:
            break
        wanted = _residuals(products, vectors, system, k)
    largest_b = 1.0 if products.identity_b else float(np.linalg.eigvalsh(subspace.b)[-1])
    return Leading(vectors, system, largest_b, len(subspace), movement, bool(converged))


def _grow(subspace: SearchSpace, model: Model, wanted: Matrix, most: int) -> bool:
    """Ask for the wanted rows, and on from there until the subspace has grown; whether there was anything new."""
    before = len(subspace)
    while True:
        new, of_a, of_b = subspace.expand(wanted, most - len(subspace))
        grown = len(subspace) - before
        if not len(new) or len(subspace) >= most or _GROWTH * (grown + len(new)) > before:
            return grown > 0
        # the pencil at the mean of its diagonal quotients: no division, as noise may make that of B zero or negative
        of_pencil = np.einsum("ij,ij->", new, of_b) * of_a - np.einsum("ij,ij->", new, of_a) * of_b
        wanted = _folded(of_pencil, len(model.views_of(new)))


def _folded(rows: Matrix, n_views: int) -> Matrix:
    """As many rows as one view asked for: each a sum over the views."""
    parts = np.array_split(rows, n_views)
    total = parts[0].copy()
    for part in parts[1:]:
        total[: len(part)] += part
    return np.asarray(total)


def _solve(subspace: SearchSpace, products: NoisyProducts, regularization: float, fallback: float) -> Eigensystem:
    if products.identity_b:
        return solve_pair(subspace.a.copy(), None, regularization=0.0, rounding=0.0)
    d, b = products.oracle.n_features, subspace.b.copy()
    rounding = 4 * d * float(np.finfo(float).eps) * float(np.abs(np.diagonal(b)).max())
    return solve_pair(subspace.a.copy(), b, regularization=regularization, rounding=rounding, fallback=fallback)


def _residuals(products: NoisyProducts, vectors: Matrix, system: Eigensystem, k: int) -> Matrix:
    """A v - lambda (B + xi I) v for the K leading solutions: their products are combinations of answers."""
    of_a, of_b = products.times(vectors)
    return np.asarray(of_a - system.values[:k, None] * (of_b + system.regularization * vectors))


def _movement(before: Matrix, after: Matrix) -> float:
    """Sine of the largest angle from the span of ``after`` to that of ``before``, coordinates in nested subspaces."""
    if len(before) != len(after) or not len(after):
        return 1.0
    old, new = np.linalg.qr(before.T)[0], np.linalg.qr(after.T)[0]
    new[: len(old)] -= old @ (old.T @ new[: len(old)])
    return min(float(np.linalg.norm(new, 2)), 1.0)


def _only(rows: Matrix, view: slice, d: int) -> Matrix:
    """Rows of a view as rows of d features, zero elsewhere."""
    if view == slice(0, d):
        return np.ascontiguousarray(rows)
    full = np.zeros((len(rows), d))
    full[:, view] = rows
    return full


def _unit_rows(rows: Matrix) -> Matrix:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows[norms[:, 0] > 0] / norms[norms[:, 0] > 0])
