"""Expected errors are found when someone asks: the same whenever, wherever and however often that is."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import solve_seeded

import dpgep
from dpgep.methods import eigen
from dpgep.methods.eigen import Accuracy

of_release = importlib.import_module("dpgep.methods.release")  # a function of this name hides the module
PROBLEMS = ["pca", "of many features", "standardized", "pls", "gep"]


def problem(name: str, rng: np.random.Generator) -> Any:
    d = of_release.MOST_FEATURES + 10 if name == "of many features" else 6
    x = rng.standard_normal((3000, d)) / 4 / np.sqrt(d)
    x[:, :2] *= 15 if name == "of many features" else 3
    x[:, d - 1] += x[:, 0]
    return {
        "pca": lambda: dpgep.pca(x, bound=1.0),
        "of many features": lambda: dpgep.pca(x, bound=1.0),
        "standardized": lambda: dpgep.pca(x, standardize=True, bound=1.0),
        "pls": lambda: dpgep.pls(x[:, :3], x[:, 3:], bound=1.0),
        "gep": lambda: dpgep.gep(x.T @ x / 3000, None, n=3000, sensitivity_a=2.0, sensitivity_b=0.0),
    }[name]()


def solved(name: str, seed: int = 0) -> dpgep.Solution:
    found = problem(name, np.random.default_rng(1))
    return solve_seeded(found, seed, epsilon=1.0, delta=1e-6, n_components=2, method="release")


def shown(solution: dpgep.Solution) -> bytes:
    found = solution.diagnostics
    errors = bytes(found.expected_error.tobytes()) + np.float64(found.expected_subspace_error).tobytes()
    assert found.noise_edge is not None
    return errors + bytes(found.noise_edge.tobytes())


@pytest.fixture
def simulations(monkeypatch: pytest.MonkeyPatch) -> list[Accuracy]:
    """What was simulated so far."""
    found: list[Accuracy] = []
    simulate = eigen.expected_accuracy

    def counted(*args: Any) -> Accuracy:
        found.append(simulate(*args))
        return found[-1]

    monkeypatch.setattr(eigen, "expected_accuracy", counted)
    return found


@pytest.mark.parametrize("name", PROBLEMS)
def test_errors_are_simulated_once_and_when_they_are_asked_for(name: str, simulations: list[Accuracy]) -> None:
    solution = solved(name)
    assert solution.diagnostics.lost[0] is False
    assert simulations == []
    errors = solution.diagnostics.expected_error
    assert 0 < errors[0] < 1
    assert solution.diagnostics.expected_error is errors
    assert solution.diagnostics.expected_subspace_error == simulations[0].span
    assert "expected error" in str(solution)
    assert len(simulations) == 1


@pytest.mark.parametrize("name", PROBLEMS)
def test_errors_do_not_depend_on_when_they_are_asked_for(name: str) -> None:
    at_once, later = shown(solved(name)), solved(name)
    others = [solved(name, seed) for seed in (1, 2)]
    np.random.default_rng(0).standard_normal(100)
    assert shown(others[1]) != at_once
    assert shown(later) == at_once
    assert shown(others[0]) == shown(solved(name, 1))


@pytest.mark.parametrize(
    "of_rows",
    [dpgep.pca, partial(dpgep.pca, standardize=True), lambda x: dpgep.pls(x[:, [0, 3, 4]], x[:, [1, 2, 5]])],
    ids=["pca", "standardized", "pls"],
)
def test_an_edge_far_below_all_components_is_found_when_it_is_asked_for(
    of_rows: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of a run which looks at once, and what deferred it was right: nothing is lost."""
    x = np.random.default_rng(0).standard_normal((20_000, 6)) * [1, 5, 0.4, 2, 1, 9] + 1
    x[:, [1, 5]] += 3 * x[:, [0, 3]] + [[2, -40]]
    made = of_rows(x)
    later = solve_seeded(made, epsilon=3.0, delta=1e-6, n_components=2)
    assert "_edge" in vars(later.diagnostics.accuracy)
    monkeypatch.setattr(eigen, "surely_found", lambda *_: False)
    at_once = solve_seeded(made, epsilon=3.0, delta=1e-6, n_components=2)
    np.testing.assert_array_equal(later.diagnostics.noise_edge, at_once.diagnostics.noise_edge)
    assert later.diagnostics.lost == at_once.diagnostics.lost == (False, False)


@pytest.mark.parametrize("ask", [copy.copy, copy.deepcopy, lambda solution: pickle.loads(pickle.dumps(solution))])
@pytest.mark.parametrize("name", PROBLEMS)
def test_copies_have_the_same_errors(ask: Any, name: str) -> None:
    solution, expected = solved(name), shown(solved(name))
    assert shown(ask(solution)) == expected
    assert shown(ask(ask(solution))) == expected
    assert shown(solution) == expected


def test_a_pickle_holds_errors_and_no_simulation() -> None:
    accuracy = solved("pca").diagnostics.accuracy
    assert "_simulate" in vars(accuracy)
    restored = pickle.loads(pickle.dumps(accuracy))
    assert sorted(vars(restored)) == ["bias", "edge", "errors", "lost", "span"]
    # what the simulation was made of is let go
    assert sorted(vars(accuracy)) == ["bias", "edge", "errors", "lost", "span"]
    assert repr(restored) == repr(accuracy)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_fork_has_the_same_errors() -> None:
    solution, (out, into) = solved("pca"), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(into, shown(solution))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(into)
    with os.fdopen(out, "rb") as found:
        assert found.read() == shown(solution)


def test_threads_that_ask_at_once_have_the_same_errors() -> None:
    for _ in range(20):
        solution = solved("pca")
        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(lambda _, each=solution: shown(each), range(8)))) == 1


def test_other_attributes_are_refused_without_a_simulation(simulations: list[Accuracy]) -> None:
    accuracy = solved("pca").diagnostics.accuracy
    with pytest.raises(AttributeError, match="'Accuracy' object has no attribute 'error'"):
        _ = accuracy.error  # type: ignore[attr-defined]
    assert not simulations


def test_warnings_of_lost_components_come_with_the_solution(simulations: list[Accuracy]) -> None:
    x = np.random.default_rng(0).standard_normal((500, 30)) / 8
    with pytest.warns(dpgep.errors.AccuracyWarning, match="components .* are lost") as caught:
        solution = dpgep.solve(dpgep.pca(x, bound=1.0), epsilon=0.1, delta=1e-6, n_components=2, method="release")
    assert caught[0].message.solution is solution  # type: ignore[union-attr]
    assert solution.diagnostics.lost == (True, True)
    assert not simulations
