"""Counts of people by one or two categorical columns of a release, and whether the two depend on each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dpgep._checks import require_share
from dpgep._optional import import_extra
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments
from dpgep.models.pairwise import require_no_pairs
from dpgep.reports.report import PrivacyReport
from dpgep.results.categories import Category, indicators_of
from dpgep.results.columns import ReleasedColumns
from dpgep.results.estimates import reach_of_covariance


@dataclass(frozen=True, eq=False, repr=False)
class CrossTable:
    """Counts of people by category, from a release.

    Attributes
    ----------
    rows, columns : names of the columns of the table; ``columns`` is None for the counts of one.
    row_labels, column_labels : categories; the last, "(not listed)", of everybody without, where the release shows any.
    counts : (k, l), or (k,) of one column: people of each kind, of n. Noise may have made them negative.
    low, high : intervals of n times the population's shares, at ``level``, for the noise and the sampling of people.
    noise_errors, people_errors : standard errors of the counts: by the noise alone, about the people of the release;
        and by people being a sample.
    chi_square, degrees, p_value : Pearson's test of independence, corrected for the noise (docs/questions.md); None
        for one column.
    cramers_v : between 0 and 1, what the noise adds on average taken off; None for one column.
    level : the probability that an interval covers its count.
    n_people : number of people, public or released.
    privacy : the report of the release, which pays for this and for every other answer from it.
    """

    rows: str
    columns: str | None
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    counts: Matrix
    low: Matrix
    high: Matrix
    noise_errors: Matrix
    people_errors: Matrix
    chi_square: float | None
    degrees: int | None
    p_value: float | None
    cramers_v: float | None
    level: float
    n_people: float
    privacy: PrivacyReport

    def to_frame(self) -> Any:
        """The counts as pandas has them: a table of two columns, or of one a row for each category, with intervals."""
        pandas = import_extra("pandas", "pandas")
        index = pandas.Index(self.row_labels, name=self.rows)
        if self.columns is None:
            values = {"count": self.counts, "noise": self.noise_errors, "people": self.people_errors}
            return pandas.DataFrame({**values, "low": self.low, "high": self.high}, index=index)
        return pandas.DataFrame(self.counts.copy(), index, pandas.Index(self.column_labels, name=self.columns))

    def __repr__(self) -> str:
        subject = self.rows if self.columns is None else f"{self.rows} by {self.columns}"
        lines = [
            f"Counts of {self.n_people:.0f} people: {subject}; intervals at {self.level:.0%}, noise and sampling",
            f"  privacy     {self.privacy}",
        ]
        if self.chi_square is not None:
            lines.append(
                f"  dependence  chi-square {self.chi_square:.4g}, {self.degrees} degrees of freedom, "
                f"p = {self.p_value:.2g}; Cramer's V {self.cramers_v:.3f}"
            )
        shape = len(self.row_labels), len(self.column_labels)
        cells = [
            [f"{count:.0f} [{low:.0f}, {high:.0f}]" for count, low, high in zip(*each, strict=True)]
            for each in zip(*(x.reshape(shape) for x in (self.counts, self.low, self.high)), strict=True)
        ]
        table = [["", *self.column_labels], *([label, *row] for label, row in zip(self.row_labels, cells, strict=True))]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["  " + "  ".join(f"{x:>{w}}" for x, w in zip(row, widths, strict=True)) for row in table]
        return "\n".join(lines)


def crosstab(release: ReleasedColumns, a: str, b: str | None = None, *, level: float = 0.9) -> CrossTable:
    """Counts of people by the categorical column ``a``, or by ``a`` and ``b``, with a test of independence.

    Whoever has none of the listed categories is counted as "(not listed)". Raises ValueError for columns that are not
    categorical, or one twice.
    """
    require_share("level", level)
    if a == b:
        raise ValueError(f"columns a and b are both {a!r}: use crosstab({a!r}) for its counts")
    asked = [(column, indicators_of(release, column)) for column in (a, b) if column is not None]
    features = release._numbers(np.concatenate([numbers for _, numbers in asked]))
    noisy, preprocessing = release._judged(features, sizes=False)
    require_no_pairs(noisy, "counts of categories")
    found, first = [], 0
    for column, numbers in asked:
        places = np.arange(first, first + len(numbers))
        found.append(Category.of(column, release._names_of(numbers) or (), places, noisy, preprocessing))
        first += len(numbers)
    shares, variances, below, above = _cells(found, noisy)
    people = np.clip(shares, 0.0, 1.0) * np.clip(1 - shares, 0.0, 1.0) / noisy.n
    people = np.maximum(people, 1 / noisy.n**2) if noisy.noise.second else people
    half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(variances + people)
    chi_square, degrees, p_value, v = (None,) * 4 if b is None else _dependence(found[0], found[1], noisy)
    return CrossTable(
        rows=a,
        columns=b,
        row_labels=found[0].labels,
        column_labels=("count",) if b is None else found[1].labels,
        counts=noisy.n * shares,
        low=noisy.n * np.clip(shares - np.hypot(half, below), 0.0, 1.0),
        high=noisy.n * np.clip(shares + np.hypot(half, above), 0.0, 1.0),
        noise_errors=noisy.n * np.sqrt(variances),
        people_errors=noisy.n * np.sqrt(people),
        chi_square=chi_square,
        degrees=degrees,
        p_value=p_value,
        cramers_v=v,
        level=level,
        n_people=noisy.n,
        privacy=release.report,
    )


def _cells(found: list[Category], noisy: ReleasedMoments) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Shares of people in each cell, variances of the noise in them, and what clipping may have taken and added."""
    noise, first = noisy.noise, found[0]
    reaches = [reach_of_shares(each, noisy) for each in found]
    if len(found) == 1:
        variances = noise.sums**2 * first.squares + (noise.counts * first.offsets) ** 2
        return first.shares, variances, *reaches[0]
    second = found[1]
    dependence, below, above = joint(first, second, noisy)
    shares = np.outer(first.shares, second.shares) + dependence
    squares, others = first.squares, second.squares
    variances = noise.second**2 / 2 * np.outer(squares, others)
    variances += noise.sums**2 * (np.outer(squares, second.offsets**2) + np.outer(first.offsets**2, others))
    variances += noise.counts**2 * np.outer(first.offsets, second.offsets) ** 2
    for end, side in ((below, 0), (above, 1)):
        end += np.outer(reaches[0][side], second.divisors) + np.outer(first.divisors, reaches[1][side])
    return shares, variances, below, above


