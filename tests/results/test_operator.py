"""One noisy pair known by its products: its law, what it costs, and SciPy's eigensolvers on it."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from conftest import Matrix, nothing_spent, solve_seeded, unit_rows
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg
from statistics_helpers import rejects_covariance

import dpgep

D = 40


def rows(n: int = 3000, d: int = D, seed: int = 0) -> Matrix:
    rng = np.random.default_rng([1, seed])
    return unit_rows(rng.standard_normal((n, d)) * np.r_[4.0, 3.0, 2.0, np.ones(d - 3)] + 0.3)


def operator(problem: Any = None, seed: int = 0, **arguments: Any) -> dpgep.results.matrix_free.MatrixFreeRelease:
    arguments = arguments or {"mu": 5.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        return dpgep.release(
            dpgep.pca(rows(), bound=1.0) if problem is None else problem, seed=seed, **arguments, storage="operator"
        )


def discriminant() -> Any:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 4, 4000)
    x = rng.standard_normal((4, D))[labels] + rng.standard_normal((4000, D))
    return dpgep.fda(unit_rows(x), labels, classes=range(4), bound=1.0)


def same_directions(columns: Matrix, others: Matrix, atol: float = 1e-6) -> bool:
    return bool(np.linalg.norm(columns - others @ (np.linalg.pinv(others) @ columns)) < atol)


# --- SciPy's eigensolvers ---


def test_eigsh_finds_the_eigenvectors_of_the_matrix() -> None:
    private = operator()
    values, vectors = eigsh(private.a, k=3, which="LA", v0=np.ones(D), tol=1e-10)
    dense, all_vectors = scipy.linalg.eigh(private.a @ np.eye(D))
    np.testing.assert_allclose(values, dense[-3:], rtol=1e-8)
    assert same_directions(vectors, all_vectors[:, -3:])


def test_lobpcg_finds_the_eigenvectors_of_the_pair() -> None:
    private = operator(discriminant(), mu=30.0)
    start = np.random.default_rng(0).standard_normal((D, 3))
    values, vectors = lobpcg(private.a, start, B=private.b, largest=True, tol=1e-9, maxiter=200)
    dense, all_vectors = scipy.linalg.eigh(private.a @ np.eye(D), private.b @ np.eye(D))
    np.testing.assert_allclose(np.sort(values), dense[-3:], rtol=1e-6)
    assert same_directions(vectors, all_vectors[:, -3:], 1e-4)


def test_operators_are_linear_symmetric_and_agree_in_all_forms() -> None:
    private = operator(discriminant())
    v = np.random.default_rng(0).standard_normal((D, 3))
    for known in (private.a, private.b):
        assert isinstance(known, LinearOperator)
        assert known.shape == (D, D)
        full = known @ np.eye(D)
        np.testing.assert_allclose(full, full.T, atol=1e-14)
        np.testing.assert_allclose(known @ v, full @ v, atol=1e-12)
        np.testing.assert_allclose(known.matmat(v[:, :1]), full @ v[:, :1], atol=1e-12)
        np.testing.assert_allclose(known.T @ v[:, 0], full @ v[:, 0], atol=1e-12)
    a, b = private.times(v)
    np.testing.assert_allclose(a, private.a @ v)
    np.testing.assert_allclose(b, private.b @ v)


def test_the_identity_has_no_operator_and_no_regularization() -> None:
    private = operator(mu=5.0, regularization=0.7)
    assert private.b is None
    assert private.regularization == 0.0


def test_regularization_is_added_to_b() -> None:
    plain, ridged = (operator(discriminant(), mu=5.0, regularization=xi) for xi in (0.0, 0.25))
    np.testing.assert_allclose(ridged.b @ np.eye(D), plain.b @ np.eye(D) + 0.25 * np.eye(D), atol=1e-14)
    default = operator(discriminant())
    assert default.regularization == default.noise_level
    assert np.linalg.eigvalsh(default.b @ np.eye(D))[0] > 0


# --- law ---


def released_entries(n_draws: int, factor: float = 1.0) -> tuple[Matrix, Matrix]:
    """Noise in the upper triangles of A, each from a product with the identity, and the covariance it should have."""
    problem = dpgep.pca(rows(200, 4), center=False, bound=1.0)
    exact = operator(problem, epsilon=math.inf).a @ np.eye(4)
    upper = np.triu_indices(4)
    samples = [(operator(problem, seed, mu=1.0).a @ np.eye(4) - exact)[upper] for seed in range(n_draws)]
    sigma = operator(problem, mu=1.0).noise_level / math.sqrt(2 * 4)
    variances = np.where(upper[0] == upper[1], sigma**2, sigma**2 / 2)
    return factor * np.array(samples), np.diag(variances)


@pytest.mark.statistical
def test_the_noise_is_that_of_a_released_matrix() -> None:
    assert not rejects_covariance(*released_entries(2000))


@pytest.mark.statistical
def test_a_fifth_more_noise_would_be_seen() -> None:
    assert rejects_covariance(*released_entries(2000, 1.2))


def test_the_noise_level_is_that_of_a_release_but_for_its_grid() -> None:
    problem = dpgep.pca(rows(), bound=1.0)
    released = solve_seeded(problem, mu=5.0, n_components=1, storage="matrix").diagnostics.noise_level
    assert operator(problem).noise_level == pytest.approx(released, rel=1e-4)


# --- cost ---


def test_the_budget_is_charged_once_at_construction() -> None:
    budget = dpgep.Budget(mu=2.0)
    private = operator(budget=budget, share=0.5)
    spent = budget.spent_mu
    assert spent == pytest.approx(math.sqrt(2.0), rel=1e-9)
    private.a @ np.eye(D)
    private.solve(2)
    assert budget.spent_mu == spent
    assert len(budget.releases) == 1
    assert private.privacy.releases == budget.releases
    assert private.privacy.rounding == "grid"


def test_bad_arguments_spend_nothing() -> None:
    budget = dpgep.Budget(mu=2.0)
    for arguments, message in (
        ({"memory_limit": 24 * D}, "memory_limit"),
        ({"memory_limit": 0.5}, "memory_limit"),
        ({"regularization": -1.0}, "regularization"),
    ):
        with nothing_spent(budget), pytest.raises(ValueError, match=message):
            operator(budget=budget, **arguments)
    with pytest.raises(TypeError, match="needs a question, and a table asks none"):
        dpgep.release(rows(), mu=1.0, storage="operator")
    bad = rows()
    bad[3, 3] = np.nan
    with nothing_spent(budget), pytest.raises(ValueError, match="NaN"):
        operator(dpgep.pca(bad, bound=1.0), budget=budget)


def test_two_copies_are_refused() -> None:
    private = operator()
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copied(private)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(private.a)
    v = np.ones(D)
    np.testing.assert_array_equal(copy.copy(private.a) @ v, private.a @ v)


# --- memory ---


def test_beyond_the_memory_new_directions_are_refused_and_old_ones_answered() -> None:
    private = operator(mu=5.0, memory_limit=10 * 24 * D)
    identity = np.eye(D)
    known = private.a @ identity[:, :10]
    assert private.n_directions == 10
    with pytest.raises(MemoryError, match=r"memory_limit = 9600 .* 10 directions of 40 features"):
        private.a @ identity[:, 10]
    assert private.n_directions == 10
    combination = np.arange(10.0)
    np.testing.assert_allclose(private.a @ (identity[:, :10] @ combination), known @ combination, atol=1e-13)


def test_without_noise_nothing_is_remembered() -> None:
    private = operator(epsilon=math.inf, memory_limit=10 * 24 * D)
    x = rows()
    covariance = np.cov(x.T, bias=True)
    np.testing.assert_allclose(private.a @ np.eye(D), covariance, atol=1e-12)
    assert private.n_directions == 0


def test_threads_share_one_matrix() -> None:
    private, identity = operator(), np.eye(D)
    with ThreadPoolExecutor(4) as pool:
        columns = list(pool.map(lambda j: private.a @ identity[:, j], range(D)))
    full = np.array(columns).T
    np.testing.assert_allclose(full, full.T, atol=1e-13)
    np.testing.assert_allclose(private.a @ identity, full, atol=1e-13)


# --- our methods ---


@pytest.mark.parametrize("method", ["release", "rayleigh-flow"])
def test_methods_solve_the_same_matrix(method: str) -> None:
    private = operator()
    options = {} if method == "release" else {"n_iterations": 3000}
    solution = private.solve(2, method=method, **options)
    values, vectors = scipy.linalg.eigh(private.a @ np.eye(D))
    np.testing.assert_allclose(solution.eigenvalues, values[:-3:-1], rtol=1e-6)
    assert same_directions(solution.components.T, vectors[:, -2:], 1e-3)
    assert solution.privacy is private.privacy


def test_a_sparse_flow_on_the_operator() -> None:
    solution = operator().solve(1, method="truncated-rayleigh-flow", sparsity=2)
    assert np.count_nonzero(solution.components) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "dp-spca"}, "needs only products"),
        ({"screen": 5}, "operator"),
        ({"storage": "matrix"}, "a released matrix"),
        ({"method": "rayleigh-flow", "noise": "fresh"}, "fresh noise"),
        ({"method": "rayleigh-flow", "init": "screen"}, "a further release"),
    ],
)
def test_methods_that_want_more_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operator().solve(1, **options)


def test_blocks_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"V must have shape \(40, K\)"):
        operator().times(np.ones(D))


def test_the_printed_form_names_noise_and_cost() -> None:
    text = repr(operator())
    assert "MatrixFreeRelease(d=40" in text
    assert "0 directions queried" in text
    assert "SEEDED" in text
