"""The known law of GOE noise: what a noisy matrix may have been before it, and its own leading eigenvalue.

The leading eigenvalue comes from O(d) numbers in place of d^2: that of a corner of a tridiagonal matrix of the same law
(docs/mathematics.md, section 5; Edelman and Persson 2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from dpgep.models.model import Matrix

# No eigenvalue of a positive semidefinite matrix is guessed to be below this many deviations of one entry of the
# noise. A few may seem near zero by chance, and a truth that is singular by chance would make the simulated problem one
# about that direction alone; a quotient along one direction is known no better than this. A public constant.
LEAST_DEVIATIONS = 2.0
# How exactly eigenvalues are bisected, in deviations of the noise.
_TOLERANCE = 1e-4
_ONE_BY_NUMBER = 2  # LAPACK's range "I"
_CORNER, _CORNER_TIMES_ROOT = 16, 12


def edge(d: int, deviation: float) -> float:
    """Largest eigenvalue of GOE noise for large d."""
    return deviation * math.sqrt(2 * d)


def spectrum_before_noise(values: Matrix, deviation: float) -> Matrix:
    """Eigenvalues that a positive semidefinite matrix may have had, from those of it plus GOE(deviation).

    An eigenvalue t well above the others is expected at t + edge^2/(4 t); it is taken back. Those within the edge of
    the noise are replaced by one, `swamped_mean`, which keeps the trace. None is below ``LEAST_DEVIATIONS``.
    """
    if deviation == 0:
        return np.maximum(values, 0.0)
    limit = edge(len(values), deviation)
    above = values > limit
    cleaned = _without_repulsion(np.maximum(values, limit), limit)
    if not above.all():
        cleaned[~above] = swamped_mean(float(values.sum() - cleaned[above].sum()), int((~above).sum()), deviation)
    return np.maximum(cleaned, LEAST_DEVIATIONS * deviation)


def swamped_mean(trace: float, n: int, deviation: float) -> float:
    """Mean of n eigenvalues within the edge of the noise, by their sum: N(trace/n, deviation^2/n), if positive."""
    mean, spread = trace / n, deviation / math.sqrt(n)
    if spread > 0:  # the mean of such a law, given that it is positive
        z = mean / spread
        mean += spread * math.exp(-z * z / 2 - float(scipy.special.log_ndtr(z))) / math.sqrt(2 * math.pi)
    return max(mean, 0.0, LEAST_DEVIATIONS * deviation)


@dataclass(frozen=True, eq=False)
class LowRank:
    """U diag(sizes) V^T; ``overlaps``: expected squared cosines of the columns of U with those before noise."""

    left: Matrix
    sizes: Matrix
    right: Matrix
    overlaps: Matrix


def low_rank_before_noise(matrix: Matrix, deviation: float) -> LowRank:
    """What a matrix (m, n) may have been before independent entries of this deviation were added.

    A singular value t is expected at y with y^2 = (t^2 + m s^2)(t^2 + n s^2)/t^2; it is taken back, and what noise
    alone could show, y <= s (sqrt m + sqrt n), is left out. The squared cosine of left vectors before and after is
    (t^4 - m n s^4)/(t^4 + m s^2 t^2) (Benaych-Georges and Nadakuditi).
    """
    left, found, right = np.linalg.svd(matrix, full_matrices=False)  # SciPy's refused empty ones
    m, n = matrix.shape
    kept = found > deviation * (math.sqrt(m) + math.sqrt(n))
    left, found, right = left[:, kept], found[kept], right[kept]
    unit = float(found.max(initial=0.0)) or 1.0  # fourth powers of other units might leave the range
    found, deviation = found / unit, deviation / unit
    middle = found**2 - deviation**2 * (m + n)
    squares = (middle + np.sqrt(np.maximum(middle**2 - 4 * m * n * deviation**4, 0.0))) / 2
    overlaps = (squares**2 - m * n * deviation**4) / (squares**2 + m * deviation**2 * squares)
    return LowRank(left, unit * np.sqrt(squares), right, overlaps)


def signal_of(matrix: Matrix, deviation: float) -> Matrix:
    """A symmetric matrix without what noise alone could show: each eigenvalue drawn back to zero."""
    values, vectors = scipy.linalg.eigh(matrix, check_finite=False)
    limit = edge(len(values), deviation)
    size = np.abs(values)
    kept = np.where(size > limit, np.sign(values) * _without_repulsion(np.maximum(size, limit), limit), 0.0)
    return np.asarray((vectors * kept) @ vectors.T)


def upright(vectors: Matrix) -> Matrix:
    """Columns with signs that are not LAPACK's: the first entry of at least half the largest size is positive."""
    sizes = np.abs(vectors)
    first = np.argmax(sizes >= sizes.max(axis=0, initial=0.0) / 2, axis=0)
    return np.asarray(vectors * np.where(np.take_along_axis(vectors, first[None], axis=0) < 0, -1.0, 1.0))


