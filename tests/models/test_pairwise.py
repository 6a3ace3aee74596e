"""Covariances of pairs of columns over the people who have both: against pandas, noise as stated, limits said."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from conftest import Matrix

import dpgep
from dpgep import AutoPreprocessing, Preprocessing
from dpgep.data.dataset import preprocessed
from dpgep.data.rows import Batch, Rows, clipped_blocks
from dpgep.models.pairwise import SHARE, mark_of, pair_moments, part_of_values

pytestmark = pytest.mark.filterwarnings("ignore:a seeded run")

D = 5
UNITS = np.array([1.0, 10.0, 0.1, 5.0, 200.0])
BOUGHT: dict[str, Any] = {"preprocessing": AutoPreprocessing(missing="pairwise")}


def with_holes(n: int, share: float = 0.2, seed: int = 0) -> tuple[Matrix, Matrix]:
    """Rows, and the same with a share of their values absent at random."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(D) + 0.5 * np.tril(np.random.default_rng(1).standard_normal((D, D)), -1)
    rows = (rng.standard_normal((n, D)) @ mixing.T + np.arange(D)) * UNITS
    holed = rows.copy()
    holed[rng.random(rows.shape) < share] = np.nan
    return rows, holed


def given(holed: Matrix, bound: float = 6.0, *, scaled: bool = True) -> Preprocessing:
    scale = np.nanstd(holed, axis=0) if scaled else None
    return Preprocessing(bound, np.nanmean(holed, axis=0), scale, missing=True, pairwise=True)


# ---- without noise ----


def expected(holed: Matrix) -> tuple[Matrix, Matrix]:
    """Covariances of pandas, which divides by one less where values are absent, and numbers of people with both."""
    frame, there = pd.DataFrame(holed), ~np.isnan(holed)
    people = there.T.astype(float) @ there
    return frame.cov().to_numpy() * (people - 1) / people, people


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("public_n", [None, 1500])
def test_covariances_are_those_of_pandas(adjacency: Any, public_n: int | None) -> None:
    _, holed = with_holes(1000)
    facts = {"adjacency": adjacency, "public_n": public_n if adjacency == "add-remove" else None}
    release = dpgep.release(holed, preprocessing=given(holed, 1e4), epsilon=math.inf, **facts)
    covariance, people = expected(holed)
    deviations = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(release.covariance().values, covariance, rtol=1e-10)
    correlations = covariance / np.outer(deviations, deviations)
    np.testing.assert_allclose(release.correlation().values, correlations, atol=1e-10)
    np.testing.assert_allclose(release.mean(), np.nanmean(holed, axis=0), rtol=1e-10)
    mean, before, deviation, pairs = pair_moments(release._noisy)
    scale = release.preprocessing.scale
    np.testing.assert_allclose(before * np.outer(scale, scale), covariance, rtol=1e-10)
    np.testing.assert_allclose(pairs.shares * 1000, people, rtol=1e-10)
    np.testing.assert_allclose(mean, 0.0, atol=1e-10)
    assert deviation == 0


def test_pandas_divides_correlations_by_deviations_of_the_pair() -> None:
    """Which third moments show: ours divide by deviations of everybody who has the column. Both have one limit."""
    apart = []
    for n in (2000, 200_000):
        _, holed = with_holes(n)
        release = dpgep.release(holed, preprocessing=given(holed, 1e4), epsilon=math.inf)
        apart.append(np.abs(release.correlation().values - pd.DataFrame(holed).corr().to_numpy()).max())
    assert apart[0] < 0.05
    assert apart[1] < apart[0] / 4


