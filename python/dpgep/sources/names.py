"""Names of columns, and keys that select them: public, as all that a table says before its rows are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from dpgep._checks import did_you_mean, quoted

# None: nobody has named them, as in an array.
Names: TypeAlias = tuple[str, ...] | None

# None: everything; a hashable: one column or part; a tuple of them: a matrix; a slice: columns of a plain matrix.
Key: TypeAlias = Hashable | slice | None

# Names in a list at most, and about how many characters they have together.
_LISTED, _WIDTH = 20, 80

# Words of a name: runs of capitals, words with or without a capital. Glued to "id" they are listed, as in "patientid".
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WHO = (
    "patient|person|pers|people|user|customer|client|member|subject|subj|student|employee|account|respondent|household|"
    "participant|hh|case|record|row|order"
)
_OTHERS = (
    "pupil|learner|candidate|applicant|resident|staff|worker|emp|cust|nhs|policy|contract|loan|card|invoice|ticket|"
    "serial|passport|phone|tax"
)
_IDENTIFIES = re.compile(
    rf"id|ids|uid|uuid|guid|ssn|mrn|pid|identifier|rowid|rownames|({_WHO}|{_OTHERS}|visit|session|device)ids?"
)
# Whole names that number people or rows; "nr_children" is a count.
_NUMBERS = re.compile(
    r"subject|patient|participant|respondent|e ?mail( address)?|user ?name|iban|.* nr|nr|"
    rf"(({_WHO}|{_OTHERS}) ?|int)(nr|no|num|number)"
)


class EncodedNames(tuple[str, ...]):
    """Names of the columns of a matrix, and the positions of ``indicators`` of one column each, and of ``dates``."""

    indicators: tuple[tuple[int, ...], ...] = ()
    dates: tuple[int, ...] = ()


def as_text(columns: Iterable[Hashable]) -> tuple[str, ...]:
    """Names of columns as text. Raises ValueError where two are the same."""
    names = tuple(map(str, columns))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"several columns are named {quoted(twice)}: rename them")
    return names


def identifies(name: str) -> bool:
    """Whether a column holds ids by its name, which is public: "id", "PatientID", "userid", "id=17", "nr"."""
    words = [word.lower() for word in _WORDS.findall(name.partition("=")[0])]
    ends = words[:1] + words[-1:]
    return any(map(_IDENTIFIES.fullmatch, ends)) or _NUMBERS.fullmatch(" ".join(words)) is not None


def require_features(names: Names) -> None:
    """Raise ValueError where a column holds ids: as a feature it would publish them, and order people by nothing."""
    found = list(dict.fromkeys(name.partition("=")[0] for name in names or () if identifies(name)))
    if found:
        one = len(found) == 1
        which = f"column {quoted(found[0])} seems" if one else f"columns {listed(found, 40)} seem"
        no, it = (", and is no feature", "it") if one else ("", "them")
        advice = f"leave {it} out, or rename a measurement. If people have several rows, pass its name as person="
        raise ValueError(f"{which} to identify people or rows{no}: {advice}")


def listed(names: Sequence[object], width: float = _WIDTH) -> str:
    """The names in quotes, of many the first."""
    return first_of([quoted(name) for name in names], width)


def first_of(texts: Sequence[str], width: float = _WIDTH) -> str:
    """All texts, or the first of many: with about this many characters."""
    ends = accumulate(len(text) + 2 for text in texts[:_LISTED])
    shown = max(sum(end <= width for end in ends), 1)
    return ", ".join(texts[:shown]) + (f" and {len(texts) - shown} more" if len(texts) > shown else "")


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
    differences = [f"lacks {listed(lacking, 40)}"] * bool(lacking)
    differences += [f"has {listed(unknown, 40)} besides"] * bool(unknown)
    raise ValueError(f"{what} {' and '.join(differences)}: its columns must be {listed(expected, 40)}")


def stands_for(text: str, kind: Callable[[str], object]) -> bool:
    """Whether text stands for a value of a kind, which is made of text by a function."""
    try:
        kind(text)
    except ValueError:
        return False
    return True


def one_of(key: Key) -> Key:
    """The column that a key selects, also as a matrix of one."""
    return key[0] if isinstance(key, tuple) and len(key) == 1 else key


def missing(name: object, known: Iterable[object], what: str = "column") -> ValueError:
    available = list(known)
    return ValueError(f"no {what} {quoted(name)}{did_you_mean(name, available)}; available: {listed(available)}")


def as_names(key: Key, known: Sequence[Hashable], what: str = "column") -> tuple[Hashable, ...] | None:
    """The names of the columns in the matrix that a key selects from a table, or None if it selects one column."""
    if isinstance(key, slice):
        raise TypeError("columns of a table are selected by name, not by a slice: pass a name or a list of names")
    names = tuple(known) if key is None else key if isinstance(key, tuple) else None
    existing = set(known)
    for name in (key,) if names is None else names:
        if name not in existing:
            raise missing(name, known, what)
    if names is not None:
        check_names(names)
    return names


def check_names(names: tuple[Hashable, ...]) -> None:
    if not names:
        raise ValueError("no columns selected: name at least one")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"column {quoted(twice)} is selected twice")
