"""The documentation keeps its word: its code runs without a warning, its links lead somewhere, no name is missing."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
from pages import DOCS, PAGES, ROOT, WITHOUT_NOISE, agree, blocks, run

import dpgep

PACKAGE = Path(dpgep.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(dpgep.__path__, "dpgep.")
    if not module.name.rpartition(".")[2].startswith(("__main__", "_core_", "_cpu"))
)
SHOWING = [
    page for page in PAGES if page.name not in WITHOUT_NOISE and any(block.language == "text" for block in blocks(page))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_show_what_their_code_prints(page: Path, tmp_path: Path) -> None:
    """Nor does it warn. `PYTHONPATH=tests python tests/support/pages.py` mends what is shown."""
    for line, shown, printed in run(page, tmp_path):
        assert agree(shown, printed), f"{page.name}:{line} shows\n{shown}\nand its code prints\n{printed}"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("value  1.234\n", "value 1.235", True),  # another kernel of BLAS may round the other way
        ("value 1.234", "value 1.236", False),
        ("0.0066  (0.0036 to 0.0076)", "0.0041  (0.0037 to 0.0054)", False),  # the default had changed
        ("0.1", "0.15", False),
        ("[0.35028740 0.2]", "[0.3502875 0.2]", True),
        ("20000 people", "20001 people", False),
        ("+0.53 age", "+0.53 height", False),
        ("-0.00 age", "0.00 age", True),
        ("1.7e-05", "1.8e-05", False),
        ("1.7e-05", "1.7e-04", False),
        ("dense 0.1 ...\nflow 0.3 ...", "dense 0.1 0.049\nflow 0.3 0.016 seconds", True),
        ("dense 0.1 ...\nflow 0.3 ...", "dense 0.1 0.049\nflow 0.4 0.016", False),
        ("... 0.3", "dense 0.1 0.3", True),
        ("one line\n", "one line\nand another", False),
    ],
)
def test_numbers_agree_as_far_as_a_page_shows_them(shown: str, printed: str, same: bool) -> None:
    assert agree(shown, printed) is same


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")  # which noise alone may bring about
@pytest.mark.parametrize("noise", [" 1", " 2", " 3"])
@pytest.mark.parametrize("page", SHOWING, ids=lambda page: page.name)
def test_ranges_on_pages_hold_for_other_noise(page: Path, noise: str, tmp_path: Path) -> None:
    """Without a seed a range is all that a page can promise; comments beside the asserts say how sure it is."""
    run(page, tmp_path, noise)


def test_there_are_examples() -> None:
    count = {page.name: sum(block.language == "python" for block in blocks(page)) for page in PAGES}
    assert count["README.md"] >= 2
    assert count["guide.md"] >= 8


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_some_docstrings_have_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 3


@pytest.mark.parametrize("name", ["demo", "test"])
def test_readme_commands_can_be_extracted(name: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(rf"<!-- command: {name} -->\n```bash\n(.+)\n```\n", readme)
    assert len(found) == 1
    words = shlex.split(found[0])
    assert words[:4] == ["python", "-m", "venv", ".venv"]
    assert words[-2:] == {"demo": ["dpgep", "demo"], "test": ["-m", "not deep"]}[name]


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    """Targets within the repository."""
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if not target.startswith("https://")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        linked = source_of((page.parent / path).resolve()) if path else page
        assert linked.is_file(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in headings(linked), f"{page.name} links to {target}"


def source_of(path: Path) -> Path:
    """The file of a module as it was imported: these tests also run beside an installed wheel, without the sources."""
    sources = ROOT / "python" / "dpgep"
    return PACKAGE / path.relative_to(sources) if path.is_relative_to(sources) else path


def headings(page: Path) -> set[str]:
    """The anchors of a page, as Git hosts derive them from headings, and the site like them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_listed_and_has_a_place_on_the_site() -> None:
    listed = {(DOCS / target).resolve() for target in links(DOCS / "contents.md")}
    assert {page for page in DOCS.glob("*.md") if page.name != "contents.md"} <= listed
    on_site = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {page.relative_to(DOCS).as_posix() for page in PAGES if page.is_relative_to(DOCS)} <= set(on_site)


def test_reference_shows_every_public_name() -> None:
    pages = [page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md"))]
    shown = re.findall(r"^::: dpgep\.(\S+)((?:\n    .*)*)", "\n".join(pages), flags=re.MULTILINE)
    names = {name for name, _ in shown}
    assert len(names) == len(shown)
    modules = {name for name in dir(dpgep) if inspect.ismodule(getattr(dpgep, name))}
    assert set(dpgep.__all__) - modules <= names
    for module in modules - {"plot"}:
        assert {f"{module}.{name}" for name in getattr(dpgep, module).__all__} <= names
    for name, options in shown:
        shown_object = getattr(dpgep, name) if name in dpgep.__all__ else pkgutil.resolve_name(f"dpgep.{name}")
        assert shown_object.__doc__, name
        for members in re.findall(r"members: \[(.*)\]", options):
            assert all(hasattr(shown_object, member) for member in members.split(", ")), name


def test_docstrings_refer_to_pages_that_exist() -> None:
    referred = {
        page
        for source in PACKAGE.rglob("*.py")
        for page in re.findall(r"docs/([\w/-]+\.md)", source.read_text(encoding="utf-8"))
    }
    assert "mathematics.md" in referred
    assert {page for page in referred if not (DOCS / page).exists()} == set()