@pytest.mark.parametrize("standardize", [False, True])
def test_components_are_those_of_the_covariance(standardize: bool) -> None:
    _, holed = with_holes(1000)
    holed = holed / UNITS * np.arange(1, D + 1)
    problem = dpgep.pca(holed, standardize=standardize, preprocessing=given(holed, 1e4, scaled=standardize))
    solution = dpgep.solve(problem, epsilon=math.inf)
    matrix, _ = expected(holed)
    if standardize:
        deviations = np.sqrt(np.diagonal(matrix))
        matrix = matrix / np.outer(deviations, deviations)
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(solution.eigenvalues, values[::-1], rtol=1e-9)
    found = solution.components * (solution.scale if standardize else 1.0)
    np.testing.assert_allclose(np.abs(np.sum(found * vectors[:, ::-1].T, axis=1)), 1.0, atol=1e-9)


@pytest.mark.parametrize("of_release", [False, True])
@pytest.mark.parametrize("name", ["cca", "pls"])
def test_models_of_views_are_those_of_the_covariance(name: str, *, of_release: bool) -> None:
    _, holed = with_holes(1000)
    holed = holed / UNITS
    covariance, _ = expected(holed)
    preprocessing = given(holed, 1e4, scaled=False)
    if of_release:
        release = dpgep.release(holed, preprocessing=preprocessing, epsilon=math.inf)
        solution = getattr(release, name)([0, 1], [2, 3, 4])
    else:
        problem = getattr(dpgep, name)(holed[:, :2], holed[:, 2:], preprocessing=preprocessing)
        solution = dpgep.solve(problem, epsilon=math.inf)
    a, b = covariance.copy(), covariance.copy()
    for view, other in ((slice(0, 2), slice(2, D)), (slice(2, D), slice(0, 2))):
        a[view, view], b[view, other] = 0.0, 0.0
    values = scipy.linalg.eigh(a, b if name == "cca" else None, eigvals_only=True)
    np.testing.assert_allclose(solution.eigenvalues, values[:-3:-1], rtol=1e-9)


def test_what_is_not_positive_semidefinite_is_projected() -> None:
    nan = math.nan
    rows = np.array([[1, 1, nan], [-1, -1, nan], [nan, 1, 1], [nan, -1, -1], [1, nan, -1], [-1, nan, 1.0]])
    release = dpgep.release(rows, preprocessing=Preprocessing(10.0, missing=True, pairwise=True), epsilon=math.inf)
    _, before, _, _ = pair_moments(release._noisy)
    np.testing.assert_allclose(before, [[1, 1, -1], [1, 1, 1], [-1, 1, 1.0]], atol=1e-12)
    values, vectors = np.linalg.eigh(before)
    assert values[0] < -0.9
    projected = (vectors * np.maximum(values, 0)) @ vectors.T
    np.testing.assert_allclose(release.covariance().values, projected, atol=1e-12)


# ---- one person ----


@pytest.mark.parametrize("d", [1, 2, 7, 100, 5000])
def test_marks_are_on_the_grid_and_leave_room_for_values(d: int) -> None:
    mark, values = mark_of(d), part_of_values(d)
    assert float(mark * 2**20).is_integer()
    assert 0.75 * SHARE < d * mark**2 <= SHARE
    assert values**2 + d * mark**2 < 1


def test_joint_rows_keep_their_marks_whatever_the_values() -> None:
    rows = np.array([[1e300, 1.0], [3.0, 4.0], [math.nan, 5.0], [math.nan, math.nan], [0.0, 0.0]])
    batch = preprocessed(Batch(Rows((rows,), 1.0)), Preprocessing(5.0, missing=True, pairwise=True))
    (_, block) = next(iter(clipped_blocks(batch.rows, bits=20)))
    marks = np.where(np.isnan(rows), -1, 1) * 2**20 * mark_of(2)
    np.testing.assert_array_equal(block[:, 2:], marks)
    assert (np.sum(block**2, axis=1) <= 4.0**20).all()
    np.testing.assert_allclose(block[1, :2] / 2**20, part_of_values(2) * np.array([0.6, 0.8]), atol=2e-6)


