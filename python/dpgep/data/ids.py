"""Ids of people: what users pass as ``person=``, and the number of each row's person. No message holds an id."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from hashlib import blake2b
from numbers import Integral, Number
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep.data.inputs import vector_of
from dpgep.errors import DataChangedError
from dpgep.sources import Selection, Text, is_source, scan
from dpgep.sources.batches import objects
from dpgep.sources.kinds import is_dask_frame, is_frame, is_in_arrow, is_table
from dpgep.sources.names import missing

# Ids that are whole numbers within a range of this many times their number are numbers already.
_DENSE = 8
# Text that stands for no value where files are read: nobody's id.
_ABSENT = np.array(["", "NA", "N/A", "n/a", "#N/A", "#NA", "NaN", "nan", "NULL", "null", "None", "<NA>"], object)


class Beside(NamedTuple):
    """A column that stands beside the rows, and is none of their features: its parameter, and words for messages."""

    name: str
    holds: str
    each: str

    def nameless(self, given: Any) -> str:
        return f"{self.name} = {given!r} names a column, but the rows have no names: pass {self.each} for each row"

    def a_feature(self, key: Any) -> str:
        return (
            f"column {key!r} holds the {self.holds}, and would be a feature as well: pass {self.name}={key!r}, or "
            "select other columns"
        )

    @property
    def of_other_rows(self) -> str:
        return (
            f"{self.name} has another index than the rows, in another order perhaps: pass {self.name}.loc[X.index], or "
            f"{self.name}.to_numpy() where they go together by position"
        )


IDS, WEIGHTS = Beside("person", "ids", "an id"), Beside("weights", "weights", "one")

Numbers = NDArray[np.int64]
# (n, 2), two words for each id.
Digests = NDArray[np.uint64]


def name_of(person: Any) -> str | None:
    """What a report and a budget call the ids: their column, or "person" where they have no name; None without ids."""
    if person is None or isinstance(person, str):
        return person
    name = person.key if isinstance(person, Selection) else getattr(person, "name", None)
    return name if isinstance(name, str) and not hasattr(person, "chunks") else "person"  # Dask's arrays have keys


def numbered(ids: Any, n_rows: int, which: NDArray[np.intp] | None = None) -> Numbers:
    """(n,), a number for each row's person, or of some rows; from 0 on, and some may be nobody's."""
    values = _checked(ids, n_rows, which)
    if not isinstance(values, Text) and values.dtype.kind in "biu" and len(values):
        least, largest = int(values.min()), int(values.max())
        if largest - least < _DENSE * len(values):
            # in the type of the ids a difference beyond int64 is not the smallest
            return np.asarray(values.astype(np.int64) - least if largest < 1 << 63 else values - values.min(), np.int64)
    return Numbering().of_values(values)


class Numbering:
    """Numbers people in the order in which their ids come, batch by batch; ``n`` have come so far.

    It holds the bytes of each, and a table: whole numbers as they are, of text a hash whose key nobody knows. ``kind``
    is that of the ids.
    """

    def __init__(self) -> None:
        seed, *key = np.frombuffer(os.urandom(24), np.uint64).tolist()
        self._key: tuple[int, int] = (key[0], key[1])
        self._table, self._others = core.Numbering(seed), dict[Any, int]()
        self.kind: int | None = None
        self.n = 0

    def numbers(self, ids: Any, n_rows: int, which: NDArray[np.intp] | None = None, *, is_open: bool = True) -> Numbers:
        """(n_rows,), the number of the person of each row of a batch, or of some; unless open, nobody may be new."""
        return self.of_values(_checked(ids, n_rows, which), is_open=is_open)

    def of_values(self, values: NDArray[Any] | Text, *, is_open: bool = True) -> Numbers:
        """The same of ids that were checked."""
        words, kind, places = self._words(values)
        if len(words) and self.kind not in (None, kind):
            raise TypeError(_SEVERAL_TYPES)
        self.kind = kind if len(words) else self.kind
        found = self._looked_up(words, is_open)
        if kind == _TEXT:
            _require_all(self._looked_up(self._words_of_text(_ABSENT), False) >= 0)
        if found.min(initial=0) < 0:
            raise DataChangedError("a pass read ids that none before has read: data must not change")
        return found if places is None else found[places]

    def _looked_up(self, words: Digests, is_open: bool) -> Numbers:
        found = _numbered(self._table, words, is_open)
        self.n = self._table.size
        return found

    def _words(self, values: NDArray[Any] | Text) -> tuple[Digests, int, Numbers | None]:
        """Two words for each id, and the kind; or for each distinct id, and which of them each row has."""
        if isinstance(values, Text):
            return values.words(*self._key), _TEXT, None
        if values.dtype.kind in "biuf":
            return _words_of_numbers(values), _NUMBERS, None
        if values.dtype.kind in "OUT":
            words = self._words_of_text(np.require(values, object, ["C", "A"]))
            if words is not None:
                return words, _TEXT, None
        try:
            known: dict[Any, int] = {}
            places = np.array([known.setdefault(each, len(known)) for each in values.tolist()], np.int64)
        except TypeError:
            raise TypeError("person must hold ids that are hashable, such as whole numbers or text") from None
        kind = _kind_of(list(known))
        if kind == _TEXT:
            return self._words_of_text(np.array([*map(str, known)], object)), kind, places
        return np.array([self._words_of(each) for each in known], np.uint64).reshape(-1, 2), kind, places

    def _words_of_text(self, texts: NDArray[Any]) -> Any:
        """None if some are no text."""
        words = np.empty((len(texts), 2), np.uint64)
        return words if core.text_words(texts, *self._key, words) else None

    def _words_of(self, value: Any) -> tuple[int, int]:
        """Alike for values that are equal, also where arrays hold some and lists others."""
        if _kind_of_type(type(value)) == _NUMBERS:
            with suppress(TypeError, ValueError, OverflowError):
                if int(value) == value and -(1 << 63) <= value < 1 << 64:
                    return int(value) % (1 << 64), int(value >= 1 << 63)
                if float(value) == value:
                    first, second = _words_of_numbers(np.array([float(value)]))[0].tolist()
                    return first, second
        return self._others.setdefault(value, len(self._others)), 3


def _words_of_numbers(values: NDArray[Any]) -> Digests:
    words = np.zeros((len(values), 2), np.uint64)
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
        whole = values == np.floor(values)
        whole &= np.abs(values) < 2.0**63
        words[:, 0] = np.where(whole, values, 0).astype(np.int64).view(np.uint64)
        words[~whole] = np.stack([values[~whole].view(np.uint64), np.full(np.count_nonzero(~whole), 2, np.uint64)], 1)
        return words
    words[:, 0] = values.astype(np.uint64)  # modulo 2^64
    if values.dtype == np.uint64:
        words[:, 1] = values >> np.uint64(63)
    return words


_SEVERAL_TYPES = "person holds ids of several types, such as text and numbers: the same person may be among both"
_NUMBERS, _TEXT, _BYTES, _OTHERS = range(4)


def _checked(ids: Any, n_rows: int, which: NDArray[np.intp] | None = None) -> NDArray[Any] | Text:
    """Ids as a vector: numbers, of which none is missing, or values to be looked up. Of some rows, where all passed."""
    values: NDArray[Any] | Text = vector_of(ids, "person", n_rows, "person must hold one id for each row", _listed)
    if isinstance(values, Text):
        return values if which is None else values[which]
    if values.dtype.kind in "mM":
        _require_all(np.isnat(values))
        values = _microseconds(values)
    if values.dtype.kind == "f":
        _require_all(np.isnan(values))
        doubles = values.astype(np.float64)
        if (np.abs(doubles) >= 2.0 ** (min(np.finfo(values.dtype).nmant, 52) + 1)).any() or (doubles != values).any():
            raise ValueError(
                "person holds ids that are too long for floating point, which takes some for others: pass whole "
                "numbers or text, from memory or Parquet"
            )
    if values.dtype.kind not in "biufOUST":
        raise TypeError(f"person must hold ids, whole numbers or text, got dtype {values.dtype.type.__name__}")
    return values if which is None else values[which]


def _microseconds(values: NDArray[Any]) -> NDArray[np.int64]:
    """Times in one unit for all batches. Raises ValueError for those that this would round or wrap."""
    with suppress(OverflowError):  # which old releases of NumPy do not raise
        times = values.astype(f"{values.dtype.kind}8[us]")
        if (times.astype(values.dtype) == values).all():
            return times.view(np.int64)
    raise ValueError("person holds times that are no whole microseconds, or too far: pass whole numbers or text")


def _kind_of(distinct: list[Any]) -> int:
    """Whether ids are numbers, text, bytes, or others, of one type. Raises for missing ones, TypeError for several."""
    types = set(map(type, distinct))
    _require_all(np.array([_is_missing(each) for each in distinct], dtype=bool))
    kinds = {_kind_of_type(each) for each in types}
    if len(kinds) > 1 or (len(types) > 1 and kinds != {_NUMBERS}):
        raise TypeError(_SEVERAL_TYPES)
    return kinds.pop()


def _kind_of_type(given: type) -> int:
    known = ((Number, _NUMBERS), (str, _TEXT), (bytes, _BYTES))
    return next((kind for types, kind in known if issubclass(given, types)), _OTHERS)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _require_all(is_missing: NDArray[np.bool_]) -> None:
    if is_missing.any():
        raise ValueError("person has missing ids: drop these rows, or give each of them an id that nobody else has")


def _listed(values: Any) -> NDArray[Any]:
    try:
        listed = list(values)
    except TypeError:
        kind = type(values).__name__
        raise TypeError(f"person must hold one id for each row, or name a column; got {kind}") from None
    are_whole = bool(listed) and all(isinstance(each, (int, np.integer)) for each in listed)
    if are_whole and (whole := np.asarray(listed)).dtype.kind != "f":  # as -1 and 2^63 together become
        return whole
    return objects(listed)


def split_off(views: Sequence[Any], given: Any, column: Beside = IDS) -> tuple[tuple[Any, ...], Any]:
    """The data without a column beside them, and that column: ``given`` itself, or the column of this name.

    It may be in several of the tables, and is then that of the first; of a source it is a `Selection`.
    """
    if given is None:
        return tuple(views), None
    if any(not _has_columns(view) and not hasattr(view, "__array__") and is_source(view) for view in views):
        kept, selected = _split_off_selections(views, given, column)
        if column is IDS:  # else one person's id would decide whether others are alike: 7 and 07 are, as numbers
            selected.scan.source.read_as_text(selected.key)
        return kept, selected
    if isinstance(given, Selection):
        what = f"the rows are in memory: pass {column.each} for each of them"
        raise TypeError(f"{column.name} is a column of a source, but {what}")
    if not isinstance(given, str):
        name = getattr(given, "name", None)
        if isinstance(name, str) and any(_has_columns(view) and name in _columns(view) for view in views):
            raise ValueError(column.a_feature(name))
        index: Any = getattr(given, "index", None)  # of a list, a method
        for view in views if hasattr(index, "equals") else ():
            if is_frame(view) and len(view) == len(index) and not index.equals(view.index):
                raise ValueError(column.of_other_rows)
        return tuple(views), given
    tables = [view for view in views if _has_columns(view) and given in _columns(view)]
    if not tables:
        if any(is_frame(view) and given in view.index.names for view in views):
            raise ValueError(f"{given!r} is in the index, and no column: pass X.reset_index({given!r}) in place of X")
        known = [name for view in views if _has_columns(view) for name in _columns(view)]
        raise missing(given, known, f"column of {column.holds}") if known else ValueError(column.nameless(given))
    return tuple(_without(view, given) if _has_columns(view) else view for view in views), tables[0][given]


def _split_off_selections(views: Sequence[Any], given: Any, column: Beside) -> tuple[tuple[Any, ...], Selection]:
    scans = [view.scan if isinstance(view, Selection) else scan(view) for view in views if is_source(view)]
    if column is IDS and not scans[0].repeatable:
        raise ValueError("person= is read in a pass before others: this can be read only once")
    if not isinstance(given, (str, Selection)):
        which = "the name of a column, or a selection of it"
        raise TypeError(f"{column.name} must be {which}, where rows are read from a source")
    columns = scans[0].source.columns
    if isinstance(given, Selection):
        keys = [view.key if isinstance(view, Selection) else tuple(columns or ()) for view in views if is_source(view)]
        if any(given.key in key if isinstance(key, tuple) else given.key == key for key in keys):
            raise ValueError(column.a_feature(given.key))
        return tuple(views), given
    if columns is None:
        raise ValueError(column.nameless(given))
    ids, kept = scans[0][given], list(views)
    for place, view in enumerate(views):
        if is_source(view):
            source, key = (view.scan, view.key) if isinstance(view, Selection) else (ids.scan, tuple(columns))
            if isinstance(key, tuple) and given in key:
                kept[place] = Selection(source, tuple(name for name in key if name != given))
    return tuple(kept), ids


def _has_columns(view: Any) -> bool:
    """Whether this is a table in memory, or a Dask DataFrame, whose columns are chosen as in pandas."""
    return is_table(view) or is_dask_frame(view)


def _columns(table: Any) -> list[Any]:
    return list(table.column_names if is_in_arrow(table) else table.columns)


def _without(table: Any, name: str) -> Any:
    if name not in _columns(table):
        return table
    if is_frame(table) or is_dask_frame(table):
        return table.drop(columns=[name])
    return table.select([each for each in _columns(table) if each != name])


# ---- people of several parts ----

# The last two bits of a digest say of what type an id is.
_KINDS = np.uint64(3)


def digests(ids: Any, n_rows: int) -> Digests:
    """(n_rows, 2), 16 bytes that stand for the person of each row, in any process. Raises as `numbered` does, and
    TypeError for ids that are neither numbers nor text nor bytes: whether others are alike, only their process knows.
    """
    values, numbering = _checked(ids, n_rows), Numbering()
    numbers = numbering.of_values(values)
    listed, kind = np.asarray(values[_firsts(numbers)]).tolist(), numbering.kind or 0
    hashes = b"".join(blake2b(_spelled(each), digest_size=16, person=b"dpgep person").digest() for each in listed)
    words = np.frombuffer(hashes, "<u8").astype(np.uint64).reshape(-1, 2)
    words[:, 1] = words[:, 1] & ~_KINDS | np.uint64(kind)
    return words[numbers]


def _spelled(value: Any) -> bytes:
    """An id in bytes: alike for values that are equal."""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, bytes):
        return b"bytes " + value
    if isinstance(value, (Integral, Decimal, float)):
        if not math.isfinite(value):
            return str(float(value)).encode()
        whole, parts = (int(value) if isinstance(value, Integral) else value).as_integer_ratio()
        return f"{whole:x}/{parts:x}".encode()
    raise TypeError("person must hold whole numbers, text or bytes, to know who has rows in several parts")


def numbered_digests(whose: Digests) -> tuple[Numbers, Digests]:
    """The number of each row's person, and the distinct digests. Raises TypeError where ids are of several types."""
    if len(np.unique(whose[:, 1] & _KINDS)) > 1:
        raise TypeError(_SEVERAL_TYPES)
    numbers = _numbered(core.Numbering(0), whose)
    return numbers, whose[_firsts(numbers)]


