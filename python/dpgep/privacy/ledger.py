"""The ledger: what was released, with how much noise, and at what cost; spendable in one process only.

Ctrl-C, or any signal whose handler raises, may end the main thread's work between any two instructions of the
interpreter: between taking a lock and entering the `with` block, at the first instruction of an `__exit__`, in a
`finally` before it has released anything. Which instructions are safe differs from one CPython to the next. So the main
thread never holds a lock: what ledgers and budgets hold is an immutable value, replaced in one step.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import count, groupby
from typing import Any, Generic, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

from dpgep._watched import watching
from dpgep.errors import PrivacyBudgetError
from dpgep.models.model import Adjacency
from dpgep.privacy.accounting import event_from_json, event_to_json

_log = logging.getLogger(__name__)

T = TypeVar("T")

# What the histogram that a bound is chosen by is called.
NORMS = "histogram of row norms"
# What those are called that show the values of columns.
IN_OCTAVES, IN_PLACES = "histograms of the columns' magnitudes", "histograms of columns within intervals"
# records releases in a ledger, before their noise is drawn
Charge = Callable[["LedgerEntry"], None]

Rounding = Literal["integer", "grid", "none"]

# Costs below are no precise doubles; their roots are taken of a multiple.
_SMALL, _SCALE = Fraction(1, 2**900), 2**500

Cost = Fraction | float  # mu^2, exact; the float is infinity, for answers without noise
_NOTHING = Fraction(0)


@dataclass(frozen=True)
class NoiseBlock:
    """Gaussian noise in one block of a release.

    Attributes
    ----------
    name : what the block is.
    shape : "goe" (symmetric, off-diagonal variance half of the diagonal's) or "independent".
    deviation : standard deviation (of the diagonal, for "goe"), in the units of the released value.
    scale : the same as an integer multiple of the grid of an exact release; None for other grids.
    """

    name: str
    shape: str
    deviation: float
    scale: int | None = None


@dataclass(frozen=True, repr=False)
class LedgerEntry:
    """One entry of the ledger: an answer that a caller may have seen, and its cost.

    Attributes
    ----------
    query : the query, in words.
    mu : Gaussian-DP parameter of the answer under the adjacency of the problem, rounded up. None for answers about
        samples, which have none: they cost a whole (epsilon, delta) budget, and ``event`` describes them.
    noise : the blocks of noise in the answer.
    grid_bits : b of an exact release: rows are integer vectors of norm at most 2^b, so that an integer second moment
        changes by at most sqrt(2) 4^b in Frobenius norm when a row is replaced, and all values lie on the grid 4^-b.
        None for other releases.
    event : a `dp_accounting.DpEvent` under add/remove, with ``mu`` None; None otherwise.
    """

    query: str
    mu: float | None
    noise: tuple[NoiseBlock, ...]
    grid_bits: int | None = None
    event: Any = field(default=None, metadata={"write": event_to_json, "read": event_from_json})

    @property
    def rounding(self) -> Rounding:
        """Why low-order bits reveal nothing.

        "integer": values are integer sums over people. "grid": they are computed in floating point and rounded to a
        public grid; the noise covers what this adds to the sensitivity. Both get exactly rounded normal deviates, so
        the guarantee has no approximation term. "none": no noise.
        """
        if not self.noise:
            return "none"
        return "grid" if self.grid_bits is None else "integer"

    def __repr__(self) -> str:
        price = "of samples" if self.mu is None else f"mu={self.mu:.4g}"
        return f"LedgerEntry({self.query!r}, {price}, rounding {self.rounding})"


@lru_cache(maxsize=128)
def split_budget(mu: float, share: float) -> tuple[float, float]:
    """Gaussian-DP parameters of ``share`` of mu^2 and of the rest: their squares add up to at most mu^2."""
    if not math.isfinite(mu):
        return math.inf, math.inf
    first = mu_rounded_down(cost_of(mu) * Fraction(share))
    return first, mu_rounded_down(cost_of(mu) - cost_of(first))


def equal_parts(mu: float, parts: int) -> float:
    """Gaussian-DP parameter of each of ``parts`` releases that together cost at most mu^2."""
    return mu_rounded_down(cost_of(mu) / parts) if math.isfinite(mu) else math.inf


@lru_cache(maxsize=128)  # every query needs the cost of its budget several times
def cost_of(mu: float) -> Cost:
    """mu^2 as an exact rational: sums of costs are compared with budgets without rounding."""
    return Fraction(mu) ** 2 if math.isfinite(mu) else math.inf


def total_cost(releases: Iterable[LedgerEntry], whole: float) -> Cost:
    """mu^2 of all releases; one without mu took everything: ``whole``, the budget's mu."""
    return sum((cost_of(whole if release.mu is None else release.mu) for release in releases), _NOTHING)


def _added(spent: Cost, cost: Cost) -> Cost:
    """Their sum: exact additions are slow, and most runs add to nothing."""
    return spent + cost if spent else cost


@lru_cache(maxsize=128)
def mu_rounded_down(cost: Cost) -> float:
    """Largest double mu with mu^2 <= cost; 0 where that is no normal number."""
    if 0 < cost < _SMALL:
        mu = mu_rounded_down(cost * _SCALE**2) / _SCALE  # exact: a power of two
        return mu if mu >= sys.float_info.min else 0.0
    if not math.isfinite(cost):
        return math.inf
    mu = math.nextafter(math.sqrt(cost), math.inf)
    while Fraction(mu) ** 2 > cost:
        mu = math.nextafter(mu, 0.0)
    return mu


@lru_cache(maxsize=128)
def mu_rounded_up(cost: Cost) -> float:
    """Smallest double mu with mu^2 >= cost, that is a normal number or 0; infinity for a cost that no double holds."""
    if 0 < cost < _SMALL:
        return max(mu_rounded_up(cost * _SCALE**2) / _SCALE, sys.float_info.min)
    if cost > sys.float_info.max:
        return math.inf
    mu = math.nextafter(math.sqrt(cost), 0.0)
    while Fraction(mu) ** 2 < cost:
        mu = math.nextafter(mu, math.inf)
    return mu


Entries = tuple["Entries", LedgerEntry] | None  # those before, and the last: a longer one shares the shorter


def in_order(entries: Entries) -> tuple[LedgerEntry, ...]:
    """The entries, first one first."""
    backwards = []
    while entries is not None:
        entries, last = entries
        backwards.append(last)
    return tuple(reversed(backwards))


@dataclass(frozen=True, slots=True, eq=False)
class _Link(Generic[T]):
    value: T
    successor: dict[str, _Link[T]] = field(default_factory=dict)


class AtomicReference(Generic[T]):
    """An immutable value that threads replace one after another, without a lock.

    Values form a chain, and only the last one can get a successor: `dict.setdefault` looks and stores in one step of
    the interpreter, which neither a signal nor another thread divides. An update is done before an interrupt, or not
    at all.
    """

    def __init__(self, value: T) -> None:
        self._link = _Link(value)  # the last one, or one before it: threads may set it in any order

    def get(self) -> T:
        return self._last().value

    def update(self, change: Callable[[T], T]) -> T:
        """Replace the value by ``change`` of it, and return that; once more if another thread was faster."""
        while True:
            last = self._last()
            link = _Link(change(last.value))
            if last.successor.setdefault("link", link) is link:
                return link.value

    def _last(self) -> _Link[T]:
        link = self._link
        while link.successor:
            link = link.successor["link"]
        self._link = link
        return link


@dataclass(frozen=True, eq=False)
class _Account:
    """What a ledger holds."""

    entries: Entries = None
    spent: Cost = _NOTHING
    is_open: bool = True


class Ledger:
    """The releases of one run and the limit they must stay within. Check before a query, record after it."""

    def __init__(self, mu: float, target: tuple[float, float] | None = None) -> None:
        self.mu = mu
        self._whole = mu
        # without noise any target is met
        self._target = (math.inf, 0.0) if math.isinf(mu) else target
        self._account = AtomicReference(_Account())
        self._checked: tuple[_Account | None, float, Cost] = None, 0.0, _NOTHING
        self._owner = Owner()

    @property
    def releases(self) -> tuple[LedgerEntry, ...]:
        return in_order(self._account.get().entries)

    def paid(self) -> tuple[tuple[LedgerEntry, ...], float]:
        """All releases, and the Gaussian-DP parameter of what they spent, rounded up."""
        account = self._account.get()
        return in_order(account.entries), mu_rounded_up(account.spent)

    def close(self) -> tuple[tuple[LedgerEntry, ...], Cost]:
        """All releases and their cost, and none from now on: what another thread records is included, or refused."""
        closed = self._account.update(lambda before: _Account(before.entries, before.spent, is_open=False))
        return in_order(closed.entries), closed.spent

    @property
    def spent_mu(self) -> float:
        """Gaussian-DP parameter of what is spent, rounded up."""
        return mu_rounded_up(self._account.get().spent)

    def whole_target(self) -> tuple[float, float]:
        """The (epsilon, delta) of a budget used by this run alone, for answers about samples, which no mu describes.

        Raises PrivacyBudgetError, before data are read, if there is no such budget.
        """
        if self._target is None:
            raise PrivacyBudgetError(
                "answers about samples need a separate (epsilon, delta) budget: pass epsilon= and delta=, not "
                "rho= or mu=, and not part of a budget that other runs spend from; no data was read and nothing was "
                "spent"
            )
        self.check(self.mu)
        return self._target

    def affordable(self, share: float | None) -> float:
        """Gaussian-DP parameter of ``share`` of mu^2 as `begin` found it, or (None) of what is left; rounded down.

        Raises as `check` does, and where nothing is left.
        """
        mu = self.remaining if share is None else split_budget(self._whole, share)[0]
        self.check(mu)
        if not mu > 0:
            raise PrivacyBudgetError(f"nothing is left: this run has spent mu = {self.spent_mu:.6g} of {self.mu:.6g}")
        return mu

    def begin(self) -> None:
        """From here on shares are of what is left now: what comes before has prepared the problem."""
        self._whole = self.remaining

    @property
    def remaining(self) -> float:
        """Gaussian-DP parameter of what is not spent, rounded down."""
        spent = self._account.get().spent
        return mu_rounded_down(cost_of(self.mu) - spent) if spent and math.isfinite(self.mu) else self.mu

    def check(self, mu: float) -> None:
        """Raise PrivacyBudgetError if a release of cost mu^2 exceeds the limit, or in a closed or forked ledger."""
        self._spent_after(self._account.get(), mu)

    def _spent_after(self, account: _Account, mu: float) -> Cost:
        """What is spent after one release more, which must be affordable."""
        self._owner.require("this ledger")
        if not account.is_open:
            raise PrivacyBudgetError("this ledger is closed: reserve a new share of the budget")
        checked, of, spent = self._checked
        if checked is account and of == mu:  # exact additions are slow, and this one was made before data were read
            return spent
        spent, whole = _added(account.spent, cost_of(mu)), cost_of(self.mu)
        if spent is not whole and spent > whole:  # most runs spend all at once
            raise PrivacyBudgetError(
                f"a release with mu = {mu:.6g} exceeds the budget: this run may spend mu = {self.mu:.6g} and has spent "
                f"mu = {mu_rounded_up(account.spent):.6g}; this query read nothing and spent nothing"
            )
        self._checked = account, mu, spent
        return spent

    def __getstate__(self) -> NoReturn:
        raise TypeError("a Ledger cannot be copied or pickled: two copies could each spend it")

    def record(self, release: LedgerEntry) -> None:
        """Record a release, before its noise is drawn: what fails later has been paid for."""
        if release.mu is None:
            self.whole_target()
        mu = self.mu if release.mu is None else release.mu
        self._account.update(lambda before: _Account((before.entries, release), self._spent_after(before, mu)))
        if (transcript := watching.get()) is not None:
            transcript.note_payment(release)
        _log.info("paid mu = %.6g for %s", mu, release.query)


# what a run may spend: its mu, and (epsilon, delta) if it is the whole of such a budget
Amount = tuple[float, tuple[float, float] | None]


@dataclass(frozen=True)
class Reservation:
    """A part of a budget that a run may spend: an `Amount` with a name."""

    name: str
    mu: float
    target: tuple[float, float] | None


class Neighbours(NamedTuple):
    """Which data sets a budget compares: how they differ, and in what, a text; None where nothing has said yet."""

    adjacency: Adjacency | None
    unit: str | None


@dataclass(frozen=True)
class Balance:
    """What is reserved and what is spent of a budget of this ``mu``."""

    mu: float
    fixed: Neighbours  # what it was given
    neighbours: Neighbours
    reserved: Mapping[str, Reservation] = field(default_factory=dict)
    released: Entries = None
    spent: Cost = Fraction(0)

    @property
    def free(self) -> Cost:
        """What is neither spent nor reserved."""
        if math.isinf(self.mu):
            return math.inf
        reserved = sum(cost_of(each.mu) for each in self.reserved.values())
        return max(Fraction(0), cost_of(self.mu) - self.spent - reserved)

    def reserve(self, reservation: Reservation, neighbours: Neighbours) -> Balance:
        """The balance with a reservation."""
        reserved = {**self.reserved, reservation.name: reservation}
        return Balance(self.mu, self.fixed, neighbours, reserved, self.released, self.spent)

    def settle(self, name: str, entries: Sequence[LedgerEntry], cost: Cost) -> Balance:
        """The balance with what was released, for this cost, in place of a reservation."""
        reserved = {each: self.reserved[each] for each in self.reserved if each != name}
        released = self.released
        for entry in entries:
            released = (released, entry)
        neighbours = self.neighbours if reserved or released else self.fixed
        return Balance(self.mu, self.fixed, neighbours, reserved, released, _added(self.spent, cost))


class MemoryStore:
    """A balance that ends with its process; threads change it one after another."""

    def __init__(self, balance: Balance) -> None:
        self._balance = AtomicReference(balance)
        self._names = count()
        self.owner = Owner()

    @property
    def known(self) -> Balance:
        return self._balance.get()

    def balance(self) -> Balance:
        return self.known

    def reserve(self, choose: Callable[[Balance], Amount], neighbours: Neighbours) -> Reservation:
        """Hold the part that ``choose`` finds in the balance."""
        self.owner.require("this budget")
        name = str(next(self._names))
        after = self._balance.update(lambda before: before.reserve(Reservation(name, *choose(before)), neighbours))
        return after.reserved[name]

    def settle(self, name: str, ledger: Ledger) -> Balance | None:
        """The balance after a reservation was replaced by what a ledger holds; None in a forked copy."""
        if not self.owner.is_here:
            return None
        entries, cost = ledger.close()
        return self._balance.update(lambda balance: balance.settle(name, entries, cost))


_forks: list[None] = []
if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=lambda: _forks.append(None))


