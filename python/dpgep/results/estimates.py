"""Means, covariances and correlations of the columns of a release, with what is known of their errors."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from dpgep._optional import data_frame
from dpgep._show import heat_map, html_table, with_intervals
from dpgep.models.clipping import longer_by
from dpgep.models.model import Matrix
from dpgep.models.moments import (
    ReleasedMoments,
    correlations,
    mean_factor,
    schur_form_variance,
    standardization_of,
    total_mean,
)
from dpgep.models.preprocessing import Preprocessing, location_and_scale
from dpgep.models.redundant import opposites
from dpgep.results.columns import Answer, Columns, ReleasedColumns, of_unseen, on_one_thread_of_blas
from dpgep.results.intervals import RowLaw, correlation_intervals, require_law
from dpgep.sources.names import Names

# Of what a mean may have lost, the part that intervals hold.
_REACHED = 0.2
# How many times what octaves show beyond a bound may be there.
_TWICE = 2.0
# Values of this many columns are printed, and with their intervals.
_SHOWN, _WITH_INTERVALS = 10, 5
# Shares of the people who do not exceed the quartiles.
_QUARTILES = 0.25, 0.5, 0.75
# Columns in a notebook's picture, at most.
_DRAWN = 60


@dataclass(frozen=True, eq=False, repr=False)
class MatrixEstimate(Answer):
    """A symmetric matrix of columns by columns, computed from a release.

    Attributes
    ----------
    name : what it is of: "covariance", "correlation" or "partial correlation".
    values : (d, d), in the units of the columns. Noise may have made it indefinite.
    low, high : (d, d), ends of an interval for each entry of the population's matrix, one by one, at ``level``: for
        the noise and the sampling of people, to first order.
    level : the probability that an interval covers its entry.
    names : names of the columns, None where they have none.
    unseen : as in `Description`.
    left_out : indicators that were asked for, and are determined by the others of their category.
    """

    name: str
    values: Matrix
    low: Matrix
    high: Matrix
    level: float
    names: Names
    unseen: tuple[float, float] | None = None
    left_out: tuple[str, ...] = ()

    _absence: ClassVar[str] = "entries are drawn towards 0"

    def to_frame(self) -> Any:
        """The values as a pandas DataFrame, rows and columns named."""
        labels = list(self.names or range(len(self.values)))
        return data_frame(self.values.copy(), labels, labels)

    def __repr__(self) -> str:
        d, labels = len(self.values), self._labels
        title = f"{self.name} of {d} columns; low and high: intervals at {self.level:.0%}"
        lines = of_unseen(self.unseen, "  tails     ", "entries")
        if self.left_out:
            lines.append(f"  left out  {', '.join(self.left_out)}: the other indicators determine them")
        rows: list[list[str]] = []
        if d <= _WITH_INTERVALS:
            cells = zip(self.values, self.low, self.high, strict=True)
            rows = [with_intervals(*each, ".3g")[: i + 1] + [""] * (d - 1 - i) for i, each in enumerate(cells)]
        else:
            halves = (self.high - self.low)[np.triu_indices(d, 1)] / 2
            lines.append(f"  intervals +- {np.median(halves):.3g} in the median, {halves.max():.3g} at most")
            if d <= _SHOWN:
                rows = [[f"{value:.3g}" for value in row] for row in self.values]
        table = [["", *labels], *([label, *row] for label, row in zip(labels, rows, strict=True))] if rows else []
        return self._printed(title, *lines, table=table)

    @property
    def _labels(self) -> list[str]:
        return list(map(str, self.names or range(len(self.values))))

    def _repr_html_(self) -> str:
        labels = self._labels
        about = [(self.name, f"{len(labels)} columns"), ("privacy", str(self.privacy))]
        if self.name == "covariance" or len(labels) > _DRAWN:
            return html_table(about)
        above = [(i, j) for j in range(len(labels)) for i in range(j)]
        above.sort(key=lambda pair: -abs(self.values[pair]))
        largest = [f"{labels[i]}, {labels[j]}" for i, j in above[:_SHOWN]]
        values, low, high = ([each[pair] for pair in above[:_SHOWN]] for each in (self.values, self.low, self.high))
        rows = list(zip(largest, with_intervals(values, low, high, ".3g"), strict=True))
        return html_table(about) + heat_map(self.values, labels) + html_table(rows, ("largest", f"at {self.level:.0%}"))


@dataclass(frozen=True, eq=False, repr=False)
class Description(Answer):
    """Means and deviations of columns, from a release; of an indicator, its mean is the share of people.

    Attributes
    ----------
    names : (d,), of the columns; numbers as text where they have none.
    mean, mean_low, mean_high : (d,), and intervals for the population's, at ``level``, for the noise and the sampling.
    deviation, deviation_low, deviation_high : (d,), the same of standard deviations, with n - 1 in the denominator; 0
        where the noise leaves no variance.
    quartiles, quartile_low, quartile_high : (d, 3), values that 25, 50 and 75 % of the people do not exceed, by
        histograms that were bought; NaN and infinite where none were: of indicators, with a known bound, of one group.
    level : the probability that an interval covers its value, one by one.
    unseen : scales of a column, as they were bought, at which its values were cut, and how many people beyond the noise
        may hide, who are in no interval; None where nothing was cut.
    dates : places of columns that are dates: their values are days since 1970, and are printed as dates.
    """

    names: tuple[str, ...]
    mean: Matrix
    mean_low: Matrix
    mean_high: Matrix
    deviation: Matrix
    deviation_low: Matrix
    deviation_high: Matrix
    quartiles: Matrix
    quartile_low: Matrix
    quartile_high: Matrix
    level: float
    unseen: tuple[float, float] | None
    dates: tuple[int, ...] = ()

    _absence: ClassVar[str] = "deviations are smaller"

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row for each column; of dates, days since 1970."""
        fields = "mean", "mean_low", "mean_high", "deviation", "deviation_low", "deviation_high"
        values = {name.replace("_", " "): getattr(self, name) for name in fields}
        for place, share in enumerate(_QUARTILES):
            ends = {"": self.quartiles, " low": self.quartile_low, " high": self.quartile_high}
            values.update({f"{share:.0%}{end}": each[:, place] for end, each in ends.items()})
        return data_frame(values, list(self.names))

    def __repr__(self) -> str:
        about = f"{len(self.names)} columns, {self.n_people:.0f} people"
        lines = of_unseen(self.unseen, "  tails     ", "means and deviations")
        if not np.isfinite(self.quartiles).any():
            unknown = "no histograms of them were bought, as AutoPreprocessing(quartiles=0.1) does"
            lines.append(f"  quartiles unknown: {unknown}")
        title = f"{about}; intervals at {self.level:.0%}, noise and sampling"
        return self._printed(title, *lines, table=[("", *self._heading), *self._rows])

    @property
    def _heading(self) -> tuple[str, ...]:
        shares = [f"{share:.0%}" for share in _QUARTILES] if np.isfinite(self.quartiles).any() else []
        return "mean", "deviation", *shares

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        means = with_intervals(self.mean, self.mean_low, self.mean_high, ".4g", self.dates)
        deviations = with_intervals(self.deviation, self.deviation_low, self.deviation_high, ".4g")
        deviations = [text + " days" * (place in self.dates) for place, text in enumerate(deviations)]
        ends = self.quartiles.T, self.quartile_low.T, self.quartile_high.T
        quartiles = [
            np.where(np.isfinite(each[0]), with_intervals(*each, ".4g", self.dates), "").tolist()
            for each in zip(*ends, strict=True)
        ]
        return list(zip(self.names, means, deviations, *quartiles[: len(self._heading) - 2], strict=True))

    def _repr_html_(self) -> str:
        about = [("people", f"{self.n_people:.0f}"), ("privacy", str(self.privacy))]
        return html_table(about) + html_table(self._rows, ("column", f"mean, at {self.level:.0%}", *self._heading[1:]))


