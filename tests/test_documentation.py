"""The documentation keeps its word: its code runs without a warning, its links lead somewhere, no name is missing."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import dpgep
from dpgep import cli

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES += sorted(DOCS.rglob("*.md"))
PACKAGE = Path(dpgep.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(dpgep.__path__, "dpgep.")
    if not module.name.rpartition(".")[2].startswith(("__main__", "_core_", "_cpu"))
)


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """Fenced code blocks in one language, with the line that each starts at."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run_without_a_warning(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of Python; on the page of the command line those of commands, too, which find the others' files."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    commands = blocks(page, "bash") if page.name == "command-line.md" else []
    for line, source in sorted(blocks(page, "python") + commands):
        if (line, source) in commands:
            run_commands(source)
            continue
        # leading newlines make the line numbers of a failure those of the page
        exec(compile("\n" * (line - 1) + source, str(page), "exec"), namespace)


def run_commands(source: str) -> None:
    for command in source.replace("\\\n", "").splitlines():
        program, *words = shlex.split(command, comments=True)
        if program == "dpgep":
            assert cli.main(words) == 0, command


def test_there_are_examples() -> None:
    count = {page.name: len(blocks(page, "python")) for page in PAGES}
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
    assert set(dpgep.__all__) - {"local"} <= names
    assert {f"local.{name}" for name in dpgep.local.__all__} <= names
    assert {f"sklearn.{name}" for name in dpgep.sklearn.__all__} <= names
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
