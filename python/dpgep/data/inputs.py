"""What users pass as rows: an array in memory, a Dask collection, or columns of a source that is read in batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpgep._checks import require_people
from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing
from dpgep.models.row_model import RowModel, input_names, names_of_views
from dpgep.sources import Scan, Selection, as_selection, declared_values, is_source
from dpgep.sources.batches import Columns, shown
from dpgep.sources.encoding import Categories, Encoding, declared_categories
from dpgep.sources.kinds import is_dask_collection, is_dask_frame, is_table
from dpgep.sources.names import Names, as_text, check_same, require_features
from dpgep.sources.source import Source, replaced
from dpgep.sources.tables import Frame, table_matrix, table_names

M = TypeVar("M", bound=RowModel)

# What bound="auto" alone asks for.
_DEFAULT = AutoPreprocessing()


class View(NamedTuple):
    """One view: a matrix in memory or on Dask's workers, or a `Selection`; and the names of its columns, if any."""

    rows: Any
    width: int
    names: Names


def opened(values: Any, name: str, adjacency: Any, fewest: int | None = None) -> View:
    """What a user passes as rows, checked; of scans, paths and iterators all columns.

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
        if selection.n_columns is None:
            raise ValueError("rows must be a matrix: select columns by a list of names, as in source[[...]]")
        return View(selection, selection.n_columns, selection.names)
    if not isinstance(values, np.ndarray) and is_dask_collection(values):
        matrix, width, rows = *_spread_matrix(values, name), known_rows(values)
    else:
        matrix = as_matrix(values, name)
        rows, width = map(int, matrix.shape)
    if rows is not None and rows < fewest:
        raise ValueError(f"{name} must have at least {fewest} rows, got shape {matrix.shape}")
    return View(matrix, width, column_names(values))


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


def _spread_matrix(values: Any, name: str) -> tuple[Any, int]:
    """A Dask array or DataFrame in the place of X, checked as far as it can be without computing; its width."""
    if getattr(values, "ndim", None) is None:
        raise TypeError(f"{name} must be a Dask array or DataFrame, got {type(values).__name__}: convert it first")
    if is_dask_frame(values):
        return values, without_rows(values).width(None) or 0  # refuses text
    check_matrix(values, name)
    return values, int(values.shape[1])


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
    check_real(array, name)
    if array.shape[1] < 1:
        raise ValueError(f"{name} must have at least 1 column, it has none")


def require_width(found: int, name: str, expected: int) -> None:
    """Raise ValueError for another number of columns than a model has."""
    if found != expected:
        raise ValueError(f"{name} must have {expected} columns, it has {found}")


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
        return _DEFAULT if is_auto else check_bound(bound)
    if not isinstance(preprocessing, (AutoPreprocessing, Preprocessing)):
        kinds = "a dpgep.AutoPreprocessing or a dpgep.Preprocessing"
        raise TypeError(f"preprocessing must be {kinds}, got {preprocessing!r}")
    if not is_auto:
        raise ValueError(f"preprocessing has a bound of its own: leave out bound, got {bound!r}")
    return preprocessing


def check_adjacency(adjacency: Any, n: int | None, public_n: Any) -> int | None:
    """The public number of people: under replace-one n (None: not counted yet), under add-remove ``public_n``."""
    if adjacency == "replace-one":
        if public_n is not None:
            raise ValueError('public_n requires adjacency="add-remove": under "replace-one" n itself is public')
        return n
    if adjacency != "add-remove":
        raise ValueError(f'adjacency must be "replace-one" or "add-remove", got {adjacency!r}')
    return None if public_n is None else require_people("public_n", public_n)


def check_bound(bound: Any) -> float:
    """The public bound on row norms as a float, whose square and inverse are finite."""
    try:
        value = float(bound)
    except (TypeError, ValueError):
        raise TypeError(f"bound must be a number, got {bound!r}") from None
    if not 1e-30 <= value <= 1e30:  # eighth powers of it are computed
        raise ValueError(f"bound must be a positive finite number (between 1e-30 and 1e30), got {bound!r}")
    return value


def check_real(array: Any, name: str) -> None:
    if array.dtype.kind == "c":
        raise TypeError(f"{name} is complex ({array.dtype}): pass real and imaginary parts as columns")
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must hold real numbers, got dtype {shown(array.dtype)}: convert it with .astype(float)"
        )


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


def opened_views(model: RowModel, data: tuple[Any, ...], adjacency: Any, fewest: int | None = None) -> list[View]:
    """The views in the data of `inputs_of`, `opened`. Raises ValueError for one of another width than the model's."""
    found = []
    for values, name, columns in zip(data, input_names(model), model.views, strict=False):
        found.append(opened(values, name, adjacency, fewest))
        require_width(found[-1].width, name, columns.stop - columns.start)
    return found


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
    dates = tuple(view.start + j for found, view in pairs for j in getattr(found, "dates", ()))
    indicators = (
        tuple(view.start + j for j in group) for found, view in pairs for group in getattr(found, "indicators", ())
    )
    return replace(model, feature_names=tuple(chain.from_iterable(names)), indicators=tuple(indicators), dates=dates)
