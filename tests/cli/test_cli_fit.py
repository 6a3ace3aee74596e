"""The commands that fit, plan, transform and audit, as a user meets them: answers, refusals, exit codes, files."""

from __future__ import annotations

import base64
import errno
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from stored import bytes_of

import dpgep
from dpgep import cli
from dpgep.privacy.ledger import LedgerEntry
from dpgep.problems.builders import BUILDERS
from dpgep.problems.problem import with_terms

N = 600
BUDGET = ["--epsilon", "8", "--delta", "1e-5"]
COLUMNS = ["--columns", "age,height,weight,region,joined"]
DECLARED = ["--categories", "region=north,south,east", "--dates", "joined", "--missing", "center"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def table() -> str:
    """A CSV with names, categories, holes and dates."""
    rng = np.random.default_rng(0)
    height = rng.normal(170, 10, N)
    lines = ["id,name,age,height,weight,region,joined,smoker"]
    for i in range(N):
        weight = 0.9 * height[i] - 80 + rng.normal(0, 9)
        age, month, region = rng.integers(18, 90), rng.integers(1, 13), rng.choice(["north", "south", "east", ""])
        joined = "" if i % 37 == 0 else f"20{rng.integers(10, 25)}-{month:02d}-15"
        hole = "" if i % 41 == 0 else f"{height[i]:.1f}"
        lines.append(f'{i},"Doe, J.",{age},{hole},{weight:.1f},{region},{joined},{"true" if weight > 75 else "false"}')
    return "\n".join(lines) + "\n"


@pytest.fixture
def run(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command in a folder with people.csv: exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(table, encoding="utf-8")

    def command(*words: str) -> tuple[int, str, str]:
        try:
            status = cli.main(list(words))
        except SystemExit as stop:
            status = int(str(stop.code))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return command


def test_every_model_has_a_command() -> None:
    """Standardized columns are an option of ``dpgep pca``; a table is what ``dpgep release`` is about."""
    assert {*BUILDERS} - {"release"} == {*dpgep.models.MODELS} - {"standardized-pca", "table"}


def test_a_command_offers_what_its_builder_takes(run: Run) -> None:
    """Options follow from the names of its parameters: a new name needs an option."""
    known = {
        "X",
        "Y",
        "views",
        "labels",
        "y",
        "groups",
        "classes",
        "slices",
        "y_range",
        "edges",
        "center",
        "standardize",
        "by_group",
        "target",
        "background",
        "alpha",
    }
    of_all = {"bound", "preprocessing", "adjacency", "public_n", "person", "rows", "weights", "largest_weight"}
    for name, build in BUILDERS.items():
        assert of_all <= {*signature(build).parameters} <= known | of_all, name
    views = ["--x-columns", "age,height", "--y-columns", "weight", "--missing", "center"]
    assert run("cca", "people.csv", *views, "--no-center", *BUDGET, "-o", "out.json")[0] == 0
    assert dpgep.load("out.json").model == dpgep.models.CcaModel((2, 1), center=False)


def test_a_builder_of_ones_own_has_what_it_needs_or_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes are those that the type of the labels declares; what no option gives is no error of Python's."""

    def of_classes(X: Any, labels: Any, *, classes: Any, **terms: Any) -> Any:
        return dpgep.fda(X, labels, classes=tuple(classes), **terms)

    def of_groups(X: Any, groups: Any, *, classes: Any, depth: int, **terms: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(cli, "_parser", cli._parser.__wrapped__)  # which keeps commands that it has seen
    for build in (of_classes, of_groups):
        monkeypatch.setitem(BUILDERS, build.__name__, with_terms(build))
    data = ["people.csv", "--columns", "age,weight", *BUDGET, "-o", "o.json"]
    status, _, err = run("of_classes", *data, "--labels", "smoker")
    assert status == 0, err
    assert dpgep.load("o.json").model.classes == (False, True)
    for given, lacking in (([], "'groups', 'classes', 'depth'"), (["--labels", "smoker"], "'depth'")):
        status, _, err = run("of_groups", *data, *given)
        assert status == 2
        assert f"its builder needs {lacking}: give the options for it; a builder of your own needs a default" in err


def test_a_csv_with_names_categories_holes_and_dates(run: Run) -> None:
    options = [*COLUMNS, *DECLARED, "--standardize", "--ranges", "age=0:120,joined=2000-01-01:2030-01-01"]
    status, out, err = run("pca", "people.csv", *options, *BUDGET, "--n-components", "2", "-o", "out.json")
    assert status == 0
    names = "age, height, weight, region=north, region=south, region=east, joined"
    rows = "people    each row counts as one: if 'id' says whose rows they are, pass --person\n"
    assert err == f"{rows}features  7: {names}\nkept in out.json\n"
    assert "Solution of standardized-pca by release: 2 components in 7 features" in out
    solution = dpgep.load("out.json")
    assert solution.feature_names == tuple(names.split(", "))
    assert (solution.privacy.epsilon, solution.privacy.adjacency) == (8, "replace-one")
    assert str(solution) + "\n" == out
    assert Path("out.json").stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert sorted(os.listdir()) == ["out.json", "people.csv"]  # no part of a file is left


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_the_answer_is_that_of_the_library(run: Run) -> None:
    status, _, err = run(
        "pca", "people.csv", "--columns", "age,weight", "--bound", "200", *BUDGET, "--seed", "7", "-o", "o.json"
    )
    assert status == 0
    assert "warning: the noise is seeded" in err or "seed" in err
    rows = dpgep.scan("people.csv")[["age", "weight"]]
    with pytest.warns(dpgep.errors.PrivacyWarning):
        expected = dpgep.solve(dpgep.pca(rows, bound=200), epsilon=8, delta=1e-5, seed=7)
    np.testing.assert_array_equal(dpgep.load("o.json").components, expected.components)


@pytest.mark.parametrize(
    ("arguments", "name", "features"),
    [
        (["cca", "--x-columns", "age,height", "--y-columns", "weight"], "cca", ("age", "height", "weight")),
        (["pls", "--x-columns", "age,height", "--y-columns", "weight"], "pls", ("age", "height", "weight")),
        (
            ["multiset-cca", "--view", "age", "--view", "height", "--view", "weight"],
            "multiset-cca",
            ("age", "height", "weight"),
        ),
        (
            ["fda", "--columns", "age,height", "--labels", "region", "--classes", "north,south"],
            "fda",
            ("age", "height"),
        ),
        (["fda", "--columns", "age,height", "--labels", "smoker"], "fda", ("age", "height")),
        (["sir", "--columns", "age,height", "--response", "weight", "--y-range", "40:120"], "sir", ("age", "height")),
        (["sir", "--columns", "age", "--response", "weight", "--edges", "0,60,80,200"], "sir", ("age",)),
        (["sir", "--columns", "age", "--response", "weight", "--y-range=-5:200"], "sir", ("age",)),
    ],
)
def test_every_model(run: Run, arguments: list[str], name: str, features: tuple[str, ...]) -> None:
    model, *rest = arguments
    status, _, err = run(
        model, "people.csv", *rest, "--missing", "center", *BUDGET, "--n-components", "1", "-o", "o.json"
    )
    assert status == 0, err
    solution = dpgep.load("o.json")
    assert (solution.model.name, solution.feature_names) == (name, features)


def test_classes_are_values_of_their_column(run: Run) -> None:
    """Labels 0.0 and 1.0 of a CSV are the classes 0 and 1: as text, they would leave everybody out."""
    labels = np.arange(N) % 2
    x = np.random.default_rng(0).normal(size=N) + 3 * labels
    Path("labels.csv").write_text("x,c\n" + "".join(f"{a},{b}\n" for a, b in zip(x, labels, strict=True)))
    run("fda", "labels.csv", "--labels", "c", "--classes", "0,1", "--bound", "9", "--epsilon", "inf", "-o", "o.json")
    solution = dpgep.load("o.json")
    assert solution.model.classes == (0, 1)
    assert solution.eigenvalues[0] > 1
    assert run("fda", "labels.csv", "--labels", "c", "--classes", "a,b", *BUDGET, "-o", "p.json")[0] == 2


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_a_table_is_kept_and_asked_later(run: Run) -> None:
    options = ["--exclude", "id,name,region,joined,smoker", "--missing", "center"]
    status, out, _ = run("release", "people.csv", *options, *BUDGET, "-o", "people.dpgep")
    assert status == 0
    release = dpgep.load(Path("people.dpgep").read_bytes())
    assert release.fingerprint in out
    assert release.pca(["age", "weight"], standardize=True).feature_names == ("age", "weight")


def test_covariances_of_people_who_have_both_columns(run: Run) -> None:
    options = ["people.csv", "--columns", "age,height,weight", "--missing", "pairwise", *BUDGET]
    assert run("pca", *options, "--standardize", "-o", "o.json")[0] == 0
    solution = dpgep.load("o.json")
    assert solution.preprocessing.pairwise
    assert solution.recommended_components() >= 0
    status, _, err = run("pca", *options, "--no-center", "-o", "p.json")
    assert status == 2
    assert "without center" in err


def test_filters_count_the_rows_they_keep_under_add_remove_alone(run: Run) -> None:
    # smoker is text: its categories are declared as such
    chosen = ["--columns", "age,weight", "--categories", "smoker=true,false"]
    options = ["people.csv", *chosen, "--filter", "age >= 50 and smoker != 'false'", *BUDGET, "-o", "o.json"]
    status, _, err = run("pca", *options)
    assert status == 2
    assert "--filter needs --adjacency add-remove" in err
    status, _, err = run("pca", *options, "--adjacency", "add-remove")
    assert status == 0, err
    assert dpgep.load("o.json").privacy.adjacency == "add-remove"


@pytest.mark.parametrize("suffix", ["parquet", "feather", "npy", "npz", "csv.gz"])
def test_other_files(run: Run, suffix: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    name, columns = f"x.{suffix}", ["--columns", "a,b"]
    frame = pyarrow.table({"a": x[:, 0], "b": x[:, 1]})
    if suffix == "parquet":
        pyarrow.parquet.write_table(frame, name)
    elif suffix == "feather":
        pyarrow.feather.write_feather(frame, name)
    elif suffix == "npy":
        np.save(name, x)
        columns = ["--columns", "0,1"]
    elif suffix == "npz":
        np.savez(name, rows=x, other=x[:, 0])
        columns = ["--columns", "rows"]
    else:
        with gzip.open(name, "wt") as file:
            file.write("a,b\n" + "".join(f"{a},{b}\n" for a, b in x))
    status, _, err = run("pca", "x.*", *columns, "--bound", "9", "--epsilon", "inf", "-o", "o.json")
    assert status == 0, err
    expected = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    np.testing.assert_allclose(dpgep.load("o.json").eigenvalues, expected)


def test_a_dry_run_reads_no_row_and_spends_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _budget()
    before = Path("budget").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(dpgep.sources.Scan, "read", None)
        words = ["pca", "people.csv", "--columns", "age,weight", "--standardize", "--dry-run"]
        status, out, _ = run(*words, "--budget", "budget", "--share", "0.25", "--people", "600")
    assert status == 0
    assert "nothing was read but names and types, nothing was spent" in out
    assert "25.0% of mu^2 of the budget in budget, of which 100.0% is left, replace-one" in out
    assert "Plan of standardized-pca: 1 component in 2 features of 600 people" in out
    assert Path("budget").read_bytes() == before
    status, _, err = run(*words, *BUDGET)
    assert (status, "give --people N" in err) == (2, True)


def test_a_dry_run_of_a_release_plans_what_its_groups_are_for(run: Run) -> None:
    words = ["release", "people.csv", "--columns", "age,weight", "--dry-run", "--people", "600", *BUDGET]
    for options, said in (
        ([], "Plan of standardized-pca"),
        (["--labels", "region", "--classes", "north,south,east"], "Plan of fda"),
        (["--response", "height", "--y-range", "140:200"], "Plan of sir"),
    ):
        status, out, _ = run(*words, *options)
        assert (status, said in out) == (0, True), out


def test_a_budget_in_a_file_pays_until_it_refuses(run: Run) -> None:
    _budget()
    words = ["pca", "people.csv", "--columns", "age,weight", "--bound", "200", "--budget", "budget"]
    assert run(*words, "--epsilon", "1", "-o", "1.json")[0] == 0
    assert dpgep.load("1.json").privacy.epsilon == pytest.approx(1, rel=1e-6)
    spent = dpgep.Budget.open("budget").spent_mu
    status, _, err = run(*words, "--share", "1", "-o", "2.json")
    assert (status, "the budget cannot pay for share = 1" in err) == (3, True)
    assert run(*words, "--share", "0.9", "--dataset", "others", "-o", "2.json")[0] == 3
    assert run(*words, "--share", "0.1", "--adjacency", "add-remove", "-o", "2.json")[0] == 3
    assert run(*words, "--share", "1", "--dry-run", "--people", "600")[0] == 3
    assert dpgep.Budget.open("budget").spent_mu == spent
    assert run(*words, "--share", "rest", "-o", "2.json")[0] == 0
    assert run(*words, "--share", "rest", "-o", "3.json")[0] == 3
    assert not Path("3.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pac"], "invalid choice: 'pac', did you mean 'pca'?"),
        (["pca", "people.csv", "--epsilno", "1"], "no option --epsilno, did you mean '--epsilon'?"),
        (["pca", "people.csv", "--categories", "a=n,s", "b=f,m", *BUDGET], "repeat it for each, --categories a="),
        (["pca", "--categories", "a=n,s", "b=f,m", *BUDGET, "people.csv"], "repeat it for each, --categories a="),
        (["pca", *BUDGET, "--categories", "a=n,s", "b=f,m", "people.csv"], "no file or folder 'b=f,m' (an option"),
        (["pca", *BUDGET, "--categories", "a=n,s", "b=*/c.csv"], "no files match 'b=*/c.csv'"),
        (["pca", *BUDGET, "--categories", "a=n,s", "b=" + 300 * "f"], f"no file or folder 'b={300 * 'f'}' (an option"),
        (["pca", "people.csv", "--eps", "1"], "no option --eps, did you mean '--epsilon'?"),
        (["pca", "people.csv", "--adjacency", "add-remov"], "invalid choice: 'add-remov', did you mean 'add-remove'?"),
        (["pca", "people.csv", "--columns", "age,heigth", *BUDGET], "no column 'heigth', did you mean 'height'?"),
        (["pca", "people.csv", "--exclude", "nmae", *BUDGET], "no column 'nmae', did you mean 'name'?"),
        (["pca", "people.csv", *BUDGET], "column 'name' holds text (--categories name=A,B makes indicators)"),
        (["pca", "people.csv", *BUDGET], "; --person takes a column that says whose each row is"),
        (["pca", "people.csv", *BUDGET], "column 'joined' holds dates (--dates joined counts days)"),
        (["pca", "peopel.csv"], "peopel.csv"),
        (["pca", "*.tsv"], "no files match '*.tsv'"),
        (["pca", "people.csv", "--columns", "age"], "what may it cost?"),
        (["pca", "people.csv", "--columns", "age", "--epsilon", "1"], "--epsilon needs --delta"),
        (["pca", "people.csv", "--columns", "age", "--budget", "b"], "how much of the budget?"),
        (["pca", "people.csv", "--columns", "age", "--budget", "b", "--delta", "1e-6"], "--delta is the budget's own"),
        (["pca", "people.csv", "--columns", "age", "--budget", "b", "--share", "1"], "there is no budget in"),
        (["pca", "people.csv", "--columns", "age", "--share", "0.5"], "--share belongs to a budget in a file"),
        (["pca", "people.csv", "--columns", "age", *BUDGET], "-o OUT is missing"),
        (["pca", "people.csv", "--columns", "age", *BUDGET, "-o", "people.csv"], "people.csv exists"),
        (["pca", "people.csv", "--columns", "age", *BUDGET, "-o", "no/o.json"], "cannot be written"),
        (["pca", "people.csv", "--columns", "age", *BUDGET, "--bound", "-1", "-o", "o.json"], "positive finite number"),
        (["pca", "people.csv", "--columns", "age", *BUDGET, "--ranges", "agee=0:1"], "did you mean 'age'?"),
        (["pca", "people.csv", "--columns", "age", *BUDGET, "--ranges", "age=1:0"], "must be low:high, as 0:120"),
        (["pca", "people.csv", "--columns", "age", *BUDGET, "--ranges", "no.json"], "COLUMN=... or a JSON file"),
        (["pca", "people.csv", "--columns", "age", *BUDGET, "--ranges", "age=0:1", "--bound", "1"], "leave out"),
        (["pca", "people.csv", "--columns", "age", "--filter", "agee > 1"], "no column 'agee', did you mean 'age'?"),
        (["pca", "people.csv", "--columns", "age", "--dates", "name"], "column 'name' (string) holds no dates"),
        (["fda", "people.csv", "--columns", "age", "--labels", "region", *BUDGET], "--classes A,B is missing"),
        (["sir", "people.csv", "--columns", "age", "--response", "weight", *BUDGET], "slices need a public range"),
        (["sir", "people.csv", "--columns", "age,weight", "--response", "weight", *BUDGET], "leave it out"),
        (["pca", "people.csv", "--columns", "age", "--sparsity", "0"], "must be a whole number, at least 1; got '0'"),
        (["plan", "--people", "100", "--features", "3,x"], "--features: must be a whole number, at least 1; got 'x'"),
        (["transform", "people.csv", "people.csv", "-o", "o.txt"], "-o must end in one of .csv, .parquet, .npy"),
        (["transform", "people.csv", "people.csv", "-o", "o.csv"], "people.csv holds no solution"),
        (["plan", "cca", "--people", "10", "--features", "3", *BUDGET], "views of 'cca' need d=(d_x, d_y), got 3"),
        (["plan", "pca", "--people", "10", "--features", "3"], "give exactly one budget"),
    ],
)  # fmt: skip
def test_wrong_usage_exits_with_2_and_says_what_is_right(run: Run, words: list[str], message: str) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert message in err
    assert not Path("o.json").exists()


def test_arguments_that_the_library_names_are_options(run: Run) -> None:
    words = ["sir", "people.csv", "--columns", "age", "--response", "weight", "--slices", "3", *BUDGET, "-o", "o.json"]
    status, _, err = run(*words)
    assert status != 0
    assert "give --y-range LOW:HIGH from general knowledge" in err


def test_a_failed_run_says_that_nothing_was_spent(run: Run) -> None:
    _budget()
    words = ["pca", "people.csv", "--columns", "age,height", "--budget", "budget", "--share", "1", "-o", "o.json"]
    status, out, err = run(*words)
    assert (status, out) == (1, "")
    assert "column 'height' contains NaN" in err
    assert "or take --missing center, or pairwise without groups; no budget was spent" in err
    assert "preprocessing" not in err
    Path("people.csv").write_text("age,height\n" + "1,2\n" * 300_000 + "1,secret\n")
    status, out, err = run(*words)
    assert (status, out) == (1, "")
    assert "nothing was released, nothing was spent" in err
    assert "column 'height' holds a value that is no number" in err
    assert "secret" not in err
    assert dpgep.Budget.open("budget").spent_mu == 0
    assert sorted(os.listdir()) == ["budget", "budget.head", "people.csv"]


def test_an_interruption_exits_with_130_and_says_what_was_spent(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dpgep, "solve", interrupt)
    status, _, err = run("pca", "people.csv", "--columns", "age", *BUDGET, "-o", "o.json")
    assert status == 130
    assert err.endswith("features  1: age\n\ndpgep: interrupted; nothing was released, nothing was spent\n")
    assert os.listdir() == ["people.csv"]


def test_what_was_spent_before_a_failure_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _budget()
    real = dpgep.solve

    def fail_late(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        raise dpgep.errors.DataChangedError("changed")

    monkeypatch.setattr(dpgep, "solve", fail_late)
    words = ["--columns", "age", "--bound", "99", "--budget", "budget", "--share", "0.25", "-o", "o.json"]
    status, out, err = run("pca", "people.csv", *words)
    assert (status, out) == (1, "")
    mu = dpgep.Budget.open("budget").spent_mu
    assert f"spent: mu = {mu:.4g}\ndpgep pca: changed\n" in err
    assert mu == pytest.approx(dpgep.Budget.open("budget").mu / 2)


def test_what_another_run_spends_meanwhile_is_not_said_of_this_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _budget()

    def others(*_: object, **__: object) -> None:
        budget = dpgep.Budget.open("budget")
        with budget.reserve(0.25, adjacency="replace-one") as ledger:
            ledger.record(LedgerEntry("theirs", 0.1, ()))
        raise dpgep.errors.DataChangedError("changed")

    monkeypatch.setattr(dpgep, "solve", others)
    words = ["--columns", "age", "--bound", "99", "--budget", "budget", "--share", "0.25", "-o", "o.json"]
    assert "nothing was released, nothing was spent\n" in run("pca", "people.csv", *words)[2]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("model", ["pca", "release"])
def test_a_result_that_cannot_be_written_is_not_lost(
    run: Run, monkeypatch: pytest.MonkeyPatch, model: str, stream: str
) -> None:
    """Where the disk is full, it is on stdout; and if that fails too, on stderr."""
    _full_disk_after(monkeypatch, "solve" if model == "pca" else "release")
    if stream == "stderr":
        monkeypatch.setattr(sys, "stdout", _Full())
    status, out, err = run(model, "people.csv", "--columns", "age,weight", "--bound", "200", *BUDGET, "-o", "o")
    assert status == 1
    assert "o cannot be written (No space left on device)" in err
    assert _names_in(model, out if stream == "stdout" else err.splitlines()[-1]) == ("age", "weight")
    assert os.listdir() == ["people.csv"]


def test_a_full_disk_is_noticed_before_anything_is_spent(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpgep, "solve", None)
    monkeypatch.setattr(os, "fsync", _full)
    words = ["people.csv", "--columns", "age", "--bound", "99", *BUDGET, "-o", "o.json"]
    assert run("pca", *words)[::2] == (2, "dpgep pca: -o: o.json cannot be written (No space left on device)\n")
    assert os.listdir() == ["people.csv"]


@pytest.mark.parametrize("model", ["fda", "release"])
@pytest.mark.parametrize("classes", ["0,inf", "0,-inf", "0,1e400", "0,nan", "0,0.0", f"0,{10**30}"])
def test_classes_that_no_file_can_hold_are_refused_before_rows_are_read(run: Run, model: str, classes: str) -> None:
    _budget()
    Path("labels.csv").write_text("x,c\n" + "1,0\n2,1\n" * 20)
    words = ["labels.csv", "--labels", "c", f"--classes={classes}", "--bound", "9", "--budget", "budget"]
    status, out, err = run(model, *words, "--share", "0.5", "-o", "o")
    assert (status, out, err.startswith(f"dpgep {model}: classes ")) == (2, "", True), err
    assert len(dpgep.Budget.open("budget").history) == 1
    assert not Path("o").exists()


@pytest.mark.parametrize("model", ["sir", "release"])
def test_slices_that_no_file_can_hold_are_refused_before_rows_are_read(run: Run, model: str) -> None:
    """A range whose width is no double."""
    words = ["people.csv", "--columns", "age", "--response", "weight", "--y-range=-1e308:1e308", "--missing", "center"]
    with np.errstate(all="ignore"):
        status, _, err = run(model, *words, *BUDGET, "-o", "o")
    assert (status, err) == (2, f"dpgep {model}: interior_edges must be increasing numbers, at least one\n")


def test_an_answer_is_kept_whatever_its_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal that cannot show a name, it is escaped: what is kept and said is no failure."""
    Path("names.csv").write_text("größe,\u202ealter\n" + "1,2\n2,3\n" * 20, encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert run("pca", "names.csv", "--bound", "9", "--epsilon", "inf", "-o", "o.json")[0] == 0
    shown = sys.stdout.buffer.getvalue().decode()
    assert "gr\\xf6\\xdfe" in shown
    assert dpgep.load("o.json").feature_names == ("größe", "\u202ealter")


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_stream_that_is_closed_costs_no_answer(run: Run, monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    """As after ``2>&-``, and in a service."""
    monkeypatch.setattr(sys, closed, None)
    words = ["people.csv", "--columns", "age", "--missing", "center", *BUDGET, "-o", "o.json"]
    assert run("pca", *words)[0] == 0
    assert dpgep.load("o.json").feature_names == ("age",)


@pytest.mark.parametrize("links", [True, False])
def test_of_two_runs_with_one_output_neither_answer_is_lost(
    run: Run, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Both begin when there is no file; in file systems with and without hard links."""
    real = dpgep.solve

    def answer_after_others(*arguments: Any, **options: Any) -> dpgep.Solution:
        Path("o.json").write_text("theirs")
        Path("o-2.json").write_text("of a third")
        return real(*arguments, **options)

    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(dpgep, "solve", answer_after_others)
    words = ["people.csv", "--columns", "age", "--bound", "99", *BUDGET, "-o", "o.json"]
    status, _, err = run("pca", *words)
    assert status == 0
    assert f"kept in {Path('o-3.json').resolve()}: there is another o.json since this run began\n" in err
    assert (Path("o.json").read_text(), Path("o-2.json").read_text()) == ("theirs", "of a third")
    assert dpgep.load("o-3.json").feature_names == ("age",)
    assert sorted(os.listdir()) == ["o-2.json", "o-3.json", "o.json", "people.csv"]
    for path in Path().glob("o*.json"):
        path.unlink()
    assert run("pca", *words[:-1], "q.json")[::2][0] == 0
    assert dpgep.load("q.json").feature_names == ("age",)


def test_processes_with_one_output_keep_all_that_they_pay_for(run: Run) -> None:
    _budget()
    words = ["pca", "people.csv", "--columns", "age", "--bound", "99", "--budget", "budget", "--share", "0.125"]
    command = [sys.executable, "-m", "dpgep", *words, "-o", "o.json"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    for process in started:
        process.communicate()
    paid = len(dpgep.Budget.open("budget").releases)
    assert sum(process.returncode == 0 for process in started) == paid >= 1
    assert len({bytes_of(dpgep.load(path)) for path in Path().glob("o*.json")}) == paid


@pytest.mark.parametrize("output", ["device", "pipe", "fifo", "folder"])
def test_an_output_that_is_no_file_is_refused_and_left_alone(run: Run, output: str) -> None:
    os.mkfifo("fifo")
    Path("folder").mkdir()
    ends = [*os.openpty(), *os.pipe()]
    Path("device").symlink_to(os.ttyname(ends[1]))  # one that nobody would miss, unlike /dev/null
    Path("pipe").symlink_to(f"/dev/fd/{ends[3]}")  # as /dev/stdout is one
    before = os.stat(output)
    for force in ([], ["--force"]):
        status, out, err = run("pca", "people.csv", "--columns", "age", *BUDGET, "-o", output, *force)
        assert (status, out) == (2, "")
        assert err == f"dpgep pca: -o: {output} is a folder, a pipe or a device, not a file: choose another name\n"
    after = os.stat(output)
    for end in ends:
        os.close(end)
    assert (after.st_mode, after.st_ino, after.st_rdev) == (before.st_mode, before.st_ino, before.st_rdev)


@pytest.mark.parametrize(
    ("data", "output"),
    [
        ("people.csv", "people.csv"),
        ("pe*.csv", "people.csv"),
        ("people.csv", "link"),
        ("people.csv", "budget"),
        ("people.csv", "budget.head"),
        ("folder", "folder/part.csv"),
    ],
)
def test_an_output_that_is_an_input_is_refused(run: Run, data: str, output: str) -> None:
    _budget()
    Path("folder").mkdir()
    shutil.copy("people.csv", "folder/part.csv")
    Path("link").symlink_to("people.csv")
    before = Path(output).read_bytes()
    words = [data, "--columns", "age", "--bound", "99", "--budget", "budget", "--share", "0.5", "--force"]
    status, _, err = run("pca", *words, "-o", output)
    assert (status, err) == (2, f"dpgep pca: -o: {output} is read by this command: choose another name\n")
    assert Path(output).read_bytes() == before


def test_transform_and_report_do_not_replace_what_they_read(run: Run) -> None:
    words = ["people.csv", "--columns", "age", "--bound", "99", "--epsilon", "inf", "-o", "o.json"]
    assert run("pca", *words)[0] == 0
    before = Path("o.json").read_bytes()
    assert run("report", "o.json", "-o", "o.json", "--force")[0] == 2
    assert run("transform", "o.json", "people.csv", "-o", "people.csv", "--force")[0] == 2
    assert Path("o.json").read_bytes() == before


def test_force_replaces_what_a_link_points_to_and_hands_on_its_rights(run: Run) -> None:
    Path("old.json").write_text("old")
    Path("old.json").chmod(0o640)
    Path("link.json").symlink_to("old.json")
    words = ["people.csv", "--columns", "age", "--bound", "99", *BUDGET, "-o", "link.json", "--force"]
    assert run("pca", *words)[0] == 0
    assert Path("link.json").is_symlink()
    assert dpgep.load("old.json").feature_names == ("age",)
    assert Path("old.json").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npy"])
def test_transform_makes_the_columns_of_the_fit(run: Run, suffix: str) -> None:
    assert (
        run("pca", "people.csv", *COLUMNS, *DECLARED, "--standardize", *BUDGET, "--n-components", "2", "-o", "o.json")[
            0
        ]
        == 0
    )
    keep = [] if suffix == "npy" else ["--keep", "id"]
    status, _, err = run("transform", "o.json", "people.csv", *keep, "-o", f"scores.{suffix}")
    assert (status, err) == (0, f"scores.{suffix}: no more private than the rows themselves\n")
    solution = dpgep.load("o.json")
    scanned = dpgep.scan("people.csv", categories={"region": ["north", "south", "east"]}, dates=["joined"])
    batches = scanned.read(scanned[["age", "height", "weight", "region", "joined"]])
    expected = np.vstack([solution.transform(batch) for (batch,) in batches])
    if suffix == "npy":
        found = np.load("scores.npy")
    else:
        table = pyarrow.csv.read_csv("scores.csv") if suffix == "csv" else pyarrow.parquet.read_table("scores.parquet")
        assert table.column_names == ["id", "component_1", "component_2"]
        assert table["id"].to_pylist() == list(range(N))
        found = np.column_stack([table[1].to_numpy(), table[2].to_numpy()])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_transform_of_two_views(run: Run) -> None:
    words = ["--x-columns", "age,height", "--y-columns", "weight", "--missing", "center", *BUDGET, "-o", "o.json"]
    assert run("cca", "people.csv", *words)[0] == 0
    assert run("transform", "o.json", "people.csv", "-o", "s.parquet")[0] == 0
    assert pyarrow.parquet.read_table("s.parquet").column_names == ["x_component_1", "y_component_1"]


def test_plan(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpgep.planning.Plan, "epsilon_for", lambda plan, error: 7.25)  # takes ten plans
    status, out, _ = run("plan", "cca", "--people", "5000", "--features", "3,2", *BUDGET, "--epsilon-for", "0.5")
    assert status == 0
    assert "Plan of cca: 1 component in 5 features of 5000 people" in out
    assert out.endswith("epsilon = 7.25 for an error of 0.5\n")
    facts = ["--correlation", "0.5", "--tails", "6", "--releases", "52"]
    status, out, err = run("plan", "standardized-pca", "--people", "5000", "--features", "3", *BUDGET, *facts)
    assert status == 0, err
    assert "52 about the same people: epsilon = " in out
    assert "Student's law with 6 degrees of freedom, about zero; columns correlated as given" in out


def test_audit(run: Run) -> None:
    status, out, _ = run("audit", "--runs", "200", "--quiet")
    assert status == 0
    assert "not flagged" in out
    assert "mu      >= 0  " not in out  # the test has some power


def test_audit_exits_with_1_where_a_claim_is_refuted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = dpgep.auditing.audit

    def too_loud(*arguments: Any, mu: float, **options: Any) -> Any:
        return replace(real(*arguments, mu=3 * mu, **options), claimed_mu=mu)

    monkeypatch.setattr(dpgep.auditing, "audit", too_loud)
    status, out, _ = run("audit", "--runs", "100", "--quiet")
    assert (status, "FLAGGED" in out) == (1, True)


def test_json_files_of_ranges_and_categories(run: Run) -> None:
    Path("r.json").write_text(json.dumps({"age": [0, 120], "joined": ["2000-01-01", "2030-01-01"]}))
    Path("c.json").write_text(json.dumps({"region": ["north", "south"]}))
    words = ["--columns", "age,region,joined", "--dates", "joined", "--categories", "c.json", "--ranges", "r.json"]
    status, out, err = run("pca", "people.csv", *words, *BUDGET, "--dry-run", "--people", "600")
    assert status == 0, err
    assert "features  4: age, region=north, region=south, joined" in out


def test_help_tells_the_exit_codes(run: Run) -> None:
    for command in ("pca", "plan", "transform", "audit"):
        status, out, _ = run(command, "--help")
        assert status == 0
        assert "3 the budget refuses" in " ".join(out.split())


def _budget() -> None:
    dpgep.Budget.open("budget", epsilon=8, delta=1e-5, adjacency="replace-one", dataset="people")


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class _Full(io.StringIO):
    def write(self, _: str) -> int:
        return _full()  # type: ignore[return-value, func-returns-value]


def _full_disk_after(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The disk is full once ``dpgep.name`` has answered."""
    real = getattr(dpgep, name)

    def answer(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        monkeypatch.setattr(os, "fsync", _full)
        return found

    monkeypatch.setattr(dpgep, name, answer)
    monkeypatch.setattr(os, "fsync", os.fsync)  # what is undone at the end


def _names_in(model: str, text: str) -> Any:
    if model == "pca":
        return dpgep.load(text.encode()).feature_names
    return dpgep.load(base64.b64decode(text)).model.feature_names


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("model", [["pca", "--standardize"], ["release"]])
def test_several_rows_to_a_person(run: Run, model: list[str]) -> None:
    Path("visits.csv").write_text(
        "patient_id,age,height,weight\n"
        + "".join(f"p{i % 150},{40 + i % 37},{150 + i % 41},{60 + i % 29}\n" for i in range(N)),
        encoding="utf-8",
    )
    status, _, errors = run(*model, "visits.csv", *BUDGET, "-o", "of-rows.json")
    assert status != 0
    assert "patient_id" in errors
    assert "person" in errors
    hint = "each row counts as one: if 'patient_id' says whose rows they are, pass --person"
    for more in (["--dry-run", "--people", "150"], ["--quiet", "-o", "of-rows.json"]):
        assert hint in run(*model, "visits.csv", *BUDGET, "--columns", "age,height,weight", *more)[2]
    status, _, errors = run(*model, "visits.csv", *BUDGET, "--person", "patient_id", "-o", "found.json")
    assert status == 0, errors
    assert hint not in errors
    found: Any = dpgep.load("found.json")
    report = found.report if model == ["release"] else found.privacy
    assert report.several_rows
    assert report.public.n_people == 150
    assert report.public.feature_names == ("age", "height", "weight")
    assert "p17" not in Path("found.json").read_text(encoding="utf-8", errors="replace")


def test_weights_of_a_survey(run: Run) -> None:
    Path("survey.csv").write_text(
        "age,height,w,id\n" + "".join(f"{40 + i % 37},{150 + i % 41},{0.5 + i % 5},{i // 3}\n" for i in range(N)),
        encoding="utf-8",
    )
    weights = ["--weights", "w", "--largest-weight", "4.5"]
    status, _, errors = run("release", "survey.csv", "--exclude", "id", *BUDGET, "--weights", "w")
    assert status != 0
    assert "largest_weight" in errors
    status, _, errors = run("release", "survey.csv", "--exclude", "id", *BUDGET, *weights, "-o", "survey.dpgep")
    assert status == 0, errors
    found: Any = dpgep.load("survey.dpgep")
    assert found.report.public.feature_names == ("age", "height")
    assert found.report.public.largest_weight == 4.5
    alike = ["--person", "id", "--rows", "3"]
    status, _, errors = run("pca", "survey.csv", *BUDGET, *weights, *alike, "-o", "alike.json")
    assert status == 0, errors
    report: Any = dpgep.load("alike.json").privacy
    assert (report.public.rows, report.public.feature_names) == (3, ("age", "height"))
