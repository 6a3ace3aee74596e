"""Tables in memory: pandas, polars and Arrow as one matrix of numbers, and the names of its columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.sources import kinds
from dpgep.sources.arrow import Stream
from dpgep.sources.batches import Assembler
from dpgep.sources.encoding import Encoding, encoded
from dpgep.sources.frames import Frame
from dpgep.sources.names import Names, as_text
from dpgep.sources.source import Source


def table_names(table: Any) -> Names:
    """Names of the columns of the matrix."""
    return as_text(table.columns) if _lies_in_one_piece(table) else _source(table).names(None)


def table_width(table: Any) -> int:
    """Number of columns of the matrix. Raises TypeError, as `table_matrix` does."""
    return int(table.shape[1] if _lies_in_one_piece(table) else _source(table).width(None) or 0)


def table_matrix(table: Any) -> NDArray[Any]:
    """The matrix. Raises TypeError, which names them, for columns without numbers, before any value is read."""
    return np.asarray(table) if _lies_in_one_piece(table) else whole(_source(table))


def whole(source: Source) -> NDArray[Any]:
    """All columns of a table as one matrix."""
    width = source.width(None)
    parts = [part for (part,) in source.pieces([None], None)]
    return Assembler()(parts) if parts else np.empty((0, width or 0))


def _source(table: Any) -> Source:
    return encoded(Frame(table) if kinds.is_frame(table) else Stream(table), Encoding())


def _lies_in_one_piece(table: Any) -> bool:
    """Whether NumPy takes the table as it lies: pandas and polars, all columns of one type of numbers."""
    types = set(getattr(table, "dtypes", ()))
    if len(types) != 1:
        return False
    (kind,) = types
    if isinstance(kind, np.dtype):
        return kind.kind in "iuf"
    return kinds.is_polars_frame(table) and (kind.is_float() or kind.is_integer())
