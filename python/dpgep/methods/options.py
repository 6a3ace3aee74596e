"""Checks of what a caller passes to a method, before data is read or budget reserved."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np


def whole_number(value: Any) -> int | None:
    """The int that ``value`` is, None if it is not one: booleans and floats are not."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def require_count(name: str, value: Any, *, largest: int | None = None) -> None:
    """Raise ValueError unless ``value`` is a whole number from 1 to ``largest``."""
    number = whole_number(value)
    if number is None or number < 1 or (largest is not None and number > largest):
        limit = "of at least 1" if largest is None else f"between 1 and {largest}"
        raise ValueError(f"{name} must be a whole number {limit}, got {value!r}")


def require_sparsity(sparsity: Any, model: Any, n_components: int, *, separate: bool = False) -> None:
    """Raise ValueError unless ``sparsity`` features hold K components, or each its own: in every view as many."""
    require_count("sparsity", sparsity, largest=model.n_features)
    n_views, k = len(model.views_of(np.empty((1, model.n_features)))), 1 if separate else n_components
    if sparsity < k * n_views:
        what = f"{k} component{'s' * (k > 1)}{' of two views' * (n_views > 1)}"
        raise ValueError(f"{what} need{'s' * (k == 1)} a sparsity of at least {k * n_views}, got {sparsity}")


def require_non_negative(name: str, value: Any) -> None:
    if not _between(value, 0.0) or value == math.inf:
        raise ValueError(f"{name} must be a non-negative finite number, got {value!r}")


def require_positive(name: str, value: Any) -> None:
    if not _between(value, 0.0) or value in (0, math.inf):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def require_share(name: str, value: Any) -> None:
    if not _between(value, 0.0) or value == 0 or value >= 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")


def require_one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if not (isinstance(value, str) and value in known):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def require_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def _between(value: Any, low: float) -> bool:
    try:
        return bool(low <= value <= math.inf)
    except (TypeError, ValueError):
        return False
