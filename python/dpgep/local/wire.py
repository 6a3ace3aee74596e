"""Reports between client and server: a header of 64 bytes, then the entries, all little-endian.

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

MAGIC = b"dpgepR"
VERSION = 2
ENTRY_TYPES = (np.dtype("<i8"), np.dtype("<f4"))
_HEADER = struct.Struct("<6sHBBBxIIQdddd")
_CHECKSUM = struct.Struct("<I")
_START = _HEADER.size + _CHECKSUM.size


class ReportError(ValueError):
    """A report that is malformed or belongs to another mechanism. What has been aggregated stays as it was."""


@dataclass(frozen=True, eq=False)
class Frame:
    """A decoded message: ``entries`` is a flat array, not copied from the bytes."""

    mechanism: LocalMechanism
    seeded: bool
    count: int
    entries: NDArray[Any]


def encode(frame: Frame) -> bytes:
    """The message that `decode` reads."""
    mechanism, entries = frame.mechanism, frame.entries.astype(frame.entries.dtype.newbyteorder("<"), copy=False)
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        ENTRY_TYPES.index(entries.dtype),
        mechanism.bits,
        frame.seeded,
        mechanism.dim,
        mechanism.records_per_person,
        frame.count,
        mechanism.bound,
        mechanism.epsilon,
        math.nan if mechanism.delta is None else mechanism.delta,
        mechanism.deviation,
    )
    payload = np.ascontiguousarray(entries).data.cast("B") if entries.size else b""
    return b"".join([header, _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(header))), payload])


def decode(message: Any) -> Frame:
    """The frame in ``message`` (bytes or any other buffer). Raises ReportError saying what is wrong with it.

    Checked: magic, version, type of the entries, checksum, and that the noise is that of the guarantee. Not checked:
    whether the number of the entries is right.
    """
    data = memoryview(message).cast("B")
    if len(data) < _START or data[: len(MAGIC)] != MAGIC:
        raise ReportError(f"not a dpgep report: {len(data)} bytes that begin with {bytes(data[:6])!r}")
    (_, version, entry_type, bits, seeded, dim, records, count, bound, epsilon, delta, deviation) = _HEADER.unpack(
        data[: _HEADER.size]
    )
    if version != VERSION:
        raise ReportError(f"report in version {version} of the format; this dpgep reads version {VERSION}")
    payload = data[_START:]
    (checksum,) = _CHECKSUM.unpack(data[_HEADER.size : _START])
    if checksum != zlib.crc32(payload, zlib.crc32(data[: _HEADER.size])):
        raise ReportError(f"wrong checksum: the report was damaged or truncated in transit ({len(data)} bytes)")
    if entry_type >= len(ENTRY_TYPES) or len(payload) % ENTRY_TYPES[entry_type].itemsize:
        raise ReportError(f"report with {len(payload)} bytes of entries of unknown type {entry_type}")
    mechanism = LocalMechanism(dim, bound, epsilon, None if math.isnan(delta) else delta, records, deviation, bits)
    require_calibrated(mechanism, "report")
    entries = np.frombuffer(payload, dtype=ENTRY_TYPES[entry_type])
    return Frame(mechanism, bool(seeded), count, entries.astype(entries.dtype.newbyteorder("="), copy=False))


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
