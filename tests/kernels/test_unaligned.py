"""Arrays that begin at any byte, as those do that Dask sends to a worker: the same bits as from aligned memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

import dpgep
from dpgep.local import GaussianRandomizer

FORMS = ["f8", "f4", "csr"]


def moved(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that begins one byte after a multiple of sixteen."""
    memory = np.empty(array.nbytes + 17, np.uint8)
    start = -memory.ctypes.data % 16 + 1
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert array.itemsize == 1 or not copy.flags.aligned
    return copy


def people(form: str, d: int) -> tuple[Any, Any, Any, Any]:
    """Rows and labels, and both unaligned."""
    rng = np.random.default_rng(d)
    x = np.round(5.0 * np.abs(rng.standard_normal((300, d))))
    labels = rng.integers(0, 3, 300)
    if form != "csr":
        return x.astype(form), labels, moved(x.astype(form)), moved(labels)
    rows = scipy.sparse.csr_array(np.where(x < 4, 0.0, x))
    shifted = rows.copy()
    shifted.data, shifted.indices, shifted.indptr = map(moved, (rows.data, rows.indices, rows.indptr))
    return rows, labels, shifted, moved(labels)


@pytest.mark.parametrize("form", [*FORMS, "u1"])  # of bytes, the labels are unaligned
@pytest.mark.parametrize("d", [6, 200])
def test_exact_moments(form: str, d: int) -> None:
    x, labels, shifted, shifted_labels = people(form, d)
    ours = dpgep.fda(shifted, shifted_labels, classes=[0, 1, 2], bound=30.0).integer_moments(20)
    plain = dpgep.fda(x, labels, classes=[0, 1, 2], bound=30.0).integer_moments(20)
    np.testing.assert_array_equal(np.triu(ours.second), np.triu(plain.second))
    np.testing.assert_array_equal(ours.sums, plain.sums)
    np.testing.assert_array_equal(ours.counts, plain.counts)


@pytest.mark.parametrize("form", FORMS)
def test_products(form: str) -> None:
    x, _, shifted, _ = people(form, 40)
    block = np.random.default_rng(1).standard_normal((3, 40))
    ours, plain = (dpgep.pca(rows, bound=30.0).dataset.row_products() for rows in (shifted, x))
    np.testing.assert_array_equal(ours.second_moment(1.0).times(block)[0], plain.second_moment(1.0).times(block)[0])
    np.testing.assert_array_equal(ours.factors, plain.factors)


@pytest.mark.parametrize("form", FORMS)
def test_a_solution_without_noise(form: str) -> None:
    x, labels, shifted, shifted_labels = people(form, 6)
    ours, plain = (
        dpgep.solve(dpgep.fda(rows, marks, classes=[0, 1, 2], bound=30.0), epsilon=np.inf).components
        for rows, marks in ((shifted, shifted_labels), (x, labels))
    )
    np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("form", FORMS)
def test_reports_of_people(form: str) -> None:
    x, _, shifted, _ = people(form, 6)
    ours, plain = (GaussianRandomizer(6, 30.0, math.inf).randomize_rows(rows) for rows in (shifted, x))
    np.testing.assert_array_equal(ours.values, plain.values)