@pytest.mark.parametrize("form", ["scan", "dask", "sparse", "moments"])
def test_same_bits_wherever_rows_are(form: str) -> None:
    import dask.array
    import scipy.sparse

    _, holed = with_holes(3000)
    preprocessing = given(holed) if form != "sparse" else Preprocessing(800.0, missing=True, pairwise=True)
    at_once = dpgep.release(holed, preprocessing=preprocessing, mu=1.0, seed=1)
    parts = np.array_split(holed, 7)
    data: Any = {
        "scan": lambda: dpgep.scan(parts),
        "dask": lambda: dask.array.from_array(holed, chunks=(700, D)),
        "sparse": lambda: scipy.sparse.csr_array(holed),
        "moments": lambda: dpgep.Moments(dpgep.models.TableModel(D), preprocessing=preprocessing),
    }[form]()
    if form == "moments":
        for part in parts:
            data.update(part)
        stored = io.BytesIO()
        data.save(stored)
        data, options = dpgep.load(stored.getvalue()), {}
    else:
        options = {"preprocessing": preprocessing}
    apart = dpgep.release(data, mu=1.0, seed=1, **options)
    np.testing.assert_array_equal(apart._noisy.second, at_once._noisy.second)
    np.testing.assert_array_equal(apart.correlation().values, at_once.correlation().values)


# ---- with noise ----


def test_correlations_are_nearer_than_those_that_count_holes_as_the_location() -> None:
    rows, holed = with_holes(20_000)
    truth, upper = np.corrcoef(rows.T), np.triu_indices(D, 1)

    def error(missing: Any, seed: int) -> float:
        preprocessing = AutoPreprocessing(missing=missing)
        release = dpgep.release(holed, preprocessing=preprocessing, epsilon=1.0, delta=1e-6, seed=seed)
        return float(np.sqrt(np.mean((release.correlation().values - truth)[upper] ** 2)))

    pairwise, center = (np.mean([error(missing, seed) for seed in range(3)]) for missing in ("pairwise", "center"))
    assert pairwise < center / 3


@pytest.mark.parametrize(("standardize", "share"), [(True, 0.2), (True, 0.5), (False, 0.2)])
def test_expected_errors_are_measured(standardize: bool, share: float) -> None:
    """A mean of 40 squared sines, each about exponential, of 0.55 times what is stated, which has heavy tails."""
    _, holed = with_holes(20_000, share)
    holed = holed / UNITS * [3.0, 2.0, 1.0, 1.0, 1.0]
    preprocessing = given(holed, 6.0 if standardize else 15.0, scaled=standardize)
    problem = dpgep.pca(holed, standardize=standardize, preprocessing=preprocessing)

    def solved(**budget: Any) -> tuple[Matrix, Matrix]:
        solution = dpgep.solve(problem, n_components=1, **budget)
        found = solution.components * (solution.scale if standardize else 1.0)
        return found[0] / np.linalg.norm(found[0]), solution.diagnostics.expected_error

    exact, _ = solved(epsilon=math.inf)
    found = [solved(epsilon=1.0, delta=1e-6, seed=seed) for seed in range(40)]
    measured = np.mean([1 - (exact @ component) ** 2 for component, _ in found])
    ratio = measured / np.mean([stated for _, stated in found])
    assert 0.2 < ratio < 2.5, ratio


@pytest.mark.parametrize("name", ["cca", "pls"])
def test_expected_errors_of_views_are_measured(name: str) -> None:
    """As above, in the norm of B."""
    _, holed = with_holes(20_000, 0.3)
    holed = holed / UNITS * (1.0 if name == "cca" else [3.0, 2.0, 1.0, 1.0, 1.0])
    preprocessing = given(holed, 5.0 if name == "cca" else 12.0, scaled=name == "cca")
    problem = getattr(dpgep, name)(holed[:, :2], holed[:, 2:], preprocessing=preprocessing)
    exact = dpgep.solve(problem, epsilon=math.inf, n_components=1).components[0]
    norm, _ = expected(holed)
    norm[:2, 2:], norm[2:, :2] = 0.0, 0.0
    norm = norm if name == "cca" else np.eye(D)
    measured, stated = [], []
    for seed in range(40):
        solution = dpgep.solve(problem, epsilon=4.0, delta=1e-6, n_components=1, seed=seed)
        found = solution.components[0]
        squared = (exact @ norm @ found) ** 2 / ((exact @ norm @ exact) * (found @ norm @ found))
        measured.append(1 - squared)
        stated.append(solution.diagnostics.expected_error[0])
    ratio = np.mean(measured) / np.mean(stated)
    assert 0.4 < ratio < 2.5, ratio


