"""Telling kinds of data apart. No package is imported for it: who holds its objects has imported it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used


def is_instance(value: Any, module: str, *names: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, tuple(getattr(loaded, name) for name in names))


def _kind(module: str, *names: str) -> Callable[[Any], bool]:
    return lambda value: is_instance(value, module, *names)


is_frame = _kind("pandas", "DataFrame")
is_series = _kind("pandas", "Series")
is_categorical = _kind("pandas", "CategoricalDtype")
is_polars_series = _kind("polars", "Series")
is_polars_frame = _kind("polars", "DataFrame")
is_lazy_frame = _kind("polars", "LazyFrame")
is_dataset = _kind("pyarrow.dataset", "Dataset")
is_reader = _kind("pyarrow", "RecordBatchReader")
is_in_arrow = _kind("pyarrow", "Table", "RecordBatch")
is_arrow_array = _kind("pyarrow", "Array", "ChunkedArray")
is_spark_frame = _kind("pyspark.sql", "DataFrame")
is_connection = _kind("adbc_driver_manager.dbapi", "Connection")


def is_table(value: Any) -> bool:
    return is_frame(value) or is_polars_frame(value) or is_in_arrow(value)


def is_dask_collection(value: Any) -> bool:
    """Whether this is a Dask array, DataFrame or Series: known by its protocol."""
    return hasattr(value, "__dask_graph__") and hasattr(value, "to_delayed")


def is_dask_frame(value: Any) -> bool:
    return is_dask_collection(value) and hasattr(value, "columns") and getattr(value, "ndim", None) == 2


def is_path(value: Any) -> bool:
    return isinstance(value, (str, Path))


def is_arrow_column(value: Any) -> bool:
    """Whether the value is one column that Arrow can read: an Array, a ChunkedArray, a polars Series."""
    is_stream = hasattr(value, "__arrow_c_stream__")
    return is_arrow_array(value) or (is_stream and len(getattr(value, "shape", (0, 0))) == 1)


def is_arrow_table(value: Any) -> bool:
    """Whether the value hands out rows of named columns as an Arrow stream."""
    return hasattr(value, "__arrow_c_stream__") and not is_arrow_column(value)


def is_stored_array(value: Any) -> bool:
    """Whether the value is an array elsewhere than in NumPy's memory: of h5py, Zarr, Dask, PyTorch."""
    return (
        all(hasattr(value, name) for name in ("shape", "dtype", "__getitem__"))
        and not isinstance(value, (np.ndarray, np.generic))
        and not scipy.sparse.issparse(value)
        and not is_series(value)
        and not is_arrow_column(value)
    )
