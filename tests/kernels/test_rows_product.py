"""Products with a moment matrix of rows, dense or CSR, and the factors that clip the rows: against plain NumPy."""

from __future__ import annotations

import gc
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import reference
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import sparse

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

DTYPES = [np.float32, np.float64]
INDEX_TYPES = [np.int32, np.int64]
LARGEST = sys.float_info.max


def case(n, d, n_vectors, dtype=np.float64, seed=0):
    """Rows, factors in (0, 1] and a block of vectors."""
    rng = np.random.default_rng([seed, n, d, n_vectors])
    return rng.normal(size=(n, d)).astype(dtype), rng.uniform(0.1, 1.0, n), rng.normal(size=(n_vectors, d))


def sparse_case(n, d, n_vectors, dtype=np.float64, index_type=np.int32, density=0.1):
    _, factors, block = case(n, d, n_vectors)
    rng = np.random.default_rng([1, n, d])
    rows = sparse.random(n, d, density, format="csr", random_state=rng, data_rvs=rng.standard_normal)
    return with_types(rows, dtype, index_type), factors, block


def with_types(rows, dtype=np.float64, index_type=np.int32):
    return rows.data.astype(dtype), rows.indices.astype(index_type), rows.indptr.astype(index_type), rows.shape


def csr_rows(arrays, factors, scale=1.0, n_threads=1):
    data, indices, indptr, shape = arrays
    return core.CsrRows(data, indices, indptr, shape[1], factors, scale, n_threads)


def dense(arrays):
    data, indices, indptr, shape = arrays
    return sparse.csr_matrix((data.astype(np.float64), indices, indptr), shape=shape).toarray()


def assert_close(product, expected):
    """To 1e-12 of the largest entry: sums cancel, entry by entry there is nothing to compare with."""
    assert product.dtype == np.float64
    assert product.shape == expected.shape
    np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(expected), initial=1e-300))


# --- dense rows ---


@pytest.mark.parametrize("dtype", DTYPES)
@given(n=st.integers(1, 40), d=st.integers(1, 70), n_vectors=st.integers(1, 9))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_dense_rows_of_any_shape(dtype, n, d, n_vectors):
    rows, factors, block = case(n, d, n_vectors, dtype)
    before = block.copy()
    kernel = core.DenseRows([rows], factors, 0.25)
    assert kernel.n_features == d
    assert_close(kernel.times(block), reference.rows_product(rows, factors, 0.25, block))
    np.testing.assert_array_equal(block, before)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_vectors", [1, 2, 10, 33])
@pytest.mark.parametrize(("n", "d"), [(5000, 61), (999, 1024), (4097, 8), (300, 5003)])
def test_large_dense_rows(n, d, n_vectors, dtype):
    rows, factors, block = case(n, d, n_vectors, dtype)
    product = core.DenseRows([rows], factors, 1.0 / n, 2).times(block)
    assert_close(product, reference.rows_product(rows, factors, 1.0 / n, block))


@given(widths=st.lists(st.integers(1, 30), min_size=1, max_size=4), n=st.integers(1, 30), data=st.data())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_views_are_the_parts_of_one_row(widths, n, data):
    types = data.draw(st.lists(st.sampled_from(DTYPES), min_size=len(widths), max_size=len(widths)))
    rows, factors, block = case(n, sum(widths), 3)
    parts = np.split(rows, np.cumsum(widths)[:-1], axis=1)
    views = [np.ascontiguousarray(part, dtype=dtype) for part, dtype in zip(parts, types, strict=True)]
    kernel = core.DenseRows(views, factors, 2.0, 2)
    assert kernel.n_features == sum(widths)
    assert_close(kernel.times(block), reference.rows_product(np.hstack(views), factors, 2.0, block))


def test_views_may_be_slices_of_columns_and_of_rows():
    rows, factors, block = case(101, 40, 2)
    views = [rows[::2, :13], rows[::2, 13:]]
    product = core.DenseRows(views, factors[::2].copy(), 1.0).times(block)
    assert_close(product, reference.rows_product(rows[::2], factors[::2], 1.0, block))


