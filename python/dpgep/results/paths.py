"""Regressions with a penalty, of few columns, or on few components: all of them from one released matrix.

They need the correlations R of the columns and r with y. R belongs to C + Xi and r to b, as in the release's
`regression` (`dpgep.results.least_squares`): what the noise asks for is corrected once, R is positive semidefinite, and
every path ends at that regression. Coefficients w are of columns and y in units of their deviations until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from dpgep._checks import require_count, require_one_of, require_positive, require_share
from dpgep._optional import data_frame, import_extra
from dpgep.models.model import Matrix
from dpgep.models.pairwise import require_no_pairs
from dpgep.results.columns import Answer, Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.least_squares import fitted, units_of

By = Literal["lasso", "elastic net", "ridge", "subsets", "principal components", "pls"]
# Penalties of a path where none are given, and the least relative to the largest.
_PENALTIES, _LEAST = 30, 1e-3
# Columns of which all subsets are tried, and relative size below which a covariance is rounding.
_TRIED, _ROUNDING = 12, 1e-12
# Duality gap of an elastic net, relative to the variance of y; its passes over the columns.
_GAP, _PASSES = 1e-10, 100_000
# Steps and columns that are printed.
_SHOWN_STEPS, _SHOWN_COLUMNS = 12, 6


@dataclass(frozen=True, eq=False, repr=False)
class RegressionPath(Answer):
    """Linear predictions of one column by others, y = intercept + x^T coefficients + error, one for each step.

    A step chosen by its result, a selection and a penalty have no honest interval here: `Release.regression` has them,
    of columns that were chosen beforehand.

    Attributes
    ----------
    by : what was asked for.
    steps : (k,), penalties in units of standardized columns; or numbers of columns, or of components.
    coefficients : (k, p), in the units of the columns.
    intercepts : (k,).
    r_squared : (k,), shares of the variance of y that the columns explain in the release: largest where least is kept
        out, and no judgement of predictions for others.
    names : of the columns x, and of y in ``target``; numbers as text where they have none.
    left_out : sums of the indicators of a categorical column, which are 1 for everybody, in words.
    """

    by: By
    steps: Matrix
    coefficients: Matrix
    intercepts: Matrix
    r_squared: Matrix
    names: tuple[str, ...]
    target: str
    left_out: tuple[str, ...]

    @property
    def step_name(self) -> str:
        """What a step is: a penalty, or a number of columns or of components."""
        return {"subsets": "columns", "principal components": "components", "pls": "components"}.get(self.by, "penalty")

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row for each step: R squared, the intercept, and a coefficient for each column."""
        table = np.column_stack([self.r_squared, self.intercepts, self.coefficients])
        return data_frame(table, self.steps, ["R squared", "intercept", *self.names], name=self.step_name)

    def __repr__(self) -> str:
        lines = [
            "  steps     were chosen or shrunk: no intervals (regression has them, of columns chosen beforehand)",
            *(f"  left out  {each}, which is 1 for everybody" for each in self.left_out),
            f"  {self.step_name:>10}  R squared  columns",
        ]
        count = len(self.steps)
        for i in np.unique(np.linspace(0, count - 1, min(count, _SHOWN_STEPS)).round().astype(int)):
            kept = np.flatnonzero(self.coefficients[i])
            listed = ", ".join(self.names[j] for j in kept[:_SHOWN_COLUMNS]) or "none"
            more = f" and {len(kept) - _SHOWN_COLUMNS} more" * (len(kept) > _SHOWN_COLUMNS)
            lines.append(f"  {self.steps[i]:10.4g}  {self.r_squared[i]:9.3f}  {listed}{more}")
        title = f"Path of {self.target} on {len(self.names)} columns by {self.by}, {self.n_people:.0f} people"
        return self._printed(title, *lines)


