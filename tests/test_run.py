"""What all runs share: their warnings point at the line that called them, also those that follow from a solution."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dpgep

X = np.random.default_rng(0).standard_normal((50, 4)) / 4
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 0.5, "seed": 1}


def counted_by_reading() -> Any:
    """A problem whose number of rows is known at the end of the pass alone."""
    return dpgep.pca(dpgep.scan(lambda: iter([X[:20], X[20:]])), center=False)


RUNS: dict[str, Callable[[Any], Any]] = {
    "solve": lambda problem: dpgep.solve(problem, **BUDGET),
    "release": lambda problem: dpgep.release(problem, **BUDGET),
    "operator": lambda problem: dpgep.private_operator(problem, **BUDGET),
    "release, solved": lambda problem: dpgep.release(problem, **BUDGET).solve(1),
    "operator, solved": lambda problem: dpgep.private_operator(problem, **BUDGET).solve(1),
}


@pytest.mark.parametrize("problem", [lambda: dpgep.pca(X, center=False), counted_by_reading], ids=["known", "counted"])
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
