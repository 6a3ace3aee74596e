"""What users pass as rows: an array in memory, a Dask collection, or columns of a source that is read in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing
from dpgep.sources import Scan, Selection, as_selection, declared_values, is_source
from dpgep.sources.batches import Columns, shown
from dpgep.sources.encoding import Categories, Encoding, declared_categories
from dpgep.sources.kinds import is_dask_collection, is_dask_frame, is_table
from dpgep.sources.names import Names, as_text
from dpgep.sources.source import Source, replaced
from dpgep.sources.tables import Frame, table_matrix, table_names


def is_elsewhere(values: Any) -> bool:
    """Whether rows are read from a source, or lie on other machines."""
    if hasattr(values, "__array__"):  # tables are arrays, too, unless they are scanned
        return not isinstance(values, np.ndarray) and is_dask_collection(values)
    return is_source(values) or is_dask_collection(values)


def opened(values: Any, name: str, adjacency: Any, fewest: int | None = None) -> tuple[Any, Names]:
    """A matrix in memory or on Dask's workers, or a `Selection` (of scans, paths, iterators: all columns); and names.

    Under add-remove any number of rows passes, even none: an error would tell apart data sets that differ by a person.
    For the same reason rows that were filtered need it: replacing a person may change how many there are. ``fewest``
    rows are required, 2 by default under replace-one.
    """
    fewest = fewest_rows(adjacency) if fewest is None else fewest
    if not hasattr(values, "__array__") and is_source(values):  # tables are arrays, too, unless they are scanned
        selection = as_selection(values)
        require_number_protected(selection.scan, adjacency)
        known = selection.scan.n_rows
        if known is not None and known < fewest:
            raise ValueError(f"{name} must have at least {fewest} rows, but its source has fewer")
        return selection, selection.names
    if not isinstance(values, np.ndarray) and is_dask_collection(values):
        matrix, rows = spread_matrix(values, name), known_rows(values)
    else:
        matrix = as_matrix(values, name)
        rows = int(matrix.shape[0])
    if rows is not None and rows < fewest:
        raise ValueError(f"{name} must have at least {fewest} rows, got shape {matrix.shape}")
    return matrix, column_names(values)


def require_number_protected(people: Scan, adjacency: Any) -> None:
    """Raise ValueError for rows chosen by a filter under an adjacency that publishes how many there are."""
    if people.filtered and adjacency != "add-remove":
        raise ValueError(
            "how many rows pass a filter depends on people's values, and replace-one adjacency publishes that number: "
            'use adjacency="add-remove", or, if the choice is public, read from a source of these rows alone'
        )


def column_names(values: Any) -> Names:
    """Names of the columns of a table in memory or on Dask's workers; None for all else."""
    if isinstance(values, np.ndarray):
        return None
    if is_table(values):
        return table_names(values)
    return without_rows(values).names(None) if is_dask_frame(values) else None


def fewest_rows(adjacency: Any) -> int:
    """How many rows data must have."""
    return 0 if adjacency == "add-remove" else 2


def width(view: Any) -> int:
    """Number of columns."""
    if isinstance(view, Selection):
        if view.n_columns is None:
            raise ValueError("rows must be a matrix: select columns by a list of names, as in source[[...]]")
        return view.n_columns
    if not isinstance(view, np.ndarray) and is_dask_frame(view):
        return without_rows(view).width(None) or 0
    return int(view.shape[1])


def n_rows(view: Any) -> int | None:
    """Number of rows; None for a source, and for a Dask collection whose chunks have not been counted."""
    if is_dask_collection(view):
        return known_rows(view)
    return None if isinstance(view, Selection) else int(view.shape[0])


def frame_categories(frame: Any) -> Categories:
    """Categorical columns, and the categories that are known of each: () for none."""
    types = frame.dtypes.items()
    return {name: declared_values(frame[name]) or () for name, kind in types if declared_categories(kind) is not None}


def frame_columns(frame: Any) -> tuple[Names, Categories]:
    """Names of the columns, and their categories."""
    return as_text(frame.columns), frame_categories(frame)


def without_rows(frame: Any) -> Source:
    """What is known of the columns: their names, their number as a matrix, or that they are not numeric."""
    return Frame(frame._meta).encode(Encoding(frame_categories(frame)))


def spread_matrix(values: Any, name: str) -> Any:
    """A Dask array or DataFrame in the place of X: checked as far as it can be without computing."""
    if getattr(values, "ndim", None) is None:
        raise TypeError(f"{name} must be a Dask array or DataFrame, got {type(values).__name__}: convert it first")
    if is_dask_frame(values):
        without_rows(values).width(None)  # refuses text
    else:
        check_matrix(values, name)
    return values


def known_rows(values: Any) -> int | None:
    """Number of rows of a Dask collection; None where it would have to be computed."""
    rows = values.shape[0] if hasattr(values, "chunks") else np.nan
    return None if np.isnan(rows) else int(rows)


