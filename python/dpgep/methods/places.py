"""Where the values of columns lie, as far as noisy histograms show it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpgep.models.bins import FIRST_OCTAVE, Interval
from dpgep.models.model import Matrix
from dpgep.privacy.stages import NoisyCounts

# With these probabilities noise alone passes for people in a bin anywhere, or in one near those that hold most.
_FALSE_BIN, _FALSE_NEAR = 1e-6, 1e-2
_NEAR = 12
# Neighbours of bins that hold people do so, too, if they exceed this many deviations of the noise.
_LIKELY = 2.0
# Share of the people at either end of what is seen who are left outside.
_TAIL = 0.005
# Share of the people who must be seen in an interval for the others to be left outside.
_MOST = 0.8
# Share of the people, and deviations of the noise, that nobody misses.
_MISSED, _MISSED_DEVIATIONS = 0.05, 4.0
# A column is narrow that has one sign and spans at most this many octaves, or so few parts of an interval.
_NARROW_OCTAVES, _NARROW_PARTS = 3, 3
# Widths of the runs of bins in which people are looked for, one after the other.
_RUNS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Limits:
    """Counts that noise alone hardly reaches: in any bin, and in any of those near the ones that hold most people."""

    anywhere: float
    near: float
    deviation: float

    @classmethod
    def of(cls, histogram: NoisyCounts) -> Limits:
        """Of a histogram of one column or, in rows, of several."""
        counts, deviation = histogram.values, histogram.deviation
        n_near = (2 * _NEAR + 1) * (len(counts) if counts.ndim > 1 else 1)
        anywhere = -deviation * NormalDist().inv_cdf(_FALSE_BIN / counts.size)
        return cls(anywhere, -deviation * NormalDist().inv_cdf(_FALSE_NEAR / n_near), deviation)


class Places:
    """Intervals that hold the values of d columns.

    Attributes
    ----------
    low, high : (d,), their ends.
    zero : (d,), columns of which nothing but zeros were seen.
    narrow : (d,), columns whose interval is far from zero for its width, and worth a closer look.
    """

    def __init__(self, d: int, *, missing: bool = False) -> None:
        self.low, self.high = np.zeros(d), np.zeros(d)
        self.zero, self.narrow = np.zeros(d, dtype=np.bool_), np.zeros(d, dtype=np.bool_)
        self._people = np.zeros(d)  # how many were seen in each column
        self._missing = missing

    def give(self, column: int, low: float, high: float) -> None:
        """A public interval of a column."""
        self.low[column], self.high[column] = low, high
        self.zero[column] = self.narrow[column] = False

    def look(self, columns: NDArray[np.intp], histogram: NoisyCounts, n: float | None) -> None:
        """Intervals of some columns from counts of zeros, positive and negative octaves.

        n : how many people have a row, where that is public.
        """
        limits = Limits.of(histogram)
        found = [self._sides(counts, limits) for counts in histogram.values]
        self._people[columns] = [zeros + up.people + down.people for zeros, up, down in found]
        n = max(float(self._people.max()), 1.0) if n is None else n
        missed = max(_MISSED * n, _MISSED_DEVIATIONS * histogram.deviation)
        for j, (zeros, up, down) in zip(columns, found, strict=True):
            self.zero[j] = zeros > 0 and not up and not down
            everybody = self._missing or n - self._people[j] <= missed
            one_sided = bool(up) != bool(down) and not zeros and everybody
            self.narrow[j] = one_sided and (up or down).octaves <= _NARROW_OCTAVES
            self.low[j] = -down.upper if down else up.lower if one_sided else 0.0
            self.high[j] = up.upper if up else -down.lower if one_sided else 0.0

    def look_closer(self, columns: NDArray[np.intp], histogram: NoisyCounts) -> None:
        """Narrower intervals of some columns from counts in equal parts of the present ones."""
        limits, interval = Limits.of(histogram), self.intervals(columns)
        ends = np.linspace(-1.0, 1.0, histogram.values.shape[1] + 1)
        for row, j in enumerate(columns):
            run = people_run(histogram.values[row], limits)
            most_seen = run.people > _MOST * self._people[j]
            self.narrow[j] = most_seen and len(run) <= _NARROW_PARTS
            if most_seen:
                self.low[j] = interval.middle[row] + interval.half[row] * ends[run.first]
                self.high[j] = interval.middle[row] + interval.half[row] * ends[run.last + 1]

    def intervals(self, columns: NDArray[np.intp]) -> Interval:
        """Intervals of some columns: -1 to 1 where only zeros were seen, one of typical width where nothing was."""
        widths = self.high / 2 - self.low / 2
        known = widths > 0
        typical = float(np.median(widths[known])) if known.any() else 1.0
        half = np.where(known, widths, np.where(self.zero, 1.0, typical))
        return Interval((self.low / 2 + self.high / 2)[columns], half[columns])

    def _sides(self, counts: Matrix, limits: Limits) -> tuple[float, _Octaves, _Octaves]:
        """People with zeros, and octaves of the positive and of the negative values."""
        positive, negative = counts
        zeros = float(positive[0]) if positive[0] > limits.near else 0.0
        up, down = (_Octaves(people_run(side[1:], limits)) for side in (positive, negative))
        return zeros, up, down


@dataclass(frozen=True)
class Run:
    """Bins from ``first`` to ``last`` that hold ``people``; none if last < first."""

    first: int
    last: int
    people: float

    def __len__(self) -> int:
        return self.last + 1 - self.first


class _Octaves:
    """Magnitudes from ``lower`` to ``upper``; false where nobody was seen."""

    def __init__(self, run: Run) -> None:
        self.octaves, self.people = len(run), run.people
        self.lower = math.ldexp(1.0, FIRST_OCTAVE + run.first) if run else 0.0
        self.upper = math.ldexp(1.0, min(FIRST_OCTAVE + run.last + 1, 1023)) if run else 0.0

    def __bool__(self) -> bool:
        return self.octaves > 0


def people_run(counts: Matrix, limits: Limits) -> Run:
    """The bins that hold people: where some do, or else runs of 2, 4, ... bins, and their likely neighbours."""
    for width in _RUNS:
        sums, spread = np.add.reduceat(counts, np.arange(0, len(counts), width)), math.sqrt(width)
        seen = seen_bins(sums, limits, width)
        if not len(seen):
            continue
        likely = sums > _LIKELY * limits.deviation * spread
        first, last = int(seen[0]), int(seen[-1])
        while first > 0 and likely[first - 1]:
            first -= 1
        while last + 1 < len(sums) and likely[last + 1]:
            last += 1
        within = np.cumsum(sums[first : last + 1])
        people = float(within[-1])
        low, high = int(np.argmax(within > _TAIL * people)), int(np.argmax(within >= (1 - _TAIL) * people))
        return Run((first + low) * width, min((first + high + 1) * width, len(counts)) - 1, people)
    return Run(0, -1, 0.0)


def seen_bins(sums: Matrix, limits: Limits, width: int) -> NDArray[np.intp]:
    """Which of the sums over ``width`` bins noise alone hardly reaches; none if it may have reached all."""
    spread = math.sqrt(width)
    seen = sums > limits.anywhere * spread
    if seen.any():
        near = np.abs(np.arange(len(sums)) - int(np.argmax(sums))) <= max(1, _NEAR // width)
        seen |= near & (sums > limits.near * spread)
    return np.flatnonzero(seen)
