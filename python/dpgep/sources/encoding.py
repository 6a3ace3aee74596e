"""Values that are declared, by the type of a column or by the caller: categories as indicator columns, dates as days.

The list of categories is public: the type of the column declares it, or the caller. A row's indicators are a function
of that row alone; a value that is not in the list, or missing, has none.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import quoted
from dpgep.sources.kinds import is_arrow_array, is_categorical, is_instance
from dpgep.sources.names import EncodedNames, as_text, missing

# Values that a type or the caller lists: of labels, of a categorical column.
Declared = tuple[Hashable, ...]
Categories = Mapping[Hashable, Declared]

BOOLEANS: Declared = (False, True)

# How to declare the categories of a column.
DECLARE = "as pandas.CategoricalDtype or scan(..., categories={column: [...]})"
# Indicator columns are dense: beyond this many categories of a column they take more memory than sparse rows.
_MOST = 1000
_DAY_ZERO, _DAY = np.datetime64("1970-01-01"), np.timedelta64(1, "D")


def declared_values(values: Any) -> Declared | None:
    """The values that the type of a vector allows, None where it does not say.

    Categories of pandas (Dask's, where they are known) and of an Enum of polars are declared. A Categorical of polars
    and a dictionary of Arrow declare none: they collect what they meet.
    """
    if not getattr(getattr(values, "cat", None), "known", True):  # of Dask
        return None
    return declared_by(values.type if is_arrow_array(values) else getattr(values, "dtype", None))


def declared_by(kind: Any) -> Declared | None:
    """The values that a type of NumPy, pandas, polars or Arrow allows, None where it does not say."""
    if isinstance(kind, np.dtype):
        return BOOLEANS if kind.kind == "b" else None
    is_boolean = str(kind).lower() in ("bool", "boolean", "bool[pyarrow]")
    return BOOLEANS if is_boolean else declared_categories(kind) or None


def declared_categories(kind: Any) -> Declared | None:
    """The categories that a categorical type declares: () if it collects them from data. None for other types."""
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
        raise TypeError(f"column {quoted(name)} ({found}) does not hold the values that are declared: {list(values)!r}")


def require_exact_in_floats(what: str, values: Sequence[Any] | np.ndarray[Any, Any]) -> None:
    """Raise ValueError for a declared whole number that others become where one person's value is missing.

    Such a column is in floating point, where 2^53 + 1 is 2^53.
    """
    kinds = [np.asarray(value).dtype.kind if isinstance(value, (int, np.integer)) else "" for value in values]
    if any(abs(int(value)) >= 1 << 53 for value, kind in zip(values, kinds, strict=True) if kind in ("i", "u", "O")):
        raise ValueError(f"{what} that are numbers must lie within 2**53 of zero: use text for identifiers")


# Whole numbers no further apart are looked up, in a quarter of the time of a search.
_LARGEST_TABLE = 1 << 12
# The position of a value that is not in the list.
NOT_LISTED = -1
# Python's and NumPy's types of what an array of each kind holds.
_TYPES: dict[str, Any] = {
    "i": (int, np.integer), "u": (int, np.integer), "f": (float, np.floating), "U": str,
    "M": (np.datetime64, datetime.date), "m": (np.timedelta64, datetime.timedelta),
}  # fmt: skip


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
    """The same by binary search, where both hold whole numbers, floats, text or dates, without loss; else None."""
    kind = values.dtype.kind
    types = _TYPES.get(kind, ())
    if not all(isinstance(value, types) and not isinstance(value, bool) for value in declared):
        return None
    known: NDArray[Any] = np.array(declared, dtype=f"{kind}8" if kind in "mM" else None)
    if known.dtype.kind != kind:
        return None
    if kind in "mM":
        finest = np.result_type(known, values)
        known, values = known.astype(finest), values.astype(finest)
    order = np.argsort(known)
    ascending = known[order]
    if kind in "iu" and (span := int(ascending[-1]) - int(ascending[0]) + 1) <= _LARGEST_TABLE:
        table = np.full(span + 1, NOT_LISTED, dtype=np.intp)
        table[(known - ascending[0]).astype(np.intp)] = np.arange(len(known))
        # differences modulo 2^64: what lies below the first is far beyond the last, too
        away = values.astype(np.uint64) - ascending[:1].astype(np.uint64)
        return np.asarray(table[np.minimum(away, np.uint64(span), out=away)])
    places = np.searchsorted(ascending, values)
    np.minimum(places, len(known) - 1, out=places)
    return np.where(ascending[places] == values, order[places], NOT_LISTED)


@dataclass(frozen=True)
class Encoding:
    """How columns of a table become columns of a matrix: indicators of their categories, numbers of days of dates."""

    categories: Categories = field(default_factory=dict)
    dates: frozenset[Hashable] = frozenset()

    @classmethod
    def declared(cls, categories: Any, dates: Any) -> Encoding:
        """What a caller declares: {column: [category, ...]}, [column, ...]. Raises TypeError or ValueError for less."""
        categories, dates = {} if categories is None else categories, () if dates is None else dates
        if isinstance(dates, (str, bytes)) or not isinstance(dates, Sequence):
            raise TypeError(f"dates must be a list of columns, got {dates!r}")
        if not isinstance(categories, Mapping):
            raise TypeError(f'categories must be a mapping such as {{"colour": ["red", "green"]}}, got {categories!r}')
        for name, values in categories.items():
            if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
                raise TypeError(f"categories of {quoted(name)} must be a list, got {values!r}")
            if len(values) == 0:
                raise ValueError(f"categories of {quoted(name)} are empty: list at least one")
            require_exact_in_floats(f"categories of {quoted(name)}", values)
        return cls({name: tuple(map(_plain, values)) for name, values in categories.items()}, frozenset(dates))

    @cached_property
    def columns(self) -> frozenset[Hashable]:
        return self.dates.union(self.categories)

    def of(self, columns: Sequence[Hashable], types: Mapping[Hashable, Any]) -> Encoding:
        """With the categories that types declare. Raises ValueError or TypeError unless it fits the columns."""
        for name in (*self.categories, *self.dates):
            if name not in columns:
                raise missing(name, columns)
        for name in self.dates:
            if name in self.categories:
                raise ValueError(f"column {quoted(name)} is to be a date and to have categories: choose one")
            kind = types.get(name)
            if kind is not None and not is_date_type(kind):
                raise TypeError(f"column {quoted(name)} ({kind}) holds no dates: write them as 2024-03-31")
        for name, values in self.categories.items():
            require_of_type(name, types.get(name), values)
        by_type = {name: declared_categories(kind) for name, kind in types.items()}
        known = {name: declared for name, declared in by_type.items() if declared is not None}
        return Encoding({**known, **self.categories}, self.dates)

    def names(self, columns: Sequence[Hashable]) -> EncodedNames:
        texts: list[Hashable] = []
        indicators = []
        for name in columns:
            words = [f"{name}={word}" for word in self.categories.get(name, ())]
            if name in self.categories:
                indicators.append(tuple(range(len(texts), len(texts) + len(words))))
            texts += words if name in self.categories else [name]
        names = EncodedNames(as_text(texts))
        names.indicators = tuple(indicators)
        names.dates = tuple(place for place, name in enumerate(texts) if name in self.dates)
        return names

    def require_known(self, name: Hashable) -> None:
        """Raise TypeError or ValueError for a categorical column without declared categories, or with too many."""
        declared = self.categories.get(name)
        if declared == ():
            raise TypeError(f"column {quoted(name)} is categorical, but lists no categories: declare them, {DECLARE}")
        if declared is not None and len(declared) > _MOST:
            found = f"{len(declared)} categories, of at most {_MOST}"
            raise ValueError(f"column {quoted(name)} has {found}: pass a sparse matrix")


def indicators(found: NDArray[np.intp], n_categories: int) -> NDArray[np.uint8]:
    """Zeros and ones, (categories, rows): in each row one at most, at the position of its value."""
    marks = np.zeros((n_categories, len(found)), np.uint8)
    listed = np.flatnonzero(found != NOT_LISTED)
    marks[found[listed], listed] = 1
    return marks


def days(values: NDArray[Any], name: object) -> NDArray[np.float64]:
    """Days since 1970-01-01, fractions for hours; NaN where there is no date."""
    if values.dtype.kind != "M":
        raise TypeError(f"column {quoted(name)} holds no dates without a time zone: convert it to numbers")
    return np.asarray((values - _DAY_ZERO) / _DAY, dtype=np.float64)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
