"""Rows on the integer grid: inside the ball by exact integers, and sums of their moment matrices without rounding."""

from __future__ import annotations

import hashlib
import sys

import numpy as np
import pytest
import reference
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from variants import kernels

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

LARGEST = sys.float_info.max
SMALLEST_NORMAL = sys.float_info.min
FLOATS = [np.float32, np.float64]
DTYPES = [np.uint8, *FLOATS]


def to_grid(rows, bound, bits, n_threads=1):
    before = rows.copy()
    out = np.full(rows.shape, np.nan)
    assert core.fixed_point_rows(rows, bound, bits, out, n_threads) is True
    np.testing.assert_array_equal(rows, before)
    return out


def integer_square(q):
    """Sum of squares in Python's integers; refuses what is not an integer."""
    return sum(int(entry) ** 2 if float(entry).is_integer() else 1 << 200 for entry in q)


def ideal(x, bound, bits):
    """2**bits x / max(bound, ||x||), to a few units in the last place; 0 beyond 2**500 bounds."""
    x = x.astype(np.float64)
    if reference.counts_as_zero(x, bound):
        return np.zeros(x.shape)
    _, exponent = np.frexp(max(bound, np.max(np.abs(x), initial=0.0)))
    x = np.ldexp(x, -exponent)
    return 2.0**bits * x / max(np.ldexp(bound, -exponent), np.linalg.norm(x))


def assert_on_grid(rows, bound, bits):
    """Inside the ball exactly; toward zero from the ideal, by less than one unit, a shrunk row by less than two."""
    out = to_grid(rows, bound, bits)
    assert not np.any(np.signbit(out[out == 0.0]))
    for x, q in zip(rows, out, strict=True):
        assert integer_square(q) <= 4**bits
        assert np.all((q == 0) | (np.sign(q) == np.sign(x.astype(np.float64))))
        t = np.abs(ideal(x, bound, bits))
        assert np.all(np.abs(q) <= t * (1.0 + 1e-12))
        near = np.sum(t**2) > 4.0**bits * (1.0 - 1e-6)
        assert np.all(np.abs(q) > t * (1.0 - 1e-12) - (2.0 if near else 1.0))
    expected = reference.fixed_point_rows(rows, bound, bits)
    assert np.all(np.abs(out - expected) <= 2.0)
    return out


def entries(dtype):
    if dtype is np.uint8:
        return st.integers(0, 255)
    width = 8 * np.dtype(dtype).itemsize
    return st.one_of(st.floats(allow_nan=False, allow_infinity=False, width=width), st.floats(-2.0, 2.0, width=width))


def matrices(dtype):
    return npst.arrays(dtype, st.tuples(st.integers(0, 5), st.integers(0, 40)), elements=entries(dtype))


bounds = st.one_of(st.just(1.0), st.floats(0.1, 1000.0), st.floats(SMALLEST_NORMAL, LARGEST))


# --- the exact norm ---


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), bound=bounds, bits=st.integers(4, 20))
@drawn(200)
def test_any_finite_rows(dtype, data, bound, bits):
    assert_on_grid(data.draw(matrices(dtype)), bound, bits)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bound", [1.0, 0.3, 7.0, 1e-300, 1e300, 2.0**-1022, 1.7e308])
