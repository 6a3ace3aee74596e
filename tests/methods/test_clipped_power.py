"""The power method on clipped products: exact sums, sensitivities that are proved, accounting, and what it finds."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import dask.array
import numpy as np
import pytest
import scipy.sparse
from conftest import nothing_spent, solve_seeded
from every_run import matrix_problem, of_a_matrix_alone, problems
from reference import clipped_product, fixed_point_rows

import dpgep
from dpgep._dispatch import core
from dpgep.data.integer_sums import (
    BITS,
    DIRECTION_BITS,
    ClippedSums,
    Directions,
    Factors,
    ProductMoment,
    ProductNormCounts,
)
from dpgep.data.rows import Batch, Rows
from dpgep.models.bins import LEAST_THRESHOLD, PRODUCT_EDGES
from dpgep.models.model import Adjacency
from dpgep.privacy import clipped_products
from dpgep.privacy.clipped_products import (
    AffordsClippedProducts,
    Asked,
    ClippedMean,
    ClippedMoment,
    ClippedProducts,
    Mean,
    ProductNorms,
    product_sensitivity,
    views_sensitivity,
)
from dpgep.privacy.curator import Curator
from dpgep.privacy.ledger import Ledger, LedgerEntry

Matrix = np.ndarray[Any, np.dtype[np.float64]]

N, D, K = 300, 7, 2
METHOD = "clipped-power"


def rows_of(n: int = N, d: int = D, seed: int = 0) -> Matrix:
    scales = np.linspace(1.0, 0.2, d)
    return np.asarray(np.random.default_rng(seed).standard_normal((n, d)) * scales / math.sqrt(float(scales @ scales)))


def directions_of(k: int = K, d: int = D, seed: int = 1) -> Matrix:
    return np.ascontiguousarray(np.linalg.qr(np.random.default_rng(seed).standard_normal((d, k)))[0].T)


def batch_of(rows: Any, bound: float = 1.0) -> Batch:
    return Batch(Rows((rows,), bound))


def one_view(threshold: float) -> tuple[Factors, ...]:
    return (Factors(slice(None), slice(None), threshold),)


def summed(make: Any, *batches: Batch) -> Any:
    sums = make()
    for batch in batches:
        sums.add(batch)
    return sums


# --- sums ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", [None, np.linspace(-0.3, 0.3, D)], ids=["at zero", "located"])
@pytest.mark.parametrize("threshold", [LEAST_THRESHOLD, 0.1, 1.0])
def test_sums_equal_the_plain_twin(threshold: float, location: Matrix | None) -> None:
    rows = rows_of()
    rows[:3] = np.array([[0.0], [5.0], [-1e-8]])
    directions = Directions.on_grid(directions_of(), location)
    on_grid = fixed_point_rows(rows, 1.0, BITS)
    expected, clipped, squares = clipped_product(
        on_grid, directions.vectors, directions.offset, threshold, BITS, DIRECTION_BITS
    )
    assert summed(partial(ClippedSums, directions, one_view(threshold)), batch_of(rows)).total.tolist() == expected
    moment = summed(partial(ProductMoment, directions, one_view(threshold)), batch_of(rows)).total
    assert moment.tolist() == [[sum(p[i] * p[j] for p in clipped) for j in range(K)] for i in range(K)]
    assert all(sum(entry * entry for entry in p) <= 4**BITS for p in clipped)
    counted = summed(partial(ProductNormCounts, directions), batch_of(rows))
    norms = np.sqrt([float(square) for square in squares]) / 2.0 ** (BITS + DIRECTION_BITS)
    np.testing.assert_array_equal(counted.total, np.histogram(norms, [-1.0, *PRODUCT_EDGES, 9.0])[0])
    assert counted.n == N


@pytest.mark.parametrize(
    "form",
    [
        np.asfortranarray,
        scipy.sparse.csr_array,
        lambda rows: scipy.sparse.csr_array(rows).tocoo().tocsr()[:, :],
        lambda rows: np.pad(rows, ((0, 0), (2, 3)))[:, 2:-3],
    ],
    ids=["columns", "sparse", "sparse copy", "strided"],
)
def test_storage_batches_and_order_change_no_bit(form: Any) -> None:
    rows, directions = rows_of(), Directions.on_grid(directions_of(), np.full(D, 0.1))
    for make in (partial(ClippedSums, directions, one_view(0.1)), partial(ProductMoment, directions, one_view(0.2))):
        expected = summed(make, batch_of(rows)).total
        assert np.any(expected)
        cut = [batch_of(form(rows[part])) for part in (slice(7, 200), slice(200, N), slice(0, 7))]
        np.testing.assert_array_equal(summed(make, *cut).total, expected)
        first, second = summed(make, cut[0]), summed(make, *cut[1:])
        first.merge(second)
        np.testing.assert_array_equal(first.total, expected)
        assert first.n == N


def test_solutions_have_the_same_bits_wherever_the_rows_are() -> None:
    rows = rows_of(2000, 12, seed=3)
    batches = [rows[start : start + 300] for start in range(0, 2000, 300)]
    arguments: dict[str, Any] = {"mu": 2.0, "n_components": 2, "method": METHOD}
    first = solve_seeded(dpgep.pca(rows, bound=1.0), 5, **arguments, n_threads=1)
    parts = dask.array.from_array(rows, chunks=(700, 12))
    for data in (dpgep.scan(batches), np.asfortranarray(rows), scipy.sparse.csr_array(rows), parts):
        other = solve_seeded(dpgep.pca(data, bound=1.0), 5, **arguments, n_threads=3)
        np.testing.assert_array_equal(first.components, other.components)
        np.testing.assert_array_equal(first.eigenvalues, other.eigenvalues)
        np.testing.assert_array_equal(first.mean, other.mean)
    assert first.passes == 1 + 2 + 12 + 1


# --- sensitivity -----------------------------------------------------------------------------------------------------


def change(pair: Matrix, vectors: Matrix, threshold: float) -> float:
    """What the sums of two people differ by, in bounds times thresholds."""
    directions = Directions.on_grid(vectors, None)
    make = partial(ClippedSums, directions, one_view(threshold))
    first, second = (summed(make, batch_of(row[None, :])).total for row in pair)
    return float(np.linalg.norm((first - second).astype(float))) / 4.0**BITS


def worst_pair(threshold: float, k: int) -> Matrix:
    """Two rows in the unit ball whose sums differ most, for V the first coordinates (mathematics, section 11)."""
    length = min(threshold, math.sqrt(0.5)) if k == 1 else threshold
    cosine = min(1.0, (1 - length**2) / (2 * length**2)) if k > 1 else 1.0
    across = math.sqrt(1 - length**2)
    turned = [length * cosine, length * math.sqrt(1 - cosine**2)]
    return np.array([[length, 0.0, 0.0, across], [*turned, 0.0, -across]])


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("threshold", [1 / 128, 0.1, 0.4, 0.55, 0.6, 0.75, 1.0])
def test_the_worst_pair_attains_the_sensitivity(threshold: float, k: int) -> None:
    if k == 1 and threshold == 1.0:
        assert product_sensitivity(1.0, 1, 4, "replace-one") == pytest.approx(1.0, abs=1e-4)
    claimed = product_sensitivity(threshold, k, 4, "replace-one")
    found = change(worst_pair(threshold, k) * (1 - 1e-12), np.eye(4)[:k], threshold)
    assert claimed * (1 - 1e-3) < found <= claimed


@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_pair_exceeds_the_sensitivity(k: int) -> None:
    rng = np.random.default_rng(k)
    for threshold in (0.05, 0.3, 0.55, 0.65, 0.8, 1.0):
        vectors = directions_of(k, 5, seed=k)
        claimed = product_sensitivity(threshold, k, 5, "replace-one")
        assert claimed <= 2.0
        pairs = rng.standard_normal((200, 2, 5))
        pairs[:100, 1] = -pairs[:100, 0] + 2 * (pairs[:100, 0] @ vectors.T) @ vectors  # mirrored at the span of V
        for pair in pairs[::3]:
            scaled = pair / np.linalg.norm(pair, axis=1, keepdims=True) * rng.choice([1.0, 0.9, 2.0], (2, 1))
            assert change(scaled, vectors, threshold) <= claimed
            assert change(np.array([scaled[0], np.zeros(5)]), vectors, threshold) <= 1.0


def test_a_person_added_or_removed_and_a_location() -> None:
    assert product_sensitivity(0.3, 2, 5, "add-remove") == 1.0
    assert product_sensitivity(0.3, 2, 5, "replace-one", located=True) == 2.0
    # with a location, products of rows that oppose each other may oppose each other, too: nothing below 2 would do
    directions = Directions.on_grid(np.eye(3)[:1], np.array([0.5, 0.0, 0.0]))
    pair = np.array([[part, 0.0, math.sqrt(1 - part**2)] for part in (0.511, 0.489)])
    moved = [summed(partial(ClippedSums, directions, one_view(0.01)), batch_of(row[None, :])).total for row in pair]
    assert 1.999 < np.linalg.norm((moved[0] - moved[1]).astype(float)) / 4.0**BITS <= 2


# --- two views -------------------------------------------------------------------------------------------------------

D_X = 3
VIEWS = (slice(0, D_X), slice(D_X, D))


def asked_of_views(k: int = 1, location: Matrix | None = None) -> Asked:
    """So many orthonormal directions of each view."""
    vectors = np.zeros((2 * k, D))
    for number, view in enumerate(VIEWS):
        vectors[number * k : (number + 1) * k, view] = directions_of(k, view.stop - view.start, seed=number)
    return Asked(vectors, location)


def crossed(thresholds: tuple[float, float], k: int = 1) -> tuple[Factors, ...]:
    """Each view with the products of the other one."""
    c_x, c_y = thresholds
    return Factors(VIEWS[0], slice(k, 2 * k), c_y), Factors(VIEWS[1], slice(0, k), c_x)


def crossed_change(pair: Matrix, asked: Asked, thresholds: tuple[float, float], make: Any = ClippedSums) -> float:
    """What the sums of two people differ by, in bounds times thresholds, or in thresholds squared."""
    directions = Directions.on_grid(asked.vectors, asked.location)
    made = partial(make, directions, crossed(thresholds, len(asked.vectors) // 2))
    first, second = (summed(made, batch_of(row[None, :])).total for row in pair)
    return float(np.linalg.norm((first - second).astype(float))) / 4.0**BITS


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["arrays", "sparse"])
@pytest.mark.parametrize("thresholds", [(0.1, 0.1), (0.02, 0.3)])
def test_sums_of_two_views_equal_the_plain_twin(thresholds: tuple[float, float], form: Any) -> None:
    k, rows, asked = 2, rows_of(), asked_of_views(2, np.linspace(-0.2, 0.2, D))
    directions = Directions.on_grid(asked.vectors, asked.location)
    on_grid = fixed_point_rows(rows, 1.0, BITS)
    twins = [
        clipped_product(on_grid, directions.vectors[part], directions.offset[part], threshold, BITS, DIRECTION_BITS)
        for part, threshold in zip((slice(0, k), slice(k, 2 * k)), thresholds, strict=True)
    ]
    (by_x, x, _), (by_y, y, _) = twins
    batches = [Batch(Rows((form(rows[part, :D_X]), form(rows[part, D_X:])), 1.0)) for part in (slice(9, N), slice(9))]
    total = summed(partial(ClippedSums, directions, crossed(thresholds, k)), *batches).total
    assert total.tolist() == by_y[:D_X] + by_x[D_X:]
    moment = summed(partial(ProductMoment, directions, crossed(thresholds, k)), *batches).total
    assert moment.tolist() == [
        [sum(p[i] * q[j] for p, q in zip(x, y, strict=True)) for j in range(k)] for i in range(k)
    ]


@pytest.mark.parametrize("k", [1, 2])
def test_views_turned_against_each_other_attain_the_sensitivity(k: int) -> None:
    """To replace x by -x negates x q_y^T and y q_x^T, together as long as the row where both products are clipped."""
    asked, (x, y) = asked_of_views(k), VIEWS
    row = np.zeros(D)
    row[x], row[y] = asked.vectors[0, x] / math.sqrt(2), asked.vectors[k, y] / math.sqrt(2)
    opposed = np.concatenate([-row[x], row[y]])
    for thresholds in ((0.3, 0.3), (0.01, 0.7)):
        pair = np.array([row, opposed]) * (1 - 1e-9)
        assert 1.9999 < crossed_change(pair, asked, thresholds) <= 2.0
        assert 0.9999 < crossed_change(np.array([row, np.zeros(D)]), asked, thresholds) <= 1.0
        assert 1.9999 < crossed_change(pair, asked, thresholds, ProductMoment) <= 2.0


def test_no_pair_of_rows_of_two_views_exceeds_the_sensitivity() -> None:
    rng = np.random.default_rng(4)
    for k, thresholds in ((1, (0.05, 0.6)), (2, (0.3, 0.3)), (2, (1.0, 1.0)), (2, (1 / 128, 0.1))):
        for located in (None, rng.standard_normal(D) / D):
            asked = asked_of_views(k, located)
            pairs = rng.standard_normal((100, 2, D))
            pairs[:50, 1] = pairs[:50, 0] * np.where(np.arange(D) < D_X, -1.0, 1.0)
            pairs *= rng.choice([0.3, 1.0, 2.0], (100, 2, 1)) / np.linalg.norm(pairs, axis=2, keepdims=True)
            for pair in pairs:
                for make in (ClippedSums, ProductMoment):
                    assert crossed_change(pair, asked, thresholds, make) <= 2.0
                    if located is None:  # a row of zeros is nobody
                        assert crossed_change(np.array([pair[0], np.zeros(D)]), asked, thresholds, make) <= 1.0


def residuals_asked(k: int, rng: np.random.Generator) -> Asked:
    """What an ascent asks: directions that are not orthonormal, with an operator norm of 1."""
    vectors = rng.standard_normal((2 * k, D))
    return Asked(vectors / np.linalg.norm(vectors, 2), None)


def test_no_pair_of_rows_exceeds_the_sensitivity_of_residuals() -> None:
    rng = np.random.default_rng(6)
    most = {"residuals": 0.0, "coordinates": 0.0}
    for k, thresholds in ((1, (0.05, 0.2)), (2, (0.1, 0.1)), (2, (1 / 128, 0.5))):
        asked = residuals_asked(k, rng)
        directions = Directions.on_grid(asked.vectors, None)
        pairs = rng.standard_normal((300, 2, D))
        pairs[:100, 1] = pairs[:100, 0] * np.where(np.arange(D) < D_X, -1.0, 1.0)
        pairs /= np.linalg.norm(pairs, axis=2, keepdims=True)
        for pair in pairs:
            most["residuals"] = max(most["residuals"], crossed_change(pair, asked, thresholds))
            make = partial(ProductMoment, directions, one_view(thresholds[0]))
            first, second = (summed(make, batch_of(row[None, :])).total for row in pair)
            change = float(np.linalg.norm((first - second).astype(float))) / 4.0**BITS
            most["coordinates"] = max(most["coordinates"], change)
    assert 1.9 < most["residuals"] <= 2.0
    assert 1.4 < most["coordinates"] <= math.sqrt(2)


def pls_of(rows: Matrix, **options: Any) -> Any:
    return dpgep.pls(rows[:, :D_X], rows[:, D_X:], bound=1.0, **options)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_noise_of_two_views_costs_what_the_ledger_says(adjacency: Adjacency) -> None:
    mu, thresholds, public = 0.37, (0.2, 0.05), {"public_n": N} if adjacency == "add-remove" else {}
    problem, replaced = pls_of(rows_of(), center=False, adjacency=adjacency, **public), adjacency == "replace-one"
    d_y = D - D_X
    units = {
        ClippedMean: math.sqrt((D_X * thresholds[1] ** 2 + d_y * thresholds[0] ** 2) / D),
        ClippedMoment: thresholds[0] * thresholds[1],
    }
    for query, unit in units.items():
        answer, entry = released_by(problem, query(asked_of_views(2), thresholds), mu=mu)
        (noise,) = entry.noise
        assert entry.mu == mu
        assert noise.scale is not None
        paid = Fraction((4 if replaced else 1) * 16**BITS) / Fraction(noise.scale) ** 2
        assert Fraction(mu) ** 2 * Fraction(999, 1000) < paid <= Fraction(mu) ** 2
        assert answer.deviation == pytest.approx(noise.deviation * unit / N)


def test_products_about_a_mean_are_centred() -> None:
    """The mean of (x - m) clip(V^T (x - m)), so that a constant of the rows and skewed products make no bias."""
    asked = Asked(directions_of(), np.linspace(-0.1, 0.2, D))
    assert asked.location is not None
    rows = rows_of()
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    products = (rows - asked.location) @ asked.vectors.T
    clipped = products * np.minimum(1, 0.1 / np.linalg.norm(products, axis=1))[:, None]
    curator = Curator(dpgep.pca(rows, center=False, bound=1.0), Ledger(math.inf), core.NoiseStream(bytes(32)))
    answer = curator.answer(ClippedMean(asked, (0.1,)))
    expected = clipped.T @ (rows - asked.location) / len(rows)
    np.testing.assert_allclose(answer.values, expected, atol=0.1 * 2.0**-15)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_one_person_moves_sums_about_a_mean_by_what_is_paid_for(adjacency: Adjacency) -> None:
    """Two people on both sides of the mean, who share nearly all else: in steps of the grid, and nearly attained."""
    location = np.full(D, 0.5 / math.sqrt(D))
    asked, constant = Asked(np.eye(D)[:1], location), math.ceil(math.ldexp(0.5, BITS))
    mechanism = ClippedProducts(dpgep.pca(rows_of(), center=False, bound=1.0), core.NoiseStream(bytes(32)))
    factors = mechanism.factors(asked, (0.05,))

    def sum_of(along: float) -> Any:
        row = np.zeros((1, D))
        row[0, :2] = along, math.sqrt(1 - along**2)
        sums = ClippedSums(mechanism.directions(asked), factors, constant)
        sums.add(Batch(Rows((row,), 1.0)))
        return sums.total.astype(object)

    one, other = sum_of(location[0] + 0.051), sum_of(location[0] - 0.051)
    moved = one - other if adjacency == "replace-one" else one
    allowed = (4 if adjacency == "replace-one" else 1) * 4**BITS * (4**BITS + constant**2)
    assert 0.99 * allowed < int((moved**2).sum()) <= allowed


def test_thresholds_must_be_one_for_each_view() -> None:
    curator = Curator(pls_of(rows_of()), Ledger(1.0), core.NoiseStream(bytes(32)))
    with pytest.raises(ValueError, match=r"one for each of 2 views, got \(0\.1, 0\.1, 0\.1\)"):
        curator.answer(ClippedMean(asked_of_views(), (0.1,) * 3))


def test_solutions_of_two_views_have_the_same_bits_wherever_the_rows_are() -> None:
    rows = rows_of(2000, D, seed=3) + 0.05
    arguments: dict[str, Any] = {"mu": 2.0, "n_components": 2, "method": METHOD}
    first = solve_seeded(pls_of(rows), 5, **arguments, n_threads=1)
    x, y = rows[:, :D_X], rows[:, D_X:]
    parts = [dask.array.from_array(part, chunks=(700, part.shape[1])) for part in (x, y)]
    for views in (parts, [scipy.sparse.csr_array(x), scipy.sparse.csr_array(y)], [np.asfortranarray(x), y]):
        other = solve_seeded(dpgep.pls(*views, bound=1.0), 5, **arguments, n_threads=3)
        np.testing.assert_array_equal(first.components, other.components)
        np.testing.assert_array_equal(first.eigenvalues, other.eigenvalues)
    assert first.passes == 1 + 2 * 2 + 12 + 1


@pytest.mark.parametrize("start", ["random", np.ones((2, D)) + np.eye(2, D) + np.eye(2, D, D_X)])
def test_without_noise_two_views_converge_to_singular_vectors(start: Any) -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((4000, D_X)) + 0.3
    y = x @ np.diag([1.0, 0.6, 0.2]) @ np.eye(D_X, D - D_X) + rng.standard_normal((4000, D - D_X))
    problem = dpgep.pls(x, 0.1 * y, bound=20.0)
    solution = dpgep.solve(problem, mu=math.inf, n_components=2, method=METHOD, n_iterations=60, init=start)
    left, values, right = np.linalg.svd(0.1 * (x - x.mean(axis=0)).T @ (y - y.mean(axis=0)) / 4000)
    np.testing.assert_allclose(np.abs(solution.x_weights @ left[:, :2]), np.eye(2), atol=1e-3)
    np.testing.assert_allclose(np.abs(solution.y_weights @ right[:2].T), np.eye(2), atol=1e-3)
    np.testing.assert_allclose(solution.eigenvalues, values[:2], rtol=1e-3)
    signs = np.sign(np.diag(solution.x_weights @ left[:, :2]) * np.diag(solution.y_weights @ right[:2].T))
    np.testing.assert_array_equal(signs, [1, 1])
    assert solution.diagnostics.thresholds == (1.0,) * 120


@pytest.mark.parametrize(
    ("correlations", "scale"),
    [
        ([0.8, 0.6], 0.2),
        pytest.param([0.8], 1.0, marks=pytest.mark.deep),
        pytest.param([0.8], 0.2, marks=pytest.mark.deep),
        pytest.param([0.8, 0.6], 1.0, marks=pytest.mark.deep),
    ],
)
def test_it_beats_a_release_of_two_views(correlations: list[float], scale: float) -> None:
    k, d, rng, errors, expected = len(correlations), 60, np.random.default_rng(1), [], []
    for seed in range(5):
        x, y = rng.standard_normal((2, 20000, d))
        u, w = (np.linalg.qr(rng.standard_normal((d, k)))[0] for _ in range(2))
        kept = np.sqrt(1 - np.square(correlations))
        y += (x @ u * correlations + y @ w * (kept - 1)) @ w.T
        left, _, right = np.linalg.svd(x.T @ y)
        problem = dpgep.pls(x, scale * y, bound=math.hypot(1, scale) * math.sqrt(d) * 1.05)
        arguments: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "n_components": k}
        solutions = [solve_seeded(problem, seed, **arguments, method=m) for m in ("release", METHOD)]
        errors.append(
            [
                k - (np.sum((s.x_weights @ left[:, :k]) ** 2) + np.sum((s.y_weights @ right[:k].T) ** 2)) / 2
                for s in solutions
            ]
        )
        expected.append(solutions[1].diagnostics.expected_subspace_error)
    released, clipped = np.median(errors, axis=0)
    assert clipped < 0.6 * released
    assert 0.5 < np.median(expected) / clipped < 2.0


def correlated(
    n: int, d: int, correlations: list[float], power: float, rng: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """Normal views with variances j^-power in random directions, in which pairs of directions are correlated."""
    k = len(correlations)
    x, y = rng.standard_normal((2, n, d))
    u, w = (np.linalg.qr(rng.standard_normal((d, k)))[0] for _ in range(2))
    kept = np.sqrt(1 - np.square(correlations))
    y += (x @ u * correlations + y @ w * (kept - 1)) @ w.T
    scales = np.arange(1, d + 1) ** (-power / 2)
    return x * scales, y * scales


def canonical_error(solution: Any, x: Matrix, y: Matrix) -> float:
    """Mean of both views' squared sines to the leading pairs without noise, in the norms of their covariances."""
    k = len(solution.components)
    left, right = (np.linalg.qr(view - view.mean(axis=0)) for view in (x, y))
    u, _, w = np.linalg.svd(left[0].T @ right[0])
    cosines = [
        np.linalg.norm(np.linalg.qr(root @ weights.T)[0].T @ truth) ** 2
        for root, weights, truth in ((left[1], solution.x_weights, u[:, :k]), (right[1], solution.y_weights, w[:k].T))
    ]
    return k - sum(cosines) / 2


