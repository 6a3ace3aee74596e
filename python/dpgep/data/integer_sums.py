"""Integer sums over people: histograms of columns and of row norms, sums of columns, sums of rows on a grid.

Each entry of a row, and each norm, is counted by a function of that row alone, so that a person changes only their
own counts. Once rows were refused, the columns that hold NaN or infinite values are looked up for the message.

Clipped products (docs/mathematics.md, section 11): sum_i x_i clip(V^T (x_i - m))^T, and how long the products are, in
integers that float64 holds: the same for any batches, order and threads, whatever the order in which BLAS adds.

    x    rows on the grid of 2^-b bounds, integers of norm at most 2^b; b = BITS, less half of a weight's bits
    V    public directions on the grid of 2^-DIRECTION_BITS, so that partial sums of V^T x are below 2^53
    clip integers of norm at most 2^b, in units of 2^-b C: a function of V^T (x - m) alone, which is exact
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy  # its sparse matrices are loaded when they are used
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import even_slices, run, slices, thread_count
from dpgep.data.dataset import Dataset
from dpgep.data.float_sums import ROWS_IN_A_ROW
from dpgep.data.rows import (
    HALF,
    Batch,
    NotFiniteError,
    Rows,
    Sums,
    Weights,
    add_on_grid,
    block_height,
    group_counts,
    kernel_form,
    plain_blocks,
)
from dpgep.models.bins import FIRST_OCTAVE, LEAST_THRESHOLD, N_OCTAVES, NORM_STEPS, PRODUCT_EDGES, Interval
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout
from dpgep.models.preprocessing import ColumnMap, Preprocessing
from dpgep.models.row_model import RowModel, view_labels

# A part has about this many entries: it is what is held in memory beside the rows, at 16 to 24 bytes each.
_ENTRIES_PER_PART = 1 << 22
# A product of two entries takes as long as this many multiplications of BLAS.
_PRODUCT_COST = 13
# A column of this many rows or more is counted where it lies, as one of _ALIKE columns: the kernels read rows, and find
# what stands side by side together.
_ROWS_OF_A_COLUMN, _ALIKE = 1 << 16, 8
# Places of a column's values in its interval, -1..1, are multiples of 2^-PLACE_BITS.
PLACE_BITS = 10

_STEPS = 2.0 ** (np.arange(1, NORM_STEPS) / NORM_STEPS - 1)
# K of a row of zeros.
_OF_ZEROS = NORM_STEPS * FIRST_OCTAVE


Integers = NDArray[np.int64]
BITS, DIRECTION_BITS = 18, 30
# A sum over more people might exceed 63 bits, with noise of up to 2^59 steps: it wraps modulo 2^64, as NumPy adds.
MOST_PEOPLE = 1 << 26

# Rounding of a quotient, a root and a product leaves a norm of 2^b times this at most 2^b.
_SHRUNK = 1 - 2.0**-40


def sparse_parts(rows: Rows, most_rows: int | None = None) -> Iterator[tuple[slice, Any]]:
    """Yield (people, all their views in CSR, as the kernels read it), of rows of which a view is sparse."""
    entries = sum(view.nnz if hasattr(view, "nnz") else view.size for view in rows.views)
    height = int(rows.n * _ENTRIES_PER_PART / max(entries, 1))
    for people in slices(rows.n, max(1, height if most_rows is None else min(height, most_rows))):
        whole = people == slice(0, rows.n)
        yield people, kernel_form(rows.views if whole else tuple(view[people] for view in rows.views))[0]


def require_finite(rows: Rows) -> None:
    """Raises NotFiniteError if such rows hold a NaN or an infinity."""
    for _, matrix in sparse_parts(rows):
        if not np.isfinite(matrix.data).all():
            raise NotFiniteError


def sparse_on_grid(rows: Rows, bits: int, most_rows: int) -> Iterator[tuple[slice, Any]]:
    """The same in the unit ball, times 2^bits, rounded toward zero, as int32."""
    for people, matrix in sparse_parts(rows, most_rows):
        values = np.empty(matrix.nnz, dtype=np.int32)
        if not core.fixed_point_csr(matrix.data, matrix.indptr, rows.bound, bits, values, thread_count()):
            raise NotFiniteError
        yield people, scipy.sparse.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def are_dense(rows: Any) -> bool:
    """Whether BLAS on filled-in blocks is faster than products of entries: both give the same sums."""
    # not by a product of BLAS, whose threads would stay awake beside the kernel's for 0.1 s
    squares = np.square(np.diff(rows.indptr), dtype=np.float64)
    return bool(_PRODUCT_COST * squares.sum() > rows.shape[0] * float(rows.shape[1]) ** 2)


def filled_in(rows: Any, extra_columns: int, most_rows: int) -> Iterator[tuple[slice, Matrix]]:
    """Yield (rows, block) of a CSR matrix; ``extra_columns`` more are the caller's; the blocks share a buffer."""
    n, d = rows.shape
    height = min(block_height(n, d + extra_columns), most_rows)
    buffer = np.empty((height, d + extra_columns))
    for within in slices(n, height):
        starts = rows.indptr[within.start : within.stop + 1]
        block, entries = buffer[: len(starts) - 1], slice(starts[0], starts[-1])
        block[:, :d] = 0.0
        block[np.repeat(np.arange(len(block)), np.diff(starts)), rows.indices[entries]] = rows.data[entries]
        yield within, block


