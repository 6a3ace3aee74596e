"""`dpgep.release`: the release that `solve` makes, kept; and releases of disjoint populations, added."""

import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import Matrix, solve_seeded
from scipy import stats
from stored import bytes_of

import dpgep
from dpgep.privacy.accounting import epsilon_of

D = 6
pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")


def rows(rng: np.random.Generator, n: int = 2000) -> Matrix:
    return np.asarray(rng.standard_normal((n, D)) * [4, 2, 1, 1, 1, 1] / 12)


def problem(name: str, x: Matrix, **facts: Any) -> Any:
    facts = {"bound": 1.0, **facts}
    return {
        "pca": lambda: dpgep.pca(x, **facts),
        "second moment": lambda: dpgep.pca(x, center=False, **facts),
        "cca": lambda: dpgep.cca(x[:, :3], x[:, 3:], **facts),
        "pls": lambda: dpgep.pls(x[:, :3], x[:, 3:], **facts),
        "fda": lambda: dpgep.fda(x, np.sign(x[:, 0]), classes=[-1.0, 1.0], **facts),
        "sir": lambda: dpgep.sir(x, x[:, 0], slices=3, y_range=(-1, 1), **facts),
    }[name]()


names = pytest.mark.parametrize("name", ["pca", "second moment", "cca", "pls", "fda", "sir"])


def released(given: Any, **budget: Any) -> dpgep.Release:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        return dpgep.release(given, seed=0, **budget)


@names
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_it_is_what_solve_releases(name: str, adjacency: str, rng: np.random.Generator) -> None:
    given = problem(name, rows(rng), adjacency=adjacency)
    theirs = solve_seeded(given, epsilon=1.0, delta=1e-6)
    moments = released(given, epsilon=1.0, delta=1e-6)
    for _ in range(2):  # solving leaves it as it is
        ours = moments.solve()
        np.testing.assert_array_equal(ours.components, theirs.components)
        np.testing.assert_array_equal(ours.eigenvalues, theirs.eigenvalues)
        assert ours.privacy == theirs.privacy
    assert (ours.passes, theirs.passes) == (0, 1)
    sparse = solve_seeded(given, epsilon=1.0, delta=1e-6, n_components=1, sparsity=2)
    np.testing.assert_array_equal(moments.solve(1, sparsity=2).components, sparse.components)


