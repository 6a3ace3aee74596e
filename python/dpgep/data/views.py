"""What users pass as rows: an array in memory, a Dask collection, or columns of a source that is read in batches."""

from __future__ import annotations

from typing import Any

from dpgep.data.dask_parts import is_dask_collection, known_rows, spread_matrix
from dpgep.data.rows import as_matrix
from dpgep.sources import Selection, as_selection, is_source


def opened(values: Any, name: str, adjacency: Any) -> Any:
    """A matrix in memory or on Dask's workers, or a `Selection`: of scans, paths and iterators, all columns.

    Under add-remove any number of rows passes, even none: an error would tell apart data sets that differ by a person.
    """
    fewest = fewest_rows(adjacency)
    if is_source(values) and not hasattr(values, "__array__"):  # tables are arrays, too, unless they are scanned
        selection = as_selection(values)
        known = selection.scan.n_rows
        if known is not None and known < fewest:
            raise ValueError(f"{name} must have at least {fewest} rows, and its source has fewer")
        return selection
    matrix = spread_matrix(values, name) if is_dask_collection(values) else as_matrix(values, name)
    rows = n_rows(matrix)
    if rows is not None and rows < fewest:
        raise ValueError(f"{name} must have at least {fewest} rows, got shape {matrix.shape}")
    return matrix


def fewest_rows(adjacency: Any) -> int:
    """How many rows data must have."""
    return 0 if adjacency == "add-remove" else 2


def width(view: Any) -> int:
    """Number of columns."""
    if isinstance(view, Selection):
        if view.n_columns is None:
            raise ValueError("rows must be a matrix: select columns by a list of names, as in source[[...]]")
        return view.n_columns
    return int(view.shape[1])


def n_rows(view: Any) -> int | None:
    """Number of rows; None for a source, and for a Dask collection whose chunks have not been counted."""
    if is_dask_collection(view):
        return known_rows(view)
    return None if isinstance(view, Selection) else int(view.shape[0])
