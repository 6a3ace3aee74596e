"""The page that answers, in Chromium: three widths, light, dark, printed; the keyboard; axe-core's rules."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpgep

playwright = pytest.importorskip("playwright.sync_api", reason="CI's step `browser` installs playwright")
_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.skipif(_CHROMIUM is None, reason="there is no Chromium on PATH: CI's step `browser` installs it"),
    pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning"),
]

_WIDTHS = (390, 800, 1400)
_TEXTS_INSIDE = """[...document.querySelectorAll('svg text')].every((text) => {
    const box = text.getBBox(), whole = text.ownerSVGElement.viewBox.baseVal;
    return box.x >= -1 && box.x + box.width <= whole.width + 1;
})"""
_SECTION = "(document.activeElement.closest('section, nav, fieldset, body') || document.body).id"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def release() -> dpgep.Release:
    rng, n = np.random.default_rng(0), 20_000
    table = pd.DataFrame({"age": rng.normal(45, 15, n), "a name that is much longer than others": rng.normal(0, 1, n)})
    table["weight"] = 0.5 * table["age"] + rng.normal(0, 9, n)
    for name in ("sex", "region"):
        table[name] = pd.Categorical(rng.choice(["a", "b", "c"], n), categories=["a", "b", "c"])
    return dpgep.release(table, epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def file(release: dpgep.Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("page") / "explore.html"
    release.to_html(written)
    return written


def _opened(browser: Any, file: Path, width: int = 800, scheme: str = "light") -> Any:
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None)
    page.said = said
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-answered]", state="attached")
    return page


@pytest.mark.parametrize("width", _WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_and_nothing_is_asked_for(browser: Any, file: Path, width: int, scheme: str) -> None:
    page = _opened(browser, file, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.said == []
    assert page.evaluate(_TEXTS_INSIDE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, file: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = _opened(browser, file, 800, scheme)
    page.click("summary")
    found = axe.run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


def test_what_is_shown_is_python_s(browser: Any, file: Path, release: dpgep.Release) -> None:
    page = _opened(browser, file)
    for label in page.locator("#columns label").all():
        if "=" in label.inner_text():
            label.locator("input").uncheck()
    page.wait_for_selector("html[data-answered='3']", state="attached")
    page.select_option("#target", label="weight")

    def shown(panel: str, column: int) -> list[float]:
        cells = page.locator(f"#{panel} tbody tr td:nth-child({column})").all()
        return [float(cell.get_attribute("data-value")) for cell in cells]

    columns = ["age", "a name that is much longer than others", "weight"]
    expected = release.regression("weight", on=columns[:2])
    np.testing.assert_allclose(shown("coefficients", 2), [expected.intercept, *expected.coefficients], rtol=1e-9)
    means = release.means_by("sex").to_frame()
    np.testing.assert_allclose(shown("means-table", 3)[1:], means[columns].iloc[1], rtol=1e-9)
    np.testing.assert_allclose(shown("counts", 2), release.crosstab("sex", "region").counts[:, 0], rtol=1e-9)
    solution = release.pca(columns, standardize=True, n_components=3)
    np.testing.assert_allclose(shown("weights", 2)[0], solution.eigenvalues[0], rtol=1e-9)
    np.testing.assert_allclose(shown("weights", 2)[2:], solution.relative_components[0], rtol=1e-8)


def test_the_keyboard_reaches_everything(browser: Any, file: Path, release: dpgep.Release) -> None:
    page = _opened(browser, file)
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(_SECTION))
    assert {"described", "correlation", "components", "regression", "means", "crosstab", "guarantee"} <= reached
    page.focus("#heat svg")
    for key in ("ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    second, third = (release.model.feature_names or ())[1:3]
    assert page.inner_text("#heat-text").startswith(f"{third} and {second}: ")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the privacy report").press("Enter")
    assert dpgep.load(saved.value.path()) == release.report


def test_on_paper_it_is_light_and_whole(browser: Any, file: Path) -> None:
    page = _opened(browser, file, 800, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("[...document.querySelectorAll('.tall')].every(e => getComputedStyle(e).maxHeight === 'none')")
    assert not page.is_visible("nav")
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_a_hundred_columns_are_answered(browser: Any, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((3000, 100))
    written = tmp_path / "explore.html"
    dpgep.release(rows, bound=12.0, epsilon=1.0, delta=1e-6).to_html(written)
    page = _opened(browser, written, 390)
    assert page.said == []
    assert page.locator("#coefficients tbody tr").count() == 100
    assert page.locator("#heat path").count() <= 41
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
