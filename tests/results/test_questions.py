"""`dpgep.release` of rows and the questions to it: answers are those of `solve`, in the units of the columns."""

import json
import math
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from conftest import Matrix, nothing_spent
from scipy import stats
from stored import bytes_of

import dpgep
from dpgep.methods.eigen import Eigensystem, judged_components
from dpgep.models import PlsModel
from dpgep.models.moments import MomentNoise, ReleasedMoments, goe, in_one_group
from dpgep.models.preprocessing import unclipped
from dpgep.models.row_model import Classes, MomentsPencil, Slices
from dpgep.problems.builders import table_problem

D, N = 6, 3000
SCALE = np.geomspace(1.0, 300.0, D)
NAMES = ("age", "height", "weight", "income", "visits", "dose")
pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")


@pytest.fixture(name="x")
def _table(rng: np.random.Generator) -> Matrix:
    mixing = rng.standard_normal((D, D)) + 2 * np.eye(D)
    return np.asarray((rng.standard_normal((N, D)) @ mixing + 1.0) * SCALE)


@pytest.fixture(name="y")
def _response(x: Matrix) -> Matrix:
    return np.asarray(np.tanh(x[:, 0] / 2))


def labels_of(y: Matrix) -> Any:
    return np.where(y > 0, "high", "low")


def released(given: Any, **budget: Any) -> dpgep.Release:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        return dpgep.release(given, seed=0, **(budget or {"epsilon": math.inf}))


def exact(problem: Any, k: int = 2) -> dpgep.Solution:
    return dpgep.solve(problem, epsilon=math.inf, n_components=k)


Ask = Callable[[dpgep.Release], dpgep.Solution]
Theirs = Callable[[Matrix, Matrix], dpgep.Solution]
FEW = [4, 0, 2]
BOUND = 1e6  # nothing is clipped
# A question, and the problem that it answers, of the rows of the columns asked for.
ANSWERS: dict[str, tuple[Ask, Theirs]] = {
    "pca": (lambda r: r.pca(n_components=2), lambda x, y: exact(dpgep.pca(x, bound=BOUND))),
    "pca of columns": (lambda r: r.pca(FEW, n_components=2), lambda x, y: exact(dpgep.pca(x[:, FEW], bound=BOUND))),
    "standardized": (
        lambda r: r.pca(FEW, n_components=2, standardize=True),
        lambda x, y: exact(dpgep.pca(x[:, FEW], standardize=True, bound=BOUND)),
    ),
    "cca": (
        lambda r: r.cca([5, 1], [0, 2, 3], n_components=2),
        lambda x, y: exact(dpgep.cca(x[:, [5, 1]], x[:, [0, 2, 3]], bound=BOUND)),
    ),
    "pls": (
        lambda r: r.pls([5, 1], [0, 2, 3], n_components=2),
        lambda x, y: exact(dpgep.pls(x[:, [5, 1]], x[:, [0, 2, 3]], bound=BOUND)),
    ),
}
OF_CLASSES: tuple[Ask, Theirs] = (
    lambda r: r.fda([1, 0, 3], n_components=1),
    lambda x, y: exact(dpgep.fda(x[:, [1, 0, 3]], labels_of(y), classes=["low", "high"], bound=BOUND), 1),
)
OF_SLICES: tuple[Ask, Theirs] = (
    lambda r: r.sir([1, 0, 3], n_components=2),
    lambda x, y: exact(dpgep.sir(x[:, [1, 0, 3]], y, slices=4, y_range=(-1, 1), bound=BOUND)),
)
PREPROCESSING = dpgep.Preprocessing(200.0, location=SCALE, scale=SCALE / 2)


