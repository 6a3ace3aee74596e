"""The worst pair known for each mechanism that pays, for `dpgep.auditing.replay`, and a search for worse ones.

Pairs come from the proofs of docs/mathematics.md, sections 3, 6 and 11, and from what `worst` has found. docs/audits.md
prints their ratios, which `benchmarks/audit_table.py replays` measures and test_worst_pairs.py holds.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from audit_cases import E1, E2, obtuse
from numpy.typing import NDArray
from stage_cases import STAGES, Stage, stages_of

import dpgep
from dpgep import masked
from dpgep.auditing import replays
from dpgep.local import GaussianRandomizer
from dpgep.models.model import Adjacency
from dpgep.privacy import products as noisy_products
from dpgep.privacy.accounting import SampledMechanism
from dpgep.privacy.clipped_products import Asked, Cells, ClippedMean, ClippedMoment, Mean, ProductNorms
from dpgep.privacy.curator import Curator, FeatureRelease, LocalReports, Release, noise_stream
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.noise import add_grid_noise
from dpgep.privacy.products import ProductNoise, Products, Samples
from dpgep.privacy.screening import Scores
from dpgep.problems.mergeable_moments import problem_from

Matrix = NDArray[np.float64]

MU = 1.0
ADJACENCIES: tuple[Adjacency, ...] = ("replace-one", "add-remove")
BEYOND = 2.0**501  # bounds: squares of such rows overflow
E3 = np.eye(3)[2]
UNIT_ROW, ORTHOGONAL, OBTUSE = "unit row", "orthogonal unit rows", "unit rows, inner product {}"


@dataclass(frozen=True, eq=False)
class ReplayCase:
    """A mechanism and its worst pair.

    Attributes
    ----------
    name : the mechanism, in words.
    mechanism : what a caller sees of a table whose rows are people.
    first, second : the last person, and who takes their place; None where nobody does, which is add-remove.
    words : the pair.
    others : everybody else, the same on both sides.
    mu : the claim, where it is not what ledgers sum up to.
    parties : how many equal parts the noise of an answer has, if one party alone sees the person. A replay compares
        with the noise of this party.
    """

    name: str
    mechanism: Callable[[Matrix], Any]
    first: Matrix
    second: Matrix | None
    words: str
    others: Matrix
    mu: float | None = None
    parties: int = 1

    @property
    def adjacency(self) -> Adjacency:
        return "add-remove" if self.second is None else "replace-one"

    def replay(self, share: float = 1.0) -> dpgep.auditing.ReplayResult:
        """Both runs, with ``share`` of what is claimed in the place of the claim."""
        first = np.vstack([self.others, self.first])
        pair = (self.others, first) if self.second is None else (first, np.vstack([self.others, self.second]))

        def claim(*arguments: Any, claim: Any = replays._claim) -> Any:
            return claim(*arguments) * Fraction(share) ** 2 * self.parties

        with mock.patch.object(replays, "_claim", claim):
            mu = None if self.mu is None else self.mu * share * math.sqrt(self.parties)
            return dpgep.auditing.replay(self.mechanism, pair, mu=mu)


def row(case: ReplayCase, ratio: float) -> str:
    """A row of the table in docs/audits.md: ratios are rounded down."""
    return f"| {case.name} | {case.words} | {case.adjacency} | {math.floor(1000 * ratio) / 1000:.3f} |"


# --- search ----------------------------------------------------------------------------------------------------------


def worst(case: ReplayCase, steps: int, rng: np.random.Generator) -> tuple[float, ReplayCase]:
    """The largest ratio found, and its pair: climbs from the case's own pair and from the best two of other starts."""
    starts = sorted(((_ratio(start), i, start) for i, start in enumerate(_starts(case, rng))), reverse=True)
    climbed = [_climb(start, steps, rng) for start in (case, *(start for *_, start in starts[:2]))]
    return max(climbed, key=lambda found: found[0])


def _ratio(case: ReplayCase) -> float:
    return case.replay().ratio


def _climb(case: ReplayCase, steps: int, rng: np.random.Generator) -> tuple[float, ReplayCase]:
    ratio, width = _ratio(case), 0.3
    for _ in range(steps):
        second = None if case.second is None else _moved(case.second, width, rng)
        candidate = replace(case, first=_moved(case.first, width, rng), second=second)
        reached = _ratio(candidate)
        if reached >= ratio:
            case, ratio, width = candidate, reached, min(0.5, 1.3 * width)
        else:
            width = max(1e-6, 0.9 * width)
    return ratio, case