@pytest.mark.parametrize("start", ["random", np.ones((2, D)) + np.eye(2, D) + np.eye(2, D, D_X)])
def test_without_noise_residuals_lead_to_canonical_pairs(start: Any) -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((4000, D_X)) * [1.0, 0.3, 5.0] + 0.3
    y = (x @ np.diag([1.0, 0.3, 0.0]) @ np.eye(D_X, D - D_X) + rng.standard_normal((4000, D - D_X)) * 0.5) * 0.2
    problem = dpgep.cca(x, y, bound=40.0)
    solution = dpgep.solve(problem, mu=math.inf, n_components=2, method=METHOD, n_iterations=25, init=start)
    exact = dpgep.solve(problem, mu=math.inf, n_components=2, method="release")
    assert canonical_error(solution, x, y) < 1e-4
    np.testing.assert_allclose(solution.eigenvalues, exact.eigenvalues, rtol=1e-3)
    np.testing.assert_allclose(np.abs(np.sum(solution.components * exact.components, axis=1)), 1, atol=1e-3)
    assert max(solution.diagnostics.expected_error) < 1e-4


@pytest.mark.deep
@pytest.mark.parametrize("power", [0.0, 1.0])
@pytest.mark.parametrize("correlations", [[0.8], [0.85, 0.6]])
def test_residuals_beat_a_release_of_canonical_pairs(correlations: list[float], power: float) -> None:
    rng, errors, expected = np.random.default_rng(1), [], []
    for seed in range(3):
        x, y = correlated(20000, 60, correlations, power, rng)
        bound = float(np.quantile(np.linalg.norm(np.hstack([x, y]), axis=1), 0.95))  # stands for a public number
        problem = dpgep.cca(x, 0.2 * y, bound=bound)
        arguments: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "n_components": len(correlations)}
        solutions = [solve_seeded(problem, seed, **arguments, method=m) for m in ("release", METHOD)]
        errors.append([canonical_error(solution, x, y) for solution in solutions])
        expected.append(solutions[1].diagnostics.expected_subspace_error)
    released, clipped = np.median(errors, axis=0)
    assert clipped < 0.6 * released
    assert 0.3 < np.median(expected) / clipped < 4.0


