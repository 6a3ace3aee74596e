"""What no interrupt can leave half done: a value replaced in one step, and work on a thread of its own.

Ctrl-C, or any signal whose handler raises, may end the main thread's work between any two instructions of the
interpreter: between taking a lock and entering the `with` block, at the first instruction of an `__exit__`, in a
`finally` before it has released anything. Which instructions are safe differs from one CPython to the next. So the main
thread never holds a lock that others wait for.
"""

from __future__ import annotations

import _thread
import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)

# Seconds after which a wait says what it waits for.
_PATIENCE = 3.0

_here = threading.local()


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
