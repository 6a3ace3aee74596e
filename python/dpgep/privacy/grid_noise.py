"""Values rounded to a public grid, with exactly rounded noise: their last bits tell nothing."""

from __future__ import annotations

import math

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.problems.model import Matrix

_BITS = 32
_MOST_UNITS = 2.0**61


def add_grid_noise(values: Matrix, deviation: float, stream: core.NoiseStream) -> Matrix:
    """``values`` rounded to the grid of 2^-32 deviation, plus independent noise of at least that deviation.

    As `core.PairOracle` does it; 0 for none. Values beyond 2^61 steps count as that many.
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
    upper = np.triu(integers)
    return np.asarray(unit * (upper + np.triu(integers, 1).T).astype(np.float64))


def _grid(deviation: float) -> tuple[float, int]:
    unit = math.ldexp(1.0, math.frexp(deviation)[1] - 1 - _BITS)
    return unit, math.ceil(deviation / unit)


def _nearest(values: Matrix, unit: float) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    with np.errstate(over="ignore"):
        units = values / unit
    np.clip(units, -_MOST_UNITS, _MOST_UNITS, out=units)
    return np.rint(units, out=units).astype(np.int64)
