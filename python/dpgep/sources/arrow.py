"""Arrow as a source: tables, record batches, streams, data sets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._optional import import_extra
from dpgep.sources import kinds
from dpgep.sources.batches import BATCH_BYTES, Assembler, Columns, Part, Pieces, read_ahead
from dpgep.sources.encoding import declared_values, of_arrow_type
from dpgep.sources.source import (
    Declared,
    Key,
    Source,
    as_names,
    messages_withheld,
    one_of,
    packages_messages_withheld,
    require_numeric,
)

# Decoded at a time, whatever the size of batches: with half of it Parquet takes a fifth longer, with more not less.
_READ_BYTES = 2 * BATCH_BYTES


def pyarrow(module: str = "") -> Any:
    return import_extra(f"pyarrow{module}", "arrow")


class ArrowSource(Source):
    """Record batches of one schema. Keys: a name for a column, a tuple of names for a matrix, None for all columns."""

    schema: Any
    #: whether the next rows are fetched while others are in use
    reads_ahead = False

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def types(self) -> Mapping[Hashable, Any]:
        return {field.name: field.type for field in self.schema}

    def width(self, key: Key) -> int | None:
        names = as_names(key, self.schema.names)
        if names is None:
            return _list_size(self.schema.field(key).type, key)
        stored, types = {name: self.schema.field(name).type for name in names}, self.types
        for name, kind in stored.items():
            if _list_size(kind, name) is not None:
                raise ValueError(f"column {name!r} is a matrix: select it separately, source[{name!r}]")
        require_numeric([(name, types[name]) for name, kind in stored.items() if not is_numeric(kind)])
        return len(names)

    def declared(self, key: Key) -> Declared | None:
        name = one_of(key)
        return of_arrow_type(self.schema.field(name).type) if isinstance(name, str) else None

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        pieces = self._pieces(keys)
        return read_ahead(pieces) if self.reads_ahead else pieces

    def _pieces(self, keys: Sequence[Key]) -> Iterator[Pieces]:
        selected = [as_names(key, self.schema.names) for key in keys]
        needed = {
            str(name): None
            for key, names in zip(keys, selected, strict=True)
            for name in ((key,) if names is None else names)
        }
        row_bytes = sum(_value_bytes(self.schema.field(name).type) for name in needed)
        for batch in self.record_batches(list(needed), max(1, _READ_BYTES // row_bytes)):
            yield tuple(
                _converted(batch, key, _vector_or_matrix) if names is None else _matrix(batch, names)
                for key, names in zip(keys, selected, strict=True)
            )

    @abstractmethod
    def record_batches(self, names: list[str], rows: int) -> Iterable[Any]:
        """One pass over the named columns, at most ``rows`` rows at a time if they need to be read first."""


class Stream(ArrowSource):
    """A RecordBatch, or whatever hands out its rows as an Arrow stream: a Table, a polars DataFrame, a DuckDB relation.

    Each pass asks for a new stream, the first of them at once, for its schema.
    """

    def __init__(self, values: Any) -> None:
        pa = pyarrow()
        self._values = pa.Table.from_batches([values]) if isinstance(values, pa.RecordBatch) else values
        self._next = self._open()
        self.schema = self._next.schema

    @property
    def n_rows(self) -> int | None:
        shape = getattr(self._values, "shape", None)
        return None if shape is None else int(shape[0])

    @property
    def types(self) -> Mapping[Hashable, Any]:
        return self._values.schema if kinds.is_polars_frame(self._values) else super().types  # an Enum lists its own

    def declared(self, key: Key) -> Declared | None:
        name = one_of(key)
        if isinstance(name, str) and kinds.is_polars_frame(self._values):
            return declared_values(self._values[name])
        return super().declared(key)

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        reader = self._next or self._open()
        self._next = None
        # what fails on the other side of a stream comes as an error of any kind, with its text
        with messages_withheld("the stream"):
            yield from reader

    def _open(self) -> Any:
        with packages_messages_withheld("the stream"):
            return pyarrow().RecordBatchReader.from_stream(self._values)


class Reader(ArrowSource):
    """A RecordBatchReader, which can be read once."""

    repeatable = False
    n_rows = None

    def __init__(self, values: Any) -> None:
        self._reader = values
        self.schema = values.schema

    def record_batches(self, names: list[str], rows: int) -> Iterable[Any]:
        return self._reader  # type: ignore[no-any-return]


class Dataset(ArrowSource):
    """A pyarrow Dataset, with its filter if it has one. pyarrow reads ahead without a limit."""

    def __init__(self, values: Any) -> None:
        self._dataset = values
        self.schema = values.schema

    @cached_property
    def n_rows(self) -> int | None:
        ds = pyarrow(".dataset")
        counted = isinstance(self._dataset, ds.FileSystemDataset) and self._dataset.format.default_extname == "parquet"
        return int(self._dataset.count_rows()) if counted else None

    def record_batches(self, names: list[str], rows: int) -> Iterable[Any]:
        # pyarrow's default is to read 16 batches and 4 files ahead, which may be all of the data
        return self._dataset.to_batches(  # type: ignore[no-any-return]
            columns=names, batch_size=rows, batch_readahead=1, fragment_readahead=1
        )


def copied(values: Any) -> Any:
    """A table in memory of its own: Arrow takes vectors of NumPy as they lie, and whoever made them may fill them."""
    pa = pyarrow()
    stream = Stream(values)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, stream.schema) as writer:
        for batch in stream.record_batches([], 0):
            writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def vector(column: Any) -> NDArray[Any]:
    """An Arrow array as a vector: numbers, dates and booleans as NumPy has them, text as str; what is null, as NaN."""
    pa = pyarrow()
    kind = column.type
    if pa.types.is_boolean(kind) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if is_numeric(kind):
        return _numbers(column)
    if pa.types.is_temporal(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.dictionary_encode()  # each text becomes a str once, not once a row
    if not pa.types.is_dictionary(column.type):
        return _with_nan(column.to_pylist())
    words = _with_nan([*column.dictionary.to_pylist(), None])
    return np.asarray(words[column.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)])


def column_array(values: Any) -> NDArray[Any]:
    """A whole Array, ChunkedArray or polars Series as a vector, or as a matrix if it holds lists of a fixed size."""
    pa = pyarrow()
    with packages_messages_withheld("a column"):
        column = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.chunked_array(values)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    _list_size(column.type, "")  # refuses what is no vector and no matrix
    with messages_withheld(f"a column of type {column.type}"):
        return np.asarray(Assembler()([_vector_or_matrix(chunk) for chunk in chunks or [pa.array([], column.type)]]))


def _vector_or_matrix(column: Any) -> Part:
    """A column as a vector; one of lists of a fixed size, as a matrix, without a copy if nothing in it is null."""
    size = _list_size(column.type, "")
    if size is None:
        return vector(column)
    column = getattr(column, "storage", column)  # of a tensor, the list
    flat = _numbers(column.flatten())
    if not column.null_count:
        return flat.reshape(len(column), size)
    rows = np.full((len(column), size), np.nan, np.result_type(flat.dtype, np.float32))
    present = column.is_valid().to_numpy(zero_copy_only=False)
    rows[present] = flat.reshape(-1, size)
    return rows


def _matrix(batch: Any, names: tuple[Any, ...]) -> Columns:
    return Columns([_converted(batch, name, _numbers) for name in names], batch.num_rows)


def _converted(batch: Any, name: object, convert: Callable[[Any], Part]) -> Part:
    column = batch.column(name)
    with messages_withheld(f"column {name!r} of type {column.type}"):
        return convert(column)


def _numbers(column: Any) -> NDArray[Any]:
    """Numeric values without a copy where nothing is null; null becomes NaN."""
    pa = pyarrow()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def is_numeric(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _value_bytes(kind: Any) -> int:
    """Memory of a value of a column, of text about that."""
    kind = getattr(kind, "storage_type", kind)
    types = pyarrow().types
    if types.is_fixed_size_list(kind):
        return max(1, int(kind.list_size)) * _value_bytes(kind.value_type)
    return max(1, int(kind.bit_width) // 8) if types.is_primitive(kind) else 16


def _list_size(kind: Any, name: object) -> int | None:
    """Length of the lists in a column of lists, None for a column of single values."""
    pa = pyarrow()
    kind = getattr(kind, "storage_type", kind)
    if pa.types.is_fixed_size_list(kind):
        if not is_numeric(kind.value_type):
            require_numeric([(name, kind)])
        return int(kind.list_size)
    if pa.types.is_nested(kind):
        raise TypeError(
            f"column {name!r} holds {kind}: only nested columns of fixed-size lists are supported; "
            "cast it to pyarrow.list_(value_type, size)"
        )
    return None


def _with_nan(values: list[Any]) -> NDArray[Any]:
    """Objects, NaN for None: None would pass for a label like any other."""
    array = np.empty(len(values), dtype=object)
    array[:] = [float("nan") if value is None else value for value in values]
    return array
