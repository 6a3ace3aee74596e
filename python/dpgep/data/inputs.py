"""What users pass as rows: an array in memory, a Dask collection, or columns of a source that is read in batches.

And as groups of people: classes from labels, slices from a response and public edges. Which groups there are is public,
and a person's group is a function of that person alone. Who belongs to none of them (a label that is not among the
classes, a missing response) counts as a person and contributes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import check_not_masked, check_real, require_count, require_people
from dpgep.data.rows import NO_GROUP
from dpgep.errors import PrivacyWarning, warn
from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing
from dpgep.models.row_model import RowModel, input_names, names_of_views
from dpgep.sources import BOOLEANS, Selection, Text, as_selection, as_vector_of_values, declared_values, is_source
from dpgep.sources.batches import Columns, objects
from dpgep.sources.encoding import (
    Categories,
    Encoding,
    declared_categories,
    positions,
    require_exact_in_floats,
    require_of_type,
)
from dpgep.sources.kinds import is_dask_collection, is_dask_frame, is_table
from dpgep.sources.names import Names, check_same, require_features
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
    For the same reason rows that were filtered need it: replacing a person may change how many there are.
    """
    fewest = fewest_rows(adjacency) if fewest is None else fewest
    if not hasattr(values, "__array__") and is_source(values):  # tables are arrays, too, unless they are scanned
        selection = as_selection(values)
        if selection.scan.filtered and adjacency != "add-remove":
            found = "how many rows pass a filter depends on people's values"
            advice = 'use adjacency="add-remove", or, if the choice is public, read from a source of these rows alone'
            raise ValueError(f"{found}, and replace-one adjacency publishes that number: {advice}")
        known = selection.scan.n_rows
        if known is not None and known < fewest:
            raise ValueError(f"{name} must have at least {fewest} rows, but its source has fewer")
        if selection.n_columns is None:
            raise ValueError("rows must be a matrix: select columns by a list of names, as in source[[...]]")
        return View(selection, selection.n_columns, selection.names)
    if not isinstance(values, np.ndarray) and is_dask_collection(values):
        matrix, width, rows = values, _spread_width(values, name), known_rows(values)
    else:
        matrix = as_matrix(values, name)
        rows, width = map(int, matrix.shape)
    if rows is not None and rows < fewest:
        raise ValueError(f"{name} must have at least {fewest} rows, got shape {matrix.shape}")
    return View(matrix, width, column_names(values))


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


def without_rows(frame: Any) -> Source:
    """What is known of the columns: their names, their number as a matrix, or that they are not numeric."""
    return Frame(frame._meta).encode(Encoding(frame_categories(frame)))


def _spread_width(values: Any, name: str) -> int:
    """The width of a Dask array or DataFrame in the place of X, checked as far as it can be without computing."""
    if getattr(values, "ndim", None) is None:
        raise TypeError(f"{name} must be a Dask array or DataFrame, got {type(values).__name__}: convert it first")
    if is_dask_frame(values):
        return without_rows(values).width(None) or 0  # refuses text
    check_matrix(values, name)
    return int(values.shape[1])


def known_rows(values: Any) -> int | None:
    """Number of rows of a Dask collection; None where it would have to be computed."""
    rows = values.shape[0] if hasattr(values, "chunks") else np.nan
    return None if np.isnan(rows) else int(rows)


def as_matrix(values: Any, name: str) -> Any:
    """`values` as a 2-D array of real numbers with at least one column and any number of rows, without copying arrays.

    In tables, categorical columns become indicators; SciPy's sparse matrices become CSR.
    """
    array = values if type(values) is np.ndarray else _as_array(values, name)
    check_matrix(array, name)
    return array


def _as_array(values: Any, name: str) -> Any:
    check_not_masked(values, name)
    if isinstance(values, Columns):
        return values
    if is_table(values):
        values = table_matrix(values)
    if hasattr(values, "tocsr"):
        return values.tocsr()
    refused = "X and Y must be matrices of numbers, one row per person: rows of this list cannot be stacked"
    with replaced(lambda error: ValueError(refused) if isinstance(values, (list, tuple)) else error):
        return np.asarray(values)


def check_matrix(array: Any, name: str) -> None:
    """Raise ValueError or TypeError unless an array, its values never looked at, is a matrix of real numbers."""
    if array.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, one row per person; it has {array.ndim} dimensions")
    check_real(array.dtype, name)
    if array.shape[1] < 1:
        raise ValueError(f"{name} must have at least 1 column, it has none")


