"""``bound="auto"``: what is bought, what it costs, and that answers come back in the units of the columns."""

from __future__ import annotations

import math
import pickle
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.stats
from every_run import PCA_ALONE, SECOND_MOMENT_ALONE, runs
from stored import bytes_of

import dpgep
from dpgep import AutoPreprocessing, Moments, Preprocessing
from dpgep.data.dataset import map_rows
from dpgep.errors import PrivacyBudgetError
from dpgep.methods import METHODS
from dpgep.methods.preprocessing import Norms, noise_weights, scales_of_shares
from dpgep.models import MODELS
from dpgep.privacy.ledger import cost_of

pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")

N, UNITS = 4000, np.array([1e4, 1.0, 1e-3, 5.0, 100.0])
PLACES = np.array([5e4, 0.0, 1e-2, 300.0, -50.0])


def table(n: int = N, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((n, 2))
    z = hidden @ [[1.5, 1.0, 0.5, 0.0, 0.0], [0.0, 0.5, -1.0, 1.0, 0.2]] + rng.standard_normal((n, 5))
    return z * UNITS + PLACES


class Makers(dict[str, Any]):
    """Problems that are made when they are asked for."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)()


def problems(x: Any, of: Any = None, form: Any = np.asarray, **rest: Any) -> Makers:
    """A problem of every model; labels and responses belong to the table ``of``."""
    score = ((x if of is None else of)[:, 0] - PLACES[0]) / UNITS[0]
    labels = np.digitize(score, [-1.0, 1.0])
    views = x[:, :2], x[:, 2:]
    return Makers(
        {
            "pca": lambda: dpgep.pca(form(x), **rest),
            "pca standardized": lambda: dpgep.pca(form(x), standardize=True, **rest),
            "pca uncentred": lambda: dpgep.pca(form(x), center=False, **rest),
            "cca": lambda: dpgep.cca(form(views[0]), form(views[1]), **rest),
            "cca uncentred": lambda: dpgep.cca(form(views[0]), form(views[1]), center=False, **rest),
            "pls": lambda: dpgep.pls(form(views[0]), form(views[1]), **rest),
            "multiset-cca": lambda: dpgep.multiset_cca([form(x[:, :1]), form(x[:, 1:2]), form(x[:, 2:])], **rest),
            "fda": lambda: dpgep.fda(form(x), labels, classes=[0, 1, 2], **rest),
            "sir": lambda: dpgep.sir(form(x), score, slices=5, y_range=(-2, 2), **rest),
            "contrastive-pca": lambda: dpgep.contrastive_pca(
                form(x), labels > 1, target=True, background=False, **rest
            ),
        }
    )


NAMES = list(problems(table(50)))


def test_every_model_is_here() -> None:
    assert {problems(table(50))[name].model.name for name in NAMES} == set(MODELS) - {"table"}


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_the_answer_is_that_of_the_rows(name: str) -> None:
    """Nothing is cut off, so that location, scale and bound change nothing but the rounding."""
    x = table()
    scale_free = name.partition(" ")[0] in ("cca", "multiset-cca", "fda", "sir") or "standardized" in name
    units, places = (UNITS, PLACES if "uncentred" not in name else 0.0) if scale_free else (1.0, 0.0)
    rows = (x - places) / units
    largest = 2 * float(np.linalg.norm(rows, axis=1).max())
    expected = dpgep.solve(problems(rows, x, bound=largest)[name], epsilon=math.inf, n_components=1)
    found = dpgep.solve(
        problems(x, preprocessing=AutoPreprocessing(quantile=1))[name], epsilon=math.inf, n_components=1
    )
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-6)
    one, two = found.components[0] * units, expected.components[0]
    np.testing.assert_allclose(one / np.linalg.norm(one), two / np.linalg.norm(two), atol=1e-6)
    if found.mean is not None:
        np.testing.assert_allclose((found.mean - places) / units, expected.mean, atol=1e-9 * largest)
    if scale_free:
        np.testing.assert_allclose(np.linalg.norm(found.components * found.scale), 1.0)
    else:
        np.testing.assert_allclose(np.linalg.norm(found.components), 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_wild_entries_and_long_rows_are_left_as_they_are(name: str) -> None:
    """With the defaults: neither a cut nor a bound changes the answer."""
    x = table()
    x[::50] = (x[::50] - PLACES) * 10 + PLACES
    x[::500, 2] += 100 * UNITS[2]
    scale_free = name.partition(" ")[0] in ("cca", "multiset-cca", "fda", "sir") or "standardized" in name
    units, places = (UNITS, PLACES if "uncentred" not in name else 0.0) if scale_free else (1.0, 0.0)
    rows = (x - places) / units
    largest = 2 * float(np.linalg.norm(rows, axis=1).max())
    expected = dpgep.solve(problems(rows, x, bound=largest)[name], epsilon=math.inf, n_components=1)
    found = dpgep.solve(problems(x, bound="auto")[name], epsilon=math.inf, n_components=1)
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-7)
    one, two = found.components[0] * units, expected.components[0]
    np.testing.assert_allclose(one / np.linalg.norm(one), two / np.linalg.norm(two), atol=1e-7)
    assert found.preprocessing.energy_kept == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_every_stage_is_paid_for(name: str, adjacency: str, form: Any) -> None:
    problem = problems(table(), None, form, bound="auto", adjacency=adjacency)[name]
    budget = dpgep.Budget(mu=2.0, adjacency=adjacency)
    solution = dpgep.solve(problem, budget=budget, n_components=1)
    report = solution.privacy
    *stages, answer = report.releases
    assert "moment matrix" in answer.query
    assert 1 <= len(stages) <= 10
    assert sum(cost_of(entry.mu) for entry in report.releases) <= cost_of(2.0)
    assert report.mu == pytest.approx(2.0)
    assert budget.remaining_mu == pytest.approx(0, abs=1e-6)
    assert report.exact
    assert report.rounding == "integer"
    assert solution.preprocessing.bound == report.bound
    assert solution.passes == len(report.releases)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_a_budget_that_shows_no_column_scales_none(name: str, form: Any) -> None:
    """Rows are shifted at most, those with groups like the others, and all is paid for."""
    budget = dpgep.Budget(mu=1e-3)
    solution = dpgep.solve(problems(table(), None, form)[name], budget=budget, n_components=1)
    queries = [entry.query for entry in solution.privacy.releases]
    shifted = form is np.asarray and "uncentred" not in name
    stages = ["histogram of row norms", *["sum of the rows", "histogram of row norms"] * shifted]
    assert queries[:-1] in (stages, stages[:-1] if shifted else stages)  # the last only after a shift
    assert budget.remaining_mu == pytest.approx(0, abs=1e-9)
    assert np.isfinite(solution.components).all()


SQUARES = {"histogram of row norms": (2, 1), "sum of the rows": (4, 1)}


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    ("name", "precondition", "stages"), [("pca", None, 2), ("pca", "columns", 4), ("fda", "columns", 4)]
)
def test_the_noise_of_every_stage_is_that_of_its_sensitivity(
    name: str, precondition: Any, stages: int, adjacency: str
) -> None:
    x = table()
    x[:, 3] = 300 + np.random.default_rng(1).standard_normal(len(x))  # far from zero: looked at again
    auto = AutoPreprocessing(precondition=precondition)
    report = dpgep.solve(problems(x, preprocessing=auto, adjacency=adjacency)[name], mu=3.0).privacy
    seen = set()
    for entry in report.releases[:-1]:
        (block,) = entry.noise
        narrow = max(1, round((entry.mu * block.deviation) ** 2 / (2 if adjacency == "replace-one" else 1)))
        columns = {"histograms of the columns' magnitudes": 5, "histograms of columns within intervals": narrow}
        counted = columns.get(entry.query)
        replaced, added = SQUARES.get(entry.query, (20, 15) if counted is None else (2 * counted, counted))
        squared = replaced if adjacency == "replace-one" else added
        cost = math.sqrt(squared) / block.deviation
        assert cost <= entry.mu
        assert cost >= entry.mu * (1 - 1e-5)
        assert block.scale == block.deviation * 2**entry.grid_bits
        seen.add(entry.query)
    assert len(seen) == stages


@pytest.mark.parametrize(("method", "options"), runs(5))
def test_every_method(method: str, options: dict[str, Any]) -> None:
    name = "pca uncentred" if method in SECOND_MOMENT_ALONE else "pca" if method in PCA_ALONE else "fda"
    problem = problems(table(), bound="auto")[name]
    if method in SECOND_MOMENT_ALONE:
        budget = dpgep.Budget(epsilon=5.0, delta=1e-5)
        with pytest.raises(ValueError, match="give a public bound"):
            dpgep.solve(problem, budget=budget, method=method, n_components=1, **options)
        assert budget.spent_mu == 0
        assert problem.dataset.people.passes == 0
        return
    solution = dpgep.solve(problem, mu=5.0, method=method, n_components=1, **options)
    assert sum(cost_of(entry.mu) for entry in solution.privacy.releases) <= cost_of(5.0)
    if "sparsity" not in options and "screen" not in options and method == "release":
        assert np.argmax(np.abs(solution.components[0] * UNITS)) == 0


def test_every_method_is_tried() -> None:
    assert {method for method, _ in runs(5)} == set(METHODS)


def test_release_and_operator_answer_in_the_units_of_the_columns() -> None:
    problem, expected = problems(table(), bound="auto")["fda"], np.eye(5)[0]
    kept = dpgep.release(problem, mu=20.0)
    operator = dpgep.release(problem, mu=20.0, storage="operator")
    for solution in (kept.solve(1), operator.solve(1), dpgep.load(bytes_of(kept)).solve(1)):
        direction = solution.components[0] * UNITS
        np.testing.assert_allclose(direction / np.linalg.norm(direction), expected, atol=0.1)
        np.testing.assert_allclose(solution.mean / UNITS, table().mean(axis=0) / UNITS, atol=0.1)
    assert operator.preprocessing.bound == operator.privacy.bound


def test_a_preparation_serves_other_data_of_the_same_table() -> None:
    first, others = table(), [table(seed=1), table(seed=2)]
    kept = dpgep.release(problems(first, bound="auto")["fda"], mu=20.0)
    parts = []
    for x in others:
        part = Moments(kept.model, preprocessing=kept.preprocessing)
        part.update(x, np.digitize((x[:, 0] - PLACES[0]) / UNITS[0], [-1.0, 1.0]))
        parts.append(dpgep.load(bytes_of(part)))
        assert bytes_of(parts[-1]) == bytes_of(part)
        assert bytes_of(pickle.loads(pickle.dumps(part))) == bytes_of(part)
    parts[0].merge(parts[1])
    both = np.vstack(others)
    directly = problems(both, preprocessing=kept.preprocessing)["fda"]
    with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
        one = dpgep.solve(parts[0], mu=1.0, seed=1)
    with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
        two = dpgep.solve(directly, mu=1.0, seed=1)
    np.testing.assert_array_equal(one.components, two.components)
    np.testing.assert_array_equal(one.mean, two.mean)
    assert one.privacy == two.privacy


def test_sums_of_different_preparations_are_not_added() -> None:
    x = table()
    one, two = (dpgep.release(problems(x, bound="auto")["pca"], mu=1.0) for _ in range(2))
    with pytest.raises(ValueError, match="preprocessing"):
        one + two
    model = dpgep.models.PcaModel(5, center=True)
    with pytest.raises(ValueError, match="bound"):
        Moments(model, preprocessing=Preprocessing(1.0, np.zeros(5))).merge(Moments(model, bound=1.0))
    with pytest.raises(ValueError, match="of 4 columns, not of 5"):
        Moments(model, preprocessing=Preprocessing(1.0, np.zeros(4)))


def test_a_site_that_bought_a_preparation_and_one_that_was_sent_it() -> None:
    one = dpgep.release(problems(table(), bound="auto")["pca"], mu=1.0)
    two = dpgep.release(problems(table(seed=1), preprocessing=one.preprocessing)["pca"], mu=0.5)
    both = one + two
    assert both.privacy.mu == max(one.privacy.mu, two.privacy.mu)
    (entry,) = both.privacy.releases
    noise = [release.privacy.releases[-1].noise[0].deviation for release in (one, two)]
    assert entry.noise[0].deviation == math.hypot(*noise)
    assert both.preprocessing == one.preprocessing


def test_update_adds_all_or_nothing() -> None:
    moments = Moments(dpgep.models.PcaModel(5, center=True), preprocessing=Preprocessing(1.0, np.zeros(5)))
    moments.update(table())
    before = bytes_of(moments)
    wrong = table(60000)
    wrong[-1, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        moments.update(wrong)
    assert bytes_of(moments) == before


@pytest.mark.parametrize("n_threads", [2, 3])
def test_any_number_of_threads(n_threads: int) -> None:
    def run(threads: int) -> Any:
        with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
            return dpgep.solve(problems(table(), bound="auto")["cca"], mu=2.0, seed=7, n_threads=threads)

    one, more = run(1), run(n_threads)
    np.testing.assert_array_equal(one.components, more.components)
    np.testing.assert_array_equal(one.eigenvalues, more.eigenvalues)


def test_streams_and_dask_as_in_memory() -> None:
    dask = pytest.importorskip("dask.array")
    x = table()
    batches = dpgep.scan([x[:1], x[1:1500], x[1500:]], progress=False)
    solutions = []
    for source in (x, batches, dask.from_array(x, chunks=(700, 2))):
        with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
            solutions.append(dpgep.solve(dpgep.pca(source, bound="auto"), mu=2.0, seed=3, n_components=2))
    for solution in solutions[1:]:
        np.testing.assert_array_equal(solution.components, solutions[0].components)
        assert solution.privacy == solutions[0].privacy
        assert solution.passes == solutions[0].passes


def test_what_can_be_read_once_is_told_so() -> None:
    budget = dpgep.Budget(mu=1.0)
    source = dpgep.scan(iter([table()]), progress=False)
    with pytest.raises(ValueError, match="several passes"):
        dpgep.solve(dpgep.pca(source, bound="auto"), budget=budget)
    assert budget.spent_mu == 0


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_costs_nothing(name: str, wrong: float) -> None:
    x, budget = table(), dpgep.Budget(mu=1.0)
    problem = problems(x, bound="auto")[name]
    x[-1, 1] = wrong
    with pytest.raises(ValueError, match="NaN or infinite"):
        dpgep.solve(problem, budget=budget)
    assert budget.spent_mu == 0


def test_too_little_budget_costs_nothing() -> None:
    budget = dpgep.Budget(mu=1e-10)
    with pytest.raises(ValueError, match="too small a budget"):
        dpgep.solve(problems(table(), bound="auto")["cca"], budget=budget)
    assert budget.spent_mu == 0


def test_wrong_options_cost_nothing() -> None:
    budget, problem = dpgep.Budget(mu=1.0), problems(table(), bound="auto")["cca"]
    with pytest.raises(ValueError, match="sparsity"):
        dpgep.solve(problem, budget=budget, sparsity=1)
    with pytest.raises(ValueError, match="memory_limit"):
        dpgep.release(problem, budget=budget, memory_limit=10, storage="operator")
    assert (budget.spent_mu, problem.dataset.people.passes) == (0, 0)


def test_an_exhausted_budget_is_refused_before_data_are_read() -> None:
    budget, problem = dpgep.Budget(mu=1.0), problems(table(), bound="auto")["cca"]
    dpgep.solve(problem, budget=budget)
    passes = problem.dataset.people.passes
    with pytest.raises(PrivacyBudgetError):
        dpgep.solve(problem, budget=budget)
    assert problem.dataset.people.passes == passes


@pytest.mark.parametrize("power", [-300, 300])
@pytest.mark.parametrize("name", ["pca", "fda", "cca", "sir"])
def test_any_unit(name: str, power: int) -> None:
    x = table(20000)
    labels = np.digitize((x[:, 0] - PLACES[0]) / UNITS[0], [-1.0, 1.0])
    scaled = x * 2.0**power
    score = (x[:, 0] - PLACES[0]) / UNITS[0]
    problem = {
        "pca": lambda: dpgep.pca(scaled, bound="auto"),
        "fda": lambda: dpgep.fda(scaled, labels, classes=[0, 1, 2], bound="auto"),
        "cca": lambda: dpgep.cca(scaled[:, :2], x[:, 2:], bound="auto"),
        "sir": lambda: dpgep.sir(scaled, score, slices=5, y_range=(-2, 2), bound="auto"),
    }[name]()
    solution = dpgep.solve(problem, mu=5.0, n_components=1)
    assert np.isfinite(solution.components).all()
    assert np.isfinite(solution.eigenvalues).all()
    if name != "cca":
        direction = solution.components[0] * (UNITS if name != "pca" else 1.0)
        assert np.argmax(np.abs(direction)) == 0
        np.testing.assert_allclose(solution.mean * 2.0**-power, x.mean(axis=0), atol=0.5 * UNITS[0])


def test_constant_columns_are_served() -> None:
    x = table()
    x[:, 1], x[:, 3] = 0.0, 7.0
    solution = dpgep.solve(dpgep.fda(x, (x[:, 0] > 5e4) * 1, classes=[0, 1], bound="auto"), mu=10.0)
    assert np.isfinite(solution.components).all()
    scales = solution.preprocessing.scale
    assert (scales > 0).all()
    scores = solution.transform(x)[:, 0]
    assert abs(np.corrcoef(scores, x[:, 0])[0, 1]) > 0.95


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_hardly_anybody(name: str, n: int) -> None:
    """Under add-remove any number of people is served: an error would tell."""
    problem = problems(table(5)[:n], bound="auto", adjacency="add-remove")[name]
    solution = dpgep.solve(problem, mu=1.0, n_components=1)
    assert np.isfinite(solution.components).all()


def test_public_ranges_replace_the_first_stage() -> None:
    x = table()
    ranges = {j: (PLACES[j] - 5 * UNITS[j], PLACES[j] + 5 * UNITS[j]) for j in range(5)}
    problem = dpgep.cca(x[:, :2], x[:, 2:], preprocessing=AutoPreprocessing(ranges=ranges, precondition="columns"))
    solution = dpgep.solve(problem, mu=5.0)
    assert [entry.query for entry in solution.privacy.releases] == [
        "sums of the columns and of their squares",
        "histogram of row norms",
        "moment matrix",
    ]
    np.testing.assert_allclose(solution.preprocessing.scale, x.std(axis=0), rtol=0.2)
    np.testing.assert_allclose(solution.preprocessing.location / UNITS, x.mean(axis=0) / UNITS, atol=0.2)


@pytest.mark.parametrize(
    "ranges", [{5: (0, 1)}, {-1: (0, 1)}, {0: (1, 0)}, {0: (0, math.inf)}, {0: (math.nan, 1)}, {"age": (0, 1)}]
)
def test_wrong_ranges(ranges: Any) -> None:
    with pytest.raises(ValueError, match="range"):
        dpgep.pca(table(), preprocessing=AutoPreprocessing(ranges=ranges))


def test_without_a_bound_one_is_bought() -> None:
    for name in NAMES:
        assert problems(table())[name].auto == AutoPreprocessing()


def test_moments_cannot_buy_a_bound() -> None:
    model = dpgep.models.PcaModel(5, center=True)
    for clipping in ({"bound": "auto"}, {"preprocessing": AutoPreprocessing()}, {}):
        with pytest.raises(ValueError, match="come before a budget"):
            Moments(model, **clipping)  # type: ignore[arg-type]


def test_preprocessing_is_no_bound_and_has_one() -> None:
    x, bought = table(), Preprocessing(2.0)
    for given in (AutoPreprocessing(), bought):
        with pytest.raises(TypeError, match=r"pass \w+\(\.\.\.\) as preprocessing="):
            dpgep.pca(x, bound=given)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"leave out bound, got 2\.0"):
            dpgep.pca(x, bound=2.0, preprocessing=given)
    with pytest.raises(TypeError, match=r"preprocessing must be a dpgep\.AutoPreprocessing or a .*, got 'auto'"):
        dpgep.pca(x, preprocessing="auto")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"leave out bound, got 2\.0"):
        Moments(dpgep.models.PcaModel(5, center=True), bound=2.0, preprocessing=bought)


@pytest.mark.parametrize("option", ["share", "quantile", "quartiles"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, math.nan, "half"])
def test_wrong_shares(option: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=option):
        AutoPreprocessing(**{option: wrong})


def test_a_share_is_what_the_columns_get() -> None:
    problem = dpgep.cca(table()[:, :2], table()[:, 2:], preprocessing=AutoPreprocessing(share=0.5))
    entries = dpgep.solve(problem, mu=4.0).privacy.releases
    of_columns = sum(entry.mu**2 for entry in entries if "column" in entry.query)
    assert of_columns == pytest.approx(8.0)


def test_noise_is_not_taken_for_people_of_another_norm() -> None:
    """Of 8000 bins of norms, noise fills one in 100 runs at five deviations: it would spoil these runs."""
    x = np.random.default_rng(0).standard_normal((2000, 4))
    problem = dpgep.pca(x, center=False, bound="auto")
    with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
        bounds = [dpgep.solve(problem, mu=1.0, seed=seed).preprocessing.bound for seed in range(400)]
    assert 0.5 < min(bounds) <= max(bounds) < 10


@pytest.mark.statistical
def test_variances_that_are_bought_are_as_far_off_as_is_said() -> None:
    """120 relative errors over their deviations, of which those of the wide column also have the bias of its tails, one
    deviation: the chi-square test, which 1.5 is for, fails with a probability below 1e-6.
    """
    ratios = []
    for seed in range(40):
        rows = np.random.default_rng(seed).standard_normal((20_000, 3)) * [1.0, 30.0, 0.01] + [0.0, 50.0, 0.01]
        found = dpgep.solve(dpgep.pca(rows, standardize=True), mu=0.5, n_components=1).preprocessing
        assert found is not None
        assert found.scale is not None
        assert found.variance_error is not None
        ratios.append((found.scale**2 / rows.var(axis=0) - 1) / found.variance_error)
    low, high = scipy.stats.chi2(120).ppf([5e-7, 1 - 5e-7])
    assert low < np.sum(np.square(ratios)) < 1.5 * high
    assert np.sum(np.square(ratios)) / 4 < low  # twice the deviations would be seen


def test_narrow_columns_are_found() -> None:
    """1000 deviations from zero: closer looks find location and scale."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((20000, 4)) + np.array([1000.0, -3000.0, 0.0, 40.0])
    solution = dpgep.solve(dpgep.cca(x[:, :2], x[:, 2:], bound="auto"), mu=5.0)
    np.testing.assert_allclose(solution.preprocessing.location, x.mean(axis=0), atol=1.0)
    assert (solution.preprocessing.scale > 0.3).all()
    assert (solution.preprocessing.scale < 4.0).all()


# --- Missing values ------------------------------------------------------------------------------------


def holes(n: int = 20000, share: float = 0.3) -> tuple[Any, Any]:
    x = table(n)
    holed = x.copy()
    holed[np.random.default_rng(5).random(x.shape) < share] = np.nan
    return x, holed


@pytest.mark.parametrize("name", ["pca", "pca standardized", "cca", "fda", "sir"])
def test_missing_values_count_as_the_location(name: str) -> None:
    x, holed = holes()
    solution = dpgep.solve(
        problems(holed, x, preprocessing=AutoPreprocessing(missing="center"))[name], mu=20.0, n_components=1
    )
    assert "missing      values count as their column's location" in str(solution)
    location = solution.preprocessing.location
    np.testing.assert_allclose(location / UNITS, x.mean(axis=0) / UNITS, atol=0.15)
    if solution.model.traits.scale_free:
        np.testing.assert_allclose(solution.preprocessing.scale, x.std(axis=0), rtol=0.15)
    filled = np.where(np.isnan(holed), location, holed)
    exact = dpgep.solve(
        problems(filled, x, preprocessing=solution.preprocessing)[name], epsilon=math.inf, n_components=1
    )
    same = dpgep.solve(problems(holed, x, preprocessing=solution.preprocessing)[name], epsilon=math.inf, n_components=1)
    np.testing.assert_array_equal(same.components, exact.components)
    views = [slice(0, 2), slice(2, 5)] if name == "cca" else [slice(0, 5)]
    np.testing.assert_array_equal(
        same.transform(*(holed[:, view] for view in views)), same.transform(*(filled[:, view] for view in views))
    )


@pytest.mark.parametrize("name", NAMES)
def test_missing_values_are_refused_unless_asked_for(name: str) -> None:
    x, holed = holes(500)
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match="NaN"):
        dpgep.solve(problems(holed, x, bound="auto")[name], budget=budget)
    holed[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinite"):
        dpgep.solve(problems(holed, x, preprocessing=AutoPreprocessing(missing="center"))[name], budget=budget)
    assert budget.spent_mu == 0


@pytest.mark.parametrize("form", ["in memory", "scan", "dask", "moments", "sparse"])
def test_missing_values_wherever_rows_are(form: str) -> None:
    x, holed = holes(3000)
    preprocessing = Preprocessing(4.0, x.mean(axis=0), x.std(axis=0), largest=6.0, missing=True)
    if form == "sparse":
        preprocessing = Preprocessing(4.0, None, x.std(axis=0), largest=6.0, missing=True)
    expected = dpgep.pca(np.where(np.isnan(holed), preprocessing.location if form != "sparse" else 0.0, holed),
                         standardize=True, preprocessing=preprocessing)  # fmt: skip
    source: Any = holed
    if form == "scan":
        source = dpgep.scan([holed[:1000], holed[1000:]], progress=False)
    elif form == "dask":
        source = pytest.importorskip("dask.array").from_array(holed, chunks=(700, 5))
    elif form == "sparse":
        source = scipy.sparse.csr_array(holed)
    problem: Any = dpgep.pca(source if form != "moments" else x, standardize=True, preprocessing=preprocessing)
    if form == "moments":
        problem = Moments(dpgep.models.StandardizedPcaModel(5, center=True), preprocessing=preprocessing)
        problem.update(holed)
        problem = dpgep.load(bytes_of(problem))
    solutions = []
    for each in (problem, expected):
        with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
            solutions.append(dpgep.solve(each, mu=3.0, seed=2, n_components=2))
    np.testing.assert_array_equal(solutions[0].components, solutions[1].components)


def test_ranges_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table(), columns=list("abcde"))
    ranges = {name: (PLACES[j] - 5 * UNITS[j], PLACES[j] + 5 * UNITS[j]) for j, name in enumerate("abcde")}
    solution = dpgep.solve(dpgep.pca(frame, standardize=True, preprocessing=AutoPreprocessing(ranges=ranges)), mu=5.0)
    assert "magnitudes" not in " ".join(entry.query for entry in solution.privacy.releases)
    np.testing.assert_allclose(solution.preprocessing.scale, table().std(axis=0), rtol=0.2)
    with pytest.raises(ValueError, match="not of 'f'"):
        dpgep.pca(frame, preprocessing=AutoPreprocessing(ranges={"f": (0.0, 1.0)}))
    with pytest.raises(ValueError, match="twice"):
        dpgep.pca(frame, preprocessing=AutoPreprocessing(ranges={"a": (0.0, 1.0), 0: (0.0, 2.0)}))


