"""Rows of people of which a view is sparse, on the integer grid: entries of CSR matrices, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.rows import NotFiniteError, Rows, block_height, kernel_form
from dpgep.models.model import Matrix

# A part has about this many entries: it is what is held in memory beside the rows, at 16 to 24 bytes each.
_ENTRIES_PER_PART = 1 << 22
# A product of two entries takes as long as this many multiplications of BLAS.
_PRODUCT_COST = 25


@dataclass(frozen=True, eq=False)
class GridRows:
    """Some rows in fixed point, as int32 entries of a CSR matrix with ``d`` columns.

    ``rows`` says which they are.
    """

    rows: slice
    values: NDArray[np.int32]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    d: int

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def is_dense(self) -> bool:
        """Whether BLAS on filled-in blocks is faster than products of entries: both give the same sums."""
        lengths = np.diff(self.indptr).astype(np.float64)
        return bool(_PRODUCT_COST * (lengths @ lengths) > self.n * float(self.d) ** 2)

    def blocks(self, extra_columns: int, most_rows: int) -> Iterator[tuple[slice, Matrix]]:
        """Yield (rows of this part, block), filled in; ``extra_columns`` more are the caller's; one buffer."""
        height = min(block_height(self.n, self.d + extra_columns), most_rows)
        buffer = np.empty((height, self.d + extra_columns))
        for start in range(0, self.n, height):
            within = slice(start, min(start + height, self.n))
            block, first = buffer[: within.stop - start], self.indptr[start]
            entries = slice(first, self.indptr[within.stop])
            block[:, : self.d] = 0.0
            rows = np.repeat(np.arange(len(block)), np.diff(self.indptr[start : within.stop + 1]))
            block[rows, self.indices[entries]] = self.values[entries]
            yield within, block


class SparseRows:
    """Rows of people of which a view is sparse: all views side by side in CSR, a part of the rows at a time."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.n = rows.n

    def require_finite(self) -> None:
        """Raises NotFiniteError if a row holds a NaN or an infinity."""
        for part in self._parts(self.n):
            matrix = self._matrix(part)
            factors = np.empty(matrix.shape[0])
            if not core.clip_factors_csr(matrix.data, matrix.indptr, self._rows.bound, factors):
                raise NotFiniteError

    def on_grid(self, bits: int, most_rows: int) -> Iterator[GridRows]:
        """The rows scaled to the unit ball, times 2^bits, rounded toward zero; norms at most 2^bits.

        Parts have at most ``most_rows`` rows, also where there are hardly any entries.
        """
        for part in self._parts(most_rows):
            matrix = self._matrix(part)
            values = np.empty(matrix.nnz, dtype=np.int32)
            if not core.fixed_point_csr(matrix.data, matrix.indptr, self._rows.bound, bits, values, thread_count()):
                raise NotFiniteError
            yield GridRows(part, values, matrix.indices, matrix.indptr, self._rows.d)

    def _parts(self, most_rows: int) -> Iterator[slice]:
        entries = sum(view.nnz if hasattr(view, "nnz") else view.size for view in self._rows.views)
        height = max(1, min(int(self.n * _ENTRIES_PER_PART / max(entries, 1)), most_rows))
        for start in range(0, self.n, height):
            yield slice(start, min(start + height, self.n))

    def _matrix(self, part: slice) -> Any:
        whole = part == slice(0, self.n)
        return kernel_form(self._rows.views if whole else tuple(view[part] for view in self._rows.views))[0]