def assert_same(ours: dpgep.Solution, theirs: dpgep.Solution) -> None:
    """Up to rounding, and the norm that components have where rows were divided by scales."""
    units = np.linalg.norm(ours.components, axis=1, keepdims=True)
    expected = theirs.components / np.linalg.norm(theirs.components, axis=1, keepdims=True)
    signs = np.sign((ours.components * expected).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(ours.components / units, expected * signs, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.eigenvalues, theirs.eigenvalues, rtol=1e-8)
    assert ours.mean is not None
    assert theirs.mean is not None
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("clipping", [{"bound": BOUND}, {"preprocessing": PREPROCESSING}], ids=["bound", "scales"])
@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_without_noise_is_that_of_solve(
    question: str, clipping: dict[str, Any], x: Matrix, y: Matrix
) -> None:
    ask, theirs = ANSWERS[question]
    assert_same(ask(released(table_problem(x, **clipping))), theirs(x, y))


@pytest.mark.parametrize("clipping", [{"bound": BOUND}, {"preprocessing": PREPROCESSING}], ids=["bound", "scales"])
def test_of_groups_too(clipping: dict[str, Any], x: Matrix, y: Matrix) -> None:
    classes = released(table_problem(x, labels_of(y), classes=["low", "high"], **clipping))
    slices = released(table_problem(x, y, slices=4, y_range=(-1, 1), **clipping))
    for release, (ask, theirs) in ((classes, OF_CLASSES), (slices, OF_SLICES), (slices, ANSWERS["pca"])):
        assert_same(ask(release), theirs(x, y))


def test_with_noise_the_answer_of_a_table_has_the_bits_of_solve(x: Matrix) -> None:
    """The same bound, the same blocks, the same noise: nothing is lost by asking later."""
    z = x / SCALE / 20
    with pytest.warns(dpgep.errors.PrivacyWarning):
        theirs = dpgep.solve(dpgep.pca(z, bound=1.0), epsilon=1.0, delta=1e-6, seed=0)
    ours = released(table_problem(z, bound=1.0), epsilon=1.0, delta=1e-6).pca()
    np.testing.assert_array_equal(ours.components, theirs.components)
    np.testing.assert_array_equal(ours.eigenvalues, theirs.eigenvalues)
    assert ours.privacy == theirs.privacy


def test_a_bound_for_a_table_gives_columns_scales(x: Matrix) -> None:
    release = released(table_problem(x), mu=1.0)
    assert release.preprocessing is not None
    np.testing.assert_allclose(release.preprocessing.scale / x.std(axis=0), 1.0, rtol=0.2)
    deviations = x.std(axis=0)
    error = (release.covariance().values - np.cov(x.T)) / np.outer(deviations, deviations)
    assert np.abs(error).max() < 0.15


def test_a_table_keeps_more_of_long_tails(x: Matrix) -> None:
    """Entries are cut off later than where directions alone are asked for: variances are what that changes most."""
    whole, directions = released(table_problem(x), mu=1.0), released(dpgep.pca(x, standardize=True), mu=1.0)
    assert whole.preprocessing is not None
    assert directions.preprocessing is not None
    assert (whole.preprocessing.largest, directions.preprocessing.largest) == (12.0, 6.0)


@pytest.mark.parametrize("form", ["bytes", "pickle"])
@pytest.mark.parametrize("groups", ["none", "classes", "slices"])
def test_a_release_travels(form: str, groups: str, x: Matrix, y: Matrix) -> None:
    given = {
        "none": lambda: table_problem(pd.DataFrame(x, columns=NAMES), preprocessing=PREPROCESSING),
        "classes": lambda: table_problem(x, labels_of(y), classes=["low", "high"], preprocessing=PREPROCESSING),
        "slices": lambda: table_problem(x, y, edges=[-1, 0, 1], preprocessing=PREPROCESSING),
    }[groups]()
    release = released(given, mu=1.0)
    copy = dpgep.load(bytes_of(release)) if form == "bytes" else pickle.loads(pickle.dumps(release))
    assert copy.model == release.model
    assert copy.fingerprint == release.fingerprint
    np.testing.assert_array_equal(copy.pca([0, 1]).components, release.pca([0, 1]).components)


@pytest.mark.parametrize("source", ["moments", "stream", "dask", "sites"])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_table_comes_from_anywhere(source: str, grouped: bool, x: Matrix, y: Matrix) -> None:
    options: dict[str, Any] = {"preprocessing": PREPROCESSING}
    groups: list[Any] = [labels_of(y)] if grouped else []
    classes: dict[str, Any] = {"classes": ("low", "high")} if grouped else {}
    whole = released(table_problem(x, *groups, **classes, **options))
    if source == "moments":
        groupings = [Classes(("low", "high"))] if grouped else []
        moments = dpgep.Moments(dpgep.models.TableModel(D, *groupings), **options)
        for rows in np.split(np.arange(N), 5):
            moments.update(x[rows], *(each[rows] for each in groups))
        other = released(moments)
    elif source == "stream":
        frame = pd.DataFrame(x, columns=NAMES).assign(group=labels_of(y))
        scan = dpgep.scan(frame, batch_rows=700)
        other = released(table_problem(scan[list(NAMES)], *([scan["group"]] if grouped else []), **classes, **options))
    elif source == "dask":
        chunks = [da.from_array(each, chunks=900) for each in groups]
        other = released(table_problem(da.from_array(x, chunks=(900, 4)), *chunks, **classes, **options))
    else:
        parts = [slice(0, 1000), slice(1000, N)]
        one, two = (
            released(table_problem(x[part], *(each[part] for each in groups), **classes, **options)) for part in parts
        )
        other = one + two
    np.testing.assert_allclose(other.second_moment, whole.second_moment, rtol=1e-3, atol=1e-3)
    ask = OF_CLASSES[0] if grouped else ANSWERS["cca"][0]
    np.testing.assert_allclose(ask(other).eigenvalues, ask(whole).eigenvalues, rtol=1e-3)


def test_columns_have_names(x: Matrix) -> None:
    release = released(table_problem(pd.DataFrame(x, columns=NAMES), preprocessing=PREPROCESSING))
    named, numbered = release.cca(["dose", "age"], ["weight"]), release.cca([5, 0], [2])
    np.testing.assert_array_equal(named.components, numbered.components)
    several = [("age", "dose"), pd.Index(["age", "dose"]), pd.Series(["age", "dose"]), np.array([0, 5]), range(0, 6, 5)]
    assert {release.pca(columns).feature_names for columns in several} == {("age", "dose")}
    assert named.feature_names == ("dose", "age", "weight")
    assert release.pca(["weight", "age"]).feature_names == ("weight", "age")
    frame = release.covariance(["weight", "age"]).to_frame()
    np.testing.assert_allclose(frame.loc["age", "weight"], np.cov(x[:, 0], x[:, 2], bias=True)[0, 1])
    correlation = release.correlation(["weight", "age"])
    np.testing.assert_allclose(correlation.to_frame().loc["age", "weight"], np.corrcoef(x[:, 0], x[:, 2])[0, 1])
    assert (correlation.low <= correlation.values).all()
    np.testing.assert_array_equal(np.diagonal(correlation.values), 1.0)
    ends = f"[{correlation.low[0, 1]:.3g}, {correlation.high[0, 1]:.3g}]"
    shown = [line.split() for line in repr(correlation).splitlines()]
    assert shown[-3] == ["weight", "age"]
    assert shown[-1] == ["age", f"{correlation.values[0, 1]:.3g}", *ends.split(), "1", "[1,", "1]"]
    halves = (release.correlation().high - release.correlation().low)[np.triu_indices(D, 1)] / 2
    assert f"+- {np.median(halves):.3g} in the median, {halves.max():.3g} at most" in repr(release.correlation())
    np.testing.assert_allclose(release.mean(["age"]), x[:, :1].mean(axis=0))
    np.testing.assert_allclose(named.transform(pd.DataFrame(x, columns=NAMES)[["dose", "age"]]).mean(), 0, atol=1e-6)


def test_a_constant_column_has_no_correlations(x: Matrix) -> None:
    constant = x.copy()
    constant[:, 2] = 7.0
    found = released(table_problem(constant, preprocessing=PREPROCESSING)).correlation()
    assert not found.values[2].any()
    assert (found.low[2, 3], found.high[2, 3]) == (-1, 1)
    others = np.delete(np.arange(D), 2)
    np.testing.assert_allclose(found.values[np.ix_(others, others)], np.corrcoef(x[:, others].T), rtol=1e-8)


def test_a_regression_by_name(x: Matrix) -> None:
    frame = pd.DataFrame(x, columns=NAMES)
    release = released(table_problem(frame, preprocessing=PREPROCESSING))
    found = release.regression("dose", on=["weight", "age"])
    design = np.column_stack([np.ones(N), x[:, [2, 0]]])
    expected = np.linalg.lstsq(design, x[:, 5], rcond=None)[0]
    np.testing.assert_allclose([found.intercept, *found.coefficients], expected, rtol=1e-8)
    assert (found.names, found.target) == (("weight", "age"), "dose")
    assert found.privacy.release == release.fingerprint
    np.testing.assert_allclose(found.predict(frame[["weight", "age"]]), design @ expected, rtol=1e-8)
    assert release.regression("dose").names == NAMES[:5]
    with pytest.raises(ValueError, match="column 'dose' cannot be regressed on itself"):
        release.regression("dose", on=["age", "dose"])


def test_a_classifier_and_people_by_name(x: Matrix, y: Matrix) -> None:
    frame, labels = pd.DataFrame(x, columns=NAMES), labels_of(y)
    release = released(table_problem(frame, labels, classes=["low", "high"], preprocessing=PREPROCESSING))
    rule = release.classifier(["weight", "age"])
    assert rule.feature_names == ("weight", "age")
    assert np.mean(rule.predict(frame[["weight", "age"]]) == labels) > 0.8
    rows, drawn = release.sample(20_000, seed=1, columns=["weight", "age"])
    assert list(rows.columns) == ["weight", "age"]
    assert abs(np.mean(drawn == "low") - np.mean(labels == "low")) < 0.03
    means = frame[["weight", "age"]].groupby(labels).mean()
    np.testing.assert_allclose(rows.groupby(drawn).mean(), means, atol=0.1 * x[:, 2].std())
    alone = released(table_problem(frame, preprocessing=PREPROCESSING)).sample(20_000, seed=1)
    np.testing.assert_allclose(np.corrcoef(alone.T), np.corrcoef(x.T), atol=0.05)


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning", "ignore::dpgep.errors.PrivacyWarning")
@pytest.mark.parametrize("epsilon", [math.inf, 5.0])
def test_people_have_categories_and_the_moments_of_the_release(epsilon: float) -> None:
    rng, n, drawn = np.random.default_rng(3), 20_000, 200_000
    group = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    table = pd.DataFrame({"age": rng.normal(group, 1.0)}).assign(pulse=lambda each: each["age"] + rng.normal(0, 2, n))
    table["arm"] = pd.Categorical.from_codes(group, ["a", "b", "c"])
    table["sick"] = pd.Categorical.from_codes((rng.random(n) < 0.2 + 0.2 * group).astype(int), ["no", "yes"])
    release = dpgep.release(table, epsilon=epsilon, delta=1e-6, seed=1)
    people = release.sample(drawn, seed=2)
    assert list(people.columns) == list(table.columns)
    assert (people.dtypes == table.dtypes).all()
    columns = pd.get_dummies(people, prefix_sep="=").astype(float)[list(release.model.feature_names)]
    # sampling errors of correlations are below 1/sqrt(n): 7 of them, and what noise left impossible
    tolerance = 7 / math.sqrt(drawn) + (0.0 if epsilon == math.inf else 0.01)
    np.testing.assert_allclose(np.corrcoef(columns.T), release.correlation().values, atol=tolerance)
    counts = pd.crosstab(people["arm"], people["sick"]).to_numpy() / drawn
    np.testing.assert_allclose(counts, release.crosstab("arm", "sick").counts / release.n_people, atol=tolerance)
    fit = release.regression("pulse", on=["age", "arm=b", "sick=yes"])
    design = np.column_stack([np.ones(drawn), columns[["age", "arm=b", "sick=yes"]]])
    slopes = np.linalg.lstsq(design, columns["pulse"], rcond=None)[0][1:]
    np.testing.assert_allclose(slopes, fit.coefficients, atol=10 * tolerance)  # deviation 2, of columns of 0.4 and more
    table.loc[:4999, "arm"] = np.nan
    holes = dpgep.release(table, epsilon=math.inf).sample(drawn, seed=1)
    assert abs(holes["arm"].isna().mean() - 0.25) < tolerance


def test_every_answer_names_the_one_release_that_paid(x: Matrix) -> None:
    budget = dpgep.Budget(epsilon=1.0, delta=1e-6)
    release = dpgep.release(table_problem(x, preprocessing=PREPROCESSING), budget=budget)
    spent = budget.spent_mu
    answers = [release.pca(), release.pca([0, 1], standardize=True), release.cca([0], [1])]
    estimate = release.covariance()
    assert budget.spent_mu == spent
    assert {each.privacy.release for each in (*answers, estimate)} == {release.fingerprint}
    assert all(each.privacy == release.privacy for each in answers)
    assert f"paid once, for all answers from release {release.fingerprint}" in str(answers[0].privacy)
    other = dpgep.release(table_problem(x, preprocessing=PREPROCESSING), epsilon=1.0, delta=1e-6)
    assert other.fingerprint != release.fingerprint


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: r.pca(["age", "shoe size"]), "no column 'shoe size': the released columns are 'age'"),
        (lambda r: r.pca([6]), "no column 6"),
        (lambda r: r.pca([0.5]), "no column 0.5"),
        (lambda r: r.pca([-1]), "no column -1"),
        (lambda r: r.pca([]), "at least one column"),
        (lambda r: r.pca("age"), "a list of names"),
        (lambda r: r.pca(["age", "age"]), "'age' twice"),
        (lambda r: r.pca(["age", 0]), "'age' twice"),
        (lambda r: r.cca(["age"], ["age", "dose"]), "columns 'age' are in both views"),
        (lambda r: r.fda(), "no classes: use dpgep.release"),
        (lambda r: r.sir(), "no slices of a response"),
        (lambda r: r.classifier(), "no classes"),
        (lambda r: r.regression("shoe size"), "no column 'shoe size'"),
        (lambda r: r.sample(0), "n must be"),
        (lambda r: r.solve(), "needs a question, and a table asks none"),
        (lambda r: r.pca(n_components=7), "n_components = 7 is too many"),
        (lambda r: r.pca(sparsity=0), "sparsity"),
        (lambda r: r.pca(seed=3), "an answer from a release has no option 'seed'; seed belongs to the run"),
        (lambda r: r.pca(standardize="yes"), "standardize must be True or False"),
        (lambda r: r.pca(np.array([True, False])), "no column True"),
        (lambda r: r.pca(np.array(0)), "a list of names"),
        (lambda r: r.pca({"age", "dose"}), "a list of names"),
        (lambda r: r.covariance(level=1.0), "level"),
        (lambda r: r.covariance(rows="heavy"), "rows"),
    ],
)
def test_a_question_that_cannot_be_answered(ask: Any, message: str, x: Matrix) -> None:
    release = released(table_problem(pd.DataFrame(x, columns=NAMES), preprocessing=PREPROCESSING))
    with pytest.raises((TypeError, ValueError), match=message):
        ask(release)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["a", "b"]}, "classes describe groups: give groups"),
        ({"slices": 3, "y_range": (0, 1)}, "slices and y_range describe groups"),
        ({"groups": np.arange(N), "y_range": (0, 1)}, "y_range belongs to slices"),
        ({"groups": np.arange(N), "slices": 3, "classes": [1, 2]}, "give one of them"),
        ({"groups": np.arange(N), "slices": 3}, "slices need a public range"),
        ({"groups": np.arange(N), "slices": 3, "edges": [0, 1, 2]}, "give either edges"),
        ({"groups": np.arange(N - 1), "classes": [1, 2]}, "labels|groups"),
        ({"preprocessing": dpgep.AutoPreprocessing(precondition="full")}, "would change the answer of table"),
    ],
)
def test_a_table_that_cannot_be(options: dict[str, Any], message: str, x: Matrix) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        table_problem(x, **options)


