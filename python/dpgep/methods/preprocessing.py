"""How preprocessing is found: which stages a table gets, for which share of the budget, and what follows from them.

All of it is computed from public and released numbers (docs/mathematics.md, section 10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dpgep._checks import unchecked
from dpgep._threads import lapack_on_one_thread
from dpgep.methods.ranges import ColumnRanges, people_runs
from dpgep.models.bins import FIRST_OCTAVE, N_OCTAVES, NORM_STEPS, Interval
from dpgep.models.model import Matrix, Model
from dpgep.models.preprocessing import LEAST_KEPT, VARIANCE_UNTOLD, AutoPreprocessing, Preprocessing
from dpgep.privacy.curator import NoisyCounts, Stages
from dpgep.privacy.ledger import split_budget

# Noise in the share of the people in a bin that a stage is to have, and the shares of mu^2 that stages may take for it.
_WANTED_NOISE = 0.02
_LEAST_SHARE, _MOST_SHARE = 0.15, 0.45
_LEAST_BOUND_SHARE, _MOST_BOUND_SHARE = 0.02, 0.1
_MEAN_SHARE = 0.05
# n mu over d^1.5 from which a preconditioning helps. In simulations the full one made errors up to twice as large where
# columns were hardly correlated, and 10 to 400 times smaller for condition numbers of 100 and 1000.
# "units": of weights of noise in models that depend on scales, chosen on half of the tables of
# benchmarks/real_tables.py (10 of 0, 3 and 10).
_WORTH = {"columns": 1.0, "units": 10.0, "full": 50.0}
# For the covariance by which rows are made uncorrelated, and how much of its noise level stays in its eigenvalues.
_COVARIANCE_SHARE, _NOISE_KEPT = 0.25, 0.5
_MOST_PREPARING = 0.9  # what all stages together may take
# Of the share of the columns: for octaves, and of the rest for each closer look.
_OCTAVES_SHARE, _LOOK_SHARE = 0.4, 0.25
_MOST_LOOKS, _PARTS = 6, 32
# Parts of the interval that holds the quartiles of a column, and how surely it does by its octaves. A quarter of the
# people at most are 3^(1/2) deviations below the mean, or above (Cantelli); the deviations may be too small.
_QUARTILE_PARTS, _QUARTILES_WITHIN, _QUARTILE_REACH = 64, 0.999, 2.5
# Deviations at which entries are cut off, for few columns: later where sizes are asked for, which that changes most.
_LEAST_CUT, _LEAST_CUT_OF_SIZES = 6.0, 12.0
_CUT_GROWS, _SIZES_SHOW = 0.05, 5.0
# Least deviation of a column, relative to half of its interval, and at all; least eigenvalue of scaled columns.
_LEAST_SPREAD, _LEAST_SCALE, _LEAST_EIGENVALUE = 2.0**-10, 2.0**-500, 2.0**-30
_SHOWN = 4.0  # deviations from which on a noisy count shows that it is not that of all people
# What scales that pass for known may be wrong by, and deviations of the noise beyond which a variance shows them: of
# columns that were looked at more closely, of others, which rarely fill so little of their interval, and in public
# intervals. Looks that noise misled leave people beyond both ends: mean squares from which on these hold most, and
# noise that allows it.
_FACTOR, _SHOWS, _SHOWS_IN_PUBLIC = 3.0, (3.0, 2.4), 1.5
_AT_ENDS, _MISLEADING = 0.74, 0.02
_MOST_COLUMNS = 1 << 12  # histograms of more columns than this take too much memory
_WITHIN = 0.9  # share of the people within the bound of a mean
_WORTH_SHIFTING = 0.1  # the part of a bound's square that the mean's must reach for a shift to be worth it
# A mean is bought again, so often at most, if it has made rows shorter than that part of their bound, and its noise is
# not shorter than that part of the rows.
_MUCH_SHORTER, _SHORT, _MOST_MEANS = 0.5, 0.25, 3
# Bounds beyond this, and below its inverse, are of rows in units of their own: powers of bounds must not overflow.
_FAR = 1e9
# How much of the energy that a bound cuts off counts as an error of directions: rows that differ in kind turn them.
_BIAS = 0.05
# Deviations of the noise that the longest rows must exceed: a bound is wrong by less than a scale may be.
_NORMS_TAIL = 2.5
_LEADING = 2  # components that noise is weighed against where columns have variances of different sizes
# Norms of rows that have a location and scale, in units of sqrt(d): there are hardly smaller ones.
_LEAST_NORM = 0.02
# Where bins of far rows begin, in octaves; and norms there, in units of that: 1.23 in an octave, 1.29 in all from one
# on, as of Student's law with five degrees of freedom.
_FAR_OCTAVES, _OF_FAR_NORMS = (0, 1, 2, 4), 1.25
_MAY_BE = 2.0  # deviations of its noise by which a variance may be larger
# Variances below this part of the largest count as that: factors of weights stay far from overflow.
_LEAST = 1e-12
_ROUNDS = 60  # each halves the distance from the fixed point
# No map but a bound, without and with missing values.
_AS_IS = tuple(Preprocessing(1.0, missing=missing) for missing in (False, True))


def prepare(
    stages: Stages,
    auto: AutoPreprocessing,
    model: Model,
    *,
    shifted: bool,
    mixed: bool,
    scaled: bool,
    grouped: bool = False,
) -> Preprocessing:
    """The preprocessing of a table for ``model``, bought stage by stage.

    Rows may be ``shifted``; where ``auto`` leaves that open, their columns may be ``mixed``, and those of a model that
    depends on scales ``scaled``: its answer is in their units then. Where people are ``grouped``, those without a group
    have no row.
    """
    least_cut = _LEAST_CUT_OF_SIZES if model.traits.asks_sizes else _LEAST_CUT
    shares = _shares(stages.n, stages.n_columns, stages.mu, auto)
    estimator = _Estimator(stages, auto, shares, model, grouped, least_cut)
    pairwise = auto.missing == "pairwise"
    with lapack_on_one_thread(stages.n_columns):  # threads of BLAS would be awake while the next stage reads the rows
        found = estimator.preprocessing(shifted=shifted, mixed=mixed, scaled=scaled and not pairwise)
    return replace(found, pairwise=True) if pairwise else found


def location_and_scale(stages: Stages, auto: AutoPreprocessing, model: Model) -> Preprocessing:
    """Location and scale of every column, for the whole budget: no bound is bought, and none holds."""
    if stages.n_columns > _MOST_COLUMNS:
        raise ValueError(f"location and scale are found for at most {_MOST_COLUMNS} columns, got {stages.n_columns}")
    estimator = _Estimator(stages, auto, (1.0, 0.0), model, False, _LEAST_CUT_OF_SIZES)
    return estimator.columns(shifted=True)


@dataclass(eq=False, repr=False)
class _Estimator:
    """Estimates one preprocessing, stage by stage."""

    _stages: Stages
    _auto: AutoPreprocessing
    _shares: tuple[float, float]  # of mu^2: for location and scale of the columns, and for each histogram of norms
    _model: Model
    _grouped: bool
    _least_cut: float

    def __post_init__(self) -> None:
        self._d, share = self._stages.n_columns, self._auto.share
        self._indicators = [j for group in self._model.indicators for j in group]
        self._missing = self._auto.missing != "error"
        self._as_is = _AS_IS[self._missing]
        for_columns, for_bound = self._shares
        taken = for_columns + 2 * for_bound + (_COVARIANCE_SHARE if self._auto.precondition == "full" else 0.0)
        taken += self._auto.quartiles or 0.0
        if not (share is None and self._auto.quartiles is None) and taken > _MOST_PREPARING:
            raise ValueError(
                f"share = {for_columns:g} leaves too little for the answer: with the other stages it must "
                f"be at most {_MOST_PREPARING:g} of mu^2"
            )

    def preprocessing(self, *, shifted: bool, mixed: bool, scaled: bool) -> Preprocessing:
        model, affordable = self._model, self._d <= _MOST_COLUMNS and self._affords("columns")
        if model.traits.scale_free and affordable:
            prepared = self._bounded(self.columns(shifted=shifted))
            mixes = self._auto.precondition == "full" or (mixed and model.traits.linear_free and self._affords("full"))
            if not mixes:
                return prepared
            # rows whose views have about a multiple of the identity as covariance, as far as a coarse release shows it
            released = self._stages.second_moment(prepared, self._part(_COVARIANCE_SHARE))
            linear = np.zeros((self._d, self._d))
            ridge = max(_NOISE_KEPT * released.second_noise_level, released.rounding, _LEAST_EIGENVALUE)
            for view in model.views:
                values, vectors = np.linalg.eigh(released.second[view, view])
                linear[view, view] = (vectors / np.sqrt(np.maximum(values, 0.0) + ridge)) @ vectors.T
            return self._bounded(replace(prepared, linear=linear))
        if scaled and model.traits.is_covariance and affordable:
            norms = self._norms(self._as_is)  # a pass, which counts the people of a source
            in_range = norms.norms[0] >= 1 / _FAR and norms.norms[-1] <= _FAR
            if in_range and self._affords("units"):
                return self._bounded(self._weighted(norms.mean_square, shifted=shifted))
            if not (shifted and self._missing):
                return self._shifted(norms) if shifted else self._with_bound(self._as_is, norms)
        if shifted and affordable and self._missing:  # a mean of rows would count what is absent as 0
            return self._bounded(self._unscaled(self.columns(shifted=True)))
        return self._shifted(self._norms(self._as_is)) if shifted else self._bounded(self._as_is)

    def _weighted(self, longest: float, *, shifted: bool) -> Preprocessing:
        """Columns shifted, and divided by what weighs noise against the leading components.

        No column is longer than rows are, by their mean square ``longest``: that alone counts where the budget did not
        show a column.
        """
        found = self.columns(shifted=shifted)
        assert found.scale is not None
        assert found.variance_error is not None
        variances = found.scale**2
        noise = np.minimum(variances * found.variance_error, longest)
        unseen = variances > longest
        variances[unseen] = 0.0
        noise[unseen] = longest / 2
        location = found.location
        if location is not None:
            location = np.where(unseen | (location**2 > _FACTOR**2 * longest), 0.0, location)
        weights = noise_weights(variances, noise, _LEADING)
        variances, noise = np.where(unseen, longest / 2, variances), noise / np.maximum(variances, 1e-300)
        noise[unseen] = 1.0
        parts: dict[str, Any] = {"scale": weights, "variance": variances / weights**2, "variance_error": noise}
        return replace(self._unscaled(found), location=location, **parts)

    def _unscaled(self, found: Preprocessing) -> Preprocessing:
        """The location alone."""
        return replace(found, scale=None, variance_error=None, largest=self._as_is.largest, unsure=(), unseen=())

    def _affords(self, precondition: Literal["columns", "units", "full"]) -> bool:
        """Whether a preconditioning was asked for, or would help: of scaled columns, directions of unit variance have
        to stand out of the answer's noise at all, and a covariance has to be known to a part of it.
        """
        n, asked = self._stages.n, self._auto.precondition
        if precondition == "full" and self._auto.missing == "pairwise":  # a mixture would be absent with any column
            return False
        if math.isinf(self._stages.mu) and asked == "auto":
            return precondition == "columns"
        if asked != "auto":
            return asked is not None and (precondition != "full" or asked == "full")
        if n is None or (precondition == "full" and self._shares[0] > _MOST_SHARE):
            return precondition == "columns"
        return bool(n * self._stages.mu >= _WORTH[precondition] * self._d**1.5)

    @property
    def _shares_asked(self) -> bool:
        """Whether shares of people by category are asked for, beside correlations."""
        return self._model.traits.asks_sizes and bool(self._indicators)

    def _part(self, share: float) -> float:
        """The mu of a share of the whole mu^2."""
        return split_budget(self._stages.mu, share)[0]

    def columns(self, *, shifted: bool) -> Preprocessing:
        """Location and scale of every column; the scale alone, about zero, if not ``shifted``."""
        whole = self._part(self._shares[0])
        left, octaves = split_budget(whole, 1 - _OCTAVES_SHARE)
        found = ColumnRanges(self._d, missing=self._missing)
        ranges: dict[str | int, tuple[float, float]] = {j: (0.0, 1.0) for j in self._indicators}
        ranges.update(self._auto.ranges)
        others = np.array([j for j in range(self._d) if j not in ranges], dtype=np.intp)
        if len(others):
            found.look(others, self._stages.magnitudes(others, octaves), self._n_rows)
        else:
            left = whole
        for j, ends in ranges.items():
            found.give(int(j), *ends)
        if shifted:
            left = self._look_closer(found, left)
        else:
            found.high = np.maximum(np.abs(found.low), np.abs(found.high))
            found.low = -found.high
            found.narrow[:] = False
        interval = found.intervals(np.arange(self._d))
        sums = self._stages.column_sums(interval, left)
        n = self._n_there(sums)
        mean, square = np.minimum(np.maximum(sums.values[:2] / n, -1.0), 1.0)
        if not shifted:
            mean = np.zeros(self._d)
        variance, noise = square - mean**2, sums.deviation * np.sqrt(1 + 4 * mean**2) / n
        spread = np.maximum(np.sqrt(np.maximum(variance, sums.deviation / n)), _LEAST_SPREAD)
        location = interval.middle + interval.half * mean if shifted else None
        bought = np.maximum(interval.half * spread, _LEAST_SCALE)
        scale, shows, cut = bought, np.where(found.looked, *_SHOWS), self._cut
        if ranges:
            shows[[int(j) for j in ranges]] = _SHOWS_IN_PUBLIC
        if self._indicators:  # they are not cut off: a rare one stays one, and its mean the share of the people
            rare, least = 0.0 if location is None else location[self._indicators], np.zeros(self._d)
            least[self._indicators] = np.maximum(rare, 1 - rare) / cut
            for group in map(list, self._model.indicators if self._shares_asked else ()):
                least[group] = np.maximum(least[group], scales_of_shares(bought[group]))
            scale = np.maximum(bought, least)
        at_ends = found.looked & (square > _AT_ENDS) & (sums.deviation > _MISLEADING * n)
        holds = found.seen & ~found.narrow & ~at_ends
        known = holds & (variance >= np.maximum(shows * noise, _LEAST_SPREAD**2))
        known |= scale <= _FACTOR * found.least_spread
        known[self._indicators] = True  # of a rare one only that is unknown: how much less it varies than it may
        if self._auto.quartiles is not None:
            centre = np.zeros(self._d) if location is None else location
            self._look_at_quartiles(found, centre, np.where(known, bought, np.inf), self._part(self._auto.quartiles))
        unsure = () if sums.deviation == 0 else tuple(np.flatnonzero(~known).tolist())
        return unchecked(
            self._as_is,
            is_identity=False,
            location=location,
            scale=scale,
            largest=cut,
            variance_error=np.where(scale > bought, VARIANCE_UNTOLD, noise / spread**2),
            unsure=unsure,
            unseen=tuple(j for j in unsure if not holds[j]),
            n_present=n if self._auto.missing == "center" else None,
            magnitudes=found.magnitudes,
            places=found.places,
        )

    def _look_at_quartiles(self, found: ColumnRanges, centre: Matrix, deviation: Matrix, mu: float) -> None:
        """Count people finely about the quartiles of all columns but indicators."""
        columns = np.setdiff1d(np.arange(self._d), self._indicators)
        if not len(columns):
            return
        interval, reach = found.intervals(columns), _QUARTILE_REACH * deviation[columns]
        low = np.maximum(interval.middle - interval.half, centre[columns] - reach)
        high = np.minimum(interval.middle + interval.half, centre[columns] + reach)
        if found.magnitudes is not None:
            octaves = found.magnitudes.restricted(columns).histograms
            low = np.maximum(low, octaves.quantiles(0.25, _QUARTILES_WITHIN)[:, 1])
            high = np.minimum(high, octaves.quantiles(0.75, _QUARTILES_WITHIN)[:, 2])
        middle, half = (low + high) / 2, (1 + 4 / _QUARTILE_PARTS) * (high - low) / 2
        fine = Interval(np.where(half > 0, middle, interval.middle), np.where(half > 0, half, interval.half))
        found.keep_places(columns, fine, self._stages.places(columns, fine, _QUARTILE_PARTS, mu))

    @property
    def _cut(self) -> float:
        """Deviations at which entries are cut off: the more the less noise there is to hide what that changes.

        Where much noise is left, one column whose scale came out too small must not lengthen all rows.
        """
        if math.isinf(self._stages.mu) and self._auto.precondition != "full":
            return self._as_is.largest
        shown = (self._stages.n or 0.0) * self._stages.mu / self._d**1.5
        later = _CUT_GROWS * self._least_cut * math.sqrt(shown) if math.isfinite(shown) else 0.0
        return max(self._least_cut if shown >= _SIZES_SHOW else _LEAST_CUT, math.sqrt(self._d), later)

    @property
    def _n_rows(self) -> int | None:
        """How many people have a row: everybody who is counted, where nobody can be without a group."""
        return None if self._grouped else self._stages.n

    def _n_there(self, sums: NoisyCounts) -> Matrix:
        """(d,), how many people have a value: as public as their number, unless the noisy counts show otherwise."""
        counts, deviation, n = sums.values[2], sums.deviation, self._stages.n
        if not self._missing:
            counts, deviation = np.full(self._d, counts.sum() / self._d), deviation / math.sqrt(self._d)
        if n is not None:
            counts = np.where(np.abs(counts - n) <= _SHOWN * deviation, float(n), counts)
        return np.asarray(np.maximum(counts, 1.0))

    def _look_closer(self, found: ColumnRanges, mu: float) -> float:
        """Narrow the intervals of columns far from zero; returns the mu that is left."""
        low, high = found.low.copy(), found.high.copy()
        for _ in range(_MOST_LOOKS):
            narrow = np.flatnonzero(found.narrow)
            if not len(narrow):
                break
            part, mu = split_budget(mu, _LOOK_SHARE)
            interval = found.intervals(narrow)
            found.look_closer(narrow, interval, self._stages.places(narrow, interval, _PARTS, part))
        # where looks show one value, or lose people, how far others are is not seen
        failed = found.narrow | ~found.seen
        found.low[failed], found.high[failed] = low[failed], high[failed]
        return mu

    def _shifted(self, norms: Norms) -> Preprocessing:
        """The mean as a location, where it is long; again, while its noise is not short beside the rows."""
        mapped = self._as_is
        for _ in range(_MOST_MEANS):
            bound, n = norms.quantile(_WITHIN), self._n_rows or norms.n
            total = self._stages.row_sum(unchecked(mapped, bound=bound), self._part(_MEAN_SHARE))
            mean, noise = total.values / n, total.deviation / n  # in units of the bound
            length = float(mean @ mean)
            # shrunk as James and Stein do
            kept = max(0.0, 1 - max(self._d - 2, 1) * noise**2 / length) if length else 0.0
            if kept**2 * length < _WORTH_SHIFTING:
                break
            location = (0.0 if mapped.location is None else mapped.location) + kept * bound * mean
            mapped = unchecked(mapped, is_identity=False, location=location)
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
            numbers = self._d - len(self._indicators) if self._shares_asked and mapped.scale is not None else self._d
            bound = norms.best_bound(self._n_rows or norms.n, self._d, self._stages.mu_left, numbers)
        elif quantile == 1 and norms.energy_cut:
            bound = mapped.largest * math.sqrt(self._d)
        else:
            bound = norms.quantile(quantile)
        longer = float(norms.people[norms.norms > bound].sum() / norms.people.sum())
        seen: dict[str, Any] = {"energy_kept": norms.kept(bound), "rows_clipped": longer}
        if mapped.scale is None and not 1 / _FAR <= bound <= _FAR:  # a power of two changes no digit
            unit = math.ldexp(1.0, math.frexp(bound)[1])
            return replace(mapped, bound=bound / unit, scale=np.full(self._d, unit), **seen)
        cut = norms if mapped.linear is None else mapped  # entries were cut off before rows were multiplied
        return unchecked(mapped, bound=bound, energy_cut=cut.energy_cut, rows_cut=cut.rows_cut, **seen)

    def _norms(self, mapped: Preprocessing) -> Norms:
        """Norms of mapped rows: any, or those that their entries allow where these are cut off.

        Rows that are not mixed are counted as they were before that, the far ones in a few wide bins.
        """
        first, last = NORM_STEPS * FIRST_OCTAVE, NORM_STEPS * (FIRST_OCTAVE + N_OCTAVES)
        is_cut = mapped.scale is not None and mapped.largest < self._as_is.largest
        shows_cut = is_cut and mapped.linear is None
        longest = math.sqrt(mapped.largest**2 + self._d - 1)  # of a row of which one entry is cut, typically
        if is_cut:
            end = longest if shows_cut else mapped.largest * math.sqrt(self._d)
            first, last = (math.floor(NORM_STEPS * math.log2(e)) for e in (_LEAST_NORM * math.sqrt(self._d), end))
        far = 1 + last + NORM_STEPS * np.array(_FAR_OCTAVES if shows_cut else [], dtype=np.intp)
        counted = mapped.uncut() if shows_cut else mapped
        starts = np.concatenate([np.arange(first, last + 1), far])
        histogram = self._stages.norms(counted, starts, self._part(self._shares[1]))
        counts = histogram.values
        counts[0] = 0.0  # rows of zeros have no say
        run = people_runs(counts[None], histogram.deviation, tail=0.0, noise_tail=_NORMS_TAIL)
        if not run.is_seen.all():
            return Norms(np.array([math.sqrt(self._d)]), np.ones(1))
        bins = np.arange(run.first.item(), run.last.item() + 1)
        near, people = bins <= last - first, np.maximum(counts[bins], 0.0)
        begin = np.exp2(starts[bins] / NORM_STEPS)
        norms = begin * np.where(near, 2 ** (0.5 / NORM_STEPS), _OF_FAR_NORMS)
        beyond = np.where(near, 0.0, norms**2 - longest**2)
        if shows_cut:
            norms = np.minimum(norms, math.sqrt(2) * longest)
        total = people.sum()
        return Norms(norms, people, float(beyond @ people / total), float(people[~near].sum() / total))


def _shares(n: float | None, d: int, mu: float, auto: AutoPreprocessing) -> tuple[float, float]:
    """As much as the wanted noise takes, within limits: little budgets need large shares."""
    if n is None or math.isinf(mu):
        columns, bound = _LEAST_SHARE, _LEAST_BOUND_SHARE
    else:
        columns = min(max(4 * d * (n * mu * _WANTED_NOISE) ** -2, _LEAST_SHARE), _MOST_SHARE)
        bound = min(max(2 * (n * mu * _WANTED_NOISE) ** -2, _LEAST_BOUND_SHARE), _MOST_BOUND_SHARE)
    return columns if auto.share is None else auto.share, bound


@dataclass(frozen=True, eq=False)
class Norms:
    """Norms of rows as a histogram showed them: ``people`` about each of ``norms``, ascending."""

    norms: Matrix
    people: Matrix
    energy_cut: float = 0.0  # by how much their mean square was larger before entries were cut off
    rows_cut: float = 0.0  # of this share of the rows

    @property
    def n(self) -> float:
        return max(float(self.people.sum()), 1.0)

    @property
    def mean_square(self) -> float:
        """Of the norms, by the upper ends of the bins."""
        ends = self.norms * 2 ** (0.5 / NORM_STEPS)
        return float(ends**2 @ self.people / self.people.sum())

    def quantile(self, share: float) -> float:
        """A norm that at least this share of the people do not exceed."""
        within = self.people.cumsum()
        return float(self.norms[(within >= share * within[-1]).argmax()] * 2 ** (0.5 / NORM_STEPS))

    def best_bound(self, n: float, d: int, mu: float, numbers: int | None = None) -> float:
        """The bound for the least sum of squares of the answer's noise and bias, relative to the energy kept.

        Energy is cut from ``numbers`` alone, where other columns are indicators: the root mean square of what columns
        lose is then (d/numbers)^(1/2) times as large as what all lose together. Of the lower ends of the bins: rows
        that are all a little too long lose nothing but their length.
        """
        if math.isinf(mu):
            return self.quantile(1.0)
        shares, bounds = self.people / self.people.sum(), self.norms * 2 ** (-0.5 / NORM_STEPS)
        with np.errstate(over="ignore", divide="ignore"):  # of rows of all magnitudes, the smallest may vanish
            # energy that a bound keeps, in units of its square and of all energy
            in_squares = np.minimum(np.divide.outer(self.norms, bounds) ** 2, 1.0).T @ shares
            of_all = (bounds / self.norms[-1]) ** 2 * in_squares / ((self.norms / self.norms[-1]) ** 2 @ shares)
            bias = _BIAS * math.sqrt(d / (numbers or d)) * (1 / of_all - 1)
        # the edge of the noise of a second moment and a mean (docs/mathematics.md, section 3)
        noise = 1.6 * math.sqrt(2 * d) / (n * mu) / in_squares
        return float(bounds[(noise**2 + bias**2).argmin()])

    def kept(self, bound: float) -> float:
        """The share of the squares of the norms that a bound keeps."""
        with np.errstate(over="ignore"):
            squares = (self.norms / self.norms[-1]) ** 2
            within = np.minimum(squares, (bound / self.norms[-1]) ** 2)
        return min(max(float(within @ self.people / (squares @ self.people)), LEAST_KEPT), 1.0)


def scales_of_shares(deviations: Matrix) -> Matrix:
    """(k,), scales s of the indicators of a column's k categories, for which shares of people have the least noise.

    The noise of a share is in proportion to s and to the squared length of rows, on average the sum of (deviation/s)^2.
    In units of the deviation u that all have where categories are equally large, the sum of squares of s/u, times that,
    is least for s^2 = u deviation.
    """
    k = max(len(deviations), 2)
    return np.asarray(np.sqrt(deviations * math.sqrt(k - 1) / k))


def noise_weights(variances: Matrix, noise: Matrix, n_components: int) -> Matrix:
    """(d,), the w of least error for the leading components, with a mean square of z of at most d: weights of noise.

    ``variances``, ``noise``: (d,), as they were bought, and the deviations of the noise in them. Rows x are released as
    z = x/w, clipped to a bound. With s the variances, s_K the last that is asked for and G_ij = 1/max(s_i, s_j, s_K)^2,
    q = w^2 of least error is a fixed point of q <- sqrt(s/(G q)), which halves the distance of logarithms
    (docs/mathematics.md, section 10). Where a variance is not known, rows may be as long as it may be, and what is sure
    of it is compared.
    """
    most = np.maximum(variances, 0.0) + _MAY_BE * noise
    unit = float(most.max())
    most = np.maximum(most / unit, _LEAST)
    known = np.maximum(variances - _MAY_BE * noise, _LEAST * unit) / unit
    last = np.sort(known)[-min(n_components, len(known))]
    gaps = np.maximum(np.maximum.outer(known, known), last) ** -2.0
    squares = most
    for _ in range(_ROUNDS):
        squares = np.sqrt(most / (gaps @ squares))
    return np.asarray(np.sqrt(squares * unit * (most / squares).mean()))
