"""Iterative eigenvector sampling (Amin, Dick, Kulesza, Munoz, Vassilvitskii 2019): one direction after the other.

Each direction is a draw of density exp(factor u^T C u) (Bingham) on the sphere of what is left after those before:
the exponential mechanism, whose score moves by at most 1 where a row of the unit ball is replaced. Here each of K draws
gets mu/sqrt(K), and the largest factor that this allows (`Analyst.choose`).

Printed: exp(epsilon/4 u^T C u), twice the noise that scores which move by 1 need for epsilon-DP. The paper also
releases eigenvalues by Laplace's mechanism, which components do not need.
"""

from __future__ import annotations

import math

import numpy as np
from exponential import matrix_bingham
from mechanism import Analyst, Matrix, second_moment


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
    """A unit vector of density exp(u^T M u), exactly."""
    return matrix_bingham(matrix, 1, rng)[0]
