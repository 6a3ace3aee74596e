"""Regression from released moments: least squares without noise, and intervals that hold with it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from conftest import Matrix

import dpgep
from dpgep.models import TableModel
from dpgep.models.moments import MomentNoise, ReleasedMoments, goe
from dpgep.results.least_squares import Regression, _corrected_inverse, _of_mean, _resolvent
from dpgep.results.release import Release

NAMES = tuple("abcdef")


def table(rng: np.random.Generator, n: int = 3000) -> Matrix:
    """Six correlated columns in units of their own, some far from zero."""
    x = rng.standard_normal((n, 6)) @ rng.standard_normal((6, 6))
    return np.asarray(x * [1, 10, 0.1, 5, 3, 2] + [0, 100, 3, 0, 5, -20])


def question(released: Release, target: int, on: Any, **options: Any) -> Regression:
    return released.regression(target, list(on), **options)


def released(problem: Any, epsilon: float, seed: int | None = None) -> Release:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        return dpgep.release(problem, epsilon=epsilon, delta=1e-6, seed=seed)


PROBLEMS = {
    "public bound": lambda x: dpgep.pca(x, bound=1e3),
    "location and scale": lambda x: dpgep.pca(x, standardize=True),
    "location": lambda x: dpgep.pca(x),
    "groups": lambda x: dpgep.fda(x, (x[:, 0] > 0).astype(int), classes=(0, 1), bound=1e3),
    "add-remove": lambda x: dpgep.pca(x, bound=1e3, adjacency="add-remove"),
}


@pytest.mark.parametrize("seed", [8, 128])
def test_the_share_of_noise_is_large_where_few_people_show_less_than_nothing(seed: int) -> None:
    """Squares of coefficients, less what people add, are negative there: the share was said to be 0 or -19."""
    x = np.random.default_rng(seed).standard_normal((30, 8)) * [20, 1, 1, 1, 1, 1, 1, 1]
    with pytest.warns(dpgep.errors.AccuracyWarning):
        share = question(released(dpgep.pca(x, bound=60.0), 1.0, seed), 0, range(1, 8)).noise_share
    assert share == 1


@pytest.mark.parametrize("name", PROBLEMS)
def test_without_noise_it_is_ordinary_least_squares(name: str, rng: np.random.Generator) -> None:
    x, on = table(rng), [0, 2, 1, 3]
    fit = question(released(PROBLEMS[name](x), np.inf), 5, on)
    oracle = sm.OLS(x[:, 5], sm.add_constant(x[:, on])).fit()
    np.testing.assert_allclose(np.append(fit.intercept, fit.coefficients), oracle.params, rtol=1e-10)
    np.testing.assert_allclose(np.append(fit.intercept_error, fit.standard_errors), oracle.bse, rtol=1e-10)
    intervals = np.vstack([fit.intercept_interval(0.95), fit.intervals(0.95)])
    np.testing.assert_allclose(intervals, oracle.conf_int(0.05), rtol=1e-9)
    np.testing.assert_allclose(fit.residual_variance, oracle.mse_resid, rtol=1e-10)
    np.testing.assert_allclose(fit.r_squared, oracle.rsquared, rtol=1e-10)
    assert fit.noise_share == 0
    assert not fit.noise_errors.any()
    np.testing.assert_allclose(fit.predict(x[:9, on]), oracle.fittedvalues[:9], rtol=1e-9)


def test_people_without_a_group_are_left_out(rng: np.random.Generator) -> None:
    x, groups = table(rng), rng.integers(0, 3, 3000)
    fit = question(released(dpgep.fda(x, groups, classes=(0, 1), bound=1e3), np.inf), 5, [0, 1])
    members = x[groups < 2]
    oracle = sm.OLS(members[:, 5], sm.add_constant(members[:, :2])).fit()
    np.testing.assert_allclose(np.append(fit.intercept, fit.coefficients), oracle.params, rtol=1e-9)
    np.testing.assert_allclose(fit.standard_errors, oracle.bse[1:], rtol=1e-9)
    assert fit.n_people == pytest.approx(len(members))


def test_a_ridge_penalizes_mapped_columns(rng: np.random.Generator) -> None:
    x, on = table(rng), [0, 1, 2]
    moments = released(dpgep.pca(x, standardize=True), np.inf)
    assert moments.preprocessing is not None
    assert moments.preprocessing.scale is not None
    z = (x - x.mean(axis=0)) / moments.preprocessing.scale
    mapped = np.linalg.solve(z[:, on].T @ z[:, on] / len(z) + 0.5 * np.eye(3), z[:, on].T @ z[:, 5] / len(z))
    scale = moments.preprocessing.scale
    fit = question(moments, 5, on, ridge=0.5)
    np.testing.assert_allclose(fit.coefficients, mapped * scale[5] / scale[on], rtol=1e-9)
    assert (fit.people_errors < question(moments, 5, on).people_errors)[1:].all()
    singular = released(dpgep.pca(np.column_stack([x, x[:, 0]]), standardize=True), np.inf)
    np.testing.assert_allclose(*question(singular, 5, [0, 6], ridge=0.1).coefficients)


@pytest.mark.parametrize("matrix", [np.diag([3.0, 2.0, 1.0]), np.diag([1.0, 0.0, -1.0]), -np.eye(3), np.zeros((3, 3))])
def test_the_correction_solves_its_equation(matrix: Matrix, rng: np.random.Generator) -> None:
    turned = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    b, v, mean = turned @ matrix @ turned.T, 0.3, np.array([0.5, -0.2, 0.1])
    g = _resolvent(b, v)
    assert np.linalg.eigvalsh(g)[0] > 0
    np.testing.assert_allclose(np.linalg.inv(g), b + v * (np.trace(g) * np.eye(3) + g), atol=1e-9)
    g, xi = _corrected_inverse(b, v, mean, 0.2)
    np.testing.assert_allclose(np.linalg.inv(g), b + xi, rtol=1e-4, atol=1e-4)


@pytest.mark.statistical
def test_the_correction_is_the_mean_of_the_noise_squared(rng: np.random.Generator) -> None:
    # Entries are averages of 20000 products with deviations below 8 v: more than 0.4 v off with a probability below
    # 1e-11 each.
    root, mean, v = rng.standard_normal((4, 4)) / 2, np.array([1.0, -0.5, 0.3, 0.0]), 1.0
    g, total = root @ root.T, np.zeros((4, 4))
    for _ in range(20_000):
        e = rng.standard_normal(4)
        noise = goe(4, np.sqrt(2 * v), rng) - np.outer(mean, e) - np.outer(e, mean)
        total += noise @ g @ noise / 20_000
    expected = v * (np.trace(g) * np.eye(4) + g) + _of_mean(g, mean, 1.0)
    assert np.abs(total - expected).max() < 0.4


def population(p: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Covariance of [x, y] for columns x of correlations 0.5^|i-j|, and beta."""
    covariance = 0.5 ** np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    beta = rng.standard_normal(p)
    beta /= np.sqrt(beta @ covariance @ beta)
    c = covariance @ beta
    return np.block([[covariance, c[:, None]], [c[None, :], np.full((1, 1), 2.0)]]), beta


