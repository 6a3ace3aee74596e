"""Moment matrices of narrow dense rows, from data to integers in one kernel."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from variants import kernels

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

Integers = NDArray[np.int64]
KERNELS = kernels()


def forms(rows: NDArray[Any]) -> list[Any]:
    """The same people as a matrix, as a part of one, and as columns."""
    n, d = rows.shape
    wide = np.zeros((n, d + 3), rows.dtype)
    wide[:, 2 : d + 2] = rows
    return [rows, wide[:, 2 : d + 2], [np.ascontiguousarray(column) for column in rows.T]]


def in_limbs(low: Integers, high: Integers) -> list[int]:
    return [int(a) + (int(b) << 40) for a, b in zip(low.ravel(), high.ravel(), strict=True)]


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
@pytest.mark.parametrize(("n", "d", "n_groups", "bits"), [(1, 1, 0, 20), (3000, 5, 1, 20), (70_000, 4, 3, 19)])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_rows_count_as_often_as_they_weigh(
    dtype: str, n: int, d: int, n_groups: int, bits: int, n_threads: int
) -> None:
    rng = np.random.default_rng([n, d])
    rows = (60.0 * np.abs(rng.standard_normal((n, d)))).astype(dtype)
    groups = rng.integers(0, n_groups, n) if n_groups > 1 else None
    weights = rng.choice([0, 1, 3, 819, 820, 8192], n).astype(np.int16)
    codes = np.zeros(n, np.int64) if groups is None else groups
    on_grid = expected_grid(rows, 100.0, bits)
    marks = (1 << bits) * np.eye(n_groups, dtype=np.int64)[codes] if n_groups else np.zeros((n, 0), np.int64)
    z = np.hstack([on_grid.astype(np.int64), marks])
    parts = [z.T @ (z * (weights[:, None].astype(np.int64) >> shift & 63)) for shift in (0, 6, 12)]  # below 2^63
    sums = [sum(int(part.flat[j]) << 6 * i for i, part in enumerate(parts)) for j in range(len(z.T) ** 2)]
    upper = np.triu(np.ones((len(z.T),) * 2, bool)).ravel()
    for people in forms(rows):
        total, high = np.full((2, d + n_groups, d + n_groups), 7)
        given = people, 0, n, groups, n_groups, 100.0, bits
        assert core.add_dense_moments(*given, total, n_threads, weights, high)
        seven = 7 + (7 << 40)
        found = in_limbs(total, high)
        assert [a - seven for a, b in zip(found, upper, strict=True) if b] == [
            a for a, b in zip(sums, upper, strict=True) if b
        ]
        assert all(a == seven for a, b in zip(found, upper, strict=True) if not b)
        if n == 1:
            once = np.zeros_like(total)
            assert core.add_dense_moments(*given, once, n_threads, weights)
            assert once.ravel().tolist() == [a * int(b) for a, b in zip(sums, upper, strict=True)]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 3), (900, 5), (1100, 50), (501, 150)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
def test_rows_are_mapped_as_they_are_read(dtype: str, n: int, d: int, weighted: bool, shifted: bool) -> None:
    rng = np.random.default_rng([n, d])
    rows = rng.standard_normal((n, d)).astype(dtype)
    rows[rng.random((n, d)) < 0.1] = np.nan
    location, scale = shifted * rng.standard_normal(d), np.exp(rng.standard_normal(d))
    plain = reference.map_rows(rows, location, scale, 1.5)
    weights = rng.choice([0, 1, 3, 819], n).astype(np.int16) if weighted else None
    for kernel in KERNELS.values():
        for n_threads in (1, 3):
            expected, total = np.zeros((2, d + 1, d + 1), np.int64)
            assert core.add_dense_moments(plain, 0, n, None, 1, 5.0, 18, expected, 1, weights)
            given = 0, n, None, 1, 5.0, 18, total, n_threads, weights, None
            for people in (rows, list(np.ascontiguousarray(rows.T))):
                total[:] = 0
                assert kernel.add_dense_moments(people, *given, (location, scale, 1.5, True))
                np.testing.assert_array_equal(total, expected)
                some, refused = (location, scale, 1.5, False), bool(np.isnan(rows).any())
                assert kernel.add_dense_moments(people, *given, some) is not refused


def test_people_without_columns_are_counted() -> None:
    for people, n in itertools.product((np.zeros((5, 0)), [], np.zeros((5, 0), np.float32)), (0, 5)):
        for how in (None, (None, None, 1.0, True)):
            total = np.zeros((1, 1), np.int64)
            assert core.add_dense_moments(people, 0, n, None, 1, 1.0, 20, total, 1, None, None, how)
            assert total == n << 40


def test_weighted_sums_that_do_not_fit_are_noticed() -> None:
    rows, weights = np.ones((3000, 1)), np.full(3000, 4096, np.int16)
    total = np.zeros((1, 1), np.int64)
    with pytest.raises(OverflowError, match="total leaves int64: carry before"):
        core.add_dense_moments(rows, 0, 3000, None, 0, 1.0, 20, total, 1, weights)


def test_rows_of_no_weight_are_looked_at() -> None:
    rows, weights = np.ones((5, 2)), np.array([1, 1, 0, 1, 1], np.int16)
    rows[2] = np.nan
    for people in forms(rows):
        total, high = np.zeros((2, 2, 2), np.int64)
        assert not core.add_dense_moments(people, 0, 5, None, 0, 1.0, 20, total, 1, weights, high)
        assert not total.any()


def expected_grid(rows: NDArray[Any], bound: float, bits: int) -> NDArray[np.float64]:
    on_grid = np.empty(rows.shape)
    assert core.fixed_point_rows(np.ascontiguousarray(rows), bound, bits, on_grid)
    return on_grid


def expected(rows: NDArray[Any], groups: Integers | None, n_groups: int, bound: float, bits: int) -> Integers:
    on_grid = expected_grid(rows, bound, bits)
    if n_groups == 0:
        return np.triu(on_grid.T @ on_grid).astype(np.int64)
    marked = np.zeros(len(rows), np.int64) if groups is None else groups
    return reference.marked_moments(on_grid, marked, n_groups, 1 << bits)


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
@pytest.mark.parametrize(
    ("n", "d", "n_groups"), [(1, 1, 0), (383, 5, 1), (385, 12, 4), (800, 13, 4), (3000, 40, 3), (900, 161, 2)]
)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_kernel_agrees_with_the_reference(dtype: str, n: int, d: int, n_groups: int, n_threads: int) -> None:
    rng = np.random.default_rng([n, d])
    rows = (60.0 * np.abs(rng.standard_normal((n, d)))).astype(dtype)
    groups = rng.integers(0, n_groups, n) if n_groups > 1 else None
    for people in forms(rows):
        total = np.arange((d + n_groups) ** 2).reshape(d + n_groups, -1)
        before = total.copy()
        assert core.add_dense_moments(people, 0, n, groups, n_groups, 300.0, 20, total, n_threads)
        np.testing.assert_array_equal(
            total - before, np.triu(expected(rows, groups, n_groups, 300.0, 20)), err_msg="the lower triangle stays"
        )


@given(st.integers(0, 60), st.integers(1, 9), st.integers(0, 3), st.integers(4, 20), st.integers(0, 70), st.randoms())
@settings(deadline=None, max_examples=200)
def test_some_of_the_people(n: int, d: int, n_groups: int, bits: int, first: int, random: Any) -> None:
    rng = np.random.default_rng(random.getrandbits(32))
    rows = rng.standard_normal((n + 70, d)) * rng.choice([1e-9, 1.0, 1e9], (n + 70, 1))
    groups = rng.integers(0, n_groups, n) if n_groups > 0 else None
    for people in forms(rows):
        total = np.zeros((d + n_groups,) * 2, np.int64)
        assert core.add_dense_moments(people, first, n, groups, n_groups, 2.0, bits, total)
        np.testing.assert_array_equal(total, np.triu(expected(rows[first : first + n], groups, n_groups, 2.0, bits)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bound", [1.0, 2.0**-449, 2.0**-451, 1e-300, 1e300])
@pytest.mark.parametrize("d", [1, 3, 4, 7, 8, 9, 21])
@pytest.mark.parametrize("n", [1, 3, 4, 33, 70])
def test_rows_of_any_magnitude(n: int, d: int, bound: float) -> None:
    # the product of one row with itself has its entries, up to a common sign
    rng = np.random.default_rng([n, d])
    rows = rng.standard_normal((n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)  # on the ball, or nearly
    rows *= 10.0 ** rng.choice([-400.0, -310.0, -170.0, -135.4, -1.0, 0.0, 1.0, 170.0, 300.0], (n, 1))
    for people in forms(rows):
        total = np.zeros((d, d), np.int64)
        assert core.add_dense_moments(people, 0, n, None, 0, bound, 20, total)
        np.testing.assert_array_equal(total, expected(rows, None, 0, bound, 20))


def test_more_rows_than_a_double_holds_exactly() -> None:
    # 2^53 is passed within 8192 rows of 4^20: by one thread, since the sums must be its own
    n = 40_000
    rows = np.ones((n, 1))
    for people in forms(rows):
        total = np.zeros((2, 2), np.int64)
        assert core.add_dense_moments(people, 0, n, None, 1, 1.0, 20, total)
        assert total.tolist() == [[n << 40, n << 40], [0, n << 40]]


@pytest.mark.parametrize("n_threads", [1, 2])
def test_people_beyond_the_reach_of_32_bits(n_threads: int) -> None:
    n, last = 2**31 + 1000, 2**31 - 500
    rows = np.zeros((n, 1), np.uint8)  # of which memory holds what is written, the last pages
    rows[last:] = 1
    total = np.zeros((2, 2), np.int64)
    assert core.add_dense_moments(rows, last, n - last, None, 1, 1.0, 20, total, n_threads)
    assert total.tolist() == [[1500 << 40, 1500 << 40], [0, 1500 << 40]]
    with pytest.raises(ValueError, match="people has fewer rows than first and n"):
        core.add_dense_moments(rows, last, n - last + 1, None, 1, 1.0, 20, total, n_threads)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_all_people_or_none(bad: float, n_threads: int) -> None:
    rows = np.ones((5000, 30))
    rows[4321, 7] = bad
    for people in forms(rows):
        total = np.full((30, 30), 5)
        assert not core.add_dense_moments(people, 0, 5000, None, 0, 1.0, 20, total, n_threads)
        assert (total == 5).all()
        assert core.add_dense_moments(people, 0, 4321, None, 0, 1.0, 20, total, n_threads)


def test_a_sum_beyond_int64_is_noticed() -> None:
    total = np.full((1, 1), 2**63 - 2)
    with pytest.raises(OverflowError, match="total leaves int64: carry before"):
        core.add_dense_moments(np.ones((3, 1)), 0, 3, None, 0, 1.0, 20, total)


X, T = np.zeros((4, 2)), np.zeros((3, 3), np.int64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X, 1, 4, None, 1, 1.0, 20, T), ValueError, "people has fewer rows than first and n"),
        (([X[:, 0].copy()] * 2, 1, 4, None, 1, 1.0, 20, T), ValueError, "a column has fewer entries than first and"),
        ((X, -1, 4, None, 1, 1.0, 20, T), ValueError, "first must be >= 0, not -1"),
        ((X, 0, -1, None, 1, 1.0, 20, T), ValueError, "n must be >= 0, not -1"),
        ((X, 0, 4, None, -1, 1.0, 20, T), ValueError, "n_groups must be >= 0"),
        ((X, 0, 4, np.zeros(4, int), 2**63 - 1, 1.0, 20, T), ValueError, "total must have a row and a column for each"),
        ((X, 0, 4, None, 2, 1.0, 20, T), ValueError, "groups must be a group below n_groups for each row, or none"),
        ((X, 0, 4, np.array([0, 0, 1, 0]), 1, 1.0, 20, T), ValueError, "groups must be a group below n_groups"),
        ((X, 0, 4, np.array([0, 0, -1, 0]), 1, 1.0, 20, T), ValueError, "groups must be a group below n_groups"),
        ((X, 0, 4, np.zeros(3, int), 1, 1.0, 20, T), ValueError, "groups must be a group below n_groups for each row"),
        ((X, 0, 4, np.zeros(4), 1, 1.0, 20, T), TypeError, "groups must have dtype int64, not float64"),
        ((X, 0, 4, None, 0, 1.0, 20, T), ValueError, "total must have a row and a column for each"),
        ((X, 0, 4, None, 1, 1.0, 20, T[:2]), ValueError, "total must be square"),
        ((X, 0, 4, None, 1, 1.0, 20, T.astype(float)), TypeError, "total must have dtype int64"),
        ((X, 0, 4, None, 1, 0.0, 20, T), ValueError, "bound must satisfy"),
        ((X, 0, 4, None, 1, 1.0, 21, T), ValueError, "bits must satisfy 4 <= bits <= 20, not 21"),
        ((X, 0, 4, None, 1, 1.0, 20, T, 0), ValueError, "n_threads must satisfy n_threads >= 1"),
        ((X.astype("i8"), 0, 4, None, 1, 1.0, 20, T), TypeError, "people, if not uint8, must have dtype float32 or"),
        ((np.asfortranarray(X), 0, 4, None, 1, 1.0, 20, T), ValueError, "people must have a contiguous last axis"),
        ((X, 0, 4, None, 1, 1.0, 20, T, 1, np.ones(3, np.int16)), ValueError, "weights must have an entry for each"),
        ((X, 0, 4, None, 1, 1.0, 20, T, 1, np.full(4, -1, np.int16)), ValueError, "weights must be between 0 and"),
        ((X, 0, 4, None, 1, 1.0, 20, T, 1, np.ones(4, int)), TypeError, "weights must have dtype int16"),
        ((X, 0, 4, None, 1, 1.0, 20, T, 1, None, np.zeros((2, 2), int)), ValueError, "high must have"),
        ((X, 0, 4, None, 1, 1.0, 20, T, 1, None, T), ValueError, "high and total must not overlap"),
        ((X.tolist(), 0, 4, None, 1, 1.0, 20, T), TypeError, "columns must be NumPy arrays"),
        (
            (X, 0, 4, None, 1, 1.0, 20, T, 1, None, None, (np.ones(3), None, 1.0, False)),
            ValueError,
            "location and scale",
        ),
        ((X, 0, 4, None, 1, 1.0, 20, T, 1, None, None, (None, None, -1.0, False)), ValueError, "largest must be at"),
        (
            (X.astype("u1"), 0, 4, None, 1, 1.0, 20, T, 1, None, None, (None, None, 1.0, True)),
            ValueError,
            "mapped",
        ),
        ((tuple(X.T), 0, 4, None, 1, 1.0, 20, T), TypeError, "people must be a matrix, or a list of columns"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        core.add_dense_moments(*arguments)
    assert not T.any()
