"""Blocks of rows: converted, clipped to the unit ball, in float64 or in fixed point; their sums and products.

A matrix is never copied as a whole: a block of rows at a time is converted, clipped and multiplied in a buffer that is
used again. The products are SciPy's BLAS on parts of matrices in place and without the GIL, which its Python wrappers
copy and hold.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import scipy.linalg.cython_blas
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import own_threads, run, thread_count
from dpgep.data.rows import Batch, GridRows, NotFiniteError, Rows, SparseRows, Sums, block_height, canonical_csr
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout
from dpgep.sources.batches import Columns, row_dtype

# Additions below which starting threads costs more than they save.
_WORK_FOR_THREADS = 2e7
# Columns of a tile: fewer keep BLAS from its full rate. A fixed grid has tiles of about the larger width.
_LEAST_TILE, _FIXED_TILE = 96, 256
# Squares are summed in two parts below and above 2^20, each exact in float64 for fewer than 2^33 people.
HALF = 20

Integers = NDArray[np.int64]


def clipped_blocks(
    rows: Rows, extra_columns: int = 0, bits: int | None = None, most_rows: int | None = None
) -> Iterator[tuple[slice, Matrix]]:
    """Yield (people, block): block[:, :d] holds their clipped rows, `extra_columns` more are the caller's to fill.

    With ``bits`` = b the rows are integers of norm at most 2^b: scaled by 2^b and rounded toward zero, the norm checked
    in integer arithmetic. The buffer behind the blocks, of at most ``most_rows`` rows, is reused; what is contiguous in
    it are rows or, of tables in fixed point, columns. Raises NotFiniteError at the first block that holds a NaN or an
    infinity.
    """
    n, d, width = rows.n, rows.d, rows.d + extra_columns
    height = block_height(n, width)
    height = min(height, most_rows or height)
    whole = rows.in_one_piece(height, fixed_point=bits is not None)
    buffer = np.zeros((height, width), order="F" if isinstance(whole, Columns) else "C")
    joint = _joint_buffer(rows, height, bits) if whole is None else buffer
    threads = 1 if bits is None else thread_count()
    for start in range(0, n, height):
        people = slice(start, min(start + height, n))
        block = buffer[: people.stop - start]
        source = _joined(rows, people, joint[: len(block)]) if whole is None else whole[people]
        if not _clip(source, rows.bound, block[:, :d], bits, threads):
            raise NotFiniteError
        yield people, block


def require_finite(rows: Rows, bits: int) -> None:
    """Raise NotFiniteError if rows hold a NaN or an infinity."""
    for _ in clipped_blocks(rows, bits=bits):
        pass


def moment_blocks(batch: Batch, n_groups: int, bits: int | None = None) -> Iterator[tuple[slice, Matrix]]:
    """The same with a column for each group, marked for its people by 1: in fixed point by 2^bits."""
    mark = 1.0 if bits is None else float(1 << bits)
    for people, block in clipped_blocks(batch.rows, n_groups, bits):
        mark_groups(block[:, block.shape[1] - n_groups :], batch.groups, people, mark)
        yield people, block


def mark_groups(indicator: Matrix, groups: NDArray[np.intp] | None, people: slice, mark: float) -> None:
    """Write ``mark`` in the column of each row's group, zeros elsewhere; without groups, ``mark`` everywhere."""
    if groups is None:
        indicator[:] = mark
    else:
        indicator[:] = 0.0
        indicator[np.arange(len(indicator)), groups[people]] = mark


def group_counts(n: int, groups: NDArray[np.intp] | None, n_groups: int) -> NDArray[np.int64]:
    """Number of people per group; without groups, everybody is in each."""
    return np.full(n_groups, n) if groups is None else np.bincount(groups, minlength=n_groups)


class GridSums(Sums):
    """Sums over people of rows that are integers of norm at most 2^bits: the same for any batches, order and threads.

    Attributes
    ----------
    n : number of people.
    counts : (n_groups,), number of people in each group; without groups, everybody is in each.
    sums : (d, n_groups), in units of 2^-bits of the row bound; (d, 0) if the layout has none.
    """

    parts = ("n", "counts", "sums", "_squares")

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