@names
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_without_noise_sites_add_up_to_one_population(name: str, adjacency: str, rng: np.random.Generator) -> None:
    x = rows(rng)
    parts = [released(problem(name, part, adjacency=adjacency), epsilon=math.inf) for part in np.split(x, [300, 900])]
    whole = released(problem(name, x, adjacency=adjacency), epsilon=math.inf)
    together = parts[0] + parts[1] + parts[2]
    assert together.n_people == len(x)
    np.testing.assert_allclose(together.second_moment, whole.second_moment, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(together.solve().eigenvalues, whole.solve().eigenvalues, rtol=1e-9, atol=1e-12)


def test_the_noise_of_a_sum_is_what_it_claims(rng: np.random.Generator) -> None:
    """Chi-square of the second moment's noise, both tails together 1e-7; half of the claim is rejected."""
    x = rows(rng, 400)
    parts = (x[:100], x[100:])
    exact = sum(len(part) * released(problem("second moment", part), epsilon=math.inf).second_moment for part in parts)
    squares, n_draws = 0.0, 400
    for _ in range(n_draws):
        one, two = (
            dpgep.release(problem("second moment", part), mu=mu) for part, mu in zip(parts, (1.0, 2.0), strict=True)
        )
        together = one + two
        error = together.second_moment - exact / 400
        squares += float((error**2).sum()) / together._noisy.noise.second**2
    freedom = n_draws * D * (D + 1) / 2
    low, high = stats.chi2.ppf([5e-8, 1 - 5e-8], freedom)
    assert low < squares < high
    assert not low < 4 * squares < high


def test_everybody_pays_for_the_own_site_alone(rng: np.random.Generator) -> None:
    x = rows(rng)
    one = released(problem("pca", x[:500]), epsilon=1.0, delta=1e-6)
    two = released(problem("pca", x[500:]), epsilon=2.0, delta=1e-7)
    for together in (one + two, two + one):
        report = together.privacy
        assert report.mu == max(one.privacy.mu, two.privacy.mu)
        assert report.delta == 1e-6
        assert report.epsilon == min(2.0, epsilon_of(report.mu, 1e-6))
        assert report.epsilon_at(1e-7) <= 2.0 + 1e-9
        assert report.exact
        assert report.seeded
        assert str(report.to_dp_event()).startswith("GaussianDpEvent")
    in_mu = one + released(problem("pca", x[500:]), mu=0.1)
    assert (in_mu.privacy.epsilon, in_mu.privacy.delta, in_mu.privacy.mu) == (None, None, one.privacy.mu)


@names
def test_bytes_keep_everything(name: str, rng: np.random.Generator) -> None:
    moments = released(problem(name, rows(rng), adjacency="add-remove"), mu=1.0)
    other = dpgep.load(bytes_of(moments))
    np.testing.assert_array_equal(other.second_moment, moments.second_moment)
    ours, theirs = other.solve(n_components=1), moments.solve(n_components=1)
    np.testing.assert_array_equal(ours.components, theirs.components)
    assert ours.privacy == theirs.privacy
    assert bytes_of(other) == bytes_of(moments)
    damaged = bytearray(bytes_of(moments))
    damaged[len(damaged) // 2] ^= 4
    with pytest.raises(ValueError, match="incomplete or was altered"):
        dpgep.load(bytes(damaged))
    sums = dpgep.Moments(dpgep.models.PcaModel(2, center=True), bound=1.0)
    assert isinstance(dpgep.load(bytes_of(sums)), dpgep.Moments)


def test_what_cannot_be_added_is_refused(rng: np.random.Generator) -> None:
    x = rows(rng)
    given = problem("pca", x)
    moments = released(given, mu=1.0)
    for other, message in [
        (released(problem("second moment", x), mu=1.0), "differ in model"),
        (released(problem("pca", x, bound=2.0), mu=1.0), "differ in bound"),
        (released(problem("pca", x, adjacency="add-remove"), mu=1.0), "differ in adjacency"),
        (moments, "releases of the same people"),
        (dpgep.load(bytes_of(moments)), "releases of the same people"),
        (released(given, mu=0.5), "releases of the same people"),
    ]:
        with pytest.raises(ValueError, match=message):
            moments + other
    with pytest.raises(TypeError):
        moments + 1  # type: ignore[operator]


def test_a_budget_pays_once(rng: np.random.Generator) -> None:
    budget = dpgep.Budget(mu=1.0)
    moments = dpgep.release(problem("pca", rows(rng)), budget=budget, share=0.25)
    assert budget.spent_mu == pytest.approx(0.5)
    moments.solve(1)
    moments.solve(2, sparsity="auto")
    assert budget.spent_mu == pytest.approx(0.5)
    with pytest.raises(dpgep.errors.PrivacyBudgetError):
        dpgep.release(problem("pca", rows(rng)), budget=budget, share=0.8)
    with pytest.raises(TypeError, match=r"data must be rows, .* or a problem of rows"):
        dpgep.release(dpgep.gep(np.eye(3), n=10, sensitivity_a=1.0), mu=1.0)  # type: ignore[arg-type]


def test_releases_of_the_same_sums_are_not_added(rng: np.random.Generator) -> None:
    sums = dpgep.Moments(dpgep.models.PcaModel(D, center=True), bound=1.0)
    sums.update(rows(rng))
    one = released(sums, mu=1.0)
    for same in (sums, sums.copy(), pickle.loads(pickle.dumps(sums))):
        with pytest.raises(ValueError, match="releases of the same people"):
            one + released(same, mu=1.0)


def test_a_release_pooled_with_a_probe_is_stored_and_added(rng: np.random.Generator) -> None:
    def pooled() -> dpgep.Release:
        rows = rng.standard_normal((2000, 64)) * np.r_[5.0, 3.0, np.ones(62)]
        given = dpgep.pca(rows, bound=8.0)
        found = solve_seeded(given, epsilon=1.0, delta=1e-6, method="auto", n_components=2).release
        assert found is not None
        assert [entry.query for entry in found.privacy.releases][::2] == ["probe: moment matrix", "moment matrix"]
        return found

    one, two = pooled(), pooled()
    for each in (one, one + two):
        assert dpgep.load(bytes_of(each)).fingerprint == each.fingerprint
    noise = (one + two).privacy.releases[-1].noise[0].deviation
    assert noise == pytest.approx((one + two)._noisy.noise.second * 4000 / 64)
