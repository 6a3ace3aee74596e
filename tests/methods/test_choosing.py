"""`method="auto"`: a release or clipped products, by what a release with little of the budget shows."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import solve_seeded as solve_by_seed
from every_run import problems

import dpgep
from dpgep._dispatch import core
from dpgep.errors import AccuracyWarning
from dpgep.methods import auto
from dpgep.methods.base import ReleaseOptions
from dpgep.methods.clipped_power import (
    Probe,
    WarmStart,
    kept_of_normal,
    leading_axes,
    norm_histogram,
    resumed,
    sampling_error,
    variance_before_clipping,
)
from dpgep.methods.matrix_free import OperatorDiagnostics
from dpgep.models.moments import ReleasedMoments, pooled_by_precision
from dpgep.privacy import clipped_products
from dpgep.privacy.clipped_products import Asked, NoisyMean, ProductNorms
from dpgep.privacy.curator import Curator, Release
from dpgep.privacy.ledger import Ledger

Matrix = np.ndarray[Any, np.dtype[np.float64]]

N, D = 4000, 200


def spiked(spikes: list[float], n: int = N, d: int = D, seed: int = 2) -> tuple[Matrix, Matrix]:
    """Normal rows of variance 1 + spike along orthonormal directions, and 1 across; the directions (K, d)."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((d, len(spikes))))[0]
    rows = rng.standard_normal((n, d))
    return rows + (rows @ vectors * (np.sqrt(1 + np.array(spikes)) - 1)) @ vectors.T, np.asarray(vectors.T)


def with_few(share: float, along: float, n: int, d: int) -> Matrix:
    """Rows of variance 1/d, ``along`` times that on the second axis; a share of the people is +-1 on the first."""
    rng = np.random.default_rng(0)
    rows = 0.9 * rng.standard_normal((n, d)) / math.sqrt(d)
    rows[:, 1] *= math.sqrt(along)
    few = rng.random(n) < share
    rows[few] *= 0.1
    rows[few, 0] = rng.choice([-1.0, 1.0], few.sum())
    return np.asarray(rows)


def solve_seeded(problem: Any, seed: int = 0, **arguments: Any) -> dpgep.Solution:
    return solve_by_seed(problem, seed, **{"method": "auto"} | arguments)


def solve_aloud(problem: Any, **arguments: Any) -> dpgep.Solution:
    """`dpgep.solve` with a seed, and its warnings of accuracy."""
    arguments = {"method": "auto"} | arguments
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        return dpgep.solve(problem, seed=1, **arguments)


# --- what is chosen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spikes", "chosen"), [([5.0], "clipped-power"), ([8.0, 6.0], "release"), ([200.0], "release")]
)
@pytest.mark.parametrize("center", [False, True])
def test_auto_takes_what_the_spectrum_favours(spikes: list[float], chosen: str, center: bool) -> None:
    rows, truth = spiked(spikes)
    budget = dpgep.Budget(epsilon=6.0, delta=1e-6)
    problem = dpgep.pca(rows + 3.0 * center, center=center, bound=17.0 + 43.0 * center)
    solution = solve_seeded(problem, 3, budget=budget, n_components=len(spikes))
    if not center:
        assert solution.method == chosen
        assert len(truth) - np.sum((solution.components @ truth.T) ** 2) < 0.1 * len(truth)
    spent = sum((Fraction(entry.mu or 0.0) ** 2 for entry in solution.privacy.releases), Fraction(0))
    assert Fraction(budget.mu) ** 2 * (1 - Fraction(1, 10**9)) < spent <= Fraction(budget.mu) ** 2


@pytest.mark.parametrize(("spikes", "mu", "noted"), [([5.0], 0.4, True), ([200.0], 0.4, True), ([5.0], 40.0, False)])
def test_the_default_is_a_release_whatever_the_rows_and_says_what_else_to_try(
    spikes: list[float], mu: float, noted: bool
) -> None:
    rows, _ = spiked(spikes)
    solution = solve_by_seed(dpgep.pca(rows, bound=17.0), 3, mu=mu, n_components=1)
    assert solution.method == "release"
    assert ('method="clipped-power" may have several times less error' in repr(solution)) == noted


@pytest.mark.parametrize("epsilon", [0.4, 1.0, 4.0])
def test_a_probe_that_shows_nothing_but_noise_gets_a_release(epsilon: float) -> None:
    """Clipped power then starts, and ends, at any direction; a release has several times the budget of the probe."""
    for seed in range(3):
        rows = np.random.default_rng(seed).standard_normal((N, D))
        solution = solve_seeded(
            dpgep.pca(rows, center=False, bound=17.0), seed, epsilon=epsilon, delta=1e-6, n_components=1
        )
        assert solution.method == "release"


