"""What clients and server agree on: how long records are, how much noise reports carry, and how these are sent.

For records x, x' of norm at most R, |x x^T - x' x'^T|_F <= sqrt(2) R^2, attained by orthogonal ones. So x x^T + Z with
Z GOE of deviation s = sqrt(2) R^2/mu is mu-GDP between any two records, also in the integers that the program works
with (docs/local.md, also for what is sent). Wang and Xu (2020, Algorithm 1) print sensitivity 1: docs/errata.md has the
consequences.

Files have another format (`dpgep.serialization`): its header has five times the bytes of this one, and takes four times
as long to read, which is much for reports of few features.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_count
from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.inputs import as_matrix, check_bound
from dpgep.data.rows import Rows, clipped_blocks
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout, MomentNoise
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import noise_stream
from dpgep.privacy.ledger import LedgerEntry, NoiseBlock, cost_of, equal_parts, mu_rounded_up
from dpgep.privacy.noise import MOST_BITS, RECORD, IntegerNoise, integer_noise, on_grid
from dpgep.serialization import symmetric_of

LARGEST_DIM = 1 << 16  # beyond it a report has 17 GB

# Clients may have another SciPy than the server: roots found there may differ in the last digits.
_SAME_DEVIATION = 1e-9
# A standard normal vector of length m is longer than sqrt(m) + 40 with probability below exp(-800).
_FARTHEST = 40.0
# Products of a block of rows with themselves: small enough for the memory of the last block to be used again, since new
# pages cost more than the products.
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True)
class LocalMechanism:
    """x -> x x^T + Z for one record, |x| <= bound, Z GOE; made by `calibrate`."""

    dim: int
    bound: float  # longer records are shrunk to it by the client
    epsilon: float  # of everything that one person sends
    delta: float | None  # None for epsilon = inf (no noise)
    records_per_person: int  # how many reports that guarantee covers: each is mu/sqrt(records_per_person)-GDP
    deviation: float  # of a diagonal entry of Z, in units of bound^2: an integer multiple of 4^-bits
    bits: int  # records are integer vectors of norm at most 2^bits, reports integer multiples of bound^2 4^-bits

    @property
    def size(self) -> int:
        """Number of entries of a report: the upper triangle, d (d + 1)/2."""
        return self.dim * (self.dim + 1) // 2

    @property
    def unit(self) -> float:
        """What a 1 in a report stands for: bound^2 4^-bits, in the units of x x^T."""
        return math.ldexp(self.bound * self.bound, -2 * self.bits)

    @property
    def noise(self) -> IntegerNoise:
        """Integer deviations of the entries of Z, in units of bound^2 4^-bits; zero without noise."""
        return on_grid(MomentNoise(self.deviation, 0.0, 0.0), self.bits)

    @property
    def is_noisy(self) -> bool:
        """False for epsilon = inf."""
        return self.deviation > 0

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of one report, rounded down."""
        return equal_parts(Budget(epsilon=self.epsilon, delta=self.delta).mu, self.records_per_person)

    def releases(self) -> tuple[LedgerEntry, ...]:
        """What one person releases."""
        if not self.is_noisy:
            return (LedgerEntry("local report", math.inf, ()),) * self.records_per_person
        block = NoiseBlock(RECORD, "goe", self.deviation, self.noise.diagonal)
        return (LedgerEntry("local report", self.mu, (block,), self.bits),) * self.records_per_person

    def spent_mu(self) -> float:
        """Gaussian-DP parameter of all reports of one person together, rounded up."""
        mu = self.mu
        return mu if math.isinf(mu) else mu_rounded_up(cost_of(mu) * self.records_per_person)

    def largest_norm(self, n: int) -> float:
        """In units of bound^2: a sum of n honest reports is longer with probability below exp(-800)."""
        noise = self.deviation * math.sqrt(n) * (math.sqrt(self.size) + _FARTHEST)
        return (n + noise) * (1 + 1e-6)  # float32

    def largest_entry(self) -> int:
        """Modulus of an entry of one report, in units of the grid, exceeded with probability below exp(-790)."""
        return (1 << (2 * self.bits)) + int(_FARTHEST) * self.noise.diagonal

    def mismatch(self, other: LocalMechanism) -> str | None:
        """The first thing, in words, in which ``other`` differs; None if it is the same mechanism."""
        if self == other:
            return None
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if field.name == "deviation" and math.isclose(mine, theirs, rel_tol=_SAME_DEVIATION):
                continue
            if mine != theirs:
                return f"{field.name} = {theirs}, not {mine}"
        return None