def noisy(
    covariance: Matrix, mean: Matrix, noise: MomentNoise, counted: bool, rng: np.random.Generator
) -> ReleasedMoments:
    """A release of 10^9 people with these moments: normalized by their number or, if ``counted``, by a noisy one."""
    d = len(mean)
    people = 1 + noise.counts * rng.standard_normal() if counted else 1.0
    return ReleasedMoments(
        second=(covariance + np.outer(mean, mean) + goe(d, noise.second, rng)) / people,
        sums=(mean + noise.sums * rng.standard_normal(d))[:, None] / people,
        counts=np.ones(int(counted)),
        n=1e9,
        noise=noise,
    )


@pytest.fixture
def report() -> Any:
    return dpgep.release(dpgep.pca(np.eye(3), bound=1.0), epsilon=1.0, delta=1e-6).privacy


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_noise_errors_are_those_of_repeated_releases(
    shift: float, counted: bool, rng: np.random.Generator, report: Any
) -> None:
    # Sums of 1000 squares, right to 3 % at this noise: off by 0.3 with a probability below 1e-8.
    covariance, beta = population(5, rng)
    mean, noise = shift * rng.standard_normal(6), MomentNoise(0.005, 0.002, 0.003)
    truth = np.append(mean[5] - mean[:5] @ beta, beta)
    squares, claimed = np.zeros(6), np.zeros(6)
    for _ in range(1000):
        fit = dpgep.Release(
            TableModel(6), report, noisy(covariance, mean, noise, counted, rng), frozenset()
        ).regression(5)
        squares += (np.append(fit.intercept, fit.coefficients) - truth) ** 2
        claimed += fit.noise_errors**2
    np.testing.assert_allclose(squares / claimed, 1.0, atol=0.3)
    assert (fit.people_errors < fit.noise_errors / 10).all()