class _TableSums(Sums):
    """A sum over people of integers, all of the same shape, that a kernel adds up; ``facts`` are its arguments."""

    parts = ("counts",)
    _kernel: ClassVar[Callable[..., bool]]
    _columns: NDArray[np.intp] | None = None  # those that are counted each by itself
    _axis = 0  # that of columns in counts

    def __init__(self, shape: tuple[int, ...], *facts: Any) -> None:
        self._facts = facts
        self.counts: Integers = np.zeros(shape, dtype=np.int64)

    def add(self, batch: Batch) -> None:
        rows, n_alike = batch.rows, 0
        columns = None if batch.weights is not None or rows.n < _ROWS_OF_A_COLUMN else rows.columns()
        if self._columns is not None and columns is not None:
            n_alike = rows.n - rows.n % _ALIKE
            parts = [columns[j][:n_alike].reshape(-1, _ALIKE) for j in self._columns]
            run([partial(self._add_column, *each) for each in enumerate(parts)], thread_count())
        self._add_blocks(rows.part(slice(n_alike, rows.n)), batch.weights)

    def _add_column(self, place: int, entries: NDArray[Any]) -> None:
        """Add the entries of the column in this place of counts, as if several columns that are alike held them."""
        alike = self._alike(place)
        alike._add_block(entries, None)
        np.moveaxis(self.counts, self._axis, 0)[place] += alike.counts.sum(axis=self._axis)

    def _alike(self, place: int) -> _TableSums:
        """The same sums of _ALIKE columns like the one in this place."""
        raise NotImplementedError

    def _add_blocks(self, rows: Rows, weights: Weights | None, *mapped: ColumnMap) -> None:
        """Add rows as they lie, or block by block, each thread some of them."""
        if (whole := rows.in_one_piece(1, fixed_point=False)) is not None:
            return self._add_block(whole, weights, *mapped)
        is_long = rows.n >= _ROWS_OF_A_COLUMN and not rows.is_sparse
        parts = even_slices(rows.n, thread_count() if is_long else 1)
        shares = [self, *(copy(self) for _ in parts[1:])]

        def add(share: _TableSums, part: slice) -> None:
            share.counts = self.counts if share is self else np.zeros_like(self.counts)
            for people, block in plain_blocks(rows.part(part), rows.n, fixed_point=False):
                some = slice(part.start + people.start, part.start + people.stop)
                share._add_block(block, None if weights is None else weights[some], *mapped)

        run([partial(add, *each) for each in zip(shares, parts, strict=True)], len(parts))
        for share in shares[1:]:
            self.counts += share.counts

    def weighs(self, rows: Rows) -> bool:
        return True

    def _add_block(self, block: Any, weights: Weights | None, *mapped: ColumnMap) -> None:
        """Add the people of a matrix that the kernels read."""
        if not self._kernel(block, *self._facts, self.counts, thread_count(), weights, *mapped):
            raise NotFiniteError


