"""What objects print, and show in notebooks: short, however much they hold, and harmless."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import solve_seeded

import dpgep
from dpgep import _show
from dpgep.problems.builders import table_problem

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rows = np.random.default_rng(0).standard_normal((3000, 4)) * [0.5, 0.2, 0.1, 0.1]
    return pd.DataFrame(rows, columns=[EVIL, "b", "c", "d"])


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("rayleigh-flow", {"noise": "fresh", "n_iterations": 60, "init": "convex"}),
        ("release", {}),
        ("release", {"screen": 30}),
        ("release", {"storage": "operator"}),
        ("dpsr", {}),
    ],
)
def test_diagnostics_print_on_a_line(method: str, options: dict[str, Any]) -> None:
    rows = np.random.default_rng(0).standard_normal((300, 60)) / 20
    found = solve_seeded(dpgep.pca(rows, bound=1.0), epsilon=8.0, delta=1e-3, n_components=2, method=method, **options)
    shown = repr(found.diagnostics)
    assert shown.startswith(type(found.diagnostics).__name__ + "(noise_level=")
    assert "\n" not in shown
    assert len(shown) < 900
    for entry in found.privacy.releases:
        assert len(repr(entry)) < 120
    assert len(repr(found.privacy)) < 300


def test_a_preparation_prints_on_a_line(table: pd.DataFrame) -> None:
    found = solve_seeded(dpgep.pca(table, standardize=True), epsilon=8.0, delta=1e-6, n_components=1)
    shown = repr(found.preprocessing)
    assert shown.startswith("Preprocessing(bound=")
    assert "location=(" in shown
    assert "linear" not in shown  # there is none


def test_a_release_names_its_questions(table: pd.DataFrame) -> None:
    kept = dpgep.release(table_problem(table, [0, 1, 2] * 1000, classes=[0, 1, 2], bound=2.0), epsilon=8.0, delta=1e-6)
    assert repr(kept).endswith("regression, regression_path, instrumental, sample, fda, classifier, manova)")
    for name in repr(kept).rpartition("cost: ")[2].rstrip(")").split(", "):
        assert hasattr(kept, name)
    second = dpgep.release(dpgep.pca(table, bound=2.0, center=False), epsilon=8.0, delta=1e-6)
    assert repr(second).endswith("solve() is what it answers)")
    with pytest.raises(ValueError, match="mean"):
        second.pca()


def test_notebooks_show_tables_of_escaped_texts(table: pd.DataFrame, tmp_path: Path) -> None:
    scan, budget = dpgep.scan(table), dpgep.Budget(epsilon=8.0, delta=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dpgep.solve(dpgep.pca(scan, bound=2.0), budget=budget, n_components=2)
    shown: list[Any] = [found, found.privacy, budget, scan]
    for each in shown:
        html = each._repr_html_()
        assert "<table>" in html
        assert "<script" not in html
        assert html.count("<tr>") == html.count("</tr>") > 0
    assert "&lt;script&gt;" in found._repr_html_()
    assert "moment matrix" in budget._repr_html_()
    assert f"{found.eigenvalues[0]:.4g}" in found._repr_html_()


def test_a_scan_prints_its_columns_and_no_number_of_rows(table: pd.DataFrame) -> None:
    scan = dpgep.scan(table)
    assert repr(scan) == f"Scan(4 columns: \"{EVIL}\", 'b', 'c', 'd', read any number of times, 0 so far)"
    assert repr(scan[["b", "c"]]) == "Selection(columns 'b', 'c')"
    assert repr(scan["b"]) == "Selection(a vector)"
    assert repr(dpgep.scan(np.ones((5, 3)))[:2]) == "Selection(2 columns)"
    assert repr(dpgep.scan(iter([np.ones((5, 3))]))) == "Scan(read once, 0 so far)"


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_answers_show_pictures_in_notebooks() -> None:
    rng = np.random.default_rng(0)
    people = pd.DataFrame(rng.standard_normal((3000, 3)), columns=[EVIL, "b", "c"])
    people["d"] = pd.Categorical(rng.choice(["<u>", "v"], 3000), categories=["<u>", "v"])
    release = dpgep.release(people, epsilon=4.0, delta=1e-6)
    pictures: dict[str, tuple[Any, int]] = {
        "release": (release, 0),
        "correlation": (release.correlation(), 1),
        "covariance": (release.covariance(), 0),
        "describe": (release.describe(), 0),
        "regression": (release.regression("b"), 5),
        "means": (release.means_by("d"), 6),
        "counts": (release.crosstab("d"), 0),
        "pca": (release.pca(n_components=2), 2),
    }
    for name, (answer, count) in pictures.items():
        html = answer._repr_html_()
        assert html.count("<svg") == html.count("</svg>") == count, name
        assert "<script" not in html
        assert "<u>" not in html
        assert html.count("<rect") == (25 if name == "correlation" else 0)
        assert html.count("<table>") == html.count("</table>") > 0
        assert str(release.report)[:30] in html
    assert "&lt;script&gt;" in release._repr_html_()


def test_intervals_are_drawn_where_they_lie() -> None:
    drawn = _show.interval_picture(0.5, 0.0, 1.0, -1.0, 1.0)
    assert 'd="M60.0 0V14"' in drawn
    assert 'd="M60.0 7H117.0"' in drawn
    assert 'cx="88.5"' in drawn
    assert _show.interval_picture(0.5, -np.inf, 1.0, -1.0, 1.0) == ""
