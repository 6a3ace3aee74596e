"""What a client sends: reports, as bytes a header of 64 bytes, then the entries, all little-endian.

    offset  type    field
     0      6 s     magic: "dpgepR"
     6      u16     version of this format: 2
     8      u8      type of the entries, integers in either: 0 int64, 1 float32
     9      u8      bits of the grid: entries are in units of bound^2 4^-bits
    10      u8      1 if noise came from a seed (then nothing is private), else 0
    11      u8      0
    12      u32     dim
    16      u32     records_per_person
    20      u64     number of reports
    28      4 f64   bound, epsilon, delta (NaN for none), deviation
    60      u32     CRC-32 of bytes 0 to 59 and of the entries

Files have another format (`dpgep.serialization`): its header has five times the bytes of this one, and takes four times
as long to read, which is much for reports of few features. The checksum finds accidents. It is no signature: who may
send reports is for the transport to decide.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.local.mechanism import LARGEST_DIM, LocalMechanism, calibrate

Matrix = NDArray[np.float64]

MAGIC, VERSION = b"dpgepR", 2
# In units of the grid every float32 that a rounded report can hold is an integer, too: so sums of both are exact.
ENTRY_TYPES = ("int64", "float32")
_STORED = (np.dtype("<i8"), np.dtype("<f4"))
_HEADER = struct.Struct("<6sHBBBxIIQdddd")
_CHECKSUM = struct.Struct("<I")
_START = _HEADER.size + _CHECKSUM.size


class ReportError(ValueError):
    """A report that is malformed or belongs to another mechanism. What has been aggregated stays as it was."""


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
        """The reports as one message with one checksum."""
        mechanism, entries = self.mechanism, self.values.astype(self.values.dtype.newbyteorder("<"), copy=False)
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            _STORED.index(entries.dtype),
            mechanism.bits,
            self.seeded,
            mechanism.dim,
            mechanism.records_per_person,
            len(self),
            mechanism.bound,
            mechanism.epsilon,
            math.nan if mechanism.delta is None else mechanism.delta,
            mechanism.deviation,
        )
        payload = np.ascontiguousarray(entries).data.cast("B") if entries.size else b""
        return b"".join([header, _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(header))), payload])

    @classmethod
    def from_bytes(cls, message: Any) -> ReportBatch:
        """Read what `to_bytes` wrote (bytes or any other buffer), without copying the entries.

        Raises ReportError, which says what is wrong, for a message that is malformed, damaged or of another version, or
        whose noise is not that of its guarantee.
        """
        data = memoryview(message).cast("B")
        if len(data) < _START or data[: len(MAGIC)] != MAGIC:
            raise ReportError(f"not a dpgep report: {len(data)} bytes that begin with {bytes(data[:6])!r}")
        header, payload = data[: _HEADER.size], data[_START:]
        _, version, entry_type, bits, seeded, dim, records, count, bound, epsilon, delta, deviation = _HEADER.unpack(
            header
        )
        if version != VERSION:
            raise ReportError(f"report in version {version} of the format; this dpgep reads version {VERSION}")
        (checksum,) = _CHECKSUM.unpack(data[_HEADER.size : _START])
        if checksum != zlib.crc32(payload, zlib.crc32(header)):
            raise ReportError(f"wrong checksum: the report was damaged or truncated in transit ({len(data)} bytes)")
        if entry_type >= len(_STORED) or len(payload) % _STORED[entry_type].itemsize:
            raise ReportError(f"report with {len(payload)} bytes of entries of unknown type {entry_type}")
        mechanism = LocalMechanism(dim, bound, epsilon, None if math.isnan(delta) else delta, records, deviation, bits)
        require_calibrated(mechanism, "report")
        entries = np.frombuffer(payload, dtype=_STORED[entry_type])
        if entries.size != count * mechanism.size:
            raise ReportError(
                f"{count} reports of dim = {dim} have {count * mechanism.size} entries, not {entries.size}"
            )
        values = entries.reshape(count, mechanism.size)
        return cls(mechanism, values.astype(values.dtype.newbyteorder("="), copy=False), bool(seeded))


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


def require_calibrated(mechanism: LocalMechanism, what: str) -> None:
    """Raise ReportError unless this is the mechanism that `calibrate` makes for its guarantee."""
    if not 1 <= mechanism.dim <= LARGEST_DIM:
        raise ReportError(f"{what} of dim = {mechanism.dim}, outside 1 to {LARGEST_DIM}")
    given = mechanism.dim, mechanism.bound, mechanism.epsilon, mechanism.delta, mechanism.records_per_person
    try:
        mismatch = mechanism.mismatch(_calibrated(*given))
    except (ArithmeticError, ValueError) as error:
        raise ReportError(f"{what} of a mechanism that nobody can make: {error}") from None
    if mismatch is not None:
        raise ReportError(f"{what} of a mechanism whose guarantee needs {mismatch}")


@lru_cache(maxsize=16)  # a server decodes many messages of one mechanism
def _calibrated(dim: int, bound: float, epsilon: float, delta: float | None, records: int) -> LocalMechanism:
    return calibrate(dim, bound, epsilon, delta, records_per_person=records)
