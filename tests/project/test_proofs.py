"""What the program charges is what the proofs in proofs/ bound, read from both; .ci/run has Coq check the proofs."""

import importlib.util
import itertools
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpgep
from dpgep._dispatch import core
from dpgep.data.dataset import InMemoryDataset
from dpgep.data.rows import Batch, Rows
from dpgep.models.bins import Interval
from dpgep.models.model import PublicFacts
from dpgep.models.moments import MomentLayout, MomentNoise
from dpgep.models.pairwise import mark_of, part_of_values
from dpgep.privacy.clipped_products import (
    Asked,
    Cells,
    ClippedMean,
    ClippedMoment,
    Mean,
    ProductNorms,
    product_sensitivity,
    views_sensitivity,
)
from dpgep.privacy.continual import Factor
from dpgep.privacy.curator import Curator, Stages
from dpgep.privacy.ledger import Ledger, LedgerEntry
from dpgep.privacy.noise import matrix_deviations, moment_mu
from dpgep.privacy.screening import _views_sensitivity

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("check", ROOT / "proofs" / "check.py")
assert _SPEC is not None
assert _SPEC.loader is not None
check = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check)
PROVED = check.Constants()

# A constant that is proved, and what the program charges in its place: a square, in the units of the proof.
Pairs = Iterator[tuple[Fraction, Fraction]]
N, D, MU = 40, 6, 0.5
ADJACENCIES = {"replaced": "replace-one", "added": "add-remove"}


def rows_of(n_columns: int = D) -> Any:
    return np.random.default_rng(0).standard_normal((N, n_columns))


def square(of: float) -> Fraction:
    return Fraction(of) ** 2


def paid(entry: LedgerEntry, bits: int) -> Fraction:
    """The squared change that the noise of one query is for, in units of a person: mu times its scale, on the grid."""
    (noise,) = entry.noise
    assert noise.scale is not None
    return square(entry.mu) * noise.scale**2 / Fraction(4) ** bits


# --- three scales ----------------------------------------------------------------------------------------------------


def costs(layout: MomentLayout, adjacency: Any) -> Iterator[tuple[Fraction, Fraction, Fraction, Fraction]]:
    """1/s^2 of three scales, and the square of what a release costs with these."""
    for scales in ((1.0, 2.0, 2.0), (1.0, 1.0, 2.0), (2.0, 1.0, 8.0), (3.0, 1.5, 9.0), (0.25, 3.0, 0.5)):
        noise = MomentNoise(*scales)
        first, second, third = (1 / square(scale) for scale in scales)
        yield first, second, third, square(moment_mu(noise, layout, adjacency))


def same_group() -> Pairs:
    for sums in (True, False):
        for first, second, _, charged in costs(MomentLayout(D, 1, sums=sums, counts=False), "replace-one"):
            both = (
                PROVED["same_group"](first, second if sums else 0),
                PROVED["one_row"](first, second if sums else 0, 0),
            )
            yield max(both), charged


def other_group() -> Pairs:
    for first, second, third, charged in costs(MomentLayout(D, 3, sums=True, counts=True), "replace-one"):
        yield max(PROVED["other_group"](first, second, third), PROVED["same_group"](first, second)), charged


def one_row() -> Pairs:
    for first, second, third, charged in costs(MomentLayout(D, 3, sums=True, counts=True), "add-remove"):
        yield PROVED["one_row"](first, second, third), charged


def with_marks() -> Pairs:
    for d in (1, 2, 3, 10, 57, 1000):
        yield PROVED["with_marks"](part_of_values(d), mark_of(d), d), Fraction(1)


# --- products, screens -----------------------------------------------------------------------------------------------


def all_answers() -> Pairs:
    problem = dpgep.gep(np.eye(D), n=N, sensitivity_a=math.sqrt(2))
    deviation, _ = matrix_deviations(problem, MU)
    yield PROVED["all_answers"](square(math.sqrt(2) / N), deviation), square(MU)


def screened(name: str, center: bool, n_views: int) -> Pairs:
    for end, adjacency in ADJACENCIES.items():
        if name.endswith(end):
            views = [rows_of(2) for _ in range(n_views)]
            make: Any = dpgep.cca if n_views == 2 else lambda *views, **options: dpgep.multiset_cca(views, **options)
            problem = make(*views, center=center, bound=1.0, adjacency=adjacency)
            given = (n_views,) if name == "several_views_added" else ()
            yield PROVED[name](*given), square(_views_sensitivity(problem))


