"""Rows of people, in whatever arrays they lie, and the group of each; sparse rows on the integer grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.models.model import Matrix
from dpgep.sources.batches import Columns, is_plain, row_dtype, side_by_side
from dpgep.sources.encoding import NOT_LISTED
from dpgep.sources.names import first_of

# The code of who is in no group.
NO_GROUP = NOT_LISTED

# A block that stays in the second-level cache until it is multiplied saves a fifth of the time where rows are short
# (measured at 100 columns). Long rows need some hundred of them, as many as the sums that they are added to are read
# for; more bytes than the last are taken by a single row alone.
_CACHED_BYTES, _FEWEST_ROWS, _MOST_BYTES = 1 << 20, 512, 1 << 23
# Rows from which on columns are worth looking each of them up.
_FEWEST_OF_A_TABLE = 128
# Entries of sparse rows that are looked at together.
_BLOCK_ENTRIES = 1 << 20
# A part has about this many entries: it is what is held in memory beside the rows, at 16 to 24 bytes each.
_ENTRIES_PER_PART = 1 << 22
# A product of two entries takes as long as this many multiplications of BLAS.
_PRODUCT_COST = 25


# What to do about a NaN in a run, and in sums that are made before it.
OF_A_RUN = (
    "impute or drop them first, or let NaN count as the location of its column, preprocessing=dpgep.AutoPreprocessing("
    'missing="center"); nothing was released and no budget was spent'
)
OF_SUMS = (
    "impute or drop them first, or map rows by the preprocessing of an earlier solution that took missing values; the "
    "sums are unchanged"
)


class NotFiniteError(ValueError):
    """Rows hold a NaN or an infinity. The message depends on the columns that do, and on nothing else of the rows."""

    def __init__(self, columns: tuple[str, ...] = (), remedy: str = OF_A_RUN) -> None:
        named = f"column{'s' * (len(columns) > 1)} {first_of(columns)}" if columns else "the data"
        super().__init__(f"{named} contain{'s' * (len(columns) == 1)} NaN or infinite values: {remedy}")
        self.columns, self.remedy = columns, remedy

    def __reduce__(self) -> tuple[type[NotFiniteError], tuple[tuple[str, ...], str]]:
        """How to pickle it: BaseException expects the message as its argument."""
        return NotFiniteError, (self.columns, self.remedy)


@dataclass(frozen=True, eq=False)
class Rows:
    """The views of n people, side by side: row i of every view belongs to person i.

    The row (x_1, x_2, ...) of all views is clipped jointly: it is divided by ``bound`` and shrunk to the unit ball. One
    longer than 2^500 bounds counts as zero, in every sum alike.
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
        if len(self.views) == 1 and _kernel_reads(self.views[0], with_bytes=fixed_point):
            return self.views[0]  # type: ignore[no-any-return]
        if not fixed_point or height < _FEWEST_OF_A_TABLE:
            return None
        tables = [_as_table(view) for view in self.views]
        found = [table for table in tables if table is not None]
        return side_by_side(found) if len(found) == len(tables) else None


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of some people, and the group of each (None: all in one).

    ``others`` are people who belong to no group: they count as people, and contribute nothing to any sum.
    """

    rows: Rows
    groups: NDArray[np.intp] | None = None
    others: int = 0

    @classmethod
    def of_codes(cls, rows: Rows, codes: NDArray[np.intp]) -> Batch:
        """People with the code of each one's group, `NO_GROUP` for none."""
        listed = codes != NO_GROUP
        n_listed = int(np.count_nonzero(listed))
        if n_listed == rows.n:
            return cls(rows, codes)
        return cls(rows.chosen(listed), codes[listed], rows.n - n_listed)

    @property
    def n(self) -> int:
        """Number of people, who may have no row here."""
        return self.rows.n + self.others

    def part(self, people: slice) -> Batch:
        """Some of the rows."""
        return Batch(self.rows.part(people), None if self.groups is None else self.groups[people])

    def restricted(self, features: NDArray[np.intp], bound: float) -> Batch:
        """The same people with some of the features, rows clipped to a bound of their own."""
        return Batch(self.rows.restricted(features, bound), self.groups, self.others)


class Sums(ABC):
    """A sum over people that is made of sums over batches: the attributes of the names ``parts``."""

    parts: ClassVar[tuple[str, ...]]

    @abstractmethod
    def add(self, batch: Batch) -> None:
        """Add the people of a batch. Raises ValueError if their rows hold a NaN or an infinity."""

    def merge(self: S, other: S) -> None:
        """Add the sums over other people."""
        for name in self.parts:
            total = getattr(self, name)
            total += getattr(other, name)
            setattr(self, name, total)


