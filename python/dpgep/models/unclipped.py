"""Correct released moments for the shrinkage caused by clipping.

A bound that is bought from the budget cuts some percent of the sum of squares, and more along leading directions, along
which long rows lie. The released covariance C = U diag(l) U^T of mapped rows becomes U diag(t) U^T with

    l_i = k r_i(t) t_i/r(t),   r_i(t) = E[min(1, b^2/|z|^2) z_i^2]/t_i for z ~ N(0, diag t),   r = sum r_i t_i/sum t_i:

k, the share that the bound keeps of all squares, is what a released histogram shows, whatever the rows are, or r, if
that is less: noise hides the longest rows. How it is spread over directions is that of Gaussian rows. Axes stay:
clipping keeps the symmetry of Gaussian rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg

from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, mean_factor
from dpgep.models.preprocessing import Preprocessing

# Entries of the Gaussian rows that an expectation is averaged over, the same in every run, and rounds of the equation.
_SEED, _ENTRIES, _ROUNDS = 0x636C6970, 1 << 19, 4


def unclipped(
    released: ReleasedMoments, preprocessing: Preprocessing | None
) -> tuple[ReleasedMoments, Preprocessing | None]:
    """Moments before the clipping, and preprocessing whose bound keeps everything; those of groups as they are."""
    if preprocessing is None or preprocessing.energy_kept == 1 or released.sums.shape[1] != 1:
        return released, preprocessing
    mean = mean_factor(released)
    clipped, axes = scipy.linalg.eigh(released.second - mean.T @ mean, check_finite=False)
    factors = _factors(np.maximum(clipped, 0.0), preprocessing.bound, preprocessing.energy_kept)
    second = (axes * (clipped * factors)) @ axes.T + mean.T @ mean
    noise = released.noise.scaled(1 / preprocessing.energy_kept, 1.0, 1.0)
    return replace(released, second=second, noise=noise), replace(preprocessing, energy_kept=1.0)


def _factors(clipped: Matrix, bound: float, kept: float) -> Matrix:
    """t_i/l_i."""
    d = len(clipped)
    squares = np.random.default_rng(_SEED).standard_normal((max(_ENTRIES // d, 1), d)) ** 2
    factors = np.full(d, 1 / kept)
    for _ in range(_ROUNDS):
        variances = clipped * factors
        lengths = squares @ variances
        cut = 1 - np.minimum(bound**2 / np.maximum(lengths, 1e-300), 1.0)
        ratios = 1 - cut @ squares / len(squares)
        mean = float(ratios @ variances) / max(float(variances.sum()), 1e-300)
        factors = mean / (min(kept, mean) * ratios)
    return np.asarray(factors)
