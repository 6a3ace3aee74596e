"""`pca(standardize=True)`: the correlation matrix of the released covariance, whatever the columns' scales."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import Matrix, nothing_spent, solve_seeded
from scipy.sparse import eye_array
from stored import bytes_of

import dpgep
from dpgep.models.moments import MomentNoise, ReleasedMoments, goe, standardization_of

D = 6
SCALES = np.array([1e-5, 3e3, 1.0, 20.0, 0.1, 1e-2])


def table(rng: np.random.Generator, n: int = 20000, d: int = D, shift: float = 0.5) -> Matrix:
    """Rows with two strong factors, unit variances, and means away from zero."""
    loadings = rng.standard_normal((d, 2)) * [2.0, 1.3]
    x = rng.standard_normal((n, 2)) @ loadings.T + rng.standard_normal((n, d))
    x /= x.std(axis=0)
    return np.asarray(x + shift * rng.standard_normal(d))


def bound_of(x: Matrix) -> float:
    return float(np.linalg.norm(x, axis=1).max()) * 1.01


def problem_of(x: Matrix, **facts: Any) -> Any:
    return dpgep.pca(x, bound=bound_of(x), standardize=True, **facts)


def exact(x: Matrix, **arguments: Any) -> dpgep.Solution:
    return dpgep.solve(problem_of(x), epsilon=math.inf, **arguments)


def unit(solution: dpgep.Solution) -> Matrix:
    """The components as unit eigenvectors of the correlation matrix."""
    return np.asarray(solution.components * solution.diagnostics.scale)


def leading(matrix: Matrix) -> tuple[Matrix, Matrix]:
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], vectors[:, ::-1].T


def assert_same_lines(found: Matrix, expected: Matrix, atol: float = 1e-9) -> None:
    np.testing.assert_allclose(np.abs(np.einsum("ij,ij->i", found, expected)), 1.0, atol=atol)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-9)


@pytest.mark.parametrize("scales", [np.ones(D), SCALES], ids=["unit", "eight decades"])
def test_without_noise_it_is_the_eigenvectors_of_corrcoef(scales: Matrix, rng: np.random.Generator) -> None:
    x = table(rng, 3000) * scales
    solution = exact(x)
    values, vectors = leading(np.corrcoef(x.T))
    np.testing.assert_allclose(solution.eigenvalues, values, atol=1e-9)
    assert_same_lines(unit(solution), vectors)
    np.testing.assert_allclose(solution.diagnostics.scale, x.std(axis=0), rtol=1e-9)
    np.testing.assert_allclose(solution.mean, x.mean(axis=0), rtol=1e-9)


def test_scores_are_those_of_scikit_learn(rng: np.random.Generator) -> None:
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = table(rng, 2000) * SCALES
    scores = exact(x, n_components=3).transform(x)
    expected = make_pipeline(StandardScaler(), PCA(3)).fit_transform(x)
    np.testing.assert_allclose(scores * np.sign(scores[0] * expected[0]), expected, atol=1e-7)


def test_uncentred_it_is_the_matrix_of_cosines(rng: np.random.Generator) -> None:
    x = table(rng, 2000) * SCALES
    solution = dpgep.solve(problem_of(x, center=False), epsilon=math.inf)
    norms = np.linalg.norm(x, axis=0)
    values, vectors = leading((x / norms).T @ (x / norms))
    np.testing.assert_allclose(solution.eigenvalues, values, atol=1e-9)
    assert_same_lines(unit(solution), vectors)
    assert solution.mean is None


def test_eigenvalues_sum_to_the_number_of_columns(rng: np.random.Generator) -> None:
    """The noise of the diagonal is that of the scale: the diagonal is exactly 1."""
    solution = solve_seeded(problem_of(table(rng)), 1, epsilon=1.0, delta=1e-6)
    assert solution.eigenvalues.sum() == pytest.approx(D, abs=1e-9)
    np.testing.assert_allclose(np.linalg.norm(unit(solution), axis=1), 1.0, rtol=1e-12)


def test_powers_of_two_as_scale_of_all_columns_change_nothing(rng: np.random.Generator) -> None:
    x = table(rng, 2000)
    one, two = (
        solve_seeded(dpgep.pca(x * scale, bound=16.0 * scale, standardize=True), 3, epsilon=2.0, delta=1e-6)
        for scale in (1.0, 2.0**40)
    )
    np.testing.assert_array_equal(one.components, two.components * 2.0**40)
    np.testing.assert_array_equal(one.eigenvalues, two.eigenvalues)


@pytest.mark.parametrize("value", [0.0, 0.3, -7.0])
@pytest.mark.parametrize("options", [{}, {"sparsity": 3}, {"sparsity": D + 2}], ids=str)
def test_without_noise_a_constant_column_has_no_weight(
    value: float, options: dict[str, Any], rng: np.random.Generator
) -> None:
    x = np.insert(table(rng, 3000), [1, D], value, axis=1)
    others = [0, *range(2, D + 1)]
    fewer = dict(options)
    if fewer:
        fewer["sparsity"] = min(fewer["sparsity"], D)
    with pytest.warns(dpgep.errors.AccuracyWarning, match=r"columns 1, 7 are constant, without any weight$"):
        solution = exact(x, n_components=2, **options)
    expected = dpgep.solve(problem_of(x[:, others]), epsilon=math.inf, n_components=2, **fewer)
    np.testing.assert_array_equal(solution.components[:, [1, D + 1]], 0.0)
    assert_same_lines(unit(solution)[:, others], unit(expected))
    np.testing.assert_allclose(solution.eigenvalues, expected.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(solution.mean[[1, D + 1]], value, rtol=1e-12)
    assert (solution.diagnostics.scale[[1, D + 1]] == 0).all()
    if options:
        assert set(solution.diagnostics.support) <= set(others)


def test_constant_columns_leave_fewer_components(rng: np.random.Generator) -> None:
    x = np.insert(table(rng, 500), 2, 1.0, axis=1)
    with pytest.warns(dpgep.errors.AccuracyWarning, match=f"column 2 is constant, .* leaves {D} of {D + 1} components"):
        assert exact(x).n_components == D
    with pytest.raises(np.linalg.LinAlgError, match="every column is constant"):
        exact(np.ones((50, 3)))


def test_with_noise_constant_columns_cost_little(rng: np.random.Generator) -> None:
    x = table(rng)
    wide = np.insert(x, [0] * 3, 0.4, axis=1)
    truth = unit(exact(x, n_components=2))
    lost = pytest.warns(dpgep.errors.AccuracyWarning, match=r"columns 0, 1, 2 are constant, or lost in the noise")
    with pytest.warns(dpgep.errors.PrivacyWarning, match="seed"), lost:
        solution = dpgep.solve(problem_of(wide), epsilon=3.0, delta=1e-6, n_components=2, seed=1)
    found = unit(solution)
    assert (np.abs(found[:, :3]) < 0.1).all()
    assert_same_lines(found[:, 3:] / np.linalg.norm(found[:, 3:], axis=1, keepdims=True), truth, atol=0.01)
    assert solution.diagnostics.lost == (False, False)


def test_all_constant_columns_with_noise_are_a_lost_solution() -> None:
    solution = solve_seeded(problem_of(np.ones((1000, 4))), 1, epsilon=1.0, delta=1e-6, n_components=2)
    assert solution.diagnostics.lost == (True, True)
    assert np.isfinite(solution.components).all()
    assert (np.linalg.norm(unit(solution), axis=1) <= 1 + 1e-12).all()


def released(case: str, rng: np.random.Generator) -> tuple[Any, ReleasedMoments]:
    loadings = rng.standard_normal((D, 3))
    scales = 10 ** rng.uniform(-0.3, 0, D)
    covariance = (loadings @ loadings.T + np.eye(D)) * 0.01 * np.outer(scales, scales)
    mean = np.zeros(D) if case == "uncentred" else 0.2 * rng.standard_normal(D)
    if case == "constant column":
        covariance[2] = covariance[:, 2] = 0.0
    noise = MomentNoise(1e-6, 0.0 if case == "uncentred" else 7e-7, 2e-6 if case == "noisy count" else 0.0)
    second = covariance + np.outer(mean, mean)
    uncentred = case == "uncentred"
    sums, counts = (np.empty((D, 0)), np.empty(0)) if uncentred else (mean[:, None], np.ones(1))
    return dpgep.models.StandardizedPcaModel(D, not uncentred), ReleasedMoments(sums, counts, 1000.0, noise, second)


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.parametrize("case", ["centred", "uncentred", "noisy count", "constant column"])
@pytest.mark.parametrize("left", ["eigenvectors", "coordinates"])
def test_the_variance_of_the_noise_in_correlations(case: str, left: str, rng: np.random.Generator) -> None:
    """u^T dR v for new noise of the law: its mean square over 4000 draws of a normal variable, 18 at a time.

    Each is chi-squared with 4000 degrees of freedom: a relative error beyond 0.15 has a probability of 2e-9.
    """
    model, before = released(case, rng)
    noise, draws = before.noise, 4000
    values, vectors = np.linalg.eigh(model.noisy(before).pair().a)
    left_vectors = vectors if left == "eigenvectors" else eye_array(D, format="csr")
    right = vectors[:, ::-1][:, :3]
    expected = model.noisy(before).error_variances(left_vectors, right, values[::-1][:3])
    original, squares = model.noisy(before).pair().a, np.zeros((3, D))
    for _ in range(draws):
        people = 1 + noise.counts * rng.standard_normal()
        noisy = replace(
            before,
            second=(before.second + goe(D, noise.second, rng)) / people,
            sums=(before.sums + noise.sums * rng.standard_normal(before.sums.shape)) / people,
        )
        change = (model.noisy(noisy).pair().a - original) @ right
        squares += (change if left == "coordinates" else left_vectors.T @ change).T ** 2
    np.testing.assert_allclose(squares / draws, expected, rtol=0.15)
    assert standardization_of(before).drowned.sum() == (case == "constant column")


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("n", "d", "shift", "facts"),
    [
        (20000, 8, 0.0, {}),
        (20000, 8, 1.0, {"adjacency": "add-remove"}),
        (20000, 8, 1.0, {"center": False}),
        (50000, 20, 0.5, {}),
    ],
)
def test_the_expected_error_holds(n: int, d: int, shift: float, facts: dict[str, Any]) -> None:
    """Between unit eigenvectors of the two correlation matrices, means over 50 draws.

    A squared sine is a sum of d - 1 squares of normal variables, at worst of one: the mean of 50 has a relative
    deviation of 0.2, so a calibration of 1 leaves [0.4, 2.2] with a probability below 1e-7 (chi-squared, 50 degrees).
    """
    x = table(np.random.default_rng(8), n, d, shift) * np.linspace(0.5, 1, d)
    problem = problem_of(x, **facts)
    truth = unit(dpgep.solve(problem, epsilon=math.inf, n_components=2))
    errors, expected = np.zeros(2), np.zeros(2)
    for seed in range(50):
        solution = solve_seeded(problem, seed, mu=0.4, n_components=2)
        assert not any(solution.diagnostics.lost)
        errors += 1 - np.einsum("ij,ij->i", unit(solution), truth) ** 2
        expected += solution.diagnostics.expected_error
    assert ((errors > 0.4 * expected) & (errors < 2.2 * expected)).all(), errors / expected


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"storage": "operator"}, "needs a released matrix, such as its diagonal, which products with vectors do not show"),
    ({"memory_limit": 1000}, 'use method="release" with storage="matrix"'),
    ({"screen": 3}, "those of standardized columns are all 1"),
    ({"method": "rayleigh-flow"}, "products with vectors"),
    ({"method": "rayleigh-flow", "noise": "fresh"}, "products with vectors"),
    ({"method": "rayleigh-flow", "init": "convex"}, "products with vectors"),
    ({"method": "truncated-rayleigh-flow", "sparsity": 3}, "products with vectors"),
    ({"method": "dpsr"}, "products with vectors"),
    ({"method": "dpsrs", "sparsity": 3}, "products with vectors"),
    ({"method": "dp-spca"}, r"dp-.* is for pca\(X, center=False\), .* not for this standardized-pca"),
    ({"method": "dp-vrpca"}, r"dp-.* is for pca\(X, center=False\), .* not for this standardized-pca"),
    ({"method": "local-gaussian"}, "not for this standardized-pca"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=str)
@pytest.mark.parametrize("center", [True, False])
def test_what_needs_more_than_the_matrix_is_refused_and_free(
    options: dict[str, Any], message: str, center: bool, rng: np.random.Generator
) -> None:
    budget = dpgep.Budget(epsilon=1.0, delta=1e-6)
    problem = problem_of(table(rng, 100), center=center)
    with nothing_spent(budget), pytest.raises(ValueError, match=message):
        dpgep.solve(problem, budget=budget, n_components=1, **options)


def test_no_operator_is_paid_for(rng: np.random.Generator) -> None:
    budget = dpgep.Budget(epsilon=1.0, delta=1e-6)
    with nothing_spent(budget), pytest.raises(ValueError, match="products with vectors do not show"):
        dpgep.release(problem_of(table(rng, 100)), budget=budget, storage="operator")


def test_standardize_is_a_flag() -> None:
    with pytest.raises(TypeError, match="standardize must be True or False, got 1"):
        dpgep.pca(np.eye(3), standardize=1, bound=1.0)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_every_form_of_the_data_gives_the_same_release(adjacency: str, rng: np.random.Generator) -> None:
    import dask.array as da

    x = np.round(table(rng, 600) * 16) / 16
    facts: dict[str, Any] = {"bound": 32.0, "adjacency": adjacency}
    sums = [dpgep.Moments(dpgep.models.StandardizedPcaModel(D, center=True), **facts) for _ in range(2)]
    for moments, part in zip(sums, (x[:250], x[250:]), strict=True):
        moments.update(part)
    sums[0].merge(dpgep.load(bytes_of(sums[1])))
    forms = [x, scipy.sparse.csr_array(x), iter([x[:100], x[100:]]), da.from_array(x, chunks=(200, D))]
    problems = [*(dpgep.pca(form, standardize=True, **facts) for form in forms), sums[0]]
    expected, *others = (solve_seeded(problem, 5, mu=30.0, n_components=2) for problem in problems)
    for solution in others:
        np.testing.assert_array_equal(solution.components, expected.components)
    assert_same_lines(unit(expected), leading(np.corrcoef(x.T))[1][:2], atol=0.02)


def test_releases_of_sites_are_added_and_then_standardized(rng: np.random.Generator) -> None:
    x = table(rng)
    facts: dict[str, Any] = {"bound": bound_of(x), "standardize": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        sites = [
            dpgep.release(dpgep.pca(part, **facts), mu=2.0, seed=i) for i, part in enumerate((x[:12000], x[12000:]))
        ]
        unscaled = dpgep.release(dpgep.pca(x, bound=facts["bound"]), mu=2.0, seed=3)
    total = dpgep.load(bytes_of(sites[0] + sites[1]))
    solution = total.solve(n_components=2)
    assert_same_lines(unit(solution), leading(np.corrcoef(x.T))[1][:2], atol=0.02)
    np.testing.assert_array_equal(total.solve(n_components=2).components, solution.components)
    with pytest.raises(ValueError, match="differ in model"):
        sites[0] + unscaled


def test_sparse_components_find_the_correlated_columns(rng: np.random.Generator) -> None:
    n, d = 50000, 30
    # exactly uncorrelated in the sample: what chance correlates, the search would find
    x = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, d + 1))]))[0][:, 1:] * math.sqrt(n)
    x, common = x[:, :d], x[:, d:]
    x[:, [2, 9, 20]] += 1.5 * common
    x *= 10 ** rng.uniform(-0.5, 0, d)
    for sparsity in (3, "auto"):
        solution = solve_seeded(problem_of(x), 2, epsilon=4.0, delta=1e-6, n_components=1, sparsity=sparsity)
        assert solution.diagnostics.support == (2, 9, 20)
        assert solution.diagnostics.lost == (False,)
        assert np.flatnonzero(solution.components[0]).tolist() == [2, 9, 20]
