"""Rows of people, in whatever arrays they lie, and the group of each; in blocks, clipped to the unit ball, multiplied.

A matrix is never copied as a whole: a block of rows at a time is converted, clipped, in float64 or in fixed point, and
multiplied in a buffer that is used again. The products are SciPy's BLAS on parts of matrices in place and without the
GIL, which its Python wrappers copy and hold.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, groupby
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import scipy.linalg.cython_blas
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import even_slices, own_threads, run, slices, thread_count
from dpgep.models.model import Matrix
from dpgep.models.preprocessing import Preprocessing
from dpgep.sources.batches import Columns, is_plain, row_dtype, side_by_side
from dpgep.sources.encoding import NOT_LISTED
from dpgep.sources.names import first_of

# Squares are summed in two parts below and above 2^20, each exact in float64 for fewer than 2^33 people.
HALF = 20

# How often each row counts.
Weights = NDArray[np.int16] | NDArray[np.int64]

# The code of who is in no group.
NO_GROUP = NOT_LISTED

# Additions below which starting threads costs more than they save.
_WORK_FOR_THREADS = 2e7
# Columns of a tile: fewer keep BLAS from its full rate. A fixed grid has tiles of about the larger width.
_LEAST_TILE, _FIXED_TILE = 96, 256
# A block that stays in the second-level cache until it is multiplied saves a fifth of the time where rows are short
# (measured at 100 columns). Long rows need some hundred of them, as many as the sums that they are added to are read
# for; more bytes than the last are taken by a single row alone.
_CACHED_BYTES, _FEWEST_ROWS, _MOST_BYTES = 1 << 20, 512, 1 << 23
# Rows from which on columns are worth looking each of them up.
_FEWEST_OF_A_TABLE = 128
# Rows of one weight that are copied at a time.
_ROWS_OF_A_WEIGHT = 1 << 14
# Rows of more weights than this are added up by the digits of their weights, of this many bits.
MOST_WEIGHTS, DIGIT_BITS = 128, 6
# Entries of rows that are copied before a kernel reads them: few enough for a cache, enough for threads.
_COPIED_ENTRIES = 1 << 19

# What to do about a NaN in a run, and in sums that are made before it.
_WIDTH = 30  # characters of names in an error
OF_A_RUN = (
    'impute or drop them, or give preprocessing=dpgep.AutoPreprocessing(missing="center"), or "pairwise" without '
    "groups; no budget was spent"
)
OF_SUMS = (
    "impute or drop them first, or map rows by the preprocessing of an earlier solution that took missing values; the "
    "sums are unchanged"
)


class NotFiniteError(ValueError):
    """Rows hold a NaN or an infinity. The message depends on the columns that do, and on nothing else of the rows."""

    def __init__(self, columns: tuple[str, ...] = (), remedy: str = OF_A_RUN) -> None:
        named = f"column{'s' * (len(columns) > 1)} {first_of(columns, _WIDTH)}" if columns else "the data"
        super().__init__(f"{named} contain{'s' * (len(columns) == 1)} NaN or infinite values: {remedy}")
        self.columns, self.remedy = columns, remedy

    def __reduce__(self) -> tuple[type[NotFiniteError], tuple[tuple[str, ...], str]]:
        """How to pickle it: BaseException expects the message as its argument."""
        return NotFiniteError, (self.columns, self.remedy)


@dataclass(frozen=True, eq=False)
class Rows:
    """The views of n people, side by side: row i of every view belongs to person i.

    The joint row of all views is divided by ``bound`` and shrunk to the unit ball. One longer than 2^500 bounds counts
    as zero, in every sum alike.
    """

    views: tuple[Any, ...]  # arrays, SciPy's CSR, or `Columns` of a source
    bound: float
    n: int = field(init=False)
    widths: tuple[int, ...] = field(init=False)  # of the views
    d: int = field(init=False)
    is_sparse: bool = field(init=False)  # whether a view is a SciPy sparse matrix

    def __post_init__(self) -> None:
        widths = tuple(int(view.shape[1]) for view in self.views)
        is_sparse = not all(isinstance(view, (np.ndarray, Columns)) for view in self.views)
        vars(self).update(n=int(self.views[0].shape[0]), widths=widths, d=sum(widths), is_sparse=is_sparse)

    def part(self, people: slice) -> Rows:
        """The rows of some of the people; of sparse views a copy, where they are not all."""
        if people == slice(0, self.n):
            return self
        return Rows(tuple(view[people] for view in self.views), self.bound)

    def taken(self, numbers: NDArray[np.intp]) -> Rows:
        """A copy of the rows of these numbers."""
        return Rows(tuple(_taken(view, numbers) for view in self.views), self.bound)

    def restricted(self, features: NDArray[np.intp], bound: float) -> Rows:
        """A copy of some of the features (ascending indices over all views), to be clipped to a bound of its own."""
        views, first = [], 0
        for view, width in zip(self.views, self.widths, strict=True):
            inside = features[(features >= first) & (features < first + width)] - first
            views.append(view[:, inside])
            first += width
        return Rows(tuple(views), bound)

    def columns(self) -> list[NDArray[Any]] | None:
        """The columns of all views, None unless they lie apart, and kernels read each as it lies."""
        tables = [view for view in self.views if isinstance(view, Columns)]
        found = [column for table in tables for column in table.vectors()]
        are_read = all(column.flags.c_contiguous and kernel_reads(column[:, None]) for column in found)
        return found if are_read and len(tables) == len(self.views) else None

    def in_one_piece(self, height: int, *, fixed_point: bool) -> NDArray[Any] | Columns | None:
        """All views in one matrix that the kernels read as it lies, None if there is none: in fixed point and of many
        rows, it may be a table of columns.
        """
        whole = _neighbours(self.views)
        if whole is not None and kernel_reads(whole, with_bytes=fixed_point):
            return whole
        if not fixed_point or height < _FEWEST_OF_A_TABLE:
            return None
        tables = [_as_table(view) for view in self.views]
        found = [table for table in tables if table is not None]
        return side_by_side(found) if len(found) == len(tables) else None


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of some people, and the group of each."""

    rows: Rows
    groups: NDArray[np.intp] | None = None  # None: all in one
    others: int = 0  # people of no group, who count as people, and contribute nothing to any sum
    weights: Weights | None = None  # how many times each row counts in every sum; None: once
    persons: NDArray[np.int64] | None = None  # whose each is, where it is asked

    @classmethod
    def of_codes(cls, rows: Rows, codes: NDArray[np.intp] | None, weights: Weights | None = None) -> Batch:
        """People with the code of each one's group, `NO_GROUP` for none; without codes, all are in one."""
        batch = cls(rows, codes, weights=weights)
        if codes is None or (codes != NO_GROUP).all():
            return batch
        found = batch.taken(np.flatnonzero(codes != NO_GROUP))
        return replace(found, others=batch.n - found.n)

    @property
    def n(self) -> int:
        """Number of people, who may have no row here: the sum of the weights."""
        n_rows = self.rows.n if self.weights is None else int(self.weights.sum(dtype=np.int64))
        return n_rows + self.others

    def part(self, people: slice) -> Batch:
        """Some of the rows."""
        return self._with(self.rows.part(people), people)

    def taken(self, numbers: NDArray[np.intp]) -> Batch:
        """A copy of the rows of these numbers."""
        return self._with(self.rows.taken(numbers), numbers)

    def _with(self, rows: Rows, which: Any) -> Batch:
        groups, weights = (None if each is None else each[which] for each in (self.groups, self.weights))
        return Batch(rows, groups, weights=weights)

    def of_groups(self, n_groups: int) -> Iterator[Batch]:
        """The people of each group."""
        assert self.groups is not None
        for group in range(n_groups):
            yield replace(self.taken(np.flatnonzero(self.groups == group)), groups=None)

    def restricted(self, features: NDArray[np.intp], bound: float) -> Batch:
        """The same people with some of the features, rows clipped to a bound of their own."""
        return Batch(self.rows.restricted(features, bound), self.groups, self.others, self.weights)

    def by_weight(self) -> Iterator[tuple[int, Batch]]:
        """(weight, a copy of some of the rows that have it), ascending; of many weights, parts that add up to them."""
        weights = self.weights
        assert weights is not None
        digits = [(0, weights)]
        if len(weights) and len(np.unique(weights)) > MOST_WEIGHTS:
            shifts = range(0, int(weights.max()).bit_length(), DIGIT_BITS)
            digits = [(shift, (weights >> shift & (1 << DIGIT_BITS) - 1).astype(np.int16)) for shift in shifts]
        for shift, values in digits:
            order = np.argsort(values, kind="stable")  # by counting: of 16 bits
            found, begins = np.unique(values[order], return_index=True)
            for value, which in zip(found.tolist(), np.split(order, begins[1:]), strict=False):
                if not value and shift:  # all rows are looked at once, also those of no weight
                    continue
                for some in slices(len(which), _ROWS_OF_A_WEIGHT):
                    yield value << shift, replace(self.taken(which[some]), weights=None)


