"""Every public way in, replayed on a neighbour with the same answers: it shows the same, and costs what it says."""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_forms import BATCH, FORMS
from replay_people import CLASSES, EDGES, LONG_TEXT, Pair, People
from replay_ways import Terms, Way, table_of_ways, ways

import dpgep
from dpgep import cli, sources
from dpgep.sources.source import Source

DOCS = Path(__file__).resolve().parents[2] / "docs"
WAYS = {repr(way): way for way in ways()}
NAMED = {name for way in WAYS.values() for name in way.covers}

pytestmark = pytest.mark.entropy  # the noise of the second run is that of the first


def seeded(name: str) -> Random:
    return Random(zlib.crc32(name.encode()))


# ---- all of them ----


def some_of_each_form() -> list[Any]:
    """All ways, of which three in four of a group of many are deep."""
    sizes = Counter(way.group for way in WAYS.values())
    return [
        pytest.param(name, marks=pytest.mark.deep) if sizes[way.group] > 6 and number % 4 else name
        for number, (name, way) in enumerate(WAYS.items())
    ]


@pytest.mark.parametrize("name", some_of_each_form())
def test_same_answers_same_view(name: str, tmp_path: Path) -> None:
    """One pair, with the adjacency and the bound that are its turn."""
    way, random = WAYS[name], seeded(name)
    choices = way.terms(tmp_path)
    terms = choices[list(WAYS).index(name) % len(choices)]
    pair = way.pair(random, terms, range(5, 12))
    result = way.replay(pair, terms)
    assert not result.flagged, f"{terms}, {pair}\n{result}"
    assert result.error is None, "a run that ends in the same way on both sides shows little"
    assert result.parts or "dry run" in name


@settings(derandomize=True, database=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(list(WAYS)), turn=st.integers(0, 3), random=st.randoms(use_true_random=False))
def test_neighbours_of_all_kinds(name: str, turn: int, random: Random, tmp_path_factory: Any) -> None:
    way = WAYS[name]
    choices = way.terms(tmp_path_factory.mktemp("people"))
    terms = choices[turn % len(choices)]
    pair = way.pair(random, terms)
    result = way.replay(pair, terms)
    assert not result.flagged, f"{terms}, {pair}\n{result}"


@pytest.mark.deep
@pytest.mark.parametrize("name", WAYS)
def test_neighbours_of_all_kinds_in_every_way(name: str, tmp_path: Path) -> None:
    way, random = WAYS[name], seeded(name)
    for terms in way.terms(tmp_path):
        pair = way.pair(random, terms)
        result = way.replay(pair, terms)
        assert not result.flagged, f"{terms}, {pair}\n{result}"


EDGED = ("arrays of float64, pca", "SciPy's CSR, fda", "list of batches, cca", "Parquet folder, sir")


@pytest.mark.parametrize("name", EDGED)
def test_one_more_at_every_edge(name: str, tmp_path: Path) -> None:
    slow = "batches" in name or "Parquet" in name
    replayed_at_edges(WAYS[name], tmp_path, seeded(name).sample(EDGES, 3) if slow else EDGES)


@pytest.mark.deep
@pytest.mark.parametrize("name", WAYS)
def test_one_more_at_some_edges_in_every_way(name: str, tmp_path: Path) -> None:
    """Of what is not read as a whole, edges of batches alone: kernels see one at a time, and many take seconds."""
    is_whole = WAYS[name].group in FORMS and not FORMS[WAYS[name].group].sources and "Dask" not in name
    edges = [n for n in EDGES if is_whole or n <= 16 * BATCH + 1]
    replayed_at_edges(WAYS[name], tmp_path, seeded(name).sample(edges, 2))


def replayed_at_edges(way: Way, folder: Path, edges: Any) -> None:
    terms = way.terms(folder)[-1]  # with add-remove, where it is taken
    for n in edges:
        pair = way.pair(seeded(f"{n}"), terms, [n])
        result = way.replay(pair, terms)
        assert not result.flagged, f"{terms}, {pair}\n{result}"


# ---- what is refused ----


@dataclass(frozen=True)
class Refusal:
    """What the documentation says is refused, or published: one person then makes a difference that is seen.

    Attributes
    ----------
    way : where.
    page, sentence : that says so.
    message : of the error, a pattern.
    invalid : makes people invalid by two of them, in one way or in another: the message is the same.
    """

    way: str
    page: str
    sentence: str
    message: str
    invalid: tuple[Callable[[People], People], Callable[[People], People]]
    bound: str = "known"


