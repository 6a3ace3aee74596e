"""Products with the second moment of clipped rows, the rows left where and as they are.

Clipping a row multiplies it by a factor, so that (1/n) sum_i (f_i x_i)(f_i x_i)^T v needs the factors and one pass over
the rows, but no clipped copy and no d x d matrix. Rows that are not in memory are read anew for every product.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.blocks import block_height
from dpgep.data.rows import Accumulate, Batch, NotFiniteError, Rows, canonical_csr, kernel_reads
from dpgep.models.model import Matrix
from dpgep.sources.batches import Columns, row_dtype


class RowProducts:
    """Rows in a form that the kernels read, and the factor f_i <= 1 that brings each to the bound.

    Arrays of float32 and float64 with contiguous rows, and CSR matrices, are used where they lie; other dtypes and
    memory orders are converted once (small integers to float32, which holds them exactly).

    Attributes
    ----------
    n : number of people.
    factors : (n,), rounded so that the exact norm of f_i x_i is at most the bound.
    """

    def __init__(self, rows: Rows) -> None:
        self._views = kernel_form(rows.views)
        self.n, self._d = rows.n, rows.d
        self.factors = np.empty(rows.n)
        first = self._views[0]
        if not isinstance(first, np.ndarray):
            if not core.clip_factors_csr(first.data, first.indptr, rows.bound, self.factors):
                raise NotFiniteError
            return
        for block in self._blocks():
            if not core.clip_factors(self._joint(block), rows.bound, self.factors[block]):
                raise NotFiniteError

    def second_moment(self, scale: float) -> core.DenseRows | core.CsrRows:
        """The matrix scale sum_i (f_i x_i)(f_i x_i)^T, known through its products."""
        first = self._views[0]
        if isinstance(first, np.ndarray):
            return core.DenseRows(self._views, self.factors, scale, thread_count())
        data, indices, indptr = first.data, first.indices, first.indptr
        return core.CsrRows(data, indices, indptr, self._d, self.factors, scale, thread_count())

    def arrays(self) -> tuple[Any, ...]:
        """The rows as the kernels read them: the arrays of the views, or (data, indices, indptr, d) of sparse rows."""
        first = self._views[0]
        if isinstance(first, np.ndarray):
            return self._views
        return first.data, first.indices, first.indptr, self._d

    def group_sums(self, groups: NDArray[np.intp] | None, n_groups: int) -> Matrix:
        """(d, n_groups), sum of f_i x_i over the people of each group."""
        sums = np.zeros((self._d, n_groups))
        first = self._views[0]
        if not isinstance(first, np.ndarray):
            # all rows at once: nothing of them is copied, and a block of rows would cost a pass over the sums
            arrays = (first.data, first.indices, first.indptr)
            core.csr_group_sums(*arrays, self.factors, groups, sums, thread_count())
            return sums
        for block in self._blocks():
            marks = np.zeros((block.stop - block.start, n_groups))
            marks[np.arange(len(marks)), 0 if groups is None else groups[block]] = self.factors[block]
            column = 0
            for view in self._views:
                width = view.shape[1]
                sums[column : column + width] += view[block].T @ marks
                column += width
        return sums

    def _blocks(self) -> Iterator[slice]:
        height = block_height(self.n, self._d)
        for start in range(0, self.n, height):
            yield slice(start, min(start + height, self.n))

    def _joint(self, block: slice) -> NDArray[Any]:
        views = [view[block] for view in self._views]
        return views[0] if len(views) == 1 else np.concatenate(views, axis=1, dtype=np.float64)


class CompensatedSum:
    """An array summed term by term; what rounding loses of each sum is summed beside it (Knuth 1998, 4.2.2)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._sum, self._lost = np.zeros(shape), np.zeros(shape)

    @property
    def total(self) -> Matrix:
        return np.asarray(self._sum + self._lost)

    def add(self, term: Matrix) -> None:
        total = self._sum + term
        of_term = total - self._sum
        self._lost += (self._sum - (total - of_term)) + (term - of_term)
        self._sum = total

    def merge(self, other: CompensatedSum) -> None:
        self.add(other._sum)
        self._lost += other._lost


class ProductSums:
    """A sum over people: the second moment of their clipped rows times the rows of ``block`` (K, d).

    Batches may be many and small; the error of the whole is that of a batch (docs/exactness.md).
    """

    def __init__(self, block: Matrix) -> None:
        # what Dask hands to a worker may begin at any byte
        self._block = np.require(block, requirements=("C_CONTIGUOUS", "ALIGNED"))
        self._sum = CompensatedSum(block.shape)

    @property
    def product(self) -> Matrix:
        return self._sum.total

    def add(self, batch: Batch) -> None:
        self._sum.add(RowProducts(batch.rows).second_moment(1.0).times(self._block))

    def merge(self, other: ProductSums) -> None:
        self._sum.merge(other._sum)


class StreamedProducts:
    """The same for people who are not in memory: one pass for every product.

    ``accumulate`` makes one pass (`Dataset.accumulate`).
    """

    def __init__(self, accumulate: Accumulate, d: int) -> None:
        self._accumulate, self._d = accumulate, d

    def second_moment(self, scale: float) -> core.CallbackProducts:
        """The matrix scale sum_i (f_i x_i)(f_i x_i)^T, known through its products."""

        def times(block: Matrix) -> Matrix:
            return np.asarray(scale * self._accumulate(partial(ProductSums, block)).product)

        return core.CallbackProducts(times, self._d)


def group_counts(n: int, groups: NDArray[np.intp] | None, n_groups: int) -> NDArray[np.int64]:
    """Number of people per group; without groups, everybody is in each."""
    return np.full(n_groups, n) if groups is None else np.bincount(groups, minlength=n_groups)


def kernel_form(views: tuple[Any, ...]) -> tuple[Any, ...]:
    """The views as the kernels read them, or, where one is sparse, all in one CSR matrix in canonical format."""
    views = tuple(np.asarray(view) if isinstance(view, Columns) else view for view in views)
    if all(isinstance(view, np.ndarray) for view in views):
        return tuple(view if kernel_reads(view, fixed_point=False) else _converted(view) for view in views)
    from scipy import sparse

    joint = views[0] if len(views) == 1 else sparse.hstack([sparse.csr_array(view) for view in views], format="csr")
    if joint.dtype not in (np.float32, np.float64):
        joint = joint.astype(np.float64)
    return (canonical_csr(joint),)


def _converted(view: NDArray[Any]) -> Matrix:
    dtype = row_dtype(view.dtype, np.dtype(np.float32))
    with np.errstate(over="ignore"):  # a longdouble beyond float64 is caught as infinity
        return np.require(view, dtype, ("C_CONTIGUOUS", "ALIGNED"))