def test_a_direction_of_few_people_gets_a_release() -> None:
    """Clipped, it would lose against a weaker one that all have."""
    problem = dpgep.pca(with_few(0.03, 1.8**2, 20000, 100), center=False, bound=1.0)
    solution = solve_seeded(problem, 1, epsilon=1.0, delta=1e-6, n_components=1)
    assert solution.method == "release"
    assert abs(solution.components[0, 0]) > 0.99


@pytest.mark.parametrize(("spike", "chosen"), [(5.0, "clipped-power"), (200.0, "release")])
def test_so_it_does_for_a_table_in_units_without_a_bound(spike: float, chosen: str) -> None:
    rows, truth = spiked([spike])
    table = pd.DataFrame(7 * rows + 300, columns=[f"x{j}" for j in range(D)])
    budget = dpgep.Budget(epsilon=6.0, delta=1e-6)
    solution = solve_seeded(dpgep.pca(table), 5, budget=budget, n_components=1)
    assert solution.method == chosen
    assert solution.preprocessing is not None
    assert not solution.preprocessing.is_identity
    released = solve_seeded(dpgep.pca(table), 5, epsilon=6.0, delta=1e-6, n_components=1, method="release")
    error, of_release = (1 - float(truth[0] @ each.components[0]) ** 2 for each in (solution, released))
    assert error < (0.75 * of_release if chosen == "clipped-power" else 0.001)
    spent = sum((Fraction(entry.mu or 0.0) ** 2 for entry in solution.privacy.releases), Fraction(0))
    assert Fraction(budget.mu) ** 2 * (1 - Fraction(1, 10**9)) < spent <= Fraction(budget.mu) ** 2


