"""Rows of people: accepted array forms, and blocks of rows clipped to the unit ball, in float64 or in fixed point.

A matrix is never copied as a whole: a block of rows at a time is converted, clipped and handed on in buffers that are
used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.sources.columns import Columns, is_plain, row_dtype, side_by_side

# A block that stays in the second-level cache until it is multiplied saves a fifth of the time where rows are short
# (measured at 100 columns). Long rows need some hundred of them, as many as the sums that they are added to are read
# for; more bytes than the last are taken by a single row alone.
_CACHED_BYTES, _FEWEST_ROWS, _MOST_BYTES = 1 << 20, 512, 1 << 23
# Rows from which on columns are worth looking each of them up.
_FEWEST_OF_A_TABLE = 128
# Entries of sparse rows that are looked at together.
_BLOCK_ENTRIES = 1 << 20


class NotFiniteError(ValueError):
    """Rows hold a NaN or an infinity. The message does not depend on which."""

    def __init__(self) -> None:
        super().__init__(
            "the data contain NaN or infinite values: impute or drop them first; nothing was released and no budget "
            "was spent"
        )

    def __reduce__(self) -> tuple[type[NotFiniteError], tuple[()]]:
        """How to pickle it: made without arguments, unlike what BaseException expects."""
        return NotFiniteError, ()


@dataclass(frozen=True, eq=False)
class Rows:
    """The views of n people, side by side: row i of every view belongs to person i.

    The row (x_1, x_2, ...) of all views is clipped jointly: it is divided by ``bound`` and shrunk to the unit ball.
    """

    views: tuple[Any, ...]  # arrays, SciPy's CSR, or `Columns` of a source
    bound: float

    @property
    def n(self) -> int:
        return int(self.views[0].shape[0])

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(int(view.shape[1]) for view in self.views)

    @property
    def d(self) -> int:
        return sum(self.widths)

    @property
    def is_sparse(self) -> bool:
        """Whether a view is a SciPy sparse matrix."""
        return not all(isinstance(view, (np.ndarray, Columns)) for view in self.views)

    def clipped_blocks(
        self, extra_columns: int, bits: int | None = None, most_rows: int | None = None
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield (rows, block): block[:, :d] holds the clipped rows, `extra_columns` more are the caller's to fill.

        With ``bits`` = b the rows are integers of norm at most 2^b: scaled by 2^b and rounded toward zero, the norm
        checked in integer arithmetic. The buffer behind the blocks, of at most ``most_rows`` rows, is reused; what is
        contiguous in it are rows or, of tables in fixed point, columns. Raises NotFiniteError at the first block that
        holds a NaN or an infinity.
        """
        width = self.d + extra_columns
        height = block_height(self.n, width)
        height = min(height, most_rows or height)
        whole = self.in_one_piece(height, fixed_point=bits is not None)
        buffer = np.zeros((height, width), order="F" if isinstance(whole, Columns) else "C")
        joint = self._joint_buffer(height, bits) if whole is None else buffer
        threads = thread_count()
        for start in range(0, self.n, height):
            rows = slice(start, min(start + height, self.n))
            block = buffer[: rows.stop - start]
            source = self._joined(rows, joint[: len(block)]) if whole is None else whole[rows]
            if not self._clip(source, block[:, : self.d], bits, threads):
                raise NotFiniteError
            yield rows, block

    def part(self, people: slice) -> Rows:
        """The rows of some of the people, not copied."""
        return Rows(tuple(view[people] for view in self.views), self.bound)

    def chosen(self, people: NDArray[np.bool_]) -> Rows:
        """A copy of the rows of the people who are marked."""
        views = (np.asarray(view) if isinstance(view, Columns) else view for view in self.views)
        return Rows(tuple(view[people] for view in views), self.bound)

    def restricted(self, features: NDArray[np.intp], bound: float) -> Rows:
        """A copy of some of the features (ascending indices over all views), to be clipped to a bound of its own."""
        views, first = [], 0
        for view, width in zip(self.views, self.widths, strict=True):
            inside = features[(features >= first) & (features < first + width)] - first
            views.append(view[:, inside])
            first += width
        return Rows(tuple(views), bound)

    def in_one_piece(self, height: int, *, fixed_point: bool) -> NDArray[Any] | Columns | None:
        """All views in one matrix that the kernels read as it lies; None if they have to be put together first.

        In fixed point that may be a table of columns, too, or a matrix that holds its columns one by one, if many rows
        (``height``) are read at a time.
        """
        if len(self.views) == 1 and kernel_reads(self.views[0], fixed_point):
            return self.views[0]  # type: ignore[no-any-return]
        if not fixed_point or height < _FEWEST_OF_A_TABLE:
            return None
        tables = [_as_table(view) for view in self.views]
        found = [table for table in tables if table is not None]
        return side_by_side(found) if len(found) == len(tables) else None

    def _joint_buffer(self, height: int, bits: int | None) -> NDArray[Any]:
        """Memory for blocks of all views in one matrix that the kernels read."""
        dtype = np.dtype(np.float64) if self.is_sparse else row_dtype(*(view.dtype for view in self.views))
        if bits is None and dtype == np.uint8:
            dtype = np.dtype(np.float32)
        return np.empty((height, self.d), dtype)

    def _joined(self, rows: slice, out: NDArray[Any]) -> NDArray[Any]:
        column = 0
        for view, width in zip(self.views, self.widths, strict=True):
            # a block in any dtype and memory order; a float64 overflow of a longdouble is caught as infinity
            with np.errstate(over="ignore"):
                _write(view[rows], out[:, column : column + width])
            column += width
        return out

    def _clip(self, source: Any, out: NDArray[np.float64], bits: int | None, threads: int) -> bool:
        if bits is None:
            return core.clip_rows(source, self.bound, out)
        if isinstance(source, Columns):
            return core.fixed_point_columns(*source.raw_columns(), self.bound, bits, out.T, threads)
        return core.fixed_point_rows(source, self.bound, bits, out, threads)