@pytest.mark.deep
@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_coefficients_and_errors_are_right_where_first_order_is_not(
    shift: float, rng: np.random.Generator, report: Any
) -> None:
    # The slope of the coefficients on the true ones, of deviation at most 0.2, as is asserted: the mean of 400 draws is
    # 0.06 off with a probability below 1e-8. Squares of errors have 400 (tr V)^2/tr V^2 > 4000 degrees of freedom for
    # V = C^-2, so their sum is 14 % off with one below 1e-8; without the shrinkage of b it is by 20 %.
    p, slopes, plain, residual, squares, claimed = 30, [], [], [], 0.0, 0.0
    covariance, beta = population(p, rng)
    mean, noise = shift * rng.standard_normal(p + 1) / np.sqrt(p), MomentNoise(0.06, 0.02, 0.0)
    v = np.linalg.inv(covariance[:p, :p]) @ np.linalg.inv(covariance[:p, :p])
    assert 400 * np.trace(v) ** 2 / np.trace(v @ v) > 4000
    for _ in range(400):
        moments = noisy(covariance, mean, noise, False, rng)
        fit = dpgep.Release(TableModel(p + 1), report, moments, frozenset()).regression(p)
        slopes.append(fit.coefficients @ beta / (beta @ beta))
        residual.append(fit.residual_variance)
        squares += np.sum((fit.coefficients - beta) ** 2)
        claimed += np.sum(fit.noise_errors[1:] ** 2)
        c = moments.second - np.outer(moments.sums, moments.sums)
        plain.append(np.linalg.solve(c[:p, :p], c[:p, p]) @ beta / (beta @ beta))
    assert np.std(slopes) < 0.2
    assert abs(np.mean(slopes) - 1) < 0.06
    assert np.median(plain) - 1 > 0.12
    assert np.std(residual) < 0.2
    assert abs(np.mean(residual) - 1) < 0.06  # 6 deviations of the mean; 0.09 without its correction
    assert abs(squares / claimed - 1) < 0.14


DRAWS, HELD = 120, 84


@pytest.mark.statistical
@pytest.mark.filterwarnings(
    "ignore::dpgep.errors.AccuracyWarning"
)  # in one of a hundred draws a scale is far too large
@pytest.mark.parametrize(
    ("clipping", "epsilon"),
    [({"bound": 5.0}, 1.0), ({"preprocessing": dpgep.AutoPreprocessing(quantile=0.95)}, 0.6)],
    ids=["public", "bought"],
)
def test_intervals_hold_the_coefficients_of_the_population(clipping: Any, epsilon: float) -> None:
    # Each of 120 intervals holds its coefficient with a probability of at least 0.87: fewer than 84 do with one of
    # 3e-7. Without the part of the noise, as their errors are at most 0.32 of the whole, as is asserted of the median,
    # at most 0.4 do: 84 or more with a probability of 3e-11.
    held, alone, parts = np.zeros(3), np.zeros(3), []
    beta = np.array([1.0, -0.5, 0.0])
    for draw in range(DRAWS):
        rng = np.random.default_rng([7, draw])
        x = rng.standard_t(5, (3000, 3)) / np.sqrt(5 / 3)
        y = x @ beta + rng.standard_t(5, 3000) / np.sqrt(5 / 3)
        moments = released(dpgep.pca(np.column_stack([x, y]), standardize=True, **clipping), epsilon, seed=draw)
        fit = question(moments, 3, range(3))
        low, high = fit.intervals(0.9).T
        held += (low <= beta) & (beta <= high)
        parts.append(fit.people_errors[1:] / fit.standard_errors)
        alone += np.abs(fit.coefficients - beta) <= parts[-1] * (high - low) / 2
    assert (held >= HELD).all()
    assert np.median(parts) < 0.32
    assert (alone < HELD).all()


@pytest.mark.parametrize("law", ["heteroskedastic", "wild"])
def test_bounded_rows_bound_the_sandwich(law: str, rng: np.random.Generator) -> None:
    x = rng.standard_t(3, (2000, 3)) + 1
    errors = x[:, 0] ** 2 * rng.standard_normal(2000) if law == "heteroskedastic" else rng.standard_cauchy(2000)
    rows = np.column_stack([x, x @ [1.0, 2.0, 3.0] + errors])
    moments = released(dpgep.pca(rows, bound=float(np.linalg.norm(rows, axis=1).max())), np.inf)
    robust = sm.OLS(rows[:, 3], sm.add_constant(x)).fit(cov_type="HC1").bse
    assert (question(moments, 3, range(3), rows="bounded").people_errors >= robust).all()
    if law == "heteroskedastic":
        assert (question(moments, 3, range(3)).people_errors < robust).any()


