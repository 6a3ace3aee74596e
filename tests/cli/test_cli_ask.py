"""``dpgep ask``: the answers of Python, from words; refusals that name the right word; nothing is spent."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpgep
from dpgep import cli
from dpgep.cli.ask import _sides

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
NAMES = ("age", "height", "blood pressure", "a~b", "region=north")


@pytest.fixture(scope="module")
def release() -> dpgep.Release:
    rng = np.random.default_rng(0)
    height = rng.normal(170, 10, 3000)
    rows = pd.DataFrame({"age": rng.normal(45, 15, 3000), "height": height})
    rows["weight"] = 0.9 * height + rng.normal(-80, 9, 3000)
    rows["blood pressure"] = rng.normal(120, 15, 3000)
    rows["sex"] = pd.Categorical(rng.choice(["F", "M"], 3000), categories=["F", "M"])
    with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
        return dpgep.release(rows, epsilon=2.0, delta=1e-6, seed=0)


@pytest.fixture
def ask(
    release: dpgep.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """``dpgep ask people.dpgep`` and words: exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    release.save("people.dpgep")

    def command(*words: str) -> tuple[int, str, str]:
        try:
            status = cli.main(["ask", "people.dpgep", *words])
        except SystemExit as stop:
            status = int(str(stop.code))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return command


def test_without_a_question_it_says_which_there_are(ask: Run, release: dpgep.Release) -> None:
    status, out, _ = ask()
    assert status == 0
    assert repr(release) in out
    assert "'blood pressure'" in out


def test_answers_are_those_of_python(ask: Run, release: dpgep.Release) -> None:
    pressure = "blood pressure"
    expected = {
        ("correlation",): release.correlation(),
        ("correlation", "age", pressure): release.correlation(["age", pressure]),
        ("covariance", "age + weight", "--level", "0.5"): release.covariance(["age", "weight"], level=0.5),
        ("regression", "weight ~ height + age"): release.regression("weight", on=["height", "age"]),
        ("regression", "weight", os.path.expanduser("~"), "height"): release.regression("weight", on=["height"]),
        ("regression", "`blood pressure`~.", "--ridge", "0.1"): release.regression(pressure, ridge=0.1),
        ("regression", "weight ~ sex"): release.regression("weight", on=["sex=F", "sex=M"]),
        ("regression_path", "weight ~ .", "--by", "ridge"): release.regression_path("weight", by="ridge"),
        ("instrumental", "weight ~ height + age | sex + age"): release.instrumental(
            "weight", ["height", "age"], ["sex", "age"]
        ),
        ("means_by", "age + weight ~ sex"): release.means_by("sex", ["age", "weight"]),
        ("means_by", ". ~ sex"): release.means_by("sex"),
        ("redundancy", "age + weight ~ height"): release.redundancy(["age", "weight"], ["height"]),
        ("cca", "age ~ weight | height"): release.cca(["age"], ["weight"], given=["height"]),
        ("crosstab", "sex"): release.crosstab("sex"),
        ("describe",): release.describe(),
        ("cca", "age, weight ~ height"): release.cca(["age", "weight"], ["height"]),
        ("pca", "--standardize", "--n-components", "2"): release.pca(standardize=True, n_components=2),
        ("pca", "--sparsity", "2", "--n-components", "1"): release.pca(sparsity=2, n_components=1),
    }
    for words, answer in expected.items():
        status, out, _ = ask(*words)
        assert (status, out) == (0, f"{answer}\n"), words


def test_every_question_that_a_release_lists_is_one(ask: Run, release: dpgep.Release) -> None:
    status, out, _ = ask("mean", "age")
    assert (status, out.split()) == (0, ["mean", "age", f"{release.mean(['age'])[0]:.6f}"])
    assert ask("sample", "age + sex", "--rows", "7", "-o", "people.csv")[0] == 0
    assert pd.read_csv("people.csv", index_col=0).columns.tolist() == ["age", "sex"]
    assert len(pd.read_csv("people.csv")) == 7
    for question in release._questions():
        status, _, err = ask(question)
        assert status == 0 or "no question" not in err, question