class MagnitudeCounts(_TableSums):
    """(d', 2, N_OCTAVES + 1): how many entries of some columns are zero (the first bin) or positive, and negative, in
    each octave. NaN counts for nothing where it stands for ``missing`` values, here and below.
    """

    _kernel = staticmethod(core.count_magnitudes)

    def __init__(self, columns: NDArray[np.intp], *, missing: bool = False) -> None:
        super().__init__((len(columns), 2, N_OCTAVES + 1), columns, missing, FIRST_OCTAVE, N_OCTAVES)
        self._columns, self._missing = columns, missing

    def _alike(self, place: int) -> MagnitudeCounts:
        return MagnitudeCounts(np.arange(_ALIKE), missing=self._missing)


class PlaceCounts(_TableSums):
    """(d', n_bins): how many entries of columns lie in each equal part of their intervals, or beyond: at an end."""

    _kernel = staticmethod(core.count_places)

    def __init__(self, columns: NDArray[np.intp], interval: Interval, n_bins: int, *, missing: bool = False) -> None:
        super().__init__((len(columns), n_bins), columns, missing, interval.middle, interval.half)
        self._columns, self._interval, self._missing = columns, interval, missing

    def _alike(self, place: int) -> PlaceCounts:
        interval, n_bins = self._interval.repeated(place, _ALIKE), self.counts.shape[1]
        return PlaceCounts(np.arange(_ALIKE), interval, n_bins, missing=self._missing)


class ColumnSums(_TableSums):
    """(3, d): sums of the places of columns in their intervals, and of their squares, in units of 2^-10 and 2^-20; and
    how many people have a value there.
    """

    _kernel = staticmethod(core.sum_places)
    _axis = 1

    def __init__(self, interval: Interval, *, missing: bool = False) -> None:
        super().__init__((3, len(interval.middle)), missing, interval.middle, interval.half, PLACE_BITS)
        self._columns, self._interval, self._missing = np.arange(len(interval.middle)), interval, missing

    def _alike(self, place: int) -> ColumnSums:
        return ColumnSums(self._interval.repeated(place, _ALIKE), missing=self._missing)


class NormCounts(_TableSums):
    """(n_bins,): how many rows have a norm in each quarter of an octave, from k = ``first`` on, or below; or beyond."""

    _kernel = staticmethod(core.count_norms)
    _sparse_kernel: ClassVar[Callable[..., bool]] = staticmethod(core.count_norms_csr)

    def __init__(self, first: int, n_bins: int) -> None:
        super().__init__((n_bins,), _STEPS, _OF_ZEROS, first)

    def add(self, batch: Batch) -> None:
        if not batch.rows.is_sparse:
            return super().add(batch)
        for people, matrix in sparse_parts(batch.rows):
            weights = None if batch.weights is None else batch.weights[people]
            arrays = matrix.data, matrix.indptr
            if not self._sparse_kernel(*arrays, *self._facts, self.counts, thread_count(), weights):
                raise NotFiniteError

    def add_mapped(self, batch: Batch, preprocessing: Preprocessing) -> bool:
        self._add_blocks(batch.rows, batch.weights, preprocessing.of_columns)
        return True


