"""A privacy budget that several runs may share."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dpgep._show import html_table
from dpgep.errors import PrivacyBudgetError
from dpgep.models.model import Adjacency
from dpgep.privacy.accounting import (
    Accounting,
    epsilon_of,
    epsilon_of_rho,
    gaussian_cost,
    mu_from_rho,
    mu_of,
    rho_from_mu,
    rho_of,
)
from dpgep.privacy.budget_file import NUMBERS, FileStore, Record
from dpgep.privacy.ledger import (
    LEDGER,
    Amount,
    Balance,
    Cost,
    Ledger,
    LedgerEntry,
    MemoryStore,
    Neighbours,
    Reservation,
    cost_of,
    in_order,
    ledger_rows,
    mu_rounded_down,
    mu_rounded_up,
)

_log = logging.getLogger(__name__)

_FORMS = ("epsilon", "rho", "mu")
_TERMS = (*NUMBERS, "accounting", "adjacency")

# a part of a budget: a share of its mu^2, so much more epsilon, or a mu
Part = tuple[str, float]

# The fraction of a spent budget that rounding may leave: too little for any run.
_CRUMB = Fraction(1, 2**40)

ROWS = "rows"


def unit_of(person: str | None) -> str:
    """What neighbours differ in: a row, or all rows of a person, by the name of the ids that say whose they are."""
    return ROWS if person is None else f"people by {person!r}"


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
    An interrupt (Ctrl-C) frees nothing that may have been spent, and leaves nothing locked. One that comes while a part
    is reserved or settled may leave that part reserved; it then counts as spent.

    All calls have one adjacency, that of the first: mu under "replace-one" and mu under "add-remove" do not add up,
    and a run under "replace-one" publishes the number of people, which "add-remove" protects. A run that released
    nothing does not fix the adjacency. All calls also protect the same: rows, or, with ``person=``, all rows of a
    person, by ids of one name. What a row costs says nothing about a person with several. Where people have one row
    each in some run, pass their ids there too.

    Parameters
    ----------
    epsilon, delta, rho, mu : float
        The budget, in one of the three forms.
    accounting : {"gdp", "zcdp"}
        The conversion used for (epsilon, delta).
    adjacency : {"replace-one", "add-remove"}, optional
        The adjacency of the budget. Default: that of the first run.
    person : str, optional
        Name of the column of ids whose people the budget protects; "person" for ids without a name. Default: what the
        first run protects.

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
        person: str | None = None,
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
        if delta is not None and not 0 < _number("delta", delta) < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}")
        self.epsilon: float | None = value if epsilon is not None else None
        self.delta: float | None = None if delta is None else float(delta)
        self.accounting: Accounting = accounting
        self.mu = self._to_mu(forms[0], value)
        fixed = Neighbours(adjacency, None if person is None else unit_of(person))
        self._store: MemoryStore | FileStore = MemoryStore(Balance(self.mu, fixed, fixed))

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        mu: float | None = None,
        accounting: Accounting | None = None,
        adjacency: Adjacency | None = None,
        person: str | None = None,
        dataset: str | None = None,
        purpose: str | None = None,
    ) -> LastingBudget:
        """The budget in a file, which lasts: all processes that open it spend from it. See docs/budgets.md.

        If there is no file, it is created. What a run may spend is reserved in the file before data are read. A process
        that is killed before it has said what it released leaves its reservation spent, until someone gives it back
        (``dpgep budget recover``). Local file systems only.

        Parameters
        ----------
        path : str or path
            The file; a second one, with ".head" added to its name, belongs to it.
        epsilon, delta, rho, mu, accounting, adjacency, person, dataset
            The terms of the budget as in `Budget`, and the name of the data that it protects. A new budget needs a
            form, an adjacency and a name, and without ``person`` it protects rows; of one that exists they may be left
            out, and what is given must agree.
        purpose : str, optional
            What this process spends for; recorded with each of its reservations.

        Raises
        ------
        PrivacyBudgetError
            If terms do not agree, or the file is damaged or is not a budget.
        ValueError, TypeError
            If terms of a new budget are missing or out of range.
        OSError
            If the file cannot be read, or created; FileNotFoundError if there is none and no terms are given.
        """
        form = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
        unit = None if person is None else unit_of(person)
        terms = {**form, "accounting": accounting, "adjacency": adjacency, "unit": unit, "dataset": dataset}
        given = {name: value for name, value in terms.items() if value is not None}
        names: dict[str, object] = {"dataset": dataset, "purpose": purpose, "person": person}
        for name, text in names.items():
            if text is not None and (not isinstance(text, str) or not text):
                raise TypeError(f"{name} must be a name, got {text!r}")
        store = FileStore(path, purpose)
        store.open(given, lambda: _header(store.path, given))
        return LastingBudget(store)

    def _to_mu(self, form: str, value: float) -> float:
        if math.isinf(value) or form == "mu":
            return value
        if form == "rho":
            return mu_from_rho(value)
        assert self.delta is not None
        return mu_of(value, self.delta) if self.accounting == "gdp" else mu_from_rho(rho_of(value, self.delta))

    @property
    def rho(self) -> float:
        """Total rho = mu^2/2."""
        return rho_from_mu(self.mu)

    @property
    def releases(self) -> tuple[LedgerEntry, ...]:
        """All releases paid from this budget."""
        return in_order(self._store.balance().released)

    @property
    def adjacency(self) -> Adjacency | None:
        """The adjacency of everything paid from this budget; None while nothing is reserved or released."""
        return self._store.balance().neighbours.adjacency

    @property
    def unit(self) -> str | None:
        """What the budget protects: "rows", or "people by 'NAME'"; None while nothing is reserved or released."""
        return self._store.balance().neighbours.unit

    @property
    def spent_mu(self) -> float:
        """Gaussian-DP parameter of everything released so far, rounded up; the whole budget for answers on samples."""
        return mu_rounded_up(self._store.balance().spent)

    @property
    def remaining_mu(self) -> float:
        """Gaussian-DP parameter of what is neither spent nor reserved, rounded down."""
        return mu_rounded_down(self._store.balance().free)

    def epsilon_at(self, mu: float) -> float | None:
        """The epsilon, at the budget's delta, of releases that compose to ``mu``; exactly its own for all of it.

        Raises ValueError for more than that.
        """
        if mu > self.mu:
            raise ValueError(f"mu = {mu:.6g} is more than all of the budget, which is {self.mu:.6g}")
        if self.epsilon is None or self.delta is None or mu == self.mu:
            return self.epsilon
        convert = epsilon_of if self.accounting == "gdp" else lambda m, d: epsilon_of_rho(rho_from_mu(m), d)
        return min(self.epsilon, convert(mu, self.delta))

    def require(self, adjacency: Adjacency, person: str | None = None) -> None:
        """Raise PrivacyBudgetError unless a run under ``adjacency``, with ids of this name, may be paid from it."""
        self._store.owner.require("this budget")
        self._require(self._store.known, Neighbours(adjacency, unit_of(person)))

    def reserve(
        self,
        share: float | None = None,
        *,
        epsilon: float | None = None,
        mu: float | None = None,
        adjacency: Adjacency,
        person: str | None = None,
    ) -> AbstractContextManager[Ledger]:
        """Reserve a part of the budget; pay on exit for what the ledger then holds.

        The part is a ``share`` of the total mu^2, or what takes the total, with all that is spent and reserved, from
        its epsilon at the budget's delta to ``epsilon`` more, or this ``mu``, or all that is left. Check and
        reservation are one atomic step, so two threads cannot spend the same budget. An exception before the first
        release returns everything, including the choice of ``adjacency`` and of what is protected: rows, or all rows of
        a person, by ids that are named ``person``.
        """
        part = self._part(share=share, epsilon=epsilon, mu=mu)
        return self._reserve(part, Neighbours(adjacency, unit_of(person)))

    def price(self, share: float | None = None, *, epsilon: float | None = None, mu: float | None = None) -> float:
        """The mu that `reserve` would take for this part now, or the error that it would raise; takes nothing."""
        return self._amount(self._store.balance(), self._part(share=share, epsilon=epsilon, mu=mu))[0]

    def _part(self, **forms: object) -> Part | None:
        parts = [(form, value) for form, value in forms.items() if value is not None]
        if len(parts) > 1:
            raise ValueError("two parts of a budget given: give one of share, epsilon and mu")
        return self._checked(*parts[0]) if parts else None

    def charge(self, event: Any, *, what: str, adjacency: Adjacency, person: str | None = None) -> LedgerEntry:
        """Pay for a release that another library makes of the same people. Charge before it is made.

        Parameters
        ----------
        event : dp_accounting.DpEvent
            Gaussian mechanisms: a GaussianDpEvent, or events that compose such (ComposedDpEvent, SelfComposedDpEvent).
            A noise multiplier s, the deviation over the l2 sensitivity, costs mu = 1/s, rounded up.
        what : str
            What is released, for the ledger.
        adjacency : {"replace-one", "add-remove"}
            The adjacency under which the sensitivity was bounded: that of the budget.
        person : str, optional
            Name of the ids, if the sensitivity is that of all rows of a person, as in `Budget`. Default: of a row.

        Raises
        ------
        PrivacyBudgetError
            If the budget does not suffice, or is spent under the other adjacency or protects something else. Nothing
            was charged.
        ValueError, TypeError
            For events that are not mu-GDP by themselves: Laplace noise, samples, zCDP, which bounds no mu.
        """
        if not what:
            raise ValueError("what must say, in words, what is released")
        mu = mu_rounded_up(gaussian_cost(event))
        entry = LedgerEntry(str(what), mu, ())
        with self._reserve(("mu", mu), Neighbours(adjacency, unit_of(person))) as ledger:
            ledger.record(entry)
        return entry

    def _checked(self, form: str, value: object) -> Part:
        if form == "mu":
            return form, _positive(form, value)
        if form == "share":
            share = _number(form, value)
            if not 0 < share <= 1:
                raise ValueError(f"share must lie in (0, 1], got {value!r}")
            return form, share
        amount = _positive(form, value)
        if self.delta is None:
            raise ValueError(
                "an amount in epsilon needs a budget in epsilon and delta: give share=, the fraction of its mu^2"
            )
        if math.isinf(self.mu) or math.isinf(amount):
            raise ValueError("without noise there are no amounts of a budget: leave out epsilon")
        return form, amount

    @contextmanager
    def _reserve(self, part: Part | None, neighbours: Neighbours) -> Iterator[Ledger]:
        reservation = self._take(part, neighbours)
        ledger = Ledger(reservation.mu, reservation.target)
        try:
            yield ledger
        finally:
            self._settle(reservation.name, ledger)

    def _take(self, part: Part | None, neighbours: Neighbours) -> Reservation:
        def choose(balance: Balance) -> Amount:
            self._require(balance, neighbours)
            return self._amount(balance, part)

        reservation = self._store.reserve(choose, neighbours)
        _log.info("reserved mu = %.6g of %.6g", reservation.mu, self.mu)
        return reservation

    def _require(self, balance: Balance, neighbours: Neighbours) -> None:
        (adjacency, unit), known = neighbours, balance.neighbours
        _check_adjacency(adjacency)
        if known.unit not in (None, unit):
            raise PrivacyBudgetError(
                f"this budget protects {known.unit}, this run {unit}: costs do not add up. Make another budget (its "
                "person= says for whom), or pass the same ids to each run; nothing was read or spent"
            )
        if known.adjacency not in (None, adjacency):
            raise PrivacyBudgetError(
                f"this budget is spent under {known.adjacency} adjacency and cannot pay for a run under {adjacency}: "
                "the two do not add up; use a separate budget for each. No data was read and nothing was spent"
            )

    def _amount(self, balance: Balance, part: Part | None) -> Amount:
        if math.isinf(self.mu):
            return math.inf, None
        target = None if self.epsilon is None or self.delta is None else (self.epsilon, self.delta)
        if part is None and not (balance.spent or balance.reserved) and self.mu > 0:
            return self.mu, target  # a budget of one run: nothing to compare
        wanted = self._wanted(balance.free, part)
        return mu_rounded_down(wanted), target if wanted == cost_of(self.mu) else None

    def _wanted(self, free: Cost, part: Part | None) -> Cost:
        """The cost of a part, which must be free. Raises PrivacyBudgetError or ValueError."""
        total = cost_of(self.mu)
        form, amount = part or (None, math.nan)
        if form == "mu":
            wanted, asked = cost_of(amount), f"mu = {amount:.6g}"
        elif form == "epsilon":
            wanted, asked = self._cost_to(free, amount), f"epsilon = {amount:g} more"
        elif form == "share":
            wanted = total * Fraction(amount)
            asked = f"share = {amount:g} (mu = {mu_rounded_down(wanted):.6g})"
        else:
            wanted, asked = free, "anything"
        if form != "mu" and free < wanted <= free + _CRUMB * total:
            wanted = free  # ten shares of 0.1 make a whole budget, although the double 0.1 exceeds a tenth
        if wanted > free or (free < _CRUMB * total and form != "mu"):
            raise PrivacyBudgetError(
                f"the budget cannot pay for {asked}: mu = {mu_rounded_down(free):.6g} of {self.mu:.6g} is left; "
                "no data was read and nothing was spent"
            )
        if wanted <= 0 and form != "mu":
            raise ValueError(f"{asked} is too little for any release; no data was read and nothing was spent")
        return wanted

    def _cost_to(self, free: Cost, amount: float) -> Cost:
        """The mu^2 that takes the total to ``amount`` more epsilon, rounded down; infinite beyond the budget's own."""
        assert self.epsilon is not None
        used = cost_of(self.mu) - free
        before = self.epsilon_at(mu_rounded_up(used))
        assert before is not None
        after = Fraction(before) + Fraction(amount)
        whole = Fraction(self.epsilon)
        if abs(after - whole) <= _CRUMB * whole:  # five amounts of 0.2 make an epsilon of 1
            return free
        if after > whole:
            return math.inf
        rounded = float(after)
        return cost_of(self._to_mu("epsilon", rounded if rounded <= after else math.nextafter(rounded, 0.0))) - used

    def _settle(self, name: str, ledger: Ledger) -> None:
        balance = self._store.settle(name, ledger)
        if balance is not None and _log.isEnabledFor(logging.INFO):
            left = mu_rounded_down(balance.free)
            _log.info("settled %d releases of the run; mu = %.6g of %.6g is left", len(ledger.releases), left, self.mu)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a Budget cannot be copied or pickled: two copies could each spend it")

    def __sklearn_clone__(self) -> Budget:
        """The same: clones of a scikit-learn estimator spend one budget together."""
        return self

    def __repr__(self) -> str:
        if self.epsilon is None:
            target = f"mu={self.mu:.4g}, rho={self.rho:.4g}"
        elif self.delta is None:
            target = f"epsilon={self.epsilon:g}"
        else:
            target = f"epsilon={self.epsilon:g}, delta={self.delta:.3g}, mu={self.mu:.4g}"
        balance = self._store.balance()
        binding = "".join(f", {each}" for each in balance.neighbours if each is not None)
        spent, remaining = mu_rounded_up(balance.spent), mu_rounded_down(balance.free)
        return f"Budget({target}{binding}; spent mu={spent:.4g}, remaining mu={remaining:.4g})"

    def _repr_html_(self) -> str:
        from html import escape  # slow to import

        return f"<p>{escape(repr(self))}</p>{html_table(ledger_rows(self.releases, self.mu), LEDGER)}"