@on_one_thread_of_blas
def regression_path(
    release: ReleasedColumns,
    y: str | int,
    on: Columns = None,
    *,
    by: By = "lasso",
    steps: Sequence[float] | Matrix | None = None,
    l1_ratio: float = 0.5,
) -> RegressionPath:
    """Regressions of the column ``y`` on others (default: all others), in their units, from least to most of them.

    With w the coefficients of standardized columns, R their correlations and r those with y, penalties minimize
    w^T R w/2 - r^T w + penalty (l1 |w|_1 + (1 - l1) |w|^2/2), l1 being 1 for a lasso, 0 for a ridge, and ``l1_ratio``
    for an elastic net. Subsets are the best of each size, of at most 12 columns; components are principal ones of
    standardized columns, or of partial least squares. ``steps`` are penalties, or numbers of columns or components; by
    default where the columns of a lasso change, 30 penalties, or all numbers.

    Raises ValueError for unknown columns, steps that are not positive, subsets of more than 12 columns,
    ``missing="pairwise"``, and, without noise, for columns that are linearly dependent.
    """
    require_one_of("by", by, tuple(_PATHS))
    require_share("l1_ratio", l1_ratio)
    target, columns = release._regressed(y, on)
    if by == "subsets":
        require_count("the number of columns of subsets", len(columns), largest=_TRIED)
    noisy, preprocessing = release._of_everybody
    require_no_pairs(noisy, "regressions")
    release._judged(np.array([*columns, target]))
    fit, basis, left_out = fitted(release, target, columns, 0.0)
    covariance, along = basis @ np.linalg.inv(fit.inverse) @ basis.T, basis @ fit.b
    deviations = np.sqrt(np.diagonal(covariance))
    variance = max(float(along @ covariance @ along) + fit.mean_square, np.finfo(float).tiny)
    ratios = np.sqrt(variance) / np.where(deviations > 0, deviations, 1.0)
    r_xx, r_xy = covariance * np.outer(ratios, ratios) / variance, covariance @ along * ratios / variance
    found, w = _PATHS[by](r_xx, r_xy, _checked(by, steps, len(columns)), l1_ratio)
    mapped_b = w * ratios
    to_units, offset = units_of(preprocessing, target, columns)
    alpha = fit.alpha + (fit.b - mapped_b @ basis) @ fit.mean
    theta = np.column_stack([alpha, mapped_b]) @ to_units.T
    left = 1 - (2 * w @ r_xy - np.einsum("ki,ij,kj->k", w, r_xx, w, optimize=True))
    r_squared = np.clip(1 - variance * left / fit.variance, 0.0, 1.0) if fit.variance > 0 else np.zeros_like(left)
    *labels, of_y = release._labels_of(np.array([*columns, target]))
    path = found, theta[:, 1:], theta[:, 0] + offset, r_squared
    return RegressionPath(by, *path, tuple(labels), of_y, left_out, **release._known(noisy.n))


def _checked(by: By, steps: Sequence[float] | Matrix | None, p: int) -> Matrix | None:
    if steps is None:
        return None
    given = np.asarray(steps, dtype=np.float64)
    if given.ndim != 1 or not len(given):
        raise ValueError(f"steps must be a list of numbers, got {steps!r}")
    for step in given.tolist():
        if by in ("subsets", "principal components", "pls"):
            require_count("a step", int(step) if step.is_integer() else step, largest=p)
        else:
            require_positive("a step", step)
    return given


def _lasso(r_xx: Matrix, r_xy: Matrix, steps: Matrix | None, l1_ratio: float) -> tuple[Matrix, Matrix]:
    """By least angle regression: linear between the penalties at which a column enters or leaves."""
    lars = import_extra("sklearn.linear_model", "sklearn").lars_path_gram
    matrix = r_xx + _ROUNDING * np.eye(len(r_xy))  # indicators may determine each other
    knots, _, w = lars(Xy=r_xy, Gram=matrix, n_samples=1, method="lasso")
    if steps is None:
        return knots, w.T
    return steps, np.column_stack([np.interp(steps, knots[::-1], row[::-1]) for row in w])


