"""`release` of a matrix too large to hold: one noisy matrix known by its products, the same law as in memory.

The pair is solved by Rayleigh-Ritz on all that was asked (docs/mathematics.md, section 7; docs/scale.md). The residuals
of the K leading solutions are asked next, and, while the subspace grows by less than an eighth, what the pencil makes
of the last directions. For B = I this is the block Lanczos method without restarts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep.methods.base import Diagnostics, MethodResult, ReleaseOptions, directions_in, method_result
from dpgep.methods.eigen import RANK, Eigensystem, embedded, null_eigenvalue, products_accuracy, solve_pair
from dpgep.methods.exchange import bordered
from dpgep.methods.papers.initial_vectors import InitialVectors
from dpgep.methods.papers.rayleigh_flow import STEP, FlowDiagnostics, TruncatedFlowOptions, flow_on
from dpgep.methods.ridge import products_ridge
from dpgep.models.model import Matrix, Model
from dpgep.models.row_model import RowModel, pencil_of
from dpgep.privacy.curator import Curator
from dpgep.privacy.products import NoisyProducts, ProductNoise, Products
from dpgep.serialization import stored_as

# Where sparse components are asked for, share of the room that may go to the dense ones they start from.
_DENSE_SHARE = 0.5


@stored_as("operator")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OperatorDiagnostics(Diagnostics):
    """What products of the released matrix say about the components. Nothing here costs privacy.

    The expected errors come from the components' quotients and the law of the noise. There are no eigengaps: they need
    the whole matrix.

    Attributes
    ----------
    n_directions : directions that the noisy matrix was asked for.
    movement : sine of the largest angle by which the last step turned the span of the dense components; where B is the
        identity and there is noise, any of those that are not lost.
    converged : whether the components came to rest: lost ones, where B is the identity, never do, and need not. Their
        eigenvalues are lower bounds. Sparse components: whether the flow did, wherever it began.
    flow : of sparse components, which come from a truncated flow that begins at the dense ones.
    support : the features that a sparse solution uses, ascending; None for a dense one.
    storage : "operator".
    """

    n_directions: int
    movement: float
    converged: bool
    flow: FlowDiagnostics | None = None
    support: tuple[int, ...] | None = None
    storage: str = "operator"

    def summary(self) -> list[str]:
        end = "converged" if self.converged else "not converged"
        lines = [f"  storage      operator: {self.n_directions} directions queried, {end}"]
        if self.support is not None:
            lines.append(f"  features     {len(self.support)} in use")
        return lines


def operator_release(curator: Curator, k: int, options: ReleaseOptions) -> MethodResult:
    """The K leading solutions of a release that is known by its products, dense or sparse."""
    products, leading = leading_by_products(curator, k, options)
    if not len(leading.vectors):
        raise np.linalg.LinAlgError("B is numerically zero: no direction to solve for; pass regularization > 0")
    if options.sparsity is not None:
        return _sparse(curator, products, leading, k, options)
    model, ridge, found = curator.model, leading.system.regularization, len(leading.vectors)
    eigenvalues = leading.system.values[:found].copy()
    sizes = 1 / np.linalg.norm(leading.vectors, axis=1) ** 2  # solutions have norm 1 in B + xi I
    diagnostics = OperatorDiagnostics(
        noise_level=products.noise_level,
        regularization=ridge,
        accuracy=products_accuracy(model, products, eigenvalues, sizes, ridge=ridge, centre=leading.centre),
        n_directions=leading.n_directions,
        movement=leading.movement,
        converged=leading.converged,
    )
    said = []
    if found < k:
        said.append(f"B is singular: {found} of {k} components (pass regularization > 0 to use all directions)")
    if not leading.converged:
        said.append(
            f"the components had not converged after {leading.n_directions} directions (last step: a sine of "
            f"{leading.movement:.2g}): raise memory_limit, ask for fewer components, or screen features"
        )
    return method_result(model, products.groups, leading.vectors, eigenvalues, diagnostics, said)


def leading_by_products(
    curator: Curator, k: int, options: ReleaseOptions, share: float | None = None, purpose: str = ""
) -> tuple[NoisyProducts, Leading]:
    """A release that is known by its products, for ``share`` of mu^2 or all that is left; its dense solutions."""
    products = curator.answer(Products(ProductNoise("lazy", "goe", 0, options.memory_limit)), share, purpose)
    capacity = min(directions_in(options.memory_limit, curator.public, copies=1), products.capacity)
    leading = leading_solutions(
        products,
        curator.model,
        _start(curator, products, k),
        k,
        regularization=products_ridge(products, options.regularization),
        fallback=products_ridge(products, None),
        most_directions=capacity if options.sparsity is None else _DENSE_SHARE * capacity,
    )
    return products, leading


def _sparse(
    curator: Curator, products: NoisyProducts, leading: Leading, k: int, options: ReleaseOptions
) -> MethodResult:
    """A truncated flow from the dense components, which asks one direction of each a step."""
    assert isinstance(options.sparsity, int)  # the others need the matrix
    start = np.zeros((k, curator.model.n_features))
    start[: len(leading.vectors)] = leading.vectors
    for row in range(len(leading.vectors), k):  # fewer directions than asked for: coordinates fill up
        start[row, row] = 1.0
    largest_b = 1.05 * leading.largest_b + products_ridge(products, options.regularization)
    flow_options = TruncatedFlowOptions(
        sparsity=options.sparsity,
        separate_supports=options.separate_supports,
        regularization=options.regularization,
        step_size=None if products.identity_b else STEP / max(largest_b, float(np.finfo(float).tiny)),
        memory_limit=options.memory_limit,
    )
    status = f"dense components of the same noisy matrix, {leading.n_directions} directions"
    initial = InitialVectors("dense", (start,), 0.0, status)
    found = flow_on(curator, products, initial, flow_options)
    flow = found.diagnostics
    assert isinstance(flow, FlowDiagnostics)
    diagnostics = OperatorDiagnostics(
        noise_level=flow.noise_level,
        regularization=flow.regularization,
        accuracy=flow.accuracy,
        n_directions=products.oracle.n_directions or leading.n_directions,
        movement=leading.movement,
        converged=flow.converged,
        flow=flow,
        support=flow.support,
    )
    return replace(found, diagnostics=diagnostics)


def _start(curator: Curator, products: NoisyProducts, k: int) -> Matrix:
    """Where to begin: the range of A where released vectors span it (class and slice means), else at random."""
    n_rows = min(FEW_ROWS, curator.model.n_features) if products.identity_b and products.noise_level > 0 else k
    random = curator.public_generator().standard_normal((n_rows, curator.model.n_features))
    if products.groups is None:
        return random
    assert isinstance(curator.model, RowModel)  # of rows, as there are groups
    pencil = pencil_of(curator.model, products.groups)
    if pencil.a.moment:
        return random
    means = pencil.factors[(pencil.a.weights != 0) & pencil.factors.any(axis=1)]
    return np.concatenate([means, random[: max(k - len(means), 0)]])


# The span has come to rest where a step turns none of its directions by more than this sine, far below the noise. A
# noisy B is cut at zero: a function with a kink, which subspaces approach slowly.
TOLERANCE = 1e-6
_TOLERANCE_CUT = 3e-3
# A unit row has nothing new to ask where less than this is left of it beyond the directions asked.
_LEAST_REMAINDER = 1e-8
_CHUNK = 16  # rows to an array, of the directions kept: products with many rows at a time are faster
# B = I, in noise. Rows that the search begins with, and residuals in which one more component is searched for. A pass
# for a few rows takes little longer than for one; as noise tells eigenvalues apart, they find any number of components.
FEW_ROWS = 4
# A component is settled when the last step turned it by at most this share of the sine expected of noise: what is left
# adds about a hundredth to the expected squared sine.
_SHARE_OF_NOISE = 0.1
# A component this many times as high as the edge of the noise is waited for: what random directions have of it,
# 1/sqrt(d), grows as a Chebyshev polynomial does there.
_WAITED_FOR = 1.05
# Most directions asked, whatever the memory: the small eigenproblems grow with their cube.
_MOST_DIRECTIONS = 500


@dataclass(frozen=True, eq=False)
class Leading:
    """Leading solutions in the subspace asked."""

    vectors: Matrix  # (K, d) rows; fewer than K where B has no more directions
    system: Eigensystem  # all solutions in the subspace; coordinates in the directions asked
    centre: float  # where the noise lies for B = I: an upper limit for the mean of all eigenvalues but the leading
    largest_b: float  # largest eigenvalue of the compressed B (1 for the identity), without regularization
    n_directions: int  # asked
    movement: float  # sine of the largest angle of the last step: of the span, or of components that stand out of noise
    converged: bool  # whether that is little enough, or there was nothing left to ask


class SearchSpace:
    """Directions asked and the pair compressed to them.

    Each lies in one of the ``views``, exactly: what rounding left in another would be a new direction to the noise.
    """

    def __init__(self, products: NoisyProducts, views: list[slice]) -> None:
        self._products, self._views = products, views
        # of _CHUNK directions each: room that is not used yet is not touched, and nothing is copied to grow
        self._arrays: list[Matrix] = []
        self._n = self.n_passes = 0
        self.a, self.b = np.empty((0, 0)), np.empty((0, 0))

    def __len__(self) -> int:
        return self._n

    def expand(self, rows: Matrix, most: int) -> tuple[Matrix, Matrix, Matrix]:
        """(V, A V, B V), V what rows (m, d) have in each view beyond all asked; empty if nothing is new, or fits."""
        new = np.concatenate([self._orthonormal(rows, view) for view in self._views])[: max(most, 0)]
        if not len(new):
            return new, new, new
        try:
            of_a, of_b = self._products.times(new)
        except MemoryError:
            return new[:0], new[:0], new[:0]
        self.n_passes += 1
        for row in new:
            if self._n == _CHUNK * len(self._arrays):
                self._arrays.append(np.empty((_CHUNK, len(row))))
            self._arrays[-1][self._n % _CHUNK] = row
            self._n += 1
        self.a, self.b = bordered(self.a, self._inner(of_a)), bordered(self.b, self._inner(of_b))
        return new, of_a, of_b

    def combine(self, coordinates: Matrix) -> Matrix:
        """Rows (m, d) with these coordinates (m, j) in the directions asked."""
        total, column = np.zeros((len(coordinates), self._products.oracle.n_features)), 0
        for chunk in self._chunks():
            total += coordinates[:, column : column + len(chunk)] @ chunk
            column += len(chunk)
        return total

    def _inner(self, rows: Matrix) -> Matrix:
        """Coordinates (m, j) of the rows' parts in the subspace."""
        return np.concatenate([rows @ chunk.T for chunk in self._chunks()], axis=1)

    def _chunks(self) -> Iterator[Matrix]:
        return (array[: self._n - _CHUNK * index] for index, array in enumerate(self._arrays))

    def _orthonormal(self, rows: Matrix, view: slice) -> Matrix:
        """Orthonormal rows that span what the rows have in a view beyond the directions asked."""
        d = rows.shape[1]
        rows = embedded(rows[:, view], view, d)
        for _ in range(2):  # the second time for what rounding left of a small remainder
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            rows = rows[norms[:, 0] > 0] / norms[norms[:, 0] > 0]
            if len(self):
                rows = rows - self.combine(self._inner(rows))
                rows = rows[np.linalg.norm(rows, axis=1) > _LEAST_REMAINDER]
        if not len(rows):
            return rows
        q, r, _ = scipy.linalg.qr(rows[:, view].T, mode="economic", pivoting=True, check_finite=False)
        size = np.abs(np.diagonal(r))
        return embedded(q[:, size > _LEAST_REMAINDER * size[0]].T, view, d)


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
    """The K leading solutions of A v = lambda (B_+ + xi I) v, A and B compressed to what is asked from ``start`` on,
    random for B = I in noise, and at most ``most_directions``. Raises MemoryError where there is no room for any.
    """
    subspace = SearchSpace(products, model.views)
    most = int(min(most_directions, _MOST_DIRECTIONS))
    in_noise = products.identity_b and products.noise_level > 0
    progress = (_InNoise if in_noise else _Progress)(products, model, n_components)
    wanted = start
    while True:
        exhausted = not _grow(subspace, model, wanted, most, progress.part)
        if not len(subspace):
            raise MemoryError("no memory left for new directions: create the operator with a larger memory_limit")
        b = None if products.identity_b else subspace.b.copy()
        largest = 0.0 if b is None else float(np.abs(np.diagonal(b)).max())
        rounding = 4 * products.oracle.n_features * float(np.finfo(float).eps) * largest
        system = solve_pair(subspace.a.copy(), b, regularization=regularization, rounding=rounding, fallback=fallback)
        k = min(n_components, len(system.values))
        unsettled = progress.unsettled(subspace, system, k)
        vectors = subspace.combine(system.vectors[:, :k].T)
        converged = exhausted or not len(unsettled)
        if converged or len(subspace) >= most:
            break
        # the residuals A v - lambda (B + xi I) v, whose products are combinations of answers
        going = vectors[unsettled]
        of_a, of_b = products.times(going)
        wanted = of_a - system.values[unsettled, None] * (of_b + system.regularization * going)
    largest_b = 1.0 if products.identity_b else float(np.linalg.eigvalsh(subspace.b)[-1])
    return Leading(vectors, system, progress.centre, largest_b, len(subspace), progress.movement, bool(converged))