@pytest.mark.parametrize("run", [dpgep.solve, partial(dpgep.release, storage="operator")])
def test_a_table_is_no_question(run: Any, x: Matrix) -> None:
    budget = dpgep.Budget(epsilon=1.0, delta=1e-6)
    with nothing_spent(budget), pytest.raises(TypeError, match="needs a question, and a table asks none"):
        run(table_problem(x, preprocessing=PREPROCESSING), budget=budget)


def test_rows_are_released_as_their_problem_is(x: Matrix, y: Matrix) -> None:
    """The same noise, and so the same answers to the last bit."""
    labels, classes, given = labels_of(y), ["low", "high"], {"mu": 1.0, "seed": 3, "bound": BOUND}
    pairs: list[tuple[Any, dict[str, Any]]] = [
        (table_problem(x, bound=BOUND), {}),
        (table_problem(x, labels, classes=classes, bound=BOUND), {"labels": labels, "classes": classes}),
        (table_problem(x, y, slices=10, y_range=(-1, 1), bound=BOUND), {"y": y, "y_range": (-1, 1)}),
        (table_problem(x, y, edges=[-1, 0, 1], bound=BOUND), {"y": y, "edges": [-1, 0, 1]}),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        for problem, groups in pairs:
            ours, theirs = dpgep.release(x, **groups, **given), dpgep.release(problem, mu=1.0, seed=3)
            assert ours.fingerprint == theirs.fingerprint


def test_a_solution_has_its_release(x: Matrix, tmp_path: Path) -> None:
    """The same as that of `dpgep.release`, to be asked other questions; it knows its people, and no file holds it."""
    problem = dpgep.pca(x, bound=BOUND)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        solution, release = (run(problem, mu=1.0, seed=3) for run in (dpgep.solve, dpgep.release))
        screened = dpgep.solve(problem, mu=1.0, seed=3, screen=2, n_components=1)
    assert solution.release.fingerprint == release.fingerprint
    assert solution.release.report == release.report
    again = solution.release.pca(n_components=1)
    np.testing.assert_array_equal(again.components, release.pca(n_components=1).components)
    assert again.release is solution.release
    assert screened.release is None
    with pytest.raises(ValueError, match="releases of the same people"):
        solution.release + release
    solution.save(tmp_path / "solution.json")
    assert dpgep.load(tmp_path / "solution.json").release is None
    assert '"release"' not in json.dumps(sorted(json.loads((tmp_path / "solution.json").read_text())))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [0, 1], "y": [0.0, 1.0]}, "classes of labels or slices of a response"),
        ({"labels": [0, 1], "slices": 3}, "classes of labels or slices of a response"),
        ({"classes": [0, 1]}, "classes describe groups"),
        ({"storage": "disk"}, "storage must be one of 'matrix', 'operator'"),
    ],
)
def test_rows_that_cannot_be_released(options: dict[str, Any], message: str, x: Matrix) -> None:
    budget = dpgep.Budget(epsilon=1.0, delta=1e-6)
    with nothing_spent(budget), pytest.raises(ValueError, match=message):
        dpgep.release(x, bound=BOUND, budget=budget, **options)


