"""A privacy budget that several runs may share."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fractions import Fraction
from typing import Any

import numpy as np

from dpgep.errors import PrivacyBudgetError
from dpgep.models.model import Adjacency
from dpgep.privacy.accounting import (
    Accounting,
    epsilon_of,
    epsilon_of_rho,
    mu_from_rho,
    mu_of,
    rho_from_mu,
    rho_of,
)
from dpgep.privacy.ledger import (
    Cost,
    Ledger,
    LedgerEntry,
    Owner,
    cost_of,
    mu_rounded_down,
    mu_rounded_up,
    total_cost,
)

# The fraction of a spent budget that rounding may leave: too little for any run.
_CRUMB = Fraction(1, 2**40)


class Budget:
    """How much privacy loss is allowed, and how much of it is spent.

    It is given in exactly one of three forms:

    * ``epsilon`` and ``delta``: (epsilon, delta)-differential privacy; ``epsilon=math.inf`` turns the noise off;
    * ``rho``: zero-concentrated differential privacy;
    * ``mu``: Gaussian differential privacy.

    All noise of the package is Gaussian, so costs compose exactly, in mu^2 = 2 rho. The exception is answers about
    samples: a method that uses them takes a whole (epsilon, delta) budget. (epsilon, delta) is converted
    with the exact curve of Gaussian noise (``accounting="gdp"``) or with the papers' looser bound epsilon = rho +
    2 sqrt(rho log(1/delta)) (``accounting="zcdp"``); every conversion is rounded so that the guarantee holds.

    A budget may be passed to several calls of `dpgep.solve`, from several threads: each call reserves a ``share`` of
    the total (a fraction of mu^2; by default all that is left) before it reads data, and pays for what it releases.

    All calls have one adjacency, that of the first: mu under "replace-one" and mu under "add-remove" do not add up,
    and a run under "replace-one" publishes the number of people, which "add-remove" protects. A run that released
    nothing does not fix the adjacency.

    Parameters
    ----------
    epsilon, delta, rho, mu : float
        The budget, in one of the three forms.
    accounting : {"gdp", "zcdp"}
        The conversion used for (epsilon, delta).
    adjacency : {"replace-one", "add-remove"}, optional
        The adjacency of the budget. Default: that of the first run.

    Raises
    ------
    ValueError
        Unless exactly one form is given, epsilon, rho, mu > 0, 0 < delta < 1, and the adjacency is known.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> round(budget.mu, 4)
    0.2367
    """

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        mu: float | None = None,
        accounting: Accounting = "gdp",
        adjacency: Adjacency | None = None,
    ) -> None:
        if accounting not in ("gdp", "zcdp"):
            raise ValueError(f'accounting must be "gdp" or "zcdp", got {accounting!r}')
        forms = [name for name, value in (("epsilon", epsilon), ("rho", rho), ("mu", mu)) if value is not None]
        if len(forms) != 1:
            given = ", ".join(forms) if forms else "none"
            raise ValueError(f"give exactly one budget: epsilon with delta, rho, or mu; got {given}")
        if delta is not None and epsilon is None:
            raise ValueError(f"delta goes with epsilon; a budget in {forms[0]} takes none")
        if adjacency is not None:
            _check_adjacency(adjacency)
        value = _positive(forms[0], {"epsilon": epsilon, "rho": rho, "mu": mu}[forms[0]])
        if epsilon is not None and delta is None and not math.isinf(value):
            raise ValueError("epsilon needs a delta: give delta as well, or use rho= or mu=")
        if delta is not None:
            delta = _unit_interval("delta", delta)
        self.epsilon: float | None = value if epsilon is not None else None
        self.delta: float | None = delta
        self.accounting: Accounting = accounting
        self.mu = self._to_mu(forms[0], value)
        self._reserved: Cost = Fraction(0)
        self._releases: list[LedgerEntry] = []
        self._adjacency, self._is_fixed = adjacency, adjacency is not None
        self._open_ledgers = 0
        self._lock = threading.Lock()
        self._owner = Owner()

    def _to_mu(self, form: str, value: float) -> float:
        if math.isinf(value):
            return math.inf
        if form == "mu":
            return value
        if form == "rho":
            return mu_from_rho(value)
        assert self.delta is not None
        if self.accounting == "zcdp":
            return mu_from_rho(rho_of(value, self.delta))
        return mu_of(value, self.delta)

    @property
    def rho(self) -> float:
        """Total rho = mu^2/2."""
        return rho_from_mu(self.mu)

    @property
    def releases(self) -> tuple[LedgerEntry, ...]:
        """All releases paid from this budget."""
        with self._locked():
            return tuple(self._releases)

    @property
    def adjacency(self) -> Adjacency | None:
        """The adjacency of everything paid from this budget; None while nothing is reserved or released."""
        with self._locked():
            return self._adjacency

    @property
    def spent_mu(self) -> float:
        """Gaussian-DP parameter of everything released so far, rounded up; the whole budget for answers on samples."""
        return mu_rounded_up(self._spent())

    @property
    def remaining_mu(self) -> float:
        """Gaussian-DP parameter of what is neither spent nor reserved, rounded down."""
        return mu_rounded_down(self._free())

    def epsilon_at(self, mu: float) -> float | None:
        """The epsilon, at the budget's delta, of releases that compose to ``mu``; exactly its own for all of it."""
        if self.epsilon is None or self.delta is None:
            return self.epsilon
        if mu >= self.mu:
            return self.epsilon
        convert = epsilon_of if self.accounting == "gdp" else lambda m, d: epsilon_of_rho(rho_from_mu(m), d)
        return min(self.epsilon, convert(mu, self.delta))

    def require(self, adjacency: Adjacency) -> None:
        """Raise PrivacyBudgetError unless a run under ``adjacency`` may be paid from this budget."""
        self._owner.require("this budget")  # before the lock, which a fork may have left held
        with self._lock:
            self._require(adjacency)

    @contextmanager
    def reserve(self, share: float | None = None, *, adjacency: Adjacency) -> Iterator[Ledger]:
        """Reserve ``share`` of the total mu^2 (None: all that is left); pay on exit for what the ledger then holds.

        Check and reservation are one atomic step, so two threads cannot spend the same budget. An exception
        before the first release returns everything, including the choice of ``adjacency``.
        """
        ledger = Ledger(*self._take(share, adjacency))
        try:
            yield ledger
        finally:
            self._settle(ledger)

    def _take(self, share: float | None, adjacency: Adjacency) -> tuple[float, tuple[float, float] | None]:
        """The reserved mu, and (epsilon, delta) if it is the whole of a budget in this form."""
        part = None if share is None else _number("share", share)
        if part is not None and not 0 < part <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share!r}")
        self._owner.require("this budget")
        with self._lock:
            self._require(adjacency)
            reserved = (math.inf, None) if math.isinf(self.mu) else self._part(part)
            self._adjacency = adjacency
            self._open_ledgers += 1
            return reserved

    def _require(self, adjacency: Adjacency) -> None:
        _check_adjacency(adjacency)
        if self._adjacency not in (None, adjacency):
            raise PrivacyBudgetError(
                f"this budget is spent under {self._adjacency} adjacency and cannot pay for a run under {adjacency}: "
                "the two do not add up; use a separate budget for each. No data was read and nothing was spent"
            )

    def _part(self, part: float | None) -> tuple[float, tuple[float, float] | None]:
        total = cost_of(self.mu)
        free = total - self._reserved - self._total(self._releases)
        wanted = free if part is None else total * Fraction(part)
        if free < wanted <= free + _CRUMB * total:
            wanted = free  # ten shares of 0.1 make a whole budget, although the double 0.1 exceeds a tenth
        mu = mu_rounded_down(wanted)
        if wanted > free or free < _CRUMB * total:
            asked = "anything" if part is None else f"share = {part:g} (mu = {mu:.6g})"
            raise PrivacyBudgetError(
                f"the budget cannot pay for {asked}: mu = {mu_rounded_down(free):.6g} of {self.mu:.6g} is left; "
                "no data was read and nothing was spent"
            )
        self._reserved += cost_of(mu)
        if self.epsilon is None or self.delta is None or wanted != total:
            return mu, None
        return mu, (self.epsilon, self.delta)

    def _settle(self, ledger: Ledger) -> None:
        """Pay for what a ledger holds, and return the rest of its reservation."""
        if not self._owner.is_here:
            return  # a forked copy, which cannot be spent from and whose lock may be held forever
        with self._lock:
            self._releases.extend(ledger.close())
            self._open_ledgers -= 1
            if math.isfinite(self.mu):
                self._reserved -= cost_of(ledger.mu)
            if not (self._is_fixed or self._open_ledgers or self._releases):
                self._adjacency = None

    def _locked(self) -> AbstractContextManager[Any]:
        """The lock, except in a forked copy, which never changes and where the lock may be held forever."""
        return self._lock if self._owner.is_here else nullcontext()

    def _spent(self) -> Cost:
        with self._locked():
            return self._total(self._releases)

    def _free(self) -> Cost:
        if math.isinf(self.mu):
            return math.inf
        with self._locked():
            return cost_of(self.mu) - self._reserved - self._total(self._releases)

    def _total(self, releases: list[LedgerEntry]) -> Cost:
        return total_cost(releases, self.mu)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a Budget cannot be copied or pickled: two copies could each spend it")

    def __repr__(self) -> str:
        if self.epsilon is None:
            target = f"mu={self.mu:.4g}, rho={self.rho:.4g}"
        elif self.delta is None:
            target = f"epsilon={self.epsilon:g}"
        else:
            target = f"epsilon={self.epsilon:g}, delta={self.delta:.3g}, mu={self.mu:.4g}"
        adjacency = self.adjacency
        binding = f", {adjacency}" if adjacency is not None else ""
        return f"Budget({target}{binding}; spent mu={self.spent_mu:.4g}, remaining mu={self.remaining_mu:.4g})"


def _check_adjacency(adjacency: object) -> None:
    if adjacency not in ("replace-one", "add-remove"):
        raise ValueError(f'adjacency must be "replace-one" or "add-remove", got {adjacency!r}')


def _positive(name: str, value: object) -> float:
    number = _number(name, value)
    if not number > 0:
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    if not (1e-100 <= number <= 1e100 or math.isinf(number)):
        raise ValueError(f"{name} must lie between 1e-100 and 1e100 (or be inf: no noise), got {value!r}")
    return number


def _unit_interval(name: str, value: object) -> float:
    number = _number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return number


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, (str, bytes, bool, np.bool_)):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
