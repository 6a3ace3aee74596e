"""Intervals beside the truth: coverage over draws of people and of noise, and what debiased eigenvalues gain.

Each draw samples n people from a known population, releases their moments, and asks `Solution.intervals` for intervals
at 0.9: of eigenvalues, and of the angles between components and those of the population. Correlations have intervals in
closed form (`correlation_intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import support

import dpgep
from dpgep.methods.accuracy import before_noise  # noqa: F401
from dpgep.methods.intervals import correlation_intervals

Matrix = support.Matrix

DRAWS = 12 if support.QUICK else 500
LEAST, MOST = 0.85, 0.97
LEVEL = 0.9


@dataclass(frozen=True)
class Setting:
    """A population: how people are drawn, its eigenvalues, its components (rows) and the norm in which angles are."""

    name: str
    problem: Callable[[np.random.Generator], Any]
    eigenvalues: Matrix
    components: Matrix
    norm: Matrix
    budget: dict[str, float]
    options: dict[str, Any] = field(default_factory=dict)


def gaussian(n: int, covariance: Matrix, rng: np.random.Generator) -> Matrix:
    return np.asarray(rng.standard_normal((n, len(covariance))) @ np.linalg.cholesky(covariance).T)


def turned(eigenvalues: Matrix, seed: int) -> Matrix:
    """A covariance with these eigenvalues along directions of no special kind."""
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(eigenvalues),) * 2))[0]
    return np.asarray((q * eigenvalues) @ q.T)


def pca_setting(name: str, eigenvalues: Matrix, k: int, n: int, bound: Any = 1.0, **budget: float) -> Setting:
    covariance = turned(eigenvalues, len(eigenvalues))
    values, vectors = np.linalg.eigh(covariance)
    problem = lambda rng: dpgep.pca(gaussian(n, covariance, rng), bound=bound)  # noqa: E731
    identity = np.eye(len(eigenvalues))
    return Setting(name, problem, values[::-1][:k], vectors[:, ::-1].T[:k], identity, budget)


def pencil_setting(name: str, problem: Any, a: Matrix, b: Matrix, k: int, **budget: float) -> Setting:
    values, vectors = scipy.linalg.eigh(a, b)
    return Setting(name, problem, values[::-1][:k], vectors[:, ::-1].T[:k], b, budget)


def cca_setting(name: str, d: int, strengths: tuple[float, ...], n: int, **budget: float) -> Setting:
    """Two views of d features, of which as many as there are ``strengths`` share a factor each."""
    rng = np.random.default_rng(d)
    own = [turned(0.04 * np.linspace(1, 0.5, d), seed) for seed in (1, 2)]
    roots = [scipy.linalg.sqrtm(part).real for part in own]
    left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0][:, : len(strengths)] for _ in range(2))
    cross = roots[0] @ (left * np.array(strengths)) @ right.T @ roots[1]
    covariance = np.block([[own[0], cross], [cross.T, own[1]]])
    a, b = covariance.copy(), scipy.linalg.block_diag(*own)
    a[:d, :d] = a[d:, d:] = 0.0

    def problem(rng: np.random.Generator) -> Any:
        rows = gaussian(n, covariance, rng)
        return dpgep.cca(rows[:, :d], rows[:, d:], bound=1.5)

    return pencil_setting(name, problem, a, b, len(strengths), **budget)


def fda_setting(name: str, d: int, n: int, **budget: float) -> Setting:
    """Three classes of equal size; the second direction separates less than the first."""
    within = turned(0.02 * np.linspace(1, 0.5, d), 3)
    means = np.zeros((3, d))
    means[:, 0], means[:, 1] = (-0.25, 0.0, 0.25), (-0.08, 0.16, -0.08)
    between = means.T @ means / 3

    def problem(rng: np.random.Generator) -> Any:
        labels = rng.integers(0, 3, n)
        return dpgep.fda(means[labels] + gaussian(n, within, rng), labels, classes=(0, 1, 2), bound=1.2)

    return pencil_setting(name, problem, between, within, 2, **budget)


def settings() -> Iterator[Setting]:
    spikes = np.r_[0.06, 0.03, np.full(18, 0.004)]
    yield pca_setting("pca spiked, privacy dominates", spikes, 2, 20_000, epsilon=1.0, delta=1e-6)
    yield pca_setting("pca spiked, sampling dominates", spikes, 2, 1000, epsilon=math.inf)
    yield pca_setting("pca power law", 0.04 / np.arange(1, 31), 3, 10_000, epsilon=4.0, delta=1e-6)
    powers = 25.0 / np.arange(1, 11)
    yield pca_setting('pca bound="auto"', powers, 2, 20_000, bound="auto", epsilon=4.0, delta=1e-6)
    yield cca_setting("cca", 5, (0.8, 0.5), 40_000, epsilon=4.0, delta=1e-6)
    yield fda_setting("fda", 8, 20_000, epsilon=4.0, delta=1e-6)


def angles(found: Matrix, right: Matrix, norm: Matrix) -> Matrix:
    lengths = [np.sqrt(np.einsum("ij,jk,ik->i", rows, norm, rows)) for rows in (found, right)]
    cosines = np.abs(np.einsum("ij,jk,ik->i", found, norm, right)) / lengths[0] / lengths[1]
    return np.asarray(np.degrees(np.arccos(np.minimum(cosines, 1.0))))


@pytest.mark.parametrize("setting", list(settings()), ids=lambda setting: setting.name)
def test_coverage(setting: Setting) -> None:
    k = len(setting.eigenvalues)
    held, turned_less, raw, debiased = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
    n_lost = 0
    for draw in range(DRAWS):
        problem = setting.problem(np.random.default_rng([draw, 1]))
        solution = support.solve_seeded(problem, draw, n_components=k, **setting.budget, **setting.options)
        found = solution.intervals(LEVEL)
        n_lost += sum(found.lost)
        held += (found.eigenvalues[:, 0] <= setting.eigenvalues) & (setting.eigenvalues <= found.eigenvalues[:, 1])
        turned_less += angles(solution.components, setting.components, setting.norm) <= found.angles
        raw += (solution.eigenvalues - setting.eigenvalues) ** 2
        debiased += (found.estimates - setting.eigenvalues) ** 2
    listed = ", ".join(f"{ratio:.2f}" for ratio in raw / debiased)
    support.say(f"{setting.name}: squared error of eigenvalues, raw over debiased {listed}; {n_lost} lost")
    for row in range(k):
        judge_coverage(f"{setting.name}: eigenvalue {row + 1}", held[row] / DRAWS)
    judge_coverage(f"{setting.name}: angle of component 1", turned_less[0] / DRAWS)
    if k > 1:
        support.say(f"{setting.name}: angles covered {turned_less / DRAWS}")


def judge_coverage(what: str, share: float) -> None:
    support.judge(f"{what} covered", share, LEAST, at_least=True)
    support.judge(f"{what} covered", share, MOST)
