"""Synthetic people, for plans: Gaussian rows about zero whose model has a spectrum that is hoped for; their moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgep._checks import require_count, require_one_of, require_positive
from dpgep._dispatch import core
from dpgep.models import MODELS, FdaModel, SirModel, ViewsModel
from dpgep.models.model import BETWEEN, TOTAL, WITHIN, WITHIN_GROUPS, Matrix
from dpgep.models.moments import ReleasedMoments
from dpgep.models.row_model import Classes, RowModel, Slices
from dpgep.privacy.curator import release_moments
from dpgep.problems.problem import MomentProblem

#: names of the models that there are populations for
PLANNED = tuple(sorted({*MODELS} - {"table", "contrastive-pca"}))

# Fluctuations of second moments fall with the root of n where fourth moments exist.
_LEAST_TAILS = 4
# Least eigenvalue of a correlation matrix: of views that are inverted.
_LEAST_CORRELATION = 1e-9
# The variance of a column that few people agree about, of the largest mean square. A public constant.
_AGREED = 1e-6
# Of released moments, what varies from draw to draw.
_BLOCKS = ("second", "sums", "counts")


@dataclass(frozen=True, eq=False)
class Population:
    """Rows ``means[group] + length * normal @ root``; groups differ in their means alone.

    Attributes
    ----------
    model : one that `is_planned`.
    spectrum : all eigenvalues that a component may have, descending.
    deviation : of the rows in any direction without signal (of differences between groups: within them).
    shares : (G,), of the groups; of everybody, where there are none.
    tails : degrees of freedom of Student's law, which rows have about their means; infinite for normal rows.
    correlation : (d, d), of the columns, within views and within groups; None: mixed at random, within views and groups
        uncorrelated.
    """

    model: RowModel
    spectrum: Matrix
    deviation: float
    shares: Matrix
    tails: float = math.inf
    correlation: Matrix | None = None

    def __post_init__(self) -> None:
        require_positive("deviation", self.deviation)
        most, size = largest_eigenvalue(self.model, self.deviation), self.model.max_components
        within = (self.spectrum >= 0) & (self.spectrum < most)
        if self.spectrum.shape != (size,) or not within.all() or self.spectrum[most_signals(self.model) :].any():
            raise ValueError(f"spectrum must be {size} numbers, none negative, below {most:g}")
        shares_of(self.model, None if self.model.grouping is None else self.shares.tolist())
        if not self.tails > _LEAST_TAILS:
            raise ValueError(f"tails must be more than {_LEAST_TAILS} degrees of freedom, got {self.tails!r}")
        if self.correlation is not None:
            correlation_of(self.model, self.correlation)

    def people(self, number: int, m: int) -> tuple[Any, ...]:
        """A draw of m people, by its number: rows of each view, and labels or responses where there are any."""
        generator, (means, root) = np.random.default_rng([1, number]), self._law
        groups = np.searchsorted(np.cumsum(self.shares)[:-1], generator.random(m), side="right")
        rows, around = means[groups], generator.standard_normal((m, len(root))) @ root
        if math.isfinite(self.tails):  # of the same covariance
            around *= np.sqrt((self.tails - 2) / generator.chisquare(self.tails, (m, 1)))
        rows += around
        views = tuple(rows[:, view] for view in self.model.views)
        return views if self.model.grouping is None else (*views, _values_of(self.model.grouping)[groups])

    @cached_property
    def _law(self) -> tuple[Matrix, Matrix]:
        """The means (G, d) of the groups, and the root of the covariance within them."""
        model, spectrum, deviation, shares = self.model, self.spectrum, self.deviation, self.shares
        d, traits, generator = model.n_features, model.traits, np.random.default_rng(0)
        means, covariance = np.zeros((len(shares), d)), np.diag(np.full(d, deviation**2))
        if traits.standardized:
            correlation = self.correlation
            if correlation is None:
                from scipy.stats import random_correlation  # slow to import

                correlation = random_correlation.rvs(spectrum, random_state=generator, tol=1e-8)
            values, vectors = np.linalg.eigh(correlation)
            return means, deviation * np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        leading = np.arange(most_signals(model))
        spectrum = spectrum[leading]
        if traits.a == BETWEEN:  # each component is in all views, alike
            cross = spectrum * (1.0 if traits.b is None else deviation**2) / (len(model.views) - 1)
            for one, other in combinations(model.views, 2):
                covariance[one.start + leading, other.start + leading] = cross
                covariance[other.start + leading, one.start + leading] = cross
        elif traits.of_means:
            along = np.sqrt(spectrum)[:, None] * contrasts(shares)[: len(spectrum)]
            means[:, leading] = (1.0 if traits.b is None else deviation) * along.T / np.sqrt(shares)[:, None]
            if traits.b == TOTAL:  # eigenvalues are parts of the whole variance
                covariance[leading, leading] -= deviation**2 * spectrum
        else:
            covariance = np.diag(spectrum)
        values, vectors = np.linalg.eigh(covariance)
        rotation = np.zeros((d, d))
        for view in model.views:
            size = view.stop - view.start
            rotation[view, view] = np.linalg.qr(generator.standard_normal((size, size)))[0]
        if self.correlation is not None:  # a matrix that maps rows changes no eigenvalue of A and B
            rotation = rotation @ np.linalg.cholesky(self.correlation).T
        return means @ rotation, np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ rotation)


def _values_of(grouping: Classes | Slices) -> NDArray[Any]:
    """A label of each class, or a response in each slice, to which its lower edge belongs."""
    if isinstance(grouping, Slices):
        return np.array([-math.inf, *grouping.interior_edges])
    return np.fromiter(grouping.labels, dtype=object, count=grouping.n_groups)


def exact_moments(problem: MomentProblem) -> ReleasedMoments:
    """Moments of synthetic people, without noise.

    Every column varies by more than rounding, if it is to be standardized: few people may agree.
    """
    moments = release_moments(problem, math.inf, core.NoiseStream(bytes(32)), lambda entry: None)
    standard = problem.model.noisy(moments).standardization
    if standard is None or standard.scale.all():
        return moments
    constant, second = np.flatnonzero(standard.scale == 0), moments.second.copy()
    second[constant, constant] += _AGREED * float(np.diagonal(moments.second).max())
    return replace(moments, second=second)


def mean_moments(draws: Sequence[ReleasedMoments]) -> ReleasedMoments:
    return replace(draws[0], **{name: np.mean([getattr(draw, name) for draw in draws], axis=0) for name in _BLOCKS})


def moments_of_more(draw: ReleasedMoments, mean: ReleasedMoments, n: int, n_draws: int, most: int) -> ReleasedMoments:
    """Moments of n people from the moments of a draw of at most ``most``, and their mean over draws."""
    if n < most:
        return replace(draw, n=float(n))
    share = math.sqrt(most / n * n_draws / (n_draws - 1))  # of what varies: the mean of all draws does, too
    pairs = {name: (getattr(mean, name), getattr(draw, name)) for name in _BLOCKS}
    return replace(draw, n=float(n), **{name: middle + share * (own - middle) for name, (middle, own) in pairs.items()})


def is_planned(model: object) -> bool:
    """Whether there are populations for a model: of scatters whose eigenvalues such rows can have."""
    if not isinstance(model, RowModel) or model.traits.by_group:
        return False
    return model.traits.a is not None and model.traits.b in (None, TOTAL, WITHIN_GROUPS, WITHIN)


def model_named(
    name: str, d: int | Sequence[int] | None, spectrum: ArrayLike | None, shares: Sequence[float] | None
) -> RowModel:
    """The model of a name, centred, with a group for each of ``shares``."""
    require_one_of("model", name, PLANNED)
    kind: Any = MODELS[name]
    if issubclass(kind, ViewsModel):
        if not isinstance(d, Sequence):
            raise ValueError(f"the {'two ' * (name != 'multiset-cca')}views of {name!r} need d=(d_x, d_y), got {d!r}")
        found: RowModel = kind(tuple(require_count(f"d[{i}]", size) for i, size in enumerate(d)), center=True)
        return found
    features = require_count("d", d)
    if kind is FdaModel:
        n_classes = (1 if spectrum is None else np.size(spectrum)) + 1 if shares is None else len(shares)
        return FdaModel(features, classes=tuple(range(n_classes)))
    if kind is SirModel:
        n_slices = 10 if shares is None else len(shares)
        return SirModel(features, interior_edges=tuple(float(edge) for edge in range(1, n_slices)))
    centred: RowModel = kind(features, center=True)
    return centred


def largest_eigenvalue(model: RowModel, deviation: float) -> float:
    """What no eigenvalue of a population may reach."""
    traits = model.traits
    if traits.a == BETWEEN:
        return (len(model.views) - 1) * (deviation**2 if traits.b is None else 1.0)
    if traits.standardized:
        return float(model.n_features)
    return 1.0 if traits.of_means and traits.b == TOTAL else math.inf


def usual_eigengap(model: RowModel) -> float:
    """A signal to plan for in columns of deviation 1: 1 where nothing limits eigenvalues, else 1/2."""
    return 1.0 if math.isinf(largest_eigenvalue(model, 1.0)) else 0.5


def most_signals(model: RowModel) -> int:
    """How many eigenvalues a signal may change: between views, each is in all of them."""
    return min(model.view_sizes, default=model.max_components)


def spectrum_of(model: RowModel, spectrum: ArrayLike | None, eigengap: float | None, deviation: float) -> Matrix:
    """All eigenvalues of a population, descending: as given, then as of rows without signal."""
    size, signals, traits = model.max_components, most_signals(model), model.traits
    rest = deviation**2 if traits.equal_eigenvalues and not traits.standardized else 0.0
    if eigengap is not None:
        require_positive("eigengap", eigengap)
        given = np.array([(1 - eigengap / size if traits.standardized else rest) + eigengap])
    else:
        given = np.atleast_1d(np.asarray(spectrum, dtype=float))
    most = largest_eigenvalue(model, deviation)
    if given.ndim != 1 or not 1 <= len(given) <= signals or not ((given >= 0) & (given < math.inf)).all():
        raise ValueError(f"spectrum must be 1 to {signals} finite numbers, none negative, got {spectrum!r}")
    if not (given < most).all():
        raise ValueError(f"the eigenvalues of this population must be below {most:g}, got {given.max():g}")
    if traits.standardized:
        rest = max(size - float(given.sum()), 0.0) / max(size - len(given), 1)
    return of_model(model, np.sort(np.append(given, np.full(size - len(given), rest)))[::-1])


def correlation_of(model: RowModel, correlation: ArrayLike) -> Matrix:
    """(d, d), a correlation matrix of the columns, within views; a number r is r^|i - j| in each view."""
    if not model.traits.standardized and model.traits.b is None:
        raise ValueError(
            f"correlation is of standardized columns, views, classes or slices: {model.name} has none of them"
        )
    d, array = model.n_features, np.asarray(correlation, dtype=float)
    views = model.views
    if array.ndim == 0:
        if not -1 < array < 1:
            raise ValueError(f"the correlation of neighbours must be between -1 and 1, got {array:g}")
        places = np.arange(d)
        array = array ** np.abs(places[:, None] - places)
    elif array.shape != (d, d) or not np.allclose(array, array.T) or not np.allclose(np.diagonal(array), 1.0):
        raise ValueError(f"correlation must be a number, or a symmetric {d} x {d} matrix with ones on its diagonal")
    within = np.zeros((d, d))
    for view in views:
        within[view, view] = array[view, view]
    if np.linalg.eigvalsh(within)[0] < _LEAST_CORRELATION:
        raise ValueError("correlation must be positive definite in each view")
    return within


def of_model(model: RowModel, values: Matrix) -> Matrix:
    return np.asarray(values * (len(values) / values.sum()) if model.traits.standardized else values)


def shares_of(model: RowModel, shares: Sequence[float] | None) -> Matrix:
    n_groups = 1 if model.grouping is None else model.grouping.n_groups
    if shares is None:
        return np.full(n_groups, 1 / n_groups)
    array = np.asarray(shares, dtype=float)
    if model.grouping is None:
        raise ValueError(f"shares are of classes or slices, which {model.name} has none of")
    if array.shape != (n_groups,) or not (array > 0).all() or abs(array.sum() - 1) > 1e-6:
        raise ValueError(f"shares must be {n_groups} positive numbers that add up to 1, got {shares!r}")
    return np.asarray(array / array.sum())


def contrasts(shares: Matrix) -> Matrix:
    """(G - 1, G), orthonormal rows, all orthogonal to the roots of the shares: means that add up to zero."""
    groups = np.arange(len(shares))
    waves = np.cos(np.pi * np.outer(groups + 0.5, groups) / len(shares)) * np.sqrt(shares)[:, None]
    return np.asarray(np.linalg.qr(waves)[0][:, 1:].T)
