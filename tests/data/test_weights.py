"""Survey weights, and rows that count alike up to a number: weighted moments, and a total weight that is protected."""

from __future__ import annotations

import math
from dataclasses import fields
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Matrix, solve_seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dpgep
from dpgep.data.people import UNIT_BITS, WEIGHT_BITS, Weighting, row_weights
from dpgep.methods import METHODS
from dpgep.sklearn import PrivatePCA, PrivateScaler

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
LARGEST = 8.0
WHOLE = 1 << WEIGHT_BITS
ADJACENCIES: list[Any] = ["replace-one", "add-remove"]


def survey(n: int = 400, d: int = 4, seed: int = 0) -> tuple[Matrix, NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    weights = np.minimum(rng.gamma(0.7, 1.5, n), LARGEST)
    return rng.standard_normal((n, d)) @ np.triu(np.ones((d, d))) + weights[:, None], weights


def covariance(rows: Any, weights: Any, **options: Any) -> Matrix:
    given: dict[str, Any] = {"bound": 100.0, "largest_weight": LARGEST, "epsilon": math.inf, **options}
    return np.asarray(dpgep.release(rows, weights=weights, **given).covariance().values)


# ---- weighted moments ----


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("bound", [100.0, "auto"])
def test_without_noise_they_are_those_of_statsmodels(bound: Any, adjacency: Any) -> None:
    statsmodels = pytest.importorskip("statsmodels.stats.weightstats")
    rows, weights = survey()
    expected = statsmodels.DescrStatsW(rows, weights=weights, ddof=0)
    release = dpgep.release(
        rows, weights=weights, largest_weight=LARGEST, bound=bound, adjacency=adjacency, epsilon=math.inf
    )
    np.testing.assert_allclose(release.covariance().values, expected.cov, rtol=1e-10)
    np.testing.assert_allclose(release.mean(), expected.mean, rtol=1e-10)
    np.testing.assert_allclose(release.correlation().values, expected.corrcoef, rtol=1e-10)
    assert release.n_people == pytest.approx(weights.sum() / LARGEST, rel=1e-10)
    components = dpgep.solve(
        dpgep.pca(rows, weights=weights, largest_weight=LARGEST, bound=bound), epsilon=math.inf, n_components=2
    )
    np.testing.assert_allclose(components.eigenvalues, np.linalg.eigvalsh(expected.cov)[::-1][:2], rtol=1e-10)


@given(
    st.lists(st.floats(1e-3, LARGEST), min_size=2, max_size=30).filter(lambda found: sum(found) >= LARGEST),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=25, deadline=None)
def test_any_weights_are_those_of_numpy(weights: list[float], seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((len(weights), 2))
    expected = np.cov(rows.T, aweights=weights, ddof=0)
    np.testing.assert_allclose(covariance(rows, weights), expected, rtol=1e-9, atol=1e-10)


def test_columns_of_tables_and_of_sources_are_the_same_weights(tmp_path: Any) -> None:
    rows, weights = survey()
    table = pd.DataFrame(rows, columns=list("abcd")).assign(w=weights)
    table.to_csv(tmp_path / "survey.csv", index=False)
    expected = covariance(rows, weights)
    for data in (table, dpgep.scan(tmp_path / "survey.csv"), dpgep.scan(lambda: iter([table[:7], table[7:]]))):
        np.testing.assert_allclose(covariance(data, "w"), expected, rtol=1e-12)
    source = dpgep.scan(tmp_path / "survey.csv")
    np.testing.assert_allclose(covariance(source[list("abcd")], source["w"]), expected, rtol=1e-12)
    solved = [
        solve_seeded(dpgep.pca(each, weights="w", largest_weight=LARGEST, bound=50.0), **BUDGET).components
        for each in (table, dpgep.scan(tmp_path / "survey.csv"))
    ]
    assert solved[0].tobytes() == solved[1].tobytes()


@pytest.mark.parametrize("facts", [{}, {"person": "whose"}, {"person": "whose", "rows": 30}], ids=str)
def test_batches_of_people_with_many_rows_have_the_bits_of_rows_in_memory(facts: Any) -> None:
    rows, weights = survey(700)
    whose = np.minimum(np.random.default_rng(4).geometric(0.02, 700), 30)
    table = pd.DataFrame(rows, columns=list("abcd")).assign(w=weights, whose=whose)
    shuffled = table.sample(frac=1, random_state=1)
    batches = [shuffled[:1], shuffled[1:1], shuffled[1:90], shuffled[90:]]
    columns = [*"abcd", "w", *facts.get("person", "").split()]
    given: dict[str, Any] = {"weights": "w", "largest_weight": LARGEST, "bound": 50.0, **facts}
    found = [
        solve_seeded(dpgep.pca(data, **given), **BUDGET).components.tobytes()
        for data in (table[columns], dpgep.scan([each[columns] for each in batches]))
    ]
    assert found[0] == found[1]


def test_weights_without_ids_are_read_once() -> None:
    rows, weights = survey()
    table = pd.DataFrame(rows, columns=list("abcd")).assign(w=weights)
    np.testing.assert_allclose(covariance(dpgep.scan(iter([table[:7], table[7:]])), "w"), covariance(rows, weights))
    with pytest.raises(ValueError, match="person= is read in a pass before others"):
        covariance(dpgep.scan(iter([table])), "w", person="a")


@pytest.mark.parametrize("rows_alike", [None, 1, 3, 10])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_people_count_alike_up_to_a_number(rows_alike: int | None, weighted: bool) -> None:
    x, w = survey()
    ids = np.random.default_rng(1).integers(0, 120, len(x))
    m = np.bincount(ids)[ids]
    expected = np.cov(x.T, aweights=(w if weighted else 1) / np.maximum(m, rows_alike or 1), ddof=0)
    options = {"weights": w, "largest_weight": LARGEST} if weighted else {}
    release = dpgep.release(x, person=ids, rows=rows_alike, bound=100.0, epsilon=math.inf, **options)
    exact = weighted or rows_alike is not None  # even shares are whole parts of 4096
    np.testing.assert_allclose(release.covariance().values, expected, rtol=1e-10 if exact else 1e-3)


def test_classes_have_weighted_means() -> None:
    x, w = survey()
    labels = np.random.default_rng(2).integers(0, 4, len(x))
    options: dict[str, Any] = {"weights": w, "largest_weight": LARGEST, "bound": 100.0, "epsilon": math.inf}
    known = labels < 3  # 3: of no class
    found = dpgep.release(x, labels, classes=[0, 1, 2], **options)
    np.testing.assert_allclose(found.covariance().values, np.cov(x[known].T, aweights=w[known], ddof=0), rtol=1e-10)
    np.testing.assert_allclose(found.n_people, w[known].sum() / LARGEST, rtol=1e-10)


def test_pairs_of_columns_are_weighted() -> None:
    x, w = survey()
    x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    auto = dpgep.AutoPreprocessing(missing="pairwise", quantile=1)
    found = dpgep.release(x, weights=w, largest_weight=LARGEST, preprocessing=auto, epsilon=math.inf)
    both = ~np.isnan(x[:, 0] + x[:, 1])
    expected = np.cov(x[both, 0], x[both, 1], aweights=w[both], ddof=0)[0, 1]
    assert found.covariance().values[0, 1] == pytest.approx(expected, rel=1e-9)


def test_weights_beyond_their_bounds_are_cut_off() -> None:
    x, w = survey()
    w[:4] = -1.0, -math.inf, math.inf, 1e300
    np.testing.assert_array_equal(covariance(x, w), covariance(x, np.clip(w, 0, LARGEST)))


# ---- whole weights ----


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1 << UNIT_BITS)), min_size=1, max_size=60),
    st.sampled_from([1, 2, 7, 4096]),
    st.sampled_from([WEIGHT_BITS, UNIT_BITS]),
    st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_whole_weights_of_a_person(rows: list[tuple[int, int]], alike: int, bits: int, n_keys: int) -> None:
    """At most one person's, never negative, near the exact ones, and a function of the person's rows alone."""
    persons = np.unique([person for person, _ in rows], return_inverse=True)[1]
    units = np.array([unit for _, unit in rows])
    keys = np.random.default_rng(0).integers(0, n_keys + 1, len(rows)).astype(np.uint64)
    weights = row_weights(persons, lambda: keys, units, alike, bits)
    assert (weights >= 0).all()
    for person in range(persons.max() + 1):
        own = persons == person
        exact = units[own].astype(float) / max(own.sum(), alike) * 2.0 ** (bits - UNIT_BITS)
        assert weights[own].sum() <= 1 << bits
        assert weights[own].sum() == pytest.approx(exact.sum(), rel=1e-15, abs=0.5001)
        assert np.sort(np.abs(weights[own] - exact))[:-1].max(initial=0) < 1 + 1e-12 * exact.max()  # but of one
        np.testing.assert_allclose(weights[own], exact, rtol=1e-12, atol=min(own.sum(), 64))
        alone = row_weights(np.zeros(own.sum(), int), lambda own=own: keys[own], units[own], alike, bits)
        np.testing.assert_array_equal(weights[own], alone)