def calibrate(dim: Any, bound: Any, epsilon: Any, delta: Any, *, records_per_person: Any = 1) -> LocalMechanism:
    """The least noise on the grid that keeps (epsilon, delta) for one person; every rounding is toward more."""
    d, records = require_count("dim", dim, largest=LARGEST_DIM), require_count("records_per_person", records_per_person)
    radius = check_bound(bound)
    budget = Budget(epsilon=epsilon, delta=delta)
    assert budget.epsilon is not None
    if math.isinf(budget.mu):
        return LocalMechanism(d, radius, math.inf, None, records, 0.0, MOST_BITS)
    layout, mu = MomentLayout(d, 0, sums=False, counts=False), equal_parts(budget.mu, records)
    integers, noise = integer_noise(mu, layout, "replace-one", None)
    return LocalMechanism(d, radius, budget.epsilon, budget.delta, records, noise.second, integers.bits)


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
class Reports:
    """Reports of m records, one row each.

    Attributes
    ----------
    mechanism : what they were made by; public.
    values : (m, d (d + 1)/2), upper triangles, row by row, of x x^T + Z in units of ``mechanism.unit``: integers, as
        int64 or rounded to float32.
    seeded : whether the noise came from a seed: then nothing here is private.
    """

    mechanism: LocalMechanism
    values: NDArray[Any]
    seeded: bool = False

    def __post_init__(self) -> None:
        values: Any = self.values
        size, shape = self.mechanism.size, getattr(values, "shape", type(values).__name__)
        if not isinstance(values, np.ndarray) or values.shape[1:] != (size,):
            raise ReportError(f"reports of dim = {self.mechanism.dim} have shape (m, {size}), d (d + 1)/2; got {shape}")
        if values.dtype.name not in ENTRY_TYPES:
            raise ReportError(f"reports have entries of type {' or '.join(ENTRY_TYPES)}, got {values.dtype.name}")

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> Reports:
        i = range(len(self))[i]  # IndexError ends an iteration
        return Reports(self.mechanism, self.values[i : i + 1], self.seeded)

    def matrices(self) -> Matrix:
        """(m, d, d), symmetric x x^T + Z of each, in the units of the data; their expectation is x x^T."""
        d, entries = self.mechanism.dim, self.values.astype(np.float64) * self.mechanism.unit
        return np.array([symmetric_of(row, d) for row in entries]).reshape(-1, d, d)

    def to_bytes(self) -> bytes:
        """The reports as one message with one checksum."""
        mechanism, entries = self.mechanism, self.values.astype(self.values.dtype.newbyteorder("<"), copy=False)
        head = (MAGIC, VERSION, _STORED.index(entries.dtype), mechanism.bits, self.seeded)
        counts = (mechanism.dim, mechanism.records_per_person, len(self))
        delta = math.nan if mechanism.delta is None else mechanism.delta
        header = _HEADER.pack(*head, *counts, mechanism.bound, mechanism.epsilon, delta, mechanism.deviation)
        payload = np.ascontiguousarray(entries).data.cast("B") if entries.size else b""
        return b"".join([header, _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(header))), payload])

    @classmethod
    def from_bytes(cls, message: Any) -> Reports:
        """Read what `to_bytes` wrote (bytes or any other buffer), without copying the entries.

        Raises ReportError, which says what is wrong, for a message that is malformed, damaged or of another version, or
        whose noise is not that of its guarantee.
        """
        data = memoryview(message).cast("B")
        if len(data) < _START or data[: len(MAGIC)] != MAGIC:
            raise ReportError(f"not a dpgep report: {len(data)} bytes that begin with {bytes(data[:6])!r}")
        header, payload = data[: _HEADER.size], data[_START:]
        found = _HEADER.unpack(header)
        _, version, entry_type, bits, seeded, dim, records, count, bound, epsilon, delta, deviation = found
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
            expected = count * mechanism.size
            raise ReportError(f"{count} reports of dim = {dim} have {expected} entries, not {entries.size}")
        values = entries.reshape(count, mechanism.size)
        return cls(mechanism, values.astype(values.dtype.newbyteorder("="), copy=False), bool(seeded))


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
    given = mechanism.dim, mechanism.bound, mechanism.epsilon, mechanism.delta
    try:
        mismatch = mechanism.mismatch(_calibrated(*given, records_per_person=mechanism.records_per_person))
    except (ArithmeticError, ValueError) as error:
        raise ReportError(f"{what} of a mechanism that nobody can make: {error}") from None
    if mismatch is not None:
        raise ReportError(f"{what} of a mechanism whose guarantee needs {mismatch}")


# a server decodes many messages of one mechanism
_calibrated = lru_cache(maxsize=16)(calibrate)