def mean(release: ReleasedColumns, columns: Columns = None) -> Matrix:
    """(d,), the released means of columns, in their units."""
    features = release._numbers(columns)
    noisy, preprocessing = release._moments_of(features)
    mean = total_mean(noisy)
    return mean if preprocessing is None else preprocessing.mean(mean)


def mean_intervals(
    release: ReleasedColumns, columns: Columns = None, *, level: float = 0.9, rows: RowLaw = "gaussian"
) -> Matrix:
    """(d, 2), intervals that each hold a column's mean in the population with probability ``level``."""
    require_law(level, rows)
    return means(*release._judged(release._numbers(columns)), release._row_bound, level, rows)


@on_one_thread_of_blas
def covariance(
    release: ReleasedColumns, columns: Columns = None, *, level: float = 0.9, rows: RowLaw = "gaussian"
) -> MatrixEstimate:
    """Covariances of columns, in their units, each with an interval; divided by n."""
    require_law(level, rows)
    features = release._numbers(columns)
    noisy, preprocessing = release._judged(features)
    values, low, high = covariances(noisy, preprocessing, release._row_bound, level, rows)
    return MatrixEstimate("covariance", values, low, high, level, **release._known_of(features))


@on_one_thread_of_blas
def correlation(
    release: ReleasedColumns, columns: Columns = None, *, level: float = 0.9, rows: RowLaw = "gaussian"
) -> MatrixEstimate:
    """Correlations of columns, each with an interval (`dpgep.results.intervals.correlation_intervals`).

    Entries of a column that is constant are 0, and nothing is known of them. Between the two indicators of a
    category they are -1, unless the release shows people with neither; their intervals begin there.
    """
    features = release._numbers(columns)
    noisy, preprocessing = release._judged(features, sizes=False)
    low, high = correlation_intervals(noisy, level, rows, release._row_bound)
    values = correlation_of(noisy)
    for pair in opposites(release._indicators_of(features), noisy, preprocessing):
        values[pair, pair[::-1]] = low[pair, pair[::-1]] = -1.0
    return MatrixEstimate("correlation", values, low, high, level, **release._known_of(features))


