"""`method="local-gaussian"`: what n clients would lead to, from one draw; the law against that of real reports."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Matrix
from statistics_helpers import rejects_equal_distributions

import dpgep
from dpgep.local import Aggregator, GaussianRandomizer
from dpgep.privacy.accounting import mu_of

EPSILON, DELTA = 2.0, 1e-5


def solutions(rows: Matrix, runs: int, solve: Callable[[int], dpgep.Solution]) -> Matrix:
    """Noisy eigenvalues of ``runs`` solutions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array([solve(seed).eigenvalues for seed in range(runs)])


@pytest.mark.deep
@pytest.mark.statistical
def test_the_method_simulates_the_clients() -> None:
    """Eigenvalues by `dpgep.solve` with "local-gaussian" against those of an aggregator with n reports."""
    n, runs = 16, 600
    rows = np.random.default_rng(7).standard_normal((n, 3)) / 3
    problem = dpgep.pca(rows, center=False, bound=1.0)
    with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
        client = GaussianRandomizer(3, 1.0, EPSILON, DELTA, seed=8)

    def deploy(_: int) -> dpgep.Solution:
        server = Aggregator(3, 1.0, EPSILON, DELTA)
        server.add(client.randomize_rows(rows))
        return server.solve()

    def simulate(seed: int, **budget: Any) -> dpgep.Solution:
        budget = budget or {"epsilon": EPSILON, "delta": DELTA}
        return dpgep.solve(problem, **budget, method="local-gaussian", seed=seed)

    deployed = solutions(rows, runs, deploy)
    assert not rejects_equal_distributions(deployed, solutions(rows, runs, simulate))
    assert rejects_equal_distributions(
        deployed, solutions(rows, runs, lambda seed: simulate(seed, mu=1.3 * mu_of(EPSILON, DELTA)))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        simulated, central = simulate(0), dpgep.solve(problem, epsilon=EPSILON, delta=DELTA, seed=0)
    assert simulated.privacy.mu == pytest.approx(mu_of(EPSILON, DELTA))
    # n people's noise in place of the curator's: sqrt(n) times as much
    ratio = simulated.diagnostics.noise_level / central.diagnostics.noise_level
    assert ratio == pytest.approx(math.sqrt(n), rel=1e-4)


def test_without_noise_it_is_release(correlated_rows: Matrix) -> None:
    problem = dpgep.pca(correlated_rows, center=False, bound=0.5)
    local, central = (
        dpgep.solve(problem, epsilon=math.inf, n_components=2, method=method)
        for method in ("local-gaussian", "release")
    )
    np.testing.assert_array_equal(local.components, central.components)
    assert local.method == "local-gaussian"
    assert math.isinf(local.privacy.mu)


def test_a_shared_budget_pays_what_each_person_would_spend(correlated_rows: Matrix) -> None:
    budget = dpgep.Budget(mu=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        solution = dpgep.solve(
            dpgep.pca(correlated_rows, center=False, bound=1.0), budget=budget, share=0.25, method="local-gaussian"
        )
    assert solution.privacy.mu == pytest.approx(0.5)
    assert solution.privacy.exact
    assert budget.remaining_mu == pytest.approx(math.sqrt(0.75))
    (release,) = solution.privacy.releases
    assert release.noise[0].deviation == pytest.approx(math.sqrt(2 * 300) / 0.5, rel=1e-9)


def test_problems_without_local_reports_are_refused(correlated_rows: Matrix) -> None:
    x = correlated_rows
    refused = {
        "not for this pca": dpgep.pca(x, bound=1.0),
        "not for this cca": dpgep.cca(x[:, :3], x[:, 3:], center=False, bound=1.0),
        "not for this gep": dpgep.gep(x.T @ x / 300, n=300, sensitivity_a=1.5),
        'needs adjacency="replace-one"': dpgep.pca(x, center=False, adjacency="add-remove", public_n=300, bound=1.0),
    }
    for reason, problem in refused.items():
        budget = dpgep.Budget(mu=1.0)
        with pytest.raises(ValueError, match=reason):
            dpgep.solve(problem, budget=budget, method="local-gaussian")
        assert budget.releases == ()