@pytest.mark.parametrize("power", [-1000, -500, 0, 500, 1000])
def test_the_best_bound_of_norms_of_all_magnitudes(power: int) -> None:
    norms = np.exp2(np.arange(-20, 20) / 4.0 + power)
    people = np.exp(-np.abs(np.arange(40) - 22) / 3.0)
    bound = Norms(norms, people).best_bound(1000.0, 10, 0.1)
    assert bound == Norms(np.exp2(np.arange(-20, 20) / 4.0), people).best_bound(1000.0, 10, 0.1) * 2.0**power
    wide = Norms(np.array([1e-300, 1.0, 1e300]), np.ones(3))
    assert wide.best_bound(1e9, 10, 10.0) == 1e300 * 2**-0.125
    assert math.isfinite(wide.best_bound(10.0, 10, 1e-9))


@pytest.mark.parametrize("quantile", [None, 0.2, 0.5, 1])
@pytest.mark.parametrize("unit", [1.0, 2.0**-300])
def test_eigenvalues_make_up_for_the_bound(quantile: float | None, unit: float) -> None:
    """Rows of a normal law have the same directions, however long they are."""
    x = np.random.default_rng(11).standard_normal((40000, 6)) * np.array([3.0, 2.0, 1.0, 1.0, 1.0, 1.0]) * unit
    solution = dpgep.solve(dpgep.pca(x, preprocessing=AutoPreprocessing(quantile=quantile)), mu=20.0, n_components=2)
    np.testing.assert_allclose(solution.eigenvalues / unit**2, [9.0, 4.0], rtol=0.25 if quantile == 0.2 else 0.15)
    assert solution.preprocessing.energy_kept <= 1
    if quantile == 1:
        assert solution.preprocessing.energy_kept > 0.999


