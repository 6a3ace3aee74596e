"""Which process this is: what was paid for in one must not be spent again in a forked copy of it."""

from __future__ import annotations

import os

from dpgep.errors import PrivacyBudgetError

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_count_fork)


class Owner:
    """The process in which this was made.

    Told by the number of forks that led to it: numbers of processes come again. A fork that Python does not notice, by
    a library in C, is told by the number of the process.
    """

    def __init__(self) -> None:
        self._process = _this_process()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return self._process == _this_process()

    def require(self, what: str) -> None:
        """Raise PrivacyBudgetError in any other process."""
        if not self.is_here:
            raise PrivacyBudgetError(f"{what} belongs to the process that made it: a forked copy could spend it again")


def _this_process() -> tuple[int, int]:
    return _forks, os.getpid()
