"""Sums over people that score features: squares of every feature, and products between two views.

Rows are clipped and scaled to the unit ball. Sparse rows are never filled in, and no matrix of all pairs of features is
formed where it would be large.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpgep.problems.model import Matrix
from dpgep.problems.row_products import RowProducts
from dpgep.problems.rows import Rows

# Entries of sparse rows that are squared at a time.
_BLOCK_ENTRIES = 1 << 20
# Products between two views are formed for at most this many pairs of features at a time.
_BLOCK_PAIRS = 1 << 24


def is_sparse(rows: Rows) -> bool:
    return not all(isinstance(view, np.ndarray) for view in rows.views)


def energies(rows: Rows) -> Matrix:
    """(d,), sum over people of the squared entries: the diagonal of the second moment."""
    return _sparse_energies(rows) if is_sparse(rows) else _dense_energies(rows)


def cross_norms(rows: Rows, d_x: int, *, centred: bool) -> Matrix:
    """(d,), norm of each feature's row of sum (x - m_x)(y - m_y)^T, x the first d_x features (m = 0 if not centred).

    One pass over the rows for each block of columns of that matrix.
    """
    squares_x, norms_y = np.zeros(d_x), []
    for block in _cross_blocks(rows, d_x, centred):
        squared = np.einsum("ij,ij->ij", block, block)
        squares_x += squared.sum(axis=1)
        norms_y.append(np.sqrt(squared.sum(axis=0)))
    return np.concatenate([np.sqrt(squares_x), *norms_y])


def _dense_energies(rows: Rows) -> Matrix:
    total = np.zeros(rows.d)
    for _, block in rows.clipped_blocks(0):
        total += np.einsum("ij,ij->j", block, block)
    return total


def _sparse_energies(rows: Rows) -> Matrix:
    products = RowProducts(rows, None, 0)
    data, indices, indptr, d = products.arrays()
    total = np.zeros(d)
    for start in range(0, len(data), max(d, _BLOCK_ENTRIES)):
        entries = slice(start, min(start + max(d, _BLOCK_ENTRIES), len(data)))
        people = np.searchsorted(indptr, np.arange(entries.start, entries.stop), side="right") - 1
        values = products.factors[people] * data[entries] / rows.bound
        total += np.bincount(indices[entries], weights=values * values, minlength=d)
    return total


def _cross_blocks(rows: Rows, d_x: int, centred: bool) -> Iterator[Matrix]:
    """Blocks of columns of sum (x - m_x)(y - m_y)^T, from the left."""
    width = max(1, _BLOCK_PAIRS // d_x)
    products = _SparseViews(rows, d_x) if is_sparse(rows) else _DenseViews(rows, d_x)
    for start in range(0, rows.d - d_x, width):
        columns = slice(start, min(start + width, rows.d - d_x))
        cross, sums_x, sums_y = products.times(columns)
        if centred:
            cross -= np.outer(sums_x, sums_y) / max(rows.n, 1)
        yield cross


class _DenseViews:
    """sum x y^T for some columns of y, and the sums of x and of these columns: one pass over the rows."""

    def __init__(self, rows: Rows, d_x: int) -> None:
        self._rows, self._d_x = rows, d_x

    def times(self, columns: slice) -> tuple[Matrix, Matrix, Matrix]:
        n_columns = columns.stop - columns.start
        cross, sums_x, sums_y = np.zeros((self._d_x, n_columns)), np.zeros(self._d_x), np.zeros(n_columns)
        for _, block in self._rows.clipped_blocks(0):
            x, y = block[:, : self._d_x], block[:, self._d_x :][:, columns]
            cross += x.T @ y
            sums_x += x.sum(axis=0)
            sums_y += y.sum(axis=0)
        return cross, sums_x, sums_y


class _SparseViews:
    """The same from a sparse copy of the clipped rows."""

    def __init__(self, rows: Rows, d_x: int) -> None:
        from scipy import sparse

        products = RowProducts(rows, None, 0)
        data, indices, indptr, d = products.arrays()
        values = np.repeat(products.factors, np.diff(indptr)) * data / rows.bound
        clipped = sparse.csc_array(sparse.csr_array((values, indices, indptr), shape=(rows.n, d)))
        self._x, self._y = clipped[:, :d_x], clipped[:, d_x:]

    def times(self, columns: slice) -> tuple[Matrix, Matrix, Matrix]:
        y = self._y[:, columns]
        return (self._x.T @ y).toarray(), np.asarray(self._x.sum(axis=0)), np.asarray(y.sum(axis=0))