def test_what_belongs_to_a_problem_or_to_an_operator_is_said(x: Matrix) -> None:
    budget = dpgep.Budget(epsilon=1.0, delta=1e-6)
    with nothing_spent(budget):
        with pytest.raises(TypeError, match="labels and bound belong to the problem"):
            dpgep.release(dpgep.pca(x), labels=[0], bound=1.0, budget=budget)
        with pytest.raises(TypeError, match='are of storage="operator"'):
            dpgep.release(dpgep.pca(x), memory_limit=1, budget=budget)


def test_models_of_one_group_are_refused() -> None:
    for groups in (Classes(("a",)), Slices(())):
        with pytest.raises(ValueError, match="at least 2, got 1"):
            dpgep.models.TableModel(3, groups)


def test_releases_that_cannot_name_columns(x: Matrix) -> None:
    with pytest.raises(ValueError, match="has no mean"):
        released(dpgep.pca(x, center=False, bound=BOUND)).pca()
    mixed = released(dpgep.cca(x[:, :3], x[:, 3:], preprocessing=dpgep.AutoPreprocessing(precondition="full")), mu=1.0)
    assert mixed.solve(1).n_components == 1
    with pytest.raises(ValueError, match="has mixed the columns"):
        mixed.pca()


def test_names_in_both_views_are_asked_by_number(x: Matrix) -> None:
    frame = pd.DataFrame(x[:, :3], columns=NAMES[:3])
    release = released(dpgep.cca(frame, frame + 1.0, bound=BOUND))
    assert release.pca([0, 4]).feature_names == ("age", "height")
    with pytest.raises(ValueError, match="both views have a column 'age'"):
        release.pca(["age"])


