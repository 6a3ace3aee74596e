"""People for replays, in a form of no library, and pairs of neighbours: see replay_ways.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

import numpy as np
from conftest import Matrix

COLUMNS = ("a", "b", "c", "p", "q")
BOUND = 1.0
CLASSES = ("no", "yes")
REGIONS = ("north", "south")
ADJACENCIES = ("replace-one", "add-remove")

# Where kernels go from whole blocks to the rest, and sources from one batch to the next.
EDGES = (*range(1, 11), *(2**k + i for k in range(4, 11) for i in (-1, 0, 1)))

LONG_TEXT = 'a "long", text;\n' * 20
_LABELS = ("no", "yes", "perhaps", "", LONG_TEXT, None)
_OTHER_TYPES = (3, 0.5, float("nan"), ("no",), True)
_REGIONS = (*REGIONS, "nowhere", "", LONG_TEXT, None)
_RESPONSES = (0.0, 1.0, -1.0, 5e-324, 1e300, float("inf"), -float("inf"), float("nan"))
# of days since 1970-01-01: the year 1, the first and last that 64 bits of nanoseconds hold, 9999
_DAYS = (0, -719162, -106751, 106751, 2932896)


@dataclass(frozen=True, eq=False)
class People:
    """One row per person.

    Attributes
    ----------
    rows : (n, 5), NaN where a value is missing.
    labels, regions : texts, or None; ``labels`` may hold other objects.
    response : (n,), any float.
    days : since 1970-01-01, or None.
    """

    rows: Matrix
    labels: list[Any] = field(default_factory=list)
    response: list[float] = field(default_factory=list)
    regions: list[str | None] = field(default_factory=list)
    days: list[int | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, stop: int) -> People:
        return People(**{each.name: getattr(self, each.name)[start:stop] for each in fields(self)})

    def followed_by(self, other: People) -> People:
        joined = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name != "rows"
        }
        return People(np.concatenate([self.rows, other.rows]), **joined)

    def batches(self, size: int) -> list[People]:
        """Some people at a time; of nobody, one batch."""
        return [self.part(start, start + size) for start in range(0, max(1, len(self)), size)]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighbours: under add-remove, ``after`` has a person more."""

    before: People
    after: People
    adjacency: str

    def __iter__(self) -> Any:
        return iter((self.before, self.after))

    def __repr__(self) -> str:
        """The person in whom they differ, as each of them has it."""
        n, m = len(self.before), len(self.after)
        differing = [
            (i, one, other)
            for i in range(max(n, m))
            if (one := _described(self.before, i)) != (other := _described(self.after, i))
        ]
        shown = "; ".join(f"person {i}: {one} and {other}" for i, one, other in differing[:2])
        return f"Pair({self.adjacency}, n = {n} and {m}; {shown})"


def _described(people: People, i: int) -> str:
    if i >= len(people):
        return "nobody"
    label, region = f"{people.labels[i]!r:.20}", f"{people.regions[i]!r:.20}"
    return f"{people.rows[i].tolist()} {label} {people.response[i]} {region} {people.days[i]}"


def draw_pair(random: Random, adjacency: str, sizes: Sequence[int], *, holes: bool, at_end: bool = False) -> Pair:
    """Neighbours: a person becomes anybody else, or comes as one more, among others who may be anybody.

    With ``holes`` values may be missing. ``at_end``: the person who comes is the last one.
    """
    n = random.choice(sizes)
    crowd = _ordinary(random, n)
    for _ in range(random.choice((0, 0, 1, 3))):
        crowd = _with(crowd, random.randrange(len(crowd) + 1), _anybody(random, crowd, holes))
    crowd = crowd.part(0, n)
    person = _anybody(random, crowd, holes)
    if adjacency == "add-remove":
        place = n if at_end else random.choice((0, n // 2, n, n))
        return Pair(crowd, _with(crowd, place, person), adjacency)
    if n < 2:  # fewer are refused, whoever they are
        crowd = crowd.followed_by(_ordinary(random, 2 - n))
    place = random.choice((0, len(crowd) // 2, len(crowd) - 1))
    other = crowd.part(0, place).followed_by(person).followed_by(crowd.part(place + 1, len(crowd)))
    return Pair(crowd, other, adjacency)


def _with(crowd: People, place: int, person: People) -> People:
    return crowd.part(0, place).followed_by(person).followed_by(crowd.part(place, len(crowd)))


def _ordinary(random: Random, n: int) -> People:
    rng = np.random.default_rng(random.randrange(2**32))
    rows = rng.standard_normal((n, len(COLUMNS))) * random.choice((0.3, 0.3, 3.0))
    rows[:, 3:] += rows[:, :1]
    return People(
        rows,
        [CLASSES[i] for i in rng.integers(0, 2, n)],
        np.tanh(rows[:, 0]).tolist(),
        [REGIONS[i] for i in rng.integers(0, 2, n)],
        rng.integers(10_000, 20_000, n).tolist(),
    )


def _anybody(random: Random, crowd: People, holes: bool) -> People:
    person = _ordinary(random, 1)
    fields_of = {
        "rows": lambda: _row(random, crowd, holes)[None, :],
        "labels": lambda: [random.choice(_LABELS + _OTHER_TYPES)],
        "response": lambda: [random.choice(_RESPONSES)],
        "regions": lambda: [random.choice(_REGIONS)],
        "days": lambda: [random.choice(_DAYS + ((None,) if holes else ()))],
    }
    changed = [name for name in fields_of if random.random() < 0.6] or ["rows"]
    return replace(person, **{name: fields_of[name]() for name in changed})


def _row(random: Random, crowd: People, holes: bool) -> Matrix:
    d = len(COLUMNS)
    signs = np.array([random.choice((1.0, -1.0)) for _ in range(d)])
    size = random.choice((0.0, 2.0**-500, 5e-324, 1.0, 1 - 2.0**-53, 2.0**500, 2.0**501, 2.0**502, 1e300, 1.7e308))
    kind = random.choice(("axis", "diagonal", "one large", "another's", "opposite", *("holes",) * 2 * holes))
    if kind == "axis":
        return np.asarray(np.eye(d)[random.randrange(d)] * size * signs)
    if kind == "diagonal":
        return np.asarray(np.full(d, size) * signs / (1.0 if size < 1e-300 else 3.0))
    row = np.array(crowd.rows[random.randrange(len(crowd))] if len(crowd) else signs)
    if kind == "one large":
        row[random.randrange(d)] = size
    elif kind == "opposite":
        row = -row
    elif kind == "holes":
        row[[random.random() < 0.5 for _ in range(d)]] = np.nan
    return row
