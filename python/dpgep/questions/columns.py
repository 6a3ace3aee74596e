"""Columns that a question is about: by name, or by number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import did_you_mean, whole_number
from dpgep.sources.names import Names, listed

# Names or numbers of columns; None: all.
Columns: TypeAlias = Sequence[str | int] | NDArray[Any] | None


def numbers_of(columns: Columns, names: Names, n_columns: int, what: str = "columns") -> NDArray[np.intp]:
    """The numbers of columns, in their order. Raises ValueError or TypeError for unknown ones, none, or one twice."""
    if columns is None:
        return np.arange(n_columns)
    given = columns.tolist() if hasattr(columns, "tolist") else columns  # an array, an index or a series of pandas
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise TypeError(f"{what} must be a list of names or numbers of columns, got {columns!r}")
    numbers = [number_of(column, names, n_columns) for column in given]
    if not numbers:
        raise ValueError(f"{what} must have at least one column")
    twice = next((column for column, number in zip(given, numbers, strict=True) if numbers.count(number) > 1), None)
    if twice is not None:
        raise ValueError(f"{what} have {twice!r} twice")
    return np.array(numbers, dtype=np.intp)


def number_of(column: Hashable, names: Names, n_columns: int) -> int:
    """The number of one column."""
    number = (names.index(column) if names and column in names else None) if isinstance(column, str) else None
    number = whole_number(column) if number is None and not isinstance(column, str) else number
    if number is None or not 0 <= number < n_columns:
        known = f"0 to {n_columns - 1}" if names is None else listed(names)
        raise ValueError(
            f"there is no column {column!r}{did_you_mean(column, names or ())}: the released columns are {known}"
        )
    if names is not None and isinstance(column, str) and names.count(column) > 1:
        raise ValueError(f"both views have a column {column!r}: give its number")
    return number


def names_of(numbers: NDArray[np.intp], names: Names) -> Names:
    """The names of some columns."""
    return None if names is None else tuple(names[j] for j in numbers)
