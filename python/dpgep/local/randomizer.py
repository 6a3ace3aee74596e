"""The client's side: clip a record, multiply it out, add the noise. The client is its own curator.

All of it in integers: what is sent is a rounded answer of the Gaussian mechanism, to its last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.inputs import as_matrix
from dpgep.data.rows import Rows, clipped_blocks
from dpgep.local.protocol import ENTRY_TYPES, LocalMechanism, Reports, calibrate, diagonal, triangle
from dpgep.privacy.curator import noise_stream

# Products of a block of rows with themselves: small enough for the memory of the last block to be used again, since new
# pages cost more than the products.
_BLOCK_BYTES = 1 << 16


class GaussianRandomizer:
    """Turns a record x into x x^T + Z, of which no server can tell much about x.

    Guarantee: whatever x is replaced by, the law of what a person sends changes by no more than (epsilon, delta). It
    holds against everybody, the server included, and whatever the other people do. x is clipped here, to norm at most
    R = ``bound``; then |x x^T - x' x'^T|_F <= sqrt(2) R^2, and Z is GOE of deviation sqrt(2) R^2/mu with mu from the
    exact curve of Gaussian noise. Expectation of a report: x x^T of the clipped record.

    It holds for the bits that are sent: x is put in fixed point (an integer vector of norm at most 2^20, in units of
    R/2^20), multiplied out without rounding, and gets normal deviates that are rounded exactly to integers
    (docs/local.md has the proof).

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
