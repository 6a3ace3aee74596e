"""Draw docs/pictures/flows.svg: error of the Rayleigh flow against its number of iterations, fresh and lazy noise.

    python benchmarks/papers/flow_figure.py [--quick] [--output PATH]

A spike in 20 dimensions, n = 30000, epsilon = 0.5, delta = n^-1.1. Fresh noise divides the budget by the number of
iterations, so each point is a flow planned for that number. Noise is seeded.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import eigh

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "papers")]

import bench_sparse_pca as setting  # noqa: E402
import printed_flows  # noqa: E402
import support  # noqa: E402

import dpgep  # noqa: E402

EPSILON = 0.5
CURVES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "fresh noise": ("#d55e00", "s-", {"noise": "fresh"}),
    "lazy noise": ("#0072b2", "o-", {"noise": "lazy"}),
}


def medians(counts: list[int], seeds: int) -> dict[str, list[float]]:
    x = setting.dense_spike()
    n, d = x.shape
    delta = n**-1.1
    second = x.T @ x / n
    v = eigh(second)[1][:, -1]
    problem = dpgep.pca(x, center=False, bound=1.0)
    found: dict[str, list[float]] = {"as printed": []}
    rho = printed_flows.printed_rho(EPSILON, delta)
    for m in counts:
        errors = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            deviation = printed_flows.flow_deviation(6.0, n, rho, m)
            start = rng.standard_normal((1, d))
            last = printed_flows.rayleigh_flow(
                second, np.eye(d), start, deviations=(deviation, 0.0), n_iterations=m, step_size=1.0, rng=rng
            )
            errors.append(1 - abs(float(last[0] @ v)))
        found["as printed"].append(statistics.median(errors))
    run: dict[str, Any] = {"epsilon": EPSILON, "delta": delta, "n_components": 1}
    for name, (_, _, options) in CURVES.items():
        flow = {"method": "rayleigh-flow", "step_size": 1.0, **options, **run}
        found[name] = [
            statistics.median(
                setting.error(support.solve_seeded(problem, seed, n_iterations=m, **flow), v) for seed in range(seeds)
            )
            for m in counts
        ]
    once = statistics.median(
        setting.error(support.solve_seeded(problem, s, method="release", **run), v) for s in range(seeds)
    )
    found["release"] = [once] * len(counts)
    return found


def draw(counts: list[int], found: dict[str, list[float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "flows", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 4))
    axes.plot(counts, found["as printed"], "^:", color="#7f7f7f", label="fresh noise, as printed")
    for name, (color, style, _) in CURVES.items():
        axes.plot(counts, found[name], style, color=color, label=name)
    axes.plot(counts, found["release"], "--", color="#009e73", label="release")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel("iterations")
    axes.set_ylabel("1 - |cos| (median)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="few seeds and points; no picture unless --output is given"
    )
    parser.add_argument("--output", type=Path, help="where to write the picture")
    arguments = parser.parse_args()
    counts, seeds = ([2, 15], 3) if arguments.quick else ([1, 2, 3, 5, 8, 15, 30, 60, 120], 25)
    found = medians(counts, seeds)
    print("| iterations | " + " | ".join(map(str, counts)) + " |")
    print("|---" * (len(counts) + 1) + "|")
    for name, values in found.items():
        print(f"| {name} | " + " | ".join(f"{value:.2g}" for value in values) + " |")
    assert found["lazy noise"][-1] < found["fresh noise"][-1] < found["as printed"][-1]
    assert math.isclose(found["lazy noise"][-1], found["release"][-1], rel_tol=1.0)
    path = arguments.output or (None if arguments.quick else ROOT / "docs" / "pictures" / "flows.svg")
    if path is not None:
        draw(counts, found, path)
        print(f"\nwrote {path}")


if __name__ == "__main__":
    main()
