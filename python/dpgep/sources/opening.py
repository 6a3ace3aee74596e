"""Which kind of source a value is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from dpgep.sources import kinds
from dpgep.sources.arrays import Array, SideBySide
from dpgep.sources.arrow import Dataset, Reader, Stream
from dpgep.sources.batches import Batches
from dpgep.sources.frames import Frame
from dpgep.sources.parquet import ParquetFiles
from dpgep.sources.source import Source

SUPPORTED = (
    "a Parquet file or folder (or a list of them), a pyarrow Dataset, Table or RecordBatchReader, a pandas or polars "
    "DataFrame, an array of shape (n, d) from NumPy, SciPy, h5py or Zarr, a tuple or mapping of such arrays, an "
    "iterable of batches, or a function without arguments that returns one"
)


def open_source(value: Any) -> Source:
    """The source that a value given to `dpgep.scan` stands for."""
    if kinds.is_path(value):
        return ParquetFiles([value])
    if isinstance(value, list) and value and all(map(kinds.is_path, value)):
        return ParquetFiles(value)
    if kinds.is_dataset(value):
        return Dataset(value)
    if kinds.is_reader(value):
        return Reader(value)
    if callable(value) or kinds.is_iterator(value) or isinstance(value, list):
        return Batches(value, open_batch)
    source = _in_memory(value)
    if source is not None:
        return source
    if isinstance(value, Iterable) and not isinstance(value, (bytes, set, frozenset)):
        return Batches(value, open_batch)
    raise TypeError(f"cannot scan {_name(value)}: pass {SUPPORTED}")


def open_batch(value: Any) -> Source:
    """The source that one batch of an iterable is."""
    source = Array(value, "a batch") if isinstance(value, list) else _in_memory(value)
    if source is None:
        raise TypeError(
            f"a batch is {_name(value)}: it must be an array of shape (n, d), a SciPy sparse matrix, a table of "
            "pandas, polars or pyarrow, or a tuple or mapping of arrays with the same rows"
        )
    return source


def is_source_value(value: Any) -> bool:
    """Whether a value in the place of X is no array in memory, and can be scanned."""
    return (
        kinds.is_path(value)
        or kinds.is_dataset(value)
        or kinds.is_reader(value)
        or kinds.is_frame(value)
        or kinds.is_record_batch(value)
        or kinds.is_arrow_table(value)
        or kinds.is_iterator(value)
        or (kinds.is_stored_array(value) and len(value.shape) == 2)
        or callable(value)
    )


def _in_memory(value: Any) -> Source | None:
    if kinds.is_frame(value):
        return Frame(value)
    if kinds.is_record_batch(value) or kinds.is_arrow_table(value):
        return Stream(value)
    if isinstance(value, np.ndarray) or scipy.sparse.issparse(value) or kinds.is_stored_array(value):
        return Array(value, "the matrix" if len(value.shape) == 2 else "the array")
    if isinstance(value, tuple):
        return SideBySide(dict(enumerate(value)), "part")
    if isinstance(value, Mapping):
        return SideBySide(value, "column")
    return None


def _name(value: Any) -> str:
    return f"of type {type(value).__module__}.{type(value).__qualname__}"
