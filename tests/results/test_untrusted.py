"""Bytes and files from hands that nobody trusts: loaded where all in them agrees, or refused by a ValueError."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import json
import math
import re
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import bytes_of

import dpgep
from dpgep import masked, serialization
from dpgep.cli import main
from dpgep.data import integer_moments
from dpgep.local import Aggregator, GaussianRandomizer, Reports
from dpgep.masked import Site, Terms
from dpgep.models import FdaModel, PcaModel
from dpgep.models.bins import Histograms, Magnitudes
from dpgep.models.clipping import Clipping
from dpgep.models.preprocessing import Preprocessing
from dpgep.privacy import accounting
from dpgep.privacy.ledger import LedgerEntry, NoiseBlock
from dpgep.privacy.noise import COUNTS, RECORD, SECOND, SUMS
from dpgep.problems.builders import table_problem
from dpgep.reports import guarantee, report
from dpgep.reports.report import verify
from dpgep.serialization import Format

DATA = Path(__file__).resolve().parents[1] / "support"
ROWS = np.random.default_rng(0).standard_normal((400, 3)) / 4
LABELS = np.arange(400) % 3
pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning", "ignore::dpgep.errors.PrivacyWarning")


@functools.cache
def release(name: str) -> bytes:
    """Kept releases of every form."""
    facts: dict[str, Any] = {"bound": 1.0}
    hidden = {**facts, "adjacency": "add-remove"}
    problem = {
        "pca": lambda: dpgep.pca(ROWS, **facts),
        "second moment": lambda: dpgep.pca(ROWS, center=False, **facts),
        "hidden second moment": lambda: dpgep.pca(ROWS, center=False, **hidden),
        "hidden table": lambda: table_problem(ROWS, **hidden),
        "estimated": lambda: dpgep.cca(ROWS[:, :2], ROWS[:, 2:], **hidden, public_n=500),
        "classes": lambda: dpgep.fda(ROWS, LABELS, classes=[0, 1, 2], **hidden),
        "slices": lambda: table_problem(ROWS, LABELS, edges=[-0.5, 0.5, 1.5, 2.5], **facts),
        "prepared": lambda: table_problem(ROWS * [1, 10, 100] + 5),
    }
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    if name == "sum":
        one, two = (dpgep.release(dpgep.pca(part, bound=1.0), **budget) for part in (ROWS[:150], ROWS[150:]))
        return bytes_of(one + two)
    if name == "noiseless":
        return bytes_of(dpgep.release(dpgep.pca(ROWS, bound=1.0), epsilon=math.inf))
    return bytes_of(dpgep.release(problem[name](), **budget))


@functools.cache
def sums(name: str) -> bytes:
    """Moments: of everybody, of groups, and in two limbs."""
    facts: dict[str, Any] = {"bound": 1.0, "adjacency": "add-remove" if name == "hidden" else "replace-one"}
    model = FdaModel(3, (0, 1, 2)) if name == "classes" else PcaModel(3, center=name != "second moment")
    moments = dpgep.Moments(model, **facts)
    moments.update(*((ROWS, LABELS) if name == "classes" else (ROWS,)))
    return bytes_of(moments)


def unpacked(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """The fields and the payload of a binary file."""
    document = serialization.opened(data)
    return document.fields, document.payload


def repacked(data: bytes, fields: dict[str, Any], payload: Any) -> bytes:
    """The same file with other fields and another payload, and a checksum that fits."""
    text = json.dumps({**_heading(data), **fields}).encode()
    content = b"dpgep\n" + len(text).to_bytes(8, "little") + text + payload
    return content + hashlib.sha256(content).digest()


@functools.cache
def _heading(data: bytes) -> dict[str, Any]:
    return Format(serialization.opened(data).name).heading()


def changed(data: bytes, parts: dict[str, Any], payload: bytes | None = None) -> bytes:
    """The bytes with other values at dotted paths of the fields (Ellipsis: without it), and a checksum that fits."""
    header, content = unpacked(data)
    for path, value in parts.items():
        *outer, last = path.split("__")
        inner: Any = header
        for key in outer:
            inner = inner[int(key) if isinstance(inner, list) else key]
        if value is ...:
            del inner[last]
        else:
            inner[int(last) if isinstance(inner, list) else last] = value
    return repacked(data, header, content if payload is None else payload)


@pytest.mark.parametrize(
    "name",
    [
        "pca",
        "second moment",
        "hidden second moment",
        "hidden table",
        "estimated",
        "classes",
        "slices",
        "prepared",
        "sum",
        "noiseless",
    ],
)
def test_every_release_that_was_kept_is_loaded(name: str) -> None:
    loaded = dpgep.load(release(name))
    assert bytes_of(loaded) == release(name)
    loaded.report.require_consistent()


NESTED: Any = functools.reduce(lambda inner, _: [inner], range(500), [])
LEDGER = "privacy__releases__0__"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy__epsilon": 0.001}, "more than the stated 1e-06"),
        ({"privacy__epsilon": "inf"}, "epsilon is infinite where a release has no noise, and only there"),
        ({"privacy__mu": 0.1}, "add up to mu = .*, not to the stated 0.1"),
        ({"privacy__mu": 0.1, LEDGER + "mu": 0.1}, r"releases\[0\].noise costs mu = .*, more than the stated 0.1"),
        ({"privacy__mu": None}, "a report has a mu"),
        ({LEDGER + "mu": "nan"}, r"releases\[0\].mu must be positive"),
        ({LEDGER + "mu": -1.0}, r"releases\[0\].mu must be positive"),
        ({LEDGER + "noise__0__deviation": 0.0}, r"releases\[0\].noise must have positive finite deviations, got 0.0"),
        ({LEDGER + "noise__0__deviation": 1e9}, r"releases\[0\].noise has a scale of .*, which is not its deviation"),
        ({LEDGER + "noise__0__deviation": 1e9, LEDGER + "noise__0__scale": None}, "noise must be "),
        ({LEDGER + "noise__1__deviation": "inf"}, r"releases\[0\].noise must have positive finite deviations"),
        ({LEDGER + "noise": []}, r"releases\[0\].noise must have a block"),
        ({LEDGER + "noise__0__name": SECOND + " "}, r"releases\[-1\].noise must be of the blocks .* in this order"),
        ({LEDGER + "noise__0__name": "x", LEDGER + "noise__0__shape": "none"}, "noise must be of the blocks"),
        ({LEDGER + "noise__0__name": RECORD}, "has a block of a moment matrix beside others"),
        ({LEDGER + "noise__1__name": COUNTS}, "noise must be of the blocks"),
        ({LEDGER + "noise__1__name": SECOND}, r"releases\[0\].noise lists a block twice"),
        ({LEDGER + "noise__0__deviation": 1e-170, LEDGER + "noise__0__scale": None}, "deviations between 1e-150"),
        ({LEDGER + "noise__1__deviation": 1e200, LEDGER + "noise__1__scale": None}, "deviations between 1e-150"),
        ({LEDGER + "grid_bits": 10**9}, r"releases\[0\].grid_bits must be from 0 to 64"),
        ({"privacy__releases": []}, "a ledger has entries"),
        ({"privacy__adjacency": "none"}, "privacy.adjacency must be"),
        ({"privacy__adjacency": "local"}, "not local"),
        ({"privacy__bound": -1.0}, "bound must be a positive finite number"),
        ({"privacy__bound": None}, "bound must be a positive finite number"),
        ({"privacy__bound": 2.0}, "noise must be "),
        ({"privacy__exact": False}, "whether a report is exact"),
        ({"noisy__n": -5}, "n must be a positive number of people, got -5"),
        ({"noisy__n": "nan"}, "n must be a positive number of people, got nan"),
        ({"noisy__n": "abc"}, "n must be a number, got 'abc'"),
        ({"noisy__n": 1e15}, "n is 1000000000000000.0, and the public number of people 400"),
        ({"noisy__n": 1e15, "privacy__public__n_people": None}, r"noise must be .* for n = 1000000000000000.0 and"),
        ({"noisy__n": 399.5, "privacy__public": None}, "n must be at least 1, and whole where it is public, got 399.5"),
        ({"noisy__noise__second": 0.0}, "noise must be positive where mu is finite"),
        ({"noisy__noise__second": -0.1}, "noise must be of non-negative finite deviations"),
        ({"noisy__noise__second": 1e-9}, "noise must be "),
        ({"noisy__noise": [0.1]}, "noise must be an object"),
        ({"noisy__sums__shape": [3, 2**62]}, "a shape of one to three axes, up to 2.31"),
        ({"noisy__sums__shape": [3, 2**30]}, "bytes of entries, more than the"),
        ({"noisy__second": {"triangle": 2**30}}, "bytes of entries, more than the"),
        ({"noisy__second": {"shape": [3, 2]}}, "second must have shape|leave 24 bytes|more than the"),
        ({"noisy__second": {"shape": [3], "more": 1}}, "second must be an array, got an object"),
        ({"noisy__counts": {"shape": [0]}}, "the arrays of the release leave"),
        ({"noisy__sums__shape": [-3, -1]}, "a shape of one to three axes"),
        ({"noisy__sums__shape": [1, 3]}, "shapes .* are not those of a release of pca"),
        ({"sources": 3}, "sources must be a list"),
        ({"model__kind": "gep"}, "model is of kind 'gep'"),
        ({"model__n_features": 10**12}, "second must have shape .1000000000000, 1000000000000., got .3, 3."),
        ({"model__n_features": -3}, "the model is of -3 features"),
        ({"model__center": False}, "shapes .* are not those of a release of pca"),
        ({"model": None}, "model must be an object"),
        ({"preprocessing": {"bound": "wide"}}, "preprocessing.bound must be a number"),
        ({"preprocessing": {"bound": 3.0}}, "bound is 1.0, and that of the preprocessing 3.0"),
        ({"privacy__public": NESTED}, "public must be an object|nested too deeply"),
        ({"noisy__n": ...}, "has no field 'n'"),
        ({"more": 1}, "a field 'more' that this dpgep does not know"),
        ({"noisy__n": 10**101}, "102 digits, more than 100"),
    ],
    ids=str,
)
def test_a_release_that_does_not_follow_from_its_ledger_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dpgep.load(changed(release("pca"), changes))


@pytest.mark.parametrize("name", ["second moment", "pca", "hidden table", "classes", "sum"])
def test_a_release_whose_noise_has_no_known_name_is_refused(name: str) -> None:
    """Its mu could be anything: nobody knows the cost of noise in a block of another name."""
    data = release(name)
    noise = unpacked(data)[0]["privacy"]["releases"][0]["noise"]
    for place in range(len(noise)):
        blocks = [{**block, "name": block["name"] + "x" * (at == place)} for at, block in enumerate(noise)]
        with pytest.raises(ValueError, match=r"must be of the blocks|has a block of a moment matrix beside others"):
            dpgep.load(changed(data, {LEDGER + "noise": blocks}))


@functools.cache
def put_back() -> bytes:
    """A solution that keeps moments with what is known of the clipping, and a map that was bought."""
    return bytes_of(dpgep.release(ROWS * [1, 10, 100] + 5, epsilon=1.0, delta=1e-6).pca(standardize=True))


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        ("clipping", {"lost": [0.1]}, "moments.clipping.lost must have shape"),
        ("clipping", {"lost": [0.1, 0.2, 1.0]}, "lost must be from 0 to below 1"),
        ("clipping", {"lost": ["nan", 0.1, 0.1]}, "moments.clipping.lost must be finite"),
        ("clipping", {"covariance": [[1.0]]}, "moments.clipping.covariance must have shape"),
        ("clipping", {"most": [1.0, 1.0, -1.0]}, "most must not be negative"),
        ("clipping", {"doubt": 2.0}, "doubt must be from 0 to 1"),
        ("clipping", {"doubt": "nan"}, "doubt must be from 0 to 1"),
        ("clipping", {"people": "inf"}, "people must be from 1 to 3"),
        ("accuracy", {"errors": ["nan", 0.1, 0.1]}, "accuracy.errors must be squared sines"),
        ("accuracy", {"errors": [0.1, -0.1, 0.1]}, "accuracy.errors must be squared sines"),
        ("accuracy", {"errors": [0.1, 0.1, 1.1]}, "accuracy.errors must be squared sines"),
        ("accuracy", {"bias": [0.1, "nan", 0.1]}, "accuracy.bias must be squared sines"),
        ("accuracy", {"bias": [-0.1, 0.1, 0.1]}, "accuracy.bias must be squared sines"),
        ("diagnostics", {"spectrum": [2.0, 1.0]}, "spectrum must be a vector of at least 3 numbers"),
        ("diagnostics", {"spectrum": [[3.0], [2.0], [1.0]]}, "spectrum must be a vector of at least 3 numbers"),
        ("accuracy", {"span": "nan"}, "accuracy.span must be squared sines"),
        ("accuracy", {"span": -1.0}, "accuracy.span must be squared sines"),
        ("accuracy", {"span": 3.1}, "accuracy.span must be squared sines"),
        ("preprocessing", {"energy_kept": 1e-300}, "energy_kept must be from"),
        ("preprocessing", {"energy_kept": 0.0}, "energy_kept must be"),
        ("preprocessing", {"unsure": [-1]}, "unsure must be columns"),
        ("preprocessing", {"unsure": [3]}, "unsure must be columns"),
        ("preprocessing", {"unsure": [10**30]}, "unsure must be columns"),
        ("preprocessing", {"unsure": [0, 0]}, "unsure must be columns"),
        ("preprocessing", {"unsure": [0], "scale": None, "variance_error": None}, "unsure must be columns"),
    ],
)
def test_a_solution_of_impossible_numbers_is_refused(part: str, changes: dict[str, Any], said: str) -> None:
    document = json.loads(put_back())
    assert isinstance(dpgep.load(put_back()), dpgep.Solution)
    holder = {"clipping": document["moments"], "accuracy": document["diagnostics"]}.get(part, document)
    holder[part].update(changes)
    with pytest.raises(ValueError, match=said):
        dpgep.load(json.dumps(document).encode())


@functools.cache
def with_quartiles() -> dpgep.Release:
    bought = dpgep.AutoPreprocessing(quartiles=0.2)
    return dpgep.release(ROWS * [1, 10, 100] + 5, preprocessing=bought, epsilon=9.0, delta=1e-6)


@pytest.mark.parametrize("solved", [False, True])
@pytest.mark.parametrize("part", ["magnitudes", "places"])
def test_histograms_with_less_noise_than_was_paid_for_are_refused(part: str, solved: bool) -> None:
    kept = with_quartiles().pca() if solved else with_quartiles()
    assert bytes_of(dpgep.load(bytes_of(kept))) == bytes_of(kept)
    mapped = kept.preprocessing
    found = getattr(mapped, part)
    for less in (found.deviation / 100, found.deviation * 0):
        better = dataclasses.replace(mapped, **{part: dataclasses.replace(found, deviation=less)})
        with pytest.raises(ValueError, match="the ledger has not paid for the noise of the histograms"):
            dpgep.load(bytes_of(dataclasses.replace(kept, preprocessing=better)))


@pytest.mark.parametrize(
    "counts",
    [
        {"places": Histograms(np.tile(np.arange(5.0), (7, 1)), np.zeros((7, 4)), np.ones(7))},
        {"magnitudes": Magnitudes(0, np.zeros((7, 2, 4)), 1.0, 9.0)},
    ],
    ids=str,
)
def test_a_solution_with_histograms_of_other_columns_is_refused(counts: dict[str, Any]) -> None:
    solution = dpgep.solve(dpgep.pca(ROWS, bound=1.0), epsilon=9.0, delta=1e-6)
    forged = dataclasses.replace(solution, preprocessing=Preprocessing(1.0, **counts))
    with pytest.raises(ValueError, match="this preprocessing is of 7 columns, not of 3"):
        dpgep.load(bytes_of(forged))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n": 40}, "n must be the public number of people, got 40"),
        ({"n": 10**25}, "n must be the public number of people"),
        ({"groups": ()}, "groups must be at least one, all different"),
        ({"groups": (0, 0)}, "groups must be at least one, all different"),
    ],
    ids=str,
)
def test_scores_of_impossible_people_are_refused(changes: dict[str, Any], said: str) -> None:
    problem = dpgep.pca(ROWS, bound=1.0)
    solution = dpgep.solve(problem, epsilon=9.0, delta=1e-6, n_components=1)
    scores = dpgep.score_density(solution, problem, epsilon=1.0, delta=1e-6, cells=16)
    noise = scores.deviation * scores.n  # as the ledger says
    forged = dataclasses.replace(scores, **changes)
    with pytest.raises(ValueError, match=said):
        dpgep.load(bytes_of(dataclasses.replace(forged, deviation=noise / forged.n)))


def test_a_release_that_was_put_back_is_refused() -> None:
    """What a release holds is as it was released."""
    kept = dpgep.load(release("pca"))
    clipping = Clipping(np.eye(3), np.zeros(3), 0.5, np.ones(3), 1.0)
    forged = dataclasses.replace(kept, _noisy=dataclasses.replace(kept._noisy, clipping=clipping))
    with pytest.raises(ValueError, match="clipping"):
        dpgep.load(bytes_of(forged))


def of_noise(*blocks: NoiseBlock, mu: float = 0.01) -> dpgep.PrivacyReport:
    """A report of one release with this noise, without a grid."""
    found = dpgep.load(DATA / "solution-1.json").privacy
    entry = LedgerEntry("moment matrix", mu, blocks)
    return dataclasses.replace(found, epsilon=None, delta=None, mu=mu, releases=(entry,))


ENOUGH, LITTLE = NoiseBlock(SECOND, "goe", 1e6), NoiseBlock(SECOND, "goe", 1e-9)
PUBLIC = NoiseBlock("y", "none", 0.0)


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([LITTLE], r"releases\[0\].noise costs mu = .*, more than the stated 0.01"),
        ([LITTLE, LITTLE], r"releases\[0\].noise lists a block twice"),
        ([NoiseBlock("x", "goe", 1.0)] * 2, r"releases\[0\].noise lists a block twice"),
        ([LITTLE, PUBLIC], r"releases\[0\].noise has a block of a moment matrix beside others"),
        ([ENOUGH, NoiseBlock("y", "goe", 1e6)], r"releases\[0\].noise has a block of a moment matrix beside others"),
        ([ENOUGH, NoiseBlock(RECORD, "goe", 1e6)], r"releases\[0\].noise has a block of a moment matrix beside"),
        ([NoiseBlock(SUMS, "independent", 1e-9), NoiseBlock("y", "goe", 1.0)], "noise costs mu = .*, more than"),
        ([NoiseBlock(COUNTS, "independent", 1e-9), PUBLIC], "noise costs mu = .*, more than"),
        ([PUBLIC], r"releases\[0\].noise must have a block where mu is finite, not only public matrices"),
        ([PUBLIC, NoiseBlock("x", "none: declared public", 0.0)], "must have a block where mu is finite, not only"),
        ([ENOUGH, NoiseBlock(SUMS, "none", 0.0)], "noise must have positive finite deviations, got 0.0"),
        ([NoiseBlock(SECOND, "goe", 1e-200)], r"deviations between 1e-150 and 1e\+150 in .*, got 1e-200"),
        ([NoiseBlock(RECORD, "goe", 1e-170)], r"deviations between 1e-150 and 1e\+150 in .*, got 1e-170"),
        ([NoiseBlock(SECOND, "goe", 1e200), NoiseBlock(SUMS, "independent", 1.0)], "deviations between .*, got 1e.200"),
        ([NoiseBlock(SECOND, "goe", 1e20), NoiseBlock(SUMS, "independent", 1e-200)], "deviations between"),
        (
            [NoiseBlock(SECOND, "goe", 1e150), NoiseBlock(SUMS, "independent", 1e-150)],
            r"costs mu = \S*e\+150, more than",
        ),
        (
            [NoiseBlock(SECOND, "goe", 1e-150), NoiseBlock(SUMS, "independent", 1e150)],
            r"costs mu = \S*e\+150, more than",
        ),
        ([NoiseBlock(SECOND, "goe", 1e-150), NoiseBlock(COUNTS, "independent", 1e-150)], r"costs mu = \S*e\+150, more"),
    ],
    ids=str,
)
def test_a_report_of_noise_that_no_release_has_is_refused(blocks: list[NoiseBlock], said: str) -> None:
    found = of_noise(*blocks)
    with pytest.raises(ValueError, match=said):
        found.require_consistent()
    text = json.loads(of_noise(ENOUGH).to_json())
    text["privacy"]["releases"][0]["noise"] = [dataclasses.asdict(block) for block in blocks]
    del text["sha256"]
    with pytest.raises(ValueError, match=said):
        verify(json.dumps({**text, "sha256": report.digest(text)}))


def test_noise_that_releases_have_is_verified() -> None:
    groups = NoiseBlock(SUMS, "independent", 1e6), NoiseBlock(COUNTS, "independent", 1e6)
    diagonal = NoiseBlock("diagonal of the second moment of rows/bound, sum over people", "independent", 1e6)
    for blocks in (
        (ENOUGH,),
        (ENOUGH, *groups),
        groups,
        (diagonal, *groups),
        (NoiseBlock(RECORD, "goe", 1e6),),
        (NoiseBlock("A", "goe", 1e-280), NoiseBlock("B", "none: declared public", 0.0)),
    ):
        verify(of_noise(*blocks).to_json())


def test_a_release_of_other_numbers_is_refused() -> None:
    data = release("pca")
    _, content = unpacked(data)
    nan = struct.pack("<d", math.nan)
    for name, bad in (("sums", nan + bytes(content[8:])), ("second", bytes(content[:-8]) + nan)):
        with pytest.raises(ValueError, match=f"{name} must be finite"):
            dpgep.load(changed(data, {}, bad))
    with pytest.raises(ValueError, match="the arrays of the release leave 8 bytes of the file"):
        dpgep.load(changed(data, {}, bytes(content) + bytes(8)))


def test_a_forged_release_is_not_signed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its ledger said mu = 0.2367 under epsilon = 0.001, and the report of a sum with it verified."""
    path = tmp_path / "people.dpgep"
    path.write_bytes(changed(release("pca"), {"privacy__epsilon": 0.001}))
    assert main(["report", str(path), "--json"]) == 1
    captured = capsys.readouterr()
    assert "more than the stated" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("everybody", {"n": -1}, "n must be a number of people, from 0 to 2.62, got -1"),
        ("everybody", {"n": 10**30}, "n must be a number of people, from 0 to 2.62, got 1000"),
        ("everybody", {"n": 400.0}, "n must be an integer, got 400.0"),
        ("everybody", {"n": True}, "n must be an integer, got True"),
        ("everybody", {"n": 399, "weight": 399}, "sums are not those of n = 399 people"),
        ("everybody", {"n": 401, "weight": 401}, "sums are not those of n = 401 people"),
        ("second moment", {"n": 1, "weight": 1}, "sums are not those of n = 1 people"),
        ("classes", {"n": 399, "weight": 399}, "sums are not those of n = 399 people"),
        (
            "everybody",
            {"n": 2**62, "weight": 2**62},
            "n = 4611686018427387904 people do not have the limbs of these sums",
        ),
        ("everybody", {"low": None}, "low must be a list, got None"),
        ("everybody", {"high": {"shape": [10]}}, "high has 80 bytes of entries, more than the 0 that are there"),
        ("everybody", {"low__shape": [9]}, "leave 8 bytes"),
        ("everybody", {"low__shape": [2, 5]}, "low must have shape .10,., got .2, 5."),
        ("everybody", {"low": {"triangle": 4}}, "low must have shape .10,., got .4, 4."),
        ("everybody", {"bits": 21}, "bits must be from 4 to 20, got 21"),
        ("everybody", {"bits": 16}, "sums are not those of n = 400 people"),
        ("everybody", {"bound": -1.0}, "bound must be"),
        ("everybody", {"bound": "auto"}, "bound must be a number, got 'auto'"),
        ("everybody", {"bound": None, "preprocessing": {"bound": 1.0, "scale": [1.0, -1.0, 1.0]}}, "scale must be"),
        ("everybody", {"preprocessing": {"bound": 1.0}}, "preprocessing has a bound of its own"),
        ("everybody", {"bound": None}, "sums come before a budget"),
        ("everybody", {"adjacency": "none"}, "adjacency must be one of"),
        ("everybody", {"public_n": 3}, "public_n requires"),
        ("hidden", {"public_n": -3}, "public_n must be a positive whole number, got -3"),
        ("everybody", {"model__n_features": 10**9}, "low must have shape .500000001500000001,."),
        ("everybody", {"model": ...}, "has no field .model."),
        ("everybody", {"model": 3}, "model must be an object"),
        ("classes", {"model__classes": [0, 0, 1]}, "classes must be at least two, all different"),
        ("classes", {"model__classes": [0]}, "classes must be at least two, all different"),
        ("everybody", {"more": NESTED}, "'more' that this dpgep does not know|nested too deeply"),
    ],
    ids=str,
)
def test_moments_of_nobody_are_refused(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dpgep.load(changed(sums(name), changes))


@pytest.mark.parametrize("entry", [2**62, -(2**63), 2**63 - 1])
def test_sums_that_no_people_have_are_refused(entry: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integer_moments, "_LIMB_BITS", 46)  # 64 rows a limb, so that there are two
    moments = dpgep.Moments(PcaModel(3, center=True), bound=1.0)
    moments.update(ROWS)
    data = bytes_of(moments)
    assert bytes_of(dpgep.load(data)) == data
    _, content = unpacked(data)
    for place in (1, 11):  # beside the diagonal, of either limb
        words = np.frombuffer(content, dtype="<i8").copy()
        words[place] = entry
        with pytest.raises(ValueError, match="the sums are not those of n = 400 people"):
            dpgep.load(changed(data, {}, words.tobytes()))


# --- anything at all -------------------------------------------------------------------------------------------------

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["nan", "inf", "", "pca", [], {}, [[]], [1.0], 10**30, 10**400, -1, 2**63, NESTED, 1e300, 5e-324]),
    st.text(max_size=5),
    st.lists(st.floats(), max_size=4),
    st.lists(st.integers(), max_size=3),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*path, key))


