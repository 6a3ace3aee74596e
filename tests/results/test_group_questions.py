"""Counts by category, means of groups and descriptions of a release: without noise those of pandas and SciPy."""

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats.contingency import association

import dpgep
from dpgep.results.contingency import OTHER

A, B = list("abc"), list("wxyz")
MATRICES = (dpgep.Release.covariance, dpgep.Release.correlation, dpgep.Release.partial_correlation, dpgep.Release.graph)
pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning", "ignore::dpgep.errors.PrivacyWarning")


def table(n: int = 600, seed: int = 0, *, dependent: float = 0.4, listed: int = 4) -> pd.DataFrame:
    """Two categories, that of ``region`` with values that are not listed, or all of them, and two numbers."""
    rng = np.random.default_rng(seed)
    group = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    region = np.where(rng.random(n) < dependent, group, rng.integers(0, 4, n))
    return pd.DataFrame(
        {
            "sex": pd.Categorical(np.array(A)[group], A),
            "region": pd.Categorical.from_codes(np.where(region < listed, region, -1), B[:listed]),
            "age": rng.normal(40 + 3 * group, 10),
            "income": np.exp(rng.normal(1 + region / 10, 0.5)),
        }
    )


def mtcars() -> pd.DataFrame:
    """Thirty-two cars: gears by cylinders, whose table has cells of one car; miles and weights."""
    cylinders = "66468684466888888444488884448684"
    gears = [4, 4, 4, 3, 3, 3, 3, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 4, 4, 4, 3, 3, 3, 3, 3, 4, 5, 5, 5, 5, 5, 4]
    miles = [21, 21, 22.8, 21.4, 18.7, 18.1, 14.3, 24.4, 22.8, 19.2, 17.8, 16.4, 17.3, 15.2, 10.4, 10.4, 14.7, 32.4]
    miles += [30.4, 33.9, 21.5, 15.5, 15.2, 13.3, 19.2, 27.3, 26, 30.4, 15.8, 19.7, 15, 21.4]
    columns = {"sex": pd.Categorical(list(cylinders)), "region": pd.Categorical(gears), "age": miles}
    return pd.DataFrame(columns).assign(income=np.log(miles))


TABLES = {"complete": table, "not listed": lambda: table(seed=1, listed=2), "cars": mtcars}


@pytest.fixture(name="people", params=list(TABLES))
def _people(request: pytest.FixtureRequest) -> pd.DataFrame:
    return TABLES[request.param]()


def filled(column: pd.Series) -> pd.Series:
    """With people who have no listed category as one more, if there are any."""
    return column.cat.add_categories(OTHER).fillna(OTHER).cat.remove_unused_categories()


@pytest.mark.parametrize("bound", ["auto", 100.0])
def test_without_noise_counts_and_their_dependence_are_those_of_pandas_and_scipy(people: Any, bound: Any) -> None:
    release = dpgep.release(people, epsilon=math.inf, bound=bound)
    found = release.crosstab("sex", "region")
    wanted = pd.crosstab(people["sex"], filled(people["region"]))
    test = stats.chi2_contingency(wanted, correction=False)
    np.testing.assert_allclose(found.to_frame(), wanted, atol=1e-8)
    assert list(map(str, wanted.columns)) == list(found.to_frame().columns)
    assert (found.chi_square, found.p_value) == pytest.approx((test.statistic, test.pvalue), rel=1e-8)
    assert (found.degrees, found.cramers_v) == pytest.approx((test.dof, association(wanted)), rel=1e-8)
    np.testing.assert_allclose(found.people_errors, np.sqrt(wanted * (1 - wanted / len(people))), atol=1e-6)
    np.testing.assert_allclose(release.crosstab("region").counts, wanted.sum(), atol=1e-8)


