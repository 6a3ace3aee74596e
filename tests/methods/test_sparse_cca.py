"""Several sparse canonical pairs by the truncated flow: every component is found, or the warning says what happened."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from conftest import solve_seeded
from sparse_views import Covariance, SparseViews, sparse_views, worst_squared_sine

import dpgep
from dpgep._dispatch import core
from dpgep.methods.exchange import LARGEST_SUPPORT, exchange_features
from dpgep.methods.papers.initial_vectors import initial_vectors
from dpgep.privacy.curator import Curator, Release
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.products import NoisyProducts, ProductNoise, Products

FLOW: dict[str, Any] = {"epsilon": math.inf, "method": "truncated-rayleigh-flow"}
# What "found" means: the figure for the worst squared sine.
FOUND = 0.05


def solved(views: SparseViews, k: int, seed: int, **options: Any) -> tuple[dpgep.Solution, list[str]]:
    """A solution, and the warnings about its accuracy."""
    arguments = {**FLOW, "sparsity": len(views.features), **options}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = dpgep.solve(dpgep.cca(views.x, views.y, bound=views.bound), n_components=k, seed=seed, **arguments)
    return solution, [str(w.message) for w in caught if issubclass(w.category, dpgep.errors.AccuracyWarning)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("init", "k", "covariance", "own_features"),
    [
        ("random", 3, "toeplitz", False),
        ("random", 2, "identity", True),
        ("convex", 2, "toeplitz", True),
        ("convex", 3, "identity", False),
        ("screen", 2, "toeplitz", False),
        ("screen", 3, "toeplitz", True),
    ],
)
def test_every_component_is_found(init: str, k: int, covariance: Covariance, own_features: bool) -> None:
    views = sparse_views(1, k, covariance=covariance, own_features=own_features)
    correlations, directions = views.scipy_solution(k)
    solution, accuracy_warnings = solved(views, k, 1, init=init)
    assert worst_squared_sine(solution.components, directions) < FOUND
    np.testing.assert_allclose(solution.eigenvalues, correlations, atol=0.01)
    assert accuracy_warnings == []


def test_a_lost_component_is_not_blamed_on_the_iterations() -> None:
    """Fewer people than features of a view: starts end at different features, and the best may be none of the truth."""
    views = sparse_views(0, 2, n=40, covariance="identity")
    solution, accuracy_warnings = solved(views, 2, 0, n_starts=2)
    assert worst_squared_sine(solution.components, views.scipy_solution(2)[1]) > 0.5
    (caution,) = accuracy_warnings
    assert "only one of 2 starts reached" in caution
    assert "more iterations do not find" in caution


def test_components_are_found_under_noise_at_the_price_of_one_release() -> None:
    views = sparse_views(2, 2, n=4000, d_view=20)
    problem = dpgep.cca(views.x, views.y, bound=views.bound)
    run: dict[str, Any] = {"mu": 100.0, "n_components": 2, "method": "truncated-rayleigh-flow", "sparsity": 12}
    solution = solve_seeded(problem, 3, **run)
    assert worst_squared_sine(solution.components, views.scipy_solution(2)[1]) < 0.2
    (release,) = solution.privacy.releases
    assert release.mu <= 100.0


def test_the_relaxation_keeps_the_second_pair() -> None:
    """Negative control: in the ball of the paper, symmetric about zero, the largest eigenvalues of either sign lead."""
    views = sparse_views(0, 2, covariance="identity")
    problem = dpgep.cca(views.x, views.y, bound=views.bound)
    curator = Curator(problem, Ledger(math.inf), core.NoiseStream())
    (start,) = initial_vectors(curator, 2, "convex", share=None, sparsity=12, n_starts=1).starts
    directions = views.scipy_solution(2)[1]
    assert worst_squared_sine(start, directions) < 0.1
    pair = problem.model.noisy(curator.answer(Release())).pair()
    values, vectors = scipy.linalg.eigh(pair.a, pair.b + 1e-9 * np.eye(len(pair.a)))
    assert worst_squared_sine(vectors[:, np.argsort(-np.abs(values))[:2]].T, directions) > 0.9


# ---- Exchanges of features ---------------------------------------------------------------------------------------


def paired(d: int, n_features: int, seed: int = 0) -> tuple[Any, NoisyProducts]:
    """A pair whose second solution shares no feature with the first, noiseless, and its products."""
    rng = np.random.default_rng(seed)
    b = np.eye(d) + 0.01 * np.ones((d, d))
    a = 0.01 * (m := rng.standard_normal((d, d))) + 0.01 * m.T
    for value, first in ((3.0, 0), (2.0, n_features)):
        v = np.zeros(d)
        v[first : first + n_features] = 1 / math.sqrt(n_features)
        a += value * np.outer(v, v)
    problem = dpgep.gep(a, b, n=100, sensitivity_a=1.0, sensitivity_b=1.0)
    curator = Curator(problem, Ledger(math.inf), core.NoiseStream())
    return (a, b), curator.answer(Products(ProductNoise("lazy", "goe", 0)))


def on(features: range, d: int, k: int = 2) -> Any:
    vectors = np.zeros((k, d))
    vectors[:, features] = np.random.default_rng(1).standard_normal((k, len(features)))
    return vectors


def test_exchanges_leave_features_that_are_all_wrong() -> None:
    (a, b), products = paired(30, 3)
    exchanged = exchange_features(products, on(range(20, 26), 30), 0.0)
    assert exchanged is not None
    vectors, n_exchanges, at_rest = exchanged
    assert at_rest
    assert n_exchanges >= 1
    assert np.flatnonzero(vectors.any(axis=0)).tolist() == [0, 1, 2, 3, 4, 5]
    best = scipy.linalg.eigh(a[:6, :6], b[:6, :6])[1][:, ::-1][:, :2].T
    assert worst_squared_sine(vectors[:, :6], best) < 1e-12
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0)


def test_without_an_exchange_the_solution_on_the_support_is_exact() -> None:
    (a, b), products = paired(8, 3)
    exchanged = exchange_features(products, on(range(8), 8), 0.25)
    assert exchanged is not None
    vectors, *rest = exchanged
    assert rest == [0, True]
    best = scipy.linalg.eigh(a, b + 0.25 * np.eye(8))[1][:, ::-1][:, :2].T
    assert worst_squared_sine(vectors, best) < 1e-12


def test_features_that_repeat_each_other_are_one_direction() -> None:
    d = 6
    a, b = np.ones((d, d)), np.ones((d, d))
    problem = dpgep.gep(a, b, n=100, sensitivity_a=1.0, sensitivity_b=1.0)
    products = Curator(problem, Ledger(math.inf), core.NoiseStream()).answer(Products(ProductNoise("lazy", "goe", 0)))
    assert exchange_features(products, on(range(3), d, k=2), 0.0) is None  # B has one direction, two are wanted
    exchanged = exchange_features(products, on(range(3), d, k=1), 0.0)
    assert exchanged is not None
    vectors, *_ = exchanged
    assert float((vectors @ a @ vectors.T)[0, 0]) == pytest.approx(3.0)


def test_a_large_support_is_left_alone() -> None:
    d = LARGEST_SUPPORT + 1
    problem = dpgep.gep(np.eye(d), None, n=100, sensitivity_a=1.0)
    products = Curator(problem, Ledger(math.inf), core.NoiseStream()).answer(Products(ProductNoise("lazy", "goe", 0)))
    assert exchange_features(products, on(range(d), d, k=1), 0.0) is None
    assert exchange_features(products, on(range(d - 1), d, k=1), 0.0) is not None


@pytest.mark.parametrize("capacity", range(4, 30, 3))
def test_exchanges_end_where_memory_does(capacity: int) -> None:
    """Whatever is left: no answer is lost, and a last question still has room."""
    d = 60
    views = sparse_views(0, 2, n=200, d_view=d // 2)
    problem = dpgep.cca(views.x, views.y, bound=views.bound)
    curator = Curator(problem, Ledger(100.0), core.NoiseStream())
    products = curator.answer(Products(ProductNoise("lazy", "goe", 0, 8 * d * 3 * capacity)))
    assert products.capacity == capacity
    exchanged = exchange_features(products, on(range(8), d), products.noise_level)
    assert products.capacity >= 0
    assert (exchanged is None) == (capacity < 12)
    if exchanged is not None:
        products.times(exchanged[0])


def test_a_component_off_the_largest_features_is_kept() -> None:
    """Truncated to the largest columns, the second start would be zero."""
    views = sparse_views(0, 2, d_view=10, n=500)
    start = np.zeros((2, 20))
    start[0, :6], start[1, 6:] = 1.0, 1.0
    for options in ({"noise": "fresh", "mu": 50.0}, {"epsilon": math.inf}):
        solution = solve_seeded(
            dpgep.cca(views.x, views.y, bound=views.bound), 1, n_components=2, method="truncated-rayleigh-flow",
            sparsity=4, init=start, **options,
        )  # fmt: skip
        assert np.isfinite(solution.components).all()
        assert solution.components.any(axis=1).all()
