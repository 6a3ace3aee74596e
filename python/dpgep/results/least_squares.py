"""Linear regression from released moments: coefficients, and what the noise and the sample of people leave uncertain.

With the released covariance C + N of the mapped columns [x, y], N the noise of the second moment and of the mean,

    b = G (C_xy + N_xy),   G = (C_xx + N_xx + Xi)^-1,   Xi = E[N_xx G N_xx].

Xi is the public correction that makes G right in expectation, and a ridge where noise drowns C: docs/regression.md has
the derivations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep._checks import require_non_negative, require_share
from dpgep._optional import data_frame
from dpgep._show import html_table, interval_picture, with_intervals
from dpgep.errors import warn_inaccurate
from dpgep.methods.release import columns_are
from dpgep.models.clipping import clipping_reach, longer_by
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, mean_factor, total_mean
from dpgep.models.pairwise import require_no_pairs
from dpgep.models.preprocessing import Preprocessing, location_and_scale
from dpgep.models.redundant import Redundancy
from dpgep.models.row_model import PencilPart
from dpgep.results.columns import Answer, Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.intervals import RowLaw, require_law
from dpgep.results.solution import absent_values, project
from dpgep.sources.names import Names

# The part of a matrix that is noise from which on coefficients are visibly shrunk; the variance inflation of columns
# that are nearly collinear; and least weights in a sum of columns that is constant.
_DROWNED, _COLLINEAR, _DEPENDS = 0.5, 30.0, 1e-3
# Relative change at which the correction for the noise of the mean has converged, and steps towards it.
_CONVERGED, _MOST_STEPS, _SHORTEST = 1e-6, 100, 0.5


@dataclass(frozen=True, eq=False, repr=False)
class Regression(Answer):
    """Least squares from released moments: y = intercept + x^T coefficients + error, in the units of the columns.

    Attributes
    ----------
    coefficients : (p,), in the order in which the columns were asked for.
    intercept : float.
    noise_errors : (p + 1,), standard errors that the noise of the release causes; the intercept's first.
    people_errors : (p + 1,), those that the sampling of people causes, or bounds on them; the intercept's first.
    clipping_reach : (p + 1, 2), by how much intervals are longer, below and above, for what a bought bound may have
        done to the rows (docs/uncertainty.md); the intercept's first.
    residual_variance : variance of the error, in squared units of y, with n - p - 1 in the denominator; 0 where the
        noise leaves none.
    r_squared : share of the variance of y that the columns explain.
    noise_share : rho between 0 and 1, the part of the squares of the coefficients' errors that noise of the covariance
        of the columns has added to what would be there with that covariance known. Errors are right to leading order;
        beyond 1/2, coefficients are drawn towards zero.
    ridge : the penalty asked for.
    left_out : sums of the indicators of a categorical column, in words, which are 1 for everybody as the intercept is.
        Coefficients of such indicators are contrasts: weighted by the columns' variances they add up to 0.
    rows : what is assumed of rows, "gaussian" or "bounded" (see `regression`).
    level : of the intervals that are printed.
    names : of the columns x, and of y in ``target``; numbers as text where they have none.
    preprocessing : the public map of the rows, None where there is none.
    """

    coefficients: Matrix
    intercept: float
    noise_errors: Matrix
    people_errors: Matrix
    clipping_reach: Matrix
    residual_variance: float
    r_squared: float
    noise_share: float
    ridge: float
    rows: RowLaw
    level: float
    names: tuple[str, ...]
    target: str
    preprocessing: Preprocessing | None
    left_out: tuple[str, ...]
    _absent: Matrix | None
    _named: bool

    _title: ClassVar[str] = "Regression"
    _absence: ClassVar[str] = "coefficients differ"

    @property
    def standard_errors(self) -> Matrix:
        """(p,), of the coefficients: noise and people together."""
        return np.asarray(self._errors[1:])

    @property
    def intercept_error(self) -> float:
        """Standard error of the intercept."""
        return float(self._errors[0])

    def intervals(self, level: float | None = None) -> Matrix:
        """(p, 2), intervals that each hold the population's coefficient with this probability.

        Student's, of n - p - 1 degrees of freedom: those of classical least squares where there is no noise. They cover
        the noise, the sample of people, and in part what a bound that was bought may have done (docs/regression.md).
        """
        return np.asarray(self._intervals(level)[1:])

    def intercept_interval(self, level: float | None = None) -> Matrix:
        """(2,), the same for the intercept."""
        return np.asarray(self._intervals(level)[0])

    def predict(self, X: Any) -> Matrix:
        """Predictions, intercept + X coefficients, for rows (n, p) of the columns x, in their order.

        They are no more private than the rows passed. Columns of a table must have the names asked for: ValueError
        names those that differ. Where absent values of the release counted as the location of their column, those of X
        do.
        """
        names = self.names if self._named else None
        return project(X, self.coefficients[None, :], None, self._absent, names, "X")[:, 0] + self.intercept

    def to_frame(self, level: float | None = None) -> Any:
        """A pandas DataFrame, a row for the intercept and each column: coefficient, errors, and interval."""
        columns = self._all, self._errors, self.noise_errors, self.people_errors, *self._intervals(level).T
        labels = ["coefficient", "standard error", "noise", "people", "low", "high"]
        return data_frame(np.column_stack(columns), ["intercept", *self.names], labels, name=self.target)

    @property
    def _all(self) -> Matrix:
        return np.concatenate([[self.intercept], self.coefficients])

    @property
    def _errors(self) -> Matrix:
        return np.asarray(np.hypot(self.noise_errors, self.people_errors))

    def _intervals(self, level: float | None) -> Matrix:
        from scipy.special import stdtrit

        level = self.level if level is None else level
        require_share("level", level)
        half = stdtrit(_freedom(self.n_people, len(self.names)), (1 + level) / 2) * self._errors
        below, above = (half + longer_by(half, reach, level) for reach in self.clipping_reach.T)
        return np.column_stack([self._all - below, self._all + above])

    def __repr__(self) -> str:
        people = {"gaussian": "errors of one variance", "bounded": "bounded rows, nothing else assumed"}[self.rows]
        penalty = f", ridge {self.ridge:g}" if self.ridge else ""
        title = (
            f"{self._title} of {self.target} on {len(self.names)} column{'s' * (len(self.names) != 1)}, "
            f"{self.n_people:.0f} people{penalty}"
        )
        fit = (
            f"  R squared {self.r_squared:.3f}, residual deviation {math.sqrt(self.residual_variance):.4g}, "
            f"noise share {self.noise_share:.2g}; {people}"
        )
        columns = (["intercept", *self.names], self._all, self.noise_errors, self.people_errors, self._intervals(None))
        rows = [
            [label, f"{value:.4g}", f"{noise:.3g}", f"{people_error:.3g}", f"[{low:.4g}, {high:.4g}]"]
            for label, value, noise, people_error, (low, high) in zip(*columns, strict=True)
        ]
        heading = ["", "coefficient", "noise", "people", f"{self.level:.0%} interval"]
        return self._printed(title, fit, *self._remarks(), table=[heading, *rows])

    def _repr_html_(self) -> str:
        intervals = self._intervals(None)
        about = [
            (self._title, f"{self.target} on {len(self.names)} columns, {self.n_people:.0f} people"),
            ("privacy", str(self.privacy)),
            ("R squared", f"{self.r_squared:.3f}"),
        ]
        texts = with_intervals(self._all, intervals[:, 0], intervals[:, 1], ".4g")
        reach = np.abs(intervals).max(axis=1)
        pictures = map(interval_picture, self._all, *intervals.T, -reach, reach)
        rows = [*zip(["intercept", *self.names], texts, pictures, strict=True)]
        return html_table(about) + html_table(rows, ("", f"coefficient, at {self.level:.0%}", "beside 0"))

    def _remarks(self) -> list[str]:
        return [f"  left out  {each}, which is 1 for everybody" for each in self.left_out]


@on_one_thread_of_blas
def regression(
    release: ReleasedColumns,
    y: str | int,
    on: Columns = None,
    *,
    ridge: float | None = None,
    level: float = 0.9,
    rows: RowLaw = "gaussian",
) -> Regression:
    """Least squares of the column ``y`` on others (default: all others), with an intercept, in their units.

    Errors cover the noise and which people were sampled (docs/regression.md). ``ridge`` is a penalty xi on squared
    coefficients, in units of the variance of mapped columns: the answer, and what the intervals hold, is then
    (C_xx + xi I)^-1 C_xy of the population. What the known noise asks for is corrected in either case.

    ``rows`` is what errors of people being a sample rest on: "gaussian", errors of one variance whatever the
    columns are, as in classical least squares, where the columns may have any distribution (with a ridge:
    Gaussian); "bounded", nothing but the enforced bound, for upper bounds. ``level`` is of the intervals that are
    printed. Raises ValueError for unknown columns, or one twice, and, without noise, for columns that are linearly
    dependent.
    """
    target, columns = release._regressed(y, on)
    require_law(level, rows)
    penalty, names = 0.0 if ridge is None else ridge, release.model.feature_names
    require_non_negative("ridge", penalty)
    released, preprocessing = release._of_everybody
    require_no_pairs(released, "errors of a regression")
    fit, basis, left_out = fitted(release, target, columns, float(penalty))
    to_units, offset = units_of(preprocessing, target, columns)
    to_units = to_units @ scipy.linalg.block_diag(1.0, basis)
    theta = to_units @ np.append(fit.alpha, fit.b)
    reach = _reach_of_clipping(fit, [*columns, target], basis, to_units)
    by_noise, by_people, noise_share = _errors(fit, to_units, None if rows == "gaussian" else release._row_bound)
    if noise_share > _DROWNED:
        warn_inaccurate(
            f"noise drowns the covariance of the columns (noise share {noise_share:.2f}): coefficients are drawn "
            "towards zero. Regress on fewer columns, or release with more people or a larger epsilon"
        )
    variances = np.diagonal(fit.released.second)[columns] - total_mean(fit.released)[columns] ** 2
    collinear = np.array(columns)[forms(basis, fit.inverse) * variances > _COLLINEAR]
    if len(collinear):
        warn_inaccurate(
            f"{columns_are(collinear, names)} nearly collinear: errors of their coefficients are large, and cancel in "
            "predictions. Leave one out, or give a ridge"
        )
    release._judged(np.array([*columns, target]))
    scale = float(location_and_scale(preprocessing, len(released.second))[1][target])
    absent = absent_values(preprocessing, len(released.second))
    *labels, of_y = release._labels_of(np.array([*columns, target]))
    return Regression(
        coefficients=theta[1:],
        intercept=float(theta[0] + offset),
        noise_errors=np.sqrt(np.maximum(by_noise, 0.0)),
        people_errors=np.sqrt(np.maximum(by_people, 0.0)),
        clipping_reach=reach,
        residual_variance=fit.mean_square * released.n / _freedom(released.n, len(fit.b)) * scale**2,
        r_squared=min(max(1 - fit.mean_square / fit.variance, 0.0), 1.0) if fit.variance > 0 else 0.0,
        noise_share=noise_share,
        ridge=float(penalty),
        rows=rows,
        level=level,
        names=tuple(labels),
        target=of_y,
        preprocessing=preprocessing,
        left_out=left_out,
        _absent=None if absent is None else absent[columns],
        _named=names is not None,
        **release._known(released.n),
    )


def fitted(release: ReleasedColumns, target: int, on: list[int], ridge: float) -> tuple[_Fit, Matrix, tuple[str, ...]]:
    """The fit in the coordinates along a basis of the columns, as columns; and what is left out across it, in words.

    The direction of the sum of all indicators of a category is left out, if that shows no variance.
    """
    (released, mapped), columns, names = release._of_everybody, np.array(on), release.model.feature_names
    mapped = None if mapped is None else mapped.restricted(columns)
    redundant = None
    if not ridge:
        indicators = release._indicators_of(columns)
        redundant = Redundancy.of_columns(indicators, len(on), release._names_of(columns), mapped)
    if redundant is not None:
        of_columns = released.restricted(columns)
        redundant = redundant.without_variance(PencilPart(-np.ones(1)), mean_factor(of_columns), of_columns)
    basis = np.eye(len(on)) if redundant is None else redundant.complement([slice(0, len(on))])
    if not basis.shape[1]:
        raise ValueError("the columns in on are constant: indicators of a column with one category vary by nothing")
    mean, variation, of_mean = total_mean(released), released.noise.second**2 / 2, released.noise.sums**2
    covariance = released.second - np.outer(mean, mean)
    # E[e e^T] of the noise e of the mean, which its square subtracts
    covariance.flat[:: len(covariance) + 1] += of_mean
    c_xy, m, m_y = basis.T @ covariance[on, target], basis.T @ mean[on], float(mean[target])
    penalized = basis.T @ covariance[np.ix_(on, on)] @ basis + ridge * np.eye(basis.shape[1])
    g, xi = inverse_of_noisy(penalized, m, released, columns, names, basis)
    b = g @ c_xy
    # c_xy^T G c_xy is too large by E[N_yx G N_xy]
    own = variation * np.trace(g) + of_mean * (m @ g @ m + m_y**2 * np.trace(g))
    variance = float(covariance[target, target])
    mean_square = max(float(variance - b @ c_xy + own - ridge * b @ b), 0.0)
    fit = _Fit(released, m, g, xi, b, float(m_y - m @ b), mean_square, variance, ridge)
    return fit, basis, () if redundant is None else redundant.names


def _reach_of_clipping(fit: _Fit, columns: list[int], basis: Matrix, to_units: Matrix) -> Matrix:
    """(p + 1, 2): how far coefficients may lie below and above, had the covariance been another before clipping.

    For each that may have been there (`Clipping`), G^-1 and C_xy change as the covariance does. Dependent tails are
    long along the leading direction of the columns, y with either sign.
    """
    part = fit.released.restricted(np.array(columns))
    mean = mean_factor(part)
    covariance = part.second - mean.T @ mean

    def moved(other: Matrix) -> Matrix:
        change = other - covariance
        inverse = np.linalg.inv(fit.inverse) + basis.T @ change[:-1, :-1] @ basis
        b = np.linalg.lstsq(inverse, np.linalg.solve(fit.inverse, fit.b) + basis.T @ change[:-1, -1], rcond=None)[0]
        return np.asarray(to_units @ np.append(-fit.mean @ (b - fit.b), b - fit.b))

    signs = np.append(np.ones(len(columns) - 1), -1.0)
    return np.column_stack(clipping_reach(part.clipping, np.zeros(len(to_units)), covariance, moved, signs))


@dataclass(frozen=True, eq=False)
class _Fit:
    """Coefficients of mapped columns, in a basis: theta = (alpha, b), alpha the intercept."""

    released: ReleasedMoments
    mean: Matrix
    inverse: Matrix  # (p, p), G
    correction: Matrix  # (p, p), Xi
    b: Matrix
    alpha: float
    mean_square: float  # of the residuals; ``variance`` of y
    variance: float
    ridge: float


def _errors(fit: _Fit, contrasts: Matrix, bound: float | None) -> tuple[Matrix, Matrix, float]:
    """Variances (r,) of ``contrasts`` (r, p + 1) of theta: by the noise, by n people; and rho, of the squares of b.

    By the noise that of K^-1 q, K the moments of [1, x] and q the noise of those with w = y - alpha - b^T x; of b it is
    Q = G E[N w w^T N] G, with b b^T shrunk to 1 - rho of itself, as b is noisy: rho/(1 - rho) = tr(G E[N Q N] G)/tr Q.

    For people, an estimate moves by the mean of (u.z)(w.z), u a row of contrasts K^-1 and z = [1, x, y]: Gaussian, or
    independent, E (u.z)^2 E (w.z)^2 + (E u.z w.z)^2, the last zero but for the ridge; for rows within a ``bound`` at
    most the least of three bounds for |z|^2 <= 1 + bound^2.
    """
    g, b, mean, noise = fit.inverse, fit.b, fit.mean, fit.released.noise
    scale = 1 / _freedom(fit.released.n, len(b))
    # G C G for the C that is not released: G - G (Xi + ridge I + N) G, where E[-G N G] = 2 G Xi G
    of_people = g + g @ (fit.correction - fit.ridge * np.eye(len(g))) @ g
    inverse, spread = _bordered(g, mean), forms(contrasts, _bordered(of_people, mean))  # E (u.z)^2

    def of_noise(w_squared: float, kept: float) -> Matrix:
        """The covariance of theta for this |w|^2, where other squares count in part: noise may leave less than none."""
        return np.asarray(inverse @ noise_along(-b, fit.alpha, w_squared, fit.released, kept) @ inverse)

    squared = 1 + float(b @ b) - scale * fit.mean_square * float(np.trace(of_people))
    inflated = of_noise(squared, 1.0)[1:, 1:]
    moved = g @ _noise_squared(inflated, noise.second**2 / 2, mean, noise.sums**2) @ g
    total = float(np.trace(inflated))
    kept = total / (total + float(np.trace(moved))) if total > 0 and squared > 0 else 1.0
    share = 1 - kept if squared > 0 else float(total != 0)  # all of it, where noise leaves less than none
    by_noise = forms(contrasts, of_noise(max(squared * kept, 1.0), kept))
    if bound is None:
        drawn = g @ (fit.ridge * b)
        bias = contrasts @ np.append(-mean @ drawn, drawn)
        return by_noise, scale * (fit.mean_square * spread + bias**2), share
    u, w, square = contrasts @ inverse, np.append(-fit.alpha, -b), 1 + bound**2
    u_squared, w_squared = np.einsum("ij,ij->i", u, u), 1 + float(w @ w)
    product = square / 2 * (np.sqrt(u_squared * w_squared) + np.abs(u @ w)) * np.sqrt(spread * fit.mean_square)
    least = np.minimum(square * u_squared * fit.mean_square, square * w_squared * spread)
    return by_noise, scale * np.minimum(product, least), share


def _bordered(inverse: Matrix, mean: Matrix) -> Matrix:
    """The inverse of the moments of [1, x] whose Schur complement has this one."""
    of_mean = inverse @ mean
    return np.block([[np.full((1, 1), 1 + mean @ of_mean), -of_mean[None, :]], [-of_mean[:, None], inverse]])


def noise_along(form: Matrix, alpha: float, square: float, released: ReleasedMoments, kept: float = 1.0) -> Matrix:
    """(p + 1, p + 1), covariances of the noise of moments of [1, x] with w = ``form`` of x, and others, less its mean.

    e.w, and Z w - alpha e for x, noise Z of the second moment, e of the mean; ``square`` is |w|^2, and other squares
    are ``kept`` in part.
    """
    noise, variation, of_mean = np.empty((len(form) + 1,) * 2), released.noise.second**2 / 2, released.noise.sums**2
    noise[0, 0] = of_mean * square + kept * released.counts.size * (alpha * released.noise.counts) ** 2
    noise[0, 1:] = noise[1:, 0] = -of_mean * kept * alpha * form
    noise[1:, 1:] = variation * kept * np.outer(form, form)
    noise[1:, 1:] += (variation * square + of_mean * kept * alpha**2) * np.eye(len(form))
    return noise


def inverse_of_noisy(
    matrix: Matrix,
    mean: Matrix,
    released: ReleasedMoments,
    columns: NDArray[np.intp],
    names: Names,
    basis: Matrix | None = None,
) -> tuple[Matrix, Matrix]:
    """G = (matrix + Xi)^-1 and Xi = E[N G N] for a released covariance, in coordinates along a basis of ``columns``.

    Without noise Xi is 0, G is found in units of the columns' deviations, and ValueError names dependent columns.
    """
    if not released.noiseless:
        return _corrected_inverse(matrix, released.noise.second**2 / 2, mean, released.noise.sums**2)
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    units = np.outer(*[np.where(scale > 0, scale, 1.0)] * 2)
    values, vectors = np.linalg.eigh(matrix / units)
    none = values <= 1e3 * np.finfo(float).eps * len(scale) * values[-1]
    if none.any():
        along = vectors[:, none] if basis is None else basis @ vectors[:, none]
        subject = columns_are(columns[np.abs(along).max(axis=1) > _DEPENDS], names)
        raise ValueError(f"{subject} linearly dependent, or constant: leave some out, or give a ridge")
    return np.asarray(scipy.linalg.inv(matrix / units, check_finite=False) / units), np.zeros_like(matrix)


def _corrected_inverse(matrix: Matrix, variation: float, mean: Matrix, mean_variation: float) -> tuple[Matrix, Matrix]:
    """G = (matrix + Xi)^-1, positive definite, and Xi = E[N G N] for N = Z - m e^T - e m^T.

    The part of Z, v (tr(G) I + G), is solved for exactly (`_resolvent`); that of the mean is found in steps, as long as
    the last one asks for, until a step would not move G.
    """
    g, of_mean = _resolvent(matrix, variation), np.zeros_like(matrix)
    change, length = of_mean, 1.0
    for _ in range(_MOST_STEPS):
        before, change = change, _of_mean(g, mean, mean_variation) - of_mean
        if np.linalg.norm(g @ change @ g) <= _CONVERGED * np.linalg.norm(g):  # the same in any basis
            break
        left = float(np.vdot(before, change)) / max(float(np.vdot(before, before)), 1e-300)
        length = min(max(length / max(1 - left, 1e-300), _SHORTEST), 1.0)
        of_mean = of_mean + length * change
        g = _resolvent(matrix + of_mean, variation)
    return g, _noise_squared(g, variation, mean, mean_variation)


def _noise_squared(matrix: Matrix, variation: float, mean: Matrix, mean_variation: float) -> Matrix:
    """E[N A N] for N = Z - m e^T - e m^T and a symmetric A."""
    of_second = variation * (np.trace(matrix) * np.eye(len(matrix)) + matrix)
    return np.asarray(of_second + _of_mean(matrix, mean, mean_variation))


def _of_mean(matrix: Matrix, mean: Matrix, variation: float) -> Matrix:
    """E[(m e^T + e m^T) A (m e^T + e m^T)] for e of independent entries."""
    along = np.outer(mean, matrix @ mean)
    parts = (mean @ matrix @ mean) * np.eye(len(mean)) + np.trace(matrix) * np.outer(mean, mean) + along + along.T
    return np.asarray(variation * parts)


def _resolvent(matrix: Matrix, variation: float) -> Matrix:
    """The G > 0 with G^-1 = matrix + v (tr(G) I + G), for any symmetric matrix.

    Its eigenvalues solve v g^2 + (l_i + v t) g = 1 for t = sum g: t - sum g(t) is concave and grows, so Newton's steps
    from t = 0 rise to its only zero.
    """
    values, vectors = np.linalg.eigh(matrix)
    t, g = 0.0, values
    while True:
        h = values + variation * t
        root = np.sqrt(h * h + 4 * variation)
        g = np.where(h > 0, 2 / (np.abs(h) + root), (root + np.abs(h)) / (2 * variation))
        step = (g.sum() - t) / (1 + variation * float(np.sum(g / root)))
        if not step > 1e-12 * t:
            return np.asarray((vectors * g) @ vectors.T)
        t += step


def forms(contrasts: Matrix, covariance: Matrix) -> Matrix:
    """(r,), u^T C u for the rows u of ``contrasts``."""
    return np.asarray(np.einsum("ij,jk,ik->i", contrasts, covariance, contrasts, optimize=True))


def _freedom(n: float, p: int) -> float:
    return max(n - p - 1, 1.0)


def units_of(preprocessing: Preprocessing | None, y: int, x: list[int]) -> tuple[Matrix, float]:
    """T and an offset of the intercept: T theta are intercept and coefficients in the units of the columns."""
    location, scale = location_and_scale(preprocessing, max(y, *x) + 1)
    ratios = scale[y] / scale[x]
    to_units = np.diag(np.append(scale[y], ratios))
    to_units[0, 1:] = -location[x] * ratios
    return to_units, float(location[y])
