"""Solutions as files: the same to the last bit, loadable for ever, and refused where anything in them is wrong."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import solve_seeded
from every_run import problem_named
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import bytes_of

import dpgep
from dpgep import serialization
from dpgep.local import Aggregator, GaussianRandomizer
from dpgep.methods.base import Diagnostics
from dpgep.models import MODELS, GepModel

DATA = Path(__file__).resolve().parents[1] / "support"
FILES = ["solution-1.json", "solution-1-sampled.json"]

# a run for each kind of diagnostics and each kind of model
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "release": ("pca", {}),
    "a sparse release": ("cca", {"sparsity": 3}),
    "a screened release": ("pca", {"screen": 3}),
    "products": ("fda", {"storage": "operator"}),
    "sparse products": ("pls", {"storage": "operator", "sparsity": 2}),
    "a flow": ("sir", {"method": "rayleigh-flow", "n_iterations": 4, "init": "screen"}),
    "a reduction": ("fda", {"method": "dpsr"}),
    "standardized": ("standardized-pca", {}),
    "matrices": ("gep", {}),
}


@cache
def solution(name: str) -> dpgep.Solution:
    if name == "local":
        client = GaussianRandomizer(4, bound=1.0, epsilon=8.0, delta=1e-6)
        server = Aggregator(4, bound=1.0, epsilon=8.0, delta=1e-6)
        server.add(client.randomize_rows(np.random.default_rng(0).standard_normal((2000, 4)) * [0.8, 0.3, 0.1, 0.1]))
        return server.solve_sparse(1)
    if name in FILES:
        return dpgep.load(DATA / name)
    problem, options = RUNS[name]
    adjacency = "add-remove" if name == "release" else "replace-one"
    return solve_seeded(problem_named(problem, adjacency), epsilon=5.0, delta=1e-3, n_components=1, **options)


def same(a: Any, b: Any) -> bool:
    """Whether all parts of two values are, to the last bit, and of the same types."""
    if type(a) is not type(b) and not (isinstance(a, (int, float)) and isinstance(b, (int, float))):
        return False
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b or (a != a and b != b))


@pytest.mark.parametrize("name", [*RUNS, "local", *FILES])
def test_a_restored_solution_is_the_same(name: str, tmp_path: Path) -> None:
    written = solution(name)
    written.save(tmp_path / "solution.json")
    restored = dpgep.load(tmp_path / "solution.json")
    assert same(dataclasses.replace(written, release=None), restored)  # a release has a file of its own
    assert repr(written) == repr(restored)
    assert bytes_of(restored) == bytes_of(written)
    rows = np.random.default_rng(1).standard_normal((3, written.model.n_features))
    for found, expected in zip(projections(restored, rows), projections(written, rows), strict=True):
        np.testing.assert_array_equal(found, expected)


def projections(found: dpgep.Solution, rows: Any) -> tuple[Any, ...]:
    views = [rows[:, view] for view in found.model.views]
    scores = found.transform(*views)
    return scores if len(views) == 2 else (scores,)


def test_a_restored_solution_answers_the_same_questions() -> None:
    written = solution("solution-1.json")
    restored = dpgep.load(bytes_of(written))
    assert repr(restored.intervals()) == repr(written.intervals())
    assert restored.recommended_components() == written.recommended_components()
    assert restored.privacy == written.privacy
    assert restored.privacy.public == written.privacy.public


def test_a_file_of_version_1_is_read_for_ever() -> None:
    old = solution("solution-1.json")
    assert old.components[0].tolist() == [0.0004345911553150225, 0.0714710152096304, 0.055730666362774725]
    assert old.feature_names == ("age", "height", "weight")
    assert old.privacy.epsilon == 5.0
    assert old.privacy.public is not None
    assert old.privacy.public.ranges == (("age", 0.0, 120.0),)
    people = [[46.8859533164009, 168.2002573783861, 75.78490022731563], [43.01842705, 188.0872331279, 77.2495922607]]
    expected = [[-8.84716587954415e-05, 0.13179760279380393], [1.5012013449423627, -0.11662520536263932]]
    np.testing.assert_allclose(old.transform(np.array(people)), expected, atol=1e-9)
    sampled = solution("solution-1-sampled.json")
    assert sampled.privacy.mu is None
    assert sampled.privacy.releases[0].event is not None
    sampled.privacy.require_sampled()


def test_models_and_diagnostics_have_a_name_in_files() -> None:
    """Without one they would be written, and then refused."""
    kinds = [*MODELS.values(), GepModel, *Diagnostics.__subclasses__()]
    assert len(kinds) >= 16
    for kind in kinds:
        if kind.__module__.startswith("dpgep."):
            assert kind in serialization._NAMES, kind


def numbers(value: Any) -> Iterator[float]:
    """All numbers in JSON, arrays, and dataclasses."""
    if isinstance(value, np.ndarray):
        yield from value.ravel().tolist()
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from numbers(getattr(value, field.name))
    elif isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    elif isinstance(value, (int, float)):
        yield value


def test_a_file_holds_released_numbers_alone() -> None:
    """Every number is one of the solution's attributes or its released moments; rows that differ show in no other."""
    written = solution("release")
    attributes = {each for each in numbers(written) if each == each}
    stored = list(numbers(json.loads(bytes_of(written))))
    assert set(stored) <= attributes | {1}  # the version of the format
    assert written._moments is not None
    assert written._moments.clipped == 0.0  # known where there is no noise, and then to everybody


