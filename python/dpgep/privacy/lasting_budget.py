"""A budget that outlives its process: its state is what the records of its file say (`BudgetFile`)."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from dpgep.errors import PrivacyBudgetError, warn
from dpgep.models.model import Adjacency
from dpgep.privacy.budget import Balance, Budget, Reservation
from dpgep.privacy.budget_file import FORMAT, BudgetFile, Record
from dpgep.privacy.events import event_from_json, event_to_json
from dpgep.privacy.interrupts import AtomicReference
from dpgep.privacy.ledger import Ledger, LedgerEntry, NoiseBlock

T = TypeVar("T")

_FORMS = ("epsilon", "rho", "mu")
_NUMBERS = (*_FORMS, "delta")
_TERMS = (*_NUMBERS, "accounting", "adjacency")


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

    def __init__(self, file: BudgetFile, header: Record, purpose: str | None) -> None:
        super().__init__(**{name: header[name] for name in _TERMS if name in header})
        self.path: Path = file.path
        self.dataset: str = header["dataset"]
        self.purpose = purpose
        self._file = file
        self._untouched = self._balance.get()
        self._records: list[Record] = []
        self._is_current = False  # whether all records that were read are applied

    @property
    def history(self) -> tuple[dict[str, Any], ...]:
        """The records of the file, in the order in which they were written: docs/budgets.md describes them."""
        return self._read(lambda: tuple(map(dict, self._records)))

    @property
    def open_reservations(self) -> tuple[dict[str, Any], ...]:
        """The records of the reservations that are not settled: of runs that go on, or of processes that died."""
        return self._read(lambda: tuple(dict(each) for each in self._records if self._is_open(each.get("reservation"))))

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
        self._owner.require("this budget")

        def write() -> None:
            if not self._is_open(reservation):
                raise ValueError(f"the budget in {self.path} has no open reservation {reservation!r}")
            self._write({"kind": "give back", "reservation": reservation})

        self._locked(lambda _: write(), write=True)

    def _take(self, part: float | None, amount: float | None, mu: float | None, adjacency: Adjacency) -> Reservation:
        try:
            return super()._take(part, amount, mu, adjacency)
        except OSError as error:
            raise PrivacyBudgetError(
                f"the budget in {self.path} cannot be written ({error.strerror}); no data was read"
            ) from error

    def _settle(self, name: str, ledger: Ledger) -> None:
        try:
            super()._settle(name, ledger)
        except OSError as error:
            self._require_not_given_back(name)
            message = (
                f"the budget in {self.path} could not be written ({error.strerror}): the run may have spent less, but "
                f"all of its reservation {name} counts as spent"
            )
            warn(message, RuntimeWarning)

    def _require_not_given_back(self, name: str) -> None:
        try:
            records = self.history
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

    def _begin(self, name: str, choose: Callable[[Balance], Reservation], adjacency: Adjacency) -> Reservation:
        def reserve(is_awaited: Callable[[], bool]) -> Reservation:
            reservation = choose(self._balance.get())
            try:
                self._write({"kind": "reserve", "reservation": name, "mu": reservation.mu})
                if not is_awaited():
                    raise InterruptedError
            except BaseException:
                with suppress(Exception):  # it may be on the disk; if it cannot be withdrawn, it counts as spent
                    self._catch_up()
                    if self._is_open(name):
                        self._write_settlement(name, ())
                raise
            return reservation

        return self._locked(reserve, write=True)

    def _finish(self, name: str, entries: Sequence[LedgerEntry]) -> None:
        def settle() -> None:
            if not self._is_open(name):
                raise self._given_back(name)
            self._write_settlement(name, entries)

        self._locked(lambda _: settle(), write=True)

    def _write_settlement(self, name: str, entries: Sequence[LedgerEntry]) -> None:
        self._write({"kind": "settle", "reservation": name, "releases": [_entry_to_json(entry) for entry in entries]})

    def _is_open(self, name: Any) -> bool:
        return name in self._balance.get().reserved

    def _now(self) -> Balance:
        return self._read(self._balance.get)

    def _read(self, look: Callable[[], T]) -> T:
        """What ``look`` finds after all that others wrote; in a forked copy, after what they wrote before the fork."""
        return self._locked(lambda _: look(), write=False) if self._owner.is_here else look()

    def _locked(self, work: Callable[[Callable[[], bool]], T], *, write: bool) -> T:
        """What ``work`` returns, with the lock of the file, after all that others wrote: `BudgetFile.locked`."""

        def after_others(is_awaited: Callable[[], bool]) -> T:
            self._catch_up()
            return work(is_awaited)

        return self._file.locked(after_others, write=write)

    def _catch_up(self) -> None:
        """Apply what other processes, and other objects of this one, have written; all, if that was interrupted."""
        if not self._is_current:
            self._file.rewind()
            self._records, self._balance = [], AtomicReference(self._untouched)
        self._is_current = False
        for record in self._file.read():
            self._apply(record)
        self._is_current = True

    def _write(self, fields: Record) -> None:
        purpose = {} if self.purpose is None or fields["kind"] != "reserve" else {"purpose": self.purpose}
        self._is_current = False
        self._apply(self._file.append({**_stamp(), **fields, **purpose}))
        self._is_current = True

    def _apply(self, record: Record) -> None:
        try:
            self._understand(record)
        except PrivacyBudgetError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise PrivacyBudgetError(
                f"the budget in {self.path} cannot be used: its line {len(self._records) + 1} makes no sense"
            ) from error
        self._records.append(record)

    def _understand(self, record: Record) -> None:
        kind = record["kind"]
        if kind == "reserve":
            name, mu = record["reservation"], record["mu"]
            if self._is_open(name) or not (isinstance(mu, float) and 0 <= mu < math.inf):
                raise ValueError
            self._balance.update(lambda balance: balance.reserve(Reservation(name, mu, None), balance.adjacency))
        elif kind in ("settle", "give back"):
            name, releases = record["reservation"], record["releases"] if kind == "settle" else ()
            if not self._is_open(name):
                raise ValueError
            entries = [_entry_from_json(each) for each in releases]
            self._balance.update(lambda balance: balance.settle(name, entries))
        elif kind != "budget":
            raise PrivacyBudgetError(f"the budget in {self.path} has records of a later version of dpgep: {kind!r}")

    def __repr__(self) -> str:
        try:
            return f"{super().__repr__()[:-1]}; {self.dataset!r} in {self.path})"
        except (OSError, PrivacyBudgetError):
            return f"Budget({self.dataset!r} in {self.path}, which cannot be read)"


def open_budget(path: str | os.PathLike[str], given: dict[str, Any], purpose: str | None) -> LastingBudget:
    """The budget at ``path``, created if there is none: see `Budget.open`."""
    for name, text in (("dataset", given.get("dataset")), ("purpose", purpose)):
        if text is not None and (not isinstance(text, str) or not text):
            raise TypeError(f"{name} must be a name, got {text!r}")
    file = BudgetFile(path)
    records = _existing(file) or _created(file, given)
    header = records[0]
    if header.get("kind") != "budget" or header.get("format") != FORMAT:
        raise PrivacyBudgetError(f"the budget in {file.path} was written by a later version of dpgep")
    for name, value in given.items():
        stored = header.get(name)
        if (float(value) if name in _NUMBERS else value) != stored:
            has = f"has {name} = {stored!r}, not {value!r}" if name in header else f"is not given in {name}"
            raise PrivacyBudgetError(f"the budget in {file.path} {has}; no data was read and nothing was spent")
    budget = LastingBudget(file, header, purpose)
    budget._now()  # what cannot be understood is refused at once
    return budget


def _existing(file: BudgetFile) -> list[Record]:
    try:
        return file.locked(lambda _: file.read(), write=False)
    except FileNotFoundError:
        return []


def _created(file: BudgetFile, given: dict[str, Any]) -> list[Record]:
    missing = [] if any(name in given for name in _FORMS) else ["epsilon and delta (or rho, or mu)"]
    missing += [name for name in ("adjacency", "dataset") if name not in given]
    if missing:
        message = f"there is no budget in {file.path}; a new one needs {', '.join(missing)}"
        raise ValueError(message) if given else FileNotFoundError(message)
    budget = Budget(**{name: given[name] for name in _TERMS if name in given})
    if math.isinf(budget.mu):
        raise ValueError("a budget without noise never runs out: it needs no file")
    header = {"kind": "budget", "format": FORMAT, "dataset": given["dataset"], "adjacency": budget.adjacency}
    header |= {"accounting": budget.accounting} | {name: float(given[name]) for name in _NUMBERS if name in given}
    return file.locked(lambda _: file.read() or [file.append({**_stamp(), **header})], write=True, create=True)


def _stamp() -> Record:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"time": now, "process": f"{os.getpid()}@{platform.node()}"}


def _entry_to_json(entry: LedgerEntry) -> Record:
    """The fields of an entry that are not None; infinite noise as a string."""
    noise = [_given(dataclasses.asdict(block)) for block in entry.noise]
    for block in noise:
        deviation = float(block["deviation"])
        block["deviation"] = deviation if math.isfinite(deviation) else str(deviation)
    return _given(
        {
            "query": entry.query,
            "mu": None if entry.mu is None else float(entry.mu),
            "noise": noise,
            "grid_bits": entry.grid_bits,
            "event": None if entry.event is None else event_to_json(entry.event),
        }
    )


def _given(fields: Record) -> Record:
    return {name: value for name, value in fields.items() if value is not None}


def _entry_from_json(fields: Record) -> LedgerEntry:
    noise = tuple(
        NoiseBlock(block["name"], block["shape"], float(block["deviation"]), block.get("scale"))
        for block in fields["noise"]
    )
    event = fields.get("event")
    return LedgerEntry(
        fields["query"], fields.get("mu"), noise, fields.get("grid_bits"), event and event_from_json(event, "event")
    )