def test_indicators_of_slices_make_it_sliced_inverse_regression() -> None:
    rng, errors = np.random.default_rng(2), []
    edges, bound = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), 9.0
    for seed in range(3):
        x = rng.standard_normal((15000, 60))
        y = x[:, 0] + 0.5 * rng.standard_normal(15000)
        indicators = np.eye(6)[np.searchsorted(edges, y)] * 0.1 * bound
        scored = dpgep.cca(x, indicators, bound=bound * 1.005)
        sliced = dpgep.sir(x, y, edges=[-9.0, *edges, 9.0], bound=bound)
        exact = dpgep.solve(sliced, mu=math.inf, n_components=1, method="release").components[0]
        arguments: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "n_components": 1}
        clipped = solve_seeded(scored, seed, **arguments, method=METHOD).x_weights[0]
        released = solve_seeded(sliced, seed, **arguments, method="release").components[0]
        errors.append([1 - (found @ exact) ** 2 / (found @ found) for found in (clipped, released)])
    clipped_error, released_error = np.median(errors, axis=0)
    assert clipped_error < 0.5 * released_error


def test_canonical_pairs_have_the_same_bits_wherever_the_rows_are() -> None:
    rows = rows_of(2000, D, seed=3) + 0.05
    x, y = rows[:, :D_X], rows[:, D_X:]
    arguments: dict[str, Any] = {"mu": 2.0, "n_components": 2, "method": METHOD, "n_iterations": 6}
    first = solve_seeded(dpgep.cca(x, y, bound=1.0), 5, **arguments, n_threads=1)
    parts = [dask.array.from_array(part, chunks=(700, part.shape[1])) for part in (x, y)]
    for views in (parts, [scipy.sparse.csr_array(x), scipy.sparse.csr_array(y)], [np.asfortranarray(x), y]):
        other = solve_seeded(dpgep.cca(*views, bound=1.0), 5, **arguments, n_threads=3)
        np.testing.assert_array_equal(first.components, other.components)
        np.testing.assert_array_equal(first.eigenvalues, other.eigenvalues)
    assert first.passes == 1 + 6 + 3 * 2 + 4
    assert len(first.diagnostics.thresholds) == 12


