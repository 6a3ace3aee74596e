"""Sums over people in floating point, for solutions without noise, and for screens: moments, groups, squares, products.

Rows are clipped and scaled to the unit ball. Sparse rows are never filled in, and no matrix of all pairs of features is
formed where it would be large, but for that of all moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.blocks import add_products, clipped_blocks, moment_blocks
from dpgep.data.row_products import CompensatedSum, RowProducts, group_counts
from dpgep.data.rows import Accumulate, Batch, Rows
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout

# A row of the bound's norm is multiplied by 1 less some rounding.
_CLIPPED = 1 - 1e-9


class FloatSums:
    """Upper triangle (row-major) of the sum over people of z z^T, z = [x; e(group)], x scaled to the unit ball.

    ``n_clipped`` of the ``n`` people had rows beyond the bound.
    """

    def __init__(self, layout: MomentLayout) -> None:
        self._layout = layout
        self.n = 0
        self.n_clipped = 0
        self.total: Matrix = np.zeros((layout.dimension,) * 2)

    def add(self, batch: Batch) -> None:
        for people, block in moment_blocks(batch, self._layout.n_groups):
            add_products([(people, block)], self.total)
            factors = RowProducts(batch.rows.part(people)).factors
            self.n_clipped += int(np.count_nonzero(factors < _CLIPPED))
        self.n += batch.n

    def merge(self, other: FloatSums) -> None:
        self.total += other.total
        self.n += other.n
        self.n_clipped += other.n_clipped


# Products between two views are formed for at most this many pairs of features at a time.
_BLOCK_PAIRS = 1 << 24
# Rows whose products are added one after the other.
ROWS_IN_A_ROW = 1 << 16


class GroupSums:
    """Sums over people in floating point, for a solution without noise: how many of each group there are, and the sums
    of their clipped rows, (d, 0) if not ``with_sums``.
    """

    def __init__(self, n_features: int, n_groups: int, *, with_sums: bool) -> None:
        self.n = 0
        self.counts = np.zeros(n_groups, dtype=np.int64)
        self.sums = np.zeros((n_features, n_groups if with_sums else 0))

    def add(self, batch: Batch) -> None:
        rows = RowProducts(batch.rows)
        self.n += batch.n
        self.counts += group_counts(batch.n, batch.groups, len(self.counts))
        if self.sums.size:
            self.sums += rows.group_sums(batch.groups, self.sums.shape[1])

    def merge(self, other: GroupSums) -> None:
        self.n += other.n
        self.counts += other.counts
        self.sums += other.sums


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
    """sum x y^T for the first features x, ``before`` in number, and some later ``columns`` y, and the sums of both.

    Rows are added in blocks, with the rounding errors of each sum of blocks: docs/exactness.md.
    """

    def __init__(self, before: int, columns: slice) -> None:
        self._before, self._columns = before, columns
        width = columns.stop - columns.start
        self._n = 0
        self._parts = tuple(CompensatedSum(shape) for shape in ((before, width), (before,), (width,)))

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
        x, y = rows[:, : self._before], rows[:, self._columns]
        product = x.T @ y
        terms = (product if isinstance(product, np.ndarray) else product.toarray(), x.sum(axis=0), y.sum(axis=0))
        for part, term in zip(self._parts, terms, strict=True):
            part.add(np.asarray(term))


def cross_norms(accumulate: Accumulate, views: Sequence[slice], *, centred: bool) -> Matrix:
    """(d,), norm of each feature's row of sum (z - m)(z - m)^T, its own view left out (m = 0 if not centred).

    One pass over the people for each block of columns of that matrix.
    """
    squares = np.zeros(views[-1].stop)
    for view in views[1:]:
        width = max(1, _BLOCK_PAIRS // view.start)
        for start in range(view.start, view.stop, width):
            columns = slice(start, min(start + width, view.stop))
            squared = accumulate(partial(CrossSums, view.start, columns)).squares(centred=centred)
            squares[: view.start] += squared.sum(axis=1)
            squares[columns] += squared.sum(axis=0)
    return np.sqrt(squares)


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
