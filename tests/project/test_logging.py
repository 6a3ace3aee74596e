"""The logger "dpgep": what is paid, passes and seconds; nothing that depends on rows."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import dpgep


def logged(caplog: pytest.LogCaptureFixture, run: Any) -> list[str]:
    """The messages of a run, without the seconds."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="dpgep"):
        run()
    return [re.sub(r"\d+\.\d{3} s$", "", record.getMessage()) for record in caplog.records]


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("options", [{}, {"storage": "operator"}, {"method": "rayleigh-flow"}])
@pytest.mark.parametrize("bound", [1.0, "auto"])
def test_messages_do_not_depend_on_rows(
    bound: Any, options: dict[str, Any], caplog: pytest.LogCaptureFixture, rng: np.random.Generator
) -> None:
    outputs = []
    for scale in (0.1, 7.0):
        x = rng.standard_normal((3000, 5)) * scale
        problem = dpgep.pca(dpgep.scan([x[:2000], x[2000:]]), bound=bound)
        outputs.append(logged(caplog, lambda p=problem: dpgep.solve(p, mu=3.0, n_components=1, **options)))
    first, second = (
        [message for message in output if not message.startswith("pass")] for output in outputs
    )  # how many passes a flow needs follows from released values
    assert first == second
    assert first[-1] == "answered pca in 5 features: "
    assert any(message.startswith("pass 1 over the rows") for message in outputs[0])


def test_what_is_paid_is_logged_before_the_noise_is_drawn(caplog: pytest.LogCaptureFixture) -> None:
    x = np.random.default_rng(0).standard_normal((3000, 5)) * [3, 1, 1, 1, 1]
    solutions = []
    messages = logged(caplog, lambda: solutions.append(dpgep.solve(dpgep.pca(x), mu=3.0, n_components=1)))
    paid = [message for message in messages if message.startswith("paid")]
    assert paid == [f"paid mu = {entry.mu:.6g} for {entry.query}" for entry in solutions[0].privacy.releases]


def test_nothing_is_printed_unless_asked_for() -> None:
    code = (
        "import numpy as np, dpgep;"
        "dpgep.solve(dpgep.pca(np.random.default_rng(0).standard_normal((3000, 2)) * [5, 1]), mu=3.0, n_components=1)"
    )
    # noise without a seed may bring about a warning of accuracy
    command = [sys.executable, "-W", "ignore", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == result.stderr == ""
