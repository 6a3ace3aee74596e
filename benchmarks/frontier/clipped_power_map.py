"""Where a clipped power method beats a release: spans of K components, medians over seeds, printed as a table.

    python benchmarks/frontier/clipped_power_map.py [parts of names]

Errors are sums of squared sines of the angles to the span without noise. Bounds are public numbers, rows are those of
`SETTINGS`; MNIST is read from the folder named by DPGEP_DATA.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpgep

SEEDS = int(os.environ.get("DPGEP_SEEDS", "5"))
Rows = np.ndarray[Any, np.dtype[np.float64]]


def spiked(n: int, d: int, spikes: list[float], rng: np.random.Generator) -> Rows:
    """Normal rows of variance 1 + spike along random orthonormal directions, and 1 across."""
    vectors = np.linalg.qr(rng.standard_normal((d, len(spikes))))[0]
    rows = rng.standard_normal((n, d))
    return np.asarray(rows + (rows @ vectors * (np.sqrt(1 + np.array(spikes)) - 1)) @ vectors.T)


def heavy(n: int, d: int, spikes: list[float], rng: np.random.Generator) -> Rows:
    """The same divided by roots of chi^2 deviates: Student's law of 3 degrees of freedom."""
    return spiked(n, d, spikes, rng) / np.sqrt(rng.chisquare(3, n) / 3)[:, None]


def clusters(n: int, d: int, shares: list[float], rng: np.random.Generator) -> Rows:
    """Normal rows of which these shares are moved by 2 sqrt(log d) along an axis of their own: not elliptical."""
    rows = rng.standard_normal((n, d))
    rows[np.arange(n), rng.choice(len(shares), n, p=shares)] += 2 * np.sqrt(np.log(d))
    return rows - rows.mean(axis=0)


def decaying(n: int, d: int, power: list[float], rng: np.random.Generator) -> Rows:
    """Normal rows with variances j^-power in random directions."""
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return np.asarray((rng.standard_normal((n, d)) * np.arange(1, d + 1) ** (-power[0] / 2)) @ basis)


def sparse_counts(n: int, d: int, rate: list[float], rng: np.random.Generator) -> Rows:
    """Rows of zeros and ones, with probabilities that fall like those of words."""
    return (rng.random((n, d)) < np.minimum(0.5, rate[0] / np.arange(1, d + 1))).astype(float)


def mnist(n: int, d: int, unused: list[float], rng: np.random.Generator) -> Rows:
    return np.asarray(np.load(Path(os.environ["DPGEP_DATA"]) / "mnist.npz")["x_train"][:n] / 255.0)


# (rows, n, d, their parameters, K, epsilon)
SETTINGS: dict[str, tuple[Callable[..., Rows], int, int, list[float], int, float]] = {
    "spiked, d = 100": (spiked, 5000, 100, [5.0], 1, 1.0),
    "spiked, d = 500": (spiked, 15000, 500, [5.0], 1, 1.0),
    "spiked, d = 500, epsilon = 4": (spiked, 15000, 500, [5.0], 1, 4.0),
    "spiked, d = 2000": (spiked, 8000, 2000, [20.0], 1, 4.0),
    "spiked, K = 2": (spiked, 8000, 250, [6.0, 4.0], 2, 2.0),
    "spiked, K = 5": (spiked, 8000, 250, [10.0, 8.0, 7.0, 6.0, 5.0], 5, 4.0),
    "strong spike": (spiked, 8000, 250, [100.0], 1, 1.0),
    "Student's law": (heavy, 8000, 250, [5.0], 1, 2.0),
    "clusters": (clusters, 8000, 250, [0.7, 0.3], 1, 2.0),
    "decaying": (decaying, 8000, 250, [1.0], 1, 1.0),
    "decaying, K = 3": (decaying, 8000, 250, [1.0], 3, 4.0),
    "decaying fast": (decaying, 8000, 250, [2.0], 1, 1.0),
    "zeros and ones": (sparse_counts, 8000, 250, [3.0], 1, 1.0),
    "mnist, K = 1": (mnist, 20000, 784, [], 1, 1.0),
    "mnist, K = 5": (mnist, 20000, 784, [], 5, 1.0),
}


def errors(setting: tuple[Callable[..., Rows], int, int, list[float], int, float]) -> dict[str, list[float]]:
    """Of each method, over seeds."""
    make, n, d, parameters, k, epsilon = setting
    found: dict[str, list[float]] = {"release": [], "clipped-power": [], "auto": []}
    for seed in range(SEEDS):
        rows = make(n, d, parameters, np.random.default_rng(seed))
        bound = float(np.quantile(np.linalg.norm(rows, axis=1), 0.9))  # stands for a public number
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        clipped = rows * np.minimum(1.0, bound / np.maximum(lengths, 1e-300))
        _, vectors = np.linalg.eigh(clipped.T @ clipped)
        problem = dpgep.pca(rows, center=False, bound=bound)
        for method in found:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                solution = dpgep.solve(problem, epsilon=epsilon, delta=1e-6, n_components=k, method=method, seed=seed)
            span = np.linalg.qr(solution.components.T)[0]
            found[method].append(k - float(np.sum((span.T @ vectors[:, -k:]) ** 2)))
    return found


def main(only: list[str]) -> None:
    print("| rows | n | d | K | epsilon | release | clipped-power | auto | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, setting in SETTINGS.items():
        if only and not any(part in name for part in only):
            continue
        released, clipped, chosen = (float(np.median(values)) for values in errors(setting).values())
        _, n, d, _, k, epsilon = setting
        ratio = released / clipped
        print(
            f"| {name} | {n} | {d} | {k} | {epsilon:g} | {released:.2g} | {clipped:.2g} | {chosen:.2g} | {ratio:.2g} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
