"""Sums over people in floating point: for products with vectors, for solutions without noise, and for screens.

Clipping a row multiplies it by a factor, so that (1/n) sum_i (f_i x_i)(f_i x_i)^T v needs the factors and one pass over
the rows, but no clipped copy and no d x d matrix. Rows that are not in memory are read anew for every product. Sparse
rows are never filled in, and no matrix of all pairs of features is formed where it would be large, but for that of all
moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import slices, thread_count
from dpgep.data.rows import (
    Accumulate,
    Batch,
    NotFiniteError,
    Rows,
    Sums,
    add_products,
    block_height,
    clipped_blocks,
    group_counts,
    kernel_form,
    moment_blocks,
    plain_blocks,
)
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout

# A row of the bound's norm is multiplied by 1 less some rounding.
_CLIPPED = 1 - 1e-9
# Products between two views are formed for at most this many pairs of features at a time.
_BLOCK_PAIRS = 1 << 24
# Terms of a compensated sum are fewer (docs/mathematics.md, section 12).
_MOST_TERMS = 1 << 32
# Rows whose products are added one after the other.
ROWS_IN_A_ROW = 1 << 16


class RowProducts:
    """Rows in a form that the kernels read, and the factor f_i <= 1 that brings each to the bound.

    Arrays of float32 and float64 with contiguous rows, and CSR matrices, are used where they lie; others are converted
    once. ``factors`` (n,) are rounded so that the exact norm of f_i x_i is at most the bound.
    """

    def __init__(self, rows: Rows) -> None:
        self._views = kernel_form(rows.views)
        self.n, self._d = rows.n, rows.d
        self.factors = np.empty(rows.n)
        self._is_sparse = not isinstance(self._views[0], np.ndarray)
        if self._is_sparse:
            data, _, indptr, _ = self.arrays()
            if not core.clip_factors_csr(data, indptr, rows.bound, self.factors):
                raise NotFiniteError
            return
        for people, block in plain_blocks(Rows(self._views, rows.bound), rows.n, fixed_point=False):
            if not core.clip_factors(block, rows.bound, self.factors[people]):
                raise NotFiniteError

    def second_moment(self, scale: float) -> core.DenseRows | core.CsrRows:
        """The matrix scale sum_i (f_i x_i)(f_i x_i)^T, known through its products."""
        if not self._is_sparse:
            return core.DenseRows(self._views, self.factors, scale, thread_count())
        data, indices, indptr, d = self.arrays()
        return core.CsrRows(data, indices, indptr, d, self.factors, scale, thread_count())

    def arrays(self) -> tuple[Any, ...]:
        """The rows as the kernels read them: the arrays of the views, or (data, indices, indptr, d) of sparse rows."""
        first = self._views[0]
        return (first.data, first.indices, first.indptr, self._d) if self._is_sparse else self._views

    def group_sums(self, groups: NDArray[np.intp] | None, n_groups: int) -> Matrix:
        """(d, n_groups), sum of f_i x_i over the people of each group."""
        sums = np.zeros((self._d, n_groups))
        if self._is_sparse:
            # all rows at once: nothing of them is copied, and a block of rows would cost a pass over the sums
            data, indices, indptr, _ = self.arrays()
            core.csr_group_sums(data, indices, indptr, self.factors, groups, sums, thread_count())
            return sums
        for block in slices(self.n, block_height(self.n, self._d)):
            marks = np.zeros((block.stop - block.start, n_groups))
            marks[np.arange(len(marks)), 0 if groups is None else groups[block]] = self.factors[block]
            column = 0
            for view in self._views:
                width = view.shape[1]
                sums[column : column + width] += view[block].T @ marks
                column += width
        return sums


class CompensatedSum:
    """An array summed term by term; what rounding loses of each sum is summed beside it (Knuth 1998, 4.2.2).

    The bounds on its error hold for fewer than 2^32 terms: beyond that it raises OverflowError.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._sum, self._lost = np.zeros(shape), np.zeros(shape)
        self._n_terms = 0

    @property
    def total(self) -> Matrix:
        return np.asarray(self._sum + self._lost)

    def add(self, term: Matrix, n_terms: int = 1) -> None:
        self._n_terms += n_terms
        if self._n_terms >= _MOST_TERMS:
            raise OverflowError("too many terms, 2^32 or more, for the bound on their rounding: read larger batches")
        total = self._sum + term
        of_term = total - self._sum
        self._lost += (self._sum - (total - of_term)) + (term - of_term)
        self._sum = total

    def __iadd__(self, other: CompensatedSum) -> CompensatedSum:
        self.add(other._sum, max(1, other._n_terms))
        self._lost += other._lost
        return self

    def __rmul__(self, times: int) -> CompensatedSum:
        """The sum this many times over, with one rounding more."""
        product = CompensatedSum(self._sum.shape)
        product._sum, product._lost = times * self._sum, times * self._lost
        product._n_terms = self._n_terms
        return product


class ProductSums(Sums):
    """The second moment of clipped rows times the rows of ``block`` (K, d), summed as docs/exactness.md says."""

    parts = ("sum",)

    def __init__(self, block: Matrix) -> None:
        # what Dask hands to a worker may begin at any byte
        self._block = np.require(block, requirements=("C_CONTIGUOUS", "ALIGNED"))
        self.sum = CompensatedSum(block.shape)

    def add(self, batch: Batch) -> None:
        self.sum.add(RowProducts(batch.rows).second_moment(1.0).times(self._block))


