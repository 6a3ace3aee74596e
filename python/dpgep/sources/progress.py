"""A progress bar for a pass: rows, rows a second, time that remains."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from dpgep._optional import MissingExtraError, import_extra

_DELAY = 1.0  # seconds; a pass that is over by then shows no bar unless one is asked for


class Bar(Protocol):
    """What a pass needs of a bar."""

    def update(self, n: int) -> object:
        """Count n more rows."""


class _Silent:
    def update(self, n: int) -> None:
        """Count nothing."""


@contextmanager
def progress_bar(wanted: bool | None, total: int | None, number: int) -> Iterator[Bar]:
    """A bar on stderr for pass ``number`` over ``total`` rows.

    ``wanted``: True for always, False for never, None for a pass of more than a second in a terminal where tqdm is
    installed.
    """
    tqdm = _tqdm(wanted)
    if tqdm is None:
        yield _Silent()
        return
    with tqdm(
        desc=f"pass {number}",
        total=total,
        unit=" rows",
        unit_scale=True,
        delay=0.0 if wanted else _DELAY,
        file=sys.stderr,
    ) as bar:
        yield bar


def _tqdm(wanted: bool | None) -> Any:
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        return None
    try:
        return import_extra("tqdm", "progress").tqdm
    except MissingExtraError:
        if wanted:
            raise
        return None
