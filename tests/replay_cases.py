"""The worst pair of neighbours known for each mechanism that pays: what `dpgep.replay` says they cost, of the claim.

Pairs come from the proofs of docs/mathematics.md, and `worst` climbs from them and from other starts, for a worse one.
docs/audits.md prints the ratios; `benchmarks/audit_table.py replays` measures them, test_worst_pairs.py holds them.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from audit_cases import E1, E2, obtuse
from numpy.typing import NDArray
from stage_cases import STAGES, Stage, stages_of

import dpgep
from dpgep import masked
from dpgep.local import GaussianRandomizer
from dpgep.models.model import Adjacency
from dpgep.privacy import sampled_products
from dpgep.privacy.clipped_products import Asked, Thresholds
from dpgep.privacy.curator import Curator
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.noise import add_grid_noise, noise_stream
from dpgep.privacy.products import ProductNoise
from dpgep.privacy.sampled import SampledMechanism

Matrix = NDArray[np.float64]

MU = 1.0
E3 = np.eye(3)[2]
N_PRODUCTS = 2
ADJACENCIES: tuple[Adjacency, ...] = ("replace-one", "add-remove")
# Beyond it the length of a row overflows when it is squared.
BEYOND = 2.0**501


@dataclass(frozen=True, eq=False)
class ReplayCase:
    """A mechanism and its worst pair.

    Attributes
    ----------
    mechanism : what a caller sees of a table whose rows are people.
    first, second : the last person, and who takes their place; None where nobody does: under add-remove.
    words : the pair, for the table.
    others : everybody else, who are the same on both sides.
    mu : the claim where no ledger says it.
    parties : in how many equal parts several parties draw the noise of one answer. A replay compares with one part.
    """

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

    def replay(self, share: float = 1.0) -> dpgep.ReplayResult:
        """A replay with ``share`` of the claim."""
        first = np.vstack([self.others, self.first])
        pair = (self.others, first) if self.second is None else (first, np.vstack([self.others, self.second]))
        result = dpgep.replay(self.mechanism, pair, mu=self.mu)
        return result if share == 1.0 else dpgep.replay(self.mechanism, pair, mu=share * result.claimed_mu)

    def ratio_of(self, result: dpgep.ReplayResult) -> float:
        """The cost of the pair over the claim. Noise of k parties has k times the variance of one part."""
        return result.ratio / math.sqrt(self.parties)


# --- search ----------------------------------------------------------------------------------------------------------


def worst(case: ReplayCase, steps: int, rng: np.random.Generator) -> tuple[float, ReplayCase]:
    """The largest ratio found, and its pair: climbs from the case's own pair, and from the best of other starts."""

    def ratio(candidate: ReplayCase) -> float:
        return candidate.ratio_of(candidate.replay())

    starts = sorted(((ratio(start), i, start) for i, start in enumerate(_starts(case, rng))), reverse=True)[:2]
    best = max([(ratio(case), case), *((value, start) for value, _, start in starts)], key=lambda found: found[0])
    for value, _, start in [(ratio(case), 0, case), *starts]:
        width = 0.3
        for _ in range(steps):
            candidate = _moved(start, width, rng)
            reached = ratio(candidate)
            if reached >= value:
                start, value, width = candidate, reached, min(0.5, 1.3 * width)
            else:
                width = max(1e-6, 0.9 * width)
        best = max(best, (value, start), key=lambda found: found[0])
    return best


def _starts(case: ReplayCase, rng: np.random.Generator) -> Iterator[ReplayCase]:
    """Axes, their opposites, rows without length, beyond the bound and far beyond, and a few at random."""
    d = len(case.first)
    rows = [scale * row for row in np.eye(d)[:2] for scale in (1.0, -1.0, 3.0, BEYOND)]
    rows += [np.zeros(d), BEYOND * np.ones(d), np.ones(d) / math.sqrt(d), *rng.standard_normal((3, d))]
    if case.second is None:
        yield from (replace(case, first=row) for row in rows)
    else:
        yield from (replace(case, first=row, second=other) for row, other in itertools.combinations(rows, 2))