def as_matrix(values: Any, name: str) -> Any:
    """`values` as a 2-D array of real numbers with at least one column and any number of rows, without copying arrays.

    Integers and booleans pass (converted block by block); complex numbers, text, objects and masked matrices do not,
    and say what to do instead; in tables, categorical columns become indicators. SciPy's sparse matrices become CSR;
    blocks of their rows are filled in, never the whole.
    """
    check_not_masked(values, name)
    array = np.asarray(values) if isinstance(values, np.ndarray) else _as_array(values)
    check_matrix(array, name)
    return array


def _as_array(values: Any) -> Any:
    if isinstance(values, Columns):
        return values
    if is_table(values):
        values = table_matrix(values)
    if hasattr(values, "tocsr"):
        return values.tocsr()
    with replaced(lambda error: _ragged() if isinstance(values, (list, tuple)) else error):
        return np.asarray(values)


def _ragged() -> ValueError:
    return ValueError("X and Y must be matrices of numbers, one row per person: rows of this list cannot be stacked")


def check_matrix(array: Any, name: str) -> None:
    """Raise ValueError or TypeError unless an array, its values never looked at, is a matrix of real numbers."""
    if array.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, one row per person; it has {array.ndim} dimensions")
    _check_real(array, name)
    if array.shape[1] < 1:
        raise ValueError(f"{name} must have at least 1 column, it has none")


def as_view(values: Any, name: str, width: int) -> Any:
    """`values` as a matrix of ``width`` columns."""
    array = as_matrix(values, name)
    require_width(array.shape[1], name, width)
    return array


def require_width(found: int, name: str, expected: int) -> None:
    """Raise ValueError for another number of columns than a model has."""
    if found != expected:
        raise ValueError(f"{name} must have {expected} columns, it has {found}")


def as_vector(values: Any, name: str, n: int) -> NDArray[np.float64]:
    """`values` as a new float64 vector of length n."""
    check_not_masked(values, name)
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    check_vector(array, n, f"{name} must be a vector with one value per row of X")
    _check_real(array, name)
    with np.errstate(over="ignore"):  # a longdouble beyond float64
        return array.astype(np.float64)


def check_vector(array: NDArray[Any], n: int, demand: str) -> None:
    """Raise ValueError unless an array is a vector of n entries.

    Messages do not say how many rows there are, which may be secret.
    """
    if array.ndim != 1:
        columns = f", {array.shape[1]} columns" if array.ndim == 2 else ""
        raise ValueError(f"{demand}; got {array.ndim} dimensions{columns}")
    if len(array) != n:
        raise ValueError(f"{demand}; it has more entries than there are rows, or fewer")


def check_not_masked(values: Any, name: str) -> None:
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: fill or drop the masked entries first, e.g. {name}.filled(0.0)")


def clipping_of(bound: Any, preprocessing: Any = None) -> float | AutoPreprocessing | Preprocessing:
    """What rows are clipped to: a public number, a bound to be bought from the budget, or that of a public map."""
    if isinstance(bound, (AutoPreprocessing, Preprocessing)):
        raise TypeError(f'bound must be a number or "auto": pass {type(bound).__name__}(...) as preprocessing=')
    is_auto = isinstance(bound, str) and bound == "auto"
    if isinstance(bound, str) and not is_auto:
        raise TypeError(f'bound must be a number or "auto", got {bound!r}')
    if preprocessing is None:
        return AutoPreprocessing() if is_auto else check_bound(bound)
    if not isinstance(preprocessing, (AutoPreprocessing, Preprocessing)):
        kinds = "a dpgep.AutoPreprocessing or a dpgep.Preprocessing"
        raise TypeError(f"preprocessing must be {kinds}, got {preprocessing!r}")
    if not is_auto:
        raise ValueError(f"preprocessing has a bound of its own: leave out bound, got {bound!r}")
    return preprocessing


def check_bound(bound: Any) -> float:
    """The public bound on row norms as a float, whose square and inverse are finite."""
    try:
        value = float(bound)
    except (TypeError, ValueError):
        raise TypeError(f"bound must be a number, got {bound!r}") from None
    if not 1e-30 <= value <= 1e30:  # eighth powers of it are computed
        raise ValueError(f"bound must be a positive finite number (between 1e-30 and 1e30), got {bound!r}")
    return value


def check_same_rows(x: NDArray[Any], y: NDArray[Any]) -> None:
    if x.shape[0] != y.shape[0]:
        raise ValueError("X and Y must have the same number of rows: a row of each describes the same person")


def _check_real(array: Any, name: str) -> None:
    if array.dtype.kind == "c":
        raise TypeError(f"{name} is complex ({array.dtype}): pass real and imaginary parts as columns")
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must hold real numbers, got dtype {shown(array.dtype)}: convert it with .astype(float)"
        )
