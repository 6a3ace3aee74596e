"""What a scan reads from: the seam between `Scan` and the kinds of data; and errors that quote no value of theirs.

Messages of other packages do: a person's, for anyone to read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dpgep._checks import quoted
from dpgep.errors import DataError
from dpgep.sources.batches import Columns, Part, Pieces
from dpgep.sources.encoding import DECLARE, Declared, Encoding, days, declared_by, indicators, positions
from dpgep.sources.names import Key, Names, as_names, first_of, identifies, listed, missing, one_of, require_features

# Distinct values, what is missing as NaN, and which of them each row has.
Coded: TypeAlias = tuple[NDArray[Any], NDArray[Any]]


class Source(ABC):
    """People in rows, read from first to last, in pieces of any size."""

    #: whether a second pass would give the same rows
    repeatable = True
    #: pieces fetched while others are in use, of rows that come from elsewhere, in memory that is theirs: with one, two
    #: processors wait for each other unless it is large (measured: 0.87 of the time with two, no less with three)
    reads_ahead = 0
    #: what is selected by a name: of a tuple, a part
    kind = "column"

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """Number of rows, if it is known without reading them."""

    @abstractmethod
    def width(self, key: Key) -> int | None:
        """Number of columns of the matrix that a key selects, None for a vector; refuses a key that selects nothing."""

    def declared(self, key: Key) -> Declared | None:
        """The values that the type of a column allows, None where it does not say; nothing is read for it."""
        return None

    @property
    def columns(self) -> Sequence[Hashable] | None:
        """Names of all columns of a table, in order; None for what is none."""
        return None

    @property
    def types(self) -> Mapping[Hashable, Any]:
        """Types of the columns of a table, where they are known."""
        return {}

    def names(self, key: Key) -> Names:
        """Names of the columns in the matrix that a key selects, None where they have none."""
        return None

    def read_as_text(self, key: Key) -> None:  # noqa: B027  # elsewhere types are declared
        """Read a column as text from now on, if its type was found in its values, where one person may decide it."""

    def needed(self, keys: Sequence[Key]) -> list[Hashable]:
        """Names of the columns of a table that `pieces` reads for some keys."""
        return []

    def encode(self, encoding: Encoding) -> Source:
        """Itself, whose columns become those of a matrix as declared. Raises ValueError or TypeError if they cannot."""
        for name in (*encoding.categories, *encoding.dates):
            raise missing(name, ())
        return self

    @abstractmethod
    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        """One pass over the rows: a part for each key, the same rows in all, about ``batch_rows`` or fewer if cheap."""


class Table(Source):
    """Rows of named columns. Keys: a name for a column, a tuple of names for a matrix, None for all columns.

    A matrix has indicators in the place of categorical columns, and days since 1970 in that of dates that were
    declared. As vectors, columns are what they are.
    """

    encoding = Encoding()

    @property
    @abstractmethod
    def columns(self) -> Sequence[Hashable]: ...

    def encode(self, encoding: Encoding) -> Source:
        self.encoding = encoding.of(self.columns, self.types)
        return self

    def width(self, key: Key) -> int | None:
        names = self._selected(key)
        if names is None:
            return self.list_size(key)
        for name in names:
            self.encoding.require_known(name)
        plain = [name for name in names if name not in self.encoding.columns]
        for name in plain:
            if self.list_size(name) is not None:
                each = quoted(name)
                raise ValueError(f"{self.kind} {each} is a matrix: select it separately, source[{each}]")
        require_numeric(self.not_numeric(plain), plain)
        return len(self.encoding.names(names)) if self.encoding.columns else len(names)

    def declared(self, key: Key) -> Declared | None:
        return declared_by(self.types.get(one_of(key)))  # type: ignore[arg-type]

    def names(self, key: Key) -> Names:
        names = self._selected(key)
        return None if names is None else self.encoding.names(names)

    def needed(self, keys: Sequence[Key]) -> list[Hashable]:
        names = dict[Hashable, None]()
        for key in keys:
            names.update(dict.fromkeys(self._selected(key) or (one_of(key),)))  # type: ignore[arg-type]
        return list(names)

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        selected = [self._selected(key) for key in keys]
        for rows in self.read(self.needed(keys), batch_rows):
            yield tuple(
                self.vector(rows, key) if names is None else self._matrix(rows, names)
                for key, names in zip(keys, selected, strict=True)
            )

    def _selected(self, key: Key) -> tuple[Hashable, ...] | None:
        return as_names(key, self.columns, self.kind)

    def _matrix(self, rows: Any, names: tuple[Hashable, ...]) -> Columns:
        columns: list[NDArray[Any]] = []
        for name in names:
            if name in self.encoding.columns:
                columns += self._encoded(rows, name)
            else:
                columns.append(self.numbers(rows, name))
        return Columns(columns, len(columns[0]))

    def _encoded(self, rows: Any, name: Hashable) -> list[NDArray[Any]]:
        """The columns that one of dates or of categories becomes."""
        declared = self.encoding.categories.get(name)
        if declared is None:
            return [days(self.vector(rows, name), name)]
        coded = self.coded(rows, name)
        values, codes = (self.vector(rows, name), slice(None)) if coded is None else coded
        return list(indicators(positions(values, declared)[codes], len(declared)))

    def coded(self, rows: Any, name: Any) -> Coded | None:
        """A column of some rows by its distinct values, where that is less work than by all."""
        return None

    def list_size(self, name: Any) -> int | None:
        """Number of columns of the matrix that a column is by itself, None for one of single values."""
        return None

    @abstractmethod
    def not_numeric(self, names: Sequence[Hashable]) -> list[tuple[Hashable, Any]]:
        """The columns among these that hold no numbers, with their types."""

    @abstractmethod
    def read(self, names: Sequence[Hashable], batch_rows: int | None) -> Iterable[Any]:
        """One pass over the named columns, some rows at a time."""

    @abstractmethod
    def vector(self, rows: Any, name: Any) -> Part:
        """A column of some rows as a vector, text as str, what is missing as NaN; of lists, as a matrix."""

    @abstractmethod
    def numbers(self, rows: Any, name: Any) -> NDArray[Any]:
        """A numeric column of some rows, without a copy where nothing is missing; what is missing as NaN."""


def require_numeric(others: Sequence[tuple[object, Any]], names: Sequence[Hashable] = ()) -> None:
    """Raise TypeError for columns that hold no numbers, with their public names and types, and those that seem ids."""
    if others:
        ids = tuple(name for name in names if isinstance(name, str) and identifies(name))
        # what Arrow does not know comes under its name in the database
        text = [(name, getattr(kind, "type_name", kind)) for name, kind in others if name not in ids]
        if not text:
            require_features(ids)
        shown = first_of([f"{quoted(name)} ({kind})" for name, kind in text], 50)
        are = f"columns {shown} are" if len(text) > 1 else f"column {shown} is"
        if ids:
            seem = "seem" if len(ids) > 1 else "seems"
            which = f"{listed(ids, 30)} {seem} to identify people or rows"
            raise TypeError(f"{are} not numeric, {which}: select others, or declare categories")
        has_dates = any("date" in str(kind).lower() or "timestamp" in str(kind).lower() for _, kind in others)
        dates = "read these by dpgep.scan(..., dates=[column], categories={column: [...]})"
        advice = dates if has_dates else f"declare the categories of text, {DECLARE}"
        if any(hasattr(kind, "type_name") for _, kind in others):
            advice = f"convert in the query, as CAST({text[0][0]} AS double precision)"
        raise TypeError(f"{are} not numeric: select others, or {advice}")


_PACKAGES = ("pyarrow", "pandas", "polars", "pyspark", "py4j", "duckdb", "_duckdb")


def messages_withheld(what: str) -> AbstractContextManager[None]:
    """Raise DataError for whatever goes wrong while ``what`` is converted; MemoryError stays one."""
    return replaced(lambda error: without_message(what, error))


def packages_messages_withheld(what: str) -> AbstractContextManager[None]:
    """The same for errors of these packages alone: others, the user's among them, pass through."""
    return replaced(lambda e: without_message(what, e) if type(e).__module__.split(".")[0] in _PACKAGES else e)


@contextmanager
def replaced(replacement: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raise in the place of any error its replacement, which does not lead back to it.

    ``from None`` keeps the error as the context, with a message that may quote a person's value, for whoever logs it.
    """
    try:
        yield
    except Exception as error:
        other = replacement(error)
        if other is error:
            raise
        try:
            raise other from None
        finally:
            other.__context__ = None


def without_message(what: str, error: Exception) -> Exception:
    """What is raised in the place of an error that may quote values."""
    if isinstance(error, MemoryError):
        return MemoryError(f"not enough memory to read {what}: select fewer columns or use smaller batches")
    if isinstance(error, DataError):
        return error
    why = f"{type(error).__name__}, whose message is suppressed since it may quote values of the data"
    return DataError(f"{what} cannot be read: {why}; read the data without dpgep to see it")
