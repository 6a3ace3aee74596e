"""Files as sources: which ones paths, folders and patterns stand for; CSV, Parquet and Arrow.

Only the columns that are needed are read, and little of each is in memory at a time. pyarrow's own scan of a data set
reads ahead of what uses the rows, of Parquet whole row groups: often all of the data. Of CSV, types are found in the
first megabyte, and errors quote no value: pyarrow's messages, which quote values and rows, are withheld.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from dpgep._checks import quoted
from dpgep.errors import DataError
from dpgep.sources.arrays import Array, SideBySide
from dpgep.sources.batches import BATCH_BYTES
from dpgep.sources.encoding import Categories
from dpgep.sources.names import Key, as_text, listed, stands_for
from dpgep.sources.source import Source, packages_messages_withheld, replaced
from dpgep.sources.tables import ArrowTable, alone, is_numeric, pyarrow

# pyarrow looks at the first block to find types.
_BLOCK = 1 << 20
# What separates columns if it is not the comma.
_SEPARATORS = (";", "\t", "|")
_SAVE_AS_UTF8 = "save it in UTF-8; it may be in Latin-1 or Windows-1252"


class CsvFiles(ArrowTable):
    """CSV files in UTF-8 with a line of names, one after the other; compressed where their suffix says so.

    The separator is a comma, or what separates the names. With another than a comma, numbers may have decimal commas,
    and do if more columns are numbers then. Numbers are float64, also those in columns that start out whole or empty.
    The columns of ``text`` are text whatever is in them. Rows are never skipped: one that lacks a value, or a value of
    another type than its column, is an error.
    """

    n_rows = None
    reads_ahead = 2

    def __init__(self, files: Sequence[str], text: Sequence[object] = ()) -> None:
        self._files = list(files)
        separator = self._separator()
        schema, self._decimal_point = self._inspected(separator), "."
        if separator != ",":
            with_commas = self._inspected(separator, ",")
            if sum(map(is_numeric, with_commas.types)) > sum(map(is_numeric, schema.types)):
                schema, self._decimal_point = with_commas, ","
        as_text(schema.names)  # refuses two of one name
        if any(stands_for(name, float) for name in schema.names):
            first = self._files[0]
            must = "must name the columns, but a number stands in it: add a line of names"
            raise ValueError(f"the first line of {first} {must}")
        pa = pyarrow()
        fields = [pa.field(each.name, pa.string() if each.name in text else _type(each.type)) for each in schema]
        self.found_types = frozenset(each.name for each in fields if not pa.types.is_floating(each.type)) - set(text)
        self.found_text = self.found_types & {each.name for each in fields if pa.types.is_string(each.type)}
        self.schema = pa.schema(fields)
        # an empty line is a missing value where there is one column, and no row where there are more
        self._parse_options = _parsing(separator, ignore_empty_lines=len(fields) > 1)

    def read_as_text(self, key: Key) -> None:
        self.schema = self.schema.set(self.schema.get_field_index(key), pyarrow().field(key, pyarrow().string()))

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        csv = pyarrow(".csv")
        # pyarrow's scan of a data set parses ahead of what uses the rows, without a limit; with threads, this reader
        # does so by a block for each processor, and is no faster
        reading = csv.ReadOptions(block_size=_BLOCK, use_threads=False)
        kinds = {name: self.schema.field(name).type for name in names}
        types = csv.ConvertOptions(include_columns=names, column_types=kinds, decimal_point=self._decimal_point)
        for file in self._files:
            with self._values_withheld(), csv.open_csv(file, reading, self._parse_options, types) as reader:
                yield from _joined(reader)

    def _separator(self) -> str:
        """What separates the names, whatever the rows hold."""
        csv, file = pyarrow(".csv"), self._files[0]
        expected = "\t" if ".tsv" in PurePath(file.lower()).suffixes else ","
        parsing = _parsing(expected, invalid_row_handler=lambda _: "skip")
        with self._values_withheld(file), csv.open_csv(file, csv.ReadOptions(block_size=_BLOCK), parsing) as reader:
            first, *others = reader.schema.names
        return expected if others else next((each for each in _SEPARATORS if each in first), expected)

    def _inspected(self, separator: str, decimal_point: str = ".") -> Any:
        """The schema of the first file; all must have its names."""
        csv, schemas = pyarrow(".csv"), []
        reading, types = csv.ReadOptions(block_size=_BLOCK), csv.ConvertOptions(decimal_point=decimal_point)
        for file in self._files:
            with self._values_withheld(file), csv.open_csv(file, reading, _parsing(separator), types) as reader:
                schemas.append(reader.schema)
                reader.schema.names  # noqa: B018  # of another encoding, refused as the file is opened
        for file, schema in zip(self._files, schemas, strict=True):
            if schema.names != schemas[0].names:
                raise ValueError(f"{file} has other columns than {self._files[0]}, or in another order")
        return schemas[0]

    def _values_withheld(self, file: str | None = None) -> AbstractContextManager[None]:
        """Errors of pyarrow say what it found, without the value or row that it quotes."""
        ours = (pyarrow().ArrowInvalid, UnicodeDecodeError)
        return replaced(lambda error: self._without_values(error, file) if isinstance(error, ours) else error)

    def _without_values(self, error: Exception, file: str | None) -> DataError:
        where, message = listed([file] if file else self._files), str(error)
        if isinstance(error, UnicodeDecodeError):
            return DataError(f"the names in the first line of {where} are not in UTF-8: {_SAVE_AS_UTF8}")
        column = re.search(r"In CSV column #(\d+)", message)
        if column and "conversion error" in message and file is None:
            field = self.schema.field(int(column[1]))
            name = quoted(field.name)
            if str(field.type) == "string":
                return DataError(f"column {name} of {where} holds text that is not in UTF-8: {_SAVE_AS_UTF8}")
            kind = "number" if str(field.type) == "double" else str(field.type)
            advice = "declare the categories of text" if kind == "number" else "leave the column out"
            what = f"unlike the first megabyte of {where}: correct the file, or {advice}"
            return DataError(f"column {name} holds a value that is no {kind}, {what}")
        if "Expected" in message and "columns" in message:
            return DataError(f"a row of {where} has more or fewer values than there are names: correct the file")
        if "Empty CSV" in message:
            return DataError(f"{where} is empty: there must be at least a line of names")
        return DataError(f"{where} cannot be read as CSV in UTF-8; pyarrow's message is suppressed: it quotes values")


def _joined(batches: Iterable[Any]) -> Iterator[Any]:
    """The rows of small batches in larger ones, which are converted faster, and worth fetching ahead."""
    begun: list[Any] = []
    size = 0
    for batch in itertools.chain(batches, [None]):
        if batch is not None:
            begun.append(batch)
            size += batch.nbytes  # asked once for each: it visits every buffer
        if begun and (batch is None or size >= BATCH_BYTES):
            yield from pyarrow().Table.from_batches(begun).combine_chunks().to_batches()
            begun, size = [], 0


def _parsing(separator: str, **options: Any) -> Any:
    return pyarrow(".csv").ParseOptions(delimiter=separator, newlines_in_values=True, **options)


def _type(found: Any) -> Any:
    """The type of a column whose first values are of the type that is ``found``."""
    types = pyarrow().types
    if types.is_binary(found):  # text that is not in UTF-8
        return pyarrow().string()
    return pyarrow().float64() if types.is_integer(found) or types.is_null(found) else found


# Memory per column while a file is read; without a buffer, the column's share of a row group would lie in memory.
_READ_BUFFER = 1 << 18
# Files from which on each is a part of its own: enough for the workers of a large cluster, and no file is opened here.
_MANY_FILES = 256
# Bytes (uncompressed) that a part has at least: sums over less would cost more than the rows.
_PART_BYTES = 1 << 26


class TableFiles(ArrowTable):
    """Files of one data set of pyarrow, in its order, of the schema of the first. A column that is not there is null;
    one of another type is read if it holds the same kind of values, and an error if not, whatever its values are.
    """

    reads_ahead = 2

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.schema = dataset.schema

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        for fragment in self._dataset.get_fragments():
            keys = pyarrow(".dataset").get_partition_keys(fragment.partition_expression)
            with self._opened(fragment) as (schema, batches):
                stored = [name for name in names if name in schema.names]
                for name in stored:
                    expected, found = self.schema.field(name).type, schema.field(name).type
                    if found != expected and _values_of(found) not in (_values_of(expected), "nothing"):
                        types = f"{expected} in the first file and {found} in another"
                        raise TypeError(f"column {quoted(name)} is {types}: use one type in all files")
                for batch in batches(stored, rows):
                    yield self._completed(batch, names, keys)

    @abstractmethod
    def _opened(self, fragment: Any) -> AbstractContextManager[tuple[Any, Callable[[list[str], int], Iterable[Any]]]]:
        """The schema of a file, and what reads some of its columns, about this many rows at a time."""

    def _completed(self, batch: Any, names: list[str], keys: dict[str, Any]) -> Any:
        """The batch with the columns that the file does not hold, or without a type because nothing is in them. Others
        keep the file's types: whether a cast fails depends on values.
        """
        pa = pyarrow()
        held = [field.name for field in batch.schema if not pa.types.is_null(field.type)]
        if held == names:
            return batch

        def column(name: str) -> Any:
            value = None if name in held else pa.scalar(keys.get(name), self.schema.field(name).type)
            return batch.column(name) if name in held else pa.repeat(value, batch.num_rows)

        return pa.RecordBatch.from_arrays(list(map(column, names)), names=names)


class ParquetFiles(TableFiles):
    """Parquet files, or folders of them in the order of their paths; Hive partitions (year=2024) are columns."""

    reads_ahead = 1  # of up to 48 MB
    _row_groups: list[int] | None = None  # all

    def __init__(self, paths: Sequence[str | Path]) -> None:
        places = [str(path) for path in paths]
        what = places[0] if len(places) == 1 else places
        super().__init__(pyarrow(".dataset").dataset(what, format="parquet", partitioning="hive"))
        if not self._dataset.files:
            raise ValueError(f"no Parquet files in {', '.join(places)}")

    @cached_property
    def n_rows(self) -> int:
        return int(self._dataset.count_rows())

    @contextmanager
    def _opened(self, fragment: Any) -> Iterator[tuple[Any, Callable[[list[str], int], Iterable[Any]]]]:
        how = {"filesystem": fragment.filesystem, "buffer_size": _READ_BUFFER, "pre_buffer": False}
        with pyarrow(".parquet").ParquetFile(fragment.path, **how) as file:
            yield file.schema_arrow, lambda names, rows: file.iter_batches(_fitting(rows), self._row_groups, names)

    def parts(self) -> list[ParquetPart]:
        """One part for each file, or, where there are few, for every 64 MB of row groups that follow each other."""
        files = list(self._dataset.get_fragments())
        runs = (lambda _: [None]) if len(files) >= _MANY_FILES else _runs_of_row_groups
        return [ParquetPart(self._dataset, file, run) for file in files for run in runs(file)]


def _fitting(rows: int) -> int:
    """About as many rows, of which columns nearly fill the memory that Arrow takes: the next power of two bytes.

    Seven eighths of it: columns that fill it begin at like addresses, and take a third longer to decode.
    """
    return 7 << (3 * rows // 14).bit_length() - 1 if rows > 4 else rows


class ParquetPart(ParquetFiles):
    """Some row groups of a file (None: all) in a data set of pyarrow: read by itself, on another machine too."""

    n_rows = None  # type: ignore[assignment]

    def __init__(self, dataset: Any, file: Any, row_groups: list[int] | None) -> None:
        part = pyarrow(".dataset").FileSystemDataset([file], dataset.schema, dataset.format, dataset.filesystem)
        TableFiles.__init__(self, part)
        self._row_groups = row_groups


def _runs_of_row_groups(file: Any) -> Iterator[list[int]]:
    """Numbers of row groups, in runs of at least _PART_BYTES; one empty run for a file without rows."""
    run: list[int] = []
    size = 0
    for group in file.row_groups:
        run.append(group.id)
        size += group.total_byte_size
        if size >= _PART_BYTES:
            yield run
            run, size = [], 0
    if run or not file.row_groups:
        yield run


class ArrowFiles(TableFiles):
    """Arrow (Feather) files. A record batch is read at a time, as the file has it: of Feather, 65 536 rows."""

    n_rows = None

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__(pyarrow(".dataset").dataset(list(files), format="ipc"))

    @contextmanager
    def _opened(self, fragment: Any) -> Iterator[tuple[Any, Callable[[list[str], int], Iterable[Any]]]]:
        with fragment.filesystem.open_input_file(fragment.path) as file:
            ipc = pyarrow(".ipc")
            schema = ipc.open_file(file).schema

            def batches(names: list[str], rows: int) -> Iterator[Any]:
                chosen = ipc.IpcReadOptions(included_fields=list(map(schema.get_field_index, names)))
                reader = ipc.open_file(file, options=chosen)
                for i in range(reader.num_record_batches):
                    yield from alone(reader.get_batch(i), len(schema))

            yield schema, batches


def _values_of(found: Any) -> str:
    types = pyarrow().types
    if types.is_dictionary(found):
        return _values_of(found.value_type)
    if types.is_null(found):
        return "nothing"
    if is_numeric(found):
        return "numbers"
    if types.is_string(found) or types.is_large_string(found):
        return "text"
    if types.is_timestamp(found):
        return "times with a zone" if found.tz else "times"
    return f"numbers, {found.list_size} in a list" if types.is_fixed_size_list(found) else str(found)


_SUFFIXES = {
    "parquet": (".parquet", ".pq"),
    "CSV": (".csv", ".tsv", ".txt"),
    "Arrow": (".arrow", ".feather", ".ipc"),
    "NPY": (".npy",),
    "NPZ": (".npz",),
}
_KINDS = {suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes}
# what holds tables and is not read here, but by pandas
_READ_BY_PANDAS = {
    ".xlsx": "excel", ".xls": "excel", ".xlsm": "excel", ".ods": "excel", ".sav": "spss", ".dta": "stata",
    ".sas7bdat": "sas", ".xpt": "sas", ".json": "json",
}  # fmt: skip
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")


def open_files(values: Sequence[str | Path], categories: Categories) -> Source | list[Any]:
    """The source that paths, folders or patterns stand for; several files of arrays come as a list of batches."""
    paths = [path for value in values for path in _matching(os.fspath(value))]
    for path in paths:
        if reader := _READ_BY_PANDAS.get(PurePath(path.lower()).suffix):
            what = f"save it as CSV or Parquet, or pass pandas.read_{reader}(path), of which all rows are in memory"
            raise ValueError(f"{path} is of a kind that is not read here: {what}")
    kinds = {_kind_of_place(path) for path in paths}
    if len(kinds) > 1:
        raise ValueError(f"files of several kinds, {' and '.join(sorted(kinds))}: read one kind at a time")
    (kind,) = kinds
    if kind == "parquet":
        return ParquetFiles(paths)
    files = [
        file
        for path in paths
        for file in ([each for each in _walk(path) if _kind(each) == kind] if os.path.isdir(path) else [path])
    ]
    if kind == "CSV":
        is_text = {name: all(isinstance(value, str) for value in declared) for name, declared in categories.items()}
        return CsvFiles(files, [name for name in categories if is_text[name]])
    if kind == "Arrow":
        with packages_messages_withheld(listed(files)):
            return ArrowFiles(files)
    if kind == "NPY":
        mapped = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
        return mapped if len(files) > 1 else Array(mapped[0], "the matrix")
    arrays = []
    for file in files:
        with np.load(file, allow_pickle=False) as archive:
            arrays.append(dict(archive))
    return arrays if len(files) > 1 else SideBySide(arrays[0], "column")


def _matching(path: str) -> list[str]:
    if os.path.exists(path) or "://" in path:
        return [path]
    if not glob.has_magic(path):
        raise FileNotFoundError(f"there is no file or folder {path!r}")
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise FileNotFoundError(f"no files match {path!r}")
    return found


def _kind(path: str) -> str | None:
    name = PurePath(path.lower())
    return _KINDS.get(PurePath(name.stem).suffix if name.suffix in _COMPRESSED else name.suffix)


def _kind_of_place(path: str) -> str:
    """The kind of a file, or of the files in a folder; Parquet where no suffix says."""
    if not os.path.isdir(path):
        return _kind(path) or "parquet"
    found = {kind for file in _walk(path) if (kind := _kind(file)) is not None}
    if len(found) > 1 and "parquet" not in found:
        raise ValueError(f"{path} holds files of several kinds, {' and '.join(sorted(found))}: use a pattern, as *.csv")
    return "parquet" if not found or "parquet" in found else found.pop()


def _walk(folder: str) -> list[str]:
    """All files of a folder and those in it, in the order of their paths; hidden ones apart."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    hidden = (".", "_")
    return sorted(str(each) for each in files if not any(p.startswith(hidden) for p in each.relative_to(folder).parts))
