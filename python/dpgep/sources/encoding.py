"""Values that are declared, by the type of a column or by the caller: categories as indicator columns, dates as days.

The list of categories is public: the type of the column declares it, or the caller. A row's indicators are a function
of that row alone; a value that is not in the list, or missing, has none.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.sources.batches import Columns, Pieces, side_by_side
from dpgep.sources.kinds import is_arrow_array, is_categorical, is_instance, is_polars_series
from dpgep.sources.names import Names, as_text
from dpgep.sources.source import DECLARE, Declared, Key, Source, as_names, missing


def is_pandas_boolean(dtype: Any) -> bool:
    """Whether a dtype is pandas' own of booleans, or Arrow's in pandas."""
    if is_instance(dtype, "pandas", "ArrowDtype"):
        return str(dtype.pyarrow_dtype) == "bool"
    return is_instance(dtype, "pandas", "BooleanDtype")


BOOLEANS: Declared = (False, True)


def declared_values(values: Any) -> Declared | None:
    """The values that the type of a vector allows, None where it does not say.

    Categories of pandas (Dask's, where they are known) and of an Enum of polars are taken as declared, also those that
    nobody has. A Categorical of polars and a dictionary of Arrow declare none: they collect what they meet.
    """
    if is_polars_series(values):
        return _of_polars(values.dtype)
    if is_arrow_array(values):
        return of_arrow_type(values.type)
    dtype: Any = getattr(values, "dtype", None)
    if is_categorical(dtype):
        known = getattr(getattr(values, "cat", None), "known", True)  # Dask's may not be
        return tuple(dtype.categories.tolist()) if known and dtype.categories is not None else None
    return BOOLEANS if _is_boolean(dtype) else None


def declared_categories(kind: Any) -> Declared | None:
    """The categories that a categorical type of pandas or polars declares, none if it collects them from data.

    None for other types. Arrow's dictionaries are collected.
    """
    if is_categorical(kind):
        return () if kind.categories is None else tuple(kind.categories.tolist())
    if is_instance(kind, "polars", "Enum"):
        return tuple(kind.categories)
    arrow_type = kind.pyarrow_dtype if is_instance(kind, "pandas", "ArrowDtype") else kind
    is_collected = is_instance(kind, "polars", "Categorical") or is_instance(arrow_type, "pyarrow", "DictionaryType")
    return () if is_collected else None


def is_date_type(kind: Any) -> bool:
    """Whether a type of pandas, polars or Arrow is one of dates, or of dates with times."""
    return getattr(kind, "kind", None) == "M" or str(kind).lower().startswith(("date", "timestamp"))


def of_arrow_type(kind: Any) -> Declared | None:
    """The values that an Arrow type allows by itself."""
    from pyarrow import types

    return BOOLEANS if types.is_boolean(kind) else None


def _of_polars(dtype: Any) -> Declared | None:
    import polars

    if isinstance(dtype, polars.Enum):
        return tuple(dtype.categories)
    return BOOLEANS if dtype == polars.Boolean else None


def _is_boolean(dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        return dtype.kind == "b"
    return is_pandas_boolean(dtype)


def require_of_type(name: Hashable, kind: Any, values: Sequence[Any]) -> None:
    """Raise TypeError for text among the values that are declared of a column without, or other values beside text.

    Nobody would have them. In a CSV one person's text may make a column of numbers one of text, where nobody else would
    have the numbers that are declared; to be refused is public, as types are.
    """
    found = str(kind)
    is_text = found in ("string", "large_string")
    if not is_text and not found.startswith(("bool", "int", "uint", "float", "double", "date", "timestamp")):
        return
    if any(isinstance(value, str) != is_text for value in values):
        raise TypeError(f"column {name!r} ({found}) does not hold the values that are declared: {list(values)!r}")


def require_exact_in_floats(what: str, values: Sequence[Any] | np.ndarray[Any, Any]) -> None:
    """Raise ValueError for a declared whole number that others become where one person's value is missing.

    Such a column is in floating point, where 2^53 + 1 is 2^53.
    """
    kinds = [np.asarray(value).dtype.kind if isinstance(value, (int, np.integer)) else "" for value in values]
    if any(abs(int(value)) >= 1 << 53 for value, kind in zip(values, kinds, strict=True) if kind in ("i", "u", "O")):
        raise ValueError(f"{what} that are numbers must lie within 2**53 of zero: use text for identifiers")


# The position of a value that is not in the list.
NOT_LISTED = -1


def positions(values: NDArray[Any], declared: Declared) -> NDArray[np.intp]:
    """Position of each value in the list; `NOT_LISTED` for what is not there, missing values included."""
    if values.dtype != object:
        found = _by_search(values, declared)
        if found is not None:
            return found
    index = {value: position for position, value in enumerate(declared)}
    listed = values.tolist()
    try:
        return np.fromiter((index.get(value, NOT_LISTED) for value in listed), dtype=np.intp, count=len(listed))
    except TypeError:  # a value that cannot be hashed is not in the list
        return np.fromiter((_position(value, index) for value in listed), dtype=np.intp, count=len(listed))


def _position(value: Any, index: dict[Hashable, int]) -> int:
    try:
        return index.get(value, NOT_LISTED)
    except TypeError:
        return NOT_LISTED


def _by_search(values: NDArray[Any], declared: Declared) -> NDArray[np.intp] | None:
    """The same by binary search, where values and list are whole numbers, floats, text or dates; else None."""
    comparable = _comparable(values, declared)
    if comparable is None:
        return None
    known, values = comparable
    order = np.argsort(known)
    ascending = known[order]
    places = np.searchsorted(ascending, values)
    np.minimum(places, len(known) - 1, out=places)
    return np.where(ascending[places] == values, order[places], NOT_LISTED)


def _comparable(values: NDArray[Any], declared: Declared) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The list and the values as arrays of one kind, without loss; None where they are not of one."""
    kind = values.dtype.kind
    if kind == "U" and all(isinstance(value, str) for value in declared):
        return np.asarray(declared), values
    if kind in "iuf" and not any(isinstance(value, (bool, np.bool_)) for value in declared):
        numbers = (float, np.floating) if kind == "f" else (int, np.integer)
        known = np.asarray(declared) if all(isinstance(value, numbers) for value in declared) else None
        return None if known is None or known.dtype.kind != kind else (known, values)
    if kind in "mM":
        types = (np.datetime64, datetime.date) if kind == "M" else (np.timedelta64, datetime.timedelta)
        if not all(isinstance(value, types) for value in declared):
            return None
        known = np.array(declared, dtype=f"{kind}8")
        finest = np.result_type(known, values)
        return known.astype(finest), values.astype(finest)
    return None


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