class _Progress:
    """How far the leading solutions have come to rest: together, up to a tolerance."""

    part = 8  # the compressed pair is solved again when the subspace has grown by one part in this many

    def __init__(self, products: NoisyProducts, model: Model, n_components: int) -> None:
        self._products, self._model = products, model
        self._n_wanted = min(n_components, model.n_features)
        self._coordinates = np.empty((0, 0))
        self.centre, self.movement = 0.0, 1.0

    def unsettled(self, subspace: SearchSpace, system: Eigensystem, k: int) -> NDArray[np.intp]:
        """Which of the K leading solutions to go on with: none where the search is over."""
        turned = self._turned(system, k)
        self.movement = 1.0 if turned is None else min(float(np.linalg.norm(turned, 2)), 1.0)
        tolerance = TOLERANCE if self._products.identity_b or self._products.noise_level == 0 else _TOLERANCE_CUT
        return np.arange(0 if self.movement <= tolerance else k)

    def _turned(self, system: Eigensystem, k: int) -> Matrix | None:
        """(j, K), orthonormal directions of the leading solutions, without their parts in the last span of as many."""
        before, self._coordinates = self._coordinates, system.vectors[:, :k]
        if before.shape[1] != k:
            return None
        old, new = np.linalg.qr(before)[0], np.linalg.qr(self._coordinates)[0]
        new[: len(old)] -= old @ (old.T @ new[: len(old)])
        return np.asarray(new)


