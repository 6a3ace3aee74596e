"""Accounting: conversions between the parameters of Gaussian noise, (epsilon, delta), mu and rho; Poisson samples.

A Gaussian query with l2 sensitivity D and noise deviation s is mu-GDP with mu = D/s and rho-zCDP with rho = mu^2/2;
adaptive compositions add up in mu^2. The curve of mu-GDP is (Balle and Wang 2018; Dong, Roth and Su 2022)

    delta(epsilon) = Phi(a) - exp(epsilon) Phi(b),    a = mu/2 - epsilon/mu,   b = -mu/2 - epsilon/mu.

Because exp(epsilon) phi(b) = phi(a), this is phi(a) (R(-a) - R(-b)) with the Mills ratio R(t) = (1 - Phi(t))/phi(t),
without overflow or cancellation in the tails. Every conversion is rounded conservatively: bounds on the
rounding errors are part of `delta_of`, which is an upper bound, and each root is shifted until that bound holds.

Answers about Poisson samples have no mu: they are Poisson-subsampled Gaussian events, composed by `dp_accounting` as
privacy loss distributions, under add/remove (docs/mathematics.md, section 9). Under replace-one, neighbours are two
steps apart, and (e, d) under add/remove gives (2 e, (1 + exp(e)) d): no tighter proof is known to us.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from numbers import Integral
from typing import Any, Literal

from dpgep.models.model import Adjacency

Accounting = Literal["gdp", "zcdp"]

_UNIT = 2.0**-53
# Relative error allowed for each evaluation of erfcx, ndtr and exp, in units of 2^-53 (SciPy's are correct to a few).
_SLACK = 32 * _UNIT
_LEAST = 5e-324
# Searches stop at this relative width, on the valid side.
_WIDTH = 1e-3
# No guarantee may depend on rounding in the accountant, which is below 1e-14.
_LEAST_DELTA = 1e-12
# Steps of the grid of privacy losses in an epsilon, and the least such epsilon.
_STEPS, _LEAST_EPSILON = 5000, 0.01
# What can be verified: kinds of answers in a ledger, and points of that grid, some 20 microseconds and 200 bytes each.
MOST_ANSWERS, MOST_POINTS = 16, 1 << 20
# Beyond this epsilon a guarantee is meaningless, and the search ends.
_LARGEST_EPSILON = 200.0
# Events of a run are nested four deep: all answers, those of a kind, a sample, its noise.
MOST_DEPTH = 8
_MOST_COUNT = (1 << 53) - 1


def log_delta_of(epsilon: float, mu: float) -> float:
    """Natural logarithm of an upper bound on delta(epsilon) of mu-GDP; -inf when it underflows."""
    from scipy.special import erfcx, ndtr

    if mu == 0:
        return -math.inf
    ratio = epsilon / mu
    a, b = mu / 2 - ratio, -mu / 2 - ratio
    shift = 4 * _UNIT * (mu + ratio)  # absolute error of a and b
    log_phi, log_phi_error = -a * a / 2 - math.log(2 * math.pi) / 2, 4 * _UNIT + abs(a) * shift
    # Mills ratios; |R'/R| < 1, so an error of the argument is a relative error of R
    mills_b = math.sqrt(math.pi / 2) * float(erfcx(-b / math.sqrt(2))) * (1 - _SLACK - 2 * shift)
    if a > 0:
        upper = float(ndtr(a + shift)) * (1 + _SLACK) - math.exp(log_phi - log_phi_error) * (1 - _SLACK) * mills_b
        return math.log(upper) if upper > 0 else -math.inf
    gap = math.sqrt(math.pi / 2) * float(erfcx(-a / math.sqrt(2))) * (1 + _SLACK + 2 * shift) - mills_b
    return log_phi + log_phi_error + math.log(gap) + 4 * _UNIT * abs(log_phi)


def delta_of(epsilon: float, mu: float) -> float:
    """delta(epsilon) of mu-GDP, rounded up.

    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    """
    _check_size("epsilon", epsilon)
    _check_size("mu", mu)
    if math.isinf(mu):
        return 0.0 if math.isinf(epsilon) else 1.0
    if math.isinf(epsilon) or mu == 0:
        return 0.0
    return min(1.0, max(_LEAST, math.exp(log_delta_of(epsilon, mu)) * (1 + _SLACK)))


@lru_cache(maxsize=128)  # runs in a row ask for the same budget
def mu_of(epsilon: float, delta: float) -> float:
    """Largest mu, rounded down, whose exact curve stays below (epsilon, delta).

    Raises ValueError unless epsilon > 0 and 0 < delta < 1; epsilon = inf gives inf.
    """
    _check_size("epsilon", epsilon)
    if math.isinf(epsilon):
        return math.inf
    _check_delta(delta)
    log_delta = math.log(delta)
    low = math.sqrt(2 * rho_of(epsilon, delta))  # valid by the looser conversion, hence a lower end of the bracket
    high = 2 * low
    while log_delta_of(epsilon, high) <= log_delta:
        low, high = high, 2 * high
    mu = _root(lambda m: max(log_delta_of(epsilon, m), -1e5) - log_delta, low * (1 - 1e-9), high)
    return _retreat(mu, -mu, lambda m: delta_of(epsilon, m) <= delta)


def epsilon_of(mu: float, delta: float) -> float:
    """Smallest epsilon >= 0 (rounded up) with delta_of(epsilon, mu) <= delta."""
    _check_size("mu", mu)
    _check_delta(delta)
    if math.isinf(mu):
        return math.inf
    log_delta = math.log(delta)
    if mu == 0 or log_delta_of(0.0, mu) <= log_delta:
        return 0.0
    high = mu
    while log_delta_of(high, mu) > log_delta:
        high *= 2
    epsilon = _root(lambda e: max(log_delta_of(e, mu), -1e5) - log_delta, 0.0, high)
    return _retreat(epsilon, max(epsilon, mu), lambda e: delta_of(e, mu) <= delta)


def rho_of(epsilon: float, delta: float) -> float:
    """Solve the papers' conversion epsilon = rho + 2 sqrt(rho log(1/delta)) for rho, rounded down (Bun and Steinke).

    Looser than `mu_of` at every epsilon; offered as `accounting="zcdp"` to compare with the papers at equal rho.
    """
    _check_size("epsilon", epsilon)
    if math.isinf(epsilon):
        return math.inf
    _check_delta(delta)
    t = -math.log(delta)
    return (epsilon / (math.sqrt(epsilon + t) + math.sqrt(t))) ** 2 * (1 - 16 * _UNIT)


def epsilon_of_rho(rho: float, delta: float) -> float:
    """The papers' conversion, epsilon = rho + 2 sqrt(rho log(1/delta)), rounded up."""
    _check_size("rho", rho)
    _check_delta(delta)
    return (rho + 2 * math.sqrt(rho * -math.log(delta))) * (1 + 16 * _UNIT)


