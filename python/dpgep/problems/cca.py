"""Canonical correlations: A = [[0, Sxy], [Syx, 0]], B = blockdiag(Sx, Sy)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep.models.model import Adjacency, Matrix
from dpgep.models.moments import Pencil, PencilPart, PlausibleMoments, ReleasedGroups, ReleasedMoments, mean_factor
from dpgep.models.preparation import Bound
from dpgep.problems.moment_problem import RowProblem
from dpgep.problems.two_views import TwoViewModel, block_form_variance, truth_of_views, two_view_problem


@dataclass(frozen=True)
class CcaModel(TwoViewModel):
    """max x^T Sxy y over x^T Sx x = y^T Sy y = 1, as A v = lambda B v with v = (x, y); lambda is the correlation."""

    name = "cca"
    shift = 1.0  # eigenvalues are correlations
    largest_eigenvalue = 1.0

    @property
    def has_clipped_products(self) -> bool:
        return True

    def pencil(self, released: ReleasedGroups) -> Pencil:
        mean = mean_factor(released)
        weights = -np.ones(mean.shape[:-1])
        between, within = PencilPart(weights, blocks="between"), PencilPart(weights, blocks="within")
        return Pencil(mean, between, within, view_sizes=self.view_sizes)

    def error_variances(self, released: ReleasedGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        return block_form_variance(released, self.views, left, right, within=-eigenvalues)

    def plausible_truth(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        return truth_of_views(self, released, most_features)


def cca(
    X: Any,
    Y: Any,
    *,
    bound: Bound = "auto",
    center: bool = True,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> RowProblem:
    """Canonical correlation analysis of two views of the same people.

    Problem: A v = lambda B v with v = (x, y), A = [[0, Sxy], [Syx, 0]], B = blockdiag(Sx, Sy), S the covariance of the
    joint row (x, y) (its second moment if not ``center``). Eigenvalues are correlations, in [0, 1] up to noise.

    Parameters
    ----------
    X, Y : array_like of shapes (n, d_x) and (n, d_y)
        Row i of each belongs to person i.
    bound : "auto", float, `Auto` or `Preparation`
        As in `dpgep.pca`, of the *joint* row (x, y): both parts are clipped together. "auto" gives every column a
        location (if ``center``) and a scale, for 17 to 55 % of mu^2; makes the columns of each view nearly
        uncorrelated, for 27 to 35 % more, where n and the budget are large enough (`Auto`, "full"); or, where the
        budget is too small for scales, only shifts rows. ``components * solution.scale`` has unit rows. With a number,
        rescale views of different scales by public factors first.
    center, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem or TableProblem
        For `dpgep.solve`; the solution contains the weights of both views.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, and if X and Y differ in their number of rows.
    """
    return two_view_problem(CcaModel, X, Y, bound, center, adjacency, public_n)