class LastingBudget(Budget):
    """A `Budget` in a file, from `Budget.open`: several processes may spend from it, one after another or at once.

    Before a run reads data, its reservation is on the disk; afterwards, what it released. If the file cannot be written
    then, a RuntimeWarning says so, and the whole reservation counts as spent; if it cannot even be read, the result is
    withheld, since the reservation may have been given back. Each process opens the file for itself: a forked copy is
    refused.

    Attributes
    ----------
    path : of the file.
    dataset : name of the data that the budget protects.
    purpose : what this process spends for, or None.
    """

    _store: FileStore

    def __init__(self, store: FileStore) -> None:
        header = store.header
        try:
            super().__init__(**{name: header[name] for name in _TERMS if name in header})
            self.dataset: str = header["dataset"]
            unit = str(header["unit"])
        except (KeyError, TypeError, ValueError) as error:
            raise PrivacyBudgetError(f"the terms of the budget in {store.path} make no sense: {error}") from None
        fixed = Neighbours(header["adjacency"], unit)
        store.begin(Balance(self.mu, fixed, fixed))
        self._store = store
        self.path: Path = store.path
        self.purpose = store.purpose

    @property
    def history(self) -> tuple[Record, ...]:
        """The records of the file, in the order in which they were written: docs/budgets.md describes them."""
        return self._store.records()

    @property
    def open_reservations(self) -> tuple[Record, ...]:
        """The records of the reservations that are not settled: of runs that go on, or of processes that died."""
        return self._store.open_reservations()

    def give_back(self, reservation: str, *, nothing_was_released: bool = False) -> None:
        """Free an open reservation on your word: the process is dead, and nothing that it computed was seen by anyone.

        If its run still goes on, its result will be withheld.

        Parameters
        ----------
        reservation : str
            The ``reservation`` of a record in `open_reservations`.
        nothing_was_released : bool
            Must be True: nobody but you can know.
        """
        if nothing_was_released is not True:
            raise ValueError("an open reservation is free only on your word: pass nothing_was_released=True")
        self._store.give_back(reservation)

    def __repr__(self) -> str:
        try:
            return f"{super().__repr__()[:-1]}; {self.dataset!r} in {self.path})"
        except (OSError, PrivacyBudgetError):
            return f"Budget({self.dataset!r} in {self.path}, which cannot be read)"


def _header(path: Path, given: dict[str, Any]) -> Record:
    """The first record of a new budget in a file with these terms. Raises as `Budget.open`."""
    missing = [] if any(name in given for name in _FORMS) else ["epsilon and delta (or rho, or mu)"]
    missing += [name for name in ("adjacency", "dataset") if name not in given]
    if missing:
        message = f"there is no budget in {path}; a new one needs {', '.join(missing)}"
        raise ValueError(message) if given else FileNotFoundError(message)
    budget = Budget(**{name: given[name] for name in _TERMS if name in given})
    if math.isinf(budget.mu):
        raise ValueError("a budget without noise never runs out: it needs no file")
    numbers = {name: float(given[name]) for name in NUMBERS if name in given}
    terms = {"adjacency": budget.adjacency, "unit": given.get("unit", ROWS), "accounting": budget.accounting}
    return {"dataset": given["dataset"], **terms, **numbers}


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


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, (str, bytes, bool, np.bool_)):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
