"""What every method declares is what it does, and what the table of methods in the documentation says."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from conftest import nothing_spent, solve_seeded
from every_run import D, matrix_problem, runs

import dpgep
from dpgep.methods import METHODS
from dpgep.methods.base import Data, Method

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "methods.md"
OPTIONS = {name: options for name, options in reversed(runs(D))}
WORDS = {"rows": "rows in memory", "streams": "streams", "matrices": "matrices", "sums": "`Moments`"}


def row_of_the_table(method: Method) -> str:
    """The line about one method."""
    sparsity = {field.name: field.default for field in dataclasses.fields(method.options)}.get("sparsity", "")
    passes = "one" if method.options(**needed(method)).in_one_pass(D) else "several"
    cells = [
        f'`"{method.name}"`',
        "; ".join(need.summary for need in method.needs) or "any problem",
        ", ".join(WORDS[each] for each in method.data),
        passes,
        {"": "no", 0: "needed", None: "optional"}[sparsity],
        "yes" if method.keeps_moments else "no",
        "an (ε, δ) of its own" if method.whole_budget else "any",
        f"`{method.options.__module__}.{method.options.__name__}`",
        ", ".join(f"`{each.__module__}.{each.__name__}`" for each in method.diagnostics),
    ]
    return f"| {' | '.join(cells)} |"


def needed(method: Method) -> dict[str, Any]:
    """The options without which a method does not run."""
    return {"sparsity": 3} if OPTIONS[method.name].get("sparsity") else {}


def test_the_table_of_the_documentation_is_the_declaration() -> None:
    heading = (
        "| method | needs | data | passes | sparse components | intervals, questions | budget | options | "
        "`solution.diagnostics` |"
    )
    table = [heading, "|---|---|---|---|---|---|---|---|---|", *map(row_of_the_table, METHODS.values())]
    assert "\n".join(table) in PAGE.read_text(encoding="utf-8")


def test_the_page_shows_every_class_of_options_and_diagnostics() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for method in METHODS.values():
        for each in (method.options, *method.diagnostics):
            assert f"::: {each.__module__}.{each.__name__}\n" in text


def problem_of(data: Data) -> Any:
    """Data that every method takes which takes data of this kind."""
    rows = np.random.default_rng(3).standard_normal((400, D)) * np.linspace(2.0, 0.5, D) / 4
    if data == "matrices":
        return matrix_problem()
    if data == "rows":
        return dpgep.pca(rows, center=False, bound=2.0)
    if data == "streams":
        return dpgep.pca(dpgep.scan([rows[:150], rows[150:]]), center=False, bound=2.0)
    moments = dpgep.Moments(dpgep.models.PcaModel(D, center=False), bound=2.0)
    moments.update(rows)
    return moments


@pytest.mark.parametrize("data", get_args(Data))
@pytest.mark.parametrize("name", METHODS)
def test_data_are_served_or_refused_as_declared(name: str, data: Data) -> None:
    method, problem, budget = METHODS[name], problem_of(data), dpgep.Budget(epsilon=1.0, delta=1e-5)
    options = {**OPTIONS[name], "n_components": 1, "method": name}
    if data in method.data:
        solution = solve_seeded(problem, 1, budget=budget, **options)
        assert solution.components.shape == (1, D)
        if data == "rows":
            assert (solution._moments is not None) == method.keeps_moments
    else:
        with nothing_spent(budget), pytest.raises((ValueError, TypeError)):
            solve_seeded(problem, 1, budget=budget, **options)


@pytest.mark.parametrize("name", METHODS)
def test_budgets_are_taken_as_declared(name: str) -> None:
    budget, options = dpgep.Budget(mu=1.0), {**OPTIONS[name], "n_components": 1, "method": name}
    if METHODS[name].whole_budget:
        with nothing_spent(budget), pytest.raises(dpgep.errors.PrivacyBudgetError):
            solve_seeded(problem_of("rows"), 1, budget=budget, **options)
    else:
        assert solve_seeded(problem_of("rows"), 1, budget=budget, **options).privacy.mu == pytest.approx(1.0)


@pytest.mark.parametrize("name", METHODS)
def test_rows_that_are_read_once_serve_methods_of_one_pass(name: str) -> None:
    rows = np.random.default_rng(3).standard_normal((400, D)) / 4
    method, budget = METHODS[name], dpgep.Budget(epsilon=1.0, delta=1e-5)
    problem = dpgep.pca(dpgep.scan(iter([rows[:150], rows[150:]])), center=False, bound=2.0)
    options = {**needed(method), "n_components": 1, "method": name}
    if "streams" in method.data and method.options(**needed(method)).in_one_pass(D):
        assert solve_seeded(problem, 1, budget=budget, **options).passes == 1
    else:
        with nothing_spent(budget), pytest.raises(ValueError, match=r"can be read only once|before rows are read"):
            solve_seeded(problem, 1, budget=budget, **options)


@pytest.mark.parametrize("name", METHODS)
def test_a_matrix_free_release_serves_methods_of_products_alone(name: str) -> None:
    operator = dpgep.release(problem_of("rows"), mu=5.0, storage="operator")
    if METHODS[name].by_products is None:
        with pytest.raises(ValueError, match="method must be one that needs only products, 'rayleigh-flow'"):
            operator.solve(1, method=name)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
            assert operator.solve(1, method=name, **needed(METHODS[name])).components.shape == (1, D)
