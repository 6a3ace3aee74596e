"""Parquet files as parts: row groups that a worker reads by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from dpgep._optional import import_extra
from dpgep.sources import scan

Paths = Sequence[str | os.PathLike[str]]

# Files from which on each is a part of its own: enough for the workers of a large cluster, and no file is opened here.
_MANY_FILES = 256
# Bytes (uncompressed) that a part has at least: sums over less would cost more than the rows.
_PART_BYTES = 1 << 26

# Bytes of rows that are read at a time.
_BATCH_BYTES = 1 << 23

# Row groups of a file; None: all of them.
ParquetPart = tuple[str, "list[int] | None"]


def parquet_parts(paths: Paths) -> list[ParquetPart]:
    """One part for each file, or, where there are few, for every 64 MB of row groups that follow each other."""
    names = [os.fspath(path) for path in paths]
    if len(names) >= _MANY_FILES:
        return [(name, None) for name in names]
    return [(name, groups) for name in names for groups in _row_groups(name)]


def columns_but(paths: Paths, other: Sequence[str]) -> list[str]:
    """Columns of the first file without those of ``other``."""
    return [name for name in _parquet().read_schema(os.fspath(paths[0])).names if name not in other]


def read_parquet(keys: Sequence[str | list[str]], name: str, groups: list[int] | None) -> Iterator[tuple[Any, ...]]:
    """The people of a part, batch by batch: one array for each key, a column or a list of columns."""
    file = _parquet().ParquetFile(name)
    columns = [column for key in keys for column in ([key] if isinstance(key, str) else key)]
    # pyarrow's default is a number of rows, however wide they are
    batches = file.iter_batches(max(1, _BATCH_BYTES // (8 * len(columns))), row_groups=groups, columns=columns)
    pyarrow, fields = import_extra("pyarrow", "arrow"), file.schema_arrow
    schema = pyarrow.schema([field for field in fields if field.name in columns])
    source = scan(pyarrow.RecordBatchReader.from_batches(schema, batches), progress=False)
    yield from source.read(*(source[key] for key in keys))


def _row_groups(name: str) -> Iterator[list[int]]:
    """Numbers of row groups, in runs of at least so many bytes; one empty run for a file without rows."""
    metadata = _parquet().read_metadata(name)
    run: list[int] = []
    size = 0
    for group in range(metadata.num_row_groups):
        run.append(group)
        size += metadata.row_group(group).total_byte_size
        if size >= _PART_BYTES:
            yield run
            run, size = [], 0
    if run or metadata.num_row_groups == 0:
        yield run


def _parquet() -> Any:
    return import_extra("pyarrow.parquet", "arrow")
