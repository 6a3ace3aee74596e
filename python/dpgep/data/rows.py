"""Rows of people, in whatever arrays they lie, and the group of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgep.sources.batches import Columns, is_plain, side_by_side
from dpgep.sources.encoding import NOT_LISTED
from dpgep.sources.names import first_of

# The code of who is in no group.
NO_GROUP = NOT_LISTED

# Rows from which on columns are worth looking each of them up.
_FEWEST_OF_A_TABLE = 128
# Entries of sparse rows that are looked at together.
_BLOCK_ENTRIES = 1 << 20


class NotFiniteError(ValueError):
    """Rows hold a NaN or an infinity. The message depends on the columns that do, and on nothing else of the rows."""

    def __init__(self, columns: tuple[str, ...] = ()) -> None:
        named = f"column{'s' * (len(columns) > 1)} {first_of(columns)}" if columns else "the data"
        super().__init__(
            f"{named} contain{'s' * (len(columns) == 1)} NaN or infinite values: impute or drop them first, or let NaN "
            'count as the location of its column, bound=dpgep.AutoPreprocessing(missing="center"); nothing was '
            "released and no budget was spent"
        )
        self.columns = columns

    def __reduce__(self) -> tuple[type[NotFiniteError], tuple[tuple[str, ...]]]:
        """How to pickle it: BaseException expects the message as its argument."""
        return NotFiniteError, (self.columns,)


@dataclass(frozen=True, eq=False)
class Rows:
    """The views of n people, side by side: row i of every view belongs to person i.

    The row (x_1, x_2, ...) of all views is clipped jointly: it is divided by ``bound`` and shrunk to the unit ball. One
    longer than 2^500 bounds counts as zero, in every sum alike.
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
    def shape(self) -> tuple[int, int]:
        return self.n, self.d

    @property
    def is_sparse(self) -> bool:
        """Whether a view is a SciPy sparse matrix."""
        return not all(isinstance(view, (np.ndarray, Columns)) for view in self.views)

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


class Sums(Protocol):
    """A sum over people that is made of sums over batches."""

    def add(self, batch: Batch) -> None:
        """Add the people of a batch. Raises ValueError if their rows hold a NaN or an infinity."""

    def merge(self: S, other: S) -> None:
        """Add the sums over other people."""


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


def kernel_reads(block: Any, fixed_point: bool) -> bool:
    return (
        isinstance(block, np.ndarray)
        and (block.dtype in (np.float32, np.float64) or (fixed_point and block.dtype == np.uint8))
        and block.dtype.isnative
        and block.flags.aligned
        and (block.strides[1] == block.itemsize or block.shape[1] <= 1)
        and (block.strides[0] >= block.shape[1] * block.itemsize or block.shape[0] <= 1)
    )
