"""Errors of other packages without their messages, which quote values of the data: a person's, for anyone to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_PACKAGES = ("pyarrow", "pandas", "polars")


class UnreadableError(ValueError):
    """Data could not be read or converted. The message names the column and types, never a value."""


@contextmanager
def messages_withheld(what: str) -> Iterator[None]:
    """Raise UnreadableError for whatever goes wrong while ``what`` is converted; MemoryError stays one."""
    try:
        yield
    except Exception as error:
        raise _without_message(what, error) from None


@contextmanager
def packages_messages_withheld(what: str) -> Iterator[None]:
    """The same for errors of pyarrow, pandas and polars alone: all others, the user's among them, pass through."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.split(".")[0] not in _PACKAGES:
            raise
        raise _without_message(what, error) from None


def _without_message(what: str, error: Exception) -> Exception:
    if isinstance(error, MemoryError):
        return MemoryError(f"not enough memory to read {what}: select fewer columns or use smaller batches")
    if isinstance(error, UnreadableError):
        return error
    return UnreadableError(
        f"{what} cannot be read: {type(error).__name__}, whose message is suppressed since it may quote values of the "
        "data; read the data without dpgep to see it"
    )
