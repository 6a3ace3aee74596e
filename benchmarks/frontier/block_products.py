"""Clipped products beyond PCA: PLS and CCA by the library, FDA and SIR by a sketch, against releases at equal mu.

    python benchmarks/frontier/block_products.py [parts of names]

Errors are sums of squared sines of the angles to the span without noise in the norm of B, of two views their mean:
medians over DPGEP_SEEDS seeds (5). Bounds are public numbers.

FDA and SIR are canonical correlations of rows with the indicators of classes or slices (optimal scoring; Hastie,
Tibshirani, Buja 1994). A person adds x clip(theta_g - r x . u), theta_g the public score of their group: the sketch
ascends as the library does for CCA, with noise of the same proof, 2 b C. It is in floating point, with NumPy's noise:
it measures errors, and protects nobody.
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


def clip(products: Matrix, threshold: float) -> Matrix:
    norms = np.linalg.norm(products, axis=1, keepdims=True)
    return np.asarray(products * np.minimum(1, threshold / np.maximum(norms, 1e-300)))


def scored_ascent(rows: Matrix, groups: Any, h: int, k: int, bound: float, mu: float, seed: int) -> Matrix:
    """(d, K) by 12 steps on clipped residuals of scores; shares: mean 5 %, sums 15 %, steps 55 %, coordinates 22 %."""
    rng, (n, d), steps = np.random.default_rng(seed + 1000), rows.shape, 12

    def noise(sensitivity: float, share: float, shape: tuple[int, ...]) -> Matrix:
        return rng.standard_normal(shape) * sensitivity / (n * mu * np.sqrt(share))

    mean = rows.mean(axis=0) + noise(2 * bound, 0.05, (d,))
    raw, rows, indicators = rows, rows - mean, np.eye(h)[groups]  # what is multiplied is bounded about zero
    shares = indicators.mean(axis=0)
    sums = raw.T @ indicators / n + noise(2 * bound, 0.15, (d, h)) - np.outer(mean, shares)
    vectors = np.linalg.svd(sums / np.sqrt(shares))[0][:, :k]
    size = float(np.median(np.abs(rows @ vectors)) / 0.6745)
    span, change = vectors, np.empty((d, 0))
    for step in range(steps + 1):
        basis = np.linalg.qr(span)[0]
        m = basis.shape[1]
        coordinates = np.hstack([rows @ basis, indicators * size])
        threshold = 1.5 * size * np.sqrt(m + 1)
        kept = clip(coordinates, threshold)
        moment = kept.T @ kept / n + noise(np.sqrt(2) * threshold**2, 0.22 / (steps + 1), (m + h, m + h))
        moment = (moment + moment.T) / 2
        within, counts = moment[:m, :m], np.maximum(np.diag(moment)[m:], size**2 / n)
        values, axes = np.linalg.eigh(within)
        whiten = axes / np.sqrt(np.maximum(values, np.sqrt(2) * threshold**2 / (n * mu * np.sqrt(0.22 / steps))))
        left, found, right = np.linalg.svd(whiten.T @ moment[:m, m:] / np.sqrt(counts), full_matrices=False)
        old, vectors = vectors, basis @ whiten @ left[:, :k]
        correlations = np.minimum(found[:k], 0.99)
        change = vectors - old @ np.linalg.lstsq(old, vectors, rcond=None)[0]
        scores = (right[:k].T / np.sqrt(counts)[:, None]) * size
        if step < steps:
            residuals = scores[groups] - rows @ vectors * correlations
            c = float(np.median(np.linalg.norm(residuals, axis=1)))
            gradient = raw.T @ clip(residuals, c) / n + noise(2 * bound * c, 0.55 / steps, (d, k))
            span = np.hstack([vectors, gradient, change])
    return vectors


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
    solution = dpgep.solve(problem, epsilon=epsilon, delta=DELTA, n_components=k, seed=seed)
    mu = dpgep.Budget(epsilon=epsilon, delta=DELTA).mu
    found = scored_ascent(rows, groups, h, k, bound, mu, seed)
    return [squared_sines(solution.components.T, truth, b), squared_sines(found, truth, b)]


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
        made[f"{model} | flat | 15000 | 10 + 10 | 1 | 1"] = lambda seed, model=model: two_views_errors(
            model, 15000, 10, "flat", [0.8], 1.0, seed
        )
    for model, h, k in (("fda", 2, 1), ("fda", 3, 2), ("sir", 6, 1)):
        for law in LAWS:
            name = f"{model}, {h} groups (sketch) | {law} | 15000 | 100 | {k} | 2"
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