# --- Preconditioning -----------------------------------------------------------------------------------


def correlated(n: int = 20000, d: int = 5) -> Any:
    rng = np.random.default_rng(9)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return rng.standard_normal((n, d)) @ (basis * np.geomspace(1.0, 0.05, d)) @ basis.T * UNITS + PLACES


@pytest.mark.parametrize("name", ["cca", "cca uncentred", "fda", "sir"])
@pytest.mark.parametrize("precondition", [None, "columns", "full"])
def test_no_preconditioning_changes_the_answer(name: str, precondition: Any) -> None:
    x = correlated(5000)
    auto = AutoPreprocessing(precondition=precondition, quantile=1)
    found = dpgep.solve(problems(x, preprocessing=auto)[name], epsilon=math.inf, n_components=1)
    expected = dpgep.solve(
        problems(x, preprocessing=AutoPreprocessing(precondition="columns", quantile=1))[name],
        epsilon=math.inf,
        n_components=1,
    )
    rtol = 1e-3 if precondition is None else 1e-6  # of columns as they are, B is nearly singular
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=rtol)
    one, two = found.components[0] * UNITS, expected.components[0] * UNITS
    if precondition is not None:
        np.testing.assert_allclose(one / np.linalg.norm(one), two / np.linalg.norm(two), atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(found.components * found.scale), 1.0)
        if found.mean is not None:
            np.testing.assert_allclose(found.mean / UNITS, expected.mean / UNITS, atol=1e-6)


