"""Groups of people: classes from labels, slices from a response and public edges.

Which groups there are is public, and a person's group is a function of that person alone. Who belongs to none of them
(a label that is not among the classes, a missing response) counts as a person and contributes nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_count
from dpgep.data.inputs import check_not_masked, check_real
from dpgep.data.rows import NO_GROUP
from dpgep.errors import PrivacyWarning, warn
from dpgep.sources import BOOLEANS, Selection, as_vector_of_values, declared_values
from dpgep.sources.encoding import positions, require_exact_in_floats, require_of_type
from dpgep.sources.kinds import is_dask_collection

Codes = NDArray[np.intp]
Classes = tuple[Hashable, ...]

# A classification whose classes nobody lists has no more than these.
_MOST_FOUND = 100


def public_classes(labels: Any, n: int | None, classes: Sequence[Hashable] | Literal["public"] | None) -> Classes:
    """The set of classes: as given, as the type of the labels declares them, or the distinct labels.

    The last become public by that: a `PrivacyWarning` says so, unless ``classes`` is "public".
    """
    if classes is None:
        declared = labels.declared if isinstance(labels, Selection) else declared_values(_column(labels))
        if declared is not None:
            return _at_least_two(declared)
        found = _found(labels, n)
        if found is BOOLEANS:  # (0, 1) equals it
            return found
        _check_few(found)
        warn(
            PrivacyWarning(
                "fda without classes= publishes every label that occurs, even one person's, in solution.model.classes. "
                'Pass the public set, classes=[...], or classes="public" if these labels are public'
            )
        )
        return _at_least_two(found)
    if isinstance(classes, (str, bytes)):
        if classes != "public":
            raise ValueError(f'classes must be a sequence of labels, or "public", got {classes!r}')
        return _at_least_two(_found(labels, n))
    return _given(classes, labels)


def class_codes(labels: Any, n: int, classes: Classes) -> Codes:
    """Index of each row's class; `NO_GROUP` for labels that are not among them, missing ones included."""
    return positions(_label_array(labels, n), classes)


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
        raise ValueError(
            "slices need a public range: give y_range=(low, high) from general knowledge about y, or edges; "
            "a range or quantiles computed from the data would not be private"
        )
    low, high = (float(value) for value in y_range)
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"y_range must be two finite numbers low < high, got {y_range!r}")
    return np.linspace(low, high, int(slices) + 1)[1:-1]


def slice_codes(y: Any, n: int, interior_edges: NDArray[np.float64]) -> Codes:
    """Index of each row's slice; values beyond the outer edges belong to the outer slices, infinite ones too.

    `NO_GROUP` for NaN.
    """
    check_not_masked(y, "y")
    values = as_vector(as_vector_of_values(y), "y", n)
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
        raise ValueError(
            "labels read from a source need public classes: pass classes=; finding them would take a pass over all rows"
        )
    values = _label_array(labels, n)
    if values.dtype == np.bool_ or all(
        isinstance(label, (bool, np.bool_)) for label in values.tolist()
    ):  # in a list, say
        return BOOLEANS
    if _has_missing(values):
        raise ValueError(
            "labels contain NaN: name the missing class, drop those rows, or pass classes= (people with "
            "another label, or none, are left out)"
        )
    return _distinct(values)


def _check_few(found: Classes) -> None:
    fractions = (isinstance(label, float) and not label.is_integer() for label in found)
    if len(found) > _MOST_FOUND or any(fractions):
        raise ValueError(
            f"labels are fractional or have more than {_MOST_FOUND} distinct values, all of which would be published: "
            "use dpgep.sir for a response; for classes, pass their public set as classes="
        )


def _column(labels: Any) -> Any:
    """Labels, or the one column of a data frame that they are."""
    is_frame = hasattr(labels, "iloc") and getattr(labels, "ndim", 1) == 2 and labels.shape[1] == 1
    return labels[labels.columns[0]] if is_frame else labels


def _label_array(labels: Any, n: int) -> NDArray[Any]:
    check_not_masked(labels, "labels")
    labels = as_vector_of_values(_column(labels))
    values = labels if isinstance(labels, np.ndarray) else _one_per_row(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    check_vector(values, n, "labels must hold one label per row of X")
    return values


def _has_missing(values: NDArray[Any]) -> bool:
    """Whether a label is NaN or NaT: one that does not equal itself would be a class of its own for every person."""
    if values.dtype == object:
        return any(map(_is_missing, values.tolist()))
    return bool(values.dtype.kind in "fcmM" and (values != values).any())


def _is_missing(label: Any) -> bool:
    return type(label).__name__ == "NAType" or (
        isinstance(label, (float, complex, np.generic)) and bool(label != label)
    )


def _one_per_row(labels: Any) -> NDArray[Any]:
    """A vector of labels that stay what they are: an array of one type would make of a label what the others are."""
    if hasattr(labels, "__array__"):
        return np.asarray(labels)
    listed = list(labels)
    values = np.empty(len(listed), dtype=object)
    values[:] = listed
    return values


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
    check_not_masked(values, name)
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    check_vector(array, n, f"{name} must be a vector with one value per row of X")
    check_real(array, name)
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