def _moved(case: ReplayCase, width: float, rng: np.random.Generator) -> ReplayCase:
    def moved(person: Matrix) -> Matrix:
        size = max(1.0, float(np.abs(person).max()))
        return np.asarray(person + size * width * rng.standard_normal(len(person)) * (rng.random(len(person)) < 0.5))

    return replace(case, first=moved(case.first), second=None if case.second is None else moved(case.second))


# --- problems --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A problem of a table, and its worst pair in a release: the one of whom there is one more, and two in turn."""

    build: Callable[[Matrix, Adjacency], Any]
    pair: tuple[Matrix, Matrix]
    words: str = "orthogonal rows"
    others: Matrix = field(default_factory=lambda: np.zeros((2, 3)))


def _pca(table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
    return dpgep.pca(table, bound=1.0, adjacency=adjacency, **options)


def _cca(table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
    return dpgep.cca(table[:, :1], table[:, 1:], bound=1.0, adjacency=adjacency, **options)


def _fda(table: Matrix, adjacency: Adjacency) -> Any:
    """The last column is the group, one of three, to whole numbers."""
    labels = np.clip(np.rint(table[:, -1]), 0, 2).astype(int)
    return dpgep.fda(table[:, :-1], labels, classes=[0, 1, 2], bound=1.0, adjacency=adjacency)


def _gep(table: Matrix, adjacency: Adjacency) -> Any:
    """Each row moves A, or A and B: three entries each, cut to norm 1, of which the last is the one off the diagonal.

    Two rows may differ by 2, which is then the unit of the sensitivity.
    """
    n, c = 4, 1.0 if adjacency == "add-remove" else 2.0
    moved = []
    for entries in (table[:, :3], table[:, 3:]):
        with np.errstate(over="ignore"):
            lengths = np.maximum(1.0, np.abs(entries).max(axis=1, initial=0.0))
            scaled = entries / lengths[:, None]
            scaled /= np.maximum(1 / lengths, np.linalg.norm(scaled, axis=1))[:, None]
        change = scaled.sum(axis=0) / n
        if len(change):
            moved.append(np.array([[change[0], change[2] / math.sqrt(2)], [change[2] / math.sqrt(2), change[1]]]))
    given = {"A": np.diag([3.0, 2.0]) + moved[0], "n": n, "sensitivity_a": c, "adjacency": adjacency}
    if len(moved) == 1:
        return dpgep.gep(**given)
    return dpgep.gep(**given, B=np.eye(2) + moved[1], sensitivity_b=c)


def with_group(rows: tuple[Matrix, Matrix], first: int, second: int) -> tuple[Matrix, Matrix]:
    return np.append(rows[0], first), np.append(rows[1], second)


OBTUSE = "unit rows with inner product {:.3g}"
LABELLED = np.array([[0.0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2]])
ONE_GROUP = Kind(_pca, obtuse(1 / 8), OBTUSE.format(-1 / 8))
GROUPS = Kind(_fda, with_group((E1, E2), 0, 1), "orthogonal rows of two groups", LABELLED)
UNIT_A, UNIT_B = np.eye(6)[[0, 3]]
KINDS = {
    "rows": Kind(partial(_pca, center=False), (E1, E2)),
    "rows of one group": ONE_GROUP,
    "rows of groups": GROUPS,
    "two views": Kind(partial(_cca, center=False), (E1, E2)),
    "two views, centred": replace(ONE_GROUP, build=_cca),
    "a matrix A": Kind(_gep, (E1, -E1), "A moved by all of its sensitivity"),
    "matrices A and B": Kind(
        _gep,
        (UNIT_A + UNIT_B, -UNIT_A - UNIT_B),
        "A and B moved by all of their sensitivities",
        np.zeros((2, 6)),
    ),
}
ONE_MORE = {"matrices": "the same, by one more", "a matrix": "the same, by one more", "rows of groups": "a unit row"}


def curator_of(problem: Any, mu: float = MU) -> Curator:
    return Curator(problem, Ledger(mu), noise_stream())


def pair_cases(
    name: str, kind: Kind, ask: Callable[[Curator], Any], *, words_of_one: str = "a unit row"
) -> Iterator[tuple[str, ReplayCase]]:
    """A question to the curator about the kind's pair, under both adjacencies."""

    def mechanism(table: Matrix, adjacency: Adjacency) -> Any:
        return ask(curator_of(kind.build(table, adjacency)))

    yield from both_cases(name, mechanism, kind, words_of_one)


def both_cases(
    name: str, mechanism: Callable[[Matrix, Adjacency], Any], kind: Kind, words_of_one: str = "a unit row", **rest: Any
) -> Iterator[tuple[str, ReplayCase]]:
    for adjacency in ADJACENCIES:
        replaces = adjacency == "replace-one"
        second, words = (kind.pair[1], kind.words) if replaces else (None, words_of_one)
        asked = partial(mechanism, adjacency=adjacency)
        yield name, ReplayCase(asked, kind.pair[0], second, words, kind.others, **rest)


# --- releases, products, screens -------------------------------------------------------------------------------------


def products_of(curator: Curator, kind: Any, shape: Any = "goe", question: Matrix | None = None) -> list[Any]:
    """All there is to ask: of lazy noise, the whole space in questions that all but repeat each other."""
    d = curator.model.n_features
    products = curator.products(ProductNoise(kind, shape, N_PRODUCTS))
    if kind == "lazy":
        return [products.times((np.ones(d) + 1e-3 * e)[None, :]) for e in np.eye(d)]
    return [products.times(np.eye(d) if question is None else question[None, :]) for _ in range(N_PRODUCTS)]


# With fresh noise products have worst pairs of their own, and so have sums, for which a fifth is paid.
FRESH = {**KINDS, "rows of one group": replace(ONE_GROUP, pair=obtuse(1 / 16), words=OBTUSE.format(-1 / 16))}
FRESH["two views, centred"] = replace(FRESH["rows of one group"], build=_cca)
# Everybody else lies where the row norms of a cross-covariance move as far as it does.
DIAGONAL = np.array([1.0, 1.0, 0.0]) / math.sqrt(2)
OTHER_VIEW = DIAGONAL * [1.0, -1.0, 1.0]
def mirrored(t: float) -> Matrix:
    """A unit row that has the inner product -t with itself, two entries exchanged: all of it on the diagonal."""
    angle = math.asin(t) / 2
    return np.array([math.cos(angle), -math.sin(angle), 0.0])


SIDES = np.array([[0.5, math.sqrt(0.75), 0.0], [0.5, -math.sqrt(0.75), 0.0]])


def _beside(n: int = 1000) -> Matrix:
    """People about (-1, 0, 0), whose views go together enough for the norms of their covariance to keep their sides."""
    step = math.sqrt(3 / n)
    rows = np.zeros((n, 3))
    rows[:, 0] = -math.sqrt(1 - step * step)
    rows[::2, 0] += step
    rows[:, 1] = -step
    rows[::2, 1] = step
    return rows


SCREENED = {
    **KINDS,
    "rows of one group": replace(ONE_GROUP, pair=(mirrored(1 / 8), mirrored(1 / 8)[[1, 0, 2]])),
    "two views": Kind(
        partial(_cca, center=False), (DIAGONAL, OTHER_VIEW), "a view negated", np.tile(DIAGONAL, (7, 1))
    ),
    "two views, rows beyond 2^500 bounds": Kind(
        partial(_cca, center=False), (BEYOND * DIAGONAL, OTHER_VIEW), "such a row, and one with a view negated",
        np.tile(DIAGONAL, (7, 1)),
    ),
    "two views, centred": Kind(_cca, tuple(SIDES), "a view negated, others in the other view", _beside()),
}


def _releases() -> Iterator[tuple[str, ReplayCase]]:
    for name, kind in KINDS.items():
        yield from pair_cases(f"release, {name}", kind, Curator.release, words_of_one=_one_more(name))
    same = replace(GROUPS, pair=with_group(obtuse(1 / 2), 0, 0), words=OBTUSE.format(-1 / 2) + ", one group")
    yield next(pair_cases("release, rows of groups", same, Curator.release))
    public = replace(ONE_GROUP, build=partial(_pca, public_n=3))
    yield list(pair_cases("release, rows of one group, public n", public, Curator.release))[1]
    yield from pair_cases(
        "release, some features",
        replace(KINDS["rows"], pair=(3 * E1 + 9 * E3, 3 * E2), words="rows that are orthogonal in the features kept"),
        lambda curator: curator.release_features(np.arange(2), 1.0)[1],
    )
    yield from both_cases("release, sums that were merged", _merged_sums, ONE_GROUP)
    four = replace(KINDS["rows"], others=np.zeros((4, 3)))
    yield from both_cases("releases of two populations, added", _added_releases, four, mu=MU)


def _one_more(name: str) -> str:
    return "the same, by one person more" if "A" in name else "a unit row"


def _merged_sums(table: Matrix, adjacency: Adjacency) -> Any:
    """One person after another. Names are drawn at random."""
    total = _sums(table[:1], adjacency)
    for row in table[1:]:
        total.merge(_sums(row[None, :], adjacency))
    return curator_of(total).release()


def _sums(rows: Matrix, adjacency: Adjacency) -> dpgep.Moments:
    moments = dpgep.Moments(dpgep.PcaModel(3, center=True), bound=1.0, adjacency=adjacency)
    moments.update(rows)
    return moments


def _added_releases(table: Matrix, adjacency: Adjacency) -> Any:
    """Of two people, and of everybody else."""
    first, second = (
        dpgep.release(_pca(rows, adjacency, center=False), mu=MU) for rows in (table[:2], table[2:])
    )
    return first + second


def _products() -> Iterator[tuple[str, ReplayCase]]:
    for name, kind in KINDS.items():
        yield from pair_cases(f"lazy products, {name}", kind, partial(products_of, kind="lazy"), words_of_one=_one_more(name))
    for name, kind in FRESH.items():
        yield from pair_cases(f"fresh products, {name}", kind, partial(products_of, kind="fresh"), words_of_one=_one_more(name))
    across = (E1 + E2) / math.sqrt(2)
    for case in pair_cases("", KINDS["rows"], Curator.release):
        question = across if case[1].adjacency == "replace-one" else E1
        ask = partial(products_of, kind="fresh", shape="iid", question=question)
        asked = partial(lambda table, adjacency, ask: ask(curator_of(_pca(table, adjacency, center=False))), adjacency=case[1].adjacency, ask=ask)
        yield "fresh products, iid", replace(case[1], mechanism=asked)
    yield from both_cases("private_operator", _operator, KINDS["rows"])


def _operator(table: Matrix, adjacency: Adjacency) -> Any:
    return dpgep.private_operator(_pca(table, adjacency, center=False), mu=MU).times(np.eye(3))


def _screens() -> Iterator[tuple[str, ReplayCase]]:
    for name, kind in SCREENED.items():
        for title, case in pair_cases(f"screen, {name}", kind, Curator.screen, words_of_one=_one_more(name)):
            if case.second is None and name == "two views, centred":
                case = replace(case, first=DIAGONAL, others=np.tile(-DIAGONAL, (1000, 1)), words="a unit row, others opposite")
            yield title, case


# --- samples ---------------------------------------------------------------------------------------------------------


def _samples() -> Iterator[tuple[str, ReplayCase]]:
    plane = Kind(_pca, (E1[:2], E2[:2]), "orthogonal rows, in all samples", np.zeros((2, 2)))
    for n_sampled, n_full, name in ((2, 0, "samples"), (2, 1, "samples and everybody")):
        asked = SampledMechanism(1.0, n_sampled, n_full)
        yield from both_cases(f"products, {name}", partial(_sampled, asked), plane, "a unit row, in all samples")


def _sampled(asked: SampledMechanism, table: Matrix, adjacency: Adjacency) -> list[Any]:
    """Each product is with the whole space. The noise is made up: its calibration takes seconds, and the claim is that
    of the ledger's event.
    """
    public_n = None if adjacency == "replace-one" else 4
    problem = dpgep.pca(table, center=False, bound=1.0, adjacency=adjacency, public_n=public_n)
    if adjacency == "add-remove":  # who is more is in all samples; replaced people are, where everybody is
        asked = replace(asked, rate=0.5)
    noisy = asked.with_noise(2.0, 3.0 if asked.n_full else 0.0)
    curator = Curator(problem, Ledger(9.0, (8.0, 1e-3)), noise_stream())
    with mock.patch.object(sampled_products, "calibrate_sampled", return_value=noisy):
        products = curator.samples(asked, 0.5).products
    whole = np.eye(2)
    full = [products.full(whole) for _ in range(asked.n_full)]
    return [*full, *(products.ascend(whole, np.zeros(2)) for _ in range(asked.n_sampled))]


# --- clipped products ------------------------------------------------------------------------------------------------


def _clipped() -> Iterator[tuple[str, ReplayCase]]:
    plane, both = Asked(np.eye(3)[:2]), Asked(np.array([[1.0, -0.5], [-0.5, 1.0]]) @ np.eye(3)[:2] / 1.5)
    line = Asked(E1[None, :])
    c, s = 0.125, 0.64
    opposite = np.array([[c, 0.0, math.sqrt(1 - c * c)], [c, 0.0, -math.sqrt(1 - c * c)]])
    g = (1 - s) / (2 * s)  # docs/mathematics.md, section 11
    tilted = np.array([[1.0, 0.0], [g, math.sqrt(1 - g * g)]]) * math.sqrt(s)
    tilted = np.hstack([tilted, [[math.sqrt(1 - s)], [-math.sqrt(1 - s)]]])
    m, least = 0.01, 2.0**-7
    sides = np.array([[along, 0.0, math.sqrt(1 - along**2)] for along in (m - least, m + least)])
    negated = DIAGONAL, DIAGONAL * [-1, 1, 1]

    def products(asked: Asked, thresholds: Thresholds) -> Callable[[Curator], Any]:
        return lambda curator: curator.clipped_products(asked, thresholds)

    def moment(asked: Asked, thresholds: Thresholds) -> Callable[[Curator], Any]:
        return lambda curator: curator.product_moment(asked, thresholds)

    pca, pls, cca = (partial(_clippable, build) for build in (_pca, _pls, _cca))
    for name, build, ask, pair, words in (
        ("mean", pca, Curator.mean, (E1, -E1), "opposite rows"),
        ("histogram of norms", pca, lambda curator: curator.product_norms(line), (E1, 0 * E1), "rows of norms 1 and 0"),
        ("one direction", pca, products(line, (c,)), opposite, "equal products, opposite across"),
        ("two directions", pca, products(plane, (math.sqrt(s),)), tilted, "tilted products, opposite across"),
        ("about a mean", pca, products(Asked(E1[None, :], m * E1), (least,)), sides, "both sides of the mean"),
        ("second moment", pca, moment(plane, (0.5,)), (E1, E2), "orthogonal rows"),
        ("two views", pls, products(plane, (c, c)), negated, "a view negated"),
        ("second moment of two views", pls, moment(plane, (c, c)), negated, "a view negated"),
        ("residuals", cca, products(both, (c, c)), negated, "a view negated"),
        ("second moment of both views", cca, moment(plane, (c,)), (E1, E2), "orthogonal rows"),
    ):
        yield from pair_cases(f"clipped products, {name}", Kind(build, (pair[0], pair[1]), words), ask, words_of_one=ONE)


ONE = "a unit row"


def _pls(table: Matrix, adjacency: Adjacency, **options: Any) -> Any:
    return dpgep.pls(table[:, :1], table[:, 1:], bound=1.0, adjacency=adjacency, **options)


def _clippable(build: Callable[..., Any], table: Matrix, adjacency: Adjacency) -> Any:
    """Clipped products are divided by a public number of people."""
    return build(table, adjacency, center=False, public_n=None if adjacency == "replace-one" else 3)


# --- stages ----------------------------------------------------------------------------------------------------------


def _stages() -> Iterator[tuple[str, ReplayCase]]:
    words = {
        "histograms of magnitudes": "another octave in each column",
        "histograms within intervals": "another part of each interval",
        "histogram of norms": "rows of other norms",
        "sums of columns and squares": "opposite ends of all columns",
        "sum of mapped rows": "opposite rows, far outside",
        "second moment": "orthogonal rows",
    }
    second = Stage(lambda stages, mu: stages.second_moment(dpgep.Preparation(1.0), mu), E1, E2)
    for name, stage in {**STAGES, "second moment": second}.items():
        kind = Kind(_pca, (stage.first, stage.second), words[name])
        mechanism = partial(_staged, stage)
        yield from both_cases(f'bound="auto", {name}', mechanism, kind, "a row")


def _staged(stage: Stage, table: Matrix, adjacency: Adjacency) -> Any:
    return stage.ask(stages_of(table, adjacency, MU, noise_stream()), MU)


# --- people and sites that draw their own ----------------------------------------------------------------------------


def _drawn_apart() -> Iterator[tuple[str, ReplayCase]]:
    randomizer = partial(GaussianRandomizer, 3, 1.0, 12.0, 1e-6)
    mu = randomizer().mechanism.mu
    zeros, words = np.zeros((2, 3)), "orthogonal rows"
    yield "local report", ReplayCase(lambda table: randomizer().randomize(table[-1]), E1, E2, words, zeros, mu)
    yield "local reports of many", ReplayCase(lambda table: randomizer().randomize_rows(table), E1, E2, words, zeros, mu)
    # of n people the mean tells 1/sqrt(n) of what it costs each
    yield (
        "mean of local reports, of two people",
        ReplayCase(
            lambda table: curator_of(_pca(table, "replace-one", center=False)).release_local(), E1, E2, words, zeros[:1]
        ),
    )
    four = replace(ONE_GROUP, others=np.zeros((4, 3)))
    for honest, name in ((1, "masked sum, all but one collude"), (2, "masked sum, nobody colludes")):
        yield from both_cases(name, partial(_masked, 2 - honest), four, mu=MU, parties=honest)
    yield from both_cases("a mechanism of one's own", _own, Kind(_pca, (E1, -E1), "opposite rows"))


def _masked(colluding: int, table: Matrix, adjacency: Adjacency) -> Any:
    """Two sites, the first of which has the same people on both sides."""
    model = dpgep.PcaModel(3, center=True)
    terms = masked.Terms(model, 1.0, ("a", "b"), colluding, "replay", mu=MU, adjacency=adjacency)
    sites = {name: masked.Site(terms, name) for name in terms.sites}
    keys = {name: site.key for name, site in sites.items()}
    halves = {"a": table[:2], "b": table[2:]}
    messages = {}
    for name, site in sites.items():
        moments = dpgep.Moments(model, bound=1.0, adjacency=adjacency, bits=terms.bits)
        moments.update(halves[name])
        messages[name] = site.mask(moments, keys)
    return masked.release(terms, keys, messages)


def _own(table: Matrix, adjacency: Adjacency) -> Matrix:
    """The sum of the rows, cut to the unit ball up to rounding, paid from a budget."""
    import dp_accounting

    lengths = np.maximum(1.0, np.abs(table).max(axis=1))
    rows = table / lengths[:, None]
    rows /= np.maximum(1 / lengths, np.linalg.norm(rows, axis=1))[:, None]
    sensitivity = 2.0 if adjacency == "replace-one" else 1.0
    budget = dpgep.Budget(mu=MU, adjacency=adjacency)
    budget.charge(dp_accounting.GaussianDpEvent(1 / MU), what="sum", adjacency=adjacency)
    return add_grid_noise(rows.sum(axis=0), sensitivity * (1 + 2.0**-20) / MU, noise_stream())


CASES: list[tuple[str, ReplayCase]] = [
    *_releases(),
    *_products(),
    *_screens(),
    *_samples(),
    *_clipped(),
    *_stages(),
    *_drawn_apart(),
]
