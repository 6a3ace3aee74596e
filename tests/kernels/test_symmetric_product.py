"""Products with explicit symmetric matrices, of which half is read: against NumPy."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

DTYPES = [np.float32, np.float64]


def symmetric(d, dtype=np.float64, seed=0):
    matrix = np.random.default_rng([seed, d]).normal(size=(d, d)).astype(dtype)
    return np.triu(matrix) + np.triu(matrix, 1).T


def vectors(n_vectors, d, n_nonzeros=None):
    """Rows with nonzeros at random places, d of them unless told."""
    rng = np.random.default_rng([2, n_vectors, d])
    block = rng.normal(size=(n_vectors, d))
    for v in block if n_nonzeros is not None else ():
        v[rng.permutation(d)[n_nonzeros:]] = 0.0
    return block


def assert_close(product, expected):
    assert product.dtype == np.float64
    assert product.shape == expected.shape
    np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(expected), initial=1e-300))


def assert_products(block, a, b=None, n_threads=1):
    before = block.copy()
    kernel = core.SymmetricMatrices(a, b, n_threads)
    assert kernel.n_features == len(a)
    av, bv = kernel.times(block)
    assert_close(av, block @ a.astype(np.float64))
    if b is None:
        assert bv is None
    else:
        assert_close(bv, block @ b.astype(np.float64))
    np.testing.assert_array_equal(block, before)


@pytest.mark.parametrize("dtype", DTYPES)
@given(d=st.integers(1, 150), n_vectors=st.integers(1, 9), pair=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_matrices_of_any_size(dtype, d, n_vectors, pair):
    assert_products(vectors(n_vectors, d), symmetric(d, dtype), symmetric(d, dtype, 1) if pair else None)


@pytest.mark.parametrize("dtype", DTYPES)
@given(d=st.integers(1, 150), n_vectors=st.integers(1, 5), data=st.data())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_vectors_with_any_number_of_zeros(dtype, d, n_vectors, data):
    block = vectors(n_vectors, d, data.draw(st.integers(0, d)))
    assert_products(block, symmetric(d, dtype), symmetric(d, dtype, 1))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("n_vectors", [1, 4, 17])
@pytest.mark.parametrize("d", [511, 512, 513, 1500])
def test_large_matrices(d, n_vectors, n_threads, dtype):
    assert_products(vectors(n_vectors, d), symmetric(d, dtype), symmetric(d, dtype, 1), n_threads)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_sparse_and_dense_vectors_in_one_block(n_threads):
    block = vectors(6, 400)
    block[[1, 4]] = vectors(2, 400, 30)
    block[2] = 0.0
    block[5] = vectors(1, 400, 51)
    assert_products(block, symmetric(400), symmetric(400, seed=1), n_threads)


@pytest.mark.parametrize("n_nonzeros", [49, 50, 51])
def test_either_side_of_the_share_of_zeros_that_is_worth_a_gather(n_nonzeros):
    assert_products(vectors(2, 400, n_nonzeros), symmetric(400))


@pytest.mark.parametrize("n_nonzeros", [None, 40])
@pytest.mark.parametrize("n_vectors", [1, 3, 11])
@pytest.mark.parametrize("d", [1, 5, 300, 1111])
def test_threads_change_no_bit(d, n_vectors, n_nonzeros):
    block, a, b = vectors(n_vectors, d, n_nonzeros), symmetric(d), symmetric(d, seed=1)
    alone = core.SymmetricMatrices(a, b).times(block)
    for n_threads in (2, 3, 7):
        np.testing.assert_array_equal(core.SymmetricMatrices(a, b, n_threads).times(block), alone)


def test_a_matrix_does_not_depend_on_the_other():
    block, a, b = vectors(3, 300), symmetric(300), symmetric(300, seed=1)
    av, bv = core.SymmetricMatrices(a, b).times(block)
    assert_close(av, core.SymmetricMatrices(a).times(block)[0])
    assert_close(bv, core.SymmetricMatrices(b).times(block)[0])


@pytest.mark.parametrize("d", [2, 65, 700])
def test_dense_vectors_read_one_triangle(d):
    block, a = vectors(3, d), symmetric(d)
    upper = np.where(np.tri(d, k=-1, dtype=bool), np.nan, a)
    assert_close(core.SymmetricMatrices(upper, upper, 2).times(block)[1], block @ a)


@pytest.mark.parametrize("n_vectors", [1, 2])
def test_sparse_vectors_read_their_rows_alone(n_vectors):
    a = symmetric(200)
    block = np.zeros((n_vectors, 200))
    block[:, 20:30] = 1.5
    rest = np.ones(200, dtype=bool)
    rest[20:30] = False
    only = a.copy()
    only[rest] = np.nan
    assert_close(core.SymmetricMatrices(only).times(block)[0], block @ a)


def test_row_strides():
    buffer = np.full((90, 97), np.nan)
    buffer[:, 5:95] = symmetric(90)
    assert_products(vectors(2, 90), buffer[:, 5:95], buffer[:, 5:95])
    assert_products(vectors(2, 90, 5), buffer[:, 5:95])


def test_the_matrices_are_kept_alive():
    block, a = vectors(2, 200), symmetric(200)
    kernel = core.SymmetricMatrices(a.copy(), 2.0 * a)
    gc.collect()
    garbage = [np.full((200, 200), np.nan) for _ in range(20)]
    av, bv = kernel.times(block)
    assert_close(av, block @ a)
    assert_close(bv, 2.0 * block @ a)
    del garbage


A = symmetric(4)

WRONG_MATRICES = {
    "not square": ((np.ones((3, 4)),), "square"),
    "one axis": ((np.ones(4),), "square|ndim"),
    "of two sizes": ((A, symmetric(5)), "shape"),
    "of two types": ((A, A.astype(np.float32)), "dtype"),
    "of int64": ((np.ones((4, 4), dtype=np.int64),), "float32 or float64"),
    "column-major": ((np.asfortranarray(A),), "contiguous"),
    "b not square": ((A, np.ones((4, 3))), "square|shape"),
    "no thread": ((A, None, 0), "n_threads"),
}


@pytest.mark.parametrize("name", WRONG_MATRICES)
def test_other_matrices_are_refused(name):
    arguments, message = WRONG_MATRICES[name]
    with pytest.raises((TypeError, ValueError), match=message):
        core.SymmetricMatrices(*arguments)


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
    with pytest.raises((TypeError, ValueError), match=message):
        core.SymmetricMatrices(A).times(block)
