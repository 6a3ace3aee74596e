"""What belongs to people, as a model declares it, from the arrays that users pass: rows, groups and names."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from dpgep.data.groups import Codes, class_codes, slice_codes
from dpgep.data.rows import Batch, Rows
from dpgep.data.views import as_view, check_same_rows
from dpgep.models.row_model import Classes, Grouping, RowModel
from dpgep.sources.names import Names, check_same

M = TypeVar("M", bound=RowModel)


def rows_of(model: RowModel, bound: float, views: tuple[Any, ...]) -> Rows:
    """The views of the same people, checked and converted."""
    parts = tuple(
        as_view(values, name, view.stop - view.start)
        for values, name, view in zip(views, model.inputs, model.views, strict=False)
    )
    for part in parts[1:]:
        check_same_rows(parts[0], part)
    return Rows(parts, bound)


def batch_of(model: RowModel, bound: float, *data: Any) -> Batch:
    """The people of one batch of data: their rows and, where the model has a grouping, the group of each."""
    n_views = len(model.views)
    rows = rows_of(model, bound, data[:n_views])
    if model.grouping is None:
        return Batch(rows)
    return Batch.of_codes(rows, _codes(model.grouping, data[n_views], rows.n))


def _codes(grouping: Grouping, values: Any, n: int) -> Codes:
    if isinstance(grouping, Classes):
        return class_codes(values, n, grouping.labels)
    return slice_codes(values, n, np.array(grouping.interior_edges))


def inputs_of(model: RowModel, X: Any, *others: Any) -> tuple[Any, ...]:
    """What people consist of: X, and the others that are not None. Raises TypeError for too little or too much."""
    data = (X, *(each for each in others if each is not None))
    if len(data) != len(model.inputs):
        raise TypeError(f"{model.name} needs {' and '.join(model.inputs)} for every person")
    return data


def named(model: M, *views: Names) -> M:
    """The model of views whose columns have these names (None: unknown); columns of an unnamed view get numbers.

    Raises ValueError if the model has other names.
    """
    if model.feature_names is not None:
        for found, expected, name in zip(views, model.view_names, model.inputs, strict=False):
            check_same(found, expected, name)
        return model
    if not any(views):
        return model
    names = (found or map(str, range(view.stop - view.start)) for found, view in zip(views, model.views, strict=True))
    return replace(model, feature_names=tuple(chain.from_iterable(names)))