@pytest.mark.parametrize("bound", ["auto", 100.0])
def test_without_noise_means_of_groups_are_those_of_pandas_and_scipy(people: Any, bound: Any) -> None:
    release = dpgep.release(people, epsilon=math.inf, bound=bound)
    columns = ["age", "income"]
    found = release.means_by("region", columns)
    by_region = people.groupby(filled(people["region"]), observed=True)
    groups = by_region[columns]
    np.testing.assert_allclose(found.to_frame(), groups.mean(), rtol=1e-8)
    tests = [stats.f_oneway(*(values for _, values in by_region[name])) for name in columns]
    np.testing.assert_allclose(found.f, [test.statistic for test in tests], rtol=1e-8)
    np.testing.assert_allclose(found.p_values, [test.pvalue for test in tests], rtol=1e-8)
    within = ((people[columns] - groups.transform("mean")) ** 2).sum()
    np.testing.assert_allclose(found.sum_squares[:, 1], within, rtol=1e-8)
    anova = found.anova()
    ratio = anova["mean square"].unstack("source").loc[columns]
    np.testing.assert_allclose(ratio["between"] / ratio["within"], found.f, rtol=1e-8)
    pooled = stats.t.ppf(0.95, found.degrees[1]) * np.sqrt(
        within / found.degrees[1] * (1 / groups.size().iloc[:2]).sum()
    )
    pair = found.differences_frame().xs(found.groups[1], level="group").xs(found.groups[0], level="less")
    np.testing.assert_allclose((pair["high"] - pair["low"]) / 2, pooled, rtol=1e-8)
    np.testing.assert_allclose(pair["difference"], groups.mean().diff().iloc[1], rtol=1e-8)


def test_without_noise_columns_are_described_as_pandas_does(people: Any) -> None:
    found, wanted = (
        dpgep.release(people, epsilon=math.inf).describe(["age", "income"]),
        people[["age", "income"]].describe(),
    )
    assert found.n_people == len(people)
    np.testing.assert_allclose(found.to_frame()[["mean", "deviation"]].T, wanted.loc[["mean", "std"]], rtol=1e-8)


def test_intervals_cover_and_tests_keep_their_level() -> None:
    """Of 60 releases, with a bound that clips nothing.

    By Chernoff's bound, a mean of 60 numbers from 0 to 1, of expectation 0.9, is below 0.64 with a probability below
    1e-6; and of expectation 0.05, above 0.26.
    """
    shares = np.array([0.5, 0.3, 0.2])
    cells, one, means, p_values, f_values = [], [], [], [], []
    for seed in range(60):
        release = _scaled(seed)
        found = release.crosstab("sex", "region")
        truth = 2000 * np.outer(shares, np.full(4, 0.25))
        low, high = found.low[:3, :4], found.high[:3, :4]  # noise may show a few who are not listed
        cells.append(((low <= truth) & (truth <= high)).mean())
        counts = release.crosstab("sex")
        one.append(((counts.low[:3] <= 2000 * shares) & (2000 * shares <= counts.high[:3])).mean())
        groups = release.means_by("sex", ["age"])
        means.append(((groups.low[:3, 0] <= [0, 0.3, 0.6]) & (groups.high[:3, 0] >= [0, 0.3, 0.6])).mean())
        p_values.append(found.p_value)
        f_values.append(release.means_by("region", ["age"]).p_values[0])
    for held in (cells, one, means):
        assert np.mean(held) > 0.64
    for values in (p_values, f_values):
        assert np.mean(np.array(values) < 0.05) < 0.26
        assert np.mean(np.array(values) > 0.95) < 0.26


def _scaled(seed: int) -> dpgep.Release:
    people = table(2000, seed, dependent=0.0).drop(columns="income")
    return dpgep.release(people.assign(age=(people["age"] - 40) / 10), epsilon=1.0, delta=1e-6, bound=5.0, seed=seed)


def test_of_a_group_that_noise_drowns_nothing_is_known() -> None:
    people = table(2000)
    people["sex"] = people["sex"].cat.add_categories("nobody")
    found = dpgep.release(people, epsilon=1.0, delta=1e-6, seed=0).means_by("sex", ["age"])
    assert np.isinf(found.low[:, 0]).tolist() == [False, False, False, True]
    assert np.isfinite(found.f).all()