def test_dates_are_printed_as_dates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "people.dpgep"
    joined = np.datetime64("2020-03-01", "s") + (86400 * rng.normal(0.0, 90.0, 4000)).astype(int)
    people = pd.DataFrame({"age": rng.normal(40.0, 9.0, 4000), "joined": joined})
    people["sex"] = pd.Categorical(rng.choice(["F", "M"], 4000), categories=["F", "M"])
    data = dpgep.scan(people, dates=["joined"])
    auto = dpgep.AutoPreprocessing(quartiles=0.2)
    with pytest.warns(dpgep.errors.PrivacyWarning):
        dpgep.release(data, preprocessing=auto, epsilon=50.0, delta=1e-6, seed=0).save(path)
    release = dpgep.load(path)
    assert release.model._dates == (1,)
    days = release.mean(["joined"])[0]
    assert abs(days - np.datetime64("2020-03-01").astype(int)) < 10.0
    said = str(np.datetime64("1970-01-01") + np.timedelta64(int(days), "D"))
    for words, kept in {
        ("mean",): [said],
        ("mean", "age"): [f"{release.mean(['age'])[0]:.6f}"],
        ("describe", "joined", "age"): [said, " days", "2019-12-", "2020-05-0", f"{release.mean(['age'])[0]:.4g}"],
        ("means_by", "joined + age ~ sex"): ["2020-02-", "2020-03-"],
    }.items():
        assert cli.main(["ask", str(path), *words]) == 0
        out = capsys.readouterr().out
        assert "e+04" not in out
        assert all(text in out for text in kept), out
    assert release.describe(["joined"]).to_frame().loc["joined", "mean"] == days
    assert said[:7] in release.describe()._repr_html_()
    buffer = io.BytesIO()
    release.to_html(buffer)
    assert b'"dates":[1]' in buffer.getvalue()


def test_groups_are_asked_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    labels, path = rng.integers(0, 2, 400), str(tmp_path / "patients.dpgep")
    release = dpgep.release(
        rng.standard_normal((400, 3)), labels, classes=[0, 1], by_group=True, bound=4.0, epsilon=9.0, delta=1e-6
    )
    release.save(path)
    assert cli.main(["ask", path]) == 0
    out = capsys.readouterr().out
    assert out.endswith("groups, for --group: 0, 1\n")
    assert "of_group" not in out
    expected = {
        ("describe", "--group", "1"): release.of_group(1).describe(),
        ("manova", "0", "2"): release.manova([0, 2]),
        ("contrastive_pca", "--target", "1", "--background", "0"): release.contrastive_pca(target=1, background=0),
        ("common_spatial_patterns", "--target", "1", "--background", "0"): release.common_spatial_patterns(
            target=1, background=0
        ),
        ("central_subspace", "0", "1", "--by", "save"): release.central_subspace([0, 1], by="save"),
        ("fair_pca", "--n-components", "1", "--standardize"): release.fair_pca(n_components=1, standardize=True),
        ("quadratic_classifier", "0", "2"): release.quadratic_classifier([0, 2]),
    }
    for words, answer in expected.items():
        assert cli.main(["ask", path, *words]) == 0
        assert capsys.readouterr().out == f"{answer}\n"
    for words, message in {
        ("describe", "--group", "ill"): "there is no group 'ill'",
        ("contrastive_pca", "--target", "1"): "contrastive_pca needs --background",
        ("describe", "--target", "1"): "takes no --target",
        ("of_group",): "no question 'of_group'",
    }.items():
        assert cli.main(["ask", path, *words]) in (1, 2)
        assert message in capsys.readouterr().err


