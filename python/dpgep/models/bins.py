"""Public bins: octaves of numbers, parts of intervals, steps of norms, and noisy counts of what lies in which."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import NonNegative, Positive, check_fields
from dpgep._show import Shown
from dpgep.models.model import Matrix

# Octaves 2^e <= |x| < 2^(e + 1) for e from FIRST_OCTAVE on. The first and the last stand for all that is beyond:
# squares of what is found in them neither overflow nor vanish.
FIRST_OCTAVE, N_OCTAVES = -500, 1000

NORM_STEPS = 4  # norms are counted in quarters of an octave: 2^(k/4) <= norm < 2^((k + 1)/4)

# Norms of products of rows with directions are clipped to a part of the bound between these, and counted between the
# quarters of octaves from one to the other.
LEAST_THRESHOLD, LARGEST_THRESHOLD = 2.0**-7, 1.0
PRODUCT_EDGES = 2.0 ** (np.arange(-7 * NORM_STEPS, 1) / NORM_STEPS)

# Deviations of its noise from which on a count by octave is seen; second differences of logarithms from which on these
# show how a column ends; the steepest logarithms within an octave; places where it is averaged; people who are none.
_SEEN, _LEAST_CURVATURE, _STEEPEST, _PLACES, _NOBODY = 2.5, -2.0, 8.0, 16, 1e-3
# And from which on it is where all octaves about it look empty: values such as 98 that stand for something else.
_SURELY_SEEN = 4.5
# Deviations of its noise from which on the first count that noise hides may be people; where octaves begin that hold
# tails alone, in deviations, and how many times as far they may end, for values to be even in their logarithms.
_OFTEN, _FAR, _WIDE = 1.5, 3.0, 3.0
# Deviations from zero up to which columns lie about it; of these, where the last octave that is seen ends at least, and
# the mean square that the noise of a count has there at most.
_ABOUT_ZERO, _LEAST_END, _MOST_HIDDEN = 0.5, 3.0, 0.015
_FEW = 0.2  # a sign that has less than this part of the people of the other is no half of a column about zero
_LIKELY = 0.25  # a count of which less than this part was expected must be seen twice as well
# Deviations of its noise that the number of people of a column must exceed for it to have quantiles.
_SHOWN = 4.0
_MOST_COUNTED = 2.0**500  # counts below it can be added up; no table has as many people
_FARTHEST = 1e100  # deviations at which nobody is: squares do not overflow
# Public, and the same in every run: of the noise that shows how sure ends of columns are, and how often it is drawn.
_SEED, _REPEATS = 0x74616973, 8


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

    def repeated(self, place: int, times: int) -> Interval:
        """The interval of one column, for several that are alike."""
        return Interval(np.repeat(self.middle[place], times), np.repeat(self.half[place], times))

    def relative(self, block: Matrix) -> Matrix:
        """Where entries lie in the intervals: from -1 to 1, which stand for all that is beyond."""
        with np.errstate(all="ignore"):
            return np.clip((block - self.middle) / self.half, -1.0, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Histograms(Shown):
    """Noisy counts of the values of d columns in m cells each, as they were bought."""

    edges: Matrix  # (d, m + 1), ends of the cells, which hold their lower ends; the outermost may be infinite
    counts: Matrix  # (d, m), people
    deviation: Matrix  # (d,), of the noise in a count; inf for columns that were not counted

    def __post_init__(self) -> None:
        for name in ("edges", "counts", "deviation"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
        d, m = self.counts.shape if self.counts.ndim == 2 else (-1, -1)
        fits = (
            self.edges.shape == (d, m + 1)
            and self.deviation.shape == (d,)
            and np.abs(self.counts).max(initial=0.0) < _MOST_COUNTED
        )
        if not (fits and (self.edges[:, 1:] >= self.edges[:, :-1]).all() and (self.deviation >= 0).all()):
            raise ValueError("histograms must have finite counts, and ascending edges of one cell more, of each column")

    def restricted(self, features: NDArray[np.intp]) -> Histograms:
        """The same for some of the columns."""
        return replace(
            self, edges=self.edges[features], counts=self.counts[features], deviation=self.deviation[features]
        )

    def quantiles(self, share: float, level: float) -> Matrix:
        """(d, 3), the value that a share p of the people do not exceed, and an interval for the population's.

        With L people in the k first of m cells, and T in all, L/T has the variance s^2 (k (1 - p)^2 + (m - k) p^2)/T^2
        of the noise where it is p, and p (1 - p)/T of people. The value is as if people were even within cells; an
        interval holds the whole cells that it ends in. NaN where the noise hides how many people there are.
        """
        m, total = self.counts.shape[1], self.counts.sum(axis=1)
        known = total > _SHOWN * self.deviation * math.sqrt(m)
        people, deviation = np.where(known, total, 1.0), np.where(known, self.deviation, 0.0)
        below = np.pad(self.counts.cumsum(axis=1) / people[:, None], ((0, 0), (1, 0)))
        falling = np.minimum.accumulate(below[:, ::-1], axis=1)[:, ::-1]
        rising = (np.maximum.accumulate(below, axis=1) + falling) / 2
        cells = _cells(rising, np.full(len(total), share)) + 0.5
        noise = (deviation / people) ** 2 * (cells * (1 - share) ** 2 + (m - cells) * share**2)
        half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(noise + share * (1 - share) / people)
        (value, _, _), (_, lower, _), (_, _, upper) = (self._within(rising, share + sign * half) for sign in (0, -1, 1))
        found = np.column_stack([value, lower, upper])
        return np.where(known[:, None], found, [np.nan, -np.inf, np.inf])

    def _within(self, rising: Matrix, shares: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Where cumulated shares reach these: within cells, and the ends of these cells."""
        each, cell = np.arange(len(shares)), _cells(rising, shares)
        first, last = self.edges[each, cell], self.edges[each, cell + 1]
        held = rising[each, cell + 1] - rising[each, cell]
        part = np.clip((shares - rising[each, cell]) / np.where(held > 0, held, 1.0), 0.0, 1.0)
        inside = np.where(np.isinf(first), last, first)
        finite = np.isfinite(first) & np.isfinite(last)
        width = np.subtract(last, first, out=np.zeros_like(first), where=finite)
        return inside + part * width, first, last


