"""Run the audits of tests/statistical, print their results as a table, and draw docs/pictures/errata.svg.

    DPGEP_AUDIT_RUNS=20000 python benchmarks/papers/errata_figure.py              # all: table and picture
    python benchmarks/papers/errata_figure.py "quantile slices" "pca, centred"     # some: their rows of the table only

Noise is seeded: the same number of runs gives the same table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import audit_cases  # noqa: E402

PICTURE = ROOT / "docs" / "pictures" / "errata.svg"
GROUPS: dict[str, tuple[str, Any]] = {
    "as printed": ("#c0392b", {name: lambda name=name: audit_cases.CONTROLS[name]() for name in audit_cases.CONTROLS}),
    "corrected": ("#7f8c8d", {name: lambda name=name: audit_cases.CORRECTED[name]() for name in audit_cases.CORRECTED}),
    "release": ("#2471a3", {n: lambda n=n: audit_cases.release_case(n) for n in audit_cases.RELEASES}),
}
SMALLEST = 0.08  # where a bound of 0 is drawn on the logarithmic axis


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def rows(only: list[str]) -> list[tuple[str, str, Any]]:
    found = []
    print("| group | audit | runs | delta | claimed epsilon | epsilon at least | claimed mu | mu at least | flagged |")
    print("|---|---|---|---|---|---|---|---|---|")
    for group, (_, cases) in GROUPS.items():
        for name, case in cases.items():
            if only and name not in only:
                continue
            result = case().audit()
            cells = [result.claimed_epsilon, result.epsilon, result.claimed_mu, result.mu]
            flagged = "yes" if result.flagged else "no"
            line = [group, name, str(result.runs), f"{result.delta:g}", *(number(cell) for cell in cells), flagged]
            print("| " + " | ".join(line) + " |", flush=True)
            found.append((group, name, result))
    return found


def draw(found: list[tuple[str, str, Any]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "errata", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.5, 0.23 * len(found) + 1.6))
    for y, (group, _, result) in enumerate(found):
        colour = GROUPS[group][0]
        bound = max(result.epsilon, SMALLEST)
        axes.plot([result.claimed_epsilon, bound], [y, y], color=colour, lw=1, alpha=0.5)
        axes.plot(result.claimed_epsilon, y, "|", color="black", ms=9, mew=1.6)
        axes.plot(bound, y, "o" if result.epsilon > SMALLEST else "<", color=colour, ms=5)
    for group, (colour, _) in GROUPS.items():
        axes.plot([], [], "o", color=colour, label=f"{group}: lower bound")
    axes.plot([], [], "|", color="black", ms=9, mew=1.6, label="claimed")
    axes.set_yticks(range(len(found)), [name for _, name, _ in found], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("epsilon (confidence 1 - 1e-7 for each bound; a triangle stands for 0)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})
    print(f"\nwrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    results = rows(sys.argv[1:])
    if not sys.argv[1:]:
        draw(results)