def _moved(person: Matrix, width: float, rng: np.random.Generator) -> Matrix:
    step = rng.standard_normal(len(person)) * (rng.random(len(person)) < 0.5)
    return np.asarray(person + width * max(1.0, float(np.abs(person).max())) * step)


def _starts(case: ReplayCase, rng: np.random.Generator) -> Iterator[ReplayCase]:
    """Rows along two axes either way, without a length, beyond the bound and far beyond, and some at random."""
    d = len(case.first)
    rows = [scale * row for row in (*np.eye(d)[:2], np.ones(d)) for scale in (1.0, -1.0, 3.0, BEYOND)]
    rows += [np.zeros(d), *rng.standard_normal((2, d))]
    if case.second is None:
        yield from (replace(case, first=row) for row in rows)
    else:
        yield from (replace(case, first=row, second=other) for row, other in itertools.combinations(rows, 2))


# --- problems and their pairs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kind:
    """A problem of a table of people, and worst pairs.

    Attributes
    ----------
    build : the problem of a table, under an adjacency.
    pair, words : of whom the second replaces the first.
    one, words_of_one : the person who is there or not; by default the first one of the pair.
    others, others_of_one : everybody else.
    """

    build: Callable[..., Any]
    pair: tuple[Matrix, Matrix] = (E1, E2)
    words: str = ORTHOGONAL
    one: Matrix | None = None
    words_of_one: str = UNIT_ROW
    others: Matrix = field(default_factory=lambda: np.zeros((2, 3)))
    others_of_one: Matrix | None = None


def asked(name: str, kind: Kind, ask: Callable[[Curator], Any]) -> Iterator[ReplayCase]:
    """A question to the curator of the kind's problem."""
    return run(name, kind, lambda table, adjacency: ask(curator_of(kind.build(table, adjacency))))


def run(name: str, kind: Kind, mechanism: Callable[[Matrix, Adjacency], Any], **claim: Any) -> Iterator[ReplayCase]:
    """Any other mechanism of the kind's people."""
    first, second = kind.pair
    of_two, of_one = (partial(mechanism, adjacency=adjacency) for adjacency in ADJACENCIES)
    one = first if kind.one is None else kind.one
    alone = kind.others if kind.others_of_one is None else kind.others_of_one
    yield ReplayCase(name, of_two, first, second, kind.words, kind.others, **claim)
    yield ReplayCase(name, of_one, one, None, kind.words_of_one, alone, **claim)


def curator_of(problem: Any) -> Curator:
    return Curator(problem, Ledger(MU), noise_stream())


