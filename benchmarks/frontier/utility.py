"""Error against epsilon, over people, features, gap and condition number, with what no method is below; a picture.

    python benchmarks/frontier/utility.py [--quick] [--picture FILE]

Lines with marks are medians over seeds (DPGEP_SEEDS, default 11) of method "auto", squared sines to the answer without
noise. Dashed: a release to first order; dotted: what no mu-GDP method is below on some rows with that gap
(`lower_bounds`). For CCA, whose B is not the identity, only the error that the release expects of itself is drawn.
delta = 1e-6; bounds are public.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import lower_bounds
import numpy as np
from clipped_power_map import spiked

import dpgep

SEEDS, DELTA = int(os.environ.get("DPGEP_SEEDS", "11")), 1e-6
EPSILONS, QUICK_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), (1.0, 4.0)


class Point(NamedTuple):
    """Median error of "auto"; first order of a release; what no method is below, where that is known."""

    epsilon: float
    error: float
    first_order: float
    below: float


def solved(problem: Any, epsilon: float, seed: int) -> dpgep.Solution:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dpgep.solve(problem, epsilon=epsilon, delta=DELTA, n_components=1, method="auto", seed=seed)


def pca(n: int, d: int, spike: float, epsilon: float) -> Point:
    found = []
    for seed in range(SEEDS):
        rows = spiked(n, d, [spike], np.random.default_rng(seed))
        bound = float(np.quantile(np.linalg.norm(rows, axis=1), 0.9))  # stands for a public number
        clipped = rows * np.minimum(1.0, bound / np.linalg.norm(rows, axis=1, keepdims=True))
        values, vectors = np.linalg.eigh(clipped.T @ clipped)
        mu = dpgep.Budget(epsilon=epsilon, delta=DELTA).mu
        component = solved(dpgep.pca(rows, center=False, bound=bound), epsilon, seed).components[0]
        gap = (values[-1] - values[-2]) / bound**2
        expected = min(1.0, lower_bounds.release(values[::-1], 1, mu, bound))
        found.append((1 - float(component @ vectors[:, -1]) ** 2, expected, lower_bounds.worst_case(n, d, gap, mu)))
    return Point(epsilon, *map(float, np.median(found, axis=0)))


def cca(condition: float, epsilon: float, n: int = 40_000, d: int = 10) -> Point:
    """Two views of ``d`` features, whose covariances have this condition number; one correlation of 0.9."""
    found = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        common = rng.standard_normal((n, 1))
        scale = np.geomspace(1.0, condition**-0.5, d)
        x, y = (rng.standard_normal((n, d)) for _ in range(2))
        for view in (x, y):
            view[:, :1] = np.sqrt(0.9) * common + np.sqrt(0.1) * view[:, :1]
            view *= scale
            view /= np.quantile(np.linalg.norm(view, axis=1), 0.9)
        exact = dpgep.solve(dpgep.cca(x, y, bound=2**0.5), epsilon=float("inf"), n_components=1)
        noisy = solved(dpgep.cca(x, y, bound=2**0.5), epsilon, seed)
        covariance = np.cov(np.hstack([x, y]).T)
        covariance[:d, d:] = covariance[d:, :d] = 0.0
        v, w = exact.components[0], noisy.components[0]
        cosine = v @ covariance @ w / np.sqrt((v @ covariance @ v) * (w @ covariance @ w))
        found.append((1 - float(cosine) ** 2, float(noisy.diagnostics.expected_error[0]), np.nan))
    return Point(epsilon, *map(float, np.median(found, axis=0)))


# What a panel varies, and the curves.
PANELS: dict[str, dict[str, Callable[[float], Point]]] = {
    "people (d = 100, spike 5)": {f"n = {n}": lambda e, n=n: pca(n, 100, 5.0, e) for n in (1000, 4000, 16000)},
    "features (n = 8000, spike 5)": {f"d = {d}": lambda e, d=d: pca(8000, d, 5.0, e) for d in (20, 100, 400)},
    "gap (n = 8000, d = 100)": {f"spike {s:g}": lambda e, s=s: pca(8000, 100, s, e) for s in (1.0, 5.0, 50.0)},
    "condition number (CCA, n = 40000)": {f"{c:g}": lambda e, c=c: cca(c, e) for c in (1.0, 10.0, 100.0)},
}


def draw(panels: dict[str, dict[str, list[Point]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "utility", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(13, 3.6), sharey=True, layout="constrained")
    for ax, (title, curves) in zip(axes, panels.items(), strict=True):
        for color, (label, points) in zip(("#0072b2", "#d55e00", "#009e73"), curves.items(), strict=True):
            epsilon, error, first, below = np.array(points).T
            ax.loglog(epsilon, error, "o-", color=color, label=label, markersize=4)
            ax.loglog(epsilon, first, "--", color=color, linewidth=1)
            ax.loglog(epsilon, below, ":", color=color, linewidth=1)
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("epsilon")
        ax.set_ylim(1e-5, 1.5)
        ax.legend(fontsize=8)
    axes[0].set_ylabel("squared sine (median)")
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two budgets; no picture unless it is named")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the curves there")
    chosen = parser.parse_args()
    print("| varied | curve | epsilon | auto | release, first order | no method below |\n|---|---|---|---|---|---|")
    panels: dict[str, dict[str, list[Point]]] = {}
    for title, curves in PANELS.items():
        for label, curve in curves.items():
            points = [curve(epsilon) for epsilon in (QUICK_EPSILONS if chosen.quick else EPSILONS)]
            panels.setdefault(title, {})[label] = points
            for point in points:
                numbers = " | ".join(f"{number:.2g}" for number in point[1:])
                print(f"| {title} | {label} | {point.epsilon:g} | {numbers} |", flush=True)
    if chosen.picture:
        draw(panels, chosen.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
