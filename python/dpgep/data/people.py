"""Several rows to a person: ids become the weight of each row, and every sum counts each person once.

A person's weight is 2^WEIGHT_BITS, shared by their rows as evenly as whole numbers allow: of m rows each has
floor(2^WEIGHT_BITS / m), and 2^WEIGHT_BITS mod m of them one more. Who has more than 2^WEIGHT_BITS rows counts by that
many of them. Which rows have one more depends on the person's rows alone, not on their order, and favours none: they
are taken in the order of a hash of their contents. All weights of a person add up to 2^WEIGHT_BITS exactly, so that
what a person adds to a sum, over 2^WEIGHT_BITS, is a mean of what single rows would add: within their convex hull.
There a person moves no answer by more than one row would (docs/mathematics.md, section 12).

Ids stay here: a message never holds one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._threads import run, thread_count
from dpgep.data.dataset import ONE_ROW, Dataset, People
from dpgep.data.inputs import check_not_masked, fewest_rows
from dpgep.data.rows import NO_GROUP, Batch, Rows, S, block_height, joined_views
from dpgep.sources import as_vector_of_values
from dpgep.sources.kinds import is_frame, is_polars_frame, is_table
from dpgep.sources.names import missing

# Public: rows of one person differ in their weights by at most 2^-12 of the person's. The finest grid of most releases
# has 18 bits or more beside it, and sums over 2^20 people fit 64 bits in every stage.
WEIGHT_BITS = 12
_WHOLE = 1 << WEIGHT_BITS
# What row numbers are looked up in at a time: memory for a copy of so many rows.
_MOST_ROWS = 1 << 14
# Ids that are whole numbers within a range of so many times their number are counted without sorting.
_DENSE = 8

_ODD = np.uint64(0x9E3779B97F4A7C15)
Numbers = NDArray[np.int64]


class PeopleDataset(Dataset):
    """Rows in memory, of which a person has any number: all weights are in units of 2^-WEIGHT_BITS of a person.

    A sum is made of those over rows of equal weight, each multiplied by it, in whole numbers: of few weights, since
    weights above 2^(WEIGHT_BITS/2) are those of less than as many rows.
    """

    weight_bits = WEIGHT_BITS

    def __init__(self, rows: Rows, groups: NDArray[np.intp] | None, ids: Any) -> None:
        persons = numbered(ids, rows.n)
        self._rows, self._groups = rows, groups
        self._parts = list(_rows_by_weight(row_weights(persons, lambda: _row_keys(rows, groups))))
        self.people = People(int(persons.max(initial=-1)) + 1)
        self.bound, self.n_features = rows.bound, rows.d

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        self.people.passes += 1
        total = make()
        for weight, which in self._parts:
            part = make()
            for start in range(0, len(which), _MOST_ROWS):
                part.add(self._batch(which[start : start + _MOST_ROWS]))
            total.merge(part, weight)
        return total

    def _batch(self, which: NDArray[np.intp]) -> Batch:
        rows = self._rows.taken(which)
        return Batch(rows) if self._groups is None else Batch.of_codes(rows, self._groups[which])

    def in_memory(self, purpose: str) -> Batch:
        raise ValueError(ONE_ROW)


def require_enough_people(n: int | None, adjacency: Any) -> None:
    """Raise ValueError for a single person where their number is public."""
    if n is not None and n < fewest_rows(adjacency):
        raise ValueError(f"there must be at least {fewest_rows(adjacency)} people, person has {n}")


def numbered(ids: Any, n_rows: int) -> Numbers:
    """(n,), the number of each row's person, from 0 on. Raises ValueError for ids that are missing."""
    check_not_masked(ids, "person")
    values = as_vector_of_values(ids)
    values = np.asarray(values) if hasattr(values, "__array__") else _listed(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or len(values) != n_rows:
        raise ValueError("person must hold one id for each row: it has another shape, or another number of them")
    if values.dtype.kind in "mM":
        _require_all(np.isnat(values))
        values = values.view(np.int64)
    if values.dtype.kind == "f":
        _require_all(np.isnan(values))
    if values.dtype.kind in "biuf":
        return _numbered(values)
    if values.dtype.kind not in "OUST":
        raise TypeError(f"person must hold ids, whole numbers or text, got dtype {values.dtype.type.__name__}")
    return _numbered_by_lookup(values)


def row_weights(persons: Numbers, keys: Callable[[], NDArray[np.uint64]]) -> NDArray[np.int16]:
    """(n,), the weight of each row, those of a person adding up to 2^WEIGHT_BITS.

    ``keys`` are asked for only where somebody's weight is not shared evenly; rows that are alike have the same.
    """
    n_rows = np.bincount(persons)
    least, rest = (part.astype(np.int16) for part in np.divmod(_WHOLE, np.maximum(n_rows, 1)))
    weights = least[persons]
    uneven = np.flatnonzero(rest[persons])
    if len(uneven):
        whose = persons[uneven]
        shift = np.uint64(len(n_rows).bit_length())
        order = np.argsort(whose.astype(np.uint64) << (np.uint64(64) - shift) | keys()[uneven] >> shift)
        whose = whose[order]
        begins = np.flatnonzero(np.diff(whose, prepend=-1))
        place = np.arange(len(whose)) - np.repeat(begins, np.diff(begins, append=len(whose)))
        weights[uneven[order[place < rest[whose]]]] += 1
    return weights


def _rows_by_weight(weights: NDArray[np.int16]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """(weight, numbers of the rows that have it), the weights ascending; none of weight 0, which add nothing."""
    order = np.argsort(weights, kind="stable")  # by counting: of 16 bits
    found, begins = np.unique(weights[order], return_index=True)
    for weight, rows in zip(found.tolist(), np.split(order, begins[1:]), strict=True):
        if weight:
            yield weight, rows


def _row_keys(rows: Rows, groups: NDArray[np.intp] | None) -> NDArray[np.uint64]:
    """A hash of each row's values and group, the same in whatever form they lie."""
    factors = (np.arange(1, rows.d + 1, dtype=np.uint64) * _ODD) | np.uint64(1)
    keys = np.empty(rows.n, dtype=np.uint64)

    def fill(people: slice) -> None:
        block = joined_views(rows, people)
        block += 0.0  # no negative zeros
        if np.isnan(block).any():
            block[np.isnan(block)] = np.nan  # of one form
        words = block.view(np.uint64)
        words ^= words >> np.uint64(32)  # the last bits of short numbers are zeros
        np.einsum("ij,j->i", words, factors, out=keys[people])  # modulo 2^64, as all that follows

    height = block_height(max(rows.n, 1), rows.d)
    run([partial(fill, slice(start, start + height)) for start in range(0, rows.n, height)], thread_count())
    if groups is not None:
        keys += (groups - NO_GROUP).astype(np.uint64) * _ODD
    for shift in (29, 32):
        keys ^= keys >> np.uint64(shift)
        keys *= _ODD
    return keys


def _numbered(values: NDArray[Any]) -> Numbers:
    if values.dtype.kind in "biu" and len(values):
        least, largest = int(values.min()), int(values.max())
        if largest - least < _DENSE * len(values):
            places = values.astype(np.int64) - least if largest < 1 << 62 else (values - values.min()).astype(np.int64)
            there = np.zeros(largest - least + 1, dtype=bool)
            there[places] = True
            return np.asarray((np.cumsum(there) - 1)[places], dtype=np.int64)
    return np.unique(values, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _numbered_by_lookup(values: NDArray[Any]) -> Numbers:
    try:
        numbers, found = _looked_up(values)
    except TypeError:
        raise TypeError("person must hold ids that are hashable, such as whole numbers or text") from None
    types = set(map(type, found))
    if types <= {str} or types <= {bytes}:
        return numbers
    _require_all(np.array([_is_missing(each) for each in found], dtype=bool))
    if any(issubclass(kind, str) for kind in types):
        raise TypeError("person holds ids of several types, text and others: the same person may be among both")
    return numbers


def _looked_up(values: NDArray[Any]) -> tuple[Numbers, list[Any]]:
    """The number of each value, and the distinct values: by pandas, where it is there, in half of the time."""
    if (pandas := sys.modules.get("pandas")) is not None and values.dtype == object:
        numbers, distinct = pandas.factorize(values, use_na_sentinel=False)
        return numbers.astype(np.int64), list(distinct)
    found: dict[Any, int] = {}
    numbers = np.fromiter((found.setdefault(each, len(found)) for each in values.tolist()), np.int64, len(values))
    return numbers, list(found)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _require_all(is_missing: NDArray[np.bool_]) -> None:
    if is_missing.any():
        raise ValueError("person has missing ids: drop these rows, or give each of them an id that nobody else has")


def _listed(values: Any) -> NDArray[Any]:
    listed = list(values)
    if listed and all(isinstance(each, (int, np.integer)) for each in listed):
        return np.asarray(listed)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def split_off(views: Sequence[Any], person: Any) -> tuple[tuple[Any, ...], Any]:
    """The data without the column of ids, and the ids: ``person`` itself, or the column of this name.

    It may be in several of the tables, and is then that of the first. Raises TypeError for data elsewhere than in
    memory.
    """
    if person is None:
        return tuple(views), None
    if not all(
        is_table(view) or isinstance(view, (np.ndarray, list, tuple)) or hasattr(view, "tocsr") for view in views
    ):
        raise TypeError(
            "person= is for rows in memory so far, arrays and tables of pandas, polars or Arrow: read the source first"
        )
    if not isinstance(person, str):
        return tuple(views), person
    tables = [view for view in views if is_table(view) and person in _columns(view)]
    if not tables:
        known = [name for view in views if is_table(view) for name in _columns(view)]
        if known:
            raise missing(person, known, "column of ids")
        raise ValueError(f"person = {person!r} names a column, but the rows have no names: pass an id for each row")
    return tuple(_without(view, person) if is_table(view) else view for view in views), _column(tables[0], person)


def _columns(table: Any) -> list[Any]:
    return list(table.columns) if is_frame(table) or is_polars_frame(table) else list(table.schema.names)


def _column(table: Any, name: str) -> Any:
    return table[name] if is_frame(table) or is_polars_frame(table) else table.column(name)


def _without(table: Any, name: str) -> Any:
    if name not in _columns(table):
        return table
    if is_frame(table):
        return table.drop(columns=[name])
    return (
        table.drop(name) if is_polars_frame(table) else table.select([each for each in _columns(table) if each != name])
    )
