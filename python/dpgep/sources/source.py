"""What a scan reads from: the seam between `Scan` and the kinds of data; and errors that quote no value of theirs.

Messages of other packages do: a person's, for anyone to read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dpgep._checks import did_you_mean
from dpgep.errors import DataError
from dpgep.sources.batches import Pieces
from dpgep.sources.names import Names, as_text, listed

# None: everything; a hashable: one column or part; a tuple of them: a matrix; a slice: columns of a plain matrix.
Key = Hashable | slice | None

# Values that a type or the caller lists: of labels, of a categorical column.
Declared = tuple[Hashable, ...]

# How to declare the categories of a column.
DECLARE = "as pandas.CategoricalDtype([...]), polars.Enum([...]), or dpgep.scan(..., categories={column: [...]})"


class Source(ABC):
    """People in rows, read from first to last, in pieces of any size."""

    # Whether a second pass would give the same rows.
    repeatable = True

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
        selected = None if self.columns is None else as_names(key, self.columns)
        return None if selected is None else as_text(selected)

    def needed(self, keys: Sequence[Key]) -> list[Hashable]:
        """Names of the columns of a table that `pieces` reads for some keys."""
        known, names = self.columns or (), dict[Hashable, None]()
        for key in keys:
            names.update(dict.fromkeys(as_names(key, known) or (one_of(key),)))  # type: ignore[arg-type]
        return list(names)

    @abstractmethod
    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        """One pass over the rows: a part for each key, the same rows in all, about ``batch_rows`` or fewer if cheap."""


def one_of(key: Key) -> Key:
    """The column that a key selects, also as a matrix of one."""
    return key[0] if isinstance(key, tuple) and len(key) == 1 else key


def missing(name: object, known: Iterable[object], what: str = "column") -> ValueError:
    """The error for a name that a source does not have."""
    available = list(known)
    return ValueError(f"no {what} {name!r}{did_you_mean(name, available)}; available: {listed(available)}")


def require_numeric(others: Sequence[tuple[object, Any]]) -> None:
    """Raise TypeError if there are columns that hold no numbers: with their names and types, which are public."""
    if others:
        shown = ", ".join(f"{name!r} ({kind})" for name, kind in others[:8]) + ", ..." * (len(others) > 8)
        are = f"columns {shown} are" if len(others) > 1 else f"column {shown} is"
        raise TypeError(f"{are} not numeric: select numeric columns, or declare the categories of text, {DECLARE}")


def as_names(key: Key, known: Sequence[Hashable]) -> tuple[Hashable, ...] | None:
    """The names of the columns in the matrix that a key selects from a table, or None if it selects one column."""
    if isinstance(key, slice):
        raise TypeError("columns of a table are selected by name, not by a slice: pass a name or a list of names")
    names = tuple(known) if key is None else key if isinstance(key, tuple) else None
    existing = set(known)
    for name in (key,) if names is None else names:
        if name not in existing:
            raise missing(name, known)
    if names is not None:
        check_names(names)
    return names


def check_names(names: tuple[Hashable, ...]) -> None:
    if not names:
        raise ValueError("no columns selected: name at least one")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"column {twice!r} is selected twice")


_PACKAGES = ("pyarrow", "pandas", "polars", "pyspark", "py4j", "duckdb", "_duckdb")


@contextmanager
def messages_withheld(what: str) -> Iterator[None]:
    """Raise DataError for whatever goes wrong while ``what`` is converted; MemoryError stays one."""
    with replaced(lambda error: _without_message(what, error)):
        yield


@contextmanager
def packages_messages_withheld(what: str) -> Iterator[None]:
    """The same for errors of these packages alone: others, the user's among them, pass through."""
    with replaced(lambda error: _without_message(what, error) if _is_of_package(error) else error):
        yield


@contextmanager
def replaced(replacement: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raise in the place of any error its replacement, which does not lead back to it, as ``from None`` does.

    That hides the error from tracebacks and keeps it as the context: its message, which may quote a person's value, for
    whoever logs or pickles chains of errors.
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


def _is_of_package(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] in _PACKAGES


def _without_message(what: str, error: Exception) -> Exception:
    if isinstance(error, MemoryError):
        return MemoryError(f"not enough memory to read {what}: select fewer columns or use smaller batches")
    if isinstance(error, DataError):
        return error
    return DataError(
        f"{what} cannot be read: {type(error).__name__}, whose message is suppressed since it may quote values of the "
        "data; read the data without dpgep to see it"
    )