@on_one_thread_of_blas
def describe(
    release: ReleasedColumns, columns: Columns = None, *, level: float = 0.9, rows: RowLaw = "gaussian"
) -> Description:
    """Number of people, and means, standard deviations and quartiles of columns, in their units, with intervals.

    Quartiles are no second moments: they follow from the histograms by which scales were bought, and finely where
    ``AutoPreprocessing(quartiles=...)`` has bought that. A release with a known bound has none.
    """
    require_law(level, rows)
    features = release._numbers(columns)
    noisy, preprocessing = release._judged(features)
    of_means = mean(release, features), *means(noisy, preprocessing, release._row_bound, level, rows).T
    each = [np.diagonal(part) for part in covariances(noisy, preprocessing, release._row_bound, level, rows)]
    indicators = [j for group in release.model.indicators for j in group]
    variances = np.where(np.isin(features, indicators), _binary_variances(*of_means), each)
    deviations = np.sqrt(noisy.n / max(noisy.n - 1, 1.0) * np.maximum(variances, 0.0))
    quartiles = np.stack([release._quantiles(features, share, level) for share in _QUARTILES], axis=1)
    estimates: list[Any] = [*of_means, *deviations, *np.moveaxis(quartiles, 2, 0)]  # each with the ends of its interval
    estimates += [level, release._unseen, release._dates_of(features)]
    return Description(release._labels_of(features), *estimates, **release._known(noisy.n))


def _binary_variances(mean: Matrix, low: Matrix, high: Matrix) -> Matrix:
    """(3, d), variances m (1 - m) of zeros and ones with a mean m, and the ends of what it makes of m's interval."""
    ends = np.clip([mean, low, high], 0.0, 1.0)
    value, *others = ends * (1 - ends)
    holds_half = (ends[1] <= 0.5) & (ends[2] >= 0.5)
    return np.stack([value, np.minimum(*others), np.where(holds_half, 0.25, np.maximum(*others))])


def correlation_of(released: ReleasedMoments) -> Matrix:
    """The correlation matrix: scales of mapped rows cancel. A column that is constant has none: its entries are 0.

    What noise has lifted beyond 1 is 1.
    """
    served = np.flatnonzero(standardization_of(released).scale)
    part, values = released.restricted(served), np.zeros_like(released.second)
    mean = mean_factor(part)
    matrix = correlations(part.second - mean.T @ mean, standardization_of(part))
    values[np.ix_(served, served)] = np.clip(matrix, -1.0, 1.0)
    values[served, served] = 1.0
    return values


