"""The distribution of people's scores on one or two components: a bought histogram, its density without the noise."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_count
from dpgep._optional import data_frame
from dpgep.models.model import Matrix
from dpgep.models.moments import effective_counts, together, total_mean, total_share
from dpgep.models.preprocessing import location_and_scale
from dpgep.models.row_model import Grouping
from dpgep.privacy.clipped_products import Asked
from dpgep.reports.report import PrivacyReport
from dpgep.results.solution import Solution
from dpgep.serialization import Format, Target, save

SCORES = Format("dpgep-scores")

# Cells of the histogram in each direction.
CELLS = (16, 32, 64, 128)
# Half of the frame, in deviations of a score: beyond it are 5 of 10 000 people of a normal law.
_HALF_WIDTH = 3.5
# Deviations of the noise that a coefficient of the wavelets must exceed to be kept: noise alone leaves one of a picture
# of 64 by 64 cells with a probability below 0.09.
_KEPT = 4.5
# Coarsest averages, which are all kept: this many of them in each direction.
_COARSEST = 4
# Daubechies' four coefficients, of sum 1: averages, and the differences that are orthogonal to them.
_AVERAGE = np.array([1 + math.sqrt(3), 3 + math.sqrt(3), 3 - math.sqrt(3), 1 - math.sqrt(3)]) / 8
_DIFFERENCE = _AVERAGE[::-1] * [1, -1, 1, -1]


@dataclass(frozen=True, eq=False, repr=False)
class ScoreDensity:
    """How people are distributed over their scores on two components, or on one; see `dpgep.score_density`.

    Attributes
    ----------
    shares : (C, G, G), or (C, G) of one score: noisy shares of the people of each group (C = 1 without groups) in each
        cell, as released.
    deviation : of the independent noise in each share.
    edges : (2, G + 1), or (1, G + 1): ends of the cells in units of the scores. Whoever is beyond the frame is in its
        outermost cells.
    n : number of people.
    axes : what the scores are called.
    groups : labels of the groups, None without groups.
    privacy : the report of this release alone; that of the solution is not part of it.
    """

    shares: NDArray[np.float64]
    deviation: float
    edges: Matrix
    n: int
    axes: tuple[str, ...]
    groups: tuple[Hashable, ...] | None
    privacy: PrivacyReport

    @cached_property
    def density(self) -> NDArray[np.float64]:
        """(C, G, G) or (C, G), the shares without what the noise explains: none is negative, and all add up to 1.

        Coefficients in Daubechies' wavelets of four, of all shifts (Coifman and Donoho 1995), are kept if they are
        more than 4.5 deviations of the noise; what results is projected onto distributions of the people who have a
        group: of everybody, unless the sum of all shares is 3 deviations of its noise below 1. Post-processing.
        """
        kept = np.array([_denoised(each, self.deviation) for each in self.shares])
        total, noise = float(self.shares.sum()), self.deviation * math.sqrt(self.shares.size)
        everybody = self.groups is None or total > 1 - 3 * noise
        return _distribution(kept if everybody else kept / max(total, noise, np.finfo(float).tiny))

    def marginal(self, axis: int) -> Matrix:
        """(C, G), the shares of the people in each interval of the first (0) or second (1) score."""
        return np.asarray(self.density.sum(axis=tuple({*range(1, self.density.ndim)} - {axis + 1})))

    def quantiles(self, axis: int, levels: Any, group: Hashable = None) -> Matrix:
        """Quantiles of all people's first (0) or second (1) score, or a group's: linear within cells, within the frame.

        NaN of a group of which the noise leaves nobody. ValueError for a group that is not there.
        """
        names = self.groups or ()
        if group is not None and group not in names:
            raise ValueError(f"there is no group {group!r}: there are {', '.join(map(repr, names)) or 'none'}")
        shares = self.marginal(axis)[slice(None) if group is None else [names.index(group)]]
        cumulated = np.concatenate([[0.0], np.cumsum(shares.sum(axis=0))])
        if not cumulated[-1] > 0:
            return np.full(np.shape(levels), math.nan)
        cumulated /= cumulated[-1]
        # where nobody is between two edges, the first of them
        first = np.r_[True, np.diff(cumulated) > 0]
        return np.asarray(np.interp(levels, cumulated[first], self.edges[axis][first]))

    def sample(self, n: int, seed: int | np.random.Generator | None = None) -> tuple[Matrix, NDArray[Any] | None]:
        """(n, 2) synthetic scores, uniform within cells, and the group of each: nobody's, drawn from `density`."""
        require_count("n", n)
        generator, size = np.random.default_rng(seed), self.density.shape[1]
        cells = generator.choice(self.density.size, size=n, p=self.density.ravel())
        group, *places = np.unravel_index(cells, self.density.shape)
        low, width = self.edges[:, 0], (self.edges[:, -1] - self.edges[:, 0]) / size
        points = low + width * (np.stack(places, axis=1) + generator.random((n, len(places))))
        return points, None if self.groups is None else np.array(self.groups, dtype=object)[group]

    def save(self, target: Target) -> None:
        """Write the histogram with a checksum, to a path or an open binary file, for `dpgep.load`."""
        save(SCORES.packed(self), target)

    def to_frame(self) -> Any:
        """The density as a pandas DataFrame: a row for each cell of each group, by the middle of its scores."""
        middles = (self.edges[:, 1:] + self.edges[:, :-1]) / 2
        index = [list(each) for each in zip(*product(self.groups or ["all"], *middles), strict=True)]
        values = {"share": self.density.ravel(), "noisy": self.shares.ravel()}
        return data_frame(values, index, name=["group", *self.axes])

    def __repr__(self) -> str:
        groups = "" if self.groups is None else f" of {len(self.groups)} groups"
        size = " x ".join(map(str, self.shares.shape[1:]))
        return (
            f"ScoreDensity of {' and '.join(self.axes)}{groups}, {size} cells; {self.privacy}\n"
            f"  noise    {self.deviation * self.n:.3g} people in each cell; {self.n} people in all\n"
            f"  frame    {', '.join(f'{low:.3g} to {high:.3g}' for low, *_, high in self.edges)}: whoever is beyond it "
            "is in the outermost cells; rows beyond the bound are shortened"
        )


