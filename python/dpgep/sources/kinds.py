"""Telling kinds of data apart without importing the packages that define them: who holds one has imported its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse


def is_path(value: Any) -> bool:
    return isinstance(value, (str, Path))


def is_frame(value: Any) -> bool:
    """Whether the value is a pandas DataFrame."""
    return _is(value, "pandas", "DataFrame")


def is_series(value: Any) -> bool:
    """Whether the value is a pandas Series."""
    return _is(value, "pandas", "Series")


def is_categorical(dtype: Any) -> bool:
    """Whether a dtype is that of categorical data in pandas."""
    return _is(dtype, "pandas", "CategoricalDtype")


def is_pandas_boolean(dtype: Any) -> bool:
    """Whether a dtype is pandas' own of booleans, or Arrow's in pandas."""
    if _is(dtype, "pandas", "ArrowDtype"):
        return str(dtype.pyarrow_dtype) == "bool"
    return _is(dtype, "pandas", "BooleanDtype")


def is_polars_series(value: Any) -> bool:
    """Whether the value is a polars Series."""
    return _is(value, "polars", "Series")


def is_polars_frame(value: Any) -> bool:
    """Whether the value is a polars DataFrame."""
    return _is(value, "polars", "DataFrame")


def is_arrow_array(value: Any) -> bool:
    """Whether the value is a pyarrow Array or ChunkedArray."""
    return _is(value, "pyarrow", "Array") or _is(value, "pyarrow", "ChunkedArray")


def is_pyarrow_table(value: Any) -> bool:
    """Whether the value is a pyarrow Table."""
    return _is(value, "pyarrow", "Table")


def is_dataset(value: Any) -> bool:
    """Whether the value is a pyarrow Dataset."""
    return _is(value, "pyarrow.dataset", "Dataset")


def is_reader(value: Any) -> bool:
    """Whether the value is a pyarrow RecordBatchReader."""
    return _is(value, "pyarrow", "RecordBatchReader")


def is_record_batch(value: Any) -> bool:
    return _is(value, "pyarrow", "RecordBatch")


def is_arrow_column(value: Any) -> bool:
    """Whether the value is one column that Arrow can read: an Array, a ChunkedArray, a polars Series."""
    if is_arrow_array(value):
        return True
    return hasattr(value, "__arrow_c_stream__") and len(getattr(value, "shape", (0, 0))) == 1


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


def is_iterator(value: Any) -> bool:
    return isinstance(value, Iterator)


def _is(value: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))