def pca(table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
    return dpgep.pca(table, bound=1.0, adjacency=adjacency, **options)


def pairwise(table: Matrix, adjacency: Adjacency) -> Any:
    """Rows in which values are absent, and covariances over the people who have both columns."""
    preprocessing = dpgep.Preprocessing(1.0, missing=True, pairwise=True)
    return dpgep.pca(table, adjacency=adjacency, preprocessing=preprocessing)


def uncentred(table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
    return pca(table, adjacency, center=False, **options)


def several(kind: Kind, n_rows: int) -> Kind:
    """The same people, of whom the one who differs has so many rows, all alike; 0: as they are, without ids."""

    def build(table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
        people = np.arange(len(table))
        ids = np.repeat(people, np.where(people < len(kind.others), 1, n_rows))
        return kind.build(table[ids], adjacency, person=ids, **options)

    return replace(kind, build=build) if n_rows else kind


def of_views(build: Callable[..., Any], table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
    """The first column, and the others."""
    return build(table[:, :1], table[:, 1:], bound=1.0, adjacency=adjacency, **options)


def fda(table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
    """The last column is the group: the nearest one of three."""
    groups = np.clip(np.rint(table[:, -1]), 0, 2).astype(int)
    return dpgep.fda(table[:, :-1], groups, classes=[0, 1, 2], bound=1.0, adjacency=adjacency, **options)


def by_group(table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
    """The same groups, of which the last counts as none."""
    groups = np.clip(np.rint(table[:, -1]), 0, 2).astype(int)
    two: dict[str, Any] = {"target": 0, "background": 1, "alpha": 2.0}
    return dpgep.contrastive_pca(table[:, :-1], groups, bound=1.0, adjacency=adjacency, **two, **options)


def gep(table: Matrix, adjacency: Adjacency) -> Any:
    """Each row moves A, or A and B, by its three entries for each, cut to norm 1: the last is off the diagonal."""
    n, moved = 4, []
    for entries in np.split(in_unit_ball(table.reshape(-1, 3)).reshape(table.shape) / n, table.shape[1] // 3, axis=1):
        first, second, off = entries.sum(axis=0)
        moved.append(np.diag([first, second]) + (np.ones((2, 2)) - np.eye(2)) * off / math.sqrt(2))
    c = 1.0 if adjacency == "add-remove" else 2.0
    of_b = {"B": np.eye(2) + moved[1], "sensitivity_b": c} if len(moved) == 2 else {}
    return dpgep.gep(np.diag([3.0, 2.0]) + moved[0], n=n, sensitivity_a=c, adjacency=adjacency, **of_b)


def in_unit_ball(rows: Matrix) -> Matrix:
    """Rows of any length, cut to norm 1 up to rounding."""
    scaled = rows / np.maximum(1.0, np.abs(rows).max(axis=1, keepdims=True))
    return np.asarray(scaled / np.maximum(1.0, np.linalg.norm(scaled, axis=1, keepdims=True)))


def in_groups(rows: tuple[Matrix, Matrix], first: int, second: int) -> tuple[Matrix, Matrix]:
    return np.append(rows[0], first), np.append(rows[1], second)


def mirrored(t: float) -> tuple[Matrix, Matrix]:
    """Unit rows with inner product -t that exchange two entries: second moments differ on the diagonal alone."""
    angle = math.asin(t) / 2
    row = np.array([math.cos(angle), -math.sin(angle), 0.0])
    return row, row[[1, 0, 2]]


ROWS, CENTRED = Kind(uncentred), Kind(pca, obtuse(1 / 8), OBTUSE.format("-1/8"))
# the marks of what is absent have a product of 1/16, the values one of -3/16
WITH_HOLES = Kind(
    pairwise,
    (np.array([2.0, math.nan, math.nan]), np.array([-3 / 13, math.sqrt(1 - (3 / 13) ** 2), math.nan])),
    "rows that differ in values and holes, inner product -1/8",
    words_of_one="row with holes, as long as may be",
)
GROUPS = Kind(
    fda,
    in_groups((E1, E2), 0, 1),
    ORTHOGONAL + ", two groups",
    others=np.column_stack([np.zeros((3, 3)), np.arange(3)]),
)
TWO_VIEWS = Kind(partial(of_views, dpgep.cca, center=False))
A = Kind(gep, (E1, -E1), "A moved by its sensitivity", words_of_one="A moved by its sensitivity")
MOVED_B = np.eye(6)[3]
A_AND_B = Kind(
    gep,
    (np.eye(6)[0] + MOVED_B, -np.eye(6)[0] - MOVED_B),
    "both moved by their sensitivities",
    words_of_one="both moved by their sensitivities",
    others=np.zeros((2, 6)),
)
KINDS = {
    "rows": ROWS,
    "rows of one group": CENTRED,
    "rows of groups": GROUPS,
    "two views": TWO_VIEWS,
    "A": A,
    "A and B": A_AND_B,
}


# --- releases and products -------------------------------------------------------------------------------------------


def releases() -> Iterator[ReplayCase]:
    for name, kind in KINDS.items():
        yield from asked(f"release, {name}", kind, lambda curator: curator.answer(Release()))
    kept = replace(GROUPS, pair=in_groups(obtuse(1 / 2), 0, 0), words=OBTUSE.format("-1/2") + ", one group")
    yield next(asked("release, rows of groups, same group", kept, lambda curator: curator.answer(Release())))
    moved = replace(GROUPS, build=by_group, pair=in_groups((E1, E1), 0, 1), words="unit row, two groups")
    yield from asked("release, second moments by group", moved, lambda curator: curator.answer(Release()))
    stays = replace(moved, pair=in_groups(obtuse(1 / 8), 0, 0), words=OBTUSE.format("-1/8") + ", one group")
    yield next(asked("release, second moments by group, same group", stays, lambda curator: curator.answer(Release())))
    public = replace(CENTRED, build=partial(pca, public_n=3))
    yield list(asked("release, rows of one group, public n", public, lambda curator: curator.answer(Release())))[1]
    yield from asked(
        "release, some features",
        replace(ROWS, pair=(3 * E1 + 9 * E3, 3 * E2), words="rows orthogonal in these features"),
        lambda curator: curator.answer(FeatureRelease(np.arange(2), 1.0))[1],
    )
    yield from asked(
        "release, some features of A", A, lambda curator: curator.answer(FeatureRelease(np.arange(1), 1.0))[1]
    )
    yield from asked("release, rows with holes", WITH_HOLES, lambda curator: curator.answer(Release()))
    yield from run("release, sums that were merged", CENTRED, merged_sums)
    yield from run("releases of two populations, added", replace(ROWS, others=np.zeros((4, 3))), added, mu=MU)


def merged_sums(table: Matrix, adjacency: Adjacency) -> Any:
    total = sums_of(table[:1], adjacency)
    total.merge(sums_of(table[1:], adjacency))
    return curator_of(problem_from(total)).answer(Release())


def sums_of(rows: Matrix, adjacency: Adjacency, **options: Any) -> dpgep.Moments:
    moments = dpgep.Moments(dpgep.models.PcaModel(3, center=True), bound=1.0, adjacency=adjacency, **options)
    moments.update(rows)
    return moments


def added(table: Matrix, adjacency: Adjacency) -> Any:
    """Of two people, and of everybody else."""
    first, second = (dpgep.release(uncentred(rows, adjacency), mu=MU) for rows in (table[:2], table[2:]))
    return first + second


def products(n_rows: int = 0) -> Iterator[ReplayCase]:
    kinds = {name: several(kind, n_rows) for name, kind in KINDS.items() if not n_rows or kind.build is not gep}
    for name, kind in kinds.items():
        yield from asked(f"lazy products, {name}", kind, lazily)
    # products have worst pairs of their own, and so have sums, for which a fifth is paid
    between = several(replace(CENTRED, pair=obtuse(1 / 16), words=OBTUSE.format("-1/16")), n_rows)
    for name, kind in {**kinds, "rows of one group": between}.items():
        yield from asked(f"fresh products, {name}", kind, partial(freshly, shape="goe"))
    across, rows = (E1 + E2) / math.sqrt(2), several(ROWS, n_rows)
    yield next(asked("fresh products, iid", rows, partial(freshly, shape="iid", question=across)))
    yield list(asked("fresh products, iid", rows, partial(freshly, shape="iid", question=E1)))[1]
    yield from run("release as an operator", rows, partial(operator, rows))
    yield from run("rayleigh-flow, all components", rows, partial(flow, rows))


def lazily(curator: Curator) -> Any:
    """The whole space, in questions that all but repeat each other."""
    products = curator.answer(Products(ProductNoise("lazy", "goe", 0)))
    d = curator.model.n_features
    return [products.times(question[None, :]) for question in 1 + 1e-3 * np.eye(d)]


def freshly(curator: Curator, shape: Any, question: Matrix | None = None) -> Any:
    """The whole space, or one direction, twice."""
    products = curator.answer(Products(ProductNoise("fresh", shape, 2)))
    block = np.eye(curator.model.n_features) if question is None else question[None, :]
    return [products.times(block) for _ in range(2)]


def operator(kind: Kind, table: Matrix, adjacency: Adjacency) -> Any:
    return dpgep.release(kind.build(table, adjacency), mu=MU, storage="operator").times(np.eye(3))


def flow(kind: Kind, table: Matrix, adjacency: Adjacency) -> Any:
    return dpgep.solve(kind.build(table, adjacency), mu=MU, method="rayleigh-flow", n_iterations=3, init="random")


# --- screens ---------------------------------------------------------------------------------------------------------


def screens(n_rows: int = 0) -> Iterator[ReplayCase]:
    # others lie where the norms of rows of the cross-covariance move as far as these rows do
    row, opposite = (E1 + E2) / math.sqrt(2), (E1 - E2) / math.sqrt(2)
    views = replace(TWO_VIEWS, pair=(row, opposite), words="a view negated", others=np.tile(row, (7, 1)))
    side, other_side = (np.array([0.5, y, 0.0]) for y in (math.sqrt(0.75), -math.sqrt(0.75)))
    for name, kind in {
        **KINDS,
        "rows of one group": replace(
            CENTRED, pair=mirrored(1 / 8), words=OBTUSE.format("-1/8, entries exchanged"), one=E1
        ),
        "two views": views,
        "two views, centred": Kind(
            partial(of_views, dpgep.cca),
            (side, other_side),
            "a view negated, others at the end of the other view",
            row,
            "unit row, others opposite",
            aside(4000),
            np.tile(-row, (1000, 1)),
        ),
    }.items():
        if not n_rows or kind.build is not gep:
            yield from asked(f"screen, {name}", several(kind, n_rows), lambda curator: curator.answer(Scores()))
    beyond = replace(views, pair=(BEYOND * row, opposite), words="such a row, and one with a view negated")
    beyond = several(beyond, n_rows)
    yield next(asked("screen, two views, rows beyond 2^500 bounds", beyond, lambda curator: curator.answer(Scores())))


def aside(n: int, spread: float = 3.0) -> Matrix:
    """People about (-1, 0, 0) whose views have a cross-covariance of ``spread``/2, summed over people."""
    step = math.sqrt(spread / n)
    rows = np.zeros((n, 3))
    rows[:, 0], rows[:, 1] = -math.sqrt(1 - step * step), -step
    rows[::2] += [step, 2 * step, 0.0]
    return rows


# --- samples ---------------------------------------------------------------------------------------------------------


def samples(n_rows: int = 0) -> Iterator[ReplayCase]:
    """Of everybody, where a person is replaced: who is more is in each sample of a replay, others need not be."""
    plane = Kind(
        partial(pca, center=False),
        (E1[:2], E2[:2]),
        ORTHOGONAL + ", in all samples",
        None,
        UNIT_ROW + ", in all samples",
        np.zeros((2, 2)),
    )
    plane = several(plane, n_rows)
    for name, n_full in (("samples", 0), ("samples and everybody", 1)):
        yield from run(f"products, {name}", plane, partial(sampled, plane.build, n_full=n_full))


def sampled(build: Callable[..., Any], table: Matrix, adjacency: Adjacency, n_full: int) -> Any:
    """Products with the whole space. Noise is as it comes: calibration takes seconds, the event is what is claimed."""
    rate, public_n = (1.0, None) if adjacency == "replace-one" else (0.5, 4)
    problem = build(table, adjacency, public_n=public_n)
    noisy = SampledMechanism(rate, 2, n_full, 2.0, 3.0 if n_full else 0.0)
    curator = Curator(problem, Ledger(9.0, (8.0, 1e-3)), noise_stream())
    with mock.patch.object(noisy_products, "calibrate_sampled", return_value=noisy):
        products = curator.answer(Samples(noisy, curator.target, 0.5)).products
    whole, turned, no_step = np.eye(2), np.array([[0.6, 0.8], [-0.8, 0.6]]), np.zeros(1)
    if not n_full:
        return [products.ascend(whole, no_step) for _ in range(2)]
    gradient = products.full(turned)
    return gradient, [products.ascend_reduced(whole, turned, gradient, no_step) for _ in range(2)]


# --- clipped products ------------------------------------------------------------------------------------------------


def clipped(n_rows: int = 0) -> Iterator[ReplayCase]:
    line, plane = Asked(E1[None, :]), Asked(np.eye(3)[:2])
    residuals = Asked(np.array([[1.0, -0.5], [-0.5, 1.0]]) @ np.eye(3)[:2] / 1.5)
    c, m, least = 0.125, 0.01, 2.0**-7
    s = 0.64  # c^2 for two directions, and the best angle between their products
    g = (1 - s) / (2 * s)
    tilted = [np.array([1.0, 0.0, 0.0]), np.array([g, math.sqrt(1 - g * g), 0.0])]
    negated = (E1 + E2) / math.sqrt(2), (E2 - E1) / math.sqrt(2)
    of_rows = Kind(partial(of_public_n, pca))
    of_two = Kind(partial(of_public_n, partial(of_views, dpgep.pls)), negated, "a view negated")
    of_cca = replace(of_two, build=partial(of_public_n, partial(of_views, dpgep.cca)))
    questions: dict[str, tuple[Kind, Callable[[Curator], Any]]] = {
        "mean": (replace(of_rows, pair=(E1, -E1), words="opposite unit rows"), lambda curator: curator.answer(Mean())),
        "histogram of norms": (
            replace(of_rows, pair=(E1, 0 * E1), words="unit row and zero"),
            lambda curator: curator.answer(ProductNorms(line)),
        ),
        "histogram of scores": (
            replace(of_rows, pair=(E1, 0 * E1), words="unit row and zero"),
            lambda curator: curator.answer(Cells(Asked(np.eye(3)[:2]), np.array([[-0.5, 0.5]] * 2))),
        ),
        "one direction": (
            replace(of_rows, pair=(in_line(c, 1.0), in_line(c, -1.0)), words="same product, opposite across", one=E1),
            lambda curator: curator.answer(ClippedMean(line, (c,))),
        ),
        "two directions": (
            replace(
                of_rows,
                pair=(0.8 * tilted[0] + 0.6 * E3, 0.8 * tilted[1] - 0.6 * E3),
                words="tilted products, opposite across",
                one=E1,
            ),
            lambda curator: curator.answer(ClippedMean(plane, (0.8,))),
        ),
        "about a mean": (
            replace(of_rows, pair=(in_line(m - least), in_line(m + least)), words="either side of the mean", one=E2),
            lambda curator: curator.answer(ClippedMean(Asked(line.vectors, m * E1), (least,))),
        ),
        "second moment": (of_rows, lambda curator: curator.answer(ClippedMoment(plane, (0.5,)))),
        "second moment of one direction": (of_rows, lambda curator: curator.answer(ClippedMoment(line, (0.5,)))),
        "two views": (of_two, lambda curator: curator.answer(ClippedMean(plane, (c, c)))),
        "second moment of two views": (of_two, lambda curator: curator.answer(ClippedMoment(plane, (c, c)))),
        "residuals": (of_cca, lambda curator: curator.answer(ClippedMean(residuals, (c, c)))),
        "second moment of all coordinates": (
            replace(of_cca, pair=(E1, E2), words=ORTHOGONAL),
            lambda curator: curator.answer(ClippedMoment(plane, (c,))),
        ),
    }
    for name, (kind, ask) in questions.items():
        yield from asked(f"clipped products, {name}", several(kind, n_rows), ask)


def in_line(along: float, sign: float = 1.0) -> Matrix:
    return np.array([along, 0.0, sign * math.sqrt(1 - along * along)])


def of_public_n(build: Callable[..., Any], table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
    """Clipped products are divided by a public number of people."""
    return build(table, adjacency, center=False, public_n=None if adjacency == "replace-one" else 3, **options)


# --- bound="auto" ----------------------------------------------------------------------------------------------------


def preprocessing() -> Iterator[ReplayCase]:
    words = {
        "histograms of magnitudes": "other octaves in all columns",
        "histograms within intervals": "other parts of all intervals",
        "histogram of norms": "rows of other norms",
        "sums of columns and squares": "opposite ends of all columns",
        "sum of mapped rows": "opposite rows, far outside",
        "second moment": ORTHOGONAL,
    }
    second = Stage(lambda stages, mu: stages.second_moment(dpgep.Preprocessing(1.0), mu), E1, E2)
    for name, stage in {**STAGES, "second moment": second}.items():
        kind = Kind(uncentred, (stage.first, stage.second), words[name], words_of_one="the first of them")
        yield from run(f'bound="auto", {name}', kind, partial(staged, stage))
    others = np.random.default_rng(7).uniform(-1, 1, (400, 3))
    # moments get most of the budget, sums of rows the rest
    for name, build, rows in (("pca, uncentred", uncentred_table, (E1, E2)), ("pca", dpgep.pca, obtuse(1 / 7))):
        pair = (1e3 * rows[0], 1e5 * rows[1])
        kind = Kind(build, pair, "rows far outside, across each other", None, "a row far outside", others)
        yield from run(f'bound="auto", whole run, {name}', kind, partial(automatic, build))
    kind = replace(kind, pair=(1e6 * np.ones(3), -1e6 * np.ones(3)), words="opposite rows, far outside")
    yield from run("PrivateScaler", kind, scaled)


def staged(stage: Stage, table: Matrix, adjacency: Adjacency) -> Any:
    return stage.ask(stages_of(table, adjacency, MU, noise_stream()), MU)


def uncentred_table(table: Matrix, **options: Any) -> Any:
    return dpgep.pca(table, center=False, **options)


def automatic(build: Callable[..., Any], table: Matrix, adjacency: Adjacency) -> Any:
    """With a seed: what is asked depends on what was answered."""
    return dpgep.release(build(table, bound="auto", adjacency=adjacency), mu=MU, seed=1)


def scaled(table: Matrix, adjacency: Adjacency) -> Any:
    return dpgep.sklearn.PrivateScaler(epsilon=4.0, delta=1e-3, adjacency=adjacency, random_state=1).fit(table).scale_


# --- noise that people and sites draw, and a mechanism of one's own --------------------------------------------------


def apart() -> Iterator[ReplayCase]:
    mu = GaussianRandomizer(3, 1.0, 12.0, 1e-6).mechanism.mu
    for name, report in (("local report", one_report), ("local reports of many", reports)):
        yield ReplayCase(name, report, E1, E2, ORTHOGONAL, ROWS.others, mu)
    yield next(
        asked(
            "mean of local reports of two people",
            replace(ROWS, others=ROWS.others[:1]),
            lambda curator: curator.answer(LocalReports()),
        )
    )
    sites = replace(CENTRED, others=np.zeros((4, 3)))
    yield from run("masked sum of two sites, one colludes", sites, partial(masked_sum, colluding=1), mu=MU)
    yield from run("masked sum of two sites", sites, partial(masked_sum, colluding=0), mu=MU, parties=2)
    yield from run("three nights in a row", replace(CENTRED, others=np.zeros((3, 3))), nights)
    yield from run("a mechanism of one's own", Kind(uncentred, (E1, -E1), "opposite unit rows"), own)


def one_report(table: Matrix) -> Any:
    """The last person's, and what it costs."""
    report = GaussianRandomizer(3, 1.0, 12.0, 1e-6).randomize(table[-1])
    return report, report.mechanism.releases()


def reports(table: Matrix) -> Any:
    return GaussianRandomizer(3, 1.0, 12.0, 1e-6).randomize_rows(table)


def masked_sum(table: Matrix, adjacency: Adjacency, colluding: int) -> Any:
    """Two people, and everybody else."""
    model = dpgep.models.PcaModel(3, center=True)
    terms = masked.Terms(
        model, bound=1.0, sites=("a", "b"), colluding=colluding, session="replay", mu=MU, adjacency=adjacency
    )
    sites = {name: masked.Site(terms, name) for name in terms.sites}
    keys = {name: site.key for name, site in sites.items()}
    sums = {
        name: sums_of(rows, adjacency, bits=terms.bits) for name, rows in zip("ab", (table[:2], table[2:]), strict=True)
    }
    return masked.release(terms, keys, {name: site.mask(sums[name], keys) for name, site in sites.items()})


def nights(table: Matrix, adjacency: Adjacency) -> Any:
    """Five, on three of which there is more than everybody else."""
    with tempfile.TemporaryDirectory() as folder:
        terms: dict[str, Any] = {"keep": 3, "nights": 3, "bound": 1.0, "adjacency": adjacency, "mu": MU}
        register = dpgep.Nights(f"{folder}/register", **terms)
        return [register.add(table if 0 < night < 4 else table[:3], night=str(night)) for night in range(5)]


def own(table: Matrix, adjacency: Adjacency) -> Matrix:
    """The sum of rows in the unit ball, paid from a budget; rounding has its share."""
    import dp_accounting

    budget = dpgep.Budget(mu=MU, adjacency=adjacency)
    budget.charge(dp_accounting.GaussianDpEvent(1 / MU), what="sum of rows", adjacency=adjacency)
    sensitivity = (2.0 if adjacency == "replace-one" else 1.0) * (1 + 2.0**-20)
    return add_grid_noise(in_unit_ball(table).sum(axis=0), sensitivity / MU, noise_stream())


CASES = {
    f"{case.name}, {case.adjacency}": case
    for cases in (releases, products, screens, samples, clipped, preprocessing, apart)
    for case in cases()
}
