"""Noisy counts of people over cells of columns' values, and the quantiles that they show."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpgep._show import Shown
from dpgep.models.model import Matrix

# Deviations of its noise that the number of people of a column must exceed.
_SHOWN = 4.0
# Counts below it can be added up; no table has as many people.
MOST_COUNTED = 2.0**500


@dataclass(frozen=True, eq=False, repr=False)
class Histograms(Shown):
    """Noisy counts of the values of d columns in m cells each, as they were bought."""

    edges: Matrix  # (d, m + 1), ends of the cells, which hold their lower ends; the outermost may be infinite
    counts: Matrix  # (d, m), people
    deviation: Matrix  # (d,), of the noise in a count; inf for columns that were not counted

    def __post_init__(self) -> None:
        for name in ("edges", "counts", "deviation"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
        d, m = self.counts.shape if self.counts.ndim == 2 else (-1, -1)
        fits = (
            self.edges.shape == (d, m + 1)
            and self.deviation.shape == (d,)
            and np.abs(self.counts).max(initial=0.0) < MOST_COUNTED
        )
        if not (fits and (self.edges[:, 1:] >= self.edges[:, :-1]).all() and (self.deviation >= 0).all()):
            raise ValueError("histograms must have finite counts, and ascending edges of one cell more, of each column")

    def restricted(self, features: NDArray[np.intp]) -> Histograms:
        """The same for some of the columns."""
        return replace(
            self, edges=self.edges[features], counts=self.counts[features], deviation=self.deviation[features]
        )

    def quantiles(self, share: float, level: float) -> Matrix:
        """(d, 3), the value that a share p of the people do not exceed, and an interval for the population's.

        With L people in the k first of m cells, and T in all, L/T has the variance s^2 (k (1 - p)^2 + (m - k) p^2)/T^2
        of the noise where it is p, and p (1 - p)/T of people. The value is as if people were even within cells; an
        interval holds the whole cells that it ends in, where one value may have many people. NaN where the noise hides
        how many people there are.
        """
        m, total = self.counts.shape[1], self.counts.sum(axis=1)
        known = total > _SHOWN * self.deviation * math.sqrt(m)
        people, deviation = np.where(known, total, 1.0), np.where(known, self.deviation, 0.0)
        below = np.pad(self.counts.cumsum(axis=1) / people[:, None], ((0, 0), (1, 0)))
        falling = np.minimum.accumulate(below[:, ::-1], axis=1)[:, ::-1]
        rising = (np.maximum.accumulate(below, axis=1) + falling) / 2
        cells = _cells(rising, np.full(len(total), share)) + 0.5
        noise = (deviation / people) ** 2 * (cells * (1 - share) ** 2 + (m - cells) * share**2)
        half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(noise + share * (1 - share) / people)
        (value, _, _), (_, lower, _), (_, _, upper) = (self._within(rising, share + sign * half) for sign in (0, -1, 1))
        found = np.column_stack([value, lower, upper])
        return np.where(known[:, None], found, [np.nan, -np.inf, np.inf])

    def _within(self, rising: Matrix, shares: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Where cumulated shares reach these: within cells, and the ends of these cells."""
        each, cell = np.arange(len(shares)), _cells(rising, shares)
        first, last = self.edges[each, cell], self.edges[each, cell + 1]
        held = rising[each, cell + 1] - rising[each, cell]
        part = np.clip((shares - rising[each, cell]) / np.where(held > 0, held, 1.0), 0.0, 1.0)
        inside = np.where(np.isinf(first), last, first)
        finite = np.isfinite(first) & np.isfinite(last)
        width = np.subtract(last, first, out=np.zeros_like(first), where=finite)
        return inside + part * width, first, last


def _cells(rising: Matrix, shares: Matrix) -> NDArray[np.intp]:
    """(d,), the first cell at whose end a cumulated share is reached, or the last."""
    return np.asarray(np.minimum((rising[:, 1:] < shares[:, None]).sum(axis=1), rising.shape[1] - 2))
