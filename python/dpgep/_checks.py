"""Checks of what a caller passes: each raises an error that names the parameter, what it must be, and what it was."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

R = TypeVar("R")

# Most characters of a name in a message.
_LONG_NAME = 30
# What the kernels' integers hold.
_MOST = 2**63 - 1

# Words of scikit-learn, diffprivlib and others.
_BORROWED = {
    "accountant": "budget", "batch_size": "batch_rows", "bounds": "bound", "center_data": "center", "clip": "bound",
    "data_norm": "bound", "eps": "epsilon", "k": "n_components", "n_bins": "slices", "n_classes": "classes",
    "n_jobs": "n_threads", "n_slices": "slices", "norm": "bound", "random_state": "seed", "reg": "regularization",
    "rng": "seed", "scale": "standardize", "shrinkage": "regularization", "solver": "method", "svd_solver": "method",
    "threads": "n_threads", "whiten": "standardize",
}  # fmt: skip
_OF_PROBLEMS = (
    "adjacency", "bound", "center", "classes", "edges", "preprocessing", "public_n", "slices", "standardize", "y_range",
)  # fmt: skip
_OF_RUNS = (
    "accounting", "budget", "delta", "epsilon", "method", "mu", "n_components", "n_threads", "rho", "seed", "share",
)  # fmt: skip


def whole_number(value: Any) -> int | None:
    """The int that ``value`` is, None if it is not one: booleans and floats are not."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def require_count(name: str, value: Any, *, least: int = 1, largest: int | None = None) -> int:
    """``value`` as an int. Raises ValueError unless it is whole and from ``least`` to ``largest`` (None: 2^63 - 1)."""
    number = whole_number(value)
    if number is None or not least <= number <= (_MOST if largest is None else largest):
        limit = f"of at least {least}" if largest is None else f"between {least} and {largest}"
        raise ValueError(f"{name} must be a whole number {limit}, got {value!r}")
    return number


def require_people(name: str, value: Any) -> int:
    """A number of people as an int. Raises ValueError unless it is a positive whole number; 1e6 is one."""
    is_whole = _is_number(value) and not isinstance(value, (bool, np.bool_)) and math.isfinite(value) and value % 1 == 0
    if not is_whole or value < 1:
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


def unchecked(record: R, **parts: Any) -> R:
    """A dataclass with other parts, none of them checked again: `dataclasses.replace` without its ``__init__``."""
    found = object.__new__(type(record))
    vars(found).update(vars(record), **parts)
    return found


def is_real(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fiub"


def check_real(dtype: np.dtype[Any], what: str) -> None:
    if dtype.kind == "c":
        raise TypeError(f"{what} is complex ({dtype}): pass real and imaginary parts as columns")
    if not is_real(dtype):
        found = shown(dtype)
        raise TypeError(f"{what} must hold real numbers, got dtype {found}: convert it, by .astype(float), or omit it")


def check_not_masked(values: Any, what: str) -> None:
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array: fill or drop the masked entries first, e.g. by .filled(0.0)")


def shown(dtype: np.dtype[Any]) -> str:
    """A dtype in a message; of text, without the length of the longest, which is somebody's."""
    return dtype.type.__name__ if dtype.kind in "US" else str(dtype)


# Types of fields that `check_fields` checks.
Bytes: TypeAlias = Annotated[int, lambda name, value: require_count(f"{name} (in bytes)", value)]
Count: TypeAlias = Annotated[int, require_count]
NonNegative: TypeAlias = Annotated[float, require_non_negative]
Positive: TypeAlias = Annotated[float, require_positive]
Share: TypeAlias = Annotated[float, require_share]


def check_fields(record: Any) -> None:
    """Raise an error unless fields of these types, booleans and `Literal` words fit; None fits where it may be."""
    for name, (check, optional) in _field_checks(record.__class__).items():
        value = getattr(record, name)
        if value is not None or not optional:
            check(name, value)


@lru_cache(maxsize=64)
def _field_checks(kind: type) -> dict[str, tuple[Callable[[str, Any], object], bool]]:
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        optional = type(None) in get_args(hint)
        one, *others = [each for each in get_args(hint) if each is not type(None)] if optional else [hint]
        if others:
            continue
        if get_origin(one) is Annotated:
            found[name] = get_args(one)[1], optional
        elif get_origin(one) is Literal:
            found[name] = partial(require_one_of, known=get_args(one)), optional
        elif one is bool:
            found[name] = require_flag, optional
    return found


def _is_number(value: Any) -> bool:
    """Whether the value is one number that a float can hold: NaN, and an array of one entry, are none."""
    if type(value) is float:
        return value == value
    try:
        return not getattr(value, "ndim", 0) and bool(-math.inf <= value <= math.inf) and not math.isnan(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def quoted(name: object) -> str:
    """A name in quotes, for a message: of a long one the beginning and the end."""
    text = repr(name)
    return text if len(text) <= _LONG_NAME else f"{text[: _LONG_NAME // 2]}...{text[3 - _LONG_NAME // 2 :]}"


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """The end of a message that refuses a name: the known one that is close to it, nothing where none is."""
    near = get_close_matches(str(name), [each for each in known if isinstance(each, str)], n=1)
    return f", did you mean {quoted(near[0])}?" if near else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to end the message with that refuses ``name``, where only ``known`` names will do; else nothing."""
    borrowed = _BORROWED.get(name, name)
    for names, text in (
        (list(known), "did you mean {!r}?"),
        (_OF_PROBLEMS, "{0} belongs to the problem, as in dpgep.pca(X, {0}=...)"),
        (_OF_RUNS, "{0} belongs to the run, as in dpgep.solve(problem, {0}=...)"),
    ):
        near = [borrowed] if borrowed in names else get_close_matches(name, names, n=1, cutoff=0.75)
        if near:
            return "; " + text.format(near[0])
    return ""