def test_skewed_rows_make_no_bias_along_their_mean() -> None:
    """Columns of 0 and 1, a third of which one factor raises: products that are clipped have a mean of their own."""
    rng, d = np.random.default_rng(0), 200
    chance = np.where(np.arange(d) < d // 3, 0.1 + 0.3 * (rng.random((20000, 1)) < 0.4), 0.1)
    rows = (rng.random(chance.shape) < chance).astype(float)
    exact = np.linalg.eigh(np.cov(rows.T))[1][:, -1]
    for bound in ("auto", 6.0):
        auto, released = (
            solve_seeded(dpgep.pca(rows, bound=bound), 1, epsilon=1.5, delta=1e-6, n_components=1, method=method)
            for method in ("auto", "release")
        )
        assert auto.method == "clipped-power"
        errors = [1 - float(exact @ each.components[0]) ** 2 for each in (auto, released)]
        assert errors[0] < 0.6 * errors[1], (bound, errors)


def test_a_direction_of_few_people_in_a_table_gets_a_release() -> None:
    table = 7 * with_few(0.03, 1.8**2, 20000, 100) + 300
    solution = solve_seeded(dpgep.pca(table), 1, epsilon=1.0, delta=1e-6, n_components=1)
    assert solution.method == "release"
    assert abs(solution.components[0, 0]) > 0.98


def test_a_probe_that_shows_enough_costs_nothing() -> None:
    """Strong directions: what a probe shows decides without a histogram, and is pooled."""
    rows, _ = spiked([200.0])
    budget = dpgep.Budget(mu=0.5)
    solution = solve_seeded(dpgep.pca(rows, center=False, bound=17.0), 3, budget=budget, n_components=1)
    assert solution.method == "release"
    assert [entry.query.split(":")[0] for entry in solution.privacy.releases] == ["probe", "moment matrix"]
    whole = solve_seeded(dpgep.pca(rows, center=False, bound=17.0), 3, mu=0.5, n_components=1, method="release")
    assert solution.diagnostics.noise_level == pytest.approx(whole.diagnostics.noise_level, rel=1e-6)


@pytest.fixture
def clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clipped products wherever there is a choice, whatever the probe promises."""
    monkeypatch.setattr(auto, "_favours_clipping", lambda curator, probe, look: True)


@pytest.mark.usefixtures("clipping")
def test_what_a_probe_cannot_exclude_is_said() -> None:
    """The stronger direction has few people, and the probe is nothing but noise: the answer is wrong, and warned of."""
    problem = dpgep.pca(with_few(0.02, 3.0, 6000, 200), center=False, bound=1.0)
    with pytest.warns(AccuracyWarning, match=r"few rows have may be missed.* only variances above [\d.]+ times"):
        solution: Any = solve_aloud(problem, epsilon=2.0, delta=1e-6, n_components=1)
    assert solution.method == "clipped-power"
    assert abs(solution.components[0, 0]) < 0.8
    assert solution.diagnostics.unseen > 1.5
    assert f"at most {solution.diagnostics.unseen:.2g} times the last eigenvalue" in str(solution)


@pytest.mark.usefixtures("clipping")
def test_what_a_probe_excludes_is_not_warned_of() -> None:
    rows, _ = spiked([5.0], 5000, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AccuracyWarning)
        problem = dpgep.pca(rows, center=False, bound=11.0)
        solution: Any = solve_aloud(problem, epsilon=4.0, delta=1e-6, n_components=1)
    assert solution.method == "clipped-power"
    assert 0 < solution.diagnostics.unseen < 1


def test_it_is_a_release_without_noise_and_for_other_models() -> None:
    problem = problems()["fda"]
    chosen, released = (solve_seeded(problem, 1, mu=1.0, n_components=1, method=m) for m in ("auto", "release"))
    np.testing.assert_array_equal(chosen.components, released.components)
    rows = np.random.default_rng(0).standard_normal((300, 20))
    budgets: tuple[dict[str, Any], ...] = ({"mu": math.inf}, {"mu": 1.0, "sparsity": 3}, {"mu": 1e-4}, {"mu": 1e3})
    for budget in budgets:
        plain = [
            solve_seeded(dpgep.pca(rows, bound=9.0), n_components=1, method=m, **budget) for m in ("auto", "release")
        ]
        np.testing.assert_array_equal(plain[0].components, plain[1].components)


def test_it_refuses_nothing_that_a_release_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where clipped products have a limit, or a release would need products, public numbers close the choice."""
    rows = np.random.default_rng(0).standard_normal((2000, 100))
    budget: dict[str, Any] = {"mu": 0.5, "n_components": 1}
    monkeypatch.setattr(auto, "_favours_clipping", lambda curator, probe, look: True)
    assert solve_seeded(dpgep.pca(rows, bound=11.0), 1, **budget).method == "clipped-power"
    monkeypatch.setattr(clipped_products, "MOST_PEOPLE", 2000)
    assert solve_seeded(dpgep.pca(rows, bound=11.0), 1, **budget).method == "release"
    monkeypatch.undo()
    monkeypatch.setattr(ReleaseOptions, "storage_for", lambda self, d: "operator")
    solution = solve_seeded(dpgep.pca(rows, bound=11.0), 1, **budget)
    assert solution.method == "release"
    assert len(solution.privacy.releases) == 1


@pytest.mark.parametrize(("spike", "chosen"), [(15.0, "clipped-power"), (4000.0, "release")])
def test_many_columns_are_probed_by_products(spike: float, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_favours_clipping", lambda curator, probe, look: chosen == "clipped-power")
    rows, truth = spiked([spike], 3000, 2000)
    bound = math.sqrt(2000 + 2 * spike)
    solution = solve_seeded(dpgep.pca(rows, center=False, bound=bound), 1, mu=2.0, n_components=1)
    assert solution.method == chosen
    assert solution.privacy.releases[0].query.startswith("probe: ")
    assert "known by its products" in solution.privacy.releases[0].query
    assert isinstance(solution.diagnostics, OperatorDiagnostics) == (chosen == "release")
    assert abs(solution.components[0] @ truth[0]) > 0.9


def mixture(n: int, d: int, few: float) -> Matrix:
    """Rows uniform on [-.3, .3] along the first axis; those of a few are at -.3 or .3 on the second one instead."""
    rng = np.random.default_rng(0)
    rows = 0.6 * rng.standard_normal((n, d)) / math.sqrt(d)
    chosen = rng.random(n) < few
    rows[:, 0] = np.where(chosen, 0.0, rng.uniform(-0.3, 0.3, n))
    rows[:, 1] = np.where(chosen, rng.choice([-0.3, 0.3], n), 0.0)
    return np.asarray(rows)


def test_a_tilt_towards_a_direction_of_few_is_seen_at_the_end() -> None:
    """Clipping leaves a stationary point between both, at a squared sine of 0.3; what the probe showed tells it."""
    rows = mixture(20000, 100, 0.235)
    truth = np.linalg.eigh(np.cov(rows.T))[1][:, -1]
    problem = dpgep.pca(rows, center=False, bound=1.0)
    alone = solve_seeded(problem, 1, mu=0.8, n_components=1, method="clipped-power")
    chosen = solve_seeded(problem, 1, mu=0.8, n_components=1)
    assert chosen.method == "clipped-power"
    assert 1 - float(alone.components[0] @ truth) ** 2 > 0.2
    assert 1 - float(chosen.components[0] @ truth) ** 2 < 0.1


def begun_at(curator: Curator, vectors: Matrix) -> WarmStart:
    look = norm_histogram(curator.answer(ProductNorms(Asked(vectors)), 0.02), 0.5, len(vectors))
    beside = np.eye(1, vectors.shape[1], vectors.shape[1] - 1)
    deviation = 0.01 / math.sqrt(2 * vectors.shape[1])
    probe = Probe(np.vstack([vectors, beside]), np.zeros(2), deviation, mean=None, centre=0.0, moments=None)
    return WarmStart(probe, look, share=0.9, look_share=0.02)


@pytest.mark.parametrize(("cosine", "leads_away"), [(0.8, True), (0.0, False)])
def test_steps_end_where_they_lead_to_less_variance(cosine: float, leads_away: bool) -> None:
    """From the direction of a few people, who have more variance, to that of all; not the other way."""
    problem = dpgep.pca(with_few(0.05, 1.8**2, 20000, 100), center=False, bound=1.0)
    ledger = Ledger(1.0)
    curator = Curator(problem, ledger, core.NoiseStream(bytes(32)))
    start = np.zeros((1, 100))
    start[0, :2] = cosine, math.sqrt(1 - cosine**2)
    found = resumed(curator, begun_at(curator, start))
    assert (found is None) == leads_away
    if leads_away:
        assert ledger.remaining > 0.8  # for a release


def second_moment(values: Matrix, between: float, deviation: float, rng: np.random.Generator) -> NoisyMean:
    moment = np.diag(values)
    moment[0, -1] = moment[-1, 0] = between
    return NoisyMean(moment + deviation * rng.standard_normal(moment.shape), deviation, 1000)


def test_axes_are_those_of_the_block_unless_noise_cannot_explain_it() -> None:
    """Two false alarms in 200 are allowed: of 2000, 20; 60 have a probability below 1e-11."""
    rng, values = np.random.default_rng(0), np.array([3.0, 2.0, 1.0, 1.0, 0.5])
    alarms = 0
    for _ in range(2000):
        axes = leading_axes(second_moment(values, 0.0, 0.1, rng), 2)
        alarms += bool(axes.beside.any())
        assert axes.others.shape == (3,)
    assert alarms < 60
    for between, swapped in ((1.5, False), (0.0, True)):
        found = leading_axes(second_moment(values[::-1] if swapped else values, between, 0.01, rng), 2)
        assert found.beside.max() > 0.1
        (turned,) = found.rotations
        np.testing.assert_allclose(turned @ turned.T, np.eye(2), atol=1e-12)
        expected = np.linalg.eigvalsh(second_moment(values, between, 0.0, rng).values)[::-1]
        np.testing.assert_allclose(found.values, expected[:2], atol=0.1)


# --- two releases as one ---------------------------------------------------------------------------------------------


def twice(problem: Any, mu: float, first_share: float, key: int) -> tuple[ReleasedMoments, ReleasedMoments]:
    curator = Curator(problem, Ledger(mu), core.NoiseStream(key.to_bytes(32, "little")))
    curator.keep_sums()
    first, second = curator.answer(Release(), first_share), curator.answer(Release())
    assert isinstance(first, ReleasedMoments)
    assert isinstance(second, ReleasedMoments)
    return first, second


def test_kept_sums_are_read_once_and_stay_as_they_are() -> None:
    rows = np.random.default_rng(0).standard_normal((500, 6)) / 3
    for center in (False, True):
        problem = dpgep.pca(rows, center=center, bound=1.0)
        first, second = twice(problem, 1e6, 0.5, 1)
        assert problem.dataset.people.passes == 1
        np.testing.assert_allclose(first.second, second.second, atol=1e-5)
        np.testing.assert_allclose(first.sums, second.sums, atol=1e-5)
        assert not np.array_equal(first.second, second.second)


def test_grids_that_differ_are_summed_anew() -> None:
    problem = dpgep.pca(np.random.default_rng(0).standard_normal((500, 6)) / 3, bound=1.0)
    first, second = twice(problem, 3e-4, 1 / 10**6, 1)
    assert problem.dataset.people.passes == 2
    assert first.noise.second > 900 * second.noise.second


@pytest.mark.statistical
def test_pooled_releases_have_the_noise_of_one_and_are_not_worse() -> None:
    """6000 entries: a sum of squares beyond 8 deviations of its law has a probability of 1e-15."""
    rows = np.random.default_rng(0).standard_normal((400, 3)) / 3
    problem = dpgep.pca(rows, bound=1.0)
    exact = Curator(problem, Ledger(math.inf), core.NoiseStream(bytes(32))).answer(Release())
    whole = Curator(problem, Ledger(0.7), core.NoiseStream(bytes(32))).answer(Release())
    assert isinstance(exact, ReleasedMoments)
    assert isinstance(whole, ReleasedMoments)
    squares = {"second": 0.0, "sums": 0.0, "first alone": 0.0}
    for key in range(1000):
        first, second = twice(problem, 0.7, 1 / 16, key)
        both = pooled_by_precision(first, second)
        for name in ("second", "sums", "counts"):
            assert getattr(both.noise, name) == pytest.approx(getattr(whole.noise, name), rel=1e-6)
        upper = np.triu_indices(3, 1)
        squares["second"] += float(np.sum((both.second - exact.second)[upper] ** 2)) / (both.noise.second**2 / 2)
        squares["first alone"] += float(np.sum((first.second - exact.second)[upper] ** 2)) / (both.noise.second**2 / 2)
        squares["sums"] += float(np.sum((both.sums - exact.sums) ** 2)) / both.noise.sums**2
    law = scipy.stats.chi2(3000)
    for name in ("second", "sums"):
        assert abs(squares[name] - law.mean()) < 8 * law.std()
    assert squares["first alone"] > 10 * law.mean()  # the test sees a probe that is not pooled


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spike", "n", "d"), [(2.0, 30000, 200), (5.0, 5000, 100), (10.0, 5000, 100)])
def test_errors_count_what_clipping_changes_in_a_sample(spike: float, n: int, d: int) -> None:
    """With next to no noise all of the error is that: a sum of d squares, a tenth more or less, and of first order."""
    rows, _ = spiked([spike], n, d)
    bound = 2 * math.sqrt(d + spike)
    threshold = 0.7 * math.sqrt(1 + spike) / bound
    solution: Any = solve_seeded(
        dpgep.pca(rows, center=False, bound=bound),
        1,
        mu=1e4,
        n_components=1,
        method="clipped-power",
        threshold=threshold,
    )
    vector = np.linalg.eigh(rows.T @ rows)[1][:, -1]
    true, stated = 1 - float(solution.components[0] @ vector) ** 2, float(solution.diagnostics.expected_error[0])
    assert 0.6 < stated / true < 1.6
    assert sampling_error(solution.eigenvalues, 1.0, solution.diagnostics.kept)[0] * d / n > 0.8 * stated


def test_nothing_is_added_where_nothing_is_clipped() -> None:
    values = np.array([5.0, 2.0])
    assert not sampling_error(values, 1.0, 1.0).any()
    assert not sampling_error(values, 0.0, 0.5).any()
    assert sampling_error(values, 1.0, 1 - 1e-9).max() < 1e-6


@pytest.mark.one_in(2)
@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("threshold", [0.02, 0.7, 3.0])
def test_variances_before_clipping(k: int, threshold: float) -> None:
    """A mean of 10^6 products: 6 deviations of it have a probability of 2e-9."""
    norms = np.linalg.norm(np.random.default_rng(1).standard_normal((10**6, k)), axis=1)
    left = norms * np.minimum(norms, threshold) / k
    assert abs(left.mean() - kept_of_normal(threshold**2, k)) < 6 * left.std() / 1000
    kept = kept_of_normal(threshold**2 / 2.5, k)
    assert variance_before_clipping(2.5 * kept, threshold, k) == pytest.approx(2.5, rel=1e-9)


def test_of_several_directions_the_last_must_stand_out() -> None:
    """A second direction that noise may have swapped with the next is a release's, however much the first promises."""
    look: Any = SimpleNamespace(variance=0.02, kept=0.018, across=1.0, threshold=0.1, deviation=1e-4)
    curator: Any = SimpleNamespace(facts=SimpleNamespace(n=20_000, bound=1.0), remaining=0.5)
    for second, favours in ((0.0125, True), (0.0105, False)):
        probe: Any = SimpleNamespace(values=np.array([0.02, second, 0.01]), deviation=5e-4, centre=0.001)
        assert auto._favours_clipping(curator, probe, look) == favours
