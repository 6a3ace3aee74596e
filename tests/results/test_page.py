"""The page that answers: its numbers are Python's, in an engine of JavaScript; one file of released values."""

from __future__ import annotations

import datetime
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special

import dpgep
from dpgep.cli import main
from dpgep.reports.report import document_of

MiniRacer = pytest.importorskip("py_mini_racer").MiniRacer

pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
_EVIL = "</script><img src=x>"


def _people(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"age": rng.normal(45, 15, n), "height": rng.normal(170, 10, n)})
    table["weight"] = 0.9 * table["height"] - 80 + rng.normal(0, 9, n)
    table["stay"] = np.exp(1 + 0.02 * table["age"] + rng.normal(0, 0.8, n))
    for name, shares in {"sex": (0.5, 0.5), "region": (0.5, 0.3, 0.2)}.items():
        labels = [f"{name}-{k}" for k in range(len(shares))]
        table[name] = pd.Categorical(rng.choice(labels, n, p=shares), categories=labels)
    return table


def _holes(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(age=table["age"].where(np.arange(len(table)) % 9 > 0))


def _classes(table: pd.DataFrame) -> dpgep.Release:
    labels = np.array([str(sex) for sex in table["sex"]])
    terms: dict[str, Any] = {"labels": labels, "classes": ["sex-0", "sex-1"], "by_group": True}
    return dpgep.release(table[["age", "height", "weight", "stay"]], **terms, epsilon=2.0, delta=1e-6)


def _in_units(table: pd.DataFrame) -> dpgep.Release:
    rows = table[["age", "height", "weight", "stay"]].to_numpy() / 400
    return dpgep.release(rows, bound=1.0, epsilon=2.0, delta=1e-6)


def _center(table: pd.DataFrame, missing: Any) -> dpgep.Release:
    terms = dpgep.AutoPreprocessing(missing=missing)
    return dpgep.release(_holes(table), epsilon=2.0, delta=1e-6, preprocessing=terms)


_RELEASES: dict[str, Callable[[pd.DataFrame], dpgep.Release]] = {
    "bought": lambda table: dpgep.release(table, epsilon=1.0, delta=1e-6),
    "add-remove": lambda table: dpgep.release(table, epsilon=1.0, delta=1e-6, adjacency="add-remove"),
    "holes": lambda table: _center(table, "center"),
    "pairs": lambda table: _center(table, "pairwise"),
    "without noise": lambda table: dpgep.release(table, epsilon=np.inf),
    "classes": _classes,
    "one group": lambda table: _classes(table).of_group("sex-0"),
    "given bound": _in_units,
}


@dataclass(frozen=True)
class Page:
    """A release, its page, and what the page's functions answer."""

    release: dpgep.Release
    text: str
    engine: Any

    def ask(self, expression: str) -> Any:
        """With infinities as text, which `float` reads."""
        return json.loads(
            self.engine.eval(
                f"JSON.stringify({expression}, (key, x) => x === Infinity ? 'inf' : x === -Infinity ? '-inf' : x)"
            )
        )

    @property
    def d(self) -> int:
        return self.release.model.n_features


def _written(release: dpgep.Release, **options: Any) -> str:
    written = io.BytesIO()
    release.to_html(written, **options)
    return written.getvalue().decode()


@pytest.fixture(scope="module", params=list(_RELEASES))
def found(request: pytest.FixtureRequest) -> Page:
    release = _RELEASES[request.param](_people(6000))
    text = _written(release)
    engine = MiniRacer()
    script = (Path(dpgep.__file__).parent / "results" / "answers.js").read_text(encoding="utf-8")
    engine.eval(script.replace("const dpgep", "var dpgep"))
    held = _DATA.search(text)
    assert held is not None
    engine.eval(f"var data = dpgep.read({held[1]})")
    return Page(release, text, engine)


def _same(shown: Any, expected: Any) -> None:
    shown, expected = np.asarray(shown, dtype=float), np.asarray(expected, dtype=float)
    assert shown.shape == expected.shape
    np.testing.assert_array_equal(np.isfinite(shown), np.isfinite(expected))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(
        shown[finite], expected[finite], rtol=1e-9, atol=1e-9 * np.abs(expected[finite]).max(initial=0)
    )


def _same_tail(shown: Any, expected: Any) -> None:
    """Probabilities, however small."""
    np.testing.assert_allclose(np.asarray(shown, dtype=float), expected, rtol=1e-9, atol=1e-300)


def _parts(cells: list[list[dict[str, Any]]], *expected: Any) -> None:
    for name, part in zip(("value", "low", "high"), expected, strict=True):
        _same([[cell[name] for cell in row] for row in cells], part)


def test_correlations_and_descriptions_are_those_of_python(found: Page) -> None:
    correlation, described = found.release.correlation(), found.release.describe()
    assert found.ask("data.missing") == described.absent
    for name in ("values", "low", "high"):
        _same(found.ask(f"data.correlation.{name}"), getattr(correlation, name))
    for name in ("mean", "mean_low", "mean_high", "deviation", "deviation_low", "deviation_high"):
        _same(found.ask(f"data.described.{name}"), getattr(described, name))
    for name in ("quartiles", "quartile_low", "quartile_high"):
        for row, expected in zip(found.ask(f"data.described.{name}"), getattr(described, name), strict=True):
            assert (row is None) == (not np.isfinite(expected).all())
            if row is not None:
                _same(row, expected)
    assert bool(found.ask("data.unseen")) == bool(described.unseen and described.unseen[1])


@pytest.mark.parametrize("standardize", [False, True])
def test_components_are_those_of_python(found: Page, standardize: bool) -> None:
    for columns in ([*range(found.d)], [2, 0, 3]):
        expected = found.release.pca(columns, standardize=standardize, n_components=len(columns))
        shown = found.ask(f"dpgep.components(data, {columns}, {str(standardize).lower()})")
        k = len(expected.eigenvalues)
        _same(shown["values"][:k], expected.eigenvalues)
        # vectors of equal eigenvalues, or of ones that are lost in rounding, are any
        gaps = np.append(-np.diff(expected.eigenvalues), np.inf) / expected.eigenvalues[0]
        clear = np.minimum(gaps, np.append(np.inf, gaps[:-1])) > 1e-4
        weights = np.array(shown["weights"][:k], dtype=float)
        same = expected.relative_components if standardize else expected.components
        signs = np.sign(np.sum(weights * same, axis=1, keepdims=True))
        _same((weights * signs)[clear], same[clear])
        if shown["noiseLevel"] is None:
            assert "regression" not in found.release._questions()  # in pairs
        else:
            _same(shown["noiseLevel"], expected.diagnostics.noise_level)
        edge = expected.diagnostics.noise_edge
        if len(columns) == found.d and edge is not None:
            _same(shown["edge"], edge)
            assert shown["found"] == expected.diagnostics.lost.count(False)


def test_regressions_are_those_of_python(found: Page) -> None:
    if "regression" not in found.release._questions():
        pytest.skip("regressions of pairs are not known")
    indicators = [j for group in found.release.model.indicators for j in group]
    asked: list[tuple[int, list[int], float | None]] = [
        (3, [0, 1, 2], None),
        (1, [2], None),
        (2, [0, 1, *indicators], 0.1),
    ]
    asked += [(0, [2, *indicators], None)] * bool(indicators)
    for y, x, ridge in asked:
        expected = found.release.regression(y, on=x, ridge=ridge)
        shown = found.ask(f"dpgep.regression(data, {y}, {x}, {ridge or 0})")
        frame = expected.to_frame()
        for name, column in {"values": "coefficient", "low": "low", "high": "high", "noiseErrors": "noise"}.items():
            _same(shown[name], frame[column])
        _same(shown["peopleErrors"], expected.people_errors)
        assert len(shown["leftOut"]) == len(expected.left_out)
        _same(
            [shown["residualVariance"], shown["rSquared"], shown["noiseShare"]],
            [expected.residual_variance, expected.r_squared, expected.noise_share],
        )


def test_groups_and_counts_are_those_of_python(found: Page) -> None:
    categories = found.ask("data.categories")
    assert [each["name"] for each in categories] == ["sex", "region"] * ("crosstab" in found.release._questions())
    for a, category in enumerate(categories):
        columns = [j for j in range(found.d) if j not in category["places"]]
        means = found.release.means_by(category["name"])
        shown = found.ask(f"dpgep.meansBy(data, data.categories[{a}], {columns})")
        _parts([each["cells"] for each in shown], means.means.T, means.low.T, means.high.T)
        _same([each["f"] for each in shown], means.f)
        _same_tail([each["p"] for each in shown], means.p_values)
        counts = found.release.crosstab(category["name"])
        _parts(
            found.ask(f"dpgep.crosstab(data, data.categories[{a}])"),
            *(part[:, None] for part in (counts.counts, counts.low, counts.high)),
        )
    if categories:
        both = found.release.crosstab("sex", "region")
        _parts(
            found.ask("dpgep.crosstab(data, data.categories[0], data.categories[1])"), both.counts, both.low, both.high
        )
        shown = found.ask("dpgep.dependence(data, data.categories[0], data.categories[1])")
        _same([shown["chiSquare"], shown["v"]], [both.chi_square, both.cramers_v])
        assert shown["degrees"] == both.degrees
        _same_tail([shown["pValue"]], [both.p_value])


def test_tails_of_tests_are_scipy_s(found: Page) -> None:
    for degrees, x in ((1, 0.0), (1, 3.2), (2, 50.0), (7, 2.0), (40, 39.0), (3, 900.0)):
        _same_tail(found.ask(f"dpgep.chiSquareTail({degrees}, {x})"), special.chdtrc(degrees, x))
    for first, second, x in ((1, 9.0, 0.0), (1, 5990.0, 4.0), (3, 99_996.0, 1.1), (4, 20.0, 0.2), (9, 1e6, 12.0)):
        log_beta = special.betaln(second / 2, first / 2)
        _same_tail(found.ask(f"dpgep.fTail({first}, {second}, {log_beta}, {x})"), special.fdtrc(first, second, x))


def test_the_page_is_one_file_that_reads_nothing_else(found: Page) -> None:
    assert "default-src 'none'" in found.text
    assert not re.search(
        r"(?:src|href)=[\"']?(?!#)|fetch\(|XMLHttpRequest|import\(|https?://(?!www\.w3\.org/2000/svg)",
        found.text.replace(found.ask("data.guarantee.report"), ""),
    )
    assert len(found.text) < 100_000


def test_its_guarantee_is_a_report_that_is_verified(found: Page) -> None:
    report = dpgep.load(io.BytesIO(found.ask("data.guarantee.report").encode()))
    assert report == found.release.report
    assert found.ask("data.guarantee.statement") == document_of(report).statement


def test_texts_of_people_are_no_code_and_levels_are_kept() -> None:
    release = dpgep.release(
        pd.DataFrame({_EVIL: [0.1, 0.2, 0.3], "b": [0.0, 0.5, -0.5]}), bound=1.0, epsilon=1.0, delta=1e-6
    )
    text = _written(release, level=0.5, dataset="wards", date=datetime.date(2026, 11, 26))
    assert _EVIL not in text
    held = _DATA.search(text)
    assert held is not None
    data = json.loads(held[1])
    assert data["names"] == [_EVIL, "b"]
    assert data["correlation"]["low"][1][0] == pytest.approx(release.correlation(level=0.5).low[1, 0], rel=1e-11)
    assert '"dataset": "wards"' in data["guarantee"]["report"]


def test_a_hundred_columns_are_less_than_a_megabyte() -> None:
    rows = np.random.default_rng(0).standard_normal((3000, 100))
    table = pd.DataFrame(rows, columns=[f"measurement {j}" for j in range(100)])
    assert 10**5 < len(_written(dpgep.release(table, epsilon=1.0, delta=1e-6)).encode()) < 10**6


def test_a_release_without_a_mean_has_no_page() -> None:
    release = dpgep.release(dpgep.pca(np.eye(4), bound=1.0, center=False), epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="no mean"):
        release.to_html(io.BytesIO())


def test_the_command_writes_a_page(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    release = dpgep.release(np.eye(4), bound=1.0, epsilon=1.0, delta=1e-6)
    held, written = tmp_path / "held.dpgep", tmp_path / "explore.html"
    release.save(held)
    assert main(["ask", str(held), "--html", "-o", str(written)]) == 0
    assert written.read_text(encoding="utf-8") == _written(release)
    assert main(["ask", str(held), "--html"]) == 2
    assert main(["ask", str(held), "describe", "--html", "-o", str(written)]) == 2
    assert "--html" in capsys.readouterr().err
