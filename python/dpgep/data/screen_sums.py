"""Sums over people that score features: squares of every feature, and products between two views.

Rows are clipped and scaled to the unit ball. Sparse rows are never filled in, and no matrix of all pairs of features is
formed where it would be large.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.blocks import clipped_blocks
from dpgep.data.compensated_sum import CompensatedSum
from dpgep.data.row_products import GroupSums, RowProducts
from dpgep.data.rows import Batch, Rows
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout

# Products between two views are formed for at most this many pairs of features at a time.
_BLOCK_PAIRS = 1 << 24
# Rows whose products are added one after the other.
ROWS_IN_A_ROW = 1 << 16


class ScreenSums:
    """The sums of `GridSums` in floating point, for a screen without noise.

    Attributes
    ----------
    energy : (d,), diagonal of the second moment, not divided by n.
    groups : counts and sums per group, the sums not divided by the bound.
    """

    def __init__(self, layout: MomentLayout) -> None:
        self.energy = np.zeros(layout.n_features)
        self.groups = GroupSums(layout.n_features, layout.n_groups, with_sums=layout.sums)

    @property
    def n(self) -> int:
        return self.groups.n

    def add(self, batch: Batch) -> None:
        self.groups.add(batch)
        self.energy += _sparse_energies(batch.rows) if batch.rows.is_sparse else _dense_energies(batch.rows)

    def merge(self, other: ScreenSums) -> None:
        self.energy += other.energy
        self.groups.merge(other.groups)


class CrossSums:
    """sum x y^T for the first d_x features x and some ``columns`` of the others y, and the sums of both.

    Rows are added in blocks, with the rounding errors of each sum of blocks: docs/exactness.md.
    """

    def __init__(self, d_x: int, columns: slice) -> None:
        self._d_x, self._columns = d_x, columns
        width = columns.stop - columns.start
        self._n = 0
        self._parts = tuple(CompensatedSum(shape) for shape in ((d_x, width), (d_x,), (width,)))

    def add(self, batch: Batch) -> None:
        self._n += batch.n
        if not batch.rows.is_sparse:
            for _, block in clipped_blocks(batch.rows, most_rows=ROWS_IN_A_ROW):
                self._add(block)
            return
        for start in range(0, batch.n, ROWS_IN_A_ROW):
            self._add(_sparse_clipped(batch.rows.part(slice(start, start + ROWS_IN_A_ROW))))

    def merge(self, other: CrossSums) -> None:
        self._n += other._n
        for ours, theirs in zip(self._parts, other._parts, strict=True):
            ours.merge(theirs)

    def squares(self, *, centred: bool) -> Matrix:
        """Entries of sum (x - m_x)(y - m_y)^T, m = 0 if not ``centred``, squared."""
        cross, of_x, of_y = (part.total for part in self._parts)
        if centred:
            cross -= np.outer(of_x, of_y) / max(self._n, 1)
        return cross * cross

    def _add(self, rows: Any) -> None:
        x, y = rows[:, : self._d_x], rows[:, self._d_x :][:, self._columns]
        product = x.T @ y
        terms = (product if isinstance(product, np.ndarray) else product.toarray(), x.sum(axis=0), y.sum(axis=0))
        for part, term in zip(self._parts, terms, strict=True):
            part.add(np.asarray(term))


def cross_norms(accumulate: Callable[[Any], Any], d: int, d_x: int, *, centred: bool) -> Matrix:
    """(d,), norm of each feature's row of sum (x - m_x)(y - m_y)^T, x the first d_x features (m = 0 if not centred).

    One pass over the people for each block of columns of that matrix.
    """
    width = max(1, _BLOCK_PAIRS // d_x)
    squares_x, norms_y = np.zeros(d_x), []
    for start in range(0, d - d_x, width):
        columns = slice(start, min(start + width, d - d_x))
        squared = accumulate(partial(CrossSums, d_x, columns)).squares(centred=centred)
        squares_x += squared.sum(axis=1)
        norms_y.append(np.sqrt(squared.sum(axis=0)))
    return np.concatenate([np.sqrt(squares_x), *norms_y])


def _dense_energies(rows: Rows) -> Matrix:
    total = np.zeros(rows.d)
    for _, block in clipped_blocks(rows):
        total += np.einsum("ij,ij->j", block, block)
    return total


def _sparse_energies(rows: Rows) -> Matrix:
    products = RowProducts(rows)
    data, indices, indptr, d = products.arrays()
    total = np.empty(d)
    core.csr_squares(data, indices, indptr, products.factors, total, thread_count())
    return np.asarray(total / rows.bound**2)


def _sparse_clipped(rows: Rows) -> Any:
    """The clipped rows in the unit ball as a sparse matrix whose columns can be taken."""
    from scipy import sparse

    products = RowProducts(rows)
    data, indices, indptr, d = products.arrays()
    values = np.repeat(products.factors, np.diff(indptr)) * data / rows.bound
    return sparse.csc_array(sparse.csr_array((values, indices, indptr), shape=(rows.n, d)))