class Sums(ABC):
    """A sum over people that is made of sums over batches: the attributes of the names ``parts``."""

    parts: ClassVar[tuple[str, ...]]

    @abstractmethod
    def add(self, batch: Batch) -> None:
        """Add the people of a batch. Raises ValueError if their rows hold a NaN or an infinity."""

    def weighs(self, rows: Rows) -> bool:
        """Whether `add` heeds weights of 16 bits of these rows; else they come by `add_weighted`."""
        return False

    def add_mapped(self, batch: Batch, preprocessing: Preprocessing) -> bool:
        """Add people, their columns mapped by the kernel that reads them; False if there is none: nothing was added."""
        return False

    def merge(self: S, other: S, times: int = 1) -> None:
        """Add the sums over other people, as if each of them were there so many ``times``."""
        for name in self.parts:
            total, term = getattr(self, name), getattr(other, name)
            total += term if times == 1 else times * term
            setattr(self, name, total)


S = TypeVar("S", bound=Sums)


def add_weighted(total: S, make: Callable[[], S], batch: Batch) -> None:
    """Add a batch to ``total``, which ``make`` began: weight by weight, where sums do not heed weights."""
    if batch.weights is None or (batch.weights.dtype == np.int16 and total.weighs(batch.rows)):
        total.add(batch)
        return
    for weight, parts in groupby(batch.by_weight(), lambda each: each[0]):
        sums = make()
        for _, part in parts:
            sums.add(part)
        if weight:
            total.merge(sums, weight)
    if batch.others:
        total.add(Batch(batch.rows.part(slice(0)), None if batch.groups is None else batch.groups[:0], batch.others))