def add_products(blocks: Iterable[tuple[slice, Matrix]], total: Matrix, *, exact: bool = False) -> None:
    """Add block^T block of each block, the first the largest, to the upper triangle of total, in place.

    The triangle is cut into tiles, so that threads need no memory of their own. If no sum is rounded (``exact``), any
    tiles will do, and fewer are faster; else the tiles depend on the shape alone. Thus the bits are the same for any
    number of threads. Where nothing can keep BLAS to one thread, the threads are BLAS's own.
    """
    d, rest = len(total), iter(blocks)
    first = next(rest, None)
    if first is None:
        return
    with own_threads(first[1].size * d >= _WORK_FOR_THREADS) as most_threads:
        for _, block in chain([first], rest):
            n_threads = most_threads if block.size * d >= _WORK_FOR_THREADS else 1
            tasks = _tiles(block, total, _exact_grid(d, n_threads) if exact else -(-d // _FIXED_TILE))
            if n_threads > 1:
                run(tasks, n_threads)
            else:
                for task in tasks:
                    task()


def _exact_grid(d: int, n_threads: int) -> int:
    """Tiles along a side: one on one thread; two on two, where one tile is as much as both others; enough on more."""
    return max(1, min(n_threads if n_threads <= 2 else 2 * n_threads, d // _LEAST_TILE))


def _tiles(block: Matrix, total: Matrix, n: int) -> list[Callable[[], None]]:
    """One task for each tile of the upper triangle, n along a side, the larger ones first."""
    columns = [slice(*pair) for pair in pairwise(len(total) * i // n for i in range(n + 1))]
    pairs = [(a, b) for i, a in enumerate(columns) for b in columns[i + 1 :]]
    return [
        *(partial(_add_product, block[:, a], block[:, b], total[a, b]) for a, b in pairs),
        *(partial(add_gram, block[:, a], total[a, a]) for a in columns),
    ]


_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _routine(name: str) -> Any:
    """A routine as SciPy gives it to Cython: in a capsule named by its signature. All its arguments are pointers."""
    capsule = scipy.linalg.cython_blas.__pyx_capi__[name]
    signature = _capsule_name(capsule)
    if b" int *" not in signature:
        raise ImportError(f"SciPy's {name} takes other integers than this version of dpgep knows: {signature.decode()}")
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (signature.count(b",") + 1))
    return prototype(_capsule_pointer(capsule, signature))


_dsyrk, _dgemm = _routine("dsyrk"), _routine("dgemm")


def add_gram(rows: Matrix, total: Matrix) -> None:
    """Add rows^T rows to total, for j >= i alone. Total has contiguous rows; rows have them, or columns."""
    n, k, order = _int(rows.shape[1]), _int(rows.shape[0]), _Order(rows)
    # row-major is column-major transposed: lower for upper
    _dsyrk(
        b"L", order.as_it_lies, _at(n), _at(k), _ONE, rows.ctypes.data, order.stride,
        _ONE, total.ctypes.data, _row_stride(total),
    )  # fmt: skip


def _add_product(left: Matrix, right: Matrix, total: Matrix) -> None:
    """Add left^T right to total, which has contiguous rows; each of the others has them, or columns."""
    m, n, k = _int(right.shape[1]), _int(left.shape[1]), _int(left.shape[0])
    of_left, of_right = _Order(left), _Order(right)
    _dgemm(
        of_right.as_it_lies, of_left.transposed, _at(m), _at(n), _at(k), _ONE, right.ctypes.data,
        of_right.stride, left.ctypes.data, of_left.stride, _ONE, total.ctypes.data, _row_stride(total),
    )  # fmt: skip


class _Order:
    """How BLAS, which is column-major, is to read a matrix of rows: transposed already, or not."""

    def __init__(self, matrix: Matrix) -> None:
        by_rows = matrix.strides[1] == 8 and matrix.strides[0] >= 8 * matrix.shape[1]
        stride, contiguous = matrix.strides if by_rows else matrix.strides[::-1]
        assert contiguous == 8
        self.as_it_lies, self.transposed = (b"N", b"T") if by_rows else (b"T", b"N")
        self.stride = _at(_int(stride // 8))


def _row_stride(total: Matrix) -> Any:
    order = _Order(total)
    assert order.as_it_lies == b"N"
    return order.stride


_int, _at = ctypes.c_int, ctypes.byref
_ONE = _at(ctypes.c_double(1.0))


def _joint_buffer(rows: Rows, height: int, bits: int | None) -> NDArray[Any]:
    """Memory for blocks of all views in one matrix that the kernels read."""
    dtype = np.dtype(np.float64) if rows.is_sparse else row_dtype(*(view.dtype for view in rows.views))
    if bits is None and dtype == np.uint8:
        dtype = np.dtype(np.float32)
    return np.empty((height, rows.d), dtype)


def _joined(rows: Rows, people: slice, out: NDArray[Any]) -> NDArray[Any]:
    column = 0
    for view, width in zip(rows.views, rows.widths, strict=True):
        # a block in any dtype and memory order; a float64 overflow of a longdouble is caught as infinity
        with np.errstate(over="ignore"):
            _write(view[people], out[:, column : column + width])
        column += width
    return out


def joined_views(rows: Rows, people: slice) -> Matrix:
    """A copy of some of the rows, all views side by side, in float64."""
    return _joined(rows, people, np.empty((len(range(*people.indices(rows.n))), rows.d)))


def _clip(source: Any, bound: float, out: Matrix, bits: int | None, threads: int) -> bool:
    if bits is None:
        return core.clip_rows(source, bound, out)
    if isinstance(source, Columns):
        return core.fixed_point_columns(*source.raw_columns(), bound, bits, out.T, threads)
    return core.fixed_point_rows(source, bound, bits, out, threads)


def _write(block: Any, out: NDArray[Any]) -> None:
    """Copy a block of rows, in whatever form, into `out`."""
    if isinstance(block, np.ndarray):
        np.copyto(out, block, casting="unsafe")
        return
    if isinstance(block, Columns):
        block.write(out)
        return
    block = canonical_csr(block if block.dtype.kind == "f" else block.astype(np.float64))
    out[:] = 0.0
    out[np.repeat(np.arange(len(out)), np.diff(block.indptr)), block.indices] = block.data
