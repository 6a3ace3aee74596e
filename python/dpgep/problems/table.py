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


def table_problem(
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
    """The problem of all moments of rows, of everybody or of groups: labels of classes, or a response with its slices.

    For `dpgep.release`, which says what the parameters are.
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
