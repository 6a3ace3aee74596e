"""The client's side: clip a record, multiply it out, add the noise. The client is its own curator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.local.mechanism import LocalMechanism, calibrate
from dpgep.local.report import Report, ReportBatch, triangle
from dpgep.privacy.streams import noise_stream
from dpgep.problems.rows import Rows, as_matrix

# Products of a block of rows with themselves: enough to be fast, little beside the batch.
_BLOCK_BYTES = 1 << 22
_LARGEST_FLOAT32 = 1e36


class GaussianRandomizer:
    """Turns a record x into x x^T + Z, of which no server can tell much about x.

    Guarantee: whatever x is replaced by, the law of what a person sends changes by no more than (epsilon, delta). It
    holds against everybody, the server included, and whatever the other people do. x is clipped here, to norm at most
    R = ``bound``; then |x x^T - x' x'^T|_F <= sqrt(2) R^2, and Z is GOE of deviation sqrt(2) R^2/mu with mu from the
    exact curve of Gaussian noise. Expectation of a report: x x^T of the clipped record.

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
    exact : bool
        Records in fixed point, and noise rounded exactly to its grid (docs/exactness.md): the guarantee then has no
        gap between real numbers and floating point. Reports are int64; drawing takes about four times as long.
    dtype : {"float64", "float32"}
        Of the entries of a report; rounding to float32 comes after the noise, so it costs no privacy. Not with
        ``exact``.
    seed : int, optional
        Makes the noise reproducible, for tests: whoever knows the seed can remove it. Warns, and marks the reports.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

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
    >>> report.matrix().shape, len(report.to_bytes())
    ((3, 3), 112)
    """

    def __init__(
        self,
        dim: int,
        bound: float,
        epsilon: float,
        delta: float | None = None,
        *,
        records_per_person: int = 1,
        exact: bool = False,
        dtype: Any = None,
        seed: int | None = None,
    ) -> None:
        self.mechanism: LocalMechanism = calibrate(
            dim, bound, epsilon, delta, records_per_person=records_per_person, exact=exact
        )
        self.dtype = _entry_type(dtype, exact)
        if self.dtype == np.float32 and self.mechanism.deviation > _LARGEST_FLOAT32:
            raise ValueError(f"noise of {self.mechanism.deviation:.3g} bound^2 would overflow float32: use float64")
        self._stream = noise_stream(seed, stacklevel=2)

    def randomize(self, x: Any) -> Report:
        """The report of one record x, (d,) real numbers.

        Raises ValueError or TypeError if x has another shape, is not real, or holds NaN or infinities.
        """
        row = np.asarray(x)
        if row.shape != (self.mechanism.dim,):
            raise ValueError(f"x must have shape ({self.mechanism.dim},), got {row.shape}")
        return Report(self.mechanism, self._reports(row[None, :], "x"), self._stream.seeded)

    def randomize_rows(self, X: Any) -> ReportBatch:
        """The reports of many records, the rows of X (m, d): dense or SciPy sparse, any real dtype.

        Every row gets noise of its own and the guarantee of one record. The rows are of different people, or
        ``records_per_person`` says how many may be of the same.
        """
        return ReportBatch(self.mechanism, self._reports(X, "X"), self._stream.seeded)

    def _reports(self, records: Any, name: str) -> NDArray[Any]:
        mechanism = self.mechanism
        rows = Rows((as_matrix(records, name),), mechanism.bound)
        if rows.d != mechanism.dim:
            raise ValueError(f"{name} must have {mechanism.dim} columns, got {rows.d}")
        values = np.empty((rows.n, mechanism.size), dtype=self.dtype)
        first, second = triangle(mechanism.dim)
        for part, block in rows.clipped_blocks(0, mechanism.bits, max(1, _BLOCK_BYTES // (8 * mechanism.size))):
            products = block.take(first, axis=1)
            products *= block.take(second, axis=1)
            values[part] = self._noisy(products)
        return values

    def _noisy(self, products: NDArray[np.float64]) -> NDArray[Any]:
        """Packed triangles plus noise. Products of integer records are below 2^53, hence exact."""
        if self.mechanism.bits is None:
            for packed in products:
                core.add_symmetric_noise_packed(packed, self.mechanism.deviation, "goe", self._stream)
            return products
        noise, on_diagonal = self.mechanism.noise, np.equal(*triangle(self.mechanism.dim))
        integers = products.astype(np.int64)
        diagonal = np.ascontiguousarray(integers[:, on_diagonal])
        core.add_exact_noise(diagonal, noise.diagonal, self._stream, thread_count())
        core.add_exact_noise(integers, noise.off_diagonal, self._stream, thread_count())
        integers[:, on_diagonal] = diagonal
        return integers


def _entry_type(dtype: Any, exact: bool) -> np.dtype[Any]:
    if exact:
        if dtype is not None:
            raise ValueError("exact reports are int64: dtype belongs to floating-point ones")
        return np.dtype(np.int64)
    entry_type = np.dtype(np.float64 if dtype is None else dtype)
    if entry_type not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise ValueError(f"dtype must be float64 or float32, got {dtype!r}")
    return entry_type
