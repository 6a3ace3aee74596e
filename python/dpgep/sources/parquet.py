"""Parquet files as a source: only the columns that are needed, a few pages of each in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from dpgep.sources.arrow import ArrowSource, pyarrow

T = TypeVar("T")

# Memory per column while a file is read; without a buffer, the column's share of a row group would lie in memory.
_READ_BUFFER = 1 << 18


class ParquetFiles(ArrowSource):
    """Parquet files, or folders of them in the order of their paths; Hive partitions (year=2024) are columns.

    The schema is that of the first file: of another, columns are converted to it, and one that is not there is null.
    pyarrow's own scan of a data set holds whole row groups, often the whole of a file; a file read in batches does not.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        places = [str(path) for path in paths]
        self._dataset = pyarrow(".dataset").dataset(
            places[0] if len(places) == 1 else places, format="parquet", partitioning="hive"
        )
        if not self._dataset.files:
            raise ValueError(f"there are no Parquet files in {', '.join(places)}")
        self.schema = self._dataset.schema

    @cached_property
    def n_rows(self) -> int:
        return int(self._dataset.count_rows())

    def record_batches(self, names: list[str], rows: int) -> Iterable[Any]:
        return _read_ahead(self._decoded(names, rows))

    def _decoded(self, names: list[str], rows: int) -> Iterator[Any]:
        for fragment in self._dataset.get_fragments():
            keys = pyarrow(".dataset").get_partition_keys(fragment.partition_expression)
            with pyarrow(".parquet").ParquetFile(
                fragment.path, filesystem=fragment.filesystem, buffer_size=_READ_BUFFER, pre_buffer=False
            ) as file:
                stored = [name for name in names if name in file.schema_arrow.names]
                for batch in file.iter_batches(batch_size=rows, columns=stored):
                    yield self._completed(batch, names, keys)

    def _completed(self, batch: Any, names: list[str], keys: dict[str, Any]) -> Any:
        """The batch with the types of the schema, and the columns that the file does not hold."""
        pa = pyarrow()
        wanted = pa.schema([self.schema.field(name) for name in names])
        if batch.schema.equals(wanted):
            return batch
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.repeat(pa.scalar(keys.get(field.name), field.type), batch.num_rows)
            for field in wanted
        ]
        return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The items, each fetched in a thread while the one before it is in use."""
    end = object()
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, items, end)
        while (item := following.result()) is not end:
            following = reader.submit(next, items, end)
            yield item  # type: ignore[misc]