class Accumulate(Protocol):
    """One pass over people: `Dataset.accumulate`."""

    def __call__(self, make: Callable[[], S]) -> S: ...


def kernel_reads(block: Any, *, with_bytes: bool = False) -> bool:
    """Whether kernels of rows read a matrix as it lies."""
    return (
        isinstance(block, np.ndarray)
        and (block.dtype.char in "fd" or (with_bytes and block.dtype.char == "B"))
        and block.dtype.isnative
        and block.flags.aligned
        and (block.strides[1] == block.itemsize or block.shape[1] <= 1)
        and (block.strides[0] >= block.shape[1] * block.itemsize or block.shape[0] <= 1)
    )


def _neighbours(views: tuple[Any, ...]) -> NDArray[Any] | None:
    """The matrix that views are parts of, where each begins in every row where the one before it ends."""
    first = views[0]
    if not isinstance(first, np.ndarray) or len(views) == 1:
        return first if isinstance(first, np.ndarray) else None
    end, width = _address(first), 0
    for view in views:
        similar = isinstance(view, np.ndarray) and view.dtype == first.dtype and view.strides == first.strides
        if not similar or view.strides[1] != view.itemsize or _address(view) != end:
            return None
        width += view.shape[1]
        end += view.shape[1] * view.itemsize
    if len(first) < 2 or first.strides[0] < width * first.itemsize:
        return None  # of one row, arrays that have nothing to do with each other may be neighbours
    return np.lib.stride_tricks.as_strided(first, (len(first), width), writeable=False)


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _taken(view: Any, numbers: NDArray[np.intp]) -> Any:
    if isinstance(view, np.ndarray):
        return view.take(numbers, axis=0)
    return view.taken(numbers) if isinstance(view, Columns) else view[numbers]


def _as_table(view: Any) -> Columns | None:
    """A view as columns that the kernels read as they lie, None if that cannot be."""
    if isinstance(view, Columns):
        return view if view.are_plain else None
    if isinstance(view, np.ndarray) and view.strides[0] == view.itemsize and is_plain(view):
        return Columns(list(view.T), view.shape[0])
    return None