@pytest.mark.parametrize("n_vectors", [1, 3, 11])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 5), (1000, 37), (10_007, 64), (50, 6000)])
def test_threads_change_no_bit(n, d, n_vectors):
    rows, factors, block = case(n, d, n_vectors)
    arrays, _, _ = sparse_case(n, d, n_vectors)
    alone = [core.DenseRows([rows], factors, 0.5).times(block), csr_rows(arrays, factors, 0.5).times(block)]
    for n_threads in (2, 3, 7):
        together = core.DenseRows([rows], factors, 0.5, n_threads), csr_rows(arrays, factors, 0.5, n_threads)
        for kernel, expected in zip(together, alone, strict=True):
            np.testing.assert_array_equal(kernel.times(block), expected)


def test_the_rows_are_kept_alive():
    rows, factors, block = case(200, 30, 2)
    expected = reference.rows_product(rows, factors, 1.0, block)
    kernel = core.DenseRows([rows.copy()], factors.copy(), 1.0)
    arrays = with_types(sparse.csr_matrix(rows))
    csr = csr_rows([array.copy() for array in arrays[:3]] + [arrays[3]], factors.copy())
    del arrays
    gc.collect()
    garbage = [np.full((200, 30), np.nan) for _ in range(20)]
    assert_close(kernel.times(block), expected)
    assert_close(csr.times(block), expected)
    del garbage


def test_rows_near_the_ends_of_the_range():
    rows, _, block = case(20, 6, 2)
    factors = reference.clip_factors(rows, 1.0)
    for magnitude in (2.0**1000, 2.0**-900):
        product = core.DenseRows([magnitude * rows], factors / magnitude, 1.0).times(block)
        assert_close(product, reference.rows_product(rows, factors, 1.0, block))


# --- sparse rows ---