def _cells(rising: Matrix, shares: Matrix) -> NDArray[np.intp]:
    """(d,), the first cell at whose end a cumulated share is reached, or the last."""
    return np.asarray(np.minimum((rising[:, 1:] < shares[:, None]).sum(axis=1), rising.shape[1] - 2))


@dataclass(frozen=True, eq=False, repr=False)
class Magnitudes(Shown):
    """Noisy counts of the values of d columns over zero and signed octaves, as they were bought."""

    first: int  # the least octave e, 2^e <= |x| < 2^(e + 1)
    # (d, 2, m), people with positive and with negative values, in each octave from there on; 0 for columns whose
    # magnitudes were not bought
    counts: Matrix
    deviation: NonNegative  # of the noise in a count
    n: Positive  # how many people were counted, as far as that is known
    zeros: Matrix | None = None  # (d,), people with the value 0; None where they were not kept

    def __post_init__(self) -> None:
        check_fields(self)
        counts = np.array(self.counts, dtype=np.float64)
        if counts.ndim != 3 or counts.shape[1] != 2 or not counts.size or not np.abs(counts).max() < _MOST_COUNTED:
            raise ValueError("counts of magnitudes must be finite, columns by two signs by octaves")
        object.__setattr__(self, "counts", counts)
        zeros = np.zeros(len(counts)) if self.zeros is None else np.array(self.zeros, dtype=np.float64)
        if zeros.shape != counts.shape[:1] or not np.isfinite(zeros).all():
            raise ValueError("zeros of magnitudes must be finite, one number for each column")
        object.__setattr__(self, "zeros", zeros)
        if not FIRST_OCTAVE <= self.first <= FIRST_OCTAVE + N_OCTAVES - counts.shape[2]:
            raise ValueError(f"octaves of magnitudes must begin from {FIRST_OCTAVE} on, got {self.first}")

    def restricted(self, features: NDArray[np.intp]) -> Magnitudes:
        """The same for some of the columns."""
        assert self.zeros is not None
        return replace(self, counts=self.counts[features], zeros=self.zeros[features])

    @property
    def histograms(self) -> Histograms:
        """The same from the least value to the largest, with zero as a cell of its own."""
        assert self.zeros is not None
        ends = np.exp2(self.first + np.arange(self.counts.shape[2] + 1.0))
        above, below = self.counts.swapaxes(0, 1)
        edges = np.tile(np.concatenate([-ends[::-1], [0.0, 0.0], ends]), (len(above), 1))
        about_zero = np.pad(self.zeros[:, None], ((0, 0), (1, 1)))
        counts = np.concatenate([below[:, ::-1], about_zero, above], axis=1)
        return Histograms(edges, counts, np.full(len(above), self.deviation))

    @property
    def _one_sided(self) -> NDArray[np.bool_]:
        """(d,), columns of one sign, or nearly: in octaves that are seen the other has surely few people."""
        seen = self.counts.mean(axis=1) > _SEEN * math.sqrt(0.5) * self.deviation
        signs = np.where(seen[:, None, :], self.counts, 0.0).sum(axis=2)
        surely_few = signs.min(axis=1) + _SEEN * self.deviation * np.sqrt(seen.sum(axis=1)) < _FEW * signs.max(axis=1)
        return np.asarray(surely_few)

    def beyond(
        self, location: Matrix, scale: Matrix, bound: float, image: Matrix | None = None
    ) -> tuple[Matrix, Matrix]:
        """What columns z = (x - location)/scale lose of their mean square and of their mean, each (repeats, d).

        Rows of an entry z, times ``image`` if it is not 1, and d - 1 others of mean square 1 are shortened to
        ``bound``. Octaves that noise hides continue those that are seen: logarithms of counts fall faster and faster,
        by second differences as the last three show (of both signs alike in columns about zero that have both). 0 where
        octaves do not show how a column ends: where second differences are below -2, and about zero where octaves fall
        late, with much noise. First of the counts as they are, then of counts with as much noise again, which show how
        sure that is.
        """
        d, generator = len(self.counts), np.random.default_rng(_SEED)
        about_zero = ((np.abs(location) < _ABOUT_ZERO * scale) & ~self._one_sided)[:, None, None]  # both signs alike
        deviations = np.repeat(np.where(about_zero[:, 0, 0], math.sqrt(0.5), 1.0) * self.deviation, 2)
        octaves, places = self.first + np.arange(self.counts.shape[2]), (np.arange(_PLACES) + 0.5) / _PLACES
        x = np.multiply.outer([1.0, -1.0], np.exp2(octaves[:, None] + places))
        z = (x - location[:, None, None, None]) / scale[:, None, None, None]
        z = np.clip(z, -_FARTHEST, _FARTHEST).reshape(2 * d, -1, _PLACES)
        lengths = z if image is None else z * image.repeat(2)[:, None, None]
        kept = np.minimum(bound / np.sqrt(lengths**2 + (d - 1)), 1.0)
        ends = np.abs(z[:, :, -1])
        losses = z**2 * (1 - kept**2), z * (1 - kept)
        found: list[list[Matrix]] = [[], []]
        for repeat in range(_REPEATS + 1):
            noise = self.deviation * min(repeat, 1) * generator.standard_normal(self.counts.shape)
            counts = self.counts + noise
            counts = np.where(about_zero, counts.mean(axis=1, keepdims=True), counts).reshape(2 * d, -1)
            people, last, curvature = _continued(counts, deviations)
            logs, slopes = np.log(np.maximum(people, _NOBODY)), np.zeros_like(people)
            slopes[:, 1:-1] = np.clip((logs[:, 2:] - logs[:, :-2]) / 2, -_STEEPEST, _STEEPEST)
            within = np.exp(slopes[:, :, None] * places)
            end = ends[np.arange(2 * d), last]
            hidden = (end < _LEAST_END) | (deviations * end**2 > _MOST_HIDDEN * self.n)
            shows = (curvature > _LEAST_CURVATURE) & ~(about_zero.repeat(2) & hidden)
            alone = (counts > _SURELY_SEEN * deviations[:, None]) & (octaves > self.first + 1 + last[:, None])
            people = np.where(shows[:, None] | alone, np.where(alone, counts, people), 0.0) / self.n
            within *= (people / within.sum(axis=2))[:, :, None]
            for each, loss in zip(found, losses, strict=True):
                each.append((within * loss).reshape(d, -1).sum(axis=1))
        return np.array(found[0]), np.array(found[1])

    def far(self, location: Matrix, scale: Matrix, bound: float) -> Matrix:
        """(d,), what columns z = (x - location)/scale may lose of their mean squares in the octaves that hold tails
        alone, up to the first of either sign that noise hides, if its count is more than noise often makes.

        Rows are shortened as in `beyond`. As many people as a normal column has there do not count. Values even in
        their logarithms are more than there are: counts fall.
        """
        from scipy.special import ndtr

        d, m = len(self.counts), self.counts.shape[2]
        counts, octaves = self.counts.reshape(2 * d, m), np.arange(m)
        places = self.first + octaves[:, None] + (np.arange(_PLACES) + 0.5) / _PLACES
        x = np.multiply.outer([1.0, -1.0], np.exp2(places))
        z = (x - location[:, None, None, None]) / scale[:, None, None, None]
        squares = np.square(np.clip(z, -_FARTHEST, _FARTHEST)).reshape(2 * d, m, _PLACES)
        ends = np.multiply.outer([1.0, -1.0], np.exp2(self.first + np.arange(m + 1.0)))
        below = ndtr((ends - location[:, None, None]) / scale[:, None, None])
        more = counts - self.n * np.abs(np.diff(below)).reshape(2 * d, m)
        lost = (squares * (1 - np.minimum(bound**2 / (squares + d - 1), 1.0))).mean(axis=2)
        last, modes = _continued(counts, np.full(2 * d, self.deviation))[1], counts.argmax(axis=1)
        hidden = (octaves == last[:, None] + 1) & (more > _OFTEN * self.deviation)
        seen = (octaves > modes[:, None]) & (octaves <= last[:, None]) & (squares[:, :, 0] > _FAR**2)
        people = np.where(hidden | seen, np.maximum(more + hidden * self.deviation / 2, 0.0), 0.0) / self.n
        even = squares[:, :, -1] < _WIDE**2 * squares[:, :, 0]
        has_people = counts.max(axis=1, keepdims=True) > _SURELY_SEEN * self.deviation
        return np.asarray((people * lost * (even & has_people)).reshape(d, -1).sum(axis=1))