@pytest.mark.parametrize("options", [{}, {"threshold": 0.1}, {"n_iterations": 2}, {"n_iterations": 1}])
def test_correlations_below_the_noise_are_lost(options: dict[str, Any]) -> None:
    x, y = np.random.default_rng(5).standard_normal((2, 1000, 40))
    solution = solve_seeded(dpgep.cca(x, y, bound=9.0), 1, mu=0.5, n_components=1, method=METHOD, **options)
    assert solution.diagnostics.lost == (True,)
    assert 0 <= solution.eigenvalues[0] <= 1


def test_directions_given_must_be_there_in_both_views() -> None:
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match="linearly independent rows in each view"):
        dpgep.solve(pls_of(rows_of()), budget=budget, method=METHOD, n_components=1, init=np.eye(1, D))


# --- accounting ------------------------------------------------------------------------------------------------------


def released_by(problem: Any, query: Any, *, mu: float) -> tuple[Any, LedgerEntry]:
    ledger = Ledger(mu)
    curator = Curator(problem, ledger, core.NoiseStream(bytes(32)))
    return curator.answer(query), ledger.releases[0]


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("located", [False, True])
def test_the_noise_costs_what_the_ledger_says(adjacency: Adjacency, located: bool) -> None:
    """In exact arithmetic: the change of one person, in steps of the grid, over the noise in steps."""
    mu, threshold, public = 0.37, 0.2, {"public_n": N} if adjacency == "add-remove" else {}
    problem = dpgep.pca(rows_of(), center=False, bound=1.0, adjacency=adjacency, **public)
    asked = Asked(directions_of(), np.full(D, 0.1) if located else None)
    # rows have s = |m|, rounded up to the grid, at their end
    constant = Fraction(math.ceil(math.ldexp(0.1 * math.sqrt(D), BITS)), 2**BITS) if located else Fraction(0)
    replaced = adjacency == "replace-one"
    exact = product_sensitivity(threshold, K, D, adjacency, located=located)
    weighted = threshold * math.sqrt(1 + 1 / D) if located else threshold
    for query, unit, squared, bits in (
        (ClippedMean(asked, (threshold,)), weighted, Fraction(exact) ** 2 * (1 + constant**2), 2 * BITS),
        (ClippedMoment(asked, (threshold,)), threshold**2, Fraction(2 if replaced else 1), 2 * BITS),
        (ClippedMoment(Asked(directions_of()[:1]), (threshold,)), threshold**2, Fraction(1), 2 * BITS),
        (ProductNorms(asked), 1.0, Fraction(2 if replaced else 1), BITS),
        (Mean(), 1.0, Fraction(4 if replaced else 1), BITS),
    ):
        answer, entry = released_by(problem, query, mu=mu)
        (noise,) = entry.noise
        assert (entry.mu, entry.rounding) == (mu, "integer")
        assert noise.scale is not None
        paid = squared * 4**bits / Fraction(noise.scale) ** 2
        assert Fraction(mu) ** 2 * Fraction(999, 1000) < paid <= Fraction(mu) ** 2
        assert noise.deviation == math.ldexp(noise.scale, -bits)
        assert answer.deviation == pytest.approx(noise.deviation * unit / N)


