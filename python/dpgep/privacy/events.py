"""Events of `dp_accounting` in our currency, mu^2, and as JSON."""

from __future__ import annotations

from fractions import Fraction
from numbers import Integral
from typing import Any


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


def event_to_json(event: Any) -> dict[str, Any]:
    """The event of an answer about samples (`sampled.SampledMechanism`), as numbers, strings and lists."""
    import dp_accounting

    kind = type(event)
    if kind is dp_accounting.GaussianDpEvent:
        fields: dict[str, Any] = {"noise_multiplier": float(event.noise_multiplier)}
    elif kind is dp_accounting.PoissonSampledDpEvent:
        fields = {"sampling_probability": float(event.sampling_probability), "event": event_to_json(event.event)}
    elif kind is dp_accounting.SelfComposedDpEvent:
        fields = {"event": event_to_json(event.event), "count": int(event.count)}
    else:
        assert kind is dp_accounting.ComposedDpEvent
        fields = {"events": [event_to_json(each) for each in event.events]}
    return {"type": kind.__name__, **fields}


def event_from_json(fields: dict[str, Any]) -> Any:
    """The event that `event_to_json` wrote."""
    import dp_accounting

    values = {name: value for name, value in fields.items() if name != "type"}
    if "event" in values:
        values["event"] = event_from_json(values["event"])
    if "events" in values:
        values["events"] = [event_from_json(each) for each in values["events"]]
    if fields["type"] not in ("GaussianDpEvent", "PoissonSampledDpEvent", "SelfComposedDpEvent", "ComposedDpEvent"):
        raise ValueError(f"no event of ours: {fields['type']!r}")
    return getattr(dp_accounting, fields["type"])(**values)
