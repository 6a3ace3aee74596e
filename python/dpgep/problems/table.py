"""A table of people, to be released as a whole."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

from dpgep.data.groups import public_classes, slice_edges
from dpgep.data.inputs import named
from dpgep.data.views import n_rows, opened, width
from dpgep.models.model import Adjacency
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.table import TableModel
from dpgep.problems.moment_problem import MomentProblem, moment_problem


def table(
    X: Any,
    groups: Any = None,
    *,
    classes: Sequence[Hashable] | Literal["public"] | None = None,
    slices: int | None = None,
    y_range: tuple[float, float] | None = None,
    edges: Sequence[float] | None = None,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
    """A table of people, for `dpgep.release`: all its moments, from which any number of questions are then answered.

    Released are M = (1/n) sum x x^T and the mean, or, with ``groups``, sums and counts of each group. They cost as much
    as one answer. `PrivateMoments` lists the questions: principal components, canonical correlations, regressions,
    correlations and more, of any columns.

    Parameters
    ----------
    X : array_like of shape (n, d)
        One row per person, as in `dpgep.pca`: an array, a table with names, a `dpgep.scan`, a Dask collection.
    groups : array_like of n labels, or of n numbers, optional
        The class of each person, for `PrivateMoments.fda` and `classifier`; or, with ``slices`` or ``edges``, a
        response, for `PrivateMoments.sir`. Groups add to the noise of all answers: give them only where they are asked
        for. A person without a group counts as a person and contributes nothing else, in all questions.
    classes
        Of labels, as in `dpgep.fda`: the public set of classes.
    slices, y_range, edges
        Of a response, as in `dpgep.sir`: ``slices`` of equal width over the public ``y_range``, or public ``edges``.
    bound : "auto" or float
        As in `dpgep.pca`. "auto" gives every column a location and a scale, for 17 to 55 % of mu^2, so that columns in
        units of their own are released equally well. All columns then have noise of the same size relative to their
        scale, and a question about a few columns has the noise of a table of all: leave out columns that nobody asks
        about. Where only the largest of columns in one unit matter, as in a spectrum,
        ``AutoPreprocessing(precondition=None)`` leaves the scales as they are.
    preprocessing, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem
        For `dpgep.release`. Nothing is computed yet.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, `fda` and `sir`; also for options of groups without groups.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> X = np.random.default_rng(0).standard_normal((20000, 4)) @ (np.eye(4) + 0.5) * [1, 10, 100, 1000]
    >>> people = dpgep.release(dpgep.table(X), epsilon=1.0, delta=1e-6)
    >>> two, one = people.pca([0, 1], standardize=True), people.cca([0, 1], [2, 3], n_components=1)
    >>> two.privacy == one.privacy == people.privacy  # paid once
    True
    """
    x, names = opened(X, "X", adjacency)
    if groups is None:
        given = {"classes": classes, "slices": slices, "y_range": y_range, "edges": edges}
        described = [name for name, value in given.items() if value is not None]
        if described:
            raise ValueError(f"{' and '.join(described)} describe groups: give groups as well")
        model = TableModel(width(x))
    elif slices is None and edges is None:
        if y_range is not None:
            raise ValueError("y_range belongs to slices: give their number")
        model = TableModel(width(x), public_classes(groups, n_rows(x), classes))
    else:
        if classes is not None:
            raise ValueError("the groups of a table are classes or slices of a response: give one of them")
        if slices is not None and edges is not None:
            raise ValueError("give either edges, which say how many slices there are, or slices with y_range")
        interior = slice_edges(slices, y_range, edges)
        model = TableModel(width(x), interior_edges=tuple(interior.tolist()))
    data = (x,) if groups is None else (x, groups)
    return moment_problem(
        named(model, names), data, bound=bound, preprocessing=preprocessing, adjacency=adjacency, public_n=public_n
    )