def test_noise_of_covariances_has_the_variances_that_are_stated() -> None:
    """300 draws: a sum of squares of 300 normal deviates leaves (0.6, 1.5) of its mean with probability 2e-8."""
    _, holed = with_holes(5000)
    holed[:, 0] = np.where(np.random.default_rng(3).random(5000) < 0.7, math.nan, holed[:, 0])
    preprocessing = Preprocessing(8.0, np.nanmean(holed, axis=0) - 0.5 * UNITS, UNITS, missing=True, pairwise=True)
    problem = dpgep.release
    exact = pair_moments(problem(holed, preprocessing=preprocessing, epsilon=math.inf)._noisy)
    draws = [problem(holed, preprocessing=preprocessing, mu=2.0, seed=seed)._noisy for seed in range(300)]
    found = [pair_moments(draw) for draw in draws]
    strays = np.mean([(covariance - exact[1]) ** 2 for _, covariance, _, _ in found], axis=0)
    stated = np.mean([deviation**2 * pairs.profile for *_, deviation, pairs in found], axis=0)
    stated /= np.where(np.eye(D, dtype=bool), 1, 2)
    assert (np.abs(np.log(strays / stated)) < math.log(1.6)).all(), strays / stated
    of_means = np.mean([(mean - exact[0]) ** 2 for mean, *_ in found], axis=0)
    assert (np.abs(np.log(of_means / np.mean([pairs.of_means for *_, pairs in found], axis=0))) < math.log(1.6)).all()


def test_intervals_cover() -> None:
    """Of 100 samples, the mean coverage of ten intervals each, at 90 %: below 80 % with probability below 1e-6."""
    population = with_holes(200_000, 0.0, seed=99)[0]
    truth = np.corrcoef(population.T), np.cov(population.T), population.mean(axis=0)
    upper, held = np.triu_indices(D, 1), []
    for seed in range(100):
        _, holed = with_holes(2000, seed=seed)
        release = dpgep.release(holed, preprocessing=given(holed, 10.0), mu=1.0, seed=seed)
        correlation, covariance, means = release.correlation(), release.covariance(), release.mean_intervals()
        held.append([
            np.mean((correlation.low <= truth[0])[upper] & (truth[0] <= correlation.high)[upper]),
            np.mean((covariance.low <= truth[1]) & (truth[1] <= covariance.high)),
            np.mean((means[:, 0] <= truth[2]) & (truth[2] <= means[:, 1])),
        ])  # fmt: skip
    assert (np.mean(held, axis=0) > 0.8).all(), np.mean(held, axis=0)
    assert (np.mean(held, axis=0) < 0.99).all(), np.mean(held, axis=0)