@pytest.mark.parametrize("clipping", [{"bound": BOUND}, {"preprocessing": PREPROCESSING}], ids=["bound", "scales"])
def test_people_without_a_group_count_in_no_answer(clipping: dict[str, Any], x: Matrix, y: Matrix) -> None:
    labels = labels_of(y).astype(object)
    labels[:500] = None
    release = released(table_problem(x, labels, classes=["low", "high"], **clipping))
    for ask, theirs in (*ANSWERS.values(), OF_CLASSES):
        assert_same(ask(release), theirs(x[500:], y[500:]))
    others = released(table_problem(x[500:], **clipping))
    for answer in ("covariance", "correlation"):
        ours, expected = getattr(release, answer)(), getattr(others, answer)()
        np.testing.assert_allclose(ours.values, expected.values, rtol=1e-6)
        np.testing.assert_allclose(ours.low, expected.low, rtol=1e-6)
    np.testing.assert_allclose(release.regression(0).coefficients, others.regression(0).coefficients, rtol=1e-6)
    np.testing.assert_allclose(release.mean(), x[500:].mean(axis=0), rtol=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize(("share", "n_is_public"), [(1.0, True), (0.8, True), (1.0, False)])
def test_the_noise_of_all_groups_together(share: float, n_is_public: bool, rng: np.random.Generator) -> None:
    """Between components, which a factor of all entries does not turn: of 4000 draws, each of 3 chi-square tests, both
    tails, fails with a probability of 5e-8.
    """
    groups, n_draws, noise = 8, 4000, MomentNoise(4e-4, 2e-4, 1.2e-3)
    counts, model = np.full(groups, share / groups), dpgep.models.PcaModel(3, True)
    sums = counts * (np.array([[0.7], [0.4], [0.1]]) + rng.standard_normal((3, groups)) / 10)
    mean, half = sums.sum(axis=1) / share, rng.standard_normal((3, 6))
    covariance = half @ half.T
    truth = ReleasedMoments(sums, counts, 1e4, noise, share * (covariance + np.outer(mean, mean)))
    vectors = np.linalg.eigh(covariance)[1]
    draws = []
    for _ in range(n_draws):
        noisy = counts + noise.counts * rng.standard_normal(groups)
        people = 1.0 if n_is_public else noisy.sum()
        second, means = truth.second + goe(3, noise.second, rng), sums + noise.sums * rng.standard_normal(sums.shape)
        together = in_one_group(ReleasedMoments(means / people, noisy / people, 1e4, noise, second / people))
        draws.append(vectors.T @ model.noisy(together).pair().a @ vectors)
    above = np.triu_indices(3, 1)
    variances = model.noisy(together).error_variances(vectors, vectors, np.ones(3))
    squares = (np.array(draws).var(axis=0) * n_draws / variances)[above]
    low, high = stats.chi2.ppf([2.5e-8, 1 - 2.5e-8], n_draws - 1)
    assert ((squares > low) & (squares < high)).all()


def test_columns_that_drown_are_named(x: Matrix) -> None:
    frame = pd.DataFrame(x, columns=NAMES).assign(dose=1.0)
    release = released(table_problem(frame, preprocessing=PREPROCESSING))
    with pytest.warns(dpgep.errors.AccuracyWarning, match="column 'dose' is constant, without any weight"):
        release.pca(["dose", "age", "height"], standardize=True, n_components=1)


def test_warnings_of_answers_point_at_the_line_that_asked(rng: np.random.Generator) -> None:
    release = released(table_problem(rng.standard_normal((50, 3)), bound=1.0), mu=0.1)
    for ask in (lambda: release.pca(n_components=1), lambda: release.cca([0], [1])):
        with pytest.warns(dpgep.errors.AccuracyWarning, match="lost") as caught:
            ask()
        assert {each.filename for each in caught} == {__file__}


# Before the bound clipped rows.


@pytest.mark.parametrize("d", [2, 8])
def test_covariances_of_clipped_gaussian_rows_are_made_whole(d: int, rng: np.random.Generator) -> None:
    """Against rows that were not clipped: exact moments of many, so that only the clipping differs."""
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = rng.standard_normal((400_000, d)) * np.geomspace(3.0, 0.5, d) @ rotation
    norms = np.linalg.norm(rows, axis=1)
    bound = float(np.quantile(norms, 0.7))
    clipped = rows * np.minimum(bound / norms, 1)[:, None]
    kept = float((clipped**2).sum() / (rows**2).sum())
    moments = ReleasedMoments(
        clipped.mean(axis=0)[:, None],
        np.ones(1),
        float(len(rows)),
        MomentNoise(0.0, 0.0, 0.0),
        clipped.T @ clipped / len(rows),
    )
    found, preprocessing = unclipped(moments, dpgep.Preprocessing(bound, energy_kept=kept))
    assert preprocessing is not None
    assert preprocessing.energy_kept == 1
    covariance = rows.T @ rows / len(rows)
    error = np.linalg.norm(found.second - covariance) / np.linalg.norm(covariance)
    evenly = np.linalg.norm(moments.second / kept - covariance) / np.linalg.norm(covariance)
    assert error < 0.01
    assert evenly > 2 * error


@pytest.mark.parametrize("values", [(-1.0, -2.0), (0.0, 0.0, 0.0, 99.0, 123.0, 351.0)], ids=["negative", "large"])
def test_noise_beyond_all_rows_is_no_error(values: tuple[float, ...]) -> None:
    """Released variances may all be negative, or larger than any row within the bound has."""
    d = len(values)
    moments = ReleasedMoments(np.zeros((d, 1)), np.ones(1), 10.0, MomentNoise(100.0, 100.0, 0.0), np.diag(values))
    found, _ = unclipped(moments, dpgep.Preprocessing(2.0, energy_kept=0.84))
    assert found.clipping is not None
    for part in (found.second, np.array([found.noise.second, found.clipping.doubt]), found.clipping.lost):
        assert np.isfinite(part).all()
    assert found.noise.second >= moments.noise.second


def test_undoing_the_clipping_makes_no_component_of_noise(rng: np.random.Generator) -> None:
    """Where the noise hides how long rows are, an answer of a release calls lost what `solve` does."""
    n, d = 300, 40
    x = rng.standard_normal((n, 3)) @ rng.standard_normal((3, d)) + rng.standard_normal((n, d))
    for seed in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
            release = dpgep.release(x, epsilon=0.1, delta=1e-3, seed=seed)
        assert all(release.pca(standardize=True, n_components=3).diagnostics.lost)
        assert np.abs(release.correlation().values).max() <= 1


def test_moments_that_a_bound_left_whole_stay_as_they_are(x: Matrix) -> None:
    for given in (table_problem(x, preprocessing=PREPROCESSING), table_problem(x, bound=BOUND)):
        release = released(given, mu=1.0)
        noisy, preprocessing = unclipped(release._noisy, release.preprocessing)
        assert noisy is release._noisy
        assert preprocessing is release.preprocessing


# In the units of the columns.


def test_many_components_in_units_need_few_draws_of_noise(rng: np.random.Generator) -> None:
    """A direction that stands out of all noise stands out of the part of it that is left."""
    d = 40
    model, alone = dpgep.models.PcaModel(d, True), MomentsPencil.noise_alone
    with mock.patch.object(MomentsPencil, "noise_alone", autospec=True, side_effect=alone) as drawn:
        values = np.linspace(2.0, 1.0, d)
        noisy = ReleasedMoments(np.zeros((d, 1)), np.ones(1), 1e3, MomentNoise(1e-4, 1e-4, 0.0), np.diag(values))
        pencil = model.noisy(noisy, np.geomspace(1, 3, d))
        assert judged_components(pencil, Eigensystem(values, np.eye(d), 0.0), d)[0] == (False,) * d
    assert drawn.call_count == 1


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["pca", "pls"])
def test_the_variance_of_the_noise_in_units(name: str, rng: np.random.Generator) -> None:
    """u^T dA v from 4000 draws: each of 16 chi-square tests, both tails, fails with a probability of 5e-8."""
    d, n_draws = 4, 4000
    model: Any = dpgep.models.PcaModel(d, True) if name == "pca" else PlsModel((2, 2), True)
    scale = np.array([1.0, 3.0, 0.2, 10.0])
    half = rng.standard_normal((d, 2 * d))
    noise = MomentNoise(1e-4, 2e-4, 0.0)
    truth = ReleasedMoments(0.3 * rng.standard_normal((d, 1)), np.ones(1), 100.0, noise, half @ half.T)
    left, right = rng.standard_normal((2, d, 4))
    variances = model.noisy(truth, scale).error_variances(left, right, np.ones(4))

    def pair(released: ReleasedMoments) -> Matrix:
        a: Matrix = right.T @ model.noisy(released, scale).pair().a @ left
        return a

    draws = []
    for _ in range(n_draws):
        sums = truth.sums + noise.sums * rng.standard_normal(truth.sums.shape)
        draws.append(
            pair(ReleasedMoments(sums, truth.counts, truth.n, noise, truth.second + goe(d, noise.second, rng)))
        )
    means = np.mean(draws, axis=0)
    squares = ((np.array(draws) - means) ** 2).sum(axis=0) / variances
    low, high = stats.chi2.ppf([2.5e-8, 1 - 2.5e-8], n_draws - 1)
    assert ((squares > low) & (squares < high)).all()
    assert not ((4 * squares > low) & (4 * squares < high)).any()  # half of the deviation is seen


