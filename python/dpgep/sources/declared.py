"""What the type of labels says of their values: booleans have two, categorical data list theirs. No entry is read."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from dpgep.sources import kinds

Declared = tuple[Hashable, ...]

BOOLEANS: Declared = (False, True)


def declared_values(values: Any) -> Declared | None:
    """The values that the type of a vector allows, None where it does not say.

    Categories of pandas (Dask's, where they are known), of an Enum of polars and of an Arrow dictionary are taken as
    declared, also those that nobody has. A Categorical of polars declares none: it collects what it meets.
    """
    if kinds.is_polars_series(values):
        return _of_polars(values.dtype)
    if kinds.is_arrow_array(values):
        return _of_arrow(values)
    dtype: Any = getattr(values, "dtype", None)
    if kinds.is_categorical(dtype):
        known = getattr(getattr(values, "cat", None), "known", True)  # Dask's may not be
        return tuple(dtype.categories.tolist()) if known and dtype.categories is not None else None
    return BOOLEANS if _is_boolean(dtype) else None


def of_arrow_type(kind: Any) -> Declared | None:
    """The values that an Arrow type allows by itself."""
    from pyarrow import types

    return BOOLEANS if types.is_boolean(kind) else None


def _of_arrow(column: Any) -> Declared | None:
    from pyarrow import types

    if not types.is_dictionary(column.type):
        return of_arrow_type(column.type)
    chunks = getattr(column, "chunks", [column])
    words = dict.fromkeys(word for chunk in chunks for word in chunk.dictionary.to_pylist() if word is not None)
    if not chunks:
        return None
    # sorted, unless the type says that the order means something: it may be that of their appearance
    return tuple(words) if column.type.ordered else tuple(sorted(words, key=lambda word: (type(word).__name__, word)))


def _of_polars(dtype: Any) -> Declared | None:
    import polars

    if isinstance(dtype, polars.Enum):
        return tuple(dtype.categories)
    return BOOLEANS if dtype == polars.Boolean else None


def _is_boolean(dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        return dtype.kind == "b"
    return kinds.is_pandas_boolean(dtype)
