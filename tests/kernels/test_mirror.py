"""The lower triangle of a symmetric matrix from the upper one."""

import numpy as np
import pytest

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("d", [0, 1, 2, 15, 16, 17, 33, 200])
def test_the_upper_triangle_is_copied(d):
    matrix = np.random.default_rng(d).normal(size=(d, d))
    expected = np.triu(matrix) + np.triu(matrix, 1).T
    core.mirror_upper(matrix)
    np.testing.assert_array_equal(matrix, expected)


def test_a_corner_leaves_the_rest():
    array = np.random.default_rng(1).normal(size=(40, 45))
    before = array.copy()
    core.mirror_upper(array[:30, :30])
    np.testing.assert_array_equal(array[:30, :30], np.triu(before[:30, :30]) + np.triu(before[:30, :30], 1).T)
    np.testing.assert_array_equal(array[30:], before[30:])
    np.testing.assert_array_equal(array[:, 30:], before[:, 30:])


def test_other_arrays_are_refused():
    with pytest.raises(ValueError, match=r"square|shape"):
        core.mirror_upper(np.zeros((2, 3)))
    with pytest.raises(TypeError):
        core.mirror_upper(np.zeros((2, 2), dtype=np.float32))
    frozen = np.zeros((2, 2))
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        core.mirror_upper(frozen)