@pytest.mark.parametrize("name", ["cca", "fda", "sir"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_full_preconditioning_is_paid_for(name: str, adjacency: str) -> None:
    problem = problems(correlated(), preprocessing=AutoPreprocessing(precondition="full"), adjacency=adjacency)[name]
    solution = dpgep.solve(problem, mu=10.0, n_components=1)
    entries = solution.privacy.releases
    assert sum(cost_of(entry.mu) for entry in entries) <= cost_of(10.0)
    assert sum("moment matrix" in entry.query for entry in entries) == 2
    coarse = next(entry for entry in entries if "moment matrix" in entry.query)
    assert coarse.mu == pytest.approx(5.0)
    assert solution.passes == len(entries)
    linear = solution.preprocessing.linear
    again = Preprocessing(1.0, np.zeros(5), np.ones(5), linear)
    np.testing.assert_array_equal(again.linear, linear)  # on its grid already


def test_full_preconditioning_makes_rows_uncorrelated() -> None:
    x = correlated()
    solution = dpgep.solve(problems(x, preprocessing=AutoPreprocessing(precondition="full"))["fda"], mu=50.0)
    z = np.empty_like(x)
    map_rows(solution.preprocessing, x, z)
    np.testing.assert_allclose(np.cov(z.T), np.eye(5), atol=0.15)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=0.1)


def test_multiplied_rows_are_functions_of_themselves_alone() -> None:
    rng = np.random.default_rng(4)
    for d in (1, 3, 40, 130):
        location, scale = rng.standard_normal(d), np.exp(rng.standard_normal(d))
        preprocessing = Preprocessing(3.0, location, scale, rng.standard_normal((d, d)), largest=12.0)
        x = rng.standard_normal((301, d)) * 5
        whole = np.empty_like(x)
        map_rows(preprocessing, x, whole)
        exact = np.clip((x - preprocessing.location) / preprocessing.scale, -12, 12) @ preprocessing.linear
        np.testing.assert_allclose(whole, exact, atol=1e-4 * np.abs(exact).max())
        order = rng.permutation(len(x))
        for part in (order, order[:1], order[:7], order[5:290]):
            some = x[part]
            map_rows(preprocessing, some, some)
            np.testing.assert_array_equal(some, whole[part])


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("release", {"sparsity": 2}),
        ("release", {"sparsity": "auto"}),
        ("release", {"screen": 3}),
        ("rayleigh-flow", {"init": "screen"}),
        ("truncated-rayleigh-flow", {"sparsity": 2}),
        ("dpsrs", {"sparsity": 3}),
    ],
)
def test_what_chooses_columns_needs_them_apart(method: str, options: dict[str, Any]) -> None:
    problem, budget = (
        problems(table(), preprocessing=AutoPreprocessing(precondition="full"))["fda"],
        dpgep.Budget(mu=1.0),
    )
    with pytest.raises(ValueError, match="precondition"):
        dpgep.solve(problem, budget=budget, method=method, **options)
    assert budget.spent_mu == 0
    kept = dpgep.release(problem, mu=5.0)
    same = problems(table(), preprocessing=kept.preprocessing)["fda"]
    with pytest.raises(ValueError, match="precondition"):
        dpgep.solve(same, budget=budget, method=method, **options)
    if "sparsity" in options and method == "release":
        with pytest.raises(ValueError, match="precondition"):
            kept.solve(**options)


