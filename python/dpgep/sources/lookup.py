"""Positions of values in a declared list: of labels among classes, of a column's values among its categories."""

from __future__ import annotations

import datetime
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.sources.kinds import Declared

# The position of a value that is not in the list.
NOT_LISTED = -1


def positions(values: NDArray[Any], declared: Declared) -> NDArray[np.intp]:
    """Position of each value in the list; `NOT_LISTED` for what is not there, missing values included."""
    if values.dtype != object:
        found = _by_search(values, declared)
        if found is not None:
            return found
    index = {value: position for position, value in enumerate(declared)}
    listed = values.tolist()
    try:
        return np.fromiter((index.get(value, NOT_LISTED) for value in listed), dtype=np.intp, count=len(listed))
    except TypeError:  # a value that cannot be hashed is not in the list
        return np.fromiter((_position(value, index) for value in listed), dtype=np.intp, count=len(listed))


def _position(value: Any, index: dict[Hashable, int]) -> int:
    try:
        return index.get(value, NOT_LISTED)
    except TypeError:
        return NOT_LISTED


def _by_search(values: NDArray[Any], declared: Declared) -> NDArray[np.intp] | None:
    """The same by binary search, where values and list are whole numbers, floats, text or dates; else None."""
    comparable = _comparable(values, declared)
    if comparable is None:
        return None
    known, values = comparable
    order = np.argsort(known)
    ascending = known[order]
    places = np.searchsorted(ascending, values)
    np.minimum(places, len(known) - 1, out=places)
    return np.where(ascending[places] == values, order[places], NOT_LISTED)


def _comparable(values: NDArray[Any], declared: Declared) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The list and the values as arrays of one kind, without loss; None where they are not of one."""
    kind = values.dtype.kind
    if kind == "U" and all(isinstance(value, str) for value in declared):
        return np.asarray(declared), values
    if kind in "iuf" and not any(isinstance(value, (bool, np.bool_)) for value in declared):
        numbers = (float, np.floating) if kind == "f" else (int, np.integer)
        known = np.asarray(declared) if all(isinstance(value, numbers) for value in declared) else None
        return None if known is None or known.dtype.kind != kind else (known, values)
    if kind in "mM":
        types = (np.datetime64, datetime.date) if kind == "M" else (np.timedelta64, datetime.timedelta)
        if not all(isinstance(value, types) for value in declared):
            return None
        known = np.array(declared, dtype=f"{kind}8")
        finest = np.result_type(known, values)
        return known.astype(finest), values.astype(finest)
    return None