@pytest.mark.parametrize("budget", [{"adjacency": "add-remove"}, {"bound": 5.0}, {"epsilon": 0.05}])
def test_answers_are_printed_whatever_the_noise(budget: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release = dpgep.release(table(), **{"epsilon": 1.0, "delta": 1e-6, "seed": 0, **budget})
    for answer in (
        release.crosstab("sex", "region"),
        release.crosstab("sex"),
        release.means_by("sex"),
        release.describe(),
    ):
        assert str(release.fingerprint) in repr(answer)
        assert answer.privacy == release.report
        assert len(answer.to_frame())
    assert {"crosstab", "means_by", "describe"} <= {*release._questions()}


def test_holes_in_categories_are_not_listed_and_those_in_numbers_are_said() -> None:
    people = table()
    people.loc[::5, "sex"] = None
    people.loc[::7, "age"] = np.nan
    given = {"preprocessing": dpgep.AutoPreprocessing(missing="center"), "epsilon": math.inf}
    release = dpgep.release(people, **given)
    np.testing.assert_allclose(
        release.crosstab("sex").counts, people.groupby(filled(people["sex"]), observed=True).size()
    )
    means = repr(release.means_by("sex", ["age"]))
    assert means.startswith("Means of 1 column by sex")
    assert "drawn together" in means
    of_numbers = release.factors(["age", "income", "region=w"], n_factors=1), release.regression("age", ["income"])
    for answer in (
        *of_numbers,
        release.describe(["age"]),
        *(f(release, ["age", "income"]) for f in MATRICES),
        release.famd(),
    ):
        assert "count as their column's location" in repr(answer)
    paired = dpgep.release(people, preprocessing=dpgep.AutoPreprocessing(missing="pairwise"), epsilon=math.inf)
    for ask in (lambda: paired.crosstab("sex"), lambda: paired.means_by("sex", ["age"])):
        with pytest.raises(ValueError, match='use missing="center"'):
            ask()
    assert "crosstab" not in paired._questions()
    assert "location" not in repr(paired.covariance(["age", "income"]))


def test_people_with_several_rows_count_once_each() -> None:
    people = table(400)
    rows = pd.concat([people.assign(who=np.arange(400))] * 2)
    release = dpgep.release(rows, person="who", epsilon=math.inf)
    wanted = pd.crosstab(people["sex"], people["region"])
    np.testing.assert_allclose(release.crosstab("sex", "region").counts, wanted, atol=1e-8)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda r: r.crosstab("sx"), "did you mean"),
        (lambda r: r.crosstab("age"), "released as a number"),
        (lambda r: r.crosstab("sex", "sex"), "both 'sex'"),
        (lambda r: r.means_by("sex", ["sex=a"]), "indicators of 'sex'"),
        (lambda r: r.means_by("sex", ["height"]), "no column 'height'"),
        (lambda r: r.crosstab("sex", level=2), "level"),
        (lambda r: r.means_by("sex", rows="any"), "rows"),
    ],
)
def test_wrong_questions_are_refused_in_words(ask: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ask(dpgep.release(table(50), epsilon=math.inf))


def test_a_categorical_column_stands_for_its_indicators() -> None:
    release = dpgep.release(table(listed=2), epsilon=math.inf)
    found = release.correlation(["age", "sex", "region"])
    indicators = ["age", *(f"sex={each}" for each in A), "region=w", "region=x"]
    assert found.names == tuple(indicators)
    np.testing.assert_array_equal(found.values, release.correlation(indicators).values)
    for columns in (["sex", "sex=a"], ["sex=a", "sex"], ["region", "region"]):
        with pytest.raises(ValueError, match="twice"):
            release.mean(columns)
    with pytest.raises(ValueError, match="there is no column 'se', did you mean 'sex'"):
        release.mean(["se"])


def test_a_category_of_both_views_is_neither() -> None:
    people = table()
    release = dpgep.solve(dpgep.cca(people[["sex", "age"]], people[["sex", "income"]]), epsilon=math.inf).release
    for ask in (lambda: release.mean(["sex"]), lambda: release.crosstab("sex")):
        with pytest.raises(ValueError, match="there is no"):
            ask()


def test_columns_and_categories_with_an_equals_sign_are_found_by_their_names() -> None:
    people, sizes = table(), ["S=1", "S=2"]
    named = people[["age"]].assign(
        **{
            "a=b": people["sex"],
            "a": people["region"],
            "size": pd.Categorical.from_codes((people["sex"] == "a").astype(int), sizes),
        }
    )
    release = dpgep.release(named, epsilon=math.inf)
    for column, wanted in [("a=b", people["sex"]), ("a", people["region"]), ("size", named["size"])]:
        counts = release.crosstab(column).to_frame()["count"]
        expected = wanted.value_counts()
        assert counts.round(6).to_dict() == expected.to_dict()
        assert release.means_by(column, ["age"]).groups == tuple(expected.sort_index().index)


def test_of_one_group_there_is_no_test() -> None:
    release = dpgep.release(table()[["age"]].assign(one=pd.Categorical(["a"] * 600)), epsilon=math.inf)
    found = release.means_by("one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(found.anova().loc[("age", "between"), ["mean square", "F", "p"]].astype(float)).all()
        assert found.differences_frame().empty


@pytest.mark.parametrize("seed", range(4))
def test_a_few_without_a_category_are_not_taken_for_others(seed: int) -> None:
    """A share of 0.04 is more than five deviations of the noise in it, but less than shows in the variance of a sum."""
    rng = np.random.default_rng(seed)
    ward = pd.Categorical.from_codes(np.where(rng.random(6000) < 0.04, -1, rng.choice(3, 6000, p=[0.5, 0.4, 0.1])), A)
    people = pd.DataFrame({"ward": ward, **{f"x{j}": rng.normal(50, 15, 6000) for j in range(8)}})
    found = dpgep.release(people, epsilon=1.0, delta=1e-6, seed=seed).crosstab("ward", level=1 - 1e-6)
    counts = filled(people["ward"]).value_counts().loc[[*A, OTHER]]
    assert found.row_labels == (*A, OTHER)
    assert ((found.low <= counts) & (counts <= found.high)).all()


def test_a_test_that_noise_drowns_is_said_to_show_little() -> None:
    """And none where there is no noise; deviations of zeros and ones are at most a half."""
    people = table(3000)
    drowned = dpgep.release(people, epsilon=0.1, delta=1e-6, seed=1)
    exact = dpgep.release(people, epsilon=math.inf)
    by_sex, counts = drowned.means_by("sex", ["age"]), drowned.crosstab("sex", "region")
    assert by_sex.noise_share[0] > 0.9
    assert "F says little of 'age': noise hides differences" in repr(by_sex)
    assert "chi-square says little of 'sex by region': noise hides differences" in repr(counts)
    assert (by_sex.least_p_values <= by_sex.p_values).all()
    assert counts.least_p_value <= counts.p_value
    for answer in (exact.means_by("sex", ["age"]), exact.crosstab("sex", "region")):
        assert "says little" not in repr(answer)
        assert np.max(answer.noise_share) < 1e-9
    assert "says little" not in repr(drowned.crosstab("sex"))
    shares = drowned.describe(["sex"])
    assert (shares.deviation_high <= 0.5 * math.sqrt(3000 / 2999)).all()


@pytest.mark.parametrize("half", [False, True])
def test_deviations_of_zeros_and_ones_follow_from_their_means(half: bool) -> None:
    """Whatever a bound took, m (1 - m) of the released mean, and between its ends of the interval of that."""
    sex = (np.arange(4000) % (2 if half else 5) == 0).astype(int)
    people = table(4000).assign(sex=pd.Categorical.from_codes(sex, ["F", "M"]))
    truth = np.full(2, sex.std(ddof=1))
    exact = dpgep.release(people, epsilon=math.inf).describe(["sex"])
    np.testing.assert_allclose(exact.deviation, truth, rtol=1e-9)
    found = dpgep.release(people, epsilon=1.0, delta=1e-6, seed=1).describe(["sex"], level=1 - 1e-6)
    assert (found.deviation_low <= truth).all()
    assert (truth <= found.deviation_high).all()
    assert (found.deviation_low < found.deviation_high).all()
    shares = np.linspace(np.maximum(found.mean_low, 0), np.minimum(found.mean_high, 1), 1001)
    within = np.sqrt(shares * (1 - shares) * 4000 / 3999)
    np.testing.assert_allclose(found.deviation_low, within.min(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found.deviation_high, within.max(axis=0), rtol=1e-3)
