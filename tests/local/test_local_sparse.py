"""Sparse components from reports: the Fantope relaxation of what the server knows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import Matrix, unit_rows

import dpgep
from dpgep.local import Aggregator, GaussianRandomizer
from dpgep.local.aggregator import FantopeDiagnostics, default_penalty

D, SUPPORT = 24, (2, 7, 11, 20)


def sparse_rows(rng: np.random.Generator, n: int) -> Matrix:
    """Two directions of variance 4 and 3 over 1, on four features."""
    basis = np.linalg.qr(rng.standard_normal((4, 2)))[0]
    rows = rng.standard_normal((n, D))
    rows[:, SUPPORT] += rng.standard_normal((n, 2)) * np.sqrt([15.0, 9.0]) @ basis.T
    return unit_rows(rows)


def aggregate(rows: Matrix, epsilon: float, delta: float | None = None) -> Aggregator:
    server = Aggregator(D, 1.0, epsilon, delta)
    with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
        server.add(GaussianRandomizer(D, 1.0, epsilon, delta, seed=1).randomize_rows(rows))
    return server


def test_without_penalty_it_is_solve(rng: np.random.Generator) -> None:
    server = aggregate(sparse_rows(rng, 3000), math.inf)
    dense, sparse = server.solve(2), server.solve_sparse(2, 0.0, tolerance=1e-12)
    np.testing.assert_allclose(sparse.components, dense.components, atol=1e-5)
    np.testing.assert_allclose(sparse.eigenvalues, dense.eigenvalues, rtol=1e-9)


@pytest.mark.parametrize("epsilon", [math.inf, 8.0])
def test_finds_the_features_that_matter(epsilon: float, rng: np.random.Generator) -> None:
    rows = sparse_rows(rng, 40_000)
    server = aggregate(rows, epsilon, None if math.isinf(epsilon) else 1e-9)
    solution = server.solve_sparse(2, 0.02 if math.isinf(epsilon) else None)
    diagnostics = solution.diagnostics
    assert isinstance(diagnostics, FantopeDiagnostics)
    assert diagnostics.fit.converged
    assert diagnostics.fit.gap <= 1e-6 * abs(diagnostics.fit.objective)
    assert diagnostics.support == SUPPORT
    others = np.delete(solution.components, SUPPORT, axis=1)
    assert not others.any()
    np.testing.assert_allclose(solution.components @ solution.components.T, np.eye(2), atol=1e-12)
    # two directions within four features, found among 24
    truth = np.linalg.eigh(rows.T @ rows)[1][:, -2:]
    assert 2 - np.linalg.norm(solution.components @ truth) ** 2 < 0.1
    second = server.second_moment()
    variances = np.einsum("ij,jk,ik->i", solution.components, second, solution.components)
    np.testing.assert_allclose(solution.eigenvalues, variances, rtol=1e-12)
    assert solution.eigenvalues[0] > solution.eigenvalues[1]
    assert solution.method == "local-gaussian-sparse"
    assert "4 features used" in str(solution)


def test_default_penalty_exceeds_the_largest_entry_of_the_noise() -> None:
    server, rng = Aggregator(D, 1.0, 1.0, 1e-6), np.random.default_rng(0)
    server.add(GaussianRandomizer(D, 1.0, 1.0, 1e-6).randomize_rows(np.zeros((2000, D))))
    z = rng.standard_normal((2000, D, D)) * server.deviation
    largest = np.abs((z + z.transpose(0, 2, 1)) / 2).max(axis=(1, 2))
    assert (largest < default_penalty(server.deviation, D)).mean() > 0.9
    assert largest.mean() > default_penalty(server.deviation, D) / 2


def test_status_is_reported(rng: np.random.Generator) -> None:
    server = aggregate(sparse_rows(rng, 2000), math.inf)
    with pytest.warns(dpgep.errors.AccuracyWarning, match="had not converged after 2 iterations") as caught:
        stopped = server.solve_sparse(2, 0.02, max_iterations=2)
    assert caught[0].filename == __file__
    assert "NOT converged" in str(stopped)


def test_a_path_of_penalties_starts_where_the_last_one_ended(rng: np.random.Generator) -> None:
    server = aggregate(sparse_rows(rng, 2000), math.inf)
    first = server.solve_sparse(2, 0.02)
    cold, warm = server.solve_sparse(2, 0.021), server.solve_sparse(2, 0.021, start=first)
    np.testing.assert_allclose(warm.components, cold.components, atol=1e-3)
    assert isinstance(warm.diagnostics, FantopeDiagnostics)
    assert isinstance(cold.diagnostics, FantopeDiagnostics)
    assert warm.diagnostics.fit.n_iterations <= cold.diagnostics.fit.n_iterations
    with pytest.raises(TypeError, match="start must be a solution of solve_sparse"):
        server.solve_sparse(2, 0.02, start=server.solve(2))


@pytest.mark.parametrize("penalty", [-1.0, math.nan, math.inf])
def test_penalties_are_checked(penalty: float, rng: np.random.Generator) -> None:
    server = aggregate(sparse_rows(rng, 50), math.inf)
    with pytest.raises(ValueError, match="penalty must be a non-negative finite number"):
        server.solve_sparse(2, penalty)
    with pytest.raises(ValueError, match="n_components = 25 is too many"):
        server.solve_sparse(25)
