"""What models of two views of the same people share: joint rows z = (x, y) and the covariance of z."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.data.rows import Batch, Rows
from dpgep.data.views import as_view, check_bound, check_same_rows, opened, width
from dpgep.models.first_order import rank_two_squares, squares, symmetric_form_variance
from dpgep.models.model import Adjacency, Matrix, PublicFacts
from dpgep.models.moments import MomentLayout, ReleasedGroups, moment_layout, total_mean
from dpgep.problems.moment_problem import MomentProblem, moment_problem
from dpgep.problems.row_model import RowModel


@dataclass(frozen=True)
class TwoViewModel(RowModel):
    """Views of d_x and d_y features, centred or not."""

    d_x: int
    d_y: int
    center: bool
    inputs = ("X", "Y")

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.d_x + self.d_y

    @property
    def first_view_size(self) -> int:
        return self.d_x

    @property
    def max_components(self) -> int:
        return min(self.d_x, self.d_y)

    @property
    def max_components_reason(self) -> str:
        return f"{self.name.upper()} of {self.d_x} and {self.d_y} features has min = {self.max_components} pairs"

    def batch(self, bound: float, *data: Any) -> Batch:
        x, y = as_view(data[0], "X", self.d_x), as_view(data[1], "Y", self.d_y)
        check_same_rows(x, y)
        return Batch(Rows((x, y), bound))

    def layout(self, facts: PublicFacts) -> MomentLayout:
        return moment_layout(self.n_features, 0, sums=self.center, facts=facts)

    def restricted(self, features: NDArray[np.intp]) -> TwoViewModel:
        d_x = int((features < self.d_x).sum())
        return replace(self, d_x=d_x, d_y=len(features) - d_x)

    def mean(self, released: ReleasedGroups) -> Matrix | None:
        return total_mean(released) if self.center else None

    def views_of(self, components: Matrix) -> tuple[Matrix, ...]:
        return components[:, : self.d_x], components[:, self.d_x :]


def block_form_variance(released: ReleasedGroups, d_x: int, left: Any, right: Matrix, within: Matrix | float) -> Matrix:
    """Var of u_j^T dT_i v_i, shape (k, r), dT_i the derivative of the covariance, its diagonal blocks times ``within``.

    The blocks carry independent noise: first the second moment, diagonal blocks (GOE) and the off-diagonal one (entries
    of variance s^2/2), then the sums of each view. The noise of n itself (add-remove) is of smaller order and left out.
    """
    weight = np.broadcast_to(within, right.shape[1])[:, None]
    (ux, uy), (vx, vy) = (left[:d_x], left[d_x:]), (right[:d_x], right[d_x:])
    variance = weight**2 * (symmetric_form_variance(ux, vx) + symmetric_form_variance(uy, vy))
    # |u_x v_y^T + v_x u_y^T|_F^2 / 2
    variance += np.outer(squares(vy), squares(ux)) / 2 + np.outer(squares(vx), squares(uy)) / 2
    variance += (vx.T @ ux) * (vy.T @ uy)
    variance *= released.noise.second**2
    if released.sums.size:
        mean = total_mean(released)
        mean_x, mean_y = mean[:d_x], mean[d_x:]
        for u, v, own, other, w, z in ((ux, vx, mean_x, mean_y, uy, vy), (uy, vy, mean_y, mean_x, ux, vx)):
            # noise in this view's sums meets the mean of its own part and of the other part (weight 1)
            a_left = -(weight * (own @ u) + other @ w)
            a_right = -(weight[:, 0] * (own @ v) + other @ z)
            variance += released.noise.sums**2 * rank_two_squares(u, v, a_left[:, None, :], a_right[:, None])
    return np.asarray(variance)


def two_view_problem(
    model: type[TwoViewModel], X: Any, Y: Any, bound: float, center: bool, adjacency: Adjacency, public_n: int | None
) -> MomentProblem:
    """The problem of ``model`` for views X and Y."""
    bound = check_bound(bound)
    x, y = opened(X, "X", adjacency), opened(Y, "Y", adjacency)
    return moment_problem(
        model(width(x), width(y), center), (x, y), bound=bound, adjacency=adjacency, public_n=public_n
    )
