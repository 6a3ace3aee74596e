"""Synthetic people, for plans: Gaussian rows about zero whose model has a spectrum that is hoped for; their moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpgep._checks import require_count, require_one_of, require_positive
from dpgep._dispatch import core
from dpgep.models.groups import FdaModel, SirModel
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments
from dpgep.models.pca import PcaModel, StandardizedPcaModel
from dpgep.models.row_model import RowModel
from dpgep.models.views import CcaModel, PlsModel, ViewsModel
from dpgep.privacy.release import release_moments
from dpgep.problems.problem import MomentProblem

#: the models that there are populations for, by name
PLANNED: dict[str, type[RowModel]] = {
    kind.name: kind for kind in (PcaModel, StandardizedPcaModel, CcaModel, PlsModel, FdaModel, SirModel)
}

# The variance of a column that few people agree about, of the largest mean square. A public constant.
_AGREED = 1e-6
# Of released moments, what varies from draw to draw.
_BLOCKS = ("second", "sums", "counts")


@dataclass(frozen=True, eq=False)
class Population:
    """Rows ``means[group] + normal @ root``, in columns that are mixed at random; groups differ in their means alone.

    Attributes
    ----------
    model : whose groups are 0, 1, ...: see `by_number`.
    spectrum : all eigenvalues that a component may have, descending.
    deviation : of the rows in any direction without signal (FDA: within classes).
    shares : (G,), of the groups; of everybody, where there are none.
    """

    model: RowModel
    spectrum: Matrix
    deviation: float
    shares: Matrix

    def __post_init__(self) -> None:
        require_positive("deviation", self.deviation)
        most, size = largest_eigenvalue(self.model, self.deviation), self.model.max_components
        if self.spectrum.shape != (size,) or not ((self.spectrum >= 0) & (self.spectrum < most)).all():
            raise ValueError(f"spectrum must be {size} numbers, none negative, below {most:g}")
        shares_of(self.model, None if self.model.grouping is None else self.shares.tolist())

    def people(self, number: int, m: int) -> tuple[Any, ...]:
        """A draw of m people, by its number: rows of each view, and the groups where there are any."""
        generator, (means, root) = np.random.default_rng([1, number]), self._law
        groups = np.searchsorted(np.cumsum(self.shares)[:-1], generator.random(m), side="right")
        rows = means[groups]
        rows += generator.standard_normal((m, len(root))) @ root
        if self.model.grouping is not None:
            return rows, groups
        return tuple(rows[:, view] for view in self.model.views)

    @cached_property
    def _law(self) -> tuple[Matrix, Matrix]:
        """The means (G, d) of the groups, and the root of the covariance within them."""
        model, spectrum, deviation, shares = self.model, self.spectrum, self.deviation, self.shares
        d, generator = model.n_features, np.random.default_rng(0)
        means, covariance = np.zeros((len(shares), d)), np.diag(np.full(d, deviation**2))
        leading = np.arange(len(spectrum))
        if model.traits.standardized:
            from scipy.stats import random_correlation  # slow to import

            correlations = random_correlation.rvs(spectrum, random_state=generator, tol=1e-8)
            values, vectors = np.linalg.eigh(correlations)
            return means, deviation * np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        if isinstance(model, ViewsModel):
            others = model.view_sizes[0] + leading
            cross = spectrum * (deviation**2 if isinstance(model, CcaModel) else 1.0)
            covariance[leading, others] = covariance[others, leading] = cross
        elif model.grouping is not None:
            along = np.sqrt(spectrum)[:, None] * contrasts(shares)[: len(spectrum)]
            means[:, leading] = deviation * along.T / np.sqrt(shares)[:, None]
            if isinstance(model, SirModel):  # its eigenvalues are parts of the whole variance
                covariance[leading, leading] -= deviation**2 * spectrum
        else:
            covariance = np.diag(spectrum)
        values, vectors = np.linalg.eigh(covariance)
        rotation = np.zeros((d, d))
        for view in model.views:
            size = view.stop - view.start
            rotation[view, view] = np.linalg.qr(generator.standard_normal((size, size)))[0]
        return means @ rotation, np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ rotation)


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
    """The mean of the moments of draws."""
    return replace(draws[0], **{name: np.mean([getattr(draw, name) for draw in draws], axis=0) for name in _BLOCKS})


def moments_of_more(draw: ReleasedMoments, mean: ReleasedMoments, n: int, n_draws: int, most: int) -> ReleasedMoments:
    """Moments of n people from those of a draw of at most ``most``, and their mean over draws."""
    if n < most:
        return replace(draw, n=float(n))
    share = math.sqrt(most / n * n_draws / (n_draws - 1))  # of what varies: the mean of all draws does, too
    pairs = {name: (getattr(mean, name), getattr(draw, name)) for name in _BLOCKS}
    return replace(draw, n=float(n), **{name: middle + share * (own - middle) for name, (middle, own) in pairs.items()})


def model_named(
    name: str, d: int | tuple[int, int] | None, spectrum: ArrayLike | None, shares: Sequence[float] | None
) -> RowModel:
    """The model of a name, centred, with a group for each of ``shares``."""
    require_one_of("model", name, sorted(PLANNED))
    kind = PLANNED[name]
    if issubclass(kind, ViewsModel):
        if not (isinstance(d, Sequence) and len(d) == 2):
            raise ValueError(f"the two views of {name!r} need d=(d_x, d_y), got {d!r}")
        return kind((require_count("d_x", d[0]), require_count("d_y", d[1])), center=True)
    features = require_count("d", d)
    if issubclass(kind, PcaModel):
        return kind(features, center=True)
    if issubclass(kind, FdaModel):
        n_classes = (1 if spectrum is None else np.size(spectrum)) + 1 if shares is None else len(shares)
        return kind(features, classes=tuple(range(n_classes)))
    n_slices = 10 if shares is None else len(shares)
    return SirModel(features, interior_edges=tuple(float(edge) for edge in range(1, n_slices)))


def by_number(model: RowModel) -> RowModel:
    """The model of groups 0, 1, ...: names of classes and edges of slices change nothing."""
    if isinstance(model, FdaModel):
        return replace(model, classes=tuple(range(len(model.classes))))
    if isinstance(model, SirModel):
        return replace(model, interior_edges=tuple(i + 0.5 for i in range(len(model.interior_edges))))
    return model


def largest_eigenvalue(model: RowModel, deviation: float) -> float:
    """What no eigenvalue of a population may reach."""
    if isinstance(model, PlsModel):
        return deviation**2
    return float(model.n_features) if model.traits.standardized else model.traits.largest_eigenvalue


def spectrum_of(model: RowModel, spectrum: ArrayLike | None, eigengap: float | None, deviation: float) -> Matrix:
    """All eigenvalues of a population, descending: those given, and those of rows without signal."""
    size, rest = model.max_components, 0.0
    if isinstance(model, PcaModel) and not model.traits.standardized:
        rest = deviation**2
    if eigengap is not None:
        require_positive("eigengap", eigengap)
        given = np.array([(1 - eigengap / size if model.traits.standardized else rest) + eigengap])
    else:
        given = np.atleast_1d(np.asarray(spectrum, dtype=float))
    most = largest_eigenvalue(model, deviation)
    if given.ndim != 1 or not 1 <= len(given) <= size or not ((given >= 0) & (given < math.inf)).all():
        raise ValueError(f"spectrum must be 1 to {size} finite numbers, none negative, got {spectrum!r}")
    if not (given < most).all():
        raise ValueError(f"the eigenvalues of this population must be below {most:g}, got {given.max():g}")
    if model.traits.standardized:
        rest = max(size - float(given.sum()), 0.0) / max(size - len(given), 1)
    return of_model(model, np.sort(np.append(given, np.full(size - len(given), rest)))[::-1])


def of_model(model: RowModel, values: Matrix) -> Matrix:
    """Eigenvalues, scaled so that they add up to their number where columns are standardized."""
    return np.asarray(values * (len(values) / values.sum()) if model.traits.standardized else values)


def shares_of(model: RowModel, shares: Sequence[float] | None) -> Matrix:
    """Shares of the groups; of everybody, where there are none."""
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