S = TypeVar("S", bound=Sums)


class Accumulate(Protocol):
    """One pass over people: `Dataset.accumulate`."""

    def __call__(self, make: Callable[[], S]) -> S: ...


def _as_table(view: Any) -> Columns | None:
    """A view as columns that the kernels read as they lie, None if that cannot be."""
    if isinstance(view, Columns):
        return view if view.are_plain else None
    if isinstance(view, np.ndarray) and view.strides[0] == view.itemsize and is_plain(view):
        return Columns(list(view.T), view.shape[0])
    return None


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


def _kernel_reads(block: Any, *, with_bytes: bool = False) -> bool:
    return (
        isinstance(block, np.ndarray)
        and (block.dtype in (np.float32, np.float64) or (with_bytes and block.dtype == np.uint8))
        and block.dtype.isnative
        and block.flags.aligned
        and (block.strides[1] == block.itemsize or block.shape[1] <= 1)
        and (block.strides[0] >= block.shape[1] * block.itemsize or block.shape[0] <= 1)
    )


def kernel_form(views: tuple[Any, ...]) -> tuple[Any, ...]:
    """The views as the kernels read them, or, where one is sparse, all in one CSR matrix in canonical format."""
    views = tuple(np.asarray(view) if isinstance(view, Columns) else view for view in views)
    if all(isinstance(view, np.ndarray) for view in views):
        return tuple(view if _kernel_reads(view) else _converted(view) for view in views)
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


@dataclass(frozen=True, eq=False)
class GridRows:
    """Some rows in fixed point, as int32 entries of a CSR matrix with ``d`` columns.

    ``rows`` says which they are.
    """

    rows: slice
    values: NDArray[np.int32]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    d: int

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def is_dense(self) -> bool:
        """Whether BLAS on filled-in blocks is faster than products of entries: both give the same sums."""
        lengths = np.diff(self.indptr).astype(np.float64)
        return bool(_PRODUCT_COST * (lengths @ lengths) > self.n * float(self.d) ** 2)

    def blocks(self, extra_columns: int, most_rows: int) -> Iterator[tuple[slice, Matrix]]:
        """Yield (rows of this part, block), filled in; ``extra_columns`` more are the caller's; one buffer."""
        height = min(block_height(self.n, self.d + extra_columns), most_rows)
        buffer = np.empty((height, self.d + extra_columns))
        for start in range(0, self.n, height):
            within = slice(start, min(start + height, self.n))
            block, first = buffer[: within.stop - start], self.indptr[start]
            entries = slice(first, self.indptr[within.stop])
            block[:, : self.d] = 0.0
            rows = np.repeat(np.arange(len(block)), np.diff(self.indptr[start : within.stop + 1]))
            block[rows, self.indices[entries]] = self.values[entries]
            yield within, block


class SparseRows:
    """Rows of people of which a view is sparse: all views side by side in CSR, a part of the rows at a time."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.n = rows.n

    def require_finite(self) -> None:
        """Raises NotFiniteError if a row holds a NaN or an infinity."""
        for part in self._parts(self.n):
            matrix = self._matrix(part)
            factors = np.empty(matrix.shape[0])
            if not core.clip_factors_csr(matrix.data, matrix.indptr, self._rows.bound, factors):
                raise NotFiniteError

    def on_grid(self, bits: int, most_rows: int) -> Iterator[GridRows]:
        """The rows scaled to the unit ball, times 2^bits, rounded toward zero; norms at most 2^bits.

        Parts have at most ``most_rows`` rows, also where there are hardly any entries.
        """
        for part in self._parts(most_rows):
            matrix = self._matrix(part)
            values = np.empty(matrix.nnz, dtype=np.int32)
            if not core.fixed_point_csr(matrix.data, matrix.indptr, self._rows.bound, bits, values, thread_count()):
                raise NotFiniteError
            yield GridRows(part, values, matrix.indices, matrix.indptr, self._rows.d)

    def _parts(self, most_rows: int) -> Iterator[slice]:
        entries = sum(view.nnz if hasattr(view, "nnz") else view.size for view in self._rows.views)
        height = max(1, min(int(self.n * _ENTRIES_PER_PART / max(entries, 1)), most_rows))
        for start in range(0, self.n, height):
            yield slice(start, min(start + height, self.n))

    def _matrix(self, part: slice) -> Any:
        whole = part == slice(0, self.n)
        return kernel_form(self._rows.views if whole else tuple(view[part] for view in self._rows.views))[0]
