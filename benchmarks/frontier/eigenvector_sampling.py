"""Iterative eigenvector sampling (Amin, Dick, Kulesza, Munoz, Vassilvitskii 2019): one direction after the other.

Each direction is a draw of density exp(epsilon/2 u^T C u) (Bingham) on the sphere of what is left after those before:
the exponential mechanism, whose score moves by at most 1 where a row of the unit ball is replaced. K draws, each
epsilon-DP; here each gets mu/sqrt(K), and the largest epsilon that this allows.

Printed: exp(epsilon/4 u^T C u), twice the noise that scores which move by 1 need. The paper also releases
eigenvalues by Laplace's mechanism, which components do not need.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Analyst, Matrix, second_moment
from scipy.optimize import brentq


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    rest, found = np.eye(analyst.shape[1]), []
    for _ in range(k):

        def restricted(rows: Matrix, rest: Matrix = rest) -> Matrix:
            return rest @ second_moment(rows) @ rest.T

        drawn = analyst.choose(
            restricted, lambda scores, factor: bingham(factor * scores, analyst.rng), mu / math.sqrt(k)
        )
        found.append(drawn @ rest)
        rest = np.linalg.svd(drawn[None, :])[2][1:] @ rest
    return np.array(found)


def bingham(matrix: Matrix, rng: np.random.Generator) -> Matrix:
    """A unit vector of density exp(u^T M u), exactly: rejection from an angular central Gaussian law (Kent, Ganeiber
    and Mardia 2018).
    """
    values, vectors = np.linalg.eigh(matrix)
    gaps, d = values[-1] - values, len(values)
    if d == 1:
        return np.ones(1)
    b = float(brentq(lambda b: float(np.sum(1 / (b + 2 * gaps))) - 1, 1e-12, d + 1e-9))
    omega = 1 + 2 * gaps / b
    most = -(d - b) / 2 + d / 2 * math.log(d / b)
    while True:
        y = rng.standard_normal(d) / np.sqrt(omega)
        y /= np.linalg.norm(y)
        if math.log(rng.random()) < -float(gaps @ y**2) + d / 2 * math.log(float(omega @ y**2)) - most:
            return np.asarray(vectors @ y)
