"""The example of two processes: clients write reports, a server reads and aggregates, at the same time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "local_model"


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(FOLDER / program), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return out if code == 0 else err


def test_clients_write_and_a_server_aggregates(tmp_path: Path) -> None:
    (tmp_path / "damaged.reports").write_bytes(b"dpgepR" + bytes(200))
    server = start("server.py", tmp_path, "--reports", 40_000)
    clients = [start("client.py", tmp_path, name, "--seed", seed) for seed, name in enumerate(("north", "south"))]
    for client in clients:
        assert "20000 reports sent" in output(client)
    printed = output(server)
    assert "damaged.reports: refused, report in version 0 of the format" in printed
    assert "40000 reports" in printed
    assert "epsilon = 4, delta = 1e-07" in printed
    assert "local, row norms <= 1 enforced" in printed
    numbers = re.search(r"first component: \[(.*)\]", printed)
    assert numbers
    first = [float(word) for word in numbers.group(1).split()]
    # the first two features vary together
    assert first[:2] == pytest.approx([0.71, 0.71], abs=0.15)


def test_a_server_that_waits_in_vain_says_so(tmp_path: Path) -> None:
    assert "only 0 of 5 reports came in 0.2 s" in output(
        start("server.py", tmp_path, "--reports", 5, "--timeout", 0.2), code=1
    )
