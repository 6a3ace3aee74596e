"""Which kind of source a value is; iterables of batches, of which each is a small source itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used

from dpgep.sources import kinds
from dpgep.sources.arrays import Array, SideBySide
from dpgep.sources.batches import Pieces
from dpgep.sources.encoding import BOOLEANS, Categories, Declared, Encoding
from dpgep.sources.files import ParquetFiles, ParquetPart, open_files
from dpgep.sources.filters import Condition, Filtered
from dpgep.sources.names import Key, Names, check_same
from dpgep.sources.source import Source
from dpgep.sources.tables import ArrowTable, Dataset, Frame, LazyFrame, SparkFrame, Stream, copied

SUPPORTED = (
    "paths of Parquet, CSV, Arrow, NPY or NPZ files, a table of pyarrow, pandas, polars or Spark, an array of NumPy, "
    "SciPy, h5py or Zarr, a tuple or mapping of them, batches, or a function that returns any"
)


def open_source(value: Any, encoding: Encoding, condition: Condition | None = None) -> Source:
    """The source that a value given to `dpgep.scan` stands for: categories and dates as declared, rows that meet it."""
    source = _opened(value, encoding.categories)
    if condition is not None:
        if not isinstance(source, ArrowTable):
            raise TypeError(
                "a filter is for files of Parquet, CSV or Arrow, and for tables of pyarrow or polars: of other data, "
                "pass the rows that are meant"
            )
        source = Filtered(source, condition)
    return source.encode(encoding) if isinstance(source, Source) else Batches(source, encoding)


def _opened(value: Any, categories: Categories) -> Any:
    """A source, or an iterable of batches (a function that returns one)."""
    if isinstance(value, Source):
        return value
    if kinds.is_path(value):
        return open_files([value], categories)
    if isinstance(value, list) and value and all(map(kinds.is_path, value)):
        return open_files(value, categories)
    in_turn = callable(value) or isinstance(value, list) or _is_iterator(value)
    source = None if in_turn else _source(value)
    if source is not None:
        return source
    if in_turn or (isinstance(value, Iterable) and not isinstance(value, (bytes, set, frozenset))):
        return value
    raise TypeError(f"cannot scan {_name(value)}: pass {SUPPORTED}")


def parquet_parts(value: Any) -> list[ParquetPart]:
    """What workers read of Parquet files, each by itself. Raises TypeError for another source."""
    paths = value if isinstance(value, list) else [value]
    files = open_files(paths, {}) if all(map(kinds.is_path, paths)) else None
    if not isinstance(files, ParquetFiles):
        raise TypeError("client= is for Dask collections and Parquet files: other sources are read here")
    return files.parts()


def open_batch(value: Any, encoding: Encoding) -> Source:
    """The source that one batch of an iterable is."""
    source = Array(value, "a batch") if isinstance(value, list) else _source(value)
    if source is None:
        raise TypeError(
            f"a batch is {_name(value)}: it must be an array of shape (n, d), a SciPy sparse matrix, a table of "
            "pandas, polars or pyarrow, or a tuple or mapping of arrays with the same rows"
        )
    return source.encode(encoding)


def is_source_value(value: Any) -> bool:
    """Whether a value in the place of X is no array in memory, and can be scanned."""
    is_table = any(is_kind(value) for is_kind, _ in _TABLES)
    stored = kinds.is_stored_array(value) and len(value.shape) == 2
    return is_table or stored or kinds.is_path(value) or _is_iterator(value) or callable(value)


def _is_iterator(value: Any) -> bool:
    return isinstance(value, Iterator) and not kinds.is_reader(value)


_TABLES: tuple[tuple[Callable[[Any], bool], Callable[[Any], Source]], ...] = (
    (kinds.is_frame, Frame),
    (kinds.is_spark_frame, SparkFrame),
    (kinds.is_lazy_frame, LazyFrame),
    (kinds.is_dataset, Dataset),
    (kinds.is_arrow_table, Stream),
)


def _source(value: Any) -> Source | None:
    """The source that a table, an array, or several with the same rows are; None for all else."""
    for is_kind, source in _TABLES:
        if is_kind(value):
            return source(value)
    if isinstance(value, np.ndarray) or scipy.sparse.issparse(value) or kinds.is_stored_array(value):
        return Array(value, "the matrix" if len(value.shape) == 2 else "the array")
    if isinstance(value, tuple):
        return SideBySide(dict(enumerate(value)), "part")
    if isinstance(value, Mapping):
        return SideBySide(value, "column")
    return None


def _name(value: Any) -> str:
    return f"of type {type(value).__module__}.{type(value).__qualname__}"


class Batches(Source):
    """What an iterable yields, batch after batch. Keys: those of the first batch, which is taken at once.

    ``values`` is an iterable, or a function without arguments that returns one. An iterator can be read once.
    """

    n_rows = None

    def __init__(self, values: Any, encoding: Encoding) -> None:
        self._values = values
        self._encoding = encoding
        self.repeatable = callable(values) or not isinstance(values, Iterator)
        self._begun: tuple[Source, Iterator[Any]] | None = self._begin()
        self.kind = self._begun[0].kind

    def width(self, key: Key) -> int | None:
        return self._first().width(key)

    @property
    def columns(self) -> Sequence[Hashable] | None:
        return self._first().columns

    def names(self, key: Key) -> Names:
        return self._first().names(key)

    def declared(self, key: Key) -> Declared | None:
        # categories of the first batch need not be those of another; those of (0, 1) equal booleans
        declared = self._first().declared(key)
        return declared if declared is BOOLEANS else None

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        """As of any source; a piece may be overwritten when the next is asked for, as an iterable may reuse memory."""
        (batch, rest), self._begun = self._begun or self._begin(), None
        expected = [batch.names(key) for key in keys]
        while True:
            for key, names in zip(keys, expected, strict=True):
                batch.width(key)  # refuses a batch that lacks a column, or holds text in it
                check_same(batch.names(key), names, "a batch")
            yield from batch.pieces(keys, batch_rows)
            try:
                following = next(rest)
            except StopIteration:
                return
            batch = open_batch(following, self._encoding)

    def _first(self) -> Source:
        if self._begun is None:
            if not self.repeatable:
                raise RuntimeError("the batches have already been read: select columns before reading")
            self._begun = self._begin()
        return self._begun[0]

    def _begin(self) -> tuple[Source, Iterator[Any]]:
        """The first batch, and an iterator over the others."""
        batches = self._values() if callable(self._values) else self._values
        if not isinstance(batches, Iterable):
            raise TypeError(f"the function must return an iterable of batches, got {type(batches).__name__}")
        iterator = iter(batches)
        try:
            first = next(iterator)
        except StopIteration:
            raise ValueError(
                "no batches were yielded, so the number of columns is unknown: for empty data, yield one batch "
                "without rows, np.empty((0, columns))"
            ) from None
        # lists hold their batches anyway; an iterable may make them in memory that another pass over it uses again
        return open_batch(first if isinstance(batches, Sequence) else _lasting(first), self._encoding), iterator


def _lasting(batch: Any) -> Any:
    """The batch, copied where it lies in memory that its maker may fill again; what lies in files stays there."""
    if isinstance(batch, np.memmap):
        return batch
    if isinstance(batch, np.ndarray) or scipy.sparse.issparse(batch) or kinds.is_frame(batch) or kinds.is_series(batch):
        return batch.copy()
    if kinds.is_polars_frame(batch):
        return type(batch)(copied(batch)).cast(dict(batch.schema))  # Arrow knows no Enum
    if kinds.is_arrow_table(batch):
        return copied(batch)
    if isinstance(batch, tuple):
        return tuple(map(_lasting, batch))
    if isinstance(batch, list):
        return list(map(_lasting, batch))
    if isinstance(batch, Mapping):
        return {name: _lasting(values) for name, values in batch.items()}
    return batch