class GaussianRandomizer:
    """Turns a record x into x x^T + Z, of which no server can tell much about x.

    Guarantee: whatever x is replaced by, the law of what a person sends changes by no more than (epsilon, delta). It
    holds against everybody, the server included, and whatever the other people do. x is clipped here, to norm at most
    R = ``bound``, and Z is GOE of deviation sqrt(2) R^2/mu with mu from the exact curve of Gaussian noise. Expectation
    of a report: x x^T of the clipped record. It holds for the bits that are sent (docs/local.md has the proof).

    Parameters
    ----------
    dim : int
        Length of a record.
    bound : float
        Public bound on the norm of a record, the same for all clients: part of the protocol, never read off data.
    epsilon, delta : float
        The guarantee of one person. ``epsilon=math.inf`` (without ``delta``) switches the noise off.
    records_per_person : int
        How many records one person may send. **Each row is one person's record** unless this says otherwise: k reports
        about one person compose to sqrt(k) times the mu of one, so the noise is made sqrt(k) times as large. Nobody
        counts here: a client that sends more breaks its own promise.
    dtype : {"int64", "float32"}
        Of the entries of a report, integers in either. float32 rounds them to 24 bits, after the noise, so it costs no
        privacy: half the bytes, at a relative error of 6e-8 in each entry.
    seed : int, optional
        Makes the noise reproducible, for tests: whoever knows the seed can remove it. Warns, and marks the reports.

    Notes
    -----
    A report is to be made once and kept: making another one of the same record is one more record of that person, even
    if the first was lost on its way. Send the same bytes again instead.

    Source: Wang and Xu (2020), Algorithm 1, with sensitivity sqrt(2) for 1, clipping, orthogonally invariant noise, and
    an exact calibration; docs/local.md.

    Examples
    --------
    >>> randomizer = GaussianRandomizer(dim=3, bound=1.0, epsilon=1.0, delta=1e-6)
    >>> report = randomizer.randomize([0.6, 0.8, 0.0])
    >>> report.matrices().shape, len(report.to_bytes())
    ((1, 3, 3), 112)
    """

    def __init__(
        self,
        dim: int,
        bound: float,
        epsilon: float,
        delta: float | None = None,
        *,
        records_per_person: int = 1,
        dtype: Any = "int64",
        seed: int | None = None,
    ) -> None:
        self.mechanism: LocalMechanism = calibrate(dim, bound, epsilon, delta, records_per_person=records_per_person)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if self.dtype.name not in ENTRY_TYPES:
            raise ValueError(f"dtype must be {' or '.join(ENTRY_TYPES)}, got {dtype!r}")
        self._stream = noise_stream(seed)

    def randomize(self, x: Any) -> Reports:
        """The report of one record x, (d,) real numbers.

        Raises ValueError or TypeError if x has another shape, is not real, or holds NaN or infinities.
        """
        row = np.asarray(x)
        if row.shape != (self.mechanism.dim,):
            raise ValueError(f"x must have shape ({self.mechanism.dim},), got {row.shape}")
        return Reports(self.mechanism, self._reports(row[None, :], "x"), self._stream.seeded)

    def randomize_rows(self, X: Any) -> Reports:
        """The reports of many records, the rows of X (m, d): dense or SciPy sparse, any real dtype.

        Every row gets noise of its own and the guarantee of one record. The rows are of different people, or
        ``records_per_person`` says how many may be of the same.
        """
        return Reports(self.mechanism, self._reports(X, "X"), self._stream.seeded)

    def _reports(self, records: Any, name: str) -> NDArray[Any]:
        mechanism = self.mechanism
        rows = Rows((as_matrix(records, name),), mechanism.bound)
        if rows.d != mechanism.dim:
            raise ValueError(f"{name} must have {mechanism.dim} columns, got {rows.d}")
        values = np.empty((rows.n, mechanism.size), dtype=np.int64)
        first, second = triangle(mechanism.dim)
        for part, block in clipped_blocks(rows, 0, mechanism.bits, max(1, _BLOCK_BYTES // (8 * mechanism.size))):
            # integers of modulus at most 4^bits: exact in float64
            np.multiply(block.take(first, axis=1), block.take(second, axis=1), out=values[part], casting="unsafe")
        self._add_noise(values)
        # only now: a function of what is already private
        return values.astype(self.dtype, copy=False)

    def _add_noise(self, values: NDArray[np.int64]) -> None:
        """Add round(s N) to every entry of packed triangles, with one scale s on the diagonal and one off it."""
        noise, positions, threads = self.mechanism.noise, diagonal(self.mechanism.dim), thread_count()
        on_diagonal = values.take(positions, axis=1)
        core.add_exact_noise(on_diagonal, noise.diagonal, self._stream, threads)
        values[:, positions] = 0  # all entries get noise below: no person is in what is dropped
        core.add_exact_noise(values, noise.off_diagonal, self._stream, threads)
        values[:, positions] = on_diagonal