@functools.cache
def _places(header: str) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.sampled_from([path for path in paths(json.loads(header)) if path]), min_size=1, max_size=3)


def mutated(header: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """The header with junk in the place of some of its parts, or without them."""
    text = json.dumps(header)
    changed: dict[str, Any] = json.loads(text)
    for *outer, last in data.draw(_places(text)):
        with contextlib.suppress(LookupError, TypeError):  # within what was replaced
            inner: Any = functools.reduce(lambda part, key: part[key], outer, changed)
            if data.draw(st.integers(0, 4)):
                inner[last] = json.loads(json.dumps(data.draw(junk)))  # which may be changed in its turn
            else:
                del inner[last]
    return changed


FUZZED = {
    **{f"release: {name}": functools.partial(release, name) for name in ("pca", "classes", "prepared")},
    **{f"sums: {name}": functools.partial(sums, name) for name in ("everybody", "classes")},
}


@pytest.mark.parametrize("name", FUZZED)
@pytest.mark.parametrize("examples", [40, pytest.param(2000, marks=pytest.mark.deep)])
def test_no_changed_bytes_do_anything_but_load_or_be_refused(name: str, examples: int) -> None:
    """In memory of less than 50 MB, whatever sizes they name; what is loaded is consistent."""
    whole = FUZZED[name]()
    header, content = unpacked(whole)

    def load_or_refuse(data: st.DataObject) -> None:
        payload = bytes(content)
        if not data.draw(st.integers(0, 3)):
            cut = data.draw(st.integers(0, len(payload)))
            noise = data.draw(st.binary(max_size=8))
            payload = payload[:cut] + noise + payload[cut + len(noise) :]
        altered = repacked(whole, mutated(header, data), payload)
        tracemalloc.start()
        try:
            found = dpgep.load(altered)
        except ValueError:
            return
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 50e6
        assert repr(found)
        if isinstance(found, dpgep.Release):
            found.report.require_consistent()
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                verify(found.report.to_json())

    settings(max_examples=examples, deadline=None)(given(data=st.data())(load_or_refuse))()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_message_of_a_client_does_anything_but_load_or_be_refused(data: st.DataObject) -> None:
    message = bytearray(_message())
    for place in data.draw(st.lists(st.integers(6, 59), min_size=1, max_size=8)):
        message[place] = data.draw(st.integers(0, 255))
    field = data.draw(st.sampled_from([None, 28, 36, 44, 52]))
    if field is not None:
        message[field : field + 8] = struct.pack("<d", data.draw(st.floats()))
    payload = message[64 : data.draw(st.integers(64, len(message)))]
    head = bytes(message[:60])
    sealed = head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload
    with contextlib.suppress(ValueError):
        found = Reports.from_bytes(sealed)
        assert found.mechanism.mismatch(_client().mechanism) is None or found.mechanism.deviation > 0


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_file_of_a_server_does_anything_but_load_or_be_refused(data: st.DataObject) -> None:
    server = Aggregator(3, bound=2.0, epsilon=1.0, delta=1e-6)
    server.add(_message())
    whole = bytes_of(server)
    header, content = unpacked(whole)
    with contextlib.suppress(ValueError):
        found = dpgep.load(repacked(whole, mutated(header, data), content))
        assert found.n_reports >= 0
        assert found.mechanism.deviation > 0


@functools.cache
def _client() -> GaussianRandomizer:
    return GaussianRandomizer(3, bound=2.0, epsilon=1.0, delta=1e-6)


@functools.cache
def _message() -> bytes:
    return _client().randomize_rows(np.ones((4, 3))).to_bytes()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"deviation": 0.01}, "a mechanism whose guarantee needs deviation = 5.97.*, not 0.01"),
        ({"epsilon": 0.01}, "a mechanism whose guarantee needs deviation"),
        ({"epsilon": math.nan}, "that nobody can make: epsilon"),
        ({"bound": math.nan}, "that nobody can make: bound"),
        ({"bound": -1.0}, "that nobody can make: bound"),
        ({"records_per_person": 0}, "that nobody can make: records_per_person"),
        ({"bits": 200}, "needs bits = 20, not 200"),
    ],
    ids=str,
)
def test_reports_whose_noise_is_not_that_of_their_guarantee_are_refused(changes: dict[str, Any], said: str) -> None:
    batch = Reports.from_bytes(_message())
    mechanism = dataclasses.replace(batch.mechanism, **changes)
    with pytest.raises(ValueError, match=said):
        Reports.from_bytes(Reports(mechanism, batch.values).to_bytes())


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_message_of_a_site_does_anything_but_add_or_be_refused(data: st.DataObject) -> None:
    terms, keys, messages = _session()
    kind, sent = data.draw(st.sampled_from([("key", keys), ("sum", messages)]))
    header, content = unpacked(sent["south"])
    altered = {**sent, "south": repacked(sent["south"], mutated(header, data), content)}
    given = {"keys": keys, "messages": messages, ("keys" if kind == "key" else "messages"): altered}
    with contextlib.suppress(ValueError):
        masked.release(terms, given["keys"], given["messages"])


