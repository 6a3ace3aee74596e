"""Rows on their way: columns that lie apart, parts of a selection, and the batches that are made of them.

A part is a dense matrix, a vector, a CSR matrix, the `Columns` of a table, or its `Text`; `Assembler` makes arrays of
them. It may lie in memory of the user's that changes when the next piece is asked for: what is needed longer must be
copied.
"""

from __future__ import annotations

import math
import os
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Hashable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import scipy  # its sparse matrices are loaded when they are used
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._memory import spare_memory
from dpgep._threads import even_slices, run, slices, thread_count

# Rows that NumPy turns from columns at a time: few enough for their cache lines to stay in the second-level cache while
# neighbouring columns fill them, enough to hide the cost of a call.
_STRIP = 4096
# Entries from which on starting a thread is worth its while.
_LARGE = 1 << 19


class Columns:
    """A matrix whose columns lie apart in memory, of any real dtypes, and of one when it is read."""

    ndim = 2

    def __init__(self, columns: Sequence[NDArray[Any]], n_rows: int) -> None:
        if any(getattr(column, "shape", None) != (n_rows,) for column in columns):
            raise ValueError("the columns of a table must be vectors of the same length")
        self._first = 0
        self._keep(columns, n_rows)

    def _keep(self, columns: Sequence[NDArray[Any]], n_rows: int) -> None:
        self._columns = list(columns)
        #: whether kernels read the columns as they lie
        self.are_plain = all(is_plain(column) and column.flags.c_contiguous for column in self._columns)
        self.shape, dtypes = (n_rows, len(self._columns)), {column.dtype for column in self._columns}
        self.dtype = row_dtype(*dtypes)
        # what the kernel makes of them without rounding; nothing where it does not know them
        known = dtypes in ({np.dtype(np.float32)}, {np.dtype(np.float64)})
        self._kernel_writes = {*dtypes, np.dtype(np.float64)} if self.are_plain and known else set()

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def __getitem__(self, key: slice | tuple[slice, NDArray[np.intp]]) -> Columns:
        """Some rows that follow each other, all of their columns or the numbered ones."""
        rows, chosen = key if isinstance(key, tuple) else (key, None)
        start, stop, step = rows.indices(self.shape[0])
        if step != 1:
            raise IndexError("rows must be selected with step 1")
        part = copy(self)
        if chosen is not None:
            part._keep([self._columns[j] for j in chosen], self.shape[0])
        part._first = self._first + start
        part.shape = (max(0, stop - start), part.shape[1])
        return part

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        """The matrix in one piece, always a copy."""
        out = np.empty(self.shape, self.dtype)
        self.write(out)
        return out if dtype is None else out.astype(dtype)

    def taken(self, numbers: NDArray[np.intp]) -> Columns:
        return Columns([column[self._rows].take(numbers) for column in self._columns], len(numbers))

    def copy(self) -> Columns:
        """The same matrix in memory of its own."""
        return Columns([column[self._rows].copy() for column in self._columns], self.shape[0])

    def write(self, out: NDArray[Any]) -> None:
        """Copy the matrix into ``out``, of the same shape and row-contiguous, of a dtype that holds the columns'."""
        n_threads = thread_count() if out.size >= _LARGE else 1
        if out.dtype in self._kernel_writes:
            core.gather_rows(self._columns, self._first, out, n_threads)
            return
        run([partial(self._write_strip, out, strip) for strip in slices(self.shape[0], _STRIP)], n_threads)

    def vectors(self) -> list[NDArray[Any]]:
        return [column[self._rows] for column in self._columns]

    def raw_columns(self) -> tuple[list[NDArray[Any]], int]:
        """The columns, and at which of their entries the rows begin."""
        return self._columns, self._first

    @property
    def _rows(self) -> slice:
        return slice(self._first, self._first + self.shape[0])

    def _write_strip(self, out: NDArray[Any], strip: slice) -> None:
        # a long double beyond float64 becomes an infinity, which is refused later
        with np.errstate(over="ignore"):
            for target, column in zip(out[strip].T, self._columns, strict=True):
                target[...] = column[self._rows][strip]


def side_by_side(tables: Sequence[Columns]) -> Columns:
    return Columns([column for table in tables for column in table.vectors()], tables[0].shape[0])