@dataclass(frozen=True, eq=False)
class Frame:
    """One or two scores w^T (x - mean) of mapped rows, and the cells that people are counted in: public."""

    weights: Matrix  # (K, d)
    mean: Matrix  # (d,)
    edges: Matrix  # (K, G + 1), of the scores
    axes: tuple[str, ...]

    @classmethod
    def of(cls, solution: Solution, components: int | tuple[int, int] | None, cells: int) -> Frame:
        """About a released mean, and as wide as the released variances of the scores say."""
        if cells not in CELLS:
            raise ValueError(f"cells must be one of {', '.join(map(str, CELLS))}, got {cells!r}")
        moments, preprocessing = solution._moments, solution.preprocessing
        if moments is None or moments.pairs is not None:
            raise ValueError('scores need released moments: solve with method="release", and not missing="pairwise"')
        weights, axes = _weights(solution, components)
        mean = np.zeros(weights.shape[1]) if solution.mean is None else solution.mean
        location, scale = location_and_scale(preprocessing, weights.shape[1])
        weights, mean = weights * scale, (mean - location) / scale
        if preprocessing is not None and preprocessing.linear is not None:  # rows are linear^T (x - location)/scale
            weights = np.linalg.solve(preprocessing.linear, weights.T).T
            mean = preprocessing.linear.T @ mean
        everybody = together(moments)
        second, centre = everybody.second / total_share(everybody), total_mean(everybody)
        variances = np.einsum("ij,jk,ik->i", weights, second, weights)
        if solution.mean is not None and centre.size:
            variances -= (weights @ centre) ** 2
        noise = everybody.noise.second * np.einsum("ij,ij->i", weights, weights)
        deviations = np.sqrt(np.maximum(variances, np.maximum(noise, np.finfo(float).tiny)))
        return cls(weights, mean, np.outer(_HALF_WIDTH * deviations, np.linspace(-1.0, 1.0, cells + 1)), axes)

    def in_bounds(self, bound: float) -> tuple[Asked, Matrix]:
        """What a curator is asked: directions of an operator norm of 1, and the inner edges of the cells in bounds."""
        size = float(np.linalg.norm(self.weights, 2)) * (1 + 2.0**-40)
        return Asked(self.weights / size, self.mean), self.edges[:, 1:-1] / (size * bound)


def names_of(grouping: Grouping | None) -> tuple[Hashable, ...] | None:
    """What groups are called: labels of classes, numbers of slices."""
    return None if grouping is None else getattr(grouping, "labels", tuple(range(grouping.n_groups)))