@pytest.mark.parametrize("index_type", INDEX_TYPES)
@pytest.mark.parametrize("dtype", DTYPES)
@given(n=st.integers(1, 40), d=st.integers(1, 70), n_vectors=st.integers(1, 9), density=st.floats(0.0, 1.0))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_csr_rows_of_any_shape(dtype, index_type, n, d, n_vectors, density):
    arrays, factors, block = sparse_case(n, d, n_vectors, dtype, index_type, density)
    kernel = csr_rows(arrays, factors, 0.25)
    assert kernel.n_features == d
    assert_close(kernel.times(block), reference.rows_product(dense(arrays), factors, 0.25, block))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("index_type", INDEX_TYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_csr_rows(dtype, index_type):
    arrays, factors, block = sparse_case(20_000, 500, 5, dtype, index_type, 0.02)
    product = csr_rows(arrays, factors, 1 / 20_000, 2).times(block)
    assert_close(product, reference.rows_product(dense(arrays), factors, 1 / 20_000, block))


@pytest.mark.parametrize("n_vectors", [1, 3])
@pytest.mark.parametrize("index_type", INDEX_TYPES)
def test_csr_rows_in_a_million_features(index_type, n_vectors):
    rng = np.random.default_rng(5)
    n, d, n_entries = 3000, 1_000_000, 40
    indices = np.sort(rng.integers(0, d, (n, n_entries)), axis=1).ravel()
    rows = sparse.csr_matrix((rng.normal(size=n * n_entries), indices, np.arange(n + 1) * n_entries), shape=(n, d))
    rows.sum_duplicates()
    factors, block = rng.uniform(0.1, 1.0, n), rng.normal(size=(n_vectors, d))
    factors[::3], factors[1::7] = 0.5, 0.0
    shrunk = sparse.diags(factors) @ rows
    # rows that count for nothing must not be multiplied: their products might overflow
    rows.data[np.repeat(factors == 0.0, np.diff(rows.indptr))] = LARGEST
    product = csr_rows(with_types(rows, index_type=index_type), factors, 1 / n, 2).times(block)
    assert_close(product, ((shrunk.T @ (shrunk @ block.T)) / n).T)


MEMORY = """
import resource
import numpy as np
from dpgep._dispatch import core

n, d = 200_000, 1_000_000
rng = np.random.default_rng(0)
kernel = core.CsrRows(
    rng.normal(size=5 * n), rng.integers(0, d, 5 * n).astype(np.int32), np.arange(n + 1, dtype=np.int32) * 5,
    d, np.ones(n), 1.0, 2)
block = rng.normal(size=(4, d))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kernel.times(block)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
def test_partial_sums_take_little_memory():
    result = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=300)
    # The answer itself takes 31 MiB, the partial sums at most 64, and there is a copy's worth of slack.
    assert int(result.stdout) <= 31 + 64 + 32


def test_rows_without_entries():
    arrays = (np.empty(0), np.empty(0, np.int32), np.zeros(6, np.int32), (5, 4))
    np.testing.assert_array_equal(csr_rows(arrays, np.ones(5)).times(np.ones((2, 4))), np.zeros((2, 4)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index_type", INDEX_TYPES)
def test_one_vector_and_rows_of_all_lengths(dtype, index_type):
    # The kernel takes runs of at most 256 entries, and looks at 16 entries of a row at a time. What a row that counts
    # for nothing holds must not be multiplied, whether it is inside of a run or by itself.
    lengths = np.array([0, 1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100, 255, 256, 257, 300, 0, 16, 240, 0, 1, 2])
    n, d, rng = len(lengths), 300, np.random.default_rng(0)
    indptr = np.append(0, np.cumsum(lengths))
    indices = np.concatenate([np.sort(rng.choice(d, length, replace=False)) for length in lengths])
    factors, data = rng.uniform(0.1, 1.0, n), rng.standard_normal(indptr[-1]).astype(dtype)
    arrays = data, indices.astype(index_type), indptr.astype(index_type), (n, d)
    v = rng.standard_normal((1, d))
    assert_close(csr_rows(arrays, factors).times(v), reference.rows_product(dense(arrays), factors, 1.0, v))
    # One by one, in the same order: neighbours in a run change no bit.
    by_itself = np.zeros(d)
    for i in range(n):
        by_itself += csr_rows(arrays, np.where(np.arange(n) == i, factors, 0.0)).times(v)[0]
    np.testing.assert_array_equal(csr_rows(arrays, factors).times(v)[0], by_itself)
    for i in (3, 11, 14):
        data[indptr[i]] = np.nan
        factors[i] = 0.0
    assert np.all(np.isfinite(csr_rows(arrays, factors).times(v)))


# --- contract of the rows ---

ROWS, FACTORS, BLOCK = case(6, 4, 2)

WRONG_DENSE = {
    "no view": (([], FACTORS, 1.0), "view"),
    "one axis": (([ROWS[0]], FACTORS, 1.0), "ndim"),
    "int64": (([ROWS.astype(np.int64)], FACTORS, 1.0), "float32 or float64"),
    "column-major": (([np.asfortranarray(ROWS)], FACTORS, 1.0), "contiguous"),
    "views of different length": (([ROWS, ROWS[:5]], FACTORS, 1.0), "rows"),
    "too few factors": (([ROWS], FACTORS[:5], 1.0), "factors"),
    "factors of float32": (([ROWS], FACTORS.astype(np.float32), 1.0), "factors"),
    "no thread": (([ROWS], FACTORS, 1.0, 0), "n_threads"),
    "scale nan": (([ROWS], FACTORS, np.nan), "scale"),
}


@pytest.mark.parametrize("name", WRONG_DENSE)
def test_other_dense_rows_are_refused(name):
    arguments, message = WRONG_DENSE[name]
    with pytest.raises((TypeError, ValueError), match=message):
        core.DenseRows(*arguments)


CSR = with_types(sparse.csr_matrix(ROWS))


def changed(**arrays):
    named = {"data": CSR[0], "indices": CSR[1], "indptr": CSR[2], "n_features": 4, "factors": FACTORS, "scale": 1.0}
    return list({**named, **arrays}.values())


def with_entry(array, i, value):
    array = array.copy()
    array[i] = value
    return array


WRONG_CSR = {
    "a column too far": (changed(indices=with_entry(CSR[1], 5, 4)), "indices"),
    "a negative column": (changed(indices=with_entry(CSR[1], 5, -1)), "indices"),
    "fewer features": (changed(n_features=3), "indices"),
    "rows that begin late": (changed(indptr=with_entry(CSR[2], 0, 1)), "indptr"),
    "a negative row pointer": (changed(indptr=with_entry(CSR[2], 1, -1)), "indptr"),
    "a decreasing row pointer": (changed(indptr=with_entry(CSR[2], 2, 3)), "indptr"),
    "a row pointer past the end": (changed(indptr=with_entry(CSR[2], 2, 1000)), "indptr"),
    "rows that end early": (changed(indptr=with_entry(CSR[2], -1, 23)), "indptr"),
    "rows that end late": (changed(indptr=with_entry(CSR[2], -1, 25)), "indptr"),
    "no row pointer": (changed(indptr=CSR[2][:0], factors=FACTORS[:0]), "indptr"),
    "a missing index": (changed(indices=CSR[1][:-1]), "indices"),
    "index types that differ": (changed(indptr=CSR[2].astype(np.int64)), "dtype|int"),
    "indices of int16": (changed(indices=CSR[1].astype(np.int16), indptr=CSR[2].astype(np.int16)), "dtype|int"),
    "data of int64": (changed(data=CSR[0].astype(np.int64)), "float32 or float64"),
    "too few factors": (changed(factors=FACTORS[:5]), "factors"),
    "strided data": (changed(data=np.repeat(CSR[0], 2)[::2]), "contiguous"),
}


@pytest.mark.parametrize("name", WRONG_CSR)
def test_other_csr_rows_are_refused(name):
    arguments, message = WRONG_CSR[name]
    with pytest.raises((TypeError, ValueError), match=message):
        core.CsrRows(*arguments)


def test_the_csr_rows_that_the_others_vary_are_accepted():
    assert_close(core.CsrRows(*changed()).times(BLOCK), reference.rows_product(ROWS, FACTORS, 1.0, BLOCK))


WRONG_BLOCKS = {
    "one axis": (np.ones(4), "ndim"),
    "too narrow": (np.ones((2, 3)), "4"),
    "too wide": (np.ones((2, 5)), "4"),
    "float32": (np.ones((2, 4), dtype=np.float32), "dtype"),
    "column-major": (np.asfortranarray(np.ones((3, 4))), "contiguous"),
}


@pytest.mark.parametrize("name", WRONG_BLOCKS)
def test_other_blocks_are_refused(name):
    block, message = WRONG_BLOCKS[name]
    for kernel in (core.DenseRows([ROWS], FACTORS, 1.0), core.CsrRows(*changed())):
        with pytest.raises((TypeError, ValueError), match=message):
            kernel.times(block)


# --- factors ---


def factors_of(rows, bound):
    before = rows.copy()
    out = np.full(len(rows), np.nan)
    assert core.clip_factors(rows, bound, out) is True
    np.testing.assert_array_equal(rows, before)
    return out


def factors_of_csr(rows, bound):
    csr = sparse.csr_matrix(rows)
    for index_type in INDEX_TYPES:
        out = np.full(len(rows), np.nan)
        assert core.clip_factors_csr(csr.data.astype(rows.dtype), csr.indptr.astype(index_type), bound, out) is True
    return out


def assert_within(rows, factors, bound):
    """The exact norm of every factor times its row is at most the bound."""
    for row, factor in zip(rows, factors, strict=True):
        assert 0.0 <= factor <= 1.0
        assert Fraction(factor) ** 2 * sum(Fraction(float(x)) ** 2 for x in row) <= Fraction(bound) ** 2


def finite(dtype):
    width = 8 * np.dtype(dtype).itemsize
    return st.one_of(st.floats(allow_nan=False, allow_infinity=False, width=width), st.floats(-2.0, 2.0, width=width))


@pytest.mark.parametrize("find", [factors_of, factors_of_csr])
@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), bound=st.one_of(st.just(1.0), st.floats(0.1, 10.0), st.floats(1e-300, 1e300)))
@drawn(200)
def test_factors_of_any_finite_rows(find, dtype, data, bound):
    shape = st.tuples(st.integers(0, 5), st.integers(1, 30))
    rows = data.draw(npst.arrays(dtype, shape, elements=finite(dtype)))
    factors = find(rows, bound)
    assert_within(rows, factors, bound)
    expected = reference.clip_factors(rows, bound)
    # A factor that is no normal number has fewer digits.
    np.testing.assert_allclose(factors, expected, rtol=1e-12, atol=2.0**-1070)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("find", [factors_of, factors_of_csr])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [1.0, 0.3, 7.0])
@pytest.mark.parametrize("d", [1, 2, 3, 8, 9, 100, 1001])
def test_norms_a_few_units_in_the_last_place_around_the_bound(d, bound, dtype, find):
    rows = np.random.default_rng(d).normal(size=(40, d))
    rows *= bound / np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= 1.0 + np.arange(-20, 20)[:, None] * np.finfo(dtype).eps
    rows = rows.astype(dtype)
    factors = find(rows, bound)
    assert_within(rows, factors, bound)
    assert np.all(factors >= 1.0 - 50 * np.finfo(dtype).eps - (d + 16) * 2.0**-52)


def test_rows_within_the_bound_are_left_alone_and_longer_ones_are_not():
    rows = np.array([[0.6, 0.7], [0.0, 0.0], [3.0, 4.0], [1e200, 0.0], [1.7e308, 1.7e308], [1e-320, 0.0]])
    factors = factors_of(rows, 1.0)
    np.testing.assert_array_equal(factors[[0, 1, 5]], 1.0)
    np.testing.assert_allclose(factors[[2, 3, 4]], [0.2, 0.0, 0.0], rtol=1e-12)
    assert_within(rows, factors, 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", [0, 4, 8])
def test_entries_that_are_not_finite_are_told(where, dtype, bad):
    rows = np.ones((3, 9), dtype=dtype)
    rows[1, where] = bad
    assert core.clip_factors(rows, 1.0, np.empty(3)) is False
    csr = sparse.csr_matrix(rows)
    assert core.clip_factors_csr(csr.data, csr.indptr, 1.0, np.empty(3)) is False


@pytest.mark.parametrize("bound", [0.0, -1.0, np.nan, np.inf])
def test_a_bound_out_of_range_is_refused(bound):
    with pytest.raises(ValueError, match="bound"):
        core.clip_factors(ROWS, bound, np.empty(6))
    with pytest.raises(ValueError, match="bound"):
        core.clip_factors_csr(CSR[0], CSR[2], bound, np.empty(6))


@pytest.mark.parametrize(
    "out",
    [np.empty(5), np.empty((6, 1)), np.empty(6, dtype=np.float32), np.empty(12)[::2]],
    ids=["short", "two axes", "float32", "strided"],
)
def test_other_outputs_of_factors_are_refused(out):
    with pytest.raises((TypeError, ValueError), match="out"):
        core.clip_factors(ROWS, 1.0, out)
    with pytest.raises((TypeError, ValueError), match="out"):
        core.clip_factors_csr(CSR[0], CSR[2], 1.0, out)


def test_a_row_pointer_that_leaves_the_data_is_refused():
    for indptr in (with_entry(CSR[2], -1, 25), with_entry(CSR[2], 1, -1), with_entry(CSR[2], 2, 3)):
        with pytest.raises(ValueError, match="indptr"):
            core.clip_factors_csr(CSR[0], indptr, 1.0, np.empty(6))


def test_a_read_only_output_is_refused():
    out = np.empty(6)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        core.clip_factors(ROWS, 1.0, out)
    with pytest.raises(ValueError, match="writeable"):
        core.clip_factors_csr(CSR[0], CSR[2], 1.0, out)
