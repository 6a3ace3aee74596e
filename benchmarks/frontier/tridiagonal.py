"""Blockwise tridiagonal covariance (Cai and Li 2026, arXiv:2603.19703): noise on the blocks next to the diagonal alone.

For bandable covariances, whose entries fall off with the distance of *ordered* columns. Consecutive columns make
blocks; of the second moment, blocks on and next to the diagonal get noise, the others are zero. Other methods here do
not have that prior knowledge, so it is compared on such rows alone (`bandable` in regimes.py and papers_figures.py).

Sound here: each row's blocks are clipped to the length c of `clip`. Then T(x x^T), the blocks that are kept, has
|T(x x^T)|_F^2 <= sum_I |x_I|^4 + 2 sum_I |x_I|^2 |x_{I+1}|^2 <= 3 c^2 |x|^2, so a replaced row moves the sum by at most
2 sqrt(3) c; and by at most sqrt(2), as T shortens what it is given in Frobenius norm.

Printed: of the text only the abstract and the list of sections could be read here. By them the estimator is minimax for
block sizes that follow from the decay, n, d and epsilon, and an adaptive one has a hierarchy of sizes. Constants,
truncation and the size of blocks are ours.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Analyst, Matrix, leading

SIZE = 10


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    return leading(blocks(analyst, mu), k)


def blocks(analyst: Analyst, mu: float) -> Matrix:
    """The noisy blocks, and zeros elsewhere."""
    d = analyst.shape[1]
    block_of = np.arange(d) // SIZE
    clip = math.sqrt(2 * min(SIZE / d, 0.5))
    kept = np.abs(np.subtract.outer(block_of, block_of)) <= 1
    sensitivity = min(math.sqrt(2), 2 * math.sqrt(3) * clip)
    noisy = analyst.ask_symmetric(lambda rows: kept_moment(rows, block_of, clip) * kept, sensitivity, mu)
    return noisy * kept


def kept_moment(rows: Matrix, block_of: np.ndarray[tuple[int], np.dtype[np.intp]], clip: float) -> Matrix:
    """The second moment of rows whose blocks are no longer than ``clip``."""
    starts = np.flatnonzero(np.diff(block_of, prepend=-1))
    lengths = np.sqrt(np.add.reduceat(rows**2, starts, axis=1))
    clipped = rows / np.maximum(1.0, lengths / clip)[:, block_of]
    return clipped.T @ clipped