def test_a_table_is_kept(ask: Run, release: dpgep.Release) -> None:
    status, _, err = ask("regression", "weight ~ height", "-o", "slopes.csv")
    assert status == 0
    assert err.endswith("kept in slopes.csv\n")
    found = pd.read_csv("slopes.csv", index_col=0)
    pd.testing.assert_frame_equal(found, release.regression("weight", on=["height"]).to_frame(), check_names=False)
    assert ask("regression", "weight ~ height", "-o", "slopes.csv")[0] == 2
    assert ask("correlation", "-o", "people.dpgep", "--force")[0] == 2  # what it reads


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["regresion"], "did you mean 'regression'"),
        (["sample"], "sample needs --rows N"),
        (["mean", "--rows", "3"], "mean takes no --rows"),
        (["solve"], "no question 'solve'"),
        (["correlation", "wieght"], "did you mean 'weight'"),
        (["correlation", "age ~ weight"], "without ~"),
        (["regression", "weight"], "on all sides"),
        (["regression", "weight ~ age ~ height"], "on all sides"),
        (["instrumental", "weight ~ height"], 'as "a ~ b + c | d + c"'),
        (["regression", "weight + age ~ height"], "one column on the left of ~"),
        (["means_by", "age ~ sex + height"], "one column on the right of ~"),
        (["mca", "sex"], "mca needs two categorical columns, and this release has 'sex'"),
        (["crosstab"], "one or two categorical columns"),
        (["crosstab", "sex", "age", "height"], "one or two categorical columns"),
        (["crosstab", "age"], "released as a number"),
        (["correlation", "--ridge", "1"], "takes no --ridge"),
        (["pca", "--level", "0.9"], "level"),
        (["correlation", "--levle", "1"], "did you mean '--level'"),
    ],
)
def test_refusals(ask: Run, words: list[str], message: str) -> None:
    status, out, err = ask(*words)
    assert status in (1, 2)
    assert not out
    assert message in err


def test_a_release_without_categories_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(500, 2)), columns=["age", "sex"])
    dpgep.release(rows, epsilon=float("inf")).save("people.dpgep")
    assert cli.main(["ask", "people.dpgep", "crosstab", "sex"]) == 2
    assert "crosstab needs a categorical column, and this release has none: declare" in capsys.readouterr().err


def test_what_a_pairwise_release_cannot_answer_is_said_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(500, 2)), columns=["age", "weight"])
    rows["sex"] = pd.Categorical(["F", "M"] * 250, categories=["F", "M"])
    rows.loc[::9, "age"] = np.nan
    pairwise = dpgep.AutoPreprocessing(missing="pairwise")
    dpgep.release(rows, preprocessing=pairwise, epsilon=float("inf")).save("people.dpgep")
    for words in (["regression", "weight ~ age"], ["means_by", "weight ~ sex"], ["crosstab", "sex"], ["factors"]):
        assert cli.main(["ask", "people.dpgep", *words]) == 2
        assert f"{words[0]} is not known of a release with --missing pairwise" in capsys.readouterr().err


def test_other_files_are_refused(tmp_path: Path, release: dpgep.Release, capsys: pytest.CaptureFixture[str]) -> None:
    solution, text = tmp_path / "solution.json", tmp_path / "text"
    release.pca().save(solution)
    text.write_text("no release")
    for path, message in (
        (solution, "holds no release: it is a Solution"),
        (text, "holds no release"),
        (tmp_path / "none", "no release"),
    ):
        assert cli.main(["ask", str(path)]) == 2
        assert message in capsys.readouterr().err


@given(left=st.lists(st.sampled_from(NAMES), min_size=1), right=st.lists(st.sampled_from(NAMES), min_size=1))
def test_formulas_of_any_names(left: list[str], right: list[str]) -> None:
    quoted = " ~ ".join(" + ".join(f"`{name}`" for name in side) for side in (left, right))
    assert _sides([quoted], NAMES) == [left, right]
    assert _sides([*left, "~", *right], NAMES) == [left, right]
    assert _sides(["0 + 2 ~ 1"], None) == [[0, 2], [1]]