def holed(place: int, person: int, value: float) -> Callable[[People], People]:
    """The person's other values are others, too: no error holds them."""

    def changed(people: People) -> People:
        rows = people.rows.copy()
        rows[person] = np.arange(5) + person / 8
        rows[person, place] = value
        return replace(people, rows=rows)

    return changed


def with_one(name: str, value: Any) -> Callable[[People], People]:
    def changed(people: People) -> People:
        return replace(people, **{name: [*getattr(people, name)[:-1], value]})

    return changed


def without_any(name: str) -> Callable[[People], People]:
    return lambda people: replace(people, **{name: [None] * len(people)})


ABSENT = (holed(1, 3, math.nan), holed(1, 5, math.nan))
INFINITE = (holed(1, 3, math.inf), holed(1, 5, -math.inf))
OF_ABSENT = ("your-table.md", "NaN is refused, unless absent values are to count as the location of their column")
OF_INFINITE = ("your-table.md", "Infinities are always refused.")
OF_TYPES = (
    "sources.md",
    "Types are found in the first megabyte of the first file, and public, as the types of any table are.",
)
NOT_FINITE = (
    "arrays of float64, pca", "arrays in Fortran order, sir", "SciPy's CSR, fda", "pandas, pca", "polars, fda",
    "list of batches, cca", "Parquet file, pca", "CSV file, pca", "h5py, pls", "Dask arrays, pca",
    "Moments, PcaModel", "Spark, pca", "PrivatePCA, arrays of float64", "local, reports",
    "dpgep pca, Parquet",
)  # fmt: skip
REFUSALS = [
    *(Refusal(way, *OF_ABSENT, "NaN", ABSENT) for way in NOT_FINITE),
    *(Refusal(way, *OF_INFINITE, "infinit", INFINITE) for way in NOT_FINITE),
    *(
        Refusal(way, *OF_INFINITE, "infinit", INFINITE, "bought")
        for way in ("arrays of float64, pca", "Parquet file, pca", "PrivateScaler, pandas", "dpgep pca, Parquet")
    ),
    Refusal(
        "CSV file, fda", *OF_TYPES, r"column 'label' \(double\) does not hold the values that are declared",
        (without_any("labels"), without_any("labels")),
    ),
    Refusal(
        "CSV file, pca", *OF_TYPES, r"column 'joined' \(double\) holds no dates",
        (without_any("days"), without_any("days")),
    ),
]  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: f"{each.way}-{each.message:.8}-{each.bound}")
def test_a_refusal_is_documented_and_says_no_more(refusal: Refusal, tmp_path: Path) -> None:
    way, page = WAYS[refusal.way], (DOCS / refusal.page).read_text(encoding="utf-8")
    assert refusal.sentence in " ".join(page.split())
    terms = Terms("replace-one", refusal.bound, tmp_path)
    people = way.pair(seeded(refusal.way), terms, [9]).before
    people = replace(people, rows=np.nan_to_num(people.rows), labels=[*CLASSES] * 4 + ["no"])
    one, other = (invalid(people) for invalid in refusal.invalid)
    told_apart = way.replay(Pair(one, people, "replace-one"), terms)
    shown = str(told_apart.error) + "".join(told_apart.differences)
    assert told_apart.differences
    assert re.search(refusal.message, shown), shown
    same = way.replay(Pair(one, other, "replace-one"), terms)
    assert not same.flagged, same
    assert not same.parts  # before anything was drawn or spent


def test_who_is_in_no_group_is_refused_nothing_as_documented(tmp_path: Path) -> None:
    """A refusal then tells that a person whose row is not finite has a class."""
    page = " ".join((DOCS / "guide.md").read_text(encoding="utf-8").split())
    assert "rows of people without a class or a response are not looked at" in page
    way, terms = WAYS["Parquet file, fda"], Terms("replace-one", "known", tmp_path)
    people = holed(1, 8, math.nan)(way.pair(seeded("nobody's"), terms, [9]).before)
    one, other = (with_one("labels", label)(people) for label in ("yes", "perhaps"))
    result = way.replay(Pair(one, other, "replace-one"), terms)
    assert "NotFiniteError" in str(result.error)
    assert result.differences


