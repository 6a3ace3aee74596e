"""The file of `dpgep.Nights`: an SQLite database in which a night is there as a whole, or not at all.

    register   one row: what the first night has fixed, public, as a binary file of dpgep; a secret, from which noise is
               drawn, and which follows from all nights before; the exact sums so far
    noise      of the sums so far, on each of the last nights
    nights     number, label, and of all nights so far: number of people where it is public, and published sums
    people     16 bytes for each person, where ids say who they are, and on how many nights they came

It is as confidential as rows, and only its owner can read it. Exact sums, and noise that is no longer needed, are
overwritten.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep.privacy.curator import watched_draws

_APPLICATION, _FORMAT = 0x6470676E, 2
_TABLES = (
    "CREATE TABLE register (description BLOB NOT NULL, secret BLOB NOT NULL, exact BLOB)",
    "CREATE TABLE noise (slot INTEGER PRIMARY KEY, noise BLOB NOT NULL)",
    "CREATE TABLE nights (number INTEGER PRIMARY KEY, label TEXT UNIQUE NOT NULL, people INTEGER NOT NULL,"
    " published BLOB NOT NULL)",
    "CREATE TABLE people (id BLOB PRIMARY KEY, nights INTEGER NOT NULL) WITHOUT ROWID",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_FORMAT}",
)
# A night is on the disk, and the name of its journal gone, before anybody sees what it published.
# The largest pages: a row of 100 columns is in one, for which the first of these counts.
_PRAGMAS = ("page_size = 65536", "journal_mode = DELETE", "synchronous = EXTRA", "secure_delete = ON")
_PATIENCE = 60.0
NO_NIGHTS = "{} holds no nights yet: give their budget, as epsilon= and delta="


class NightFile:
    """The file at ``path``. All that is read or written in one `transaction` is of one state."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))

    @contextmanager
    def transaction(self, *, write: bool = False, create: bool = False) -> Iterator[NightTables]:
        """Its tables: a writer is alone, and what it wrote is on the disk at the end, or gone after an error.

        Raises OSError where it cannot be read or written, ValueError where it is something else.
        """
        if create:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            if not self.path.stat().st_size:  # also where somebody else has made it, for all to read
                self.path.chmod(0o600)
        elif not self.path.exists():
            raise ValueError(NO_NIGHTS.format(self.path))
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=rw", timeout=_PATIENCE, uri=True)) as connection:
                connection.isolation_level = None  # transactions begin and end here alone
                for pragma in _PRAGMAS:
                    connection.execute(f"PRAGMA {pragma}")
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield NightTables(connection, self.path)
                connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise OSError(f"the nights in {self.path} cannot be used: {error}; nothing was added") from error
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} holds no nights, or is damaged: {error}") from error


