"""Exact moments of people whose rows lie on several machines: `moments`. Needs the extra ``dask`` when it is called.

Problems take Dask collections as they are (``dpgep.pca(dask_array)``): every method that asks for sums over people then
runs on the workers. This is the explicit form for releases, whose moments can be kept and merged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from dpgep.data.dask_dataset import DaskDataset, columns_but, parquet_parts, read_parquet
from dpgep.data.dataset import Dataset
from dpgep.data.inputs import batch_of, inputs_of
from dpgep.data.integer_moments import DEFAULT_BITS
from dpgep.data.views import column_names, without_rows
from dpgep.models.model import Adjacency
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import RowModel
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.moment_problem import dask_dataset
from dpgep.sources.kinds import is_dask_collection, is_dask_frame
from dpgep.sources.names import Names, as_text

__all__ = ["moments"]


def moments(
    model: RowModel,
    X: Any,
    y: Any = None,
    *,
    columns: Sequence[str] | None = None,
    client: Any = None,
    bound: float | None = None,
    preprocessing: Preprocessing | None = None,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
    bits: int = DEFAULT_BITS,
) -> Moments:
    """Moments of rows that Dask's workers hold or read: the same bits as `dpgep.Moments` of all rows in one process.

    Each worker sums its parts in integers, the sums are merged in a tree, and nothing but sums of d^2 integers moves.
    A worker that is lost costs its work, not the result: Dask computes its sums again.

    Parameters
    ----------
    model : `PcaModel`, `StandardizedPcaModel`, `CcaModel`, `PlsModel`, `FdaModel`, `SirModel` or `TableModel`
        What is asked, of how many features.
    X : Dask array of shape (n, d), Dask DataFrame, or list of Parquet paths
        One row per person. Arrays are cut by rows, columns made whole. Paths must mean the same files on all machines.
    y : optional
        Y (cca, pls), labels (fda) or y (sir): a Dask array or Series with the same rows, or the name of a column of X,
        a DataFrame or Parquet (cca, pls: a list of names).
    columns : sequence of str, optional
        Of a DataFrame or of Parquet: those of X. Default: all but ``y``.
    client : distributed.Client, optional
        The cluster. Default: what ``dask.compute`` uses: the client that was made last, or threads of this process.
    bound, preprocessing, adjacency, public_n, bits
        As in `dpgep.Moments`.

    Returns
    -------
    Moments
        Private, as the rows are: pass it to `dpgep.solve`, which pays for a release.

    Raises
    ------
    TypeError, ValueError
        As `dpgep.Moments.update` does; and where X and ``y`` are cut into different parts.
    RuntimeError
        If workers keep dying over one part.
    ImportError
        If a package is missing: ``pip install 'dpgep[dask]'``.

    Examples
    --------
    >>> import dask.array, dpgep.distributed
    >>> X = dask.array.random.default_rng(0).standard_normal((10000, 4), chunks=(1000, 2)) / 4
    >>> sums = dpgep.distributed.moments(dpgep.models.PcaModel(4, center=True), X, bound=2.0)
    >>> sums.n
    10000
    """
    facts: dict[str, Any] = {"adjacency": adjacency, "public_n": public_n, "bits": bits}
    result = Moments(model, bound=bound, preprocessing=preprocessing, **facts)
    data = inputs_of(model, X, y)
    radius = result.bound
    dataset: Dataset
    if _is_paths(X):
        dataset, names = _parquet_dataset(model, X, y, columns, radius, client)
    elif is_dask_collection(X):
        selected, n_views = _selected(X, y, columns), len(model.views)
        names = [column_names(view) for view in selected[:n_views]]
        for view in filter(is_dask_frame, selected[:n_views]):
            without_rows(view).width(None)  # refuses text
        dataset = dask_dataset(model, selected, radius, 0, client)
    else:
        raise TypeError(
            f"X must be a Dask array or DataFrame, or a list of Parquet paths, got {type(data[0]).__name__}: data in "
            "memory or in one source need no cluster, dpgep.Moments(...).update takes them"
        )
    result.update_dataset(dataset, *names)
    return result


def _is_paths(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and bool(X) and all(isinstance(path, (str, os.PathLike)) for path in X)


def _selected(X: Any, y: Any, columns: Sequence[str] | None) -> tuple[Any, ...]:
    """X and what belongs to it as collections of their own."""
    names = names_of(y)
    if hasattr(X, "chunks"):
        if columns is not None or names:
            raise TypeError("a Dask array has no column names: pass X[:, columns], and a Dask array as y")
        return (X,) if y is None else (X, y)
    if columns is None:
        columns = [name for name in X.columns if name not in names]
    if y is None:
        return (X[list(columns)],)
    return X[list(columns)], X[y] if names else y


def _parquet_dataset(
    model: RowModel, paths: Sequence[str], y: Any, columns: Sequence[str] | None, bound: float, client: Any
) -> tuple[DaskDataset, list[Names]]:
    names = names_of(y)
    if y is not None and not names:
        raise TypeError(f"of Parquet files, y must be the name of a column, or a list of names; got {y!r}")
    keys: list[Any] = [list(columns or columns_but(paths, names)), *([] if y is None else [y])]
    read, to_batch = partial(read_parquet, keys), partial(batch_of, model, bound)
    dataset = DaskDataset(parquet_parts(paths), read, to_batch, model.n_features, bound, 0, client=client)
    return dataset, [as_text(key) for key in keys[: len(model.views)]]


def names_of(y: Any) -> list[str]:
    """The columns that ``y`` names; none if it is data."""
    if isinstance(y, str):
        return [y]
    is_names = isinstance(y, (list, tuple)) and bool(y) and all(isinstance(name, str) for name in y)
    return list(y) if is_names else []
