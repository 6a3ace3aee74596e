"""DP-PCA (Liu, Kong, Jain, Oh 2022): Oja's method in one pass, each batch's mean gradient adapted to its own spread.

With w from the batches before, the gradients of a batch are g = x (x^T w). A first half of it yields the top eigenvalue
of their covariance, by a vote of subsets; a second half a box of that size around most of them, by histograms of each
coordinate, and their mean clipped to the box. Then w <- w + eta g, normalized.

Sound here: half a batch is asked once for a vote, at mu, the other half twice, at mu/sqrt(2) each; who is in which half
is drawn without rows. A replaced row moves one vote from a bin to another: sqrt(2); one count from a bin to another in
each of d histograms: sqrt(2 d). It moves its gradient by at most 1, and a projection to a box of side 2 r moves points
no farther apart, nor by more than 2 r sqrt(d). Where this exceeds 1 the box is of no use, and all of mu buys the mean.

Printed (from memory of the paper, its constants are not verified; no code of the authors was found): stability-based
histograms, which are (epsilon, delta)-DP over infinitely many bins. Here Gaussian noise on the counts of finitely many,
which rows of the unit ball allow: eigenvalues from 1/2 down to `SMALLEST`, coordinates between -1 and 1. Bins are the
printed ones, of ratio 2^(1/4) and of width 2^(1/4) K sqrt(Lambda) log^a 25; r is printed as 3 K sqrt(Lambda)
log^a(B d T/zeta). The number of subsets is printed as C log(1/(delta zeta))/epsilon; here a quarter of them outvotes
the noise of all bins.

Left open: K and a, of the law of rows: here 1 and 1/2. Then r is some 13 deviations; a quarter of it (`BOX`) is used,
for a tenth of the error on nearly equal rows (`papers_figures.py`). The number of batches, printed as log^2 n up to a
constant: here log n. The rate, printed as h/((lambda_1 - lambda_2)(xi + t)) with eigenvalues that nobody knows: here
the length of the noisy gradient stands for their difference, h = 8, xi = 1, the best of a few on generated rows.

The paper has one component. For more, here one after the other, each of everybody's rows, projected, at mu/sqrt(K).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from mechanism import Analyst, Matrix, People, Query

SMALLEST = 2.0**-32
ZETA = 0.01
RATE = 8.0
K = 1.0
A = 0.5
BOX = 0.75
RATIO = 2.0**0.25
# of the bins of eigenvalues, which are at most 1/2: gradients are at most 1 apart (`noisy_power`)
EDGES = SMALLEST * RATIO ** np.arange(math.ceil(math.log(1 / SMALLEST, RATIO)))


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    found = np.zeros((0, analyst.shape[1]))
    for _ in range(k):
        found = np.vstack([found, direction(analyst, analyst.everybody, found, mu / math.sqrt(k))])
    return found


def direction(analyst: Analyst, people: People, found: Matrix, mu: float) -> Matrix:
    """The leading direction orthogonal to those found, of one pass over these people's rows."""
    d = analyst.shape[1]
    w = across(analyst.rng.standard_normal(d), found)
    n_batches = math.ceil(math.log(len(people)))
    for turn, batch in enumerate(np.array_split(analyst.rng.permutation(people), n_batches)):
        w = w / np.linalg.norm(w)
        first, second = np.array_split(batch, 2)
        spread = eigenvalue(analyst, first, partial(gradients, w=w, found=found), mu)
        radius = BOX * K * math.sqrt(spread) * math.log(len(batch) * d * n_batches / ZETA) ** A
        mean = across(clipped_mean(analyst, second, partial(gradients, w=w, found=found), spread, radius, mu), found)
        w = w + RATE / (1 + turn) * mean / np.linalg.norm(mean)
    return np.asarray(across(w, found) / np.linalg.norm(across(w, found)))


def across(vectors: Matrix, found: Matrix) -> Matrix:
    """Without the components along those found."""
    return np.asarray(vectors - vectors @ found.T @ found)


def gradients(rows: Matrix, w: Matrix, found: Matrix) -> Matrix:
    rest = across(rows, found)
    return np.asarray(rest * (rest @ w)[:, None])


def eigenvalue(analyst: Analyst, people: People, of: Query, mu: float) -> float:
    """The top eigenvalue of the covariance of gradients, up to RATIO: the bin with most votes of subsets."""
    pairs = len(people) // 2
    n_subsets = 4 * math.sqrt(2) / mu * math.sqrt(2 * math.log(len(EDGES) / ZETA))
    n_subsets = min(pairs, math.ceil(n_subsets))

    def votes(rows: Matrix) -> Matrix:
        g = of(rows)
        differences = (g[0 : 2 * pairs : 2] - g[1 : 2 * pairs : 2]) / math.sqrt(2)  # of covariance as g, and centered
        top = [np.linalg.norm(part, 2) ** 2 / len(part) for part in np.array_split(differences, n_subsets)]
        return np.bincount(np.searchsorted(EDGES, top), minlength=len(EDGES) + 1).astype(float)

    most = int(np.argmax(analyst.ask(votes, math.sqrt(2), mu, people)))
    return float(EDGES[max(most - 1, 0)])


def clipped_mean(analyst: Analyst, people: People, of: Query, spread: float, radius: float, mu: float) -> Matrix:
    """The mean of gradients, each projected to a box around most of them."""
    d = analyst.shape[1]
    moved = 2 * radius * math.sqrt(d)
    if moved >= 1:
        return analyst.ask(lambda rows: np.asarray(of(rows).mean(axis=0)), 1 / len(people), mu, people)
    width = RATIO * K * math.sqrt(spread) * math.log(25) ** A
    n_bins = math.ceil(2 / width)

    def counts(rows: Matrix) -> Matrix:
        bins = np.clip(((of(rows) + 1) / width).astype(int), 0, n_bins - 1)
        return np.bincount((bins + n_bins * np.arange(d)).ravel(), minlength=d * n_bins).reshape(d, -1).astype(float)

    most = np.argmax(analyst.ask(counts, math.sqrt(2 * d), mu / math.sqrt(2), people), axis=1)
    center = (most + 0.5) * width - 1

    def mean(rows: Matrix) -> Matrix:
        return np.asarray(np.clip(of(rows) - center, -radius, radius).mean(axis=0))

    return center + analyst.ask(mean, moved / len(people), mu / math.sqrt(2), people)
