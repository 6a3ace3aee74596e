"""Noise: its stream, and exactly rounded deviates on values on a public grid.

The low-order bits of such values reveal nothing.
"""

from __future__ import annotations

import hashlib
import math
import operator
from typing import Any

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep._watched import watching
from dpgep.data.integer_sums import GridSums
from dpgep.data.rows import HALF
from dpgep.errors import PrivacyWarning, warn
from dpgep.models.model import Matrix

_BITS = 28
_MOST_UNITS = 2.0**61


def noise_stream(seed: Any = None) -> core.NoiseStream:
    """A new stream; with a seed (a whole number) it is reproducible, and a `PrivacyWarning` is issued."""
    if seed is None:
        return core.NoiseStream(transcript=watched_draws())
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    warn("a seeded run is not private: anyone who knows the seed can subtract the noise", PrivacyWarning)
    key = hashlib.sha256(f"dpgep seed {operator.index(seed)}".encode()).digest()
    return core.NoiseStream(key, transcript=watched_draws())


def watched_draws() -> core.Transcript | None:
    """For a new stream: None, but in an audit."""
    transcript = watching.get()
    return transcript.draws if transcript is not None and transcript.is_open else None


def add_grid_noise(values: Matrix, deviation: float, stream: core.NoiseStream) -> Matrix:
    """``values`` rounded to the grid of 2^-28 deviation, plus independent noise of at least that deviation.

    As in `core.PairOracle`; deviation 0 adds none. Values beyond 2^61 steps are clipped to that.
    """
    if deviation == 0:
        return values
    unit, scale = _grid(deviation)
    integers = _nearest(values, unit)
    core.add_exact_noise(integers, scale, stream, thread_count())
    return np.asarray(unit * integers.astype(np.float64))


def add_symmetric_grid_noise(matrix: Matrix, deviation: float, stream: core.NoiseStream) -> Matrix:
    """The same for a symmetric matrix and GOE noise of this deviation on the diagonal."""
    if deviation == 0:
        return matrix
    unit, scale = _grid(deviation)
    integers = _nearest(matrix, unit)
    off_diagonal = math.isqrt((scale * scale - 1) // 2) + 1  # the least t with 2 t^2 >= scale^2
    core.add_exact_symmetric_noise(integers, scale, off_diagonal, stream, thread_count())
    noisy = unit * integers.astype(np.float64)
    core.mirror_upper(noisy)
    return np.asarray(noisy)


def noisy_squares(sums: GridSums, scale: int, stream: core.NoiseStream) -> Matrix:
    """(d,), exact sums of squares of each feature in the unit ball, plus noise of deviation scale 4^-bits."""
    high, low = (part.copy() for part in sums.squares())
    # carried to 0 <= low < 2^20, the two parts are unique: even the rounding of their sum follows from the released
    # integer
    core.add_exact_noise(low, scale, stream, thread_count(), high, HALF)
    return np.asarray(np.ldexp(np.ldexp(high.astype(np.float64), HALF) + low, -2 * sums.bits))


def noisy_groups(exact: GridSums, of_sums: int, of_counts: int, stream: core.NoiseStream) -> tuple[Matrix, Matrix]:
    """Exact sums and counts per group plus noise of deviations of_sums 2^-bits and of_counts 2^-bits."""
    sums, counts = exact.sums.copy(), exact.counts << exact.bits
    core.add_exact_noise(sums, of_sums, stream, thread_count())
    core.add_exact_noise(counts, of_counts, stream, thread_count())
    return np.ldexp(sums.astype(np.float64), -exact.bits), np.ldexp(counts.astype(np.float64), -exact.bits)


def _grid(deviation: float) -> tuple[float, int]:
    unit = math.ldexp(1.0, math.frexp(deviation)[1] - 1 - _BITS)
    return unit, math.ceil(deviation / unit)


def _nearest(values: Matrix, unit: float) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    with np.errstate(over="ignore"):
        units = values / unit
    np.clip(units, -_MOST_UNITS, _MOST_UNITS, out=units)
    return np.rint(units, out=units).astype(np.int64)
