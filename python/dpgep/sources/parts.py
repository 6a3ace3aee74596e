"""Parts: what one selection takes from a piece of a source, and how the parts of a batch become one array.

A part is a dense matrix, a vector, a CSR matrix, or the `Columns` of a table; `Assembler` makes arrays of them. It may
lie in memory of the user's that changes when the next piece is asked for: what is needed longer must be copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpgep._threads import run, thread_count

Part = Any  # NDArray | Columns | SciPy CSR; all have shape, copy(), and rows by slicing

# Rows that are turned from columns at a time: few enough for their cache lines to stay in the second-level cache while
# neighbouring columns fill them, enough to hide the cost of a call.
_STRIP = 4096
# Entries from which on starting a thread is worth its while.
_LARGE = 1 << 19
_CACHE_LINE = 64
# Strides that are multiples of this send all rows of a column to few sets of the cache: three times slower at 4096.
_BAD_STRIDE = 512


class Columns:
    """A matrix whose columns lie apart in memory, as tables hold them: (rows, number of columns), one dtype when read.

    The columns may have any real dtypes; all must be as long as the first.
    """

    def __init__(self, columns: Sequence[NDArray[Any]], n_rows: int) -> None:
        self._columns = columns
        self.shape = (n_rows, len(columns))
        self.dtype = row_dtype(*(column.dtype for column in columns))

    def __getitem__(self, rows: slice) -> Columns:
        return Columns([column[rows] for column in self._columns], len(range(self.shape[0])[rows]))

    def copy(self) -> Columns:
        """The same matrix in memory of its own."""
        return Columns([column.copy() for column in self._columns], self.shape[0])

    def write(self, out: NDArray[Any]) -> None:
        """Copy the matrix into `out`, of the same shape and row-contiguous."""
        strips = [slice(start, start + _STRIP) for start in range(0, self.shape[0], _STRIP)]
        n_threads = thread_count() if out.size >= _LARGE else 1
        run([partial(self._write_strip, out, strip) for strip in strips], n_threads)

    def _write_strip(self, out: NDArray[Any], strip: slice) -> None:
        # a long double beyond float64 becomes an infinity, which is refused later
        with np.errstate(over="ignore"):
            for target, column in zip(out[strip].T, self._columns, strict=True):
                target[...] = column[strip]


def row_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of rows that hold all of these: uint8, else float32 if that is exact, else float64.

    Exact: booleans and uint8 in uint8; float16, float32 and integers of up to 16 bits in float32; integers of 32 bits
    in float64. Integers of 64 bits beyond 2^53 and long doubles are rounded to float64.
    """
    if all(dtype == np.uint8 or dtype == np.bool_ for dtype in dtypes):
        return np.dtype(np.uint8)
    return np.dtype(np.float32 if np.result_type(np.float32, *dtypes) == np.float32 else np.float64)


def check_real(dtype: np.dtype[Any], what: str) -> None:
    if dtype.kind not in "fiub":
        raise TypeError(f"{what} must hold real numbers, got dtype {dtype}: convert it, or leave it out")


def nbytes(part: Part) -> int:
    """Memory of the array that the part becomes."""
    if scipy.sparse.issparse(part):
        return int(part.data.nbytes + part.indices.nbytes + part.indptr.nbytes)
    if len(part.shape) == 1:
        return int(part.nbytes)
    return int(part.shape[0] * part.shape[1] * row_dtype(part.dtype).itemsize)


class Assembler:
    """Makes one array of the parts of a batch; a dense matrix lies in memory that the next batch uses again."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def __call__(self, parts: Sequence[Part]) -> Any:
        if any(scipy.sparse.issparse(part) for part in parts):
            return parts[0] if len(parts) == 1 else _stacked(parts)
        if len(parts[0].shape) == 1:
            return parts[0] if len(parts) == 1 else _joined(parts)
        if len(parts) == 1 and _is_ready(parts[0]):
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


def _is_ready(part: Part) -> bool:
    """Whether the kernels read the rows as they lie."""
    return (
        isinstance(part, np.ndarray)
        and part.dtype in (np.float32, np.float64, np.uint8)
        and part.dtype.isnative
        and part.flags.aligned
        and part.strides[1] == part.itemsize
        and part.strides[0] >= part.shape[1] * part.itemsize
    )


def _stacked(parts: Sequence[Part]) -> Any:
    dense = (Assembler()([part]) if isinstance(part, Columns) else part for part in parts)
    return scipy.sparse.vstack([scipy.sparse.csr_array(part) for part in dense], format="csr")


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Vectors end to end; text and numbers stay what they are, where NumPy would write the numbers out."""
    kinds = {part.dtype.kind for part in parts}
    if len(kinds) > 1 and not kinds <= set("fiub"):
        return np.concatenate([part.astype(object) for part in parts])
    return np.concatenate(parts)