@pytest.mark.parametrize("d", [*range(1, 10), 100, 1001])
def test_norms_a_few_units_in_the_last_place_around_the_bound(d, bound, dtype):
    if dtype is np.float32 and not 1e-30 < bound < 1e30:
        bound = 2.0 ** (100 if bound > 1.0 else -100)
    rng = np.random.default_rng(d)
    steps = np.arange(-20, 21, 1 if d <= 100 else 5)[:, None]  # exact sums of long rows take a while
    directions = rng.normal(size=(len(steps), d)) * 10.0 ** rng.uniform(-3.0, 0.0, size=(len(steps), d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    around = 1.0 + steps * np.finfo(dtype).eps / 2.0 * max(1.0, d / 40.0)
    # In two steps, since around * bound may overflow.
    assert_on_grid((directions * around * (bound / 4.0) * 4.0).astype(dtype), bound, 20)


@pytest.mark.parametrize("d", [1, 2, 4, 16, 64, 1024])
@pytest.mark.parametrize(
    "magnitude", [5e-324, 1e-320, SMALLEST_NORMAL, 1e-200, 1e-155, 1.0, 1e150, 1e155, 1e300, LARGEST]
)
def test_equal_entries_of_any_magnitude(magnitude, d):
    # With d a power of 4 the grid points are hit exactly: the sum is 4**bits itself.
    rows = np.full((2, d), magnitude)
    rows[1, ::2] *= -1.0
    for bound in (1.0, magnitude if magnitude >= SMALLEST_NORMAL else SMALLEST_NORMAL, LARGEST):
        assert_on_grid(rows, bound, 20)
        assert_on_grid(rows, bound, 4)


def test_rows_of_mixed_magnitudes():
    rng = np.random.default_rng(0)
    exponents = rng.uniform(-323.0, 308.0, size=(200, 30))
    exponents[::2] = np.sort(exponents[::2], axis=1)
    rows = rng.choice([-1.0, 1.0], size=exponents.shape) * 10.0**exponents
    rows[::7, ::3] = 0.0
    for bound in (1.0, 1e-300, 1e-150, 0.1, 1e150, 1e300):
        assert_on_grid(rows, bound, 20)


def test_the_exact_check_is_needed():
    # 2**20 equal entries and a small one: where rounding makes the computed norm too small, the grid points are
    # 2**10, ..., 2**10, 1, one more than the ball holds. The control computes what the kernel would without looking.
    d, exceeded = 2**20 + 1, 0
    for c in np.random.default_rng(1).uniform(1.0, 2.0, 12):
        x = np.full((1, d), c)
        x[0, -1] = c / 1024.0 * (1.0 + 1e-6)
        squares = np.sum(x[0, :-1].reshape(-1, 8) ** 2, axis=0)
        unchecked = np.trunc(x[0] * (2.0**20 / np.sqrt(np.sum(squares) + x[0, -1] ** 2)))
        exceeded += int(np.sum(unchecked**2)) > 4**20
        assert np.sum(to_grid(x, 1.0, 20) ** 2) <= 4**20
        assert core.fixed_point_rows(x, 1.0, 20, x)
        assert np.sum(x**2) <= 4**20
    assert exceeded > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [4, 11, 20])
@pytest.mark.parametrize("bound", [1.0, 0.7, 30.0, 2000.0])
def test_equality_with_the_reference(bound, bits, dtype):
    # Entries in general position: no scaled entry lies within rounding of an integer, so the bits agree.
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 256, (400, 37)) if dtype is np.uint8 else 3.0 * rng.normal(size=(400, 37))
    rows = rows.astype(dtype)
    np.testing.assert_array_equal(to_grid(rows, bound, bits), reference.fixed_point_rows(rows, bound, bits))


@pytest.mark.parametrize("bound", [1.0, 0.25, 1024.0])
def test_rows_inside_a_ball_of_dyadic_radius_are_truncated_exactly(bound):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(300, 20))
    rows *= bound * rng.uniform(0.0, 1.0 - 1e-9, size=(300, 1)) / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_array_equal(to_grid(rows, bound, 20), np.trunc(rows / bound * 2.0**20))


def test_points_of_the_grid_stay():
    rng = np.random.default_rng(4)
    rows = rng.integers(-(2**17), 2**17, size=(200, 40)) / 2.0**20
    assert np.max(np.linalg.norm(rows, axis=1)) < 1.0
    np.testing.assert_array_equal(to_grid(rows, 1.0, 20), rows * 2.0**20)


def test_a_coordinate_vector_reaches_the_sphere():
    np.testing.assert_array_equal(to_grid(7.0 * np.eye(3), 0.3, 20), 2.0**20 * np.eye(3))


# --- the same bits ---


@pytest.mark.parametrize("n_threads", [2, 3, 7])
@pytest.mark.parametrize("shape", [(3000, 100), (1, 5), (5, 70_000), (70_000, 3)])
def test_the_number_of_threads_does_not_matter(shape, n_threads):
    rows = np.random.default_rng(5).normal(size=shape)
    np.testing.assert_array_equal(to_grid(rows, 1.0, 20, n_threads), to_grid(rows, 1.0, 20))


