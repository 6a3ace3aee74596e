"""Intervals that cover noise and people: what they hold for, what widens them, and where there are none."""

import math
import pickle
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import Matrix, solve_seeded
from scipy import stats

import dpgep
from dpgep.models.moments import NO_NOISE
from dpgep.models.row_model import with_eigenvalues
from dpgep.results.intervals import bootstrap_intervals, correlation_intervals, solved


def rows(n: int, rng: np.random.Generator, d: int = 6) -> Matrix:
    """Two directions that stand out, few rows beyond the unit ball."""
    return np.asarray(rng.standard_normal((n, d)) * np.sqrt([0.06, 0.03] + [0.006] * (d - 2)))


def problems(rng: np.random.Generator) -> dict[str, Any]:
    x = rows(5000, rng)
    y = x[:, ::-1] + 0.1 * rng.standard_normal(x.shape)
    labels = np.digitize(x[:, 0] + 0.3 * rng.standard_normal(len(x)), (-0.2, 0.2))
    return {
        "pca": dpgep.pca(x, bound=1.2),
        "pca uncentred": dpgep.pca(x, center=False, bound=1.2),
        "cca": dpgep.cca(x, y, bound=1.5),
        "pls": dpgep.pls(x, y, bound=1.5),
        "multiset-cca": dpgep.multiset_cca([x[:, :3], x[:, 3:], y], bound=1.5),
        "fda": dpgep.fda(x, labels, classes=(0, 1, 2), bound=1.2),
        "sir": dpgep.sir(x, x[:, 0], slices=4, y_range=(-0.5, 0.5), bound=1.2),
    }


