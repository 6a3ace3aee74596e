"""Columns of tables in fixed point: the bits of their rows, whatever the columns hold."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import reference
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

DTYPES = ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
BOUNDS = [1.0, 0.7, 30.0, 2.0**-448, 2.0**-450, 1e-300, 1e300, sys.float_info.min]


def by_columns(
    columns: list[NDArray[Any]], bound: float, bits: int, first: int = 0, n_threads: int = 1
) -> NDArray[np.float64]:
    memory = np.full((len(columns), len(columns[0]) - first + 3), 7.0)
    out = memory[:, 1:-2]
    assert core.fixed_point_columns(columns, first, bound, bits, out, n_threads)
    assert (memory[:, [0, -2, -1]] == 7.0).all()
    return out.T


def by_rows(columns: list[NDArray[Any]], bound: float, bits: int) -> NDArray[np.float64]:
    rows = np.stack([column.astype(np.float64) for column in columns], axis=1)
    assert core.fixed_point_rows(rows, bound, bits, rows)
    return rows


def columns_of(rows: NDArray[Any]) -> list[NDArray[Any]]:
    return [np.ascontiguousarray(column) for column in rows.T]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [1.0, 40.0, 500.0])
def test_equality_with_the_reference(dtype: str, bound: float) -> None:
    rng = np.random.default_rng(3)
    rows = (30.0 * rng.standard_normal((300, 21))).clip(0 if dtype[0] == "u" else -99, 99).astype(dtype)
    rows[7] = 0
    expected = reference.fixed_point_rows(rows, bound, 20)
    np.testing.assert_array_equal(by_columns(columns_of(rows), bound, 20), expected)


@given(st.data(), st.sampled_from(BOUNDS), st.integers(4, 20), st.sampled_from(["f4", "f8"]))
@drawn(300)
def test_any_finite_entries_have_the_bits_of_rows(data: Any, bound: float, bits: int, dtype: str) -> None:
    width = 32 if dtype == "f4" else 64
    anything = st.floats(allow_nan=False, allow_infinity=False, width=width)
    near_underflow = st.integers(-(2**20), 2**20).map(lambda k: k * 2.0**-470 if dtype == "f8" else 0.0)
    entries = st.one_of(anything, near_underflow)
    shape = st.tuples(st.integers(1, 5), st.integers(1, 40))
    columns = columns_of(data.draw(npst.arrays(dtype, shape, elements=entries)))
    np.testing.assert_array_equal(by_columns(columns, bound, bits), by_rows(columns, bound, bits))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (127, 3), (128, 8), (129, 9), (1000, 100), (20, 3000)])
def test_rows_of_any_length_and_magnitude_have_the_bits_of_rows(n: int, d: int, n_threads: int) -> None:
    rng = np.random.default_rng([n, d])
    rows = rng.standard_normal((n + 5, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)  # on the ball, or nearly
    rows *= 10.0 ** rng.choice([-400.0, -310.0, -170.0, -135.4, -1.0, 0.0, 1.0, 170.0, 300.0], (n + 5, 1))
    columns = columns_of(rows)
    for bound in (1.0, 2.0**-449, 2.0**-451, 1e-300, 1e300):
        expected = by_rows([column[5:] for column in columns], bound, 20)
        np.testing.assert_array_equal(by_columns(columns, bound, 20, 5, n_threads), expected)


def test_a_row_that_rounding_lifts_out_of_the_ball_is_shrunk() -> None:
    # as in test_fixed_point: the grid points of the equal entries are hit exactly, and a further one is too many
    d = 2**20 + 1
    rows = np.full((5, d), 0.1)
    scales = np.random.default_rng(1).uniform(1.0, 2.0, 4)
    rows[:4] = scales[:, None]
    rows[:4, -1] = scales / 1024.0 * (1.0 + 1e-6)
    out = by_columns(list(np.ascontiguousarray(rows.T)), 1.0, 20)
    assert (np.sum(out**2, axis=1) <= 4.0**20).all()
    expected = rows.copy()
    assert core.fixed_point_rows(expected, 1.0, 20, expected)
    np.testing.assert_array_equal(out, expected)


def test_columns_of_several_kinds() -> None:
    rng = np.random.default_rng(5)
    columns = [rng.integers(0, 90, 500).astype(dtype) for dtype in DTYPES] + [rng.standard_normal(500)]
    np.testing.assert_array_equal(by_columns(columns, 100.0, 20), by_rows(columns, 100.0, 20))
    big = [np.full(3, 2**63 + 1025, np.uint64), np.full(3, -(2**62) - 1, np.int64)]
    np.testing.assert_array_equal(by_columns(big, 2.0**63, 20), by_rows(big, 2.0**63, 20))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("place", [0, 130, 399])
def test_what_is_not_finite_is_told(bad: float, dtype: str, place: int) -> None:
    rows = np.ones((400, 3), dtype)
    rows[place, 1] = bad
    out = np.empty((3, 400))
    for n_threads in (1, 3):
        assert not core.fixed_point_columns(columns_of(rows), 0, 1.0, 20, out, n_threads)
    rows[place, 1] = 1e30
    assert core.fixed_point_columns(columns_of(rows), 0, 1.0, 20, out)


@pytest.mark.parametrize(
    ("columns", "first", "bound", "bits", "out", "error", "message"),
    [
        ([np.zeros(4)] * 2, 1, 1.0, 20, np.zeros((2, 4)), ValueError, "a column has fewer entries than first and"),
        ([np.zeros(4)] * 2, -1, 1.0, 20, np.zeros((2, 4)), ValueError, "first must be >= 0, not -1"),
        ([np.zeros(4)] * 2, 0, 1.0, 20, np.zeros((3, 4)), ValueError, "out must have 2 rows, not 3"),
        ([np.zeros(4)] * 2, 0, 0.0, 20, np.zeros((2, 4)), ValueError, "bound must satisfy"),
        ([np.zeros(4)] * 2, 0, 1.0, 21, np.zeros((2, 4)), ValueError, "bits must satisfy 4 <= bits <= 20, not 21"),
        ([np.zeros(0)] * 2, 0, 1.0, 3, np.zeros((2, 0)), ValueError, "bits must satisfy 4 <= bits <= 20, not 3"),
        ([np.zeros(8)[::2]] * 2, 0, 1.0, 20, np.zeros((2, 4)), ValueError, "a column must have a contiguous last axis"),
        ([np.zeros((4, 1))] * 2, 0, 1.0, 20, np.zeros((2, 4)), ValueError, "a column must have ndim == 1"),
        ([np.zeros(4, "?")] * 2, 0, 1.0, 20, np.zeros((2, 4)), TypeError, "a column must hold floating-point numbers"),
        ([np.zeros(4, "f2")] * 2, 0, 1.0, 20, np.zeros((2, 4)), TypeError, "or integers, not float16"),
        ([np.zeros(4, ">f8")] * 2, 0, 1.0, 20, np.zeros((2, 4)), TypeError, "or integers, not >f8"),
        ([[0.0] * 4] * 2, 0, 1.0, 20, np.zeros((2, 4)), TypeError, "columns must be NumPy arrays"),
        ([np.zeros(4)] * 2, 0, 1.0, 20, np.zeros((2, 4), "f4"), TypeError, "out must have dtype float64"),
    ],
)
def test_what_does_not_fit_is_refused(
    columns: Any, first: int, bound: float, bits: int, out: Any, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        core.fixed_point_columns(columns, first, bound, bits, out)
    with pytest.raises(ValueError, match="n_threads must satisfy n_threads >= 1"):
        core.fixed_point_columns([np.zeros(4)], 0, 1.0, 20, np.zeros((1, 4)), 0)


def test_columns_must_not_overlap_what_is_written() -> None:
    memory = np.zeros((4, 4))
    with pytest.raises(ValueError, match="a column and out must not overlap"):
        core.fixed_point_columns([memory[0], memory[3]], 0, 1.0, 20, memory[:2])
