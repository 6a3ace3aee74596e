"""The file of a budget that lasts: lines of JSON that are only ever appended, each with the hash of all before it.

The balance of such a budget is what these records say (`FileStore`).

A second small file, the head, says how many bytes of the first are acknowledged, so that lost lines are noticed: a line
is appended and forced to the disk, then the head, and only then does the caller go on. At most one line is therefore
not acknowledged. Where it is whole, it counts. Where it is torn (the power was cut, or the disk was full), it is
dropped, which is safe: nobody was told that it was written, so if it was a reservation, no data was read; if it was a
settlement, its reservation stays spent. Any other damage is refused. docs/budgets.md describes the lines.
"""

from __future__ import annotations

import _thread
import errno
import hashlib
import json
import logging
import math
import os
import platform
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from dpgep._watched import naming
from dpgep.errors import PrivacyBudgetError, warn
from dpgep.privacy.ledger import Amount, Balance, Ledger, LedgerEntry, Neighbours, Owner, Reservation, total_cost
from dpgep.serialization import decoded, encoded, sync_folder

T = TypeVar("T")

_log = logging.getLogger(__name__)

Record = dict[str, Any]

FORMAT = 2
# The head is one write within a sector: a disk writes it whole or not at all.
_HEAD_BYTES = 160
_FIRST = b'{"n":1,'
_HASH_BYTES = 64
_NOTHING = "0" * _HASH_BYTES
_sync = getattr(os, "fdatasync", os.fsync)
_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

# Seconds after which a wait says what it waits for.
_PATIENCE = 3.0
# Seconds between two attempts to lock a file: the first, and the longest.
_PAUSE, _LONGEST_PAUSE = 0.001, 0.05

# Locks of files are between open files, and on some file systems between processes: threads take turns before, all of
# them threads of `undisturbed`. A fork waits for the turn to end, lest a child inherit the locked file. It calls these
# methods from C, the last one also if the others raise: if the wait was interrupted, the turn of a thread that the
# child does not have is freed there.
_turn = threading.RLock()
if hasattr(os, "register_at_fork"):
    anew: Callable[[], None] = _turn._at_fork_reinit  # type: ignore[attr-defined]
    os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=anew)

_here = threading.local()

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 62  # a locked byte cannot be read by others: one beyond all that is written

    def try_lock(descriptor: int, exclusive: bool) -> bool:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def try_lock(descriptor: int, exclusive: bool) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # also where a forked child has inherited the file


NUMBERS = ("epsilon", "rho", "mu", "delta")