class Owner:
    """The process that created this object.

    Identified by the number of forks that led to it, since process ids are reused. A fork that Python does not notice,
    by a C library, is identified by the process id.
    """

    def __init__(self) -> None:
        self._process = len(_forks), os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return self._process == (len(_forks), os.getpid())

    def require(self, what: str) -> None:
        """Raise PrivacyBudgetError in any other process."""
        if not self.is_here:
            raise PrivacyBudgetError(f"{what} belongs to another process: a forked copy could spend it again")


Row: TypeAlias = tuple[str, ...]

# the columns of a ledger as a table of texts, numbers rounded against ourselves
LEDGER = ("Release", "Share", "mu", "Deviation of the noise", "Rounding")


def up(value: float, digits: int = 4) -> str:
    """A number with this many significant digits, rounded up."""
    if not math.isfinite(value):
        return str(value)
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))):.{digits}g}"


def down(value: float, digits: int = 4) -> str:
    """The same, of a number that is not negative, rounded down."""
    return up(-value, digits).removeprefix("-")


def percent(share: float) -> str:
    """A fraction in percent, rounded up."""
    return f"{up(min(100 * share, 100.0), 3)} %"


def ledger_rows(releases: Iterable[LedgerEntry], mu: float | None) -> Iterator[Row]:
    """A row for each entry, or for several in a row that differ in their number only; shares are of this total."""
    for _, group in groupby(releases, _without_numbers):
        entries = list(group)
        first = entries[0]
        query = first.query if len(entries) == 1 else f"{first.query} (and {len(entries) - 1} more like it)"
        noise = ", ".join(f"{block.name}: {block.deviation:.3g}" for block in first.noise) or "none"
        price = "none: samples" if first.mu is None else up(first.mu) + " each" * (len(entries) > 1)
        yield query, _share(entries, mu), price, noise, first.rounding


def _without_numbers(entry: LedgerEntry) -> object:
    return re.sub(r"\d+", "", entry.query), entry.mu, entry.noise, entry.grid_bits


def _share(entries: Sequence[LedgerEntry], mu: float | None) -> str:
    each = entries[0].mu
    if each is None:
        return "all"
    if mu is None or math.isinf(mu):
        return ""
    return percent(len(entries) * (each / mu) ** 2)
