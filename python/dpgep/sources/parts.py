"""Parts: what one selection takes from a piece of a source, and how pieces become batches, and their parts arrays.

A part is a dense matrix, a vector, a CSR matrix, or the `Columns` of a table; `Assembler` makes arrays of them. It may
lie in memory of the user's that changes when the next piece is asked for: what is needed longer must be copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import scipy  # its sparse matrices are loaded when they are used
from numpy.typing import NDArray

from dpgep.sources.columns import Columns, row_dtype

T = TypeVar("T")

Part = Any  # NDArray | Columns | SciPy CSR; all have shape, copy(), and rows by slicing

_CACHE_LINE = 64
# Strides that are multiples of this send all rows of a column to few sets of the cache: three times slower at 4096.
_BAD_STRIDE = 512


def check_real(dtype: np.dtype[Any], what: str) -> None:
    if dtype.kind not in "fiub":
        raise TypeError(f"{what} must hold real numbers, got dtype {shown(dtype)}: convert it or leave it out")


def shown(dtype: np.dtype[Any]) -> str:
    """A dtype in a message; of text, without the length of the longest, which is somebody's."""
    return dtype.type.__name__ if dtype.kind in "US" else str(dtype)


def nbytes(part: Part) -> int:
    """Memory of the array that the part becomes."""
    if scipy.sparse.issparse(part):
        return int(part.data.nbytes + part.indices.nbytes + part.indptr.nbytes)
    if len(part.shape) == 1:
        return int(part.nbytes)
    return int(part.shape[0] * part.shape[1] * row_dtype(part.dtype).itemsize)


class Assembler:
    """Makes one array of the parts of a batch; a dense matrix lies in memory that the next batch uses again.

    With ``apart``, the columns of a table are left where they lie, if they are the only part.
    """

    def __init__(self, apart: bool = False) -> None:
        self._apart = apart
        self._memory = np.empty(0, np.uint8)

    def __call__(self, parts: Sequence[Part]) -> Any:
        if any(scipy.sparse.issparse(part) for part in parts):
            return parts[0] if len(parts) == 1 else _stacked(parts)
        if len(parts[0].shape) == 1:
            return parts[0] if len(parts) == 1 else _joined(parts)
        if len(parts) == 1 and (_is_ready(parts[0]) or (self._apart and isinstance(parts[0], Columns))):
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


# pyarrow decodes smaller batches more slowly (measured), and larger ones hardly faster.
BATCH_BYTES = 1 << 24

Pieces = tuple[Part, ...]  # one part of each selection, all with the same rows


def rebatch(pieces: Iterable[Pieces], batch_rows: int | None) -> Iterator[list[Pieces]]:
    """Lists of pieces that make up a batch each: long pieces are cut evenly, short ones collected; order stays.

    A batch has at most ``batch_rows`` rows, or about BATCH_BYTES bytes. Batches are not filled to the brim: that would
    copy every row of a source whose pieces are a little larger or smaller. There are at most three times as many as
    need be.

    A piece that is kept while the next is asked for is copied: iterables may fill the same memory again, and people
    would then count more than once. One that fills more than half of a batch is a batch, and not copied.
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
        count = min(rows, math.ceil(size))
        for k in range(count):
            part_rows = slice(k * rows // count, (k + 1) * rows // count)
            yield [tuple(part[part_rows] for part in piece)]
    if pending:
        yield pending


def rows_at_a_time(row_bytes: int, batch_rows: int | None) -> int:
    """How many rows to read at a time from a source whose rows take ``row_bytes``."""
    return batch_rows or max(1, BATCH_BYTES // max(1, row_bytes))


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The items, each fetched in a thread while the one before it is in use."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    end = object()
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, items, end)
        while (item := following.result()) is not end:
            following = reader.submit(next, items, end)
            yield item  # type: ignore[misc]
