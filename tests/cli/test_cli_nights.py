"""``dpgep nights``, as an operator uses it: one command a night, cut off, repeated, with other terms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpgep
from dpgep import cli

ADD = ["nights", "add", "register.nights"]
TERMS = ["--bound", "3", "--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for night in range(3):
        rows = pd.DataFrame(rng.standard_normal((50, 2)), columns=["a", "b"])
        rows.assign(who=range(40 * night, 40 * night + 50), kind=rng.choice(["x", "y"], 50)).to_csv(
            f"night-{night}.csv", index=False
        )
    return tmp_path


def test_one_command_a_night(capsys: pytest.CaptureFixture[str]) -> None:
    for night in range(3):
        asked = ["--columns", "a,b", *TERMS, "-o", f"morning-{night}.dpgep"]
        assert cli.main([*ADD, f"night-{night}.csv", *asked]) == 0
    assert "150 people, nights: 3; epsilon = 1" in capsys.readouterr().out
    assert dpgep.load("morning-1.dpgep").n_people == 100
    assert cli.main([*ADD, "night-2.csv", "--columns", "a,b", "-o", "again.dpgep"]) == 0
    assert dpgep.load("again.dpgep").fingerprint == dpgep.load("morning-2.dpgep").fingerprint
    assert "'night-2' is there already" in capsys.readouterr().err
    assert cli.main(["nights", "release", "register.nights", "--first", "night-1", "--last", "night-1"]) == 0
    assert "50 people, nights: 3" in capsys.readouterr().out


def test_people_who_come_again_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--columns", "a,b", "--person", "who", *TERMS]
    assert cli.main([*ADD, "night-0.csv", *asked]) == 0
    assert cli.main([*ADD, "night-1.csv", *asked]) == 1
    assert "some people were on 1 nights before" in capsys.readouterr().err
    assert cli.main([*ADD, "night-2.csv", *asked]) == 0
    assert dpgep.Nights("register.nights").labels == ("night-0", "night-2")


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_classes_of_a_night(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--exclude", "who", "--labels", "kind", "--classes", "x,y", *TERMS, "-o", "morning.dpgep", "--force"]
    for night in range(2):
        assert cli.main([*ADD, f"night-{night}.csv", *asked]) == 0
    assert dpgep.load("morning.dpgep").fda(n_components=1).components.shape == (1, 2)


@pytest.mark.parametrize(
    ("asked", "status", "message"),
    [
        (["--columns", "a,b"], 2, "holds no nights yet: give their budget"),
        (["--columns", "a,b", *TERMS, "--public-n", "50"], 2, "--public-n is of no use here"),
        (["--columns", "a,b", *TERMS, "--missing", "center"], 2, "leave out --bound"),
        (["--columns", "a,c", *TERMS], 2, "no column 'c'"),
        (["--columns", "a,b", "--person", "a", *TERMS], 2, "leave it out of --columns"),
    ],
)
def test_wrong_usage_begins_nothing(
    folder: Path, asked: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*ADD, "night-0.csv", *asked]) == status
    assert message in capsys.readouterr().err
    assert not (folder / "register.nights").exists()


def test_terms_that_differ_are_refused_and_a_budget_in_a_file_pays_once(capsys: pytest.CaptureFixture[str]) -> None:
    budget = ["budget", "init", "b.budget", "--mu", "1", "--adjacency", "replace-one", "--dataset", "r"]
    assert cli.main(budget) == 0
    asked = ["--columns", "a,b", "--bound", "3", "--budget", "b.budget", "--share", "rest"]
    assert cli.main([*ADD, "night-0.csv", *asked]) == 0
    assert cli.main([*ADD, "night-1.csv", *asked]) == 0
    assert len(dpgep.Budget.open("b.budget").releases) == 1
    assert cli.main([*ADD, "night-2.csv", *asked, "--keep", "7"]) == 2
    assert "began with no keep, not 7.0" in capsys.readouterr().err
    assert cli.main(["nights", "add", "other.nights", "night-2.csv", *asked]) == 3