def canonical_csr(matrix: Any) -> Any:
    """A CSR matrix whose rows have ascending columns, each once: the matrix itself, or a sorted and summed copy.
    Raises ValueError where the ends of rows fall.

    Looked at: SciPy remembers an answer from before its arrays were changed. Dask's may begin between two numbers.
    """
    arrays = (matrix.data, matrix.indices, ends := matrix.indptr)
    if (ends[1:] < ends[:-1]).any():  # SciPy would read, and write, beyond the arrays
        raise ValueError(f"indptr must rise from 0 to the number of entries, {len(matrix.data)}")
    is_aligned = all(array.flags.aligned for array in arrays)
    looked_at = type(matrix)(arrays, shape=matrix.shape, copy=not is_aligned)
    if _rises_in_rows(looked_at.indices, looked_at.indptr):  # it has no entries beyond its rows, as the matrix may
        return matrix if is_aligned and len(matrix.data) == len(looked_at.data) else looked_at
    summed = looked_at.copy()
    summed.sum_duplicates()
    return summed


def _rises_in_rows(indices: NDArray[Any], ends: NDArray[Any]) -> bool:
    """Whether indices fall or stay nowhere but where rows begin: SciPy goes row by row, in four times the time."""
    falls = indices[1:] <= indices[:-1]
    starts = ends[np.searchsorted(ends, 0, "right") : np.searchsorted(ends, len(indices))]
    falls[starts - 1] = False
    return not falls.any()


def kernel_form(views: tuple[Any, ...]) -> tuple[Any, ...]:
    """The views as the kernels read them, or, where one is sparse, all in one CSR matrix in canonical format."""
    views = tuple(np.asarray(view) if isinstance(view, Columns) else view for view in views)
    if all(isinstance(view, np.ndarray) for view in views):
        return tuple(view if kernel_reads(view) else _converted(view) for view in views)
    from scipy import sparse

    joint = views[0] if len(views) == 1 else sparse.hstack([sparse.csr_array(view) for view in views], format="csr")
    if joint.dtype not in (np.float32, np.float64):
        joint = joint.astype(np.float64)
    return (canonical_csr(joint),)


def _converted(view: NDArray[Any]) -> Matrix:
    dtype = row_dtype(view.dtype, np.dtype(np.float32))
    with np.errstate(over="ignore"):  # a longdouble beyond float64 is caught as infinity
        return np.require(view, dtype, ("C_CONTIGUOUS", "ALIGNED"))