def bits_of(core):
    digest = hashlib.sha256()
    rng = np.random.default_rng(6)
    for dtype in (np.uint8, np.float32, np.float64):
        for d in (1, 7, 8, 50, 1003):
            rows = (100.0 * np.abs(rng.normal(size=(200, d)))).clip(0, 255).astype(dtype)
            for bound in (1.0, 0.3, 150.0, 1e5):
                out = np.empty(rows.shape)
                assert core.fixed_point_rows(rows, bound, 20, out, 2)
                digest.update(out.tobytes())
    return digest.hexdigest()


def test_every_variant_gives_the_same_bits():
    assert len({bits_of(core) for core in kernels().values()}) == 1


# --- memory ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_row_strides_on_both_sides(dtype):
    source = (100.0 * np.abs(np.random.default_rng(7).normal(size=(30, 17)))).clip(0, 255).astype(dtype)
    target = np.full((30, 23), -7.0)
    expected = to_grid(np.ascontiguousarray(source[:, 2:15]), 200.0, 12)
    assert core.fixed_point_rows(source[:, 2:15], 200.0, 12, target[:, 4:17])
    np.testing.assert_array_equal(target[:, 4:17], expected)
    assert np.all(target[:, :4] == -7.0)
    assert np.all(target[:, 17:] == -7.0)


@pytest.mark.parametrize("width", [8, 5])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_in_place(width, n_threads):
    buffer = np.random.default_rng(8).normal(size=(30_000, 8))
    rows = buffer[:, :width]
    expected = to_grid(rows.copy(), 2.0, 20)
    assert core.fixed_point_rows(rows, 2.0, 20, rows, n_threads)
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (1, 1)])
def test_empty_and_smallest_shapes(shape):
    assert to_grid(np.ones(shape), 1.0, 20).shape == shape


# --- what is not a row, a bound, a grid or an output ---


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("others", [0.0, 1.0, 1e38])
def test_one_entry_that_is_not_finite_is_noticed_anywhere(others, wrong, dtype):
    for d in (1, 7, 8, 9, 20):
        for column in range(d):
            for row in (0, 2):
                rows = np.full((3, d), others, dtype=dtype)
                rows[row, column] = wrong
                assert core.fixed_point_rows(rows, 1.0, 20, np.empty((3, d))) is False


def test_one_entry_that_is_not_finite_is_noticed_by_any_thread():
    rows = np.ones((30_000, 10))
    for row in (0, 15_000, 29_999):
        wrong = rows.copy()
        wrong[row, 3] = np.nan
        assert core.fixed_point_rows(wrong, 1.0, 20, np.empty(rows.shape), 3) is False


@pytest.mark.parametrize("bound", [0.0, -0.0, -1.0, np.nan, np.inf, -np.inf, 5e-324, 2.0**-1024])
def test_bounds_without_a_finite_reciprocal_are_refused(bound):
    out = np.full((1, 2), 5.0)
    with pytest.raises(ValueError, match="bound must satisfy"):
        core.fixed_point_rows(np.ones((1, 2)), bound, 20, out)
    assert np.all(out == 5.0)


@pytest.mark.parametrize("bits", [-1, 0, 3, 21, 53])
def test_other_grids_are_refused(bits):
    with pytest.raises(ValueError, match="4 <= bits <= 20, not"):
        core.fixed_point_rows(np.ones((1, 2)), 1.0, bits, np.empty((1, 2)))


@pytest.mark.parametrize("n_threads", [0, -1])
def test_fewer_threads_than_one_are_refused(n_threads):
    with pytest.raises(ValueError, match="n_threads >= 1, not"):
        core.fixed_point_rows(np.ones((1, 2)), 1.0, 20, np.empty((1, 2)), n_threads)


@pytest.mark.parametrize(
    "rows",
    [
        np.ones(4),
        np.ones((2, 4), dtype=np.int64),
        np.ones((2, 4), dtype=np.float16),
        np.ones((2, 4), dtype=bool),
        np.ones((2, 4), dtype=">f8"),
        np.ones((2, 4), order="F"),
        np.ones((2, 4))[::-1],
    ],
    ids=["one axis", "int64", "float16", "bool", "big-endian", "column-major", "reversed"],
)
def test_other_rows_are_refused(rows):
    with pytest.raises((TypeError, ValueError), match="rows"):
        core.fixed_point_rows(rows, 1.0, 20, np.empty((2, 4)))


