"""What an audit watches of a run (see `dpgep.auditing.replay`): draws of noise, payments, and names drawn at random.

Only an audit makes a transcript, for the time of a run whose result it keeps to itself. A stream that was made
meanwhile, in the same context, hands every exact value over before its noise, and draws nothing once the run is over:
none of this happens in other runs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dpgep._dispatch import core

# the transcript of an audit in this context
watching: ContextVar[Transcript | None] = ContextVar("watching", default=None)
# draws a name that no other object has, of this many bytes
naming: ContextVar[Callable[[int], str]] = ContextVar("naming", default=secrets.token_hex)
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

    def note_payment(self, entry: object) -> None:
        """Note what a ledger has recorded."""
        if self.is_open:
            self.payments.append((self.draws.n_queries, entry))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Streams made in this block, and ledgers that record in it, are watched."""
        token = watching.set(self)
        try:
            yield
        finally:
            watching.reset(token)
            self._is_over = True
            self.draws.close()


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
    tokens = _noting.set(names), naming.set(lambda n_bytes: noted(secrets.token_hex(n_bytes)))
    try:
        yield names
    finally:
        _noting.reset(tokens[0])
        naming.reset(tokens[1])
