"""The release: what noise it adds, what it costs, what it says about itself."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import Matrix, solve_seeded, unit_rows
from numpy.typing import NDArray
from scipy import stats

import dpgep
from dpgep._dispatch import core
from dpgep.methods.eigen import solve_pair
from dpgep.privacy.curator import Curator, Release
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.noise import calibrate_moments, moment_mu


def released(problem: Any, mu: float, seed: int) -> Any:
    key = seed.to_bytes(32, "little")
    return Curator(problem, Ledger(mu), core.NoiseStream(key)).answer(Release())


def many(problem: Any, mu: float, count: int) -> list[Any]:
    return [released(problem, mu, seed) for seed in range(count)]


# Each check below compares chi-square statistics of independent Gaussian coordinates with two-sided quantiles at 1e-7;
# a test makes at most five, so it fails with probability below 1e-6 over the choice of seeds.
LEVEL = 1e-7


def assert_deviation(samples: NDArray[np.float64], deviation: float) -> None:
    """Zero-mean normal samples have this deviation, tested at LEVEL."""
    statistic = float((samples**2).sum() / deviation**2)
    low, high = stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], samples.size)
    assert low < statistic < high


def noise_of(problem: Any, mu: float, count: int = 300) -> tuple[Matrix, Matrix, Matrix]:
    """Noise in (second moment, sums, counts), in units of sums of clipped rows, one leading axis per draw."""
    d = problem.layout.n_features
    exact = problem.float_moments().total
    second = np.triu(exact[:d, :d]) + np.triu(exact[:d, :d], 1).T
    n = len(problem.dataset.in_memory("a test").rows.views[0])
    bound = problem.facts.bound
    draws = many(problem, mu, count)
    return (
        np.array([draw.second * n / bound**2 - second for draw in draws]),
        np.array([draw.sums * n / bound - exact[:d, d : d + draw.sums.shape[1]] for draw in draws]),
        np.array([draw.counts * n - np.diagonal(exact)[d : d + len(draw.counts)] for draw in draws]),
    )


def problems(rng: np.random.Generator) -> dict[str, Any]:
    x = rng.standard_normal((200, 6)) / 3
    return {
        "pca": dpgep.pca(x, bound=2.0),
        "pca uncentred": dpgep.pca(x, center=False, bound=0.5),
        "cca": dpgep.cca(x[:, :2], x[:, 2:], bound=1.0),
        "pls": dpgep.pls(x[:, :2], x[:, 2:], bound=0.7),
        "fda": dpgep.fda(x, np.arange(200) % 3, classes=range(3), bound=1.0),
        "sir": dpgep.sir(x, x[:, 0], slices=4, y_range=(-1, 1), bound=1.0),
        "fda public n": dpgep.fda(
            x, np.arange(200) % 3, classes=range(3), adjacency="add-remove", public_n=200, bound=1.0
        ),
    }


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["pca", "pca uncentred", "cca", "pls", "fda", "sir", "fda public n"])
def test_noise_has_the_calibrated_deviations(name: str, rng: np.random.Generator) -> None:
    problem = problems(rng)[name]
    mu = 0.7
    claimed = calibrate_moments(mu, problem.layout, problem.facts.adjacency)
    assert moment_mu(claimed, problem.layout, problem.facts.adjacency) <= mu
    second, sums, counts = noise_of(problem, mu)
    upper = np.triu_indices(6, 1)
    assert_deviation(np.diagonal(second, axis1=1, axis2=2), claimed.second)
    assert_deviation(second[:, upper[0], upper[1]], claimed.second / math.sqrt(2))
    assert_deviation((second[:, 0, 1] + second[:, 0, 2]) / math.sqrt(2), claimed.second / math.sqrt(2))
    np.testing.assert_array_equal(second, np.swapaxes(second, 1, 2))
    if problem.layout.sums:
        assert_deviation(sums, claimed.sums)
    if problem.layout.counts:
        assert_deviation(counts, claimed.counts)


@pytest.mark.statistical
def test_the_deviation_test_rejects_two_percent(rng: np.random.Generator) -> None:
    samples = rng.standard_normal(300 * 600) * 1.02
    with pytest.raises(AssertionError):
        assert_deviation(samples, 1.0)


@pytest.mark.entropy
def test_two_unseeded_runs_differ(correlated_rows: Matrix) -> None:
    problem = dpgep.pca(correlated_rows + 0.1, bound=1.0)
    first, second = (dpgep.solve(problem, mu=20.0, n_components=1).components for _ in range(2))
    assert np.abs(first - second).max() > 0


def test_a_seed_reproduces_warns_and_is_marked(correlated_rows: Matrix) -> None:
    problem = dpgep.pca(correlated_rows, bound=1.0)
    with pytest.warns(dpgep.errors.PrivacyWarning, match="a seeded run is not private"):
        first = dpgep.solve(problem, mu=20.0, seed=3)
    second, other = solve_seeded(problem, 3, mu=20.0), solve_seeded(problem, 4, mu=20.0)
    np.testing.assert_array_equal(first.components, second.components)
    assert (first.components != other.components).any()
    assert first.privacy.seeded
    assert "SEEDED" in str(first.privacy)


@pytest.mark.parametrize("name", ["pca", "pca uncentred", "cca", "pls", "fda", "sir", "fda public n"])
def test_noise_shrinks_to_the_exact_answer(name: str, rng: np.random.Generator) -> None:
    problem = problems(rng)[name]
    exact = solve_seeded(problem, epsilon=math.inf, n_components=1)
    private = solve_seeded(problem, mu=1e7, n_components=1)
    np.testing.assert_allclose(private.eigenvalues, exact.eigenvalues, rtol=1e-3)
    np.testing.assert_allclose(private.components, exact.components, atol=1e-3)


def mean_squared_sine(problem: Any, mu: float, k: int, draws: int) -> tuple[Matrix, float, Matrix, float]:
    """Monte Carlo errors (per component, of the span) in the norm of B, and the means of their own predictions."""
    exact = dpgep.solve(problem, epsilon=math.inf, n_components=k)
    noiseless = problem.model.noisy(released(problem, math.inf, 0)).pair()
    b = np.eye(len(noiseless.a)) if noiseless.b is None else noiseless.b
    root = np.linalg.cholesky(b).T
    reference = unit_rows(exact.components @ root.T)
    basis = np.linalg.qr(reference.T)[0]
    sines, span, predicted, predicted_span = [], [], [], []
    for seed in range(draws):
        pair = problem.model.noisy(released(problem, mu, seed)).pair()
        vectors = solve_pair(pair.a, pair.b, regularization=0.0, rounding=pair.rounding).vectors
        ours = unit_rows(vectors[:, :k].T @ root.T)
        sines.append(1 - np.einsum("ij,ij->i", ours, reference) ** 2)
        span.append(k - np.linalg.norm(np.linalg.qr(ours.T)[0].T @ basis) ** 2)
    for seed in range(draws // 16):  # a prediction costs more than what it predicts, and varies less
        diagnostics = solve_seeded(problem, seed, mu=mu, n_components=k, regularization=0.0).diagnostics
        predicted.append(diagnostics.expected_error)
        predicted_span.append(diagnostics.expected_subspace_error)
    return (
        np.mean(sines, axis=0),
        float(np.mean(span)),
        np.asarray(np.mean(predicted, axis=0)),
        float(np.mean(predicted_span)),
    )


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.parametrize(
    "name", ["pca", "pca uncentred", "pca add-remove", "cca", "pls", "pls uncentred", "fda", "sir", "gep"]
)
def test_expected_error_is_the_measured_one(name: str, rng: np.random.Generator) -> None:
    # 400 draws: the relative deviation of a mean of squared sines (at worst chi-square with one degree of freedom) is
    # sqrt(2/400) = 7 %, so 40 % is beyond five deviations even with a second-order bias of some percent.
    n = 3000
    labels = rng.integers(0, 3, n)
    centres = np.array([[2.0, 0, 0, 0, 0], [-1.0, 1.0, 0, 0, 0], [-1.0, -1.0, 0.5, 0, 0]])
    x = (centres[labels] + rng.standard_normal((n, 5)) * [1.4, 1.0, 0.8, 0.6, 0.5] + 0.3) / 8
    y = x[:, 0] + 0.5 * x[:, 1] ** 2
    second = x.T @ x / n
    problem: Any = {
        "pca": lambda: dpgep.pca(x, bound=1.0),
        "pca uncentred": lambda: dpgep.pca(x, center=False, bound=1.0),
        "pca add-remove": lambda: dpgep.pca(x, adjacency="add-remove", bound=1.0),
        "cca": lambda: dpgep.cca(x[:, :3], x[:, 3:] + x[:, :2], bound=1.0),
        "pls": lambda: dpgep.pls(x[:, :3], x[:, 3:] + x[:, :2], bound=1.0),
        "pls uncentred": lambda: dpgep.pls(x[:, :3], x[:, 3:] + x[:, :2], center=False, bound=1.0),
        "fda": lambda: dpgep.fda(x, labels, classes=range(4), bound=1.0),
        "sir": lambda: dpgep.sir(x, y, slices=4, y_range=(-0.4, 0.6), bound=1.0),
        "gep": lambda: dpgep.gep(second, np.diag([1.0, 0.8, 0.6, 0.9, 0.7]), n=n, sensitivity_a=1.0, sensitivity_b=5.0),
    }[name]()
    mu = 3.0 if name.startswith("pca") else 20.0 if name.startswith("pls") else 60.0
    measured, span, predicted, predicted_span = mean_squared_sine(problem, mu, 2, 400)
    assert (measured > 1e-7).all()
    assert measured.max() < 0.1
    np.testing.assert_allclose(predicted, measured, rtol=0.4)
    assert predicted_span == pytest.approx(span, rel=0.4)


def test_report_of_a_full_budget_is_golden(correlated_rows: Matrix) -> None:
    from dp_accounting.pld import PLDAccountant

    for accounting in ("gdp", "zcdp"):
        solution = solve_seeded(dpgep.pca(correlated_rows, bound=1.0), epsilon=1.0, delta=1e-5, accounting=accounting)
        report = solution.privacy
        assert (report.epsilon, report.delta) == (1.0, 1e-5)
        assert report.mu == dpgep.Budget(epsilon=1.0, delta=1e-5, accounting=accounting).mu
        assert report.rho == pytest.approx(report.mu**2 / 2)
        assert (report.adjacency, report.bound) == ("replace-one", 1.0)
        assert [release.query for release in report.releases] == ["moment matrix"]
        assert [block.shape for block in report.releases[0].noise] == ["goe", "independent"]
        epsilon = PLDAccountant().compose(report.to_dp_event()).get_epsilon(1e-5)
        assert epsilon == pytest.approx(report.epsilon_at(1e-5), rel=2e-3)
        if accounting == "gdp":
            assert epsilon == pytest.approx(1.0, rel=2e-3)
            assert report.delta_at(1.0) <= 1e-5


def test_two_runs_compose_as_google_composes_them(correlated_rows: Matrix) -> None:
    from dp_accounting import ComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    budget = dpgep.Budget(epsilon=1.0, delta=1e-5)
    problem = dpgep.pca(correlated_rows, bound=1.0)
    parts = [solve_seeded(problem, seed, budget=budget, share=share).privacy for seed, share in ((0, 0.3), (1, None))]
    assert all(0 < part.epsilon < 1 for part in parts if part.epsilon is not None)
    event = ComposedDpEvent([part.to_dp_event() for part in parts])
    assert PLDAccountant().compose(event).get_epsilon(1e-5) == pytest.approx(1.0, rel=2e-3)
    with pytest.raises(dpgep.errors.PrivacyBudgetError):
        solve_seeded(problem, budget=budget)


def test_no_noise_is_reported_as_no_privacy(correlated_rows: Matrix) -> None:
    import dp_accounting

    report = dpgep.solve(dpgep.pca(correlated_rows, bound=1.0), epsilon=math.inf).privacy
    assert report.epsilon == report.mu == report.rho == math.inf
    assert isinstance(report.to_dp_event(), dp_accounting.NonPrivateDpEvent)
    assert "none (epsilon = inf" in str(report)


def test_gep_splits_the_budget_between_what_depends_on_data() -> None:
    a = np.diag([3.0, 2.0, 1.0])
    both = dpgep.gep(a, np.eye(3), n=100, sensitivity_a=3.0, sensitivity_b=4.0)
    noise = released(both, 0.5, 0)
    assert (3.0 / 100 / noise.noise_a) ** 2 + (4.0 / 100 / noise.noise_b) ** 2 == pytest.approx(0.25, rel=1e-5)
    assert (3.0 / 100 / noise.noise_a) ** 2 + (4.0 / 100 / noise.noise_b) ** 2 <= 0.25
    one = released(dpgep.gep(a, np.eye(3), n=100, sensitivity_a=3.0, sensitivity_b=0.0), 0.5, 0)
    assert one.noise_a == pytest.approx(0.06, rel=1e-5)
    assert one.noise_b == 0
    np.testing.assert_array_equal(one.b, np.eye(3))


def test_public_n_hides_n(rng: np.random.Generator) -> None:
    x = rng.standard_normal((200, 3)) / 2 + 0.4
    problem = dpgep.pca(x, adjacency="add-remove", bound=1.0)
    assert "200" not in repr(problem)
    assert [b.name for b in solve_seeded(problem, mu=5.0).privacy.releases[0].noise][-1] == "counts per group"
    known = dpgep.pca(x, adjacency="add-remove", public_n=250, bound=1.0)
    assert "n=250" in repr(known)
    exact = solve_seeded(dpgep.pca(x, center=False, bound=1.0), epsilon=math.inf)
    scaled = solve_seeded(dpgep.pca(x, center=False, adjacency="add-remove", public_n=250, bound=1.0), epsilon=math.inf)
    np.testing.assert_allclose(scaled.eigenvalues, exact.eigenvalues * 0.8, rtol=1e-12)


def test_an_empty_class_adds_no_direction(rng: np.random.Generator) -> None:
    labels = np.arange(4000) % 2
    x = unit_rows(rng.standard_normal((4000, 40)) + 2 * labels[:, None])
    solution = solve_seeded(dpgep.fda(x, labels, classes=[0, 1, 2], bound=1.0), epsilon=1.0, delta=1e-5)
    # the empty class is all noise: without shrinkage its direction would have an eigenvalue near the first one's
    assert solution.eigenvalues[1] < 0.1 * solution.eigenvalues[0]


def test_lost_components_warn(rng: np.random.Generator) -> None:
    x = unit_rows(rng.standard_normal((50, 200)))
    with pytest.warns(dpgep.errors.AccuracyWarning, match=r"components \[1, 2\] are lost: noise alone"):
        dpgep.solve(dpgep.pca(x, bound=1.0), epsilon=0.1, delta=1e-5, n_components=2)


def test_repr_reads_well(correlated_rows: Matrix) -> None:
    text = repr(solve_seeded(dpgep.pca(correlated_rows, bound=1.0), epsilon=1.0, delta=1e-5, n_components=2))
    assert "Solution of pca by release: 2 components in 6 features" in text
    assert "epsilon = 1, delta = 1e-05" in text
    assert "row norms <= 1 enforced" in text
    assert "storage      matrix" in text
    assert len(text.splitlines()) == 7


def test_transform_says_how_to_read_a_scan(correlated_rows: Matrix) -> None:
    solution = solve_seeded(dpgep.pca(correlated_rows, bound=5.0), epsilon=math.inf)
    scan = dpgep.scan([correlated_rows[:100], correlated_rows[100:]])
    with pytest.raises(TypeError, match=r"X must be in memory, not a scan: .* for \(rows,\) in scan.read\(scan\)"):
        solution.transform(scan)
    scores = [solution.transform(rows) for (rows,) in scan.read(scan)]
    np.testing.assert_allclose(np.vstack(scores), solution.transform(correlated_rows))


def test_transform_checks_its_input(correlated_rows: Matrix) -> None:
    solution = solve_seeded(dpgep.pca(correlated_rows, bound=1.0), mu=1.0, n_components=2)
    assert solution.transform(correlated_rows).shape == (300, 2)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 6\) as in the fit, got \(300, 5\)"):
        solution.transform(correlated_rows[:, :5])
    with pytest.raises(TypeError, match="pca has one view"):
        solution.transform(correlated_rows, correlated_rows)
    with pytest.raises(AttributeError, match="pca has one view"):
        _ = solution.x_weights


def test_pair_solver_leaves_out_what_b_does_not_know(rng: np.random.Generator) -> None:
    basis = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    b = basis @ np.diag([1.0, 0.5, 0.2, 0.0, -0.3, -1e-18]) @ basis.T
    a = basis @ np.diag([3.0, 4.0, 1.0, 9.0, 9.0, 9.0]) @ basis.T
    system = solve_pair(a.copy(), b.copy(), regularization=0.0, rounding=1e-12)
    np.testing.assert_allclose(system.values, [8.0, 5.0, 3.0], rtol=1e-9)
    full = solve_pair(a.copy(), b.copy(), regularization=0.1, rounding=1e-12)
    np.testing.assert_allclose(sorted(full.values), sorted([3 / 1.1, 4 / 0.6, 1 / 0.3, 90, 90, 90]), rtol=1e-9)
    ridge = b + 0.1 * np.eye(6)
    projected = basis @ np.diag([1.1, 0.6, 0.3, 0.1, 0.1, 0.1]) @ basis.T
    assert np.linalg.norm(ridge - projected) > 0.1  # the projection matters
    np.testing.assert_allclose(full.vectors.T @ projected @ full.vectors, np.eye(6), atol=1e-9)


def test_a_paid_answer_survives_an_error_filter(rng: np.random.Generator) -> None:
    problem = dpgep.pca(unit_rows(rng.standard_normal((50, 200))), bound=1.0)
    budget = dpgep.Budget(epsilon=0.1, delta=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dpgep.errors.AccuracyWarning) as caught:
            dpgep.solve(problem, budget=budget, n_components=2)
    assert caught.value.solution.components.shape == (2, 200)
    assert budget.remaining_mu < 1e-5 * budget.mu


def test_no_positive_eigenvalue_falls_back_to_the_default_ridge(rng: np.random.Generator) -> None:
    problem = dpgep.fda(rng.standard_normal((30, 1)) / 9, np.arange(30) % 2, classes=[0, 1], bound=1.0)
    fell_back = 0
    for seed in range(40):
        solution = solve_seeded(problem, seed, epsilon=0.5, delta=1e-5, regularization=0.0)
        np.testing.assert_array_equal(solution.components, [[1.0]])
        fell_back += solution.diagnostics.regularization > 0
    assert fell_back > 10


def test_solutions_can_be_compared_and_hashed(correlated_rows: Matrix) -> None:
    first, second = (solve_seeded(dpgep.pca(correlated_rows, bound=1.0), mu=1.0) for _ in range(2))
    assert first == first
    assert first != second
    assert len({first, second}) == 2


@pytest.mark.parametrize("seed", [150, 333, 611, 1306])
def test_no_error_is_hidden_where_noise_leaves_b_without_variance(seed: int) -> None:
    # Seeds that leave the noisy B positive in no more directions than there are components. The ridge has all of the
    # others, and an error counted by what they hold of B would be zero.
    rng = np.random.default_rng(1)
    labels, x = rng.integers(0, 3, 500), rng.normal(size=(500, 5)) / 5
    solution = solve_seeded(dpgep.fda(x, labels, classes=range(3), bound=1.0), seed, epsilon=0.01, delta=1e-6)
    assert solution.diagnostics.expected_subspace_error > 0.9  # of 1.2, a random plane


@pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning", "ignore:.*of the rows exceed the bound")
def test_rows_clipped_about_zero_far_from_their_mean_are_warned_of(rng: np.random.Generator) -> None:
    """Clipping about zero takes the variance along a far mean: the second direction comes first. About the mean, not.

    Without noise it is not warned of where nobody was clipped.
    """
    mean = np.array([0.9, 0.0, 0.0])
    x = mean + rng.standard_normal((20_000, 3)) * [0.3, 0.25, 0.1]
    for budget in ({"epsilon": 1.0, "delta": 1e-6}, {"epsilon": math.inf}):
        with pytest.warns(dpgep.errors.AccuracyWarning, match="clipped about zero, far from their mean of length"):
            turned = dpgep.solve(dpgep.pca(x, bound=1.0), n_components=1, seed=0, **budget)
        assert abs(turned.components[0, 0]) < 0.3
        about = dpgep.pca(x, preprocessing=dpgep.Preprocessing(1.0, location=mean))
        for problem in (about, dpgep.pca(x - mean, bound=1.0), dpgep.pca(x, bound=2.5, center=False)):
            assert abs(dpgep.solve(problem, n_components=1, seed=0, **budget).components[0, 0]) > 0.95
    near = x / (np.linalg.norm(x, axis=1).max() * 1.001)
    assert abs(dpgep.solve(dpgep.pca(near, bound=1.0), n_components=1, epsilon=math.inf).components[0, 0]) > 0.95
