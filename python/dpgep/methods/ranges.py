"""Where columns have their values, as noisy histograms show it: runs of bins that hold people, and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep.models.bins import FIRST_OCTAVE, Histograms, Interval, Magnitudes
from dpgep.models.model import Matrix
from dpgep.privacy.curator import NoisyCounts

# Noise alone passes for a run of people in a histogram with this probability; for one that is likely.
_CHANCES = np.array([[1e-4], [0.02]])
_NO_RUN = np.array([[0.0], [-1.0]])  # first bin, last bin
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
        of_signs, zeros_seen, d = histogram.values[:, :, 1:], histogram.values[:, 0, 0], len(histogram.values)
        sizes = people_runs(of_signs[:, 0] + of_signs[:, 1], math.sqrt(2) * histogram.deviation)
        within = sizes.first.repeat(2), sizes.lengths.repeat(2)
        sides = people_runs(histogram.values.reshape(2 * d, -1)[:, 1:], histogram.deviation, within=within)
        zeros = np.where(zeros_seen > _SHOWN * histogram.deviation, zeros_seen, 0.0)
        # octaves of both signs count, since in wide columns about zero each holds few people
        self._people[columns] = zeros + np.where(sizes.is_likely, sizes.people, 0.0)
        n = max(float(self._people.max()), 1.0) if n is None else n
        if sizes.is_seen.any():  # the counts of the octaves that hold people, and of some more
            begin = max(int(sizes.first[sizes.is_seen].min()) - 1, 0)
            octaves = slice(begin, int(sizes.last[sizes.is_seen].max()) + 1 + _OCTAVES_BEYOND)
            counts = of_signs[:, :, octaves]
            kept, zeros_of_all = np.zeros((len(self.low), *counts.shape[1:])), np.zeros(len(self.low))
            kept[columns], zeros_of_all[columns] = counts, zeros_seen
            self.magnitudes = Magnitudes(FIRST_OCTAVE + begin, kept, histogram.deviation, float(n), zeros_of_all)
        # positive and negative values, in rows; where neither shows people, both may have the octaves of the sum
        shown = (sides.is_seen | (sides.people > _UNSEEN * sizes.people.repeat(2))).reshape(d, 2).T
        either = shown[0] | shown[1]
        there = sizes.is_likely & (shown | ~either)
        up, down = there
        first = np.where(either, sides.first.reshape(d, 2).T, sizes.first)
        last = np.where(either, sides.last.reshape(d, 2).T, sizes.last)
        lower = np.ldexp(1.0, FIRST_OCTAVE + first)  # the least magnitudes, and the ends of the last octaves
        upper = np.ldexp(1.0, FIRST_OCTAVE + last + 1)
        people, noise = self._people[columns], np.where(sizes.is_likely, sizes.noise, histogram.deviation)
        unseen = np.zeros(d) if self._missing else n - people
        everybody = unseen <= np.maximum(_MISSED * n, _SHOWN * noise)
        one_sided = (up != down) & (zeros == 0) & everybody
        least = np.where(up | down, np.where(there, lower, np.inf).min(axis=0), 0.0)
        self.zero[columns] = (zeros > 0) & ~up & ~down
        self.seen[columns] = sizes.is_seen & (unseen <= _UNSEEN * n + noise)
        self.least_spread[columns] = np.sqrt(zeros * (people - zeros)) / n * least
        self.narrow[columns] = one_sided & (np.where(up, *(last + 1 - first)) <= _NARROW_OCTAVES)
        self.low[columns] = np.where(down, -upper[1], np.where(up & one_sided, lower[0], 0.0))
        self.high[columns] = np.where(up, upper[0], np.where(down & one_sided, -lower[1], 0.0))

    def keep_places(self, columns: NDArray[np.intp], interval: Interval, histogram: NoisyCounts) -> None:
        """The counts of some columns over equal parts of these intervals, in the place of earlier ones."""
        d, m = len(self.low), histogram.values.shape[1]
        if self.places is None or self.places.counts.shape[1] != m:
            self.places = Histograms(np.zeros((d, m + 1)), np.zeros((d, m)), np.full(d, np.inf))
        ends = _ends_of_parts(m)
        ends[0], ends[-1] = -np.inf, np.inf
        self.places.edges[columns] = interval.middle[:, None] + interval.half[:, None] * ends
        self.places.counts[columns], self.places.deviation[columns] = histogram.values, histogram.deviation

    def look_closer(self, columns: NDArray[np.intp], interval: Interval, histogram: NoisyCounts) -> None:
        """Narrower intervals of some columns from counts in equal parts of the present ones, ``interval``."""
        self.keep_places(columns, interval, histogram)
        ends = _ends_of_parts(histogram.values.shape[1])
        runs, people = people_runs(histogram.values, histogram.deviation), self._people[columns]
        # a column of two values, one of them rare, is as wide as they are apart
        few = np.maximum(_MISSED * people, _SHOWN * runs.noise)
        most_seen = runs.is_seen & (people - runs.people < np.minimum(few, (1 - _MOST) * people))
        self.narrow[columns] = most_seen & (runs.lengths <= _NARROW_PARTS)
        self.seen[columns] &= most_seen | ~self.looked[columns]  # people beyond an end pass for people there
        self.looked[columns] = True
        low, high = (interval.middle + interval.half * ends[bins] for bins in (runs.first, runs.last + 1))
        self.low[columns[most_seen]], self.high[columns[most_seen]] = low[most_seen], high[most_seen]

    def intervals(self, columns: NDArray[np.intp]) -> Interval:
        """Intervals of some columns: -1 to 1 where only zeros were seen, one of typical width where nothing was."""
        widths = self.high / 2 - self.low / 2
        known = widths > 0
        half = np.where(known, widths, 1.0)
        unknown = ~(known | self.zero)
        if unknown.any() and known.any():
            half[unknown] = np.median(widths[known])
        return Interval((self.low / 2 + self.high / 2)[columns], half[columns])


@dataclass(eq=False)
class BinRuns:
    """Of each histogram, bins from ``first`` to ``last`` that hold ``people``, none if last < first."""

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    people: Matrix
    deviation: float  # of the noise in a bin
    is_seen: NDArray[np.bool_]  # whether noise alone hardly makes such a run
    is_likely: NDArray[np.bool_]  # or rarely does: an octave of noise may be far from all values

    @property
    def lengths(self) -> NDArray[np.intp]:
        return self.last + 1 - self.first

    @property
    def noise(self) -> Matrix:
        """About the deviation of the noise in ``people``."""
        return np.asarray(self.deviation * np.sqrt(self.lengths))


def people_runs(
    histograms: Matrix,
    deviation: float,
    *,
    tail: float = _TAIL,
    noise_tail: float = _NOISE_TAIL,
    within: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None,
) -> BinRuns:
    """Of each histogram, (d, n_bins), the run of neighbouring bins with most people beyond a deviation of the noise for
    each; ``within``: the first of the bins that it looks in, and their number.

    Wide columns are seen by the sum of their bins. At either end what noise may have made, up to ``noise_tail``
    deviations, is left outside, and in any case this share, ``tail``, of the people. A walk of unit steps that falls by
    1 in each rises by h from any of its places with a probability of e^(-2h) (docs/mathematics.md, section 10): by how
    much a run rises shows whether noise made it.
    """
    d, n_bins = histograms.shape
    starts, widths = (np.zeros(d, np.int64), np.full(d, n_bins)) if within is None else within
    runs = np.asarray(core.people_runs(histograms, starts, widths, deviation, tail, noise_tail, _MOST_TAIL)).T
    people, rise = runs[2:]
    holds = people > 0
    seen, likely = holds & (rise > deviation * (np.log(np.maximum(widths, 1) / _CHANCES) / 2))
    first, last = np.where(holds, runs[:2], _NO_RUN).astype(np.intp)
    return BinRuns(first, last, np.where(holds, people, 0.0), deviation, seen, likely)


def _ends_of_parts(m: int) -> Matrix:
    """(m + 1,), where m equal parts of the interval from -1 to 1 begin and end."""
    return np.asarray(np.arange(-m, m + 1, 2) / m)
