"""What belongs to people, as a model declares it, from the arrays that users pass: rows, groups and names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from dpgep.data.dataset import Dataset, InMemoryDataset, StreamedDataset
from dpgep.data.distributed import DaskDataset, SparkDataset, dask_parts, read_again, read_chunks
from dpgep.data.groups import Codes, class_codes, slice_codes
from dpgep.data.rows import Batch, Rows
from dpgep.data.views import as_view, check_same_rows, frame_columns, n_rows, opened, require_width, width
from dpgep.models.row_model import Classes, Grouping, RowModel, input_names, names_of_views
from dpgep.sources import Scan, Selection
from dpgep.sources.kinds import is_dask_collection, is_dask_frame, is_spark_frame
from dpgep.sources.names import Names, check_same, require_features
from dpgep.sources.opening import parquet_parts

M = TypeVar("M", bound=RowModel)


def rows_of(model: RowModel, bound: float, views: tuple[Any, ...]) -> Rows:
    """The views of the same people, checked and converted."""
    parts = tuple(
        as_view(values, name, view.stop - view.start)
        for values, name, view in zip(views, input_names(model), model.views, strict=False)
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


def dataset_of(model: RowModel, data: tuple[Any, ...], bound: float, fewest: int, client: Any = None) -> Dataset:
    """The people of data as `batch_of` takes them: arrays, Dask's too, or selections of one source.

    ``fewest`` rows are required. Dask computes collections on ``client`` (None: what ``dask.compute`` uses), and if
    there is one, Parquet files.
    """
    facts = partial(batch_of, model, bound), model.n_features, bound, fewest
    if any(isinstance(part, Selection) for part in data):
        return _of_selections(data, facts, client)
    if any(not isinstance(part, np.ndarray) and is_dask_collection(part) for part in data):
        n = next((n for n in map(n_rows, data) if n is not None), None)
        read = partial(read_chunks, [frame_columns(each) if is_dask_frame(each) else (None, {}) for each in data])
        return DaskDataset(dask_parts(data), read, *facts, n=n, client=client)
    if client is not None:
        raise TypeError("client= is for Dask collections and Parquet files: rows in memory need no cluster")
    return InMemoryDataset(batch_of(model, bound, *data))


def _of_selections(data: tuple[Any, ...], facts: tuple[Callable[..., Batch], int, float, int], client: Any) -> Dataset:
    scans = {id(part.scan) for part in data if isinstance(part, Selection)}
    if len(scans) > 1 or not all(isinstance(part, Selection) for part in data):
        raise ValueError(
            "rows and labels or responses must come from one source, to be read together: take both from "
            'the same dpgep.scan, as in source[["age", "weight"]] and source["label"]'
        )
    people: Scan = data[0].scan
    if is_spark_frame(people.value):
        return SparkDataset(data, *facts)
    if client is None:
        return StreamedDataset(data, *facts)
    read = partial(read_again, people.again(), [each.key for each in data])
    return DaskDataset([(part,) for part in parquet_parts(people.value)], read, *facts, client=client, people=people)


def require_row_model(model: Any) -> None:
    """Raise TypeError unless this is a model of rows."""
    if not isinstance(model, RowModel):
        raise TypeError(
            f"model must be a model of rows, such as dpgep.models.PcaModel(20, True), got {type(model).__name__}"
        )


def inputs_of(model: RowModel, X: Any, *others: Any) -> tuple[Any, ...]:
    """What people consist of: X, and the others that are not None. Raises TypeError for too little or too much."""
    data = (X, *(each for each in others if each is not None))
    if len(data) != len(input_names(model)):
        raise TypeError(f"{model.name} needs {' and '.join(input_names(model))} for every person")
    return data


def opened_views(
    model: M, data: tuple[Any, ...], adjacency: Any, fewest: int | None = None
) -> tuple[M, tuple[Any, ...]]:
    """The model with the names of the columns, and the data of `inputs_of` with its views as `opened` has them.

    Raises ValueError for a view of another width than the model's.
    """
    views, rows, names = model.views, [], []
    for values, name, columns in zip(data, input_names(model), views, strict=False):
        view, found = opened(values, name, adjacency, fewest)
        require_width(width(view), name, columns.stop - columns.start)
        rows.append(view)
        names.append(found)
    return named(model, *names), (*rows, *data[len(views) :])


def named(model: M, *views: Names) -> M:
    """The model of views whose columns have these names (None: unknown); columns of an unnamed view get numbers.

    Raises ValueError if the model has other names.
    """
    if model.feature_names is not None:
        for found, expected, name in zip(views, names_of_views(model), input_names(model), strict=False):
            check_same(found, expected, name)
        return model
    if not any(views):
        return model
    for found in views:
        require_features(found)
    pairs = list(zip(views, model.views, strict=True))
    names = (found or map(str, range(view.stop - view.start)) for found, view in pairs)
    indicators = (
        tuple(view.start + j for j in group) for found, view in pairs for group in getattr(found, "indicators", ())
    )
    return replace(model, feature_names=tuple(chain.from_iterable(names)), indicators=tuple(indicators))
