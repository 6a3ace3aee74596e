"""The audit helper itself: its bounds hold as often as it says, are sharp, flag what is wrong, and explain misuse."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from conftest import solve_seeded
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtri

import dpgep
from dpgep.auditing import bounds as low_bits
from dpgep.auditing.bounds import classes_below, clopper_pearson, numbers_in
from dpgep.auditing.statistical import AuditResult, audit, audit_samples, release_statistic
from dpgep.privacy.accounting import epsilon_of, mu_of

FALSE_ALARM = 1e-6
Samples = NDArray[np.float64]


def gaussian_pair(rng: np.random.Generator, mu: float, runs: int) -> tuple[Samples, Samples]:
    return rng.standard_normal(runs), rng.standard_normal(runs) + mu


def laplace_pair(rng: np.random.Generator, epsilon: float, runs: int) -> tuple[Samples, Samples]:
    return rng.laplace(size=runs), rng.laplace(size=runs) + epsilon


def assert_rarely(failures: int, repetitions: int, rate: float) -> None:
    """At most `rate` of independent repetitions fail: rejected with probability FALSE_ALARM if that is true."""
    assert stats.binom.sf(failures - 1, repetitions, rate) >= FALSE_ALARM


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 3.0])
def test_bounds_hold_as_often_as_stated(mu: float, gaussian: bool, rng: np.random.Generator) -> None:
    confidence, delta, repetitions = 0.8, 1e-2, 100
    exact = epsilon_of(mu, delta)
    failures = 0
    for _ in range(repetitions):
        result = audit_samples(*gaussian_pair(rng, mu, 400), confidence=confidence, delta=delta, gaussian=gaussian)
        assert result.epsilon is not None
        failures += result.mu > mu or result.epsilon > exact
    assert_rarely(failures, repetitions, 1 - confidence)


@pytest.mark.statistical
def test_bounds_hold_for_pure_differential_privacy(rng: np.random.Generator) -> None:
    results = [audit_samples(*laplace_pair(rng, 1.0, 1000), confidence=0.8, delta=0.0) for _ in range(300)]
    bounds = np.array([result.epsilon for result in results], dtype=float)
    assert_rarely(int((bounds > 1.0).sum()), 300, 0.2)
    assert np.median(bounds) > 0.6


@pytest.mark.statistical
def test_thresholds_are_judged_on_runs_that_did_not_choose_them(rng: np.random.Generator) -> None:
    # judged on the runs that chose it, the best of hundreds of thresholds would exceed mu = 0 in 60 % of the audits
    results = [audit_samples(*gaussian_pair(rng, 0.0, 400), confidence=0.8) for _ in range(300)]
    assert_rarely(sum(result.mu > 0 for result in results), 300, 0.2)


@pytest.mark.parametrize("level", [0.3, 1e-3, 1e-9])
def test_clopper_pearson_is_exact(level: float) -> None:
    errors = np.array([0, 1, 7, 99, 100])
    upper = clopper_pearson(errors, 100, level)
    assert upper[-1] == 1
    np.testing.assert_allclose(stats.binom.cdf(errors[:-1], 100, upper[:-1]), level, rtol=1e-6)


@pytest.mark.statistical
@pytest.mark.parametrize(("gaussian", "runs"), [(True, 20_000), (False, 100_000)])
def test_bounds_are_sharp_with_many_runs(gaussian: bool, runs: int, rng: np.random.Generator) -> None:
    # mu >= 0.8 fails if the means err by eight of their deviations
    result = audit_samples(*gaussian_pair(rng, 1.0, runs), confidence=1 - 1e-7, delta=1e-2, gaussian=gaussian)
    assert 0.8 <= result.mu <= 1.0
    assert result.epsilon is not None
    assert 0.6 * epsilon_of(1.0, 1e-2) <= result.epsilon <= epsilon_of(1.0, 1e-2)


@pytest.mark.statistical
@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_noise_a_fifth_too_small_is_flagged(sign: float, gaussian: bool, rng: np.random.Generator) -> None:
    def mechanism(deviation: float) -> Callable[[float], float]:
        return lambda total: total + deviation * float(rng.standard_normal())

    arguments: Any = {"runs": 20_000, "mu": 2.0, "delta": 1e-2, "confidence": 1 - 1e-7, "gaussian": gaussian}
    wrong = audit(mechanism(0.8), (0.0, 2.0 * sign), float, **arguments)
    right = audit(mechanism(1.0), (0.0, 2.0 * sign), float, **arguments)
    assert wrong.flagged
    assert wrong.mu > 2.0
    assert not right.flagged


@pytest.mark.statistical
def test_thresholds_far_out_do_not_win_by_luck(rng: np.random.Generator) -> None:
    # a threshold at the centre gives mu >= 0.30 - 0.08 here; one passed by a handful of runs gives nothing
    bounds = [audit_samples(*gaussian_pair(rng, 0.3, 20_000), confidence=0.95, delta=1e-5).mu for _ in range(10)]
    assert np.median(bounds) > 0.18


def test_perfect_separation_gives_what_the_runs_allow() -> None:
    result = audit(lambda x: x, (0.0, 1.0), float, runs=2000, delta=1e-3, epsilon=1.0, confidence=0.99)
    rate = 1 - (0.01 / 4) ** (1 / 1000)
    assert result.flagged
    assert result.mu == pytest.approx(-2 * ndtri(rate))
    assert result.epsilon == pytest.approx(math.log((1 - rate - 1e-3) / rate))
    equal = audit(lambda x: 3.0, (0.0, 1.0), float, runs=2000, delta=1e-3, epsilon=1.0)
    assert (equal.mu, equal.epsilon, equal.flagged) == (0.0, 0.0, False)


def test_a_claim_in_epsilon_is_judged_in_epsilon() -> None:
    # an (epsilon, delta) claim says nothing about mu: this mechanism keeps epsilon = 0 at delta = 0.3
    first, second = np.arange(2000) % 4 > 0, np.ones(2000)
    result = audit_samples(first, second, delta=0.3, claimed_epsilon=0.1)
    assert (result.epsilon, result.claimed_mu) == (0.0, None)
    assert result.mu > 1.0
    assert not result.flagged
    assert audit_samples(first, second, claimed_mu=1.0).flagged


def lone_row(column: int, n: int = 30, d: int = 3) -> Samples:
    x = np.zeros((n, d))
    x[0, column] = 1.0
    return x


def uncentred(rows: Samples) -> Any:
    return dpgep.pca(rows, center=False, bound=1.0)


def matrix_of(solution: dpgep.Solution) -> Samples:
    return np.asarray((solution.components.T * solution.eigenvalues) @ solution.components)


def first_against_second(solution: dpgep.Solution) -> float:
    matrix = matrix_of(solution)
    return float(matrix[0, 0] - matrix[1, 1])


@pytest.mark.statistical
def test_a_problem_is_solved_with_the_budget_it_claims() -> None:
    result = audit(
        uncentred,
        (lone_row(0), lone_row(1)),
        first_against_second,
        runs=600,
        mu=4.0,
        delta=1e-3,
        gaussian=True,
        confidence=1 - 1e-7,
        seed=5,
    )
    assert result.claimed_mu == 4.0
    assert result.claimed_epsilon == epsilon_of(4.0, 1e-3)
    assert not result.flagged
    assert 0.6 < result.mu / 4.0 <= 1.0


@pytest.mark.deep
@pytest.mark.statistical
def test_the_claim_of_a_solution_is_its_report() -> None:
    seeds = iter(range(10**6))

    def understated(rows: Samples) -> dpgep.Solution:
        """Two solutions, of which one is reported."""
        first, second = (solve_seeded(uncentred(rows), next(seeds), epsilon=2.0, delta=1e-2) for _ in range(2))
        return dpgep.Solution(**{**vars(first), "eigenvalues": (first.eigenvalues + second.eigenvalues) / 2})

    plain = audit(
        lambda rows: solve_seeded(uncentred(rows), next(seeds), epsilon=2.0, delta=1e-2),
        (lone_row(0), lone_row(1)),
        first_against_second,
        runs=300,
    )
    assert (plain.claimed_epsilon, plain.delta) == (2.0, 1e-2)
    assert plain.claimed_mu == pytest.approx(mu_of(2.0, 1e-2))
    assert not plain.flagged
    other = audit(understated, (lone_row(0), lone_row(1)), first_against_second, runs=30, delta=1e-4)
    assert other.claimed_epsilon == pytest.approx(epsilon_of(mu_of(2.0, 1e-2), 1e-4))


@pytest.mark.statistical
def test_released_moments_with_the_likelihood_ratio_are_sharp_and_reproducible() -> None:
    neighbours = (lone_row(0), lone_row(1))
    arguments: Any = {"released": True, "epsilon": 4.0, "delta": 1e-2, "gaussian": True, "runs": 1500}
    first, second, other = (audit(uncentred, neighbours, None, seed=seed, **arguments) for seed in (1, 1, 2))
    assert first == second
    assert first.mu != other.mu
    assert first.claimed_epsilon == 4.0
    assert first.claimed_mu == mu_of(4.0, 1e-2)
    assert 0.8 < first.mu / mu_of(4.0, 1e-2) <= 1.0
    assert not first.flagged


def test_summed_moments_are_a_problem_like_others() -> None:
    def summed(x: Any) -> dpgep.Moments:
        moments = dpgep.Moments(dpgep.models.PcaModel(2, center=False), bound=1.0)
        moments.update(x)
        return moments

    x = np.zeros((40, 2))
    neighbours = x, np.vstack([np.eye(1, 2), x[1:]])
    result = audit(summed, neighbours, None, released=True, runs=200, mu=1.0, seed=0)
    assert result.claimed_mu == 1.0
    assert not result.flagged


def test_a_block_without_noise_is_an_error() -> None:
    problems = [dpgep.pca(lone_row(column), bound=1.0) for column in (0, 1)]
    statistic = release_statistic(*problems)
    from dpgep._dispatch import core
    from dpgep.privacy.curator import Curator, Release
    from dpgep.privacy.ledger import Ledger

    with pytest.raises(ValueError, match="was released without noise"):
        statistic(Curator(problems[0], Ledger(math.inf), core.NoiseStream()).answer(Release()))
    with pytest.raises(ValueError, match="release blocks of different shapes"):
        release_statistic(problems[0], dpgep.pca(lone_row(0, d=4), bound=1.0))


def test_the_result_reads_well_and_is_frozen() -> None:
    result = AuditResult(0.5, 1.25, 1e-5, 0.99, 0.25, 1.0, 2000, True)
    assert repr(result).splitlines() == [
        "AuditResult: 2000 runs on each data set, Gaussian statistic, confidence 0.99",
        "  mu      >= 0.5        (claimed 0.25)",
        "  epsilon >= 1.25       (claimed 1) at delta = 1e-05",
        "  FLAGGED: the claim is false",
    ]
    assert "not flagged: this does not prove it" in repr(AuditResult(0.2, None, None, 0.99, 0.25, None, 2000, True))
    assert "no claim to compare with" in repr(AuditResult(0.2, None, None, 0.99, None, None, 2000, False))
    with pytest.raises(FrozenInstanceError):
        result.mu = 0.0  # type: ignore[misc]


def test_progress_goes_to_stderr_and_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    audit(lambda x: x, (0.0, 1.0), float, runs=20)
    assert capsys.readouterr() == ("", "")
    audit(lambda x: x, (0.0, 1.0), float, runs=20, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "audit: 20 of 20 runs on data_prime" in err
    assert len(err.splitlines()) == 20


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"mechanism": 3}, TypeError, "mechanism must be a function of the data"),
        ({"statistic": 3}, TypeError, "statistic must be a function of the output, got int"),
        ({"statistic": None}, TypeError, "statistic=None requires released=True"),
        ({"neighbours": np.zeros(3)}, TypeError, "neighbours must be a pair"),
        ({"neighbours": (1.0, 2.0, 3.0)}, TypeError, "neighbours must be a pair"),
        ({"runs": 10}, ValueError, "at least 20 runs on each data set, got 10"),
        ({"runs": 1e3}, TypeError, "runs must be a whole number"),
        ({"confidence": 1.0}, ValueError, "confidence must lie strictly between 0 and 1, got 1.0"),
        ({"delta": 1.0}, ValueError, r"delta must lie in \[0, 1\), got 1.0"),
        ({"epsilon": 1.0}, ValueError, "epsilon needs a delta"),
        ({"epsilon": 1.0, "delta": 0.1, "mu": 1.0}, ValueError, "two claims given"),
        ({"mu": -1.0}, ValueError, "mu must be a non-negative number, got -1.0"),
        ({"rho": 1.0}, ValueError, "rho is not a claim about a single test"),
        ({"released": True}, TypeError, "mechanism returned float, not a problem: released would have no effect"),
        ({"seed": 1, "n_components": 2}, TypeError, "seed, n_components would have no effect"),
        ({"statistic": lambda x: math.nan}, ValueError, "statistic returned nan in run 0 on data: it must be finite"),
        ({"statistic": lambda x: 1 / x if x else math.inf}, ValueError, "statistic returned inf in run 0 on data:"),
        ({"statistic": lambda x: np.zeros(2)}, TypeError, "statistic must return one number, got ndarray"),
        ({"statistic": lambda x: None}, TypeError, "statistic must return one number, got NoneType"),
        ({"gaussian": True}, ValueError, "the statistic is constant"),
        ({"gaussian": True, "delta": 0.0}, ValueError, "gaussian=True needs delta > 0"),
    ],
)
def test_misuse_is_explained(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"mechanism": float, "neighbours": (0.0, 1.0), "statistic": float, "runs": 20}
    with pytest.raises(error, match=message):
        audit(**{**arguments, **changes})


def test_a_release_that_is_audited_has_a_known_bound() -> None:
    rows = lone_row(0), lone_row(1)
    for statistic in (None, first_against_second):
        with pytest.raises(ValueError, match="of a known bound"):
            audit(dpgep.pca, rows, statistic, released=True, mu=1.0, runs=20)
    with pytest.raises(ValueError, match="of a known bound"):
        release_statistic(dpgep.pca(rows[0]), dpgep.pca(rows[1]))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({}, ValueError, "give exactly one budget"),
        ({"mu": 1.0, "budget": dpgep.Budget(mu=1.0)}, TypeError, "every run of an audit has its own budget"),
        ({"mu": 1.0, "released": True, "n_components": 2}, TypeError, "released=True audits the release of the method"),
        ({"mu": 1.0, "speed": 2}, TypeError, "method 'release' has no option 'speed'"),
        ({"mu": 1.0, "statistic": None}, TypeError, "statistic=None requires released=True"),
    ],
)
def test_misuse_with_problems_is_explained(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"neighbours": (lone_row(0), lone_row(1)), "statistic": first_against_second}
    with pytest.raises(error, match=message):
        audit(uncentred, **{**arguments, **changes})


@pytest.mark.parametrize(
    ("value", "scale", "expected"),
    [
        (0.0, -5, 8),
        (3.0, 0, 8),
        (3.0, 1, 4),
        (-1.0, 2, 6),
        (0.3125, -3, 4),
        (2.0**-60, 0, 0),
        (-(2.0**-60), 0, 7),
        (1.0 + 2.0**-52, -52, 8),
        (1.0 + 2.0**-52, -51, 4),
        (1e30, -50, 8),
    ],
)
def test_classes_below_a_power_of_two(value: float, scale: int, expected: int) -> None:
    assert classes_below(np.array([value]), scale) == expected


def test_numbers_in_an_output_are_found_whole() -> None:
    solution = dpgep.solve(dpgep.pca(lone_row(0), bound=1.0), epsilon=math.inf, n_components=1)
    found = numbers_in((solution.components, [1.5, True, "text", None], {"count": np.int64(2**62 + 1)}))
    assert [part.tolist() for part in found[1:]] == [[1.5], [2.0**30], [1.0]]
    np.testing.assert_array_equal(found[0], solution.components.ravel())
    assert any(np.array_equal(part, solution.mean) for part in numbers_in(solution))


def float_noise(rng: np.random.Generator, totals: Samples, mu: float) -> Callable[[float], Samples]:
    """50 sums that are 0, or all of ``totals``, plus doubles: together mu-GDP on paper."""
    deviation = float(np.linalg.norm(totals)) / mu
    return lambda side: side * totals + deviation * rng.standard_normal(len(totals))


@pytest.mark.statistical
def test_low_bits_of_floating_point_sums_are_flagged_and_their_values_are_not(rng: np.random.Generator) -> None:
    mechanism = float_noise(rng, np.ones(50), 0.5)
    arguments: Any = {"runs": 2000, "mu": 0.5, "delta": 1e-5, "confidence": 1 - 1e-7}
    low_bits = audit(mechanism, (0.0, 1.0), None, low_bits=True, **arguments)
    assert low_bits.flagged
    assert low_bits.mu > 1.0
    assert "numbers modulo 2^-" in repr(low_bits)
    assert not audit(mechanism, (0.0, 1.0), np.sum, gaussian=True, **arguments).flagged


@pytest.mark.statistical
def test_low_bits_find_the_one_entry_that_tells(rng: np.random.Generator) -> None:
    totals = np.zeros(40)
    totals[17] = 1.0
    result = audit(float_noise(rng, totals, 1.0), (0.0, 1.0), None, low_bits=True, runs=4000, mu=1.0)
    assert result.flagged
    assert result.pattern is not None
    assert result.pattern.endswith("entries 17")


@pytest.mark.statistical
@pytest.mark.parametrize("mu", [0.1, 3.0])
def test_low_bits_of_integers_tell_nothing(mu: float, rng: np.random.Generator) -> None:
    # exactly rounded noise on a grid: of 200 audits, none may find what is not there (each does with 1e-7)
    unit = 2.0**-40

    def on_grid(total: float) -> Samples:
        return np.asarray(np.rint((total + rng.standard_normal((400, 5)) / mu) / unit) * unit)

    bounds = [
        audit_samples(on_grid(0.0), on_grid(1.0), low_bits=True, confidence=1 - 1e-7, delta=1e-5) for _ in range(20)
    ]
    assert max(result.mu for result in bounds) == 0.0


@pytest.mark.statistical
def test_low_bits_are_judged_on_runs_that_did_not_choose_them(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # where anything passes for a pattern, it fits the runs that chose it, and the others as rarely as confidence says
    monkeypatch.setattr(low_bits, "_chance", lambda n_entries: 0.0)
    results = [
        audit_samples(*rng.standard_normal((2, 200, 8)), confidence=0.8, low_bits=True, parts=[3, 5]) for _ in range(40)
    ]
    assert all(result.pattern != "no pattern found" for result in results)
    assert_rarely(sum(result.mu > 0 for result in results), 40, 0.2)


def test_low_bits_need_the_same_numbers_from_every_run() -> None:
    lengths = iter(range(1, 100))
    with pytest.raises(ValueError, match="needs arrays of one length in all runs: run 1 on data gave"):
        audit(lambda x: np.zeros(next(lengths)), (0.0, 1.0), None, low_bits=True, runs=20)
    with pytest.raises(ValueError, match="gave \\[\\]"):
        audit(lambda x: "text", (0.0, 1.0), None, low_bits=True, runs=20)
    with pytest.raises(ValueError, match="gaussian=True assumes a statistic linear in the values"):
        audit_samples(np.zeros((20, 2)), np.zeros((20, 2)), low_bits=True, gaussian=True)
    with pytest.raises(ValueError, match=r"must be matrices of the same shape \(runs, m\), got shapes \(20,\)"):
        audit_samples(np.zeros(20), np.zeros(20), low_bits=True)
    with pytest.raises(ValueError, match=r"parts must add up to m = 2, got \[1\]"):
        audit_samples(np.zeros((20, 2)), np.zeros((20, 2)), low_bits=True, parts=[1])


def test_samples_that_are_not_gaussian_are_refused(rng: np.random.Generator) -> None:
    x, y = gaussian_pair(rng, 1.0, 4000)
    with pytest.raises(ValueError, match="clearly not normal"):
        audit_samples(rng.exponential(size=4000), rng.exponential(size=4000), gaussian=True)
    with pytest.raises(ValueError, match="variances differ by a factor"):
        audit_samples(x, 2 * y, gaussian=True)
    with pytest.raises(ValueError, match="vectors of the same length"):
        audit_samples(x, y[:-1])
    with pytest.raises(ValueError, match="contain NaN"):
        audit_samples(x, np.where(y > 2, np.nan, y))
    with pytest.raises(ValueError, match="claimed_epsilon needs its delta"):
        audit_samples(x, y, claimed_epsilon=1.0)
