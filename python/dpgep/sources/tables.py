"""Tables as sources: of pandas, which needs no other package, and whatever hands out its rows as an Arrow stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import quoted
from dpgep._dispatch import core
from dpgep._optional import import_extra
from dpgep._threads import slices
from dpgep.sources import kinds
from dpgep.sources.batches import BATCH_BYTES, Assembler, Part, Pieces, objects, read_ahead, rows_at_a_time
from dpgep.sources.encoding import Encoding, declared_categories
from dpgep.sources.names import Key, Names, as_text
from dpgep.sources.source import Coded, Source, Table, messages_withheld, packages_messages_withheld, require_numeric

T = TypeVar("T")

# Decoded at a time, whatever the size of batches: with half of it Parquet takes a fifth longer, with more not less.
_READ_BYTES = 2 * BATCH_BYTES


def pyarrow(module: str = "") -> Any:
    return import_extra(f"pyarrow{module}", "arrow")


@cache
def _types() -> Any:
    """Pyarrow's tests of types, asked for each column: an import takes longer than a test."""
    return pyarrow().types


# --- pandas ---


class Frame(Table):
    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @property
    def n_rows(self) -> int:
        return len(self._frame)

    @property
    def columns(self) -> list[Hashable]:
        return list(self._frame.columns)

    @property
    def types(self) -> Mapping[Hashable, Any]:
        return dict(self._frame.dtypes)

    def width(self, key: Key) -> int | None:
        columns = self._frame.columns
        if not columns.is_unique:
            twice = columns[columns.duplicated()][0]
            raise ValueError(f"the data frame has several columns named {quoted(twice)}: rename them")
        return super().width(key)

    def not_numeric(self, names: Sequence[Hashable]) -> list[tuple[Hashable, Any]]:
        types = self.types
        return [(name, types[name]) for name in names if not _is_numeric_dtype(types[name])]

    def read(self, names: Sequence[Hashable], batch_rows: int | None) -> Iterator[Any]:
        step = rows_at_a_time(8 * len(names), batch_rows)
        return (self._frame.iloc[rows] for rows in slices(self.n_rows, step))

    def vector(self, rows: Any, name: Any) -> Part:
        return _converted(rows[name], rows[name].dtype, name, _values_of_series)

    def numbers(self, rows: Any, name: Any) -> NDArray[Any]:
        return _converted(rows[name], rows[name].dtype, name, _numbers_of_series)

    def coded(self, rows: Any, name: Any) -> Coded | None:
        return _converted(rows[name], rows[name].dtype, name, _coded_series)


def _coded_series(series: Any) -> Coded | None:
    """Of text, objects and categories."""
    if _is_numeric_dtype(series.dtype) or (isinstance(series.dtype, np.dtype) and series.dtype != object):
        return None
    with suppress(TypeError):  # values that cannot be hashed
        codes, values = series.factorize()
        return objects([*values, float("nan")]), codes  # what is missing has the code -1
    return None


def _values_of_series(series: Any) -> NDArray[Any] | Text:
    """A Series as a vector: numbers and dates as NumPy has them, text as str or `Text`; what is missing, as NaN."""
    if _is_numeric_dtype(series.dtype) and series.dtype != bool:
        return _numbers_of_series(series)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "bmM":
        return np.asarray(series.to_numpy())
    is_in_arrow = getattr(series.dtype, "storage", "") == "pyarrow" or hasattr(series.dtype, "pyarrow_dtype")
    if is_in_arrow and (text := _text(series.array.__arrow_array__())) is not None:
        return text
    missing = series.isna().to_numpy(dtype=bool)
    values = series.to_numpy(dtype=object, copy=True)
    values[missing] = float("nan")
    return np.asarray(values)


def _numbers_of_series(series: Any) -> NDArray[Any]:
    """Numeric values, without a copy if NumPy holds them; missing ones become NaN."""
    if isinstance(series.dtype, np.dtype):
        return np.asarray(series.to_numpy())
    if hasattr(series, "sparse"):
        return np.asarray(series.sparse.to_dense())
    if series.hasnans:
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(series.to_numpy(dtype=series.dtype.numpy_dtype))


def _is_numeric_dtype(kind: Any) -> bool:
    types = import_extra("pandas", "pandas").api.types
    is_number = types.is_numeric_dtype(kind) or str(kind) == "bool[pyarrow]"  # as pandas' own booleans are
    return bool(is_number and not types.is_complex_dtype(kind))


# --- Arrow ---


