"""Reports that someone forged: no page repeats their words, and no ledger is believed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from dpgep.cli import main

REPORT = Path(__file__).resolve().parents[1] / "support" / "report-1.json"
SAMPLED = Path(__file__).resolve().parents[1] / "support" / "solution-1-sampled.json"


def _signed(report: dict[str, Any]) -> str:
    content = {key: value for key, value in report.items() if key != "sha256"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps({**content, "sha256": hashlib.sha256(canonical.encode()).hexdigest()})


@pytest.mark.parametrize("form", ["--html", "--markdown"])
def test_no_page_shows_forged_words(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    forged = json.loads(REPORT.read_text())
    # words of another version are not compared
    forged.update(dpgep="9.9", statement="epsilon is 0.0001 for everyone", assumptions=["nothing at all"])
    path = tmp_path / "report.json"
    path.write_text(_signed(forged))
    assert main(["report", form, str(path)]) == 0
    shown = capsys.readouterr().out
    assert "0.0001 for everyone" not in shown
    assert "nothing at all" not in shown
    assert "with epsilon = 5" in shown


@pytest.mark.parametrize(("adjacency", "noise", "epsilon"), [("local", 5.0, 2.0), ("add-remove", 0.05, 1e4)])
def test_a_hostile_ledger_of_samples_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], adjacency: str, noise: float, epsilon: float
) -> None:
    pytest.importorskip("dp_accounting")
    forged = json.loads(REPORT.read_text())
    forged["privacy"] = json.loads(SAMPLED.read_text())["privacy"]
    forged["privacy"].update(adjacency=adjacency, epsilon=epsilon)
    forged["privacy"]["releases"][0]["event"] = {"type": "GaussianDpEvent", "noise_multiplier": noise}
    path = tmp_path / "report.json"
    path.write_text(_signed(forged))
    assert main(["report", "verify", str(path)]) == 1
    assert "Traceback" not in capsys.readouterr().err
