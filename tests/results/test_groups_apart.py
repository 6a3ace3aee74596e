"""Questions about groups of a release: without noise those of other libraries, with it tests that keep their level."""

import math
import pickle
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import linalg, stats
from sklearn import datasets
from statsmodels.multivariate.manova import MANOVA
from statsmodels.regression.dimred import SlicedAverageVarianceEstimation
from stored import bytes_of

import dpgep

pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning", "ignore::dpgep.errors.PrivacyWarning")
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
        assert "nan" not in repr(found)
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
        p_values.append(_tests(values, 5, 3, 60.0)[3])
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


# ---- directions ----


def covariance_of(x: Any, y: Any, label: Any) -> Any:
    return np.cov(x[y == label].T, ddof=0)


def sliced(x: Any, y: Any, slices: int) -> tuple[dpgep.Release, list[Any]]:
    """A release without noise, and the rows of as many slices of nearly the same size."""
    ranks = np.argsort(np.argsort(y, kind="stable"))
    parts = np.array_split(np.argsort(ranks), slices)
    edges = np.cumsum([0, *map(len, parts)]) - 0.5
    release = dpgep.release(x, y=ranks, edges=edges, by_group=True, bound=1e5, epsilon=math.inf)
    return release, [x[part] for part in parts]


RESPONSES = {
    "diabetes": datasets.load_diabetes(return_X_y=True),
    "wine": (datasets.load_wine().data[:, 1:5], datasets.load_wine().data[:, 0]),
    "tumours": (datasets.load_breast_cancer().data[:, 4:8], datasets.load_breast_cancer().data[:, 0]),
}


def test_without_noise_common_spatial_patterns_are_generalized_eigenvectors(table: Any) -> None:
    x, y = table
    found = released(x, y).common_spatial_patterns(target=1, background=0)
    one, both = covariance_of(x, y, 1), covariance_of(x, y, 0) + covariance_of(x, y, 1)
    values, vectors = linalg.eigh(one, both)
    np.testing.assert_allclose(found.eigenvalues, values[::-1], rtol=1e-8)
    np.testing.assert_allclose(np.abs(found.components @ both @ vectors[:, ::-1]), np.eye(len(one)), atol=1e-8)
    swapped = released(x, y).common_spatial_patterns(target=0, background=1, n_components=1)
    assert swapped.eigenvalues[0] == pytest.approx(1 - values[0], rel=1e-8)


@pytest.mark.parametrize("table", list(RESPONSES))
def test_without_noise_save_is_that_of_statsmodels(table: str) -> None:
    x, y = RESPONSES[table]
    release, parts = sliced(x, y, 5)
    found = release.central_subspace(by="save")
    ranks = np.argsort(np.argsort(y, kind="stable"))
    wanted = SlicedAverageVarianceEstimation(ranks, x).fit(slice_n=len(x) // 5)
    np.testing.assert_allclose(found.eigenvalues, np.asarray(wanted.eigs) / (len(x) / len(parts)), rtol=1e-8)
    cosines = found.components @ np.cov(x.T, ddof=0) @ np.asarray(wanted.params)
    np.testing.assert_allclose(np.abs(cosines), np.eye(x.shape[1]), atol=1e-7)


@pytest.mark.parametrize("table", list(RESPONSES))
def test_without_noise_directional_regression_is_of_differences_of_people(table: str) -> None:
    """Li and Wang (2007), definition: E (2 I - E[(z - z')(z - z')^T | slices])^2 of two people."""
    x, y = RESPONSES[table]
    release, parts = sliced(x, y, 4)
    root = linalg.inv(linalg.sqrtm(np.cov(x.T, ddof=0))).real
    z = [(part - x.mean(axis=0)) @ root for part in parts]
    kernel = np.zeros((x.shape[1],) * 2)
    for one in z:
        for two in z:
            apart = (one[:, None] - two).reshape(-1, x.shape[1])
            square = 2 * np.eye(x.shape[1]) - apart.T @ apart / len(apart)
            kernel += len(one) * len(two) / len(x) ** 2 * square @ square
    found = release.central_subspace()
    values, vectors = linalg.eigh(kernel)
    np.testing.assert_allclose(found.eigenvalues, values[::-1], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        np.abs(found.components @ linalg.inv(root) @ vectors[:, ::-1]), np.eye(len(root)), atol=1e-7
    )


@pytest.mark.parametrize("standardize", [False, True])
def test_fair_components_minimize_the_largest_loss(table: Any, standardize: bool) -> None:
    """For any w the largest loss is at least the least weighted one: where both agree, nothing is better."""
    x, y = table
    found = released(x, y).fair_pca(n_components=2, standardize=standardize)
    scaled = x / x.std(axis=0) if standardize else x
    covariances = np.array([covariance_of(scaled, y, label) for label in sorted(set(y))])
    values, vectors = np.linalg.eigh(np.einsum("g,gij->ij", found.weights, covariances))
    np.testing.assert_allclose(found.eigenvalues, values[::-1][:2], rtol=1e-8)
    np.testing.assert_allclose(np.abs(found.relative_components @ vectors[:, :-3:-1]), np.eye(2), atol=1e-7)
    own = np.linalg.eigvalsh(covariances)[:, -2:].sum(axis=1)
    kept = np.einsum("ki,gij,kj->g", found.relative_components, covariances, found.relative_components)
    np.testing.assert_allclose(found.losses, own - kept, atol=1e-8 * own.max())
    precision = 1e-8 if len(own) == 2 else 1e-4  # of two groups a root, of more an iteration
    assert found.losses.max() - found.weights @ found.losses <= precision * found.losses.max()
    assert found.losses.max() <= found.losses_of_pca.max() * (1 + 1e-9)
    total = released(x, y).fair_pca(by="sum", standardize=standardize)
    np.testing.assert_allclose(total.eigenvalues, np.linalg.eigvalsh(covariances.mean(axis=0))[:-3:-1], rtol=1e-8)


def two_groups(n: int, seed: int, *, differ: bool) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.4).astype(int)
    return rng.standard_normal((n, 3)) * np.where(differ & (y[:, None] == 1), [2.0, 1.0, 0.7], 1.0), y


