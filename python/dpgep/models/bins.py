"""Public bins: octaves of numbers, parts of intervals, steps of norms. What lies in which is counted with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgep.models.model import Matrix

# Octaves 2^e <= |x| < 2^(e + 1) for e from FIRST_OCTAVE on. The first and the last stand for all that is beyond:
# squares of what is found in them neither overflow nor vanish.
FIRST_OCTAVE, N_OCTAVES = -500, 1000

# Norms are counted in quarters of an octave: 2^(k/4) <= norm < 2^((k + 1)/4).
NORM_STEPS = 4

# Norms of products of rows with directions are clipped to a part of the bound between these, and counted between the
# quarters of octaves from one to the other.
LEAST_THRESHOLD, LARGEST_THRESHOLD = 2.0**-7, 1.0
PRODUCT_EDGES = 2.0 ** (np.arange(-7 * NORM_STEPS, 1) / NORM_STEPS)

# Noise alone passes for a run of people in a histogram with this probability; for one that is likely.
_FALSE_RUN, _FALSE_LIKELY = 1e-4, 0.02
# Who are left outside at either end of a run: this many deviations of the noise, between these shares of all. A walk
# often ends on a few bins of noise alone, and each octave doubles an interval.
_NOISE_TAIL, _TAIL, _MOST_TAIL = 4.0, 0.005, 0.1


def norm_quantile(shares: Matrix, share: float) -> float:
    """The first edge below which there is this share of the people, of whom ``shares`` lie between PRODUCT_EDGES."""
    reached = np.flatnonzero(np.cumsum(shares[:-1]) >= share)
    return float(PRODUCT_EDGES[reached[0]] if len(reached) else LARGEST_THRESHOLD)


def share_below(shares: Matrix, threshold: float) -> float:
    """The share of the people below the first edge that is at least ``threshold``, between 1/1024 and 1."""
    return float(np.clip(shares[: np.searchsorted(PRODUCT_EDGES, threshold) + 1].sum(), 2.0**-10, 1.0))


@dataclass(frozen=True, eq=False)
class Interval:
    """An interval for each of d columns: its middle, and half its width, which is positive."""

    middle: Matrix
    half: Matrix

    def relative(self, block: Matrix) -> Matrix:
        """Where entries lie in the intervals: from -1 to 1, which stand for all that is beyond."""
        with np.errstate(all="ignore"):
            return np.clip((block - self.middle) / self.half, -1.0, 1.0)


@dataclass(frozen=True)
class BinRun:
    """Bins from ``first`` to ``last`` that hold ``people``, none if last < first.

    deviation : of the noise in a bin.
    height : people beyond a deviation for each bin, in deviations.
    n_bins : in how many bins the run was looked for.
    """

    first: int
    last: int
    people: float
    deviation: float
    height: float
    n_bins: int

    def __len__(self) -> int:
        return self.last + 1 - self.first

    @property
    def is_seen(self) -> bool:
        """Whether noise alone hardly makes such a run: a walk of unit steps that falls by 1 in each rises by h from
        any of its places with a probability of e^(-2h) (docs/mathematics.md, section 10).
        """
        return self.people > 0 and self.height > math.log(self.n_bins / _FALSE_RUN) / 2

    @property
    def is_likely(self) -> bool:
        """Whether noise alone rarely makes it: an octave of noise may be far from all values."""
        return self.people > 0 and self.height > math.log(self.n_bins / _FALSE_LIKELY) / 2

    @property
    def noise(self) -> float:
        """About the deviation of the noise in ``people``."""
        return self.deviation * math.sqrt(len(self))

    def after(self, n_bins: int) -> BinRun:
        """The same where there are more bins before."""
        first, last = self.first + n_bins, self.last + n_bins
        return BinRun(first, last, self.people, self.deviation, self.height, self.n_bins)

    @property
    def lower(self) -> float:
        """The least magnitude, where bins are octaves."""
        return math.ldexp(1.0, FIRST_OCTAVE + self.first)

    @property
    def upper(self) -> float:
        """The end of the last octave."""
        return math.ldexp(1.0, min(FIRST_OCTAVE + self.last + 1, 1023))


def people_run(counts: Matrix, deviation: float, *, tail: float = _TAIL, noise_tail: float = _NOISE_TAIL) -> BinRun:
    """The run of `people_runs` in one histogram."""
    return people_runs(counts[None], deviation, tail=tail, noise_tail=noise_tail)[0]


def people_runs(
    histograms: Matrix, deviation: float, *, tail: float = _TAIL, noise_tail: float = _NOISE_TAIL
) -> list[BinRun]:
    """Of each histogram, (d, n_bins), the run of neighbouring bins with most people beyond a deviation of the noise for
    each.

    Wide columns have few people in any bin: they are seen by their sum, and empty bins between them cost little. At
    either end what noise may have made, up to ``noise_tail`` deviations, is left outside, and in any case this share,
    ``tail``, of the people.
    """
    heights = np.zeros((len(histograms), histograms.shape[1] + 1))
    (histograms - deviation).cumsum(axis=1, out=heights[:, 1:])
    rises = heights[:, 1:] - np.minimum.accumulate(heights[:, :-1], axis=1)
    lasts = rises.argmax(axis=1).tolist()
    found = []
    for counts, walk, last in zip(histograms, heights, lasts, strict=True):
        first = int(walk[: last + 1].argmin())
        run = counts[first : last + 1]
        people, rise = float(run.sum()), float(walk[last + 1] - walk[first])
        if people <= 0:
            found.append(BinRun(0, -1, 0.0, deviation, 0.0, len(counts)))
            continue
        noise = noise_tail * deviation * np.sqrt(np.arange(1, len(run) + 1))
        most = np.minimum(np.maximum(noise, tail * people), _MOST_TAIL * people)
        inside = first + _outside(run, most), last - _outside(run[::-1], most)
        found.append(BinRun(*inside, people, deviation, rise / deviation if deviation else math.inf, len(counts)))
    return found


def _outside(run: Matrix, most: Matrix) -> int:
    """The largest number k of first bins that hold at most ``most[k - 1]`` people together."""
    few = run.cumsum() <= most
    return len(few) - int(few[::-1].argmax()) if few.any() else 0
