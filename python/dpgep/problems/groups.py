"""Groups of people: classes from labels, slices from a response and public edges."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.problems.dask_parts import is_spread
from dpgep.problems.rows import as_vector, check_not_masked, check_vector

Codes = NDArray[np.intp]


def public_classes(labels: Any, n: int | None, classes: Sequence[Hashable] | None) -> tuple[Hashable, ...]:
    """The set of classes: as given, or the distinct labels, which then count as public."""
    if classes is not None:
        found = tuple(classes)
        if len(set(found)) < len(found):
            raise ValueError(f"classes holds a label twice: {list(found)!r}")
    elif n is None or is_spread(labels):
        raise ValueError(
            "labels that are read from a source need their public classes: pass classes=; finding them would take a "
            "pass over all rows"
        )
    else:
        found = _distinct(_label_array(labels, n))
    if len(found) < 2:
        raise ValueError(f"discriminant analysis needs at least 2 classes, got {len(found)}: {list(found)!r}")
    return found


def class_codes(labels: Any, n: int, classes: tuple[Hashable, ...]) -> Codes:
    """Index of each row's class."""
    return _lookup(_label_array(labels, n), classes)


def slice_edges(slices: Any, y_range: Any, edges: Any) -> NDArray[np.float64]:
    """Interior edges of the slices from public facts: equal widths over ``y_range``, or given outright."""
    if edges is not None:
        if y_range is not None:
            raise ValueError("give either edges or y_range with slices, not both")
        values = np.asarray(edges, dtype=float).ravel()
        if len(values) < 3 or np.isnan(values).any() or not (np.diff(values) > 0).all():
            raise ValueError(f"edges must be at least 3 increasing numbers (2 slices), got {edges!r}")
        return values[1:-1]
    if isinstance(slices, bool) or not isinstance(slices, (int, np.integer)) or slices < 2:
        raise ValueError(f"slices must be a whole number of at least 2, got {slices!r}")
    if y_range is None:
        raise ValueError(
            "slices need a public range: give y_range=(low, high) from what is known about y in general, or edges; "
            "a range or quantiles read off the data would not be private"
        )
    low, high = (float(value) for value in y_range)
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"y_range must be two finite numbers low < high, got {y_range!r}")
    return np.linspace(low, high, int(slices) + 1)[1:-1]


def slice_codes(y: Any, n: int, interior_edges: NDArray[np.float64]) -> Codes:
    """Index of each row's slice; values beyond the outer edges belong to the outer slices."""
    return np.searchsorted(interior_edges, as_vector(y, "y", n), side="right").astype(np.intp)


def _label_array(labels: Any, n: int) -> NDArray[Any]:
    check_not_masked(labels, "labels")
    values = labels if isinstance(labels, np.ndarray) else _one_per_row(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    check_vector(values, n, "labels must hold one label per row of X")
    if _has_missing(values):
        raise ValueError("labels contain NaN: drop those rows, or give the missing class a name of its own")
    return values


def _has_missing(values: NDArray[Any]) -> bool:
    """Whether a label is NaN or NaT: one that does not equal itself would be a class of its own for every person."""
    if values.dtype == object:
        return any(isinstance(label, (float, complex, np.generic)) and label != label for label in values.tolist())
    return bool(values.dtype.kind in "fcmM" and (values != values).any())


def _one_per_row(labels: Any) -> NDArray[Any]:
    """A vector of labels; tuples stay labels, mixed types stay what they are."""
    if hasattr(labels, "__array__"):
        return np.asarray(labels)
    listed = list(labels)
    values = np.empty(len(listed), dtype=object)
    values[:] = listed
    if len({type(label) for label in listed}) == 1 and isinstance(listed[0], (str, int, float, np.generic)):
        return np.asarray(listed)
    return values


def _distinct(values: NDArray[Any]) -> tuple[Hashable, ...]:
    if values.dtype != object:
        return tuple(np.unique(values).tolist())
    try:
        distinct = set(values)
    except TypeError:
        raise TypeError("labels must be hashable (numbers, strings, tuples, ...)") from None
    # not in order of appearance, which would depend on who comes first
    return tuple(sorted(distinct, key=lambda label: (type(label).__name__, str(label))))


def _lookup(values: NDArray[Any], classes: tuple[Hashable, ...]) -> Codes:
    if values.dtype != object:
        codes = _lookup_sorted(values, classes)
        if codes is not None:
            return codes
    index = {label: position for position, label in enumerate(classes)}
    try:
        return np.fromiter((index[label] for label in values.tolist()), dtype=np.intp, count=len(values))
    except KeyError:
        raise _unknown_label(classes) from None
    except TypeError:
        raise TypeError("labels must be hashable (numbers, strings, tuples, ...)") from None


def _lookup_sorted(values: NDArray[Any], classes: tuple[Hashable, ...]) -> Codes | None:
    """The same by binary search, where classes and labels are both whole numbers, floats or text; else None."""
    try:
        known = np.asarray(classes)
    except ValueError:  # tuples of different lengths
        return None
    if known.ndim != 1 or known.dtype.kind != values.dtype.kind or known.dtype.kind not in "iufU":
        return None
    order = np.argsort(known)
    ascending = known[order]
    places = np.searchsorted(ascending, values)
    np.minimum(places, len(known) - 1, out=places)
    if not (ascending[places] == values).all():
        raise _unknown_label(classes)
    return order[places]


def _unknown_label(classes: tuple[Hashable, ...]) -> ValueError:
    return ValueError(f"labels contain a value that is not among the given classes {list(classes)!r}")
