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
from dpgep.data.clipped_sums import BITS, DIRECTION_BITS, ClippedSums, Directions, ProductMoment, ProductNormCounts
from dpgep.data.rows import Batch, Rows
from dpgep.models.bins import LEAST_THRESHOLD, PRODUCT_EDGES
from dpgep.models.model import Adjacency
from dpgep.privacy import clipped_products
from dpgep.privacy.clipped_products import Asked, ClippedProducts, product_sensitivity
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
    assert summed(partial(ClippedSums, directions, threshold), batch_of(rows)).total.tolist() == expected
    moment = summed(partial(ProductMoment, directions, threshold), batch_of(rows)).total
    assert moment.tolist() == [[sum(p[i] * p[j] for p in clipped) for j in range(K)] for i in range(K)]
    assert all(sum(entry * entry for entry in p) <= 4**BITS for p in clipped)
    counted = summed(partial(ProductNormCounts, directions), batch_of(rows))
    norms = np.sqrt([float(square) for square in squares]) / 2.0 ** (BITS + DIRECTION_BITS)
    np.testing.assert_array_equal(counted.counts, np.histogram(norms, [-1.0, *PRODUCT_EDGES, 9.0])[0])
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
    for make in (partial(ClippedSums, directions, 0.1), partial(ProductMoment, directions, 0.2)):
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
    first, second = (summed(partial(ClippedSums, directions, threshold), batch_of(row[None, :])).total for row in pair)
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
    moved = [summed(partial(ClippedSums, directions, 0.01), batch_of(row[None, :])).total for row in pair]
    assert 1.999 < np.linalg.norm((moved[0] - moved[1]).astype(float)) / 4.0**BITS <= 2


def released_by(problem: Any, query: str, *arguments: Any, mu: float) -> tuple[Any, LedgerEntry]:
    ledger = Ledger(mu)
    curator = Curator(problem, ledger, core.NoiseStream(bytes(32)))
    return getattr(curator, query)(*arguments), ledger.releases[0]


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("located", [False, True])
def test_the_noise_costs_what_the_ledger_says(adjacency: Adjacency, located: bool) -> None:
    """In exact arithmetic: the change of one person, in steps of the grid, over the noise in steps."""
    mu, threshold, public = 0.37, 0.2, {"public_n": N} if adjacency == "add-remove" else {}
    problem = dpgep.pca(rows_of(), center=False, bound=1.0, adjacency=adjacency, **public)
    asked = Asked(directions_of(), np.full(D, 0.1) if located else None)
    replaced = adjacency == "replace-one"
    exact = product_sensitivity(threshold, K, D, adjacency, located=located)
    for query, arguments, squared, bits in (
        ("clipped_products", (asked, threshold), Fraction(exact) ** 2, 2 * BITS),
        ("product_moment", (asked, threshold), Fraction(2 if replaced else 1), 2 * BITS),
        ("product_norms", (asked,), Fraction(2 if replaced else 1), BITS),
        ("mean", (), Fraction(4 if replaced else 1), BITS),
    ):
        answer, entry = released_by(problem, query, *arguments, mu=mu)
        (noise,) = entry.noise
        assert (entry.mu, entry.rounding) == (mu, "integer")
        assert noise.scale is not None
        paid = squared * 4**bits / Fraction(noise.scale) ** 2
        assert Fraction(mu) ** 2 * Fraction(999, 1000) < paid <= Fraction(mu) ** 2
        assert noise.deviation == math.ldexp(noise.scale, -bits)
        unit = {"clipped_products": threshold, "product_moment": threshold**2}.get(query, 1.0)
        assert answer.deviation == pytest.approx(noise.deviation * unit / N)


