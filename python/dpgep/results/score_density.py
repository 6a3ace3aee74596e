"""The distribution of people's scores on two components: a bought histogram, and its density without the noise."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_count
from dpgep._optional import import_extra
from dpgep.models.model import Matrix
from dpgep.models.moments import together, total_mean, total_share
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
    """How people are distributed over their scores on two components; see `dpgep.score_density`.

    Attributes
    ----------
    shares : (C, G, G), noisy shares of the people of each group (C = 1 without groups) in each cell, as released.
    deviation : of the independent noise in each share.
    edges : (2, G + 1), ends of the cells in units of the scores. Whoever is beyond the frame is in its outermost cells.
    n : number of people.
    axes : what the two scores are called.
    groups : labels of the groups, None without groups.
    privacy : the report of this release alone; that of the solution is not part of it.
    """

    shares: NDArray[np.float64]
    deviation: float
    edges: Matrix
    n: int
    axes: tuple[str, str]
    groups: tuple[Hashable, ...] | None
    privacy: PrivacyReport

    @cached_property
    def density(self) -> NDArray[np.float64]:
        """(C, G, G), the shares without what the noise explains: none is negative, and all add up to 1.

        Coefficients in Daubechies' wavelets of four, of all shifts (Coifman and Donoho 1995), are kept if they are
        more than 4.5 deviations of the noise; what results is projected onto distributions. Post-processing.
        """
        kept = np.array([_denoised(each, self.deviation) for each in self.shares])
        return _distribution(kept)

    def marginal(self, axis: int) -> Matrix:
        """(C, G), the shares of the people in each interval of the first (0) or second (1) score."""
        return np.asarray(self.density.sum(axis=2 - axis))

    def quantiles(self, axis: int, levels: Any) -> Matrix:
        """Quantiles of all people's first (0) or second (1) score: linear within cells, within the frame."""
        cumulated = np.concatenate([[0.0], np.cumsum(self.marginal(axis).sum(axis=0))])
        # where nobody is between two edges, the first of them
        first = np.r_[True, np.diff(cumulated) > 0]
        return np.asarray(np.interp(levels, cumulated[first], self.edges[axis][first]))

    def sample(self, n: int, seed: int | np.random.Generator | None = None) -> tuple[Matrix, NDArray[Any] | None]:
        """(n, 2) synthetic scores, uniform within cells, and the group of each: nobody's, drawn from `density`."""
        require_count("n", n)
        generator, size = np.random.default_rng(seed), self.density.shape[1]
        cells = generator.choice(self.density.size, size=n, p=self.density.ravel())
        group, first, second = np.unravel_index(cells, self.density.shape)
        low, width = self.edges[:, 0], (self.edges[:, -1] - self.edges[:, 0]) / size
        points = low + width * (np.stack([first, second], axis=1) + generator.random((n, 2)))
        return points, None if self.groups is None else np.array(self.groups, dtype=object)[group]

    def save(self, target: Target) -> None:
        """Write the histogram with a checksum, to a path or an open binary file, for `dpgep.load`."""
        save(SCORES.packed(self), target)

    def to_frame(self) -> Any:
        """The density as a pandas DataFrame: a row for each cell of each group, by the middle of its scores."""
        pandas = import_extra("pandas", "pandas")
        middles = (self.edges[:, 1:] + self.edges[:, :-1]) / 2
        levels = [list(self.groups or ["all"]), middles[0], middles[1]]
        index = pandas.MultiIndex.from_product(levels, names=["group", *self.axes])
        return pandas.DataFrame({"share": self.density.ravel(), "noisy": self.shares.ravel()}, index=index)

    def __repr__(self) -> str:
        groups, size = "" if self.groups is None else f" of {len(self.groups)} groups", self.shares.shape[1]
        return (
            f"ScoreDensity of {self.axes[0]} and {self.axes[1]}{groups}, {size} x {size} cells; {self.privacy}\n"
            f"  noise    {self.deviation * self.n:.3g} people in each cell; {self.n} people in all\n"
            f"  frame    {', '.join(f'{low:.3g} to {high:.3g}' for low, *_, high in self.edges)}: whoever is beyond it "
            "is in the outermost cells; rows beyond the bound are shortened"
        )


