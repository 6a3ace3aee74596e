"""The problem of sliced inverse regression, from rows and a response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpgep.data.groups import slice_edges
from dpgep.data.inputs import named
from dpgep.data.views import opened, width
from dpgep.models.model import Adjacency
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.sir import SirModel
from dpgep.problems.moment_problem import MomentProblem, moment_problem


def sir(
    X: Any,
    y: Any,
    *,
    slices: int = 10,
    y_range: tuple[float, float] | None = None,
    edges: Sequence[float] | None = None,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
    """Sliced inverse regression: directions of X that a response y depends on.

    Problem: A v = lambda B v with A = sum_h (n_h/n) m_h m_h^T - m m^T over slices h of y, and B the covariance of the
    rows.

    Parameters
    ----------
    X : array_like of shape (n, d)
        One row per person.
    y : array_like of shape (n,)
        The response. A replaced person may also change slice: responses are protected like rows. Infinity belongs to an
        outer slice; a person with NaN counts as a person and contributes nothing else.
    slices : int
        Number of slices of equal width over ``y_range``.
    y_range : (low, high)
        Public range of y; values outside it belong to the outer slices. Required unless ``edges`` is given.
    edges : sequence of increasing numbers
        Public slice edges, H + 1 numbers for H slices; the outer two may be infinite and exclude nobody. Never
        compute edges from the data: one replaced person would move every quantile (see docs/errata.md).
    bound : "auto" or float
        As in `dpgep.pca`. "auto" gives every column a location and a scale, for 17 to 55 % of mu^2; makes columns
        nearly uncorrelated, for 27 to 35 % more, where n and the budget are large enough (`AutoPreprocessing`,
        "full"); or, where the budget is too small for scales, only shifts rows. ``components * solution.scale`` has
        unit rows.
    preprocessing, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem
        For `dpgep.solve`. Empty slices are allowed.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, and if y is not a vector of n real numbers or the slices are not publicly specified.
    """
    interior = slice_edges(slices, y_range, edges)
    x, names = opened(X, "X", adjacency)
    model = named(SirModel(width(x), tuple(interior.tolist())), names)
    return moment_problem(
        model, (x, y), bound=bound, preprocessing=preprocessing, adjacency=adjacency, public_n=public_n
    )