@pytest.mark.parametrize("name", ["nan", "inf", "-inf", "0.1", "-0.0", "5e-324", "1.7976931348623157e308"])
def test_every_float_comes_back(name: str) -> None:
    number = float(name)
    diagnostics = dataclasses.replace(solution("release").diagnostics, noise_level=number, eigengaps=np.array([number]))
    restored = dpgep.load(bytes_of(dataclasses.replace(solution("release"), diagnostics=diagnostics)))
    assert same(restored.diagnostics, diagnostics)
    assert math.copysign(1, restored.diagnostics.noise_level) == math.copysign(1, number)


def changed(**parts: Any) -> str:
    """The file of a small solution, with other values at dotted paths; a value that is Ellipsis is left out."""
    document = json.loads(bytes_of(solution("solution-1.json")))
    for path, value in parts.items():
        *outer, last = path.split("__")
        inner = document
        for key in outer:
            inner = inner[int(key) if isinstance(inner, list) else key]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is no JSON"),
        ("[1]", "holds a JSON object, not a list"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": NaN}', "holds NaN, which is no JSON"),
        ('{"a": 1, "a": 2}', "the same key twice"),
        (b"\xff\xfe{}", "no file of dpgep|no JSON"),
        ("{}", "no format that dpgep.load reads: .None., not one of dpgep-solution"),
        (changed(version=2, dpgep="9.1"), "written by dpgep 9.1 in version 2 of its format; this dpgep reads 1"),
        (changed(version=True), "in version True"),
        (changed(novelty=1, dpgep="9.1"), "a field 'novelty' that this dpgep does not know; written by dpgep 9.1"),
        (changed(model__kind="gmm"), "the solution.model is of kind 'gmm'"),
        (changed(model={"kind": "table", "n_features": 3}), "the solution.model is of kind 'table'"),
        (changed(diagnostics__kind=["release"]), "diagnostics is of kind a list"),
        (changed(components=...), "has no field 'components'"),
        (changed(components=[["1.0", 2.0, 3.0]]), r"components\[0\]\[0\] must be a number, got '1.0'"),
        (changed(components=[[1.0, 2.0, 3.0], [1.0]]), "must have rows of one length"),
        (changed(components=[[[[1.0]]]]), r"components\[0\]\[0\]\[0\] must be a number, got a list"),
        (
            changed(components=functools.reduce(lambda inner, _: [inner], range(100), [1.0])),
            "must be a number, got a list",
        ),
        (changed(components=[1.0, 2.0]), r"components must be a matrix, \(K, d\)"),
        (changed(components=[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), "a component must not be zero"),
        (changed(components=[["nan", 1.0, 1.0], [1.0, 0.0, 0.0]]), "components must be finite"),
        (changed(eigenvalues=[1.0]), r"eigenvalues must have shape \(2,\), got \(1,\)"),
        (changed(eigenvalues=[1.0, True]), r"eigenvalues\[1\] must be a number, got True"),
        (changed(model__n_features=10**12, model__feature_names=None), "the model is of 1000000000000 features"),
        (changed(model__n_features=-3), "feature_names must be -3 names|the model is of"),
        (changed(mean=[1.0]), r"mean must have shape \(3,\)"),
        (changed(moments__second=[[1.0]]), r"moments.second must have shape \(3, 3\)"),
        (changed(moments__n=-1.0), "a positive number of people"),
        (changed(preprocessing__scale=[1.0, -1.0, 1.0]), "scale must be positive"),
        (changed(preprocessing__scale=[1.0]), "this preprocessing is of 1 columns, not of 3"),
        (changed(diagnostics__support=[7]), "support must be of features 0 to 2"),
        (changed(diagnostics__accuracy__lost=[False]), "lost must have 2 entries"),
        (changed(diagnostics__rank=1.5), "rank must be an integer, got 1.5"),
        (changed(passes=-1), "passes must not be negative"),
        (changed(privacy__mu=0.1), "the entries of the ledger add up to mu = 1.0203"),
        (changed(privacy__epsilon=4.0), "more than the stated 1e-06"),
        (changed(privacy__adjacency="none"), "adjacency must be"),
        (changed(privacy__releases=[]), "a ledger has entries"),
        (changed(privacy__exact=False), "whether a report is exact"),
        (changed(privacy__releases__0__mu=None), "either a mu or an event"),
        (changed(privacy__releases__0__event={"type": "system"}), "event must be an event, one of GaussianDpEvent"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) and not value.startswith(("{", "[")) else "",
)
def test_a_wrong_file_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dpgep.load(text.encode() if isinstance(text, str) else text)


def test_a_process_that_is_killed_while_it_saves_leaves_the_old_file(tmp_path: Path) -> None:
    """The system kills it when its file has 1000 bytes; a saved solution has more."""
    script = """
        import resource, signal, sys, dpgep
        solution = dpgep.load(sys.argv[1])
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        solution.save(sys.argv[1])
    """
    path = tmp_path / "solution.json"
    solution("release").save(path)
    before = path.read_bytes()
    assert len(before) > 1000
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(path)])
    assert found.returncode == -signal.SIGXFSZ
    assert path.read_bytes() == before


