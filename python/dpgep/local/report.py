"""What a client sends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.local import wire
from dpgep.local.mechanism import LocalMechanism
from dpgep.local.wire import Frame, ReportError

Matrix = NDArray[np.float64]

# In units of the grid every float32 that a rounded report can hold is an integer, too: so sums of both are exact.
ENTRY_TYPES = ("int64", "float32")


@dataclass(frozen=True, eq=False)
class ReportBatch:
    """Reports of m records, one row each.

    Attributes
    ----------
    mechanism : what they were made by; public.
    values : (m, d (d + 1)/2), upper triangles, row by row, of x x^T + Z in units of ``mechanism.unit``: integers, as
        int64 or rounded to float32.
    seeded : whether the noise came from a seed: then nothing here is private.

    Raises
    ------
    ReportError
        If shape or dtype of ``values`` does not fit the mechanism.
    """

    mechanism: LocalMechanism
    values: NDArray[Any]
    seeded: bool = False

    def __post_init__(self) -> None:
        values: Any = self.values
        size, shape = self.mechanism.size, getattr(values, "shape", type(values).__name__)
        if not isinstance(values, np.ndarray) or values.shape[1:] != (size,):
            raise ReportError(
                f"reports of dim = {self.mechanism.dim} have d (d + 1)/2 = {size} entries each, shape (m, {size}); "
                f"got {shape}"
            )
        if values.dtype.name not in ENTRY_TYPES:
            raise ReportError(f"reports have entries of type {' or '.join(ENTRY_TYPES)}, got {values.dtype.name}")

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> Report:
        i = range(len(self))[i]  # IndexError ends an iteration
        return Report(self.mechanism, self.values[i : i + 1], self.seeded)

    def to_bytes(self) -> bytes:
        """The reports as one message with one checksum: see `dpgep.local.wire`."""
        return wire.encode(Frame(self.mechanism, self.seeded, len(self), self.values))

    @classmethod
    def from_bytes(cls, message: Any) -> ReportBatch:
        """Read what `to_bytes` wrote, without copying the entries. Raises ReportError if it is malformed."""
        frame = wire.decode(message)
        if frame.entries.size != frame.count * frame.mechanism.size:
            raise ReportError(
                f"{frame.count} reports of dim = {frame.mechanism.dim} have {frame.count * frame.mechanism.size} "
                f"entries, not {frame.entries.size}"
            )
        return cls(frame.mechanism, frame.entries.reshape(frame.count, frame.mechanism.size), frame.seeded)


@dataclass(frozen=True, eq=False)
class Report(ReportBatch):
    """The report of one record: a batch of one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.values) != 1:
            raise ReportError(f"a Report is for one record, got {len(self.values)}: see ReportBatch")

    @property
    def packed(self) -> Matrix:
        """(d (d + 1)/2,) upper triangle of x x^T + Z, row by row, in the units of the data."""
        return np.asarray(self.values[0].astype(np.float64) * self.mechanism.unit)

    def matrix(self) -> Matrix:
        """(d, d) symmetric x x^T + Z, in the units of the data; its expectation is x x^T."""
        return unpack(self.packed, self.mechanism.dim)


def unpack(packed: Matrix, d: int) -> Matrix:
    """The symmetric matrix with this upper triangle."""
    rows, columns = triangle(d)
    matrix = np.empty((d, d))
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix


@lru_cache(maxsize=2)
def triangle(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the upper triangle, in the order of a report. Shared: not to be changed."""
    return np.triu_indices(d)


@lru_cache(maxsize=2)
def diagonal(d: int) -> NDArray[np.intp]:
    """Where the diagonal is in a report. Shared: not to be changed."""
    return np.flatnonzero(np.equal(*triangle(d)))