def test_the_bound_on_the_sandwich_is_nearly_attained() -> None:
    """All the energy in a few rows of the greatest norm, in the direction that u and w have in common."""
    rows = np.zeros((100_000, 2))
    rows[:, 0] = np.tile([1e-3, -1e-3], 50_000)
    rows[:, 1] = np.repeat([1e-3, -1e-3], 50_000)
    rows[:4] = 100 * np.array([[1, 1], [-1, 1], [1, -1], [-1, -1]]) / np.sqrt(2)
    moments = released(dpgep.pca(rows, bound=100.0), np.inf)
    robust = sm.OLS(rows[:, 1], sm.add_constant(rows[:, :1])).fit(cov_type="HC1").bse
    bound = question(moments, 1, [0], rows="bounded").people_errors
    assert (bound >= robust * (1 - 1e-12)).all()
    assert bound[1] < 1.01 * robust[1]


def test_names_table_and_predictions(rng: np.random.Generator) -> None:
    x = pd.DataFrame(table(rng), columns=list(NAMES))
    moments = released(dpgep.pca(x, standardize=True), 1.0, seed=3)
    fit = question(moments, 5, [0, 2, 1], level=0.8)
    assert (fit.target, fit.names) == ("f", ("a", "c", "b"))
    frame = fit.to_frame()
    assert list(frame.index) == ["intercept", "a", "c", "b"]
    np.testing.assert_array_equal(frame[["low", "high"]].to_numpy()[1:], fit.intervals())
    assert (fit.intervals(0.95)[:, 0] < fit.intervals()[:, 0]).all()
    lines = str(fit).splitlines()
    assert lines[0] == "Regression of f on 3 columns, 3000 people"
    assert lines[-4].split()[0] == "intercept"
    assert "80% interval" in lines[-5]
    predicted = fit.predict(x[["a", "c", "b"]])
    np.testing.assert_allclose(predicted, x[["a", "c", "b"]].to_numpy() @ fit.coefficients + fit.intercept)
    np.testing.assert_array_equal(predicted, fit.predict(x[["a", "c", "b"]].to_numpy()))
    with pytest.raises(ValueError, match="the columns of X are in another order: they must be 'a', 'c', 'b'"):
        fit.predict(x[["a", "b", "c"]])
    with pytest.raises(ValueError, match=r"X must have shape \(n, 3\) as in the fit, got \(2, 2\)"):
        fit.predict(np.ones((2, 2)))
    assert question(released(dpgep.pca(table(rng), bound=1e3), np.inf), 5, [1]).names == ("1",)


def test_absent_values_count_as_the_location(rng: np.random.Generator) -> None:
    x = table(rng)
    x[rng.random(x.shape) < 0.1] = np.nan
    moments = released(
        dpgep.pca(x, standardize=True, preprocessing=dpgep.AutoPreprocessing(missing="center")), 1.0, seed=3
    )
    fit = question(moments, 5, [0, 1])
    assert moments.preprocessing is not None
    assert moments.preprocessing.location is not None
    filled = np.where(np.isnan(x), moments.preprocessing.location, x)[:, :2]
    np.testing.assert_array_equal(fit.predict(x[:, :2]), fit.predict(filled))
    assert "missing   values count as their column's location" in str(fit)


