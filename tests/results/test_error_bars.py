"""What a solution says of its own error: what noise alone could show is lost, and the errors of the others hold."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import Matrix, solve_seeded
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import halfnorm

import dpgep
from dpgep.methods import eigen
from dpgep.methods.eigen import (
    FALSE_ALARM,
    Eigensystem,
    before_noise,
    judged_components,
    log_supports,
    null_eigenvalue,
    semicircle_edge,
)
from dpgep.models import PcaModel, PlsModel
from dpgep.models.moments import MomentNoise, ReleasedMoments, goe


def isotropic(n: int, d: int, rng: np.random.Generator) -> Matrix:
    return np.asarray(rng.standard_normal((n, d)) / math.sqrt(d) / 1.5)


def null_problems(rng: np.random.Generator) -> dict[str, Any]:
    x = isotropic(1000, 8, rng)
    return {
        "pca": dpgep.pca(x, bound=1.0),
        "pca uncentred": dpgep.pca(x, center=False, bound=1.0),
        "pca with a mean": dpgep.pca(x + 0.15, bound=1.0),
        "standardized pca": dpgep.pca(x * np.linspace(0.7, 1, 8) + 0.1, standardize=True, bound=1.0),
        "cca": dpgep.cca(x[:, :4], x[:, 4:], bound=1.0),
        "pls": dpgep.pls(x[:, :4], x[:, 4:], bound=1.0),
        "fda": dpgep.fda(x, rng.integers(0, 3, 1000), classes=(0, 1, 2), bound=1.0),
        "sir": dpgep.sir(x, rng.standard_normal(1000), slices=4, y_range=(-2, 2), bound=1.0),
        "gep": dpgep.gep(np.eye(8) / 8, np.eye(8), n=1000, sensitivity_a=2.0, sensitivity_b=2.0),
    }


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.parametrize(
    "name", ["pca", "pca uncentred", "pca with a mean", "standardized pca", "cca", "pls", "fda", "sir", "gep"]
)
def test_noise_alone_is_lost(name: str, rng: np.random.Generator) -> None:
    # Noise is several times what chance left in the rows. Each draw passes for a component with a probability of about
    # FALSE_ALARM; were it twice that, more than 8 of 60 would do so with a probability of 2e-8.
    assert FALSE_ALARM == 5e-3
    problem, passed = null_problems(rng)[name], 0
    for seed in range(60):
        diagnostics = solve_seeded(problem, seed, epsilon=0.1, delta=1e-6, n_components=1).diagnostics
        passed += not diagnostics.lost[0]
        assert diagnostics.lost[0] == (diagnostics.expected_error[0] == 1)
    assert passed <= 8


@pytest.mark.statistical
@pytest.mark.parametrize("d", [2, 12])
def test_ranges_hold_nine_errors_in_ten(d: int, rng: np.random.Generator) -> None:
    """Of noise with a known bound, whether one other direction or eleven are near: errors themselves vary 30-fold."""
    x = np.clip(rng.standard_normal((20_000, d)) * np.append(1.0, np.full(d - 1, 0.6)) / (2 * math.sqrt(d)), -1, 1)
    draws, inside, halves = 200, 0, 0
    truth = dpgep.solve(dpgep.pca(x, bound=2.0), epsilon=math.inf, n_components=1).components[0]
    for seed in range(draws):
        found = solve_seeded(dpgep.pca(x, bound=2.0), seed, epsilon=2.0, delta=1e-6, n_components=1)
        low, high = found.diagnostics.error_range[0]
        error = 1 - float(found.components[0] @ truth) ** 2
        inside += low <= error <= high
        halves += low * 4 <= error <= high / 4
        assert 0 < low < found.diagnostics.expected_error[0] < high <= 1
    # were it .87, fewer than 151 of 200 would be inside with a probability below 1e-6
    assert inside >= 151
    assert halves < 151


def test_ranges_of_what_is_lost_and_of_no_noise(rng: np.random.Generator) -> None:
    x = isotropic(1000, 8, rng)
    lost = solve_seeded(dpgep.pca(x, bound=1.0), epsilon=0.1, delta=1e-6, n_components=1).diagnostics
    assert lost.error_range.tolist() == [[0.0, 1.0]]
    exact = dpgep.solve(dpgep.pca(x[:, :1], bound=1.0), epsilon=math.inf, n_components=1).diagnostics
    assert exact.error_range.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("name", ["pca", "standardized pca", "cca", "pls", "fda", "sir"])
def test_signal_is_not_lost(name: str, rng: np.random.Generator) -> None:
    """Rows with a direction that stands out: without this, a library that calls all lost would pass."""
    n, labels = 100_000, rng.integers(0, 2, 100_000)
    x = isotropic(n, 8, rng) / 2
    x[:, 0] += 0.4 * (labels - 0.5)
    x[:, 7] += 0.4 * (labels - 0.5)
    problem = {
        "pca": lambda: dpgep.pca(x, bound=1.0),
        "standardized pca": lambda: dpgep.pca(x * np.linspace(0.5, 1, 8), standardize=True, bound=1.0),
        "cca": lambda: dpgep.cca(x[:, :4], x[:, 4:], bound=1.0),
        "pls": lambda: dpgep.pls(x[:, :4], x[:, 4:], bound=1.0),
        "fda": lambda: dpgep.fda(x, labels, classes=(0, 1), bound=1.0),
        "sir": lambda: dpgep.sir(x, labels + 0.0, slices=2, y_range=(0, 1), bound=1.0),
    }[name]()
    diagnostics = solve_seeded(problem, epsilon=1.0, delta=1e-6, n_components=1).diagnostics
    assert diagnostics.lost == (False,)
    assert diagnostics.expected_error[0] < 0.2


@pytest.mark.statistical
@pytest.mark.parametrize("d", [2, 5, 20, 60])
def test_the_edge_of_the_semicircle_is_hardly_passed(d: int, rng: np.random.Generator) -> None:
    # at most FALSE_ALARM of 3000 draws: more than 40 where 15 are expected have a probability of 2e-8
    largest = np.array([np.linalg.eigvalsh(goe(d, 1.0, rng))[-1] for _ in range(3000)])
    assert (largest > semicircle_edge(d)).sum() <= 40
    assert (largest > 0.6 * semicircle_edge(d)).sum() > 40  # and not for being far away


def edge_of_searched_noise(model: Any, d: int, log_searched: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """In deviations s_1, with so many draws of noise alone that mean and deviation are known to some percent."""
    for name, value in (("_SMALL_DRAWS", 4000), ("_MOST_DRAWS", 4000), ("_EDGES_TIMES_CUBE", math.inf)):
        monkeypatch.setattr(eigen, name, value)
    second = np.diag(np.linspace(2.0, 1.0, d))
    released = ReleasedMoments(np.zeros((d, 0)), np.zeros(0), 1e3, MomentNoise(1.0, 0.0, 0.0), second)
    system = Eigensystem(np.linspace(2.0, 1.0, d), np.eye(d), 0.0)
    _, edges = judged_components(model.noisy(released), system, 1, log_searched)
    return float(edges[0] - null_eigenvalue(model, system.values))


@pytest.mark.parametrize("searched", [1, 10, 784, 10**5])
def test_searched_noise_of_one_entry_is_lost(searched: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One feature of each view: the leading eigenvalue of noise alone is |N|/sqrt(2), whose tail is known."""
    edge = edge_of_searched_noise(PlsModel((1, 1), False), 2, math.log(searched), monkeypatch)
    exact = halfnorm.isf(FALSE_ALARM / searched) / math.sqrt(2)
    assert exact * 0.97 <= edge <= exact * 1.12