def require_width(found: int, name: str, expected: int) -> None:
    """Raise ValueError for another number of columns than a model has."""
    if found != expected:
        raise ValueError(f"{name} must have {expected} columns, it has {found}")


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


def require_row_model(model: Any) -> None:
    """Raise TypeError unless this is a model of rows."""
    if not isinstance(model, RowModel):
        kind = type(model).__name__
        raise TypeError(f"model must be a model of rows, such as dpgep.models.PcaModel(20, True), got {kind}")


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
    """The model with the names of the views' columns (None: numbers). Raises ValueError if the model has others."""
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
    return replace(model, feature_names=tuple(chain.from_iterable(names)), indicators=tuple(indicators), _dates=dates)


# ---- groups ----

Codes = NDArray[np.intp]
Classes = tuple[Hashable, ...]

# A classification whose classes nobody lists has no more than these.
_MOST_FOUND = 100


def public_classes(labels: Any, n: int | None, classes: Sequence[Hashable] | Literal["public"] | None) -> Classes:
    """The set of classes: as given, as the type of the labels declares them, or the distinct labels, which become
    public by that: a `PrivacyWarning` says so, unless ``classes`` is "public".
    """
    if classes is None:
        declared = labels.declared if isinstance(labels, Selection) else declared_values(_column(labels))
        if declared is not None:
            return _at_least_two(declared)
        found = _found(labels, n)
        if found is BOOLEANS:  # (0, 1) equals it
            return found
        fractions = (isinstance(label, float) and not label.is_integer() for label in found)
        if len(found) > _MOST_FOUND or any(fractions):
            what = f"labels are fractional or have more than {_MOST_FOUND} distinct values"
            advice = "use dpgep.sir for a response; for classes, pass their public set as classes="
            raise ValueError(f"{what}, all of which would be published: {advice}")
        what = "fda without classes= publishes every label that occurs, even one person's, in solution.model.classes"
        advice = 'Pass the public set, classes=[...], or classes="public" if these labels are public'
        warn(PrivacyWarning(f"{what}. {advice}"))
        return _at_least_two(found)
    if isinstance(classes, (str, bytes)):
        if classes != "public":
            raise ValueError(f'classes must be a sequence of labels, or "public", got {classes!r}')
        return _at_least_two(_found(labels, n))
    return _given(classes, labels)


def class_codes(labels: Any, n: int, classes: Classes) -> Codes:
    """Index of each row's class; `NO_GROUP` for labels that are not among them, missing ones included."""
    values = _label_vector(labels, n)
    if isinstance(values, Text):
        return values.mapped(lambda words: positions(words, classes))
    return positions(values, classes)


def slice_edges(slices: Any, y_range: Any, edges: Any) -> NDArray[np.float64]:
    """Interior edges of the slices from public facts: equal widths over ``y_range``, or given outright."""
    if edges is not None:
        if y_range is not None:
            raise ValueError("give either edges or y_range with slices, not both")
        values = np.asarray(edges, dtype=float).ravel()
        if len(values) < 3 or np.isnan(values).any() or not (np.diff(values) > 0).all():
            raise ValueError(f"edges must be at least 3 increasing numbers (2 slices), got {edges!r}")
        return values[1:-1]
    require_count("slices", slices, least=2)
    if y_range is None:
        what = "give y_range=(low, high) from general knowledge about y, or edges"
        raise ValueError(f"slices need a public range: {what}; quantiles computed from the data would not be private")
    low, high = (float(value) for value in y_range)
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"y_range must be two finite numbers low < high, got {y_range!r}")
    return np.linspace(low, high, int(slices) + 1)[1:-1]


def slice_codes(y: Any, n: int, interior_edges: NDArray[np.float64]) -> Codes:
    """Index of each row's slice, the outer ones for values beyond the outer edges; `NO_GROUP` for NaN."""
    values = as_vector(y, "y", n)
    codes = np.searchsorted(interior_edges, values, side="right").astype(np.intp)
    codes[np.isnan(values)] = NO_GROUP
    return codes


def _given(classes: Sequence[Hashable], labels: Any) -> Classes:
    """The classes that were given, checked against each other and the type of the labels, not their values."""
    given = tuple(classes)
    if any(_is_missing(label) for label in given):
        raise ValueError("classes contain NaN, which equals no label: people without a label are left out anyway")
    if len(set(given)) < len(given):
        raise ValueError(f"classes contains a label twice: {list(given)!r}")
    if len(given) < 2:
        raise ValueError(f"discriminant analysis needs at least 2 classes, got {len(given)}: {list(given)!r}")
    require_exact_in_floats("classes", given)
    if isinstance(labels, Selection):
        require_of_type(labels.key, labels.scan.source.types.get(labels.key), given)  # type: ignore[arg-type]
    dtype = getattr(labels, "dtype", None)
    if isinstance(dtype, np.dtype) and not any(_may_be(label, dtype.kind) for label in given):
        raise TypeError(f"labels are of type {dtype.type.__name__}, so none is among the classes {list(given)!r}")
    return given


