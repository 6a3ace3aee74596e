"""What an audit watches of a run (see `dpgep.auditing.replay`): draws of noise, payments, and names drawn at random.

Only an audit makes a transcript, for the time of a run whose result it keeps to itself. A stream that was made
meanwhile, in the same context, hands every exact value over before its noise, and draws nothing once the run is over:
none of this happens in other runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dpgep._dispatch import core

_watching: ContextVar[Transcript | None] = ContextVar("_watching", default=None)
_noting: ContextVar[list[str] | None] = ContextVar("_noting", default=None)


class Transcript:
    """The draws of a run and its payments, each with the number of draws before it; or a run that follows ``script``.

    With a script, draws get its answers, whatever the exact values are.
    """

    def __init__(self, script: Transcript | None = None) -> None:
        self.draws: core.Transcript = core.Transcript(None if script is None else script.draws)
        self.payments: list[tuple[int, Any]] = []  # with entries of a ledger
        self._process = os.getpid()
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Whether this is its run, in the process where it began."""
        return not self._is_over and self._process == os.getpid()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Streams made in this block, and ledgers that record in it, are watched."""
        token = _watching.set(self)
        try:
            yield
        finally:
            _watching.reset(token)
            self._is_over = True
            self.draws.close()


def watched_draws() -> core.Transcript | None:
    """For a new stream: None, but in an audit."""
    transcript = _watched()
    return None if transcript is None else transcript.draws


def note_payment(entry: object) -> None:
    """Called by a ledger that recorded the entry."""
    transcript = _watched()
    if transcript is not None:
        transcript.payments.append((transcript.draws.n_queries, entry))


def _watched() -> Transcript | None:
    transcript = _watching.get()
    return transcript if transcript is not None and transcript.is_open else None


def random_name() -> str:
    """A name that no other object has."""
    return noted(os.urandom(16).hex())


def noted(name: str) -> str:
    """The name, which follows from random keys."""
    names = _noting.get()
    if names is not None:
        names.append(name)
    return name


@contextmanager
def names_drawn() -> Iterator[list[str]]:
    """The names drawn in this block and this context, in their order: an audit leaves them out of what it compares."""
    names: list[str] = []
    token = _noting.set(names)
    try:
        yield names
    finally:
        _noting.reset(token)
