"""Error bars under noise: what a solution says of its own error, beside its true error.

Null calibration: isotropic rows, where noise is all there is to find. Calibration with signal: real data sets, four
models, epsilon from 0.1 to 100. The true error is the squared sine between a component and that of the same problem at
epsilon = infinity without regularization, in the norm of its B: what `expected_error` estimates.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import support

import dpgep
from dpgep._dispatch import core
from dpgep.privacy.curator import Curator, Release
from dpgep.privacy.ledger import Ledger

Matrix = support.Matrix

NULL_DRAWS = 2 if support.QUICK else 200
SIGNAL_DRAWS = 1 if support.QUICK else 50
EPSILONS = (1.0,) if support.QUICK else (0.1, 1.0, 10.0, 100.0)
# Shares asked for: of draws whose error bar is at least 0.9 of the truth, and of those that say that all is lost.
LEAST_COVERED, LEAST_SAID = 0.95, 0.99
LOW, HIGH, JUDGED = 0.7, 2.0, 0.3


@dataclass(frozen=True)
class Setting:
    """A problem, what is asked of it, and with which budget."""

    name: str
    problem: Any
    k: int
    epsilon: float
    options: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Of one draw: errors claimed and true, (K,) and of the span, and whether the solution said that it is lost."""

    claimed: Matrix
    actual: Matrix
    said: bool


def rows(n: int, d: int, seed: int) -> Matrix:
    """Isotropic rows, few of them beyond the unit ball."""
    return np.random.default_rng(seed).standard_normal((n, d)) / math.sqrt(d) / 1.4


def null_settings() -> Iterator[Setting]:
    """Twelve of them, n from 50 to 10^5: budgets so small that noise exceeds what chance left in the rows."""
    rng = np.random.default_rng(0)
    yield Setting("pca n=50", dpgep.pca(rows(50, 5, 1), bound=1.0), 2, 0.3, {})
    yield Setting("pca n=1000", dpgep.pca(rows(1000, 20, 2), bound=1.0), 3, 0.3, {})
    yield Setting("pca n=100000", dpgep.pca(rows(100_000, 40, 3), bound=1.0), 3, 0.03, {})
    yield Setting("pca uncentred", dpgep.pca(rows(2000, 30, 4), center=False, bound=1.0), 2, 0.3, {})
    yield Setting("pca sparsity=5", dpgep.pca(rows(1000, 24, 5), bound=1.0), 1, 0.3, {"sparsity": 5})
    yield Setting("pca sparsity=auto", dpgep.pca(rows(1000, 24, 6), bound=1.0), 1, 0.3, {"sparsity": "auto"})
    yield Setting("pca screen=15", dpgep.pca(rows(1000, 45, 7), bound=1.0), 2, 0.3, {"screen": 15})
    yield Setting("cca n=1000", dpgep.cca(rows(1000, 12, 8)[:, :6], rows(1000, 12, 8)[:, 6:], bound=1.0), 2, 0.3, {})
    yield Setting(
        "cca n=50000", dpgep.cca(rows(50_000, 8, 9)[:, :4], rows(50_000, 8, 9)[:, 4:], bound=1.0), 1, 0.01, {}
    )
    yield Setting(
        "fda n=1000", dpgep.fda(rows(1000, 10, 10), rng.integers(0, 3, 1000), classes=(0, 1, 2), bound=1.0), 2, 0.1, {}
    )
    yield Setting(
        "fda n=20000",
        dpgep.fda(rows(20_000, 20, 11), rng.integers(0, 2, 20_000), classes=(0, 1), bound=1.0),
        1,
        0.01,
        {},
    )
    yield Setting(
        "sir n=2000",
        dpgep.sir(rows(2000, 10, 12), rng.normal(size=2000), slices=6, y_range=(-2, 2), bound=1.0),
        2,
        0.1,
        {},
    )


def signal_settings() -> Iterator[Setting]:
    """Four sets, four models, K = 1; for PCA also 3 (diabetes: 2 alone): 19 problems, four budgets each."""
    for name, problems in real_problems():
        for model, problem in problems.items():
            largest = problem.model.max_components
            counts = {"pca": (2,), "cca": (1,), "fda": (1,), "sir": (1,)}[model]
            if model == "pca" and name != "diabetes":
                counts = (1, 3)
            for k in counts:
                for epsilon in EPSILONS:
                    yield Setting(f"{name} {model} K={k} epsilon={epsilon:g}", problem, min(k, largest), epsilon, {})


def real_problems() -> Iterator[tuple[str, dict[str, Any]]]:
    from sklearn import datasets

    wine, cancer, digits = datasets.load_wine(), datasets.load_breast_cancer(), datasets.load_digits()
    diabetes = datasets.load_diabetes()
    thirds = np.digitize(diabetes.target, (100, 180))
    yield "wine", models(scaled(wine.data), wine.target, wine.data[:, 0], (11.0, 15.0))
    yield "cancer", models(scaled(cancer.data), cancer.target, cancer.data[:, 0], (6.0, 29.0))
    yield "digits", models(scaled(digits.data), digits.target, digits.target.astype(float), (0.0, 9.0))
    yield "diabetes", models(scaled(diabetes.data), thirds, diabetes.target, (25.0, 346.0))


