"""The problem of canonical correlations, from rows of two views."""

from __future__ import annotations

from functools import partial
from typing import Any

from dpgep.models.cca import CcaModel
from dpgep.models.model import Adjacency
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.problems.moment_problem import MomentProblem
from dpgep.problems.views import views_problem


def cca(
    X: Any,
    Y: Any,
    *,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
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
        Row i of each belongs to person i.
    bound : "auto" or float
        As in `dpgep.pca`, of the *joint* row (x, y): both parts are clipped together. "auto" gives every column a
        location (if ``center``) and a scale, for 17 to 55 % of mu^2; makes the columns of each view nearly
        uncorrelated, for 27 to 35 % more, where n and the budget are large enough (`AutoPreprocessing`, "full");
        or, where the budget is too small for scales, only shifts rows. ``components * solution.scale`` has unit rows.
        With a number, rescale views of different scales by public factors first.
    preprocessing, center, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem
        For `dpgep.solve`; the solution contains the weights of both views.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, and if X and Y differ in their number of rows.
    """
    return views_problem(partial(CcaModel, center=center), (X, Y), bound, preprocessing, adjacency, public_n)
