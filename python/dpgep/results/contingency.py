"""Counts of people by categorical columns of a release, whether two depend on each other, and the noise in both.

The indicator of category g is 1_g = o_g + f_g.z, z the mapped indicator columns, f_g = s_g e_g and o_g their scales and
locations. Where everybody has a listed category, the indicators add up to 1, and so do what is released of them after
a projection along the least noise; elsewhere whoever has none is one more category.

With M the released moments of (z, 1) and Z their noise, the share of people in a and b is u_a^T M u_b, u = (f, o), and

    Var u_a^T Z u_b = v/2 |f_a|^2 |f_b|^2 + w (o_b^2 |f_a|^2 + o_a^2 |f_b|^2) + c o_a^2 o_b^2,

v, w and c the variances of the noise in the second moment, in the sums and in the counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import did_you_mean, quoted, require_share
from dpgep._optional import data_frame
from dpgep._show import html_table, with_intervals
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, mean_factor, total_mean
from dpgep.models.pairwise import require_no_pairs
from dpgep.models.preprocessing import location_and_scale
from dpgep.models.redundant import Redundancy
from dpgep.models.row_model import PencilPart
from dpgep.results.columns import Answer, Mapped, ReleasedColumns, of_hidden, on_one_thread_of_blas
from dpgep.results.estimates import reach_of_covariance
from dpgep.sources.names import listed

# What people are called who have none of the listed categories.
OTHER = "(not listed)"
# Deviations of its noise from which on a share of people without a listed category is taken to be there.
_BY_CHANCE = 2.0
# Of variances of indicators, the least and the most over those released that are taken to have been there.
_RESTORED = 0.5, 2.0
# What a table of two columns says of their dependence.
_OF_TEST = "chi_square", "degrees", "p_value", "cramers_v", "noise_share", "least_p_value"


def categories_of(
    release: ReleasedColumns, columns: Sequence[str], what: str, numbers: Sequence[int] | NDArray[np.intp] = ()
) -> tuple[list[Variables], ReleasedMoments]:
    """Categories, and the moments of their indicators, one after another, and of ``numbers`` after them."""
    groups = [indicators_of(release, column) for column in columns]
    require_no_pairs(release._of_everybody[0], what)
    features = release._numbers(np.concatenate([*groups, np.array(numbers, np.intp)]))
    mapped = release._judged(features, sizes=False)
    places = np.split(np.arange(sum(map(len, groups))), np.cumsum([*map(len, groups)])[:-1])
    pairs = zip(columns, places, strict=True)
    return [Variables.of_category(release, column, each, mapped) for column, each in pairs], mapped[0]


def indicators_of(release: ReleasedColumns, column: str) -> NDArray[np.intp]:
    """Numbers of the indicators of a categorical column. Raises ValueError for another column, or an unknown one."""
    found = release._categories.get(column)
    if found:
        return np.array(found, dtype=np.intp)
    if column in (release.model.feature_names or ()):
        raise ValueError(f"column {quoted(column)} is released as a number: declare its categories before the release")
    known = sorted(release._categories)
    there_are = f"the released ones are {listed(known) if known else 'none'}"
    raise ValueError(f"there is no categorical column {quoted(column)}{did_you_mean(column, known)}: {there_are}")


@dataclass(frozen=True, eq=False)
class Variables:
    """Affine functions of q mapped columns, k of them: indicators of a categorical column, or numbers as they are."""

    labels: tuple[str, ...]
    places: NDArray[np.intp]  # (q,), of the columns among the moments
    # forms, offsets: (k, q) and (k,), f and o
    forms: Matrix
    offsets: Matrix
    mean: Matrix  # (q,), released, of the mapped columns
    # (q,), what covariances with each are multiplied by where they were put back as they were before clipping: an
    # indicator of a share p has the variance p (1 - p)
    restored: Matrix
    least: float  # the least share that counts as one: of a person, or as much as the noise of the sums

    @classmethod
    def of_category(cls, release: ReleasedColumns, column: str, places: NDArray[np.intp], rows: Mapped) -> Variables:
        """The category ``column`` whose indicators have these places among the moments."""
        noisy, preprocessing = rows
        names = release._labels_of(indicators_of(release, column))
        part, mapped = noisy.restricted(places), None if preprocessing is None else preprocessing.restricted(places)
        (location, scale), mean = location_and_scale(mapped, len(places)), total_mean(part)
        labels = tuple(name[len(column) + 1 :] for name in names)
        redundant = Redundancy.of_columns((tuple(range(len(places))),), len(places), names, mapped)
        assert redundant is not None
        forms, missing = np.diag(scale), 1 - float(location.sum())
        none = redundant.without_variance(PencilPart(np.full(1, -1.0)), mean_factor(part), part)
        by_chance = max(_BY_CHANCE * noisy.noise.sums * float(np.linalg.norm(scale)), 0.5 / noisy.n)
        if none is None or missing - float(scale @ mean) > by_chance:
            forms, offsets = np.vstack([forms, -scale]), np.append(location, missing)
            labels = (*labels, OTHER)
        else:
            total = float(scale @ scale)
            forms = forms - np.outer(scale**2, scale) / total
            offsets = location + scale**2 * missing / total
        least = max(1 / noisy.n, noisy.noise.sums * float(scale.max()))
        restored = np.ones(len(places))
        if part.clipping is not None:
            known = location * (1 - location) if location.any() else scale * mean * (1 - scale * mean)
            variances = (np.diagonal(part.second) - mean**2) * scale**2
            restored = np.sqrt(np.clip(known / np.maximum(variances, 1e-300), *_RESTORED))
        return cls(labels, places, forms, offsets, mean, restored, least)

    @property
    def shares(self) -> Matrix:
        """(k,), of people; noise may have made them negative."""
        return np.asarray(self.offsets + self.forms @ self.mean)

    @property
    def divisors(self) -> Matrix:
        """(k,), shares by which others are divided."""
        return np.asarray(np.maximum(self.shares, self.least))

    @property
    def squares(self) -> Matrix:
        """(k,), |f|^2."""
        return np.asarray(np.einsum("ij,ij->i", self.forms, self.forms))

    def whitened(self, noisy: ReleasedMoments) -> tuple[Matrix, Matrix]:
        """(k, k - 1) and (k - 1,): axes of D^-1/2 1_g across D^1/2 1, and how much noise of mapped columns has along.

        D = diag(shares). Sums of people stray along all axes alike. Noise N - m e^T - e m^T of a covariance, e that of
        the mean, counts as N times (I + 2w/v m m^T) on either side, which is a little more.
        """
        scaled = self.forms / np.sqrt(self.divisors)[:, None]
        along, noise = scaled @ self.mean, noisy.noise
        of_mean = 2 * (noise.sums / noise.second) ** 2 if noise.second else 0.0
        values, axes = np.linalg.eigh(scaled @ scaled.T + of_mean * np.outer(along, along))
        return axes[:, 1:], np.maximum(values[1:], 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class CrossTable(Answer):
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
    noise_share : the part of noise in what chi-square expects without dependence; None for one column.
    least_p_value : the p-value where clipping has made none of the dependence; ``p_value`` grants all it may have.
    level : the probability that an interval covers its count.
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
    noise_share: float | None
    least_p_value: float | None
    level: float

    def to_frame(self) -> Any:
        """The counts as pandas has them: a table of two columns, or of one a row for each category, with intervals."""
        if self.columns is None:
            values = {"count": self.counts, "noise": self.noise_errors, "people": self.people_errors}
            return data_frame({**values, "low": self.low, "high": self.high}, self.row_labels, name=self.rows)
        table = data_frame(self.counts.copy(), self.row_labels, self.column_labels)
        return table.rename_axis(index=self.rows, columns=self.columns)

    def __repr__(self) -> str:
        subject, lines = self.rows if self.columns is None else f"{self.rows} by {self.columns}", []
        if self.chi_square is not None:
            test = f"chi-square {self.chi_square:.4g}, {self.degrees} degrees of freedom, p = {self.p_value:.2g}"
            lines = [f"  dependence {test}; Cramer's V {self.cramers_v:.3f}"]
            lines += of_hidden("chi-square", (subject,), self.noise_share, self.least_p_value, self.p_value)
        about = f"{self.n_people:.0f} people: {subject}; intervals at {self.level:.0%}, noise and sampling"
        return self._printed(f"Counts of {about}", *lines, table=[["", *self.column_labels], *self._rows])

    @property
    def _rows(self) -> list[list[str]]:
        shape = len(self.row_labels), len(self.column_labels)
        cells = zip(self.row_labels, *(x.reshape(shape) for x in (self.counts, self.low, self.high)), strict=True)
        return [[label, *with_intervals(counts, low, high, ".0f")] for label, counts, low, high in cells]

    def _repr_html_(self) -> str:
        about = [("people", f"{self.n_people:.0f}, at {self.level:.0%}"), ("privacy", str(self.privacy))]
        return html_table(about) + html_table(self._rows, (self.rows, *self.column_labels))


@on_one_thread_of_blas
def crosstab(release: ReleasedColumns, a: str, b: str | None = None, *, level: float = 0.9) -> CrossTable:
    """Counts of people by the categorical column ``a``, or by ``a`` and ``b``, with a test of independence.

    Whoever has none of the listed categories is counted as "(not listed)". Raises ValueError for columns that are not
    categorical, or one twice.
    """
    require_share("level", level)
    if a == b:
        raise ValueError(f"columns a and b are both {a!r}: use crosstab({a!r}) for its counts")
    found, noisy = categories_of(release, [a] if b is None else [a, b], "counts of categories")
    first, noise, reaches = found[0], noisy.noise, [reach_of_shares(each, noisy) for each in found]
    # how far below and above clipping moved shares: of covariances, and of rows and columns, the latter with one sign
    if b is None:
        shares, variances = first.shares, noise.sums**2 * first.squares + (noise.counts * first.offsets) ** 2
        below, above = ((0 * reach, reach) for reach in reaches[0])
    else:
        second = found[1]
        dependence, *of_dependence = joint(first, second, noisy)
        shares = np.outer(first.shares, second.shares) + dependence
        squares, others = first.squares, second.squares
        variances = noise.second**2 / 2 * np.outer(squares, others)
        variances += noise.sums**2 * (np.outer(squares, second.offsets**2) + np.outer(first.offsets**2, others))
        variances += noise.counts**2 * np.outer(first.offsets, second.offsets) ** 2
        of_shares = (
            np.outer(of_first, second.divisors) + np.outer(first.divisors, of_second)
            for of_first, of_second in zip(*reaches, strict=True)
        )
        below, above = zip(of_dependence, of_shares, strict=True)
    people = np.clip(shares, 0.0, 1.0) * np.clip(1 - shares, 0.0, 1.0) / noisy.n
    people = np.maximum(people, 1 / noisy.n**2) if noise.second else people
    half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(variances + people)
    return CrossTable(
        rows=a,
        columns=b,
        row_labels=found[0].labels,
        column_labels=("count",) if b is None else found[1].labels,
        counts=noisy.n * shares,
        low=noisy.n * np.clip(shares - np.hypot(half, below[0]) - below[1], 0.0, 1.0),
        high=noisy.n * np.clip(shares + np.hypot(half, above[0]) + above[1], 0.0, 1.0),
        noise_errors=noisy.n * np.sqrt(variances),
        people_errors=noisy.n * np.sqrt(people),
        level=level,
        **(dict.fromkeys(_OF_TEST) if b is None else _dependence(found[0], found[1], noisy)),
        **release._known(noisy.n),
    )


def joint(first: Variables, second: Variables, noisy: ReleasedMoments) -> tuple[Matrix, Matrix, Matrix]:
    """(k, l), covariances of indicators, and how far below and above they may lie for what clipping did."""
    mean = noisy.sums[:, 0]
    mapped = noisy.second - np.outer(mean, mean)
    corner = np.ix_(first.places, second.places)
    of_clipping = (each[corner] for each in reach_of_covariance(noisy, mapped))
    below, above = (np.sqrt(first.forms**2 @ each**2 @ second.forms.T**2) for each in of_clipping)
    mapped = mapped[corner] * np.outer(first.restored, second.restored)
    return first.forms @ mapped @ second.forms.T, below, above


def reach_of_shares(category: Variables, noisy: ReleasedMoments) -> tuple[Matrix, Matrix]:
    """(k,), (k,): how far below and above shares may lie for what clipping did.

    It draws them towards the locations, which were bought as shares of people before that: of zeros and ones nothing
    was cut off then. So they lie between the two.
    """
    moved = -category.forms @ category.mean if noisy.clipping is not None else np.zeros(len(category.labels))
    return np.maximum(-moved, 0.0), np.maximum(moved, 0.0)


def _dependence(first: Variables, second: Variables, noisy: ReleasedMoments) -> dict[str, Any]:
    """What a `CrossTable` says of a test of independence.

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
    squares, released = (
        noisy.n * (axes.T @ (each / root) @ others) ** 2 / (1 + noisy.n * noise) for each in (granted, dependence)
    )
    chi_square, degrees = float(squares.sum()), squares.size
    p_value, least = (float(chdtrc(degrees, each.sum())) if degrees else 1.0 for each in (squares, released))
    phi = max(float(((dependence / root) ** 2).sum() - noise.sum()), 0.0)
    v = math.sqrt(phi / max(min(squares.shape), 1))
    of_noise = 1 - degrees / max(degrees + noisy.n * float(noise.sum()), 1.0)
    return dict(zip(_OF_TEST, (chi_square, degrees, p_value, min(v, 1.0), of_noise, least), strict=True))
