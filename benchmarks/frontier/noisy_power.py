"""Noisy power method (Hardt and Price 2014): V <- orth(A V + noise), L steps from a random start.

Sound here: one replaced row moves A V, V orthonormal, by at most 1 (one column) or sqrt(2) in Frobenius norm, and each
of L steps costs mu/sqrt(L).

Printed (private version): noise of deviation sigma ||V||_max, sigma = sqrt(4 p L log(1/delta))/epsilon, for neighbours
whose A differ in one entry by at most 1. That is another adjacency, of entries of A and not of people: not comparable.
The number of steps is left open up to constants; here 6.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Analyst, Matrix

N_STEPS = 6


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    block = np.linalg.qr(analyst.rng.standard_normal((analyst.shape[1], k)))[0]
    sensitivity = 1.0 if k == 1 else math.sqrt(2)
    for _ in range(N_STEPS):
        answer = analyst.ask(lambda rows, v=block: rows.T @ (rows @ v), sensitivity, mu / math.sqrt(N_STEPS))
        block = np.linalg.qr(answer)[0]
    return np.ascontiguousarray(block.T)
