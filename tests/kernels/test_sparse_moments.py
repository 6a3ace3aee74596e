"""Sparse rows that are never filled in: on the integer grid, their moment matrix, its diagonal, sums by group."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

DTYPES = [np.float32, np.float64]
INDEX_TYPES = [np.int32, np.int64]
THREADS = [1, 2, 5]


def arrays_of(rows: Any, dtype: Any, index_type: Any = np.int32) -> tuple[Any, Any, Any]:
    """(data, indices, indptr) of the nonzero entries of dense rows."""
    csr = sparse.csr_array(rows)
    return csr.data.astype(dtype), csr.indices.astype(index_type), csr.indptr.astype(index_type)


def sparse_rows(n: int, d: int, density: float, seed: int = 0) -> Any:
    """Dense rows, most entries zero; every third row empty."""
    rng = np.random.default_rng([seed, n, d])
    rows = np.where(rng.uniform(size=(n, d)) < density, rng.standard_normal((n, d)), 0.0)
    rows[::3] = 0.0
    return rows


def integer_rows(n: int, d: int, density: float, largest: int = 1 << 20) -> Any:
    return np.trunc(np.clip(sparse_rows(n, d, density) / 4, -1, 1) * largest).astype(np.int64)


# --- rows on the grid ---


def to_grid(data, indptr, bound, bits=20, n_threads=1):
    out = np.full(data.shape, 7, dtype=np.int32)
    assert core.fixed_point_csr(data, indptr, bound, bits, out, n_threads) is True
    return out


@given(
    lengths=st.lists(st.integers(0, 30), max_size=8),
    dtype=st.sampled_from(DTYPES),
    index_type=st.sampled_from(INDEX_TYPES),
    bound=st.one_of(st.just(1.0), st.floats(0.1, 1000.0), st.floats(1e-300, 1e300)),
    bits=st.integers(4, 20),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, derandomize=True)
def test_each_row_is_that_of_its_entries_alone(lengths, dtype, index_type, bound, bits, seed):
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(index_type)
    size = rng.choice([0.0, 1e-3, 1.0, 1e3, 1e30, float(np.sqrt(np.finfo(dtype).max))], int(indptr[-1]))
    data = (rng.standard_normal(int(indptr[-1])) * size).astype(dtype)
    out = to_grid(data, indptr, bound, bits)
    for begin, end in itertools.pairwise(indptr):
        row, q = data[begin:end], out[begin:end]
        dense = np.empty((1, len(row)))
        assert core.fixed_point_rows(row[None, :], bound, bits, dense)
        np.testing.assert_array_equal(q, dense[0])
        assert sum(int(entry) ** 2 for entry in q) <= 4**bits
        assert np.all(np.abs(q - reference.fixed_point_rows(row[None, :], bound, bits)[0]) <= 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_leave_the_grid_alone(dtype):
    rng = np.random.default_rng(3)
    lengths = rng.choice([0, 1, 50, 4000, 200_000], 300, p=[0.2, 0.3, 0.3, 0.19, 0.01])
    indptr = np.concatenate([[0, 0], np.cumsum(lengths), [lengths.sum()] * 2])
    data = rng.standard_normal(indptr[-1]).astype(dtype)
    alone = to_grid(data, indptr, 3.0)
    for n_threads in THREADS[1:]:
        np.testing.assert_array_equal(to_grid(data, indptr, 3.0, n_threads=n_threads), alone)
    exact = np.add.reduceat(np.append(alone.astype(np.int64) ** 2, 0), indptr[:-1])[np.diff(indptr) > 0]
    assert exact.max() <= 4**20
    assert exact.max() > 4**20 * (1 - 1e-4)  # rows were shrunk, and no more than needed


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 99_999, 199_999])
def test_one_entry_that_is_not_finite_is_noticed(wrong, place):
    data, indptr = np.ones(200_000), np.arange(0, 200_001, 10)
    data[place] = wrong
    for n_threads in THREADS:
        assert core.fixed_point_csr(data, indptr, 1.0, 20, np.empty(200_000, np.int32), n_threads) is False


def test_other_arrays_are_refused_by_the_grid():
    data, indptr, out = np.ones(4), np.array([0, 1, 4]), np.zeros(4, np.int32)
    read_only = out.copy()
    read_only.flags.writeable = False
    for arguments, message in [
        ((data.astype(np.float16), indptr, 1.0, 20, out), "data"),
        ((data, indptr.astype(np.int16), 1.0, 20, out), "indptr"),
        ((data, np.array([0, 5, 4]), 1.0, 20, out), "indptr must rise"),
        ((data, np.array([1, 2, 4]), 1.0, 20, out), "indptr must rise"),
        ((data, np.array([0, 1, 5]), 1.0, 20, out), "indptr must rise"),
        ((data, np.array([0, -1, 4]), 1.0, 20, out), "indptr must rise"),
        ((data, indptr[:0], 1.0, 20, out), "indptr must rise"),
        ((data, indptr, 1.0, 20, out[:3]), "out must have the shape of data"),
        ((data, indptr, 1.0, 20, out.astype(np.int64)), "out"),
        ((data, indptr, 1.0, 20, read_only), "out must be writeable"),
        ((data, indptr, 1.0, 20, data.view(np.int32)[:4]), "overlap"),
        ((data, indptr, 0.0, 20, out), "bound must satisfy"),
        ((data, indptr, 1.0, 21, out), "bits must satisfy"),
        ((data, indptr, 1.0, 20, out, 0), "n_threads >= 1"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            core.fixed_point_csr(*arguments)
    assert not out.any()
    assert np.all(data == 1.0)


# --- moments ---


def moments(rows, groups=None, n_groups=0, mark=1 << 20, n_threads=1, index_type=np.int32, start=None):
    """Of rows as they come; they must equal the moments of sorted rows, which the kernel forms for large totals."""
    d = rows.shape[1]
    total = np.zeros((d + n_groups,) * 2, dtype=np.int64) if start is None else start
    by_column = total.copy()
    arrays = arrays_of(rows, np.int32, index_type)
    core.add_csr_moments(*arrays, d, groups, mark, total, n_threads)
    core.add_csr_moments(*arrays, d, groups, mark, by_column, n_threads, sums_in_cache=0)
    np.testing.assert_array_equal(by_column, total)
    return total


def expected_moments(rows, groups=None, n_groups=0, mark=1 << 20):
    groups = np.zeros(len(rows), dtype=np.int64) if groups is None else groups
    if n_groups == 0:
        return np.triu(rows.T @ rows)
    return reference.marked_moments(rows, groups, n_groups, mark)


@pytest.mark.parametrize("index_type", INDEX_TYPES)
@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize(
    ("n", "d", "density"), [(0, 3, 0.5), (1, 1, 1.0), (5, 0, 0.5), (40, 7, 0.4), (500, 90, 0.1), (3000, 400, 0.02)]
)
def test_moments_are_the_exact_sum(n, d, density, n_threads, index_type):
    for rows, groups, n_groups, expected in moments_of_reference(n, d, density):
        total = moments(rows, groups, n_groups, n_threads=n_threads, index_type=index_type)
        np.testing.assert_array_equal(total, expected)


@functools.cache
def moments_of_reference(n, d, density):
    """(rows, groups, number of groups, moments), whatever the threads."""
    rows = integer_rows(n, d, density)
    moments_of = exact_in_doubles if n * d > 1_000_000 else expected_moments
    cases = ((0, None), (1, None), (4, np.arange(n) % 3))
    return [(rows, groups, n_groups, moments_of(rows, groups, n_groups)) for n_groups, groups in cases]


def exact_in_doubles(rows, groups=None, n_groups=0, mark=1 << 20):
    """`expected_moments` by BLAS, for which integers are not slow as they are in NumPy: no partial sum is rounded."""
    marks = np.zeros((len(rows), n_groups))
    if n_groups:
        marks[np.arange(len(rows)), 0 if groups is None else groups] = mark
    z = np.hstack([rows.astype(np.float64), marks])
    assert len(z) * np.abs(z).max() ** 2 < 2**53
    return np.triu(z.T @ z).astype(np.int64)


@given(data=st.data(), d=st.integers(0, 12), n=st.integers(0, 12), n_groups=st.integers(0, 4))
@settings(deadline=None, derandomize=True)
def test_moments_of_any_integers(data, d, n, n_groups):
    values = st.one_of(st.just(0), st.integers(-(2**29), 2**29))
    rows = np.array(data.draw(st.lists(values, min_size=n * d, max_size=n * d)), dtype=np.int64).reshape(n, d)
    mark = data.draw(st.integers(-(2**29), 2**29))
    groups = None
    if n_groups > 1 or (n_groups == 1 and data.draw(st.booleans())):
        groups = np.array(data.draw(st.lists(st.integers(0, n_groups - 1), min_size=n, max_size=n)), dtype=np.int64)
    expected = expected_moments(rows, groups, n_groups, mark)
    for n_threads in (1, 2):
        np.testing.assert_array_equal(moments(rows, groups, n_groups, mark, n_threads), expected)


def test_moments_against_scipy():
    """Enough rows for several chunks, and a column that is in every row."""
    rng = np.random.default_rng(8)
    present = rng.random((60_000, 300), dtype=np.float32) < 0.02
    present[:, 17] = True
    q = sparse.csr_array(present.astype(np.int64))
    q.data = np.where(q.indices == 17, 2**20, rng.integers(0, 2**20, q.nnz))
    expected = np.triu((q.T @ q).toarray())
    for n_threads, sums_in_cache in itertools.product(THREADS, (0, 300 * 300)):
        total = np.zeros((300, 300), dtype=np.int64)
        arguments = q.data.astype(np.int32), q.indices, q.indptr, 300, None, 0, total, n_threads, sums_in_cache
        core.add_csr_moments(*arguments)
        np.testing.assert_array_equal(total, expected)


def test_sums_larger_than_threads_may_have_are_those_of_one():
    rows = sparse.random_array((50, 2900), density=0.1, rng=np.random.default_rng(10), format="csr")
    arrays = (rows.data + 1).astype(np.int32), rows.indices, rows.indptr
    total = np.zeros((2900, 2900), dtype=np.int64)
    core.add_csr_moments(*arrays, 2900, None, 0, total, 2, sums_in_cache=total.size)
    present = (rows.toarray() != 0).astype(np.float64)
    np.testing.assert_array_equal(total, np.triu(present.T @ present))


@pytest.mark.deep
def test_moments_in_several_batches():
    """More entries than a batch holds, 2**22: rows that straddle its end are counted once."""
    n, d = 70_000, 64
    rng = np.random.default_rng(9)
    rows = rng.integers(-1000, 1001, (n, d))
    rows[rng.uniform(size=n) < 0.01] = 0
    groups = rng.integers(0, 3, n)
    expected = exact_in_doubles(rows, groups, 3, 1000)
    for n_threads in (1, 3):
        np.testing.assert_array_equal(moments(rows, groups, 3, 1000, n_threads), expected)


def test_moments_are_added_and_the_lower_triangle_is_left_alone():
    rows = integer_rows(50, 9, 0.5)
    start = np.arange(121).reshape(11, 11)
    wide = np.zeros((11, 15), dtype=np.int64)
    wide[:, :11] = start
    moments(rows, np.arange(50) % 2, 2, start=wide[:, :11])
    np.testing.assert_array_equal(wide[:, :11], start + expected_moments(rows, np.arange(50) % 2, 2))
    assert not wide[:, 11:].any()


def test_the_moments_of_the_grid_are_those_of_filled_rows():
    """The two paths of a release agree in every bit for rows inside the ball."""
    rows = sparse_rows(400, 30, 0.3)
    rows /= 1.01 * np.linalg.norm(rows, axis=1).max()
    filled = np.empty(rows.shape)
    assert core.fixed_point_rows(rows, 1.0, 20, filled)
    data, indices, indptr = arrays_of(rows, np.float64)
    total = np.zeros((30, 30), dtype=np.int64)
    core.add_csr_moments(to_grid(data, indptr, 1.0), indices, indptr, 30, None, 0, total)
    np.testing.assert_array_equal(total, np.triu(filled.T @ filled))
    # control: another entry, another sum
    data[3] += 2.0**-18
    changed = np.zeros((30, 30), dtype=np.int64)
    core.add_csr_moments(to_grid(data, indptr, 1.0), indices, indptr, 30, None, 0, changed)
    assert np.any(changed != total)


VALUES, INDICES, INDPTR = arrays_of(np.array([[1, 0, 2, 3], [0, 0, 0, 0], [4, 5, 0, 0]]), np.int32)


def changed(values=VALUES, indices=INDICES, indptr=INDPTR, n_features=4, groups=None, n_groups=1, n_threads=1):
    total = np.zeros((4 + n_groups,) * 2, dtype=np.int64)
    return (values, indices, indptr, n_features, groups, 1, total, n_threads)


def with_entry(array: Any, i: int, value: int) -> Any:
    array = array.copy()
    array[i] = value
    return array


WRONG_MOMENTS = {
    "a column too far": (changed(indices=with_entry(INDICES, 2, 4)), "0 <= index < n_features"),
    "a column far away": (changed(indices=with_entry(INDICES, 2, 2**31 - 1)), "0 <= index < n_features"),
    "a negative column": (changed(indices=with_entry(INDICES, 0, -1)), "0 <= index < n_features"),
    "unsorted columns": (changed(indices=INDICES[[1, 0, 2, 3, 4]]), "rise strictly"),
    "a column too far between others": (changed(indices=with_entry(INDICES, 1, 100)), "rise strictly"),
    "a duplicate": (changed(indices=with_entry(INDICES, 1, 0)), "rise strictly"),
    "rows that begin late": (changed(indptr=with_entry(INDPTR, 0, 1)), "indptr must rise"),
    "a negative row pointer": (changed(indptr=with_entry(INDPTR, 1, -1)), "indptr must rise"),
    "a row pointer past the end": (changed(indptr=with_entry(INDPTR, 1, 1000)), "indptr must rise"),
    "rows that end early": (changed(indptr=with_entry(INDPTR, -1, 4)), "indptr must rise"),
    "no row pointer": (changed(indptr=INDPTR[:0]), "indptr must rise"),
    "a missing index": (changed(indices=INDICES[:-1]), "as many entries"),
    "index types that differ": (changed(indptr=INDPTR.astype(np.int64)), "indices must have dtype"),
    "values of float64": (changed(values=VALUES.astype(np.float64)), "values must have dtype"),
    "too few features": (changed(n_features=3, groups=np.zeros(3, np.int64)), "0 <= index < n_features"),
    "more features than columns": (changed(n_features=6), "total must have"),
    "negative features": (changed(n_features=-1), "total must have"),
    "two columns for everybody": (changed(n_groups=2), "groups must have an entry"),
    "too few groups": (changed(groups=np.zeros(2, np.int64)), "groups must have an entry"),
    "a group too many": (changed(groups=np.array([0, 1, 0])), "0 <= group < n_groups"),
    "a negative group": (changed(groups=np.array([0, -1, 0])), "0 <= group < n_groups"),
    "groups without a column": (changed(groups=np.zeros(3, np.int64), n_groups=0), "0 <= group < n_groups"),
    "groups of int32": (changed(groups=np.zeros(3, np.int32)), "groups must have dtype"),
    "no thread": (changed(n_threads=0), "n_threads >= 1"),
}


@pytest.mark.parametrize("name", WRONG_MOMENTS)
def test_other_arrays_are_refused_by_the_moments(name):
    arguments, message = WRONG_MOMENTS[name]
    with pytest.raises((TypeError, ValueError), match=message):
        core.add_csr_moments(*arguments)
    assert not arguments[6].any()


def test_what_the_others_vary_is_accepted():
    arguments = changed()
    core.add_csr_moments(*arguments)
    z = np.array([[1, 0, 2, 3, 1], [0, 0, 0, 0, 1], [4, 5, 0, 0, 1]])
    np.testing.assert_array_equal(arguments[6], np.triu(z.T @ z))


def test_memory_that_total_shares_is_refused():
    total = np.zeros((5, 5), dtype=np.int64)
    groups = total[0, :3]
    with pytest.raises(ValueError, match="groups and total must not overlap"):
        core.add_csr_moments(VALUES, INDICES, INDPTR, 4, groups, 1, total)
    with pytest.raises(ValueError, match="values and total must not overlap"):
        core.add_csr_moments(total.view(np.int32)[0, :5], INDICES, INDPTR, 4, None, 1, total)


# --- the diagonal and the sums by group ---


def squares(arrays, factors, d, n_threads=1):
    out = np.full(d, np.nan)
    core.csr_squares(*arrays, factors, out, n_threads)
    return out


def sums(arrays, factors, groups, shape, n_threads=1):
    out = np.full(shape, np.nan)
    core.csr_group_sums(*arrays, factors, groups, out, n_threads)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index_type", INDEX_TYPES)
@pytest.mark.parametrize(("n", "d", "density"), [(0, 3, 0.5), (1, 1, 1.0), (40, 7, 0.4), (900, 200, 0.05), (9, 0, 1.0)])
def test_diagonal_and_sums_by_group(n, d, density, dtype, index_type):
    rows = sparse_rows(n, d, density).astype(dtype)
    factors = np.random.default_rng(1).uniform(0.1, 1.0, n)
    groups = np.arange(n) % 3
    arrays = arrays_of(rows, dtype, index_type)
    np.testing.assert_allclose(squares(arrays, factors, d), reference.row_squares(rows, factors), rtol=1e-13)
    for n_groups, marked in ((0, None), (1, None), (5, groups)):
        expected = reference.group_sums(rows, factors, groups if marked is not None else 0 * groups, max(n_groups, 1))
        found = sums(arrays, factors, marked, (d, n_groups))
        np.testing.assert_allclose(found, expected[:, :n_groups], rtol=1e-12, atol=1e-13)


def test_threads_leave_diagonal_and_sums_alone():
    rng = np.random.default_rng(4)
    # SciPy before 1.15 knows no `rng`
    rows = sparse.csr_array(sparse.random(40_000, 500, density=0.05, format="csr", random_state=rng))
    arrays = rows.data, rows.indices, rows.indptr
    factors, groups = rng.uniform(0.1, 1.0, 40_000), rng.integers(0, 4, 40_000)
    diagonal, by_group = squares(arrays, factors, 500), sums(arrays, factors, groups, (500, 4))
    weighted = sparse.diags_array(factors) @ rows
    np.testing.assert_allclose(diagonal, weighted.power(2).sum(axis=0), rtol=1e-11)
    np.testing.assert_allclose(by_group, weighted.T @ np.eye(4)[groups], rtol=1e-11)
    for n_threads in THREADS[1:]:
        np.testing.assert_array_equal(squares(arrays, factors, 500, n_threads), diagonal)
        np.testing.assert_array_equal(sums(arrays, factors, groups, (500, 4), n_threads), by_group)


def test_other_arrays_are_refused_by_the_diagonal_and_the_sums():
    data, factors, out, groups = VALUES.astype(np.float64), np.ones(3), np.zeros(4), np.array([0, 1, 0])
    unsorted, table = INDICES[[1, 0, 2, 3, 4]], np.zeros((4, 2))
    for arguments, message in [
        ((VALUES, INDICES, INDPTR, factors, out), "data must have dtype"),
        ((data, unsorted, INDPTR, factors, out), "rise strictly"),
        ((data, INDICES, INDPTR, factors, out[:3]), "0 <= index < n_features"),
        ((data, INDICES, INDPTR, factors[:2], out), "factors must have an entry"),
        ((data, INDICES, with_entry(INDPTR, 1, 9), factors, out), "indptr must rise"),
        ((data, INDICES, INDPTR, out[:3], out), "factors and out must not overlap"),
        ((data, INDICES, INDPTR, factors, out, 0), "n_threads >= 1"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            core.csr_squares(*arguments)
    for arguments, message in [
        ((data, unsorted, INDPTR, factors, groups, table), "rise strictly"),
        ((data, INDICES, INDPTR, factors, None, table), "groups must have an entry"),
        ((data, INDICES, INDPTR, factors, groups[:2], table), "groups must have an entry"),
        ((data, INDICES, INDPTR, factors, groups + 1, table), "0 <= group < n_groups"),
        ((data, INDICES, INDPTR, factors, groups, np.zeros((4, 5))[:, :2]), "out must be contiguous"),
        ((data, INDICES, INDPTR, factors, groups, table[:3]), "0 <= index < n_features"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            core.csr_group_sums(*arguments)
    assert not out.any()
    assert not table.any()