def test_whoever_lacks_a_label_a_group_or_a_category_is_not_refused(tmp_path: Path) -> None:
    for name, field, value in (
        ("pandas, fda", "labels", None),
        ("scan of polars, fda", "labels", LONG_TEXT),
        ("dpgep fda, CSV", "labels", "perhaps"),
        ("Parquet file, sir", "response", math.nan),
        ("CSV file, pca", "regions", None),
        ("Arrow file, cca", "regions", LONG_TEXT),
    ):
        way, terms = WAYS[name], Terms("replace-one", "known", tmp_path)
        people = way.pair(seeded(name), terms, [9]).before
        result = way.replay(Pair(people, with_one(field, value)(people), "replace-one"), terms)
        assert not result.flagged, f"{name}\n{result}"
        assert result.error is None


# ---- none is left out ----

# Public names that take nobody's data; `dpgep.auditing.audit` takes data that are made up for it.
NOT_OF_PEOPLE = {
    "Preprocessing", "PrivacyReport", "Solution", "auditing", "errors", "models", "planning", "plot", "__version__",
}  # fmt: skip
# Those whose answers are no more private than the data they are given, and where their documentation says so.
AS_PRIVATE_AS_THE_ROWS = {"replay": "It holds what exact values say about people"}
COMMANDS_WITHOUT_PEOPLE = {"plan", "audit", "demo", "info"}


def test_every_public_name_that_takes_people_is_replayed() -> None:
    assert set(dir(dpgep)) == (NAMED & set(dir(dpgep))) | NOT_OF_PEOPLE
    assert not NAMED & (NOT_OF_PEOPLE | AS_PRIVATE_AS_THE_ROWS.keys())
    assert set(dpgep.models.__all__) <= NAMED


@pytest.mark.parametrize(("name", "words"), AS_PRIVATE_AS_THE_ROWS.items())
def test_what_is_as_private_as_its_data_says_so(name: str, words: str) -> None:
    assert words in " ".join((getattr(dpgep.auditing, name).__doc__ or "").split())


@pytest.mark.parametrize("module", ["local", "masked", "sklearn"])
def test_every_name_of_a_module_is_replayed(module: str) -> None:
    of_no_data = {"LocalMechanism", "Reports", "ReportError", "new_identity"}
    names = set(getattr(dpgep, module).__all__) - of_no_data
    qualified = {name if module in ("local", "sklearn") else f"{module}.{name}" for name in names}
    assert qualified <= NAMED
    assert module in NAMED


def test_every_command_that_reads_people_is_replayed() -> None:
    (commands,) = (action.choices for action in cli._parser()._actions if action.dest == "command")
    named = {name.removeprefix("dpgep ") for name in NAMED if name.startswith("dpgep ")}
    # transform: "Scores are no more private than the rows", as command-line.md says; ask reads a release
    assert set(commands) == named | COMMANDS_WITHOUT_PEOPLE | {"transform", "ask"}


def classes_of(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from classes_of(each)


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_every_source_is_read_in_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever reads rows is used by a way that names it; abstract ones have no way of their own."""
    kinds = {each.__name__: each for each in classes_of(Source) if each.__module__.startswith(sources.__name__)}
    abstract = {"Table", "ArrowTable", "TableFiles"}
    assert kinds.keys() - abstract <= NAMED
    read = set()

    def noted(real: Callable[..., Any]) -> Callable[..., Any]:
        def reading(self: Any, *args: Any) -> Any:
            read.add(type(self).__name__)
            return real(self, *args)

        return reading

    for kind, method in itertools.product(kinds.values(), ("pieces", "read", "record_batches")):
        if method in vars(kind):
            monkeypatch.setattr(kind, method, noted(getattr(kind, method)))
    for name, form in FORMS.items():
        way = WAYS[f"{name}, pca"]
        read.clear()
        terms = Terms(way.adjacencies[-1], "known", tmp_path)
        way._run(terms, way.pair(seeded(name), terms, [6]).before)
        assert set(form.sources) <= read, name
    assert "SparkFrame" in NAMED  # whose rows are read by executors, as Arrow's readers


def test_every_question_of_a_release_is_asked() -> None:
    source = (Path(__file__).resolve().parents[1] / "support" / "replay_ways.py").read_text(encoding="utf-8")
    questions = {name for name in dir(dpgep.Release) if not name.startswith("_")}
    asked = {name for name in questions if f"asked.{name}(" in source or f"again.{name}" in source}
    assert asked == questions - {"preprocessing"}


def test_the_documentation_lists_the_ways() -> None:
    text = (DOCS / "audits.md").read_text(encoding="utf-8")
    assert table_of_ways() in text, table_of_ways()
