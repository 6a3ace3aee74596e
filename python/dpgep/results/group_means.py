"""Means of columns by a categorical column of a release, their differences, and the analysis of their variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpgep._optional import data_frame
from dpgep._show import html_table, interval_picture, with_intervals
from dpgep.models.clipping import longer_by
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, total_mean
from dpgep.models.pairwise import require_no_pairs
from dpgep.models.preprocessing import location_and_scale
from dpgep.results.columns import Answer, Columns, ReleasedColumns, of_hidden, on_one_thread_of_blas
from dpgep.results.contingency import Variables, indicators_of, joint, reach_of_shares
from dpgep.results.estimates import reach_of_means
from dpgep.results.intervals import RowLaw, require_law

# Deviations of the noise in a share of people from which on a group has means.
_SHOWN = 4.0


@dataclass(frozen=True, eq=False, repr=False)
class GroupMeans(Answer):
    """Means of p columns in k groups of people, from a release.

    Attributes
    ----------
    category : the column whose categories are the ``groups``; the last, "(not listed)", has everybody without, where
        the release shows any.
    names : (p,), of the columns.
    counts : (k,), people in each group.
    means, low, high : (k, p), in the units of the columns, and intervals for the population's, at ``level``, for the
        noise and the sampling of people. Of a group that the noise drowns nothing is known: its intervals are infinite.
    noise_errors, people_errors : (k, p), standard errors of the means, by the noise and by people being a sample.
    differences, difference_low, difference_high : (p, k, k), the mean of one group less that of another, and intervals.
    sum_squares : (p, 2), between groups, with what the noise adds on average taken off, and within.
    degrees : k - 1 and n - k.
    f, p_values : (p,), of the hypothesis that all groups have the same mean, corrected for the noise.
    noise_share : (p,), the part of noise in the variance of contrasts that F expects without differences.
    least_p_values : (p,), p-values where clipping has made none of the differences; ``p_values`` grant all it may have.
    level : the probability that an interval covers its value, one by one.
    dates : places of columns that are dates: their values are days since 1970, and are printed as dates.
    """

    category: str
    groups: tuple[str, ...]
    names: tuple[str, ...]
    counts: Matrix
    means: Matrix
    low: Matrix
    high: Matrix
    noise_errors: Matrix
    people_errors: Matrix
    differences: Matrix
    difference_low: Matrix
    difference_high: Matrix
    sum_squares: Matrix
    degrees: tuple[int, float]
    f: Matrix
    p_values: Matrix
    noise_share: Matrix
    least_p_values: Matrix
    level: float
    dates: tuple[int, ...] = ()

    _absence: ClassVar[str] = "means are drawn together"

    def to_frame(self) -> Any:
        """The means as a pandas DataFrame, a row for each group, as `groupby(category).mean()` has them."""
        return data_frame(self.means.copy(), self.groups, list(self.names), name=self.category)

    def differences_frame(self) -> Any:
        """A pandas DataFrame, a row for each column and two of the groups: difference of means, and its interval."""
        later, earlier = np.tril_indices(len(self.groups), -1)
        columns, labels = np.repeat(self.names, len(later)), np.array(self.groups, dtype=object)
        index = [columns, *(np.tile(labels[each], len(self.names)) for each in (later, earlier))]
        ends = {"difference": self.differences, "low": self.difference_low, "high": self.difference_high}
        values = {name: each[:, later, earlier].ravel() for name, each in ends.items()}
        return data_frame(values, index, name=["column", "group", "less"])

    def anova(self) -> Any:
        """A pandas DataFrame, two rows for each column, between groups and within: sums of squares, F, p-value.

        With noise F is not the ratio of mean squares: each contrast counts by the noise in it (docs/questions.md).
        """
        degrees, squares = np.tile(self.degrees, len(self.names)), self.sum_squares.ravel()
        values = {"sum of squares": squares, "degrees of freedom": degrees}
        values["mean square"] = squares / np.where(degrees > 0, degrees, np.nan)
        for key, test in {"F": self.f, "p": self.p_values}.items():
            values[key] = np.column_stack([test, np.full(len(test), np.nan)]).ravel()
        index = [np.repeat(self.names, 2), ["between", "within"] * len(self.names)]
        return data_frame(values, index, name=["column", "source"])

    def __repr__(self) -> str:
        title = (
            f"Means of {len(self.names)} column{'s' * (len(self.names) > 1)} by {self.category}, "
            f"{self.n_people:.0f} people; intervals at {self.level:.0%}, noise and sampling"
        )
        hidden = of_hidden("F", self.names, self.noise_share, self.least_p_values, self.p_values)
        people = [f"{group} ({count:.0f})" for group, count in zip(self.groups, self.counts, strict=True)]
        rows = zip(self.names, map(self._texts, range(len(self.names))), self.f, self.p_values, strict=True)
        table = [[x, *texts, f"{f:.4g}", f"{p:.2g}"] for x, texts, f, p in rows]
        return self._printed(title, *hidden, table=[["", *people, "F", "p"], *table])

    def _texts(self, j: int) -> list[str]:
        """The means of a column, of each group, with intervals."""
        dates = range(len(self.groups)) if j in self.dates else ()
        return with_intervals(self.means[:, j], self.low[:, j], self.high[:, j], ".4g", dates)

    def _repr_html_(self) -> str:
        about = [("means by", self.category), ("privacy", str(self.privacy))]
        rows = []
        for j, (name, *column) in enumerate(zip(self.names, self.means.T, self.low.T, self.high.T, strict=True)):
            least, most = float(column[1].min()), float(column[2].max())
            overall = float(self.counts @ column[0] / self.counts.sum())
            for group, text, value, low, high in zip(self.groups, self._texts(j), *column, strict=True):
                rows.append((name, group, text, interval_picture(value, low, high, least, most, overall)))
        heading = ("column", self.category, f"mean, at {self.level:.0%}", "beside the mean of all")
        return html_table(about) + html_table(rows, heading)


@on_one_thread_of_blas
def means_by(
    release: ReleasedColumns, category: str, columns: Columns = None, *, level: float = 0.9, rows: RowLaw = "gaussian"
) -> GroupMeans:
    """Means of columns in the groups of a categorical column, differences between them, and an analysis of variance.

    Default: of all columns but the indicators of the category. Whoever has none of its listed categories is in the
    group "(not listed)". ``rows`` is what errors of people being a sample rest on: "gaussian", one variance within all
    groups, as in the classical analysis, for values of any distribution; "bounded", nothing but the enforced bound, for
    upper bounds. Raises ValueError for unknown columns, one twice, a category that is a number, or its indicators as
    columns.
    """
    from scipy.special import stdtrit

    require_law(level, rows)
    indicators = indicators_of(release, category)
    numbers = release._numbers(columns)
    if columns is None:
        numbers = numbers[~np.isin(numbers, indicators)]
    elif np.isin(numbers, indicators).any():
        raise ValueError(f"columns have indicators of {category!r}: crosstab({category!r}) counts its people")
    noisy, preprocessing = release._judged(np.concatenate([numbers, indicators]))
    require_no_pairs(noisy, "means of groups")
    p, n, bound = len(numbers), noisy.n, release._row_bound
    names, places = release._labels_of(numbers), np.arange(p, len(noisy.second))
    groups = Variables.of_category(release, category, places, (noisy, preprocessing))
    location, scale = (each[:p] for each in location_and_scale(preprocessing, len(noisy.second)))
    mapped, k, shares = total_mean(noisy)[:p], len(groups.labels), groups.divisors
    x = Variables(names, np.arange(p), np.diag(scale), location, mapped, np.ones(p), least=0.0)
    covariances = joint(x, groups, noisy)
    # a group that the noise drowns is given the mean of all: nothing is known of its own
    shown = groups.shares >= _SHOWN * groups.least * (noisy.noise.sums > 0)
    effects, unknown = covariances[0] / shares * shown, np.where(shown, 0.0, np.inf)
    means = x.shares[:, None] + effects
    variances = scale**2 * np.maximum(np.diagonal(noisy.second)[:p] - mapped**2, noisy.noise.second)
    within, tests = _analysis(covariances, variances, x, groups, noisy)
    noise, people = _noise_of(means, x, groups, noisy), within[:, None] / (n * shares)
    if rows == "bounded":  # at most E 1_g (x - m_g)^2, less than E (x - m_g)^2 and than (s b + |o - m_g|)^2 E 1_g
        longest = scale[:, None] * bound + np.abs(location[:, None] - means)
        people = np.minimum(longest**2 * shares, variances[:, None] + effects**2) / (n * shares**2)
    of_shares = np.abs(effects) * np.maximum(*reach_of_shares(groups, noisy))
    below, above = ((reach + of_shares) / shares for reach in covariances[1:])
    bought, *tails = (part[:p] for part in reach_of_means(noisy, preprocessing, bound))
    moved = zip((mapped - bought, bought - mapped), tails, strict=True)
    of_all = ((scale * np.hypot(np.maximum(part, 0.0), tail))[:, None] for part, tail in moved)
    both = noise + people[:, :, None] * np.eye(k)
    squares, half = np.diagonal(both, axis1=1, axis2=2), float(stdtrit(_freedom(noisy, groups), (1 + level) / 2))
    own = (np.hypot(half * np.sqrt(squares), reach) for reach in (below, above))
    own_below, own_above = (each + longer_by(each, reach, level) for each, reach in zip(own, of_all, strict=True))
    spread = half * np.sqrt(np.maximum(squares[:, :, None] + squares[:, None] - 2 * both, 0.0))
    differences, of_either = effects[:, :, None] - effects[:, None], np.add.outer(unknown, unknown)
    return GroupMeans(
        category=category,
        groups=groups.labels,
        names=names,
        counts=n * groups.shares,
        means=means.T,
        low=(means - own_below - unknown).T,
        high=(means + own_above + unknown).T,
        noise_errors=np.sqrt(np.diagonal(noise, axis1=1, axis2=2)).T,
        people_errors=np.sqrt(people).T,
        differences=differences,
        difference_low=differences - np.hypot(spread, np.hypot(below[:, :, None], above[:, None])) - of_either,
        difference_high=differences + np.hypot(spread, np.hypot(above[:, :, None], below[:, None])) + of_either,
        degrees=(k - 1, _freedom(noisy, groups)),
        level=level,
        dates=release._dates_of(numbers),
        **tests,
        **release._known(n),
    )


def _freedom(noisy: ReleasedMoments, groups: Variables) -> float:
    return max(noisy.n - len(groups.labels), 1.0)


def _noise_of(means: Matrix, x: Variables, groups: Variables, noisy: ReleasedMoments) -> Matrix:
    """(p, k, k), covariances of the noise in the means, Z(u_x - m_g e, u_g)/E 1_g (`dpgep.results.contingency`)."""
    noise, away = noisy.noise, x.offsets[:, None] - means
    forms, offsets = groups.forms @ groups.forms.T, np.outer(groups.offsets, groups.offsets)
    aways, squares = away[:, :, None] * away[:, None], x.squares[:, None, None]
    covariances = noise.second**2 / 2 * squares * forms + noise.counts**2 * aways * offsets
    covariances += noise.sums**2 * (aways * forms + squares * offsets)
    return np.asarray(covariances / np.outer(groups.divisors, groups.divisors))


def _analysis(
    joint: tuple[Matrix, Matrix, Matrix], variances: Matrix, x: Variables, groups: Variables, noisy: ReleasedMoments
) -> tuple[Matrix, dict[str, Any]]:
    """(p,), unbiased variances within groups, and what `GroupMeans` say of the analysis of variance.

    Cov(x, 1_g)/E(1_g)^1/2 in axes of the noise strays by within/n for people, alike along all, and by the noise.
    What clipping may have done is granted to the hypothesis.
    """
    from scipy.special import fdtrc

    (axes, along), (covariances, below, above), n = groups.whitened(noisy), joint, noisy.n
    own_noise = x.squares * (noisy.noise.second**2 / 2 + noisy.noise.sums**2 * x.mean**2)
    between = np.clip((covariances**2 / groups.divisors).sum(axis=1) - own_noise * along.sum(), 0.0, variances)
    freedom, degrees, tests = _freedom(noisy, groups), len(along), []
    within = (variances - between) * n / freedom
    expected = within[:, None] + n * own_noise[:, None] * along
    granted = np.maximum(covariances - below, 0.0) + np.minimum(covariances + above, 0.0)
    for each in (granted, covariances):
        squares = n * (each / np.sqrt(groups.divisors) @ axes) ** 2
        ratios = np.divide(squares, expected, out=np.full_like(squares, np.inf), where=expected > 0)
        tests.append(ratios.mean(axis=1) if degrees else np.full(len(squares), math.nan))
    p_values, least = (fdtrc(max(degrees, 1), freedom, f) for f in tests)
    return within, {
        "sum_squares": n * np.column_stack([between, variances - between]),
        "f": tests[0],
        "p_values": p_values,
        "noise_share": 1 - degrees * within / np.maximum(expected.sum(axis=1), np.finfo(float).tiny),
        "least_p_values": least,
    }
