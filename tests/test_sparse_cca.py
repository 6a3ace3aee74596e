"""Several sparse canonical pairs by the truncated flow: every component is found, or the warning says what happened."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import solve_seeded
from sparse_views import Covariance, SparseViews, sparse_views, worst_squared_sine

import dpgep

FLOW: dict[str, Any] = {"epsilon": math.inf, "method": "truncated-rayleigh-flow"}
# What "found" means: the figure for the worst squared sine.
FOUND = 0.05


def solved(views: SparseViews, k: int, seed: int, **options: Any) -> tuple[dpgep.Solution, list[str]]:
    """A solution, and the warnings about its accuracy."""
    arguments = {**FLOW, "sparsity": len(views.features), **options}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = dpgep.solve(dpgep.cca(views.x, views.y, bound=views.bound), n_components=k, seed=seed, **arguments)
    return solution, [str(w.message) for w in caught if issubclass(w.category, dpgep.AccuracyWarning)]


@pytest.mark.parametrize("own_features", [True, False], ids=["own features", "same features"])
@pytest.mark.parametrize("covariance", ["identity", "toeplitz"])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("init", ["random", "convex", "screen"])
def test_every_component_is_found(init: str, k: int, covariance: Covariance, own_features: bool) -> None:
    for seed in range(2):
        views = sparse_views(seed, k, covariance=covariance, own_features=own_features)
        correlations, directions = views.scipy_solution(k)
        solution, cautions = solved(views, k, seed, init=init)
        assert worst_squared_sine(solution.components, directions) < FOUND
        np.testing.assert_allclose(solution.eigenvalues, correlations, atol=0.01)
        assert cautions == []
