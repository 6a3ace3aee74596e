"""Subsample and aggregate (Singhal and Steinke 2021; Tsfadia 2024): the mean of subspaces of disjoint blocks of rows.

Blocks are a public random partition of the people. Each has a leading subspace of its own, and one replaced row
changes one block: of the mean of T projectors of rank K one moves, by at most sqrt(2 min(K, d - K)) in Frobenius
norm. This mean is asked once, with all of the budget, and its leading eigenvectors are the answer.

The papers (from memory) project reference points by every block's projector, and average those that lie together:
near a cell that a stable histogram finds, or in the core of FriendlyCore. Both fail with a probability delta that no
mu stands for, so this step is left out: the average is of all blocks. Where blocks agree to within r it would have
noise of r, not of sqrt(2 K). They ask for blocks that find the subspace by themselves, of about d rows, of which
there must be more than 2 sqrt(d)/mu for the noise to leave anything; or, where rows lie in a subspace, of K rows. On
most rows of regimes.py the smaller the blocks, the better, as what they err by averages out. Here they have K + 1
rows, the fewest whose leading subspace is not their span; for K = 1, single rows (a release of rows scaled to norm 1)
are better still.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Analyst, Matrix, leading


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    n, d = analyst.shape
    blocks = np.array_split(analyst.rng.permutation(n), max(1, n // (k + 1)))
    sensitivity = math.sqrt(2 * min(k, d - k)) / len(blocks)
    return leading(analyst.ask_symmetric(lambda rows: mean_projector(rows, blocks, k), sensitivity, mu), k)


def mean_projector(rows: Matrix, blocks: list[np.ndarray[tuple[int], np.dtype[np.int64]]], k: int) -> Matrix:
    """Of the blocks' K leading right singular vectors; where there are fewer than K rows, of some beyond their span."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for block in blocks:
        found = np.linalg.svd(rows[block], full_matrices=len(block) < k)[2][:k]
        total += found.T @ found
    return np.asarray(total / len(blocks))
