"""The problems of several views of the same people: canonical correlations, partial least squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dpgep.data.inputs import named
from dpgep.data.views import opened, width
from dpgep.models.cca import CcaModel
from dpgep.models.model import Adjacency, view_labels
from dpgep.models.multiset_cca import MultisetCcaModel
from dpgep.models.pls import PlsModel
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.views import ViewsModel
from dpgep.problems.problem import MomentProblem, moment_problem


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
    return _views_problem(partial(CcaModel, center=center), (X, Y), bound, preprocessing, adjacency, public_n)


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
    return _views_problem(partial(PlsModel, center=center), (X, Y), bound, preprocessing, adjacency, public_n)


def multiset_cca(
    views: Sequence[Any],
    *,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    center: bool = True,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
    """Multiset canonical correlation analysis: what two or more views of the same people have in common.

    Problem: A v = lambda B v with v = (x_1, ..., x_m), S the covariance of the joint row of all m views (its second
    moment if not ``center``), A its blocks S_ij between views (i != j, zero within them) and B its blocks S_ii within.
    Eigenvalues lie in [0, m - 1] up to noise. For two views they are the canonical correlations of `dpgep.cca`; for m
    views with equal parts in v, each is m - 1 times the mean correlation of two views. (Kettenring, 1971, the sum of
    correlations; other packages add 1 to eigenvalues, or divide them by m.)

    Parameters
    ----------
    views : sequence of array_like of shapes (n, d_1), ..., (n, d_m)
        Row i of each belongs to person i.
    bound : "auto" or float
        As in `dpgep.cca`, of the joint row: all parts are clipped together.
    preprocessing, center, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem
        For `dpgep.solve`. `Solution.view_weights` are the weights of each view.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, for fewer than two views, and if they differ in their number of rows.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> rng = np.random.default_rng(0)
    >>> common = rng.standard_normal((20000, 1))
    >>> views = [common * [1.0, 0.0, 0.0] + rng.standard_normal((20000, 3)) for _ in range(3)]
    >>> solution = dpgep.solve(dpgep.multiset_cca(views), epsilon=1.0, delta=1e-6, n_components=1)
    >>> [weights.shape for weights in solution.view_weights]
    [(1, 3), (1, 3), (1, 3)]
    """
    if not isinstance(views, (list, tuple)):
        raise TypeError(f"views must be a list of matrices, one for each view, got {type(views).__name__}")

    def model(*sizes: int) -> MultisetCcaModel:
        return MultisetCcaModel(sizes, center)

    return _views_problem(model, views, bound, preprocessing, adjacency, public_n)


def _views_problem(
    make: Callable[..., ViewsModel],
    views: Sequence[Any],
    bound: Bound,
    preprocessing: AutoPreprocessing | Preprocessing | None,
    adjacency: Adjacency,
    public_n: int | None,
) -> MomentProblem:
    """The problem of the model ``make`` (sizes) for views of the same people."""
    found = [opened(view, label, adjacency) for view, label in zip(views, view_labels(len(views)), strict=True)]
    model = named(make(*(width(view) for view, _ in found)), *(names for _, names in found))
    data = tuple(view for view, _ in found)
    return moment_problem(model, data, bound=bound, preprocessing=preprocessing, adjacency=adjacency, public_n=public_n)