@functools.cache
def _session() -> tuple[Terms, dict[str, bytes], dict[str, bytes]]:
    model = PcaModel(3, center=True)
    terms = Terms(model, bound=1.0, epsilon=1.0, delta=1e-6, sites=("north", "south"), colluding=0, session="test")
    sites = {name: Site(terms, name) for name in terms.sites}
    keys = {name: site.key for name, site in sites.items()}
    messages = {}
    for name, site in sites.items():
        moments = dpgep.Moments(model, bound=1.0)
        moments.update(ROWS)
        messages[name] = site.mask(moments, keys)
    return terms, keys, messages


# --- limits of what is verified (docs/reports.md) ---------------------------------------------------------------------


def of_samples(event: Any, *, epsilon: float = 1.0, delta: float = 0.5) -> str:
    """A report of samples with another event, and the hash that belongs to it."""
    found = json.loads(dpgep.load(DATA / "solution-1-sampled.json").privacy.to_json())
    found["privacy"] |= {"epsilon": epsilon, "delta": delta}
    found["privacy"]["releases"][0]["event"] = event
    del found["sha256"]
    return json.dumps({**found, "sha256": report.digest(found)})


def gaussian(noise: float = 10.0) -> dict[str, Any]:
    found: dict[str, Any] = accounting.event_to_json(dp_accounting.GaussianDpEvent(noise))
    return found


