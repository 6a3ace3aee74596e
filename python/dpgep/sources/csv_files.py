"""CSV files as a source. Their types are found in the first megabyte, and all numbers are float64.

Errors quote no value: pyarrow's messages, which quote values and rows, are withheld.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from dpgep.sources.arrow import Dataset, pyarrow
from dpgep.sources.names import as_text, listed
from dpgep.sources.source import UnreadableError

# pyarrow looks at the first block to find types.
_BLOCK = 1 << 20
# What separates columns if it is not the comma.
_SEPARATORS = (";", "\t", "|")


class CsvFiles(Dataset):
    """CSV files in UTF-8 with a line of names, one after the other; compressed where their suffix says so.

    The separator is a comma, or what separates the names. Numbers are float64, also those in columns that start out
    whole or empty; true and false are booleans, 2024-03-31 is a date. The columns of ``text`` are text whatever
    is in them. Empty values, NA, NaN and the like are missing in all but text. Rows are never skipped: one that lacks a
    value, or a value of another type than its column, is an error.
    """

    n_rows = None

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
        #: columns that are text because of values in the first megabyte, not because the caller says so
        self.found_text = frozenset(each.name for each in fields if pa.types.is_string(each.type)) - set(text)
        # an empty line is a missing value where there is one column, and no row where there are more
        file_format = pyarrow(".dataset").CsvFileFormat(
            _parsing(separator, ignore_empty_lines=len(fields) > 1), read_options=_reading()
        )
        super().__init__(pyarrow(".dataset").dataset(self._files, format=file_format, schema=pa.schema(fields)))

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        try:
            yield from super().record_batches(names, rows)
        except pyarrow().ArrowInvalid as error:
            raise self._without_values(error) from None

    def _inspected(self, separator: str) -> Any:
        """The schema of the first file; all must have its names."""
        csv, schemas = pyarrow(".csv"), []
        for file in self._files:
            try:
                with csv.open_csv(file, _reading(), _parsing(separator)) as reader:
                    schemas.append(reader.schema)
            except pyarrow().ArrowInvalid as error:
                raise self._without_values(error, file) from None
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

    def _without_values(self, error: Exception, file: str | None = None) -> UnreadableError:
        """What pyarrow found, without the value or row that it quotes."""
        where, message = listed([file] if file else self._files), str(error)
        column = re.search(r"In CSV column #(\d+)", message)
        if column and "conversion error" in message and file is None:
            field = self.schema.field(int(column[1]))
            kind = "number" if str(field.type) == "double" else str(field.type)
            advice = "declare the categories of text" if kind == "number" else "leave the column out"
            return UnreadableError(
                f"column {field.name!r} holds a value that is no {kind}, unlike the first megabyte of {where}: correct "
                f"the file, or {advice}"
            )
        if "Expected" in message and "columns" in message:
            return UnreadableError(f"a row of {where} has more or fewer values than there are names: correct the file")
        if "Empty CSV" in message:
            return UnreadableError(f"{where} is empty: there must be at least a line of names")
        return UnreadableError(
            f"{where} cannot be read as CSV in UTF-8; what pyarrow says is suppressed since it may quote values"
        )


def _reading() -> Any:
    return pyarrow(".csv").ReadOptions(block_size=_BLOCK)


def _parsing(separator: str, *, ignore_empty_lines: bool = True) -> Any:
    return pyarrow(".csv").ParseOptions(
        delimiter=separator, newlines_in_values=True, ignore_empty_lines=ignore_empty_lines
    )


def _type(found: Any) -> Any:
    """The type of a column whose first values are of the type that is ``found``."""
    pa = pyarrow()
    return pa.float64() if pa.types.is_integer(found) or pa.types.is_null(found) else found


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
