"""`dpgep.planning.plan`: formulas where there are any, measured errors elsewhere, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import solve_seeded
from stored import bytes_of

import dpgep
from dpgep.models.model import MEANS, PublicFacts, Scatter, Traits
from dpgep.models.row_model import RowModel, layout_of
from dpgep.planning import _least, plan
from dpgep.privacy.continual import Factor
from dpgep.privacy.noise import integer_noise
from dpgep.simulation import Simulation, _Target, contrasts, exact_moments

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
MODELS: list[tuple[str, Any, list[float]]] = [
    ("pca", 6, [4.0, 2.0]),
    ("standardized-pca", 6, [3.0]),
    ("cca", (4, 3), [0.9, 0.5]),
    ("pls", (3, 4), [0.9, 0.5]),
    ("fda", 5, [3.0, 1.0]),
    ("sir", 5, [0.8]),
    ("multiset-cca", (4, 3, 3), [1.6, 0.8]),
]


def squared_sine(v: Any, w: Any) -> float:
    return float(1 - (v @ w) ** 2 / (v @ v) / (w @ w))


@pytest.fixture(scope="module")
def planned() -> dpgep.planning.Plan:
    return plan("pca", n=20_000, d=20, spectrum=[4.0], bound=6.0, **BUDGET)


def test_the_error_of_a_spike_follows_from_its_gap(planned: dpgep.planning.Plan) -> None:
    """First order: (d - 1) entries of variance s^2/2 over the squared gap, and d - 1 of 4 x 1/n by sampling.

    Means of 36 draws of chi-squares with 19 degrees of freedom: a deviation of 5 % each; asserted at five.
    """
    gap, facts = 3.0, PublicFacts("replace-one", 6.0, 20_000)
    layout = layout_of(dpgep.models.PcaModel(20, True), facts)
    deviation = integer_noise(planned.mu, layout, "replace-one", None)[1].second * 6.0**2 / 20_000
    noise, sampling = 19 * deviation**2 / 2 / gap**2, 19 * 4.0 / 20_000 / gap**2
    assert planned.sample.span == pytest.approx(noise, rel=0.25)
    assert planned.population.span == pytest.approx(noise + sampling, rel=0.25)
    assert planned.noise_level == pytest.approx(deviation * math.sqrt(40))
    assert planned.share == 1.0


def test_a_column_that_few_people_agree_about() -> None:
    """Its standard deviation is 0 up to rounding; a plan for few people must not divide by it."""
    model = dpgep.models.StandardizedPcaModel(3, center=True)
    x = np.array([[1.0, 0.5, -0.3], [-1.0, 0.5, 0.4]])
    moments = exact_moments(dpgep.pca(x, standardize=True, bound=3.0))
    scale = model.noisy(moments).standardization.scale
    assert scale[1] > 0
    np.testing.assert_allclose(scale[[0, 2]], x.std(axis=0)[[0, 2]])
    assert np.isfinite(_Target.of(model.noisy(moments), 2).right).all()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("bound", [3.0, "auto"])
@pytest.mark.parametrize(("name", "d", "spectrum"), MODELS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_model_can_be_planned(name: str, d: Any, spectrum: list[float], bound: Any) -> None:
    """More budget: less error; none left to noise at infinity, where sampling alone remains."""
    arguments = {"d": d, "spectrum": spectrum, "bound": bound, "n": 5000}
    plans = [plan(name, epsilon=epsilon, delta=1e-6, **arguments) for epsilon in (0.5, 4.0, math.inf)]
    by_noise, by_all = ([getattr(plan, side).span for plan in plans] for side in ("sample", "population"))
    assert by_noise[0] > 4 * by_noise[1] > 0
    assert by_noise[2] == pytest.approx(0.0, abs=1e-9 if bound == 3.0 else by_all[2])
    assert by_all[0] > by_all[1] > 0
    assert 0 < by_all[2] < 1.2 * by_all[1]  # without noise there is no ridge, which may help against sampling as well
    for errors in (plans[0].sample, plans[0].population):
        assert (errors.low >= 0).all()
        assert (errors.low <= errors.mean).all()
        assert (errors.mean <= errors.high).all()
        assert (errors.high <= 1).all()


def test_a_plan_agrees_with_a_measurement() -> None:
    """CCA with a bought bound, by names and in columns of other units: within a factor of 1.6 (20 runs)."""
    rng, n = np.random.default_rng(5), 20_000
    planned = plan(dpgep.models.CcaModel((4, 3), True), n=n, spectrum=[0.9], **BUDGET)
    units, found = 10.0 ** np.arange(-3, 4), []
    right = np.eye(7)[0] + np.eye(7)[4]
    for seed in range(20):
        z = rng.standard_normal((n, 7))
        z[:, 4] = 0.9 * z[:, 0] + math.sqrt(0.19) * z[:, 4]
        rows = z * units
        solution = solve_seeded(dpgep.cca(rows[:, :4], rows[:, 4:]), seed, n_components=1, **BUDGET)
        found.append(squared_sine(solution.components[0] * units, right))
    assert 1 / 1.6 < planned.population.span / np.mean(found) < 1.6
    assert planned.bound == pytest.approx(solution.privacy.bound, rel=0.3)
    assert planned.share == pytest.approx((solution.privacy.releases[-1].mu or 0.0) ** 2 / planned.mu**2, rel=1e-6)


@pytest.mark.parametrize("standardize", [True, False])
def test_a_plan_finds_the_bound_that_a_run_finds(standardize: bool) -> None:
    """Of factor columns with means of three deviations, and of columns that are weighted in units of their own."""
    n, d, mean = 20_000, 12 if standardize else 20, 3.0 if standardize else 0.0
    shared = np.linspace(0.1, 0.95, d)[:, None] if standardize else np.full((d, 1), math.sqrt(4 / d))
    covariance = shared @ shared.T + np.diag(1 - shared[:, 0] ** 2 if standardize else np.ones(d))
    x = np.random.default_rng(8).standard_normal((n, d)) @ np.linalg.cholesky(covariance).T
    budget = {"epsilon": 1.0 if standardize else 0.3, "delta": 2e-5}
    found = solve_seeded(dpgep.pca(x + mean, standardize=standardize), 0, n_components=1, **budget)
    if standardize:
        planned = plan("standardized-pca", n=n, d=d, correlation=covariance, mean=mean, **budget)
    else:
        planned = plan("pca", n=n, d=d, spectrum=[5.0], **budget)
    assert planned.bound == pytest.approx(found.privacy.bound, rel=1e-6)


def test_few_people_are_drawn_as_they_are() -> None:
    """40 people in 30 dimensions, no noise: the leading eigenvalue 40 of a covariance with others 1 (Paul 2007).

    cos^2 = (1 - c/(l - 1)^2)/(1 + c/(l - 1)) with c = d/n.
    """
    planned = plan("pca", n=40, d=30, spectrum=[40.0], bound=1e3, epsilon=math.inf)
    c, spike = 30 / 40, 39.0
    sine = 1 - (1 - c / spike**2) / (1 + c / spike)
    assert planned.population.span == pytest.approx(sine, rel=0.25)
    assert planned.sample.span < 1e-12


@pytest.mark.one_in(2)
@pytest.mark.parametrize("bound", [3.0, "auto"])
@pytest.mark.parametrize(("name", "d", "spectrum"), MODELS, ids=lambda value: value if isinstance(value, str) else "")
def test_where_there_is_nothing_to_see_all_is_lost(name: str, d: Any, spectrum: list[float], bound: Any) -> None:
    """Also where the people are fewer than the features, and B is singular."""
    for n in (2, 3000):
        errors = plan(name, d=d, spectrum=spectrum, bound=bound, n=n, epsilon=0.001, delta=1e-6).population
        assert 0.3 < errors.span <= 1


def test_the_same_arguments_give_the_same_plan(planned: dpgep.planning.Plan) -> None:
    again = plan(dpgep.models.PcaModel(20, True), n=20_000, eigengap=3.0, bound=6.0, **BUDGET)
    assert again.sample.span == planned.sample.span
    assert repr(again) == repr(planned)


def test_a_plan_is_printed(planned: dpgep.planning.Plan) -> None:
    text = str(plan("cca", n=20_000, d=(4, 4), spectrum=[0.9, 0.5], n_components=2, **BUDGET))
    assert "epsilon = 1, delta = 1e-06 (mu = 0.2367), replace-one" in text
    assert "expected to be found, for 44% of mu^2" in text
    assert " span " in text
    assert " span " not in str(planned)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_what_many_releases_cost_together(adjacency: Any) -> None:
    """By the curve of Gaussian differential privacy itself: the budget of all at this epsilon is mu sqrt(k)."""
    given = {"n": 2000, "d": 3, "spectrum": [3.0], "bound": 3.0, "adjacency": adjacency}
    daily = plan("pca", **given, **BUDGET, releases=365)
    assert daily.sample.span == plan("pca", **given, **BUDGET).sample.span
    assert daily.mu_after(365) == pytest.approx(daily.mu * math.sqrt(365), rel=1e-12)
    assert daily.mu_after(365) >= daily.mu * math.sqrt(365)
    together = daily.epsilon_after(365)
    assert dpgep.Budget(epsilon=together, delta=1e-6).mu == pytest.approx(daily.mu_after(365), rel=1e-6)
    assert daily.epsilon_after(1) == 1.0
    said = "365 about the same people: epsilon = 31.1 (mu = 4.523) together; within the budget: epsilon = 0.0424 each"
    assert said in str(daily)
    papers = plan("pca", **given, **BUDGET, accounting="zcdp", releases=12)
    rho = 12 * papers.mu**2 / 2
    assert papers.epsilon_after(12) == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e6)), rel=1e-9)
    by_mu = plan("pca", **given, mu=0.2, releases=4)
    assert "4 about the same people: mu = 0.4001 together; within the budget: mu = 0.1 each" in str(by_mu)
    with pytest.raises(ValueError, match="an epsilon needs a delta"):
        by_mu.epsilon_after(4)
    assert "releases" not in str(plan("pca", **given, mu=0.2))


def test_plans_say_what_they_assume(planned: dpgep.planning.Plan) -> None:
    assert "rows         normal, about zero; columns mixed at random" in str(planned)
    views = plan("cca", n=5000, d=(3, 3), spectrum=[0.8], bound=3.0, tails=5, **BUDGET)
    assert "Student's law with 5 degrees of freedom, about zero; columns uncorrelated within views" in str(views)
    near = plan("standardized-pca", n=5000, d=4, correlation=0.5, bound=3.0, **BUDGET)
    assert "columns correlated as given" in str(near)
    assert "normal, means of 2 deviations; columns" in str(plan("pca", n=99, d=2, eigengap=1.0, mean=2, **BUDGET))


def test_long_tails_and_collinear_columns_cost_what_they_do() -> None:
    """The first lose to a bound that is found, the second where B is inverted; "auto" makes them uncorrelated."""
    known = {"n": 20_000, "d": (4, 4), "spectrum": [0.8], **BUDGET}
    facts: list[dict[str, float]] = [{}, {"tails": 5.0}, {"correlation": 0.6}]
    normal, tails, near = (plan("cca", **known, **each).sample.span for each in facts)  # type: ignore[arg-type]
    assert 2 * normal < tails
    assert near < 1.5 * normal
    given, near = (plan("cca", bound=4.0, **known, **each).sample.span for each in facts[::2])  # type: ignore[arg-type]
    assert 2 * given < near


def test_what_is_needed_for_an_error(planned: dpgep.planning.Plan) -> None:
    n, epsilon = planned.people_for(0.003), planned.epsilon_for(0.003, against="population")
    for side, at, less in (
        ("sample", {"n": n}, {"n": int(n / 1.05)}),
        ("population", {"epsilon": epsilon}, {"epsilon": epsilon / 1.05}),
    ):
        arguments = {"n": 20_000, "d": 20, "spectrum": [4.0], "bound": 6.0, **BUDGET}
        errors = [getattr(plan("pca", **{**arguments, **each}), side).span for each in (at, less)]
        assert errors[0] <= 0.003 < errors[1]
    assert n < 20_000
    assert epsilon < 1.0


def test_the_smallest_eigengap(planned: dpgep.planning.Plan) -> None:
    gap = planned.smallest_eigengap()
    errors = [
        plan("pca", n=20_000, d=20, eigengap=each, bound=6.0, **BUDGET).population.span for each in (gap, gap / 1.05)
    ]
    assert errors[0] <= 0.5 < errors[1]
    # where the outlier of noise and sampling has an overlap of one half: edge/sqrt(2), edge^2 = level^2 + 4 d/n
    assert gap == pytest.approx(math.sqrt(planned.noise_level**2 + 4 * 20 / 20_000) / math.sqrt(2), rel=0.25)
    correlations = plan("standardized-pca", n=2000, d=5, spectrum=[3.0], bound=2.0, **BUDGET)
    assert 0 < correlations.smallest_eigengap() < 2.5


def test_what_cannot_be_reached(planned: dpgep.planning.Plan) -> None:
    with pytest.raises(ValueError, match=r"no epsilon up to 1e\+06 leaves an expected error of 1e-05: 0\.000"):
        planned.epsilon_for(1e-5, against="population")
    with pytest.raises(ValueError, match=r"error must be below K = 1.*got 1\.5"):
        planned.people_for(1.5)
    with pytest.raises(ValueError, match=r"against must be one of 'sample', 'population', got 'nobody'"):
        planned.people_for(0.1, against="nobody")  # type: ignore[arg-type]
    whole = plan("pca", n=500, d=2, spectrum=[3.0, 1.0], n_components=2, bound=3.0, rho=0.1)
    with pytest.raises(ValueError, match="an epsilon needs a delta"):
        whole.epsilon_for(0.1)
    with pytest.raises(ValueError, match="all 2 eigenvalues were planned to lead"):
        whole.smallest_eigengap()


def test_the_search_finds_where_a_function_falls_below() -> None:
    limits = (7.0, 1e-3, 1e6)
    for root in (1e-2, 1.0, 7.0, 1e5):
        found = _least(lambda x, root=root: root / x, 1.0, limits, "nothing")
        assert root <= found <= 1.03 * root
    assert _least(lambda x: 0.0, 1.0, limits, "nothing") == 1e-3
    with pytest.raises(ValueError, match="no number leaves an expected error of 1: 2 is left"):
        _least(lambda x: 2.0, 1.0, limits, "no number")


class WithinPca(dpgep.models.FdaModel):
    name = "within-pca"
    traits = Traits(Scatter(within=1.0))
    max_components = RowModel.max_components


class MeansOfSlices(dpgep.models.SirModel):
    name = "means"
    traits = Traits(MEANS)


@pytest.mark.parametrize(
    ("model", "spectrum", "shares"),
    [
        (dpgep.models.FdaModel(6, (0, 1, 2)), [3.0, 1.0], [0.2, 0.3, 0.5]),
        (dpgep.models.SirModel(6, (0.5, 1.5, 2.5)), [0.8, 0.3, 0.1], [0.25] * 4),
        (dpgep.models.CcaModel((3, 4), True), [0.9, 0.5, 0.2], None),
        (dpgep.models.PlsModel((3, 4), True), [3.0, 2.0, 0.5], None),
        (dpgep.models.PcaModel(4, False), [9.0, 5.0, 4.0, 1.0], None),
        (dpgep.models.StandardizedPcaModel(4, True), [2.0, 1.0, 0.6, 0.4], None),
        (dpgep.models.MultisetCcaModel((3, 4, 3), True), [1.6, 0.9, 0.3, 0, 0, 0], None),
        (WithinPca(4, ("a", "b")), [9.0, 5.0, 4.0, 1.0], [0.3, 0.7]),
        (MeansOfSlices(4, (0.0, 1.0)), [9.0, 5.0], [0.3, 0.3, 0.4]),
    ],
    ids=lambda value: value.name if isinstance(value, RowModel) else "",
)
def test_the_population_has_the_spectrum(model: RowModel, spectrum: list[float], shares: Any) -> None:
    """Of 200000 people, within six deviations of their moments."""
    groups = np.full(1, 1.0) if shares is None else np.array(shares)
    population = {"model": model, "spectrum": np.array(spectrum), "deviation": 2.0, "shares": groups}
    setting = Simulation(**population, bound=1e3, adjacency="replace-one", n_components=1)  # type: ignore[arg-type]
    problem = setting.problem(setting.people(0, 200_000), 1e3)
    released = exact_moments(problem)
    k = np.count_nonzero(spectrum)
    values = solve_seeded(problem, epsilon=math.inf, n_components=k).eigenvalues
    assert values == pytest.approx(spectrum[:k], rel=0.03, abs=0.02)
    if shares is not None:
        assert released.counts == pytest.approx(shares, abs=0.01)


def test_contrasts_are_orthonormal_and_balanced() -> None:
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    found = contrasts(shares)
    assert found @ found.T == pytest.approx(np.eye(3), abs=1e-12)
    assert found @ np.sqrt(shares) == pytest.approx(np.zeros(3), abs=1e-12)


def test_the_number_of_people_is_noisy_under_add_remove() -> None:
    plans = [
        plan("fda", n=2000, d=4, spectrum=[2.0], bound=4.0, adjacency=adjacency, **BUDGET)  # type: ignore[arg-type]
        for adjacency in ("replace-one", "add-remove")
    ]
    assert plans[1].sample.span < plans[0].sample.span  # add-remove needs less noise
    assert "add-remove" in str(plans[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"spectrum": None}, "give either a spectrum or an eigengap"),
        ({"eigengap": 1.0}, "give either a spectrum or an eigengap"),
        ({"spectrum": [1.0] * 21}, "spectrum must be 1 to 20 finite numbers"),
        ({"spectrum": [-1.0]}, r"none negative, got \[-1\.0\]"),
        ({"spectrum": [math.nan]}, "finite numbers"),
        ({"model": "cca"}, r"the two views of 'cca' need d=\(d_x, d_y\), got 20"),
        ({"model": "cca", "d": (3, 3), "spectrum": [1.0]}, "must be below 1, got 1"),
        ({"model": "pls", "d": (3, 3), "spectrum": [2.0]}, "must be below 1, got 2"),
        ({"model": "cca", "d": (3, 3), "spectrum": [0.5], "n_components": 2}, "but 1 eigenvalues are positive"),
        ({"model": "cca", "d": (3, 3, 3)}, "cca compares two views, got 3"),
        ({"model": "multiset-cca", "d": (3, 3, 2), "spectrum": [0.1] * 3}, "spectrum must be 1 to 2 finite numbers"),
        ({"model": "multiset-cca", "d": (3, 3, 2), "spectrum": [2.0]}, "must be below 2, got 2"),
        ({"model": "ica"}, "model must be one of 'cca', 'fda', 'multiset-cca', 'pca'.*got 'ica'"),
        ({"model": dpgep.models.PcaModel(3, True)}, "d belongs to a model that is given by name"),
        ({"n": 0}, "n must be a positive whole number, got 0"),
        ({"n": 1}, "a plan is for two people or more, got n = 1"),
        ({"n_components": 21}, "pca of 20 features has 20 components"),
        ({"shares": [0.5, 0.5]}, "shares are of classes or slices, which pca has none of"),
        ({"model": "fda", "shares": [0.5, 0.4]}, "2 positive numbers that add up to 1"),
        ({"deviation": 0.0}, "deviation must be a positive finite number"),
        (
            {"bound": "auto", "preprocessing": dpgep.AutoPreprocessing(ranges={0: (0.0, 1.0)})},
            "ranges are in units of columns",
        ),
        ({"epsilon": None, "delta": None, "mu": 1e-15}, "larger budget"),
        ({"tails": 4}, r"tails must be more than 4 degrees of freedom, got 4\.0"),
        ({"tails": math.nan}, "tails must be more than 4"),
        ({"mean": math.inf}, "mean must be a number, 0 for a model that is not centred, got inf"),
        ({"model": dpgep.models.PcaModel(20, False), "d": None, "mean": 1.0}, r"not centred, got 1\.0"),
        ({"releases": 0}, "releases must be a whole number of at least 1, got 0"),
        (
            {"correlation": 0.5},
            "correlation is of standardized columns, views, classes or slices: pca has none",
        ),
        ({"model": "cca", "d": (3, 3), "spectrum": [0.5], "correlation": 1.0}, "between -1 and 1, got 1"),
        ({"model": "cca", "d": (3, 3), "spectrum": [0.5], "correlation": np.ones((6, 6))}, "positive definite"),
        ({"model": "cca", "d": (3, 3), "spectrum": [0.5], "correlation": np.eye(5)}, "symmetric 6 x 6 matrix"),
        ({"model": "standardized-pca", "d": 3, "correlation": 0.5}, "either a correlation matrix or its eigenvalues"),
    ],
    ids=str,
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    known = {"model": "pca", "n": 1000, "d": 20, "spectrum": [4.0], "bound": 6.0, **BUDGET}
    with pytest.raises(ValueError, match=message):
        plan(**{**known, **arguments})


def test_what_is_no_model_and_no_bound() -> None:
    with pytest.raises(TypeError, match=r"model must be a model of rows.*got int"):
        plan(3, n=10, spectrum=[1.0], **BUDGET)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"model must be a model of rows that plans know.*got TableModel"):
        plan(dpgep.models.TableModel(3), n=10, spectrum=[1.0], **BUDGET)
    with pytest.raises(TypeError, match="preprocessing is of rows in their own units"):
        plan("pca", n=10, d=2, spectrum=[3.0], preprocessing=dpgep.Preprocessing(1.0), **BUDGET)  # type: ignore[arg-type]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("model", "d", "spectrum"), MODELS)
def test_a_plan_that_was_saved_answers_the_same(model: str, d: Any, spectrum: list[float]) -> None:
    bound: Any = "auto" if model == "cca" else 6.0
    more = {"tails": 6.0, "correlation": 0.5, "releases": 12} if model == "fda" else {}
    saved = plan(model, n=5_000, d=d, spectrum=spectrum, bound=bound, **more, **BUDGET)  # type: ignore[arg-type]
    loaded = dpgep.load(bytes_of(saved))
    assert repr(loaded) == repr(saved)
    assert bytes_of(loaded) == bytes_of(saved)
    if model == "pca":
        assert loaded.people_for(0.1) == saved.people_for(0.1)
        assert loaded.epsilon_for(0.1) == saved.epsilon_for(0.1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n": 1}, "two people or more, got n = 1"),
        ({"n": -3}, "n must be"),
        ({"mu": 0.0}, "must be positive"),
        ({"mu": 0.3}, "mu is 0.3, which is not that of epsilon = 1.0"),
        ({"delta": 2.0}, "delta"),
        ({"share": 1.5}, "must be positive"),
        ({"model": {"kind": "table", "n_features": 20}}, "of another model"),
        ({"model": {"kind": "pca", "n_features": 19, "center": True}}, "of another model"),
        ({"sample": 3}, "the plan.sample must be an object"),
        ({"setting__spectrum": [4.0]}, "spectrum must be 20 numbers"),
        ({"setting__spectrum": [-1.0] * 20}, "spectrum must be 20 numbers"),
        ({"setting__n_components": 21}, "n_components"),
        ({"setting__n_components": 2}, "errors must be of 2 components"),
        ({"setting__deviation": 0.0}, "deviation must be"),
        ({"setting__bound": -1.0}, "bound must be"),
        ({"setting__tails": 2.0}, "tails must be"),
        ({"setting__correlation": [[1.0]]}, "correlation is of"),
        ({"releases": 0}, "releases must be"),
        ({"more": 1}, "a field 'more' that this dpgep does not know"),
    ],
    ids=str,
)
def test_a_plan_that_nobody_made_is_refused(planned: dpgep.planning.Plan, changes: dict[str, Any], said: str) -> None:
    document = json.loads(bytes_of(planned))
    for path, value in changes.items():
        *outer, last = path.split("__")
        (document[outer[0]] if outer else document)[last] = value
    with pytest.raises(ValueError, match=said):
        dpgep.load(json.dumps(document).encode())


def test_a_plan_of_nights_is_of_their_last_morning(tmp_path: Path) -> None:
    """Its noise is that of nights, and its errors of the noise are those of as noisy a release."""
    given: dict[str, Any] = {"n": 6000, "d": 8, "spectrum": [4.0], "bound": 4.0, "mu": 0.3}
    found = plan("pca", **given, nights=30)
    nights = dpgep.Nights(tmp_path / "a.nights", bound=4.0, mu=0.3)
    for night in range(30):
        last = nights.add(np.zeros((200, 8)), night=str(night))
    assert found.noise_level == pytest.approx(last._noisy.second_noise_level, rel=1e-3)
    alike = plan("pca", **{**given, "mu": 0.3 * Factor(365).mu_of_sums(30)})
    assert found.sample.span == pytest.approx(alike.sample.span, rel=1e-6)
    assert "30, of other people each" in str(again := dpgep.load(bytes_of(found)))
    assert again.noise_level == found.noise_level
    with pytest.raises(ValueError, match="plan with a number as bound"):
        plan("pca", **{**given, "bound": "auto"}, nights=30)
