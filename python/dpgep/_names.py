"""Names drawn at random: an audit, which compares all that a caller sees, leaves them out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_noting: ContextVar[list[str] | None] = ContextVar("_noting", default=None)


def random_name() -> str:
    """A name that no other object has."""
    return noted(uuid.uuid4().hex)


def noted(name: str) -> str:
    """The name, which follows from random keys."""
    names = _noting.get()
    if names is not None:
        names.append(name)
    return name


@contextmanager
def names_drawn() -> Iterator[list[str]]:
    """The names drawn in this block and this context, in their order."""
    names: list[str] = []
    token = _noting.set(names)
    try:
        yield names
    finally:
        _noting.reset(token)