@pytest.mark.filterwarnings("ignore:a seeded run")
def test_what_holes_took_is_not_taken_for_clipping(rng: np.random.Generator) -> None:
    """The noisy counts of the people with a value tell by how much missing ones lessen a column's variance."""
    x = rng.standard_normal((20_000, 3))
    x[:, 1] += x[:, 0]
    x[rng.random(len(x)) < 0.6, 2] = np.nan
    options = dpgep.AutoPreprocessing(missing="center")
    release = dpgep.release(x, preprocessing=options, epsilon=1.0, delta=1e-6, seed=1)
    assert release.preprocessing is not None
    np.testing.assert_allclose(release.preprocessing.n_present, np.isfinite(x).sum(axis=0), atol=400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = release.covariance()
    assert found.low[2, 2] < np.nan_to_num(x).var(axis=0)[2] < found.high[2, 2] < 0.5
    holed = dpgep.pca(x, standardize=True, preprocessing=options)
    whole = dpgep.pca(np.nan_to_num(x), standardize=True)
    of_holes, of_none = (
        dpgep.solve(each, epsilon=1.0, delta=1e-6, n_components=1, seed=1).diagnostics.clipping_error
        for each in (holed, whole)
    )
    assert of_holes[0] < 2 * of_none[0] + 1e-3


def test_noise_that_drowns_the_columns_is_told(rng: np.random.Generator) -> None:
    x = rng.standard_normal((300, 10))
    moments = released(dpgep.pca(x, bound=9.0), 0.3, seed=1)
    with pytest.warns(
        dpgep.errors.AccuracyWarning, match=r"noise drowns the covariance of the columns \(noise share 0\.\d+\)"
    ):
        fit = question(moments, 9, range(9))
    assert 0.5 < fit.noise_share < 1
    assert np.isfinite(fit.intervals()).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [15, 42, 80, 151, 193, 221, 429])
def test_noise_that_is_more_than_all_there_is_is_answered(seed: int) -> None:
    """What the noise leaves of the squares of coefficients may then be negative."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, 9)) @ rng.normal(size=(9, 9))
    found = dpgep.release(x, bound=3.0, epsilon=1.0, delta=1e-6, seed=seed).regression(0, ridge=0.5)
    assert np.isfinite(found.noise_errors).all()
    assert 0.5 < found.noise_share <= 1


@pytest.mark.filterwarnings("ignore")
def test_a_path_of_what_does_not_vary_explains_nothing() -> None:
    """Zero, and not -0."""
    x = np.random.default_rng(36).normal(size=(40, 6))
    path = dpgep.release(x, bound=3.0, epsilon=0.5, delta=1e-6, seed=36).regression_path(0, by="pls")
    assert "-0.000" not in repr(path)


def test_collinear_columns_are_named(rng: np.random.Generator) -> None:
    """Two that add up to 1, and a third that has nothing to do with them."""
    first, age = rng.random(20_000) < 0.5, rng.standard_normal(20_000)
    x = np.column_stack([first, ~first, age, first + age + rng.standard_normal(20_000)])
    moments = released(dpgep.pca(x, bound=5.0), 5.0, seed=1)
    with pytest.warns(dpgep.errors.AccuracyWarning) as caught:
        question(moments, 3, [2, 1, 0])
    assert any(str(warning.message).startswith("columns 1, 0 are nearly collinear") for warning in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpgep.errors.AccuracyWarning)
        question(moments, 3, [2, 1])


@pytest.mark.parametrize(
    ("target", "on", "options", "message"),
    [
        (5, [], {}, "on must have at least one column"),
        (5, [1, 1], {}, "on have 1 twice"),
        (5, [5, 1], {}, "column 5 cannot be regressed on itself"),
        (6, [1], {}, "there is no column 6: the released columns are 0 to 5"),
        (5, [-1], {}, "there is no column -1: the released columns are 0 to 5"),
        (5, [1], {"ridge": -1.0}, "ridge must be a non-negative finite number, got -1.0"),
        (5, [1], {"level": 1.0}, "level must lie strictly between 0 and 1, got 1.0"),
        (5, [1], {"rows": "normal"}, "rows must be one of 'gaussian', 'bounded', got 'normal'"),
    ],
)
def test_invalid_questions(
    target: int, on: list[int], options: dict[str, Any], message: str, rng: np.random.Generator
) -> None:
    moments = released(dpgep.pca(table(rng, 100), bound=1e3), 1.0, seed=0)
    with pytest.raises(ValueError, match=message):
        question(moments, target, on, **options)


def test_moments_that_cannot_answer(rng: np.random.Generator) -> None:
    x = table(rng, 200)
    with pytest.raises(ValueError, match="this release of pca has no mean"):
        question(released(dpgep.pca(x, center=False, bound=1e3), 1.0, seed=0), 5, [0])
    doubled = released(dpgep.pca(np.column_stack([x, x[:, 0]]), bound=1e3), np.inf)
    with pytest.raises(ValueError, match=r"^columns 0, 6 are linearly dependent, or constant"):
        question(doubled, 5, [0, 1, 6])
    constant = released(dpgep.pca(np.column_stack([x, np.zeros(200)]), bound=1e3), np.inf)
    with pytest.raises(ValueError, match=r"^column 6 is linearly dependent, or constant"):
        question(constant, 5, [6])
