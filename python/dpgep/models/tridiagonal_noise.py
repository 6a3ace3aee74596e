"""The leading eigenvalue of GOE noise from O(d) numbers in place of d^2: that of a tridiagonal matrix of the same law.

Householder reflections make a symmetric matrix tridiagonal and keep its eigenvalues. Of a GOE with deviation s on its
diagonal and s/sqrt(2) beside it, each reflection leaves the law of what is left as it was. So entries are independent:
N(0, s^2) on the diagonal and s/sqrt(2) chi_{d-1}, ..., s/sqrt(2) chi_1 beside it (Trotter 1984; Dumitriu and Edelman
2002).

Noise e ~ N(0, t^2 I) in a mean m adds -(m e^T + e m^T) - e e^T. In a basis that begins with m/|m| the first part
changes the first row alone, adding N(0, 4 |m|^2 t^2) to its first entry and independent N(0, |m|^2 t^2) to the others.
That row is still isotropic beyond its first entry, so that the first reflection finds nothing new: only the first
entries of the two diagonals have larger deviations.

An eigenvector of the largest eigenvalue decays beyond the first d^(1/3) coordinates as Airy's function does: a corner
of some times as many is enough (Edelman and Persson 2005).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.linalg import lapack

from dpgep.models.model import Matrix

# |m| t/s is rounded up to a multiple of this: the edge of noise moves by 2 % at most, and is known from another fit.
_STEP = 1 / 16
# How exactly eigenvalues are bisected, in deviations of the noise.
_TOLERANCE = 1e-4
_ONE_BY_NUMBER = 2  # LAPACK's range "I"
_CORNER, _CORNER_TIMES_ROOT = 16, 12


def leading_of_noise(d: int, deviation: float, of_mean: float, seed: int, n_draws: int) -> Matrix:
    """(n_draws,), the largest eigenvalue of GOE noise in d dimensions, less the mean of all d.

    ``of_mean``: |m| t, of the noise of a mean besides. Its part -e e^T, which only lowers eigenvalues, is left out.
    """
    return np.asarray(deviation * _leading(d, math.ceil(of_mean / deviation / _STEP) if of_mean else 0, seed, n_draws))


@lru_cache(maxsize=1024)
def _leading(d: int, steps: int, seed: int, n_draws: int) -> Matrix:
    """That of deviation 1, for this many steps of |m| t."""
    if d == 1:
        return np.zeros(n_draws)
    generator, of_mean = np.random.default_rng(seed), steps * _STEP
    size = min(d, math.ceil(_CORNER + _CORNER_TIMES_ROOT * d ** (1 / 3)))
    diagonal = generator.standard_normal((n_draws, size))
    beside = np.sqrt(generator.chisquare(d - np.arange(1, size), (n_draws, size - 1)) / 2)
    rest = math.sqrt(d - size) * generator.standard_normal(n_draws)
    diagonal[:, 0] *= math.sqrt(1 + 4 * of_mean**2)
    beside[:, 0] *= math.sqrt(1 + 2 * of_mean**2)
    pairs = zip(diagonal, beside, strict=True)
    found = [lapack.dstebz(row, off, _ONE_BY_NUMBER, 0.0, 0.0, size, size, _TOLERANCE, b"E") for row, off in pairs]
    return np.asarray(np.array([values[0] for _, values, *_ in found]) - (diagonal.sum(axis=1) + rest) / d)
