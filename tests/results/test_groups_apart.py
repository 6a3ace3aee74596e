"""Questions about groups of a release: without noise those of other libraries, with it tests that keep their level."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from statsmodels.multivariate.manova import MANOVA
from stored import bytes_of

import dpgep

pytestmark = pytest.mark.filterwarnings("ignore::dpgep.AccuracyWarning", "ignore::dpgep.PrivacyWarning")
TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
TABLES = {
    "iris": datasets.load_iris(return_X_y=True),
    "wine": (datasets.load_wine().data[:, :6], datasets.load_wine().target),
    "tumours": (datasets.load_breast_cancer().data[:, :5], datasets.load_breast_cancer().target),
}


def released(x: Any, y: Any, **options: Any) -> dpgep.Release:
    terms = {"epsilon": math.inf, "bound": 1e5, "by_group": True, **options}
    return dpgep.release(x, y, classes=sorted(set(y)), **terms)


@pytest.fixture(name="table", params=list(TABLES))
def _table(request: pytest.FixtureRequest) -> Any:
    return TABLES[request.param]


# ---- one group ----


def test_the_people_of_a_group_are_asked_as_if_they_were_alone(table: Any) -> None:
    x, y = table
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
    one = released(frame, y).of_group(1)
    alone = frame[y == 1]
    assert one.n_people == pytest.approx(len(alone))
    np.testing.assert_allclose(
        one.describe().to_frame()[["mean", "deviation"]].T, alone.agg(["mean", "std"]), rtol=1e-8
    )
    np.testing.assert_allclose(one.correlation().values, alone.corr(), atol=1e-8)
    design = np.column_stack([np.ones(len(alone)), alone.iloc[:, 1:]])
    slopes = np.linalg.lstsq(design, alone["x0"], rcond=None)[0]
    np.testing.assert_allclose(one.regression("x0").coefficients, slopes[1:], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_answers_about_a_group_name_the_whole_release(adjacency: Any) -> None:
    x, y = TABLES["iris"]
    whole = released(x, y, **TERMS, adjacency=adjacency, bound="auto", seed=0)
    part = whole.of_group(2)
    assert part.fingerprint == whole.fingerprint == part.describe().privacy.release
    assert part.pca(n_components=1).privacy == whole.report
    with pytest.raises(ValueError, match="save the whole release"):
        bytes_of(part)
    assert dpgep.load(bytes_of(whole)).of_group(2).describe().to_frame().equals(part.describe().to_frame())


def test_intervals_of_a_group_hold() -> None:
    """By Chernoff's bound, a mean of 60 numbers from 0 to 1, of expectation 0.85, is below 0.57 with p < 1e-6."""
    means, deviations = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        y = (rng.random(4000) < 0.3).astype(int)
        x = rng.standard_normal((4000, 3)) * (1 + y[:, None]) + y[:, None]
        found = released(x, y, **TERMS, bound=8.0, seed=seed).of_group(1).describe()
        means.append(np.mean((found.mean_low <= 1) & (found.mean_high >= 1)))
        deviations.append(np.mean((found.deviation_low <= 2) & (found.deviation_high >= 2)))
    assert np.mean(means) > 0.57
    assert np.mean(deviations) > 0.57


# ---- the same means ----


def test_without_noise_tests_of_means_are_those_of_statsmodels(table: Any) -> None:
    x, y = table
    for form in ({}, {"by_group": False}):
        found = released(x, y, **form).manova()
        frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])]).assign(y=y)
        fit = MANOVA.from_formula(f"{' + '.join(frame.columns[:-1])} ~ C(y)", frame).mv_test()
        wanted = fit.results["C(y)"]["stat"].to_numpy(float)[:, [0, 3, 1, 2, 4]]
        exact = 4 if len(set(y)) == 2 else 3  # of Roy's root, its F is a bound
        np.testing.assert_allclose(found.to_frame()[:exact], wanted[:exact], rtol=1e-8)
        assert found.values[3] == pytest.approx(wanted[3, 0], rel=1e-8)
    assert (found.t_squared is not None) == (len(set(y)) == 2)
    if found.t_squared is not None:
        one, two = x[y == 0], x[y == 1]
        pooled = ((len(one) - 1) * np.cov(one.T) + (len(two) - 1) * np.cov(two.T)) / (len(y) - 2)
        apart = one.mean(axis=0) - two.mean(axis=0)
        t_squared = len(one) * len(two) / len(y) * apart @ np.linalg.solve(pooled, apart)
        assert found.t_squared == pytest.approx(t_squared, rel=1e-8)


@pytest.mark.parametrize(("n", "shares", "shift"), [(1500, [0.5, 0.5], 0.0), (3000, [0.6, 0.3, 0.1], 1.0)])
def test_tests_of_means_keep_their_level_and_find_differences(n: int, shares: Any, shift: float) -> None:
    """Of 100 tests at 5 % more than 21 reject with a probability below 1e-7; at 50 %, fewer than 26 likewise."""
    p_values, far = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        y, x = rng.choice(len(shares), n, p=shares), rng.standard_normal((n, 3)) + shift
        found = released(x, y, **TERMS, bound=6.0, by_group=seed % 2 == 0, seed=seed).manova()
        p_values.append(found.p_values)
        if seed < 5:
            far.append(released(x + 0.6 * y[:, None], y, **TERMS, bound=6.0, seed=seed).manova().p_values.max())
    assert found.noise_share > 0.5
    assert np.mean(np.array(p_values) < 0.05, axis=0).max() <= 0.21
    assert np.mean(np.array(p_values) < 0.5, axis=0).min() >= 0.26
    assert max(far) < 0.01


def test_the_largest_root_has_the_law_of_people() -> None:
    """Of 400 roots of Wishart matrices at 10 %: a share of 0.02 to 0.19 with an error probability below 1e-6."""
    from dpgep.results.multivariate import _tests

    rng, p_values = np.random.default_rng(0), []
    for _ in range(400):
        h, e = rng.standard_normal((5, 3)), rng.standard_normal((5, 60))
        values = np.sort(np.linalg.eigvals(np.linalg.solve(e @ e.T, h @ h.T)).real)[::-1][:3]
        p_values.append(_tests(values, 5, 3, 60.0)[:, 4])
    shares = np.mean(np.array(p_values) < 0.1, axis=0)
    assert (shares > 0.02).all()
    assert (shares < 0.19).all()


def test_groups_are_needed_and_people() -> None:
    x, y = TABLES["iris"]
    with pytest.raises(ValueError, match="has no groups"):
        dpgep.release(x, **TERMS, bound=1.0).manova()
    with pytest.raises(ValueError, match="too few"):
        released(x[::30], y[::30]).manova()
    sliced = dpgep.release(x[:, :2], y=x[:, 3], edges=[0, 0.5, 1.5, 3], by_group=True, bound=1e5, epsilon=math.inf)
    assert sliced.manova().groups == ("0", "1", "2")
    assert "Hotelling" not in repr(sliced.manova()).splitlines()[3]
    assert sliced.of_group(0).n_people == (x[:, 3] < 0.5).sum()
