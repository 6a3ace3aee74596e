"""`bound="auto"` beside the best fixed bound in hindsight: principal components of real tables.

    python benchmarks/bound_in_hindsight.py                          # every fifth table, three draws
    python benchmarks/bound_in_hindsight.py --every 1 --draws 11     # all of it: two minutes of a processor

The tables are those of `real_tables.py`, delta is n^-1.1, errors are against the answer without noise about the table
as given, medians over draws. A fixed bound is one of eight quantiles of the lengths of rows, the one with the least
median error: nobody knows it, and it costs nothing. "About zero": of the rows as they are, as `bound=` takes them.
"Known": rows about their mean, divided by their deviations where columns are standardized, both exact and free as well.
Wanted of their ratio, in the geometric mean over the tables: 1.2, 0.8, 0.6 and 0.6 at epsilon 0.1, 0.3, 1 and 3 for
standardized columns; 1.5 for columns in units, and at most 5 in each table.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from typing import Any

import numpy as np
import real_tables

import dpgep

Matrix = real_tables.Matrix
QUANTILES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
MODELS = {"standardized pca": ((1.2, 0.8, 0.6, 0.6), np.inf), "pca": ((1.5,) * 4, 5.0)}
FIXED = ("about zero", "known")
# Without noise and with a bound that clips nobody, both ways agree with the truth to this.
EXACT = 1e-7
# Errors below this are all the same to whoever asks.
NOTHING = 1e-7


def fixed_problem(x: Matrix, model: str, how: str, quantile: float) -> dpgep.Pencil:
    standardize = model.startswith("standardized")
    if how == "known":
        x = x - x.mean(axis=0)
        x, standardize = (x / x.std(axis=0), False) if standardize else (x, False)
    bound = float(np.quantile(np.linalg.norm(x, axis=1), quantile))
    return dpgep.pca(x, standardize=standardize, bound=bound, center=how != "known")


def median_error(question: real_tables.Question, problem: Any, k: int, draws: int, **budget: float) -> float:
    def error(seed: int) -> float:
        solution = dpgep.solve(problem, n_components=k, seed=seed, n_threads=1, **budget)
        return question.error(solution)

    return statistics.median(error(seed) for seed in range(draws))


def ratios_of(name: str, model: str, draws: int) -> Matrix:
    """(2, 4), error with `bound="auto"` over that of the best fixed bound: for each way to fix one, each epsilon."""
    x = real_tables.rows_of(name)
    standardize, k = model.startswith("standardized"), 3 if model.startswith("standardized") else 2
    question = real_tables.of_pca(x, k, standardize=standardize)
    # Errors of known scales are of components in units of the scale.
    plain = real_tables.Question(question.ask, question.truth, None)
    found = np.empty((len(FIXED), len(real_tables.EPSILONS)))
    for column, epsilon in enumerate(real_tables.EPSILONS):
        budget = {"epsilon": epsilon, "delta": len(x) ** -1.1}
        ours = median_error(question, dpgep.pca(x, standardize=standardize, bound="auto"), k, draws, **budget)
        for row, how in enumerate(FIXED):
            judge = plain if how == "known" else question
            problems = [fixed_problem(x, model, how, quantile) for quantile in QUANTILES]
            best = min(median_error(judge, problem, k, draws, **budget) for problem in problems)
            found[row, column] = (ours + NOTHING) / (best + NOTHING)
    return found


def require_exact(name: str) -> None:
    x = real_tables.rows_of(name)
    for model in MODELS:
        question = real_tables.of_pca(x, 2, standardize=model.startswith("standardized"))
        for how in FIXED:
            judge = real_tables.Question(question.ask, question.truth, None) if how == "known" else question
            error = median_error(judge, fixed_problem(x, model, how, 1.0), 2, 1, epsilon=np.inf)
            assert error < EXACT, f"{model}, {how}: without noise off by {error:.2g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", help="names, separated by commas")
    parser.add_argument("--which", choices=("all", "odd", "even"), default="all")
    parser.add_argument("--every", type=int, default=5, help="take every n-th of them (default: 5)")
    parser.add_argument("--draws", type=int, default=3, help="of the noise (default: 3)")
    chosen = parser.parse_args()
    tables = real_tables.chosen_tables(chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        require_exact("Computers")
        for model, (wanted, most) in MODELS.items():
            found = np.array([ratios_of(name, model, chosen.draws) for name in tables])
            for row, how in enumerate(FIXED):
                ratios = found[:, row]
                means = np.exp(np.log(ratios).mean(axis=0))
                table, epsilon = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
                shown = ", ".join(f"{mean:.2f} (wanted {limit:g})" for mean, limit in zip(means, wanted, strict=True))
                worst = f"{ratios.max():.3g}" + (f" (wanted {most:g})" if np.isfinite(most) else "")
                where = f"{tables[table]} at epsilon = {real_tables.EPSILONS[epsilon]:g}"
                print(f"{model}, {len(tables)} tables, best bound {how}: {shown}; worst {worst}, {where}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
