"""The server: sums, merging, and solutions from them."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import unit_rows
from stored import bytes_of

import dpgep
from dpgep.local import Aggregator, GaussianRandomizer, ReportError, Reports

Matrix = Any


def rows_of(rng: np.random.Generator, n: int, d: int = 4) -> Matrix:
    rows = rng.standard_normal((n, d)) * np.linspace(1.0, 0.1, d)
    return unit_rows(rows)


def aggregate(rows: Matrix, epsilon: float = 8.0, delta: float | None = 1e-9, **options: Any) -> Aggregator:
    server = Aggregator(rows.shape[1], 1.0, epsilon, delta)
    server.add(GaussianRandomizer(rows.shape[1], 1.0, epsilon, delta, **options).randomize_rows(rows))
    return server


def test_without_noise_it_is_the_second_moment(rng: np.random.Generator) -> None:
    # on the grid, so that rounding moves nothing
    rows = np.trunc(rows_of(rng, 500) * 2**20) / 2**20
    server = aggregate(rows, math.inf, None)
    np.testing.assert_allclose(server.second_moment(), rows.T @ rows / 500, rtol=1e-13, atol=1e-15)
    assert server.deviation == 0
    solution = server.solve(2)
    assert not solution.privacy.exact
    assert math.isinf(solution.privacy.mu)
    oracle = dpgep.solve(dpgep.pca(rows, center=False, bound=1.0), epsilon=math.inf, n_components=2)
    np.testing.assert_allclose(solution.components, oracle.components, atol=1e-12)
    np.testing.assert_allclose(solution.eigenvalues, oracle.eigenvalues, rtol=1e-12)
    values, vectors = np.linalg.eigh(rows.T @ rows / 500)
    np.testing.assert_allclose(solution.eigenvalues, values[:-3:-1], rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(solution.components * vectors[:, :-3:-1].T, axis=1)), 1.0, rtol=1e-12)


@pytest.mark.entropy
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_every_way_in_leads_to_the_same_sum(dtype: str, rng: np.random.Generator) -> None:
    rows = rows_of(rng, 60)
    batch = GaussianRandomizer(4, 1.0, 1.0, 1e-6, dtype=dtype).randomize_rows(rows)
    servers = [Aggregator(4, 1.0, 1.0, 1e-6) for _ in range(5)]
    servers[0].add(batch)
    servers[1].add(batch.to_bytes())
    for i in range(60):
        servers[2].add(batch[i])
        servers[3].add(batch[59 - i].to_bytes())
    halves = [Aggregator(4, 1.0, 1.0, 1e-6) for _ in range(2)]
    halves[0].add(Reports(batch.mechanism, batch.values[:25]))
    halves[1].add(Reports(batch.mechanism, batch.values[25:]))
    servers[4].merge(halves[0])
    servers[4].merge(dpgep.load(bytes_of(halves[1])))
    expected = np.zeros((4, 4))
    expected[np.triu_indices(4)] = [
        sum(int(entry) for entry in column) * batch.mechanism.unit / 60 for column in batch.values.T
    ]
    for server in servers:
        assert server.n_reports == 60
        np.testing.assert_allclose(np.triu(server.second_moment()), expected, rtol=1e-15)
        assert bytes_of(server) == bytes_of(servers[0])


@pytest.mark.entropy
def test_reports_of_both_types_add_up_in_any_order(rng: np.random.Generator) -> None:
    rows, servers = rows_of(rng, 40), [Aggregator(4, 1.0, 1.0, 1e-6) for _ in range(2)]
    clients = [GaussianRandomizer(4, 1.0, 1.0, 1e-6, dtype=dtype) for dtype in ("int64", "float32")]
    batches = [client.randomize_rows(rows) for client in clients]
    for server, order in zip(servers, (batches, batches[::-1]), strict=True):
        for batch in order:
            server.add(batch)
    assert bytes_of(servers[0]) == bytes_of(servers[1])


def test_any_number_of_reports_at_a_time_is_the_same_sum(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = GaussianRandomizer(4, 1.0, 1.0, 1e-6).randomize_rows(rows_of(rng, 37))
    states = []
    for slab in (1, 8 * 10 * 5, 1 << 20):
        monkeypatch.setattr("dpgep.local.aggregator._SLAB_BYTES", slab)
        server = Aggregator(4, 1.0, 1.0, 1e-6)
        server.add(batch)
        states.append(bytes_of(server))
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize("slab", [1 << 20, 1 << 40])
def test_sums_carry_beyond_int64(slab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgep.local.aggregator._SLAB_BYTES", slab)
    # as if n largest entries were a plausible sum
    monkeypatch.setattr(Aggregator, "_check_length", lambda *_: None)
    mechanism = GaussianRandomizer(2, 1.0, 1e-3, 1e-9).mechanism
    largest = mechanism.largest_entry()
    server, n = Aggregator(2, 1.0, 1e-3, 1e-9), 3 * (2**63 // largest)
    assert n < 200_000
    values = np.tile(np.array([largest, -largest, 0]), (n, 1))
    # a third of it is more than int64 holds
    server.add(Reports(mechanism, values))
    low, high = server._sum
    exact = [int(h) * 2**40 + int(x) for h, x in zip(high, low, strict=True)]
    assert exact == [n * largest, -n * largest, 0]
    assert n * largest > 2**63
    assert (low >= 0).all()
    assert (low < 2**40).all()
    mean = server.second_moment() / mechanism.unit
    np.testing.assert_allclose(mean, [[largest, -largest], [-largest, 0]], rtol=1e-15)


def test_merging_refuses_another_mechanism(rng: np.random.Generator) -> None:
    server, other = aggregate(rows_of(rng, 5)), Aggregator(4, 1.0, 8.0, 1e-8)
    before = bytes_of(server)
    with pytest.raises(ReportError, match="other aggregator has delta = 1e-08, not 1e-09: refused, 5 reports so far"):
        server.merge(other)
    with pytest.raises(TypeError, match="merge takes an Aggregator"):
        server.merge(bytes_of(server))  # type: ignore[arg-type]
    assert bytes_of(server) == before


@pytest.mark.entropy
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_solution_tells_what_it_is(dtype: str, rng: np.random.Generator) -> None:
    server = aggregate(rows_of(rng, 40_000), epsilon=4.0, dtype=dtype)
    solution = server.solve(1)
    report = solution.privacy
    assert (report.epsilon, report.delta, report.adjacency, report.bound) == (4.0, 1e-9, "local", 1.0)
    assert (report.exact, report.seeded) == (True, False)
    assert report.delta_at(4.0) <= 1e-9
    assert report.epsilon_at(1e-9) == pytest.approx(4.0, rel=1e-9)
    (release,) = report.releases
    assert release.grid_bits == 20
    assert release.noise[0].deviation == server.mechanism.deviation
    assert release.noise[0].scale == server.mechanism.noise.diagonal
    assert server.deviation == pytest.approx(server.mechanism.deviation / 200)
    # the edge of the semicircle
    assert solution.diagnostics.noise_level == pytest.approx(server.deviation * math.sqrt(8))
    assert "local, row norms <= 1 enforced" in str(solution)
    assert solution.method == "local-gaussian"
    assert solution.mean is None
    assert abs(solution.components[0, 0]) > 0.9


def test_expected_error_is_the_actual_one() -> None:
    """Mean of 200 draws of the squared sine against the first-order estimate from released values."""
    rng = np.random.default_rng(5)
    rows = rows_of(rng, 4000)
    truth = np.linalg.eigh(rows.T @ rows)[1][:, -1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        randomizer = GaussianRandomizer(4, 1.0, 20.0, 1e-9, seed=1)
    actual, expected = [], []
    for _ in range(200):
        server = Aggregator(4, 1.0, 20.0, 1e-9)
        server.add(randomizer.randomize_rows(rows))
        solution = server.solve(1)
        actual.append(1 - float(solution.components[0] @ truth) ** 2)
        expected.append(float(solution.diagnostics.expected_error[0]))
    assert np.mean(expected) == pytest.approx(np.mean(actual), rel=0.3)


def test_warnings_of_what_is_not_worth_having(rng: np.random.Generator) -> None:
    rows = rows_of(rng, 50, d=60)
    server = Aggregator(60, 1.0, 0.1, 1e-9)
    with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
        server.add(GaussianRandomizer(60, 1.0, 0.1, 1e-9, seed=0).randomize_rows(rows))
    with pytest.warns(dpgep.errors.AccuracyWarning, match="are lost") as caught:
        server.solve(2)
    assert caught[0].filename == __file__
    with pytest.warns(dpgep.errors.PrivacyWarning, match="delta = 0.1 is not below 1/n = 0.02") as caught:
        aggregate(rows[:, :2] * [1.0, 0.1], epsilon=2000.0, delta=0.1).solve(1)
    assert caught[0].filename == __file__


def test_components_are_counted(rng: np.random.Generator) -> None:
    server = aggregate(rows_of(rng, 100_000))
    assert server.solve().components.shape == (4, 4)
    for wrong in (0, 5, 1.0, True, "1"):
        with pytest.raises(ValueError, match="n_components"):
            server.solve(wrong)  # type: ignore[arg-type]


def test_who_looks_at_sums_does_not_write_them(rng: np.random.Generator) -> None:
    """Another thread may add to them meanwhile: what it added would be lost."""
    server = aggregate(rows_of(rng, 50))
    server._sum.flags.writeable = False
    assert np.isfinite(server.second_moment()).all()


def test_reports_are_not_taken_for_people(rng: np.random.Generator) -> None:
    """A person may send several: intervals that count each as somebody else would be too short."""
    clients = GaussianRandomizer(4, 1.0, math.inf, records_per_person=5)
    server = Aggregator(4, 1.0, math.inf, records_per_person=5)
    server.add(clients.randomize_rows(rows_of(rng, 50)))
    solution = server.solve(2)
    assert not solution.has_intervals
    with pytest.raises(ValueError, match="intervals need the released moments"):
        solution.intervals()


def test_nothing_comes_of_no_reports() -> None:
    server = Aggregator(3, 1.0, 1.0, 1e-6)
    for call in (server.solve, server.second_moment):
        with pytest.raises(ValueError, match="no reports have been added"):
            call()
    assert server.deviation == math.inf
    server.add(GaussianRandomizer(3, 1.0, 1.0, 1e-6).randomize_rows(np.empty((0, 3))))
    assert server.n_reports == 0


def test_units_follow_the_bound(rng: np.random.Generator) -> None:
    rows = rows_of(rng, 200)
    server = Aggregator(4, 3.0, math.inf)
    server.add(GaussianRandomizer(4, 3.0, math.inf).randomize_rows(3 * rows))
    np.testing.assert_allclose(server.second_moment(), 9 * rows.T @ rows / 200, rtol=0, atol=9 * 2 / 2**20)
