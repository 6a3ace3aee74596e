"""Partial correlations of released columns, and the graph of those that a graphical lasso keeps.

With G the inverse of the covariance, corrected for its noise (`dpgep.results.least_squares`), the partial correlation
of two columns given all others is r_ij = -G_ij/sqrt(G_ii G_jj). With u_i = G_i/sqrt(G_ii) an error N of the covariance
moves it by u_i^T N u_j + r_ij (u_i^T N u_i + u_j^T N u_j)/2.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_count, require_non_negative
from dpgep._optional import data_frame, import_extra
from dpgep.errors import warn_inaccurate
from dpgep.models.clipping import clipping_reach, longer_by
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, correlation_form_variance, standardization_of, total_mean
from dpgep.models.pairwise import require_no_pairs
from dpgep.results.columns import Answer, Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.estimates import MatrixEstimate, correlation_of
from dpgep.results.intervals import RowLaw, not_rejected, require_law
from dpgep.results.least_squares import inverse_of_noisy
from dpgep.results.synthetic import nearest_correlation

# The part of an inverse that is noise from which on partial correlations are visibly drawn towards zero.
_DROWNED = 0.5
# Probability with which a graph of columns that do not depend on each other has an edge, at the default penalty.
_FALSE_EDGE = 0.05
# Entries of a sparse precision matrix below this part of their columns' are no edges.
_ZERO = 1e-10
# Duality gap at which a graphical lasso has converged, its most passes over the columns, and a singular eigenvalue.
_GAP, _PASSES, _SINGULAR = 1e-4, 500, 1e-10
# Edges that are printed.
_SHOWN = 12


@on_one_thread_of_blas
def partial_correlation(
    release: ReleasedColumns, columns: Columns = None, *, level: float = 0.9, rows: RowLaw = "gaussian"
) -> MatrixEstimate:
    """Partial correlation of each two columns given all the others asked for, with an interval.

    Of all indicators of a categorical column, which determine each other, the first is left out. Raises ValueError for
    ``missing="pairwise"``, and, without noise, for columns that are linearly dependent.
    """
    require_law(level, rows)
    features, left_out = release._independent(release._numbers(columns))
    require_no_pairs(release._of_everybody[0], "partial correlations")
    released, _ = release._judged(features, sizes=False)
    d, mean, noise = len(features), total_mean(released), released.noise
    covariance = released.second - np.outer(mean, mean) + noise.sums**2 * np.eye(d)
    g, xi = inverse_of_noisy(covariance, mean, released, features, release.model.feature_names)
    if np.trace(g @ xi @ g) > _DROWNED / (1 - _DROWNED) * np.trace(g):
        warn_inaccurate(
            "noise drowns the covariance of the columns: partial correlations are drawn towards zero. Ask about fewer "
            "columns, or release with more people or a larger epsilon"
        )
    values, u = _partial(g), g / np.sqrt(np.diagonal(g))
    w, a = u.T @ u, mean @ u
    own, along = np.diagonal(w), a + values * a[:, None]
    # Var <Z, A> = s^2 |A|^2 for A = u_i u_j^T + r (u_i u_i^T + u_j u_j^T)/2, symmetrized, s the diagonal's deviation
    of_noise = (np.outer(own, own) + w**2) / 2 + values * w * np.add.outer(own, own)
    of_noise += values**2 * (np.add.outer(own**2, own**2) + 2 * w**2) / 4
    of_noise *= noise.second**2
    of_noise += noise.sums**2 * (along**2 * own[:, None] + along.T**2 * own + 2 * along * along.T * w)
    of_noise += noise.counts**2 * (np.outer(a, a) + values * np.add.outer(a**2, a**2) / 2) ** 2
    squares = None
    if rows == "bounded":
        squares = (np.linalg.norm(mean) + release._row_bound) ** 2 * (np.add.outer(own, own) + 2 * np.abs(w))
    # people add the variance of a correlation, of d - 2 fewer (Fisher 1924)
    freedom = max(released.n - max(d - 2, 0), 1.0)
    low, high = not_rejected(values, np.maximum(of_noise, 0.0), released, freedom, level, squares)
    reaches = clipping_reach(
        released.clipping, values, covariance, lambda other: _partial(np.asarray(np.linalg.inv(other + xi)))
    )
    below, above = (longer_by((high - low) / 2, reach, level) for reach in reaches)
    low, high = np.maximum(low - below, -1.0), np.minimum(high + above, 1.0)
    np.fill_diagonal(low, 1.0)
    np.fill_diagonal(high, 1.0)
    ends = values, low, high
    return MatrixEstimate("partial correlation", *ends, level, left_out=left_out, **release._known_of(features))


def residual_moments(released: ReleasedMoments, n_given: int, columns: NDArray[np.intp], names: Any) -> ReleasedMoments:
    """Moments of columns less what least squares predicts of them from the last ``n_given``, which are ``columns``.

    With W = C_xz G, G the corrected inverse of C_zz, x - W z has the covariance C_xx - W C_zx + E[N_xz G N_zx], as the
    product is too large by the last. The noise, (I, -W) N (I, -W)^T, counts as isotropic, and as large on average.
    """
    d, mean, noise = len(released.second) - n_given, total_mean(released), released.noise
    variation, of_mean = noise.second**2 / 2, noise.sums**2
    covariance = released.second - np.outer(mean, mean)
    before, after = mean[:d], mean[d:]
    within = covariance[d:, d:] + of_mean * np.eye(n_given)
    g, _ = inverse_of_noisy(within, after, released, columns, names)
    weights = covariance[:d, d:] @ g
    own = (variation * np.trace(g) + of_mean * (after @ g @ after)) * np.eye(d)
    own += of_mean * np.trace(g) * np.outer(before, before)
    left = covariance[:d, :d] - weights @ covariance[d:, :d] + own
    longer = 1 + float(np.mean(np.sum(weights**2, axis=1)))
    return replace(
        released.restricted(np.arange(d)),
        second=(left + left.T) / 2 + np.outer(before, before),
        noise=replace(noise, second=noise.second * longer, sums=noise.sums * math.sqrt(longer)),
        clipping=None,
    )


def _partial(inverse: Matrix) -> Matrix:
    """-G_ij/sqrt(G_ii G_jj), and 1; at the ends where G is not positive."""
    scale = np.sqrt(np.maximum(np.diagonal(inverse), 1e-150))
    values: Matrix = np.clip(-(inverse + inverse.T) / (2 * np.outer(scale, scale)), -1.0, 1.0)
    np.fill_diagonal(values, 1.0)
    return values


@dataclass(frozen=True, eq=False, repr=False)
class Graph(Answer):
    """A Gaussian graphical model of standardized columns: no edge, no dependence given all others.

    Which edges are found depends on the data: there are no intervals after such a selection. `partial_correlation` has
    intervals for edges that were chosen beforehand.

    Attributes
    ----------
    values : (d, d), partial correlations of the sparse precision matrix: 0 where there is no edge. Shrunk.
    precision : (d, d), of standardized columns.
    penalty : of the graphical lasso.
    names : of the columns; numbers as text where they have none.
    left_out : the first indicator of each categorical column that was asked for whole: the others determine it.
    """

    values: Matrix
    precision: Matrix
    penalty: float
    names: tuple[str, ...]
    left_out: tuple[str, ...]

    _absence: ClassVar[str] = "correlations are drawn towards 0"

    @property
    def edges(self) -> list[tuple[str, str, float]]:
        """Two columns and their partial correlation, the largest first."""
        first, second = np.nonzero(np.triu(self.values, 1))
        order = np.argsort(-np.abs(self.values[first, second]), kind="stable")
        pairs = zip(first[order].tolist(), second[order].tolist(), strict=True)
        return [(self.names[i], self.names[j], float(self.values[i, j])) for i, j in pairs]

    def to_frame(self) -> Any:
        """The edges as a pandas DataFrame."""
        return data_frame(self.edges, None, ["first", "second", "partial correlation"])

    def __repr__(self) -> str:
        edges = self.edges
        about = f"{len(edges)} edges; penalty {self.penalty:.3g}, {self.n_people:.0f} people"
        lines = ["  edges     were chosen, and are shrunk: no intervals (partial_correlation has them)"]
        if self.left_out:
            lines.append(f"  left out  {', '.join(self.left_out)}: the other indicators determine them")
        width = max(map(len, self.names))
        lines.extend(f"  {a:{width}}  {b:{width}}  {value:6.3f}" for a, b, value in edges[:_SHOWN])
        lines += [f"  ... {len(edges) - _SHOWN} more"] * (len(edges) > _SHOWN)
        return self._printed(f"Graph of {len(self.names)} columns, {about}", *lines)


@on_one_thread_of_blas
def graph(release: ReleasedColumns, columns: Columns = None, *, penalty: float | None = None) -> Graph:
    """The Gaussian graphical model that scikit-learn's graphical lasso finds in the released correlations.

    It maximizes log det P - tr(R P) - penalty sum_{i != j} |P_ij|, R the `nearest_correlation`. Default: the penalty
    at which columns that do not depend on each other have an edge with a probability of at most 0.05. Of all indicators
    of a categorical column, which determine each other, the first is left out.

    Raises ValueError for a negative penalty, fewer than two columns, and where scikit-learn finds no solution.
    """
    features, left_out = release._independent(release._numbers(columns))
    require_count("the number of columns, without one indicator of each category,", len(features), least=2)
    noisy, _ = release._judged(features, sizes=False)
    d, standard = len(features), standardization_of(noisy)
    known = np.flatnonzero(~standard.drowned & (standard.scale > 0))
    part, correlation = noisy.restricted(known), np.eye(d)
    correlation[np.ix_(known, known)] = nearest_correlation(correlation_of(part))
    if penalty is None:
        penalty = _penalty(part)
    require_non_negative("penalty", penalty)
    precision = _sparse_inverse(correlation, float(penalty))
    values = _partial(precision)
    values[np.abs(values) < _ZERO] = 0.0
    return Graph(values, precision, float(penalty), release._labels_of(features), left_out, **release._known(noisy.n))


def _sparse_inverse(correlation: Matrix, penalty: float) -> Matrix:
    """By scikit-learn's graphical lasso, which warns, or fails in one way or another, where it finds no solution."""
    covariance = import_extra("sklearn.covariance", "sklearn")
    gap, precision = math.nan, correlation
    least = penalty + float(np.linalg.eigvalsh(correlation)[0])
    with warnings.catch_warnings(), contextlib.suppress(FloatingPointError, np.linalg.LinAlgError):
        warnings.simplefilter("ignore")
        # its inner descents end early by default, and the gap of some small matrices then never closes
        settings = {"tol": _GAP, "enet_tol": _GAP**2, "max_iter": _PASSES, "return_costs": True}
        _, precision, costs = covariance.graphical_lasso(correlation, penalty, **settings)
        gap = float(np.atleast_2d(costs)[-1, 1])
    if not abs(gap) < _GAP or least < _SINGULAR:
        raise ValueError(f"the graphical lasso has no solution at penalty {penalty:.3g}: give a larger one")
    return np.asarray(precision)


def _penalty(part: ReleasedMoments) -> float:
    """What the largest of all correlations of independent columns exceeds with probability `_FALSE_EDGE` at most."""
    from scipy.special import ndtri

    d = len(part.second)
    if d < 2:
        return 0.0
    of_noise = correlation_form_variance(part, np.eye(d), np.eye(d))
    longer = 1.0 if part.clipping is None else part.clipping.people
    variance = float(np.max(of_noise[~np.eye(d, dtype=bool)])) + longer / part.n
    return -float(ndtri(_FALSE_EDGE / (d * (d - 1)))) * math.sqrt(variance)
