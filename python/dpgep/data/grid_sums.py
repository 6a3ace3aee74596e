"""Exact sums over people in O(d) integers: rows on the integer grid, their sums per group and squares of features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.blocks import clipped_blocks
from dpgep.data.row_products import group_counts
from dpgep.data.rows import Batch
from dpgep.data.sparse_rows import GridRows, SparseRows
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout

Integers = NDArray[np.int64]

# Squares are summed in two parts below and above 2^20, each exact in float64 for fewer than 2^33 people.
HALF = 20


class GridSums:
    """Sums over people of rows that are integers of norm at most 2^bits: the same for any batches, order and threads.

    Attributes
    ----------
    n : number of people.
    counts : (n_groups,), number of people in each group; without groups, everybody is in each.
    sums : (d, n_groups), in units of 2^-bits of the row bound; (d, 0) if the layout has none.
    """

    def __init__(self, layout: MomentLayout, bits: int, *, with_squares: bool = False) -> None:
        d = layout.n_features
        self.bits, self.n = bits, 0
        self.counts = np.zeros(layout.n_groups, dtype=np.int64)
        self.sums = np.zeros((d, layout.n_groups if layout.sums else 0), dtype=np.int64)
        self._squares = np.zeros((2, d if with_squares else 0), dtype=np.int64)  # of 2^20, of 1

    def add(self, batch: Batch) -> None:
        self.n += batch.n
        self.counts += group_counts(batch.n, batch.groups, len(self.counts))
        if batch.rows.is_sparse:
            for part in SparseRows(batch.rows).on_grid(self.bits, batch.rows.n):
                self._add_sparse(part, batch.groups)
            return
        for people, block in clipped_blocks(batch.rows, 0, self.bits):
            self._add_block(block, None if batch.groups is None else batch.groups[people])

    def merge(self, other: GridSums) -> None:
        self.n += other.n
        self.counts += other.counts
        self.sums += other.sums
        self._squares += other._squares

    def squares(self) -> tuple[Integers, Integers]:
        """(d,) twice, high and low: the sum of squares of each feature is (high 2^20 + low) 4^-bits squared bounds."""
        return self._squares[0], self._squares[1]

    def _add_block(self, block: Matrix, groups: NDArray[np.intp] | None) -> None:
        if self.sums.size:
            marks = np.zeros((len(block), self.sums.shape[1]))
            marks[np.arange(len(block)), 0 if groups is None else groups] = 1.0
            self.sums += (block.T @ marks).astype(np.int64)
        if self._squares.size:
            squares = block * block
            high = np.floor(np.ldexp(squares, -HALF))
            squares -= np.ldexp(high, HALF)
            self._squares += np.stack([high.sum(axis=0), squares.sum(axis=0)]).astype(np.int64)

    def _add_sparse(self, part: GridRows, groups: NDArray[np.intp] | None) -> None:
        if self.sums.size:
            within = None if groups is None else np.ascontiguousarray(groups[part.rows], dtype=np.int64)
            self.sums += _entry_sums(part, part.values, within, self.sums.shape[1])
        if self._squares.size:
            squares = part.values.astype(np.int64) ** 2
            for total, entries in zip(self._squares, (squares >> HALF, squares & ((1 << HALF) - 1)), strict=True):
                total += _entry_sums(part, entries, None, 1)[:, 0]


def _entry_sums(part: GridRows, entries: NDArray[Any], groups: Integers | None, n_groups: int) -> Integers:
    """(d, n_groups), sums of integer entries, exact in float64."""
    out = np.zeros((part.d, n_groups))
    weights = np.ones(part.n)
    core.csr_group_sums(entries.astype(np.float64), part.indices, part.indptr, weights, groups, out, thread_count())
    return out.astype(np.int64)