def normal_scores(solution: Solution, components: int | tuple[int, int] | None) -> ScoreDensity:
    """What `ScoreDensity` would hold if scores were normal with their released means and covariances, in each group.

    Post-processing. Where groups have no second moment each, the covariance is that within all of them.
    """
    frame, moments = Frame.of(solution, components, CELLS[-1]), solution._moments
    assert moments is not None
    within, rows = together(moments), frame.weights
    counts = effective_counts(moments) if moments.sums.shape[1] else np.ones(1)
    means = rows @ (moments.sums / counts if moments.sums.shape[1] else np.zeros((rows.shape[1], 1)))
    if moments.by_group:
        second = np.einsum("ij,gjk,lk->gil", rows, moments.second, rows) / counts[:, None, None]
        covariances = second - np.einsum("ig,jg->gij", means, means)
    else:
        pooled = (rows @ within.second @ rows.T - (means * counts) @ means.T) / counts.sum()
        covariances = np.broadcast_to(pooled, (len(counts), *pooled.shape))
    middles = (frame.edges[:, 1:] + frame.edges[:, :-1]) / 2
    grid = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1)
    shares = np.array(
        [_normal(grid - mean, each) for mean, each in zip(means.T - rows @ frame.mean, covariances, strict=True)]
    )
    shares *= (counts / counts.sum()).reshape(-1, *(1,) * len(rows))
    n = round(moments.n)
    return ScoreDensity(
        shares, 0.0, frame.edges, n, frame.axes, names_of(getattr(solution.model, "grouping", None)), solution.privacy
    )


def _normal(away: NDArray[np.float64], covariance: Matrix) -> NDArray[np.float64]:
    """The density of a normal law, of sum 1, at points that are so far away from its mean."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 1e-3 * max(float(values[-1]), np.finfo(float).tiny))
    density = np.exp(-((away @ vectors) ** 2 / values).sum(axis=-1) / 2)
    return np.asarray(density / max(float(density.sum()), np.finfo(float).tiny))


def _weights(solution: Solution, components: int | tuple[int, int] | None) -> tuple[Matrix, tuple[str, ...]]:
    """(K, d), weights of the scores, of two views that of each, and what they are called; components count from 1."""
    views, k = solution.model.views, solution.n_components
    if components is None:
        components = (1, 2) if len(views) == 1 < k else 1
    chosen = components if isinstance(components, tuple) else (components,)
    if not {*chosen} <= {*range(1, k + 1)}:
        raise ValueError(f"components are numbered from 1 to {k}, got {components!r}")
    if len(views) == 2 and len(chosen) == 1:
        apart = np.zeros((2, solution.model.n_features))
        for row, view, weights in zip(apart, views, solution.view_weights, strict=True):
            row[view] = weights[chosen[0] - 1]
        return apart, (f"x score {chosen[0]}", f"y score {chosen[0]}")
    if len(views) > 1 or len({*chosen}) != len(chosen) or len(chosen) > 2:
        what = "a component, as components=1, of two views" if len(views) > 1 else "two components, as (1, 2), or one"
        raise ValueError(f"components must be {what}, got {components!r}")
    rows = solution.components[[each - 1 for each in chosen]]
    return np.array(rows), tuple(f"score {each}" for each in chosen)


def _denoised(values: Matrix, deviation: float) -> Matrix:
    """Values of a grid, or a line, that is a power of two wide, without independent noise of this deviation."""
    steps = [2**level for level in range(int(math.log2(len(values) / _COARSEST)))]
    kept = []
    for step in steps:
        deviation /= 2 ** (values.ndim / 2)  # filters of unit energy, over the root of two
        parts = [values]
        for axis in range(values.ndim):
            parts = [_filtered(each, taps, step, axis) for each in parts for taps in (_AVERAGE, _DIFFERENCE)]
        values, *details = parts
        kept.append([np.where(np.abs(each) > _KEPT * deviation, each, 0.0) for each in details])
    for step, details in zip(reversed(steps), reversed(kept), strict=True):
        parts = [values, *details]
        for axis in reversed(range(values.ndim)):
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [_filtered(a, _AVERAGE, -step, axis) + _filtered(b, _DIFFERENCE, -step, axis) for a, b in pairs]
        (values,) = parts
    return values


def _filtered(values: Matrix, taps: Matrix, step: int, axis: int) -> Matrix:
    """A periodic filter with these taps, ``step`` cells apart; that of -step is its transpose."""
    return np.asarray(sum(tap * np.roll(values, k * step, axis) for k, tap in enumerate(taps.tolist())))


def _distribution(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest values that are nowhere negative and add up to 1: max(values - t, 0)."""
    values = values - values.max()  # which changes nothing but what rounding makes of large ones
    ordered = -np.sort(-values, axis=None)
    levels = (np.cumsum(ordered) - 1) / np.arange(1, ordered.size + 1)
    return np.asarray(np.maximum(values - levels[np.flatnonzero(ordered > levels)[-1]], 0.0))
