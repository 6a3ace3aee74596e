"""Leading components of wide rows: without the other vectors of a matrix, or by products until noise hides the rest."""

from __future__ import annotations

import math
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import Matrix, solve_seeded, unit_rows

import dpgep
from dpgep._dispatch import core
from dpgep.methods import base as of_release
from dpgep.methods import eigen
from dpgep.methods.eigen import products_accuracy
from dpgep.methods.matrix_free import Leading, _start, leading_solutions
from dpgep.privacy.curator import Curator
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.products import NoisyProducts, ProductNoise, Products

D = 500


def spiked(heights: Any, d: int = D, n: int = 4000, *, bulk: float = 0.1, seed: int = 0) -> Matrix:
    """Rows with directions of these deviations, and as much as ``bulk`` spread evenly."""
    rng = np.random.default_rng([11, seed])
    directions = np.linalg.qr(rng.standard_normal((d, len(heights))))[0].T
    x = (rng.standard_normal((n, len(heights))) * heights) @ directions
    x += rng.standard_normal((n, d)) * (bulk / math.sqrt(d))
    return x / np.maximum(np.linalg.norm(x, axis=1), 1.0)[:, None]


# --- a matrix: all eigenvalues, the leading vectors ---


def problem_of(name: str, d: int = 150) -> Any:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5000, d)) * np.r_[6.0, 5.0, 4.0, np.linspace(1.0, 0.5, d - 3)]
    x = unit_rows(x) + 0.05
    x /= np.linalg.norm(x, axis=1).max()
    if name == "pls":
        half = d // 2
        y = x[:, :half] @ rng.standard_normal((half, half)) / 30
        return dpgep.pls(x[:, :half], y, bound=1.0)
    if name == "gep":
        return dpgep.gep(x.T @ x / len(x), None, n=len(x), sensitivity_a=2.0)
    return dpgep.pca(x, bound=1.0, center=name != "pca, uncentred", standardize=name == "pca, standardized")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["pca", "pca, uncentred", "pca, standardized", "pls", "gep"])