def _continued(counts: Matrix, deviations: Matrix) -> tuple[Matrix, NDArray[np.intp], Matrix]:
    """People in each octave, (k, m), as noisy counts show them, and beyond that as the last three go on; (k,) each, the
    last octave that is seen, and the largest second difference of logarithms above the mode, -inf where there is none.
    """
    k, m = counts.shape
    shown = counts > _SEEN * deviations[:, None]
    modes = counts.argmax(axis=1)
    octaves = np.arange(m)
    people = np.where(shown & (octaves <= modes[:, None]), counts, 0.0)
    seen = shown[np.arange(k), modes]
    known, ends, curvature = seen.copy(), modes.copy(), np.full(k, -np.inf)
    floor = np.maximum(deviations / 2, _NOBODY)
    logs = np.tile(np.log(floor)[:, None], m + 3)
    logs[:, 3:] = np.log(np.maximum(people, floor[:, None]))
    for j in range(1, m):
        last, before, first = logs[:, j + 2], logs[:, j + 1], logs[:, j]
        fall = np.minimum(last - before, 0.0)
        expected = np.exp(last + np.minimum(fall + np.minimum(last - 2 * before + first, 0.0), 0.0))
        above = seen & (j > modes)
        first_above = j == modes + 1
        likely = first_above | (expected > _LIKELY * counts[:, j]) | (counts[:, j] > 2 * _SEEN * deviations)
        known &= ~above | (shown[:, j] & likely)
        unsure = expected * deviations * np.sqrt(9 * np.exp(-2 * last) + 9 * np.exp(-2 * before) + np.exp(-2 * first))
        ended = ~known & (expected > counts[:, j] + _SEEN * np.hypot(deviations, unsure)) & ~first_above
        guessed = np.where(ended, 0.0, np.minimum(expected, np.maximum(counts[:, j], 0.0) + deviations))
        found = np.where(known, counts[:, j], guessed)
        people[:, j] = np.where(above, found, people[:, j])
        logs[:, j + 3] = np.where(above, np.log(np.maximum(found, np.where(known, floor, _NOBODY))), logs[:, j + 3])
        ends[above & known] = j
        three = above & known & (before > np.log(floor))
        curvature = np.maximum(curvature, np.where(three, logs[:, j + 3] - 2 * last + before, -np.inf))
    return np.where(people > 2 * _NOBODY, people, 0.0), ends, curvature