def is_plain(array: NDArray[Any]) -> bool:
    """Whether kernels of columns read such numbers as they lie. Booleans are none: their byte may be any."""
    kind = array.dtype
    known = kind.kind in "iu" or (kind.kind == "f" and kind.itemsize in (4, 8))
    return known and kind.isnative and array.flags.aligned


def row_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of rows that hold all of these: uint8, else float32 if that is exact, else float64, to which integers
    beyond 2^53 and long doubles are rounded.
    """
    if all(dtype == np.uint8 or dtype == np.bool_ for dtype in dtypes):
        return np.dtype(np.uint8)
    return np.dtype(np.float32 if np.result_type(np.float32, *dtypes) == np.float32 else np.float64)


T = TypeVar("T")

Part = Any  # NDArray | Columns | SciPy CSR; all have shape, copy(), and rows by slicing

_CACHE_LINE = 64
# Strides that are multiples of this send all rows of a column to few sets of the cache: three times slower at 4096.
_BAD_STRIDE = 512


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """A vector of these values as they are, where NumPy would make of some what others are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def nbytes(part: Part) -> int:
    if scipy.sparse.issparse(part):
        return int(part.data.nbytes + part.indices.nbytes + part.indptr.nbytes)
    if len(part.shape) == 1:
        return int(part.nbytes)
    return int(part.shape[0] * part.shape[1] * row_dtype(part.dtype).itemsize)