def _as_table(view: Any) -> Columns | None:
    """A view as columns that the kernels read as they lie, None if that cannot be."""
    if isinstance(view, Columns):
        return view if view.are_plain else None
    if isinstance(view, np.ndarray) and view.strides[0] == view.itemsize and is_plain(view):
        return Columns(list(view.T), view.shape[0])
    return None


def block_height(n: int, width: int) -> int:
    """Number of rows of ``width`` float64 values in a block."""
    row_bytes = 8 * width
    height = min(max(_CACHED_BYTES // row_bytes, _FEWEST_ROWS), _MOST_BYTES // row_bytes)
    return max(1, min(n, height))


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


def canonical_csr(matrix: Any) -> Any:
    """A CSR matrix whose rows have ascending columns, each once: the matrix itself, or a sorted and summed copy.

    Looked at, since SciPy remembers an answer from before its arrays were changed. A copy as well where the arrays
    begin between two numbers, as those may that Dask sends to a worker: kernels do not read them there.
    """
    arrays = (matrix.data, matrix.indices, matrix.indptr)
    ascends = _columns_ascend(matrix)
    if ascends and all(array.flags.aligned for array in arrays):
        return matrix
    copy = type(matrix)(tuple(array.copy() for array in arrays), shape=matrix.shape)
    if not ascends:
        copy.sum_duplicates()
    return copy


def _columns_ascend(matrix: Any) -> bool:
    indices, starts = matrix.indices, np.unique(matrix.indptr)
    for first in range(0, len(indices) - 1, _BLOCK_ENTRIES):
        part = indices[first : first + _BLOCK_ENTRIES + 1]
        ascends = part[1:] > part[:-1]
        inside = starts[np.searchsorted(starts, first + 1) : np.searchsorted(starts, first + len(part))]
        ascends[inside - first - 1] = True  # a new row begins
        if not ascends.all():
            return False
    return True


def kernel_reads(block: Any, fixed_point: bool) -> bool:
    return (
        isinstance(block, np.ndarray)
        and (block.dtype in (np.float32, np.float64) or (fixed_point and block.dtype == np.uint8))
        and block.dtype.isnative
        and block.flags.aligned
        and (block.strides[1] == block.itemsize or block.shape[1] <= 1)
        and (block.strides[0] >= block.shape[1] * block.itemsize or block.shape[0] <= 1)
    )


def as_matrix(values: Any, name: str) -> Any:
    """`values` as a 2-D array of real numbers with at least one column and any number of rows, without copying arrays.

    Integers and booleans pass (converted block by block); complex numbers, text, objects and masked matrices do not,
    and say what to do instead. SciPy's sparse matrices become CSR; blocks of their rows are filled in, never the whole.
    """
    check_not_masked(values, name)
    if isinstance(values, Columns):
        check_matrix(values, name)
        return values
    array = values.tocsr() if hasattr(values, "tocsr") else np.asarray(values)
    if array.dtype == object:
        _name_other_columns(values, name)
    check_matrix(array, name)
    return array


def check_matrix(array: Any, name: str) -> None:
    """Raise ValueError or TypeError unless an array, its values never looked at, is a matrix of real numbers."""
    if array.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, one row per person; got shape {array.shape}")
    _check_real(array, name)
    if array.shape[1] < 1:
        raise ValueError(f"{name} must have at least 1 column, got shape {array.shape}")


def as_view(values: Any, name: str, width: int) -> Any:
    """`values` as a matrix of ``width`` columns."""
    array = as_matrix(values, name)
    if array.shape[1] != width:
        raise ValueError(f"{name} must have {width} columns, got shape {array.shape}")
    return array


def as_vector(values: Any, name: str, n: int) -> NDArray[np.float64]:
    """`values` as a new float64 vector of length n."""
    check_not_masked(values, name)
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    check_vector(array, n, f"{name} must be a vector with one value per row of X")
    _check_real(array, name)
    with np.errstate(over="ignore"):  # a longdouble beyond float64
        return array.astype(np.float64)


def check_vector(array: NDArray[Any], n: int, demand: str) -> None:
    """Raise ValueError unless an array is a vector of n entries.

    What a source reads has the right number of rows, which may be secret: no message that it can lead to tells it.
    """
    if array.ndim != 1:
        columns = f", {array.shape[1]} columns" if array.ndim == 2 else ""
        raise ValueError(f"{demand}; got {array.ndim} dimensions{columns}")
    if len(array) != n:
        raise ValueError(f"{demand}, shape ({n},); got shape {array.shape}")


def check_not_masked(values: Any, name: str) -> None:
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: fill or drop the masked entries first, e.g. {name}.filled(0.0)")


def check_bound(bound: Any) -> float:
    """The public bound on row norms as a float, whose square and inverse are finite."""
    try:
        value = float(bound)
    except (TypeError, ValueError):
        raise TypeError(f"bound must be a number, got {bound!r}") from None
    if not 1e-30 <= value <= 1e30:  # eighth powers of it are computed
        raise ValueError(f"bound must be a positive finite number (between 1e-30 and 1e30), got {bound!r}")
    return value


def check_same_rows(x: NDArray[Any], y: NDArray[Any]) -> None:
    if x.shape[0] != y.shape[0]:
        raise ValueError(f"X and Y must have the same number of rows, got shapes {x.shape} and {y.shape}")


def _name_other_columns(values: Any, name: str) -> None:
    """Raise TypeError with the columns of a pandas table that hold no numbers: names and types, which are public."""
    dtypes = getattr(values, "dtypes", None)
    if dtypes is None or not hasattr(dtypes, "items"):
        return
    other = [f"{column!r} ({dtype})" for column, dtype in dtypes.items() if dtype.kind not in "fiub"]
    if other:
        shown = ", ".join(other[:8]) + ", ..." * (len(other) > 8)
        raise TypeError(f"{name} must hold real numbers, which columns {shown} do not: leave them out, or encode them")


def _check_real(array: Any, name: str) -> None:
    if array.dtype.kind == "c":
        raise TypeError(f"{name} is complex ({array.dtype}): pass real and imaginary parts as columns")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}: convert it with .astype(float)")
