"""Categorical columns as indicator columns, one for each category; dates as numbers of days.

The list of categories is public: the type of the column declares it, or the caller. A row's indicators are a function
of that row alone; a value that is not in the list, or missing, has none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.sources.columns import Columns, side_by_side
from dpgep.sources.kinds import Declared, declared_categories, is_date_type, require_exact_in_floats, require_of_type
from dpgep.sources.lookup import NOT_LISTED, positions
from dpgep.sources.names import Names, as_text
from dpgep.sources.parts import Pieces
from dpgep.sources.source import DECLARE, Key, Source, as_names, missing

Categories = Mapping[Hashable, Declared]

# Indicator columns are dense: beyond this many categories of a column they take more memory than sparse rows.
_MOST = 1000


_DAY_ZERO, _DAY = np.datetime64("1970-01-01"), np.timedelta64(1, "D")


@dataclass(frozen=True)
class Encoding:
    """What the caller declares of the columns of a table: categories, and columns of dates that are to be numbers."""

    categories: Categories = field(default_factory=dict)
    dates: frozenset[Hashable] = frozenset()


def check_dates(dates: Any) -> frozenset[Hashable]:
    """Names of columns of dates."""
    if dates is None:
        return frozenset()
    if isinstance(dates, (str, bytes)) or not isinstance(dates, Sequence):
        raise TypeError(f"dates must be a list of columns, got {dates!r}")
    return frozenset(dates)


def check_categories(categories: Any) -> Categories:
    """What a caller declares, {column: [category, ...]}. Raises TypeError or ValueError unless that is what it is."""
    if categories is None:
        return {}
    if not isinstance(categories, Mapping):
        raise TypeError(f'categories must be a mapping such as {{"colour": ["red", "green"]}}, got {categories!r}')
    for name, declared in categories.items():
        if isinstance(declared, (str, bytes)) or not isinstance(declared, (Sequence, np.ndarray)):
            raise TypeError(f"categories of {name!r} must be a list, got {declared!r}")
        if len(declared) == 0:
            raise ValueError(f"categories of {name!r} are empty: list at least one")
        require_exact_in_floats(f"categories of {name!r}", declared)
    return {name: tuple(_plain(value) for value in declared) for name, declared in categories.items()}


def encoded(source: Source, encoding: Encoding) -> Source:
    """A source whose categorical columns, and those whose categories are given, become indicators in a matrix.

    Columns of dates become numbers.
    """
    types = {name: declared_categories(kind) for name, kind in source.types.items()}
    known = {name: declared for name, declared in types.items() if declared is not None}
    for name in (*encoding.categories, *encoding.dates):
        if source.columns is None or name not in source.columns:
            raise missing(name, source.columns or ())
    for name in encoding.dates:
        if name in encoding.categories:
            raise ValueError(f"column {name!r} is to be a date and to have categories: choose one")
        kind = source.types.get(name)
        if kind is not None and not is_date_type(kind):
            raise TypeError(f"column {name!r} ({kind}) holds no dates: text is read as one if written as 2024-03-31")
    for name, values in encoding.categories.items():
        require_of_type(name, source.types.get(name), values)
    known.update(encoding.categories)
    return Encoded(source, Encoding(known, encoding.dates)) if known or encoding.dates else source


class Encoded(Source):
    """A table with indicators in the place of categorical columns, and days since 1970 in that of dates.

    As vectors, columns are what they were.
    """

    def __init__(self, source: Source, encoding: Encoding) -> None:
        self._source = source
        self._categories = encoding.categories
        self._dates = encoding.dates
        self.repeatable = source.repeatable

    @property
    def n_rows(self) -> int | None:
        return self._source.n_rows

    @property
    def columns(self) -> Sequence[Hashable]:
        return self._source.columns or ()

    @property
    def types(self) -> Mapping[Hashable, Any]:
        return self._source.types

    def width(self, key: Key) -> int | None:
        names = as_names(key, self.columns)
        if names is None:
            return self._source.width(key)
        for name in names:
            self._check(name)
        numeric = tuple(name for name in names if not self._is_encoded(name))
        if numeric:
            self._source.width(numeric)
        return len(self._names(names))

    def names(self, key: Key) -> Names:
        names = as_names(key, self.columns)
        return None if names is None else self._names(names)

    def declared(self, key: Key) -> Declared | None:
        return self._source.declared(key)

    def needed(self, keys: Sequence[Key]) -> list[Hashable]:
        return self._source.needed(keys)

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        selected = [as_names(key, self.columns) for key in keys]
        # an encoded column as a vector, another as a matrix of one column, to be put side by side
        single: list[Key] = [
            column
            for key, names in zip(keys, selected, strict=True)
            for column in ((key,) if names is None else (n if self._is_encoded(n) else (n,) for n in names))
        ]
        for piece in self._source.pieces(single, batch_rows):
            parts = iter(piece)
            yield tuple(
                next(parts) if names is None else side_by_side([self._columns(name, next(parts)) for name in names])
                for names in selected
            )

    def _columns(self, name: Hashable, part: Any) -> Columns:
        if name in self._dates:
            return Columns([days(part, name)], len(part))
        declared = self._categories.get(name)
        return part if declared is None else indicators(part, declared)

    def _is_encoded(self, name: Hashable) -> bool:
        return name in self._categories or name in self._dates

    def _names(self, columns: Sequence[Hashable]) -> tuple[str, ...]:
        declared = self._categories
        return as_text(
            each
            for name in columns
            for each in ([f"{name}={word}" for word in declared[name]] if name in declared else [name])
        )

    def _check(self, name: Hashable) -> None:
        declared = self._categories.get(name)
        if declared is None:
            return
        if not declared:
            raise TypeError(
                f"column {name!r} is categorical, but its type declares no categories, or collects them from the data, "
                f"which would reveal them: declare them, {DECLARE}"
            )
        if len(declared) > _MOST:
            raise ValueError(
                f"column {name!r} has {len(declared)} categories, of at most {_MOST}: group them, or pass a sparse "
                "matrix of indicators"
            )


def indicators(values: NDArray[Any], declared: Declared) -> Columns:
    """A column of zeros and ones for each category."""
    found = positions(values, declared)
    marks = np.zeros((len(declared), len(found)), np.uint8)
    listed = np.flatnonzero(found != NOT_LISTED)
    marks[found[listed], listed] = 1
    return Columns(list(marks), len(found))


def days(values: NDArray[Any], name: object) -> NDArray[np.float64]:
    """Days since 1970-01-01, fractions for hours; NaN where there is no date."""
    if values.dtype.kind != "M":
        raise TypeError(f"column {name!r} holds no dates without a time zone that NumPy knows: convert it to numbers")
    return np.asarray((values - _DAY_ZERO) / _DAY, dtype=np.float64)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
