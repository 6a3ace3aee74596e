"""Private sliced inverse regression (Xia, Zhang, Cai 2025, arXiv:2401.08150), of public slices, about a known mean.

Sound here: three answers at mu/sqrt(3) each. The second moment moves by sqrt(2); the sums of slices, as somebody's row
is replaced, by at most 2 within a slice (x becomes -x) and sqrt(2) between two; their counts by sqrt(2). Directions are
those of the noisy matrix of means for the noisy covariance, which is lifted to a positive one.

Printed: of the text the abstract and a summary could be read. By them slices come from a noisy histogram, the leading
directions from noisy gradient steps, with "peeling" where few columns count, and it is minimax up to logarithms. Here
slices are public, and the problem is solved exactly after one noise, as steps add noise of their own.
dpgep differs in that one release has all three, at a price below the sum (docs/paper.md, section 1).
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from mechanism import Analyst, Matrix, second_moment


def components(
    rows: Matrix,
    slices: np.ndarray[tuple[int], np.dtype[np.intp]],
    k: int,
    mu: float,
    rng: np.random.Generator,
    bound: float,
) -> Matrix:
    """(K, d); ``slices`` (n,): numbers from 0."""
    clipped = Analyst.of(rows, bound, rng).rows
    return ask(Analyst(np.hstack([clipped, np.eye(slices.max() + 1)[slices]]), rng), rows.shape[1], k, mu)


def ask(analyst: Analyst, d: int, k: int, mu: float) -> Matrix:
    """Of rows that hold d columns and the indicators of their slices."""
    n, third = analyst.shape[0], mu / math.sqrt(3)
    covariance = analyst.ask_symmetric(lambda rows: second_moment(rows[:, :d]), math.sqrt(2), third) / n
    sums = analyst.ask(lambda rows: rows[:, d:].T @ rows[:, :d], 2.0, third)
    counts = np.maximum(analyst.ask(lambda rows: rows[:, d:].sum(axis=0), math.sqrt(2), third), 1.0)
    between = sums.T @ (sums / counts[:, None]) / n
    values, vectors = np.linalg.eigh(covariance)
    lifted = (vectors * np.maximum(values, math.sqrt(2 * d) * math.sqrt(2) / (third * n))) @ vectors.T
    return np.asarray(scipy.linalg.eigh(between, lifted)[1][:, : -k - 1 : -1].T)
