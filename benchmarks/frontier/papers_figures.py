"""Three papers' methods on rows of the kind they are about, with ours at the same budget: a table for each.

    python benchmarks/frontier/papers_figures.py [dp-pca] [k-dp-pca] [coherence]

dp-pca     error against the spread of rows around +-v, which DP-PCA adapts to (Liu, Kong, Jain, Oh 2022)
k-dp-pca   error against the number of people, two components of a spiked covariance (Düngler and Sanyal 2025)
coherence  error against the share of people that has the leading direction, at one strength of it (Nguyen, Ene,
           Nguyen 2026)

Rows are of the kind that the papers are about, as far as their text was at hand; models, sizes and budgets are ours.
Errors are sums of squared sines to the span of the law, medians over seeds (DPGEP_SEEDS); the column exact is the span
without noise.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from clipped_power_map import Rows

import dpgep

SEEDS = int(os.environ.get("DPGEP_SEEDS", "5"))
OURS = ("release", "clipped-power", "auto")


def around_a_line(spread: float, n: int, d: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Rows +-v + spread z, z standard normal, and v."""
    v = rng.standard_normal((1, d))
    v /= np.linalg.norm(v)
    return rng.choice([-1.0, 1.0], (n, 1)) * v + spread * rng.standard_normal((n, d)), v


def two_spikes(people: float, n: int, d: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Normal rows of variances 10 and 5 along two directions and 0.1 across."""
    span = np.linalg.qr(rng.standard_normal((d, 2)))[0].T
    scores = rng.standard_normal((int(people), 2)) * np.sqrt([10.0, 5.0])
    return scores @ span + np.sqrt(0.1) * rng.standard_normal((int(people), d)), span


def concentrated(share: float, n: int, d: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Unit rows, of which a share has +-s along v, share s^2 = 0.03, and others are round: s grows with coherence."""
    v = np.linalg.qr(rng.standard_normal((d, 1)))[0].T
    rows = rng.standard_normal((n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    chosen = rng.choice(n, round(share * n), replace=False)
    s = np.sqrt(0.03 / share)
    rest = rows[chosen] - rows[chosen] @ v.T @ v
    rest *= np.sqrt(1 - s**2) / np.linalg.norm(rest, axis=1, keepdims=True)
    rows[chosen] = rest + s * rng.choice([-1.0, 1.0], (len(chosen), 1)) * v
    return rows, v


@dataclass(frozen=True)
class Figure:
    """Rows and their span at each value of a parameter, and what is compared on them."""

    parameter: str
    values: tuple[float, ...]
    make: Callable[[float, int, int, np.random.Generator], tuple[Rows, Rows]]
    n: int
    d: int
    k: int
    mu: float
    comparators: tuple[str, ...]


FIGURES = {
    "dp-pca": Figure(
        "spread",
        (1e-1, 1e-2, 1e-3, 1e-4, 1e-5),
        around_a_line,
        10000,
        50,
        1,
        0.5,
        ("gaussian", "noisy_power", "dp_pca"),
    ),
    "k-dp-pca": Figure(
        "people", (2000, 8000, 32000), two_spikes, 0, 100, 2, 0.5, ("gaussian", "noisy_power", "dp_pca", "k_dp_pca")
    ),
    "coherence": Figure(
        "share", (1.0, 0.3, 0.1, 0.03), concentrated, 8000, 400, 1, 0.5, ("gaussian", "noisy_power", "coherence")
    ),
}


def error(found: Rows, span: Rows) -> float:
    """The sum of squared sines of the angles between two spans of orthonormal rows."""
    return float(np.sum((found - found @ span.T @ span) ** 2))


def errors(figure: Figure, value: float, seed: int) -> dict[str, float]:
    rows, span = figure.make(value, figure.n, figure.d, np.random.default_rng(seed))
    bound = float(np.quantile(np.linalg.norm(rows, axis=1), 0.9))  # stands for a public number
    found = {"exact": np.linalg.eigh(rows.T @ rows)[1][:, -figure.k :].T}
    for name in figure.comparators:
        rng = np.random.default_rng([seed, 1])
        found[name] = importlib.import_module(name).components(rows, figure.k, figure.mu, rng, bound)
    problem = dpgep.pca(rows, center=False, bound=bound)
    for method in OURS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = dpgep.solve(problem, mu=figure.mu, n_components=figure.k, method=method, seed=seed)
        found[method] = np.linalg.qr(solution.components.T)[0].T
    return {name: error(components, span) for name, components in found.items()}


def main(names: list[str]) -> None:
    for name in names or list(FIGURES):
        figure = FIGURES[name]
        columns = ("exact", *figure.comparators, *OURS)
        people = f"n = {figure.n}, " if figure.n else ""
        print(f"\n{name}: {people}d = {figure.d}, K = {figure.k}, mu = {figure.mu:g}\n")
        print(f"| {figure.parameter} | " + " | ".join(columns) + " |")
        print("|---" * (1 + len(columns)) + "|")
        for value in figure.values:
            of = [errors(figure, value, seed) for seed in range(SEEDS)]
            medians = [f"{np.median([one[column] for one in of]):.2g}" for column in columns]
            print(f"| {value:g} | " + " | ".join(medians) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
