"""Conversions between the privacy parameters of Gaussian noise: (epsilon, delta), mu and rho.

A Gaussian query with l2 sensitivity D and noise deviation s is mu-GDP with mu = D/s and rho-zCDP with rho = mu^2/2;
adaptive compositions add up in mu^2. The curve of mu-GDP is (Balle and Wang 2018; Dong, Roth and Su 2022)

    delta(epsilon) = Phi(a) - exp(epsilon) Phi(b),    a = mu/2 - epsilon/mu,   b = -mu/2 - epsilon/mu.

Because exp(epsilon) phi(b) = phi(a), this is phi(a) (R(-a) - R(-b)) with the Mills ratio R(t) = (1 - Phi(t))/phi(t),
without overflow or cancellation in the tails. Every conversion is rounded conservatively: bounds on the
rounding errors are part of `delta_of`, which is an upper bound, and each root is shifted until that bound holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from numbers import Integral
from typing import Any, Literal

Accounting = Literal["gdp", "zcdp"]

_UNIT = 2.0**-53
# Relative error allowed for each evaluation of erfcx, ndtr and exp, in units of 2^-53 (SciPy's are correct to a few).
_SLACK = 32 * _UNIT
_LEAST = 5e-324


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
    _check_epsilon(epsilon)
    _check_mu(mu)
    if math.isinf(mu):
        return 0.0 if math.isinf(epsilon) else 1.0
    if math.isinf(epsilon):
        return 0.0
    if mu == 0:
        return 0.0
    return min(1.0, max(_LEAST, math.exp(log_delta_of(epsilon, mu)) * (1 + _SLACK)))


@lru_cache(maxsize=128)  # runs in a row ask for the same budget
def mu_of(epsilon: float, delta: float) -> float:
    """Largest mu, rounded down, whose exact curve stays below (epsilon, delta).

    Raises ValueError unless epsilon > 0 and 0 < delta < 1; epsilon = inf gives inf.
    """
    _check_epsilon(epsilon)
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
    _check_mu(mu)
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
    _check_epsilon(epsilon)
    if math.isinf(epsilon):
        return math.inf
    _check_delta(delta)
    t = -math.log(delta)
    return (epsilon / (math.sqrt(epsilon + t) + math.sqrt(t))) ** 2 * (1 - 16 * _UNIT)


def epsilon_of_rho(rho: float, delta: float) -> float:
    """The papers' conversion, epsilon = rho + 2 sqrt(rho log(1/delta)), rounded up."""
    _check_mu(rho, name="rho")
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


def _check_epsilon(epsilon: float) -> None:
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be a non-negative number, got {epsilon!r}")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}")


def _check_mu(mu: float, name: str = "mu") -> None:
    if not mu >= 0:
        raise ValueError(f"{name} must be a non-negative number, got {mu!r}")