@pytest.mark.parametrize("unit", [2.0**400, 2.0**-400])
@pytest.mark.parametrize("budget", [{"mu": 1.0}, {"epsilon": math.inf}], ids=["private", "exact"])
def test_units_may_be_extreme(unit: float, budget: dict[str, float], rng: np.random.Generator) -> None:
    """Answers in units that are powers of two times as large have the same bits but for these, errors too."""
    rows, scale = rng.standard_normal((2000, 3)) @ (np.eye(3) + 1), np.array([1.0, 3.0, 5.0])
    one, other = (
        released(table_problem(rows * size, preprocessing=dpgep.Preprocessing(9.0, scale=size)), **budget)
        for size in (scale, scale * unit)
    )
    for ask in (
        lambda r: r.pca(n_components=2),
        lambda r: r.pca(n_components=1, sparsity=2),
        lambda r: r.pca(n_components=1, sparsity="auto"),
        lambda r: r.pls([0], [1, 2]),
    ):
        ours, theirs = ask(one), ask(other)
        np.testing.assert_array_equal(theirs.components, ours.components)
        np.testing.assert_array_equal(theirs.eigenvalues, ours.eigenvalues * unit**2)
        np.testing.assert_array_equal(theirs.mean, ours.mean * unit)
        found, expected = theirs.diagnostics, ours.diagnostics
        np.testing.assert_array_equal(found.expected_error, expected.expected_error)
        for size in ("noise_level", "spectrum", "eigengaps"):
            np.testing.assert_array_equal(getattr(found, size), getattr(expected, size) * unit**2)
    np.testing.assert_array_equal(other.covariance().low, one.covariance().low * unit**2)


