"""Redundancy analysis: the components of what some columns explain of others.

With C the covariance of responses y and predictors x, least squares predicts y by C_yx C_xx^-1 x, of the covariance

    F = C_yx C_xx^-1 C_xy.

Its eigenvalues are variances of y that x explains along its eigenvectors; their sum over tr C_yy is the redundancy,
here corrected for the noise as the R squared of a `regression` is. With residuals y - B^T x, of variances e_j, weights
w_j and R = 1 - sum w_j e_j/sum w_j C_jj, an error N of C moves it by <A, N>, to first order, with

    A = sum_j w_j ((1 - R) y_j y_j^T - (y_j - B_j^T x) (y_j - B_j^T x)^T) / sum_j w_j C_jj

of unit vectors y_j and x (of standardized columns w_j = 1/C_jj moves, too: (1 - R) is e_j/C_jj).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_count, require_flag
from dpgep.errors import warn_inaccurate
from dpgep.models.clipping import clipping_reach, longer_by
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, standardization_of, total_mean
from dpgep.models.pairwise import require_no_pairs
from dpgep.models.preprocessing import location_and_scale
from dpgep.results.columns import Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.group_directions import GroupDirections, Groups, Question, answer, units_of
from dpgep.results.intervals import require_law
from dpgep.results.least_squares import inverse_of_noisy
from dpgep.sources.names import listed


@dataclass(frozen=True, eq=False, repr=False)
class RedundancyAnalysis(GroupDirections):
    """Components of the part of some columns that others explain.

    Attributes
    ----------
    predictors : (q,), of the columns x.
    predictor_weights : (K, q), in the units of the columns: scores x @ w are the scores of the predicted responses.
    explained : the share of the variance of the responses that the predictors explain.
    explained_low, explained_high : ends of an interval for the population's, at ``level``, for the noise and the
        sampling of people, to first order, and in part for what clipping may have done.
    level : the probability that this interval covers it.
    """

    predictors: tuple[str, ...]
    predictor_weights: Matrix
    explained: float
    explained_low: float
    explained_high: float
    level: float

    def _remarks(self) -> list[str]:
        shares = f"{self.explained:.1%} [{self.explained_low:.1%}, {self.explained_high:.1%}]"
        return [f"  explained  {shares} of the variance, by {listed(self.predictors)}; interval at {self.level:.0%}"]


@on_one_thread_of_blas
def redundancy(
    release: ReleasedColumns,
    y: Columns,
    x: Columns,
    *,
    standardize: bool = False,
    n_components: int | None = None,
    level: float = 0.9,
) -> RedundancyAnalysis:
    """Redundancy analysis: principal components of what the columns ``x`` explain of the columns ``y``.

    In the units of the columns, or with ``standardize`` in deviations of y. Of all indicators of a categorical column
    among x the first is left out. Default: min(p, q) components. Raises ValueError for unknown columns, one in both,
    and more components.
    """
    require_flag("standardize", standardize)
    require_law(level, "gaussian")
    responses, (given, _) = release._numbers(y, "y"), release._independent(release._numbers(x, "x"))
    features, p = np.concatenate([responses, given]), len(responses)
    if np.isin(given, responses).any():
        raise ValueError(f"columns {listed(release._names_of(np.intersect1d(given, responses)) or ())} are in y and x")
    noisy, mapped = release._moments_of(features)
    require_no_pairs(noisy, "a redundancy analysis")
    scale, most = location_and_scale(mapped, len(features))[1], min(p, len(given))
    k = require_count("n_components", most if n_components is None else n_components, largest=most)
    known_units = None if standardize else scale
    question = Question(None, partial(_explained_part, known_units, p), 0.0)
    found = answer(release, "Redundancy analysis", features, (), question, k, np.ones(len(features)), everybody=True)
    of_all, weights = found._groups, found.relative_components[:, :p]
    units = units_of(known_units, of_all)
    inside, to_columns = of_all.along(np.diag(units)).total, units / scale
    known, names = {**vars(found)}, release._labels_of(features)
    weights_of_y = None if standardize else (scale[:p] / scale[:p].max()) ** 2
    shares = _explained(noisy, given, release.model.feature_names, weights_of_y, level)
    known.update(zip(("explained", "explained_low", "explained_high"), shares, strict=True))
    known.update(names=names[:p], components=weights * to_columns[:p], relative_components=weights)
    slopes = weights @ _slopes(inside, p).T * to_columns[p:]
    return RedundancyAnalysis(**known, predictors=names[p:], predictor_weights=slopes, level=level)


def _explained(
    released: ReleasedMoments, given: NDArray[np.intp], names: Any, weights: Matrix | None, level: float
) -> tuple[float, float, float]:
    """The share of the variance of y that x, the columns ``given``, explain, and the ends of its interval.

    ``weights`` (p,) of the variances of y; None: one over each.
    """
    q, mean, noise = len(given), total_mean(released), released.noise
    p = len(mean) - q
    variation, of_mean = noise.second**2 / 2, noise.sums**2
    covariance = released.second - np.outer(mean, mean) + of_mean * np.eye(p + q)
    g = np.asarray(np.linalg.pinv(covariance[p:, p:], rcond=1e-12, hermitian=True), dtype=np.float64)
    xi = np.zeros((q, q))
    if variation:
        g, xi = inverse_of_noisy(covariance[p:, p:], mean[p:], released, given, names)
    own = variation * np.trace(g) + of_mean * (mean[p:] @ g @ mean[p:] + mean[:p] ** 2 * np.trace(g))

    def shares(of_xx: Matrix, matrix: Matrix) -> tuple[float, Matrix, Matrix, Matrix]:
        """R, B, variances of residuals, and weights over their sum of variances."""
        slopes, variances = of_xx @ matrix[p:, :p], np.maximum(np.diagonal(matrix)[:p], np.finfo(float).tiny)
        left = np.clip(variances - np.sum(slopes * matrix[p:, :p], axis=0) + own, 0.0, variances)
        over = 1 / (p * variances) if weights is None else weights / float(weights @ variances)
        return max(float(1 - over @ left), 0.0), slopes, left / variances, over

    share, slopes, left, over = shares(g, covariance)
    drowned = standardization_of(released).drowned[:p]
    if np.trace(g @ xi @ g) > np.trace(g) or (drowned.any() if weights is None else drowned.all()):
        warn_inaccurate("noise hides the columns of x, or of y: what is explained, and intervals of it, may not hold")
        return share, 0.0, 1.0
    residuals = np.vstack([np.eye(p), -slopes])
    moved = -(residuals * over) @ residuals.T
    moved[np.arange(p), np.arange(p)] += over * (left if weights is None else 1 - share)
    along = moved @ mean
    variance = noise.second**2 * float(np.sum(moved**2)) + 4 * of_mean * float(along @ along)
    variance += (noise.counts * float(mean @ along)) ** 2
    longer = 1.0 if released.clipping is None else released.clipping.people
    spread = moved @ covariance
    variance += 2 * longer * max(float(np.sum(spread * spread.T)), 0.0) / released.n
    half, signs = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance), np.repeat([1.0, -1.0], [p, q])

    def moved_share(other: Matrix) -> float:
        return shares(np.asarray(np.linalg.inv(other[p:, p:] + xi)), other)[0]

    reaches = clipping_reach(released.clipping, np.array(share), covariance, moved_share, signs)
    below, above = (half + float(longer_by(np.array(half), reach, level)) for reach in reaches)
    return share, max(share - below, 0.0), min(share + above, 1.0)


def _explained_part(scale: Matrix | None, p: int, groups: Groups) -> Matrix:
    """F, with zeros for x."""
    inside = groups.along(np.diag(units_of(scale, groups))).total
    found = np.zeros_like(inside)
    found[:p, :p] = inside[:p, p:] @ _slopes(inside, p)
    return np.asarray((found + found.T) / 2)


def _slopes(covariance: Matrix, p: int) -> Matrix:
    """(q, p), C_xx^-1 C_xy, of the directions in which x varies."""
    return np.asarray(np.linalg.lstsq(covariance[p:, p:], covariance[p:, :p], rcond=1e-12)[0])
