"""The Fantope relaxation against a generic conic solver, its certificate, its projection."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from conftest import Matrix
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dpgep.methods.papers import fantope
from dpgep.methods.papers.fantope import _Projection, fantope_relaxation, leading_vectors


def spiked(rng: np.random.Generator, d: int) -> Matrix:
    """A sample covariance with three sparse directions."""
    u = np.zeros((d, 3))
    for i in range(3):
        u[3 * i : 3 * i + 3, i] = 1 / np.sqrt(3)
    x = rng.standard_normal((2 * d, d))
    x += (x @ u) * np.array([2.0, 1.5, 1.0]) @ u.T
    return np.asarray(x.T @ x / len(x))


def positive_definite(rng: np.random.Generator, d: int, condition: float) -> Matrix:
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return np.asarray(basis * np.geomspace(1 / np.sqrt(condition), np.sqrt(condition), d) @ basis.T)


def generic_optimum(a: Matrix, b: Matrix | None, k: int, penalty: float) -> float:
    """The same problem by cvxpy and Clarabel, to a relative gap of 1e-7."""
    d = len(a)
    h = cp.Variable((d, d), PSD=True)
    p: Any = h
    if b is not None:
        values, vectors = np.linalg.eigh(b)
        root = vectors / np.sqrt(values) @ vectors.T
        p = root @ h @ root
    problem = cp.Problem(
        cp.Minimize(-cp.trace(a @ p) + penalty * cp.sum(cp.abs(p))), [cp.trace(h) == k, np.eye(d) >> h]
    )
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-7, tol_gap_rel=1e-7, tol_feas=1e-7)
    assert problem.status == "optimal"
    return float(problem.value)


def assert_feasible(h: Matrix, k: int) -> None:
    values = np.linalg.eigvalsh(h)
    assert values.min() >= -1e-12
    assert values.max() <= 1 + 1e-12
    assert values.sum() == pytest.approx(k, abs=1e-10)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("condition", [None, 5.0, 50.0])
@pytest.mark.parametrize(("d", "k", "penalty"), [(10, 1, 0.4), (10, 3, 0.1), (16, 2, 1.0)])
def test_objective_of_a_generic_solver(d: int, k: int, penalty: float, condition: float | None):
    rng = np.random.default_rng(d + k)
    a = spiked(rng, d)
    b = None if condition is None else positive_definite(rng, d, condition)
    ours = fantope_relaxation(a, b, k, penalty, tolerance=2e-7, max_iterations=20000)
    optimum = generic_optimum(a, b, k, penalty)
    assert ours.converged
    assert ours.objective == pytest.approx(optimum, rel=1e-6)
    assert ours.objective - ours.gap <= optimum + 1e-6 * abs(optimum)  # Clarabel is that exact
    assert_feasible(ours.spectral, k)
    if b is None:
        np.testing.assert_array_equal(ours.feasible, ours.spectral)
    else:
        values, vectors = np.linalg.eigh(b)
        root = vectors * np.sqrt(values) @ vectors.T
        np.testing.assert_allclose(root @ ours.feasible @ root, ours.spectral, atol=1e-11)


@pytest.mark.deep
@pytest.mark.parametrize(("d", "condition"), [(30, None), (20, 5.0)])
def test_objective_of_a_generic_solver_on_more_features(d: int, condition: float | None):
    test_objective_of_a_generic_solver(d, 2, 0.3, condition)


def test_an_indefinite_a_is_no_obstacle():
    rng = np.random.default_rng(3)
    a = rng.standard_normal((12, 12))
    a = a + a.T
    fantope = fantope_relaxation(a, None, 2, 0.3, tolerance=2e-7)
    assert fantope.objective == pytest.approx(generic_optimum(a, None, 2, 0.3), rel=1e-6)


@pytest.mark.parametrize("condition", [None, 10.0])
def test_without_a_penalty_it_is_the_eigenvalue_problem(condition: float | None):
    import scipy.linalg

    rng = np.random.default_rng(5)
    a = spiked(rng, 40)
    b = None if condition is None else positive_definite(rng, 40, condition)
    fit = fantope_relaxation(a, b, 3, 0.0, tolerance=1e-9)
    assert -fit.objective == pytest.approx(scipy.linalg.eigh(a, b, eigvals_only=True)[-3:].sum(), rel=1e-8)


def test_a_large_penalty_leaves_the_diagonal():
    a = spiked(np.random.default_rng(6), 20)
    fantope = fantope_relaxation(a, None, 2, 100.0)
    top = np.sort(np.diag(a))[-2:]
    assert fantope.objective == pytest.approx(200 - top.sum(), rel=1e-6)


def test_ridge_is_added_to_b():
    rng = np.random.default_rng(7)
    a, b = spiked(rng, 12), positive_definite(rng, 12, 5.0)
    with_ridge = fantope_relaxation(a, b, 2, 0.2, ridge=0.7)
    added = fantope_relaxation(a, b + 0.7 * np.eye(12), 2, 0.2)
    assert with_ridge.objective == pytest.approx(added.objective, rel=3e-6)
    singular = b - np.eye(12) * np.linalg.eigvalsh(b)[2]
    with pytest.raises(np.linalg.LinAlgError, match=r"not positive definite \(-.*ridge"):
        fantope_relaxation(a, singular, 2, 0.2)
    assert fantope_relaxation(a, singular, 2, 0.2, ridge=2.0).converged


@pytest.mark.parametrize("condition", [None, 5.0])
def test_a_warm_start_saves_iterations(condition: float | None):
    rng = np.random.default_rng(8)
    a = spiked(rng, 40)
    b = None if condition is None else positive_definite(rng, 40, condition)
    cold = fantope_relaxation(a, b, 2, 0.2)
    again = fantope_relaxation(a, b, 2, 0.2, start=cold)
    assert again.n_iterations == 10  # the first check
    assert cold.n_iterations >= 40
    near = fantope_relaxation(a, b, 2, 0.201, start=cold)
    assert near.n_iterations < fantope_relaxation(a, b, 2, 0.201).n_iterations


def test_too_few_iterations_are_reported():
    fit = fantope_relaxation(spiked(np.random.default_rng(9), 30), None, 3, 0.1, max_iterations=15)
    assert not fit.converged
    assert fit.n_iterations == 15
    assert fit.gap > 1e-6 * abs(fit.objective)
    assert_feasible(fit.spectral, 3)


def test_few_eigenpairs_give_what_all_of_them_give(monkeypatch: pytest.MonkeyPatch):
    a = spiked(np.random.default_rng(10), 100)
    few = fantope_relaxation(a, None, 2, 0.2)
    monkeypatch.setattr("dpgep.methods.papers.fantope.FEW", 0.0)
    everything = fantope_relaxation(a, None, 2, 0.2)
    assert few.n_iterations == everything.n_iterations
    np.testing.assert_allclose(few.spectral, everything.spectral, atol=1e-9)


spectra = npst.arrays(np.float64, st.integers(1, 12), elements=st.floats(-4, 4, width=32))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(values=spectra, data=st.data())
def test_projection_of_a_spectrum(values: Matrix, data: st.DataObject):
    """Against the variational inequality <w - p, q - p> <= 0 at the set's extreme points q."""
    k = data.draw(st.integers(1, len(values)))
    fantope = _Projection(k).spectrum(values)
    assert fantope.sum() == pytest.approx(k, abs=1e-12)
    best = np.sort(values - fantope)[-k:].sum()
    assert best <= (values - fantope) @ fantope + 1e-10