def _numbered(table: core.Numbering, whose: Digests, is_open: bool = True) -> Numbers:
    """The number of each row's person, by the kernel."""
    numbers = np.empty(len(whose), np.int64)
    if len(whose):  # what comes from another process need not be aligned, and an empty array cannot be
        table.number(np.require(whose, requirements=["C", "A"]), numbers, is_open)
    return numbers


def _firsts(numbers: Numbers, known: int = -1) -> NDArray[np.intp]:
    """Where each number above those known comes first, as they come in their order."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(numbers), prepend=known))


class Identities:
    """Who has rows in what was summed: 16 bytes for each person, from which ids can be guessed: as confidential.

    Rows of the people in ``left_out`` are not to be summed.
    """

    def __init__(self, parts: Sequence[Digests] = (), left_out: Identities | None = None) -> None:
        self.left_out = left_out
        self._table = core.Numbering(int.from_bytes(os.urandom(8), "little"))
        self._parts: list[Digests] = []  # each smaller than the one before it
        for part in parts:
            self.add_rows(part)

    def __reduce__(self) -> tuple[type[Identities], tuple[list[Digests], Identities | None]]:
        return Identities, (list(self._parts), self.left_out)

    def add_rows(self, whose: Digests) -> None:
        """The people of some rows, any of whom may be known. Raises TypeError where ids are of several types."""
        if len(np.unique(np.concatenate([whose[:, 1], *(part[:1, 1] for part in self._parts[:1])]) & _KINDS)) > 1:
            raise TypeError(_SEVERAL_TYPES)
        n_known = self._table.size
        numbers = _numbered(self._table, whose)
        self._parts.append(whose[_firsts(np.maximum(numbers, n_known - 1), n_known - 1)])
        while len(self._parts) > 1 and len(self._parts[-2]) <= len(self._parts[-1]):
            self._parts[-2:] = [np.concatenate(self._parts[-2:])]

    def add_counted(self, whose: Digests) -> NDArray[np.intp] | None:
        """The people of some rows, but for who is left out. Which rows are to be summed; None for all."""
        counted = None if self.left_out is None else self.left_out.others(whose)
        self.add_rows(whose if counted is None else whose[counted])
        return counted

    def others(self, whose: Digests) -> NDArray[np.intp]:
        """Which rows are other people's, in their order."""
        return np.flatnonzero(_numbered(self._table, whose, False) < 0)

    def add(self, others: Identities) -> None:
        """Others, any of whom may be known."""
        for part in others._parts:
            self.add_rows(part)

    def require_apart(self, others: Identities) -> None:
        """Raise ValueError where some people are among both, TypeError where ids are of different types."""
        if len({int(each._parts[0][0, 1] & _KINDS) for each in (self, others) if each._table.size}) > 1:
            raise TypeError(_SEVERAL_TYPES)
        if any(len(self.others(part)) < len(part) for part in others._parts):
            what = "add all rows of a person in one update"
            raise ValueError(f"some people have rows in both parts, and would count twice: {what}")

    def copy(self) -> Identities:
        return Identities(self._parts, self.left_out)