@pytest.mark.parametrize("n_distinct", [3, 5000])
def test_sums_are_those_of_rows_repeated_by_their_weights(n_distinct: int) -> None:
    """Many weights are added up by their digits: the same whole numbers."""
    rng = np.random.default_rng(0)
    x, whole = rng.standard_normal((5000, 3)), rng.choice(rng.integers(0, WHOLE + 1, n_distinct), 5000)
    found = dpgep.pca(x, weights=whole / WHOLE, largest_weight=1.0, bound=2.0).integer_moments(8)
    repeated = dpgep.pca(np.repeat(x, whole, axis=0)[:, :], bound=2.0).integer_moments(8)
    np.testing.assert_array_equal(found.second + (0 if found.high is None else found.high[0] << 40), repeated.second)
    assert found.counts[0] + (0 if found.high is None else found.high[2][0] << 40) == int(whole.sum()) << 16


# ---- what is refused ----


def test_bad_weights_are_refused_without_their_values() -> None:
    x, w = survey(20)
    ids = np.arange(20) // 2
    secret = w.copy()
    secret[3] = math.nan
    cases: list[tuple[dict[str, Any], str]] = [
        ({"weights": w}, "weights need largest_weight"),
        ({"largest_weight": 2.0}, "largest_weight bounds weights"),
        ({"weights": w, "largest_weight": 0.0}, "largest_weight must be"),
        ({"weights": w, "largest_weight": math.inf}, "largest_weight must be"),
        ({"weights": secret, "largest_weight": 2.0}, "weights has missing values"),
        ({"weights": w[1:], "largest_weight": 2.0}, "one value per row"),
        ({"rows": 3}, "give person"),
        ({"person": ids, "rows": 0}, "rows must be a whole number"),
        ({"person": ids, "rows": 5000}, "rows must be a whole number"),
        ({"weights": w, "largest_weight": 2.0, "adjacency": "add-remove", "public_n": 20}, "public_n"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message) as caught:
            dpgep.pca(x, bound=1.0, **options)
        assert str(w[0]) not in str(caught.value)
    with pytest.raises(TypeError, match="real numbers"):
        dpgep.pca(x, weights=["much"] * 20, largest_weight=1.0)
    table = pd.DataFrame(x, columns=list("abcd")).assign(w=w)
    with pytest.raises(ValueError, match="column 'w' holds the weights, and would be a feature as well"):
        dpgep.pca(table, weights=table["w"], largest_weight=1.0)
    with pytest.raises(ValueError, match="no column of weights 'v'"):
        dpgep.pca(table, weights="v", largest_weight=1.0)


@pytest.mark.parametrize("name", ["clipped-power", "local-gaussian", "dp-spca", "dp-vrpca"])
def test_methods_refuse_weights_before_they_are_paid(name: str) -> None:
    x, w = survey(100)
    budget = dpgep.Budget(**BUDGET)
    sparse = {"sparsity": 2} if any(each.name == "sparsity" for each in fields(METHODS[name].options)) else {}
    problem = dpgep.pca(x, weights=w, largest_weight=LARGEST, center=False, bound=4.0)
    with pytest.raises(ValueError, match=r"not for weights, nor rows that count alike"):
        dpgep.solve(problem, budget=budget, method=name, n_components=1, **sparse)
    with pytest.raises(ValueError, match="not for weights"):
        dpgep.solve(problem, budget=budget, n_components=1, screen=2)
    assert budget.spent_mu == 0


# ---- products ----


@pytest.mark.parametrize(
    ("options", "rows_alike"),
    [
        ({"storage": "operator"}, None),
        ({"storage": "operator"}, 3),
        ({"method": "rayleigh-flow"}, 3),
        ({"method": "dpsr"}, None),
    ],
    ids=str,
)
def test_without_noise_products_are_those_of_weighted_rows(options: dict[str, Any], rows_alike: int | None) -> None:
    x, w = survey(100)
    ids = np.random.default_rng(1).integers(0, 40, len(x))
    given = {} if rows_alike is None else {"person": ids, "rows": rows_alike}
    problem = dpgep.pca(x, weights=w, largest_weight=LARGEST, bound=100.0, **given)
    expected = dpgep.solve(problem, epsilon=math.inf, n_components=1)
    found = dpgep.solve(problem, epsilon=math.inf, n_components=1, **options)
    assert abs(found.components[0] @ expected.components[0]) > 1 - 1e-5
    if "storage" in options:
        assert found.eigenvalues[0] == pytest.approx(expected.eigenvalues[0], rel=1e-8)


# ---- what it costs ----


def shifts(data: Any, other: Any, adjacency: Any, bound: Any = 1.0, build: Any = dpgep.pca, **given: Any) -> Any:
    def mechanism(people: Any) -> Any:
        rows, weights = people
        return build(rows, weights=weights, largest_weight=1.0, bound=bound, adjacency=adjacency, **given)

    return dpgep.auditing.replay(mechanism, (data, other), **BUDGET, n_components=1)


def people_with(row: Any, weight: float | None) -> tuple[Matrix, NDArray[np.float64]]:
    rng = np.random.default_rng(3)
    rows, weights = rng.standard_normal((30, 4)) / 4, rng.random(30)
    if weight is None:
        return rows, weights
    return np.insert(rows, 9, row, axis=0), np.insert(weights, 9, weight)


E1, E2 = np.eye(4)[:2]
TILTED = -E1 / 8 + math.sqrt(63) / 8 * E2  # the worst for s2 = 2 s1


@pytest.mark.parametrize(
    ("first", "second", "adjacency", "center", "part"),
    [
        ((E1, 1.0), (TILTED, 1.0), "replace-one", True, 1.0),
        ((E1, 1.0), (E2, 1.0), "replace-one", False, 1.0),
        # a weight from 0 to 1 is no more than a row: 1 + 1/4 + 1 of 2 + 1/2 + 1/32, and 1 + 1 of 2
        ((E1, 0.0), (E1, 1.0), "replace-one", True, 2.25 / 2.53125),
        ((E1, 0.0), (E1, 1.0), "replace-one", False, 1.0),
        ((E1, None), (E1, 1.0), "add-remove", True, 1.0),
        ((E1, None), (E1, 1.0), "add-remove", False, 1.0),
        ((E1, None), (E1, 0.5), "add-remove", True, 0.25),
    ],
)
def test_worst_neighbours_cost_what_is_paid(first: Any, second: Any, adjacency: Any, center: bool, part: float) -> None:
    result = shifts(people_with(*first), people_with(*second), adjacency, center=center)
    assert not result.flagged, result
    assert part * 0.98 <= result.ratio**2 <= part * 1.001


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("options", [{"storage": "operator"}, {"method": "rayleigh-flow"}, {"method": "dpsr"}], ids=str)
def test_worst_neighbours_cost_products_what_is_paid(options: dict[str, Any], center: bool, adjacency: Any) -> None:
    """The price is attained where all directions are asked for."""
    data = people_with(E1, 1.0 if adjacency == "replace-one" else None)
    other = people_with(TILTED if center and adjacency == "replace-one" else E2, 1.0)
    lighter = people_with(E1, 0.0 if adjacency == "replace-one" else None)  # nothing may depend on the total
    for pair in ((data, other), (lighter, other)):
        result = dpgep.auditing.replay(
            lambda people: dpgep.pca(
                people[0], weights=people[1], largest_weight=1.0, bound=1.0, center=center, adjacency=adjacency
            ),
            pair,
            **BUDGET,
            **{"n_components": 4 if "storage" in options else 1, **options},
        )
        assert not result.flagged, result
        assert result.error is None, result.error
        if "storage" in options and pair[0] is data:
            assert result.ratio >= 0.98


@pytest.mark.entropy
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("bound", [1.0, "auto"])
@pytest.mark.parametrize("model", ["pca", "fda", "people"])
def test_any_neighbours_cost_at_most_what_is_paid(model: str, bound: Any, adjacency: Any) -> None:
    rng = np.random.default_rng(len(model))
    for _ in range(3):
        before, after = ((10.0 ** rng.integers(-3, 4) * rng.standard_normal(4), rng.choice([0, 1, 0.3])) for _ in "ab")
        pair = people_with(*((None, None) if adjacency == "add-remove" else before)), people_with(*after)

        def build(rows: Any, **given: Any) -> Any:
            if model == "fda":
                return dpgep.fda(rows, np.arange(len(rows)) % 3, classes=[0, 1], **given)
            beside = {"person": np.maximum(np.arange(len(rows)) - 9, 0), "rows": 3} if model == "people" else {}
            return dpgep.pca(rows, **given, **beside)

        if model == "fda" and adjacency == "add-remove":  # labels go with places
            continue
        result = shifts(*pair, adjacency, bound, build)
        assert not result.flagged, result
        assert result.error is None, result.error


def test_a_weight_above_one_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: weights that are not cut off move sums by more than is paid."""

    def uncut(self: Weighting, weights: Any, n_rows: int) -> Any:
        return np.rint(np.asarray(weights) * (1 << UNIT_BITS)).astype(np.int64)

    monkeypatch.setattr(Weighting, "units", uncut)
    assert shifts(people_with(E1, 2.0), people_with(E1, 0.0), "replace-one").flagged


def test_the_total_weight_is_free_under_replace_one() -> None:
    x, w = survey()
    for center in (True, False):
        plain, weighted = (
            dpgep.release(dpgep.pca(x, bound=9.0, center=center, **given), **BUDGET).report.releases[-1].noise
            for given in ({}, {"weights": w, "largest_weight": LARGEST})
        )
        assert weighted[0].deviation == pytest.approx(plain[0].deviation, rel=1e-6)
        assert weighted[-1].name == "total weight of people"


# ---- answers, reports and files ----


@pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning", "ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_errors_are_those_that_are_stated(adjacency: Any) -> None:
    """Of 100 releases in which noise dominates, 90 % of 1000 intervals hold the truth: 0.90 +- 0.05 with p < 1e-6."""
    rng = np.random.default_rng(5)
    weights, truth, held = rng.uniform(1, LARGEST, 3000), np.diag([9.0, 4, 1, 1]), []
    for seed in range(100):
        x = rng.standard_normal((3000, 4)) * [3, 2, 1, 1] + [5, 0, 3, 0]
        problem = dpgep.release(
            dpgep.pca(x, weights=weights, largest_weight=LARGEST, bound=20.0, adjacency=adjacency),
            epsilon=1.0,
            delta=1e-6,
            seed=seed,
        )
        found = problem.covariance()
        held.append(((found.low <= truth) & (truth <= found.high))[np.triu_indices(4)])
    assert np.mean(held) == pytest.approx(found.level, abs=0.05)


@pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning", "ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("weighted", [True, False])
def test_noise_in_a_released_number_is_counted_in_all_that_it_divides(weighted: bool) -> None:
    """Of rows as long as the bound it moves a variance as much as all other noise: 1 +- 0.23 with p < 1e-6."""
    rng = np.random.default_rng(6)
    x = np.c_[rng.choice([-0.9, 0.9], 400), 0.1 * rng.standard_normal((400, 2))]
    given: dict[str, Any] = {"weights": rng.uniform(0.5, 1, 400), "largest_weight": 1.0} if weighted else {}
    problem = dpgep.pca(x, bound=1.0, adjacency="replace-one" if weighted else "add-remove", **given)
    found, stated = [], []
    for seed in range(250):
        release = dpgep.release(problem, epsilon=1.0, delta=1e-6, seed=seed)
        estimate = release.covariance()
        half = (estimate.high - estimate.low)[0, 0] / 2 / NormalDist().inv_cdf((1 + estimate.level) / 2)
        found.append(estimate.values[0, 0])
        stated.append(half**2 - 2 * estimate.values[0, 0] ** 2 / release.n_people)  # less what sampling adds
    assert np.std(found) == pytest.approx(math.sqrt(np.mean(stated)), rel=0.23)


@pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning", "ignore::dpgep.errors.AccuracyWarning")
def test_intervals_of_eigenvalues_count_noise_in_a_released_number() -> None:
    rng = np.random.default_rng(6)
    x = np.c_[rng.choice([-0.9, 0.9], 3000), 0.1 * rng.standard_normal((3000, 2))]
    problem, quotients = dpgep.pca(x, bound=1.0, adjacency="add-remove"), []
    for seed in range(3):
        release = dpgep.release(problem, epsilon=0.1, delta=1e-6, seed=seed)
        solution, noise = release.solve(n_components=1), release._noisy.noise
        low, high = solution.intervals().eigenvalues[0]
        half = (high - low) / 2 / NormalDist().inv_cdf(0.95)
        value = solution.eigenvalues[0]
        of_noise = noise.second**2 + (value * noise.counts) ** 2
        quotients.append(half**2 / (of_noise + 2 * value**2 / release.n_people))
    assert np.mean(quotients) == pytest.approx(1.0, abs=0.25)


def test_reports_say_what_is_protected(tmp_path: Any) -> None:
    x, w = survey(3000)
    release = dpgep.release(x, weights=w, largest_weight=LARGEST, bound=20.0, **BUDGET)
    text = release.report.to_markdown()
    assert "the largest weight, 8" in text
    assert "their total weight is released" in text
    assert release.report.public.n_people == 3000
    assert abs(release.n_people - w.sum() / LARGEST) < 100
    release.save(tmp_path / "survey.dpgep")
    assert dpgep.load(tmp_path / "survey.dpgep").n_people == release.n_people
    release.report.require_consistent()
    other = dpgep.release(x, weights=w, largest_weight=2 * LARGEST, bound=20.0, **BUDGET)
    with pytest.raises(ValueError, match=r"differ in largest_weight \(8.0 and 16.0\)"):
        release + other
    hidden = dpgep.release(x, weights=w, largest_weight=LARGEST, bound=20.0, adjacency="add-remove", **BUDGET)
    assert hidden.report.public.n_people is None


def test_estimators_take_weights() -> None:
    x, w = survey()
    given: dict[str, Any] = {"weights": w, "largest_weight": LARGEST}
    found = PrivatePCA(bound=100.0, epsilon=math.inf).fit(x, **given)
    expected = np.linalg.eigvalsh(np.cov(x.T, aweights=w, ddof=0))[::-1]
    np.testing.assert_allclose(found.explained_variance_, expected, rtol=1e-10)
    scaler = PrivateScaler(epsilon=math.inf).fit(x, **given)
    np.testing.assert_allclose(scaler.mean_, np.average(x, axis=0, weights=w), atol=0.02)
    with pytest.raises(TypeError, match="weights must hold a weight for each row, not name a column"):
        PrivatePCA(**BUDGET).fit(x, weights="w", largest_weight=LARGEST)
