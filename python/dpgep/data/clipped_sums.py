"""Sums over people of clipped products: sum_i x_i clip(V^T (x_i - m))^T, exact, and how long the products are.

Rows may have a public constant s at their end, so that the sum of clip(V^T (x_i - m)) follows, too.

clip(p) shrinks p to norm C where it is longer. Of two views, each is multiplied by the products of the other one. All
is in integers that float64 holds: the same for any batches, order and threads, whatever the order in which BLAS adds.

    x    rows on the grid of 2^-b bounds, integers of norm at most 2^b
    V    public directions on the grid of 2^-DIRECTION_BITS, so that partial sums of V^T x are below 2^53
    clip integers of norm at most 2^b, in units of 2^-b C: a function of V^T (x - m) alone, which is exact

b is BITS where each person has one row. Of rows with weights, in units of 2^-w of a person, it is BITS - w/2: sums of
as many people fit into 63 bits.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.data.float_sums import ROWS_IN_A_ROW
from dpgep.data.integer_sums import SparseRows
from dpgep.data.rows import Batch, Rows, Sums, clipped_blocks
from dpgep.models.bins import LEAST_THRESHOLD, PRODUCT_EDGES
from dpgep.models.model import Matrix

Integers = NDArray[np.int64]

BITS, DIRECTION_BITS = 18, 30
# A sum over more people might exceed 63 bits, with noise of up to 2^59 steps: it wraps modulo 2^64, as NumPy adds.
MOST_PEOPLE = 1 << 26

# Rounding of a quotient, a root and a product leaves a norm of 2^b times this at most 2^b.
_SHRUNK = 1 - 2.0**-40


@dataclass(frozen=True, eq=False)
class Directions:
    """V (K, d) and V m (K,) as integers, for rows on the grid of 2^-``bits``. All public.

    ``location`` is m, in bounds, of norm at most 1; None for 0.
    """

    vectors: Matrix
    offset: Matrix
    bits: int

    @classmethod
    def on_grid(cls, vectors: Matrix, location: Matrix | None, bits: int = BITS) -> Directions:
        # row-major, as what Dask hands to a worker need not be
        integers = np.ascontiguousarray(np.rint(np.ldexp(vectors, DIRECTION_BITS)))
        if location is None:
            return cls(integers, np.zeros(len(vectors)), bits)
        return cls(integers, np.rint(np.ldexp(vectors @ location, bits + DIRECTION_BITS)), bits)

    def products(self, rows: Any) -> Matrix:
        """(h, K), V (x - m) of rows on the grid, dense or sparse: exact."""
        # few columns in row-major order: BLAS takes up to four times as long with the transpose of row-major directions
        products = np.asarray(rows @ np.ascontiguousarray(self.vectors.T))
        products -= self.offset
        return products


@dataclass(frozen=True)
class Factors:
    """Some ``features`` of a row, and the products with some ``directions`` that they are multiplied by.

    The products are clipped to a norm of ``threshold`` bounds. Different factors have different features.
    """

    features: slice
    directions: slice
    threshold: float

    def clipped(self, products: Matrix, bits: int) -> Matrix:
        """(h, K), of `Directions.products`."""
        return clipped_integers(products[:, self.directions], self.threshold, bits)


def clipped_integers(products: Matrix, threshold: float, bits: int = BITS) -> Matrix:
    """(h, K), `Directions.products` clipped to ``threshold`` bounds, in steps of 2^-bits of it: norms at most 2^bits.

    A row depends on the same row of ``products`` alone, whatever is beside it.
    """
    steps, squares = _steps(products, threshold)
    long = squares > 4.0**bits
    if long.any():
        np.sqrt(squares, out=squares, where=long)
        factors = np.ones(len(steps))
        np.divide(2.0**bits * _SHRUNK, squares, out=factors, where=long)
        steps *= factors[:, None]
        np.trunc(steps, out=steps)
    return steps


def _steps(products: Matrix, unit: float) -> tuple[Matrix, Matrix]:
    """Products in steps of 2^-bits ``unit`` bounds, for rows on that grid, and squares of their norms.

    A product is at most 2 bounds, and a unit at least LEAST_THRESHOLD: squares are below 2^53 and their sums exact.
    """
    steps = products * (2.0**-DIRECTION_BITS / unit)
    np.rint(steps, out=steps)
    return steps, np.einsum("ij,ij->i", steps, steps)


class _ProductSums(Sums):
    """A sum over people of something that depends on V (x - m)."""

    parts = ("n", "total")
    total: Integers

    def __init__(self, directions: Directions) -> None:
        self._directions, self._bits = directions, directions.bits
        self.n = 0

    def add(self, batch: Batch) -> None:
        """Add the people of a batch."""
        for rows in _rows_on_grid(batch.rows, self._bits):
            self._add_rows(rows, self._directions.products(rows))
        self.n += batch.n

    @abstractmethod
    def _add_rows(self, rows: Any, products: Matrix) -> None: ...


class ClippedSums(_ProductSums):
    """(d, K), ``total``: sum of x clip(V (x - m))^T, in steps of 4^-bits bounds times thresholds; ``n`` people.

    V consists of K directions for each of the ``factors``. With a ``constant`` s, at most 2^bits, which needs a single
    factor, (d + 1, K): of (x, s).
    """

    def __init__(self, directions: Directions, factors: tuple[Factors, ...], constant: int = 0) -> None:
        super().__init__(directions)
        self._factors, self._constant = factors, constant
        m, d = directions.vectors.shape
        self.total = np.zeros((d + bool(constant), m // len(factors)), dtype=np.int64)

    def _add_rows(self, rows: Any, products: Matrix) -> None:
        for each in self._factors:
            # at most ROWS_IN_A_ROW terms of at most 4^bits
            clipped = each.clipped(products, self._bits)
            added = rows[:, each.features].T @ clipped
            self.total[each.features] += np.asarray(added).astype(np.int64)
            if self._constant:
                self.total[-1] += self._constant * clipped.sum(axis=0).astype(np.int64)


class ProductMoment(_ProductSums):
    """(K, K), ``total``: sum of p p^T, p = clip(V (x - m)), in steps of 4^-bits squared thresholds; ``n`` people.

    Of two views, it is the sum of p_x p_y^T, in steps of 4^-bits times both thresholds.
    """

    def __init__(self, directions: Directions, factors: tuple[Factors, ...]) -> None:
        super().__init__(directions)
        self._by_first, self._by_last = factors[0], factors[-1]
        self.total = np.zeros((len(directions.vectors) // len(factors),) * 2, dtype=np.int64)

    def _add_rows(self, rows: Any, products: Matrix) -> None:
        # the first view is multiplied by the products of the last one, and the last by those of the first
        first, last = (factors.clipped(products, self._bits) for factors in (self._by_last, self._by_first))
        self.total += (first.T @ last).astype(np.int64)


class ProductNormCounts(_ProductSums):
    """(bins,), ``total``: how many people have a norm |V (x - m)| below, between or beyond PRODUCT_EDGES."""

    def __init__(self, directions: Directions) -> None:
        super().__init__(directions)
        self.total = np.zeros(len(PRODUCT_EDGES) + 1, dtype=np.int64)

    def _add_rows(self, rows: Any, products: Matrix) -> None:
        _, squares = _steps(products, LEAST_THRESHOLD)
        edges = (PRODUCT_EDGES * (2.0**self._bits / LEAST_THRESHOLD)) ** 2
        found = np.searchsorted(edges, squares, side="right")
        self.total += np.bincount(found, minlength=len(self.total))


def _rows_on_grid(rows: Rows, bits: int) -> Iterator[Any]:
    """Rows on the grid of 2^-bits, some at a time: arrays, or CSR matrices where a view is sparse."""
    if not rows.is_sparse:
        for _, block in clipped_blocks(rows, bits=bits, most_rows=ROWS_IN_A_ROW):
            yield block
        return
    from scipy import sparse

    for part in SparseRows(rows).on_grid(bits, ROWS_IN_A_ROW):
        yield sparse.csr_array((part.values.astype(np.float64), part.indices, part.indptr), shape=(part.n, part.d))


def direction_error(n_directions: int, n_features: int) -> float:
    """Operator norm of what rounding V to its grid changes, at most."""
    return math.sqrt(n_directions * n_features) * 2.0 ** -(DIRECTION_BITS + 1)