def test_other_outputs_are_refused():
    read_only = np.zeros((2, 4))
    read_only.flags.writeable = False
    for out in (np.zeros((2, 4), dtype=np.float32), np.zeros((2, 3)), np.zeros((2, 4), order="F"), read_only):
        with pytest.raises((TypeError, ValueError), match="out"):
            core.fixed_point_rows(np.ones((2, 4)), 1.0, 20, out)
        assert not out.any()


def test_partly_overlapping_memory_is_refused():
    buffer = np.ones((6, 4))
    with pytest.raises(ValueError, match="overlap"):
        core.fixed_point_rows(buffer[:5], 1.0, 20, buffer[1:])


# --- sums ---


def upper(matrix):
    return np.triu(np.ones(matrix.shape, dtype=bool))


@pytest.mark.parametrize("d", [0, 1, 2, 15, 16, 17, 33, 200])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_fold_against_python_integers(d, n_threads):
    rng = np.random.default_rng(d)
    block = rng.integers(-(2**53) + 1, 2**53, (d, d)).astype(np.float64)
    block.flat[:4] = [2**53 - 1, -(2**53) + 1, 0, -0.0][: block.size]
    block[~upper(block)] = 0.5
    total = rng.integers(-(2**62), 2**62, (d, d))
    expected = [[int(t) + (int(b) if j >= i else 0) for j, (t, b) in enumerate(zip(*both, strict=True))]
                for i, both in enumerate(zip(total.tolist(), block.tolist(), strict=True))]  # fmt: skip
    core.fold_triangle(block, total, n_threads)
    assert total.tolist() == expected
    assert not np.any(block[upper(block)])
    assert np.all(block[~upper(block)] == 0.5)


@pytest.mark.parametrize("largest", [1, 2**51 - 1, 2**51, 2**51 + 1, 2**52 - 1, 2**52, 2**52 + 1, 2**53 - 1])
def test_fold_of_integers_around_what_is_added_without_converting(largest):
    # The first row is longer than what is looked at at once: one part of it may be small, and another not.
    d = 600
    block = np.random.default_rng(3).integers(-1000, 1000, (d, d)).astype(np.float64)
    block[0, [0, 255, 256, 599]] = block[7, [7, 300, 301, 302]] = [largest, -largest, largest, -largest]
    total = np.random.default_rng(4).integers(-(2**62), 2**62, (d, d))
    expected = total + np.triu(block.astype(np.int64))
    core.fold_triangle(block, total)
    np.testing.assert_array_equal(total, expected)
    assert not np.any(np.triu(block))


def test_corners_of_larger_arrays_are_folded_in_place():
    block, total = np.ones((9, 9)), np.ones((7, 8), dtype=np.int64)
    core.fold_triangle(block[:5, :5], total[:5, :5])
    expected = np.ones((7, 8), dtype=np.int64)
    expected[:5, :5] += np.triu(np.ones((5, 5), dtype=np.int64))
    np.testing.assert_array_equal(total, expected)
    assert block.sum() == 81 - 15


@pytest.mark.parametrize("wrong", [0.5, -0.5, 2.0**53, -(2.0**53), 1e300, np.inf, -np.inf, np.nan, 2.0**52 - 0.5])
@pytest.mark.parametrize("place", [(0, 0), (3, 17), (39, 39)])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_what_is_no_exact_integer_is_refused(place, wrong, n_threads):
    block = np.zeros((40, 40))
    block[place] = wrong
    with pytest.raises(ValueError, match="block must hold integers"):
        core.fold_triangle(block, np.zeros((40, 40), dtype=np.int64), n_threads)


