"""Arrays as sources: in memory, mapped from a file, or in HDF5 and Zarr files; one, or several side by side."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used

from dpgep._checks import check_not_masked, check_real, is_real, shown
from dpgep._threads import slices
from dpgep.sources import kinds
from dpgep.sources.batches import Part, Pieces, objects, rows_at_a_time
from dpgep.sources.encoding import Declared, declared_values
from dpgep.sources.names import Key, Names, check_names, one_of
from dpgep.sources.source import Source, Table
from dpgep.sources.tables import as_vector_of_values, table_matrix, table_names


class Array(Source):
    """One array of shape (n, d) or (n,), in memory, memory-mapped, sparse, or anything with shape and row slicing.

    Keys: None for all of it, a slice or positions for some columns, one position for a column as a vector.
    """

    def __init__(self, values: Any, name: str) -> None:
        self._declared = declared_values(values)
        self._names = table_names(values) if kinds.is_table(values) else None
        self._values = _checked(values, name)
        self._name = name
        self._in_memory = isinstance(self._values, np.ndarray) or scipy.sparse.issparse(self._values)
        self.dtype = np.dtype(self.read(slice(0, 0)).dtype)

    @property
    def n_rows(self) -> int:
        return int(self._values.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._values.shape)

    def width(self, key: Key) -> int | None:
        if len(self.shape) == 1:
            if key is not None:
                raise ValueError(f"{self._name} is a vector and has no columns to select; got {key!r}")
            return None
        check_real(self.dtype, self._name)
        if key is None:
            return self.shape[1]
        columns = range(self.shape[1])
        if isinstance(key, slice):
            width = len(columns[key])
            if width == 0:
                raise ValueError(f"{key} selects none of the {len(columns)} columns of {self._name}")
            return width
        for index in key if isinstance(key, tuple) else (key,):
            if not isinstance(index, (int, np.integer)) or not -len(columns) <= index < len(columns):
                where = f"by position, from 0 to {len(columns) - 1}; got {index!r}"
                raise ValueError(f"{self._name} has no column names: select columns {where}")
        if not isinstance(key, tuple):
            return None
        check_names(key)
        return len(key)

    def names(self, key: Key) -> Names:
        if self._names is None or key is None:
            return self._names
        if isinstance(key, slice):
            return self._names[key]
        return tuple(self._names[j] for j in key) if isinstance(key, tuple) else None

    def declared(self, key: Key) -> Declared | None:
        return self._declared

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        # positions copy what they select, so that they are applied to some rows at a time
        copied = any(isinstance(key, tuple) for key in keys)
        step = self.rows_at_a_time(batch_rows, copied)
        for rows in slices(self.n_rows, step):
            block = self.read(rows)
            yield tuple(_columns(block, key) for key in keys)

    def read(self, rows: slice) -> Part:
        if self._in_memory:
            whole = rows == slice(0, self.n_rows)  # a slice of a sparse matrix is a copy
            return self._values if whole else self._values[rows]
        return np.asarray(self._values[rows])

    def rows_at_a_time(self, batch_rows: int | None, copied: bool = False) -> int:
        """Rows to read at a time: all that are in memory, unless ``copied``; of a file in chunks, whole chunks."""
        if self._in_memory and not copied:
            return max(1, self.n_rows)
        entries = self._values.nnz // max(1, self.n_rows) if scipy.sparse.issparse(self._values) else None
        row_bytes = self.dtype.itemsize * (int(np.prod(self.shape[1:])) if entries is None else entries)
        step = rows_at_a_time(row_bytes, batch_rows)
        chunk = (getattr(self._values, "chunks", None) or (1,))[0]
        return max(chunk, step // chunk * chunk) if isinstance(chunk, int) else step


class SideBySide(Table):
    """Several arrays with the same rows, under positions or names.

    Keys: one of them for an array; a tuple of names for a matrix of vectors; None where there is only one array.
    """

    def __init__(self, arrays: Mapping[Hashable, Any], kind: str) -> None:
        self.kind = kind
        self._arrays = {key: Array(values, f"{kind} {key!r}") for key, values in arrays.items()}
        if not self._arrays:
            raise ValueError("no arrays to read: the collection is empty")
        if len({array.n_rows for array in self._arrays.values()}) > 1:
            raise ValueError(f"arrays must have the same number of rows: {kind}s {list(self._arrays)} differ")

    @property
    def n_rows(self) -> int:
        return next(iter(self._arrays.values())).n_rows

    @property
    def columns(self) -> list[Hashable]:
        return list(self._arrays)

    def width(self, key: Key) -> int | None:
        return super().width(self._named(key))

    def names(self, key: Key) -> Names:
        key = self._named(key)
        if key is None or isinstance(key, tuple):
            return super().names(key) if self.kind == "column" else None
        return self._arrays[key].names(None)  # type: ignore[index]

    def declared(self, key: Key) -> Declared | None:
        array = self._arrays.get(one_of(self._named(key)))  # type: ignore[arg-type]
        return None if array is None else array.declared(None)

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        return super().pieces([self._named(key) for key in keys], batch_rows)

    def read(self, names: Sequence[Hashable], batch_rows: int | None) -> Iterator[dict[Hashable, Part]]:
        arrays = {name: self._arrays[name] for name in names}
        step = min(array.rows_at_a_time(batch_rows) for array in arrays.values())
        for rows in slices(self.n_rows, step):
            yield {name: array.read(rows) for name, array in arrays.items()}

    def vector(self, rows: dict[Hashable, Part], name: Hashable) -> Part:
        return rows[name]

    numbers = vector

    def list_size(self, name: Any) -> int | None:
        array = self._arrays[name]
        return None if len(array.shape) == 1 else array.width(None)

    def not_numeric(self, names: Sequence[Hashable]) -> list[tuple[Hashable, str]]:
        dtypes = {name: self._arrays[name].dtype for name in names}
        return [(name, shown(dtype)) for name, dtype in dtypes.items() if not is_real(dtype)]

    def _named(self, key: Key) -> Key:
        """The key; the name of the only array in the place of None."""
        if key is not None or self.encoding.columns:
            return key
        if len(self._arrays) > 1:
            raise ValueError(f"select a {self.kind} first, e.g. source[{next(iter(self._arrays))!r}]")
        return next(iter(self._arrays))


def _checked(values: Any, name: str) -> Any:
    """The values as something with a shape of one or two dimensions and rows by slicing; sparse ones as CSR."""
    check_not_masked(values, name)
    values = _converted(values)
    shape = getattr(values, "shape", None)
    if shape is None:
        raise TypeError(f"{name} is of type {type(values).__name__}: it must be an array with one row per person")
    if len(shape) not in (1, 2):
        raise ValueError(f"{name} must have one row per person, shape (n, d) or (n,); it has {len(shape)} dimensions")
    return values


def _converted(values: Any) -> Any:
    if scipy.sparse.issparse(values):
        return values.tocsr()
    if isinstance(values, np.ndarray):
        return np.asarray(values)  # of a memory map or a matrix, the plain array
    if isinstance(values, (list, tuple)):
        return _listed(values)
    if kinds.is_series(values) or kinds.is_arrow_column(values):
        return np.asarray(as_vector_of_values(values))
    if kinds.is_frame(values) or kinds.is_arrow_table(values):
        return table_matrix(values)
    if hasattr(values, "asstr") and values.dtype.kind == "O":  # text of h5py, which gives bytes otherwise
        return _Text(values)
    return values


def _listed(values: Sequence[Any]) -> Any:
    """A list as an array; one that mixes text and numbers keeps both, where NumPy would write the numbers out."""
    array = np.asarray(values)
    if array.dtype.kind in "US" and not all(isinstance(value, (str, bytes)) for value in values):
        return objects(values)
    return array


class _Text:
    def __init__(self, values: Any) -> None:
        self.shape, self.dtype, self.chunks = values.shape, values.dtype, values.chunks
        self._text = values.asstr()

    def __getitem__(self, rows: slice) -> Any:
        return self._text[rows]


def _columns(block: Part, key: Key) -> Part:
    if key is None:
        return block
    if isinstance(key, tuple):
        return block[:, list(key)]
    if scipy.sparse.issparse(block) and not isinstance(key, slice):
        return block[:, [key]].toarray().ravel()
    return block[:, key]