class Assembler:
    """Makes one array of the parts of a batch; a dense matrix lies in memory that the next batch uses again. With
    ``apart``, the columns of a table are left where they lie, if they are the only part, and text is as Arrow holds it.
    """

    def __init__(self, apart: bool = False) -> None:
        self._apart = apart
        self._memory = np.empty(0, np.uint8)

    def __call__(self, parts: Sequence[Part]) -> Any:
        if any(scipy.sparse.issparse(part) for part in parts):
            if len(parts) == 1:
                return parts[0]
            dense = (Assembler()([part]) if isinstance(part, Columns) else part for part in parts)
            return scipy.sparse.vstack([scipy.sparse.csr_array(part) for part in dense], format="csr")
        if len(parts[0].shape) == 1:
            return _joined(parts if self._apart else list(map(np.asarray, parts)))
        if len(parts) == 1 and (_is_assembled(parts[0]) or (self._apart and isinstance(parts[0], Columns))):
            return parts[0]
        rows = sum(part.shape[0] for part in parts)
        out = self._matrix(rows, parts[0].shape[1], row_dtype(*(part.dtype for part in parts)))
        start = 0
        for part in parts:
            target = out[start : start + part.shape[0]]
            if isinstance(part, Columns):
                part.write(target)
            else:
                with np.errstate(over="ignore"):  # as in Columns
                    np.copyto(target, part, casting="unsafe")
            start += part.shape[0]
        return out

    def _matrix(self, rows: int, columns: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """A matrix with contiguous rows, a cache line apart where their length would be a bad stride."""
        stride = columns * dtype.itemsize
        if stride % _BAD_STRIDE == 0:
            stride += _CACHE_LINE
        if len(self._memory) < rows * stride:
            self._memory = np.empty(rows * stride, np.uint8)
        padded = self._memory[: rows * stride].view(dtype).reshape(rows, stride // dtype.itemsize)
        return padded[:, :columns]


def _is_assembled(part: Part) -> bool:
    """Whether a part is like the array that would be made of it."""
    is_array = isinstance(part, np.ndarray) and part.dtype == row_dtype(part.dtype) and part.flags.aligned
    return is_array and part.strides[1] == part.itemsize


def _joined(parts: Sequence[Any]) -> Any:
    """Vectors end to end; text and numbers stay what they are, where NumPy would write the numbers out."""
    if len(parts) == 1:
        return parts[0]
    if all(hasattr(part, "followed_by") for part in parts):
        return parts[0].followed_by(parts[1:])
    kinds = {part.dtype.kind for part in parts}
    if len(kinds) > 1 and not kinds <= set("fiub"):
        return np.concatenate([np.asarray(part, object) for part in parts])
    return np.concatenate(parts)


# pyarrow decodes smaller batches more slowly (measured), and larger ones hardly faster.
BATCH_BYTES = 1 << 24

Pieces = tuple[Part, ...]  # one part of each selection, all with the same rows


def rebatch(pieces: Iterable[Pieces], batch_rows: int | None) -> Iterator[list[Pieces]]:
    """Lists of pieces that make up a batch each: long pieces are cut evenly, short ones collected; order stays.

    A batch has at most ``batch_rows`` rows, or about BATCH_BYTES bytes, and is not filled to the brim: that would copy
    every row of a source whose pieces are a little larger or smaller. A piece that is kept while the next is asked for
    is copied: iterables may fill the same memory again, and people would then count more than once.
    """
    pending: list[Pieces] = []
    filled = 0.0
    for piece in pieces:
        rows = piece[0].shape[0]
        if rows == 0:
            continue
        size = rows / batch_rows if batch_rows else sum(map(nbytes, piece)) / BATCH_BYTES
        if pending and filled + size > 1.0:
            yield pending
            pending, filled = [], 0.0
        if size <= 0.5 or (pending and size <= 1.0):
            pending.append(tuple(part.copy() for part in piece))
            filled += size
            continue
        for part_rows in even_slices(rows, min(rows, math.ceil(size))):
            yield [tuple(part[part_rows] for part in piece)]
    if pending:
        yield pending


def rows_at_a_time(row_bytes: int, batch_rows: int | None) -> int:
    """How many rows to read at a time from a source whose rows take ``row_bytes``."""
    return batch_rows or max(1, BATCH_BYTES // max(1, row_bytes))


# Rows that a run keeps for its later passes take at most this part of the memory that was left before it.
_KEPT_SHARE = 1 / 4
# Of a vector of Python's objects, eight times what the array of them takes; and of any vector, the objects around it.
_OBJECT, _VECTOR = 8, 1 << 10


class Kept(dict[Hashable, "list[Pieces] | None"]):
    """What was read of each key, None where it was too much; all of it takes at most ``limit`` bytes."""

    limit: int


def kept(store: Kept, key: Hashable, pieces: Iterable[Pieces], n_rows: int | None) -> Iterator[Pieces]:
    """The pieces, in memory that nobody else writes to; from the second pass of a key on, those in ``store``, if all
    that is there has room. Of ``n_rows`` rows, where that is known, none are kept if all have no room.
    """
    if key in store:
        yield from store[key] or pieces
        return
    found: list[Pieces] | None = []
    others = sum(_memory(part) for each in store.values() for piece in each or () for part in piece)
    size = rows = looked_at = 0
    room = 0.0
    try:
        for piece in pieces:
            size += sum(map(_memory, piece))
            rows += piece[0].shape[0]
            if found is not None:
                found.append(piece)
                if size >= looked_at:  # from time to time: other runs take memory too
                    looked_at = size + BATCH_BYTES
                    room = min(store.limit, _KEPT_SHARE * (others + size + spare_memory()))
                if others + max(size, size * (n_rows or 0) / max(rows, 1)) > room:
                    found = None
            yield piece
        store[key] = found
    finally:
        found = None  # the traceback of an error leads here


def _memory(part: Part) -> int:
    is_objects = isinstance(part, np.ndarray) and part.dtype == object
    n_vectors = part.shape[1] if isinstance(part, Columns) else 1
    return nbytes(part) * (_OBJECT if is_objects else 1) + n_vectors * _VECTOR


def read_ahead(items: Iterator[T], number: int = 2) -> Iterator[T]:
    """The items, each fetched in a thread while the ``number`` before it are in use, or wait for that.

    Ctrl-C may come anywhere here. So the threads share a lock and queues of C alone: a lock that Python takes, as
    executors and events do, stays locked if the interrupt comes between taking it and the block that lets it go.
    """
    asked: SimpleQueue[bool] = SimpleQueue()
    found: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    running, getpid, is_finalizing = allocate_lock(), os.getpid, sys.is_finalizing
    process, is_wanted = getpid(), True

    def fetch() -> None:
        try:
            while asked.get() and is_wanted:
                found.put((next(items), None))
        except BaseException as error:  # at the end, StopIteration
            found.put((None, error))
        finally:
            running.release()

    running.acquire()
    start_new_thread(fetch, ())
    try:
        for _ in range(number):
            asked.put(True)
        while True:
            item, error = found.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            asked.put(True)
            yield item
    finally:
        error, is_wanted = None, False  # the traceback of an error leads here
        asked.put(False)
        # where the interpreter ends, and after a fork, the thread runs no more
        if getpid() == process and not is_finalizing():
            running.acquire()
