"""Checks of what a caller passes: each raises an error that names the parameter, what it must be, and what it was."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any


def whole_number(value: Any) -> int | None:
    """The int that ``value`` is, None if it is not one: booleans and floats are not."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def require_count(name: str, value: Any, *, least: int = 1, largest: int | None = None) -> int:
    """``value`` as an int. Raises ValueError unless it is a whole number from ``least`` to ``largest``."""
    number = whole_number(value)
    if number is None or number < least or (largest is not None and number > largest):
        limit = f"of at least {least}" if largest is None else f"between {least} and {largest}"
        raise ValueError(f"{name} must be a whole number {limit}, got {value!r}")
    return number


def require_people(name: str, value: Any) -> int:
    """A number of people as an int. Raises ValueError unless it is a positive whole number; 1e6 is one."""
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    return int(value)


def require_non_negative(name: str, value: Any) -> None:
    if not _is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a non-negative finite number, got {value!r}")


def require_positive(name: str, value: Any) -> None:
    if not _is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def require_share(name: str, value: Any) -> None:
    if not _is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")


def require_one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if not (isinstance(value, str) and value in known):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def require_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def require_each(require: Callable[[str, Any], object], options: object, *names: str) -> None:
    """The same check of several options; None is a default."""
    for name in names:
        if getattr(options, name) is not None:
            require(name, getattr(options, name))


def _is_number(value: Any) -> bool:
    """Whether the value compares with numbers as one does: NaN does not."""
    try:
        return bool(-math.inf <= value <= math.inf)
    except (TypeError, ValueError):
        return False
