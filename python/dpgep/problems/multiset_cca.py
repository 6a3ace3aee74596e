"""The problem of multiset canonical correlations, from rows of several views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpgep.models.model import Adjacency
from dpgep.models.multiset_cca import MultisetCcaModel
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.problems.moment_problem import MomentProblem
from dpgep.problems.views import views_problem


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

    return views_problem(model, views, bound, preprocessing, adjacency, public_n)