def _elastic_net(r_xx: Matrix, r_xy: Matrix, steps: Matrix | None, l1_ratio: float) -> tuple[Matrix, Matrix]:
    """By coordinate descent, which needs no more of rows than r_xx, r_xy and the square of y, here of one row."""
    path = import_extra("sklearn.linear_model", "sklearn").enet_path
    if steps is None:
        steps = float(np.abs(r_xy).max()) / l1_ratio * np.geomspace(1, _LEAST, _PENALTIES)
    order = np.argsort(-steps, kind="stable")  # each begins at the one before, and larger ones are easier
    options = {"precompute": np.ascontiguousarray(r_xx), "Xy": r_xy, "tol": _GAP, "max_iter": _PASSES}
    row = np.zeros((1, len(r_xy)), order="F"), np.ones(1)
    _, w, _ = path(*row, l1_ratio=l1_ratio, alphas=steps[order], check_input=False, **options)
    return steps, w.T[np.argsort(order)]


def _ridge(r_xx: Matrix, r_xy: Matrix, steps: Matrix | None, l1_ratio: float) -> tuple[Matrix, Matrix]:
    steps = np.geomspace(1, _LEAST, _PENALTIES) * len(r_xy) if steps is None else steps
    values, vectors = np.linalg.eigh(r_xx)
    return steps, (vectors.T @ r_xy / np.add.outer(steps, values)) @ vectors.T


def _subsets(r_xx: Matrix, r_xy: Matrix, steps: Matrix | None, l1_ratio: float) -> tuple[Matrix, Matrix]:
    """Of each size the subset that explains most of the variance."""
    p = len(r_xy)
    steps = np.arange(1.0, p + 1) if steps is None else steps
    w, matrix = np.zeros((len(steps), p)), r_xx + _ROUNDING * np.eye(p)
    for row, size in zip(w, steps.astype(int), strict=True):
        chosen = np.array([*combinations(range(p), int(size))])
        of_them = np.linalg.solve(matrix[chosen[:, :, None], chosen[:, None, :]], r_xy[chosen][:, :, None])[:, :, 0]
        best = np.argmax(np.sum(of_them * r_xy[chosen], axis=1))
        row[chosen[best]] = of_them[best]
    return steps, w


def _principal_components(r_xx: Matrix, r_xy: Matrix, steps: Matrix | None, l1_ratio: float) -> tuple[Matrix, Matrix]:
    values, vectors = np.linalg.eigh(r_xx)
    known = values > _ROUNDING * values[-1]
    each = np.where(known, vectors.T @ r_xy / np.where(known, values, 1.0), 0.0)[::-1, None] * vectors.T[::-1]
    return _of_components(np.cumsum(each, axis=0), steps)


def _pls(r_xx: Matrix, r_xy: Matrix, steps: Matrix | None, l1_ratio: float) -> tuple[Matrix, Matrix]:
    """From covariances alone (Dayal and MacGregor 1997): scores of variance 1 that do not go together."""
    p = len(r_xy)
    w, rotations, left = np.zeros((p + 1, p)), np.zeros((p, p)), r_xy
    for k in range(p):
        w[k + 1] = w[k]
        if np.linalg.norm(left) > _ROUNDING:  # else nothing of y is left to explain
            rotation = left - rotations.T @ (rotations @ (r_xx @ left))
            rotations[k] = rotation / np.sqrt(rotation @ r_xx @ rotation)
            w[k + 1] += rotations[k] * (rotations[k] @ r_xy)
            left = r_xy - r_xx @ w[k + 1]
    return _of_components(w[1:], steps)


def _of_components(w: Matrix, steps: Matrix | None) -> tuple[Matrix, Matrix]:
    steps = np.arange(1.0, len(w) + 1) if steps is None else steps
    return steps, w[steps.astype(int) - 1]


_PATHS: dict[str, Callable[[Matrix, Matrix, Matrix | None, float], tuple[Matrix, Matrix]]] = {
    "lasso": _lasso,
    "elastic net": _elastic_net,
    "ridge": _ridge,
    "subsets": _subsets,
    "principal components": _principal_components,
    "pls": _pls,
}