def test_noise_has_the_deviation_that_is_claimed() -> None:
    """4000 normal deviates: their root mean square is off by 6 % with a probability below 1e-7."""
    rows, asked = rows_of(), Asked(directions_of())
    curator = Curator(dpgep.pca(rows, center=False, bound=1.0), Ledger(math.inf), core.NoiseStream(bytes(32)))
    plain = curator.clipped_products(asked, 0.1).values
    stream, values, deviation = core.NoiseStream(bytes(32)), [], 0.0
    for _ in range(4000 // (K * D) + 1):
        curator = Curator(dpgep.pca(rows, center=False, bound=1.0), Ledger(1.0), stream)
        answer = curator.clipped_products(asked, 0.1)
        values.append(answer.values - plain)
        deviation = answer.deviation
    assert np.sqrt(np.mean(np.square(values))) == pytest.approx(deviation, rel=0.06)


def test_noise_is_not_added_to_a_copy() -> None:
    mechanism = ClippedProducts(dpgep.pca(rows_of(), bound=1.0), core.NoiseStream(bytes(32)))
    columns = np.zeros((3, 2), dtype=np.int64, order="F")
    with pytest.raises(ValueError, match="contiguous"):
        mechanism._add_noise(columns, Fraction(1), 1.0, BITS, "a sum", Ledger(1.0).record)


@pytest.mark.parametrize("part", [1.0, 0.6], ids=["as it is", "too little noise"])
def test_an_audit_flags_a_sensitivity_that_is_too_small(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own audit of the worst pair: 400 normal statistics show about 0.8 mu, of a claim that is true."""
    monkeypatch.setattr(clipped_products, "product_sensitivity", lambda *a, **o: part * product_sensitivity(*a, **o))
    stream, asked, threshold = core.NoiseStream(bytes(32)), Asked(np.eye(4)[:2]), 0.7
    first, second = worst_pair(threshold, 2)

    def answer(last: Matrix) -> Matrix:
        rows = np.vstack([rows_of(20, 4), last])
        curator = Curator(dpgep.pca(rows, center=False, bound=1.0), Ledger(2.0), stream)
        return curator.clipped_products(asked, threshold).values

    apart = np.outer(first[:2], first) - np.outer(second[:2], second)
    result = dpgep.audit(
        answer, (second, first), lambda values: np.vdot(apart, values), mu=2.0, runs=400, gaussian=True
    )
    assert result.flagged == (part < 1)
    assert result.mu > 1.4


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cca", "pls", "fda", "sir", "standardized-pca", "gep"])
def test_other_models_are_refused(name: str) -> None:
    problem = matrix_problem() if name == "gep" else (problems() | of_a_matrix_alone())[name]
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match=f"clipped-power is for pca .* not proved for {name}"):
        dpgep.solve(problem, budget=budget, method=METHOD, n_components=1)
    if name not in ("gep", "standardized-pca"):
        with pytest.raises(ValueError, match=f"clipped products are for pca.* not {name}"):
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
    moments = dpgep.Moments(dpgep.PcaModel(D, center=False), bound=1.0)
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
        ({"init": "release"}, "init must be one of 'random'"),
        ({"init": None}, "init must be one of 'random', or a public array"),
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
        curator.clipped_products(asked, 0.1)
    budget, centred = dpgep.Budget(mu=1e-5), dpgep.pca(rows_of(), bound=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match="budget is too little for clipped products"):
        dpgep.solve(centred, budget=budget, method=METHOD, n_components=1)
    assert centred.passes == 0
    monkeypatch.setattr(clipped_products, "MOST_PEOPLE", N)
    with pytest.raises(ValueError, match=f"fewer than {N} people; nothing was released"):
        Curator(problem, ledger, core.NoiseStream(bytes(32))).clipped_products(asked, 0.1)
    assert ledger.releases == ()


def test_directions_must_be_orthonormal_and_thresholds_within_limits() -> None:
    curator = Curator(dpgep.pca(rows_of(), bound=1.0), Ledger(1.0), core.NoiseStream(bytes(32)))
    with pytest.raises(ValueError, match="orthonormal, they miss it by"):
        curator.clipped_products(Asked(directions_of() * (1 + 1e-10)), 0.1)
    for query in (curator.clipped_products, curator.product_moment):
        with pytest.raises(ValueError, match=r"threshold must be between .* got 0\.001"):
            query(Asked(directions_of()), 0.001)


def test_a_location_is_brought_to_the_unit_ball() -> None:
    """So that offsets keep the size for which sums are exact."""
    problem, asked = dpgep.pca(rows_of(), bound=1.0), Asked(directions_of(), np.full(D, 1e6))
    directions = ClippedProducts(problem, core.NoiseStream(bytes(32)))._directions(asked)
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


@pytest.mark.parametrize(("spike", "chosen"), [(5.0, "ClippedPowerDiagnostics"), (200.0, "ReleaseDiagnostics")])
@pytest.mark.parametrize("center", [False, True])
def test_auto_takes_what_the_spectrum_favours(spike: float, chosen: str, center: bool) -> None:
    rows, truth = spiked(4000, 200, [spike], np.random.default_rng(2))
    solution = solve_seeded(
        dpgep.pca(rows, center=center, bound=17.0), 3, epsilon=4.0, delta=1e-6, n_components=1, method="auto"
    )
    assert type(solution.diagnostics).__name__ == chosen
    assert abs(solution.components[0] @ truth[0]) > 0.9
    paid = math.fsum(entry.mu**2 for entry in solution.privacy.releases)
    assert paid == pytest.approx(dpgep.Budget(epsilon=4.0, delta=1e-6).mu ** 2, rel=1e-9)
    assert paid <= dpgep.Budget(epsilon=4.0, delta=1e-6).mu ** 2 * (1 + 1e-15)


@pytest.mark.parametrize("method", [METHOD, "auto"])
def test_components_of_a_flat_spectrum_are_lost(method: str) -> None:
    rows = np.random.default_rng(5).standard_normal((2000, 100))
    problem = dpgep.pca(rows, center=False, bound=11.0)
    solution = solve_seeded(problem, 1, mu=0.5, n_components=1, method=method)
    assert type(solution.diagnostics).__name__ == "ClippedPowerDiagnostics"
    assert solution.diagnostics.lost == (True,)


def test_auto_is_a_release_without_noise_and_for_other_models() -> None:
    problem = problems()["fda"]
    auto, released = (solve_seeded(problem, 1, mu=1.0, n_components=1, method=m) for m in ("auto", "release"))
    np.testing.assert_array_equal(auto.components, released.components)
    plain = [dpgep.solve(dpgep.pca(rows_of(), bound=9.0), mu=math.inf, method=m) for m in ("auto", "release")]
    np.testing.assert_array_equal(plain[0].components, plain[1].components)


def test_a_bound_may_be_bought_and_a_solution_kept(tmp_path: Any) -> None:
    rows, truth = spiked(4000, 30, [20.0], np.random.default_rng(1))
    rows = 1e3 * rows + 5e3
    solution: Any = solve_seeded(dpgep.pca(rows), 1, epsilon=4.0, delta=1e-6, n_components=1, method=METHOD)
    assert abs(solution.components[0] @ truth[0]) > 0.97
    assert solution.eigenvalues[0] == pytest.approx(2.1e7, rel=0.15)
    np.testing.assert_allclose(solution.mean, 5e3, atol=600)
    solution.save(tmp_path / "kept.json")
    kept: Any = dpgep.Solution.load(tmp_path / "kept.json")
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
