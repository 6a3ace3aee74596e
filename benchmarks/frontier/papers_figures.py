"""Papers' methods on rows of the kind they are about, with ours at the same budget: a table for each.

    python benchmarks/frontier/papers_figures.py [dp-pca] [k-dp-pca] [coherence] [kendall] [pure] [bandable] [sir]

dp-pca     error against the spread of rows around +-v, which DP-PCA adapts to (Liu, Kong, Jain, Oh 2022)
k-dp-pca   error against the number of people, two components of a spiked covariance (Düngler and Sanyal 2025)
coherence  error against the share of people that has the leading direction, at one strength of it (Nguyen, Ene,
           Nguyen 2026)
kendall    error against the tail of lengths (Student's degrees of freedom), spherical Kendall matrix (Kim, Jung 2025)
pure       error against the number of people, pure privacy (d'Orsi and Novikov 2026; Wishart noise)
bandable   error of a second moment, in operator norm over its own, against the number of ordered columns (Cai and Li
           2026), and in Frobenius norm with a projection to positive matrices of its trace (d'Orsi and Novikov), and to
           those of its diagonal, as `Release.sample` does
sir        sliced inverse regression against the number of people (Xia, Zhang, Cai 2025)

Rows are of the kind that the papers are about, as far as their text was at hand; models, sizes and budgets are ours.
Errors are sums of squared sines to the span of the law, medians over seeds (DPGEP_SEEDS); the column exact is the span
without noise.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import nuclear_norm
import numpy as np
import scipy.linalg
import sliced_inverse
import tridiagonal
from block_products import covariance_root, shortened, slices, squared_sines
from clipped_power_map import Rows
from mechanism import Analyst, second_moment

import dpgep
from dpgep.results.synthetic import possible_covariance

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


def heavy_tails(freedom: float, n: int, d: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Elliptical rows of Student's law: shape 6 along one direction, 1 across."""
    v = np.linalg.qr(rng.standard_normal((d, 1)))[0].T
    rows = rng.standard_normal((n, d))
    rows += (math.sqrt(6.0) - 1) * rows @ v.T @ v
    return rows / np.sqrt(rng.chisquare(freedom, (n, 1)) / freedom), v


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
    "kendall": Figure(
        "freedom",
        (1.0, 3.0, 10.0, 100.0),
        heavy_tails,
        5000,
        50,
        1,
        0.5,
        ("gaussian", "subsample_aggregate", "spherical_kendall"),
    ),
    "pure": Figure("people", (8000, 32000, 128000), two_spikes, 0, 30, 2, 0.5, ("gaussian", "wishart", "nuclear_norm")),
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


def bandable(mu: float = 0.5, n: int = 10_000) -> None:
    """Norms of the error of a second moment over those of the matrix: correlations 0.5^|i - j|."""
    print(f"\nbandable: n = {n}, mu = {mu:g}\n")
    columns = (
        "operator: release",
        "tridiagonal",
        "Frobenius: release",
        "projected",
        "possible",
        "tridiagonal, projected",
    )
    print("| columns | " + " | ".join(columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for d in (50, 200, 400):
        found = []
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            rows = rng.standard_normal((n, d)) @ covariance_root(d, "ar 0.5", rng).T
            analyst = Analyst.of(rows, float(np.quantile(np.linalg.norm(rows, axis=1), 0.9)), rng)
            exact = second_moment(analyst.rows)
            release = analyst.ask_symmetric(second_moment, math.sqrt(2), mu)
            banded = tridiagonal.blocks(analyst, mu)
            whole = [nuclear_norm.projected(noisy, float(np.trace(noisy))) for noisy in (release, banded)]
            whole.insert(1, possible_covariance(release, np.full(d, math.sqrt(2) / mu)))
            operator = [np.linalg.norm(noisy - exact, 2) / np.linalg.norm(exact, 2) for noisy in (release, banded)]
            frobenius = [np.linalg.norm(noisy - exact) / np.linalg.norm(exact) for noisy in (release, *whole)]
            found.append([*operator, *frobenius])
        print(f"| {d} | " + " | ".join(f"{value:.2g}" for value in np.median(found, axis=0)) + " |", flush=True)


def sir(mu: float = 0.5, d: int = 20, n_slices: int = 6) -> None:
    """Squared sines of one direction in the norm of the covariance, normal rows."""
    print(f"\nsir: d = {d}, {n_slices} slices, mu = {mu:g}\n\n| people | sliced_inverse | dpgep.sir |")
    print("|---" * 3 + "|")
    for n in (3000, 10_000, 30_000):
        found = []
        for seed in range(2 * SEEDS):
            rng = np.random.default_rng(seed)
            rows, groups = slices(n, d, "ar 0.5", n_slices, rng)
            rows, bound = shortened(rows)
            means = np.array([rows[groups == g].mean(axis=0) for g in range(n_slices)])
            second = rows.T @ rows / n
            weights = np.bincount(groups, minlength=n_slices) / n
            truth = scipy.linalg.eigh((means.T * weights) @ means, second)[1][:, -1:]
            theirs = sliced_inverse.components(rows, groups, 1, mu, rng, bound)
            problem = dpgep.sir(rows, groups.astype(float), edges=np.arange(n_slices + 1) - 0.5, bound=bound)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ours = dpgep.solve(problem, mu=mu, n_components=1, seed=seed).components
            found.append([squared_sines(one.T, truth, second) for one in (theirs, ours)])
        print(f"| {n} | " + " | ".join(f"{value:.2g}" for value in np.median(found, axis=0)) + " |", flush=True)


ALONE = {"bandable": bandable, "sir": sir}


def main(names: list[str]) -> None:
    for name in names or [*FIGURES, *ALONE]:
        if name in ALONE:
            ALONE[name]()
            continue
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