@pytest.mark.parametrize("k", [1, 6, 30])
def test_the_leading_vectors_tell_what_all_tell(name: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solution and diagnostics, where the noise among vectors left out is known in the mean alone."""
    monkeypatch.setattr("dpgep.methods.eigen._CORNER", 30)  # of 150 vectors
    given, found = problem_of(name), []
    for many in (10**9, 100):
        monkeypatch.setattr(eigen, "_MANY", many)
        found.append(solve_seeded(given, seed=1, mu=6.0, n_components=k))
    whole, leading = found
    np.testing.assert_allclose(leading.eigenvalues, whole.eigenvalues, rtol=1e-9)
    cosines = np.sum(leading.components * whole.components, axis=1) / np.sum(whole.components**2, axis=1)
    np.testing.assert_allclose(np.abs(cosines), 1.0, rtol=1e-9)
    a, b = leading.diagnostics, whole.diagnostics
    np.testing.assert_allclose(a.spectrum, b.spectrum, atol=1e-12 * b.spectrum[0])
    np.testing.assert_allclose(a.eigengaps, b.eigengaps, rtol=1e-6)
    assert (a.rank, a.lost) == (b.rank, b.lost)
    # of two views the noise is not the same in all directions
    np.testing.assert_allclose(a.expected_error, b.expected_error, rtol=0.02 if name == "pls" else 3e-3)
    assert a.expected_subspace_error == pytest.approx(b.expected_subspace_error, rel=0.02)


def test_few_vectors_are_left_out_of_a_small_matrix_or_for_many_components() -> None:
    matrix = np.diag(np.arange(eigen._MANY, dtype=np.float64))
    options = {"regularization": 0.0, "rounding": 0.0}
    some = eigen.solve_pair(matrix.copy(), None, n_vectors=len(matrix) // 4, **options)
    assert some.vectors.shape == (len(matrix), len(matrix) // 4)
    np.testing.assert_allclose(some.values, np.arange(len(matrix))[::-1], atol=1e-10)
    small = np.diag(np.arange(200.0))
    assert eigen.solve_pair(small.copy(), None, n_vectors=2, **options).vectors.shape == small.shape


@pytest.mark.parametrize("spectrum", ["distinct", "multiple", "nearly multiple", "of low rank"])
def test_leading_vectors_are_orthonormal_eigenvectors(spectrum: str) -> None:
    """Without another matrix; also where the tridiagonal one falls apart, or eigenvalues are as near as rounding."""
    rng, d, k = np.random.default_rng(0), eigen._MANY, 30
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    values = np.linspace(1.0, 2.0, d) ** 8
    if spectrum != "distinct":
        values = np.repeat([2.0, 1.0, 0.0], [5, 15, d - 20])
    if spectrum == "nearly multiple":
        values += 1e-14 * rng.standard_normal(d)
    matrix = (basis * values) @ basis.T if spectrum != "of low rank" else basis[:, :3] @ basis[:, :3].T
    expected = np.linalg.eigvalsh(matrix)[::-1]
    given = matrix.copy()
    tracemalloc.start()
    found = eigen.solve_pair(given, None, n_vectors=k, regularization=0.0, rounding=0.0)
    assert tracemalloc.get_traced_memory()[1] < given.nbytes / 2
    tracemalloc.stop()
    assert found.vectors.shape == (d, k)
    np.testing.assert_allclose(found.values, expected, atol=1e-13 * expected[0])
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(k), atol=1e-13)
    residuals = matrix @ found.vectors - found.vectors * found.values[:k]
    np.testing.assert_allclose(residuals, 0.0, atol=1e-13 * expected[0])


def test_eigenvalues_that_are_not_found_are_no_answer() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="did not find"):
        eigen.solve_pair(np.full((eigen._MANY,) * 2, np.nan), None, n_vectors=1, regularization=0.0, rounding=0.0)


# --- a matrix of low rank: the scatter of means ---


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])  # noisy counts: a scatter with negative directions
@pytest.mark.parametrize("regularization", [None, 0.0])  # 0: a B of lower rank than its size
def test_a_low_rank_tells_what_all_eigenvectors_tell(
    adjacency: Any, regularization: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, d = np.random.default_rng(5), 60
    labels = rng.integers(0, 4, 3000)
    x = unit_rows(rng.standard_normal((3000, d))) / 2 + np.eye(4, d)[labels] / 2
    problem, found = dpgep.fda(x, labels, classes=range(4), bound=1.0, adjacency=adjacency), []
    for smallest in (10**9, 0):
        monkeypatch.setattr(eigen, "_LOW_RANK", smallest)
        found.append(solve_seeded(problem, seed=1, mu=0.2, regularization=regularization))
    whole, few = found
    np.testing.assert_allclose(few.eigenvalues, whole.eigenvalues, rtol=1e-9)
    cosines = np.sum(few.components * whole.components, axis=1)
    np.testing.assert_allclose(cosines, 1.0, rtol=1e-9)
    a, b = few.diagnostics, whole.diagnostics
    np.testing.assert_allclose(a.spectrum, b.spectrum, atol=1e-12 * b.spectrum[0])
    np.testing.assert_allclose(a.eigengaps, b.eigengaps, rtol=1e-9)
    np.testing.assert_allclose(a.noise_edge, b.noise_edge, rtol=1e-9)
    assert (a.rank, a.lost) == (b.rank, b.lost)
    assert (a.rank == d) == (regularization is None)


def test_solutions_of_a_low_rank_are_those_of_the_pair(rng: np.random.Generator) -> None:
    """All of them: B-orthonormal, with A diagonal, and descending although one is negative."""
    d, weights = 600, np.array([1.0, 0.5, -0.3, 1.0])
    factors, root = rng.standard_normal((4, d)), rng.standard_normal((d, 2 * d)) / math.sqrt(d)
    a, b = (factors.T * weights) @ factors, root @ root.T
    system = eigen.solve_pair(a.copy(), b.copy(), regularization=0.1, rounding=1e-12, low_rank=(factors, weights))
    v, values = system.vectors, system.values
    assert np.all(np.diff(values) <= 0)
    assert (values[-1] < 0, np.count_nonzero(values)) == (True, 4)
    np.testing.assert_allclose(v.T @ b @ v + 0.1 * v.T @ v, np.eye(d), atol=1e-9)
    np.testing.assert_allclose(v.T @ a @ v, np.diag(values), atol=1e-9 * values[0])


# --- products: settled components ---


def searched(rows: Matrix, k: int, mu: float, seed: int = 0) -> tuple[Leading, NoisyProducts, Any, Matrix, Matrix]:
    """What the search found, and eigenvalues and vectors of the very matrix whose products it saw."""
    curator = Curator(dpgep.pca(rows, bound=1.0), Ledger(mu), core.NoiseStream(bytes([seed] * 32)))
    products = curator.answer(Products(ProductNoise("lazy", "goe", 0)))
    found = leading_solutions(
        products,
        curator.model,
        _start(curator, products, k),
        k,
        regularization=0.0,
        fallback=0.0,
        most_directions=math.inf,
    )
    values, vectors = np.linalg.eigh(products.times(np.eye(rows.shape[1]))[0])
    return found, products, curator.model, values[::-1][:k], vectors[:, ::-1][:, :k].T


@pytest.mark.parametrize(
    "heights",
    [np.linspace(0.5, 0.25, 8), np.full(8, 0.3), np.r_[0.9, 0.3, 0.2], np.r_[0.6, np.full(7, 0.2)]],
    ids=["different", "equal", "one large", "equal but one"],
)
def test_components_settle_closer_than_noise_turned_them(heights: Matrix) -> None:
    """Also eight of one height: noise tells them apart, though the search begins with four rows."""
    k = len(heights)
    found, products, model, values, vectors = searched(spiked(heights), k, 8.0)
    accuracy = products_accuracy(model, products, found.system.values[:k], np.ones(k), ridge=0.0, centre=found.centre)
    assert not any(accuracy.lost)
    assert found.converged
    assert found.movement <= 0.1 * math.sqrt(accuracy.errors.max())
    assert found.n_directions < 90
    moved = 1 - np.einsum("ij,ij->i", found.vectors, vectors) ** 2
    assert (moved < 0.02 * accuracy.errors).all()
    deviation = products.noise_level / math.sqrt(2 * D)
    assert (np.abs(found.system.values[:k] - values) < 0.1 * deviation).all()


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 8), marks=pytest.mark.deep)])
def test_no_component_that_stands_out_is_missed(seeds: range) -> None:
    """Those 1.15 times as high as the edge, of many seeds, beside one that settles at once."""
    for seed in seeds:
        rows = spiked(np.r_[0.9, 0.29, 0.27, 0.25], d=300, seed=seed)
        found, products, _, values, _ = searched(rows, 6, 2.5, seed)
        heights = (values - found.centre) / products.noise_level
        assert found.converged
        for height, value, exact in zip(heights, found.system.values, values, strict=False):
            if height > 1.15:
                assert value == pytest.approx(exact, rel=1e-3)


def test_noise_alone_stands_out_of_nothing_and_ends_the_search() -> None:
    rng = np.random.default_rng(0)
    given = dpgep.pca(unit_rows(rng.standard_normal((3000, D))), bound=1.0)
    for seed in range(10):
        diagnostics = solve_seeded(given, seed=seed, mu=0.3, n_components=10, storage="operator").diagnostics
        assert all(diagnostics.lost)
        assert diagnostics.converged
        assert diagnostics.n_directions < 60


def test_components_that_noise_hides_are_as_many_as_asked_for() -> None:
    rng = np.random.default_rng(0)
    given = dpgep.pca(unit_rows(rng.standard_normal((3000, 150))), bound=1.0)
    for k in (1, 50, 150):
        components = solve_seeded(given, mu=0.3, n_components=k, storage="operator").components
        np.testing.assert_allclose(components @ components.T, np.eye(k), atol=1e-10)


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 10), marks=pytest.mark.deep)])
def test_the_centre_of_noise_is_no_ritz_value(seeds: range) -> None:
    """The mean of all eigenvalues but the leading, up to its deviation, and rather too high."""
    d = 250
    for seed in seeds:
        rows = spiked(np.r_[0.8, 0.5], d=d, bulk=0.5, seed=seed)
        found, products, *_ = searched(rows, 2, 3.0, seed)
        deviation = products.noise_level / math.sqrt(2 * d * 4)
        whole = np.linalg.eigvalsh(products.times(np.eye(d))[0])[:-2].mean()
        assert -deviation < found.centre - whole < 7 * deviation


# --- what chooses ---


def storage_of(given: Any, k: int, **options: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        solution = dpgep.solve(given, n_components=k, **{"mu": 2.0, **options})
    return str(solution.diagnostics.storage)


def test_few_components_of_wide_rows_come_from_products(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (of_release.WIDE, of_release.WIDE_FOR_EACH, of_release.MOST_ROWS) == (2000, 100, 10**6)
    for name, value in {"WIDE": 120, "WIDE_FOR_EACH": 60, "MOST_ROWS": 600}.items():
        monkeypatch.setattr(of_release, name, value)
    rows = spiked(np.r_[0.9, 0.5], d=120, n=600)
    wide = dpgep.pca(rows, bound=1.0)
    assert [storage_of(wide, k) for k in (1, 2, 3)] == ["operator", "operator", "matrix"]
    assert storage_of(dpgep.pca(rows[:, :-1].copy(), bound=1.0), 1) == "matrix"
    for name, other, options in [
        ("asked for", wide, {"storage": "matrix"}),
        ("many rows", dpgep.pca(np.vstack([rows, rows[:1]]), bound=1.0), {}),
        ("no noise", wide, {"mu": None, "epsilon": math.inf}),
        ("sparse", wide, {"sparsity": 10}),
        ("n is protected", dpgep.pca(rows, bound=1.0, adjacency="add-remove"), {}),
        ("standardized", dpgep.pca(rows, bound=1.0, standardize=True), {}),
        ("two views", dpgep.pls(rows[:, :60], rows[:, 60:], bound=1.0), {}),
        ("noisy B", dpgep.fda(rows, np.arange(600) % 2, classes=range(2), bound=1.0), {}),
        ("not in memory", dpgep.pca(dpgep.scan([rows[:300], rows[300:]]), bound=1.0), {}),
        ("a matrix", dpgep.gep(rows.T @ rows / 600, None, n=600, sensitivity_a=2.0), {}),
    ]:
        assert storage_of(other, 1, **options) == "matrix", name


def test_both_storages_agree_where_products_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgep.methods.base.WIDE", D)
    given = dpgep.pca(spiked(np.r_[0.8, 0.5, 0.4], n=1500), bound=1.0)
    chosen, matrix = (
        solve_seeded(given, mu=20.0, n_components=3, method="release", **s) for s in ({}, {"storage": "matrix"})
    )
    assert (chosen.diagnostics.storage, matrix.diagnostics.storage) == ("operator", "matrix")
    np.testing.assert_allclose(chosen.eigenvalues, matrix.eigenvalues, rtol=0.05)
    np.testing.assert_allclose(chosen.diagnostics.expected_error, matrix.diagnostics.expected_error, rtol=0.3)
    assert chosen.diagnostics.noise_level == pytest.approx(matrix.diagnostics.noise_level, rel=1e-3)
