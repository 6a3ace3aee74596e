"""Clipped products beyond PCA: PLS, CCA, and FDA and SIR as CCA with indicators, against releases at equal mu.

    python benchmarks/frontier/block_products.py [parts of names]

Errors are sums of squared sines of the angles to the span without noise in the norm of B, of two views their mean:
medians over DPGEP_SEEDS seeds (5). Bounds are public numbers.

FDA and SIR are canonical correlations of rows with the indicators of classes or slices (optimal scoring; Hastie,
Tibshirani, Buja 1994). CCA does not depend on the scale of a view: indicators a tenth as long as the bound hardly raise
it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

import dpgep

SEEDS = int(os.environ.get("DPGEP_SEEDS", "5"))
DELTA = 1e-6
# Length of an indicator, in bounds.
INDICATOR = 0.1
Matrix = np.ndarray[Any, np.dtype[np.float64]]


def covariance_root(d: int, law: str, rng: np.random.Generator) -> Matrix:
    """A root of a covariance of mean variance 1: "flat", "ar R" (correlations R^|i-j|), "decay P" (variances j^-P)."""
    kind, _, parameter = law.partition(" ")
    if kind == "flat":
        return np.eye(d)
    if kind == "ar":
        return np.asarray(np.linalg.cholesky(float(parameter) ** np.abs(np.subtract.outer(range(d), range(d)))))
    variances = np.arange(1, d + 1) ** -float(parameter)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return np.asarray(basis * np.sqrt(variances / variances.mean()))


def views(n: int, d: int, law: str, correlations: list[float], rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Normal views whose whitened parts are correlated along random directions."""
    roots = covariance_root(d, law, rng), covariance_root(d, law, rng)
    x, y = rng.standard_normal((2, n, d))
    u, w = (np.linalg.qr(rng.standard_normal((d, len(correlations))))[0] for _ in range(2))
    y += (x @ u * correlations + y @ w * (np.sqrt(1 - np.square(correlations)) - 1)) @ w.T
    return x @ roots[0].T, y @ roots[1].T


def classes(n: int, d: int, law: str, n_groups: int, rng: np.random.Generator) -> tuple[Matrix, Any]:
    """Normal classes, 2 whitened deviations from the middle."""
    root = covariance_root(d, law, rng)
    means = rng.standard_normal((n_groups, d))
    means *= 2 / np.linalg.norm(means, axis=1, keepdims=True)
    groups = rng.integers(0, n_groups, n)
    return (rng.standard_normal((n, d)) + means[groups]) @ root.T, groups


def slices(n: int, d: int, law: str, n_groups: int, rng: np.random.Generator) -> tuple[Matrix, Any]:
    """Normal rows, and slices of one whitened coordinate with noise."""
    root = covariance_root(d, law, rng)
    x = rng.standard_normal((n, d))
    response = x @ np.linalg.qr(rng.standard_normal((d, 1)))[0][:, 0] + 0.5 * rng.standard_normal(n)
    return x @ root.T, np.searchsorted(np.linspace(-2, 2, n_groups - 1), response)


def squared_sines(found: Matrix, truth: Matrix, b: Matrix) -> float:
    """K less the squared cosines between two spans (d, K) in the norm of b."""
    root = np.linalg.cholesky(b).T
    cosines = np.linalg.qr(root @ found)[0].T @ np.linalg.qr(root @ truth)[0]
    return float(found.shape[1] - np.sum(cosines**2))


def shortened(rows: Matrix) -> tuple[Matrix, float]:
    """Rows clipped to a bound that stands for a public number, and it."""
    lengths = np.linalg.norm(rows, axis=1)
    bound = float(np.quantile(lengths, 0.9))
    return rows * np.minimum(1, bound / lengths)[:, None], bound


