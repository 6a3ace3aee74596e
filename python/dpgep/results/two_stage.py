"""Two-stage least squares of released columns: a regression on columns that depend on its error, by instruments.

Columns x are endogenous, w exogenous, z instruments, q = (w, z); r' are the residuals of r on w. With C the released
covariance, G = (C_qq + Xi)^-1 (`dpgep.results.least_squares`), D = G_qz G_zz^-1 G_zq the inverse along the instruments,

    b_x = T_xx^-1 T_xy,   T = C_q,(x',y')^T D C_q,(x',y') - f B,   b_w = C_ww^-1 (C_wy - C_wx b_x),

B = E[N D N] what noise adds to the products. For L instruments of K columns f = (L - K)/L of it is taken off: with as
many as columns, b solves linear equations, and noise leaves its median where it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep.errors import warn_inaccurate
from dpgep.models.clipping import clipping_reach
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, total_mean
from dpgep.models.pairwise import require_no_pairs
from dpgep.results.columns import Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.intervals import require_law
from dpgep.results.least_squares import Regression, forms, inverse_of_noisy, noise_along, units_of
from dpgep.results.solution import absent_values
from dpgep.sources.names import Names, listed

# First-stage F from which on instruments are not weak (Staiger and Stock 1997); the most of T that is taken off.
_STRONG, _TAKEN = 10.0, 0.5


@dataclass(frozen=True, eq=False, repr=False)
class InstrumentalRegression(Regression):
    """Two-stage least squares: a `Regression` whose ``endogenous`` columns may depend on its error.

    ``people_errors`` are the classical ones, for errors of one variance; ``r_squared`` may be negative; ``noise_share``
    is the part of what the instruments explain of the endogenous columns that noise of the release is expected to add.

    Attributes
    ----------
    endogenous : the columns that are not instruments themselves.
    instruments : the columns that stand in for them.
    first_stage_f : the F of the instruments in the first stage, of several endogenous columns the least (Cragg and
        Donald's). The noise counts: it is 1 on average for instruments that explain nothing. Below 10 they are weak.
    """

    endogenous: tuple[str, ...]
    instruments: tuple[str, ...]
    first_stage_f: float

    _title: ClassVar[str] = "Two-stage least squares"

    def _remarks(self) -> list[str]:
        standing = f"{listed(self.instruments)} for {listed(self.endogenous)}"
        return [f"  by        {standing}: first-stage F {self.first_stage_f:.3g}", *super()._remarks()]


@on_one_thread_of_blas
def instrumental(
    release: ReleasedColumns,
    y: str | int,
    on: Sequence[str | int],
    instruments: Sequence[str | int],
    *,
    level: float = 0.9,
) -> InstrumentalRegression:
    """Two-stage least squares of the column ``y`` on others, by instruments, in their units (docs/questions.md).

    Columns of ``on`` that are ``instruments`` too are exogenous; the others are endogenous. Of all indicators of a
    category among the instruments one is left out, which changes nothing.

    Raises ValueError for fewer instruments than endogenous columns or none of these, for ``y`` among the columns, for
    all indicators of a category in ``on``, for ``missing="pairwise"`` and, without noise, for columns that are linearly
    dependent.
    """
    require_law(level, "gaussian")
    names = release.model.feature_names
    target, numbers, given = release._number(y), *_sides(release, on, instruments)
    x, w = [j for j in numbers if j not in given], [j for j in numbers if j in given]
    z = [j for j in given if j not in numbers]
    labels = names or tuple(map(str, range(release.model.n_features)))
    if target in [*numbers, *z]:
        raise ValueError(f"{labels[target]!r} cannot explain itself: leave it out of on and of instruments")
    if not x:
        raise ValueError("all columns in on are instruments, so that none is endogenous: ask for regression(y, on)")
    if len(z) < len(x):
        of = f"{len(x)} endogenous columns ({listed([labels[j] for j in x])})"
        raise ValueError(f"{of} need as many instruments that are not in on, got {listed([labels[j] for j in z]) or 0}")
    features = np.array([*x, *w, *z, target])
    require_no_pairs(release._of_everybody[0], "errors of a regression")
    noisy, mapped = release._judged(features)
    k, p = len(x), len(numbers)
    to_units, offset = units_of(mapped, len(features) - 1, list(range(p)))
    order = np.array([0, *(1 + [*x, *w].index(j) for j in numbers)])  # as in ``on``
    to_units = to_units[order]
    fit, reach = _fitted(noisy, k, p, features, names, to_units)
    f = _first_stage_f(fit, noisy.n)
    if f < _STRONG:
        warn_inaccurate(
            f"the instruments are weak: first-stage F {f:.3g} < {_STRONG:g}, noise counted. Intervals are too short: "
            "take stronger instruments, or release with more people or a larger epsilon"
        )
    theta, variance = to_units @ fit.theta, float(fit.covariance[-1, -1])
    mean_square = max(float(fit.residual @ fit.covariance @ fit.residual), 0.0)
    freedom, scale = max(noisy.n - p - 1, 1.0), 1.0 if mapped is None or mapped.scale is None else mapped.scale[-1]
    noise, people = _variances(fit, to_units, noisy)
    return InstrumentalRegression(
        coefficients=theta[1:],
        intercept=float(theta[0] + offset),
        noise_errors=np.sqrt(np.maximum(noise, 0.0)),
        people_errors=np.sqrt(np.maximum(mean_square / freedom * people, 0.0)),
        clipping_reach=reach,
        residual_variance=mean_square * noisy.n / freedom * scale**2,
        r_squared=1 - mean_square / variance if variance > 0 else 0.0,
        noise_share=min(fit.noise_share, 1.0),
        ridge=0.0,
        rows="gaussian",
        level=level,
        names=tuple(labels[j] for j in numbers),
        target=labels[target],
        preprocessing=mapped,
        left_out=(),
        endogenous=tuple(labels[j] for j in x),
        instruments=tuple(labels[j] for j in z),
        first_stage_f=f,
        _absent=absent_values(None if mapped is None else mapped.restricted(order[1:] - 1), p),
        _named=names is not None,
        **release._known(noisy.n),
    )


def _sides(release: ReleasedColumns, on: Columns, instruments: Columns) -> tuple[list[int], list[int]]:
    """The numbers of both, without one indicator of each category whose indicators all are instruments."""
    numbers, given = release._numbers(on, "on"), release._numbers(instruments, "instruments")
    release._require_independent(numbers)
    groups = ([int(given[j]) for j in group] for group in release._indicators_of(given))
    out = {next(j for j in reversed(group) if j not in numbers) for group in groups}
    return numbers.tolist(), [j for j in given.tolist() if j not in out]


@dataclass(frozen=True, eq=False)
class _TwoStages:
    """Of mapped columns (x, w, z, y), k of x and p of x and w; x' and y' are what w leaves of x and y."""

    covariance: Matrix
    of_others: Matrix  # (p - k, p - k), C_ww^-1
    along: Matrix  # (q, q), D
    partial: Matrix  # (d, k + 1), coefficients of x' and y' on all columns
    # total, added, explained: (k, k), of x': T before B is taken off, B, and T
    total: Matrix
    added: Matrix
    explained: Matrix
    noise_share: float  # the largest eigenvalue of T^-1 B; infinite where T is not positive, so that x is not explained
    theta: Matrix  # (p + 1,), the intercept and coefficients of x and w
    residual: Matrix  # (d,), y less the prediction, as a form of all columns


def _two_stages(
    covariance: Matrix, of_given: Matrix, of_others: Matrix, noisy: ReleasedMoments, k: int, p: int
) -> _TwoStages:
    """For the inverses of the covariances of q and of w."""
    d, mean, of_means = len(covariance), total_mean(noisy), noisy.noise.sums**2
    after = of_given[:, p - k :]
    along = after @ np.linalg.inv(after[p - k :]) @ after.T
    partial = np.eye(d)[:, [*range(k), d - 1]]
    partial[k:p] = -of_others @ (covariance[k:p] @ partial)
    products = covariance[k:-1] @ partial
    squares, means = partial.T @ partial, mean @ partial
    added = (noisy.noise.second**2 / 2 * squares + of_means * np.outer(means, means)) * np.trace(along)
    added += of_means * squares * (mean[k:-1] @ along @ mean[k:-1])
    total, x, share = products.T @ along @ products, np.s_[:k, :k], math.inf
    if np.linalg.eigvalsh(total[x])[0] > 0:
        share = float(scipy.linalg.eigh(added[x], total[x], eigvals_only=True)[-1])
    elif noisy.noiseless:
        raise ValueError("the instruments explain nothing of a column that they stand for: is it constant?")
    instruments = d - 1 - p
    explained = total - min((instruments - k) / instruments, _TAKEN / max(share, _TAKEN)) * added
    b = np.linalg.solve(explained[x], explained[:k, k])
    b = np.append(b, partial[k:p, :k] @ b - partial[k:p, k])
    residual = np.concatenate([-b, np.zeros(instruments), [1.0]])
    theta, of_x = np.append(mean @ residual, b), (total[x], added[x], explained[x])
    return _TwoStages(covariance, of_others, along, partial, *of_x, share, theta, residual)


def _variances(fit: _TwoStages, to_units: Matrix, noisy: ReleasedMoments) -> tuple[Matrix, Matrix]:
    """(p + 1,) each, of theta in units: by the noise; and by people, over the variance of the errors by n."""
    mean, residual, (p, k) = total_mean(noisy), fit.residual, (len(fit.theta) - 1, len(fit.explained))
    upper, to_theta = np.vstack([np.eye(k), fit.partial[k:p, :k]]), to_units @ np.vstack([-mean[:p], np.eye(p)])
    inverse = upper @ np.linalg.solve(fit.explained, upper.T)
    inverse[k:, k:] += fit.of_others
    # how b moves as the moments of all columns with the residual do, and theta as those of 1 do, too
    moved = np.zeros((p, len(mean)))
    moved[:, k:-1] = upper @ np.linalg.solve(fit.explained, fit.partial[:, :k].T @ fit.covariance[:, k:-1] @ fit.along)
    moved[k:, k:p] += fit.of_others
    contrasts = to_theta @ np.column_stack([-moved @ mean, moved])
    contrasts[:, 0] += to_units[:, 0]
    noise = noise_along(residual, float(fit.theta[0]), float(residual @ residual), noisy)
    return forms(contrasts, noise), forms(to_theta, inverse) + to_units[:, 0] ** 2


def _first_stage_f(fit: _TwoStages, n: float) -> float:
    """The least eigenvalue of T in units of what people and noise add where instruments explain nothing."""
    k, q, x = len(fit.explained), len(fit.along), fit.partial[:, : len(fit.explained)]
    left = x.T @ fit.covariance @ x - fit.total
    values, axes = np.linalg.eigh((left + left.T) / 2)
    left = (axes * np.maximum(values, 0.0)) @ axes.T
    unexplained = left * (q - len(fit.theta) + 1 + k) / max(n - q - 1, 1.0) + fit.added
    return float(scipy.linalg.eigh(fit.total, unexplained, eigvals_only=True)[0]) if unexplained.any() else math.inf


def _fitted(
    noisy: ReleasedMoments, k: int, p: int, features: NDArray[np.intp], names: Names, to_units: Matrix
) -> tuple[_TwoStages, Matrix]:
    """The two stages, and (p + 1, 2), how far theta may lie below and above for what clipping did."""
    mean, d = total_mean(noisy), len(features)
    known = noisy.second - np.outer(mean, mean)
    covariance, none = known + noisy.noise.sums**2 * np.eye(d), np.zeros((0, 0))
    given, others = slice(k, d - 1), slice(k, p)

    def inverse(part: slice) -> tuple[Matrix, Matrix]:
        q, m = features[part], mean[part]
        return inverse_of_noisy(covariance[part, part], m, noisy, q, names) if len(q) else (none, none)

    (of_given, xi), (of_others, xi_others) = inverse(given), inverse(others)
    fit, zero = _two_stages(covariance, of_given, of_others, noisy, k, p), np.zeros(p + 1)

    def moved(other: Matrix) -> Matrix:
        one = np.asarray(np.linalg.inv(other[given, given] + xi))
        two = np.asarray(np.linalg.inv(other[others, others] + xi_others))
        return np.asarray(to_units @ (_two_stages(other, one, two, noisy, k, p).theta - fit.theta))

    return fit, np.column_stack(clipping_reach(noisy.clipping, zero, known, moved, np.append(np.ones(d - 1), -1.0)))
