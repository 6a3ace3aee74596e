"""Spherical Kendall matrix (Kim and Jung 2025, g-DPPCA; the R package dppca): the mean of u u^T, u the direction from
one person to another. It needs no bound and no mean, and has the eigenvectors of a covariance of elliptical rows.

Sound here: of all pairs, 2/n hold a given person, and each such term, a projector, moves by at most sqrt(2) in
Frobenius norm: together 2 sqrt(2)/n. The same holds for disjoint pairs of a public random order, and for the mean of
several such orders: `N_ORDERS` of them are asked, which saves n^2 d operations and adds next to no error of sampling.

Printed, and in the authors' code (`dp_pc_dir`): noise of 4 sqrt(2 log(1.25/delta))/(n epsilon) off the diagonal divided
by sqrt(2), which is sound for epsilon <= 1, as 4/n exceeds the sensitivity; the classical constant is not proved above
1 (its examples take 2 and 3), although the excess covers it for usual deltas. Not private in that code: scree and
score plots with an epsilon use directions without any noise unless `g_dppca=TRUE` is given; `standardize=TRUE` divides
columns by their exact deviations; two equal rows stop it with an error, which tells that somebody has the row of
somebody else (here zero differences count as zero). Centring at exact means, the default, differences undo.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Analyst, Matrix, leading

N_ORDERS = 8


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    n = analyst.shape[0]
    orders = [analyst.rng.permutation(n)[: n // 2 * 2].reshape(2, -1) for _ in range(N_ORDERS)]
    return leading(analyst.ask_symmetric(lambda rows: kendall(rows, orders), math.sqrt(2) / (n // 2), mu), k)


def kendall(rows: Matrix, orders: list[np.ndarray[tuple[int, int], np.dtype[np.intp]]]) -> Matrix:
    """The mean of u u^T over the pairs of all orders."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for first, second in orders:
        differences = rows[first] - rows[second]
        lengths = np.linalg.norm(differences, axis=1, keepdims=True)
        directions = np.divide(differences, lengths, out=np.zeros_like(differences), where=lengths > 0)
        total += directions.T @ directions / len(first)
    return total / len(orders)