def block_height(n: int, width: int) -> int:
    """Number of rows of ``width`` float64 values in a block."""
    row_bytes = 8 * width
    height = min(max(_CACHED_BYTES // row_bytes, _FEWEST_ROWS), _MOST_BYTES // row_bytes)
    return max(1, min(n, height))


def clipped_blocks(
    rows: Rows,
    extra_columns: int = 0,
    bits: int | None = None,
    most_rows: int | None = None,
    n_threads: int | None = None,
) -> Iterator[tuple[slice, Matrix]]:
    """Yield (people, block): block[:, :d] holds their clipped rows, `extra_columns` more are the caller's to fill.

    With ``bits`` = b the rows are integers of norm at most 2^b: scaled by 2^b and rounded toward zero, the norm checked
    in integer arithmetic. The buffer behind the blocks is reused; what is contiguous in it are rows or, of tables in
    fixed point, columns.
    """
    n, d, width = rows.n, rows.d, rows.d + extra_columns
    height = block_height(n, width)
    height = min(height, most_rows or height)
    whole = rows.in_one_piece(height, fixed_point=bits is not None)
    buffer = np.zeros((height, width), order="F" if isinstance(whole, Columns) else "C")
    joint = _joint_buffer(rows, height, fixed_point=bits is not None) if whole is None else buffer
    threads = 1 if bits is None else n_threads or thread_count()
    for people in slices(n, height):
        block = buffer[: people.stop - people.start]
        source = _joined(rows, people, joint[: len(block)]) if whole is None else whole[people]
        if not _clip(source, rows.bound, block[:, :d], bits, threads):
            raise NotFiniteError
        yield people, block


def plain_blocks(rows: Rows, most_rows: int, *, fixed_point: bool) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (people, block), their rows as the kernels read them: where they lie, or copied to a buffer, fewer."""
    whole = rows.in_one_piece(1, fixed_point=fixed_point)
    if isinstance(whole, np.ndarray):
        yield from ((people, whole[people]) for people in slices(rows.n, max(1, most_rows)))
        return
    most = _COPIED_ENTRIES // rows.d if fixed_point else block_height(rows.n, rows.d)
    height = max(1, min(most_rows, rows.n, most))
    joint = _joint_buffer(rows, height, fixed_point=fixed_point)
    for people in slices(rows.n, height):
        yield people, _joined(rows, people, joint[: people.stop - people.start])


def moment_blocks(
    batch: Batch, n_groups: int, bits: int | None = None, n_threads: int | None = None
) -> Iterator[tuple[slice, Matrix]]:
    """The same with a column for each group, marked for its people by 1: in fixed point by 2^bits."""
    mark = 1.0 if bits is None else float(1 << bits)
    for people, block in clipped_blocks(batch.rows, n_groups, bits, n_threads=n_threads):
        mark_groups(block[:, block.shape[1] - n_groups :], batch.groups, people, mark)
        yield people, block


def mark_groups(indicator: Matrix, groups: NDArray[np.intp] | None, people: slice, mark: float) -> None:
    """Write ``mark`` in the column of each row's group, zeros elsewhere; without groups, ``mark`` everywhere."""
    if groups is None:
        indicator[:] = mark
    else:
        indicator[:] = 0.0
        indicator[np.arange(len(indicator)), groups[people]] = mark


def add_on_grid(batch: Batch, bits: int, sums: NDArray[np.int64], squares: NDArray[np.int64]) -> None:
    """Add rows in fixed point to ``sums``, (d, groups), and squares of entries to (2, d): of 2^HALF and of 1."""
    for people, block in clipped_blocks(batch.rows, 0, bits):
        if sums.size:
            marks = np.empty((len(block), sums.shape[1]))
            mark_groups(marks, batch.groups, people, 1.0)
            sums += (block.T @ marks).astype(np.int64)
        if squares.size:
            low = block * block
            high = np.floor(np.ldexp(low, -HALF))
            low -= np.ldexp(high, HALF)
            squares += np.stack([high.sum(axis=0), low.sum(axis=0)]).astype(np.int64)


def group_counts(n: int, groups: NDArray[np.intp] | None, n_groups: int) -> NDArray[np.int64]:
    """Number of people per group; without groups, everybody is in each."""
    return np.full(n_groups, n) if groups is None else np.bincount(groups, minlength=n_groups)


def add_products(
    blocks: Iterable[tuple[slice, Matrix]], total: Matrix, *, exact: bool = False, n_threads: int | None = None
) -> None:
    """Add block^T block of each block, the first the largest, to the upper triangle of total, in place.

    The triangle is cut into tiles, so that threads need no memory of their own. If no sum is rounded (``exact``), any
    tiles will do, and fewer are faster; else they depend on the shape alone: the bits are the same for any number of
    threads. ``n_threads`` is given by who keeps BLAS to one already.
    """
    d, rest = len(total), iter(blocks)
    first = next(rest, None)
    if first is None:
        return
    with own_threads() if n_threads is None else nullcontext(n_threads) as most_threads:
        for _, block in chain([first], rest):
            used = most_threads if block.size * d >= _WORK_FOR_THREADS else 1
            # along a side: two on two threads, where one tile is as much as both others; enough on more
            n_tiles = max(1, min(used if used <= 2 else 2 * used, d // _LEAST_TILE)) if exact else -(-d // _FIXED_TILE)
            if n_tiles == 1:
                add_gram(block, total)
            else:
                run(_tiles(block, total, n_tiles), used)


def _tiles(block: Matrix, total: Matrix, n: int) -> list[Callable[[], None]]:
    """One task for each tile of the upper triangle, n along a side, the larger ones first."""
    columns = even_slices(len(total), n)
    return [
        *(partial(_add_product, block[:, a], block[:, b], total[a, b]) for a, b in combinations(columns, 2)),
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


def _joint_buffer(rows: Rows, height: int, *, fixed_point: bool) -> NDArray[Any]:
    """Memory for blocks of all views in one matrix that the kernels read."""
    dtype = np.dtype(np.float64) if rows.is_sparse else row_dtype(*(view.dtype for view in rows.views))
    if not fixed_point and dtype == np.uint8:
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
