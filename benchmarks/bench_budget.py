"""What a budget in a file adds to a run: its reservation and its settlement, each forced to the disk twice."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import support

import dpgep

TARGET_MILLISECONDS = 5.0
N, D = 1000, 10
ROUNDS = 5 if support.QUICK else 101


def test_a_run_paid_from_a_file(benchmark: Any) -> None:
    rows = np.random.default_rng(0).standard_normal((N, D)) / D
    problem = dpgep.pca(rows, bound=1.0)
    terms: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace-one"}
    share = 1 / (ROUNDS + 1)

    def run(budget: dpgep.Budget) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
            dpgep.solve(problem, budget=budget, share=share, n_components=1)

    with tempfile.TemporaryDirectory() as folder:
        lasting, in_memory = dpgep.Budget.open(Path(folder) / "b", **terms, dataset="rows"), dpgep.Budget(**terms)
        times = support.alternate(benchmark, lambda: run(lasting), lambda: run(in_memory), ROUNDS)
        again = dpgep.Budget.open(Path(folder) / "b")
        # one run each for warming up
        assert len(again.releases) == len(in_memory.releases) == ROUNDS + 1
        assert again.remaining_mu == in_memory.remaining_mu < 1e-6
    support.say(f"solve, {N} x {D}: {1e3 * times.ours:.3g} ms from a file, {1e3 * times.theirs:.3g} ms from memory")
    support.judge("what the file adds, ms", 1e3 * (times.ours - times.theirs), TARGET_MILLISECONDS)
