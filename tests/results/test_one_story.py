"""What different questions say of the same columns agrees: slopes, correlations, counts, means and components."""

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpgep

pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning", "ignore::dpgep.errors.PrivacyWarning")


def people(n: int, seed: int, unit: float = 1.0, origin: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group, sex = rng.choice(3, n, p=[0.5, 0.3, 0.2]), rng.integers(0, 2, n)
    age = rng.normal(group, 1.0)
    return pd.DataFrame(
        {
            "age": origin + unit * age,
            "blood pressure": 120 + 10 * age + 5 * sex + rng.normal(0, 10, n),
            "arm": pd.Categorical.from_codes(group, ["drug", "placebo", "rescue"]),
            "sex": pd.Categorical.from_codes(sex, ["F", "M"]),
        }
    )


def told(release: dpgep.Release) -> list[tuple[str, Any, Any, float]]:
    """Pairs of what two questions say of the same, and their tolerance at epsilon = 1 in 20 000 people."""
    x, y = "age", "blood pressure"
    described, frame = release.describe([x, y, "sex"]), release.covariance([x, y, "sex=M"]).to_frame()
    groups, table, counts = release.means_by("sex", [y]), release.crosstab("arm", "sex"), release.crosstab("sex")
    n, deviations = release.n_people, described.deviation
    biased = (n - 1) / n
    alone, on_sex = release.regression(y, on=[x]), release.regression(y, on=["sex=M"])
    r = release.correlation([x, y]).values[0, 1]
    cov = frame.loc[x, y]
    sizes = np.sqrt(biased) * deviations
    return [
        ("variance", np.diagonal(frame)[:2], sizes[:2] ** 2, 0.0),
        ("correlation", r, cov / (sizes[0] * sizes[1]), 0.02),
        ("partial correlation of two", release.partial_correlation([x, y]).values[0, 1], r, 0.02),
        ("slope", alone.coefficients[0] / sizes[1] * sizes[0], r, 0.02),
        ("R squared", alone.r_squared, r**2, 0.02),
        ("path", release.regression_path(y, on=[x]).coefficients[-1, 0], alone.coefficients[0], 1e-6),
        ("R squared of the path", release.regression_path(y, on=[x]).r_squared[-1], alone.r_squared, 1e-6),
        ("canonical correlation", release.cca([x], [y], regularization=0.0).eigenvalues[0], abs(r), 0.02),
        ("variances of components", release.pca([x, y]).eigenvalues.sum() / np.trace(frame.iloc[:2, :2]), 1.0, 0.02),
        ("standardized components", release.pca([x, y], standardize=True).eigenvalues[0] - 1, abs(r), 0.02),
        ("difference of means", np.diff(groups.means[:, 0]) / sizes[1], on_sex.coefficients / sizes[1], 0.05),
        ("mean of means", groups.counts @ groups.means[:, 0] / n, described.mean[1], 0.02),
        ("shares", counts.counts / n, described.mean[2:], 0.01),
        ("counts of people", table.counts.sum(axis=0) / n, counts.counts / n, 0.01),
        ("everybody", table.counts.sum() / n, 1.0, 0.01),
    ]


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_without_noise_all_questions_tell_one_story(seed: int, unit: float, origin: float) -> None:
    release = dpgep.release(people(400, seed, unit, origin), epsilon=math.inf, bound=1e5)
    for what, one, other, _ in told(release):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7, err_msg=what)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_with_noise_all_questions_tell_nearly_one_story(adjacency: Any) -> None:
    release = dpgep.release(people(20_000, 1), epsilon=1.0, delta=1e-6, adjacency=adjacency, seed=1)
    for what, one, other, tolerance in told(release):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=tolerance, err_msg=what)


def test_a_mean_has_the_same_interval_whatever_else_is_asked() -> None:
    """Of a skewed column whose long rows the bound shortens: a share of people that the release shows."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.exp(0.9 * rng.standard_normal(20_000)), rng.standard_normal((20_000, 5))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release = dpgep.release(rows, epsilon=1.0, delta=1e-6, seed=0)
    alone, together = np.diff(release.mean_intervals([0])), np.diff(release.mean_intervals()[:1])
    assert alone == pytest.approx(together, rel=0.05)