def test_noise_has_the_deviation_that_is_claimed() -> None:
    """4000 normal deviates: their root mean square is off by 6 % with a probability below 1e-7."""
    rows, asked = rows_of(), Asked(directions_of())
    curator = Curator(dpgep.pca(rows, center=False, bound=1.0), Ledger(math.inf), core.NoiseStream(bytes(32)))
    plain = curator.answer(ClippedMean(asked, (0.1,))).values
    stream, values, deviation = core.NoiseStream(bytes(32)), [], 0.0
    for _ in range(4000 // (K * D) + 1):
        curator = Curator(dpgep.pca(rows, center=False, bound=1.0), Ledger(1.0), stream)
        answer = curator.answer(ClippedMean(asked, (0.1,)))
        values.append(answer.values - plain)
        deviation = answer.deviation
    assert np.sqrt(np.mean(np.square(values))) == pytest.approx(deviation, rel=0.06)


def test_noise_is_not_added_to_a_copy() -> None:
    mechanism = ClippedProducts(dpgep.pca(rows_of(), bound=1.0), core.NoiseStream(bytes(32)))
    columns = np.zeros((3, 2), dtype=np.int64, order="F")
    with pytest.raises(ValueError, match="contiguous"):
        mechanism.add_noise(columns, Fraction(1), 1.0, BITS, "a sum", Ledger(1.0).record)


@pytest.mark.parametrize("part", [1.0, 0.6], ids=["as it is", "too little noise"])
def test_an_audit_flags_a_sensitivity_that_is_too_small(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own audit of the worst pair: 400 normal statistics show about 0.8 mu, of a claim that is true."""
    monkeypatch.setattr(clipped_products, "product_sensitivity", lambda *a, **o: part * product_sensitivity(*a, **o))
    stream, asked, threshold = core.NoiseStream(bytes(32)), Asked(np.eye(4)[:2]), 0.7
    first, second = worst_pair(threshold, 2)

    def answer(last: Matrix) -> Matrix:
        rows = np.vstack([rows_of(20, 4), last])
        curator = Curator(dpgep.pca(rows, center=False, bound=1.0), Ledger(2.0), stream)
        return curator.answer(ClippedMean(asked, (threshold,))).values

    apart = np.outer(first[:2], first) - np.outer(second[:2], second)
    result = dpgep.auditing.audit(
        answer, (second, first), lambda values: np.vdot(apart, values), mu=2.0, runs=400, gaussian=True
    )
    assert result.flagged == (part < 1)
    assert result.mu > 1.4


@pytest.mark.parametrize("part", [1.0, 0.6], ids=["as it is", "too little noise"])
def test_an_audit_flags_too_little_noise_for_two_views(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipped_products, "views_sensitivity", lambda *a: part * views_sensitivity(*a))
    stream, asked, thresholds = core.NoiseStream(bytes(32)), Asked(np.eye(4)[[0, 2]]), (0.3, 0.2)
    row = np.array([1.0, 0.0, 1.0, 0.0]) / math.sqrt(2)
    first, second = row, row * [-1.0, 1.0, 1.0, 1.0]

    def answer(last: Matrix) -> Matrix:
        rows = np.vstack([rows_of(20, 4), last])
        problem = dpgep.pls(rows[:, :2], rows[:, 2:], center=False, bound=1.0)
        return Curator(problem, Ledger(2.0), stream).answer(ClippedMean(asked, thresholds)).values

    apart = first * [1 / 0.2, 1.0, 1 / 0.3, 1.0]  # each view over the deviation of its noise
    result = dpgep.auditing.audit(
        answer, (second, first), lambda values: float(values[0] @ apart), mu=2.0, runs=400, gaussian=True
    )
    assert result.flagged == (part < 1)
    assert result.mu > 1.4


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fda", "sir", "standardized-pca", "gep"])
def test_other_models_are_refused(name: str) -> None:
    problem = matrix_problem() if name == "gep" else (problems() | of_a_matrix_alone())[name]
    budget = dpgep.Budget(mu=1.0)
    with (
        nothing_spent(budget),
        pytest.raises(ValueError, match=f"clipped-power is for cca, pls, and pca .* not proved for {name}"),
    ):
        dpgep.solve(problem, budget=budget, method=METHOD, n_components=1)
    if name not in ("gep", "standardized-pca"):
        with pytest.raises(ValueError, match=f"clipped products are for pca, pls and cca.* not {name}"):
            ClippedProducts(problem, core.NoiseStream(bytes(32)))


def test_a_protected_number_of_people_is_refused() -> None:
    problem, budget = dpgep.pca(rows_of(), bound=1.0, adjacency="add-remove"), dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match="give public_n"):
        dpgep.solve(problem, budget=budget, method=METHOD, n_components=1)
    with pytest.raises(ValueError, match="give public_n"):
        ClippedProducts(problem, core.NoiseStream(bytes(32)))
    public = dpgep.pca(rows_of(), bound=1.0, adjacency="add-remove", public_n=N)
    assert solve_seeded(public, 1, mu=1.0, method=METHOD, n_components=1).privacy.exact


def test_summed_moments_have_no_rows() -> None:
    moments = dpgep.Moments(dpgep.models.PcaModel(D, center=False), bound=1.0)
    moments.update(rows_of())
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match="contain no rows"):
        dpgep.solve(moments, budget=budget, method=METHOD, n_components=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_iterations": 0}, "n_iterations must be a whole number"),
        ({"threshold": 0.001}, r'threshold must be "auto" or a part of the bound between 0.0078125 and 1, got 0.001'),
        ({"threshold": math.nan}, "threshold must be"),
        ({"threshold": True}, "threshold must be"),
        ({"threshold": "median"}, "threshold must be one of 'auto'"),
        ({"quantile": 1.0}, "quantile must lie strictly between 0 and 1"),
        ({"init": "release"}, "init must be 'random'"),
        ({"init": None}, "init must be 'random' or public real numbers"),
        ({"init": np.ones((2, D))}, r"shape \(1, 7\)"),
    ],
)
def test_options_are_checked_before_anything_is_spent(options: dict[str, Any], message: str) -> None:
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match=message):
        dpgep.solve(dpgep.pca(rows_of(), bound=1.0), budget=budget, method=METHOD, n_components=1, **options)


def test_too_little_budget_and_too_many_people(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, asked = dpgep.pca(rows_of(), center=False, bound=1.0), Asked(directions_of())
    ledger = Ledger(1e-6)
    curator = Curator(problem, ledger, core.NoiseStream(bytes(32)))
    with pytest.raises(ValueError, match="of a clipped product is too little"):
        curator.answer(ClippedMean(asked, (0.1,)))
    rows, budget = rows_of(), dpgep.Budget(mu=1e-5)
    for centred in (dpgep.pca(rows, bound=1.0), pls_of(rows), dpgep.cca(rows[:, :D_X], rows[:, D_X:], bound=1.0)):
        with nothing_spent(budget), pytest.raises(ValueError, match="budget is too little for clipped products"):
            dpgep.solve(centred, budget=budget, method=METHOD, n_components=1)
        assert centred.dataset.people.passes == 0
    monkeypatch.setattr(clipped_products, "MOST_PEOPLE", N)
    with pytest.raises(ValueError, match=f"fewer than {N} people, not {N}: use a release"):
        Curator(problem, ledger, core.NoiseStream(bytes(32))).answer(ClippedMean(asked, (0.1,)))
    assert ledger.releases == ()


@pytest.mark.parametrize("n", [5, N, 20 * N])
def test_a_secret_number_of_people_is_never_refused(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under add-remove the public estimate alone says whether sums are made."""
    monkeypatch.setattr(clipped_products, "MOST_PEOPLE", N)
    asked = Asked(directions_of(), np.full(D, 0.1))
    for public_n, fits in ((N // 2 - 1, True), (N // 2, False)):
        problem = dpgep.pca(rows_of(n), bound=1.0, adjacency="add-remove", public_n=public_n)
        curator = Curator(problem, Ledger(1.0), core.NoiseStream(bytes(32)))
        assert curator.answer(AffordsClippedProducts(), 0.1) == fits
        for ask in (
            lambda curator=curator: curator.answer(ClippedMean(asked, (0.1,)), share=0.1),
            lambda curator=curator: curator.answer(ClippedMoment(asked, (0.1,)), share=0.1),
            lambda curator=curator: curator.answer(ProductNorms(asked), share=0.1),
        ):
            if fits:
                assert np.isfinite(ask().values).all()
            else:
                with pytest.raises(ValueError, match=f"not {public_n}: use a release"):
                    ask()


def test_sums_over_any_number_of_people_are_released_modulo_a_power_of_two() -> None:
    """S + Z modulo 2^63, centred, for any S: the same function of the noisy sum whether S has wrapped or not."""
    total = np.array(
        [0, 5 - 2**62, 2**62 - 5, 2**62, 2**63 - 1, -(2**63), -(2**62) - 1, 2**63 + 2**40, 2**66 - 3, -(2**65)]
    )
    problem = dpgep.pca(rows_of(), bound=1.0, adjacency="add-remove", public_n=N)

    def noisy(sums: Any) -> Any:
        products = ClippedProducts(problem, core.NoiseStream(bytes(32)))
        for mu in (1.0, 2.0**-18):  # scales of 2^36 and 2^54
            products.add_noise(sums, Fraction(4 ** (2 * BITS)), mu, 2 * BITS, "sums", lambda entry: None)
        return sums

    noise = noisy(np.zeros(len(total), dtype=np.int64))
    assert np.abs(noise).max() > 2**53
    found = noisy(np.array([(int(s) + 2**63) % 2**64 - 2**63 for s in total]))
    assert found.tolist() == [(int(s) + int(z) + 2**62) % 2**63 - 2**62 for s, z in zip(total, noise, strict=True)]


def test_sums_wrap_without_a_word() -> None:
    rows, directions = rows_of(), Directions.on_grid(directions_of(), None)
    for make in (partial(ClippedSums, directions, one_view(0.1)), partial(ProductMoment, directions, one_view(0.1))):
        expected = summed(make, batch_of(rows)).total
        sums = make()
        sums.total[:] = 2**63 - 1
        sums.add(batch_of(rows))
        full = make()
        full.total[:] = -(2**63)
        sums.merge(full)
        assert [(int(s) + 1) % 2**64 for s in sums.total.flat] == [int(s) % 2**64 for s in expected.flat]


def test_directions_must_be_orthonormal_and_thresholds_within_limits() -> None:
    curator = Curator(dpgep.pca(rows_of(), bound=1.0), Ledger(1.0), core.NoiseStream(bytes(32)))
    with pytest.raises(ValueError, match="orthonormal, they miss it by"):
        curator.answer(ClippedMean(Asked(directions_of() * (1 - 1e-10)), (0.1,)))
    for query in (ClippedMean, ClippedMoment):
        with pytest.raises(ValueError, match="location must be finite"):
            curator.answer(query(Asked(directions_of(), np.full(D, np.nan)), (0.1,)))
    for query in (ClippedMean, ClippedMoment):
        with pytest.raises(ValueError, match=r"operator norm of at most 1, got 1\.00000000"):
            curator.answer(query(Asked(directions_of() * (1 + 1e-10)), (0.1,)))
    with pytest.raises(ValueError, match="operator norm of at most 1"):
        curator.answer(ProductNorms(Asked(directions_of() * 1.1)))
    for query in (ClippedMean, ClippedMoment):
        with pytest.raises(ValueError, match=r"threshold must be between .* got 0\.001"):
            curator.answer(query(Asked(directions_of()), (0.001,)))


def test_a_location_is_brought_to_the_unit_ball() -> None:
    """So that offsets keep the size for which sums are exact."""
    problem, asked = dpgep.pca(rows_of(), bound=1.0), Asked(directions_of(), np.full(D, 1e6))
    directions = ClippedProducts(problem, core.NoiseStream(bytes(32))).directions(asked)
    assert np.linalg.norm(directions.offset) <= 2.0 ** (BITS + DIRECTION_BITS)


# --- what it finds ---------------------------------------------------------------------------------------------------


def test_without_noise_it_is_a_power_method() -> None:
    rows = rows_of(5000, 6, seed=2) * [1.0, 0.5, 0.3, 0.1, 0.1, 0.1] + 0.2
    solution = dpgep.solve(dpgep.pca(rows, bound=4.0), epsilon=math.inf, n_components=2, method=METHOD, n_iterations=60)
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    np.testing.assert_allclose(np.abs(solution.components @ vectors[:, :-3:-1]), np.eye(2), atol=1e-3)
    np.testing.assert_allclose(solution.eigenvalues, values[:-3:-1], rtol=1e-3)
    np.testing.assert_allclose(solution.mean, rows.mean(axis=0), atol=1e-4)
    assert solution.diagnostics.thresholds == (1.0,) * 60
    assert solution.diagnostics.kept == pytest.approx(1.0, abs=1e-3)
    assert not any(solution.diagnostics.expected_error)


def spiked(n: int, d: int, spikes: list[float], rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Rows of variance 1 + spike along orthonormal directions, and 1 across; the directions (K, d)."""
    vectors = np.linalg.qr(rng.standard_normal((d, len(spikes))))[0]
    rows = rng.standard_normal((n, d))
    return rows + (rows @ vectors * (np.sqrt(1 + np.array(spikes)) - 1)) @ vectors.T, np.asarray(vectors.T)


@pytest.mark.parametrize("spikes", [[5.0], [6.0, 4.0]])
def test_it_beats_a_release_where_variance_is_spread(spikes: list[float]) -> None:
    rng, errors, expected = np.random.default_rng(0), [], []
    for seed in range(5):
        rows, truth = spiked(4000, 200, spikes, rng)
        problem = dpgep.pca(rows, center=False, bound=15.5)
        arguments: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "n_components": len(spikes)}
        solutions = [solve_seeded(problem, seed, **arguments, method=m) for m in ("release", METHOD)]
        errors.append([len(truth) - np.sum((each.components @ truth.T) ** 2) for each in solutions])
        expected.append(solutions[1].diagnostics.expected_subspace_error)
    released, clipped = np.median(errors, axis=0)
    assert clipped < 0.75 * released
    assert 0.5 < np.median(expected) / clipped < 2.0


@pytest.mark.parametrize("method", [METHOD, "auto"])
def test_components_of_a_flat_spectrum_are_lost(method: str) -> None:
    rows = np.random.default_rng(5).standard_normal((2000, 100))
    problem = dpgep.pca(rows, center=False, bound=11.0)
    solution = solve_seeded(problem, 1, mu=0.5, n_components=1, method=method)
    # a probe that shows nothing but noise is no reason for products
    answered = "ReleaseDiagnostics" if method == "auto" else "ClippedPowerDiagnostics"
    assert type(solution.diagnostics).__name__ == answered
    assert solution.diagnostics.lost == (True,)


def test_a_bound_may_be_bought_and_a_solution_kept(tmp_path: Any) -> None:
    rows, truth = spiked(4000, 30, [20.0], np.random.default_rng(1))
    rows = 1e3 * rows + 5e3
    solution: Any = solve_seeded(dpgep.pca(rows), 1, epsilon=4.0, delta=1e-6, n_components=1, method=METHOD)
    assert abs(solution.components[0] @ truth[0]) > 0.97
    assert solution.eigenvalues[0] == pytest.approx(2.1e7, rel=0.15)
    np.testing.assert_allclose(solution.mean, 5e3, atol=600)
    solution.save(tmp_path / "kept.json")
    kept: Any = dpgep.load(tmp_path / "kept.json")
    assert kept.diagnostics.thresholds == solution.diagnostics.thresholds
    assert "products clipped to" in str(kept)


def test_thresholds_are_the_quantile_that_was_bought() -> None:
    rows = rows_of(3000, D, seed=4)
    options: dict[str, Any] = {"mu": 30.0, "n_components": 1, "method": METHOD, "n_iterations": 4}
    clipped = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    for quantile in (0.3, 0.9):
        problem = dpgep.pca(rows, center=False, bound=1.0)
        solution = solve_seeded(problem, 2, **options, quantile=quantile, init=np.eye(1, D))
        true = np.quantile(np.abs(clipped[:, 0]), quantile)
        assert true * 0.97 <= solution.diagnostics.thresholds[0] <= true * 2**0.25 * 1.03
        assert solution.diagnostics.thresholds[-1] in PRODUCT_EDGES
    given = solve_seeded(dpgep.pca(rows, center=False, bound=1.0), 2, **options, threshold=np.float64(0.25))
    assert given.diagnostics.thresholds == (0.25,) * 4
    assert len(given.privacy.releases) == 5


def test_a_solution_says_which_bias_its_errors_leave_out() -> None:
    """A few people along one direction, and a weaker one that all have: the bias is large, and not in the errors."""
    rng = np.random.default_rng(0)
    rows = 0.95 * rng.standard_normal((20000, 100)) / 10
    rows[:, 1] *= 1.8
    few = rng.random(20000) < 0.03
    rows[few] *= 0.1
    rows[few, 0] = rng.choice([-1.0, 1.0], few.sum())
    problem = dpgep.pca(rows, center=False, bound=1.0)
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "n_components": 1}
    released, clipped = (solve_seeded(problem, 1, **budget, method=m) for m in ("release", METHOD))
    assert abs(released.components[0, 0]) > 0.99
    assert abs(clipped.components[0, 0]) < 0.5
    assert "not elliptical" in str(clipped)
    assert solve_seeded(problem, 1, **budget).method == "release"


def canonical(n: int, dx: int, dy: int, correlations: list[float], rng: np.random.Generator) -> Any:
    """First columns of these correlations, and exactly none beside: every row occurs with y and with -y."""
    x, y = rng.standard_normal((n // 2, dx)), rng.standard_normal((n // 2, dy))
    x, y = np.vstack([x, x]), np.vstack([y, -y])
    for j, r in enumerate(correlations):
        y[:, j] = r * x[:, j] + math.sqrt(1 - r**2) * y[:, j]
    return dpgep.cca(x, y, center=False, bound=1.1 * math.sqrt(dx + dy))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n_iterations", [1, 2, 3, 4, 7, 18, 44, 47, 55, 56, 100])
@pytest.mark.parametrize("mu", [0.5, 1.0])
def test_an_ascent_of_any_length_spends_no_more_than_there_is(n_iterations: int, mu: float) -> None:
    """Shares are rounded: their sum was a bit more than one, and the last answer was refused when all else was paid."""
    problem = canonical(300, 2, 3, [0.9], np.random.default_rng(0))
    options: dict[str, Any] = {"method": METHOD, "n_iterations": n_iterations, "n_components": 1}
    solution = solve_seeded(problem, 1, mu=mu, **options)
    spent = sum(Fraction(entry.mu) ** 2 for entry in solution.privacy.releases)
    assert Fraction(mu) ** 2 * (1 - Fraction(1, 10**12)) < spent <= Fraction(mu) ** 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("dx", "dy", "k", "mu"), [(8, 8, 1, 0.3), (20, 20, 2, 1.0), (3, 30, 2, 0.3)])
def test_correlations_that_noise_makes_are_lost(dx: int, dy: int, k: int, mu: float) -> None:
    """Each of 5 runs finds what is not there with a probability of 1/200: two do so with 2.5e-4, three with 1.3e-6."""
    problem = canonical(20000, dx, dy, [], np.random.default_rng(3))
    runs = [solve_seeded(problem, seed, mu=mu, method=METHOD, n_components=k) for seed in range(5)]
    assert sum(not run.diagnostics.lost[0] for run in runs) <= 2
    for run in runs:
        assert (run.diagnostics.expected_error <= 1).all()


def test_correlations_that_stand_out_are_not_lost() -> None:
    problem = canonical(20000, 20, 20, [0.8], np.random.default_rng(3))
    solution = solve_seeded(problem, 1, mu=1.0, method=METHOD, n_components=1)
    assert solution.diagnostics.lost == (False,)


def test_a_view_of_few_columns_has_no_more_coordinates() -> None:
    """Those of nothing would be noise that is taken for columns, and raise the threshold of the others."""
    problem = canonical(15000, 60, 3, [0.9, 0.8, 0.7], np.random.default_rng(1))
    solution = solve_seeded(problem, 2, mu=1.0, method=METHOD, n_components=3)
    found = np.linalg.qr(solution.components[:, :60].T)[0]
    assert 3 - np.sum(found[:3] ** 2) < 0.05
    assert solution.diagnostics.expected_subspace_error < 0.3


def test_stated_errors_are_squared_sines() -> None:
    """Also of a component that the noise sends back among the others, without losing it; files of more were refused."""
    x = np.random.default_rng(0).standard_normal((500, 4)) * [3, 2, 1, 1]
    for seed in range(1, 6):
        found = solve_seeded(dpgep.pca(x), seed, epsilon=2.0, delta=1e-6, n_components=2, method="clipped-power")
        errors = found.diagnostics.expected_error
        assert (errors >= 0).all()
        assert (errors <= 1).all()