def joint(first: Category, second: Category, noisy: ReleasedMoments) -> tuple[Matrix, Matrix, Matrix]:
    """(k, l), covariances of indicators, and how far below and above they may lie for what clipping did."""
    mean = noisy.sums[:, 0]
    mapped = noisy.second - np.outer(mean, mean)
    corner = np.ix_(first.places, second.places)
    of_clipping = (each[corner] for each in reach_of_covariance(noisy, mapped))
    below, above = (np.sqrt(first.forms**2 @ each**2 @ second.forms.T**2) for each in of_clipping)
    mapped = mapped[corner] * np.outer(first.restored, second.restored)
    return first.forms @ mapped @ second.forms.T, below, above


def reach_of_shares(category: Category, noisy: ReleasedMoments) -> tuple[Matrix, Matrix]:
    """(k,), (k,): how far below and above shares may lie for what clipping did.

    It draws them towards the locations, which were bought as shares of people before that: of zeros and ones nothing
    was cut off then. So they lie between the two.
    """
    moved = -category.forms @ category.mean if noisy.clipping is not None else np.zeros(len(category.labels))
    return np.maximum(-moved, 0.0), np.maximum(moved, 0.0)


def _dependence(first: Category, second: Category, noisy: ReleasedMoments) -> tuple[float, int, float, float]:
    """Chi-square, its degrees of freedom, p-value, and Cramer's V.

    Y = n^1/2 D_r^-1/2 X D_c^-1/2, X the covariances of indicators, in axes (i, j) of the noise, has the variance
    1 + n v/2 a_i b_j there without dependence: chi-square is the sum of its squares in these units. What clipping may
    have done is granted to independence.
    """
    from scipy.special import chdtrc

    dependence, below, above = joint(first, second, noisy)
    root = np.sqrt(np.outer(first.divisors, second.divisors))
    (axes, own), (others, theirs) = first.whitened(noisy), second.whitened(noisy)
    noise = noisy.noise.second**2 / 2 * np.outer(own, theirs)
    granted = np.maximum(dependence - below, 0.0) + np.minimum(dependence + above, 0.0)
    squares = noisy.n * (axes.T @ (granted / root) @ others) ** 2
    chi_square, degrees = float((squares / (1 + noisy.n * noise)).sum()), squares.size
    phi = max(float(((dependence / root) ** 2).sum() - noise.sum()), 0.0)
    v = math.sqrt(phi / max(min(squares.shape), 1))
    return chi_square, degrees, float(chdtrc(degrees, chi_square)) if degrees else 1.0, min(v, 1.0)