def covariance() -> Pairs:
    """No noise is for it alone: it is a part of the bound of several views."""
    yield PROVED["covariance_replaced"]() + PROVED["uncentred_replaced"](), PROVED["several_views_replaced"]()


# --- clipped products ------------------------------------------------------------------------------------------------


def clipped(narrow: str, wide: str, n_directions: int, edge: Fraction) -> Pairs:
    for threshold in np.linspace(0.05, 1.0, 39).tolist():
        s = square(threshold)
        proved = PROVED[narrow](s) if s <= edge else PROVED[wide](*[s] * (n_directions > 1))
        yield proved / s, square(product_sensitivity(threshold, n_directions, D, "replace-one"))


def answered(query: Any, adjacency: Any, **options: Any) -> LedgerEntry:
    public = {"public_n": N} if adjacency == "add-remove" else {}
    make = dpgep.pls if len(getattr(query, "thresholds", (0,))) == 2 else dpgep.pca
    views = (rows_of(2), rows_of(4)) if make is dpgep.pls else (rows_of(),)
    problem = make(*views, center=False, bound=1.0, adjacency=adjacency, **public, **options)
    ledger = Ledger(MU)
    Curator(problem, ledger, core.NoiseStream(bytes(32))).answer(query)
    return ledger.releases[0]


DIRECTIONS = np.eye(2, D)
PLACED = Asked(DIRECTIONS, np.full(D, 0.25))
LENGTH = Fraction(math.ceil(math.ldexp(0.25 * math.sqrt(D), 18)), 2**18)


def located(name: str, adjacency: Any) -> Pairs:
    s = square(0.5)
    yield PROVED[name](s, LENGTH) / s, paid(answered(ClippedMean(PLACED, (0.5,)), adjacency), 36)


def views(name: str, adjacency: Any) -> Pairs:
    yield PROVED[name](), square(views_sensitivity(adjacency))
    yield PROVED[name](), paid(answered(ClippedMean(Asked(DIRECTIONS), (0.5, 0.5)), adjacency), 36)


def moments(name: str, adjacency: Any, thresholds: tuple[float, ...], n_directions: int = 2) -> Pairs:
    query = ClippedMoment(Asked(DIRECTIONS[:n_directions]), thresholds)
    yield PROVED[name](), paid(answered(query, adjacency), 36)


# --- stages, people, nights ------------------------------------------------------------------------------------------


def stage(name: str, adjacency: Any) -> Pairs:
    interval, every, mapped = Interval(np.zeros(D), np.ones(D)), np.arange(D), dpgep.Preprocessing(1.0)
    asked: dict[str, list[tuple[int, Callable[[Stages], Any]]]] = {
        "histogram": [
            (D, lambda stages: stages.magnitudes(every, MU)),
            (D, lambda stages: stages.places(every, interval, 32, MU)),
            (1, lambda stages: stages.norms(mapped, np.arange(-4, 5), MU)),
        ],
        "sums": [(D, lambda stages: stages.column_sums(interval, MU))],
        "row": [(0, lambda stages: stages.row_sum(mapped, MU))],
    }
    kind = name.partition("_")[0]
    for columns, ask in asked[kind]:
        ledger = Ledger(MU)
        facts = PublicFacts(adjacency, None, N if adjacency == "replace-one" else None)
        dataset = InMemoryDataset(Batch(Rows((rows_of(),), 1.0)))
        ask(Stages(dataset, facts, D, ledger, core.NoiseStream(bytes(32))))
        yield PROVED[name](*[columns] * (columns > 0)), paid(ledger.releases[0], 20)
    if kind == "histogram":
        edges = np.linspace(-1, 1, 5) * np.ones((2, 1))
        for query in (ProductNorms(Asked(DIRECTIONS)), Cells(Asked(DIRECTIONS), edges)):
            yield PROVED[name](1), paid(answered(query, adjacency), 18)
    if kind == "row":
        yield PROVED[name](), paid(answered(Mean(), adjacency), 18)


