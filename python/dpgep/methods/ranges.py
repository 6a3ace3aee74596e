"""Where columns have their values, as noisy histograms show it: runs of bins that hold people, and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep.models.bins import FIRST_OCTAVE, Histograms, Interval, Magnitudes
from dpgep.models.model import Matrix
from dpgep.privacy.curator import NoisyCounts

# Noise alone passes for a run of people in a histogram with this probability; for one that is likely.
_FALSE_RUN, _FALSE_LIKELY = 1e-4, 0.02
_MOST = 0.8  # share of the people who must be seen in an interval for the others to be left outside
# Deviations that noise hardly reaches; shares of the people that nobody misses, and that may at most be unseen.
_SHOWN, _MISSED, _UNSEEN = 4.0, 0.05, 0.25
# A column is narrow that has one sign and spans at most this many octaves, or so few parts of an interval.
_NARROW_OCTAVES, _NARROW_PARTS = 3, 3
_OCTAVES_BEYOND = 6  # octaves beyond the last with people that are kept
# Who are left outside at either end of a run: this many deviations of the noise, between these shares of all. A walk
# often ends on a few bins of noise alone, and each octave doubles an interval.
_NOISE_TAIL, _TAIL, _MOST_TAIL = 4.0, 0.005, 0.1


class ColumnRanges:
    """Intervals that hold the values of d columns."""

    def __init__(self, d: int, *, missing: bool = False) -> None:
        self.low, self.high = np.zeros(d), np.zeros(d)
        # columns of zeros alone; whose interval is far from zero for its width, and worth a closer look; of which most
        # people were seen, or whose interval is public; that were looked at more closely
        self.zero, self.narrow, self.seen, self.looked = (np.zeros(d, dtype=np.bool_) for _ in range(4))
        self.least_spread = np.zeros(d)  # deviations that columns have at least, as they hold zeros and other values
        self.magnitudes: Magnitudes | None = None  # what was bought over octaves, about where columns have values
        self.places: Histograms | None = None  # what was last bought over equal parts of intervals
        self._people = np.zeros(d)  # how many were seen in each column
        self._missing = missing

    def give(self, column: int, low: float, high: float) -> None:
        """A public interval of a column."""
        self.low[column], self.high[column], self.seen[column] = low, high, True
        self.zero[column] = self.narrow[column] = False

    def look(self, columns: NDArray[np.intp], histogram: NoisyCounts, n: float | None) -> None:
        """Intervals of some columns from counts of zeros and signed octaves, of n people where that is public."""
        both = histogram.values.sum(axis=1)[:, 1:]  # octaves of both signs
        sizes = people_runs(both, math.sqrt(2) * histogram.deviation)
        signs = histogram.values.swapaxes(0, 1).reshape(-1, histogram.values.shape[2])[:, 1:]
        runs = people_runs(signs, histogram.deviation, within=2 * sizes)
        zeros, d = histogram.values[:, 0, 0], len(sizes)
        zeros = np.where(zeros > _SHOWN * histogram.deviation, zeros, 0.0)
        # octaves of both signs count, since in wide columns about zero each holds few people
        self._people[columns] = zeros + [run.people if run.is_likely else 0.0 for run in sizes]
        n = max(float(self._people.max()), 1.0) if n is None else n
        seen = [run for run in sizes if run.is_seen]
        if seen:  # the counts of the octaves that hold people, and of some more
            first = max(min(run.first for run in seen) - 1, 0)
            octaves = slice(first, max(run.last for run in seen) + 1 + _OCTAVES_BEYOND)
            counts = histogram.values[:, :, 1:][:, :, octaves]
            kept, zeros_of_all = np.zeros((len(self.low), *counts.shape[1:])), np.zeros(len(self.low))
            kept[columns], zeros_of_all[columns] = counts, histogram.values[:, 0, 0]
            self.magnitudes = Magnitudes(FIRST_OCTAVE + first, kept, histogram.deviation, float(n), zeros_of_all)
        for j, zero, run, *sides in zip(columns, zeros.tolist(), sizes, runs[:d], runs[d:], strict=True):
            up = down = None
            if run.is_likely:
                up, down = (each if each.is_seen or each.people > _UNSEEN * run.people else None for each in sides)
                up, down = (run, run) if up is down else (up, down)
            people, noise = float(self._people[j]), run.noise if run.is_likely else histogram.deviation
            unseen = 0.0 if self._missing else n - people
            self.zero[j] = zero > 0 and not up and not down
            self.seen[j] = run.is_seen and unseen <= _UNSEEN * n + noise
            least = min((side.lower for side in (up, down) if side is not None), default=0.0)
            self.least_spread[j] = math.sqrt(zero * (people - zero)) / n * least
            everybody = unseen <= max(_MISSED * n, _SHOWN * noise)
            one_sided = (up is None) != (down is None) and not zero and everybody
            self.narrow[j] = one_sided and len(up or down or ()) <= _NARROW_OCTAVES
            self.low[j] = -down.upper if down else up.lower if up and one_sided else 0.0
            self.high[j] = up.upper if up else -down.lower if down and one_sided else 0.0

    def keep_places(self, columns: NDArray[np.intp], interval: Interval, histogram: NoisyCounts) -> None:
        """The counts of some columns over equal parts of these intervals, in the place of earlier ones."""
        d, m = len(self.low), histogram.values.shape[1]
        if self.places is None or self.places.counts.shape[1] != m:
            self.places = Histograms(np.zeros((d, m + 1)), np.zeros((d, m)), np.full(d, np.inf))
        ends = np.linspace(-1.0, 1.0, m + 1)
        ends[0], ends[-1] = -np.inf, np.inf
        self.places.edges[columns] = interval.middle[:, None] + interval.half[:, None] * ends
        self.places.counts[columns], self.places.deviation[columns] = histogram.values, histogram.deviation

    def look_closer(self, columns: NDArray[np.intp], histogram: NoisyCounts) -> None:
        """Narrower intervals of some columns from counts in equal parts of the present ones."""
        interval = self.intervals(columns)
        self.keep_places(columns, interval, histogram)
        ends = np.linspace(-1.0, 1.0, histogram.values.shape[1] + 1)
        for row, (j, run) in enumerate(zip(columns, people_runs(histogram.values, histogram.deviation), strict=True)):
            # a column of two values, one of them rare, is as wide as they are apart
            few = max(_MISSED * self._people[j], _SHOWN * run.noise)
            most_seen = run.is_seen and self._people[j] - run.people < min(few, (1 - _MOST) * self._people[j])
            self.narrow[j] = most_seen and len(run) <= _NARROW_PARTS
            self.seen[j] &= most_seen or not self.looked[j]  # people beyond an end pass for people there
            self.looked[j] = True
            if most_seen:
                self.low[j] = interval.middle[row] + interval.half[row] * ends[run.first]
                self.high[j] = interval.middle[row] + interval.half[row] * ends[run.last + 1]

    def intervals(self, columns: NDArray[np.intp]) -> Interval:
        """Intervals of some columns: -1 to 1 where only zeros were seen, one of typical width where nothing was."""
        widths = self.high / 2 - self.low / 2
        known = widths > 0
        half = np.where(known, widths, 1.0)
        if known.any() and not (known | self.zero).all():
            half[~known & ~self.zero] = np.median(widths[known])
        return Interval((self.low / 2 + self.high / 2)[columns], half[columns])


@dataclass(slots=True)
class BinRun:
    """Bins from ``first`` to ``last`` that hold ``people``, none if last < first."""

    first: int
    last: int
    people: float
    deviation: float  # of the noise in a bin
    height: float  # people beyond a deviation for each bin, in deviations
    n_bins: int  # in how many bins the run was looked for
    is_seen: bool = field(init=False, default=False)  # whether noise alone hardly makes such a run
    is_likely: bool = field(init=False, default=False)  # or rarely does: an octave of noise may be far from all values

    def __post_init__(self) -> None:
        """A walk of unit steps that falls by 1 in each rises by h from any of its places with a probability of e^(-2h)
        (docs/mathematics.md, section 10).
        """
        if self.people > 0:
            self.is_seen, self.is_likely = (
                self.height > math.log(self.n_bins / chance) / 2 for chance in (_FALSE_RUN, _FALSE_LIKELY)
            )

    def __len__(self) -> int:
        return self.last + 1 - self.first

    @property
    def noise(self) -> float:
        """About the deviation of the noise in ``people``."""
        return self.deviation * math.sqrt(len(self))

    @property
    def lower(self) -> float:
        """The least magnitude, where bins are octaves."""
        return math.ldexp(1.0, FIRST_OCTAVE + self.first)

    @property
    def upper(self) -> float:
        """The end of the last octave."""
        return math.ldexp(1.0, min(FIRST_OCTAVE + self.last + 1, 1023))


def people_runs(
    histograms: Matrix,
    deviation: float,
    *,
    tail: float = _TAIL,
    noise_tail: float = _NOISE_TAIL,
    within: Sequence[BinRun] | None = None,
) -> list[BinRun]:
    """Of each histogram, (d, n_bins), the run of neighbouring bins with most people beyond a deviation of the noise for
    each; ``within``: among these bins alone.

    Wide columns are seen by the sum of their bins. At either end what noise may have made, up to ``noise_tail``
    deviations, is left outside, and in any case this share, ``tail``, of the people.
    """
    whole = (0, histograms.shape[1])
    places = [whole] * len(histograms) if within is None else [(run.first, len(run)) for run in within]
    starts, widths = np.array(places, dtype=np.int64).reshape(-1, 2).T.copy()
    found = core.people_runs(histograms, starts, widths, deviation, tail, noise_tail, _MOST_TAIL)
    return [
        BinRun(first, last, people, deviation, rise / deviation if deviation else math.inf, width)
        if people > 0
        else BinRun(0, -1, 0.0, deviation, 0.0, width)
        for (first, last, people, rise), (_, width) in zip(found, places, strict=True)
    ]