def test_below_the_diagonal_anything_may_stand():
    block = np.full((4, 4), np.nan)
    block[upper(block)] = 3.0
    total = np.zeros((4, 4), dtype=np.int64)
    core.fold_triangle(block, total)
    np.testing.assert_array_equal(total, 3 * upper(total))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_total_beyond_its_range_is_refused(sign):
    total = np.full((2, 2), sign * (2**63 - 10), dtype=np.int64)
    with pytest.raises(OverflowError, match="int64"):
        core.fold_triangle(np.full((2, 2), sign * 20.0), total)


@given(
    values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=9, max_size=9),
    high=st.lists(st.integers(-(2**62), 2**62), min_size=9, max_size=9),
)
@settings(deadline=None, derandomize=True)
def test_carry_against_python_integers(values, high):
    total, above = np.array(values).reshape(3, 3), np.array(high).reshape(3, 3)
    exact = [h * 2**40 + t for h, t in zip(high, values, strict=True)]
    core.carry_triangle(total, above)
    inside = upper(total).ravel()
    assert [h * 2**40 + t for h, t in zip(above.ravel().tolist(), total.ravel().tolist(), strict=True)] == exact
    assert np.all((total.ravel()[inside] >= 0) & (total.ravel()[inside] < 2**40))
    np.testing.assert_array_equal(total.ravel()[~inside], np.array(values)[~inside])
    np.testing.assert_array_equal(above.ravel()[~inside], np.array(high)[~inside])


def test_two_limbs_hold_sums_beyond_int64():
    rng = np.random.default_rng(9)
    total, high = np.zeros((5, 5), dtype=np.int64), np.zeros((5, 5), dtype=np.int64)
    exact = [[0] * 5 for _ in range(5)]
    for step in range(5000):
        block = np.where(np.eye(5) > 0, 2.0**53 - 1, rng.integers(-(2**53) + 1, 2**53, (5, 5)).astype(np.float64))
        exact = [[e + int(b) for e, b in zip(*both, strict=True)] for both in zip(exact, block.tolist(), strict=True)]
        core.fold_triangle(block, total)
        if step % 500 == 499:
            core.carry_triangle(total, high)
    assert exact[0][0] > 2**63
    for i in range(5):
        for j in range(i, 5):
            assert int(high[i, j]) * 2**40 + int(total[i, j]) == exact[i][j]


def test_a_high_limb_beyond_its_range_is_refused():
    with pytest.raises(OverflowError, match="int64"):
        core.carry_triangle(np.full((1, 1), 2**40), np.full((1, 1), 2**63 - 1))


def test_other_arrays_are_refused_by_the_sums():
    square, integers = np.zeros((3, 3)), np.zeros((3, 3), dtype=np.int64)
    for block, total in [
        (square, square),
        (integers, integers),
        (np.zeros((2, 2)), integers),
        (np.zeros((3, 2)), np.zeros((3, 2), dtype=np.int64)),
        (np.zeros((3, 3), order="F")[:2, :2], np.zeros((2, 2), dtype=np.int64)),
    ]:
        with pytest.raises((TypeError, ValueError), match=r"block|total"):
            core.fold_triangle(block, total)
    with pytest.raises(ValueError, match="overlap"):
        core.carry_triangle(integers, integers)
    with pytest.raises(ValueError, match="overlap"):
        core.fold_triangle(square, square.view(np.int64))


@pytest.mark.parametrize("n_rows", [1, 100, 2**13])
def test_moment_matrices_of_the_grid_are_exact_for_any_block_and_order(n_rows):
    # Section 5: products of a block of at most 2**(53 - 2 bits) rows are exact in double precision, in any order.
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(n_rows, 7)) + 3.0
    exact = None
    for block_rows in (1 if n_rows < 1000 else 13, 64, 2**13):
        for order in (np.arange(n_rows), rng.permutation(n_rows)):
            q = to_grid(rows[order], 2.0, 20)
            total = np.zeros((7, 7), dtype=np.int64)
            for first in range(0, n_rows, block_rows):
                part = q[first : first + block_rows]
                core.fold_triangle(part.T @ part, total)
            if exact is None:
                columns = [[int(entry) for entry in column] for column in q.T]
                exact = [[sum(map(int.__mul__, a, b)) if j >= i else 0 for j, b in enumerate(columns)]
                         for i, a in enumerate(columns)]  # fmt: skip
            assert total.tolist() == exact
