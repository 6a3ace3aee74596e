"""Separate covariance (Dong, Liang, Yi 2022, "Differentially private covariance revisited"): eigenvalues apart.

Half of the budget buys a noisy matrix for its eigenvectors, half the eigenvalues, whose vector moves by no more than
the matrix does (Hoffman and Wielandt): sqrt(2). The covariance has a smaller error so where its trace is small. Its
components are those of a release with half of the budget, in the order of the released eigenvalues.

Printed, and in the authors' code: rho/2 for each half, sound for zCDP under replace-one, which is mu/sqrt(2) each. The
tail-sensitive variant clips rows at a norm that is found privately: every comparator may be given such a bound.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Analyst, Matrix, leading, second_moment


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    half = mu / math.sqrt(2)
    vectors = leading(analyst.ask_symmetric(second_moment, math.sqrt(2), half), analyst.shape[1])
    values = analyst.ask(lambda rows: np.linalg.eigvalsh(second_moment(rows))[::-1], math.sqrt(2), half)
    return vectors[np.argsort(-values, kind="stable")[:k]]
