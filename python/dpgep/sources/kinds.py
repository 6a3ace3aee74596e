"""Telling kinds of data apart, and what the types of labels say of their values: booleans have two, categorical data
list theirs. No package is imported for it: who holds its objects has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used


def _is(value: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _kind(module: str, name: str) -> Callable[[Any], bool]:
    """Whether a value is of this class."""
    return partial(_is, module=module, name=name)


is_frame = _kind("pandas", "DataFrame")
is_series = _kind("pandas", "Series")
is_categorical = _kind("pandas", "CategoricalDtype")
is_polars_series = _kind("polars", "Series")
is_polars_frame = _kind("polars", "DataFrame")
is_pyarrow_table = _kind("pyarrow", "Table")
is_dataset = _kind("pyarrow.dataset", "Dataset")
is_reader = _kind("pyarrow", "RecordBatchReader")
is_record_batch = _kind("pyarrow", "RecordBatch")
is_spark_frame = _kind("pyspark.sql", "DataFrame")


def is_table(value: Any) -> bool:
    """Whether the value is a table in memory: of pandas, polars or Arrow."""
    return is_frame(value) or is_polars_frame(value) or is_pyarrow_table(value) or is_record_batch(value)


def is_dask_collection(value: Any) -> bool:
    """Whether this is a Dask array, DataFrame or Series: known by its protocol."""
    return hasattr(value, "__dask_graph__") and hasattr(value, "to_delayed")


def is_dask_frame(value: Any) -> bool:
    """Whether this is a Dask DataFrame."""
    return is_dask_collection(value) and hasattr(value, "columns") and getattr(value, "ndim", None) == 2


def is_path(value: Any) -> bool:
    return isinstance(value, (str, Path))


def is_pandas_boolean(dtype: Any) -> bool:
    """Whether a dtype is pandas' own of booleans, or Arrow's in pandas."""
    if _is(dtype, "pandas", "ArrowDtype"):
        return str(dtype.pyarrow_dtype) == "bool"
    return _is(dtype, "pandas", "BooleanDtype")


def is_arrow_array(value: Any) -> bool:
    """Whether the value is a pyarrow Array or ChunkedArray."""
    return _is(value, "pyarrow", "Array") or _is(value, "pyarrow", "ChunkedArray")


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


Declared = tuple[Hashable, ...]

BOOLEANS: Declared = (False, True)


def declared_values(values: Any) -> Declared | None:
    """The values that the type of a vector allows, None where it does not say.

    Categories of pandas (Dask's, where they are known) and of an Enum of polars are taken as declared, also those that
    nobody has. A Categorical of polars and a dictionary of Arrow declare none: they collect what they meet.
    """
    if is_polars_series(values):
        return _of_polars(values.dtype)
    if is_arrow_array(values):
        return of_arrow_type(values.type)
    dtype: Any = getattr(values, "dtype", None)
    if is_categorical(dtype):
        known = getattr(getattr(values, "cat", None), "known", True)  # Dask's may not be
        return tuple(dtype.categories.tolist()) if known and dtype.categories is not None else None
    return BOOLEANS if _is_boolean(dtype) else None


def declared_categories(kind: Any) -> Declared | None:
    """The categories that a categorical type of pandas or polars declares, none if it collects them from data.

    None for other types. Arrow's dictionaries are collected.
    """
    if is_categorical(kind):
        return () if kind.categories is None else tuple(kind.categories.tolist())
    if _is(kind, "polars", "Enum"):
        return tuple(kind.categories)
    arrow_type = kind.pyarrow_dtype if _is(kind, "pandas", "ArrowDtype") else kind
    is_collected = _is(kind, "polars", "Categorical") or _is(arrow_type, "pyarrow", "DictionaryType")
    return () if is_collected else None


def is_date_type(kind: Any) -> bool:
    """Whether a type of pandas, polars or Arrow is one of dates, or of dates with times."""
    return getattr(kind, "kind", None) == "M" or str(kind).lower().startswith(("date", "timestamp"))


def of_arrow_type(kind: Any) -> Declared | None:
    """The values that an Arrow type allows by itself."""
    from pyarrow import types

    return BOOLEANS if types.is_boolean(kind) else None


def _of_polars(dtype: Any) -> Declared | None:
    import polars

    if isinstance(dtype, polars.Enum):
        return tuple(dtype.categories)
    return BOOLEANS if dtype == polars.Boolean else None


def _is_boolean(dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        return dtype.kind == "b"
    return is_pandas_boolean(dtype)


def require_of_type(name: Hashable, kind: Any, values: Sequence[Any]) -> None:
    """Raise TypeError for text among the values that are declared of a column without, or other values beside text.

    Nobody would have them. In a CSV one person's text may make a column of numbers one of text, where nobody else would
    have the numbers that are declared; to be refused is public, as types are.
    """
    found = str(kind)
    is_text = found in ("string", "large_string")
    if not is_text and not found.startswith(("bool", "int", "uint", "float", "double", "date", "timestamp")):
        return
    if any(isinstance(value, str) != is_text for value in values):
        raise TypeError(f"column {name!r} ({found}) does not hold the values that are declared: {list(values)!r}")


def require_exact_in_floats(what: str, values: Sequence[Any] | np.ndarray[Any, Any]) -> None:
    """Raise ValueError for a declared whole number that others become where one person's value is missing.

    Such a column is in floating point, where 2^53 + 1 is 2^53.
    """
    kinds = [np.asarray(value).dtype.kind if isinstance(value, (int, np.integer)) else "" for value in values]
    if any(abs(int(value)) >= 1 << 53 for value, kind in zip(values, kinds, strict=True) if kind in ("i", "u", "O")):
        raise ValueError(f"{what} that are numbers must lie within 2**53 of zero: use text for identifiers")
