"""CoinPress (Biswas, Dong, Kamath, Ullman 2020): a covariance in rounds, each of rows made rounder by the one before.

Rows are whitened by the last estimate, W = X A, clipped to gamma, a length that standard normal vectors exceed with a
probability of at most 0.1, and released as W^T W/n plus noise; then A becomes A (Z + eta I)^(-1/2), Z without
negative eigenvalues. It starts from a public bound u on the largest eigenvalue, which the paper leaves to the user:
here u = bound^2/d, that of round rows. Where an eigenvalue is larger, rows are clipped, and for round laws not turned.

Printed: noise of variance gamma^4/(rho n^2) in each entry of the upper triangle, sound for rho-zCDP under replace-one,
which is mu^2 = 2 rho. Here entries off the diagonal have half of that variance, which costs the same. gamma and eta are
as in the authors' code (algos.py), where A is multiplied from the other side, which whitens only if the roots commute.
The number of rounds, and the share of the last, 3/4, are left open.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Analyst, Matrix, leading

N_ROUNDS = 3


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    n, d = analyst.shape
    gamma = math.sqrt(d + 2 * math.sqrt(d * math.log(10)) + 2 * math.log(10))
    eta = math.sqrt(d / n) + d / n / 2
    whitening = np.eye(d) * math.sqrt(d)  # of rows in the unit ball, whose u is 1/d
    for turn in range(N_ROUNDS):
        share = 3 / 4 if turn == N_ROUNDS - 1 else 1 / 4 / (N_ROUNDS - 1)

        def moment(rows: Matrix, whitening: Matrix = whitening) -> Matrix:
            whitened = rows @ whitening
            norms = np.linalg.norm(whitened, axis=1, keepdims=True)
            whitened = whitened * np.minimum(1.0, gamma / np.maximum(norms, 1e-300))
            return np.asarray(whitened.T @ whitened / n)

        noisy = analyst.ask_symmetric(moment, math.sqrt(2) * gamma**2 / n, mu * math.sqrt(share))
        values, vectors = np.linalg.eigh(noisy)
        values = np.maximum(values, 0.0)
        if turn < N_ROUNDS - 1:
            whitening = whitening @ (vectors / np.sqrt(values + eta)) @ vectors.T
    inverse = np.linalg.inv(whitening)
    return leading(inverse.T @ (vectors * values) @ vectors.T @ inverse, k)
