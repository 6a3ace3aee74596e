"""Run the audits of all methods and print the tables of docs/audits.md.

    DPGEP_METHOD_RUNS=5000 python benchmarks/audit_table.py              # all tables
    python benchmarks/audit_table.py replays                             # the costs of worst pairs
    python benchmarks/audit_table.py values "lazy products, gep"         # some of the audits of values
    python benchmarks/audit_table.py "low bits" "local reports"          # some of those of last bits

Noise is seeded: the same number of runs gives the same tables.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

import low_bit_cases  # noqa: E402
import method_cases  # noqa: E402
import replay_cases  # noqa: E402
import stage_cases  # noqa: E402

# The budget of the low-bit attacks, epsilon = 1 at delta = 1e-6, and their runs on each of the two data sets.
LOW_BIT_MU = 0.23696
LOW_BIT_RUNS = int(os.environ.get("DPGEP_LOW_BIT_RUNS", "2000"))


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def values(only: list[str]) -> None:
    print("| method | statistic | runs | claim | at least | share |")
    print("|---|---|---|---|---|---|")
    for name, case in {**method_cases.METHODS, **stage_cases.PREPROCESSING}.items():
        if only and not any(part in name for part in only):
            continue
        audited = case()
        result = audited.audit()
        in_mu = result.claimed_mu is not None
        claim, bound = (result.claimed_mu, result.mu) if in_mu else (result.claimed_epsilon, result.epsilon)
        assert claim is not None
        assert bound is not None
        unit = "μ" if in_mu else "ε"
        cells = [name, audited.seen, str(result.runs), f"{unit} = {claim:.3g}", f"{bound:.3g}", f"{bound / claim:.2f}"]
        print("| " + " | ".join(cells) + (" | **flagged** |" if result.flagged else " |"), flush=True)


def low_bits(only: list[str]) -> None:
    print("| what is attacked | runs | claimed ε | ε at least | claimed μ | μ at least | flagged |")
    print("|---|---|---|---|---|---|---|")
    for name, case in {**low_bit_cases.low_bit_cases(LOW_BIT_MU), **low_bit_cases.REPORT_ATTACKS}.items():
        if only and not any(part in name for part in only):
            continue
        result = case().audit(LOW_BIT_RUNS)
        cells = [result.claimed_epsilon, result.epsilon, result.claimed_mu, result.mu]
        row = [name, str(result.runs), *map(number, cells), "**yes**" if result.flagged else "no"]
        print("| " + " | ".join(row) + " |", flush=True)


def replays(only: list[str]) -> None:
    print("| mechanism | pair | adjacency | ratio |")
    print("|---|---|---|---|")
    for name, case in replay_cases.CASES.items():
        if not only or any(part in name for part in only):
            print(replay_cases.row(case, case.replay().ratio), flush=True)


if __name__ == "__main__":
    which, only = sys.argv[1:2], sys.argv[2:]
    if which in ([], ["replays"]):
        replays(only)
    if which in ([], ["values"]):
        values(only)
    if which in ([], ["low bits"]):
        low_bits(only)
