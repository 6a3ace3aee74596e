"""The exponential mechanism for the leading subspace, PPCA (Chaudhuri, Sarwate, Sinha 2013): one draw for all K.

Orthonormal V of density exp(factor tr(V^T C V)) (matrix Bingham), C the second moment of rows in the unit ball. A
replaced row adds x x^T - y y^T, and for K directions as for one the score moves by at most 1: `Analyst.choose`. For K
= 1 this is one draw of `eigenvector_sampling`. For K > 1 the law is the same for every basis of a subspace:
directions in it have no order.

Printed (from memory of the paper): exp(n epsilon/2 tr(V^T A V)), A = C/n, for epsilon-DP: sound, and half of the
factor that its price in mu allows. The paper draws by a Gibbs sampler whose steps it does not bound: a chain that has
not converged has no guarantee. Draws here are exact, by rejection. With K > 1 acceptance falls exponentially in d
where leading eigenvalues differ, so more than a few columns, a public number, are refused. That a draw is given up
depends on the rows, and is not paid for: this file is for experiments.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Analyst, Matrix, second_moment
from scipy.optimize import brentq

MOST_COLUMNS = 10  # where K > 1
MOST_PROPOSALS = 10**5


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    d = analyst.shape[1]
    if k > 1 and d > MOST_COLUMNS:
        raise NotImplementedError(f"exact draws of {k} directions are for at most {MOST_COLUMNS} columns, got {d}")
    return analyst.choose(second_moment, lambda scores, factor: matrix_bingham(factor * scores, k, analyst.rng), mu)


def matrix_bingham(matrix: Matrix, k: int, rng: np.random.Generator) -> Matrix:
    """(K, d), orthonormal rows of density exp(tr(V M V^T)), exactly: rejection from a matrix angular central Gaussian
    law, of density |V Omega V^T|^(-d/2) (Kent, Ganeiber and Mardia 2018).

    Up to a constant tr(V M V^T) = -tr(V G V^T) - sum_i l_i (1 - |V e_i|^2), l_i how far eigenvalues lie above the K-th,
    G how far below: both terms are at most zero. With Omega = I + 2 G/b every eigenvalue u >= 0 of V G V^T has
    exp(-u) <= exp(-(d - b)/2) (d/b)^(d/2) (1 + 2 u/b)^(-d/2), for all 0 < b <= d.
    """
    values, vectors = np.linalg.eigh(matrix)
    d = len(values)
    gaps, excess = np.maximum(values[-k] - values, 0.0), np.maximum(values - values[-k], 0.0)
    b = min(d, float(brentq(lambda b: float(np.sum(1 / (b + 2 * gaps))) - 1, 1e-12, d + 1e-9)))
    omega = 1 + 2 * gaps / b
    most = k * (-(d - b) / 2 + d / 2 * math.log(d / b))
    for _ in range(MOST_PROPOSALS):
        left, _, right = np.linalg.svd(rng.standard_normal((k, d)) / np.sqrt(omega), full_matrices=False)
        v = left @ right
        score = float(np.sum(v**2 * (excess - gaps)) - np.sum(excess))
        if math.log(rng.random()) < score + d / 2 * float(np.linalg.slogdet(v * omega @ v.T)[1]) - most:
            return np.asarray(v @ vectors.T)
    raise RuntimeError(f"no draw in {MOST_PROPOSALS} proposals: leading eigenvalues differ too much")
