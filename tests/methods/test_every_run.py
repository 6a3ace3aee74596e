"""What holds of every method with every model: budgets are kept, and what is refused costs nothing."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from conftest import nothing_spent, solve_seeded
from every_run import MATRIX_ALONE, PCA_ALONE, SECOND_MOMENT_ALONE, D, of_a_matrix_alone, problem_named, problems, runs

import dpgep
from dpgep.methods import METHODS
from dpgep.models import MODELS

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
OPTIONS = {name: options for name, options in reversed(runs(D))}


def test_every_model_has_a_problem() -> None:
    assert {name.split()[0] for name in problems() | of_a_matrix_alone()} == set(MODELS) - {"table"}


def runs_of_models() -> list[Any]:
    """What no privacy loss distribution accounts for (that: test_stochastic.py), with all models that it serves."""
    cases = []
    for method, options in runs(D):
        if method == "local-gaussian":
            served = [("pca uncentred", "replace-one")]
        elif method in PCA_ALONE:
            served = [(name, "replace-one") for name in ("pca", "pca uncentred", "pls", "cca")]
        elif method in SECOND_MOMENT_ALONE:
            served = []
        else:
            served = [*itertools.product(problems(), ("replace-one", "add-remove")), ("gep", "replace-one")]
        if method == "sr-dp" or (method == "release" and options in MATRIX_ALONE):
            served += itertools.product(of_a_matrix_alone(), ("replace-one", "add-remove"))
        for name, adjacency in served:
            # no public number bounds the eigenvalues of a given B
            step = {"step_size": 0.5} if name == "gep" and method == "rayleigh-flow" else {}
            cases.append(pytest.param(method, options | step, name, adjacency, id=f"{method}-{name}-{adjacency}"))
    return cases


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("method", "options", "name", "adjacency"), runs_of_models())
def test_the_ledger_composes_to_the_budget(method: str, options: dict[str, Any], name: str, adjacency: str) -> None:
    problem = problem_named(name, adjacency)
    report = solve_seeded(problem, 1, **BUDGET, n_components=1, method=method, **options).privacy
    mu = dpgep.Budget(**BUDGET).mu
    total = math.fsum(release.mu**2 for release in report.releases)
    assert mu**2 * (1 - 1e-9) < total <= mu**2 * (1 + 1e-15)
    assert 1.0 - 1e-12 < report.epsilon <= 1.0
    assert report.mu == pytest.approx(mu, rel=1e-9)
    assert report.exact


def unreadable(method: str) -> Any:
    """A problem whose rows cannot be released: whatever is refused before they are read gives another message."""
    return dpgep.pca(np.full((100, D), np.nan), center=method not in SECOND_MOMENT_ALONE, bound=1.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({}, ValueError, "NaN or infinite values"),
        ({"speed": 2}, TypeError, "has no option 'speed'"),
        ({"n_components": D + 1}, ValueError, f"pca of {D} features has {D} components"),
        ({"n_components": 0}, ValueError, "n_components"),
        ({"share": 1.5}, ValueError, r"share must lie in \(0, 1\]"),
    ],
    ids=["rows", "option", "many components", "no component", "share"],
)
def test_refused_before_spending(method: str, wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    budget = dpgep.Budget(**BUDGET)
    arguments = {"n_components": 1, **OPTIONS[method], **wrong}
    with nothing_spent(budget), pytest.raises(error, match=message):
        dpgep.solve(unreadable(method), budget=budget, method=method, **arguments)