@pytest.mark.parametrize("draws", [pytest.param(3, id="a few"), pytest.param(30, marks=pytest.mark.deep, id="many")])
def test_intervals_of_directions_hold_and_no_difference_is_lost(draws: int) -> None:
    """Of 30 of at least 0.8 fewer than 12 hold, and of 30 tests at 0.05 12 reject, with p < 1e-6; of 3 some hold."""
    held, seen = np.zeros(3), 0
    own = np.array([4.0, 1.0, 0.49])
    ratios = np.array([own, np.ones(3)]) / (0.4 * own + 0.6)
    save = np.array([0.4, 0.6]) @ (1 - ratios) ** 2
    wanted = 0.8, save.max(), (own.max() + 1) / 2
    for seed in range(draws):
        release = released(*two_groups(6000, seed, differ=True), **TERMS, bound=8.0, seed=seed)
        answers = [
            release.common_spatial_patterns(target=1, background=0, n_components=1),
            release.central_subspace(by="save", n_components=1),
            release.fair_pca(by="sum", n_components=1),
        ]
        found = [answer.intervals() for answer in answers]
        assert not found[0].lost[0]
        ends = [intervals.eigenvalues[0] for intervals in found]
        held += [low <= value <= high for (low, high), value in zip(ends, wanted, strict=True)]
        nothing = released(*two_groups(6000, seed, differ=False), **TERMS, bound=8.0, seed=seed)
        seen += not nothing.central_subspace(n_components=1).intervals().lost[0]
    assert held.sum() >= 1
    if draws == 30:
        assert held.min() >= 12
        assert seen < 12


