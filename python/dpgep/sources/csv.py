"""CSV files as a source. Their types are found in the first megabyte, and all numbers are float64.

Errors quote no value: pyarrow's messages, which quote values and rows, are withheld.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import Any

from dpgep.errors import DataError
from dpgep.sources.batches import BATCH_BYTES
from dpgep.sources.names import as_text, listed
from dpgep.sources.source import replaced
from dpgep.sources.tables import ArrowTable, pyarrow

# pyarrow looks at the first block to find types.
_BLOCK = 1 << 20
# What separates columns if it is not the comma.
_SEPARATORS = (";", "\t", "|")
_SAVE_AS_UTF8 = "save it in UTF-8; it may be in Latin-1 or Windows-1252"


class CsvFiles(ArrowTable):
    """CSV files in UTF-8 with a line of names, one after the other; compressed where their suffix says so.

    The separator is a comma, or what separates the names. Numbers are float64, also those in columns that start out
    whole or empty; true and false are booleans, 2024-03-31 is a date. The columns of ``text`` are text whatever
    is in them. Empty values, NA, NaN and the like are missing in all but text. Rows are never skipped: one that lacks a
    value, or a value of another type than its column, is an error.
    """

    n_rows = None
    reads_ahead = True

    def __init__(self, files: Sequence[str], text: Sequence[object] = ()) -> None:
        self._files = list(files)
        separator = "\t" if ".tsv" in PurePath(self._files[0].lower()).suffixes else ","
        schema = self._inspected(separator)
        if len(schema.names) == 1:
            others = [each for each in _SEPARATORS if each in schema.names[0]]
            separator = others[0] if others else separator
            schema = self._inspected(separator) if others else schema
        self._check_names(schema.names)
        pa = pyarrow()
        fields = [pa.field(each.name, pa.string() if each.name in text else _type(each.type)) for each in schema]
        self.found_types = frozenset(each.name for each in fields if not pa.types.is_floating(each.type)) - set(text)
        self.found_text = self.found_types & {each.name for each in fields if pa.types.is_string(each.type)}
        self.schema = pa.schema(fields)
        # an empty line is a missing value where there is one column, and no row where there are more
        self._parse_options = _parsing(separator, ignore_empty_lines=len(fields) > 1)

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        csv = pyarrow(".csv")
        # pyarrow's scan of a data set parses ahead of what uses the rows, without a limit; with threads, this reader
        # does so by a block for each processor, and is no faster
        reading = _reading(use_threads=False)
        types = csv.ConvertOptions(
            include_columns=names, column_types={name: self.schema.field(name).type for name in names}
        )
        for file in self._files:
            with self._values_withheld(), csv.open_csv(file, reading, self._parse_options, types) as reader:
                yield from _joined(reader)

    def _inspected(self, separator: str) -> Any:
        """The schema of the first file; all must have its names."""
        csv, schemas = pyarrow(".csv"), []
        for file in self._files:
            with self._values_withheld(file), csv.open_csv(file, _reading(), _parsing(separator)) as reader:
                schemas.append(reader.schema)
                reader.schema.names  # noqa: B018  # of another encoding, refused as the file is opened
        for file, schema in zip(self._files, schemas, strict=True):
            if schema.names != schemas[0].names:
                raise ValueError(f"{file} has other columns than {self._files[0]}, or in another order")
        return schemas[0]

    def _check_names(self, names: list[str]) -> None:
        as_text(names)  # refuses two of one name
        if any(map(_is_number, names)):
            raise ValueError(
                f"the first line of {self._files[0]} must name the columns, but a number stands in it: it may be a row "
                "of data, and names are published. Add a line of names"
            )

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
            if str(field.type) == "string":
                return DataError(f"column {field.name!r} of {where} holds text that is not in UTF-8: {_SAVE_AS_UTF8}")
            kind = "number" if str(field.type) == "double" else str(field.type)
            advice = "declare the categories of text" if kind == "number" else "leave the column out"
            return DataError(
                f"column {field.name!r} holds a value that is no {kind}, unlike the first megabyte of {where}: correct "
                f"the file, or {advice}"
            )
        if "Expected" in message and "columns" in message:
            return DataError(f"a row of {where} has more or fewer values than there are names: correct the file")
        if "Empty CSV" in message:
            return DataError(f"{where} is empty: there must be at least a line of names")
        return DataError(
            f"{where} cannot be read as CSV in UTF-8; what pyarrow says is suppressed since it may quote values"
        )


def _joined(batches: Iterable[Any]) -> Iterator[Any]:
    """The rows of small batches in larger ones, which are converted faster, and worth fetching ahead."""
    begun: list[Any] = []
    for batch in itertools.chain(batches, [None]):
        begun += [] if batch is None else [batch]
        if begun and (batch is None or sum(each.nbytes for each in begun) >= BATCH_BYTES):
            yield from pyarrow().Table.from_batches(begun).combine_chunks().to_batches()
            begun = []


def _reading(*, use_threads: bool = True) -> Any:
    return pyarrow(".csv").ReadOptions(block_size=_BLOCK, use_threads=use_threads)


def _parsing(separator: str, *, ignore_empty_lines: bool = True) -> Any:
    return pyarrow(".csv").ParseOptions(
        delimiter=separator, newlines_in_values=True, ignore_empty_lines=ignore_empty_lines
    )


def _type(found: Any) -> Any:
    """The type of a column whose first values are of the type that is ``found``."""
    types = pyarrow().types
    if types.is_binary(found):  # text that is not in UTF-8
        return pyarrow().string()
    return pyarrow().float64() if types.is_integer(found) or types.is_null(found) else found


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
