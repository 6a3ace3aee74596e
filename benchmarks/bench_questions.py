"""Ten questions about one table: from one release, against ten solves that share the same budget, and one by one.

The table has 30 columns in units of their own, of 20000 people, with four common factors. Errors are to what the data
show without noise: summed squared sines of components, in units of the deviations where columns are standardized or
scaled, and squared relative errors of coefficients and matrices. Both sides use ``bound="auto"``. Medians over seeded
draws. `python benchmarks/bench_questions.py` prints all figures, pytest also judges them.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import support

import dpgep
from dpgep.problems.builders import table_problem

N, D = (20_000, 30)
DRAWS = 3 if support.QUICK else 11
EPSILON, DELTA = 1.0, 1e-6
Matrix = support.Matrix


def people() -> Matrix:
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((N, 4)) * [2.0, 1.5, 1.2, 1.0]
    loadings = rng.standard_normal((4, D)) / 2
    loadings[0, 6:] /= 8  # the first factor is one of few columns
    rows = factors @ loadings + rng.standard_normal((N, D))
    return np.asarray(rows * np.geomspace(0.01, 1000, D) + np.linspace(-1, 1, D) * 500)


def sines(found: dpgep.Solution, exact: dpgep.Solution) -> float:
    """Summed squared sines between spans, of weights as of columns of unit deviation."""
    units = exact.model.n_features * [1.0] if exact.scale is None else exact.scale
    return support.squared_sine_distance(_orthonormal(found.components * units), _orthonormal(exact.components * units))


def _orthonormal(rows: Matrix) -> Matrix:
    return np.asarray(np.linalg.qr(rows.T)[0].T)


def relative(found: Any, exact: Any) -> float:
    return float(np.linalg.norm(found - exact) ** 2 / np.linalg.norm(exact) ** 2)


@dataclass(frozen=True)
class Question:
    """What is asked of a release, and of the data by a run ``alone`` with a budget of its own."""

    name: str
    ask: Callable[[dpgep.Release], Any]
    alone: Callable[..., Any]
    error: Callable[[Any, Any], float]


def questions(x: Matrix) -> list[Question]:
    deviations = x.std(axis=0)

    def solved(problem: Any, **options: Any) -> Any:
        return lambda **budget: dpgep.solve(problem, **options, **budget)

    def released(ask: Any) -> Any:
        return lambda **budget: ask(dpgep.release(table_problem(x), **budget))

    def of_release(name: str, ask: Any, error: Any) -> Question:
        return Question(name, ask, released(ask), error)

    def coefficients(r: dpgep.Release, y: int) -> Matrix:
        others = [j for j in range(D) if j != y]
        return np.asarray(r.regression(y, on=others).coefficients * deviations[others] / deviations[y])

    def scaled(matrix: Matrix) -> Matrix:
        return matrix / np.outer(deviations, deviations)

    pca = dpgep.pca(x, standardize=True)

    def of_pca(name: str, **options: Any) -> Question:
        return Question(name, lambda r: r.pca(standardize=True, **options), solved(pca, **options), sines)

    def of_cca(name: str, first: list[int], second: list[int], k: int) -> Question:
        alone = solved(dpgep.cca(x[:, first], x[:, second]), n_components=k)
        return Question(name, lambda r: r.cca(first, second, n_components=k), alone, sines)

    return [
        of_pca("PCA, standardized", n_components=4),
        of_pca("first component", n_components=1),
        of_pca("sparse PCA", n_components=1, sparsity=10),
        of_cca("CCA, 15 with 15", list(range(15)), list(range(15, D)), 3),
        of_cca("CCA, 5 with 25", list(range(5)), list(range(5, D)), 2),
        of_release("regression on 29 columns", lambda r: coefficients(r, 0), relative),
        of_release("another regression", lambda r: coefficients(r, 17), relative),
        of_release("correlations", lambda r: r.correlation().values, relative),
        of_release("covariances", lambda r: scaled(r.covariance().values), relative),
        of_release("means", lambda r: r.mean() / deviations, relative),
    ]


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        yield


def errors() -> dict[str, tuple[float, float, float]]:
    """Medians of the error of each question: of the release, of a tenth of the budget, and of all of it."""
    x = people()
    asked = questions(x)
    found: dict[str, list[tuple[float, ...]]] = {each.name: [] for each in asked}
    with quiet():
        exact = {each.name: each.alone(epsilon=math.inf) for each in asked}
        for seed in range(DRAWS):
            release = dpgep.release(table_problem(x), epsilon=EPSILON, delta=DELTA, seed=seed)
            budget = dpgep.Budget(epsilon=EPSILON, delta=DELTA)
            for each in asked:
                answers = (
                    each.ask(release),
                    each.alone(budget=budget, share=1 / len(asked), seed=seed),
                    each.alone(epsilon=EPSILON, delta=DELTA, seed=seed),
                )
                found[each.name].append(tuple(each.error(answer, exact[each.name]) for answer in answers))
    return {name: tuple(np.median(np.array(rows), axis=0)) for name, rows in found.items()}  # type: ignore[misc]


def test_ten_questions() -> None:
    measured = errors()
    for name, (ours, tenth, whole) in measured.items():
        support.say(f"{name}: one release {ours:.3g}, a tenth of the budget {tenth:.3g}, all of it {whole:.3g}")
    gains = [tenth / ours for ours, tenth, _ in measured.values()]
    support.judge("ten questions, error of ten solves over ours, median", statistics.median(gains), 5.0, at_least=True)
    for name, (ours, _, whole) in measured.items():
        support.judge(f"{name}, error over that of a run of its own", ours / whole, 1.2)


def main() -> None:
    try:
        test_ten_questions()
    finally:
        print("\n".join(support.lines))


if __name__ == "__main__":
    main()