def test_covariances_that_noise_hides_are_warned_of() -> None:
    x, y = two_groups(3000, 0, differ=True)
    release = released(x, y, **TERMS, bound=40.0, seed=0)
    with pytest.warns(dpgep.errors.AccuracyWarning, match="noise hides directions in the covariances of groups .*1.*0"):
        release.common_spatial_patterns(target=1, background=0)
    release = released(x, y, epsilon=9.0, delta=1e-6, bound=8.0, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release.common_spatial_patterns(target=1, background=0)


def test_directions_are_printed_and_tables() -> None:
    x, y = TABLES["iris"]
    frame = pd.DataFrame(x, columns=list("abcd"))
    release = released(frame, y, **TERMS, bound="auto", seed=0)
    for answer in (
        release.common_spatial_patterns(["a", "d"], target=2, background=0),
        release.central_subspace(by="save"),
        release.fair_pca(n_components=1, standardize=True),
    ):
        assert list(answer.to_frame().index) == list(answer.names)
        assert answer.privacy == release.report
        assert all(len(line) < 120 for line in repr(answer).splitlines() if "privacy" not in line)
        copy = pickle.loads(pickle.dumps(answer))
        np.testing.assert_array_equal(copy.intervals().eigenvalues, answer.intervals().eigenvalues)
    assert "variance lost" in repr(answer)
    assert answer.intervals().eigenvalues.shape == (1, 2)


# ---- the quadratic rule ----


@pytest.mark.parametrize("bound", ["auto", 1e5])
def test_without_noise_the_quadratic_rule_is_that_of_normal_densities(table: Any, bound: Any) -> None:
    x, y = table
    x = x[:, :4]
    rule = released(x, y, bound=bound).quadratic_classifier()
    shares = [np.mean(y == label) for label in rule.classes]
    scores = np.column_stack(
        [
            np.log(share) + stats.multivariate_normal(x[y == label].mean(axis=0), covariance_of(x, y, label)).logpdf(x)
            for label, share in zip(rule.classes, shares, strict=True)
        ]
    )
    wanted = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(rule.predict_proba(x), wanted / wanted.sum(axis=1, keepdims=True), atol=1e-8)
    even = released(x, y, bound=bound).quadratic_classifier(priors=[1] * len(shares))
    apart = even.decision_function(x) - rule.decision_function(x)
    np.testing.assert_allclose(
        apart - apart[:, :1], np.log(shares[0] / np.array(shares)) + np.zeros_like(apart), atol=1e-8
    )


def test_with_noise_the_quadratic_rule_sees_what_a_linear_one_does_not() -> None:
    """0.76 of the rows are right with the population's rule and 0.6 with the larger class alone."""
    x, y = two_groups(20_000, 0, differ=True)
    x[y == 1] *= 2
    release = released(np.vstack([x, x[:1]]), np.append(y, 7), **TERMS, bound="auto", seed=0)
    rule = release.quadratic_classifier()
    assert np.mean(rule.predict(x) == y) > np.mean(release.classifier().predict(x) == y) + 0.1
    assert rule.shrunk[-1] > 0.5 > rule.shrunk[0]
    assert re.search(r"in the noise .*7", repr(rule))
    assert not (rule.predict(x) == 7).mean() > 0.01


def test_what_questions_of_groups_refuse() -> None:
    x, y = TABLES["iris"]
    release = released(x, y)
    for ask, message in (
        (lambda: release.common_spatial_patterns(target=1, background=1), "two different groups"),
        (lambda: release.common_spatial_patterns(target=1, background=9), "no group 9"),
        (lambda: release.central_subspace(by="sir"), "by must be"),
        (lambda: release.fair_pca(n_components=5), "n_components"),
        (lambda: release.fair_pca(by="mean"), "by must be"),
        (lambda: released(x, y, by_group=False).fair_pca(), "by_group=True"),
        (lambda: released(x, y, by_group=False).quadratic_classifier(), "by_group=True"),
        (lambda: release.quadratic_classifier(ridge=-1.0), "ridge"),
        (lambda: release.quadratic_classifier(priors=[1.0]), "priors"),
        (lambda: released(np.column_stack([x, x[:, 0]]), y).quadratic_classifier(), "linearly dependent"),
    ):
        with pytest.raises(ValueError, match=message):
            ask()


def test_questions_that_do_not_put_clipping_back_say_so_of_long_tails() -> None:
    """Of log-normal columns, and not of normal ones, with seeded noise."""
    rng = np.random.default_rng(3)
    x, group = rng.standard_normal((20_000, 3)), rng.integers(0, 2, 20_000)
    x[:, 0] += group
    for rows, long in ((x, False), (np.exp(0.9 * x), True)):
        release = dpgep.release(rows, group, by_group=True, classes=[0, 1], epsilon=1.0, delta=1e-6, seed=1)
        for ask in (
            lambda r: r.fda(n_components=1),
            lambda r: r.contrastive_pca(target=1, background=0, n_components=1),
            lambda r: r.cca([0], [1], given=[2], n_components=1),
            lambda r: r.common_spatial_patterns(target=1, background=0),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                ask(release)
            assert any("is not put back here" in str(each.message) for each in caught) == long