class StreamedProducts:
    """The same for people who are not in memory, or have several rows: a pass by ``accumulate`` for every product."""

    def __init__(self, accumulate: Accumulate, d: int, weight_bits: int = 0) -> None:
        self._accumulate, self._d, self._weight_bits = accumulate, d, weight_bits

    def second_moment(self, scale: float) -> core.CallbackProducts:
        """The matrix scale sum_i (f_i x_i)(f_i x_i)^T, known through its products."""
        scale = float(np.ldexp(scale, -self._weight_bits))

        def times(block: Matrix) -> Matrix:
            return np.asarray(scale * self._accumulate(partial(ProductSums, block)).sum.total)

        return core.CallbackProducts(times, self._d)


class FloatSums(Sums):
    """Upper triangle (row-major) of the sum over people of z z^T, z = [x; e(group)], x scaled to the unit ball.

    By group, a stack of those over the people of each, z = [x; 1]. ``n_clipped`` of the ``n`` people had rows beyond
    the bound.
    """

    parts = ("n", "n_clipped", "total")

    def __init__(self, layout: MomentLayout) -> None:
        self._layout = layout
        self.n = 0
        self.n_clipped = 0
        self.total: Matrix = np.zeros(layout.shape)

    def add(self, batch: Batch) -> None:
        if self._layout.by_group:
            for part, total in zip(batch.of_groups(self._layout.n_groups), self.total, strict=True):
                self._add(part, 1, total)
        else:
            self._add(batch, self._layout.n_groups, self.total)
        self.n += batch.n

    def _add(self, batch: Batch, n_groups: int, total: Matrix) -> None:
        for people, block in moment_blocks(batch, n_groups):
            add_products([(people, block)], total)
            factors = RowProducts(batch.rows.part(people)).factors
            self.n_clipped += int(np.count_nonzero(factors < _CLIPPED))


class GroupSums(Sums):
    """The sums of `GridSums` in floating point, for solutions and screens without noise: ``sums`` are of clipped rows,
    not divided by the bound, ``squares`` (d,) of rows in the unit ball.
    """

    counts: NDArray[Any]

    parts = ("n", "counts", "sums", "squares")

    def __init__(self, layout: MomentLayout, *, with_squares: bool = False) -> None:
        d = layout.n_features
        self.n = 0
        self.counts = np.zeros(layout.n_groups, dtype=np.int64)
        self.sums = np.zeros((d, layout.n_groups if layout.sums else 0))
        self.squares = np.zeros(d if with_squares else 0)

    def add(self, batch: Batch) -> None:
        rows = RowProducts(batch.rows)
        self.n += batch.n
        self.counts += group_counts(batch.n, batch.groups, len(self.counts))
        if self.sums.size:
            self.sums += rows.group_sums(batch.groups, self.sums.shape[1])
        if not self.squares.size:
            return
        if batch.rows.is_sparse:
            data, indices, indptr, d = rows.arrays()
            total = np.empty(d)
            core.csr_squares(data, indices, indptr, rows.factors, total, thread_count())
            self.squares += total / batch.rows.bound**2
        else:
            self.squares += sum(np.einsum("ij,ij->j", block, block) for _, block in clipped_blocks(batch.rows))

    def of_people(self, weight_bits: int) -> GroupSums:
        """The same, in which a person had the weight 2^``weight_bits``, divided by it."""
        self.n >>= weight_bits
        parts = self.counts, self.sums, self.squares
        self.counts, self.sums, self.squares = (np.ldexp(part, -weight_bits) for part in parts)
        return self


class CrossSums(Sums):
    """sum x y^T for the first features x, ``before`` in number, and some later ``columns`` y, and the sums of both."""

    parts = ("_n", "_cross", "_of_x", "_of_y")

    def __init__(self, before: int, columns: slice) -> None:
        self._before, self._columns = before, columns
        width = columns.stop - columns.start
        self._n = 0
        self._cross, self._of_x, self._of_y = map(CompensatedSum, ((before, width), (before,), (width,)))

    def add(self, batch: Batch) -> None:
        self._n += batch.n
        if not batch.rows.is_sparse:
            for _, block in clipped_blocks(batch.rows, most_rows=ROWS_IN_A_ROW):
                self._add(block)
            return
        for people in slices(batch.n, ROWS_IN_A_ROW):
            self._add(_sparse_clipped(batch.rows.part(people)))

    def squares(self, *, centred: bool) -> Matrix:
        """Entries of sum (x - m_x)(y - m_y)^T, m = 0 if not ``centred``, squared."""
        cross = self._cross.total
        if centred:
            cross -= np.outer(self._of_x.total, self._of_y.total) / max(self._n, 1)
        return cross * cross

    def _add(self, rows: Any) -> None:
        x, y = rows[:, : self._before], rows[:, self._columns]
        product = x.T @ y
        self._cross.add(product if isinstance(product, np.ndarray) else product.toarray())
        self._of_x.add(np.asarray(x.sum(axis=0)))
        self._of_y.add(np.asarray(y.sum(axis=0)))


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


def _sparse_clipped(rows: Rows) -> Any:
    """The clipped rows in the unit ball as a sparse matrix whose columns can be taken."""
    from scipy import sparse

    products = RowProducts(rows)
    data, indices, indptr, d = products.arrays()
    values = np.repeat(products.factors, np.diff(indptr)) * data / rows.bound
    return sparse.csc_array(sparse.csr_array((values, indices, indptr), shape=(rows.n, d)))
