"""A screen chooses features, and their block is released: what is kept, what it costs, what it may look at."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conftest import Matrix, nothing_spent, solve_seeded, unit_rows
from scipy import sparse

import dpgep
from dpgep._dispatch import core
from dpgep.privacy.curator import Curator
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.screening import Scores, keep_features

D, FEATURES = 400, (7, 60, 61, 200, 399)


def planted(n: int = 5000, seed: int = 0) -> tuple[Matrix, Matrix]:
    """Rows with a spike on FEATURES; and its direction."""
    rng = np.random.default_rng([7, seed])
    u = np.zeros(D)
    u[list(FEATURES)] = 1 / math.sqrt(len(FEATURES))
    x = rng.standard_normal((n, D))
    return unit_rows(x + (math.sqrt(100.0) - 1) * np.outer(x @ u, u)), u


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("sparsity", [None, 5, "auto"])
def test_a_planted_component_is_found(form: Any, sparsity: Any) -> None:
    x, u = planted()
    solution = solve_seeded(dpgep.pca(form(x), bound=1.0), mu=1.0, n_components=1, screen=40, sparsity=sparsity)
    screened = solution.diagnostics.screened
    assert solution.components.shape == (1, D)
    assert set(FEATURES) <= set(screened.features)
    assert len(screened.features) == 40
    assert set(np.flatnonzero(solution.components[0])) <= set(screened.features)
    assert abs(float(solution.components[0] @ u)) > 0.95
    if sparsity == 5:
        assert solution.diagnostics.support == FEATURES
    assert "40 features kept" in repr(solution)
    assert solution.transform(x).shape == (len(x), 1)
    assert solution.mean.shape == (D,)
    assert not np.delete(solution.mean, screened.features).any()


def test_the_block_carries_less_noise_than_the_whole() -> None:
    x, _ = planted()
    whole, block = (
        solve_seeded(dpgep.pca(x, bound=1.0), mu=1.0, n_components=1, **options).diagnostics
        for options in ({}, {"screen": 20})
    )
    assert block.noise_level < whole.noise_level / 3


def test_screen_and_block_share_the_budget() -> None:
    x, _ = planted(500)
    for options, share in (({}, 0.3), ({"screen_share": 0.6}, 0.6)):
        report = solve_seeded(dpgep.pca(x, bound=1.0), mu=1.0, n_components=1, screen=20, **options).privacy
        scores, block = report.releases
        assert scores.query.startswith("screen: ")
        assert block.query.startswith("features kept: ")
        assert scores.mu**2 == pytest.approx(share)
        assert scores.mu**2 + block.mu**2 == pytest.approx(1.0)
        assert scores.mu**2 + block.mu**2 <= 1.0 + 1e-12
        assert (scores.rounding, block.rounding) == ("integer", "integer")


def test_features_and_bound_follow_from_the_scores_alone() -> None:
    """With the answer of the screen taken from other data, what is kept does not depend on these."""
    kept = []
    source = Curator(dpgep.pca(planted(seed=1)[0], bound=1.0), Ledger(1.0), core.NoiseStream(bytes(32)))
    answer = source.answer(Scores(), 0.2)
    for scale in (1.0, 0.3):
        curator = Curator(dpgep.pca(scale * planted()[0], bound=1.0), Ledger(1.0), core.NoiseStream(bytes(32)))
        curator.answer = lambda query, share, purpose: answer  # type: ignore[method-assign]
        kept.append(keep_features(curator, 30, 0.3, "")[0])
    np.testing.assert_array_equal(kept[0].features, kept[1].features)
    assert kept[0].bound == kept[1].bound < 1.0


def test_as_many_features_of_each_view() -> None:
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((8000, 1))
    x, y = rng.standard_normal((8000, 60)), rng.standard_normal((8000, 90))
    x[:, [3, 4]] += 6 * shared
    y[:, [80, 81]] += 6 * shared
    scale = np.sqrt((x**2).sum(axis=1) + (y**2).sum(axis=1)).max()
    solution = solve_seeded(dpgep.cca(x / scale, y / scale, bound=1.0), mu=20.0, n_components=1, screen=8)
    features = solution.diagnostics.screened.features
    assert ((features < 60).sum(), (features >= 60).sum()) == (8, 8)
    assert {3, 4, 140, 141} <= set(features)
    assert solution.x_weights.shape == (1, 60)
    assert solution.y_weights.shape == (1, 90)
    assert np.abs(solution.x_weights[0, [3, 4]]).min() > 0.5


@pytest.mark.parametrize("name", ["fda", "sir", "gep"])
def test_other_models(name: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 5000)
    x = rng.standard_normal((5000, 80))
    x[:, :2] += 4 * np.array([[0, 0], [1, 0], [0, 1]])[labels]
    x = unit_rows(x)
    problem = {
        "fda": lambda: dpgep.fda(x, labels, classes=range(3), bound=1.0),
        "sir": lambda: dpgep.sir(x, labels + 0.5, slices=3, y_range=(0, 3), bound=1.0),
        "gep": lambda: dpgep.gep(x.T @ x / 5000, n=5000, sensitivity_a=math.sqrt(2)),
    }[name]()
    solution = solve_seeded(problem, mu=5.0, n_components=1, screen=10)
    assert {0, 1} <= set(solution.diagnostics.screened.features)
    assert np.linalg.norm(solution.components[0, :2]) > 0.8


def test_a_screen_of_everything_keeps_everything() -> None:
    x, _ = planted(500)
    solution = solve_seeded(dpgep.pca(x, bound=1.0), epsilon=math.inf, n_components=1, screen=D + 5)
    np.testing.assert_array_equal(solution.diagnostics.screened.features, np.arange(D))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"screen": 0}, "screen must be a whole number"),
        ({"screen": 2.5}, "screen must be a whole number"),
        ({"screen": 20, "screen_share": 1.0}, "screen_share must lie strictly between"),
        ({"screen_share": 0.5}, "screen_share requires screen"),
        ({"screen": 20, "storage": "operator"}, "not as an"),
        ({"screen": 20}, "give n_components"),
        ({"screen": 20, "n_components": 1, "sparsity": 21}, "more than the 20 features"),
        ({"screen": 200, "n_components": 1, "memory_limit": 32 * 200 * 200 - 1}, "smaller screen"),
    ],
)
def test_refuses_before_anything_is_spent(options: dict[str, Any], message: str) -> None:
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match=message):
        dpgep.solve(dpgep.pca(planted(50)[0], bound=1.0), budget=budget, **options)
