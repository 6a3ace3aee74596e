"""A balance that outlives its process: it is what the records of a file say (`BudgetFile`)."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, TypeVar

from dpgep._watched import naming
from dpgep.errors import PrivacyBudgetError, warn
from dpgep.privacy.budget_file import FORMAT, BudgetFile, Record
from dpgep.privacy.ledger import Amount, Balance, Ledger, LedgerEntry, Neighbours, Owner, Reservation
from dpgep.serialization import decoded, encoded

T = TypeVar("T")

NUMBERS = ("epsilon", "rho", "mu", "delta")


class FileStore:
    """The balance of a budget in a file. Each change is on the disk before it counts.

    Attributes
    ----------
    path : of the file.
    purpose : what this process spends for, or None.
    header : the first record: the terms of the budget.
    """

    header: Record

    def __init__(self, path: str | os.PathLike[str], purpose: str | None) -> None:
        self._file = BudgetFile(path)
        self.path, self.purpose = self._file.path, purpose
        self.owner = Owner()

    def open(self, given: dict[str, Any], create: Callable[[], Record]) -> None:
        """Read the file. If there is none, it begins with what ``create`` returns; else it must agree with the terms.

        Raises PrivacyBudgetError, OSError, and what ``create`` does.
        """
        with suppress(FileNotFoundError):
            self._file.locked(lambda _: self._file.read(), write=False)
        if not self._file.records:
            header = {**_stamp(), "kind": "budget", "format": FORMAT, **create()}
            self._file.locked(lambda _: self._file.read() or self._file.append(header), write=True, create=True)
        self.header = self._file.records[0]
        if self.header.get("kind") != "budget" or self.header.get("format") != FORMAT:
            raise PrivacyBudgetError(f"the budget in {self.path} was written by another version of dpgep")
        for name, value in given.items():
            stored = self.header.get(name)
            if (float(value) if name in NUMBERS else value) != stored:
                has = f"has {name} = {stored!r}, not {value!r}" if name in self.header else f"is not given in {name}"
                raise PrivacyBudgetError(f"the budget in {self.path} {has}; no data was read and nothing was spent")

    def begin(self, untouched: Balance) -> None:
        """The balance before the first record; what cannot be understood is refused at once."""
        self._state = untouched, 0  # the balance after this many records
        self._apply()

    @property
    def known(self) -> Balance:
        """The balance when this process looked last."""
        return self._state[0]

    def balance(self) -> Balance:
        """The balance after all that others wrote."""
        return self._read(lambda: self.known)

    def records(self) -> tuple[Record, ...]:
        return self._read(lambda: tuple(map(dict, self._file.records)))

    def open_reservations(self) -> tuple[Record, ...]:
        """The records of what is reserved and not settled."""
        return self._read(
            lambda: tuple(dict(each) for each in self._file.records if each.get("reservation") in self.known.reserved)
        )

    def reserve(self, choose: Callable[[Balance], Amount], neighbours: Neighbours) -> Reservation:
        """Hold the part that ``choose`` finds in the balance, whose neighbours are always given."""
        self.owner.require("this budget")
        name = naming.get()(16)

        def write(is_awaited: Callable[[], bool]) -> Reservation:
            reservation = Reservation(name, *choose(self.known))
            purpose = {} if self.purpose is None else {"purpose": self.purpose}
            try:
                self._write({"kind": "reserve", "reservation": name, "mu": reservation.mu, **purpose})
                if not is_awaited():
                    raise InterruptedError
            except BaseException:
                with suppress(Exception):  # it may be on the disk; if it cannot be withdrawn, it counts as spent
                    self._read_and_apply()
                    if name in self.known.reserved:
                        self._write_settlement(name, ())
                raise
            return reservation

        try:
            return self._locked(write, write=True)
        except OSError as error:
            raise PrivacyBudgetError(
                f"the budget in {self.path} cannot be written ({error.strerror}); no data was read"
            ) from error

    def settle(self, name: str, ledger: Ledger) -> Balance | None:
        """The balance after a reservation was replaced by what a ledger holds; None in a forked copy."""
        if not self.owner.is_here:
            return None
        entries = ledger.close()

        def write() -> Balance:
            if name not in self.known.reserved:
                raise self._given_back(name)
            self._write_settlement(name, entries)
            return self.known

        try:
            return self._locked(lambda _: write(), write=True)
        except OSError as error:
            self._require_not_given_back(name)
            message = (
                f"the budget in {self.path} could not be written ({error.strerror}): the run may have spent less, but "
                f"all of its reservation {name} counts as spent"
            )
            warn(message, RuntimeWarning)
            return self.known

    def give_back(self, name: str) -> None:
        """Free a reservation, by hand. Raises ValueError if none of this name is open."""
        self.owner.require("this budget")

        def write() -> None:
            if name not in self.known.reserved:
                raise ValueError(f"the budget in {self.path} has no open reservation {name!r}")
            self._write({"kind": "give back", "reservation": name})

        self._locked(lambda _: write(), write=True)

    def _require_not_given_back(self, name: str) -> None:
        try:
            records = self.records()
        except OSError as error:
            raise PrivacyBudgetError(
                f"the budget in {self.path} cannot be read ({error.strerror}): whether reservation {name} was given "
                "back by hand is unknown, so the result is withheld; unless it was, all of it counts as spent"
            ) from error
        if any((each["kind"], each.get("reservation")) == ("give back", name) for each in records):
            raise self._given_back(name)

    def _given_back(self, name: str) -> PrivacyBudgetError:
        return PrivacyBudgetError(
            f"the reservation {name} of this run was given back by hand while the run went on: its result is "
            "withheld, and nothing was spent"
        )

    def _write_settlement(self, name: str, entries: Sequence[LedgerEntry]) -> None:
        self._write({"kind": "settle", "reservation": name, "releases": encoded(tuple(entries))})

    def _write(self, fields: Record) -> None:
        self._file.append({**_stamp(), **fields})
        self._apply()

    def _read(self, look: Callable[[], T]) -> T:
        """What ``look`` finds after all that others wrote; in a forked copy, after what they wrote before the fork."""
        return self._locked(lambda _: look(), write=False) if self.owner.is_here else look()

    def _locked(self, work: Callable[[Callable[[], bool]], T], *, write: bool) -> T:
        """What ``work`` returns, with the lock of the file, after all that others wrote: `BudgetFile.locked`."""

        def after_others(is_awaited: Callable[[], bool]) -> T:
            self._read_and_apply()
            return work(is_awaited)

        return self._file.locked(after_others, write=write)

    def _read_and_apply(self) -> None:
        self._file.read()
        self._apply()

    def _apply(self) -> None:
        """Bring the balance up to date with the records that were read or appended."""
        balance, count = self._state
        for number, record in enumerate(self._file.records[count:], count + 1):
            try:
                balance = self._after(balance, record)
            except PrivacyBudgetError:
                raise
            except (KeyError, TypeError, ValueError) as error:
                raise PrivacyBudgetError(
                    f"the budget in {self.path} cannot be used: its line {number} makes no sense"
                ) from error
        self._state = balance, len(self._file.records)

    def _after(self, balance: Balance, record: Record) -> Balance:
        kind = record["kind"]
        if kind == "budget":
            return balance
        if kind not in ("reserve", "settle", "give back"):
            raise PrivacyBudgetError(f"the budget in {self.path} has records of a later version of dpgep: {kind!r}")
        name = record["reservation"]
        if kind == "reserve":
            mu = record["mu"]
            if name in balance.reserved or not (isinstance(mu, float) and 0 <= mu < math.inf):
                raise ValueError
            return balance.reserve(Reservation(name, mu, None), balance.neighbours)
        if name not in balance.reserved:
            raise ValueError
        releases = record["releases"] if kind == "settle" else []
        return balance.settle(name, decoded(releases, tuple[LedgerEntry, ...], "releases"))


def _stamp() -> Record:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"time": now, "process": f"{os.getpid()}@{platform.node()}"}