class NotFiniteColumns(Sums):
    """Which of d columns hold an infinity or, if it does not stand for ``missing`` values, a NaN."""

    parts = ("found",)

    def __init__(self, d: int, missing: bool) -> None:
        self.found = np.zeros(d, dtype=bool)
        self._missing = missing

    def merge(self, other: NotFiniteColumns, times: int = 1) -> None:
        self.found |= other.found

    def add(self, batch: Batch) -> None:
        first = 0
        for view, width in zip(batch.rows.views, batch.rows.widths, strict=True):
            found = self.found[first : first + width]
            if hasattr(view, "tocsr"):
                found[view.indices[self._marked(view.data.astype(np.float64))]] = True
            else:
                rows = Rows((view,), batch.rows.bound)
                for _, block in plain_blocks(rows, block_height(rows.n, width), fixed_point=False):
                    found |= self._marked(block).any(axis=0)
            first += width

    def _marked(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(np.isinf(values) if self._missing else ~np.isfinite(values))


def not_finite_in(model: RowModel, dataset: Dataset, *, missing: bool) -> NotFiniteError:
    """The error about people who were refused, with the names of columns where they can be read again.

    The message depends on all people, in whatever order and parts they are read: on nobody's place among them.
    """
    if dataset.read_once:
        return NotFiniteError()
    raw = dataset.unprepared
    make = partial(NotFiniteColumns, model.n_features, missing)
    return NotFiniteError(_labels(model, raw.accumulate(make, alone=True, weight_bits=raw.weight_bits).found))


def _labels(model: RowModel, found: NDArray[np.bool_]) -> tuple[str, ...]:
    """Names of the columns in quotes, or their numbers: where there are several views, each with its view."""
    if model.feature_names is not None:
        return tuple(repr(name) for name, is_in in zip(model.feature_names, found, strict=True) if is_in)
    views = model.views
    labels = [""] if len(views) == 1 else [f" of {label}" for label in view_labels(len(views))]
    places = zip(labels, views, strict=True)
    return tuple(f"{j}{which}" for which, view in places for j in np.flatnonzero(found[view]).tolist())


class GridSums(Sums):
    """Sums over people of integer rows of norm at most 2^bits: the same for any batches, order and threads."""

    parts = ("n", "counts", "sums", "_squares")
    weight_bits = 0  # a person has the weight 2^weight_bits in counts, sums and squares

    def __init__(self, layout: MomentLayout, bits: int, *, with_squares: bool = False) -> None:
        d = layout.n_features
        self.bits, self.n = bits, 0
        self.counts = np.zeros(layout.n_groups, dtype=np.int64)  # without groups, everybody is in each
        # in units of 2^-bits of the row bound
        self.sums = np.zeros((d, layout.n_groups if layout.sums else 0), dtype=np.int64)
        self._squares = np.zeros((2, d if with_squares else 0), dtype=np.int64)  # of 2^20, of 1

    def add(self, batch: Batch) -> None:
        n = batch.n
        self.n += n
        self.counts += group_counts(n, batch.groups, len(self.counts))
        if batch.rows.is_sparse:
            for people, rows in sparse_on_grid(batch.rows, self.bits, batch.rows.n):
                self._add_sparse(rows, None if batch.groups is None else batch.groups[people])
            return
        add_on_grid(batch, self.bits, self.sums, self._squares)

    def of_people(self, weight_bits: int) -> GridSums:
        """The same, in which a person has the weight 2^``weight_bits``."""
        self.n >>= weight_bits
        self.weight_bits = weight_bits
        return self

    def squares(self) -> tuple[Integers, Integers]:
        """(d,) twice: sums of squares are (high 2^20 + low) 4^-bits squared bounds, times the weight of a person."""
        return self._squares[0], self._squares[1]

    def _add_sparse(self, rows: Any, groups: NDArray[np.intp] | None) -> None:
        if self.sums.size:
            self.sums += _entry_sums(rows, rows.data, groups, self.sums.shape[1])
        if self._squares.size:
            squares = rows.data.astype(np.int64) ** 2
            for total, entries in zip(self._squares, (squares >> HALF, squares & ((1 << HALF) - 1)), strict=True):
                total += _entry_sums(rows, entries, None, 1)[:, 0]


def _entry_sums(rows: Any, entries: NDArray[Any], groups: NDArray[np.intp] | None, n_groups: int) -> Integers:
    """(d, n_groups), sums of integer entries in the places of the rows' entries, exact in float64."""
    n, d = rows.shape
    out, groups = np.zeros((d, n_groups)), None if groups is None else np.ascontiguousarray(groups, dtype=np.int64)
    core.csr_group_sums(entries.astype(float), rows.indices, rows.indptr, np.ones(n), groups, out, thread_count())
    return out.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Directions:
    """V (K, d) and V m (K,) as integers, for rows on the grid of 2^-``bits``. All public."""

    vectors: Matrix
    offset: Matrix
    bits: int

    @classmethod
    def on_grid(cls, vectors: Matrix, location: Matrix | None, bits: int = BITS) -> Directions:
        """``location`` is m, in bounds, of norm at most 1; None for 0."""
        # row-major, as what Dask hands to a worker need not be
        integers = np.ascontiguousarray(np.rint(np.ldexp(vectors, DIRECTION_BITS)))
        if location is None:
            return cls(integers, np.zeros(len(vectors)), bits)
        return cls(integers, np.rint(np.ldexp(vectors @ location, bits + DIRECTION_BITS)), bits)

    def of_sparse(self, rows: Any) -> Matrix:
        """(h, K), V (x - m) of sparse rows on the grid: exact."""
        # few columns in row-major order: BLAS takes up to four times as long with the transpose of row-major directions
        products = np.asarray(rows @ np.ascontiguousarray(self.vectors.T))
        products -= self.offset
        return products


@dataclass(frozen=True)
class Factors:
    """Some features of a row, and the products with some directions, clipped to ``threshold`` bounds, that these are
    multiplied by. Different factors have different features.
    """

    features: slice
    directions: slice
    threshold: float

    def clipped(self, products: Matrix, bits: int) -> Matrix:
        """(h, K), these products clipped row by row, in steps of 2^-bits of the threshold: norms at most 2^bits."""
        steps, squares = _steps(products[:, self.directions], self.threshold)
        long = squares > 4.0**bits
        if long.any():
            np.sqrt(squares, out=squares, where=long)
            factors = np.ones(len(steps))
            np.divide(2.0**bits * _SHRUNK, squares, out=factors, where=long)
            steps *= factors[:, None]
            np.trunc(steps, out=steps)
        return steps


def _unit_of(threshold: float) -> float:
    return 2.0**-DIRECTION_BITS / threshold


def _steps(products: Matrix, unit: float) -> tuple[Matrix, Matrix]:
    """Products in steps of 2^-bits ``unit`` bounds, for rows on that grid, and squares of their norms.

    A product is at most 2 bounds, and a unit at least LEAST_THRESHOLD: squares are below 2^53 and their sums exact.
    """
    steps = products * _unit_of(unit)
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
        if batch.rows.is_sparse:
            for _, rows in sparse_on_grid(batch.rows, self._bits, ROWS_IN_A_ROW):
                self._add_sparse(rows.astype(np.float64))
        else:
            for _, block in plain_blocks(batch.rows, ROWS_IN_A_ROW, fixed_point=True):
                if not self._add_block(block, batch.rows.bound, thread_count()):
                    raise NotFiniteError
        self.n += batch.n

    @abstractmethod
    def _add_sparse(self, rows: Any) -> None:
        """Add sparse rows on the grid."""

    @abstractmethod
    def _add_block(self, block: NDArray[Any], bound: float, n_threads: int) -> bool:
        """Add rows that the kernels read; False if they hold a NaN or an infinity."""


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

    def _add_block(self, block: NDArray[Any], bound: float, n_threads: int) -> bool:
        vectors, offset = self._directions.vectors, self._directions.offset
        m, d = vectors.shape
        factors = []
        for each in self._factors:
            features, directions = (range(size)[part] for part, size in ((each.features, d), (each.directions, m)))
            factors.append((features.start, len(features), directions.start, _unit_of(each.threshold)))
        added = np.zeros((self.total.shape[1], d + 1), dtype=np.int64)
        if not core.add_clipped_products(block, bound, self._bits, vectors, offset, factors, added, n_threads):
            return False
        self.total[:d] += added[:, :d].T
        self.total[d:] += self._constant * added[:, d]
        return True

    def _add_sparse(self, rows: Any) -> None:
        products = self._directions.of_sparse(rows)
        for each in self._factors:
            # at most ROWS_IN_A_ROW terms of at most 4^bits
            clipped = each.clipped(products, self._bits)
            added = rows[:, each.features].T @ clipped
            self.total[each.features] += np.asarray(added).astype(np.int64)
            if self._constant:
                self.total[-1] += self._constant * clipped.sum(axis=0).astype(np.int64)


class _SumsOfProducts(_ProductSums):
    """The same of something that depends on nothing else of a person."""

    def _add_sparse(self, rows: Any) -> None:
        self._add_products(self._directions.of_sparse(rows))

    def _add_block(self, block: NDArray[Any], bound: float, n_threads: int) -> bool:
        vectors, offset = self._directions.vectors, self._directions.offset
        products = np.empty((len(block), len(vectors)))
        if not core.products_on_grid(block, bound, self._bits, vectors, offset, products, n_threads):
            return False
        self._add_products(products)
        return True

    @abstractmethod
    def _add_products(self, products: Matrix) -> None: ...


class ProductMoment(_SumsOfProducts):
    """(K, K), ``total``: sum of p p^T, p = clip(V (x - m)), in steps of 4^-bits squared thresholds; ``n`` people.

    Of two views, it is the sum of p_x p_y^T, in steps of 4^-bits times both thresholds.
    """

    def __init__(self, directions: Directions, factors: tuple[Factors, ...]) -> None:
        super().__init__(directions)
        self._by_first, self._by_last = factors[0], factors[-1]
        self.total = np.zeros((len(directions.vectors) // len(factors),) * 2, dtype=np.int64)

    def _add_products(self, products: Matrix) -> None:
        # the first view is multiplied by the products of the last one, and the last by the products of the first
        first, last = (factors.clipped(products, self._bits) for factors in (self._by_last, self._by_first))
        self.total += (first.T @ last).astype(np.int64)


class ProductNormCounts(_SumsOfProducts):
    """(bins,), ``total``: how many people have a norm |V (x - m)| below, between or beyond PRODUCT_EDGES."""

    def __init__(self, directions: Directions) -> None:
        super().__init__(directions)
        self.total = np.zeros(len(PRODUCT_EDGES) + 1, dtype=np.int64)

    def _add_products(self, products: Matrix) -> None:
        _, squares = _steps(products, LEAST_THRESHOLD)
        edges = (PRODUCT_EDGES * (2.0**self._bits / LEAST_THRESHOLD)) ** 2
        found = np.searchsorted(edges, squares, side="right")
        self.total += np.bincount(found, minlength=len(self.total))


class CellCounts(_SumsOfProducts):
    """(n_groups, G, G), ``total``: how many people of each group have V (x - m), of two directions, in each cell
    between ``edges`` (2, G - 1), in bounds; the outer cells have no end. Of a single direction, (n_groups, G).
    """

    def __init__(self, directions: Directions, edges: Matrix, n_groups: int) -> None:
        super().__init__(directions)
        self._edges = np.ldexp(edges, self._bits + DIRECTION_BITS)
        self._group, size = 0, edges.shape[1] + 1
        self.total = np.zeros((n_groups, *len(edges) * (size,)), dtype=np.int64)

    def add(self, batch: Batch) -> None:
        parts = [batch] if batch.groups is None else batch.of_groups(len(self.total))
        for self._group, part in enumerate(parts):
            super().add(part)
        self.n += batch.others if batch.groups is not None else 0

    def _add_products(self, products: Matrix) -> None:
        places = [np.searchsorted(*each, side="right") for each in zip(self._edges, products.T, strict=True)]
        of_group = self.total[self._group]
        cells = np.ravel_multi_index(places, of_group.shape)
        of_group += np.bincount(cells, minlength=of_group.size).reshape(of_group.shape)


def direction_error(n_directions: int, n_features: int) -> float:
    """Operator norm of what rounding V to its grid changes, at most."""
    return math.sqrt(n_directions * n_features) * 2.0 ** -(DIRECTION_BITS + 1)
