"""Products with a noise matrix that is never formed: entry by entry, and against the matrices they stand for.

The statistical tests use fixed keys; over the choice of the key each would fail on a correct kernel with
probability at most 1e-6 (see statistics_helpers), and the covariance tests have negative controls that must
be rejected.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from statistics_helpers import rejects_covariance, rejects_equal_distributions, rejects_normality, seeded_key

from dpgep import reference
from dpgep._dispatch import core

KEY = seeded_key(21)
SHAPES = ["goe", "iid"]
SCALE = 1.7
N_PRODUCTS = 40_000
# Not a unit vector; one entry large enough for the i.i.d. shape to differ clearly from GOE.
VECTOR = np.array([1.5, -0.2, 0.0, 0.4, 0.1])
BLOCK = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 3)))[0]


def normal(n, key=KEY):
    deviates = np.empty(n)
    core.NoiseStream(key).normal(deviates)
    return deviates


def orthonormal(d, n_columns, dtype=np.float64):
    block = np.random.default_rng(d).normal(size=(d, n_columns))
    return np.ascontiguousarray(np.linalg.qr(block)[0].astype(dtype))


def n_block_deviates(d, n_columns):
    return d * n_columns + n_columns * (n_columns + 1) // 2


# --- entry by entry ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", [0.0, 1e-100, 1.0, 3.0, 1e100])
@pytest.mark.parametrize("d", [1, 2, 7, 1000])
def test_vector_product_agrees_with_the_reference(d, norm, shape):
    v = np.random.default_rng(d).normal(size=d)
    v *= norm / np.linalg.norm(v)
    before = v.copy()
    product = core.noise_times_vector(v, SCALE, shape, core.NoiseStream(KEY))
    expected = reference.noise_times_vector(v, SCALE, shape, normal(d + 1))
    # The i.i.d. shape subtracts v_i**2 from ||v||**2: where they agree, rounding leaves some 1e-8 ||v||.
    slack = 4e-7 if shape == "iid" and d == 1 else 1e-14
    np.testing.assert_allclose(product, expected, rtol=1e-13, atol=slack * SCALE * norm)
    np.testing.assert_array_equal(v, before)
    assert product.dtype == np.float64


@pytest.mark.parametrize("shape", SHAPES)
def test_vector_product_in_single_precision(shape):
    v = VECTOR.astype(np.float32)
    product = core.noise_times_vector(v, SCALE, shape, core.NoiseStream(KEY))
    expected = reference.noise_times_vector(v, SCALE, shape, normal(6))
    assert product.dtype == np.float32
    np.testing.assert_array_max_ulp(product, expected.astype(np.float32), maxulp=1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("largest", [1e-200, 1e200])
def test_vector_whose_squared_norm_leaves_the_range(largest, shape):
    product = core.noise_times_vector(largest * VECTOR, SCALE, shape, core.NoiseStream(KEY))
    expected = reference.noise_times_vector(VECTOR, SCALE, shape, normal(6))
    np.testing.assert_allclose(product / largest, expected, rtol=1e-12)


@pytest.mark.parametrize("n_columns", [1, 2, 5, 33])
@pytest.mark.parametrize("d", [33, 400])
def test_block_product_agrees_with_the_reference(d, n_columns):
    block = orthonormal(d, n_columns)
    before = block.copy()
    product = core.noise_times_block(block, SCALE, core.NoiseStream(KEY))
    expected = reference.noise_times_block(block, SCALE, normal(n_block_deviates(d, n_columns)))
    np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(block, before)
    assert product.dtype == np.float64


def test_block_product_in_single_precision():
    block = orthonormal(40, 3, np.float32)
    product = core.noise_times_block(block, SCALE, core.NoiseStream(KEY))
    expected = reference.noise_times_block(block, SCALE, normal(n_block_deviates(40, 3)))
    assert product.dtype == np.float32
    np.testing.assert_allclose(product, expected, rtol=1e-6, atol=1e-6)


def test_block_product_of_a_slice_of_columns():
    buffer = np.zeros((20, 7))
    buffer[:, 2:5] = orthonormal(20, 3)
    product = core.noise_times_block(buffer[:, 2:5], SCALE, core.NoiseStream(KEY))
    expected = core.noise_times_block(orthonormal(20, 3), SCALE, core.NoiseStream(KEY))
    np.testing.assert_array_equal(product, expected)


def test_block_of_one_column_takes_the_place_of_a_unit_vector():
    # Both are Z v for the same g; only the component along v is made differently.
    v = orthonormal(6, 1)
    across = np.eye(6) - v @ v.T
    block = core.noise_times_block(v, SCALE, core.NoiseStream(KEY))
    vector = core.noise_times_vector(v[:, 0].copy(), SCALE, "goe", core.NoiseStream(KEY))
    np.testing.assert_allclose(across @ block[:, 0], across @ vector, atol=1e-13)


def test_the_whole_space_gives_a_symmetric_matrix():
    # V'ZV is symmetric, since Z is.
    block = orthonormal(6, 6)
    within = block.T @ core.noise_times_block(block, SCALE, core.NoiseStream(KEY))
    np.testing.assert_allclose(within, within.T, atol=1e-13)


def test_products_draw_exactly_their_deviates():
    stream = core.NoiseStream(KEY)
    core.noise_times_vector(VECTOR, SCALE, "goe", stream)
    core.noise_times_vector(VECTOR, SCALE, "iid", stream)
    core.noise_times_block(BLOCK, SCALE, stream)
    # Six deviates each, then 15 + 6, of which the last pair gives one.
    drawn = 16 * (3 + 3 + 11)
    assert stream.bytes(16) == reference.chacha20_stream(KEY, 0, drawn + 16)[drawn:]


@pytest.mark.parametrize("shape", SHAPES)
def test_scale_zero_gives_zero(shape):
    assert not core.noise_times_vector(VECTOR, 0.0, shape, core.NoiseStream(KEY)).any()
    assert not core.noise_times_block(BLOCK, 0.0, core.NoiseStream(KEY)).any()


# --- in distribution ---


def vector_products(shape, scale=SCALE, v=VECTOR):
    stream = core.NoiseStream(seeded_key(22))
    return np.array([core.noise_times_vector(v, scale, shape, stream) for _ in range(N_PRODUCTS)], dtype=np.float64)


def block_products(scale=SCALE, block=BLOCK):
    stream = core.NoiseStream(seeded_key(23))
    products = [core.noise_times_block(block, scale, stream).ravel() for _ in range(N_PRODUCTS)]
    return np.array(products, dtype=np.float64)


@cache
def explicit_matrices(shape, d):
    deviates = normal(N_PRODUCTS * d * (d + 1) // 2, seeded_key(24)).reshape(N_PRODUCTS, -1)
    matrices = np.array([reference.symmetric_noise(d, SCALE, shape, g) for g in deviates])
    matrices.flags.writeable = False
    return matrices


def explicit_products(shape, block):
    """Products of explicit noise matrices with ``block`` (d, K), one a row."""
    return (explicit_matrices(shape, block.shape[0]) @ block).reshape(N_PRODUCTS, -1)


def vector_covariance(shape, v=VECTOR):
    d = v.size
    if shape == "goe":
        return SCALE**2 / 2.0 * ((v @ v) * np.eye(d) + np.outer(v, v))
    return SCALE**2 * ((v @ v) * np.eye(d) + np.outer(v, v) - np.diag(v**2))


def block_covariance(block=BLOCK):
    """Cov((ZV)_ia, (ZV)_jb) = scale**2 / 2 (delta_ij delta_ab + V_ja V_ib)."""
    d, n_columns = block.shape
    crossed = np.einsum("ja,ib->iajb", block, block).reshape(d * n_columns, d * n_columns)
    return SCALE**2 / 2.0 * (np.eye(d * n_columns) + crossed)


def projections(products):
    """Six fixed unit directions, so that the joint law shows, not only that of the entries."""
    directions = np.random.default_rng(5).normal(size=(products.shape[1], 6))
    return products @ (directions / np.linalg.norm(directions, axis=0))


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
def test_vector_product_has_the_covariance_of_the_closed_form(shape):
    assert not rejects_covariance(vector_products(shape), vector_covariance(shape))


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
def test_single_precision_vector_product_has_the_covariance_of_the_closed_form(shape):
    # Rounding to single precision moves the whitened sums by 1e-7, five orders below their deviation.
    products = vector_products(shape, v=VECTOR.astype(np.float32))
    assert not rejects_covariance(products, vector_covariance(shape))


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
def test_vector_product_is_normal(shape):
    whitener = np.linalg.inv(np.linalg.cholesky(vector_covariance(shape)))
    assert not rejects_normality(vector_products(shape) @ whitener.T)


@pytest.mark.statistical
def test_block_product_has_the_covariance_of_the_closed_form():
    assert not rejects_covariance(block_products(), block_covariance())


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
def test_explicit_matrices_have_the_covariance_of_the_closed_form(shape):
    # Holds the closed form itself, and through it the tests above, to the noise matrices.
    assert not rejects_covariance(explicit_products(shape, VECTOR[:, None]), vector_covariance(shape))


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
def test_vector_product_is_distributed_as_explicit_matrices(shape):
    explicit = projections(explicit_products(shape, VECTOR[:, None]))
    assert not rejects_equal_distributions(projections(vector_products(shape)), explicit)


@pytest.mark.statistical
def test_block_product_is_distributed_as_explicit_matrices():
    explicit = projections(explicit_products("goe", BLOCK))
    assert not rejects_equal_distributions(projections(block_products()), explicit)


# --- negative controls: what the tests above must reject ---


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [0.98, 1.02])
@pytest.mark.parametrize("shape", SHAPES)
def test_two_percent_are_seen(shape, factor):
    assert rejects_covariance(vector_products(shape, factor * SCALE), vector_covariance(shape))


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_two_percent_are_seen_in_a_block(factor):
    assert rejects_covariance(block_products(factor * SCALE), block_covariance())


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
def test_a_forgotten_term_along_v_is_seen(shape):
    deviates = normal(N_PRODUCTS * 6, seeded_key(25)).reshape(N_PRODUCTS, 6)
    deviates[:, -1] = 0.0
    forgetful = np.array([reference.noise_times_vector(VECTOR, SCALE, shape, g) for g in deviates])
    assert rejects_covariance(forgetful, vector_covariance(shape))
    assert rejects_equal_distributions(projections(forgetful), projections(explicit_products(shape, VECTOR[:, None])))


@pytest.mark.statistical
def test_the_norm_of_v_is_seen():
    unit = VECTOR / np.linalg.norm(VECTOR)
    assert rejects_covariance(vector_products("goe", v=unit), vector_covariance("goe"))


@pytest.mark.statistical
def test_one_shape_taken_for_the_other_is_seen():
    assert rejects_covariance(vector_products("goe"), vector_covariance("iid"))
    assert rejects_covariance(vector_products("iid"), vector_covariance("goe"))


@pytest.mark.statistical
def test_columns_treated_one_by_one_are_seen():
    # Independent products with each column forget that V'ZV is symmetric.
    stream = core.NoiseStream(seeded_key(26))
    columns = np.ascontiguousarray(BLOCK.T)
    products = [
        np.stack([core.noise_times_vector(v, SCALE, "goe", stream) for v in columns], axis=1).ravel()
        for _ in range(N_PRODUCTS)
    ]
    assert rejects_covariance(np.array(products), block_covariance())


# --- contract ---


@pytest.mark.parametrize("scale", [-1.0, np.nan, np.inf])
def test_a_scale_that_is_no_deviation_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        core.noise_times_vector(VECTOR, scale, "goe", core.NoiseStream(KEY))
    with pytest.raises(ValueError, match="scale"):
        core.noise_times_block(BLOCK, scale, core.NoiseStream(KEY))


def test_an_unknown_shape_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match=r"goe.*iid"):
        core.noise_times_vector(VECTOR, 1.0, "wigner", core.NoiseStream(KEY))


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-6), (np.float32, 1e-4)])
def test_a_block_that_is_not_orthonormal_is_refused(dtype, error):
    block = orthonormal(20, 3, dtype)
    block[:, 1] += dtype(error) * block[:, 0]
    with pytest.raises(ValueError, match="orthonormal"):
        core.noise_times_block(block, 1.0, core.NoiseStream(KEY))
    block = orthonormal(20, 3, dtype)
    block[:, 2] *= dtype(1.0 + error)
    with pytest.raises(ValueError, match="orthonormal"):
        core.noise_times_block(block, 1.0, core.NoiseStream(KEY))


def test_a_block_of_nan_is_refused():
    block = BLOCK.copy()
    block[0, 0] = np.nan
    with pytest.raises(ValueError, match="orthonormal"):
        core.noise_times_block(block, 1.0, core.NoiseStream(KEY))


def test_more_columns_than_rows_are_refused():
    with pytest.raises(ValueError, match="orthonormal"):
        core.noise_times_block(np.eye(2, 3), 1.0, core.NoiseStream(KEY))


@pytest.mark.parametrize(
    ("v", "message"),
    [
        (np.zeros((2, 2)), "ndim"),
        (np.zeros(4)[::2], "contiguous"),
        (np.zeros(4, dtype=np.int64), "dtype"),
        (np.zeros(4, dtype=np.complex128), "dtype"),
        ([0.0, 1.0], "incompatible"),
    ],
    ids=["two axes", "strided", "int64", "complex", "list"],
)
def test_other_vectors_are_refused(v, message):
    with pytest.raises((TypeError, ValueError), match=message):
        core.noise_times_vector(v, 1.0, "goe", core.NoiseStream(KEY))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (np.eye(4)[0], "ndim"),
        (np.asfortranarray(np.eye(4, 2)), "contiguous"),
        (np.eye(4, dtype=np.int64), "dtype"),
    ],
    ids=["one axis", "column-major", "int64"],
)
def test_other_blocks_are_refused(block, message):
    with pytest.raises((TypeError, ValueError), match=message):
        core.noise_times_block(block, 1.0, core.NoiseStream(KEY))