@pytest.mark.parametrize("name", ["pca", "pca standardized", "pls"])
def test_full_preconditioning_is_refused_where_it_changes_the_answer(name: str) -> None:
    full = AutoPreprocessing(precondition="full")
    with pytest.raises(ValueError, match='precondition="full" would change'):
        {
            "pca": lambda: dpgep.pca(table(), preprocessing=full),
            "pca standardized": lambda: dpgep.pca(table(), standardize=True, preprocessing=full),
            "pls": lambda: dpgep.pls(table()[:, :2], table()[:, 2:], preprocessing=full),
        }[name]()


@pytest.mark.parametrize("name", ["fda", "sir", "cca"])
def test_groups_do_not_matter_where_rows_are_shifted(name: str) -> None:
    problem = problems(table() + 10 * PLACES, preprocessing=AutoPreprocessing(precondition=None))[name]
    queries = [entry.query for entry in dpgep.solve(problem, mu=5.0, n_components=1).privacy.releases]
    assert "sum of the rows" in queries


@pytest.mark.parametrize(
    "wrong",
    [
        {"bound": 0.0},
        {"bound": math.nan},
        {"bound": 1.0, "scale": np.array([1.0, 0.0])},
        {"bound": 1.0, "scale": np.array([1.0, -1.0])},
        {"bound": 1.0, "location": np.array([1.0, np.inf])},
        {"bound": 1.0, "linear": np.ones((2, 3))},
        {"bound": 1.0, "largest": math.inf},
    ],
)
def test_wrong_preparations(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Preprocessing(**wrong)


@pytest.mark.parametrize(("mu", "expected"), [(1e-4, None), (0.02, "columns"), (0.5, "full")])
def test_what_is_worth_its_price(mu: float, expected: str | None) -> None:
    """N mu / d^1.5 is 0.04, 7 and 180."""
    preprocessing = dpgep.solve(problems(table(), bound="auto")["fda"], mu=mu).preprocessing
    assert (preprocessing.scale is not None) == (expected is not None)
    assert (preprocessing.linear is not None) == (expected == "full")
    sparse = dpgep.solve(problems(table(), bound="auto")["fda"], mu=mu, sparsity=2).preprocessing
    kept = dpgep.release(problems(table(), bound="auto")["fda"], mu=mu).preprocessing
    assert sparse.linear is kept.linear is None


def _wrong_and_said(n: int, draws: int) -> tuple[Any, Any]:
    """Whether scales of columns in all units, up to 100 deviations from zero, are wrong, and said to be unsure."""
    wrong, said = [], []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        means = np.array([100.0, 3.0, 0.0, 1.0, -20.0])
        x = (rng.standard_normal((n, 5)) + means) * 10.0 ** rng.uniform(-4, 4, 5)
        auto = AutoPreprocessing(precondition="columns")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
            found = dpgep.release(x, preprocessing=auto, epsilon=1.0, delta=1e-5, seed=seed).preprocessing
        wrong.append(np.abs(np.log(found.scale / x.std(axis=0))) > math.log(3))
        said.append(np.isin(np.arange(5), found.unsure))
    return np.array(wrong), np.array(said)


def test_wrong_scales_are_said() -> None:
    """With seeds: most scales are right where there are 5000 people, many wrong where there are 300, and said."""
    wrong, said = _wrong_and_said(5000, 40)
    assert wrong.mean() < 0.02
    assert said.mean() < 0.1
    assert not (wrong & ~said).any()
    wrong, said = _wrong_and_said(300, 40)
    assert wrong.mean() > 0.05
    assert not (wrong & ~said).any()


@pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning")
def test_scales_that_released_moments_show_are_not_called_unsure() -> None:
    """Bought variances alone leave a sixth of such tables with unsure columns, moments 2 in 100.

    Seeds are fixed. Were they not, 5 or more of 60 would have a probability of 0.7 % with 2 % each, and less than 5 one
    of 2 % with a sixth.
    """
    named = 0
    for seed in range(60):
        rng = np.random.default_rng(1000 + seed)
        x = rng.standard_normal((3000, 6)) + rng.uniform(-2.5, 2.5, 6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
            named += bool(dpgep.release(x, epsilon=1.0, delta=1e-6, seed=seed).preprocessing.unsure)
    assert named < 5


def test_released_moments_show_scales_and_locations() -> None:
    """Variances of scaled columns near 1 do, others do not; nor do small ones of entries cut off far from zero."""
    rows = np.random.default_rng(0).standard_normal((4000, 4))
    scale = np.array([1.0, 0.2, 5.0, 0.2])
    rows[:, 3] += 3.0  # cut off at 6 scales on one side: variances about 1
    preparing = Preprocessing(
        10.0, np.zeros(4), scale, largest=6.0, variance_error=np.ones(4), unsure=(0, 1, 2, 3), energy_kept=0.9
    )
    found = dpgep.release(rows, preprocessing=preparing, epsilon=3.0, delta=1e-6).preprocessing
    assert found.unsure == (1, 2, 3)
    views = np.kron(np.eye(2), [[1.0, 0.3], [0.5, 1.2]])
    mixed = dpgep.cca(rows[:, :2], rows[:, 2:], preprocessing=replace(preparing, linear=views))
    assert dpgep.solve(mixed, epsilon=10.0, delta=1e-6).preprocessing.unsure == (1, 2, 3)
    few = dpgep.release(rows[:40], preprocessing=preparing, epsilon=1.0, delta=1e-6).preprocessing
    assert few.unsure == (0, 1, 2, 3)
    unseen = replace(preparing, unseen=(0,))
    assert dpgep.release(rows, preprocessing=unseen, epsilon=3.0, delta=1e-6).preprocessing.unsure == (0, 1, 2, 3)
    assert unseen.restricted(np.array([2, 0])).unseen == (1,)


@pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning", "ignore::dpgep.errors.AccuracyWarning")
def test_moments_show_no_scales_of_columns_whose_people_were_not_seen() -> None:
    """Entries that are cut off at a wrong scale may have released variances of about 1, too. With seeds."""
    auto = AutoPreprocessing(precondition="columns")
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = np.where(rng.random((1000, 4)) < 0.3, 100.0, 1.0) * rng.standard_normal((1000, 4))
        found = dpgep.release(x, epsilon=0.3, delta=1e-6, seed=seed, preprocessing=auto).preprocessing
        wrong = np.abs(np.log(found.scale / x.std(axis=0))) > math.log(3)
        assert set(np.flatnonzero(wrong)) <= set(found.unsure)


def test_a_scale_that_the_budget_does_not_show_is_named() -> None:
    x = table(2000)
    x[:, 3] = 7.0
    frame = pd.DataFrame(x, columns=list("abcde"))
    with pytest.warns(dpgep.errors.AccuracyWarning, match="did not show how wide column 'd' is") as caught:
        solution = dpgep.solve(dpgep.pca(frame, standardize=True), mu=2.0)
    assert any(warning.message.solution is solution for warning in caught)
    assert solution.preprocessing.unsure == (3,)
    with pytest.warns(dpgep.errors.AccuracyWarning, match="how wide column 'd' is"):
        released = dpgep.release(frame, mu=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        released.pca(["a", "b"])  # the warning is about others
    with pytest.warns(dpgep.errors.AccuracyWarning, match="how wide column 'd' is"):
        released.pca(["a", "d"])
    with pytest.warns(dpgep.errors.AccuracyWarning, match="how wide column 'd' is"):
        released.describe(["a", "d"])
    assert dpgep.load(bytes_of(released)).preprocessing.unsure == (3,)


@pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning")
@pytest.mark.parametrize("low", [0, 1])
def test_columns_of_two_values_are_as_wide_as_these_are_apart(low: int) -> None:
    """Not as a closer look at the frequent one alone shows, or an octave of noise: wrong by factors of 1e8 or 1e140."""
    rng = np.random.default_rng(0)
    rows = low + (rng.random((4000, 12)) < np.linspace(0.02, 0.4, 12)).astype(float)
    for seed in range(5):
        found = dpgep.release(rows, epsilon=1.0, delta=1e-5, seed=seed).preprocessing
        assert found is not None
        assert found.scale is not None
        assert (np.abs(np.log(found.scale / rows.std(axis=0))) < math.log(3)).all()


def test_indicators_have_a_public_range() -> None:
    """None is unsure, not of a category that nobody has, and no histogram is bought where there is nothing else."""
    words = ["often", "never", "seldom"]
    kinds = pd.Categorical(np.random.default_rng(0).choice(words, 2000, p=[0.6, 0.398, 0.002]), [*words, "nobody's"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpgep.errors.AccuracyWarning)
        released = dpgep.release(pd.DataFrame({"kind": kinds, "age": table(2000)[:, 0]}), mu=0.5)
        alone = dpgep.release(pd.DataFrame({"kind": kinds}), mu=0.5)
    scale = released.preprocessing.scale
    np.testing.assert_allclose(scale[:2], np.sqrt(0.24), rtol=0.1)
    assert (scale[2:4] <= 0.5).all()
    assert "sums of the columns and of their squares" in [entry.query for entry in alone.privacy.releases]
    assert not any(entry.query.startswith("histogram") and "columns" in entry.query for entry in alone.privacy.releases)


def test_of_a_rare_category_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its count is that of the table to six deviations of the noise, and its scale larger than its deviation."""
    monkeypatch.setattr("dpgep.methods.preprocessing._CUT_GROWS", 0.0)
    monkeypatch.setattr("dpgep.methods.preprocessing.scales_of_shares", np.zeros_like)
    people = [12_000, 7900, 100]
    kinds = pd.Categorical.from_codes(np.repeat([0, 1, 2], people), ["often", "seldom", "rare"])
    auto = AutoPreprocessing(quantile=1)
    released = dpgep.release(pd.DataFrame({"kind": kinds, "age": table(20_000)[:, 0]}), mu=1.0, preprocessing=auto)
    mapped, counted = released.preprocessing, released.crosstab("kind")
    assert mapped.scale[2] > 1.1 * np.sqrt(people[2] / 20_000)
    assert np.abs((1 - mapped.location[:3]) / mapped.scale[:3]).max() <= mapped.largest * (1 + 1e-12)
    assert (np.abs(counted.counts - people) < 6 * counted.noise_errors).all()


def test_scales_of_shares_are_where_their_noise_is_least() -> None:
    """In units of what all deviations are where categories are equally large; these have their deviations as scales."""
    np.testing.assert_allclose(scales_of_shares(np.full(5, 0.4)), 0.4)
    shares = np.array([0.7, 0.28, 0.015, 0.005])
    variances = shares * (1 - shares)
    scales = scales_of_shares(np.sqrt(variances))

    def noise(s: Any) -> float:
        return float((variances / s**2).sum() * (s**2).sum())

    for factor in (0.9, 1.1):
        for j in range(4):
            assert noise(scales * factor ** (np.arange(4) == j)) > noise(scales)


def test_a_rare_category_does_not_lengthen_the_rows_of_a_release() -> None:
    """In its own deviations its people have rows 20 times as long; `solve` is asked for correlations alone."""
    people = np.array([12_000, 7950, 50])
    kinds = pd.Categorical.from_codes(np.repeat([0, 1, 2], people), ["often", "seldom", "rare"])
    frame = pd.DataFrame({"kind": kinds, "age": table(20_000)[:, 0]})
    released = dpgep.release(frame, mu=3.0)
    alone = dpgep.solve(dpgep.pca(frame, standardize=True), mu=3.0, n_components=1)
    scale, deviations = released.preprocessing.scale[:3], np.sqrt(people / 20_000 * (1 - people / 20_000))
    np.testing.assert_allclose(scale, np.maximum(deviations, scales_of_shares(deviations)), rtol=0.05)
    np.testing.assert_allclose(alone.preprocessing.scale[2], deviations[2], rtol=0.1)
    correlations = np.corrcoef((np.eye(3)[kinds.codes]).T)
    found = released.correlation(["kind"])
    # intervals of 90 %, three times as long: 4.9 deviations of the noise, missed with a probability of 1e-6
    np.testing.assert_array_less(np.abs(found.values - correlations), 3 * (found.high - found.low) / 2 + 1e-12)


def test_weights_of_noise_are_where_its_slope_is_zero() -> None:
    """Equal where variances are; else the error that they minimize grows whichever changes."""
    np.testing.assert_allclose(noise_weights(np.full(4, 9.0), np.zeros(4), 2), 3.0)
    variances = np.array([100.0, 4.0, 1.0, 0.01])
    weights = noise_weights(variances, np.zeros(4), 2)
    gaps = np.maximum(np.maximum.outer(variances, variances), 4.0) ** -2.0

    def error(w: Any) -> float:
        return float(2 * np.log((variances / w**2).sum()) + np.log(w**2 @ gaps @ w**2))

    for factor in (0.9, 1.1):
        for j in range(4):
            assert error(weights * factor ** (np.arange(4) == j)) > error(weights)
    unknown = noise_weights(variances, np.array([0.0, 0.0, 0.0, 50.0]), 2)
    assert unknown[3] > 3 * weights[3]  # it may be long


def test_plain_pca_of_columns_in_units_of_their_own() -> None:
    """The second component, whose variance is a millionth of the first's, is found."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20000, 4)) * [1000.0, 1.0, 0.3, 0.1] + [5000.0, 2.0, 1.0, 0.0]
    x[:, 2] += 0.5 * (x[:, 1] - 2)
    exact = np.linalg.eigh(np.cov(x.T))[1][:, ::-1].T
    solution = dpgep.solve(dpgep.pca(x), mu=0.3, n_components=2)
    assert not any(solution.diagnostics.lost)
    np.testing.assert_allclose(np.abs((solution.components * exact[:2]).sum(axis=1)), 1.0, atol=1e-3)
    np.testing.assert_allclose(solution.eigenvalues, np.linalg.eigvalsh(np.cov(x.T))[::-1][:2], rtol=0.1)
    again = solution.release.pca(n_components=2)
    assert abs(again.components[1] @ solution.components[1]) > 0.999
    same = dpgep.solve(dpgep.pca(x, preprocessing=solution.preprocessing), epsilon=math.inf, n_components=2)
    np.testing.assert_allclose(np.abs((same.components * exact[:2]).sum(axis=1)), 1.0, atol=1e-3)


@pytest.mark.parametrize("standardize", [False, True])
def test_the_more_people_the_less_is_cut(standardize: bool) -> None:
    """Rows with long tails, repeated: what cut and bound change stays below the noise."""
    rng = np.random.default_rng(3)
    x = np.exp(rng.standard_normal((500, 4)) @ np.diag([1.2, 1.0, 0.8, 0.6]) + 0.7 * rng.standard_normal((500, 1)))
    matrix = np.corrcoef(x.T) if standardize else np.cov(x.T)
    exact = np.linalg.eigh(matrix)[1][:, -1]
    errors = []
    for times in (1, 10, 100, 1000):
        rows = np.tile(x, (times, 1))
        found = []
        for _ in range(3):
            solution = dpgep.solve(dpgep.pca(rows, standardize=standardize), mu=0.3, n_components=1)
            vector = (solution.relative_components if standardize else solution.components)[0]
            found.append(1 - (vector @ exact) ** 2)
        errors.append(float(np.median(found)))
    assert errors[3] < 0.01
    assert errors[3] < errors[0] / 10


def test_the_report_shows_what_each_stage_cost() -> None:
    solution = dpgep.solve(problems(table(), bound="auto")["pca standardized"], mu=1.0)
    prices = solution.privacy.prices()
    assert len(prices) == len(solution.privacy.releases)
    assert sum(float(line.split("%")[0]) for line in prices) == pytest.approx(100, abs=0.3)
    assert all(line in repr(solution) for line in prices)
    assert dpgep.solve(problems(table(), bound=1.0)["pca"], mu=1.0).privacy.prices() == []
    assert dpgep.solve(problems(table(), bound="auto")["pca"], epsilon=math.inf).privacy.prices() == []


# --- What fresh eyes found -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fda", "sir"])
@pytest.mark.parametrize("precondition", [None, "columns", "full"])
def test_people_without_a_group_do_not_move_the_columns(name: str, precondition: Any) -> None:
    x = table(20000) + 20 * UNITS
    of = x.copy()
    lost = np.random.default_rng(3).random(len(x)) < 0.9
    rows = x.copy()
    rows[lost] = 1e9 * UNITS  # rows that nobody may see
    labels = np.where(lost, 99, np.digitize((of[:, 0] - 25 * UNITS[0]) / UNITS[0], [0.0, 1.0]))
    auto = AutoPreprocessing(precondition=precondition)
    problem: Any = dpgep.fda(rows, labels, classes=[0, 1, 2], preprocessing=auto)
    if name == "sir":
        response = np.where(lost, np.nan, (of[:, 0] - 25 * UNITS[0]) / UNITS[0])
        problem = dpgep.sir(rows, response, slices=4, y_range=(-2, 2), preprocessing=auto)
    preprocessing = dpgep.solve(problem, mu=20.0, n_components=1).preprocessing
    if precondition is not None:
        np.testing.assert_allclose(preprocessing.location / UNITS, x[~lost].mean(axis=0) / UNITS, atol=0.3)
        np.testing.assert_allclose(preprocessing.scale, x[~lost].std(axis=0), rtol=0.3)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("streamed", [False, True])
def test_ranges_serve_an_unknown_number_of_people(adjacency: str, streamed: bool) -> None:
    x = table(5000)
    ranges = {j: (PLACES[j] - 5 * UNITS[j], PLACES[j] + 5 * UNITS[j]) for j in range(5)}
    source = dpgep.scan(lambda: iter([x[:2000], x[2000:]]), progress=False) if streamed else x
    problem = dpgep.pca(source, standardize=True, preprocessing=AutoPreprocessing(ranges=ranges), adjacency=adjacency)
    preprocessing = dpgep.solve(problem, mu=10.0, n_components=1).preprocessing
    np.testing.assert_allclose(preprocessing.location / UNITS, x.mean(axis=0) / UNITS, atol=0.2)
    np.testing.assert_allclose(preprocessing.scale, x.std(axis=0), rtol=0.2)


@pytest.mark.parametrize("unit", [1e-310, 1e-200, 1e200, 1.7e308])
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_any_finite_magnitude(name: str, unit: float) -> None:
    x = np.clip(np.random.default_rng(1).standard_normal((2000, 5)), -1, 1) * unit
    labels = (x[:, 0] > 0) * 1.0
    made = {
        "pca": lambda: dpgep.pca(x, bound="auto"),
        "pca standardized": lambda: dpgep.pca(x, standardize=True, bound="auto"),
        "pca uncentred": lambda: dpgep.pca(x, center=False, bound="auto"),
        "cca": lambda: dpgep.cca(x[:, :2], x[:, 2:], bound="auto"),
        "cca uncentred": lambda: dpgep.cca(x[:, :2], x[:, 2:], center=False, bound="auto"),
        "pls": lambda: dpgep.pls(x[:, :2], x[:, 2:], bound="auto"),
        "multiset-cca": lambda: dpgep.multiset_cca([x[:, :1], x[:, 1:2], x[:, 2:]], bound="auto"),
        "fda": lambda: dpgep.fda(x, labels, classes=[0, 1], bound="auto"),
        "sir": lambda: dpgep.sir(x, labels, slices=2, y_range=(-0.5, 1.5), bound="auto"),
        "contrastive-pca": lambda: dpgep.contrastive_pca(x, labels, target=1, background=0, bound="auto"),
    }
    solution = dpgep.solve(made[name](), mu=5.0, n_components=1)
    assert np.isfinite(solution.components).all()
    assert np.isfinite(solution.eigenvalues).all()


@pytest.mark.parametrize("special", [1e-310, 1e300, 0.0])
def test_no_warning_tells_of_a_value(special: float) -> None:
    x = table(200)
    x[7, 2] = special
    with np.errstate(all="raise"):
        preprocessing = dpgep.release(dpgep.pca(x, standardize=True, bound="auto"), mu=1.0).preprocessing
    assert preprocessing is not None


def test_a_preparation_is_not_used_where_it_changes_the_answer() -> None:
    x = table()
    full = dpgep.solve(problems(x, preprocessing=AutoPreprocessing(precondition="full"))["fda"], mu=10.0).preprocessing
    scaled = Preprocessing(2.0, None, UNITS)
    for name, preprocessing in (
        ("pca", full),
        ("cca", full),
        ("pca standardized", full),
        ("pls", scaled),
    ):
        with pytest.raises(ValueError, match="would change the answer"):
            problems(x, preprocessing=preprocessing)[name]
    with pytest.raises(ValueError, match=r"location .* would change"):
        dpgep.pca(x, center=False, preprocessing=Preprocessing(1.0, PLACES))
    with pytest.raises(ValueError, match="would change"):
        Moments(dpgep.models.PlsModel((2, 3), center=True), preprocessing=scaled)
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match="scale of this preprocessing would change"):
        dpgep.solve(problems(x, preprocessing=scaled)["pca"], method="clipped-power", budget=budget)
    with pytest.raises(ValueError, match="scale of this preprocessing would change"):
        dpgep.release(problems(x, preprocessing=scaled)["pca"], storage="operator", budget=budget)
    assert budget.remaining_mu == 1.0
    assert dpgep.pca(x, preprocessing=Preprocessing(2.0, PLACES, np.full(5, 3.0))) is not None


@pytest.mark.parametrize("precondition", ["auto", "full"])
def test_a_share_that_leaves_nothing_costs_nothing(precondition: Any) -> None:
    budget = dpgep.Budget(mu=5.0)
    with pytest.raises(ValueError, match="leaves too little"):
        dpgep.solve(
            problems(table(), preprocessing=AutoPreprocessing(share=0.9, precondition=precondition))["fda"],
            budget=budget,
        )
    assert budget.spent_mu == 0


def test_samples_of_rows_that_are_mapped() -> None:
    x = table() / UNITS
    preprocessing = Preprocessing(4.0, None, np.full(5, 2.0))
    problem = dpgep.pca(x, center=False, preprocessing=preprocessing)
    solution = dpgep.solve(problem, epsilon=5.0, delta=1e-5, method="dp-spca", n_components=1)
    assert np.isfinite(solution.components).all()


def test_nothing_but_zeros() -> None:
    for epsilon in (1.0, math.inf):
        try:
            solution = dpgep.solve(
                dpgep.fda(
                    np.zeros((300, 3)),
                    np.arange(300) % 2,
                    classes=[0, 1],
                    preprocessing=AutoPreprocessing(precondition="full"),
                ),
                epsilon=epsilon,
                delta=1e-6 if epsilon == 1.0 else None,
            )
        except np.linalg.LinAlgError:
            assert epsilon == math.inf
        else:
            assert np.isfinite(solution.components).all()


@pytest.mark.parametrize("ends", [5, ("a", "b"), (1, 2, 3), (0, 1e-300), (-1e300, 1e300)])
def test_ranges_that_are_none(ends: Any) -> None:
    with pytest.raises(ValueError, match="range of column 0"):
        dpgep.pca(table(), preprocessing=AutoPreprocessing(ranges={0: ends}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"linear": np.zeros((2, 2))},
        {"linear": np.ones((2, 2))},
        {"energy_kept": 2.0},
        {"scale": [1e-200, 1.0]},
        {"bound": 1e200},
    ],
)
def test_preparations_out_of_bounds(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|at most"):
        Preprocessing(**{"bound": 1.0, **wrong})


def test_a_mean_far_from_zero_is_bought_again() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((5000, 10)) * np.array([3.0, 2.0, *[1.0] * 8])
    shifted = x + 1000 * rng.standard_normal(10)
    problem = dpgep.pca(shifted, preprocessing=AutoPreprocessing(precondition=None))
    solution = dpgep.solve(problem, mu=0.3, n_components=1)
    assert sum("sum of the rows" in entry.query for entry in solution.privacy.releases) > 1
    assert solution.privacy.bound < 15
    assert abs(solution.components[0, 0]) > 0.95


def test_rows_of_two_magnitudes() -> None:
    """What a small bound keeps of the energy of large rows is less than float64 can say."""
    assert Norms(np.array([1e-140, 1e140]), np.ones(2)).kept(1e-140) > 0
    x = np.random.default_rng(0).standard_normal((4000, 3)) * np.where(np.arange(4000) % 4, 1e-140, 1e140)[:, None]
    for quantile in (None, 0.2, 1):
        solution = dpgep.solve(dpgep.pca(x, preprocessing=AutoPreprocessing(quantile=quantile)), mu=0.5, n_components=1)
        assert np.isfinite(solution.components).all()


@pytest.mark.parametrize("numbers", [20, 5])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_best_bound_against_a_search(share: float, numbers: int) -> None:
    norms, people = np.exp2((np.arange(24) + 0.5) / 4), np.exp(-((np.arange(24) - 14) ** 2) / 20.0)
    n, d, mu = 5000.0, 20, 0.3 * share
    found = Norms(norms, people).best_bound(n, d, mu, numbers)

    def objective(bound: float) -> float:
        weights = people / people.sum()
        kept = weights @ np.minimum(norms**2, bound**2)
        noise = 1.6 * bound**2 * math.sqrt(2 * d) / (n * mu * kept)
        return float(noise**2 + d / numbers * (0.05 * (weights @ norms**2 / kept - 1)) ** 2)

    assert found == pytest.approx(min(np.exp2(np.arange(24) / 4), key=objective))


def test_clipping_about_zero_may_exchange_the_directions_of_a_covariance() -> None:
    """Also where length and direction are independent, as the second moment keeps its directions: docs/paper.md."""
    n, below, beyond = 200_000, scipy.stats.norm.cdf, scipy.stats.norm.sf
    rng = np.random.default_rng(0)
    lengths, signs = np.exp(rng.standard_normal(n)), rng.choice([-1.0, 1.0], n)
    x = lengths[:, None] * np.column_stack([np.full(n, math.sqrt(0.8)), signs * math.sqrt(0.2)])
    # E r and E r^2 of the lengths as they are, and of those cut at 1
    for bound, (first, second) in {
        1e6: (math.exp(0.5), math.exp(2)),
        1.0: (math.exp(0.5) * below(-1) + beyond(0), math.exp(2) * below(-2) + beyond(0)),
    }.items():
        variances = np.array([0.8 * (second - first**2), 0.2 * second])
        centred, uncentred = (
            dpgep.solve(dpgep.pca(x, bound=bound, center=center), epsilon=math.inf, n_components=1)
            for center in (True, False)
        )
        assert abs(uncentred.components[0, 0]) > 0.999
        assert np.argmax(abs(centred.components[0])) == np.argmax(variances)
        assert centred.eigenvalues[0] == pytest.approx(variances.max(), rel=0.05)
        assert variances == pytest.approx([3.74, 1.48] if bound > 1 else [0.070, 0.134], rel=0.01)
