"""What ends a command from outside: Ctrl-C, the end of its terminal, or the system. What is paid for is kept first."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from dpgep import _starting

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
# Seconds within which a further signal says no more than the first: keys are pressed twice, and repeat themselves.
_ONE_PRESS = 1.0

_PAID = (
    b"\ndpgep: interrupted, but a part of the budget is spent: the run goes on until its answer is kept. Interrupt it "
    b"again to end it without an answer\n"
)
_UNPAID = b"\ndpgep: interrupted; the run ends when its budget is as before. Interrupt it again to end it at once\n"


class Interrupts:
    """The handler of these signals: one for all of a command, so that none falls between two.

    A signal is a KeyboardInterrupt while the run has paid for nothing. From then on it is remembered until the answer
    is kept, and only a second one ends the run before that, unless the answer is there and is being kept.

    Attributes
    ----------
    number : of the last signal; 0 if none came.
    spent : what the command has spent, in words.
    """

    def __init__(self) -> None:
        self.number = 0
        self.spent: Callable[[], str] = lambda: "nothing was spent"
        self._last = 0.0
        self._is_paid: Callable[[], object] = lambda: False
        self._is_held = self._is_deaf = False
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Handle the signals, except those that are ignored (nohup) or that the caller of Python handles."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)):
            before = signal.getsignal(number)
            if before in (signal.SIG_DFL, signal.default_int_handler, _starting.stop):
                self._before[number] = before
                signal.signal(number, self._arrived)

    def restore(self) -> None:
        """Handle them as before; where the process ends here, Ctrl-C has nothing more to say."""
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if before is _starting.stop else before)

    def hold(self) -> None:
        self._is_held = True

    def hold_when(self, is_paid: Callable[[], object]) -> None:
        """Remember a signal as soon as something is paid for. One that came while held is raised now."""
        self._is_held, self._is_paid = False, is_paid
        if self.number:
            self._raise()

    def ignore(self) -> None:
        """No signal ends the run from here on, or until `kept`: what is left to do is short."""
        self._is_held = self._is_deaf = True

    def kept(self) -> None:
        """The answer is kept, or printed: a signal that came is raised now."""
        self._is_deaf = False
        self.hold_when(lambda: False)

    def _arrived(self, number: int, _: FrameType | None) -> None:
        is_second = self.number != 0 and time.monotonic() > self._last + _ONE_PRESS
        self.number, self._last = number, time.monotonic()
        is_paid = self._is_paid()
        if self._is_deaf:
            return
        if is_second or not (self._is_held or is_paid):
            self._raise()
        _tell(_PAID if is_paid else _UNPAID)

    def _raise(self) -> NoReturn:
        self._is_held = True  # what the interrupt sets in motion is not interrupted
        raise KeyboardInterrupt


def _tell(message: bytes) -> None:
    """Write to stderr, in which the interrupted code may be writing: not through its buffer."""
    if sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            os.write(sys.__stderr__.fileno(), message)