def sample(noise: float = 10.0, rate: float = 0.01) -> dict[str, Any]:
    return {"type": "PoissonSampledDpEvent", "sampling_probability": rate, "event": gaussian(noise)}


def times(count: int, event: dict[str, Any]) -> dict[str, Any]:
    return {"type": "SelfComposedDpEvent", "event": event, "count": count}


def nested(depth: int) -> dict[str, Any]:
    return functools.reduce(lambda inner, _: times(2, inner), range(depth - 1), gaussian(100.0))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (nested(accounting.MOST_DEPTH + 1), f"is nested more than {accounting.MOST_DEPTH} deep"),
        (nested(400), "nested"),
        ({"type": "ComposedDpEvent", "events": [gaussian()] * (accounting.MOST_ANSWERS + 1)}, "17 kinds of answers"),
        ({"type": "ComposedDpEvent", "events": [gaussian()] * 10_000}, "10000 kinds of answers, more than 16"),
        (times(2**52, gaussian(1.0)), "points of a grid, more than"),
        (times(2**52, times(2**52, gaussian(1.0))), "points of a grid, more than"),
        (times(2**52, sample()), "points of a grid, more than"),
        (gaussian(1e-6), "points of a grid, more than"),
        (gaussian(5e-324), "inf points of a grid, more than"),
        (sample(1e-6), "points of a grid, more than"),
        (sample(5e-324, 5e-324), "inf points of a grid, more than"),
        (
            {"type": "PoissonSampledDpEvent", "sampling_probability": 0.5, "event": sample()},
            "must be a GaussianDpEvent",
        ),
        (times(2**53, gaussian()), "count must be a positive integer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_events_that_cannot_be_accounted_for_are_refused(event: Any, said: str) -> None:
    text = of_samples(event)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=said):
            verify(text)
        assert tracemalloc.get_traced_memory()[1] < 100e6 + 10 * len(text)
    finally:
        tracemalloc.stop()


