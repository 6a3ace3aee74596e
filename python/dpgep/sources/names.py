"""Names of columns: public, as everything is that a table tells before its rows are read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeAlias

# None: nobody has named them, as those of an array.
Names: TypeAlias = tuple[str, ...] | None

_LISTED = 20


def as_text(columns: Iterable[Hashable]) -> tuple[str, ...]:
    """Names of columns as text. Raises ValueError where two are the same."""
    names = tuple(map(str, columns))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"several columns are named {twice!r}: rename them")
    return names


def listed(names: Sequence[object]) -> str:
    """The names in quotes, of many the first."""
    return first_of([repr(name) for name in names])


def first_of(texts: Sequence[str]) -> str:
    """All texts, or the first of many."""
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


def check_same(found: Names, expected: Names, what: str) -> None:
    """Raise ValueError where columns are known to be others than expected, or in another order: nothing is guessed."""
    if found is None or expected is None or found == expected:
        return
    lacking, unknown = (
        [name for name in names if name not in others]
        for names, others in ((expected, set(found)), (found, set(expected)))
    )
    if not lacking and not unknown:
        raise ValueError(f"the columns of {what} are in another order: they must be {listed(expected)}")
    differences = [f"lacks {listed(lacking)}"] * bool(lacking) + [f"has {listed(unknown)} besides"] * bool(unknown)
    raise ValueError(f"{what} {' and '.join(differences)}: its columns must be {listed(expected)}")
