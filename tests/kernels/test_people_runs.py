"""Runs of bins that hold people, by the kernel, plainly, and by looking at all runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from variants import kernels

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

KERNELS = kernels()
# as stages count: whole steps of a grid, so that no sum is rounded
COUNTS = hnp.arrays(np.float64, (3, 9), elements=st.integers(-(2**24), 2**26).map(lambda steps: steps / 2**20))
DEVIATIONS = st.one_of(st.just(0.0), st.floats(1e-3, 10.0))
TAILS = st.sampled_from([(0.0, 2.5, 0.1), (0.005, 4.0, 0.1), (0.2, 0.0, 0.5), (0.0, 0.0, 0.0)])
STARTS, WIDTHS = np.array([0, 4, 8]), np.array([9, 3, 0])


@given(COUNTS, DEVIATIONS, TAILS)
def test_kernels_agree_with_the_reference(counts: Any, deviation: float, tails: tuple[float, float, float]) -> None:
    apart = np.full((3, 11), np.nan)  # rows apart: what lies between them is not read
    apart[:, 1:10] = counts
    for name, kernel in KERNELS.items():
        *found, none = kernel.people_runs(apart[:, 1:10], STARTS, WIDTHS, deviation, *tails)
        assert none.tolist() == [8, 7, 0.0, -math.inf], name
        for (first, last, *sizes), row, start, width in zip(found, counts, STARTS, WIDTHS, strict=False):
            expected = reference.people_run(row[start : start + width], deviation, *tails)
            assert (first - start, last - start, *sizes) == expected, name


@given(COUNTS, st.floats(1e-3, 10.0))
def test_no_run_rises_further(counts: Any, deviation: float) -> None:
    runs = core.people_runs(counts, np.zeros(3, np.int64), np.full(3, 9), deviation, 0.0, 0.0, 0.0)
    for (first, last, people, rise), row in zip(runs, counts, strict=True):
        rises = {(i, j): sum(row[i : j + 1] - deviation) for i in range(9) for j in range(i, 9)}
        assert rise == pytest.approx(max(rises.values()), abs=1e-9)
        if rise > 0:  # nothing is left outside: whoever is there counts
            assert rises[first, last] == pytest.approx(rise, abs=1e-9)
            assert people == row[int(first) : int(last) + 1].sum()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"starts": np.zeros(2, np.int64)}, ValueError, "one entry for each histogram"),
        ({"widths": np.array([9, 9, 10])}, ValueError, "must be of bins"),
        ({"starts": np.array([0, 0, 1])}, ValueError, "must be of bins"),
        ({"starts": np.array([0, 0, -1])}, ValueError, "must be of bins"),
        ({"starts": np.zeros(3)}, TypeError, "starts must have dtype int64"),
        ({"histograms": np.zeros((3, 9), np.int64)}, TypeError, "histograms must have dtype float64"),
        ({"histograms": np.zeros((3, 18))[:, ::2]}, ValueError, "contiguous last axis"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], error: type[Exception], message: str) -> None:
    given: dict[str, Any] = {"histograms": np.zeros((3, 9)), "starts": np.zeros(3, np.int64), "widths": np.full(3, 9)}
    with pytest.raises(error, match=message):
        core.people_runs(**{**given, **change}, deviation=1.0, least=0.0, noise=0.0, most=0.0)