MODELS = ["pca", "pca uncentred", "cca", "pls", "multiset-cca", "fda", "sir"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_intervals_hold_the_estimates_and_grow_with_the_level(
    name: str, epsilon: float, rng: np.random.Generator
) -> None:
    budget = {} if math.isinf(epsilon) else {"delta": 1e-6}
    solution = solve_seeded(problems(rng)[name], epsilon=epsilon, n_components=2, **budget)
    found, again, surer = solution.intervals(), solution.intervals(), solution.intervals(0.99)
    assert isinstance(found, dpgep.results.intervals.Intervals)
    low, high = found.eigenvalues.T
    assert ((low <= found.estimates) & (found.estimates <= high)).all()
    assert ((low < high) & (surer.eigenvalues[:, 0] <= low) & (surer.eigenvalues[:, 1] >= high)).all()
    assert surer.eigenvalues[0, 0] < low[0]
    assert (found.angles > 0).all()
    assert (surer.angles >= found.angles).all()
    np.testing.assert_array_equal(found.eigenvalues, again.eigenvalues)  # a public seed
    np.testing.assert_array_equal(found.angles, again.angles)
    assert found.lost == solution.diagnostics.lost
    assert (found.loadings is not None) == name.startswith("pca")
    assert f"{found.estimates[0]:.4g}" in repr(found)


def test_noise_and_few_people_widen_intervals(rng: np.random.Generator) -> None:
    x = rows(20_000, rng)

    def width(n: int, epsilon: float) -> tuple[float, float]:
        found = solve_seeded(dpgep.pca(x[:n], bound=1.2), epsilon=epsilon, delta=1e-6, n_components=1).intervals()
        return float(np.ptp(found.eigenvalues)), float(found.angles[0])

    for wider, narrower in (((2000, 1e6), (20_000, 1e6)), ((20_000, 0.5), (20_000, 5.0))):
        assert min(np.divide(width(*wider), width(*narrower))) > 1.5


def test_rows_that_are_only_bounded_have_wider_intervals(rng: np.random.Generator) -> None:
    solution = solve_seeded(dpgep.pca(rows(20_000, rng), bound=1.2), epsilon=4.0, delta=1e-6, n_components=2)
    gaussian, bounded = solution.intervals(), solution.intervals(rows="bounded")
    assert (np.ptp(bounded.eigenvalues, axis=1) > 1.5 * np.ptp(gaussian.eigenvalues, axis=1)).all()
    assert (bounded.angles > gaussian.angles).all()


# Of 60 draws an interval that holds with a probability of 0.85 holds at most 35 times with a probability below 1e-6.
DRAWS, FEWEST = 60, 36


def test_rows_about_their_mean_may_be_longer_than_the_bound() -> None:
    """By up to |m|: 19 people at 1 and one at -1 vary by more than the bound alone allows."""
    n, share = 20_000, 0.05
    x = np.repeat([1.0, -1.0], [round(n * (1 - share)), round(n * share)])[:, None]
    mean, centred = abs(x.mean()), x - x.mean()
    variance, of_square = np.var(x), np.var(centred**2)
    assert 1.0**2 * variance < of_square < (1.0 + mean) ** 2 * variance
    found = dpgep.solve(dpgep.pca(x, bound=1.0), epsilon=math.inf).intervals(0.9, rows="bounded")
    reach = stats.norm.ppf(0.95) * (1.0 + mean) * math.sqrt(variance / n)
    assert np.ptp(found.eigenvalues) / 2 == pytest.approx(
        reach, rel=0.25
    )  # with the bound alone it would be half of that


@pytest.mark.deep
@pytest.mark.statistical
def test_intervals_cover_the_truth_and_need_the_noise_to_do_so() -> None:
    """Noise dominates. Negative control: the same intervals, told that there is no noise."""
    assert stats.binom(DRAWS, 0.85).cdf(FEWEST - 1) < 1e-6
    covered, uncovered, turned = 0, 0, 0
    loadings, without_noise = np.zeros(6), np.zeros(6)
    for seed in range(DRAWS):
        x = rows(20_000, np.random.default_rng([seed, 1]))
        solution = solve_seeded(dpgep.pca(x, bound=1.2), seed, epsilon=0.3, delta=1e-6, n_components=1)
        found = solution.intervals()
        assert solution._moments is not None
        silent = replace(solution._moments, noise=NO_NOISE)
        without = bootstrap_intervals(
            solution.model.noisy(silent),  # type: ignore[arg-type]
            0.0,
            (False,),
            1.2,
            0.9,
            "gaussian",
            components=solution.components,
        )
        for held, each in ((loadings, found), (without_noise, without)):
            assert each.loadings is not None
            held += np.all([each.loadings[0, :, 0] <= np.eye(6)[0], np.eye(6)[0] <= each.loadings[0, :, 1]], axis=0)
        low, high = found.eigenvalues[0]
        covered += low <= 0.06 <= high
        low, high = without.eigenvalues[0]
        uncovered += low <= 0.06 <= high
        turned += math.degrees(math.acos(min(abs(solution.components[0, 0]), 1.0))) <= found.angles[0]
    assert covered >= FEWEST
    assert turned >= FEWEST
    assert uncovered < FEWEST
    assert loadings.min() >= FEWEST
    assert without_noise[1:].max() < FEWEST


@pytest.mark.parametrize(("bound", "standardize"), [("auto", False), (1.2, True)])
def test_loadings_have_intervals(bound: Any, standardize: bool, rng: np.random.Generator) -> None:
    """Wider at a higher level and with more noise, and about the loadings that were released, with their signs."""
    x = rows(20_000, rng) @ np.linalg.qr(rng.standard_normal((6, 6)))[0] * np.linspace(0.5, 1, 6)
    problem = dpgep.pca(x, bound=bound, standardize=standardize)
    solution = solve_seeded(problem, epsilon=4.0, delta=1e-6, n_components=2)
    noisy = solve_seeded(problem, epsilon=0.5, delta=1e-6, n_components=2)
    widths = []
    for answer, level in ((solution, 0.9), (solution, 0.99), (noisy, 0.9)):
        found = answer.intervals(level).loadings
        assert found is not None
        assert found.shape == (2, 6, 2)
        low, high = found[0].T
        assert ((low <= answer.relative_components[0]) & (answer.relative_components[0] <= high)).all()
        widths.append(float((high - low).mean()))
    assert widths[0] < widths[1] < 1
    assert widths[0] < widths[2]


@pytest.mark.deep
def test_loadings_of_many_features_stray_as_if_all_were_simulated(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = rng.standard_normal((20_000, 90)) * np.sqrt(np.r_[0.3, 0.1, np.full(88, 0.001)])
    solution = solve_seeded(dpgep.pca(x, bound=1.2), epsilon=4.0, delta=1e-6, n_components=2)
    thinned = solution.intervals().loadings
    monkeypatch.setattr("dpgep.results.intervals._WHOLE", 90)
    whole = solution.intervals().loadings
    assert thinned is not None
    assert whole is not None
    widths = [np.ptp(each[:, 2:], axis=2).mean(axis=1) for each in (thinned, whole)]
    np.testing.assert_allclose(*widths, rtol=0.15)
    assert (thinned != whole).any()


def test_loadings_of_lost_components_may_be_any(rng: np.random.Generator) -> None:
    solution = solve_seeded(dpgep.pca(0.1 * rng.standard_normal((100, 4)), bound=1.0), epsilon=0.1, delta=1e-3)
    found = solution.intervals()
    assert all(found.lost)
    np.testing.assert_array_equal(found.loadings, np.tile([-1.0, 1.0], (4, 4, 1)))


def test_relative_components_are_in_units_of_the_scale(rng: np.random.Generator) -> None:
    solution = solve_seeded(dpgep.pca(rows(5000, rng) * [1, 9, 1, 1, 1, 9], bound="auto", standardize=True), mu=9.0)
    assert solution.scale is not None
    np.testing.assert_allclose(np.linalg.norm(solution.relative_components, axis=1), 1.0)
    assert np.ptp(solution.relative_components / (solution.components * solution.scale)) < 1e-12
    plain = solve_seeded(dpgep.pca(rows(5000, rng), bound=1.2), mu=9.0)
    assert plain.relative_components is plain.components


@pytest.mark.deep
@pytest.mark.statistical
def test_intervals_of_correlation_matrices_cover() -> None:
    """60 tables in units of their own: fewer than 40 intervals of 0.9 cover with a probability of 2e-8.

    A quarter of the width does not cover.
    """
    rng, scale = np.random.default_rng(1), np.array([1.0, 5.0, 20.0, 100.0])
    covariance = np.array([[2.0, 1.5, 0.0, 0.0], [1.5, 2.0, 0.5, 0.0], [0.0, 0.5, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    deviations = np.sqrt(np.diagonal(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(deviations, deviations))
    covered = halves = near = 0
    for draw in range(60):
        x = rng.standard_normal((4000, 4)) @ np.linalg.cholesky(covariance).T * scale
        solution = solve_seeded(dpgep.pca(x, standardize=True), draw, epsilon=2.0, delta=1e-6, n_components=1)
        found = solution.intervals()
        low, high = found.eigenvalues[0]
        covered += low <= values[-1] <= high
        halves += abs(values[-1] - (low + high) / 2) <= (high - low) / 8
        component = solution.components[0] * deviations * scale
        cosine = abs(component @ vectors[:, -1]) / np.linalg.norm(component)
        near += math.degrees(math.acos(min(cosine, 1.0))) <= found.angles[0]
    assert min(covered, near) >= 40
    assert halves < 40


def test_debiased_eigenvalues_are_nearer_where_noise_made_them(rng: np.random.Generator) -> None:
    x = rng.standard_normal((20_000, 12)) * math.sqrt(0.02)
    raw = debiased = 0.0
    for seed in range(3):
        solution = solve_seeded(dpgep.pca(x, bound=1.0), seed, epsilon=0.5, delta=1e-6, n_components=3)
        found = solution.intervals()
        raw += float(np.square(solution.eigenvalues - 0.02).sum())
        debiased += float(np.square(found.estimates - 0.02).sum())
        assert found.lost == (True, True, True)
        np.testing.assert_array_equal(found.angles, 90.0)
    assert raw > 2 * debiased


def test_corrections_that_would_add_error_are_left_out(rng: np.random.Generator) -> None:
    """Evenly spaced eigenvalues push each other from both sides: of what a correction says, most is noise."""
    x = rng.standard_normal((5000, 12)) * np.sqrt(np.linspace(0.03, 0.005, 12))
    solution = solve_seeded(dpgep.pca(x, bound=1.0), epsilon=4.0, delta=1e-6, n_components=6)
    found = solution.intervals()
    assert not any(found.lost)
    np.testing.assert_allclose(found.estimates, solution.eigenvalues)


def test_intervals_are_in_the_units_of_the_eigenvalues(rng: np.random.Generator) -> None:
    x = rows(20_000, rng)
    near, far = (
        solve_seeded(dpgep.pca(x * unit + 3 * unit), epsilon=4.0, delta=1e-6, n_components=2) for unit in (1.0, 1024.0)
    )
    np.testing.assert_allclose(far.intervals().eigenvalues, near.intervals().eigenvalues * 1024.0**2, rtol=5e-3)
    low, high = near.intervals().eigenvalues.T
    assert (low > 0.8 * np.array([0.06, 0.03])).all()
    assert (high < 1.2 * np.array([0.06, 0.03])).all()


@pytest.mark.parametrize("name", [name for name in MODELS if name != "multiset-cca"])  # to first order alone
def test_a_truth_is_given_other_eigenvalues(name: str, rng: np.random.Generator) -> None:
    problem = problems(rng)[name]
    moments = solve_seeded(problem, epsilon=math.inf, n_components=2)._moments
    assert moments is not None
    system = solved(problem.model.noisy(replace(moments, second=moments.second.copy())).pair(), 0.0)
    old, wanted = system.values[:2], system.values[:2] * np.array([0.95, 0.9])
    changed = with_eigenvalues(problem.model.noisy(moments), system.vectors[:, :2], old, wanted)
    again = solved(problem.model.noisy(changed).pair(), 0.0)
    np.testing.assert_allclose(again.values[:2], wanted, rtol=1e-8)
    overlaps = np.abs(np.einsum("ij,ij->j", again.vectors[:, :2], system.vectors[:, :2]))
    lengths = np.linalg.norm(again.vectors[:, :2], axis=0) * np.linalg.norm(system.vectors[:, :2], axis=0)
    np.testing.assert_allclose(overlaps, lengths, rtol=1e-6)


def test_recommended_components_are_those_that_noise_and_chance_could_not_show(rng: np.random.Generator) -> None:
    problem = dpgep.pca(rows(20_000, rng, d=12), bound=1.2)
    for epsilon in (0.5, 1e4):
        for k in (1, 2, 12):
            assert solve_seeded(problem, epsilon=epsilon, delta=1e-6, n_components=k).recommended_components() == 2
    assert not any(solve_seeded(problem, epsilon=1e4, delta=1e-6, n_components=3).diagnostics.lost)  # of noise alone


def with_signal(name: str, size: float, seed: int) -> Any:
    """A problem of independent columns, views or groups, and one component of this size."""
    rng, n = np.random.default_rng([seed, 8]), 1500
    x, y, hidden = rng.standard_t(5, (n, 6)), rng.standard_normal((n, 4)), rng.standard_normal(n)
    labels = rng.integers(0, 3, n)
    if name == "standardized":
        x += size * hidden[:, None]  # in all alike, so that the rest is without signal
    elif name == "pca":
        x[:, 0] *= 1 + size
    elif name in ("cca", "pls"):
        y[:, 0] += size * x[:, 1]
    elif name == "fda":
        x[:, 0] += size * labels
    response = np.clip(y[:, 1] + 2 * size * x[:, 0], -4, 4)
    return {
        "standardized": lambda: dpgep.pca(x, standardize=True),
        "pca": lambda: dpgep.pca(x),
        "cca": lambda: dpgep.cca(x, y),
        "pls": lambda: dpgep.pls(x, y),
        "multiset-cca": lambda: dpgep.multiset_cca([x[:, :3], x[:, 3:] + size * x[:, [0]], y]),
        "fda": lambda: dpgep.fda(x, labels, classes=[0, 1, 2]),
        "sir": lambda: dpgep.sir(x, response, slices=4, y_range=(-4, 4)),
    }[name]()


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("epsilon", [20.0, math.inf])
@pytest.mark.parametrize("name", ["standardized", "pca", "cca", "pls", "multiset-cca", "fda", "sir"])
def test_chance_is_not_recommended_and_one_component_is(name: str, epsilon: float) -> None:
    # without signal each of 20 runs recommends one with a probability of 1/200: six or more with 5e-10
    budget = {} if math.isinf(epsilon) else {"delta": 1e-6}
    solutions = [solve_seeded(with_signal(name, 0.0, seed), epsilon=epsilon, **budget) for seed in range(20)]
    assert sum(solution.recommended_components() > 0 for solution in solutions) <= 5
    if math.isinf(epsilon):
        assert not any(any(solution.diagnostics.lost) for solution in solutions)  # no noise: all stand out of it
    solution = solve_seeded(with_signal(name, 0.7, 0), epsilon=epsilon, **budget)
    assert 1 <= solution.recommended_components() <= 2


def test_a_pickled_solution_has_the_same_intervals(rng: np.random.Generator) -> None:
    solution = solve_seeded(dpgep.pca(rows(5000, rng), bound=1.2), epsilon=4.0, delta=1e-6, n_components=1)
    copy = pickle.loads(pickle.dumps(solution))
    np.testing.assert_array_equal(copy.intervals().eigenvalues, solution.intervals().eigenvalues)


def test_what_has_no_intervals_says_so(rng: np.random.Generator) -> None:
    x = rows(2000, rng)
    problem = dpgep.pca(x, bound=1.2)
    solution = solve_seeded(problem, epsilon=4.0, delta=1e-6, n_components=1)
    with pytest.raises(ValueError, match=r"level.*1\.5"):
        solution.intervals(1.5)
    with pytest.raises(ValueError, match=r"rows.*'uniform'"):
        solution.intervals(rows="uniform")  # type: ignore[arg-type]
    sparse = solve_seeded(problem, epsilon=4.0, delta=1e-6, n_components=1, sparsity=2)
    with pytest.raises(ValueError, match="sparse components"):
        sparse.intervals()
    wide = dpgep.pca(rng.standard_normal((50, 201)), bound=1.2)
    for other in (
        solve_seeded(problem, epsilon=4.0, delta=1e-6, n_components=1, method="rayleigh-flow"),
        solve_seeded(
            dpgep.pca(x * np.minimum(np.arange(x.shape[1]), 1), bound=1.2, standardize=True),
            epsilon=math.inf,
            n_components=1,
        ),
        solve_seeded(wide, epsilon=math.inf, n_components=1),
    ):
        with pytest.raises(ValueError, match="up to 200 features"):
            other.intervals()


@pytest.mark.parametrize("build", [dpgep.cca, dpgep.pls])
def test_constant_columns_without_noise_have_intervals(build: Any, rng: np.random.Generator) -> None:
    x = rows(500, rng)
    x[:, 1] = 0.3
    found = solve_seeded(build(x[:, :3], x[:, 3:], bound=1.2), epsilon=math.inf, n_components=1).intervals()
    assert np.isfinite(found.eigenvalues).all()


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 12), marks=pytest.mark.deep)])
@pytest.mark.parametrize("n", [2, 5, 200])
def test_where_noise_made_b_indefinite_angles_may_be_any(n: int, seeds: range) -> None:
    for seed in seeds:
        x = 10 * np.random.default_rng([seed, n]).standard_normal((n, 4))
        solution = solve_seeded(
            dpgep.cca(x[:, :2], x[:, 2:]), epsilon=10.0 ** (seed % 5 - 1), delta=1e-3, n_components=1, seed=seed
        )
        angles = solution.intervals().angles
        assert ((angles >= 0) & (angles <= 90)).all()


def released(x: Matrix, **budget: float) -> Any:
    return solve_seeded(dpgep.pca(x, bound=1.5), n_components=1, **budget)._moments


def test_correlations_without_noise_have_fisher_s_intervals(rng: np.random.Generator) -> None:
    n = 4000
    x = rng.multivariate_normal(np.zeros(3), 0.05 * np.array([[1, 0.8, 0.1], [0.8, 1, 0], [0.1, 0, 1]]), size=n)
    low, high = correlation_intervals(released(x, epsilon=math.inf))
    z, reach = np.arctanh(np.corrcoef(x.T) - np.eye(3)), stats.norm.ppf(0.95) / math.sqrt(n)
    outside = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(low[outside], np.tanh(z - reach)[outside], atol=5e-4)
    np.testing.assert_allclose(high[outside], np.tanh(z + reach)[outside], atol=5e-4)
    np.testing.assert_array_equal(np.diagonal(low), 1.0)
    np.testing.assert_array_equal(np.diagonal(high), 1.0)


@pytest.mark.statistical
def test_intervals_of_correlations_cover_and_need_the_noise_to_do_so() -> None:
    covariance = 0.05 * np.array([[1, 0.7], [0.7, 1]])
    covered = uncovered = 0
    for seed in range(DRAWS):
        x = np.random.default_rng([seed, 2]).multivariate_normal(np.zeros(2), covariance, size=20_000)
        moments = released(x, epsilon=0.3, delta=1e-6)
        low, high = correlation_intervals(moments)
        covered += low[0, 1] <= 0.7 <= high[0, 1]
        low, high = correlation_intervals(replace(moments, noise=NO_NOISE))
        uncovered += low[0, 1] <= 0.7 <= high[0, 1]
    assert covered >= FEWEST
    assert uncovered < FEWEST


def test_correlations_of_bounded_rows_and_of_drowned_columns(rng: np.random.Generator) -> None:
    x = rows(5000, rng)
    x[:, 5] *= 1e-3
    moments = released(x, epsilon=4.0, delta=1e-6)
    low, high = correlation_intervals(moments)
    np.testing.assert_array_equal(low[5], -1.0)
    np.testing.assert_array_equal(high[:, 5], 1.0)
    wide_low, wide_high = correlation_intervals(moments, rows="bounded", bound=1.5)
    assert (wide_high - wide_low >= high - low - 1e-9).all()
    assert wide_high[0, 1] - wide_low[0, 1] > 1.5 * (high[0, 1] - low[0, 1])
    with pytest.raises(ValueError, match="bound"):
        correlation_intervals(moments, rows="bounded")


def test_variances_that_noise_drowns_are_warned_of() -> None:
    """Of a bound 60 times as long as rows, groups stand out and variances within them do not."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 20_000)
    x = rng.standard_normal((20_000, 3)) + 3.0 * labels[:, None]
    problem = dpgep.fda(x, labels, classes=[0, 1], bound=200.0)
    for epsilon, warned in ((0.5, True), (1e5, False)):
        solution = solve_seeded(problem, 1, epsilon=epsilon, delta=1e-6, n_components=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solution.intervals()
        assert any("noise drowns the variances" in str(each.message) for each in caught) == warned


def test_redundancy_that_noise_hides_is_warned_of() -> None:
    x = np.random.default_rng(3).standard_normal((2000, 2))
    release = dpgep.release(x, bound=300.0, epsilon=0.1, delta=1e-6)
    with pytest.warns(dpgep.errors.AccuracyWarning, match="noise hides the columns"):
        release.redundancy([0], [1])
