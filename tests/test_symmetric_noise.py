"""Symmetric noise matrices, full and packed, and plain noise: entry by entry and in distribution.

The statistical tests use fixed keys; over the choice of the key each would fail on a correct kernel with
probability at most 1e-6 (see statistics_helpers), and each has a negative control that must be rejected.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_helpers import rejects_covariance, rejects_normality, seeded_key

from dpgep import reference
from dpgep._dispatch import core

KEY = seeded_key(11)
SHAPES = ["goe", "iid"]
N_MATRICES = 20_000
D = 4


def normal(n, key=KEY):
    deviates = np.empty(n)
    core.NoiseStream(key).normal(deviates)
    return deviates


def symmetric(d, seed=0):
    matrix = np.random.default_rng(seed).normal(size=(d, d))
    return matrix + matrix.T


def n_deviates(d):
    return d * (d + 1) // 2


# --- entry by entry ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d", [1, 2, 3, 5, 64, 301])
def test_full_matrix_agrees_with_the_reference(d, shape):
    matrix = symmetric(d)
    expected = matrix + reference.symmetric_noise(d, 0.7, shape, normal(n_deviates(d)))
    core.add_symmetric_noise(matrix, 0.7, shape, core.NoiseStream(KEY))
    np.testing.assert_allclose(matrix, expected, rtol=1e-15, atol=1e-15)
    np.testing.assert_array_equal(matrix, matrix.T)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d", [1, 2, 3, 5, 64, 301])
def test_packed_matrix_is_the_full_one_in_bits(d, shape):
    matrix = symmetric(d)
    packed = reference.pack(matrix)
    core.add_symmetric_noise(matrix, 0.7, shape, core.NoiseStream(KEY))
    core.add_symmetric_noise_packed(packed, 0.7, shape, core.NoiseStream(KEY))
    np.testing.assert_array_equal(packed, reference.pack(matrix))


@given(
    d=st.integers(1, 40),
    shape=st.sampled_from(SHAPES),
    scale=st.floats(1e-300, 1e300),
    skip=st.integers(0, 90),
)
@settings(deadline=None, derandomize=True)
def test_any_size_scale_and_position_in_the_stream(d, shape, scale, skip):
    stream, twin = core.NoiseStream(KEY), core.NoiseStream(KEY)
    stream.bytes(skip)
    twin.bytes(skip)
    deviates, matrix = np.empty(n_deviates(d)), np.zeros((d, d))
    twin.normal(deviates)
    core.add_symmetric_noise(matrix, scale, shape, stream)
    np.testing.assert_allclose(matrix, reference.symmetric_noise(d, scale, shape, deviates), rtol=1e-15, atol=0.0)
    # Both streams stand at the same byte afterwards.
    assert stream.bytes(16) == twin.bytes(16)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [0.0, 0.7])
def test_only_the_upper_triangle_is_read(shape, scale):
    matrix = symmetric(33)
    expected = matrix.copy()
    matrix[np.tril_indices(33, -1)] = np.nan
    core.add_symmetric_noise(expected, scale, shape, core.NoiseStream(KEY))
    core.add_symmetric_noise(matrix, scale, shape, core.NoiseStream(KEY))
    np.testing.assert_array_equal(matrix, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_corner_of_a_larger_matrix_is_done_in_place(shape):
    large = symmetric(50)
    expected = large.copy()
    corner = large[:30, :30].copy()
    core.add_symmetric_noise(corner, 0.7, shape, core.NoiseStream(KEY))
    expected[:30, :30] = corner
    core.add_symmetric_noise(large[:30, :30], 0.7, shape, core.NoiseStream(KEY))
    np.testing.assert_array_equal(large, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_scale_zero_mirrors_and_draws_nothing(shape):
    matrix = np.random.default_rng(0).normal(size=(9, 9))
    upper = np.triu(matrix)
    packed = np.arange(45.0)
    stream = core.NoiseStream(KEY)
    core.add_symmetric_noise(matrix, 0.0, shape, stream)
    core.add_symmetric_noise_packed(packed, 0.0, shape, stream)
    np.testing.assert_array_equal(matrix, upper + np.triu(upper, 1).T)
    np.testing.assert_array_equal(packed, np.arange(45.0))
    assert stream.bytes(64) == core.NoiseStream(KEY).bytes(64)


def test_a_matrix_of_no_rows():
    core.add_symmetric_noise(np.empty((0, 0)), 1.0, "goe", core.NoiseStream(KEY))
    core.add_symmetric_noise_packed(np.empty(0), 1.0, "goe", core.NoiseStream(KEY))


@pytest.mark.parametrize("size", [(1,), (7,), (5000,), (1, 1), (3, 5), (40, 101)])
def test_plain_noise_agrees_with_the_reference(size):
    array = np.random.default_rng(1).normal(size=size)
    expected = array + 0.3 * normal(array.size).reshape(size)
    core.add_noise(array, 0.3, core.NoiseStream(KEY))
    np.testing.assert_allclose(array, expected, rtol=1e-15, atol=1e-15)


def test_plain_noise_in_a_slice_of_columns():
    buffer = np.zeros((20, 9))
    core.add_noise(buffer[:, 2:7], 0.3, core.NoiseStream(KEY))
    np.testing.assert_allclose(buffer[:, 2:7], 0.3 * normal(100).reshape(20, 5), rtol=1e-15)
    assert not buffer[:, :2].any()
    assert not buffer[:, 7:].any()


def test_plain_noise_of_scale_zero_changes_nothing():
    array = np.arange(6.0)
    core.add_noise(array, 0.0, core.NoiseStream(KEY))
    np.testing.assert_array_equal(array, np.arange(6.0))


# --- in distribution ---


@cache
def kernel_noise(shape, scale):
    stream = core.NoiseStream(seeded_key(12))
    packed = np.empty((N_MATRICES, n_deviates(D)))
    for row in packed:
        matrix = np.zeros((D, D))
        core.add_symmetric_noise(matrix, scale, shape, stream)
        row[:] = reference.pack(matrix)
    packed.flags.writeable = False
    return packed


def closed_form_covariance(shape, scale, off_diagonal=1.0):
    """Covariance of the packed upper triangle; ``off_diagonal`` multiplies the off-diagonal deviation."""
    variances = np.full((D, D), scale**2 * off_diagonal**2 * (0.5 if shape == "goe" else 1.0))
    np.fill_diagonal(variances, scale**2)
    return np.diag(reference.pack(variances))


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
def test_covariance(shape):
    assert not rejects_covariance(kernel_noise(shape, 2.5), closed_form_covariance(shape, 2.5))


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_covariance_sees_a_scale_wrong_by_two_percent(shape, factor):
    assert rejects_covariance(kernel_noise(shape, 2.5 * factor), closed_form_covariance(shape, 2.5))


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [2.0**-0.5, 2.0**0.5])
def test_covariance_sees_an_off_diagonal_wrong_by_root_two(shape, factor):
    assert rejects_covariance(kernel_noise(shape, 2.5), closed_form_covariance(shape, 2.5, off_diagonal=factor))


@pytest.mark.statistical
def test_covariance_sees_repeated_noise():
    # One matrix of noise handed out twice: right variances, wrong correlations.
    noise = kernel_noise("goe", 1.0).copy()
    noise[:, 1] = noise[:, 2]
    assert rejects_covariance(noise, closed_form_covariance("goe", 1.0))


@pytest.mark.statistical
@pytest.mark.parametrize("shape", SHAPES)
def test_entries_are_normal(shape):
    noise = kernel_noise(shape, 2.5) / np.sqrt(np.diag(closed_form_covariance(shape, 2.5)))
    assert not rejects_normality(noise)


@pytest.mark.statistical
def test_goe_noise_is_orthogonally_invariant():
    # Q'ZQ has the law of Z for any fixed orthogonal Q; i.i.d. noise does not, and is rejected.
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(D, D)))[0]
    rotated = {
        shape: np.array([reference.pack(rotation.T @ reference.unpack(z) @ rotation) for z in kernel_noise(shape, 1.0)])
        for shape in SHAPES
    }
    assert not rejects_covariance(rotated["goe"], closed_form_covariance("goe", 1.0))
    assert rejects_covariance(rotated["iid"], closed_form_covariance("iid", 1.0))


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "rejected"), [(1.0, False), (0.98, True), (1.02, True)])
def test_plain_noise_has_its_covariance(factor, rejected):
    noise = np.zeros((60_000, 5))
    core.add_noise(noise, 0.3 * factor, core.NoiseStream(seeded_key(13)))
    assert rejects_covariance(noise, 0.3**2 * np.eye(5)) is rejected


# --- contract ---


@pytest.mark.parametrize("scale", [-1.0, np.nan, np.inf, -np.inf])
def test_a_scale_that_is_no_deviation_is_refused(scale):
    stream = core.NoiseStream(KEY)
    with pytest.raises(ValueError, match="scale"):
        core.add_symmetric_noise(np.zeros((2, 2)), scale, "goe", stream)
    with pytest.raises(ValueError, match="scale"):
        core.add_symmetric_noise_packed(np.zeros(3), scale, "goe", stream)
    with pytest.raises(ValueError, match="scale"):
        core.add_noise(np.zeros(3), scale, stream)


@pytest.mark.parametrize("shape", ["", "GOE", "wigner"])
def test_an_unknown_shape_is_refused_and_the_known_ones_are_named(shape):
    for call, array in (
        (core.add_symmetric_noise, np.zeros((2, 2))),
        (core.add_symmetric_noise_packed, np.zeros(3)),
    ):
        with pytest.raises(ValueError, match=r"goe.*iid"):
            call(array, 1.0, shape, core.NoiseStream(KEY))


REFUSED_MATRICES = {
    "not square": (np.zeros((2, 3)), "matrix must be square"),
    "one axis": (np.zeros(4), "matrix must be square"),
    "three axes": (np.zeros((2, 2, 2)), "matrix must be square|array must have ndim"),
    "float32": (np.zeros((2, 2), dtype=np.float32), "dtype float64"),
    "int64": (np.zeros((2, 2), dtype=np.int64), "dtype float64"),
    "big-endian": (np.zeros((2, 2), dtype=">f8"), "dtype float64"),
    "column-major": (np.zeros((2, 2), order="F"), "contiguous"),
    "every other column": (np.zeros((2, 4))[:, ::2], "contiguous"),
    "reversed rows": (np.zeros((2, 2))[::-1], "contiguous"),
    "one row repeated": (
        np.lib.stride_tricks.as_strided(np.zeros(2), (2, 2), (0, 8)),
        "contiguous",
    ),
}


@pytest.mark.parametrize("case", REFUSED_MATRICES)
def test_other_matrices_are_refused_and_unchanged(case):
    matrix, message = REFUSED_MATRICES[case]
    with pytest.raises((TypeError, ValueError), match=message):
        core.add_symmetric_noise(matrix, 1.0, "goe", core.NoiseStream(KEY))
    assert not matrix.any()


@pytest.mark.parametrize("case", ["three axes", "float32", "int64", "big-endian", "every other column"])
def test_plain_noise_refuses_other_arrays(case):
    array, message = REFUSED_MATRICES[case]
    with pytest.raises((TypeError, ValueError), match=message):
        core.add_noise(array, 1.0, core.NoiseStream(KEY))
    assert not array.any()


@pytest.mark.parametrize("size", [2, 4, 5])
def test_a_packed_length_that_is_no_triangle_is_refused(size):
    with pytest.raises(ValueError, match=str(size)):
        core.add_symmetric_noise_packed(np.zeros(size), 1.0, "goe", core.NoiseStream(KEY))


@pytest.mark.parametrize("call", ["matrix", "packed", "plain"])
def test_read_only_arrays_are_refused(call):
    kernel, array, arguments = {
        "matrix": (core.add_symmetric_noise, np.zeros((2, 2)), (1.0, "goe")),
        "packed": (core.add_symmetric_noise_packed, np.zeros(3), (1.0, "goe")),
        "plain": (core.add_noise, np.zeros(3), (1.0,)),
    }[call]
    array.flags.writeable = False
    with pytest.raises((TypeError, ValueError), match="must be writeable"):
        kernel(array, *arguments, core.NoiseStream(KEY))
    assert not array.any()
