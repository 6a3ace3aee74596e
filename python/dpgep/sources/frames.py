"""pandas as a source: no other package is needed, and nothing is copied as a whole."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._optional import import_extra
from dpgep.sources.batches import Columns, Pieces, rows_at_a_time
from dpgep.sources.encoding import declared_values
from dpgep.sources.source import Declared, Key, Source, as_names, messages_withheld, one_of, require_numeric


class Frame(Source):
    """A pandas DataFrame. Keys: a label for a column, a tuple of labels for a matrix, None for all columns."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @property
    def n_rows(self) -> int:
        return len(self._frame)

    @property
    def columns(self) -> list[Hashable]:
        return list(self._frame.columns)

    @property
    def types(self) -> Mapping[Hashable, Any]:
        return dict(self._frame.dtypes)

    def width(self, key: Key) -> int | None:
        names = as_names(key, self.columns)
        columns = self._frame.columns
        if not columns.is_unique:
            twice = columns[columns.duplicated()][0]
            raise ValueError(f"the data frame has several columns named {twice!r}: rename them")
        if names is None:
            return None
        types = self.types
        require_numeric([(name, types[name]) for name in names if not _is_numeric(types[name])])
        return len(names)

    def declared(self, key: Key) -> Declared | None:
        return declared_values(self._frame[one_of(key)])

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        selected = [as_names(key, self.columns) for key in keys]
        step = rows_at_a_time(8 * sum(1 if names is None else len(names) for names in selected), batch_rows)
        for start in range(0, self.n_rows, step):
            rows = self._frame.iloc[start : start + step]
            yield tuple(
                vector(rows[key]) if names is None else Columns([_numbers(rows[name]) for name in names], len(rows))
                for key, names in zip(keys, selected, strict=True)
            )


def vector(series: Any) -> NDArray[Any]:
    """A Series as a vector: numbers and dates as NumPy has them, text as str; what is missing, as NaN."""
    with _messages_withheld(series):
        return _vector(series)


def _vector(series: Any) -> NDArray[Any]:
    if _is_numeric(series.dtype) and series.dtype != bool:
        return _numbers(series)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "bmM":
        return np.asarray(series.to_numpy())
    missing = series.isna().to_numpy(dtype=bool)
    values = series.to_numpy(dtype=object, copy=True)
    values[missing] = float("nan")
    return np.asarray(values)


def _numbers(series: Any) -> NDArray[Any]:
    """Numeric values, without a copy if NumPy holds them; missing ones become NaN."""
    with _messages_withheld(series):
        if isinstance(series.dtype, np.dtype):
            return np.asarray(series.to_numpy())
        if hasattr(series, "sparse"):
            return np.asarray(series.sparse.to_dense())
        if series.hasnans:
            return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(series.to_numpy(dtype=series.dtype.numpy_dtype))


def _messages_withheld(series: Any) -> AbstractContextManager[None]:
    return messages_withheld(f"column {series.name!r} of type {series.dtype}")


def _is_numeric(kind: Any) -> bool:
    types = import_extra("pandas", "pandas").api.types
    return bool(types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind))


def as_plain_text(series: Any) -> Any:
    """A polars Series whose categories, where it has such, are text: some versions hand dictionaries on wrongly."""
    import polars

    return series.cast(polars.String) if isinstance(series.dtype, (polars.Enum, polars.Categorical)) else series
