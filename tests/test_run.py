"""What all runs share: their warnings point at the line that called them, and what is out of range costs nothing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import dpgep

X = np.random.default_rng(0).standard_normal((50, 4)) / 4
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 0.5, "seed": 1}


def counted_by_reading() -> Any:
    """A problem whose number of rows is known at the end of the pass alone."""
    return dpgep.pca(dpgep.scan(lambda: iter([X[:20], X[20:]])), center=False, bound=1.0)


RUNS: dict[str, Callable[[Any], Any]] = {
    "solve": lambda problem: dpgep.solve(problem, **BUDGET),
    "release": lambda problem: dpgep.release(problem, **BUDGET),
    "operator": lambda problem: dpgep.release(problem, **BUDGET, storage="operator"),
    "release, solved": lambda problem: dpgep.release(problem, **BUDGET).solve(1),
    "operator, solved": lambda problem: dpgep.release(problem, **BUDGET, storage="operator").solve(1),
}


@pytest.mark.parametrize(
    "problem", [lambda: dpgep.pca(X, center=False, bound=1.0), counted_by_reading], ids=["known", "counted"]
)
@pytest.mark.parametrize("name", RUNS)
def test_warnings_point_at_the_line_that_called(name: str, problem: Callable[[], Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RUNS[name](problem())
    assert {each.filename for each in caught} == {__file__}
    messages = [str(each.message) for each in caught]
    assert any("seeded" in message for message in messages)
    assert sum("below 1/n" in message for message in messages) == 1
    assert any("lost" in message for message in messages) == ("solve" in name)


HUGE = 10**30
OUT_OF_RANGE: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (partial(dpgep.release, storage="operator"), {"memory_limit": HUGE}),
    (partial(dpgep.release, storage="operator"), {"regularization": np.array([0.1])}),
    (partial(dpgep.release, storage="operator"), {"regularization": 10**400}),
    (dpgep.solve, {"storage": "operator", "memory_limit": HUGE}),
    (dpgep.solve, {"regularization": np.array([0.1])}),
    (dpgep.solve, {"regularization": 10**400}),
    (dpgep.solve, {"method": "rayleigh-flow", "memory_limit": HUGE}),
    (dpgep.solve, {"method": "rayleigh-flow", "n_iterations": HUGE}),
    (dpgep.solve, {"method": "rayleigh-flow", "step_size": np.array([0.1])}),
    (dpgep.solve, {"method": "rayleigh-flow", "step_size": 10**400}),
    (dpgep.solve, {"method": "rayleigh-flow", "regularization": np.array([0.1])}),
]


@pytest.mark.parametrize(("run", "options"), OUT_OF_RANGE)
def test_numbers_that_kernels_cannot_hold_cost_nothing(run: Callable[..., Any], options: dict[str, Any]) -> None:
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match=next(reversed(options))):
        run(dpgep.fda(X, X[:, 0] > 0, classes=[False, True], bound=1.0), budget=budget, **options)
    assert budget.spent_mu == 0


@pytest.mark.parametrize("n", [math.inf, math.nan, None, np.True_, np.array([50]), "50"])
def test_a_number_of_people_is_one_whole_number(n: Any) -> None:
    with pytest.raises(ValueError, match="n must be a positive whole number"):
        dpgep.gep(np.eye(3), n=n, sensitivity_a=2.0)
    if n is not None:
        with pytest.raises(ValueError, match="public_n must be a positive whole number"):
            dpgep.pca(X, adjacency="add-remove", public_n=n, bound=1.0)