def test_what_is_within_the_limits_is_accounted_for() -> None:
    """Up to the comparison with what is stated."""
    many = {"type": "ComposedDpEvent", "events": [gaussian(100.0)] * accounting.MOST_ANSWERS}
    for event in (
        nested(accounting.MOST_DEPTH),
        many,
        times(2**52, gaussian(2.0**28)),
        times(10**6, sample(100.0, 1e-3)),
    ):
        with pytest.raises(ValueError, match=r"the curve does not follow"):
            verify(of_samples(event))
    with pytest.raises(ValueError, match="more than the stated 1e-09"):
        verify(of_samples(times(4, sample(1.0)), delta=1e-9))


def test_the_documented_limits_are_those_of_the_code() -> None:
    page = (DATA.parent.parent / "docs" / "reports.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| `dpgep\.([\w.]+)\.(MOST_\w+)` \|$", page, re.MULTILINE)
    powers = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
    values = [1 << int(v[1:].translate(powers)) if v[1] in "¹²³" else int(v.split()[0]) for v, _, _ in rows]
    assert values == [getattr(importlib.import_module(f"dpgep.{module}"), name) for _, module, name in rows]
    assert len(rows) == 6


def test_a_ledger_has_a_limited_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dpgep.load(DATA / "solution-1.json").privacy
    assert guarantee.MOST_ENTRIES == 1 << 16
    monkeypatch.setattr(guarantee, "MOST_ENTRIES", 5)
    found.require_consistent()
    monkeypatch.setattr(guarantee, "MOST_ENTRIES", 4)
    with pytest.raises(ValueError, match="a ledger has entries, 1 to 4, not 5"):
        found.require_consistent()