@pytest.mark.filterwarnings("ignore:few long rows")
def test_a_pair_that_nobody_has_may_have_any_correlation() -> None:
    _, holed = with_holes(20_000)
    first = np.arange(20_000) < 10_000
    holed[first, 0], holed[~first, 1] = np.nan, np.nan
    release = dpgep.release(holed, epsilon=4.0, delta=1e-6, seed=0, **BOUGHT)
    correlation = release.correlation()
    assert (correlation.low[0, 1], correlation.high[0, 1]) == (-1.0, 1.0)
    covariance = release.covariance()
    largest = math.sqrt(covariance.values[0, 0] * covariance.values[1, 1])
    assert covariance.low[0, 1] < -largest
    assert covariance.high[0, 1] > largest
    assert correlation.high[2, 3] - correlation.low[2, 3] < 0.2


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("sparsity", [3, "auto"])
def test_errors_of_sparse_components_are_stated(standardize: bool, sparsity: Any) -> None:
    _, holed = with_holes(20_000)
    holed = holed / UNITS * [3.0, 2.0, 1.0, 1.0, 1.0]
    problem = dpgep.pca(holed, standardize=standardize, **BOUGHT)
    solution = dpgep.solve(problem, epsilon=4.0, delta=1e-6, n_components=1, sparsity=sparsity, seed=0)
    assert 0 < solution.diagnostics.expected_error[0] < 1


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_recommended_components_count_the_people_of_pairs() -> None:
    """Independent columns: no component. Of 40 samples, two are 10 deviations of what chance makes at 1/200."""
    n, found = 4000, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        holed = rng.standard_normal((n, D))
        holed[rng.random(holed.shape) < 0.5] = np.nan
        problem = dpgep.pca(holed, standardize=True, preprocessing=given(holed))
        found.append(dpgep.solve(problem, mu=20.0, seed=seed).recommended_components())
    assert np.mean(np.array(found) > 0) < 0.1


# ---- several rows to a person ----


def test_rows_of_one_person_count_as_one() -> None:
    """At epsilon = inf: shares, means and covariances of a random row of a random person."""
    ids = np.repeat(np.arange(200), [1, 2, 6] * 66 + [1, 2])
    _, holed = with_holes(len(ids))
    number = np.bincount(ids)[ids]
    weights = 1 / number / len(np.unique(ids))
    release = dpgep.release(holed, person=ids, preprocessing=given(holed, 1e4), epsilon=math.inf)
    there, values = ~np.isnan(holed), np.nan_to_num(holed)
    both = there.T @ (weights[:, None] * there)
    sums = values.T @ (weights[:, None] * there)
    covariance = values.T @ (weights[:, None] * values) / both - sums * sums.T / both**2
    deviations = np.sqrt(np.diagonal(covariance))
    found = release.covariance().values / np.outer(deviations, deviations)
    np.testing.assert_allclose(found, covariance / np.outer(deviations, deviations), atol=1e-3)  # weights are rounded


@pytest.mark.entropy
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_neighbours_who_differ_in_all_rows_and_holes_of_a_person_cost_what_is_claimed(adjacency: Any) -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        _, before = with_holes(20, 0.4, seed=int(rng.integers(1000)))
        after, ids = before / UNITS, np.repeat(np.arange(7), [1, 1, 2, 3, 3, 5, 5])
        before = before / UNITS
        theirs = ids == rng.integers(7)
        after[theirs] = 30 * with_holes(int(theirs.sum()), 0.5, seed=1)[1] / UNITS
        pair = ((before, ids), (after, ids))
        if adjacency == "add-remove":
            pair = ((before[~theirs], ids[~theirs]), (before, ids))

        def seen(people: tuple[Matrix, Any]) -> Any:
            rows, person = people
            preprocessing = Preprocessing(3.0, missing=True, pairwise=True)
            problem = dpgep.pca(rows, person=person, adjacency=adjacency, preprocessing=preprocessing)
            return dpgep.solve(problem, mu=1.0, n_components=1)

        result = dpgep.auditing.replay(seen, pair)
        assert result.error is None
        assert not result.flagged, result
        assert 0 < result.mu <= 1


# ---- what is kept, added and refused ----


def test_releases_are_stored_and_added() -> None:
    _, holed = with_holes(4000)
    preprocessing = given(holed)
    releases = [dpgep.release(part, preprocessing=preprocessing, mu=1.0, seed=i) for i, part in
                enumerate((holed[:1000], holed[1000:]))]  # fmt: skip
    both, stored = releases[0] + releases[1], io.BytesIO()
    both.save(stored)
    again = dpgep.load(stored.getvalue())
    np.testing.assert_array_equal(again.correlation().low, both.correlation().low)
    np.testing.assert_allclose(both.correlation().values, expected_correlations(holed), atol=0.1)
    part = both.correlation([3, 1])
    np.testing.assert_allclose(part.values[0, 1], both.correlation().values[3, 1], atol=0.05)


