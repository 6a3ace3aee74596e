"""Canonical correlations: A = [[0, Sxy], [Syx, 0]], B = blockdiag(Sx, Sy)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep.problems.denoise import (
    edge,
    low_rank_before_noise,
    merged_directions,
    spectrum_before_noise,
    swamped_mean,
)
from dpgep.problems.first_order import rank_two_squares, squares, symmetric_form_variance
from dpgep.problems.model import Adjacency, Matrix, PairForm, PublicFacts
from dpgep.problems.moment_problem import MomentProblem, moment_problem
from dpgep.problems.moments import (
    NO_NOISE,
    MomentLayout,
    MomentModel,
    NoisyGroups,
    NoisyMoments,
    PlausibleMoments,
    mean_factor,
    moment_layout,
    total_mean,
)
from dpgep.problems.people import Batch
from dpgep.problems.rows import Rows, as_view, check_bound, check_same_rows
from dpgep.problems.views import opened, width


@dataclass(frozen=True)
class CcaModel(MomentModel):
    """max x^T Sxy y over x^T Sx x = y^T Sy y = 1, as A v = lambda B v with v = (x, y); lambda is the correlation."""

    d_x: int
    d_y: int
    center: bool
    name = "cca"
    inputs = ("X", "Y")
    shift = 1.0  # eigenvalues are correlations
    largest_eigenvalue = 1.0

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.d_x + self.d_y

    @property
    def first_view(self) -> int:
        return self.d_x

    @property
    def max_components(self) -> int:
        return min(self.d_x, self.d_y)

    @property
    def max_components_reason(self) -> str:
        return f"CCA of {self.d_x} and {self.d_y} features has min = {self.max_components} pairs"

    def batch(self, bound: float, *data: Any) -> Batch:
        x, y = as_view(data[0], "X", self.d_x), as_view(data[1], "Y", self.d_y)
        check_same_rows(x, y)
        return Batch(Rows((x, y), bound))

    def layout(self, facts: PublicFacts) -> MomentLayout:
        return moment_layout(self.n_features, 0, sums=self.center, facts=facts)

    def form(self, released: NoisyGroups) -> PairForm:
        mean = mean_factor(released)
        return PairForm(mean, -np.ones(len(mean)), np.zeros(len(mean)), split=self.d_x)

    def error_variances(self, released: NoisyGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        # dA - lambda dB is the derivative dT of the covariance with its diagonal blocks times -lambda. Its blocks carry
        # independent noise: first the second moment, diagonal blocks (GOE) and the off-diagonal one (entries of
        # variance s^2/2), then the sums of each view. The noise of n itself (add-remove) is of smaller order and left
        # out.
        weight = -eigenvalues[:, None]
        (ux, uy), (vx, vy) = self._parts(left), self._parts(right)
        variance = weight**2 * (symmetric_form_variance(ux, vx) + symmetric_form_variance(uy, vy))
        # |u_x v_y^T + v_x u_y^T|_F^2 / 2
        variance += np.outer(squares(vy), squares(ux)) / 2 + np.outer(squares(vx), squares(uy)) / 2
        variance += (vx.T @ ux) * (vy.T @ uy)
        variance *= released.noise.second**2
        if released.sums.size:
            mean_x, mean_y = self._parts(total_mean(released))
            for u, v, own, other, w, z in ((ux, vx, mean_x, mean_y, uy, vy), (uy, vy, mean_y, mean_x, ux, vx)):
                # noise in this view's sums meets the mean of its own part (weight -lambda) and of the other part
                # (weight 1)
                a_left = -(weight * (own @ u) + other @ w)
                a_right = -(weight[:, 0] * (own @ v) + other @ z)
                variance += released.noise.sums**2 * rank_two_squares(u, v, a_left[:, None, :], a_right[:, None])
        return np.asarray(variance)

    def plausible_truth(self, released: NoisyMoments, most_features: int) -> PlausibleMoments:
        deviation = released.noise.second
        mean = total_mean(released) if released.sums.size else np.zeros(self.n_features)
        covariance = released.second - np.outer(mean, mean)
        x, y = slice(0, self.d_x), slice(self.d_x, None)
        signal = low_rank_before_noise(covariance[x, y], deviation / math.sqrt(2))
        cross = (signal.left * signal.sizes) @ signal.right
        share = min(most_features / self.n_features, 1.0)
        views = [
            _View.seen_through(covariance[x, x], covariance[x, y], deviation),
            _View.seen_through(covariance[y, y], covariance[y, x], deviation),
        ]
        cross, mean_x, numbers_x, values_x = views[0].merged(cross, mean[x], share)
        cross, mean_y, numbers_y, values_y = views[1].merged(cross, mean[y], share)
        joint = np.block([[np.diag(values_x), cross], [cross.T, np.diag(values_y)]])
        values, vectors = scipy.linalg.eigh(joint, check_finite=False)
        # positive, so that no correlation is beyond 1: noise of one entry between the views may have made it less
        joint = (vectors * np.maximum(values, deviation)) @ vectors.T
        mean = np.concatenate([mean_x, mean_y])
        sums = mean[:, None] if released.sums.size else np.empty((len(mean), 0))
        moments = NoisyMoments(sums, released.counts, released.n, NO_NOISE, joint + np.outer(mean, mean))
        model = CcaModel(len(mean_x), len(mean_y), self.center)
        return PlausibleMoments(model, moments, released.noise, np.concatenate([numbers_x, numbers_y]))

    def restricted(self, features: NDArray[np.intp]) -> CcaModel:
        d_x = int((features < self.d_x).sum())
        return CcaModel(d_x, len(features) - d_x, self.center)

    def mean(self, released: NoisyGroups) -> Matrix | None:
        return total_mean(released) if self.center else None

    def split(self, components: Matrix) -> tuple[Matrix, ...]:
        return components[:, : self.d_x], components[:, self.d_x :]

    def _parts(self, vectors: Matrix) -> tuple[Matrix, Matrix]:
        return vectors[: self.d_x], vectors[self.d_x :]


# Directions of a kind that a larger problem is not thinned out below: a few that stand out are all different.
_FEWEST = 24


@dataclass(frozen=True, eq=False)
class _View:
    """A view's covariance before noise: ``values`` along the columns of ``basis``, of which the first ``n_above`` stand
    out of its noise and the others carry what the cross-covariance has elsewhere; ``rest`` in all other directions.
    """

    basis: Matrix
    values: Matrix
    n_above: int
    rest: float

    @staticmethod
    def seen_through(covariance: Matrix, cross: Matrix, deviation: float) -> _View:
        values, vectors = scipy.linalg.eigh(covariance, check_finite=False)
        shown = values > edge(len(values), deviation)
        below = vectors[:, ~shown]
        along = below @ low_rank_before_noise(below.T @ cross, deviation / math.sqrt(2)).left
        found, rotation = np.linalg.eigh(along.T @ covariance @ along)  # SciPy 1.12 refuses empty ones
        known = np.concatenate(
            [spectrum_before_noise(values, deviation)[shown], spectrum_before_noise(found, deviation)]
        )
        n_rest = len(values) - len(known)
        rest = swamped_mean(float(values.sum() - known.sum()), n_rest, deviation) if n_rest else 0.0
        return _View(np.hstack([vectors[:, shown], along @ rotation]), known, int(shown.sum()), rest)

    def merged(self, cross: Matrix, mean: Matrix, share: float) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """The cross-covariance, transposed, and the mean in fewer directions; for how many each stands; its value."""
        rows = np.column_stack([cross, mean])
        known, beside = self.basis.T @ rows, mean - self.basis @ (self.basis.T @ mean)
        others = np.zeros((len(rows) - len(known), rows.shape[1]))
        others[:1, -1] = np.linalg.norm(beside)
        parts = [
            merged_directions(values, part, max(math.ceil(share * len(values)), _FEWEST))
            for values, part in (
                (self.values[: self.n_above], known[: self.n_above]),
                (np.full(len(others), self.rest), others),
            )
        ]
        parts.insert(1, (self.values[self.n_above :], known[self.n_above :], np.ones(len(known) - self.n_above)))
        merged, rows, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
        return rows[:, :-1].T, rows[:, -1], numbers, merged


def cca(
    X: Any,
    Y: Any,
    *,
    bound: float = 1.0,
    center: bool = True,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
    """Canonical correlation analysis of two views of the same people.

    Problem: A v = lambda B v with v = (x, y), A = [[0, Sxy], [Syx, 0]], B = blockdiag(Sx, Sy), S the covariance of the
    joint row (x, y) (its second moment if not ``center``). Eigenvalues are correlations, in [0, 1] up to noise.

    Parameters
    ----------
    X, Y : array_like of shapes (n, d_x) and (n, d_y)
        Row i of both belongs to person i.
    bound : float
        Public bound on the norm of the *joint* row (x, y), enforced by shrinking both parts together. Where the views
        differ in scale, rescale them by public factors first.
    center, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem
        To be passed to `dpgep.solve`; the solution holds both weight sets.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, and if X and Y differ in their number of rows.
    """
    bound = check_bound(bound)
    x, y = opened(X, "X", adjacency), opened(Y, "Y", adjacency)
    model = CcaModel(width(x), width(y), center)
    return moment_problem(model, (x, y), bound=bound, adjacency=adjacency, public_n=public_n)