def test_a_report_has_a_limited_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (DATA / "report-1.json").read_bytes()
    padded = text + b" " * (report.MOST_BYTES - len(text))
    verify(padded)
    with pytest.raises(ValueError, match=f"at most {report.MOST_BYTES} bytes"):
        verify(padded + b" ")
    endless = tmp_path / "endless.json"
    with endless.open("wb") as file:
        file.truncate(1 << 40)  # holes: it takes no room
    tracemalloc.start()
    try:
        assert main(["report", "verify", str(endless)]) == 1
        assert tracemalloc.get_traced_memory()[1] < 3 * report.MOST_BYTES
    finally:
        tracemalloc.stop()
    assert f"at most {report.MOST_BYTES} bytes" in capsys.readouterr().err


def test_an_integer_has_a_limited_number_of_digits() -> None:
    most = serialization.MOST_DIGITS
    assert serialization.parsed(f'{{"n": {"9" * most}}}') == {"n": 10**most - 1}
    for digits in (most + 1, 4000, 1_000_000):
        with pytest.raises(ValueError, match=f"{digits} digits, more than {most}"):
            serialization.parsed(f'{{"n": {"9" * digits}}}')


@pytest.mark.parametrize("depth", [300, 900, 3000, 100_000])
@pytest.mark.parametrize("key", ["purpose", "sha256", "curve", "more"])
def test_a_report_that_is_nested_deeply_is_refused(key: str, depth: int) -> None:
    text = (DATA / "report-1.json").read_text().rstrip().rstrip("}")
    with pytest.raises(ValueError, match=r"nested too deeply|same key twice|more|sha256|purpose|curve"):
        verify(f'{text}, "{key}": {"[" * depth}{"]" * depth}}}')


@pytest.mark.parametrize("mu", [5e-324, 1e-300, 1e-9, 1e9, 1e150, 1e300, 1.7e308])
@pytest.mark.parametrize("epsilon", [None, 5e-324, 1e-9, 1e9, 1e308])
def test_numbers_out_of_all_range_are_refused_or_verified(mu: float, epsilon: float | None) -> None:
    found = json.loads(dpgep.load(DATA / "solution-1.json").privacy.to_json())
    entry = {**found["privacy"]["releases"][0], "mu": mu}
    stated = {"mu": mu, "epsilon": epsilon, "delta": None if epsilon is None else 1e-6, "releases": [entry]}
    found["privacy"] |= stated
    del found["sha256"]
    with pytest.raises(ValueError, match=r"."):
        verify(json.dumps({**found, "sha256": report.digest(found)}))