def covariances(
    released: ReleasedMoments, preprocessing: Preprocessing | None, bound: float, level: float, rows: str
) -> tuple[Matrix, Matrix, Matrix]:
    """The covariance in the units of the columns, corrected for clipping, and ends of intervals, to first order.

    The variance of an entry is that of the noise and that of people: for Gaussian rows (C_ii C_jj + C_ij^2)/n; for any
    rows within the bound b, centred no longer than r = b + |m|, at most r^2 sqrt(C_ii C_jj) (1 + [i = j])/(2 n).
    Where n was released, its noise dn moves an entry by (m_i m_j - C_ij) dn/n.
    """
    mean = mean_factor(released)
    mapped = released.second - mean.T @ mean
    d, variances = len(mapped), np.maximum(np.diagonal(mapped), 0.0)
    noise = schur_form_variance(released, np.eye(d), np.eye(d), total=1.0, within=0.0)
    noise += released.noise.counts**2 * mapped * (mapped - 2 * mean.T @ mean)
    products = np.outer(variances, variances)
    if rows == "gaussian":
        longer = 1.0 if released.clipping is None else released.clipping.people
        people = longer * (products + mapped**2) / released.n
    else:
        longest = bound + float(np.linalg.norm(mean))
        people = longest**2 * np.sqrt(products) * (1 + np.eye(d)) / (2 * released.n)
    if released.pairs is not None:
        people = people / released.pairs.shares + np.where(released.pairs.shown, 0.0, 4 * products)  # |C_ij|^2 is less
    half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(noise + people)
    below, above = (half + longer_by(half, reach, level) for reach in reach_of_covariance(released, mapped))
    scale = location_and_scale(preprocessing, d)[1]
    units = np.outer(scale, scale) / (1.0 if preprocessing is None else preprocessing.energy_kept)
    return mapped * units, (mapped - below) * units, (mapped + above) * units


def reach_of_covariance(released: ReleasedMoments, mapped: Matrix) -> tuple[Matrix, Matrix]:
    """(d, d), (d, d): how far below and above entries of the covariance may lie for what clipping may have done."""
    if released.clipping is None:
        return np.zeros_like(mapped), np.zeros_like(mapped)
    low, high = released.clipping.entries()
    low = np.minimum(low, released.clipping.covariance)  # or nothing was lost
    below, above = released.clipping.widened(mapped, low, high)
    grown = released.clipping.grown(mapped)
    return np.maximum(below, mapped - grown), np.maximum(above, grown - mapped)


def means(
    released: ReleasedMoments, preprocessing: Preprocessing | None, bound: float, level: float, rows: str
) -> Matrix:
    """(d, 2), ends of intervals of the means of columns, in their units, for the noise and the sampling of people.

    For any rows within the bound b, a variance is at most b^2.
    """
    mean, noise = total_mean(released), released.noise
    variances = np.maximum(np.diagonal(released.second) - mean**2, 0.0)
    if rows == "bounded":
        variances = np.full(len(mean), bound**2)
    of_noise = released.sums.shape[1] * noise.sums**2 + (mean * noise.counts) ** 2
    if released.pairs is not None:
        of_noise, variances = released.pairs.of_means, variances / released.pairs.people
    half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(of_noise + variances / released.n)
    bought, *tails = reach_of_means(released, preprocessing, bound)
    below, above = (
        half + longer_by(half, np.hypot(np.maximum(moved, 0.0), tail), level)
        for moved, tail in zip((mean - bought, bought - mean), tails, strict=True)
    )
    ends = mean - below, mean + above
    return np.column_stack([end if preprocessing is None else preprocessing.mean(end) for end in ends])


def reach_of_means(
    released: ReleasedMoments, preprocessing: Preprocessing | None, bound: float
) -> tuple[Matrix, Matrix, Matrix]:
    """(d,) each: means of mapped columns as they were bought, which intervals hold, and how much longer they are below,
    and above.

    A bought bound shortens long rows, and moves the mean of a skewed column. Its location, which was bought as a mean
    of the rows before that, is not moved: an interval holds what lies between the two, and in part what the mean may
    have lost: E (1 - c) |x_j| <= sqrt(P(c < 1) M_jj), P(c < 1) as the histogram of norms shows it, whatever columns are
    asked for, or about tr M/b^2 (`dpgep.models.clipping`); and twice what octaves show beyond. A location that was
    bought of others, as of everybody for one group, says nothing of their mean.
    """
    mean, clipping = total_mean(released), released.clipping
    if clipping is None:
        return mean, np.zeros_like(mean), np.zeros_like(mean)
    tails = np.maximum(clipping.most - np.maximum(np.diagonal(clipping.covariance), 0.0), 0.0)
    located = preprocessing is not None and preprocessing.variance_error is not None
    shortened = max(
        float(clipping.tails.sum()) / bound**2, 0.0 if preprocessing is None else preprocessing.rows_clipped
    )
    reached = _REACHED * np.sqrt(min(shortened, 1.0) * tails)
    shift = np.zeros_like(mean) if clipping.shift is None else _TWICE * clipping.shift
    return np.zeros_like(mean) if located else mean, np.maximum(reached, -shift), np.maximum(reached, shift)
