"""The worst pair of each mechanism costs what docs/audits.md says, and at most its claim; every mechanism has one.

`dpgep.auditing.replay` computes these costs exactly. Whatever draws noise, hands a stream on, or makes an entry of a
ledger has to be run by one of the cases.
"""

from __future__ import annotations

import ast
import math
import re
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import dp_accounting  # noqa: F401 -- imported here, as a profile makes imports slow
import numpy as np
import pytest
import sklearn.base  # noqa: F401
from replay_cases import CASES, row, worst

import dpgep

PACKAGE = Path(dpgep.__file__).parent
PAGE = Path(__file__).resolve().parents[2] / "docs" / "audits.md"

Place = tuple[str, int]  # a file, and the line where a function starts


@cache
def replayed(name: str) -> tuple[dpgep.auditing.ReplayResult, frozenset[Place]]:
    """A case's replay, and the functions that it ran."""
    ran: set[Place] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            ran.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        return CASES[name].replay(), frozenset(ran)
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("name", CASES)
def test_a_worst_pair_shows_nothing_else_and_costs_no_more_than_is_claimed(name: str) -> None:
    result, _ = replayed(name)
    assert result.error is None
    assert not result.flagged, result
    assert 0 < result.ratio <= 1


@pytest.mark.parametrize("name", CASES)
def test_a_claim_that_is_a_hundredth_too_small_is_flagged(name: str) -> None:
    result, _ = replayed(name)
    claims = [(result.mu, result.claimed_mu), *((part.mu, part.claimed_mu) for part in result.parts)]
    assert CASES[name].replay(share=0.99).flagged == any(mu > 0.99 * (claim or math.inf) for mu, claim in claims)


def test_the_page_has_the_ratio_of_every_case_and_says_why_it_is_small() -> None:
    page = re.search(r"<!-- replays -->\n.*\n.*\n((?:\|.*\n)+)([\s\S]*?)\n## ", PAGE.read_text(encoding="utf-8"))
    assert page is not None
    table, reasons = page.groups()
    ratios = {name: replayed(name)[0].ratio for name in CASES}
    assert table.splitlines() == [row(case, ratios[name]) for name, case in CASES.items()]
    assert set(re.findall(r"\*([^*\n]+)\*", reasons)) == {name for name, ratio in ratios.items() if ratio < 0.98}


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_search_finds_no_pair_beyond_its_claim(name: str) -> None:
    ratio, pair = worst(CASES[name], 25, np.random.default_rng(zlib.crc32(name.encode())))
    assert ratio <= 1, (pair.first, pair.second)
    assert ratio >= replayed(name)[0].ratio * (1 - 1e-6)  # a flow starts at random
    assert not pair.replay().flagged, (pair.first, pair.second)


# ---- every mechanism has a case ----

NO_MECHANISMS = {
    "auditing.statistical._curator": "audits data that its caller made up",
    "privacy.clipped_products.AffordsClippedProducts.answer": "answers from public facts, and draws nothing",
    "privacy.curator._plain": "answers without noise, at infinite cost",
    "privacy.products._plain_groups": "answers without noise, at infinite cost",
    "privacy.screening._plain_screen": "answers without noise, at infinite cost",
}


def kernels_that_draw() -> set[str]:
    """Compiled functions, and classes, that take a stream of noise."""

    def takes_a_stream(function: ast.FunctionDef) -> bool:
        given = [*function.args.args, *function.args.kwonlyargs]
        return any("NoiseStream" in ast.unparse(each.annotation) for each in given if each.annotation)

    names = set()
    for node in ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and takes_a_stream(node):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef) and takes_a_stream(each)]
            names |= {node.name if each.name == "__init__" else each.name for each in methods}
    return names


def is_about_noise(node: ast.AST, kernels: set[str]) -> bool:
    """Whether this is an entry of a ledger, a kernel that draws, or a call that is given a stream."""
    if isinstance(node, ast.Attribute):
        return node.attr in kernels
    if not isinstance(node, ast.Call):
        return False
    given = {ast.unparse(each) for each in [*node.args, *(keyword.value for keyword in node.keywords)]}
    return ast.unparse(node.func) in ("LedgerEntry", "noise_stream", "self._stream.bytes") or bool(
        given & {"stream", "self._stream"}
    )


def functions(path: Path) -> dict[str, tuple[Place, list[ast.AST]]]:
    """The functions of a module by name: where each starts, and what is in it, but in no function within it."""
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    found: dict[str, tuple[Place, list[ast.AST]]] = {}
    nodes: list[tuple[str, ast.AST]] = [(module, ast.parse(path.read_text(encoding="utf-8")))]
    while nodes:
        name, node = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = f"{name}.{node.name}"
        if isinstance(node, ast.FunctionDef):
            line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found[name] = ((str(path), line), [])
        elif name in found:
            found[name][1].append(node)
        nodes += [(name, child) for child in ast.iter_child_nodes(node)]
    return found


def about_noise(path: Path, kernels: set[str]) -> Iterator[tuple[str, Place]]:
    """Functions that draw, pay or hand a stream on, and callers of their module's private ones that do."""
    rest, helpers = functions(path), {""}
    while helpers:
        chosen = {
            name
            for name, (_, nodes) in rest.items()
            if any(is_about_noise(node, kernels) or called(node) in helpers for node in nodes)
        }
        for name in chosen:
            yield name, rest.pop(name)[0]
        helpers = {name.rpartition(".")[2] for name in chosen - set(NO_MECHANISMS)}
        helpers = {name for name in helpers if name.startswith("_") and name != "__init__"}


def called(node: ast.AST) -> str | None:
    """The last name of what this calls."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else None


def test_every_mechanism_is_run_by_a_case() -> None:
    kernels = kernels_that_draw()
    assert {"add_exact_noise", "Noise", "of_csr"} <= kernels
    found = {name: place for path in PACKAGE.rglob("*.py") for name, place in about_noise(path, kernels)}
    assert {"privacy.noise.add_grid_noise", "privacy.curator.Stages.column_sums", "run.Run.curator"} <= set(found)
    ran = frozenset().union(*(replayed(name)[1] for name in CASES))
    assert {name for name, place in found.items() if place not in ran} == set(NO_MECHANISMS)