class ArrowTable(Table):
    """Record batches of one schema."""

    schema: Any
    #: columns that are no numbers because of values in a first part of the data, not because the caller says so
    found_types: frozenset[str] = frozenset()
    #: the text among them
    found_text: frozenset[str] = frozenset()

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def types(self) -> Mapping[Hashable, Any]:
        return {field.name: field.type for field in self.schema}

    def list_size(self, name: Any) -> int | None:
        return _list_size(self.schema.field(name).type, name)

    def not_numeric(self, names: Sequence[Any]) -> list[tuple[Hashable, Any]]:
        types = self.types
        return [(name, types[name]) for name in names if not is_numeric(self.schema.field(name).type)]

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        pieces = super().pieces(keys, batch_rows)
        return read_ahead(pieces, self.reads_ahead) if self.reads_ahead else pieces

    def read(self, names: Sequence[Any], batch_rows: int | None) -> Iterable[Any]:
        row_bytes = sum(_value_bytes(self.schema.field(name).type) for name in names)
        return self.record_batches(list(names), max(1, _READ_BYTES // row_bytes))

    @abstractmethod
    def record_batches(self, names: list[str], rows: int) -> Iterable[Any]:
        """One pass over the named columns, at most ``rows`` rows at a time if they need to be read first."""

    def vector(self, rows: Any, name: Any) -> Part:
        column = rows.column(name)
        return _converted(column, column.type, name, _vector_or_matrix)

    def numbers(self, rows: Any, name: Any) -> NDArray[Any]:
        column = rows.column(name)
        return _converted(column, column.type, name, _numbers)

    def coded(self, rows: Any, name: Any) -> Coded | None:
        column = rows.column(name)
        return _converted(column, column.type, name, _coded)


class Stream(ArrowTable):
    """What hands out its rows as an Arrow stream, a new one in each pass: a table of Arrow or polars, of DuckDB."""

    def __init__(self, values: Any) -> None:
        self._values = values
        self.repeatable = not kinds.is_reader(values)
        self._next = self._open()
        self.schema = self._next.schema

    @property
    def n_rows(self) -> int | None:
        shape = getattr(self._values, "shape", None)
        return None if shape is None else int(shape[0])

    @property
    def types(self) -> Mapping[Hashable, Any]:
        return self._values.schema if kinds.is_polars_frame(self._values) else super().types  # an Enum lists its own

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        reader, self._next = self._next or self._open(), None
        # what fails on the other side of a stream comes as an error of any kind, with its text
        with messages_withheld("the stream"):
            yield from reader

    def _open(self) -> Any:
        with packages_messages_withheld("the stream"):
            return pyarrow().RecordBatchReader.from_stream(self._values) if self.repeatable else self._values


class Query(ArrowTable):
    """The rows of an SQL query on a DBAPI connection of ADBC, which runs once for its schema and in each pass."""

    n_rows = None
    reads_ahead = 2

    def __init__(self, connection: Any, query: str) -> None:
        self._connection, self._query = connection, query
        with messages_withheld("the query"), connection.cursor() as cursor:
            cursor.execute(query)
            self.schema = cursor.fetch_record_batch().schema

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        with messages_withheld("the query"), self._connection.cursor() as cursor:
            cursor.execute(self._query)
            for batch in cursor.fetch_record_batch():
                yield from alone(batch.select(names), batch.num_columns)


class LazyFrame(ArrowTable):
    """A polars LazyFrame, whose query is run in each pass, for the columns that are needed and in batches."""

    n_rows = None

    def __init__(self, values: Any) -> None:
        self._values = values
        with packages_messages_withheld("the LazyFrame"):
            self._types = values.collect_schema()
            self.schema = Stream(values.clear().collect()).schema

    @property
    def types(self) -> Mapping[Hashable, Any]:
        return self._types  # type: ignore[no-any-return]

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        query = self._values.select(names)
        with messages_withheld("the LazyFrame"):
            in_batches = hasattr(query, "collect_batches")  # since polars 1.34
            frames = query.collect_batches(chunk_size=rows, maintain_order=True) if in_batches else [query.collect()]
            for frame in frames:
                yield from pyarrow().RecordBatchReader.from_stream(frame)


class Dataset(ArrowTable):
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


class SparkFrame(ArrowTable):
    """What Arrow makes of a Spark DataFrame, as far as it is known without its rows, which stay on the executors."""

    n_rows = None

    def __init__(self, frame: Any) -> None:
        as_text(frame.columns)  # refuses names that occur twice
        with packages_messages_withheld("the Spark DataFrame"):
            self.schema = frame.limit(0).toArrow().schema  # computes nothing, but where Spark folds rows of its own

    def record_batches(self, names: list[str], rows: int) -> Iterable[Any]:
        raise ValueError("rows of a Spark DataFrame are summed on its executors: read them with .toArrow() first")


def copied(values: Any) -> Any:
    """A table in memory of its own: Arrow takes vectors of NumPy as they lie, and whoever made them may fill them."""
    pa = pyarrow()
    stream = Stream(values)
    batches = list(stream.record_batches([], 0))

    def written(sink: Any) -> Any:
        with pa.ipc.new_stream(sink, stream.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return sink

    # a sink that grows would hold up to twice as much
    memory = pa.allocate_buffer(written(pa.MockOutputStream()).size())
    written(pa.FixedSizeBufferWriter(memory))
    return pa.ipc.open_stream(memory).read_all()


def alone(batch: Any, n_columns: int) -> list[Any]:
    """Some columns of a batch of ``n_columns``: each holds the memory of all, until it is copied."""
    return copied(batch).to_batches() if batch.num_columns < n_columns else [batch]


class Text:
    """A vector of text as Arrow holds it, none of it missing. NumPy takes it as one of str."""

    ndim, dtype = 1, np.dtype(object)

    def __init__(self, column: Any) -> None:
        self._column = column  # in chunks
        self.shape = (len(column),)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return int(self._column.nbytes)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self.mapped(lambda words: words)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Text:
        return Text(self._column[rows] if isinstance(rows, slice) else self._column.take(rows))

    def mapped(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """What ``function`` makes of each, which is asked about distinct ones."""
        coded = filter(None, map(_coded, self._column.chunks))
        return np.concatenate([function(words)[codes] for words, codes in coded] or [function(objects([]))])

    def copy(self) -> Text:
        """The same in memory of its own."""
        return Text(self._column.cast(pyarrow().large_string()).take(np.arange(len(self))))

    def followed_by(self, others: Sequence[Text]) -> Text:
        columns = (each._column for each in (self, *others))
        return Text(pyarrow().chunked_array([chunk for column in columns for chunk in column.chunks]))

    def words(self, key: int, other_key: int) -> NDArray[np.uint64]:
        """(n, 2), the keyed hash of each as of a str; of a dictionary, each of its texts is hashed once."""
        found = [_words(chunk, key, other_key) for chunk in self._column.chunks]
        return np.concatenate(found or [np.empty((0, 2), np.uint64)])


def _words(column: Any, key: int, other_key: int) -> NDArray[np.uint64]:
    if _types().is_dictionary(column.type):
        places: NDArray[Any] = column.indices.to_numpy(zero_copy_only=False)
        return np.asarray(_words(column.dictionary, key, other_key)[places])
    column = column.cast(pyarrow().large_string())  # of others the ends become wider, and the text stays where it is
    _, ends, text = column.buffers()
    words = np.empty((len(column), 2), np.uint64)
    if len(column):
        ends = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
        core.utf8_words(ends, np.frombuffer(text or b"", np.uint8), key, other_key, words)
    return words


def _text(column: Any) -> Text | None:
    """A column in chunks as `Text`; None if it holds something else, or text is missing."""
    types, kind, dictionaries = _types(), column.type, []
    if types.is_dictionary(kind):
        kind, dictionaries = kind.value_type, [chunk.dictionary for chunk in column.chunks]
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if not is_text or any(each.null_count for each in (column, *dictionaries)):
        return None
    column.validate(full=True)  # that it is in UTF-8
    return Text(column)


def _vector(column: Any) -> NDArray[Any] | Text:
    """An Arrow array as a vector: numbers, dates and booleans as NumPy has them, text as `Text`; where some is missing,
    as str and NaN.
    """
    types, kind = _types(), column.type
    if types.is_boolean(kind) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if is_numeric(kind):
        return _numbers(column)
    if types.is_temporal(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    column = _readable(column)
    if (text := _text(pyarrow().chunked_array([column]))) is not None:
        return text
    if (coded := _coded(column)) is None:
        return _with_nan(column.to_pylist())
    words, codes = coded
    return np.asarray(words[codes])


def _readable(column: Any) -> Any:
    if str(column.type) == "string_view":  # of polars; pyarrow casts it from release 18 on
        with suppress(pyarrow().ArrowNotImplementedError):
            return column.cast(pyarrow().large_string())
    return column


def _coded(column: Any) -> Coded | None:
    """Of text or a dictionary."""
    types, column = _types(), _readable(column)
    if types.is_string(column.type) or types.is_large_string(column.type):
        column = column.dictionary_encode()  # each text becomes a str once, not once a row
    elif not types.is_dictionary(column.type):
        return None
    words = _with_nan([*column.dictionary.to_pylist(), None])
    return words, column.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)


def _vector_or_matrix(column: Any) -> Part:
    """A column as a vector; one of lists of a fixed size, as a matrix, without a copy if nothing in it is null."""
    size = _list_size(column.type, "")
    if size is None:
        return _vector(column)
    column = getattr(column, "storage", column)  # of a tensor, the list
    flat = _numbers(column.flatten())
    if not column.null_count:
        return flat.reshape(len(column), size)
    rows = np.full((len(column), size), np.nan, np.result_type(flat.dtype, np.float32))
    present = column.is_valid().to_numpy(zero_copy_only=False)
    rows[present] = flat.reshape(-1, size)
    return rows


def _converted(column: Any, kind: Any, name: object, convert: Callable[[Any], T]) -> T:
    with messages_withheld(f"column {quoted(name)} of type {kind}"):
        return convert(column)


def _numbers(column: Any) -> NDArray[Any]:
    """Numeric values without a copy where nothing is null; null becomes NaN."""
    if _types().is_boolean(column.type):
        column = column.cast("uint8")
    elif _types().is_decimal(column.type):
        column = column.cast("float64")
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def is_numeric(kind: Any) -> bool:
    types = _types()
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _value_bytes(kind: Any) -> int:
    """Memory of a value of a column, of text about that."""
    kind = getattr(kind, "storage_type", kind)
    types = _types()
    if types.is_fixed_size_list(kind):
        return max(1, int(kind.list_size)) * _value_bytes(kind.value_type)
    return max(1, int(kind.bit_width) // 8) if types.is_primitive(kind) else 16


def _list_size(kind: Any, name: object) -> int | None:
    """Length of the lists in a column of lists, None for a column of single values."""
    kind, types = getattr(kind, "storage_type", kind), _types()
    if types.is_fixed_size_list(kind):
        if not is_numeric(kind.value_type):
            require_numeric([(name, kind)])
        return int(kind.list_size)
    if types.is_nested(kind):
        advice = "only nested columns of fixed-size lists are supported, pyarrow.list_(value_type, size)"
        raise TypeError(f"column {quoted(name)} holds {kind}: {advice}")
    return None


def _with_nan(values: list[Any]) -> NDArray[Any]:
    """Objects, NaN for None: None would pass for a label like any other."""
    return objects([float("nan") if value is None else value for value in values])


# --- tables in memory as one matrix or vector ---


def table_names(table: Any) -> Names:
    return as_text(table.columns) if _lies_in_one_piece(table) else _source(table).names(None)


def table_width(table: Any) -> int:
    """Number of columns of the matrix. Raises TypeError, as `table_matrix` does."""
    return int(table.shape[1] if _lies_in_one_piece(table) else _source(table).width(None) or 0)


def table_matrix(table: Any) -> NDArray[Any]:
    """The matrix. Raises TypeError, which names them, for columns without numbers, before any value is read."""
    if _lies_in_one_piece(table):
        return np.asarray(table)
    source = _source(table)
    width = source.width(None)
    parts = [part for (part,) in source.pieces([None], None)]
    return Assembler()(parts) if parts else np.empty((0, width or 0))


def as_vector_of_values(values: Any) -> Any:
    """A Series or an Arrow array as a NumPy array (of lists of one size, a matrix), what is missing as NaN; its text as
    `Text` where Arrow holds it; all else as it is.
    """
    if kinds.is_series(values):
        return _converted(values, values.dtype, values.name, _values_of_series)
    if not kinds.is_arrow_column(values):
        return values
    pa = pyarrow()
    with packages_messages_withheld("a column"):
        if kinds.is_polars_series(values) and declared_categories(values.dtype) is not None:
            values = values.cast(str)  # some versions hand dictionaries on wrongly
        column = values if kinds.is_arrow_array(values) else pa.chunked_array(values)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    _list_size(column.type, "")  # refuses what is no vector and no matrix
    with messages_withheld(f"a column of type {column.type}"):
        return Assembler(apart=True)([_vector_or_matrix(chunk) for chunk in chunks or [pa.array([], column.type)]])


def _source(table: Any) -> Source:
    return (Frame(table) if kinds.is_frame(table) else Stream(table)).encode(Encoding())


def _lies_in_one_piece(table: Any) -> bool:
    """Whether NumPy takes the table as it lies: pandas and polars, all columns of one type of numbers."""
    types = set(table.dtypes) if kinds.is_frame(table) or kinds.is_polars_frame(table) else ()
    if len(types) != 1:
        return False
    (kind,) = types
    if kinds.is_frame(table):
        return isinstance(kind, np.dtype) and kind.kind in "iuf"
    return bool(kind.is_float() or kind.is_integer())
