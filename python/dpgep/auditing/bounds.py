"""Lower bounds on mu and epsilon from a statistic in independent runs on two data sets; statistics of low-order bits.

What the low-order bits of published numbers reveal are patterns invisible to a likelihood ratio of real numbers. Real
noise much wider than 2^g is uniform modulo 2^g, whatever it was added to. Floating-point noise is not: 1 + z is a
multiple of 2^-53 for every double z, 0 + z need not be. Numbers are therefore examined modulo a power of two well below
their size: which eighth of [0, 2^g) they fall into, or whether they are multiples of 2^g. Entries whose classes differ
between the data sets give a score, learned on some of the runs and evaluated on others.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy  # its special functions and laws are loaded when they are used
from numpy.typing import NDArray

from dpgep.privacy.accounting import epsilon_of

Values = NDArray[np.float64]

_EIGHTHS = 8
N_CLASSES = _EIGHTHS + 1
# Scales examined, in bits below the largest modulus of an entry. Noise is about a quarter of that or more: modulo 1/64
# it is uniform up to exp(-2 pi^2 16^2). The last is the unit in the last place of numbers 2^-18 of the largest.
_COARSEST, _FINEST = 6, 70
# A pattern is used if, without a leak, some pattern would look as strong with this probability.
_BY_CHANCE = 1e-3


@dataclass(frozen=True)
class Pattern:
    """What distinguishes the data sets: for each entry in use its scale g and the log-ratio of its classes."""

    entries: NDArray[np.intp]  # indices of those in use
    scales: NDArray[np.intp]  # g of each
    weights: Values  # (entries, 9), log-ratio of the frequency of each class on the second data set to the first

    def scores(self, values: Values) -> Values:
        """(runs,): sum of the weights of the entries' classes."""
        classes = classes_below(values[:, self.entries], self.scales)
        return np.asarray(np.take_along_axis(self.weights, classes.T, axis=1).sum(axis=0))

    def __str__(self) -> str:
        if not len(self.entries):
            return "no pattern found"
        finest, coarsest = int(self.scales.min()), int(self.scales.max())
        scale = f"2^{finest}" if finest == coarsest else f"2^{finest} to 2^{coarsest}"
        some = ", ".join(map(str, self.entries[:5])) + (", ..." if len(self.entries) > 5 else "")
        return f"numbers modulo {scale}, entries {some}"


def classes_below(values: Values, scales: Any) -> NDArray[np.intp]:
    """Class of each value modulo 2^scale: its eighth of [0, 2^scale), 0 to 7, or 8 for a multiple of 2^scale.

    ``scales``: one for all, or one per column.
    """
    units = values * np.ldexp(1.0, -np.asarray(scales))
    fractions = units - np.floor(units)
    classes: NDArray[np.intp] = (fractions * _EIGHTHS).astype(np.intp)
    np.minimum(classes, _EIGHTHS - 1, out=classes)  # below zero and tiny, a fraction rounds to 1
    classes[fractions == 0] = _EIGHTHS
    return classes


def learn_pattern(first: Values, second: Values, parts: Sequence[int] | None = None) -> Pattern:
    """The pattern that best distinguishes the runs (runs, m) on two data sets, of arrays of these lengths (``parts``).

    In each array, either every entry has its own pattern, or all entries are pooled, as if they were further runs of
    one, which detects leaks too rare in any single entry: whichever has more evidence, if it exceeds chance.
    """
    starts = np.cumsum([0, *(parts or [first.shape[1]])])
    found = []
    for start, end in itertools.pairwise(starts.tolist()):
        samples = first[:, start:end], second[:, start:end]
        each, evidence = _learn(*samples)
        alike, evidence_alike = _learn(*(values.reshape(-1, 1) for values in samples))
        if evidence_alike > evidence:
            used = np.arange(end - start)
            each = Pattern(used, np.tile(alike.scales, len(used)), np.tile(alike.weights, (len(used), 1)))
        found.append(replace(each, entries=each.entries + start))
    return Pattern(*(np.concatenate([getattr(part, each.name) for part in found]) for each in fields(Pattern)))


