"""What clipping took from a released covariance, as far as released values show it, and what may have been there.

A row z beyond the bound b is shortened to c z, c = b/|z|. From the second moment about the location, M = E (1 - c^2) z
z^T is lost: about its diagonal much is known, and its other entries are between -sqrt(M_ii M_jj) and sqrt(M_ii M_jj).
Three cases between these are told apart here: tails like the bulk (M is in proportion to what is left), independent
tails (M is diagonal), and tails that depend on each other (near the ends).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._show import Shown
from dpgep.models.model import Matrix

# Entries of M between two columns, over the largest that Cauchy and Schwarz allow, where tails depend on each other.
_DEPENDENT = 0.6
# Deviations of an error from which on a bias decides alone which end of an interval misses.
_FAR = 8.0
# Newton's steps by which an end is found to 1e-12 of a deviation.
_STEPS = 6


@dataclass(frozen=True, eq=False, repr=False)
class Clipping(Shown):
    """What is known of the rows before they were clipped."""

    covariance: Matrix  # (d, d), released, of the clipped rows
    lost: Matrix  # (d,), shares of the columns' variances that it lacks
    # from 0, where rows lose as much as Gaussian rows of this covariance do, to 1, where the two have nothing to
    # do with each other. Gaussian rows are put back as they were, others only in the mean.
    doubt: float
    # (d,), variances that the columns may have had at most, as these were bought, and more where a column has
    # tails of its own; 0 where they were not
    most: Matrix
    # variances of second moments over samples of people, relative to those of Gaussian rows: 1, and up to 3, as
    # of Student's law with five degrees of freedom, for rows that lose more than Gaussian ones
    people: float
    # by which share variances may be larger than what was put back: of rows with long tails, and of those that
    # the noise of the histogram of norms hides. Beyond 1, ``most`` holds a part of it.
    unseen: float = 0.0
    # (d,), by how much means may have been moved, as noisy counts over octaves show columns beyond the bound
    shift: Matrix | None = None
    without_tails: float = 0.0  # the doubt without what octaves show of columns, some of which may not be asked

    @property
    def longer(self) -> float:
        """From 0 to 1, how much longer than Gaussian rows these are."""
        return (self.people - 1) / 2

    @property
    def tails(self) -> Matrix:
        """(d,), the diagonal of M."""
        return np.asarray(np.maximum(np.diagonal(self.covariance), 0.0) * self.lost / (1 - self.lost))

    def restricted(self, features: NDArray[np.intp]) -> Clipping:
        """The same for some of the features."""
        covariance = self.covariance[np.ix_(features, features)]
        shift = None if self.shift is None else self.shift[features]
        return replace(self, covariance=covariance, lost=self.lost[features], most=self.most[features], shift=shift)

    def others(self, restored: Matrix, along: Matrix) -> Iterator[Matrix]:
        """Covariances before clipping beside that which was put back: `hypotheses`, nothing lost, and twice as much."""
        yield from self.hypotheses(along)
        yield self.covariance
        yield 2 * restored - self.covariance

    def hypotheses(self, along: Matrix) -> Iterator[Matrix]:
        """Covariances before clipping: tails like the bulk; independent; dependent, for each column of ``along``.

        Of dependent tails, long rows have entries with the signs of that column. All have the same diagonal.
        """
        grown = 1 / np.sqrt(1 - self.lost)
        yield self.covariance * np.outer(grown, grown)
        tails = self.tails
        yield self.covariance + np.diag(tails)
        for direction in along.T:
            row = np.sqrt(tails) * np.where(direction < 0, -1.0, 1.0)
            yield self.covariance + _DEPENDENT * np.outer(row, row) + np.diag((1 - _DEPENDENT) * tails)

    def grown(self, restored: Matrix) -> Matrix:
        """The covariance that was put back, with the largest variances that the columns may have had."""
        variances = np.maximum(np.diagonal(restored), 0.0)
        larger = (self.most > variances) & (variances > 0)
        ratios = np.divide(self.most, variances, out=np.ones_like(variances), where=larger)
        return np.asarray(restored * np.sqrt(np.outer(ratios, ratios)))

    def entries(self) -> tuple[Matrix, Matrix]:
        """(d, d), the least and the largest entries of these covariances, whatever the signs."""
        rescaled, independent = self.hypotheses(np.empty((len(self.lost), 0)))
        reach = _DEPENDENT * np.sqrt(np.outer(self.tails, self.tails))
        np.fill_diagonal(reach, 0.0)
        low, high = independent - reach, independent + reach
        return np.minimum(low, rescaled), np.maximum(high, rescaled)

    def widened(self, value: Matrix, low: Matrix, high: Matrix) -> tuple[Matrix, Matrix]:
        """(below, above) by which intervals about ``value`` are longer, as values lie from ``low`` to ``high``."""
        return self.doubt * np.maximum(value - low, 0.0), self.doubt * np.maximum(high - value, 0.0)


def longer_by(half: Matrix, reach: Matrix, level: float) -> Matrix:
    """By how much an interval that reaches ``half`` for a Gaussian error e alone is longer for a bias |b| <= reach.

    |e + b| <= h with probability ``level`` at least, whatever b is. With s the deviation of e, (h/s)^2 is a quantile of
    the noncentral chi-square of one degree of freedom, of (reach/s)^2, found by Newton's steps from below: SciPy takes
    20 times as long. half + reach would hold more.
    """
    from scipy.special import ndtr, ndtri

    deviation = np.where(np.isfinite(half), half, 0.0) / ndtri((1 + level) / 2)
    ratio = np.divide(reach, deviation, out=np.zeros(np.broadcast_shapes(reach.shape, half.shape)), where=deviation > 0)
    near = np.minimum(ratio, _FAR)  # beyond, it is one end of e alone that misses
    end = np.maximum(near + ndtri(level), ndtri((1 + level) / 2))  # twice what may miss lies beyond, or less
    for _ in range(_STEPS):
        missed = ndtr(near - end) + ndtr(-near - end) - (1 - level)
        end += missed * math.sqrt(2 * math.pi) / (np.exp(-((near - end) ** 2) / 2) + np.exp(-((near + end) ** 2) / 2))
    held = deviation * (end + ratio - near)
    return np.where(deviation > 0, np.where(reach > 0, held - half, 0.0), reach)


def clipping_reach(
    clipping: Clipping | None, value: Matrix, restored: Matrix, answer: Callable[..., Any], signs: Matrix | None = None
) -> tuple[Matrix, Matrix]:
    """(below, above) by which intervals about ``value`` are longer, as ``answer`` of `Clipping.others` is another.

    Dependent tails are long along the leading direction of what was put back, and along that times ``signs``.
    """
    if clipping is None:
        return np.zeros_like(value), np.zeros_like(value)
    leading = np.linalg.eigh(restored)[1][:, -1:]
    along = leading if signs is None else np.hstack([leading, leading * signs[:, None]])
    answers = np.array([answer(other) for other in clipping.others(restored, along)])
    return clipping.widened(value, answers.min(axis=0), answers.max(axis=0))