def test_leading_vectors():
    rng = np.random.default_rng(11)
    basis = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    rows = leading_vectors(basis * np.array([0.1, 0.9, 0.0, 0.5, 0.0, 0.0]) @ basis.T, 2)
    assert rows.shape == (2, 6)
    np.testing.assert_allclose(np.abs(rows @ basis[:, [1, 3]]), np.eye(2), atol=1e-12)
    assert (np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1) > 0).all()
    with pytest.raises(ValueError, match="n_components must be a whole number between 1 and 6, got 7"):
        leading_vectors(np.eye(6), 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": np.zeros((3, 2))}, r"square and of the same size, got \(3, 2\) and None"),
        ({"b": np.eye(2)}, r"square and of the same size, got \(3, 3\) and \(2, 2\)"),
        ({"n_components": 0}, "n_components must be a whole number between 1 and 3, got 0"),
        ({"penalty": -1.0}, "penalty must be a non-negative finite number, got -1"),
        ({"penalty": np.nan}, "penalty must be a non-negative finite number, got nan"),
        ({"ridge": -0.5}, "ridge must be a non-negative finite number, got -0.5"),
        ({"max_iterations": 0}, "max_iterations must be a whole number of at least 1, got 0"),
        ({"tolerance": 0.0}, "tolerance must be a positive finite number, got 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str):
    defaults: dict[str, Any] = {"a": np.eye(3), "b": None, "n_components": 1, "penalty": 0.1}
    with pytest.raises(ValueError, match=message):
        fantope_relaxation(**defaults | arguments)


def test_degenerate_sizes():
    one = fantope_relaxation(np.array([[2.0]]), None, 1, 0.5)
    assert one.objective == pytest.approx(-1.5, rel=1e-6)
    every = fantope_relaxation(np.diag([3.0, 2.0, 1.0]), None, 3, 0.5)
    assert every.objective == pytest.approx(-4.5, rel=1e-6)
    zero = fantope_relaxation(np.zeros((3, 3)), None, 1, 0.5)
    assert zero.objective == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(("threaded_dimension", "entered"), [(7, 1), (6, 0)])
def test_small_problems_keep_blas_to_one_thread(
    threaded_dimension: int, entered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def blas_on_one_thread() -> Any:
        held.append(True)
        return nullcontext()

    monkeypatch.setattr(fantope, "THREADED_DIMENSION", threaded_dimension)
    monkeypatch.setattr(fantope, "blas_on_one_thread", blas_on_one_thread)
    assert fantope.fantope_relaxation(np.diag(np.arange(6.0)), None, 2, 0.1).converged
    assert len(held) == entered