def two_views_errors(model: str, n: int, d: int, law: str, correlations: list[float], epsilon: float, seed: int) -> Any:
    x, y = views(n, d, law, correlations, np.random.default_rng(seed))
    rows, bound = shortened(np.hstack([x, y]))
    k, x, y = len(correlations), rows[:, :d], rows[:, d:]
    covariances = (x.T @ x / n, y.T @ y / n) if model == "cca" else (np.eye(d), np.eye(d))
    inverses = [np.asarray(np.linalg.inv(np.linalg.cholesky(b))) for b in covariances]
    left, _, right = np.linalg.svd(inverses[0] @ (x.T @ y / n) @ inverses[1].T)
    truths = inverses[0].T @ left[:, :k], inverses[1].T @ right[:k].T
    problem = (dpgep.cca if model == "cca" else dpgep.pls)(x, y, center=False, bound=bound)
    errors = []
    for method in ("release", "clipped-power"):
        solution = dpgep.solve(problem, epsilon=epsilon, delta=DELTA, n_components=k, method=method, seed=seed)
        found = solution.x_weights.T, solution.y_weights.T
        errors.append(np.mean([squared_sines(*three) for three in zip(found, truths, covariances, strict=True)]))
    return errors


def groups_errors(model: str, n: int, d: int, law: str, h: int, k: int, epsilon: float, seed: int) -> Any:
    rows, groups = (classes if model == "fda" else slices)(n, d, law, h, np.random.default_rng(seed))
    rows, bound = shortened(rows)
    means = np.array([rows[groups == g].mean(axis=0) for g in range(h)])
    centred = rows - (means[groups] if model == "fda" else rows.mean(axis=0))
    b = centred.T @ centred / n
    between = (means - rows.mean(axis=0)).T * np.bincount(groups, minlength=h) / n @ (means - rows.mean(axis=0))
    truth = scipy.linalg.eigh(between, b)[1][:, ::-1][:, :k]
    if model == "fda":
        problem = dpgep.fda(rows, groups, classes=range(h), bound=bound)
    else:
        problem = dpgep.sir(rows, groups.astype(float), edges=np.arange(h + 1) - 0.5, bound=bound)
    indicators = np.eye(h)[groups] * (INDICATOR * bound)
    scored = dpgep.cca(rows, indicators, bound=float(np.hypot(1, INDICATOR)) * bound)
    arguments: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "n_components": k, "seed": seed}
    released = dpgep.solve(problem, **arguments, method="release").components
    clipped = dpgep.solve(scored, **arguments, method="clipped-power").x_weights
    return [squared_sines(found.T, truth, b) for found in (released, clipped)]


LAWS = ("flat", "ar 0.5", "ar 0.8", "decay 0.5", "decay 1")


def settings() -> dict[str, Callable[[int], Any]]:
    """Errors of a release and of clipped products, as functions of the seed."""
    made: dict[str, Callable[[int], Any]] = {}
    for model in ("pls", "cca"):
        for law in LAWS:
            for correlations, epsilon in (([0.8], 2.0), ([0.8, 0.6], 4.0)):
                name = f"{model} | {law} | 15000 | 100 + 100 | {len(correlations)} | {epsilon:g}"
                made[name] = lambda seed, model=model, law=law, r=correlations, e=epsilon: two_views_errors(
                    model, 15000, 100, law, r, e, seed
                )
        for d in (10, 20, 40):
            for law in ("flat", "decay 1"):
                made[f"{model} | {law} | 15000 | {d} + {d} | 1 | 2"] = lambda seed, model=model, law=law, d=d: (
                    two_views_errors(model, 15000, d, law, [0.8], 2.0, seed)
                )
    for model, h, k in (("fda", 2, 1), ("fda", 3, 2), ("sir", 6, 1)):
        for law in LAWS:
            name = f"{model}, {h} groups | {law} | 15000 | 100 | {k} | 2"
            made[name] = lambda seed, model=model, law=law, h=h, k=k: groups_errors(
                model, 15000, 100, law, h, k, 2.0, seed
            )
    return made


def main(only: list[str]) -> None:
    warnings.simplefilter("ignore")
    print("| model | covariance | n | d | K | epsilon | release | clipped | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, errors in settings().items():
        if only and not any(part in name for part in only):
            continue
        released, clipped = np.median([errors(seed) for seed in range(SEEDS)], axis=0)
        print(f"| {name} | {released:.2g} | {clipped:.2g} | {released / clipped:.2g} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
