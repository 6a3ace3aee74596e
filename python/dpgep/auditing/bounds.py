"""Lower bounds on mu and epsilon from a statistic in independent runs on two data sets."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
import scipy  # its special functions and laws are loaded when they are used
from numpy.typing import NDArray

from dpgep.privacy.accounting import epsilon_of

Values = NDArray[np.float64]

# A sample of a normal law fails the checks of `gaussian=True` with at most this probability, each of three.
_NOT_GAUSSIAN = 1e-9
_CANDIDATES = 600
# Level of the bounds by which a threshold is chosen if stricter ones are all 0.
_LENIENT = 0.05


def gaussian_bounds(x: Values, y: Values, delta: float | None, level: float) -> tuple[float, float | None]:
    """From two normal samples of equal variance s^2: |difference of means|/s is at least this, except w. p. level.

    Except with probability level/2 the pooled deviation is at least c s, and except with level/2 the means differ by at
    most mu s + z s sqrt(2/n).
    """
    n = len(x)
    freedom = 2 * n - 2
    pooled = math.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2)
    _check_gaussian(x, y, pooled)
    c = math.sqrt(2 * float(scipy.special.gammaincinv(freedom / 2, level / 2)) / freedom)
    z = -float(scipy.special.ndtri(level / 4))
    mu = max(0.0, abs(float(y.mean() - x.mean())) / pooled * c - z * math.sqrt(2 / n))
    return mu, None if delta is None else epsilon_of(mu, delta)


def _check_gaussian(x: Values, y: Values, pooled: float) -> None:
    if pooled == 0:
        raise ValueError("gaussian=True, but the statistic is constant: without noise there is nothing to estimate")
    ratio = float(x.var(ddof=1) / max(y.var(ddof=1), sys.float_info.min))
    law = scipy.stats.f(len(x) - 1, len(y) - 1)
    if 2 * min(law.cdf(ratio), law.sf(ratio)) < _NOT_GAUSSIAN:
        raise ValueError(f"gaussian=True, but the variances differ by a factor {ratio:.3g}: use gaussian=False")
    for sample in (x, y):
        standard = (sample - sample.mean()) / sample.std()
        if scipy.stats.kstest(standard, "norm", method="asymp").pvalue < _NOT_GAUSSIAN:
            raise ValueError("gaussian=True, but the statistic is clearly not normal: use gaussian=False")


def threshold_bounds(
    x: Values, y: Values, n_choose: int, delta: float | None, level: float
) -> tuple[float, float | None]:
    """Clopper-Pearson bounds at thresholds for mu and epsilon, chosen on the first runs, evaluated on the others."""
    thresholds = _candidate_thresholds(x[:n_choose], y[:n_choose])
    each = level / (2 if delta is None else 4)
    ndtri = scipy.special.ndtri
    mu = _held_out(x, y, n_choose, thresholds, each, lambda a, b: np.maximum(0.0, -ndtri(a) - ndtri(b)))
    if delta is None:
        return mu, None
    return mu, _held_out(x, y, n_choose, thresholds, each, lambda a, b: _epsilon_of_rates(a, b, delta))


def _held_out(
    x: Values, y: Values, n_choose: int, thresholds: Values, level: float, bound: Callable[[Values, Values], Values]
) -> float:
    # The best of many thresholds is chosen with simultaneous bounds: otherwise an extreme one wins by few lucky counts.
    # If these prove nothing for any threshold, one must still be chosen.
    for strict in (level / (2 * len(thresholds)), _LENIENT):
        trained = [
            bound(*_rate_bounds(x[:n_choose], y[:n_choose], thresholds, upwards, strict)) for upwards in (True, False)
        ]
        if max(float(side.max()) for side in trained) > 0:
            break
    upwards = bool(trained[0].max() >= trained[1].max())
    best = thresholds[[int(np.argmax(trained[0 if upwards else 1]))]]
    return float(bound(*_rate_bounds(x[n_choose:], y[n_choose:], best, upwards, level))[0])


def _candidate_thresholds(x: Values, y: Values) -> Values:
    """Midpoints between neighbouring values: all of them in both tails, evenly spaced between."""
    pooled = np.unique(np.concatenate([x, y]))
    last = len(pooled) - 1
    if last == 0:
        return pooled
    tail = np.arange(min(_CANDIDATES // 4, last))
    left = np.unique(np.concatenate([tail, np.linspace(0, last - 1, _CANDIDATES).astype(int), last - 1 - tail]))
    return np.asarray(pooled[left] / 2 + pooled[left + 1] / 2)


def _rate_bounds(x: Values, y: Values, thresholds: Values, upwards: bool, level: float) -> tuple[Values, Values]:
    """Upper bounds, each at ``level``, on the error rates of the tests "data_prime if value > threshold" (or <=)."""
    above_x = len(x) - np.searchsorted(np.sort(x), thresholds, side="right")
    above_y = len(y) - np.searchsorted(np.sort(y), thresholds, side="right")
    if upwards:
        return clopper_pearson(above_x, len(x), level), clopper_pearson(len(y) - above_y, len(y), level)
    return clopper_pearson(len(x) - above_x, len(x), level), clopper_pearson(above_y, len(y), level)


def clopper_pearson(errors: NDArray[np.intp], runs: int, level: float) -> Values:
    """The rate at which this few errors in that many runs have probability ``level``."""
    failures = np.maximum(runs - errors, 1)
    return np.asarray(np.where(errors >= runs, 1.0, scipy.special.betaincinv(errors + 1.0, failures, 1.0 - level)))


def _epsilon_of_rates(false_positive: Values, false_negative: Values, delta: float) -> Values:
    smallest = sys.float_info.min
    caught = np.log(np.maximum(1 - false_negative - delta, smallest)) - np.log(false_positive)
    cleared = np.log(np.maximum(1 - false_positive - delta, smallest)) - np.log(false_negative)
    return np.asarray(np.maximum(0.0, np.maximum(caught, cleared)))
