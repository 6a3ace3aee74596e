"""The public map of rows that preprocessing has found: z = linear^T (x - location)/scale, clipped to a bound.

The model is fitted to the z. Its components v act on them, so that those of the rows are (linear v)/scale.

Released moments are corrected for the shrinkage caused by clipping (docs/mathematics.md, section 10): a bound that is
bought from the budget cuts some percent of the sum of squares, and more along leading directions, along which long rows
lie. What else may have been there is a `Clipping`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep._checks import NonNegative, Positive, Share, check_fields, quoted, require_share, unchecked, whole_number
from dpgep._show import Shown
from dpgep.models.bins import Histograms, Magnitudes
from dpgep.models.clipping import Clipping
from dpgep.models.model import Matrix, Model
from dpgep.models.moments import ReleasedMoments, in_one_group, mean_factor, total_mean
from dpgep.models.null import spectrum_before_noise
from dpgep.models.pairwise import part_of_values, require_pairs
from dpgep.serialization import NOT_STORED

# Where entries of mapped rows are cut off at the latest, so that no sum of their squares overflows.
_LARGEST = 2.0**500
# No number of preprocessing is larger, and none that it divides by smaller than the inverse.
_EXTREME = 2.0**510
# Share of all energy that a bound keeps at least, as far as is said: rows of all magnitudes may leave less.
LEAST_KEPT = 1e-100
_MOST_CONDITION = 1e12  # of a matrix by which rows are multiplied


@dataclass(frozen=True)
class AutoPreprocessing:
    """How a bound is bought from the budget of a run, and with it location and scale where the model allows.

    Attributes
    ----------
    ranges : public ranges of columns, {column: (low, high)}, by number or, of tables, by name: they make the stages
        cheaper. Values beyond are counted at the ends while location and scale are looked for.
    share : share of mu^2 for location and scale. Default: as little as serves n people, d columns and this budget.
    quantile : share of the people whose rows are not to be cut to the bound. Default: what balances noise and bias;
        eigenvalues want a larger one than directions.
    precondition : "columns": every column gets a location and a scale, where the model's answer allows. "full": after
        that, a quarter of mu^2 buys a covariance, under whose inverse root (of each view) the final rows are about
        uncorrelated: for columns that are strongly correlated, in CCA, FDA and SIR; not for sparse solutions. None:
        neither. "auto": "columns" where n mu is at least d^1.5 (in plain PCA 10 d^1.5: columns are divided by weights
        of noise there, and the answer is in their units), and "full" where `dpgep.solve` is asked for a solution
        in all columns and n mu is at least 50 d^1.5.
    quartiles : share of mu^2 for finer histograms of the columns, from which `dpgep.Release.describe` has quartiles;
        where columns get a location and a scale. Default: those by which these are found show the octaves of quartiles.
    missing : "error"; "center": an absent value (NaN) counts as the location of its column, or as 0 where columns get
        none; or "pairwise", where there are no groups: covariances of two columns are those of the people who have
        both. That holds more noise, and "center" draws correlations towards zero. Each column's location and scale are
        those of the values that are there.
    """

    ranges: Mapping[str | int, tuple[float, float]] = field(default_factory=dict)
    share: Share | None = None
    quantile: float | None = None
    quartiles: Share | None = None
    precondition: Literal["auto", "columns", "full"] | None = "auto"
    missing: Literal["error", "center", "pairwise"] = "error"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.quantile not in (None, 1):
            require_share("quantile", self.quantile)
        if self.quartiles is not None and self.precondition is None:
            raise ValueError("quartiles are bought within the scales of columns: leave out precondition=None")
        if self.missing == "pairwise" and self.precondition == "full":
            raise ValueError('precondition="full" mixes columns, and missing="pairwise" is about pairs: use "columns"')

    def for_columns(self, n_columns: int, names: Sequence[str] | None) -> AutoPreprocessing:
        """The same with the numbers of columns for their names. Raises ValueError for ranges of others, or none."""
        if not self.ranges:
            return self
        numbers = {} if names is None else {name: number for number, name in enumerate(names)}
        ranges: dict[str | int, tuple[float, float]] = {
            _column(column, n_columns, numbers): _range(column, ends) for column, ends in self.ranges.items()
        }
        if len(ranges) < len(self.ranges):
            raise ValueError("ranges name a column twice, by its name and by its number")
        return replace(self, ranges=ranges)


def takes_missing(preprocessing: Preprocessing | None) -> bool:
    """Whether NaN is an absent value, which is mapped to 0."""
    return preprocessing is not None and preprocessing.missing


def _column(column: object, n_columns: int, numbers: Mapping[str, int]) -> int:
    number = numbers.get(column) if isinstance(column, str) else whole_number(column)
    if number is None or not 0 <= number < n_columns:
        known = ", ".join(map(repr, list(numbers)[:20])) or f"0 to {n_columns - 1}"
        raise ValueError(f"ranges are of columns {known}, not of {quoted(column)}")
    return number


def _range(column: object, ends: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = map(float, ends)
    except (TypeError, ValueError):
        low = high = math.nan
    if not max(abs(low), abs(high)) <= _LARGEST or high - low < 1 / _LARGEST:
        raise ValueError(
            f"the range of column {quoted(column)} must be (low, high), ascending, of numbers up to 3e150, got {ends!r}"
        )
    return low, high


def location_and_scale(preprocessing: Preprocessing | None, d: int) -> tuple[Matrix, Matrix]:
    """(d,) each, of columns: 0 and 1 where rows are not shifted, or not divided."""
    location, scale = (None, None) if preprocessing is None else (preprocessing.location, preprocessing.scale)
    return np.zeros(d) if location is None else location, np.ones(d) if scale is None else scale


ColumnMap: TypeAlias = tuple[Matrix | None, Matrix | None, float, bool]  # location, scale, largest, missing


@dataclass(frozen=True, eq=False, repr=False)
class Preprocessing(Shown):
    """Where columns lie, how far they spread, and how long rows are: all public.

    Attributes
    ----------
    bound : enforced bound on the norm of mapped rows.
    location : (d,), subtracted from rows; None where nothing is.
    scale : (d,), positive; rows are divided by it. None where they are not.
    linear : (d, d), by which rows are then multiplied; None where they are not. Rounded so that every product is exact.
    largest : entries are cut off at this magnitude, before that: one wild entry must not cost its row.
    missing : whether NaN is an absent value, which is mapped to 0; else it is refused.
    pairwise : whether what is absent is released besides, for covariances over the people who have both columns.
    energy_kept : fraction of the total squared norm left after clipping, estimated from the released histogram.
    variance_error : (d,), relative deviations of the noise in the variances of the columns, bought as squares of
        ``scale`` or as ``variance``; None where they were not, and say nothing of them, as from 2 on.
    unsure : columns whose scale neither the budget nor released moments showed: it may be wrong by any factor.
    unseen : of these, columns whose interval may not hold most people: no moments of what was cut off show their scale.
    variance : (d,), variances of the columns in units of the squares of ``scale``, as they were bought, where ``scale``
        weighs noise and is no deviation; else None.
    energy_cut : mean square that rows lost where entries were cut off, in units of the scales: as a released histogram
        of norms shows it, so that it may be more or less. From which columns is not known: some have their part of it.
    rows_clipped, rows_cut : shares of the people whose mapped rows are longer than the bound, and whose rows are so
        long that an entry was cut off, as the same histogram shows them.
    n_present : (d,), how many people have a value, as noisy counts show it, where ``missing`` ones count as locations.
    magnitudes : noisy counts of the values of columns over octaves, as they were bought; None where they were not.
    places : the same over equal parts of an interval about where a column has values.
    is_identity : whether rows stay as they are, but for the bound.
    """

    bound: Positive
    location: Matrix | None = None
    scale: Matrix | None = None
    linear: Matrix | None = None
    largest: Positive = _LARGEST
    missing: bool = False
    energy_kept: Positive = 1.0
    variance_error: Matrix | None = None
    unsure: tuple[int, ...] = ()
    pairwise: bool = False
    variance: Matrix | None = None
    energy_cut: NonNegative = 0.0
    rows_clipped: NonNegative = 0.0
    rows_cut: NonNegative = 0.0
    n_present: Matrix | None = None
    magnitudes: Magnitudes | None = None
    places: Histograms | None = None
    unseen: tuple[int, ...] = ()
    is_identity: bool = field(init=False, repr=False, metadata=NOT_STORED)

    @property
    def of_columns(self) -> ColumnMap:
        """How each column is mapped, as kernels take it."""
        return self.location, self.scale, self.largest, self.missing

    def __post_init__(self) -> None:
        maps = any(part is not None for part in (self.location, self.scale, self.linear)) or self.missing
        object.__setattr__(self, "is_identity", not maps)
        check_fields(self)
        if self.pairwise and (not self.missing or self.linear is not None):
            raise ValueError("pairwise is of columns with missing values, not of mixtures of columns")
        if min(self.bound, self.largest) < 1 / _EXTREME or max(self.bound, self.largest) > _EXTREME:
            raise ValueError(f"bound and largest must be between {1 / _EXTREME:.3g} and {_EXTREME:.3g}")
        if not LEAST_KEPT <= self.energy_kept <= 1:
            raise ValueError(f"energy_kept must be from {LEAST_KEPT:g} to 1, got {self.energy_kept!r}")
        for name, part in self.parts().items():
            if part is not None:
                array = np.array(part, dtype=np.float64)
                ndim, what = (2, "square matrix") if name == "linear" else (1, "vector")
                if array.ndim != ndim or len(set(array.shape)) > 1 or not (np.abs(array) <= _EXTREME).all():
                    raise ValueError(f"{name} must be a finite {what}")
                object.__setattr__(self, name, array)
        if self.variance_error is not None and (self.scale is None or not (self.variance_error >= 0).all()):
            raise ValueError("variance_error must be non-negative, of a scale that was bought")
        if self.variance is not None and (self.scale is None or not (self.variance >= 0).all()):
            raise ValueError("variance must be non-negative, in units of a scale")
        if self.n_present is not None and not (self.missing and not self.pairwise and (self.n_present > 0).all()):
            raise ValueError("n_present must be positive, of columns whose missing values count as locations")
        known = 0 if self.scale is None else len(self.scale)
        lengths = {len(part) for part in (self.location, self.scale) if part is not None}
        for name, counts in zip(("magnitudes", "places"), self._counts, strict=True):
            if counts is not None and lengths - {len(counts)}:
                raise ValueError(f"{name} must be of the columns of location and scale")
        if len(set(self.unsure)) < len(self.unsure) or not all(0 <= j < known for j in self.unsure):
            raise ValueError("unsure must be columns of a scale, each once")
        if self.scale is not None and not (self.scale >= 1 / _EXTREME).all():
            raise ValueError(f"scale must be positive, at least {1 / _EXTREME:.3g}")
        if self.linear is not None:
            if np.linalg.cond(self.linear) > _MOST_CONDITION:
                raise ValueError("linear must be invertible: its condition number is at most 1e12")
            for _ in range(2):  # where rounding lifts the longest column over a power of two, the grid is coarser
                longest = float(np.linalg.norm(self.linear, axis=0).max())
                object.__setattr__(self, "linear", _on_grid(self.linear, _bits_for(longest)))

    def uncut(self) -> Preprocessing:
        """The same without a limit to entries."""
        return unchecked(self, largest=_LARGEST)

    @property
    def mixes_columns(self) -> bool:
        """Whether features of mapped rows are no columns of the table."""
        return self.linear is not None

    def present(self, n: float) -> Matrix | float:
        """(d,), shares of n people who have a value, by which a mapped column has less variance than its values."""
        return 1.0 if self.n_present is None else np.minimum(self.n_present / n, 1.0)

    def released_bound(self, n_columns: int) -> float:
        """The bound on what a person adds to a release: mapped rows, or these and the marks of what is absent."""
        return self.bound / part_of_values(n_columns) if self.pairwise else self.bound

    @property
    def bits(self) -> int:
        """Mapped rows are rounded to the grid of 2^-bits before they are multiplied by ``linear``.

        Both factors are then integers, in units of a power of two, of norms below 2^26: partial sums are below 2^52,
        and no order of additions rounds. The image of a row is a function of that row alone, to the last bit.
        """
        assert self.linear is not None
        return _bits_for(self.largest * math.sqrt(len(self.linear)))

    def components(self, vectors: Matrix) -> Matrix:
        """Components (K, d) of rows x from components of mapped rows, of unit norm in units of the scales."""
        if self.linear is not None:
            vectors = vectors @ self.linear.T
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors if self.scale is None else vectors / self.scale

    def eigenvalues(self, values: Matrix) -> Matrix:
        """Eigenvalues of a model that depends on scales, whose rows have one scale, in the units of the rows.

        That rows cut to the bound have less variance is made up for, as if it were so in all directions alike.
        """
        return values / self.energy_kept if self.scale is None else values / self.energy_kept * self.scale[0] ** 2

    def spread(self, scale: Matrix) -> Matrix:
        """Deviations of columns from deviations of mapped rows."""
        return scale if self.scale is None else scale * self.scale

    def mean(self, mean: Matrix) -> Matrix:
        """The mean of rows x from that of mapped rows."""
        if self.linear is not None:
            mean = np.linalg.solve(self.linear.T, mean)
        if self.scale is not None:
            mean = mean * self.scale
        return mean if self.location is None else mean + self.location

    def restricted(self, features: NDArray[np.intp], bound: float | None = None) -> Preprocessing:
        """The same for some of the features, rows clipped to a bound of their own if one is given."""
        assert self.linear is None  # refused before: `Options.require_separate_columns`
        parts: dict[str, Any] = {name: None if part is None else part[features] for name, part in self.parts().items()}
        return replace(
            self,
            bound=self.bound if bound is None else bound,
            unsure=tuple(np.flatnonzero(np.isin(features, self.unsure)).tolist()),
            unseen=tuple(np.flatnonzero(np.isin(features, self.unseen)).tolist()),
            energy_cut=0.0 if self.scale is None else self.energy_cut * len(features) / len(self.scale),
            magnitudes=None if self.magnitudes is None else self.magnitudes.restricted(features),
            places=None if self.places is None else self.places.restricted(features),
            **parts,
        )

    def of_others(self) -> Preprocessing:
        """The same map, of rows that it was not bought of: nothing else is known of them."""
        return replace(self, variance=None, variance_error=None, magnitudes=None, places=None)

    def shown_by(self, released: ReleasedMoments) -> Preprocessing:
        """The same, with scales as sure that released moments of the rows show to be about deviations of the columns.

        The variance of a scaled column, in units of what the bound keeps, is then about 1, its mean about 0, as entries
        may have been cut off about a wrong location, and the column alone does not make rows as long as the bound.
        """
        if not self.unsure or self.variance is not None:
            return self
        moments, gain = in_one_group(released), 1.0
        mean, second = mean_factor(moments), moments.second
        if self.linear is not None:
            back = np.linalg.inv(self.linear)
            mean, second, gain = mean @ back, back.T @ second @ back, np.square(back).sum(axis=0)
        part = self.energy_kept * self.present(released.n)
        noise = _SHOWN * moments.noise.second * np.sqrt(moments.profile_of_squares) * gain
        before, squares = second.diagonal(), np.square(mean).sum(axis=0)
        most = np.minimum(_ABOUT * part, gain * self.bound**2 / 2)
        shown = (before - squares - noise > part / _ABOUT) & (before + noise < most) & (squares < part / 4)
        return unchecked(self, unsure=tuple(j for j in self.unsure if j in self.unseen or not shown[j]))

    def quantiles(self, share: float, level: float) -> Matrix | None:
        """(d, 3), quantiles of columns and intervals, by the finest counts of each; None where none were bought."""
        found = None if self.magnitudes is None else self.magnitudes.histograms.quantiles(share, level)
        if self.places is None:
            return found
        placed = self.places.quantiles(share, level)
        return placed if found is None else np.where(np.isfinite(self.places.deviation)[:, None], placed, found)

    def parts(self) -> dict[str, Matrix | None]:
        """The arrays, by name."""
        names = "location", "scale", "linear", "variance_error", "variance", "n_present"
        return {name: getattr(self, name) for name in names}

    @property
    def _counts(self) -> tuple[Matrix | None, Matrix | None]:
        magnitudes, places = self.magnitudes, self.places
        return None if magnitudes is None else magnitudes.counts, None if places is None else places.counts

    def require_columns(self, d: int) -> None:
        """Raise ValueError for another number of columns."""
        for part in (*self.parts().values(), *self._counts):
            if part is not None and len(part) != d:
                raise ValueError(f"this preprocessing is of {len(part)} columns, not of {d}")

    def require_fits(self, model: Model) -> None:
        """Raise ValueError for a model of other columns, or one whose answer this would change."""
        self.require_columns(model.n_features)
        if self.pairwise:
            require_pairs(model)
        changes, traits = [], model.traits
        if self.location is not None and not traits.shift_free:
            changes.append("location")
        serves_scales = traits.scale_free or traits.is_covariance or traits.by_group  # solved in units of the columns
        if self.scale is not None and not serves_scales and np.ptp(self.scale) > 0:
            changes.append("scale")
        if self.linear is not None:
            within = scipy.linalg.block_diag(*(self.linear[view, view] for view in model.views))
            if not (traits.linear_free and np.array_equal(within, self.linear)):
                changes.append("linear")
        if changes:
            raise ValueError(
                f"the {' and '.join(changes)} of this preprocessing would change the answer of {model.name}: use one "
                "that was bought for it"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Preprocessing):
            return NotImplemented
        names = [each.name for each in fields(self) if each.name not in ("magnitudes", "places")]
        mine, others = ([*(getattr(each, name) for name in names), *each._counts] for each in (self, other))
        return all(map(np.array_equal, mine, others))

    __hash__ = None  # type: ignore[assignment]


def _bits_for(longest: float) -> int:
    """Bits below the point that leave vectors of this norm, rounded, integers of norms below 2^26."""
    return 25 - math.frexp(longest)[1]


def _on_grid(values: Matrix, bits: int) -> Matrix:
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, bits)), -bits))


# A public bound on row norms; "auto": one that is bought from the budget.
Bound = float | Literal["auto"]


# Entries of the Gaussian rows that an expectation is averaged over, the same in every run, and rounds of the equation.
_SEED, _ENTRIES, _ROUNDS = 0x636C6970, 1 << 19, 4
_LEAST_RATIO = 1e-3  # the least share of a variance that clipping is taken to leave
# Deviations by which a column lacks variance that was not made up for; the most that is said to be lost; least doubt.
_SURE, _MOST_LOST, _LEAST_DOUBT = 2.0, 0.95, 0.3
# Of what variances may be larger by: for rows as long as Student's, at most; for people whom the noise of a histogram
# of norms hides beyond the bound, in deviations of the noise that the same bound gives a mean square; the most of that.
_OF_TAILS, _HIDDEN, _MOST_HIDDEN = 0.25, 26.0, 3.0
# What rows five times as long as others hold of the variances, if they are as many as the noise of the histogram, 5.7
# times that of the second moment in squared bounds, hides in five bins at 2.5 deviations: beyond 1, it is warned of.
_FAR = 5.0**2 * 2.5 * math.sqrt(5) * 5.7
# Relative deviation of its noise from which on a bought variance tells nothing, as of a rare indicator.
VARIANCE_UNTOLD = 2.0
# How many times what is missing of its bought variance a column had lost, in the median of public tables.
_GROWN = 2.5
# How many times what is put back a column may have lost at most: rows are like Gaussian ones together, one column not.
_ALONE = 3.1
# How many times what octaves show beyond a bound may be there; the most of it, in squared deviations.
_TWICE, _MOST_TAILS, _LEAST_TAILS, _AT_LEAST, _SURELY, _PERHAPS = 1.5, 20.0, 0.03, 1, 2, 6
# A sum of variances of this many deviations is shown: what is nearer to zero is taken to be less, or none.
_SHOWN = 3.0
# A variance of a scaled column within this factor of 1 shows that the scale is right to a factor of 3, with room for
# what the bound takes from one column more than from others.
_ABOUT = 5.0
_RESOLUTION = 0.004  # to this the histogram's bins show which share is kept
_FREEDOM = 5  # degrees of freedom of Student's law, which rows with long tails are compared with


def unclipped(
    released: ReleasedMoments, preprocessing: Preprocessing | None, indicators: Sequence[Sequence[int]] = ()
) -> tuple[ReleasedMoments, Preprocessing | None]:
    """Moments before the clipping, and preprocessing whose bound keeps everything; those of groups as they are.

    ``indicators``: the columns of zeros and ones of each category, whose variances follow from their means.
    """
    if preprocessing is None or preprocessing.energy_kept == 1 or released.sums.shape[1] > 1:
        return released, preprocessing
    mean = mean_factor(released)
    covariance = released.second - mean.T @ mean
    # shares of the columns' variances that are left, and deviations of these
    binary = np.array([j for group in indicators for j in group], dtype=np.intp)
    expected, error = _before_clipping(released, preprocessing, binary)
    profile = np.broadcast_to(released.profile, covariance.shape).diagonal()
    left = np.where(np.isfinite(error), np.diagonal(covariance) / expected, 1.0)
    left_error = np.hypot(error, released.noise.second * np.sqrt(profile) / expected)
    values, axes = scipy.linalg.eigh(covariance, check_finite=False)
    variances = _variances_before_noise(values, released.noise.second, preprocessing.bound)
    total = float(expected.sum())
    whole = float(expected @ left) / total, float(np.linalg.norm(expected * left_error)) / total
    factors, kept, of_gaussian = _factors(variances, preprocessing.bound, preprocessing.energy_kept, *whole)
    restored = (axes * (values * factors)) @ axes.T
    before, after = np.diagonal(restored), np.maximum(np.diagonal(covariance), 0.0)
    made_up = 1 - np.divide(after, before, out=np.ones(len(left)), where=before > after)
    lost = np.minimum(np.maximum(made_up, 1 - left - _SURE * left_error), _MOST_LOST)
    unlike = max(abs(kept - of_gaussian) - _RESOLUTION, 0.0) / max(1 - min(kept, of_gaussian), 1e-300)
    without_tails = max(_LEAST_DOUBT, unlike, float((1 - made_up / np.maximum(lost, 1e-300)).max()))
    longer = unlike if kept < of_gaussian else 0.0
    of_variances = released.noise.second * math.sqrt(profile.mean())
    hidden = _HIDDEN * of_variances / max(float(before.sum()), of_variances, 1e-300)
    far = _FAR * released.noise.second / preprocessing.bound**2
    held = min(_OF_TAILS * longer, far) + min(hidden, _MOST_HIDDEN)
    shown = np.array(octave_losses(preprocessing, np.maximum(before - after, 0.0)))
    shown *= not preprocessing.mixes_columns
    tails, _, longest, shift = np.clip(shown, -_MOST_TAILS, _MOST_TAILS)
    missing = np.where(lost > made_up, (_GROWN - 1) * (1 - left), 0.0)  # tails of its own, seen in part
    missing[binary] = 0.0
    told = left_error < VARIANCE_UNTOLD
    # what a column varied more when its variance was bought, as far as that is no noise, or noise may hide long rows
    more, error = np.where(told, expected - before, 0.0), expected * left_error
    sure = 1 - np.divide(error, more, out=np.ones_like(more), where=more > error) ** 2
    bought = before + np.maximum(sure, min(far, 1.0)) * np.where(told, more + error + missing * expected, 0.0)
    alone = after + _ALONE * np.maximum(before - after, 0.0)
    most = np.max([bought, before * (1 + held), alone, before + _TWICE * longest], axis=0)
    if len(binary) and mean.size:  # a share lies between the bought and the released one
        scale = location_and_scale(preprocessing, len(left))[1]
        most[binary] = np.clip(expected + error + np.abs(mean[0]) / scale, before, most)[binary]
    seen = np.divide(after, before + tails, out=np.ones(len(left)), where=tails > 0)
    lost = np.maximum(lost, np.minimum(1 - seen, _MOST_LOST))
    doubt = min(max(without_tails, float((1 - made_up / np.maximum(lost, 1e-300)).max())), 1.0)
    unseen = far if far > 1 else held
    clipping = Clipping(covariance, lost, doubt, most, 1 + 2 * longer, unseen, shift, min(without_tails, 1.0))
    scaled = released.noise.scaled(1 / kept, 1.0, 1.0)
    moments = replace(released, second=restored + mean.T @ mean, noise=scaled, clipping=clipping)
    return moments, replace(preprocessing, energy_kept=1.0)


def _before_clipping(
    released: ReleasedMoments, preprocessing: Preprocessing, binary: NDArray[np.intp]
) -> tuple[Matrix, Matrix]:
    """(d,) each: variances of mapped columns before clipping, as they were bought, or of zeros and ones (``binary``) by
    their means; and relative deviations, inf where nothing shows them.
    """
    d = len(released.second)
    expected, error = np.ones(d), np.full(d, np.inf)
    if preprocessing.mixes_columns:
        return expected, error
    if preprocessing.variance is None and preprocessing.variance_error is not None:
        expected *= preprocessing.present(released.n)
        error[:] = preprocessing.variance_error
    if len(binary) and released.sums.size:
        location, scale = (each[binary] for each in location_and_scale(preprocessing, d))
        share = np.clip(location + scale * total_mean(released)[binary], 0.0, 1.0)
        noise = released.noise.sums / scale
        expected[binary] = np.maximum(share * (1 - share) / scale**2, np.maximum(noise, 1e-300))
        error[binary] = np.abs(1 - 2 * share) * noise / expected[binary]
    return expected, error


def octave_losses(preprocessing: Preprocessing, made_up: Matrix) -> tuple[Matrix, ...]:
    """(d,) each: what octaves show that clipping took of variances of scaled columns, less what was ``made_up``: at
    least, as likely more as less, and at most; and of means (`Magnitudes.beyond`). 0 where that is not sure, but for
    what it may be at most (`Magnitudes.far`). A column that is mixed with others is as long as its image.
    """
    d, magnitudes, linear = len(made_up), preprocessing.magnitudes, preprocessing.linear
    if magnitudes is None:
        return (np.zeros(d),) * 4
    location, scale = location_and_scale(preprocessing, d)
    image = None if linear is None else np.linalg.norm(linear, axis=1)
    squares, shifts = magnitudes.beyond(location, scale, preprocessing.bound, image)
    ordered = np.sort(np.maximum(squares - made_up, 0.0), axis=0)
    sure = ordered[_SURELY] > _LEAST_TAILS
    found = *ordered[[_AT_LEAST, len(ordered) // 2, _PERHAPS]], np.median(shifts, axis=0)
    least, likely, most, shift = (np.where(sure, each, 0.0) for each in found)
    if linear is None:
        most = np.maximum(most, magnitudes.far(location, scale, preprocessing.bound) - made_up)
    return least, likely, most, shift


def _variances_before_noise(values: Matrix, noise: float, bound: float) -> Matrix:
    """Those of clipped rows along axes, from released ones, ascending: less, the less the noise shows of their sum."""
    found = spectrum_before_noise(values[::-1], noise)[::-1]
    total = min(float(values.sum()), bound**2)
    if total <= 0:
        return np.zeros_like(values)
    shown = 1 - (_SHOWN * noise / total) ** 2 * len(values)
    return np.asarray(found * (max(shown, 0.0) * total / float(found.sum())))


def _factors(
    clipped: Matrix, bound: float, kept: float, left: float = 1.0, left_error: float = np.inf
) -> tuple[Matrix, float, float]:
    """t_i/l_i; the share k of all squares that the bound keeps, and what it would keep of Gaussian rows, r.

    Where ``kept``, by the histogram, is more than r, rows are shorter than Gaussian ones, or noise hides the longest:
    how much is ``left`` of the variances decides, as far as its error allows. Where it is less, rows are taken to be so
    far between Gaussian ones and those of Student's law that they lose as much.
    """
    d, generator = len(clipped), np.random.default_rng(_SEED)
    squares = generator.standard_normal((max(_ENTRIES // d, 1), d)) ** 2
    stretched = (_FREEDOM - 2) / generator.chisquare(_FREEDOM, len(squares))
    factors, k, mean = np.full(d, 1 / kept), kept, kept
    for _ in range(_ROUNDS):
        variances = clipped * factors
        ratios, mean = _kept_of(squares, variances, bound, np.ones(len(squares)))
        if kept > mean:
            known = (kept - mean) ** 2 / ((kept - mean) ** 2 + left_error**2)
            k = mean + known * (min(max(left, mean), kept) - mean)
            factors = 1 / (1 - (1 - ratios) * (1 - k) / max(1 - mean, 1e-300))
        else:
            of_long, less = _kept_of(squares, variances, bound, stretched)
            share = min((mean - kept) / max(mean - less, 1e-300), 1.0)
            k, ratios = kept, ratios + share * (of_long - ratios)
            factors = (mean + share * (less - mean)) / (kept * ratios)
    return np.asarray(factors), k, mean


def _kept_of(squares: Matrix, variances: Matrix, bound: float, stretched: Matrix) -> tuple[Matrix, float]:
    """Shares that the bound keeps of each variance, and of their sum, for squared rows ``stretched`` as much."""
    lengths = (squares @ variances) * stretched
    cut = stretched * (1 - np.minimum(bound**2 / np.maximum(lengths, 1e-300), 1.0))
    # where all but nothing is cut, too few rows are averaged over to say how little is left
    ratios = np.maximum(1 - cut @ squares / (len(squares) * stretched.mean()), _LEAST_RATIO)
    total = float(variances.sum())
    return ratios, float(ratios @ variances) / total if total > 0 else 1.0
