"""Clipping: the exact norm of every output row is at most 1, whatever the rounding and the magnitudes."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import reference
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

LARGEST = sys.float_info.max
SMALLEST_NORMAL = sys.float_info.min
UNIT = 2**1074  # every finite double is a multiple of 1 / UNIT
DTYPES = [np.float32, np.float64]


def exact_square(row):
    """Sum of x**2 in units of UNIT**-2, in integers."""
    ratios = (float(x).as_integer_ratio() for x in row)
    return sum((numerator * (UNIT // denominator)) ** 2 for numerator, denominator in ratios)


def all_in_unit_ball(rows):
    return all(exact_square(row) <= UNIT**2 for row in rows)


def clip(rows, bound):
    before = rows.copy()
    out = np.full(rows.shape, np.nan)
    assert core.clip_rows(rows, bound, out) is True
    np.testing.assert_array_equal(rows, before)
    return out


def assert_clipped(rows, bound):
    """``rows`` clip into the exact unit ball, to the direction and the length of the reference."""
    out = clip(rows, bound)
    assert all_in_unit_ball(out)
    expected = reference.clip_rows(rows, bound)
    # 1e-12 of the row's own largest entry, or the spacing of denormals where the row is as small as they are.
    error = np.abs(out - expected)
    allowed = 1e-12 * np.max(np.abs(expected), axis=1, keepdims=True, initial=0.0) + 2.0**-1073
    assert np.all(error <= allowed)


def finite(dtype):
    width = 8 * np.dtype(dtype).itemsize
    # Hypothesis favours extremes; the second half brings entries of comparable size into one row.
    return st.one_of(st.floats(allow_nan=False, allow_infinity=False, width=width), st.floats(-2.0, 2.0, width=width))


def matrices(dtype):
    return npst.arrays(dtype, st.tuples(st.integers(0, 5), st.integers(0, 40)), elements=finite(dtype))


bounds = st.one_of(st.just(1.0), st.floats(0.1, 10.0), st.floats(SMALLEST_NORMAL, LARGEST))


# --- the exact norm ---


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), bound=bounds)
@drawn(300)
def test_any_finite_rows(dtype, data, bound):
    assert_clipped(data.draw(matrices(dtype)), bound)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [1.0, 0.3, 7.0, 1e-300, 1e300, 2.0**-1022, 1.7e308])
@pytest.mark.parametrize("d", [1, 2, 3, 8, 9, 100, 1001])
def test_norms_a_few_units_in_the_last_place_around_the_bound(d, bound, dtype):
    if dtype is np.float32 and not 1e-30 < bound < 1e30:
        bound = 2.0 ** (100 if bound > 1.0 else -100)
    rng = np.random.default_rng(d)
    steps = np.arange(-40, 41, 1 if d <= 100 else 8)[:, None]  # exact sums of long rows take a while
    directions = rng.normal(size=(len(steps), d)) * 10.0 ** rng.uniform(-3.0, 0.0, size=(len(steps), d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    epsilon = np.finfo(dtype).eps
    around = 1.0 + steps * epsilon / 2.0 * max(1.0, d / 40.0)
    # In two steps, since around * bound may overflow.
    rows = (directions * around * (bound / 4.0) * 4.0).astype(dtype)
    assert_clipped(rows, bound)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("d", [1, 2, 7, 8, 64, 1000, 4096])
@pytest.mark.parametrize(
    "magnitude", [5e-324, 1e-320, SMALLEST_NORMAL, 1e-200, 1e-155, 1.0, 1e150, 1e155, 1e300, LARGEST]
)
def test_equal_entries_of_any_magnitude(magnitude, d):
    rows = np.full((3, d), magnitude)
    rows[1] *= -1.0
    rows[2, ::2] *= -1.0
    for bound in (1.0, magnitude if magnitude >= SMALLEST_NORMAL else SMALLEST_NORMAL, LARGEST):
        assert_clipped(rows, bound)


def test_rows_of_mixed_magnitudes():
    rng = np.random.default_rng(0)
    exponents = rng.uniform(-323.0, 308.0, size=(500, 30))
    exponents[::2] = np.sort(exponents[::2], axis=1)
    rows = rng.choice([-1.0, 1.0], size=exponents.shape) * 10.0**exponents
    rows[::7, ::3] = 0.0
    for bound in (1.0, 1e-300, 1e-150, 0.1, 1e150, 1e300):
        assert_clipped(rows, bound)


def test_rows_whose_squared_norm_leaves_the_range_keep_their_direction():
    direction = np.array([[3.0, -4.0]])
    for magnitude in (1e-307, 1e-200, 1e200, 4e307):
        out = clip(magnitude * direction, magnitude / 10.0)
        np.testing.assert_allclose(out, direction / 5.0, rtol=1e-12)


def test_bounds_far_from_the_rows():
    row = np.array([[3.0, -4.0]])
    np.testing.assert_allclose(clip(row, 1e300), row / 1e300, rtol=1e-15)
    np.testing.assert_allclose(clip(row, 1e-149), row / 5.0, rtol=1e-12)
    np.testing.assert_array_equal(clip(row, 1e-300), [[0.0, 0.0]])
    np.testing.assert_array_equal(clip(row, LARGEST) > 0.0, row > 0.0)


def test_dividing_by_the_computed_norm_would_not_do():
    # The control: without the margin some exact norms exceed 1, so the tests above can fail.
    rows = np.random.default_rng(1).normal(size=(200, 50))
    assert not all_in_unit_ball(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    assert all_in_unit_ball(clip(1e3 * rows, 1.0))


@pytest.mark.parametrize("d", [1, 10, 1000])
def test_long_rows_are_shrunk_no_more_than_the_margin(d):
    rows = 1e3 * np.random.default_rng(d).normal(size=(50, d)) + 10.0
    shortest = 1.0 - 3.0 * (d + 16) * 2.0**-53
    numerator, denominator = shortest.as_integer_ratio()
    for row in clip(rows, 1.0):
        assert exact_square(row) * denominator**2 >= (numerator * UNIT) ** 2


# --- rows inside ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_inside_are_copied_in_bits_when_the_bound_is_one(dtype):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(300, 20))
    rows *= rng.uniform(0.0, 1.0 - 1e-6, size=(300, 1)) / np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows.astype(dtype)
    np.testing.assert_array_equal(clip(rows, 1.0), rows.astype(np.float64))


def test_rows_just_inside_the_margin_are_copied_in_bits():
    d = 20
    rows = np.random.default_rng(4).normal(size=(300, d))
    rows *= (1.0 - 3.0 * (d + 16) * 2.0**-53) / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_array_equal(clip(rows, 1.0), rows)


@pytest.mark.parametrize("bound", [0.3, 7.0])
def test_rows_inside_are_divided_by_the_bound(bound):
    rows = 0.01 * np.random.default_rng(5).normal(size=(300, 20))
    np.testing.assert_array_equal(clip(rows, bound), rows / bound)


def test_a_zero_row_stays_zero():
    np.testing.assert_array_equal(clip(np.zeros((2, 5)), 1e-300), np.zeros((2, 5)))


# --- memory ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_row_strides_on_both_sides(dtype):
    rng = np.random.default_rng(6)
    source = rng.normal(size=(30, 17)).astype(dtype)
    target = np.full((30, 23), -7.0)
    expected = clip(np.ascontiguousarray(source[:, 2:15]), 2.0)
    assert core.clip_rows(source[:, 2:15], 2.0, target[:, 4:17])
    np.testing.assert_array_equal(target[:, 4:17], expected)
    assert np.all(target[:, :4] == -7.0)
    assert np.all(target[:, 17:] == -7.0)


@pytest.mark.parametrize("width", [8, 5])
def test_in_place(width):
    buffer = np.random.default_rng(7).normal(size=(30, 8))
    rows = buffer[:, :width]
    expected = clip(rows.copy(), 0.5)
    assert core.clip_rows(rows, 0.5, rows)
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (1, 1)])
def test_empty_and_smallest_shapes(shape):
    assert clip(np.ones(shape), 1.0).shape == shape


def test_the_result_does_not_depend_on_the_other_rows():
    rows = np.random.default_rng(8).normal(size=(20, 33))
    together = clip(rows, 1.5)
    for row, expected in zip(rows, together, strict=True):
        np.testing.assert_array_equal(clip(row[None, :], 1.5)[0], expected)


def test_many_rows_agree_with_the_reference():
    rows = np.random.default_rng(9).normal(size=(1_000, 37))
    np.testing.assert_allclose(clip(rows, 6.0), reference.clip_rows(rows, 6.0), rtol=1e-14, atol=1e-16)


# --- what is not a row, a bound or an output ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("others", [0.0, 1.0, 1e38])
def test_one_entry_that_is_not_finite_is_noticed_anywhere(others, wrong, dtype):
    for d in (1, 7, 8, 9, 20):
        for column in range(d):
            for row in (0, 2):
                rows = np.full((3, d), others, dtype=dtype)
                rows[row, column] = wrong
                assert core.clip_rows(rows, 1.0, np.empty((3, d))) is False


def test_infinities_among_nan_and_huge_entries_are_noticed():
    for row in ([np.inf, -np.inf], [np.nan, np.inf], [np.inf, np.nan], [LARGEST, np.nan], [5e-324, np.inf]):
        assert core.clip_rows(np.array([row]), 1.0, np.empty((1, 2))) is False


@pytest.mark.parametrize(
    "bound", [0.0, -0.0, -1.0, np.nan, np.inf, -np.inf, 5e-324, 2.0**-1074, 2.0**-1024, np.nextafter(0.0, 1.0)]
)
def test_bounds_without_a_finite_reciprocal_are_refused(bound):
    out = np.full((1, 2), 5.0)
    with pytest.raises(ValueError, match="bound"):
        core.clip_rows(np.ones((1, 2)), bound, out)
    assert np.all(out == 5.0)


def test_the_smallest_bound_with_a_finite_reciprocal_is_accepted():
    assert_clipped(np.array([[3.0, -4.0], [1e-310, 0.0]]), np.nextafter(2.0**-1024, 1.0))


WRONG_ROWS = {
    "one axis": (np.ones(4), "rows"),
    "three axes": (np.ones((2, 2, 2)), "rows"),
    "int64": (np.ones((2, 4), dtype=np.int64), "rows"),
    "float16": (np.ones((2, 4), dtype=np.float16), "rows"),
    "big-endian": (np.ones((2, 4), dtype=">f8"), "rows"),
    "column-major": (np.ones((2, 4), order="F"), "rows"),
    "reversed rows": (np.ones((2, 4))[::-1], "rows"),
    "repeated row": (np.broadcast_to(np.ones(4), (2, 4)), "rows"),
}


@pytest.mark.parametrize("case", WRONG_ROWS)
def test_other_rows_are_refused(case):
    rows, message = WRONG_ROWS[case]
    with pytest.raises((TypeError, ValueError), match=message):
        core.clip_rows(rows, 1.0, np.empty((2, 4)))


WRONG_OUTPUTS = {
    "float32": np.zeros((2, 4), dtype=np.float32),
    "fewer rows": np.zeros((1, 4)),
    "fewer columns": np.zeros((2, 3)),
    "one axis": np.zeros(8),
    "column-major": np.zeros((2, 4), order="F"),
    "every other column": np.zeros((2, 8))[:, ::2],
}


@pytest.mark.parametrize("case", WRONG_OUTPUTS)
def test_other_outputs_are_refused_and_unchanged(case):
    out = WRONG_OUTPUTS[case]
    with pytest.raises((TypeError, ValueError), match="out"):
        core.clip_rows(np.ones((2, 4)), 1.0, out)
    assert not out.any()


def test_a_read_only_output_is_refused():
    out = np.zeros((2, 4))
    out.flags.writeable = False
    with pytest.raises((TypeError, ValueError), match="out"):
        core.clip_rows(np.ones((2, 4)), 1.0, out)
    assert not out.any()


def test_read_only_rows_are_accepted():
    rows = np.ones((2, 4))
    rows.flags.writeable = False
    assert_clipped(rows, 1.0)


def test_partly_overlapping_memory_never_changes_the_answer():
    # Rows that are overwritten before they are read would be clipped twice or mixed.
    buffer = np.random.default_rng(10).normal(size=(6, 4))
    rows, out = buffer[:5], buffer[1:]
    before = buffer.copy()
    expected = clip(rows.copy(), 0.5)
    try:
        core.clip_rows(rows, 0.5, out)
    except ValueError:
        np.testing.assert_array_equal(buffer, before)
    else:
        np.testing.assert_array_equal(out, expected)
