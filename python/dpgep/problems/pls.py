"""The problem of partial least squares, from rows of two views."""

from __future__ import annotations

from functools import partial
from typing import Any

from dpgep.models.model import Adjacency
from dpgep.models.pls import PlsModel
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.problems.moment_problem import MomentProblem
from dpgep.problems.views import views_problem


def pls(
    X: Any,
    Y: Any,
    *,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    center: bool = True,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
    """Partial least squares of two views of the same people: the directions whose scores have the largest covariance.

    Problem: A v = lambda v with v = (x, y) and A = [[0, Sxy], [Syx, 0]], Sxy the cross-covariance of the views (their
    cross moment if not ``center``); no factor n/(n-1). Eigenvalues are the leading singular values of Sxy, the
    solution's ``x_weights`` and ``y_weights`` its singular vectors. All pairs follow from one Sxy without deflation, as
    in scikit-learn's `PLSSVD`, unlike `PLSCanonical`. Beyond the rank of Sxy, weights are arbitrary.

    Parameters
    ----------
    X, Y : array_like of shapes (n, d_x) and (n, d_y)
        Row i of each belongs to person i.
    bound : "auto" or float
        As in `dpgep.pca`, of the *joint* row (x, y): both parts are clipped together. "auto" shifts rows but does not
        scale columns, since covariances depend on the units: where the views differ in scale, rescale them by public
        factors first.
    preprocessing, center, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem
        For `dpgep.solve`; the solution contains the weights of both views.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.cca`.
    """
    return views_problem(partial(PlsModel, center=center), (X, Y), bound, preprocessing, adjacency, public_n)