class NightTables:
    """The tables of a file, within a transaction."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._execute, self._many = connection.execute, connection.executemany
        self.description: bytes | None = None
        if self._number("SELECT count(*) FROM sqlite_master"):
            kind = self._number("PRAGMA application_id"), self._number("PRAGMA user_version")
            if kind != (_APPLICATION, _FORMAT):
                raise ValueError(f"{path} holds no nights, or nights of another version of dpgep")
            (self.description,) = self._execute("SELECT description FROM register").fetchone()

    def begin(self, description: bytes, secret: bytes) -> None:
        """Make the tables."""
        for statement in _TABLES:
            self._execute(statement)
        self._execute("INSERT INTO register VALUES (?, ?, NULL)", (description, secret))
        self.description = description

    def labels(self) -> list[str]:
        """Of all nights, in their order."""
        return [label for (label,) in self._execute("SELECT label FROM nights ORDER BY number")]

    def last(self) -> int:
        """How many nights there are."""
        return self._number("SELECT ifnull(max(number), 0) FROM nights")

    def number(self, label: str) -> int | None:
        """That of a night; None where there is none of this label."""
        found = self._execute("SELECT number FROM nights WHERE label = ?", (label,)).fetchone()
        return None if found is None else int(found[0])

    def so_far(self, number: int) -> tuple[int, NDArray[np.float64]]:
        """(people, published sums) of nights 1 to ``number``; (0, 0) of none."""
        if number < 1:
            return 0, np.zeros(1)
        people, published = self._row("SELECT people, published FROM nights WHERE number = ?", number)
        return int(people), np.frombuffer(published, "<f8")

    def exact(self) -> NDArray[np.int64]:
        """(2, size), limbs of the exact sums of all nights so far; 0 before there are any."""
        (exact,) = self._row("SELECT exact FROM register")
        return np.zeros((2, 1), np.int64) if exact is None else np.frombuffer(exact, "<i8").reshape(2, -1)

    def noise(self, slot: int) -> NDArray[np.int64]:
        """Of the sums up to a night, as `keep` was given it."""
        (noise,) = self._row("SELECT noise FROM noise WHERE slot = ?", slot)
        return np.frombuffer(noise, "<i8")

    def stream(self, exact: NDArray[np.int64]) -> core.NoiseStream:
        """For the noise of the next night: another one for other sums so far, on any night up to this one.

        A hash of the secret and the sums is its key and the secret of nights to come. (If the key followed from this
        night's sums alone, two copies that get the same rows on other nights would subtract the noise of both.)
        """
        (secret,) = self._row("SELECT secret FROM register")
        version = core.__version__.encode()[:16]  # another may draw other noise of the same key
        drawn = hashlib.blake2b(exact.astype("<i8").tobytes(), key=secret, person=version).digest()
        self._execute("UPDATE register SET secret = ?", (drawn[32:],))
        return core.NoiseStream(drawn[:32], transcript=watched_draws())

    def add(self, label: str, people: int, published: NDArray[np.float64]) -> None:
        """Add a night after all others."""
        row = label, people, published.astype("<f8").tobytes()
        self._execute("INSERT INTO nights(label, people, published) VALUES (?, ?, ?)", row)

    def keep(self, slot: int, noise: NDArray[np.int64], exact: NDArray[np.int64]) -> None:
        """Overwrite the exact sums so far, and the noise in this place."""
        self._execute("INSERT OR REPLACE INTO noise VALUES (?, ?)", (slot, noise.astype("<i8").tobytes()))
        self._execute("UPDATE register SET exact = ?", (exact.astype("<i8").tobytes(),))

    def somebody(self) -> list[NDArray[np.uint64]]:
        """The id of one person, where anybody was counted."""
        rows = self._execute("SELECT id FROM people LIMIT 1")
        return [np.frombuffer(blob, "<u8").astype(np.uint64).reshape(1, 2) for (blob,) in rows]

    def came(self, nights: int) -> list[NDArray[np.uint64]]:
        """The ids of all people who came on that many nights."""
        rows = self._execute("SELECT id FROM people WHERE nights >= ?", (nights,))
        ids = np.frombuffer(b"".join(blob for (blob,) in rows), "<u8").astype(np.uint64).reshape(-1, 2)
        return [ids] if len(ids) else []

    def count(self, ids: Iterable[NDArray[np.uint64]], most: int) -> None:
        """Count a night of these people. Raises ValueError where some have more than ``most``."""
        found = ((each.astype("<u8").tobytes(),) for part in ids for each in part)
        self._many("INSERT INTO people VALUES (?, 1) ON CONFLICT(id) DO UPDATE SET nights = nights + 1", found)
        if self._number("SELECT count(*) FROM people WHERE nights > ?", most):
            raise ValueError(
                f"some people were on {most} nights before, as often as they may: leave out their rows of this night"
            )

    def _number(self, question: str, *values: int) -> int:
        return int(self._row(question, *values)[0])

    def _row(self, question: str, *values: int) -> Any:
        return self._execute(question, values).fetchone()