def _learn(first: Values, second: Values) -> tuple[Pattern, float]:
    """Each entry at its most informative scale, and twice the log-likelihood ratio in favour of the pattern."""
    m = first.shape[1]
    # exponents of the least powers of two above all moduli
    tops = np.frexp(np.abs(np.concatenate([first, second])).max(axis=0, initial=0.0))[1]
    best, scales, weights = np.zeros(m), np.zeros(m, dtype=np.intp), np.zeros((m, N_CLASSES))
    for below in range(_COARSEST, _FINEST + 1):
        at = np.clip(tops - below, -950, 950)  # 2^-scale is a double, and so are numbers in units of 2^scale
        counts = [_counts(values, at) for values in (first, second)]
        # the likelihood ratio statistic G of two laws against one
        half = np.maximum((counts[0] + counts[1]) / 2, 0.5)
        evidence = 2 * sum(scipy.special.xlogy(each, each / half) for each in counts).sum(axis=-1)
        better = evidence > best
        best[better], scales[better] = evidence[better], at[better]
        weights[better] = np.log((counts[1] + 0.5) / (counts[0] + 0.5))[better]
    used = np.flatnonzero(best > _chance(m))
    return Pattern(used, scales[used], weights[used]), float(best[used].sum())


def _chance(n_entries: int) -> float:
    """The value that the largest G exceeds by chance with probability of about ``_BY_CHANCE``."""
    return float(scipy.special.chdtri(N_CLASSES - 1, _BY_CHANCE / (n_entries * (_FINEST - _COARSEST + 1))))


def _counts(values: Values, scales: Any) -> Values:
    """(m, 9): how often each class occurs in each of the m columns."""
    m = values.shape[1]
    columns = classes_below(values, scales) + N_CLASSES * np.arange(m)
    return np.bincount(columns.ravel(), minlength=N_CLASSES * m).reshape(m, N_CLASSES).astype(np.float64)


def numbers_in(output: Any) -> list[Values]:
    """All numbers in an output, array by array, including those inside dataclasses, sequences and dictionaries.

    A 64-bit integer becomes two numbers, its high and its low bits: neither is rounded.
    """
    return [part.ravel() for part in _parts(output) if part.size]


def _parts(output: Any) -> Iterator[Values]:
    if isinstance(output, np.ndarray) and output.dtype.kind in "iuf":
        yield from _as_floats(output)
    elif isinstance(output, (int, float, np.integer, np.floating)) and not isinstance(output, bool):
        yield from _as_floats(np.asarray(output))
    elif isinstance(output, (tuple, list)):
        for part in output:
            yield from _parts(part)
    elif isinstance(output, dict):
        yield from _parts(list(output.values()))
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        yield from _parts([getattr(output, field.name) for field in dataclasses.fields(output)])


def _as_floats(array: NDArray[Any]) -> Iterator[Values]:
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        yield from (half.astype(np.float64) for half in np.divmod(array, 1 << 32))
    else:
        yield array.astype(np.float64)


# A sample of a normal law fails the checks of `gaussian=True` with at most this probability, each of three.
_NOT_GAUSSIAN = 1e-9
_CANDIDATES = 600
# Level of the bounds by which a threshold is chosen if stricter ones are all 0.
_LENIENT = 0.05


def gaussian_bounds(x: Values, y: Values, delta: float | None, level: float) -> tuple[float, float | None]:
    """From two normal samples of equal variance s^2: |difference of means|/s is at least this, except w. p. level."""
    n = len(x)
    freedom = 2 * n - 2
    pooled = math.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2)
    _check_gaussian(x, y, pooled)
    # except with probability level/2 the pooled deviation is at least c s, and except with level/2 the means differ by
    # at most mu s + z s sqrt(2/n)
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