def scaled(x: Matrix) -> Matrix:
    """Columns of deviation 1, then nine rows in ten within the unit ball: stands in for public knowledge of units."""
    deviations = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
    return np.asarray(x / np.quantile(np.linalg.norm(x, axis=1), 0.9))


def models(x: Matrix, labels: Any, response: Matrix, y_range: tuple[float, float]) -> dict[str, Any]:
    half = x.shape[1] // 2
    return {
        "pca": dpgep.pca(x, bound=1.0),
        "cca": dpgep.cca(x[:, :half], x[:, half:], bound=1.0),
        "fda": dpgep.fda(x, labels, classes=tuple(np.unique(labels).tolist()), bound=1.0),
        "sir": dpgep.sir(x, response, slices=8, y_range=y_range, bound=1.0),
    }


def outcomes(setting: Setting, draws: int) -> list[Outcome]:
    n, exact_b = setting.problem.dataset.people.n, norm_of(setting.problem)
    reference, _ = solved(setting, 0, epsilon=math.inf, **({"regularization": 0.0} if exact_b is not None else {}))
    root = None if exact_b is None else np.linalg.cholesky(exact_b + 1e-13 * np.trace(exact_b) * np.eye(len(exact_b))).T
    found = []
    for seed in range(draws):
        solution, warned = solved(setting, seed, epsilon=setting.epsilon, delta=n**-1.1)
        k = len(reference.components)
        if len(solution.components) < k:
            continue  # B had fewer directions, and the solution says so
        errors = solution.diagnostics
        found.append(
            Outcome(
                np.append(errors.expected_error, errors.expected_subspace_error),
                squared_sines(solution.components, reference.components, root),
                warned or all(errors.lost),
            )
        )
    return found


def norm_of(problem: Any) -> Matrix | None:
    """B of the data themselves; None for the identity."""
    released = Curator(problem, Ledger(math.inf), core.NoiseStream(bytes(32))).answer(Release())
    b = problem.model.noisy(released).pair().b
    return None if b is None else np.asarray(b)


def solved(setting: Setting, seed: int, **budget: Any) -> tuple[dpgep.Solution, bool]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = dpgep.solve(
            setting.problem, n_components=setting.k, seed=seed, **budget, **{"method": "release", **setting.options}
        )
    return solution, any(issubclass(warning.category, dpgep.errors.AccuracyWarning) for warning in caught)


def squared_sines(found: Matrix, right: Matrix, root: Matrix | None) -> Matrix:
    """(K + 1,), of each component and, last, summed over the span."""
    if root is not None:
        found, right = found @ root.T, right @ root.T
    cosines = np.einsum("ij,ij->i", found, right) / np.linalg.norm(found, axis=1) / np.linalg.norm(right, axis=1)
    return np.append(1 - cosines**2, support.squared_sine_distance(found, right))


@pytest.mark.parametrize("setting", list(null_settings()), ids=lambda setting: setting.name)
def test_null(setting: Setting) -> None:
    found = outcomes(setting, NULL_DRAWS)
    covered = statistics.fmean(bool((draw.claimed >= 0.9 * draw.actual).all()) for draw in found)
    said = statistics.fmean(draw.said for draw in found)
    support.judge(f"null {setting.name}: draws with claimed >= 0.9 actual", covered, LEAST_COVERED, at_least=True)
    support.judge(f"null {setting.name}: draws lost or warned of", said, LEAST_SAID, at_least=True)


def test_signal() -> None:
    """Ratios of medians over the draws; where the true error is at most 0.3, they should be within [0.7, 2]."""
    judged, within = 0, 0
    for setting in signal_settings():
        found = outcomes(setting, SIGNAL_DRAWS)
        if not found:
            continue
        actual, claimed = (centre(found, name) for name in ("actual", "claimed"))
        single, shown = actual[:-1] if setting.k == 1 else actual, []
        for index, true in enumerate(single):
            ratio = float(claimed[index] / true)
            counts = true <= JUDGED
            judged += counts
            within += counts and LOW <= ratio <= HIGH
            shown.append(f"{true:.3g} ({ratio:.2f}{'' if not counts or LOW <= ratio <= HIGH else ' MISSED'})")
        support.say(f"{setting.name}: actual error (claimed/actual) {', '.join(shown)}")
    support.judge(
        f"claimed/actual within [{LOW}, {HIGH}], share of {judged}", within / max(judged, 1), 1.0, at_least=True
    )


def centre(found: list[Outcome], name: str) -> Matrix:
    """Median over the draws."""
    pick: Callable[[Outcome], Matrix] = lambda draw: getattr(draw, name)  # noqa: E731
    return np.asarray(np.median([pick(draw) for draw in found], axis=0))