@pytest.mark.parametrize(("d", "k"), [(100, 10), (784, 50), (1000, 200)])
def test_searched_noise_of_many_features_is_lost(d: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The density of the largest eigenvalue t of GOE(1), k x k, far from the others: with Z of k - 1 features, and C_k
    the constant of the joint density, it is k C_k/C_{k-1} exp(-t^2/2) E|det(t - Z)|.
    """
    edge = edge_of_searched_noise(PcaModel(k, False), k, log_supports(d, k), monkeypatch)
    rest = leading_spectra(k - 1, np.random.default_rng(0))
    # 1/C_k = (2 pi)^(k/2) prod_j gamma(1 + j/2)/gamma(3/2), Mehta's integral
    constant = math.log(k) - math.log(2 * math.pi) / 2 - math.lgamma(1 + k / 2) + math.lgamma(3 / 2)

    def log_probability(t: float) -> float:
        """Of a larger one: the density falls as exp(-t s) does, s no more than t."""
        determinants = np.log(np.abs(t - rest)).sum(axis=1)
        return float(constant - t * t / 2 + logsumexp(determinants) - math.log(len(rest)) - math.log(t))

    exact = brentq(lambda t: log_probability(t) - math.log(FALSE_ALARM) + log_supports(d, k), math.sqrt(2 * k), 10 * k)
    # less their mean, which is N(0, 1/k), they have a shorter tail
    assert edge >= math.sqrt(1 - 1 / k) * exact * 0.97


def leading_spectra(k: int, rng: np.random.Generator) -> Matrix:
    return np.array([np.linalg.eigvalsh(goe(k, 1.0, rng)) for _ in range(100)])


@pytest.mark.statistical
def test_eigenvalues_are_brought_back_to_before_the_noise(rng: np.random.Generator) -> None:
    # Means of 100 draws of deviation 1 at most: 0.1, and eight times that is allowed.
    d, deviation = 40, 1.0
    truth = np.concatenate([[40.0, 25.0], np.zeros(d - 2)])
    variances = np.full((d, d), deviation**2 / 2)
    noisy = [np.linalg.eigvalsh(np.diag(truth) + goe(d, deviation, rng))[::-1] for _ in range(100)]
    back = np.mean([before_noise(values, variances) for values in noisy], axis=0)
    np.testing.assert_allclose(back[:2], truth[:2], atol=0.8)
    edge = math.sqrt(2 * d)
    assert np.mean(noisy, axis=0)[2] > 0.8 * edge  # where it is before
    assert back[2] < 0.55 * edge
    assert (np.diff(back) <= 1e-9).all()


def test_a_sparse_search_that_finds_noise_is_lost(rng: np.random.Generator) -> None:
    problem = dpgep.pca(isotropic(2000, 40, rng), bound=1.0)
    searched = solve_seeded(problem, epsilon=0.1, delta=1e-6, n_components=1, sparsity=5).diagnostics
    assert searched.lost == (True,)
    assert searched.expected_error[0] == searched.expected_subspace_error == 1
    nothing = solve_seeded(problem, epsilon=0.1, delta=1e-6, n_components=1, sparsity="auto").diagnostics
    assert nothing.lost == (True,)
    assert nothing.expected_error[0] == nothing.expected_subspace_error == 1
    screened = solve_seeded(problem, epsilon=0.1, delta=1e-6, n_components=2, screen=10).diagnostics
    assert screened.lost == (True, True)
    assert screened.expected_subspace_error >= 1.9


def test_a_screen_reports_what_it_missed(rng: np.random.Generator) -> None:
    """Strong correlation within any block, so that a component of the block is found though the screen kept any."""
    n, d = 20000, 60
    x = 0.1 * isotropic(n, d, rng) + 0.6 * rng.standard_normal((n, 1)) / math.sqrt(d)
    problem = dpgep.pca(x, bound=1.0)
    diagnostics = solve_seeded(problem, epsilon=0.5, delta=1e-6, n_components=1, screen=12).diagnostics
    assert diagnostics.lost == (False,)
    assert diagnostics.screened.missed > 0.3
    assert diagnostics.expected_error[0] > 0.3
    exact = dpgep.solve(problem, epsilon=math.inf, n_components=1, screen=12).diagnostics
    assert exact.screened.missed == 0


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("release", {}),
        ("release", {"storage": "operator"}),
        ("sr-dp", {}),
        ("local-gaussian", {}),
        ("rayleigh-flow", {}),
        ("rayleigh-flow", {"noise": "fresh"}),
        ("truncated-rayleigh-flow", {"sparsity": 3}),
        ("dpsr", {}),
        ("dpsrs", {"sparsity": 3}),
        ("dp-spca", {}),
        ("dp-vrpca", {}),
    ],
)
def test_every_method_reports_its_error(method: str, options: dict[str, Any], rng: np.random.Generator) -> None:
    n = 50000
    x = isotropic(n, 6, rng) * [2.0, 1.0, 0.3, 0.3, 0.3, 0.3] / 2
    for epsilon, found in ((20.0, True), (1e-3, False)):
        if method == "local-gaussian":
            epsilon *= 10
        solution = solve_seeded(
            dpgep.pca(x, center=False, bound=1.0), epsilon=epsilon, delta=1e-6, n_components=1, method=method, **options
        )
        diagnostics = solution.diagnostics
        assert len(diagnostics.lost) == len(diagnostics.expected_error) == 1
        assert 0 <= diagnostics.expected_subspace_error <= 1
        assert diagnostics.lost[0] is not found
        assert bool(diagnostics.expected_error[0] < 0.3) is found
        assert ("noise alone could produce it" in str(solution)) is not found


def test_correlations_beyond_one_are_said_to_be_so(rng: np.random.Generator) -> None:
    x = isotropic(2000, 2, rng)
    problem = dpgep.cca(x, x, bound=1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solutions = [dpgep.solve(problem, mu=1.0, regularization=0.0, seed=seed) for seed in range(5)]
    beyond = [solution for solution in solutions if solution.eigenvalues[0] > 1]
    said = [warning.message.solution for warning in caught if "exceed 1, their upper limit" in str(warning.message)]  # type: ignore[union-attr]
    assert beyond
    assert said == beyond


def test_rows_clipped_without_noise_are_said_to_be_so(rng: np.random.Generator) -> None:
    raw = rng.standard_normal((500, 6))
    with pytest.warns(dpgep.errors.AccuracyWarning, match=r"\d+% of the rows exceed the bound"):
        dpgep.solve(dpgep.pca(raw, bound=1.0), epsilon=math.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dpgep.solve(dpgep.pca(raw, bound=20.0), epsilon=math.inf)
        # unit rows have the bound's norm: nothing is cut
        dpgep.solve(dpgep.pca(raw / np.linalg.norm(raw, axis=1, keepdims=True), bound=1.0), epsilon=math.inf)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dpgep.solve(dpgep.pca(raw, bound=1.0), epsilon=1.0, delta=1e-6)
    assert not any("exceed the bound" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("options", [{"method": "rayleigh-flow"}, {"method": "dpsr"}, {"storage": "operator"}], ids=str)
def test_the_centre_of_both_signs_is_zero(options: dict[str, Any], rng: np.random.Generator) -> None:
    """One feature in each view, 45 times the noise: what a random start says of the centre would call it lost."""
    shared = rng.standard_normal((4000, 1)) / 4
    problem = dpgep.pls(shared, shared + rng.standard_normal((4000, 1)) / 20, bound=1.0)
    for seed in range(8):
        found = solve_seeded(problem, seed, mu=5.0, n_components=1, **options).diagnostics
        assert found.lost == (False,)
        assert found.expected_error[0] < 0.01


@pytest.mark.parametrize("bound", [1e-30, 1e-20, 1e20, 1e30])
@pytest.mark.parametrize("options", [{}, {"method": "rayleigh-flow"}, {"sparsity": 2}], ids=str)
def test_error_bars_do_not_depend_on_units(options: dict[str, Any], bound: float, rng: np.random.Generator) -> None:
    x = isotropic(3000, 6, rng)
    x[:, 3] += x[:, 0]
    labels = (x[:, 1] > 0).astype(int)

    def errors(unit: float) -> list[float]:
        rows = unit * x
        problems: list[Any] = [
            dpgep.pca(rows, bound=unit),
            dpgep.cca(rows[:, :3], rows[:, 3:], bound=unit),
            dpgep.pls(rows[:, :3], rows[:, 3:], bound=unit),
            dpgep.fda(rows, labels, classes=(0, 1), bound=unit),
        ]
        fits = [solve_seeded(problem, 1, mu=20.0, n_components=1, **options) for problem in problems]
        return [float(fit.diagnostics.expected_error[0]) for fit in fits]

    # what rounding moves may choose another ridge, as good within some percent
    np.testing.assert_allclose(errors(bound), errors(1.0), rtol=0.1, atol=1e-9)
