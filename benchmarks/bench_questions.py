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
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import support

import dpgep

N, D = (20_000, 30)
DRAWS = 3 if support.QUICK else 11
EPSILON, DELTA = 1.0, 1e-6
FIRST, SECOND = list(range(D // 2)), list(range(D // 2, D))
SOME, OTHERS = [0, 1, 2, 3, 4], list(range(5, D))
Matrix = support.Matrix
Answer = Callable[[], Any]


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


class Question:
    """What is asked of a release, and of the data by a run of its own with a part of the budget."""

    def __init__(self, name: str, ask: Any, alone: Any, error: Any) -> None:
        self.name, self.ask, self.alone, self.error = name, ask, alone, error


def questions(x: Matrix) -> list[Question]:
    deviations = x.std(axis=0)

    def solved(problem: Any, **options: Any) -> Any:
        return lambda **budget: quietly(lambda: dpgep.solve(problem, **options, **budget))

    def released(ask: Any) -> Any:
        return lambda **budget: quietly(lambda: ask(dpgep.release(dpgep.table(x), **budget)))

    def of_release(name: str, ask: Any, error: Any) -> Question:
        return Question(name, ask, released(ask), error)

    def coefficients(r: dpgep.PrivateMoments, y: int) -> Matrix:
        others = [j for j in range(D) if j != y]
        return np.asarray(r.regression(y, on=others).coefficients * deviations[others] / deviations[y])

    def scaled(matrix: Matrix) -> Matrix:
        return matrix / np.outer(deviations, deviations)

    pca, cca = dpgep.pca(x, standardize=True), dpgep.cca(x[:, FIRST], x[:, SECOND])
    two = dpgep.cca(x[:, SOME], x[:, OTHERS])
    return [
        Question(
            "PCA, standardized", lambda r: r.pca(standardize=True, n_components=4), solved(pca, n_components=4), sines
        ),
        Question(
            "first component", lambda r: r.pca(standardize=True, n_components=1), solved(pca, n_components=1), sines
        ),
        Question(
            "sparse PCA",
            lambda r: r.pca(standardize=True, n_components=1, sparsity=10),
            solved(pca, n_components=1, sparsity=10),
            sines,
        ),
        Question("CCA, 15 with 15", lambda r: r.cca(FIRST, SECOND, n_components=3), solved(cca, n_components=3), sines),
        Question("CCA, 5 with 25", lambda r: r.cca(SOME, OTHERS, n_components=2), solved(two, n_components=2), sines),
        of_release("regression on 29 columns", lambda r: coefficients(r, 0), relative),
        of_release("another regression", lambda r: coefficients(r, 17), relative),
        of_release("correlations", lambda r: r.correlation().values, relative),
        of_release("covariances", lambda r: scaled(r.covariance().values), relative),
        of_release("means", lambda r: r.mean() / deviations, relative),
    ]


def quietly(run: Answer) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.PrivacyWarning)
        warnings.simplefilter("ignore", dpgep.AccuracyWarning)
        return run()


def errors() -> dict[str, tuple[float, float, float]]:
    """Medians of the error of each question: of the release, of a tenth of the budget, and of all of it."""
    x = people()
    asked = questions(x)
    exact = {each.name: each.alone(epsilon=math.inf) for each in asked}
    found: dict[str, list[tuple[float, ...]]] = {each.name: [] for each in asked}
    for seed in range(DRAWS):
        release = quietly(lambda seed=seed: dpgep.release(dpgep.table(x), epsilon=EPSILON, delta=DELTA, seed=seed))
        budget = dpgep.Budget(epsilon=EPSILON, delta=DELTA)
        for each in asked:
            answers = (
                quietly(lambda each=each: each.ask(release)),
                each.alone(budget=budget, share=1 / len(asked), seed=seed),
                each.alone(epsilon=EPSILON, delta=DELTA, seed=seed),
            )
            found[each.name].append(tuple(each.error(answer, exact[each.name]) for answer in answers))
    return {name: tuple(np.median(np.array(rows), axis=0)) for name, rows in found.items()}  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore::dpgep.PrivacyWarning")
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
