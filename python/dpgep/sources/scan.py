"""`scan`: data in many forms as batches of rows, read in passes; which kind of source a value is."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used

from dpgep._checks import require_count
from dpgep._optional import progress_bar
from dpgep._show import html_table
from dpgep.sources import kinds
from dpgep.sources.arrays import Array, SideBySide
from dpgep.sources.batches import Assembler, Kept, Pieces, kept, rebatch
from dpgep.sources.encoding import BOOLEANS, Categories, Declared, Encoding
from dpgep.sources.files import ParquetFiles, ParquetPart, open_files
from dpgep.sources.filters import Condition, Filtered
from dpgep.sources.names import Key, Names, check_same, listed
from dpgep.sources.source import Source, packages_messages_withheld
from dpgep.sources.tables import ArrowTable, Dataset, Frame, LazyFrame, Query, SparkFrame, Stream, copied

SUPPORTED = (
    "paths of Parquet, CSV, Arrow, NPY or NPZ files, a table of pyarrow, pandas, polars or Spark, an array of NumPy, "
    "SciPy, h5py or Zarr, a tuple or mapping of them, batches, or a function that returns any"
)


def open_source(value: Any, encoding: Encoding, condition: Condition | None = None) -> Source:
    """The source that a value given to `dpgep.scan` stands for: categories and dates as declared, rows that meet it."""
    source = _opened(value, encoding.categories)
    if condition is not None:
        if not isinstance(source, ArrowTable):
            raise TypeError("a filter is for files of Parquet, CSV or Arrow, and tables of pyarrow or polars")
        source = Filtered(source, condition)
    return source.encode(encoding) if isinstance(source, Source) else Batches(source, encoding)


def _opened(value: Any, categories: Categories) -> Any:
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
    source = Array(value, "a batch") if isinstance(value, list) else _source(value)
    if source is None:
        raise TypeError(f"a batch is {_name(value)}: it must be an array, a table, or a tuple or mapping of arrays")
    return source.encode(encoding)


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
        batches = self._values() if callable(self._values) else self._values
        if not isinstance(batches, Iterable):
            raise TypeError(f"the function must return an iterable of batches, got {type(batches).__name__}")
        iterator = iter(batches)
        try:
            first = next(iterator)
        except StopIteration:
            raise ValueError("no batches were yielded: for empty data, yield one, np.empty((0, columns))") from None
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


def scan(
    source: Any,
    *,
    n_rows: int | None = None,
    batch_rows: int | None = None,
    progress: bool | None = None,
    categories: Mapping[Any, Sequence[Any]] | None = None,
    dates: Sequence[Any] | None = None,
    filter: Condition | None = None,
    query: str | None = None,
) -> Scan:
    """Data that need not fit into memory, one row per person, as batches.

    Parameters
    ----------
    source
        - a path, a folder, a pattern such as ``"visits-*.csv"``, or a list of them: files of Parquet, CSV (a line of
          names, UTF-8; also compressed), Arrow (Feather), NPY or NPZ, told by their suffixes (others are Parquet) and
          read in the order of their paths;
        - a pyarrow Dataset, Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, or another object
          with ``__arrow_c_stream__``;
        - a polars LazyFrame, or a connection of ADBC (`adbc_driver_postgresql.dbapi.connect(...)`, SQLite's, ...) with
          its ``query``, which run in each pass; rows that they choose by people's values need
          ``adjacency="add-remove"``, which protects their number;
        - a Spark DataFrame, whose executors sum the rows (docs/distributed.md): problems read it, `Scan.read` does not;
        - an array of shape (n, d): NumPy's, also memory-mapped, a SciPy sparse matrix, a data set of h5py, an array of
          Zarr; or several with the same rows, in a tuple or a mapping from names;
        - batches: a list, another iterable, or a function without arguments that returns one. A batch is anything of
          the two lines above: an array, a table, a tuple ``(X, y)``, a mapping from names.
    n_rows : int, optional
        Number of rows in all, where it cannot be known without reading them (batches, streams). It is checked.
    batch_rows : int, optional
        Most rows in a batch. Default: 16 MB of what is selected.
    progress : bool, optional
        Whether each pass shows a bar on stderr (extra ``progress``). Default: in a terminal or a notebook, after one
        second. It shows the number of rows and is not private: turn it off where that number is secret and others
        watch.
    categories : mapping from names of columns to lists, optional
        The categories of columns of text or other values, e.g. ``{"colour": ["red", "green"]}``: public, not to be read
        off the data. In a matrix such a column becomes indicator columns "colour=red", "colour=green", as a categorical
        column does whose type declares them (`pandas.CategoricalDtype`, `polars.Enum`). A value that is not in the
        list, or missing, has zeros in all of them.
    dates : list of columns, optional
        Columns of dates or times that count as numbers in a matrix: days since 1970-01-01.
    filter : str or pyarrow.compute.Expression, optional
        Which rows count, as ``"age >= 18 and region in ['north', 'south']"``: names of columns (``column("blood
        pressure")`` where they are no names of Python), numbers, text, dates as text, comparisons, ``in``, ``is None``,
        ``and``, ``or``, ``not``. As in SQL, a comparison with a missing value is neither true nor false, and keeps no
        row; nor does an expression that cannot be computed, such as 6 / y where y is 0. How many rows are kept then
        depends on people's values: problems need ``adjacency="add-remove"``, which protects that number.
    query : str, optional
        The SQL query whose rows are read from a connection of ADBC. Its rows need one order in all passes, as by
        ``ORDER BY``, and one snapshot of the database (docs/sources.md).

    Returns
    -------
    Scan
        ``scan[key]`` selects columns, to be passed to a problem in the place of X, Y or labels; see `Selection`.
        A scan of one matrix can be passed itself.

    Raises
    ------
    TypeError
        If the source is of another kind, or an array in it is masked. When columns are selected as a matrix, if one of
        them is text, or categorical without declared categories.
    ValueError
        If ``n_rows`` is not the number of rows, or arrays side by side differ in it; messages do not say it. If there
        are no batches at all: data of no rows are one batch of none.

    Notes
    -----
    Data are read when a problem is solved, once for each pass over them; iterators can be read once only. Nothing is
    dropped: what is null becomes NaN, which `dpgep.solve` refuses before anything is released.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> people = dpgep.scan({"x": np.eye(4), "label": np.array(["a", "b", "a", "a"])}, batch_rows=2)
    >>> for x, label in people.read(people["x"], people["label"]):
    ...     print(x.shape, label)
    (2, 4) ['a' 'b']
    (2, 4) ['a' 'a']
    """
    for name, value in (("n_rows", n_rows), ("batch_rows", batch_rows)):
        if value is not None:
            require_count(name, value)
    if progress not in (None, True, False):
        raise ValueError(f"progress must be True, False or None, got {progress!r}")
    if isinstance(source, Selection):
        raise TypeError("a selection already belongs to a scan: pass it directly to a problem")
    if isinstance(source, Scan):
        if all(option is None for option in (n_rows, batch_rows, progress, categories, dates, filter)):
            return source
        raise TypeError("already a scan: set its options when it is created")
    if (query is not None) != kinds.is_connection(source):
        raise TypeError("a query belongs to a connection of ADBC: dpgep.scan(connection, query='SELECT ...')")
    if query is not None:
        source = Query(source, query)
    if filter is not None and n_rows is not None:
        raise ValueError("how many rows pass a filter is not known beforehand: give n_rows or filter")
    return Scan(source, n_rows, batch_rows, progress, Encoding.declared(categories, dates), filter)


def is_source(value: Any) -> bool:
    """Whether a value in the place of X is to be scanned: not an array in memory, a sparse matrix or nested lists."""
    is_table = isinstance(value, (Scan, Selection)) or any(is_kind(value) for is_kind, _ in _TABLES)
    stored = kinds.is_stored_array(value) and len(value.shape) == 2
    return is_table or stored or kinds.is_path(value) or _is_iterator(value) or callable(value)


def as_selection(value: Any) -> Selection:
    """A selection: the value itself, all columns of a scan, or all columns of a new scan of the value."""
    return value if isinstance(value, Selection) else Selection(scan(value), None)


class Selection:
    """Columns of a scan: a matrix, or a vector of one value per row.

    ``scan[key]`` makes one. Of a table, a name is a column (a matrix if it holds lists of one fixed size) and a list of
    names a matrix; of a tuple, a position is one of its arrays, and so is a name of a mapping; of one matrix, a slice
    or a list of positions are columns, and a position is a column as a vector. ``n_columns`` is the number of columns
    of a matrix; None for a vector.
    """

    def __init__(self, scan: Scan, key: Key) -> None:
        self.scan = scan
        self.key = key
        self.n_columns: int | None = scan.source.width(key)

    @property
    def names(self) -> Names:
        """Names of the columns of a matrix; None where they have none."""
        return self.scan.source.names(self.key)

    @property
    def declared(self) -> Declared | None:
        """The values that the type of a column declares: of booleans two, of categorical data in memory all theirs."""
        return self.scan.source.declared(self.key)

    def __repr__(self) -> str:
        names, width = self.names, self.n_columns
        what = "a vector" if width is None else f"{width} columns" if names is None else f"columns {listed(names)}"
        return f"Selection({what})"


class Scan:
    """Rows of people in batches, read in passes; made by `dpgep.scan`.

    ``repeatable`` says whether they can be read more than once, ``passes`` how many passes were begun.
    """

    def __init__(
        self,
        source: Any,
        n_rows: int | None,
        batch_rows: int | None,
        progress: bool | None,
        encoding: Encoding,
        condition: Condition | None = None,
    ) -> None:
        #: what is scanned, as it was given
        self.value = source
        self.source = open_source(source, encoding, condition)
        self.repeatable = self.source.repeatable
        self._encoding = encoding
        self._condition = condition
        #: whether the number of rows depends on what is in them
        self.filtered = condition is not None
        known = self.source.n_rows if n_rows is not None else None
        if known is not None and known != n_rows:
            raise ValueError(f"n_rows = {n_rows} is not the number of rows of the source: correct or omit it")
        self._n_rows = n_rows
        self._batch_rows = batch_rows
        self._progress = progress
        self.passes = 0
        self._rows_of_a_pass: int | None = None

    def __getitem__(self, key: Any) -> Selection:
        return Selection(self, tuple(key) if isinstance(key, (list, np.ndarray)) else key)

    @property
    def n_rows(self) -> int | None:
        """Number of rows, if it was given or is known without reading them: not private."""
        return self._n_rows if self._n_rows is not None else self.source.n_rows

    def __repr__(self) -> str:
        return f"Scan({', '.join(text for _, text in self._about())})"

    def _repr_html_(self) -> str:
        return html_table([("Scan", ""), *self._about()])

    def _about(self) -> list[tuple[str, str]]:
        """What is public about the source; not how many rows there are."""
        columns, often = self.source.columns, "read any number of times" if self.repeatable else "read once"
        what = f"{self.source.kind}s"
        names = [] if columns is None else [(what.capitalize(), f"{len(columns)} {what}: {listed(columns, math.inf)}")]
        return [*names, ("Passes", f"{often}, {self.passes} so far")]

    def read(
        self, *selections: Selection | Scan, apart: bool = False, store: Kept | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """One pass: batches with one array per selection, the same rows in all, in the order of the source.

        A matrix comes as a CSR matrix if it is sparse, else with contiguous rows in float32 or float64 (or uint8 if all
        of it is uint8 or boolean): float32 where that is exact, so for float16, float32 and integers of up to 16 bits,
        else float64, to which integers of 64 bits beyond 2^53 are rounded. A vector keeps its type; text is
        str. What is null is NaN. With ``apart``, a matrix is not copied if a batch is one large piece of a table, but
        comes as `Columns`, and text that Arrow holds as `Text`. Arrays are valid until the next batch, whose memory may
        be the same. With a ``store``, rows of files or of a database are read once, and kept there, if all have room.

        Raises
        ------
        RuntimeError
            At a second pass over what can be read once.
        ValueError
            If a batch lacks a column or differs in width; if data cannot be read or converted, of which the message
            says the column and its type but no value (a `DataError`); at the end, if the number of rows is not
            ``n_rows``, or not that of the last pass.
        TypeError
            If a column holds another kind of values than in the first file or batch.
        """
        if not selections or any((each if isinstance(each, Scan) else each.scan) is not self for each in selections):
            raise ValueError("read requires at least one selection of this scan: scan.read(scan['x'], scan['y'])")
        if self.passes and not self.repeatable:
            advice = "pass a list of batches, or a function that returns them, dpgep.scan(lambda: read_batches())"
            raise RuntimeError(f"these data can be read only once, and a pass has already begun: {advice}")
        chosen = [as_selection(each) for each in selections]
        self.passes += 1
        keys = [each.key for each in chosen]
        pieces = self.source.pieces(keys, self._batch_rows)
        if store is not None and self.source.reads_ahead:
            pieces = kept(store, (self, *keys), pieces, self.n_rows)
        return self._batches(self._checked(pieces, chosen), chosen, apart)

    def _batches(self, pieces: Iterator[Pieces], selections: list[Selection], apart: bool) -> Iterator[tuple[Any, ...]]:
        assemblers = [Assembler(apart) for _ in selections]
        bar_of_pass = progress_bar(self._progress, f"pass {self.passes}", self.n_rows, "rows")
        with packages_messages_withheld("the source"), bar_of_pass as bar:
            for batch in rebatch(pieces, self._batch_rows):
                arrays = tuple(assemble([piece[i] for piece in batch]) for i, assemble in enumerate(assemblers))
                yield arrays
                if bar is not None:
                    bar.update(arrays[0].shape[0])

    def _checked(self, pieces: Iterator[Pieces], selections: list[Selection]) -> Iterator[Pieces]:
        """The pieces, with the widths and the number of rows that are expected."""
        expected, rows = [each.n_columns for each in selections], 0
        for piece in pieces:
            widths = [None if len(part.shape) == 1 else int(part.shape[1]) for part in piece]
            if widths != expected:
                change = f"from {expected} to {widths} (None is a vector)"
                raise ValueError(f"the widths of the selections change {change}: all batches need the same columns")
            if len({part.shape[0] for part in piece}) > 1:
                raise ValueError("the selections have different numbers of rows: all must describe the same people")
            rows += piece[0].shape[0]
            yield piece
        self.check_rows(rows)

    def again(self) -> Callable[[Any], Scan]:
        """What scans other data like these, on another machine too."""
        return partial(
            Scan, n_rows=None, batch_rows=self._batch_rows, progress=False, encoding=self._encoding,
            condition=self._condition,
        )  # fmt: skip

    def check_rows(self, rows: int) -> None:
        """Raise ValueError at the end of a pass unless it gave as many rows as were declared, and as the last one."""
        # no number of rows is in the messages but the caller's own: it may be secret
        if self._n_rows is not None and rows != self._n_rows:
            raise ValueError(f"the source does not have n_rows = {self._n_rows} rows: correct or omit it")
        if self._n_rows is None and self.source.n_rows not in (None, rows):
            raise ValueError("the number of rows differs from what the source declares: its data must not change")
        if self._rows_of_a_pass not in (None, rows):
            advice = "data must not change, and a scanned function must start from the beginning at every call"
            raise ValueError(f"a pass gave a different number of rows than the previous one: {advice}")
        self._rows_of_a_pass = rows
