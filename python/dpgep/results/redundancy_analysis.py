"""Redundancy analysis: the components of what some columns explain of others.

With C the covariance of responses y and predictors x, least squares predicts y by C_yx C_xx^-1 x, of the covariance

    F = C_yx C_xx^-1 C_xy.

Its eigenvalues are variances of y that x explains along its eigenvectors; their sum over tr C_yy is the redundancy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dpgep._checks import require_count, require_flag
from dpgep.models.model import Matrix
from dpgep.models.pairwise import require_no_pairs
from dpgep.results.columns import Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.group_directions import GroupDirections, Groups, Question, answer
from dpgep.sources.names import listed


@dataclass(frozen=True, eq=False, repr=False)
class RedundancyAnalysis(GroupDirections):
    """Components of the part of some columns that others explain.

    Attributes
    ----------
    predictors : (q,), of the columns x.
    predictor_weights : (K, q), in the units of the columns: scores x @ w are the scores of the predicted responses.
    explained : the share of the variance of the responses that the predictors explain.
    """

    predictors: tuple[str, ...]
    predictor_weights: Matrix
    explained: float

    def _remarks(self) -> list[str]:
        return [f"  explained  {self.explained:.1%} of the variance, by {listed(self.predictors)}"]


@on_one_thread_of_blas
def redundancy(
    release: ReleasedColumns,
    y: Columns,
    x: Columns,
    *,
    standardize: bool = False,
    n_components: int | None = None,
) -> RedundancyAnalysis:
    """Redundancy analysis: principal components of what the columns ``x`` explain of the columns ``y``.

    In the units of the columns, or with ``standardize`` in deviations of y. Of all indicators of a categorical column
    among x the first is left out. Default: min(p, q) components. Raises ValueError for unknown columns, one in both,
    and more components.
    """
    require_flag("standardize", standardize)
    responses, (given, _) = release._numbers(y, "y"), release._independent(release._numbers(x, "x"))
    features, p = np.concatenate([responses, given]), len(responses)
    if np.isin(given, responses).any():
        raise ValueError(f"columns {listed(release._names_of(np.intersect1d(given, responses)) or ())} are in y and x")
    noisy, mapped = release._moments_of(features)
    require_no_pairs(noisy, "a redundancy analysis")
    scale = np.ones(len(features)) if mapped is None or mapped.scale is None else mapped.scale
    most = min(p, len(given))
    k = require_count("n_components", most if n_components is None else n_components, largest=most)

    def units(groups: Groups) -> Matrix:
        deviations = np.sqrt(np.maximum(np.diagonal(groups.total), np.finfo(float).tiny))
        return np.asarray(1 / deviations if standardize else scale)

    def explained(groups: Groups) -> Matrix:
        """F, with zeros for x."""
        inside = groups.along(np.diag(units(groups))).total
        found = np.zeros_like(inside)
        found[:p, :p] = inside[:p, p:] @ _slopes(inside, p)
        return np.asarray((found + found.T) / 2)

    question = Question(None, explained, 0.0)
    found = answer(release, "Redundancy analysis", features, (), question, k, np.ones(len(features)), everybody=True)
    of_all, weights = found._groups, found.relative_components[:, :p]
    inside = of_all.along(np.diag(units(of_all))).total
    to_columns = units(of_all) / scale
    known = {each.name: getattr(found, each.name) for each in fields(found)}
    names = release._names_of(features) or tuple(map(str, features.tolist()))
    total = float(np.trace(inside[:p, :p]))
    known.update(names=names[:p], components=weights * to_columns[:p], relative_components=weights)
    return RedundancyAnalysis(
        **known,
        predictors=names[p:],
        predictor_weights=weights @ _slopes(inside, p).T * to_columns[p:],
        explained=min(float(np.trace(explained(of_all))) / total, 1.0) if total > 0 else 0.0,
    )


def _slopes(covariance: Matrix, p: int) -> Matrix:
    """(q, p), C_xx^-1 C_xy, of the directions in which x varies."""
    return np.asarray(np.linalg.lstsq(covariance[p:, p:], covariance[p:, :p], rcond=1e-12)[0])
