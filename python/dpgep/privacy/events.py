"""Events of `dp_accounting` in our currency, mu^2, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Integral
from typing import Any, NoReturn

# Events of a run are nested four deep: all answers, those of a kind, a sample, its noise.
MOST_DEPTH = 8
_MOST_COUNT = 1 << 53


def gaussian_cost(event: Any) -> Fraction:
    """mu^2 of an event made of Gaussian mechanisms, exactly.

    Noise of s times the sensitivity is mu-GDP with mu = 1/s, and compositions add up in mu^2.

    Raises TypeError for what is no event, ValueError for events that are not mu-GDP by themselves. Among these is
    rho-zCDP: a mechanism may be rho-zCDP without being mu-GDP for any mu.
    """
    import dp_accounting

    if not isinstance(event, dp_accounting.DpEvent):
        raise TypeError(f"event must be a dp_accounting.DpEvent, got {type(event).__name__}")
    kind = type(event)
    if kind is dp_accounting.NoOpDpEvent:
        return Fraction(0)
    if kind is dp_accounting.ComposedDpEvent:
        return sum(map(gaussian_cost, event.events), start=Fraction(0))
    if kind is dp_accounting.SelfComposedDpEvent:
        if isinstance(event.count, bool) or not isinstance(event.count, Integral) or event.count < 0:
            raise ValueError(f"a SelfComposedDpEvent needs a count of 0 or more, got {event.count!r}")
        return int(event.count) * gaussian_cost(event.event)
    if kind is not dp_accounting.GaussianDpEvent:
        raise ValueError(
            f"a {kind.__name__} cannot be charged: only Gaussian mechanisms and their compositions have a mu that adds "
            "up with ours; nothing was charged"
        )
    multiplier = float(event.noise_multiplier)
    if not 1e-100 <= multiplier <= 1e100:
        raise ValueError(f"the noise multiplier must lie between 1e-100 and 1e100, got {event.noise_multiplier!r}")
    return 1 / Fraction(multiplier) ** 2


def is_event(value: Any) -> bool:
    """Whether a value is one of these events."""
    return type(value).__module__.startswith("dp_accounting") and type(value).__name__ in _PARAMETERS


def event_to_json(event: Any) -> dict[str, Any]:
    """The event of an answer about samples (`sampled.SampledMechanism`): the name of its class, and its parameters."""
    name = type(event).__name__
    return {"type": name, **{key: _plain(getattr(event, key)) for key in _PARAMETERS[name]}}


def event_from_json(document: Any, where: str = "event", depth: int = 1) -> Any:
    """The event that `event_to_json` wrote. Raises ValueError for anything else."""
    import dp_accounting

    name = document.get("type") if isinstance(document, dict) else None
    if not isinstance(name, str) or name not in _PARAMETERS:
        raise ValueError(f"{where} must be an event, one of {', '.join(_PARAMETERS)}")
    if depth > MOST_DEPTH:
        raise ValueError(f"{where} is nested more than {MOST_DEPTH} deep")
    readers = _PARAMETERS[name]
    if set(document) != {"type", *readers}:
        raise ValueError(f"{where} must have the fields type, {', '.join(readers)}, and no others")
    values = {key: read(document[key], f"{where}.{key}", depth + 1) for key, read in readers.items()}
    if name == "PoissonSampledDpEvent" and type(values["event"]) is not dp_accounting.GaussianDpEvent:
        raise ValueError(f"{where}.event must be a GaussianDpEvent, whose sampling is accounted for")
    return getattr(dp_accounting, name)(**values)


def answers_of(event: Any) -> list[tuple[float, float, float]]:
    """(noise multiplier, probability to be in the sample, number) of each kind of answer in an event as those here."""
    name = type(event).__name__
    if name == "ComposedDpEvent":
        return [answer for part in event.events for answer in answers_of(part)]
    if name == "SelfComposedDpEvent":
        return [(noise, rate, event.count * number) for noise, rate, number in answers_of(event.event)]
    if name == "PoissonSampledDpEvent":
        return [(noise, event.sampling_probability, number) for noise, _, number in answers_of(event.event)]
    return [(event.noise_multiplier, 1.0, 1.0)]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [event_to_json(event) for event in value]
    return event_to_json(value) if is_event(value) else value


def _events(document: Any, where: str, depth: int) -> list[Any]:
    if not isinstance(document, list):
        _refuse(document, "a list", where)
    return [event_from_json(each, f"{where}[{i}]", depth) for i, each in enumerate(document)]


def _multiplier(document: Any, where: str, _depth: int) -> float:
    if type(document) is not float or not 0 < document < math.inf:
        _refuse(document, "a positive number", where)
    return float(document)


def _probability(document: Any, where: str, _depth: int) -> float:
    if type(document) is not float or not 0 < document <= 1:
        _refuse(document, "a number between 0 and 1", where)
    return float(document)


def _count(document: Any, where: str, _depth: int) -> int:
    if type(document) is not int or not 0 < document < _MOST_COUNT:
        _refuse(document, "a positive integer", where)
    return int(document)


def _refuse(document: Any, expected: str, where: str) -> NoReturn:
    raise ValueError(f"{where} must be {expected}, got {str(document)[:60]}")


# the parameters of each class, and what reads them
_PARAMETERS: dict[str, dict[str, Callable[[Any, str, int], Any]]] = {
    "GaussianDpEvent": {"noise_multiplier": _multiplier},
    "PoissonSampledDpEvent": {"sampling_probability": _probability, "event": event_from_json},
    "SelfComposedDpEvent": {"event": event_from_json, "count": _count},
    "ComposedDpEvent": {"events": _events},
}
