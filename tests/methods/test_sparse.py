"""Sparse eigenvectors against enumeration, and the support size chosen from the noise against what it claims."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from conftest import Matrix
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpgep
from dpgep.methods.sparse import ResidualDeviation, SparseFit, sparse_eigenvectors
from dpgep.problems.builders import table_problem


def goe(rng: np.random.Generator, d: int, deviation: float = 1.0) -> Matrix:
    z = rng.standard_normal((d, d))
    return np.asarray(deviation * (z + z.T) / 2)


def spike(rng: np.random.Generator, d: int, size: int) -> Matrix:
    """A unit vector with ``size`` entries of equal magnitude."""
    u = np.zeros(d)
    u[rng.choice(d, size, replace=False)] = rng.choice([-1.0, 1.0], size) / np.sqrt(size)
    return u


def correlations(rng: np.random.Generator, d: int) -> Matrix:
    x = rng.standard_normal((4 * d, d)) * rng.uniform(0.5, 2.0, d)
    return np.asarray(x.T @ x / len(x))


def goe_deviation(deviation_a: float, deviation_b: float = 0.0) -> ResidualDeviation:
    """Residual deviations for independent GOE noise in A and B, given its deviation on their diagonals.

    Var e_j^T (dA - rho dB) v = (s_A^2 + rho^2 s_B^2) / 2 (|v|^2 + v_j^2).
    """

    def deviation(vectors: Matrix, values: Matrix) -> Matrix:
        scale = (deviation_a**2 + (values * deviation_b) ** 2) / 2
        squares = vectors**2
        return np.asarray(np.sqrt(scale[:, None] * (squares.sum(axis=1, keepdims=True) + squares)))

    return deviation


def enumerated(a: Matrix, b: Matrix | None, k: int, n_components: int) -> float:
    """The best sum of the leading eigenvalues over all supports."""
    return best_of(map(list, itertools.combinations(range(len(a)), k)), a, b, n_components)


def best_of(supports: Iterable[list[int]], a: Matrix, b: Matrix | None, n_components: int) -> float:
    return max(
        float(scipy.linalg.eigvalsh(a[np.ix_(s, s)], None if b is None else b[np.ix_(s, s)])[-n_components:].sum())
        for s in supports
    )


def assert_is_a_solution(fit: SparseFit, a: Matrix, b: Matrix | None, k: int, n_components: int) -> None:
    assert fit.vectors.shape == (n_components, len(a))
    np.testing.assert_allclose(np.linalg.norm(fit.vectors, axis=1), 1)
    support = fit.supports[0]
    assert [len(each) for each in fit.supports] == [k] * n_components
    assert (np.diff(support) > 0).all()
    assert (np.delete(fit.vectors, support, axis=1) == 0).all()
    bv = fit.vectors if b is None else fit.vectors @ b
    quotients = np.einsum("ij,ij->i", fit.vectors @ a, fit.vectors) / np.einsum("ij,ij->i", bv, fit.vectors)
    np.testing.assert_allclose(quotients, fit.eigenvalues, rtol=1e-9, atol=1e-12)
    assert fit.objective == pytest.approx(fit.eigenvalues.sum())
    gram = bv @ fit.vectors.T
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-10)
    assert fit.significant is None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("matrix", ["covariance", "noise", "between views"])
def test_the_best_of_all_supports(seed: int, n_components: int, general: bool, matrix: str):
    rng = np.random.default_rng(seed)
    a = goe(rng, 12) if matrix == "noise" else correlations(rng, 12)
    if matrix == "between views":
        a[:7, :7], a[7:, 7:] = 0.0, 0.0
    b = correlations(rng, 12) if general else None
    fit = sparse_eigenvectors(a, b, 3, n_components)
    assert_is_a_solution(fit, a, b, 3, n_components)
    assert fit.objective == pytest.approx(enumerated(a, b, 3, n_components), rel=1e-10)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("counts", [(2, 1), (1, 3), (5, 2)])
@pytest.mark.parametrize("n_components", [1, 2])
def test_the_best_of_all_supports_with_so_many_of_each_view(seed: int, counts: tuple[int, int], n_components: int):
    rng = np.random.default_rng(seed)
    a, b, views = correlations(rng, 12), correlations(rng, 12), (slice(0, 5), slice(5, 12))
    a[:5, :5], a[5:, 5:] = 0.0, 0.0
    b[:5, 5:], b[5:, :5] = 0.0, 0.0
    if n_components > min(counts):
        with pytest.raises(ValueError, match=r"sparsity of [XY] must be between 2 and"):
            sparse_eigenvectors(a, b, counts, n_components, views=views)
        return
    fit = sparse_eigenvectors(a, b, counts, n_components, views=views)
    assert_is_a_solution(fit, a, b, sum(counts), n_components)
    ends = [int(np.searchsorted(fit.supports[0], view.stop)) for view in views]
    assert np.diff([0, *ends]).tolist() == list(counts)
    of_views = [list(itertools.combinations(range(v.start, v.stop), n)) for v, n in zip(views, counts, strict=True)]
    best = best_of((list(one + two) for one, two in itertools.product(*of_views)), a, b, n_components)
    assert fit.objective == pytest.approx(best, rel=1e-10)


def test_all_coordinates_give_the_dense_problem():
    rng = np.random.default_rng(1)
    a, b = correlations(rng, 9), correlations(rng, 9)
    fit = sparse_eigenvectors(a, b, 9, 3)
    np.testing.assert_allclose(fit.eigenvalues, scipy.linalg.eigvalsh(a, b)[:-4:-1])
    single = sparse_eigenvectors(np.array([[-2.0]]), None, 1)
    np.testing.assert_array_equal(single.vectors, [[1.0]])
    assert single.objective == -2.0


def test_one_coordinate_is_the_largest_quotient():
    rng = np.random.default_rng(2)
    a, b = correlations(rng, 30), correlations(rng, 30)
    fit = sparse_eigenvectors(a, b, 1)
    assert fit.supports[0].tolist() == [int(np.argmax(np.diag(a) / np.diag(b)))]


def test_ridge_is_added_to_b():
    rng = np.random.default_rng(3)
    a, b = correlations(rng, 12), correlations(rng, 12)
    fit = sparse_eigenvectors(a, b, 3, ridge=0.5)
    assert fit.objective == pytest.approx(enumerated(a, b + 0.5 * np.eye(12), 3, 1))
    indefinite = b - np.eye(12)
    with pytest.raises(np.linalg.LinAlgError, match=r"not positive definite.*larger ridge"):
        sparse_eigenvectors(a, indefinite, 3)
    entangled = np.eye(12) + 2.0 * (np.ones((12, 12)) - np.eye(12))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite on a support: pass a larger ridge"):
        sparse_eigenvectors(a, entangled, 3)
    assert sparse_eigenvectors(a, entangled, 3, ridge=1.5).objective > 0


def test_inputs_are_left_alone():
    rng = np.random.default_rng(4)
    a, b = correlations(rng, 20), correlations(rng, 20)
    before = a.copy(), b.copy()
    for separate in (False, True):
        sparse_eigenvectors(a, b, 4, 2, ridge=0.1, separate_supports=separate)
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])


@settings(deadline=None, derandomize=True, max_examples=15)
@given(seed=st.integers(0, 10**6), general=st.booleans(), n_components=st.integers(1, 2), separate=st.booleans())
def test_order_and_signs_of_coordinates_do_not_matter(seed: int, general: bool, n_components: int, separate: bool):
    rng = np.random.default_rng(seed)
    d = 40
    a = goe(rng, d) + 6 * np.outer(u := spike(rng, d, 5), u)
    b = correlations(rng, d) if general else None
    order, signs = rng.permutation(d), rng.choice([-1.0, 1.0], d)

    def moved(matrix: Matrix) -> Matrix:
        return np.asarray((signs[:, None] * matrix * signs)[np.ix_(order, order)])

    arguments: dict[str, Any] = {"n_components": n_components, "separate_supports": separate}
    fit = sparse_eigenvectors(a, b, 5, **arguments)
    other = sparse_eigenvectors(moved(a), None if b is None else moved(b), 5, **arguments)
    np.testing.assert_allclose(other.eigenvalues, fit.eigenvalues, rtol=1e-9)
    expected = (fit.vectors * signs)[:, order]
    np.testing.assert_allclose(np.abs(np.einsum("ij,ij->i", other.vectors, expected)), 1, rtol=1e-7)


@pytest.mark.deep
@settings(deadline=None, derandomize=True, max_examples=20)
@given(seed=st.integers(0, 10**6), general=st.booleans())
def test_more_coordinates_never_lower_the_objective(seed: int, general: bool):
    rng = np.random.default_rng(seed)
    a, b = goe(rng, 16), correlations(rng, 16) if general else None
    objectives = [sparse_eigenvectors(a, b, k).objective for k in range(1, 17)]
    assert (np.diff(objectives) > -1e-10).all()


def test_a_planted_support_is_found():
    rng = np.random.default_rng(5)
    d = 600
    u = spike(rng, d, 8)
    # an entry of the spike has 3.5 deviations of the noise; the leading eigenvector of the sum is noise
    a = goe(rng, d) + 20.0 * np.outer(u, u)
    assert abs(np.linalg.eigh(a)[1][:, -1] @ u) < 0.5
    fit = sparse_eigenvectors(a, None, 8)
    assert set(fit.supports[0]) == set(np.flatnonzero(u))
    planted = scipy.linalg.eigvalsh(a[np.ix_(s := np.flatnonzero(u), s)])[-1]
    assert fit.objective == pytest.approx(planted, rel=1e-12)


def test_separate_supports():
    rng = np.random.default_rng(6)
    d = 200
    a = goe(rng, d, 0.1)
    u, v = np.zeros((2, d))
    u[3:7], v[50:53] = 0.5, 1 / np.sqrt(3)
    a += 9.0 * np.outer(u, u) + 5.0 * np.outer(v, v)
    fit = sparse_eigenvectors(a, None, 4, 2, separate_supports=True)
    assert fit.supports[0].tolist() == [3, 4, 5, 6]
    assert set(fit.supports[1]) > {50, 51, 52}
    np.testing.assert_allclose(fit.eigenvalues, [9, 5], rtol=0.1)
    shared = sparse_eigenvectors(a, None, 7, 2)
    assert set(shared.supports[0]) == {3, 4, 5, 6, 50, 51, 52}
    auto = sparse_eigenvectors(a, None, "auto", 2, separate_supports=True, residual_deviation=goe_deviation(0.1))
    assert [s.tolist() for s in auto.supports] == [[3, 4, 5, 6], [50, 51, 52]]
    assert auto.significant == (True, True)


@pytest.mark.parametrize("general", [False, True])
def test_auto_finds_two_planted_components(general: bool):
    rng = np.random.default_rng(7)
    d = 300
    u, v = np.zeros((2, d))
    u[:6], v[3:11] = 1, np.array([1, 1, 1, -1, -1, -1, 1, 1])
    a = goe(rng, d) + 10.0 * np.outer(u, u) + 7.0 * np.outer(v, v)
    b = np.eye(d) + goe(rng, d, 0.01) if general else None
    deviation = goe_deviation(1.0, 0.01 if general else 0.0)
    fit = sparse_eigenvectors(a, b, "auto", 2, residual_deviation=deviation)
    assert fit.supports[0].tolist() == list(range(11))
    assert fit.significant == (True, True)
    # the span of both, to first order in the noise
    basis = np.linalg.qr(np.stack([u, v], axis=1))[0]
    assert np.linalg.svd(fit.vectors @ basis)[1].min() > 0.98


def test_a_component_without_evidence_does_not_vote():
    rng = np.random.default_rng(8)
    d = 300
    u = spike(rng, d, 6)
    a = goe(rng, d) + 60.0 * np.outer(u, u)
    fit = sparse_eigenvectors(a, None, "auto", 3, residual_deviation=goe_deviation(1.0))
    assert set(fit.supports[0]) == set(np.flatnonzero(u))
    assert fit.significant == (True, False, False)


def test_auto_without_noise_keeps_what_is_connected():
    u = np.zeros(50)
    u[[3, 8, 20]] = [0.6, 0.0, 0.8]
    u[30] = 1e-6
    a = np.eye(50) + 3.0 * np.outer(u, u)
    fit = sparse_eigenvectors(a, None, "auto", residual_deviation=goe_deviation(0.0))
    assert fit.supports[0].tolist() == [3, 20, 30]
    assert fit.significant == (True,)


@pytest.mark.deep
@pytest.mark.statistical
def test_auto_calls_pure_noise_insignificant():
    """150 matrices of pure noise. The union bound gives each at most 1e-3, so 5 or more have probability < 1e-6."""
    rng = np.random.default_rng(9)
    false_alarms = 0
    for _ in range(150):
        a = np.diag(rng.uniform(0, 3, 20)) + goe(rng, 20)
        fit = sparse_eigenvectors(a, None, "auto", residual_deviation=goe_deviation(1.0))
        assert fit.significant is not None
        if not fit.significant[0]:
            assert fit.supports[0].tolist() == [int(np.argmax(np.diag(a)))]
            assert fit.objective == np.diag(a).max()
        false_alarms += fit.significant[0]
    assert stats.binom.sf(4, 150, 1e-3) < 1e-6
    assert false_alarms <= 4
    # negative control: the same matrices with their noise understated
    understated = sparse_eigenvectors(goe(rng, 40), None, "auto", residual_deviation=goe_deviation(0.3))
    assert understated.significant == (True,)


def false_discovery_proportions(claimed: float, level: float, repetitions: int) -> tuple[Matrix, Matrix]:
    """False discovery proportion and share of the true coordinates found, for 6 of 80 coordinates.

    The noise has deviation 1; the tests are told ``claimed``.
    """
    rng = np.random.default_rng(10)
    proportions, powers = [], []
    for _ in range(repetitions):
        u = spike(rng, 80, 6)
        a = goe(rng, 80) + 25.0 * np.outer(u, u)
        fit = sparse_eigenvectors(a, None, "auto", residual_deviation=goe_deviation(claimed), level=level)
        assert fit.significant == (True,)
        true = np.isin(fit.supports[0], np.flatnonzero(u))
        proportions.append(1 - true.mean())
        powers.append(true.sum() / 6)
    return np.array(proportions), np.array(powers)


@pytest.mark.deep
@pytest.mark.statistical
def test_false_discovery_rate():
    """By Hoeffding's inequality the mean of 120 proportions exceeds a rate of 0.1 by 0.24 with probability < 1e-6."""
    slack = np.sqrt(np.log(1 / 1e-6) / (2 * 120))
    assert slack < 0.24
    proportions, powers = false_discovery_proportions(1.0, 0.1, 120)
    assert proportions.mean() <= 0.1 + 0.24
    assert powers.mean() > 0.99
    # negative control: half of the noise is not accounted for
    assert false_discovery_proportions(0.5, 0.1, 20)[0].mean() > 0.1 + np.sqrt(np.log(1 / 1e-6) / (2 * 20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": np.zeros((3, 2))}, r"square and of the same size, got \(3, 2\) and None"),
        ({"b": np.eye(2)}, r"square and of the same size, got \(3, 3\) and \(2, 2\)"),
        ({"n_components": 4}, "n_components must be a whole number between 1 and 3, got 4"),
        ({"sparsity": 4}, "whole number between 1 and d = 3, got 4"),
        ({"sparsity": 1, "n_components": 2}, "whole number between 2 and d = 3, got 1"),
        ({"sparsity": 2.0}, "whole number between 1 and d = 3, got 2.0"),
        ({"sparsity": True}, "whole number between 1 and d = 3, got True"),
        ({"sparsity": "all"}, "whole number between 1 and d = 3, got 'all'"),
        ({"sparsity": "auto"}, "needs residual_deviation"),
        ({"ridge": -0.5}, "ridge must be a non-negative finite number, got -0.5"),
        ({"level": 0.0}, "level must lie strictly between 0 and 1, got 0.0"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str):
    defaults: dict[str, Any] = {"a": np.eye(3), "b": None, "sparsity": 2}
    with pytest.raises(ValueError, match=message):
        sparse_eigenvectors(**defaults | arguments)


def two_views(n: int = 20_000) -> tuple[Matrix, Matrix]:
    """Five and seven columns; the first three of the second view follow the first ones of the first, less and less."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((n, 5)) / 5
    y = rng.standard_normal((n, 7)) / 5
    y[:, :3] += x[:, :3] * [1.0, 0.7, 0.4]
    return x, y


@pytest.mark.parametrize("model", [dpgep.cca, dpgep.pls])
@pytest.mark.parametrize("options", [{}, {"screen": 3}, {"separate_supports": True, "n_components": 2}])
def test_a_sparsity_of_each_view(model: Any, options: dict[str, Any]) -> None:
    arguments = {"n_components": 1, "sparsity": (1, 2), **options}
    solution = dpgep.solve(model(*two_views(), bound=1.5), mu=3.0, **arguments)
    for x, y in zip(solution.x_weights, solution.y_weights, strict=True):
        assert (np.count_nonzero(x), np.count_nonzero(y)) == (1, 2)


def test_a_release_answers_with_a_sparsity_of_each_view() -> None:
    release = dpgep.release(table_problem(np.hstack(two_views()), bound=1.5), mu=3.0)
    answer = release.cca(range(5), range(5, 12), n_components=1, sparsity=[1, 2])
    assert (np.count_nonzero(answer.x_weights), np.count_nonzero(answer.y_weights)) == (1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparsity": (1, 8)}, "sparsity of Y must be between 1 and 7, got 8"),
        ({"sparsity": (1, 2), "n_components": 2}, "sparsity of X must be between 2 and 5, got 1"),
        ({"sparsity": (1, 2, 3)}, r"sparsity = \(1, 2, 3\) has 3 numbers, and the problem 2 views"),
        ({"sparsity": (0, 2)}, "sparsity must be a whole number of at least 1, got 0"),
        ({"sparsity": (1, 4), "screen": 3}, "sparsity of Y must be between 1 and 3, got 4"),
        ({"sparsity": (1, 2), "storage": "operator"}, "a sparsity of each view needs the released matrix"),
        ({"sparsity": (1, 2), "method": "dpsrs"}, "sparsity must be a whole number"),
    ],
)
def test_a_sparsity_of_each_view_that_cannot_be(options: dict[str, Any], message: str) -> None:
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match=message):
        dpgep.solve(dpgep.cca(*two_views(100), bound=1.5), budget=budget, **{"n_components": 1, **options})
    assert budget.spent_mu == 0
    with pytest.raises(ValueError, match=r"has 2 numbers, and the problem 1 view$"):
        dpgep.solve(dpgep.pca(two_views(100)[0], bound=1.5), budget=budget, n_components=1, sparsity=(1, 1))