def _may_be(label: Hashable, kind: str) -> bool:
    """Whether an array of this kind can hold a label; of dates and objects, whatever it is."""
    if kind in "iufb":
        return not isinstance(label, (str, bytes))
    return isinstance(label, bytes) if kind == "S" else kind not in "UT" or isinstance(label, str)


def _at_least_two(classes: Classes) -> Classes:
    if len(classes) < 2:
        raise ValueError(f"discriminant analysis needs at least 2 classes, got {len(classes)}")
    require_exact_in_floats("classes", classes)
    return classes


def _found(labels: Any, n: int | None) -> Classes:
    """The distinct labels, which then count as public."""
    if n is None or is_dask_collection(labels) or isinstance(labels, Selection):
        raise ValueError("labels read from a source need public classes: pass classes=; to find them takes a pass")
    values = np.asarray(_label_vector(labels, n))
    if values.dtype == np.bool_ or all(isinstance(label, (bool, np.bool_)) for label in values.tolist()):
        return BOOLEANS
    if _has_missing(values):
        what = "name the missing class, drop those rows, or pass classes= (people with another label are left out)"
        raise ValueError(f"labels contain NaN: {what}")
    return _distinct(values)


def _column(labels: Any) -> Any:
    """Labels, or the one column of a data frame that they are."""
    is_frame = hasattr(labels, "iloc") and getattr(labels, "ndim", 1) == 2 and labels.shape[1] == 1
    return labels[labels.columns[0]] if is_frame else labels


def _label_vector(labels: Any, n: int) -> NDArray[Any] | Text:
    # a list becomes a vector of what is in it: NumPy would make of a label what the others are
    demand = "labels must hold one label per row of X"
    found: NDArray[Any] | Text = vector_of(_column(labels), "labels", n, demand, lambda listed: objects(list(listed)))
    return found


def _has_missing(values: NDArray[Any]) -> bool:
    """Whether a label is NaN or NaT: one that does not equal itself would be a class of its own for every person."""
    if values.dtype == object:
        return any(map(_is_missing, values.tolist()))
    return bool(values.dtype.kind in "fcmM" and (values != values).any())


def _is_missing(label: Any) -> bool:
    is_number = isinstance(label, (float, complex, np.generic))
    return type(label).__name__ == "NAType" or (is_number and bool(label != label))


def _distinct(values: NDArray[Any]) -> Classes:
    if values.dtype != object:
        found = np.unique(values)
        return tuple(found) if values.dtype.kind in "mM" else tuple(found.tolist())  # a list would hold plain numbers
    try:
        distinct = set(values)
    except TypeError:
        raise TypeError("labels must be hashable (numbers, strings, tuples, ...)") from None
    # not in order of appearance, which would depend on who comes first
    if len({type(label) for label in distinct}) == 1 and isinstance(next(iter(distinct)), (str, int, float)):
        return tuple(sorted(distinct))
    return tuple(sorted(distinct, key=lambda label: (type(label).__name__, str(label))))


def as_vector(values: Any, name: str, n: int) -> NDArray[np.float64]:
    """`values` as a new float64 vector of length n."""
    array = np.asarray(vector_of(values, name, n, f"{name} must be a vector with one value per row of X"))
    check_real(array.dtype, name)
    with np.errstate(over="ignore"):  # a longdouble beyond float64
        return array.astype(np.float64)


def vector_of(values: Any, name: str, n: int, demand: str, of_list: Callable[[Any], NDArray[Any]] = np.asarray) -> Any:
    """A vector of n entries, or a matrix of one column, as a vector; ValueError, without n, a secret, for others."""
    check_not_masked(values, name)
    array = as_vector_of_values(values)
    if not isinstance(array, Text):
        array = np.asarray(array) if hasattr(array, "__array__") else of_list(array)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        # of a row in place of a column, the number of columns is n
        columns = f", {array.shape[1]} columns" if array.ndim == 2 and len(array) == n else ""
        raise ValueError(f"{demand}; got {array.ndim} dimensions{columns}")
    if len(array) != n:
        raise ValueError(f"{demand}; it has more entries than there are rows, or fewer")
    return array
