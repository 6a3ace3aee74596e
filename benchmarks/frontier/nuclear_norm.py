"""Purely private covariance (d'Orsi and Novikov 2026, arXiv:2510.26717): noise of density exp(-epsilon |Z|_*/2).

Sound: a replaced row moves the sum of x x^T by at most 2 in nuclear norm, so densities change by a factor of e^epsilon
at most: the K-norm mechanism (Hardt and Talwar 2010) of that norm. The law is invariant under rotations:
eigenvectors are uniform, eigenvalues have the density exp(-epsilon sum |l_i|/2) prod |l_i - l_j|, drawn here by
Metropolis steps from a difference of two Wishart matrices. That draw is approximate: fit for comparing errors, not for
release.

Printed: of the text the abstract, a public summary and the first page could be read. By them this is the noise; for few
people the answer is projected to a ball of the nuclear norm, which moves eigenvalues only: it is post-processing, free,
and may follow noise of any law (`projected`). Eigenvectors are those without it, so for spans nothing is gained.
"""

from __future__ import annotations

import numpy as np
from mechanism import Analyst, Matrix, leading, second_moment
from wishart import noise as difference_of_wisharts

SWEEPS = 60


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    d, rng = analyst.shape[1], analyst.rng
    return leading(analyst.ask_pure(second_moment, "nuc", lambda epsilon: noise(d, epsilon, rng), mu), k)


def noise(d: int, epsilon: float, rng: np.random.Generator) -> Matrix:
    values = np.linalg.eigvalsh(difference_of_wisharts(d, epsilon, rng)) * epsilon
    width = np.ptp(values) / d + 1
    for _ in range(SWEEPS):
        for i in rng.permutation(d):
            proposed = values[i] + width * rng.standard_normal()
            others = np.delete(values, i)
            gain = np.log(np.abs(proposed - others) / np.abs(values[i] - others)).sum()
            if np.log(rng.random()) < gain - (abs(proposed) - abs(values[i])) / 2:
                values[i] = proposed
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return np.asarray((basis * (values / epsilon)) @ basis.T)


def projected(matrix: Matrix, radius: float) -> Matrix:
    """The nearest matrix, in Frobenius norm, without negative eigenvalues and with a trace of at most ``radius``."""
    values, vectors = np.linalg.eigh(matrix)
    descending = np.maximum(values[::-1], 0.0)
    excess = (np.cumsum(descending) - radius) / np.arange(1, len(values) + 1)
    shift = max(0.0, float(np.max(excess)))
    return np.asarray((vectors * np.maximum(values - shift, 0.0)) @ vectors.T)
