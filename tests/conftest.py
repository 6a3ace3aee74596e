"""Generators of data that several test files share."""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import warnings
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

import dpgep
from dpgep._dispatch import core

Matrix = NDArray[np.float64]

# How long an example takes is the machine's affair.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# What is imported and collected stays: to look for garbage in it takes a fifth of the time, where assertions are
# rewritten a third.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """One thread of BLAS in each of several worker processes: more would spin in each other's way, for twice the time.

    Those that are about threads set their number.
    """
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The cases of a grid marked `one_in(k)` are deep, but for those whose places add up to a multiple of k.

    As in a Latin square, every value of a parameter is among them if another parameter has k values. Tests of
    distributions are deep: their noise is seeded, so that another machine would see what CI has seen.
    """
    found: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("statistical"):
            item.add_marker(pytest.mark.deep)
        mark = item.get_closest_marker("one_in")
        if mark is not None:
            test, places = item.nodeid.partition("[")[0], 0
            number = found[test]
            for _, values in reversed([grid.args for grid in item.iter_markers("parametrize")]):
                number, place = divmod(number, len(values))
                places += place
            if places % mark.args[0]:
                item.add_marker(pytest.mark.deep)
            found[test] += 1


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Streams without a seed get one from the test's name: the noise of a test is the same in every run.

    Tests of the streams themselves are marked `entropy` and get the operating system's.
    """
    if item.get_closest_marker("entropy"):
        return (yield)
    with noise_from(f"tests/{item.path.name}::{item.nodeid.partition('::')[2]}"):
        return (yield)


@contextmanager
def noise_from(name: str) -> Iterator[Iterator[int]]:
    """Streams without a seed get one from a name and their number; what is yielded has the next number."""
    real, numbers = core.NoiseStream, itertools.count()

    def stream(*key_and_nonce: Any, **transcript: Any) -> core.NoiseStream:
        given = key_and_nonce or (hashlib.sha256(f"{name} {next(numbers)}".encode()).digest(),)
        return real(*given, **transcript)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "NoiseStream", stream)
        yield numbers


def unit_rows(x: Matrix) -> Matrix:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all that its causes and contexts lead to, hidden from tracebacks or not."""
    if error is not None:
        yield error
        yield from chain_of(error.__cause__)
        yield from chain_of(error.__context__)


@pytest.fixture
def data_errors_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No error about data that a test raises has another in its chain, which might quote a person's value."""
    raised: list[dpgep.errors.DataError] = []

    def noted(self: dpgep.errors.DataError, *arguments: Any) -> None:
        raised.append(self)

    monkeypatch.setattr(dpgep.errors.DataError, "__init__", noted)
    yield
    for error in raised:
        assert list(chain_of(error)) == [error]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240611)


@pytest.fixture
def correlated_rows(rng: np.random.Generator) -> Matrix:
    """300 rows in the unit ball with distinct eigenvalues and a mean away from zero."""
    scales = np.array([3.0, 2.0, 1.4, 1.0, 0.7, 0.5])
    x = rng.standard_normal((300, 6)) * scales + np.array([1.0, -0.5, 0.0, 0.3, 0.0, 0.0])
    return np.asarray(x / (np.linalg.norm(x, axis=1).max() * 1.001))


@pytest.fixture
def labelled_rows(rng: np.random.Generator) -> tuple[Matrix, NDArray[np.intp]]:
    """400 rows of 4 classes in the unit ball."""
    labels = rng.integers(0, 4, 400)
    centres = rng.standard_normal((4, 5))
    x = centres[labels] + rng.standard_normal((400, 5)) * np.array([0.4, 0.6, 0.8, 1.0, 1.2])
    return np.asarray(x / (np.linalg.norm(x, axis=1).max() * 1.001)), labels


def solve_seeded(problem: Any, seed: int = 0, **arguments: Any) -> dpgep.Solution:
    """`dpgep.solve` with a seed, for reproducible tests; its two expected warnings are silenced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        return dpgep.solve(problem, seed=seed, **arguments)


@contextmanager
def nothing_spent(budget: dpgep.Budget) -> Iterator[None]:
    """The block must raise (asserted by the caller) and leave the budget whole."""
    before = budget.remaining_mu
    yield
    assert budget.releases == ()
    assert budget.remaining_mu == before


def data_set(name: str) -> Any:
    """A file of the folder that DPGEP_DATA names; the test is skipped without it."""
    folder = os.environ.get("DPGEP_DATA")
    if not folder:
        pytest.skip("DPGEP_DATA is not set: no real data sets beside scikit-learn's own")
    return np.load(Path(folder) / f"{name}.npz", allow_pickle=False)


@pytest.fixture(params=["any dimension is narrow", "none is"])
def dense_sums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense rows are summed by the kernel for narrow matrices, and by BLAS."""
    monkeypatch.setattr(core, "narrow_dimension", 1 << 30 if "any" in request.param else 0)