def test_save_replaces_a_file_and_writes_into_what_is_none(tmp_path: Path) -> None:
    found, path = solution("release"), tmp_path / "solution.json"
    path.write_text("old")
    path.chmod(0o600)
    (tmp_path / "link").symlink_to(path)
    found.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert path.read_bytes() == bytes_of(found)
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["link", "solution.json"]
    out, into = os.pipe()
    with open(out, "rb") as pipe:
        with open(into, "wb"):
            found.save(f"/dev/fd/{into}")
        assert pipe.read() == bytes_of(found)


def test_classes_that_json_cannot_hold_are_refused() -> None:
    rows = np.random.default_rng(0).standard_normal((40, 2))
    problem = dpgep.fda(rows, [(0, 1), (1, 0)] * 20, classes=[(0, 1), (1, 0)], bound=1.0)
    with pytest.raises(TypeError, match=r"text, numbers or booleans to be stored, and finite, got \(0, 1\)"):
        bytes_of(solve_seeded(problem, epsilon=1.0, delta=1e-3))


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["nan", "inf", "", "release", "pca", [], {}, [[]], [1.0], 10**400, -1, {"kind": "pca"}]),
    st.text(max_size=5),
    st.lists(st.floats(), max_size=4),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*path, key))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("examples", [20, pytest.param(500, marks=pytest.mark.deep)])
def test_no_changed_file_does_anything_but_load_or_be_refused(name: str, examples: int) -> None:
    settings(max_examples=examples)(given(data=st.data())(load_or_refuse))(name=name)


def load_or_refuse(name: str, data: st.DataObject) -> None:
    document = json.loads((DATA / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(paths(document))[1:]))
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        if data.draw(st.booleans()):
            inner[path[-1]] = deepcopy(data.draw(junk))  # which later changes may be within
        else:
            del inner[path[-1]]
    try:
        found = dpgep.load(json.dumps(document).encode())
    except ValueError:
        return
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert repr(found)
        found.transform(np.ones((2, found.model.n_features)))
        assert bytes_of(dpgep.load(bytes_of(found))) == bytes_of(found)


@settings(max_examples=50)
@given(cut=st.integers(0, 3000), noise=st.binary(max_size=4))
def test_no_damaged_text_does_anything_but_load_or_be_refused(cut: int, noise: bytes) -> None:
    text = (DATA / "solution-1.json").read_bytes()
    for damaged in (text[:cut], text[:cut] + noise + text[cut + len(noise) :]):
        try:
            dpgep.load(damaged)
        except ValueError:
            continue


def test_a_screened_solution_answers_no_questions_about_all_features() -> None:
    """Its moments are of the block that the screen kept."""
    for ask in (solution("a screened release").intervals, solution("a screened release").recommended_components):
        with pytest.raises(ValueError, match="without screen"):
            ask()
