"""Adaptive power iteration by filtering (Nguyen, Ene, Nguyen 2026): w <- sum of x (x^T w) over rows of small |x^T w|.

A step looks for the smallest tau that next to nobody's |x^T w| exceeds, and adds up the rows up to tau. Where rows have
low coherence, each has a small part in every direction, tau is far below 1, and so is the noise.

Sound here: counts of |x^T w| between 1, 1/2, 1/4, ... move by sqrt(2); tau is the smallest for which the noisy number
above it is within what noise alone exceeds with probability ZETA. What a row with |x^T w| = s up to tau adds is s^2
along w and at most s sqrt(1 - s^2) across. With s = sin(phi) that is a chord of a circle of radius 1/2 through the
origin, or less, and the ends of two are at most sin(phi + phi') apart: 2 tau sqrt(1 - tau^2), or 1 from tau =
1/sqrt(2) on. Each of L steps costs mu/sqrt(L), `SHARE` of its square for counts.

Printed (arXiv:2602.11454): the text itself could not be had. By its abstract, first page and a summary, a filter of
rows in each step, found by the sparse vector technique, that adapts to the coherence; Gaussian noise in each sum;
(epsilon, delta)-DP if one row differs. Its constants, how many rows may be above tau, and whether a row stays out once
it was left out, are not verified. Noisy counts replace the technique here: all levels are one answer.

The number of steps is here 6, as in `noisy_power.py`. The paper has one component. For more, here one after the other,
each of projected rows, at mu/sqrt(K).
"""

from __future__ import annotations

import math

import numpy as np
from dp_pca import across
from mechanism import Analyst, Matrix
from scipy.special import ndtri

N_STEPS = 6
SHARE = 0.1
ZETA = 0.01
LEVELS = 0.5 ** np.arange(24)


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    found = np.zeros((0, analyst.shape[1]))
    for _ in range(k):
        w = across(analyst.rng.standard_normal(analyst.shape[1]), found)
        for _ in range(N_STEPS):
            w = across(step(analyst, w / np.linalg.norm(w), found, mu / math.sqrt(k * N_STEPS)), found)
        found = np.vstack([found, w / np.linalg.norm(w)])
    return found


def step(analyst: Analyst, w: Matrix, found: Matrix, mu: float) -> Matrix:
    tau = level(analyst, w, found, mu * math.sqrt(SHARE))

    def filtered(rows: Matrix) -> Matrix:
        rest = across(rows, found)
        scores = rest @ w
        return np.asarray(rest.T @ np.where(np.abs(scores) <= tau, scores, 0.0))

    return analyst.ask(filtered, sensitivity(tau), mu * math.sqrt(1 - SHARE))


def level(analyst: Analyst, w: Matrix, found: Matrix, mu: float) -> float:
    """The smallest of LEVELS that next to nobody's |x^T w| exceeds."""

    def counts(rows: Matrix) -> Matrix:
        scores = np.abs(across(rows, found) @ w)
        levels = np.sum(scores[:, None] <= LEVELS[1:], axis=1)
        return np.bincount(levels, minlength=len(LEVELS)).astype(float)

    between = analyst.ask(counts, math.sqrt(2), mu)  # the j-th: up to LEVELS[j], above the next
    above = np.cumsum(between)
    noise = math.sqrt(2) / mu * np.sqrt(np.arange(1, len(LEVELS) + 1)) * ndtri(1 - ZETA)
    return float(LEVELS[np.argmax(above > noise)]) if np.any(above > noise) else float(LEVELS[-1])


def sensitivity(tau: float) -> float:
    """How far two filtered gradients are apart at most."""
    return 2 * tau * math.sqrt(1 - tau**2) if tau < math.sqrt(0.5) else 1.0
