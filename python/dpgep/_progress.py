"""A bar on stderr while something takes long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from dpgep._optional import MissingExtraError, import_extra

_DELAY = 1.0  # seconds; what is over by then shows no bar unless one is asked for


class Bar(Protocol):
    """What is needed of a bar."""

    def update(self, n: int) -> object:
        """Count n more units."""


class _Silent:
    def update(self, n: int) -> None:
        """Count nothing."""


@contextmanager
def progress_bar(wanted: bool | None, what: str, total: int | None, unit: str) -> Iterator[Bar]:
    """A bar of ``total`` units.

    ``wanted``: True for always, False for never, None for what takes more than a second in a terminal where tqdm is
    installed.
    """
    tqdm = _tqdm(wanted)
    if tqdm is None:
        yield _Silent()
        return
    delay = 0.0 if wanted else _DELAY
    with tqdm(desc=what, total=total, unit=f" {unit}", unit_scale=True, delay=delay, file=sys.stderr) as bar:
        yield bar


def _tqdm(wanted: bool | None) -> Any:
    if wanted is False or (wanted is None and not (sys.stderr and sys.stderr.isatty())):
        return None
    try:
        return import_extra("tqdm", "progress").tqdm
    except MissingExtraError:
        if wanted:
            raise
        return None
