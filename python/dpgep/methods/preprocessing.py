"""How preprocessing is found: which stages a table gets, for which share of the budget, and what follows from them.

All of it is computed from public and released numbers. Where a model's answer does not depend on the scales of columns,
each column gets a location and a scale: from a histogram over octaves, closer looks where a column is narrow, and sums
within the intervals found. Elsewhere rows are at most shifted, by their mean. The bound follows from a histogram of the
norms of mapped rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpgep.models.bins import FIRST_OCTAVE, N_OCTAVES, NORM_STEPS, Interval
from dpgep.models.model import Matrix, Model
from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing
from dpgep.privacy.ledger import split_budget
from dpgep.privacy.stages import NoisyCounts, Stages

# Noise in the share of the people in a bin that a stage is to have, and the shares of mu^2 that stages may take for it.
_WANTED_NOISE = 0.02
_LEAST_SHARE, _MOST_SHARE = 0.15, 0.45
_LEAST_BOUND_SHARE, _MOST_BOUND_SHARE = 0.02, 0.1
_MEAN_SHARE = 0.05
# n mu over d^1.5 from which a preconditioning helps. In simulations the full one made errors up to twice as large where
# columns were hardly correlated, and 10 to 400 times smaller for condition numbers of 100 and 1000.
_WORTH = {"columns": 1.0, "full": 50.0}
# For the covariance by which rows are made uncorrelated, and how much of its noise level stays in its eigenvalues.
_COVARIANCE_SHARE, _NOISE_KEPT = 0.25, 0.5
# What all stages together may take.
_MOST_PREPARING = 0.9
# Of the share of the columns: for octaves, and of the rest for each closer look.
_OCTAVES_SHARE, _LOOK_SHARE = 0.4, 0.25
_MOST_LOOKS, _PARTS = 6, 32
# Deviations at which entries are cut off, for few columns: later where sizes are asked for, which that changes most.
_LEAST_CUT, _LEAST_CUT_OF_SIZES = 6.0, 12.0
# Least deviation of a column, relative to half of its interval, and at all; least eigenvalue of scaled columns.
_LEAST_SPREAD, _LEAST_SCALE, _LEAST_EIGENVALUE = 2.0**-10, 2.0**-500, 2.0**-30
# Deviations from which on a noisy count shows that it is not that of all people.
_SHOWN = 4.0
# Histograms of more columns than this take too much memory.
_MOST_COLUMNS = 1 << 12
# Share of the people within the bound of a mean.
_WITHIN = 0.9
# The part of a bound's square that the mean's must reach for a shift to be worth it.
_WORTH_SHIFTING = 0.1
# A mean is bought again, so often at most, if it has made rows shorter than that part of their bound, and its noise is
# not shorter than that part of the rows.
_MUCH_SHORTER, _SHORT, _MOST_MEANS = 0.5, 0.25, 3
# Bounds beyond this, and below its inverse, are of rows in units of their own: powers of bounds must not overflow.
_FAR = 1e9
# How much of the energy that a bound cuts off counts as an error of directions: rows that differ in kind turn them.
_BIAS = 0.05
# Share of all energy that a bound keeps at least, as far as is said: rows of all magnitudes may leave less.
_LEAST_KEPT = 1e-100
# Norms of rows that have a location and scale, in units of sqrt(d): there are hardly smaller ones.
_LEAST_NORM = 0.02


@dataclass(frozen=True)
class Shares:
    """Shares of mu^2: for location and scale of the columns, and for each histogram of norms."""

    columns: float
    bound: float


def prepare(
    stages: Stages, auto: AutoPreprocessing, model: Model, *, shifted: bool, mixed: bool, grouped: bool = False
) -> Preprocessing:
    """The preprocessing of a table for ``model``, bought stage by stage.

    Rows may be ``shifted``; where ``auto`` leaves that open, their columns may be ``mixed``. Where people are
    ``grouped``, those without a group have no row.
    """
    least_cut = _LEAST_CUT_OF_SIZES if model.traits.asks_sizes else _LEAST_CUT
    shares = _shares(stages.n, stages.n_columns, stages.mu, auto)
    estimator = _Estimator(stages, auto, shares, grouped=grouped, least_cut=least_cut)
    return estimator.preprocessing(model, shifted=shifted, mixed=mixed)


def location_and_scale(stages: Stages, auto: AutoPreprocessing) -> Preprocessing:
    """Location and scale of every column, for the whole budget: no bound is bought, and none holds."""
    if stages.n_columns > _MOST_COLUMNS:
        raise ValueError(f"location and scale are found for at most {_MOST_COLUMNS} columns, got {stages.n_columns}")
    return _Estimator(stages, auto, Shares(1.0, 0.0), grouped=False, least_cut=_LEAST_CUT_OF_SIZES).columns(
        shifted=True
    )


class _Estimator:
    """Estimates one preprocessing, stage by stage."""

    def __init__(
        self, stages: Stages, auto: AutoPreprocessing, shares: Shares, *, grouped: bool, least_cut: float
    ) -> None:
        self._stages = stages
        self._auto = auto
        self._d = stages.n_columns
        self._missing = auto.missing == "center"
        self._as_is = Preprocessing(1.0, missing=self._missing)
        self._grouped = grouped
        self._least_cut = least_cut
        self._shares = shares
        if (
            auto.share is not None
            and self._shares.columns + 2 * self._shares.bound + self._covariance_share > _MOST_PREPARING
        ):
            raise ValueError(
                f"share = {auto.share:g} leaves too little for the answer: with the other stages it must be at most "
                f"{_MOST_PREPARING:g} of mu^2"
            )

    def preprocessing(self, model: Model, *, shifted: bool, mixed: bool) -> Preprocessing:
        affordable = self._d <= _MOST_COLUMNS and self._affords("columns")
        if model.traits.scale_free and affordable:
            prepared = self._bounded(self.columns(shifted=shifted))
            if self._auto.precondition == "full" or (mixed and model.traits.linear_free and self._affords("full")):
                return self._uncorrelated(prepared, model.views)
            return prepared
        if shifted and affordable and self._missing:  # a mean of rows would count what is absent as 0
            return self._bounded(
                replace(self.columns(shifted=True), scale=None, variance_error=None, largest=self._as_is.largest)
            )
        return self._shifted() if shifted else self._bounded(self._as_is)

    def _affords(self, precondition: Literal["columns", "full"]) -> bool:
        """Whether a preconditioning was asked for, or would help.

        Of scaled columns, directions of unit variance have to stand out of the answer's noise, about 2 d^1.5/(n mu), at
        all: if not, only what dominates the rows as they are can be found, and dividing by deviations would hide it. A
        covariance has to be known to a part of it.
        """
        n, asked = self._stages.n, self._auto.precondition
        if asked != "auto":
            return asked is not None and (precondition == "columns" or asked == "full")
        if n is None or (precondition == "full" and self._shares.columns > _MOST_SHARE):
            return precondition == "columns"
        return bool(n * self._stages.mu >= _WORTH[precondition] * self._d**1.5)

    @property
    def _covariance_share(self) -> float:
        return _COVARIANCE_SHARE if self._auto.precondition == "full" else 0.0

    def _part(self, share: float) -> float:
        """The mu of a share of the whole mu^2."""
        return split_budget(self._stages.mu, share)[0]

    def columns(self, *, shifted: bool) -> Preprocessing:
        """Location and scale of every column; the scale alone, about zero, if not ``shifted``."""
        left, octaves = split_budget(self._part(self._shares.columns), 1 - _OCTAVES_SHARE)
        found, ranges = ColumnRanges(self._d, missing=self._missing), self._auto.ranges
        others = np.array([j for j in range(self._d) if j not in ranges], dtype=np.intp)
        if len(others):
            found.look(others, self._stages.magnitudes(others, octaves), self._n_rows)
        else:
            left = self._part(self._shares.columns)
        for j, ends in ranges.items():
            found.give(int(j), *ends)
        if shifted:
            left = self._look_closer(found, left)
        else:
            found.high = np.maximum(np.abs(found.low), np.abs(found.high))
            found.low = -found.high
        interval = found.intervals(np.arange(self._d))
        sums = self._stages.column_sums(interval, left)
        n = self._n_there(sums)
        mean, square = np.clip(sums.values[:2] / n, -1.0, 1.0)
        if not shifted:
            mean = np.zeros(self._d)
        spread = np.maximum(np.sqrt(np.maximum(square - mean**2, sums.deviation / n)), _LEAST_SPREAD)
        location = interval.middle + interval.half * mean if shifted else None
        scale, largest = np.maximum(interval.half * spread, _LEAST_SCALE), max(self._least_cut, math.sqrt(self._d))
        error = sums.deviation / n * np.sqrt(1 + 4 * mean**2) / spread**2
        return Preprocessing(1.0, location, scale, largest=largest, missing=self._missing, variance_error=error)

    @property
    def _n_rows(self) -> int | None:
        """How many people have a row: everybody who is counted, where nobody can be without a group."""
        return None if self._grouped else self._stages.n

    def _n_there(self, sums: NoisyCounts) -> Matrix:
        """(d,), how many people have a value: as public as their number, unless the noisy counts show otherwise."""
        counts, deviation, n = sums.values[2], sums.deviation, self._stages.n
        if not self._missing:
            counts, deviation = np.full(self._d, counts.mean()), deviation / math.sqrt(self._d)
        if n is not None:
            counts = np.where(np.abs(counts - n) <= _SHOWN * deviation, float(n), counts)
        return np.asarray(np.maximum(counts, 1.0))

    def _look_closer(self, found: ColumnRanges, mu: float) -> float:
        """Narrow the intervals of columns far from zero; returns the mu that is left."""
        for _ in range(_MOST_LOOKS):
            narrow = np.flatnonzero(found.narrow)
            if not len(narrow):
                break
            part, mu = split_budget(mu, _LOOK_SHARE)
            found.look_closer(narrow, self._stages.places(narrow, found.intervals(narrow), _PARTS, part))
        return mu

    def _uncorrelated(self, scaled: Preprocessing, views: list[slice]) -> Preprocessing:
        """Rows whose views have about a multiple of the identity as covariance, as far as a coarse release shows it."""
        released = self._stages.second_moment(scaled, self._part(_COVARIANCE_SHARE))
        linear = np.zeros((self._d, self._d))
        ridge = max(_NOISE_KEPT * released.second_noise_level, released.rounding, _LEAST_EIGENVALUE)
        for view in views:
            values, vectors = np.linalg.eigh(released.second[view, view])
            linear[view, view] = (vectors / np.sqrt(np.maximum(values, 0.0) + ridge)) @ vectors.T
        return self._bounded(replace(scaled, linear=linear))

    def _shifted(self) -> Preprocessing:
        """The mean as a location, where it is long; again, while its noise is not short beside the rows."""
        mapped, norms = self._as_is, self._norms(self._as_is)
        for _ in range(_MOST_MEANS):
            bound, n = norms.quantile(_WITHIN), self._n_rows or norms.n
            total = self._stages.row_sum(replace(mapped, bound=bound), self._part(_MEAN_SHARE))
            mean, noise = total.values / n, total.deviation / n  # in units of the bound
            length = float(mean @ mean)
            # shrunk as James and Stein do
            kept = max(0.0, 1 - max(self._d - 2, 1) * noise**2 / length) if length else 0.0
            if kept**2 * length < _WORTH_SHIFTING:
                break
            location = (0.0 if mapped.location is None else mapped.location) + kept * bound * mean
            mapped = replace(mapped, location=location)
            norms = self._norms(mapped)
            rows = norms.quantile(0.5)
            if rows > _MUCH_SHORTER * bound or noise * math.sqrt(self._d) * bound < _SHORT * rows:
                break
        return self._with_bound(mapped, norms)

    def _bounded(self, mapped: Preprocessing) -> Preprocessing:
        """The map with a bound for its rows."""
        return self._with_bound(mapped, self._norms(mapped))

    def _with_bound(self, mapped: Preprocessing, norms: Norms) -> Preprocessing:
        quantile = self._auto.quantile
        if quantile is None:
            bound = norms.best_bound(self._n_rows or norms.n, self._d, self._stages.mu_left)
        else:
            bound = norms.quantile(quantile)
        mapped = replace(mapped, energy_kept=norms.kept(bound))
        if mapped.scale is None and not 1 / _FAR <= bound <= _FAR:  # a power of two changes no digit
            unit = math.ldexp(1.0, math.frexp(bound)[1])
            return replace(mapped, bound=bound / unit, scale=np.full(self._d, unit))
        return replace(mapped, bound=bound)

    def _norms(self, mapped: Preprocessing) -> Norms:
        """Norms of mapped rows: any, or those that their entries allow where these are cut off."""
        first, last = NORM_STEPS * FIRST_OCTAVE, NORM_STEPS * (FIRST_OCTAVE + N_OCTAVES)
        if mapped.scale is not None:
            ends = _LEAST_NORM * math.sqrt(self._d), mapped.largest * math.sqrt(self._d)
            first, last = (math.floor(NORM_STEPS * math.log2(end)) for end in ends)
        histogram = self._stages.norms(mapped, first, last - first + 1, self._part(self._shares.bound))
        limits, counts = Limits.of(histogram), histogram.values
        counts[0] = 0.0  # rows of zeros have no say
        for width in _RUNS:
            people = np.add.reduceat(counts, np.arange(0, len(counts), width))
            seen = seen_bins(people, limits, width)
            if len(seen):
                return Norms(np.exp2((first + (seen + 0.5) * width) / NORM_STEPS), people[seen])
        return Norms(np.array([math.sqrt(self._d)]), np.ones(1))


def _shares(n: float | None, d: int, mu: float, auto: AutoPreprocessing) -> Shares:
    """As much as the wanted noise takes, within limits: little budgets need large shares."""
    if n is None or math.isinf(mu):
        columns, bound = _LEAST_SHARE, _LEAST_BOUND_SHARE
    else:
        columns = min(max(4 * d * (n * mu * _WANTED_NOISE) ** -2, _LEAST_SHARE), _MOST_SHARE)
        bound = min(max(2 * (n * mu * _WANTED_NOISE) ** -2, _LEAST_BOUND_SHARE), _MOST_BOUND_SHARE)
    return Shares(columns if auto.share is None else auto.share, bound)


@dataclass(frozen=True, eq=False)
class Norms:
    """Norms of rows as a histogram showed them: ``people`` about each of ``norms``, ascending."""

    norms: Matrix
    people: Matrix

    @property
    def n(self) -> float:
        """Number of people seen."""
        return max(float(self.people.sum()), 1.0)

    def quantile(self, share: float) -> float:
        """A norm that at least this share of the people do not exceed."""
        within = np.cumsum(self.people)
        return float(self.norms[int(np.argmax(within >= share * within[-1]))] * 2 ** (0.5 / NORM_STEPS))

    def best_bound(self, n: float, d: int, mu: float) -> float:
        """The bound for the least sum of squares of the answer's noise and bias, relative to the energy kept.

        Of the lower ends of the bins: rows that are all a little too long lose nothing but their length.
        """
        if math.isinf(mu):
            return self.quantile(1.0)
        shares, bounds = self.people / self.people.sum(), self.norms * 2 ** (-0.5 / NORM_STEPS)
        with np.errstate(over="ignore", divide="ignore"):  # of rows of all magnitudes, the smallest may vanish
            # energy that a bound keeps, in units of its square and of all energy
            in_squares = np.minimum(np.divide.outer(self.norms, bounds) ** 2, 1.0).T @ shares
            of_all = (bounds / self.norms[-1]) ** 2 * in_squares / ((self.norms / self.norms[-1]) ** 2 @ shares)
            bias = _BIAS * (1 / of_all - 1)
        # the edge of the noise of a second moment and a mean (docs/mathematics.md, section 3)
        noise = 1.6 * math.sqrt(2 * d) / (n * mu) / in_squares
        return float(bounds[int(np.argmin(noise**2 + bias**2))])

    def kept(self, bound: float) -> float:
        """The share of the squares of the norms that a bound keeps."""
        with np.errstate(over="ignore"):
            squares = (self.norms / self.norms[-1]) ** 2
            within = np.minimum(squares, (bound / self.norms[-1]) ** 2)
        return float(np.clip(within @ self.people / (squares @ self.people), _LEAST_KEPT, 1.0))


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
        """Limits for a histogram of one column, or of several, one in each row."""
        counts, deviation = histogram.values, histogram.deviation
        n_near = (2 * _NEAR + 1) * (len(counts) if counts.ndim > 1 else 1)
        anywhere = -deviation * NormalDist().inv_cdf(_FALSE_BIN / counts.size)
        return cls(anywhere, -deviation * NormalDist().inv_cdf(_FALSE_NEAR / n_near), deviation)


class ColumnRanges:
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
            self.narrow[j] = one_sided and len(up or down) <= _NARROW_OCTAVES
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

    def _sides(self, counts: Matrix, limits: Limits) -> tuple[float, BinRun, BinRun]:
        """People with zeros, and octaves of the positive and of the negative values."""
        positive, negative = counts
        zeros = float(positive[0]) if positive[0] > limits.near else 0.0
        up, down = (people_run(side[1:], limits) for side in (positive, negative))
        return zeros, up, down


@dataclass(frozen=True)
class BinRun:
    """Bins from ``first`` to ``last`` that hold ``people``; none if last < first."""

    first: int
    last: int
    people: float

    def __len__(self) -> int:
        return self.last + 1 - self.first

    @property
    def lower(self) -> float:
        """The least magnitude, where bins are octaves."""
        return math.ldexp(1.0, FIRST_OCTAVE + self.first)

    @property
    def upper(self) -> float:
        """The end of the last octave."""
        return math.ldexp(1.0, min(FIRST_OCTAVE + self.last + 1, 1023))


def people_run(counts: Matrix, limits: Limits) -> BinRun:
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
        return BinRun((first + low) * width, min((first + high + 1) * width, len(counts)) - 1, people)
    return BinRun(0, -1, 0.0)


def seen_bins(sums: Matrix, limits: Limits, width: int) -> NDArray[np.intp]:
    """Which of the sums over ``width`` bins noise alone hardly reaches; none if it may have reached all."""
    spread = math.sqrt(width)
    seen = sums > limits.anywhere * spread
    if seen.any():
        near = np.abs(np.arange(len(sums)) - int(np.argmax(sums))) <= max(1, _NEAR // width)
        seen |= near & (sums > limits.near * spread)
    return np.flatnonzero(seen)