class _InNoise(_Progress):
    """Progress for B = I: each component by itself, compared with its error by noise; hidden ones never settle."""

    part = 24  # soon: a settled component asks for no more passes

    def __init__(self, products: NoisyProducts, model: Model, n_components: int) -> None:
        super().__init__(products, model, n_components)
        self._n_started = self._most_found = self._since = 0
        # passes without one more component
        self._patience = math.acosh(math.sqrt(model.n_features)) / math.acosh(_WAITED_FOR)

    def unsettled(self, subspace: SearchSpace, system: Eigensystem, k: int) -> NDArray[np.intp]:
        self._n_started = self._n_started or len(subspace)
        turned, values = self._turned(system, k), system.values[:k]
        self.centre = self._centre_of(subspace, system)
        accuracy = products_accuracy(self._model, self._products, values, np.ones(k), ridge=0.0, centre=self.centre)
        found = accuracy.lost.index(True) if True in accuracy.lost else k
        if found > self._most_found:
            self._most_found, self._since = found, subspace.n_passes
        movements = np.ones(k) if turned is None else np.linalg.norm(turned, axis=0)
        self.movement = min(float(movements[:found].max(initial=0.0)), 1.0)
        open_ = movements > _SHARE_OF_NOISE * np.sqrt(accuracy.errors)
        open_[found:] = False
        if subspace.n_passes - self._since < self._patience or k < self._n_wanted:
            open_[found : found + FEW_ROWS] = True
        return np.flatnonzero(open_)

    def _centre_of(self, subspace: SearchSpace, system: Eigensystem) -> float:
        """The centre from the quotients of the random directions of the start, less the parts of components found."""
        # eigenvalues in the subspace do not serve: all but the leading lie too low
        m, found = self._n_started, self._most_found
        squares = system.vectors[:m, :found] ** 2
        rest = float(np.trace(subspace.a[:m, :m]) - squares.sum(axis=0) @ system.values[:found])
        mean = rest / max(m - float(squares.sum()), 1e-3 * m)
        deviation = self._products.noise_level / math.sqrt(2 * self._products.oracle.n_features * m)
        return null_eigenvalue(self._model, np.array([mean + RANK * deviation]))


def _grow(subspace: SearchSpace, model: Model, wanted: Matrix, most: int, part: int) -> bool:
    """Ask for the wanted rows, and on from there, until the subspace has grown by a part; whether anything was new."""
    before = len(subspace)
    while True:
        new, of_a, of_b = subspace.expand(wanted, most - len(subspace))
        grown = len(subspace) - before
        if not len(new) or len(subspace) >= most or part * (grown + len(new)) > before:
            return grown > 0
        # the pencil at the mean of its diagonal quotients: no division, as noise may make that of B zero or negative
        of_pencil = np.einsum("ij,ij->", new, of_b) * of_a - np.einsum("ij,ij->", new, of_a) * of_b
        # as many rows as one view asked for: each a sum over the views
        wanted, *others = np.array_split(of_pencil, len(model.views))
        for rows in others:
            wanted[: len(rows)] += rows
