"""Errors of correlations where values are absent: `python benchmarks/pairwise_holes.py [--quick]`.

Rows are normal in units from 0.1 to 100, with correlations of one random matrix; a share of their values is absent at
random. The error is the root mean square of released correlations less those of the population, over pairs of columns
and draws. Checked: without noise, covariances are those of pandas; with a fifth absent and 20 000 people or more,
missing="pairwise" is nearer than missing="center".
"""

from __future__ import annotations

import argparse
import math
import warnings
from itertools import product

import numpy as np
import pandas as pd

import dpgep

WAYS = "pairwise", "center"


def population(d: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix that mixes independent columns, and the correlations of what it makes."""
    mixing = np.eye(d) + np.tril(np.random.default_rng(d).standard_normal((d, d)), -1) / math.sqrt(d)
    covariance = mixing @ mixing.T
    deviations = np.sqrt(np.diagonal(covariance))
    return mixing, covariance / np.outer(deviations, deviations)


def people(n: int, mixing: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Rows, NaN where a value is absent."""
    rng, d = np.random.default_rng(seed), len(mixing)
    rows = (rng.standard_normal((n, d)) @ mixing.T + 1) * np.logspace(-1, 2, d)
    rows[rng.random(rows.shape) < share] = np.nan
    return rows


def error(missing: str, n: int, d: int, share: float, epsilon: float, draws: int) -> float:
    """The root mean square error of correlations."""
    mixing, truth = population(d)
    upper, squares = np.triu_indices(d, 1), []
    for seed in range(draws):
        rows, auto = people(n, mixing, share, seed), dpgep.AutoPreprocessing(missing=missing)
        released = dpgep.release(rows, preprocessing=auto, epsilon=epsilon, delta=1e-6, seed=seed)
        squares.append(np.mean((released.correlation().values - truth)[upper] ** 2))
    return math.sqrt(float(np.mean(squares)))


def require_pandas(d: int) -> None:
    """Without noise, covariances are those of pandas, which divides by one less than the number of people."""
    rows = people(2000, population(d)[0], 0.2, 0)
    there = (~np.isnan(rows)).astype(float)
    both = there.T @ there
    auto = dpgep.AutoPreprocessing(missing="pairwise")
    released = dpgep.release(rows, preprocessing=auto, epsilon=math.inf).covariance().values
    np.testing.assert_allclose(released, pd.DataFrame(rows).cov().to_numpy() * (both - 1) / both, rtol=1e-10)


def main() -> None:
    """Print a line for each number of people, of columns, share of absent values, and budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the draws")
    draws = 2 if parser.parse_args().quick else 10
    warnings.simplefilter("ignore")  # seeded runs, and columns that little is known of
    require_pandas(6)
    print("      n    d  absent  epsilon  pairwise    center")
    for n, d, share, epsilon in product((2000, 20_000, 100_000), (6, 20), (0.05, 0.2, 0.5), (1.0, 4.0)):
        pairwise, center = (error(missing, n, d, share, epsilon, draws) for missing in WAYS)
        print(f"{n:7}  {d:3}  {share:6.0%}  {epsilon:7}  {pairwise:8.4f}  {center:8.4f}", flush=True)
        assert pairwise < center or n < 20_000 or share < 0.2


if __name__ == "__main__":
    main()
