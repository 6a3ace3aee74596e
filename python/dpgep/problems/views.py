"""The problem of a model of several views, from the rows of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dpgep.data.inputs import named
from dpgep.data.views import opened, width
from dpgep.models.model import Adjacency, view_labels
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.views import ViewsModel
from dpgep.problems.moment_problem import MomentProblem, moment_problem


def views_problem(
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
