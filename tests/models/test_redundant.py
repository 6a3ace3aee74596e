"""What the indicators of a category have in common is left out where B shows no variance of it, and that is said."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Matrix

import dpgep
from dpgep.models import FdaModel
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.redundant import Redundancy

pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning", "ignore::dpgep.errors.PrivacyWarning")

WARDS, N = ("medicine", "surgery", "intensive care"), 3000
ANSWERS = np.array(["no", "yes"])


def patients(seed: int, n: int = N) -> tuple[pd.DataFrame, Any, Matrix]:
    """Patients with two categories, a label and a response that their frailty moves."""
    rng = np.random.default_rng(seed)
    frailty = rng.normal(size=n)
    table = pd.DataFrame({name: frailty + rng.normal(size=n) for name in ("age", "pressure", "stay")})
    table["ward"] = pd.Categorical(rng.choice(WARDS, n, p=[0.6, 0.3, 0.1]), categories=WARDS)
    table["sex"] = pd.Categorical(rng.choice(["F", "M"], n), categories=["F", "M"])
    return table, ANSWERS[(rng.random(n) < 1 / (1 + np.exp(-frailty))).astype(int)], frailty + rng.normal(size=n)


def sums_of(solution: dpgep.Solution, row: int = 0) -> Matrix:
    """Parts of a component, in units of the scales, along the sums of the indicators of ward and of sex."""
    names, scale = solution.feature_names, solution.scale
    assert names is not None
    assert scale is not None
    sums = np.array([[name.startswith(f"{column}=") for name in names] for column in ("ward", "sex")]) * scale
    return np.asarray(sums @ solution.relative_components[row] / np.linalg.norm(sums, axis=1))


PROBLEMS: dict[str, Callable[[pd.DataFrame, Any, Matrix], Any]] = {
    "fda": lambda table, labels, y: dpgep.fda(table, labels, classes=["no", "yes"]),
    "sir": lambda table, labels, y: dpgep.sir(table, y, slices=4, y_range=(-3, 3)),
    "cca": lambda table, labels, y: dpgep.cca(table, np.column_stack([y, table["age"] + 1.0])),
    "no categories": lambda table, labels, y: dpgep.fda(table[["age", "stay"]], labels, classes=["no", "yes"]),
}


@pytest.mark.parametrize("name", ["fda", "sir", "cca"])
def test_a_component_has_no_part_along_the_sum_of_indicators(name: str) -> None:
    table, labels, y = patients(0)
    for seed in range(3):
        solution = dpgep.solve(PROBLEMS[name](table, labels, y), epsilon=1.0, delta=1e-5, n_components=1, seed=seed)
        np.testing.assert_allclose(sums_of(solution), 0.0, atol=1e-9)
        assert solution.diagnostics.left_out == (  # type: ignore[attr-defined]
            "ward=medicine + ward=surgery + ward=intensive care",
            "sex=F + sex=M",
        )
        assert "left out     sex=F + sex=M, which is 1 for everybody" in str(solution)
        assert np.isfinite(solution.intervals().angles).all()


def test_a_table_without_categories_leaves_nothing_out() -> None:
    table, labels, y = patients(0)
    solution = dpgep.solve(PROBLEMS["no categories"](table, labels, y), epsilon=1.0, delta=1e-5, seed=0)
    assert solution.diagnostics.left_out == ()  # type: ignore[attr-defined]
    assert "left out" not in str(solution)


def test_without_noise_it_is_the_solution_of_what_is_left() -> None:
    """Of indicators without the last of each column, with the same scores; B is not said to be singular."""
    table, labels, _ = patients(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpgep.errors.AccuracyWarning)
        found = dpgep.solve(dpgep.fda(table, labels, classes=["no", "yes"], bound=100.0), epsilon=math.inf)
    rows = pd.get_dummies(table).to_numpy(float)
    few = rows[:, [0, 1, 2, 3, 4, 6]]
    oracle = dpgep.solve(dpgep.fda(few, labels, classes=["no", "yes"], bound=100.0), epsilon=math.inf)
    scores = [x @ each.components[0] for x, each in ((rows, found), (few, oracle))]
    assert abs(np.corrcoef(scores)[0, 1]) == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(found.eigenvalues, oracle.eigenvalues, rtol=1e-8)
    assert len(found.diagnostics.left_out) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("epsilon", [3.0, math.inf])
def test_people_without_a_category_are_a_direction_like_others(epsilon: float) -> None:
    """Of those without a ward most are readmitted: their contrast to all others is the first component."""
    table, _, _ = patients(2, 20_000)
    rng = np.random.default_rng(0)
    absent = rng.random(len(table)) < 0.2
    table.loc[absent, "ward"] = None
    labels = ANSWERS[(rng.random(len(table)) < np.where(absent, 0.9, 0.1)).astype(int)]
    solution = dpgep.solve(
        dpgep.fda(table, labels, classes=["no", "yes"]), epsilon=epsilon, delta=1e-5, n_components=1, seed=0
    )
    assert solution.diagnostics.left_out == ("sex=F + sex=M",)  # type: ignore[attr-defined]
    assert abs(sums_of(solution)[0]) > 0.9


def test_answers_from_a_release_leave_it_out_where_all_indicators_are_asked_for() -> None:
    table, labels, _ = patients(3)
    released = dpgep.release(table, labels=labels, classes=["no", "yes"], epsilon=1.0, delta=1e-5, seed=0)
    assert len(released.fda().diagnostics.left_out) == 2  # type: ignore[attr-defined]
    some = released.fda(["sex=M", "age", "stay", "ward=surgery", "sex=F"])
    assert some.diagnostics.left_out == ("sex=F + sex=M",)  # type: ignore[attr-defined]
    views = released.cca(["age", "sex=F", "sex=M"], ["stay", "ward=medicine", "ward=surgery"])
    assert views.diagnostics.left_out == ("sex=F + sex=M",)  # type: ignore[attr-defined]
    apart = released.cca(["age", "sex=F"], ["stay", "sex=M"])  # each alone is a column like others
    assert apart.diagnostics.left_out == ()  # type: ignore[attr-defined]


def test_a_regression_on_all_indicators_has_contrasts_of_the_size_that_they_have() -> None:
    """A coefficient of +-1 between the sexes, whose indicators are collinear with the intercept."""
    rng = np.random.default_rng(0)
    table, _, _ = patients(4, 20_000)
    table["cost"] = 2.0 * table["age"] + (table["sex"] == "M") + rng.normal(size=len(table))
    released = dpgep.release(table, epsilon=1.0, delta=1e-6, seed=0)
    fit = released.regression("cost", ["age", "sex=F", "sex=M"])
    of = dict(zip(fit.names, fit.coefficients, strict=True))
    assert of["sex=M"] - of["sex=F"] == pytest.approx(1.0, abs=0.3)
    assert of["age"] == pytest.approx(2.0, abs=0.2)
    assert np.abs(fit.coefficients).max() < 3
    assert fit.left_out == ("sex=F + sex=M",)
    assert "left out  sex=F + sex=M" in str(fit)
    assert released.regression("cost", ["age", "sex=F"]).left_out == ()


def test_a_regression_without_noise_has_the_predictions_of_one_on_independent_columns() -> None:
    table, _, y = patients(5)
    table["cost"] = y + (table["ward"] == "surgery")
    released = dpgep.release(table, epsilon=math.inf)
    x = ["age", "stay", *(f"ward={ward}" for ward in WARDS)]
    whole, few = released.regression("cost", x), released.regression("cost", x[:-1])
    matrix = pd.get_dummies(table[["age", "stay", "ward"]], prefix_sep="=")[x].astype(float)
    np.testing.assert_allclose(whole.predict(matrix), few.predict(matrix[x[:-1]]), atol=1e-8)
    assert whole.residual_variance == pytest.approx(few.residual_variance, rel=1e-9)
    contrast = whole.coefficients[3] - whole.coefficients[2]
    assert contrast == pytest.approx(few.coefficients[3] - few.coefficients[2], rel=1e-8)


def test_directions_follow_the_map_of_the_rows() -> None:
    """(linear v)/scale is the sum of the indicators, for each direction v."""
    rng = np.random.default_rng(0)
    model = FdaModel(5, ("a", "b"), feature_names=tuple("vwxyz"), indicators=((0, 1), (2, 4)))
    scale, linear = rng.uniform(0.5, 2.0, 5), rng.normal(size=(5, 5)) + 3 * np.eye(5)
    preprocessing = Preprocessing(1.0, scale=scale, linear=linear)
    found = Redundancy.of(model, preprocessing)
    assert found is not None
    rows = (preprocessing.linear @ found.directions.T).T / scale  # type: ignore[operator]
    np.testing.assert_allclose(rows * found.units[:, None], [[1, 1, 0, 0, 0], [0, 0, 1, 0, 1]], atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(found.directions, axis=1), 1.0)
    assert found.names == ("v + w", "x + z")
    across = found.complement(model.views)
    np.testing.assert_allclose(found.directions @ across, 0.0, atol=1e-12)
    np.testing.assert_allclose(across.T @ across, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("wrong", [((0, 1), (1, 2)), ((0, 5),), ((-1, 0),)])
def test_indicators_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="indicators and dates must be features from 0 to 4, each once"):
        FdaModel(5, ("a", "b"), indicators=wrong)


def test_a_stored_release_knows_its_indicators(tmp_path: Any) -> None:
    table, labels, _ = patients(6)
    released = dpgep.release(table, labels=labels, classes=["no", "yes"], epsilon=1.0, delta=1e-5, seed=0)
    released.save(tmp_path / "release")
    again = dpgep.load(tmp_path / "release")
    np.testing.assert_array_equal(again.fda().components, released.fda().components)
    assert again.model.indicators == ((3, 4, 5), (6, 7))


@pytest.mark.parametrize("listed", [["coast"], ["coast", None]])
@pytest.mark.parametrize("model", ["cca", "fda", "sir"])
def test_a_view_of_one_category_is_served(model: str, listed: list[str | None]) -> None:
    """Whether it varies, by people without a category, shows once the budget is spent."""
    table, labels, y = patients(2)
    regions = np.random.default_rng(3).choice(np.array(listed, dtype=object), N)
    region = pd.DataFrame({"region": pd.Categorical(regions, categories=["coast"])})
    problems = {
        "cca": lambda: dpgep.cca(table[["age", "stay"]], region),
        "fda": lambda: dpgep.fda(region, labels, classes=["no", "yes"]),
        "sir": lambda: dpgep.sir(region, y, slices=4, y_range=(-3, 3)),
    }
    solution = dpgep.solve(problems[model](), epsilon=1.0, delta=1e-5, seed=0)
    assert np.isfinite(solution.components).all()
    assert solution.diagnostics.left_out == ()  # type: ignore[attr-defined]
    assert solution.diagnostics.lost == ((True,) if model == "cca" else (False,))  # one feature is a direction