def of_one_row() -> Pairs:
    """A person with several rows weighs 2^12 in all sums, and is moved whole."""
    for end, adjacency in ADJACENCIES.items():
        entry = answered(ProductNorms(Asked(DIRECTIONS)), adjacency, person=np.arange(N) // 2)
        yield PROVED["of_one_row"](PROVED[f"histogram_{end}"](1)), paid(entry, 18 + 12)


def all_nights() -> Pairs:
    for keep, nights in ((365, 1), (365, 2), (365, 12), (8, 5), (3, 40), (1, 7)):
        factor = Factor(keep)
        c = [Fraction(int(each), 64) for each in factor.coefficients]
        assert all(0 <= later <= earlier for earlier, later in itertools.pairwise(c))  # what the theorem assumes
        longest = range(keep + nights)
        column = [sum((c[t - a] for a in range(nights) if 0 <= t - a < keep), Fraction()) for t in longest]
        yield PROVED["all_nights"](square(factor.mu_of_a_night(MU, nights)), sum(e * e for e in column)), square(MU)


CHARGED: dict[str, Callable[[], Pairs]] = {
    "same_group": same_group,
    "other_group": other_group,
    "one_row": one_row,
    "with_marks": with_marks,
    "all_answers": all_answers,
    "covariance_replaced": covariance,
    "of_one_row": of_one_row,
    "all_nights": all_nights,
    **{f"uncentred_{end}": lambda end=end: screened(f"uncentred_{end}", False, 2) for end in ADJACENCIES},
    **{f"two_views_{end}": lambda end=end: screened(f"two_views_{end}", True, 2) for end in ADJACENCIES},
    **{f"several_views_{end}": lambda end=end: screened(f"several_views_{end}", True, 4) for end in ADJACENCIES},
    **{
        f"one_direction_{part}": lambda: clipped("one_direction_narrow", "one_direction_wide", 1, Fraction(1, 2))
        for part in ("narrow", "wide")
    },
    **{
        f"several_directions_{part}": lambda: clipped(
            "several_directions_narrow", "several_directions_wide", 2, Fraction(1, 3)
        )
        for part in ("narrow", "wide")
    },
    **{f"located_{end}": lambda end=end: located(f"located_{end}", ADJACENCIES[end]) for end in ADJACENCIES},
    **{f"views_{end}": lambda end=end: views(f"views_{end}", ADJACENCIES[end]) for end in ADJACENCIES},
    **{f"moment_{end}": lambda end=end: moments(f"moment_{end}", ADJACENCIES[end], (0.5,)) for end in ADJACENCIES},
    "moment_of_one_replaced": lambda: moments("moment_of_one_replaced", "replace-one", (0.5,), 1),
    "moment_of_views_replaced": lambda: moments("moment_of_views_replaced", "replace-one", (0.5, 0.25)),
    **{
        f"{kind}_{end}": lambda kind=kind, end=end: stage(f"{kind}_{end}", ADJACENCIES[end])
        for kind in ("histogram", "sums", "row")
        for end in ADJACENCIES
    },
}


def test_all_constants_are_compared() -> None:
    assert {name for names in PROVED.names.values() for name in names} == set(CHARGED)


@pytest.mark.parametrize("name", CHARGED)
def test_what_is_charged_covers_what_is_proved_and_one_percent_less_would_not(name: str) -> None:
    pairs = list(CHARGED[name]())
    assert pairs
    for proved, charged in pairs:
        assert proved <= charged
        assert charged * Fraction(99, 100) < proved


def test_planted_constants_are_smaller() -> None:
    """What .ci/run gives Coq to refuse."""
    for file, names in PROVED.names.items():
        text = (ROOT / "proofs" / f"{file}.v").read_text()
        for name in names:
            planted = check.scaled(text, "99 / 100", name)
            changed = [line for line in planted.splitlines() if line not in text.splitlines()]
            assert len(changed) == 1
            assert re.match(rf"Definition {name}\b.* := 99 / 100 \* \(.*\)\.$", changed[0])


def test_nothing_is_left_to_believe() -> None:
    for path in (ROOT / "proofs").glob("*.v"):
        assert not re.search(r"\b(Admitted|Axiom|Parameter|Conjecture|admit|give_up)\b", path.read_text()), path.name


def test_the_page_names_every_constant_and_every_file() -> None:
    page = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
    for file, names in PROVED.names.items():
        assert f"{file}.v" in page
        assert {name for name in names if f"`{name}`" not in page} == set()
