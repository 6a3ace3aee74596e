"""Synthetic rows with released moments, for trying a pipeline without data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep._checks import require_count
from dpgep._optional import MissingExtraError, import_extra
from dpgep.models.model import Matrix
from dpgep.models.moments import group_factors, total_mean, total_share
from dpgep.models.preprocessing import AutoPreprocessing, location_and_scale
from dpgep.models.row_model import Classes
from dpgep.results.classifiers import label_array, within_covariance
from dpgep.results.columns import Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.sources.names import Names

# Diagonal entries of the nearest correlation matrix are 1 to about this, before they are made so.
_TOLERANCE = 1e-6
_MOST_ITERATIONS = 1000
# Deviations of its noise by which a variance must exceed 0 for correlations of its column to tell anything.
_SHOWN = 4.0
# Share of people without a listed category that noise may have made, and relative size of an eigenvalue that is none.
_LISTED, _SINGULAR = 0.02, 1e-8


@on_one_thread_of_blas
def sample(
    release: ReleasedColumns,
    n: int,
    seed: int | np.random.Generator | None = None,
    *,
    columns: Columns = None,
    ranges: Mapping[str | int, tuple[float, float]] | None = None,
) -> Any:
    """Synthetic people: n rows with the released mean and covariance; of classes, (rows, labels).

    Categories have their released shares and go together as released; numbers are Gaussian given the categories.
    No more than second moments is in these rows: no shapes of distributions, no whole numbers, no relations of more
    than two columns; and the noise of the release is in them as if it were signal. They are for
    trying pipelines without data. What is estimated from them is worse than the released moments, and no more of
    them makes it better: they are not for inference.

    A pandas DataFrame where the columns have names and pandas is installed, else an array. ``seed`` is of the rows,
    as for `numpy.random.default_rng`; not of any noise that protects people. ``ranges`` are public ranges
    {column: (low, high)}, by number or name, into which values are clipped. Raises ValueError for n below 1, or
    ranges that are not (low, high) of known columns.
    """
    require_count("n", n)
    features, generator = release._numbers(columns), np.random.default_rng(seed)
    d, feature_names, grouping = len(features), release._names_of(features), release.model.grouping
    classes = grouping.labels if isinstance(grouping, Classes) else None
    limits = AutoPreprocessing(ranges=ranges or {}).for_columns(d, feature_names).ranges
    released, preprocessing = release._moments_of(features, grouped=classes is not None)
    if classes is None:
        means, codes = total_mean(released)[None, :], np.zeros(n, dtype=np.intp)
        covariance = released.second / total_share(released) - means.T @ means
    else:  # the mean of a group that noise drowns is shrunk
        sums, weights = group_factors(released)
        means, covariance = sums * weights[:, None], within_covariance(released)
        codes = generator.choice(len(weights), size=n, p=1 / weights / np.sum(1 / weights))
    location, scale = location_and_scale(preprocessing, d)
    drawn = np.array([j for group in release._indicators_of(features) for j in group], dtype=np.intp)
    units, shift = np.ones(d), np.zeros(d)  # numbers are drawn as they are mapped: squares in their units may overflow
    units[drawn], shift[drawn] = scale[drawn], location[drawn]
    means = means * units + shift
    covariance *= np.outer(units, units)
    noise = released.noise.second * units**2
    shares = np.bincount(codes, minlength=len(means)) / n
    heads = {group: name for name, group in release._categories.items()}
    places = {heads.get(tuple(features[list(group)].tolist())): group for group in release._indicators_of(features)}
    categories = {name: group for name, group in places.items() if name is not None}
    groups = [np.array(group) for group in categories.values()]
    for group in groups:
        _make_shares(means, covariance, group, shares)
    rows = _drawn(means[codes], possible_covariance(covariance, noise), groups, generator)
    rows = rows * (scale / units) + (location - shift)
    for column, (low, high) in limits.items():
        np.clip(rows[:, int(column)], low, high, out=rows[:, int(column)])
    table = _table(rows, feature_names, categories)
    return table if classes is None else (table, label_array(classes)[codes])


def _make_shares(means: Matrix, covariance: Matrix, group: NDArray[np.intp], weights: Matrix) -> None:
    """Make means of indicators of a column shares, of sum 1 or less, and their covariance that of shares, in place."""
    p = np.maximum(means[:, group], 0.0)
    total = p.sum(axis=1, keepdims=True)
    complete = abs(float(weights @ total[:, 0]) - 1) < _LISTED
    p /= np.maximum(total, 1e-12) if complete else np.maximum(total, 1.0)
    means[:, group], average = p, weights @ p
    if complete:
        covariance[:, group] -= np.outer(covariance[:, group].sum(axis=1), average)
    covariance[group] = covariance[:, group].T
    covariance[np.ix_(group, group)] = np.diag(average) - (p.T * weights) @ p


def _drawn(rows: Matrix, covariance: Matrix, groups: list[NDArray[np.intp]], generator: np.random.Generator) -> Matrix:
    """Rows around their means, which are overwritten: categories one after another, then numbers given all of them.

    Both by least squares on what was drawn before, so that moments are as given: probabilities of a category are
    linear in it, and cut to [0, 1]; numbers are Gaussian around their prediction.
    """
    before, known = np.empty((len(rows), 0)), np.empty(0, dtype=np.intp)

    def predicted(columns: NDArray[np.intp]) -> tuple[Matrix, Matrix]:
        inverse = np.linalg.pinv(covariance[np.ix_(known, known)], rcond=_SINGULAR, hermitian=True)
        weights = covariance[np.ix_(columns, known)] @ inverse
        left = covariance[np.ix_(columns, columns)] - weights @ covariance[np.ix_(known, columns)]
        return rows[:, columns] + before @ weights.T, left

    for group in groups:
        chances = np.maximum(predicted(group)[0], 0.0)
        complete = bool(np.all(rows[:, group].sum(axis=1) > 1 - _SINGULAR))
        chances /= np.maximum(chances.sum(axis=1), 1e-12 if complete else 1.0)[:, None]
        below = np.cumsum(chances, axis=1)
        at = generator.random((len(rows), 1))
        indicators = (at < below) & (at >= below - chances)
        before = np.hstack([before, indicators - rows[:, group]])
        rows[:, group] = indicators
        known = np.append(known, group)
    numbers = np.setdiff1d(np.arange(rows.shape[1]), known)
    means, left = predicted(numbers)
    rows[:, numbers] = means + generator.standard_normal(means.shape) @ _root(left)
    return rows


def possible_covariance(matrix: Matrix, noise: Matrix) -> Matrix:
    """The covariance of the same diagonal, negative entries of which become 0, and the `nearest_correlation`.

    ``noise`` (d,) are the deviations of the noise in the diagonal. Columns whose variance does not stand out of it are
    correlated with none: quotients of noise by noise would drown the correlations of all others.
    """
    variances = np.maximum(np.diagonal(matrix), 0.0)
    shown = np.flatnonzero(variances > _SHOWN * noise)
    block, scales = np.ix_(shown, shown), np.sqrt(np.outer(variances[shown], variances[shown]))
    possible = np.diag(variances)
    possible[block] = nearest_correlation(matrix[block] / scales) * scales
    return possible


def nearest_correlation(matrix: Matrix) -> Matrix:
    """The correlation matrix (positive semidefinite, of unit diagonal) nearest to a symmetric one in Frobenius norm.

    It is (C + diag y)_+, C being the matrix with unit diagonal, for the y that minimizes the convex and differentiable
    |(C + diag y)_+|^2/2 - sum y, whose gradient is the diagonal of (C + diag y)_+ less 1 (Malick 2004; Qi and Sun
    2006). Higham's alternating projections (2002) reach the same matrix in more steps. Raises ArithmeticError where the
    iteration has not converged.
    """
    from scipy.optimize import minimize  # heavy, and needed here alone

    start = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(start, 1.0)
    if not len(start) or scipy.linalg.eigvalsh(start, subset_by_index=[0, 0])[0] >= 0:
        return start

    def dual(y: Matrix) -> tuple[float, Matrix]:
        projected = _positive_part(start + np.diag(y))
        return float(np.sum(projected**2) / 2 - y.sum()), np.diagonal(projected) - 1.0

    tolerances = {"gtol": _TOLERANCE, "ftol": 0.0, "maxiter": _MOST_ITERATIONS, "maxfun": 2 * _MOST_ITERATIONS}
    y = minimize(dual, np.zeros(len(start)), jac=True, method="L-BFGS-B", options=tolerances).x
    nearest = _positive_part(start + np.diag(y))
    diagonal = np.diagonal(nearest).copy()
    worst = float(np.abs(diagonal - 1).max())
    if worst > 100 * _TOLERANCE:
        raise ArithmeticError(f"the nearest correlation matrix was not found: a diagonal entry is off by {worst:.3g}")
    nearest /= np.sqrt(np.outer(diagonal, diagonal))
    np.fill_diagonal(nearest, 1.0)
    return nearest


def _positive_part(matrix: Matrix) -> Matrix:
    root = _root(matrix)
    return np.asarray(root.T @ root)  # symmetric to the last bit


def _root(covariance: Matrix) -> Matrix:
    """R with R^T R the positive part of a covariance."""
    values, vectors = scipy.linalg.eigh(covariance, check_finite=False)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def _table(rows: Matrix, names: Names, categories: Mapping[str, tuple[int, ...]]) -> Any:
    if names is None:
        return rows
    try:
        pandas = import_extra("pandas", "pandas")
    except MissingExtraError:
        return rows
    firsts = {group[0]: (column, group) for column, group in categories.items()}
    others = {place for group in categories.values() for place in group[1:]}
    table = {}
    for place in (place for place in range(rows.shape[1]) if place not in others):
        column, group = firsts.get(place, (names[place], ()))
        labels = [names[each][len(column) + 1 :] for each in group]
        codes = np.where(rows[:, group].any(axis=1), rows[:, group].argmax(axis=1), -1) if group else ()
        table[column] = pandas.Categorical.from_codes(codes, labels) if group else rows[:, place]
    return pandas.DataFrame(table)
