"""Products of rows on the grid with directions, and sums of clipped ones, by the kernels and plainly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import reference
from variants import kernels

from dpgep._dispatch import core
from dpgep.data.integer_sums import DIRECTION_BITS, Directions

pytestmark = pytest.mark.kernel

KERNELS = kernels()
BITS = 18


def rows_of(dtype: str, n: int, d: int) -> Any:
    """Rows of all lengths, some beyond the bound, others of zeros; what lies between them is not read."""
    rng = np.random.default_rng([n, d])
    rows = rng.standard_normal((n, d)) * np.exp(2 * rng.standard_normal((n, 1))) / math.sqrt(d)
    rows[::7] = 0.0
    memory = np.full((n, d + 3), 77 if dtype == "uint8" else np.nan, dtype)
    memory[:, 1 : d + 1] = np.abs(200 * rows) % 256 if dtype == "uint8" else rows
    return memory[:, 1 : d + 1]


def directions_of(m: int, d: int) -> Directions:
    rng = np.random.default_rng([m, d, 1])
    vectors = rng.standard_normal((m, d))
    return Directions.on_grid(vectors / np.linalg.norm(vectors, 2), rng.standard_normal(d) / (2 * d), BITS)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1.0), ("float32", 0.3), ("uint8", 150.0)])
@pytest.mark.parametrize(("n", "d", "m"), [(0, 3, 2), (1, 1, 2), (67, 9, 4), (300, 40, 2)])
def test_both_variants_equal_the_plain_twin(name: str, dtype: str, bound: float, n: int, d: int, m: int) -> None:
    kernel, rows, directions = KERNELS[name], rows_of(dtype, n, d), directions_of(m, d)
    on_grid = reference.fixed_point_rows(rows.astype(np.float64), bound, BITS)
    plain = (on_grid, directions.vectors, directions.offset)
    first, half = (d + 1) // 2, m // 2
    thresholds = (0.01, 0.6)
    # the first features by the last directions, and the other way round
    factors = [(0, first, half, 2.0**-DIRECTION_BITS / 0.01), (first, d - first, 0, 2.0**-DIRECTION_BITS / 0.6)]
    parts = [slice(half, m), slice(0, half)]
    of_parts = [
        reference.clipped_product(on_grid, plain[1][part], plain[2][part], threshold, BITS, DIRECTION_BITS)
        for part, threshold in zip(parts, thresholds, strict=True)
    ]
    expected = np.full((half, d + 1), 5)
    for (total, clipped, _), features in zip(of_parts, (slice(0, first), slice(first, d)), strict=True):
        expected[:, features] += np.array(total).reshape(d, half).T[:, features]
        if features.start == 0:
            expected[:, d] += np.array(clipped, dtype=np.int64).reshape(n, half).sum(axis=0)
    for n_threads in (1, 3):
        products = np.full((n, m), np.nan)
        assert kernel.products_on_grid(rows, bound, BITS, *plain[1:], products, n_threads)
        np.testing.assert_array_equal(products, on_grid @ plain[1].T - plain[2])
        total = np.full((half, d + 1), 5)
        assert kernel.add_clipped_products(rows, bound, BITS, *plain[1:], factors, total, n_threads)
        np.testing.assert_array_equal(total, expected)


def test_threads_change_nothing_where_there_is_work_for_them() -> None:
    rows, directions = rows_of("float32", 70_000, 12), directions_of(2, 12)
    totals = []
    for n_threads in (1, 4):
        totals.append(np.zeros((2, 13), dtype=np.int64))
        arguments = (rows, 0.3, BITS, directions.vectors, directions.offset, [(0, 12, 0, 2.0**-30)], totals[-1])
        assert core.add_clipped_products(*arguments, n_threads)
    np.testing.assert_array_equal(*totals)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    rows, directions = rows_of("float64", 50, 4).copy(), directions_of(2, 4)
    rows[49, 3] = value
    of_both = (rows, 1.0, BITS, directions.vectors, directions.offset)
    assert not core.products_on_grid(*of_both, np.empty((50, 2)))
    assert not core.add_clipped_products(*of_both, [(0, 4, 0, 2.0**-30)], np.zeros((2, 5), dtype=np.int64))


def test_shapes_that_do_not_fit_are_refused() -> None:
    rows, directions = np.zeros((5, 4)), directions_of(2, 4)
    good: dict[str, Any] = {
        "rows": rows, "bound": 1.0, "bits": BITS, "vectors": directions.vectors, "offset": directions.offset,
        "factors": [(0, 4, 0, 2.0**-30)], "total": np.zeros((2, 5), dtype=np.int64),
    }  # fmt: skip
    assert core.add_clipped_products(**good)
    wrong = [
        ("bits", 19, "bits must be at most 18"),
        ("vectors", np.zeros((2, 3)), "columns of rows"),
        ("offset", np.zeros(3), "each of the vectors"),
        ("factors", [], "must be factors"),
        ("factors", [(1, 4, 0, 1.0)], "within the features"),
        ("factors", [(0, 4, 1, 1.0)], "within the features"),
        ("total", np.zeros((2, 4), dtype=np.int64), "one more"),
    ]
    for name, value, message in wrong:
        with pytest.raises(ValueError, match=message):
            core.add_clipped_products(**{**good, name: value})
    with pytest.raises(ValueError, match="in one piece"):
        core.products_on_grid(rows, 1.0, BITS, directions.vectors, directions.offset, np.zeros((5, 3)))
    with pytest.raises(TypeError, match="float32"):
        core.products_on_grid(
            rows.astype(np.int64),  # type: ignore[arg-type]
            1.0, BITS, directions.vectors, directions.offset, np.zeros((5, 2)),
        )  # fmt: skip