def expected_correlations(holed: Matrix) -> Matrix:
    covariance, _ = expected(holed)
    deviations = np.sqrt(np.diagonal(covariance))
    return np.asarray(covariance / np.outer(deviations, deviations))


def test_solutions_are_stored_and_their_release_answers_more() -> None:
    _, holed = with_holes(20_000)
    solution = dpgep.solve(dpgep.pca(holed, standardize=True, **BOUGHT), epsilon=2.0, delta=1e-6, n_components=2)
    text = io.BytesIO()
    solution.save(text)
    again = dpgep.load(text.getvalue())
    np.testing.assert_array_equal(again.components, solution.components)
    assert again.recommended_components() == solution.recommended_components()
    np.testing.assert_allclose(solution.release.correlation().values, expected_correlations(holed), atol=0.1)
    np.testing.assert_allclose(
        solution.release.solve(2).components, solution.components, rtol=1e-9, atol=1e-12 / UNITS.min()
    )
    assert not solution.has_intervals
    assert "correlation, describe, graph, sample" in repr(solution.release)
    for ask in (solution.intervals, lambda: solution.release.regression(0)):
        with pytest.raises(ValueError, match="not known of covariances"):
            ask()
    assert solution.transform(holed).shape == (20_000, 2)


LABELS = np.arange(1000) % 2
REFUSED: dict[str, Any] = {
    "fda": lambda x: dpgep.fda(x, LABELS, classes=[0, 1], **BOUGHT),
    "sir": lambda x: dpgep.sir(x, LABELS, slices=2, y_range=(0, 1), **BOUGHT),
    "pca without center": lambda x: dpgep.pca(x, center=False, **BOUGHT),
    "release of groups": lambda x: dpgep.release(x, labels=LABELS, classes=[0, 1], mu=1.0, **BOUGHT),
    "moments": lambda x: dpgep.Moments(dpgep.models.FdaModel(D, (0, 1)), preprocessing=given(x)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_models_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match='missing="pairwise" serves models of centred rows without groups'):
        REFUSED[name](with_holes(1000)[1])


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize(
    "options",
    [{"method": "clipped-power"}, {"method": "rayleigh-flow"}, {"storage": "operator"}, {"screen": 3}],
    ids=str,
)
def test_products_are_refused_before_anything_is_paid(options: dict[str, Any]) -> None:
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match="release"):
        dpgep.solve(dpgep.pca(with_holes(1000)[1], **BOUGHT), budget=budget, n_components=1, **options)
    assert budget.spent_mu == 0
    chosen = dpgep.solve(dpgep.pca(with_holes(1000)[1], **BOUGHT), budget=budget, n_components=1, method="auto")
    assert chosen.method == "release"


def test_a_map_of_columns_is_of_no_pairs() -> None:
    with pytest.raises(ValueError, match="not of mixtures"):
        Preprocessing(1.0, linear=np.eye(2), missing=True, pairwise=True)
    with pytest.raises(ValueError, match="missing values"):
        Preprocessing(1.0, pairwise=True)
    with pytest.raises(ValueError, match="about pairs"):
        AutoPreprocessing(missing="pairwise", precondition="full")
    x = with_holes(20_000)[1]
    bought = dpgep.solve(dpgep.cca(x[:, :2], x[:, 2:], **BOUGHT), mu=20.0, n_components=1)
    assert bought.preprocessing.linear is None


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_few_people_of_whom_noise_leaves_a_negative_number_are_some() -> None:
    for seed in range(20):
        found = dpgep.release(with_holes(40)[1], epsilon=0.001, delta=1e-6, adjacency="add-remove", seed=seed, **BOUGHT)
        described, covariance = found.describe(), found.covariance()
        assert described.n_people > 0
        assert (covariance.low <= covariance.high).all()