def mixed_directions(vectors: Matrix, n_directions: int, generator: np.random.Generator) -> Matrix:
    """Fewer orthonormal columns: sums of neighbours in a basis (d, d), random signs, over the root of their number."""
    d = len(vectors)
    first = np.arange(n_directions) * d // n_directions
    signed = vectors * generator.choice([-1.0, 1.0], size=d)
    return np.asarray(np.add.reduceat(signed, first, axis=1) / np.sqrt(np.diff(first, append=d)))


def merged_directions(values: Matrix, rows: Matrix, most: int) -> tuple[Matrix, Matrix, Matrix]:
    """At most ``most`` means of neighbours, sums of their rows with random signs, and for how many each stands."""
    d = len(values)
    n = min(d, most)
    if n == 0:
        return values, rows, values
    first = np.arange(n) * d // n
    numbers = np.diff(first, append=d)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(d, 1))  # public, the same in every run
    return np.add.reduceat(values, first) / numbers, np.add.reduceat(rows * signs, first), numbers.astype(float)


def _without_repulsion(values: Matrix, limit: float) -> Matrix:
    """Solve t + limit^2/(4 t) = value: where the noise moves an eigenvalue t of a matrix of low rank to."""
    return np.asarray((values + np.sqrt(np.maximum(values**2 - limit**2, 0.0))) / 2)


@lru_cache(maxsize=1024)
def leading_of_noise(d: int, sixteenths: int, seed: int, n_draws: int) -> Matrix:
    """(n_draws,), the largest eigenvalue of GOE(1) noise in d dimensions, less the mean of all d.

    ``sixteenths`` of |m| t/s, of the noise of a mean besides, rounded up: the edge of noise moves by 2 % at most, and
    is known from another fit. Its part -e e^T, which only lowers eigenvalues, is left out.
    """
    if d == 1:
        return np.zeros(n_draws)
    generator, of_mean = np.random.default_rng(seed), sixteenths / 16
    size = min(d, math.ceil(_CORNER + _CORNER_TIMES_ROOT * d ** (1 / 3)))
    diagonal = generator.standard_normal((n_draws, size))
    beside = np.sqrt(generator.chisquare(d - np.arange(1, size), (n_draws, size - 1)) / 2)
    rest = math.sqrt(d - size) * generator.standard_normal(n_draws)
    diagonal[:, 0] *= math.sqrt(1 + 4 * of_mean**2)
    beside[:, 0] *= math.sqrt(1 + 2 * of_mean**2)
    pairs = zip(diagonal, beside, strict=True)
    found = [lapack.dstebz(row, off, _ONE_BY_NUMBER, 0.0, 0.0, size, size, _TOLERANCE, b"E") for row, off in pairs]
    leading = np.array([values[0] for _, values, *_ in found]) - (diagonal.sum(axis=1) + rest) / d
    leading.flags.writeable = False  # shared
    return np.asarray(leading)
