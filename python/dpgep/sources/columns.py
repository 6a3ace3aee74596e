"""Matrices whose columns lie apart in memory, as tables hold them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import run, thread_count

# Rows that NumPy turns from columns at a time: few enough for their cache lines to stay in the second-level cache while
# neighbouring columns fill them, enough to hide the cost of a call.
_STRIP = 4096
# Entries from which on starting a thread is worth its while.
_LARGE = 1 << 19


class Columns:
    """A matrix whose columns lie apart in memory: (rows, number of columns), one dtype when read.

    The columns may have any real dtypes. Selecting rows or columns looks at no entry. Raises ValueError unless all
    columns are vectors of ``n_rows`` entries; that message has no number of rows, which may be secret.
    """

    ndim = 2

    def __init__(self, columns: Sequence[NDArray[Any]], n_rows: int) -> None:
        if any(getattr(column, "shape", None) != (n_rows,) for column in columns):
            raise ValueError("the columns of a table must be vectors of the same length")
        self._first = 0
        self._keep(columns, n_rows)

    def _keep(self, columns: Sequence[NDArray[Any]], n_rows: int) -> None:
        self._columns = list(columns)
        #: whether kernels read the columns as they lie
        self.are_plain = all(map(_lies_plainly, self._columns))
        self._kernel_writes = _kernel_writes(self._columns) if self.are_plain else ()
        self.shape = (n_rows, len(self._columns))
        self.dtype = row_dtype(*{column.dtype for column in self._columns})

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def __getitem__(self, key: slice | tuple[slice, NDArray[np.intp]]) -> Columns:
        """Some rows that follow each other, and of these all columns or those of the given numbers."""
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

    def copy(self) -> Columns:
        """The same matrix in memory of its own."""
        return Columns([column[self._rows].copy() for column in self._columns], self.shape[0])

    def write(self, out: NDArray[Any]) -> None:
        """Copy the matrix into ``out``, of the same shape and row-contiguous, of a dtype that holds the columns'."""
        n_threads = thread_count() if out.size >= _LARGE else 1
        if out.dtype in self._kernel_writes:
            core.gather_rows(self._columns, self._first, out, n_threads)
            return
        strips = [slice(start, start + _STRIP) for start in range(0, self.shape[0], _STRIP)]
        run([partial(self._write_strip, out, strip) for strip in strips], n_threads)

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
    """The columns of all of the tables, which have the same rows."""
    return Columns([column[table._rows] for table in tables for column in table._columns], tables[0].shape[0])


def _lies_plainly(column: NDArray[Any]) -> bool:
    return is_plain(column) and column.flags.c_contiguous


def is_plain(array: NDArray[Any]) -> bool:
    """Whether kernels of columns read such numbers as they lie: those of the processor, where it expects them.

    Booleans are none: whatever their byte is, they are 0 or 1.
    """
    kind = array.dtype
    known = kind.kind in "iu" or (kind.kind == "f" and kind.itemsize in (4, 8))
    return known and kind.isnative and array.flags.aligned


def _kernel_writes(columns: Sequence[NDArray[Any]]) -> tuple[type, ...]:
    """Dtypes that the kernel makes of columns, which lie plainly, without rounding; none if it does not know theirs."""
    dtypes = {column.dtype for column in columns}
    if dtypes == {np.dtype(np.float32)}:
        return np.float32, np.float64
    return (np.float64,) if dtypes == {np.dtype(np.float64)} else ()


def row_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of rows that hold all of these: uint8, else float32 if that is exact, else float64.

    Exact: booleans and uint8 in uint8; float16, float32 and integers of up to 16 bits in float32; integers of 32 bits
    in float64. Integers of 64 bits beyond 2^53 and long doubles are rounded to float64.
    """
    if all(dtype == np.uint8 or dtype == np.bool_ for dtype in dtypes):
        return np.dtype(np.uint8)
    return np.dtype(np.float32 if np.result_type(np.float32, *dtypes) == np.float32 else np.float64)
