"""Exact moments of people whose rows lie on several machines: `moments`. Needs the extra ``dask`` when it is called.

Problems take Dask collections as they are (``dpgep.pca(dask_array)``): every method that asks for sums over people then
runs on the workers. This is the explicit form for releases, whose moments can be kept and merged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from dpgep.problems.dask_parts import is_spread
from dpgep.problems.distributed_people import Distributed
from dpgep.problems.mergeable_moments import DEFAULT_BITS, Moments
from dpgep.problems.model import Adjacency
from dpgep.problems.moment_problem import distributed_people
from dpgep.problems.moments import MomentModel
from dpgep.problems.parquet_parts import columns_but, parquet_parts, read_parquet

__all__ = ["moments"]


def moments(
    model: MomentModel,
    X: Any,
    other: Any = None,
    *,
    columns: Sequence[str] | None = None,
    client: Any = None,
    bound: float = 1.0,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
    bits: int = DEFAULT_BITS,
) -> Moments:
    """Moments of rows that Dask's workers hold or read: the same bits as `dpgep.Moments` of all rows in one process.

    Each worker sums its parts in integers, the sums are merged in a tree, and nothing but sums of d^2 integers moves.
    A worker that is lost costs its work, not the result: Dask computes its sums again.

    Parameters
    ----------
    model : `PcaModel`, `CcaModel`, `PlsModel`, `FdaModel` or `SirModel`
        What is asked, of how many features.
    X : Dask array of shape (n, d), Dask DataFrame, or list of Parquet paths
        One row per person. Arrays are cut by rows, columns made whole. Paths must mean the same files on all machines.
    other : optional
        Y (cca, pls), labels (fda) or y (sir): a Dask array or Series with the same rows, or the name of a column of X,
        a DataFrame or Parquet (cca, pls: a list of names).
    columns : sequence of str, optional
        Of a DataFrame or of Parquet: those of X. Default: all but ``other``.
    client : distributed.Client, optional
        The cluster. Default: what ``dask.compute`` uses: the client that was made last, or threads of this process.
    bound, adjacency, public_n, bits
        As in `dpgep.Moments`.

    Returns
    -------
    Moments
        Private, as the rows are: pass it to `dpgep.solve`, which pays for a release.

    Raises
    ------
    TypeError, ValueError
        As `dpgep.Moments.update` does; and where X and ``other`` are cut into different parts.
    RuntimeError
        If workers keep dying over one part.
    ImportError
        If a package is missing: ``pip install 'dpgep[dask]'``.

    Examples
    --------
    >>> import dask.array, dpgep.distributed
    >>> X = dask.array.random.default_rng(0).standard_normal((10000, 4), chunks=(1000, 2)) / 4
    >>> sums = dpgep.distributed.moments(dpgep.PcaModel(4, center=True), X)
    >>> sums.n
    10000
    """
    result = Moments(model, bound=bound, adjacency=adjacency, public_n=public_n, bits=bits)
    data = model.data(X, other)
    if _is_paths(X):
        people = _parquet_people(model, X, other, columns, float(bound), client)
    elif is_spread(X):
        people = distributed_people(model, _selected(X, other, columns), float(bound), 0, client)
    else:
        raise TypeError(
            f"X must be a Dask array or DataFrame, or a list of Parquet paths, got {type(data[0]).__name__}: data in "
            "memory or in one source need no cluster, dpgep.Moments(...).update takes them"
        )
    result.update_people(people)
    return result


def _is_paths(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and bool(X) and all(isinstance(path, (str, os.PathLike)) for path in X)


def _selected(X: Any, other: Any, columns: Sequence[str] | None) -> tuple[Any, ...]:
    """X and what belongs to it as collections of their own."""
    names = _names(other)
    if hasattr(X, "chunks"):
        if columns is not None or names:
            raise TypeError("a Dask array has no column names: pass X[:, columns], and a Dask array as other")
        return (X,) if other is None else (X, other)
    if columns is None:
        columns = [name for name in X.columns if name not in names]
    if other is None:
        return (X[list(columns)],)
    return X[list(columns)], X[other] if names else other


def _parquet_people(
    model: MomentModel, paths: Sequence[str], other: Any, columns: Sequence[str] | None, bound: float, client: Any
) -> Distributed:
    names = _names(other)
    if other is not None and not names:
        raise TypeError(f"of Parquet files, other must be the name of a column, or a list of names; got {other!r}")
    keys = [list(columns or columns_but(paths, names)), *([] if other is None else [other])]
    read, to_batch = partial(read_parquet, keys), partial(model.batch, bound)
    return Distributed(parquet_parts(paths), read, to_batch, model.n_features, bound, 0, client=client)


def _names(other: Any) -> list[str]:
    """The columns that ``other`` names; none if it is data."""
    if isinstance(other, str):
        return [other]
    is_names = isinstance(other, (list, tuple)) and bool(other) and all(isinstance(name, str) for name in other)
    return list(other) if is_names else []
