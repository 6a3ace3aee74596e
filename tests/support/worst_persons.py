"""A search for the pair of neighbours that costs most, where they differ in all rows of one person.

A person is a few different rows, each so many times over, each with a group and perhaps with holes. A search starts
from some people at random and from pairs that are the worst for single rows, and climbs: what it moves are rows, how
often each occurs, groups, holes. The cost of a pair is that of `dpgep.auditing.replay`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from replay_cases import aside, mirrored, sampled

import dpgep
from dpgep.data.people import WEIGHT_BITS, row_weights

Matrix = NDArray[np.float64]
Table = tuple[Matrix, NDArray[np.int64], Any]  # rows, their groups, and whose they are
D, MOST_ROWS, NOBODY = 3, 10_000, 3  # columns, rows of a person, and the group that is none
MU = 1.0


@dataclass(frozen=True, eq=False)
class Person:
    """Different rows (k, D), NaN where a value is missing, how often each occurs (k,), and their groups (k,)."""

    rows: Matrix
    copies: NDArray[np.int64]
    groups: NDArray[np.int64]

    def __repr__(self) -> str:
        many = [f"{n} x {row.tolist()} of {g}" for row, n, g in zip(self.rows, self.copies, self.groups, strict=True)]
        return f"Person({'; '.join(many)})"


@dataclass(frozen=True)
class Mechanism:
    """A run: ``build(rows, groups, **terms)`` is a problem; ``terms`` are those of builders, with ``person``."""

    build: Callable[..., Any]
    grouped: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    terms: tuple[str, ...] = ("known", "bought")
    reached: dict[str, float] = field(default_factory=dict)  # by terms: of mu, where no pair is worst for all answers
    crowd: Any = ((0.5, 0, 0), (-0.25, 0, 0), (0.25, 0, 0), (0.125, 0, 0))  # of whom the second has two rows
    crowd_of_one: Any = None  # under add-remove, where it is another

    def replay(self, terms: dict[str, Any], pair: tuple[Person, Person | None], ids: str = "int") -> Any:
        def run(table: Table) -> Any:
            rows, groups, whose = table
            return self.build(rows, groups, person=whose, **terms)

        first, second = pair
        crowd = self.crowd if second is not None or self.crowd_of_one is None else self.crowd_of_one
        tables = [_table(each, ids, crowd) for each in ((second, first) if second is None else (first, second))]
        return dpgep.auditing.replay(run, (tables[0], tables[1]), mu=MU, **dict(self.options))


# Of the terms of a run, everything but the adjacency; where there are holes, values may be missing.
TERMS: dict[str, dict[str, Any]] = {
    "known": {"bound": 1.0},
    "bought": {"bound": "auto"},
    "holes": {"preprocessing": dpgep.AutoPreprocessing(missing="center")},
    "pairwise": {"preprocessing": dpgep.AutoPreprocessing(missing="pairwise")},
}


def _views(build: Callable[..., Any]) -> Mechanism:
    return Mechanism(lambda rows, groups, **terms: build(rows[:, :1], rows[:, 1:], **terms), options=ONE)


def _several(rows: Matrix, groups: Any, **terms: Any) -> Any:
    return dpgep.multiset_cca([rows[:, :1], rows[:, 1:2], rows[:, 2:]], **terms)


def _in_batches(rows: Matrix, groups: Any, person: Any, **terms: Any) -> Any:
    """A person's rows are in all batches, some of which hold one row."""
    table = pd.DataFrame(rows, columns=list("abc")).assign(patient_id=person)
    ends = np.unique(np.r_[0, 1, 2, np.arange(0, len(table), max(1, len(table) // 5)), len(table)])
    batches = [table.iloc[start:end] for start, end in itertools.pairwise(ends)]
    return dpgep.pca(dpgep.scan(batches), person="patient_id", **terms)


def _sampled(rows: Matrix, groups: Any, person: Any, adjacency: Any, bound: float) -> Any:
    """Answers about samples and about everybody; who is more is the last one, for a replay to sample."""
    order = np.argsort(np.array([str(each).endswith("9999") for each in person]), kind="stable")

    def build(table: Matrix, adjacency: Any, **facts: Any) -> Any:
        ids = np.array(person)[order]
        return dpgep.pca(table, person=ids, center=False, bound=bound, adjacency=adjacency, **facts)

    return sampled(build, rows[order, :2], adjacency, n_full=1)


def _merged(rows: Matrix, groups: Any, person: Any, adjacency: str, bound: float) -> Any:
    """Moments of each person alone, added up."""
    total: Any = None
    for each in dict.fromkeys(person):
        sums = dpgep.Moments(dpgep.models.FdaModel(D, (0, 1, 2)), bound=bound, adjacency=adjacency, person="patient_id")
        its = np.array(person) == each
        sums.update(rows[its], groups[its], person=np.array(person)[its])
        if total is None:
            total = sums
        else:
            total.merge(sums)
    return total


ONE = (("n_components", 1),)
WEIGHTS = np.array([1.0, 1.0, 0.5, 0.0])  # in place of groups
MECHANISMS: dict[str, Mechanism] = {
    "pca": Mechanism(lambda rows, groups, **terms: dpgep.pca(rows, **terms), options=ONE),
    "pca, uncentred": Mechanism(lambda rows, groups, **terms: dpgep.pca(rows, center=False, **terms), options=ONE),
    "pca, standardized": Mechanism(
        lambda rows, groups, **terms: dpgep.pca(rows, standardize=True, **terms), options=ONE
    ),
    "cca": _views(dpgep.cca),
    "pls": _views(dpgep.pls),
    "multiset-cca": Mechanism(_several, options=ONE),
    "fda": Mechanism(
        lambda rows, groups, **terms: dpgep.fda(rows, groups, classes=[0, 1, 2], **terms), grouped=True, options=ONE
    ),
    "contrastive-pca": Mechanism(
        lambda rows, groups, **terms: dpgep.contrastive_pca(rows, groups, target=0, background=1, **terms),
        grouped=True,
        options=ONE,
    ),
    "sir": Mechanism(
        lambda rows, groups, **terms: dpgep.sir(
            rows, np.where(groups == NOBODY, np.nan, groups), edges=[-1, 0.5, 1.5, 9], **terms
        ),
        grouped=True,
        options=ONE,
    ),
    "fda by a truncated flow": Mechanism(
        lambda rows, groups, **terms: dpgep.fda(rows, groups, classes=[0, 1, 2], **terms),
        grouped=True,
        options=(*ONE, ("method", "truncated-rayleigh-flow"), ("sparsity", 2)),
        reached={"known": 0.95, "bought": 0.95},
    ),
    "pca of batches": Mechanism(_in_batches, options=ONE),
    "fda of merged Moments": Mechanism(_merged, grouped=True, options=ONE, terms=("known",)),
    "pca, weights": Mechanism(
        lambda rows, groups, **terms: dpgep.pca(rows, weights=WEIGHTS[groups], largest_weight=1.0, **terms),
        grouped=True,
        options=ONE,
    ),
    "pca, rows alike": Mechanism(lambda rows, groups, **terms: dpgep.pca(rows, rows=3, **terms), options=ONE),
    "pca by sr-dp": Mechanism(
        lambda rows, groups, **terms: dpgep.pca(rows, center=False, **terms), options=(*ONE, ("method", "sr-dp"))
    ),
    "pca by products": Mechanism(
        lambda rows, groups, **terms: dpgep.pca(rows, **terms), options=(("n_components", 3), ("storage", "operator"))
    ),
    "fda by a flow": Mechanism(
        lambda rows, groups, **terms: dpgep.fda(rows, groups, classes=[0, 1, 2], **terms),
        grouped=True,
        options=(("n_components", 2), ("method", "rayleigh-flow"), ("n_iterations", 5)),
    ),
    "pca of a screen": Mechanism(
        lambda rows, groups, **terms: dpgep.pca(rows, **terms), options=(*ONE, ("screen", 2))
    ),
    "cca of a screen": Mechanism(
        lambda rows, groups, **terms: dpgep.cca(rows[:, :1], rows[:, 1:], **terms),
        options=(*ONE, ("screen", 1)),
        reached={"bought": 0.85},  # nobody has the crowd far from a location that is bought
        crowd=aside(4000, 2.6),  # where the scores of both views move most
        crowd_of_one=np.tile([-math.sqrt(0.5), -math.sqrt(0.5), 0.0], (300, 1)),
    ),
    # who is replaced pays for two steps
    "pca by samples": Mechanism(_sampled, terms=("known",), reached={"known": 0.7}),
    "pca by clipped-power": Mechanism(
        lambda rows, groups, adjacency, **terms: dpgep.pca(
            rows, adjacency=adjacency, public_n=None if adjacency == "replace-one" else 4000, **terms
        ),
        options=(*ONE, ("method", "clipped-power")),
        reached={"known": 0.93, "bought": 0.5},  # the steps have 0.88 and 0.66 of mu^2
        crowd=0.1 * np.tile([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], (2000, 1)),  # which hold the direction
    ),
}  # fmt: skip


# which of them run with values missing, too
HOLES = {"pca": ("holes", "pairwise"), "pca, standardized": ("holes", "pairwise"), "fda": ("holes",)}


def _too_heavy(persons: Any, *given: Any) -> NDArray[np.int16]:
    weights = row_weights(persons, *given).astype(np.int16)
    weights[np.unique(persons, return_index=True)[1]] += (1 << WEIGHT_BITS) // 64
    return weights


# weights that a search has to find wanting
FAULTS: dict[str, Callable[..., NDArray[np.int16]]] = {
    "weights that sum to 1 + 1/64": _too_heavy,
    "rows that all count whole": lambda persons, *_: np.full(len(persons), 1 << WEIGHT_BITS, np.int16),
}


def cases() -> Iterator[tuple[str, str, str]]:
    """(mechanism, terms, adjacency), all that there are."""
    for name in MECHANISMS:
        for terms in (*MECHANISMS[name].terms, *HOLES.get(name, ())):
            for adjacency in ("replace-one", "add-remove"):
                yield name, terms, adjacency


def _table(person: Person | None, ids: str, crowd: Any) -> Table:
    """A crowd, one of whom has two rows, and the person among them."""
    rows = np.array(crowd, float)
    groups, whose = np.minimum(np.arange(len(rows)), 1), [1, *range(2, len(rows) + 1)]
    groups[-1], whose[2] = 2, 2
    if person is not None:
        rows = np.insert(rows, 2, np.repeat(person.rows, person.copies, axis=0), axis=0)
        groups = np.insert(groups, 2, np.repeat(person.groups, person.copies))
        whose[2:2] = [9999] * int(person.copies.sum())
    return rows, groups, np.array(whose) if ids == "int" else [f"patient {each:04}" for each in whose]


def anybody(rng: np.random.Generator, mechanism: Mechanism, holes: bool) -> Person:
    k = int(rng.integers(1, 4))
    rows = rng.standard_normal((k, D)) * 10.0 ** rng.integers(-2, 4, (k, 1))
    if holes:
        rows[rng.random(rows.shape) < 0.2] = np.nan
    return Person(rows, _copies(rng, k), _groups(rng, k, mechanism))


def _copies(rng: np.random.Generator, k: int) -> NDArray[np.int64]:
    return np.maximum(1, (MOST_ROWS / k) ** rng.random(k)).astype(np.int64)


def _groups(rng: np.random.Generator, k: int, mechanism: Mechanism) -> NDArray[np.int64]:
    return rng.integers(0, NOBODY + 1, k) if mechanism.grouped else np.zeros(k, np.int64)


def moved(person: Person, width: float, rng: np.random.Generator, mechanism: Mechanism) -> Person:
    """Somebody like this person: other rows, one of them all over, another number of each, other groups."""
    kind, k = rng.random(), len(person.rows)
    if kind < 0.1:
        return replace(person, copies=_copies(rng, k))
    if kind < 0.2 and mechanism.grouped:
        return replace(person, groups=_groups(rng, k, mechanism))
    if kind < 0.3:
        chosen = int(rng.integers(k))
        return Person(person.rows[[chosen]], person.copies[[chosen]], person.groups[[chosen]])
    size = np.maximum(1e-3, np.nan_to_num(np.abs(person.rows)).max(axis=1, keepdims=True))
    step = rng.standard_normal((k, D)) * (rng.random((k, D)) < 0.6)
    rows = (
        np.where(np.isnan(person.rows) & (step != 0) & (rng.random((k, D)) < 0.3), 0.0, person.rows)
        + width * size * step
    )
    return replace(person, rows=rows)


def starts(rng: np.random.Generator, mechanism: Mechanism, holes: bool) -> Iterator[tuple[Person, Person]]:
    """Pairs that are worst for single rows by the proofs, here of people with several, and then anybody."""
    eye, side, between = np.eye(D), np.array([0.5, math.sqrt(0.75), 0.0]), np.array([1.0, 1.0, 0.0]) / math.sqrt(2)
    others = (eye[1], -eye[0], np.array([-1 / 8, math.sqrt(63) / 8, 0.0]), 1e3 * eye[1])
    pairs = [*((eye[0], other) for other in others), (side, side * [1, -1, 1]), (between, -between)]
    pairs += [(far * row, far**2 * other) for far in (1.0, 1e3) for row, other in [mirrored(1 / 8)]]
    pairs += [(row, row * [1, -1, 1]) for row in [np.array([0.63, math.sqrt(1 - 0.63**2), 0.0])]]
    pairs += [(row, row * [-1, 1, 1]) for row in [np.array([0.12, math.sqrt(1 - 0.12**2), 0.0])]]
    for row, other in pairs:
        k = int(rng.integers(1, 4))
        people = [Person(np.tile(each, (k, 1)), _copies(rng, k), np.full(k, i)) for i, each in enumerate((row, other))]
        yield people[0], people[1]
    while True:
        yield anybody(rng, mechanism, holes), anybody(rng, mechanism, holes)


@dataclass(frozen=True)
class Found:
    """The largest cost of a whole run and of each kind of its parts, over their claims.

    Attributes
    ----------
    pair : that of the whole run.
    pairs : how many were tried.
    flagged : results that claims do not hold for, or that ended with an error, and their pairs.
    """

    ratio: float
    parts: dict[str, float]
    pair: tuple[Person, Person | None]
    pairs: int
    flagged: tuple[Any, ...]


def search(name: str, terms_name: str, adjacency: str, *, restarts: int, steps: int, seed: int) -> Found:
    """Climbs from each start in turn, the best of which goes on for as many steps as all others together."""
    mechanism, terms = MECHANISMS[name], {**TERMS[terms_name], "adjacency": adjacency}
    rng = np.random.default_rng(seed)
    is_one = adjacency == "add-remove"
    parts: dict[str, float] = {}
    flagged: list[Any] = []
    tried = 0

    def cost(pair: tuple[Person, Person | None]) -> float:
        nonlocal tried
        tried += 1
        result = mechanism.replay(terms, pair, "int" if rng.random() < 0.5 else "text")
        for part in result.parts:
            kind = re.sub(r"[0-9.]+", "#", part.query)  # steps, and norms that were bought
            parts[kind] = max(parts.get(kind, 0.0), part.mu / (part.claimed_mu or math.inf))
        if result.flagged or result.error is not None:
            flagged.append((result, pair))
        return float(result.ratio)

    def climb(pair: tuple[Person, Person | None], reached: float, n: int) -> tuple[float, Any]:
        width = 0.3
        for _ in range(n):
            first, second = pair
            which = 2 if second is None else int(rng.integers(3))
            candidate = (
                moved(first, width, rng, mechanism) if which != 1 else first,
                None if second is None else moved(second, width, rng, mechanism) if which != 0 else second,
            )
            if (found := cost(candidate)) >= reached:
                pair, reached, width = candidate, found, min(0.5, 1.3 * width)
            else:
                width = max(1e-4, 0.9 * width)
        return reached, pair

    climbed = []
    for (first, second), _ in zip(starts(rng, mechanism, "preprocessing" in terms), range(restarts), strict=False):
        pair = (first, None if is_one else second)
        climbed.append(climb(pair, cost(pair), steps))
    best = max(climbed, key=lambda found: found[0])
    ratio, pair = climb(best[1], best[0], restarts * steps)
    return Found(ratio, parts, pair, tried, tuple(flagged))
