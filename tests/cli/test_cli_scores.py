"""``dpgep scores`` counts what `dpgep.score_density` counts of the same rows, keeps it, and draws it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpgep
from dpgep import cli

N = 900
BUDGET = ["--epsilon", "8", "--delta", "1e-5"]
QUIET = ["--quiet", "--seed", "3"]
CATEGORIES = {"region": ["north", "south"]}
SEEDED = pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning", "ignore::dpgep.errors.AccuracyWarning")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def table() -> str:
    """People of two rows each, with holes, categories and a response."""
    rng = np.random.default_rng(0)
    lines = ["id,age,height,weight,region,income"]
    for i in range(N):
        height, region = rng.normal(170, 10), ("north", "south", "")[i % 3]
        hole = "" if i % 41 == 0 else f"{height:.1f}"
        lines.append(f"p{i // 2},{rng.integers(18, 90)},{hole},{height - 100 + rng.normal(0, 9):.1f},{region},{i % 77}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def run(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(table, encoding="utf-8")

    def command(*words: str) -> tuple[int, str, str]:
        try:
            status = cli.main(list(words))
        except SystemExit as stop:
            status = int(str(stop.code))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command


def _scan() -> Any:
    return dpgep.scan("people.csv", categories=CATEGORIES)


def _solved(run: Run, model: str, *words: str) -> dpgep.Solution:
    status, _, errors = run(model, "people.csv", *words, *BUDGET, *QUIET, "-o", "solution.json")
    assert status == 0, errors
    found: dpgep.Solution = dpgep.load("solution.json")
    return found


def _same(ours: dpgep.Solution, problem: Any, **options: Any) -> None:
    """What the command kept is what Python buys with the same seed."""
    kept = dpgep.load("scores.dpgep")
    theirs = dpgep.score_density(ours, problem, epsilon=8, delta=1e-5, seed=3, **options)
    np.testing.assert_array_equal(kept.shares, theirs.shares)
    np.testing.assert_array_equal(kept.edges, theirs.edges)
    assert (kept.axes, kept.groups, str(kept.privacy)) == (theirs.axes, theirs.groups, str(theirs.privacy))


@SEEDED
def test_people_with_holes_and_categories_are_counted_and_drawn(run: Run) -> None:
    pytest.importorskip("matplotlib")
    fit = ["--columns", "age,height,weight,region", "--categories", "region=north,south", "--missing", "center"]
    solution = _solved(run, "pca", *fit, "--standardize", "--n-components", "3")
    words = ["solution.json", "people.csv", *BUDGET, *QUIET, "--components", "1,3", "--cells", "16"]
    status, out, errors = run("scores", *words, "-o", "scores.dpgep", "--picture", "scores.svg")
    assert status == 0, errors
    assert out.startswith("ScoreDensity of score 1 and score 3, 16 x 16 cells; epsilon = 8, delta = 1e-05")
    assert errors.endswith("kept in scores.dpgep\ndrawn in scores.svg\n")
    assert "<svg" in Path("scores.svg").read_text(encoding="utf-8")
    problem = dpgep.pca(_scan()[["age", "height", "weight", "region"]], preprocessing=solution.preprocessing)
    _same(solution, problem, components=(1, 3), cells=16)
    for file, more in (("scores.dpgep", ["--synthetic", "50"]), ("solution.json", [])):  # at no cost
        assert run("scores", file, *more, "--picture", "again.png", "--force") == (0, "", "drawn in again.png\n")
        assert Path("again.png").read_bytes().startswith(b"\x89PNG")


@SEEDED
def test_groups_of_a_column_persons_and_a_bound(run: Run) -> None:
    whose = ["--person", "id"]
    solution = _solved(run, "pca", "--columns", "age,weight", "--bound", "150", *whose)
    groups = ["--labels", "region", "--classes", "north,south"]
    words = ["solution.json", "people.csv", *BUDGET, *QUIET, *whose, *groups, "-o", "scores.dpgep"]
    status, _, errors = run("scores", *words)
    assert status == 0, errors
    scan = dpgep.scan("people.csv")
    rows: Any = {"classes": ["north", "south"], "person": scan["id"], "bound": 150.0}
    _same(solution, dpgep.fda(scan[["age", "weight"]], scan["region"], **rows))
    assert dpgep.load("scores.dpgep").privacy.several_rows


@SEEDED
@pytest.mark.parametrize(
    ("model", "fit", "more"),
    [
        ("fda", ["--columns", "age,weight", "--labels", "region", "--classes", "north,south"], ["--labels", "region"]),
        ("sir", ["--columns", "age,weight", "--response", "income", "--y-range", "0:80"], ["--labels", "income"]),
        ("cca", ["--x-columns", "age,weight", "--y-columns", "income"], []),
    ],
)
def test_groups_and_views_are_those_of_the_solution(run: Run, model: str, fit: list[str], more: list[str]) -> None:
    solution = _solved(run, model, *fit)
    words = ["solution.json", "people.csv", *BUDGET, *QUIET, "--components", "1", "--cells", "16"]
    status, _, errors = run("scores", *words, *more, "-o", "scores.dpgep")
    assert status == 0, errors
    scan = dpgep.scan("people.csv")
    how: Any = {"preprocessing": solution.preprocessing}
    problem: Any
    x = scan[["age", "weight"]]
    if model == "fda":
        problem = dpgep.fda(x, scan["region"], classes=["north", "south"], **how)
    elif model == "sir":
        problem = dpgep.sir(x, scan["income"], y_range=(0, 80), **how)
    else:
        problem = dpgep.cca(x, scan[["income"]], **how)
    _same(solution, problem, components=1, cells=16)
    if more:
        assert "give --labels" in run("scores", *words, "-o", "other.dpgep")[2]


@SEEDED
def test_refusals_spend_nothing(run: Run) -> None:
    _solved(run, "pca", "--columns", "age,weight", "--bound", "150", "--n-components", "2")
    budget = ["--epsilon", "1", "--delta", "1e-6", "--adjacency", "replace-one", "--dataset", "d"]
    assert run("budget", "init", "b", *budget)[0] == 0
    paid = ["--budget", "b", "--share", "0.5", *QUIET]
    data = ["solution.json", "people.csv", *paid]
    for words, status, message in [
        (["solution.json"], 2, "give DATA, whose people are counted, or --picture FILE"),
        (["people.csv", *data[1:], "-o", "s.dpgep"], 2, "people.csv holds no solution"),
        (data, 2, "-o OUT is missing"),
        ([*data, "-o", "solution.json", "--force"], 2, "solution.json is read by this command"),
        ([*data, "-o", "s.dpgep", "--picture", "b", "--force"], 2, "--picture must end in one of .svg, .png, .pdf"),
        ([*data, "-o", "s.dpgep", "--components", "1,5"], 1, "components are numbered from 1 to 2"),
        ([*data, "-o", "s.dpgep", "--labels", "region"], 2, "--classes A,B is missing"),
        ([*data, "-o", "s.dpgep", "--labels", "town", "--classes", "a,b"], 2, "no column 'town'"),
    ]:
        found = run("scores", *words)
        assert found[0] == status, found
        assert message in found[2]
    assert not dpgep.Budget.open("b").releases
    assert run("scores", *data, "-o", "s.dpgep")[0] == 0
    assert [each.query for each in dpgep.Budget.open("b").releases]
    assert "holds scores that were counted" in run("scores", "s.dpgep", "people.csv", *paid, "-o", "t.dpgep")[2]