@dataclass(frozen=True, eq=False)
class Frame:
    """Two scores w^T (x - mean) of rows as they were mapped, and the cells that people are counted in: public.

    ``weights`` (2, d), ``mean`` (d,), ``edges`` (2, G + 1) of the scores.
    """

    weights: Matrix
    mean: Matrix
    edges: Matrix
    axes: tuple[str, str]

    @classmethod
    def of(cls, solution: Solution, components: int | tuple[int, int], cells: int) -> Frame:
        """About a released mean, and as wide as the released variances of the scores say.

        Of two views, a single component: the score of each view.
        """
        if cells not in CELLS:
            raise ValueError(f"cells must be one of {', '.join(map(str, CELLS))}, got {cells!r}")
        moments, preprocessing = solution._moments, solution.preprocessing
        if moments is None or moments.pairs is not None:
            raise ValueError('scores need released moments: solve with method="release", and not missing="pairwise"')
        weights, axes = _weights(solution, components)
        mean = np.zeros(weights.shape[1]) if solution.mean is None else solution.mean
        if preprocessing is not None:
            mean = mean if preprocessing.location is None else mean - preprocessing.location
            scale = 1.0 if preprocessing.scale is None else preprocessing.scale
            weights, mean = weights * scale, mean / scale
            if preprocessing.linear is not None:  # rows are linear^T (x - location)/scale
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


def _weights(solution: Solution, components: int | tuple[int, int]) -> tuple[Matrix, tuple[str, str]]:
    """(2, d), weights of the two scores, and what they are called; components count from 1."""
    views, k = solution.model.views, solution.n_components
    chosen = components if isinstance(components, tuple) else (components,)
    if not {*chosen} <= {*range(1, k + 1)}:
        raise ValueError(f"components are numbered from 1 to {k}, got {components!r}")
    if len(views) == 2 and len(chosen) == 1:
        apart = np.zeros((2, solution.model.n_features))
        for row, view, weights in zip(apart, views, solution.view_weights, strict=True):
            row[view] = weights[chosen[0] - 1]
        return apart, (f"x score {chosen[0]}", f"y score {chosen[0]}")
    if len(views) > 1 or len(chosen) != 2 or len(set(chosen)) != 2:
        what = "a component, as components=1, of two views" if len(views) > 1 else "two components, as (1, 2)"
        raise ValueError(f"components must be {what}, got {components!r}")
    rows = solution.components[[each - 1 for each in chosen]]
    return np.array(rows), (f"score {chosen[0]}", f"score {chosen[1]}")


def _denoised(values: Matrix, deviation: float) -> Matrix:
    """Values of a grid that is a power of two wide, without independent noise of this deviation."""
    steps = [2**level for level in range(int(math.log2(len(values) / _COARSEST)))]
    kept = []
    for step in steps:
        deviation /= 2  # a filter of unit energy in each direction, over two
        rows = [_filtered(values, taps, step, 0) for taps in (_AVERAGE, _DIFFERENCE)]
        values, *details = (_filtered(each, taps, step, 1) for each in rows for taps in (_AVERAGE, _DIFFERENCE))
        kept.append([np.where(np.abs(each) > _KEPT * deviation, each, 0.0) for each in details])
    for step, details in zip(reversed(steps), reversed(kept), strict=True):
        parts = [values, *details]
        rows = [
            _filtered(parts[2 * i], _AVERAGE, -step, 1) + _filtered(parts[2 * i + 1], _DIFFERENCE, -step, 1)
            for i in (0, 1)
        ]
        values = _filtered(rows[0], _AVERAGE, -step, 0) + _filtered(rows[1], _DIFFERENCE, -step, 0)
    return values


def _filtered(values: Matrix, taps: Matrix, step: int, axis: int) -> Matrix:
    """A periodic filter with these taps, ``step`` cells apart; that of -step is its transpose."""
    return np.asarray(sum(tap * np.roll(values, k * step, axis) for k, tap in enumerate(taps.tolist())))


def _distribution(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest values that are nowhere negative and add up to 1: max(values - t, 0)."""
    ordered = -np.sort(-values, axis=None)
    levels = (np.cumsum(ordered) - 1) / np.arange(1, ordered.size + 1)
    return np.asarray(np.maximum(values - levels[np.flatnonzero(ordered > levels)[-1]], 0.0))
