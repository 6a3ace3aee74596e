"""Files of other versions of their format: refused with words that say who wrote them and what to do."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpgep
from dpgep import night_file
from dpgep.privacy import budget_file
from dpgep.serialization import Format

ROWS = np.random.default_rng(0).standard_normal((300, 3)) * [0.3, 0.2, 0.1]
PROBLEM = dpgep.pca(ROWS, bound=1.0)
TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def release() -> dpgep.Release:
    return dpgep.release(ROWS, bound=1.0, **TERMS)


def moments() -> dpgep.Moments:
    found = dpgep.Moments(dpgep.models.PcaModel(3, center=True), bound=1.0)
    found.update(ROWS)
    return found


SAVED: dict[str, Callable[[], Any]] = {
    "dpgep-solution": lambda: dpgep.solve(PROBLEM, n_components=1, **TERMS),
    "dpgep-release": release,
    "dpgep-moments": moments,
    "dpgep-report": lambda: release().report,
    "dpgep-plan": lambda: dpgep.planning.plan("pca", n=300, d=3, spectrum=[4.0], bound=1.0, **TERMS),
    "dpgep-scores": lambda: dpgep.score_density(SAVED["dpgep-solution"](), PROBLEM, cells=16, **TERMS),
}


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("kind", SAVED)
def test_a_file_of_another_version_says_who_wrote_it(kind: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, current, other = SAVED[kind](), io.BytesIO(), io.BytesIO()
    saved.save(current)
    dpgep.load(current.getvalue())
    assert kind.encode() in current.getvalue()
    heading = Format.heading
    monkeypatch.setattr(Format, "heading", lambda self: {**heading(self), "version": version})
    saved.save(other)
    monkeypatch.undo()
    with pytest.raises(
        ValueError, match=rf"by dpgep [0-9.]+ in version {version} of its format; this dpgep reads 1: use"
    ):
        dpgep.load(other.getvalue())


@pytest.mark.parametrize("version", [b"2", b"4"])
def test_nights_of_another_version_stay_as_they_are(
    tmp_path: Path, version: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, magic = tmp_path / "register.nights", night_file._MAGIC.replace(b"3", version)
    monkeypatch.setattr(night_file, "_MAGIC", magic)
    dpgep.Nights(path, bound=1.0, **TERMS).add(ROWS, night="0")
    monkeypatch.undo()
    content = path.read_bytes()
    with pytest.raises(ValueError, match="of another version of dpgep: go on with that one"):
        dpgep.Nights(path, bound=1.0, **TERMS).add(ROWS, night="1")
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [1, 3])
def test_a_budget_of_another_version_is_not_spent(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.budget"
    terms: dict[str, Any] = {**TERMS, "adjacency": "replace-one", "dataset": "a"}
    monkeypatch.setattr(budget_file, "FORMAT", version)
    dpgep.Budget.open(path, **terms)
    monkeypatch.undo()
    content = path.read_bytes()
    with pytest.raises(dpgep.errors.PrivacyBudgetError, match="by another version of dpgep: go on with that one"):
        dpgep.Budget.open(path, **terms)
    assert path.read_bytes() == content
