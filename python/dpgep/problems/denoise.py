"""What a noisy symmetric matrix may have been before the noise, from the known law of GOE noise."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from scipy.special import log_ndtr

from dpgep.problems.model import Matrix

# What noise has swamped of a positive semidefinite matrix is not guessed to be below this share of the noise's edge: a
# few eigenvalues near zero may be there by chance, and a truth that is singular by chance would make the simulated
# problem one about that direction alone. Public constant: of 0.15, 0.25 and 0.4, the one with the smallest worst error.
LEAST_SHARE = 0.4


def edge(d: int, deviation: float) -> float:
    """Largest eigenvalue of GOE noise for large d."""
    return deviation * math.sqrt(2 * d)


def spectrum_before_noise(values: Matrix, deviation: float) -> Matrix:
    """Eigenvalues that a positive semidefinite matrix may have had, from those of it plus GOE(deviation).

    An eigenvalue t well above the others is expected at t + edge^2/(4 t); it is taken back. Those within the edge of
    the noise, m of them, are replaced by their common mean: the trace is kept, N(mean, deviation^2/m) under a flat
    prior on the positive numbers, and the mean is at least ``LEAST_SHARE`` of the edge.
    """
    limit = edge(len(values), deviation)
    above = values > limit
    cleaned = _without_repulsion(np.maximum(values, limit), limit)
    swamped = int((~above).sum())
    if swamped and deviation > 0:
        mean = (float(values.sum()) - float(cleaned[above].sum())) / swamped
        least = LEAST_SHARE * limit
        cleaned[~above] = max(_positive_mean(mean, deviation / math.sqrt(swamped)), least)
    return np.asarray(cleaned if deviation > 0 else np.maximum(values, 0.0))


def signal_of(matrix: Matrix, deviation: float) -> Matrix:
    """A symmetric matrix without what noise alone could show: each eigenvalue drawn back to zero."""
    values, vectors = scipy.linalg.eigh(matrix, check_finite=False)
    limit = edge(len(values), deviation)
    size = np.abs(values)
    kept = np.where(size > limit, np.sign(values) * _without_repulsion(np.maximum(size, limit), limit), 0.0)
    return np.asarray((vectors * kept) @ vectors.T)


def mixed_directions(vectors: Matrix, n_directions: int, generator: np.random.Generator) -> Matrix:
    """Fewer orthonormal columns: sums of neighbours in a basis (d, d) with random signs, over the root of their number.

    With the columns ordered by eigenvalue, a matrix keeps its spectrum, thinned out.
    """
    d = len(vectors)
    first = np.arange(n_directions) * d // n_directions
    signed = vectors * generator.choice([-1.0, 1.0], size=d)
    return np.asarray(np.add.reduceat(signed, first, axis=1) / np.sqrt(np.diff(first, append=d)))


def goe(d: int, deviation: float, generator: np.random.Generator) -> Matrix:
    """A GOE matrix for a simulation; nothing is protected by it."""
    half = generator.standard_normal((d, d))
    return np.asarray((half + half.T) * (deviation / 2))


def _without_repulsion(values: Matrix, limit: float) -> Matrix:
    """Solve t + limit^2/(4 t) = value: where the noise moves an eigenvalue t of a matrix of low rank to."""
    return np.asarray((values + np.sqrt(values**2 - limit**2)) / 2)


def _positive_mean(mean: float, deviation: float) -> float:
    """Mean of N(mean, deviation^2) given that it is positive."""
    z = mean / deviation
    return mean + deviation * math.exp(-z * z / 2 - float(log_ndtr(z))) / math.sqrt(2 * math.pi)
