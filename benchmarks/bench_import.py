"""`import dpgep` against `import scipy.linalg`, each in fresh interpreters."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import Any

import support

TARGET_RATIO = 1.5
ROUNDS = 1 if support.QUICK else 21
# Nothing that a fit does not need: each of these costs tenths of a second.
NOT_IMPORTED = ["scipy.stats", "scipy.special", "scipy.optimize", "dp_accounting", "sklearn", "matplotlib"]

TIMED = "import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"


# Compiled modules are kept, as those of an installed package are.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout


def test_import_time(benchmark: Any) -> None:
    loaded = run("import dpgep, sys; print(*sys.modules)").split()
    assert "dpgep" in loaded
    assert not set(NOT_IMPORTED) & set(loaded)

    # The clock runs inside the interpreter, around the import alone: starting Python would flatter the ratio.
    inside: dict[str, list[float]] = {"dpgep": [], "scipy.linalg": []}

    def timed(module: str) -> None:
        inside[module].append(float(run(TIMED.format(module=module))))

    support.alternate(benchmark, lambda: timed("dpgep"), lambda: timed("scipy.linalg"), ROUNDS)
    ours, theirs = (float(statistics.median(inside[module][1:])) for module in inside)
    benchmark.extra_info.update(ours=ours, theirs=theirs, ratio=ours / theirs)
    support.say(
        f"import dpgep {1e3 * ours:.3g} ms, import scipy.linalg {1e3 * theirs:.3g} ms "
        f"(medians of {ROUNDS} fresh interpreters each, alternating, interpreter start not counted)"
    )
    support.judge("time ratio, import dpgep / import scipy.linalg", ours / theirs, TARGET_RATIO)
