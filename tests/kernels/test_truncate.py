"""Truncation to the largest entries or rows, against the plain reference, ties and contract included."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

DTYPES = [np.float32, np.float64]
FEW_VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0])


def elements(dtype):
    width = 8 * np.dtype(dtype).itemsize
    return st.one_of(FEW_VALUES, st.floats(allow_nan=False, width=width))


def assert_truncates(kernel, plain, array, k):
    expected, expected_kept = plain(array, k)
    truncated = array.copy()
    kept = kernel(truncated, k)
    assert kept.dtype == np.int64
    np.testing.assert_array_equal(kept, expected_kept)
    np.testing.assert_array_equal(truncated, expected)
    assert truncated.dtype == array.dtype


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@drawn(200)
def test_any_vector(dtype, data):
    v = data.draw(npst.arrays(dtype, st.integers(1, 50), elements=elements(dtype)))
    k = data.draw(st.integers(1, v.size))
    assert_truncates(core.truncate_top_k, reference.truncate_top_k, v, k)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@drawn(200)
def test_any_block_of_exact_norms(dtype, data):
    # Small whole entries: squared norms are exact on both sides, so ties are ties.
    shape = st.tuples(st.integers(1, 30), st.integers(1, 5))
    block = data.draw(npst.arrays(dtype, shape, elements=st.integers(-3, 3).map(float)))
    k = data.draw(st.integers(1, block.shape[0]))
    assert_truncates(core.truncate_rows_top_k, reference.truncate_rows_top_k, block, k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 999, 1000])
def test_large_arrays(k, dtype):
    rng = np.random.default_rng(k)
    assert_truncates(core.truncate_top_k, reference.truncate_top_k, rng.normal(size=1000).astype(dtype), k)
    block = rng.normal(size=(1000, 7)).astype(dtype)
    assert_truncates(core.truncate_rows_top_k, reference.truncate_rows_top_k, block, k)


def test_of_equal_entries_the_lower_index_is_kept():
    v = np.array([1.0, -3.0, 3.0, -1.0, 3.0, 1.0])
    np.testing.assert_array_equal(core.truncate_top_k(v, 2), [1, 2])
    np.testing.assert_array_equal(v, [0.0, -3.0, 3.0, 0.0, 0.0, 0.0])


def test_of_equal_rows_the_lower_index_is_kept():
    block = np.array([[1.0, 0.0], [3.0, 4.0], [-5.0, 0.0], [4.0, -3.0]])
    np.testing.assert_array_equal(core.truncate_rows_top_k(block, 2), [1, 2])
    np.testing.assert_array_equal(block, [[0.0, 0.0], [3.0, 4.0], [-5.0, 0.0], [0.0, 0.0]])


def test_constant_arrays_keep_the_first():
    np.testing.assert_array_equal(core.truncate_top_k(np.ones(100), 7), np.arange(7))
    np.testing.assert_array_equal(core.truncate_rows_top_k(np.zeros((100, 3)), 7), np.arange(7))


def test_keeping_all_changes_nothing():
    v = np.array([1.0, 0.0, -2.0])
    np.testing.assert_array_equal(core.truncate_top_k(v, 3), np.arange(3))
    np.testing.assert_array_equal(v, [1.0, 0.0, -2.0])


def test_rows_whose_squared_norm_leaves_the_range_are_still_ordered():
    block = np.array([[1e200, 0.0], [3e200, 0.0], [2e200, 0.0], [1e-200, 0.0], [2e-200, 0.0]])
    np.testing.assert_array_equal(core.truncate_rows_top_k(block.copy(), 2), [1, 2])
    np.testing.assert_array_equal(core.truncate_rows_top_k(block[3:].copy(), 1), [1])


def test_row_strides():
    buffer = np.random.default_rng(0).normal(size=(40, 9))
    before = buffer.copy()
    expected, kept = reference.truncate_rows_top_k(buffer[:, 2:6], 11)
    np.testing.assert_array_equal(core.truncate_rows_top_k(buffer[:, 2:6], 11), kept)
    np.testing.assert_array_equal(buffer[:, 2:6], expected)
    np.testing.assert_array_equal(buffer[:, :2], before[:, :2])
    np.testing.assert_array_equal(buffer[:, 6:], before[:, 6:])


@pytest.mark.parametrize("k", [-1, 0, 4])
def test_a_k_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match=rf"k.*{k}"):
        core.truncate_top_k(np.ones(3), k)
    with pytest.raises(ValueError, match=rf"k.*{k}"):
        core.truncate_rows_top_k(np.ones((3, 2)), k)
    with pytest.raises(ValueError, match=rf"k = {k}"):
        reference.truncate_top_k(np.ones(3), k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("position", [0, 5, 9])
def test_nan_is_refused_and_nothing_changed(position, dtype):
    v = np.ones(10, dtype=dtype)
    v[position] = np.nan
    before = v.copy()
    with pytest.raises(ValueError, match="NaN"):
        core.truncate_top_k(v, 3)
    np.testing.assert_array_equal(v, before)
    block = np.ones((10, 3), dtype=dtype)
    block[position, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        core.truncate_rows_top_k(block, 3)
    assert np.sum(block == 1.0) == 29


WRONG_VECTORS = {
    "two axes": (np.ones((2, 2)), "ndim == 1"),
    "strided": (np.ones(4)[::2], "contiguous"),
    "int64": (np.ones(4, dtype=np.int64), "dtype"),
    "big-endian": (np.ones(4, dtype=">f8"), "dtype"),
}


@pytest.mark.parametrize("case", WRONG_VECTORS)
def test_other_vectors_are_refused(case):
    v, message = WRONG_VECTORS[case]
    with pytest.raises((TypeError, ValueError), match=message):
        core.truncate_top_k(v, 1)
    assert np.all(v == 1)


WRONG_BLOCKS = {
    "one axis": (np.ones(4), "ndim == 2"),
    "column-major": (np.ones((3, 2), order="F"), "contiguous"),
    "int64": (np.ones((2, 2), dtype=np.int64), "dtype"),
}


@pytest.mark.parametrize("case", WRONG_BLOCKS)
def test_other_blocks_are_refused(case):
    block, message = WRONG_BLOCKS[case]
    with pytest.raises((TypeError, ValueError), match=message):
        core.truncate_rows_top_k(block, 1)
    assert np.all(block == 1)


@pytest.mark.parametrize("call", [core.truncate_top_k, core.truncate_rows_top_k])
def test_read_only_arrays_are_refused(call):
    array = np.ones(4) if call is core.truncate_top_k else np.ones((4, 2))
    array.flags.writeable = False
    with pytest.raises((TypeError, ValueError), match="must be writeable"):
        call(array, 1)
    assert np.all(array == 1.0)