def test_the_noise_level_in_units(rng: np.random.Generator) -> None:
    """The mean norm of the noise is at most the level that is reported, and not much less where scales are equal."""
    d = 30
    for scale, least in ((np.full(d, 3.0), 0.85), (np.geomspace(0.01, 10, d), 0.3)):
        zero = ReleasedMoments(np.zeros((d, 1)), np.ones(1), 100.0, MomentNoise(1e-3, 0.0, 0.0), np.zeros((d, d)))
        level = dpgep.models.PcaModel(d, True).noisy(zero, scale).pair().noise_level
        norms = [np.abs(np.linalg.eigvalsh(np.outer(scale, scale) * goe(d, 1e-3, rng))).max() for _ in range(200)]
        assert least * level < np.mean(norms) < level


@pytest.mark.statistical
def test_components_far_below_the_largest_noise_are_found(rng: np.random.Generator) -> None:
    """Noise in columns of small scale is small: a direction among them is no noise, though less than that elsewhere.

    Without a direction, noise passes for one with a probability of about 1/200: more than 5 of 60 do with one of 2e-6.
    """
    scale, n = np.array([1000.0, 1.0, 1.0, 1.0, 1.0]), 5000
    preprocessing = dpgep.Preprocessing(6.0, scale=scale)
    alone = rng.standard_normal((n, 5)) * scale
    found = alone.copy()
    found[:, 1] += 2 * found[:, 2]
    passed = 0
    for seed in range(60):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
            one, two = (
                dpgep.release(table_problem(x, preprocessing=preprocessing), mu=0.5, seed=seed) for x in (alone, found)
            )
        assert two.pca(n_components=2).diagnostics.lost == (False, False)
        assert two.pca(n_components=2).eigenvalues[1] < two.pca().diagnostics.noise_level
        passed += not one.pca(n_components=2).diagnostics.lost[1]
    assert passed <= 5