class BudgetFile:
    """The records of the file at ``path``, and its lock; what they mean is the caller's affair.

    Every access is by `locked`. Each reads the whole file and compares it with what was read before.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))
        self.records: list[Record] = []  # that were read or appended
        self._head_path = self.path.with_name(self.path.name + ".head")
        self._known, self._last = b"", _NOTHING  # the lines of these records, and the hash of the last one
        self._acknowledged = 0
        self._descriptor = -1

    def locked(self, work: Callable[[Callable[[], bool]], T], *, write: bool, create: bool = False) -> T:
        """What ``work`` returns, while no other process writes to the file; and with ``write``, none reads it.

        It runs on a thread of its own, and its argument says whether the caller still waits: see `undisturbed`. Raises
        OSError.
        """

        def when_free(is_awaited: Callable[[], bool]) -> T:
            pause = _PAUSE
            while is_awaited():
                with _turn, self._opened(write=write, create=create) as descriptor:
                    if try_lock(descriptor, write):
                        try:
                            self._require_in_place(descriptor)
                            self._descriptor = descriptor
                            return work(is_awaited)
                        finally:
                            unlock(descriptor)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            raise InterruptedError

        return undisturbed(when_free, f"the budget in {self.path}: another process uses it, or its disk is slow")

    @contextmanager
    def _opened(self, *, write: bool, create: bool) -> Iterator[int]:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise PrivacyBudgetError(f"{self.path} is not a regular file and cannot hold a budget")
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(self.path, flags, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self) -> list[Record]:
        """All records. Raises PrivacyBudgetError for a damaged file."""
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(0)
            text = file.read()
        if not text.startswith(self._known):
            raise self._refusal("lines that this process has read before were changed, or are gone")
        self._acknowledged = self._acknowledged_bytes(text)
        records, last, end = [], self._last, len(self._known)
        while (next_end := text.find(b"\n", end) + 1) > 0:
            line = text[end:next_end]
            record = _record(last, line)
            if record is None:
                break
            records.append(record)
            last, end = _hash_of(line), next_end
        if end < self._acknowledged:
            raise self._refusal(f"line {len(self.records) + len(records) + 1} was changed or is damaged")
        if records:
            self._keep(records, text[len(self._known) : end], last)
        return self.records

    def append(self, fields: Record) -> list[Record]:
        """Append a record to all those read. When this returns, it is on the disk. Raises OSError."""
        line = _line(self._last, {"n": len(self.records) + 1, **fields})
        start = len(self._known)
        if self._acknowledged:
            os.close(os.open(self._head_path, os.O_WRONLY))  # if not even that is possible, nothing is written
        if self._acknowledged < start:  # a line of a process that was killed: never may two be beyond the head
            self._acknowledge(start, self._last)
        if os.fstat(self._descriptor).st_size > start:
            os.ftruncate(self._descriptor, start)  # a torn line: see above
        os.lseek(self._descriptor, start, os.SEEK_SET)
        write_all(self._descriptor, line)
        record = _record(self._last, line)
        assert record is not None
        self._acknowledge(start + len(line), _hash_of(line))
        self._keep([record], line, _hash_of(line))  # not before: a line of which the caller is not told is read again
        return self.records

    def _keep(self, records: list[Record], lines: bytes, last: str) -> None:
        records, known = self.records + records, self._known + lines
        self.records, self._known, self._last = records, known, last

    def _require_in_place(self, descriptor: int) -> None:
        """The file may have been replaced while this process waited for its lock: what it spent would be lost."""
        if sys.platform != "win32" and not os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
            raise self._refusal("it was replaced while this process opened it")

    def _acknowledged_bytes(self, text: bytes) -> int:
        """How many bytes of the file are acknowledged, which must be there."""
        length, last = self._head()
        if not length and text.count(b'"hash":"') > 1:
            raise self._refusal(f"its head, {self._head_path.name}, is missing: keep the two files together")
        if not length and not (text.startswith(_FIRST) or _FIRST.startswith(text)):
            raise PrivacyBudgetError(f"{self.path} is not the file of a budget; it was left as it is")
        if len(text) < length:
            raise self._refusal("lines at its end are missing")
        if length and not text.endswith(f',"hash":"{last}"}}\n'.encode(), 0, length):
            raise self._refusal("its last line was changed, or its head belongs to another file")
        if text.count(b"\n", length) > 1:
            raise self._refusal(f"its head, {self._head_path.name}, is older than its lines")
        return length

    def _head(self) -> tuple[int, str]:
        """The number of acknowledged bytes and the hash of the last line; (0, "") before anything is acknowledged."""
        try:
            head = self._head_path.read_bytes()
        except FileNotFoundError:
            head = b""
        if not head:
            return 0, ""
        try:
            fields = json.loads(head)
            length, last = fields["bytes"], fields["hash"]
            if head != _head(length, last) or not length > 0:
                raise ValueError
            return length, last
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._refusal(f"its head, {self._head_path.name}, is damaged") from None

    def _acknowledge(self, length: int, last: str) -> None:
        """Force the file to the disk, then a head that says so; the first one after the names of both."""
        force(self._descriptor)
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)
        descriptor = os.open(self._head_path, flags, 0o600)
        try:
            if not self._acknowledged:
                sync_folder(self.path.parent)
            write_all(descriptor, _head(length, last))
            force(descriptor)
        finally:
            os.close(descriptor)
        self._acknowledged = length

    def _refusal(self, what: str) -> PrivacyBudgetError:
        return PrivacyBudgetError(
            f"the budget in {self.path} cannot be used: {what}. Restore both of its files as the last run left them, "
            "or count the whole budget as spent; no data was read"
        )


def _record(previous: str, line: bytes) -> Record | None:
    """The fields of a line; None unless its hash is that of it and all lines before."""
    try:
        fields: Record = json.loads(line.decode())
        fields.pop("hash")
        return fields if line == _line(previous, fields) else None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def _line(previous: str, fields: Record) -> bytes:
    """The line of a record: JSON without spaces, its hash last."""
    body = _encoded(fields)
    digest = hashlib.sha256(f"{previous}{body}".encode()).hexdigest()
    return f'{body[:-1]},"hash":"{digest}"}}\n'.encode()


def _hash_of(line: bytes) -> str:
    return line[-_HASH_BYTES - 3 : -3].decode()


def _head(length: int, last: str) -> bytes:
    fields = json.dumps({"bytes": length, "hash": last})
    return fields.ljust(_HEAD_BYTES - 1).encode() + b"\n"


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def force(descriptor: int) -> None:
    """To the disk, and not into its cache only."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        _sync(descriptor)


def undisturbed(work: Callable[[Callable[[], bool]], T], waiting_for: str) -> T:
    """What ``work`` returns, or raises, run to its end on a thread of its own.

    Python runs the handlers of signals in the main thread alone: here nothing comes between taking a lock and releasing
    it. The caller waits, and after some seconds says for what. Its wait may be interrupted; ``work`` then goes on, and
    the function that it was given returns False from there on: nobody will see what it returns.

    Raises OSError if no thread can be started (there are too many, or the interpreter is ending), and within ``work``,
    which would wait for itself: the garbage collector may settle a forgotten reservation anywhere.
    """
    if hasattr(_here, "is_working"):
        raise OSError(errno.EDEADLK, os.strerror(errno.EDEADLK))
    done, wanted = threading.Lock(), [True]
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        _here.is_working = True
        try:
            results.append(work(lambda: bool(wanted)))
        except BaseException as error:
            errors.append(error)
        finally:
            done.release()

    try:
        done.acquire()
        _start(run)
        if not done.acquire(timeout=_PATIENCE):
            _log.warning("still waiting for %s; Ctrl-C gives up", waiting_for)
            done.acquire()
    except BaseException:
        wanted.clear()
        raise
    if errors:
        raise errors.pop()
    return results.pop()


def _start(run: Callable[[], None]) -> None:
    """Not by `threading.Thread`: its start takes locks, and an exit of the process would wait for its end."""
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "no thread can be started") from error


class FileStore:
    """The balance of a budget in a file. Each change is on the disk before it counts."""

    header: Record  # the first record: the terms of the budget

    def __init__(self, path: str | os.PathLike[str], purpose: str | None) -> None:
        self._file = BudgetFile(path)
        self.path, self.purpose = self._file.path, purpose  # what this process spends for, or None
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
            raise PrivacyBudgetError(
                f"the budget in {self.path} was written by another version of dpgep: go on with that one"
            )
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
        entries, _ = ledger.close()

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
        releases = decoded(record["releases"] if kind == "settle" else [], tuple[LedgerEntry, ...], "releases")
        return balance.settle(name, releases, total_cost(releases, balance.mu))


def _stamp() -> Record:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"time": now, "process": f"{os.getpid()}@{platform.node()}"}