def mu_from_rho(rho: float) -> float:
    """Mu = sqrt(2 rho), rounded down."""
    return math.sqrt(2 * rho) * (1 - 4 * _UNIT) if math.isfinite(rho) else rho


def rho_from_mu(mu: float) -> float:
    """Rho = mu^2/2, rounded up."""
    return mu * mu / 2 * (1 + 4 * _UNIT)


def gaussian_cost(event: Any) -> Fraction:
    """mu^2 of an event made of Gaussian mechanisms, exactly.

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


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    # scipy.optimize costs half of the import time of the package, hence here
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-300, rtol=1e-15, maxiter=500))


def _retreat(value: float, unit: float, holds: Callable[[float], bool]) -> float:
    """Shift `value` by increasing multiples of `unit`, the first below 10^-15, until it `holds`."""
    step = 4 * _UNIT
    candidate = value
    while not holds(candidate):
        candidate = value + step * unit
        step *= 2
        if step >= 1:
            raise ArithmeticError(f"no safe value near {value!r}: the privacy parameters are out of range")
    return candidate


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}")


def _check_size(name: str, value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{name} must be a non-negative number, got {value!r}")


@dataclass(frozen=True)
class SampledMechanism:
    """The number of answers of each kind, and their noise multipliers."""

    rate: float  # q, the probability with which a person is in a sample
    n_sampled: int  # answers about samples
    n_full: int  # answers about all people
    noise_sampled: float = 0.0  # deviation of the noise in a sum over people in the unit ball; 0 for no noise
    noise_full: float = 0.0

    def event(self) -> Any:
        """All answers as a `dp_accounting.DpEvent`, under add/remove: those about samples, those about all people."""
        import dp_accounting as dp

        of_sample, of_all = dp.GaussianDpEvent(self.noise_sampled), dp.GaussianDpEvent(self.noise_full)
        if self.rate < 1:
            of_sample = dp.PoissonSampledDpEvent(self.rate, of_sample)
        answers = ((of_sample, self.n_sampled), (of_all, self.n_full))
        return dp.ComposedDpEvent([dp.SelfComposedDpEvent(each, count) for each, count in answers if count])


def add_remove_target(epsilon: float, delta: float, adjacency: Adjacency) -> tuple[float, float]:
    """The (epsilon, delta) under add/remove that implies the given pair under ``adjacency``.

    Replace-one: (epsilon/2, delta/(1 + exp(epsilon/2))), group privacy for two people. Raises ValueError if this
    delta is below 1e-12, which the accountant does not resolve.
    """
    step = _per_person(epsilon, adjacency)
    target = delta if adjacency == "add-remove" else delta / (1 + math.exp(step)) * (1 - 1e-15)
    if target < _LEAST_DELTA:
        raise ValueError(
            f"epsilon = {epsilon:g}, delta = {delta:g} under {adjacency} require a delta of {target:.3g} under "
            f"add-remove: the accountant of sampled answers resolves no less than {_LEAST_DELTA:g}"
        )
    return step, target


def add_remove_mu(epsilon: float, delta: float, adjacency: Adjacency) -> float:
    """The Gaussian-DP parameter that the target allows under add/remove: a measure of the budget, for planning."""
    return math.inf if math.isinf(epsilon) else mu_of(*add_remove_target(epsilon, delta, adjacency))


@lru_cache(maxsize=64)  # a pure function that takes seconds
def calibrate_sampled(
    mechanism: SampledMechanism, epsilon: float, delta: float, adjacency: Adjacency, share_full: float
) -> SampledMechanism:
    """The same answers with the least noise that meets (epsilon, delta), to within a thousandth.

    If both kinds are used, ``share_full`` of the budget goes to the full ones: this sets the ratio of the two
    multipliers, by the central limit theorem for mu^2 = T q^2 (exp(1/s^2) - 1) of T sampled answers (Bu et al.
    2020). Their common factor is then found with the exact accountant.

    Raises ValueError if delta is too small, see `add_remove_target`.
    """
    if math.isinf(epsilon):
        return mechanism
    target_epsilon, target_delta = add_remove_target(epsilon, delta, adjacency)
    guess = _guess(mechanism, mu_of(target_epsilon, target_delta), share_full)

    def scaled(factor: float) -> SampledMechanism:
        return replace(mechanism, noise_sampled=factor * guess.noise_sampled, noise_full=factor * guess.noise_full)

    def holds(factor: float) -> bool:
        return bool(_accountant(scaled(factor).event(), target_epsilon).get_delta(target_epsilon) <= target_delta)

    return scaled(_smallest(holds))


def _guess(mechanism: SampledMechanism, mu: float, share_full: float) -> SampledMechanism:
    t, q, m = mechanism.n_sampled, mechanism.rate, mechanism.n_full
    share = 0.0 if m == 0 else 1.0 if t == 0 else share_full
    sampled = 1 / math.sqrt(math.log1p((1 - share) * mu**2 / (t * q * q))) if share < 1 else 0.0
    full = math.sqrt(m / share) / mu if share > 0 else 0.0
    return replace(mechanism, noise_sampled=sampled, noise_full=full)


def _smallest(holds: Callable[[float], bool]) -> float:
    """A factor that holds, with one at most ``_WIDTH`` below it that does not."""
    low, high = 1 / 1.1, 1.1
    while not holds(high):
        low, high = high, high * 1.25
        if high > 1e4:
            raise ArithmeticError("no noise meets the target: the privacy parameters are out of range")
    while holds(low):
        low, high = low / 1.25, low
    while high > low * (1 + _WIDTH):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def epsilon_of_event(event: Any, delta: float, adjacency: Adjacency) -> float:
    """A nearly minimal epsilon for which ``event`` (under add/remove) is (epsilon, delta)-DP; inf if there is none."""
    coarse = _search_epsilon(event, 5.0, delta, adjacency)
    if math.isinf(coarse):
        return coarse
    return min(coarse, _search_epsilon(event, _per_person(coarse, adjacency), delta, adjacency))


def delta_of_event(event: Any, epsilon: float, adjacency: Adjacency) -> float:
    """`deltas_of_event` at one epsilon."""
    return deltas_of_event(event, [epsilon], epsilon, adjacency)[0]


def deltas_of_event(event: Any, epsilons: Sequence[float], precision: float, adjacency: Adjacency) -> list[float]:
    """The deltas, at least 1e-12, for which ``event`` (under add/remove) is (epsilon, delta)-DP under ``adjacency``."""
    accountant = _accountant(event, _resolved(precision, adjacency))
    return [_delta(accountant, epsilon, adjacency) for epsilon in epsilons]


def require_accountable(event: Any, epsilon: float, adjacency: Adjacency) -> None:
    """Raise ValueError for an event whose privacy losses, on the grid for ``epsilon``, would need hours or a TiB.

    Losses of a Gaussian answer with mu = 1/noise lie within mu^2 + 20 mu, but for what is below rounding. Of m answers
    about samples, whose sum S has E exp(S) = r^m, within 35 + m log r; or within this many times those of one.
    """
    answers = answers_of(event)
    if len(answers) > MOST_ANSWERS:
        raise ValueError(f"the event has {len(answers)} kinds of answers, more than {MOST_ANSWERS}")
    spread = 0.0
    for noise, rate, number in answers:
        mu = (1 if rate < 1 else math.sqrt(number)) / noise
        one = mu * mu + 20 * mu
        if rate < 1:
            tail = 35.0 * max(1.0, one / 20)
            one = max(one, min(number * one, tail + number * math.log1p(rate * rate * math.expm1(min(mu * mu, 700.0)))))
        spread += one
    points = spread / (_resolved(epsilon, adjacency) / _STEPS) * len(answers)
    if not points <= MOST_POINTS:
        raise ValueError(f"privacy losses of the event need {points:.2g} points of a grid, more than {MOST_POINTS}")


def _search_epsilon(event: Any, precision: float, delta: float, adjacency: Adjacency) -> float:
    accountant = _accountant(event, precision)
    low, high = 0.0, 1e-3
    while _delta(accountant, high, adjacency) > delta:
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return math.inf
    while high - low > _WIDTH * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(accountant, middle, adjacency) <= delta else (middle, high)
    return high


def _delta(accountant: Any, epsilon: float, adjacency: Adjacency) -> float:
    step = _per_person(epsilon, adjacency)
    delta = max(_LEAST_DELTA, float(accountant.get_delta(step)))
    return delta if adjacency == "add-remove" else min(1.0, (1 + math.exp(step)) * delta * (1 + 1e-15))


def _per_person(epsilon: float, adjacency: Adjacency) -> float:
    """The cost allowed for each add/remove step between neighbours."""
    return epsilon if adjacency == "add-remove" else epsilon / 2


def _resolved(epsilon: float, adjacency: Adjacency) -> float:
    """The epsilon whose grid serves for ``epsilon``."""
    return max(_per_person(epsilon, adjacency), _LEAST_EPSILON)


def _accountant(event: Any, epsilon: float) -> Any:
    """The accountant of dp_accounting, with privacy losses rounded up on a grid fine enough for ``epsilon``."""
    # half a second to import, for two methods only
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, epsilon / _STEPS)
    accountant.compose(event)
    return accountant


def event_to_json(event: Any) -> dict[str, Any]:
    """The event of an answer about samples (`SampledMechanism`): the name of its class, and its parameters."""
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
    return event_to_json(value) if type(value).__name__ in _PARAMETERS else value


def _events(document: Any, where: str, depth: int) -> list[Any]:
    if not isinstance(document, list):
        raise ValueError(f"{where} must be a list, got {str(document)[:60]}")
    return [event_from_json(each, f"{where}[{i}]", depth) for i, each in enumerate(document)]


def _number(kind: Any, most: float, expected: str) -> Callable[[Any, str, int], Any]:
    """What reads a positive number of this type, at most ``most``."""

    def read(document: Any, where: str, _depth: int) -> Any:
        if type(document) is not kind or not 0 < document <= most:
            raise ValueError(f"{where} must be {expected}, got {str(document)[:60]}")
        return document

    return read


# the parameters of each class, and what reads them
_PARAMETERS: dict[str, dict[str, Callable[[Any, str, int], Any]]] = {
    "GaussianDpEvent": {"noise_multiplier": _number(float, sys.float_info.max, "a positive number")},
    "PoissonSampledDpEvent": {
        "sampling_probability": _number(float, 1.0, "a number between 0 and 1"),
        "event": event_from_json,
    },
    "SelfComposedDpEvent": {"event": event_from_json, "count": _number(int, _MOST_COUNT, "a positive integer")},
    "ComposedDpEvent": {"events": _events},
}