def test_intervals_for_any_rows_within_the_bound_hold_far_from_zero() -> None:
    """The variance of a variance of two values is the largest where a few people are at the other end."""
    n, few = 1000, 5
    rows = np.where(np.arange(n) < few, -1.0, 1.0)[:, None]
    estimate = released(table_problem(rows, bound=1.0)).covariance(rows="bounded")
    deviation = np.std((rows - rows.mean()) ** 2) / math.sqrt(n)
    assert (estimate.high - estimate.low)[0, 0] / 2 >= stats.norm.ppf(0.95) * deviation
    assert (estimate.high - estimate.low)[0, 0] / 2 <= 1.1 * stats.norm.ppf(0.95) * deviation


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.parametrize("law", ["gaussian", "bounded"])
@pytest.mark.parametrize("budget", [{"mu": 0.3}, {"epsilon": math.inf}], ids=["private", "exact"])
def test_intervals_of_covariances_cover(law: Any, budget: dict[str, float], rng: np.random.Generator) -> None:
    """Of 400 tables, one entry each, at 90 %: outside of 82 to 97 % with a probability below 1e-6 each.

    The negative control: intervals of half the width cover 59 %.
    """
    truth = np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 0.3], [0.0, 0.3, 1.0]]) * np.outer([1, 10, 100], [1, 10, 100])
    root, n, covered, halves = np.linalg.cholesky(truth), 500, 0, 0
    preprocessing = dpgep.Preprocessing(8.0, scale=np.array([1.0, 10.0, 100.0]))
    for draw in range(400):
        rows = rng.standard_normal((n, 3)) @ root.T + [1.0, 20.0, 0.0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
            release = dpgep.release(table_problem(rows, preprocessing=preprocessing), seed=draw, **budget)
        estimate = release.covariance(rows=law)
        i, j = divmod(draw % 9, 3)
        low, high, value = estimate.low[i, j], estimate.high[i, j], estimate.values[i, j]
        covered += low <= truth[i, j] <= high
        halves += abs(truth[i, j] - value) <= (high - low) / 4
    assert covered >= 328
    if law == "gaussian":
        assert covered <= 388
        assert halves < 328


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_the_two_indicators_of_a_category_are_opposites(epsilon: float, rng: np.random.Generator) -> None:
    """Clipping and noise would make it -0.98; people with neither are shown, and then it is what it is."""
    n = 20_000
    sex = np.where(rng.random(n) < 0.4, "F", "M").astype(object)
    frame = pd.DataFrame({"income": np.exp(rng.normal(10, 0.8, n)), "sex": sex})
    budget = {} if math.isinf(epsilon) else {"epsilon": epsilon, "delta": 1e-6}
    found = released(dpgep.scan(frame, categories={"sex": ["F", "M"]}), **budget).correlation()
    assert found.values[1, 2] == found.values[2, 1] == found.low[1, 2] == -1
    sex[rng.random(n) < 0.3] = "unknown"
    frame["sex"] = sex
    found = released(dpgep.scan(frame, categories={"sex": ["F", "M"]}), **budget).correlation()
    right = np.corrcoef(sex == "F", sex == "M")[0, 1]
    assert found.low[1, 2] < right < found.high[1, 2]
    assert found.high[1, 2] < -0.3
    assert found.values[1, 2] > -0.9


def test_labels_may_follow_the_rows() -> None:
    """As in `dpgep.fda`."""
    x, labels = np.random.default_rng(0).standard_normal((500, 3)), ["u", "v"] * 250
    known = {"classes": ["u", "v"], "bound": 3.0, "epsilon": 5.0, "delta": 1e-6, "seed": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, named = dpgep.release(x, labels, **known), dpgep.release(x, labels=labels, **known)
        answers = [each.fda(n_components=1).components for each in (found, named)]
    np.testing.assert_array_equal(*answers)


@pytest.mark.filterwarnings("default::dpgep.errors.AccuracyWarning")
def test_sizes_of_long_rows_are_held_or_warned_of() -> None:
    """Log-normal columns have more variance than a bound and a noisy histogram show; correlations are not warned of."""
    n, d = 20_000, 5
    for seed in range(4):
        z = np.random.default_rng([seed, 3]).standard_normal((n, d))
        for x, long in ((np.exp(0.9 * z), True), (z, False)):
            release = released(x, epsilon=1.0, delta=1e-6)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                release.correlation()
                assert not any("few long rows" in str(warning.message) for warning in caught)
                found, means = release.covariance(), release.mean_intervals()
                release.pca(n_components=1).intervals()
            assert sum("few long rows" in str(warning.message) for warning in caught) == 3 * long
            with warnings.catch_warnings(record=True) as caught:  # what noise alone hides is no warning
                warnings.simplefilter("always")
                released(x[:1000], epsilon=1.0, delta=1e-6).covariance()
            assert any("clipping has taken" in str(warning.message) for warning in caught) >= long
            if long:
                variances = x.var(axis=0)
                assert (np.diagonal(found.high) > 0.8 * variances).all()
                assert (means[:, 1] > x.mean(axis=0)).sum() >= 3
