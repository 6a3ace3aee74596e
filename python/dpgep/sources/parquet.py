"""Parquet files as a source: only the columns that are needed, a few pages of each in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from dpgep.sources.arrow import ArrowSource, is_numeric, pyarrow
from dpgep.sources.parts import Pieces
from dpgep.sources.source import Key

T = TypeVar("T")

# Memory per column while a file is read; without a buffer, the column's share of a row group would lie in memory.
_READ_BUFFER = 1 << 18


class ParquetFiles(ArrowSource):
    """Parquet files, or folders of them in the order of their paths; Hive partitions (year=2024) are columns.

    The schema is that of the first file. In another, a column that is not there is null; one of another type is read if
    it holds the same kind of values (numbers, text, ...), and is an error if not, whatever its values are.
    pyarrow's own scan of a data set holds whole row groups, often the whole of a file; a file read in batches does not.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        places = [str(path) for path in paths]
        self._dataset = pyarrow(".dataset").dataset(
            places[0] if len(places) == 1 else places, format="parquet", partitioning="hive"
        )
        if not self._dataset.files:
            raise ValueError(f"no Parquet files in {', '.join(places)}")
        self.schema = self._dataset.schema

    @cached_property
    def n_rows(self) -> int:
        return int(self._dataset.count_rows())

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        return read_ahead(super().pieces(keys, batch_rows))

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        for fragment in self._dataset.get_fragments():
            keys = pyarrow(".dataset").get_partition_keys(fragment.partition_expression)
            with pyarrow(".parquet").ParquetFile(
                fragment.path, filesystem=fragment.filesystem, buffer_size=_READ_BUFFER, pre_buffer=False
            ) as file:
                stored = [name for name in names if name in file.schema_arrow.names]
                for name in stored:
                    _check_kind(name, self.schema.field(name).type, file.schema_arrow.field(name).type)
                for batch in file.iter_batches(batch_size=rows, columns=stored):
                    yield self._completed(batch, names, keys)

    def _completed(self, batch: Any, names: list[str], keys: dict[str, Any]) -> Any:
        """The batch with the columns that the file does not hold, or without a type because nothing is in them.

        The others keep the file's types: a cast may fail, and whether it does depends on values.
        """
        pa = pyarrow()
        held = [field.name for field in batch.schema if not pa.types.is_null(field.type)]
        if held == names:
            return batch
        columns = [
            batch.column(name)
            if name in held
            else pa.repeat(pa.scalar(keys.get(name), self.schema.field(name).type), batch.num_rows)
            for name in names
        ]
        return pa.RecordBatch.from_arrays(columns, names=names)


def _check_kind(name: str, expected: Any, found: Any) -> None:
    """Raise TypeError where values of type ``found`` cannot stand beside those of type ``expected``."""
    if found != expected and _kind(found) not in (_kind(expected), "nothing"):
        raise TypeError(
            f"column {name!r} is {expected} in the first file and {found} in another: use one type in all files"
        )


def _kind(found: Any) -> str:
    """What values of a type are, however they are stored."""
    types = pyarrow().types
    if types.is_dictionary(found):
        return _kind(found.value_type)
    if types.is_null(found):
        return "nothing"
    if is_numeric(found):
        return "numbers"
    if types.is_string(found) or types.is_large_string(found):
        return "text"
    if types.is_timestamp(found):
        return "times with a zone" if found.tz else "times"
    return f"numbers, {found.list_size} in a list" if types.is_fixed_size_list(found) else str(found)


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The items, each fetched in a thread while the one before it is in use."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    end = object()
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, items, end)
        while (item := following.result()) is not end:
            following = reader.submit(next, items, end)
            yield item  # type: ignore[misc]
