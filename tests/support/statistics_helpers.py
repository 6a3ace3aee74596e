"""Exact tests of noise distributions, with a stated probability of a false alarm.

Every statistical test of the kernels draws from seeded streams, so its outcome is reproducible. Had another
seed been chosen, it would have failed on a correct kernel with probability at most FALSE_ALARM: each helper
divides that probability by the number of p-values it looks at (union bound), and each p-value is exact or an
upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FALSE_ALARM = 1e-6

Samples = NDArray[np.float64]


def seeded_key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def rejects_covariance(samples: Samples, covariance: Samples) -> bool:
    """Whether ``samples`` (n, m) cannot be n draws of N(0, ``covariance``); a singular one is allowed.

    Whitened samples have independent N(0, 1) entries, so the sum of squares along any fixed unit direction is
    exactly chi-square with n degrees of freedom, and the sum over everything with n times the rank. The
    directions are the axes e_i and (e_i ± e_j) / sqrt(2), which together see every entry of the covariance:
    rank**2 + 1 p-values. Along the null space of ``covariance`` the samples must be zero up to rounding.
    """
    white, null = _whiten(samples, covariance)
    if null.size and np.max(np.abs(null)) > 1e-12 * np.max(np.abs(samples)):
        return True
    n, rank = white.shape
    squares = [(float(np.sum(white**2)), n * rank)]
    squares += [(float(np.sum(white[:, i] ** 2)), n) for i in range(rank)]
    for i in range(rank):
        for j in range(i):
            for sign in (1.0, -1.0):
                squares.append((float(np.sum((white[:, i] + sign * white[:, j]) ** 2)) / 2.0, n))
    return _rejects(two_sided_chi_square(total, freedom) for total, freedom in squares)


def rejects_normality(samples: Samples) -> bool:
    """Whether ``samples`` cannot be independent N(0, 1): one exact Kolmogorov–Smirnov test."""
    return bool(stats.kstest(samples.ravel(), "norm", method="exact").pvalue < FALSE_ALARM)


def rejects_equal_distributions(first: Samples, second: Samples) -> bool:
    """Whether the columns of ``first`` and ``second``, both (n, m), cannot be equally distributed.

    For two samples of one continuous law and of one size n >= 458, the largest distance D of their empirical
    distribution functions satisfies P(D sqrt(n / 2) >= t) <= 2 exp(-2 t**2) (Wei and Dudley 2012). Each of
    the m columns gets FALSE_ALARM / m.
    """
    n, m = first.shape
    assert second.shape == (n, m)
    assert n >= 458
    largest_distance = math.sqrt(math.log(2.0 * m / FALSE_ALARM) / n)
    return any(stats.ks_2samp(first[:, i], second[:, i], method="asymp").statistic > largest_distance for i in range(m))


def two_sided_chi_square(total: float, freedom: int) -> float:
    law = stats.chi2(freedom)
    return 2.0 * min(float(law.cdf(total)), float(law.sf(total)))


def _rejects(p_values: Iterable[float]) -> bool:
    listed = list(p_values)
    return min(listed) < FALSE_ALARM / len(listed)


def _whiten(samples: Samples, covariance: Samples) -> tuple[Samples, Samples]:
    variances, axes = np.linalg.eigh(covariance)
    present = variances > 1e-10 * variances[-1]
    coordinates = samples @ axes
    return coordinates[:, present] / np.sqrt(variances[present]), coordinates[:, ~present]
