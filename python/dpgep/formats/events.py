"""Events of `dp_accounting` as JSON and back: those that the ledger of a solution holds, and no others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

_MOST_COUNT = 1 << 53


def is_event(value: Any) -> bool:
    """Whether a value is one of these events."""
    return type(value).__module__.startswith("dp_accounting") and type(value).__name__ in _PARAMETERS


def encoded(event: Any) -> dict[str, Any]:
    """An event as JSON holds it: the name of its class, and its parameters."""
    name = type(event).__name__
    return {"kind": name, **{key: _plain(getattr(event, key)) for key in _PARAMETERS[name]}}


def decoded(document: Any, where: str) -> Any:
    """The event of `encoded`. Raises ValueError for anything else."""
    import dp_accounting

    name = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(name, str) or name not in _PARAMETERS:
        raise ValueError(f"{where} must be an event, one of {', '.join(_PARAMETERS)}")
    readers = _PARAMETERS[name]
    if set(document) != {"kind", *readers}:
        raise ValueError(f"{where} must have the fields kind, {', '.join(readers)}, and no others")
    values = {key: read(document[key], f"{where}.{key}") for key, read in readers.items()}
    return getattr(dp_accounting, name)(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [encoded(event) for event in value]
    return encoded(value) if is_event(value) else value


def _events(document: Any, where: str) -> list[Any]:
    if not isinstance(document, list):
        _refuse(document, "a list", where)
    return [decoded(each, f"{where}[{i}]") for i, each in enumerate(document)]


def _multiplier(document: Any, where: str) -> float:
    if type(document) is not float or not 0 < document < math.inf:
        _refuse(document, "a positive number", where)
    return float(document)


def _probability(document: Any, where: str) -> float:
    if type(document) is not float or not 0 < document <= 1:
        _refuse(document, "a number between 0 and 1", where)
    return float(document)


def _count(document: Any, where: str) -> int:
    if type(document) is not int or not 0 < document < _MOST_COUNT:
        _refuse(document, "a positive integer", where)
    return int(document)


def _refuse(document: Any, expected: str, where: str) -> NoReturn:
    raise ValueError(f"{where} must be {expected}, got {str(document)[:60]}")


# the parameters of each class, and what reads them
_PARAMETERS: dict[str, dict[str, Callable[[Any, str], Any]]] = {
    "GaussianDpEvent": {"noise_multiplier": _multiplier},
    "PoissonSampledDpEvent": {"sampling_probability": _probability, "event": decoded},
    "SelfComposedDpEvent": {"event": decoded, "count": _count},
    "ComposedDpEvent": {"events": _events},
}
