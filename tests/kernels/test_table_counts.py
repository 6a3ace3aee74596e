"""Histograms and sums of a table, norms and the map of its rows, by the kernels and plainly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from variants import kernels

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

KERNELS = kernels()
STEPS = 2.0 ** (np.arange(1, 4) / 4 - 1)
# every magnitude of doubles, and more rows and columns than a kernel looks at together
EXTREME = np.array([0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 2.0**-500, 1.0, -1.0, 1.5, 2.0**500, 1.7e308, -1.7e308])


def table(dtype: str, n: int, d: int, *, missing: bool) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([n, d, missing])
    rows = rng.standard_normal((n, d)) * np.exp(3 * rng.standard_normal(d))
    rows[rng.random((n, d)) < 0.1] = 0.0
    wild = rng.random((n, d)) < 0.05
    rows[wild] = rng.choice(EXTREME, wild.sum())
    if missing:
        rows[rng.random((n, d)) < 0.1] = np.nan
    with np.errstate(over="ignore"):
        rows = rows.astype(dtype)
    rows[np.isinf(rows)] = 3.0
    memory = np.full((n, d + 3), np.nan, dtype)  # rows apart: what lies between them is not read
    memory[:, 1 : d + 1] = rows
    return memory[:, 1 : d + 1]


def intervals(d: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(d)
    return rng.standard_normal(d), np.exp(3 * rng.standard_normal(d))


def all_of(kernel: Any, rows: Any, missing: bool, n_threads: int, weights: Any = None) -> tuple[list[Any], list[bool]]:
    """What each kernel makes of the rows, from other counts that it adds to, and whether it says that all is there."""
    n, d = rows.shape
    columns = np.arange(d - 1, -1, -2)
    middle, half = intervals(d)
    shapes = [(len(columns), 2, 101), (len(columns), 7), (3, d), (50,), (50,)]
    counts = [np.full(shape, 5, dtype=np.int64) for shape in shapes]
    out = np.empty((n, d))
    said = [
        kernel.count_magnitudes(rows, columns, missing, -50, 100, counts[0], n_threads, weights),
        kernel.count_places(rows, columns, missing, middle[columns], half[columns], counts[1], n_threads, weights),
        kernel.sum_places(rows, missing, middle, half, 10, counts[2], n_threads, weights),
        kernel.count_norms(np.nan_to_num(rows, nan=0.0), STEPS, -100, -20, counts[3], n_threads, weights),
        kernel.count_norms(rows, STEPS, -100, -20, counts[4], n_threads, weights, (middle, half, 12.0, missing)),
        kernel.map_rows(rows, middle, half, 12.0, missing, out, n_threads),
    ]
    return [*(each - 5 for each in counts), out], said


def plainly(rows: Any, weights: Any = 1) -> list[Any]:
    d = rows.shape[1]
    columns = np.arange(d - 1, -1, -2)
    middle, half = intervals(d)
    return [
        reference.count_magnitudes(rows, columns, -50, 100, weights),
        reference.count_places(rows, columns, middle[columns], half[columns], 7, weights),
        reference.sum_places(rows, middle, half, 10, weights),
        reference.count_norms(np.nan_to_num(rows, nan=0.0), STEPS, -100, -20, 50, weights),
        reference.count_norms(reference.map_rows(rows, middle, half, 12.0), STEPS, -100, -20, 50, weights),
        reference.map_rows(rows, middle, half, 12.0),
    ]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("n", "d"), [(0, 3), (1, 1), (7, 8), (1100, 3), (50, 64), (3, 131), (3, 530), (33000, 2), (21000, 70)]
)
@pytest.mark.parametrize("missing", [False, True])
def test_kernels_agree_with_the_reference_for_any_threads_and_variant(
    dtype: str, n: int, d: int, missing: bool
) -> None:
    rows = table(dtype, n, d, missing=missing)
    expected = plainly(rows)
    for name, kernel in KERNELS.items():
        for n_threads in (1, 3):
            found, said = all_of(kernel, rows, missing, n_threads)
            assert said == [True] * 6, name
            for each, plain in zip(found, expected, strict=True):
                np.testing.assert_array_equal(each, plain, err_msg=name)


@pytest.mark.parametrize(("n", "d"), [(0, 3), (7, 8), (1100, 3), (3, 131), (3, 530), (33000, 2), (21000, 70)])
@pytest.mark.parametrize("missing", [False, True])
def test_rows_count_as_often_as_they_weigh(n: int, d: int, missing: bool) -> None:
    rows = table("f8", n, d, missing=missing)
    weights = np.random.default_rng(n).choice([0, 1, 819, 4096], n).astype(np.int16)
    expected = plainly(rows, weights)
    for name, kernel in KERNELS.items():
        for n_threads in (1, 3):
            found, said = all_of(kernel, rows, missing, n_threads, weights)
            assert said == [True] * 6, name
            for each, plain in zip(found, expected, strict=True):
                np.testing.assert_array_equal(each, plain, err_msg=name)


@pytest.mark.parametrize("largest", [np.inf, 12.0])
@pytest.mark.parametrize(
    ("locations", "scales"),
    [((-799, 800), (-100, 100)), ((-900, -800), (-100, 100)), ((-20, 20), (-1000, 1000)), ((-799, -700), (200, 800))],
)
def test_quotients_are_rounded_as_division_rounds(
    locations: tuple[int, int], scales: tuple[int, int], largest: float
) -> None:
    rng, (n, d) = np.random.default_rng(0), (2000, 41)

    def of_size(least: int, most: int, shape: Any) -> Any:
        return np.ldexp(rng.uniform(0.5, 1, shape), rng.integers(least, most + 1, shape))

    location, scale = of_size(*locations, d) * rng.choice([-1, 1], d), of_size(*scales, d)
    some = rng.choice(d, 5)
    location[some], scale[some[:3]] = 0.0 if largest == 12 else 3.0, np.nextafter([1.0, 2.0, 2.0], 0)
    rows = of_size(-1073, 1024, (n, d)) * rng.choice([-1, 1], (n, d))
    near = rng.random((n, d)) < 0.7
    rows[near] = (location + rng.integers(-40, 41, (n, d)) * np.spacing(location))[near]
    rows[rng.random((n, d)) < 0.1] = rng.choice(EXTREME)
    expected, found = reference.map_rows(rows, location, scale, largest), np.empty_like(rows)
    for kernel in KERNELS.values():
        assert kernel.map_rows(rows, location, scale, largest, False, found)
        np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))


@given(hnp.arrays(np.float64, (5, 3), elements=st.floats(width=64)), st.booleans())
def test_who_is_refused(rows: Any, missing: bool) -> None:
    refused = np.isinf(rows) | (np.isnan(rows) & (not missing))
    columns = np.array([0, 2])
    middle, half = intervals(3)
    asked = bool(refused[:, columns].any())
    out = np.empty_like(rows)
    for kernel in KERNELS.values():
        counts = [np.zeros(shape, np.int64) for shape in [(2, 2, 9), (2, 4), (3, 3), (6,)]]
        assert kernel.count_magnitudes(rows, columns, missing, -4, 8, counts[0]) is not asked
        two = middle[columns], half[columns]
        assert kernel.count_places(rows, columns, missing, *two, counts[1]) is not asked
        assert kernel.sum_places(rows, missing, middle, half, 10, counts[2]) is not bool(refused.any())
        assert kernel.count_norms(rows, STEPS, 0, 0, counts[3]) is bool(np.isfinite(rows).all())
        assert kernel.map_rows(rows, None, None, 1e3, missing, out) is not bool(refused.any())


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(("n", "d"), [(0, 3), (1, 1), (7, 8), (1100, 3), (3, 530), (33000, 2), (9000, 70)])
def test_norms_of_sparse_rows_are_those_of_filled_in_ones(dtype: str, index: Any, n: int, d: int) -> None:
    rng = np.random.default_rng([n, d])
    rows = np.where(rng.random((n, d)) < 0.3, table(dtype, n, d, missing=False), 0).astype(dtype)
    weights = rng.integers(0, 9, n).astype(np.int16)
    csr = sparse.csr_array(rows)
    for name, kernel in KERNELS.items():
        for n_threads, weight in ((1, None), (3, weights)):
            expected = reference.count_norms(rows, STEPS, -100, -20, 50, 1 if weight is None else weight) + 5
            counts = np.full(50, 5, dtype=np.int64)
            arrays = csr.data, csr.indptr.astype(index)
            assert kernel.count_norms_csr(*arrays, STEPS, -100, -20, counts, n_threads, weight), name
            np.testing.assert_array_equal(counts, expected, err_msg=name)


@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 5, 39])
def test_sparse_rows_with_infinities_and_nan_are_refused(wild: float, place: int) -> None:
    data, indptr = np.ones(40), np.arange(0, 41, 8)
    data[place] = wild
    for kernel in KERNELS.values():
        assert not kernel.count_norms_csr(data, indptr, STEPS, 0, 0, np.zeros(3, np.int64))


@given(hnp.arrays(np.float64, (4, 3), elements=st.floats(allow_nan=False, allow_infinity=False, width=64)))
def test_any_numbers(rows: Any) -> None:
    expected = plainly(rows)
    for kernel in KERNELS.values():
        found, _ = all_of(kernel, rows, False, 1)
        for each, plain in zip(found, expected, strict=True):
            np.testing.assert_array_equal(each, plain)


@pytest.mark.parametrize("n_bins", [1, 2, 7, 32, 1000, 1 << 17])
@pytest.mark.parametrize("missing", [False, True])
def test_places_about_the_ends_of_bins(n_bins: int, missing: bool) -> None:
    rng = np.random.default_rng(n_bins)
    middle, half = rng.standard_normal(9), np.exp(3 * rng.standard_normal(9))
    half[:3], middle[:2] = [0.5, 2.0**-1020, 2.0**1010], 0.0
    ends = middle + half * (2 * rng.integers(0, n_bins + 1, (400, 9)) / n_bins - 1)
    rows = ends + rng.integers(-3, 4, ends.shape) * np.spacing(np.abs(ends))
    if missing:
        rows[rng.random(rows.shape) < 0.2] = np.nan
    expected = reference.count_places(rows, np.arange(9), middle, half, n_bins)
    for name, kernel in KERNELS.items():
        counts = np.zeros((9, n_bins), dtype=np.int64)
        assert kernel.count_places(rows, np.arange(9), missing, middle, half, counts)
        np.testing.assert_array_equal(counts, expected, err_msg=name)


@pytest.mark.parametrize("n", [2047, 2048, 2055, 140_001])
def test_rows_alike_and_odd_rows_are_counted_in_pairs(n: int) -> None:
    """More pairs of the same bins than 16 bits count, rows that are in no pair, and pairs of rows that lie apart."""
    rows = np.zeros((n, 3)) + 0.3
    rows[::2, 1], rows[-1, 2] = -0.6, 0.9
    middle, half = np.zeros(3), np.ones(3)
    for n_bins in (31, 32, 33):
        expected = reference.count_places(rows, np.arange(3), middle, half, n_bins)
        for name, kernel in KERNELS.items():
            counts = np.zeros((3, n_bins), dtype=np.int64)
            assert kernel.count_places(rows, np.arange(3), False, middle, half, counts)
            np.testing.assert_array_equal(counts, expected, err_msg=name)


@pytest.mark.parametrize("d", [1, 7, 40])
def test_norms_about_the_ends_of_bins(d: int) -> None:
    """Where rounding decides, the kernel looks again: a last digit, and 2^-36 of the square, to each side."""
    ends = np.ldexp(np.append(STEPS, 1.0), np.arange(-9, 11)[:, None]).ravel()
    sides = [
        np.nextafter(ends, 0),
        ends,
        np.nextafter(ends, np.inf),
        *(ends * (1 + s * 2.0**-37) for s in (-3, -1, 1, 3)),
    ]
    alone = np.concatenate(sides)[:, None] * np.eye(1, d)
    spread = np.concatenate(sides)[:, None] * np.full(d, d**-0.5)
    rows = np.concatenate([alone, spread])
    center, scale = np.full(d, 0.5), np.full(d, 3.0)
    mapped = (3.0 * rows + center, (center, scale, np.inf, False))
    for some, row_map in ((rows, None), mapped):
        expected = reference.count_norms(some if row_map is None else (some - center) / scale, STEPS, -100, -60, 120)
        for name, kernel in KERNELS.items():
            counts = np.zeros(120, np.int64)
            assert kernel.count_norms(some, STEPS, -100, -60, counts, 1, None, row_map)
            np.testing.assert_array_equal(counts, expected, err_msg=name)


@pytest.mark.parametrize(("n", "d"), [(0, 2), (1, 1), (7, 3), (600, 40), (3000, 131)])
def test_rows_are_mixed_in_place_without_rounding(n: int, d: int) -> None:
    rng = np.random.default_rng([n, d])
    memory = rng.standard_normal((n, d + 2))
    linear = np.rint(rng.standard_normal((d, d)) * 2**15)
    expected = reference.mix_rows(memory[:, 1:-1], linear, 20)
    for name, kernel in KERNELS.items():
        for n_threads in (1, 3):
            found = memory.copy()
            kernel.mix_rows(found[:, 1:-1], linear, 20, n_threads)
            np.testing.assert_array_equal(found[:, 1:-1], expected, err_msg=name)
            np.testing.assert_array_equal(found[:, [0, -1]], memory[:, [0, -1]])


def test_rows_may_be_mapped_in_place_and_nothing_between_them_is_touched() -> None:
    rows = table("f8", 40, 9, missing=True)
    before, memory = rows.copy(), rows.base
    around = memory.copy()
    assert core.map_rows(rows, None, np.full(9, 2.0), 5.0, True, rows)
    np.testing.assert_array_equal(rows, reference.map_rows(before, None, np.full(9, 2.0), 5.0))
    np.testing.assert_array_equal(memory[:, [0, -2, -1]], around[:, [0, -2, -1]])


ROWS, ONE, COUNTS = np.zeros((4, 2)), np.ones(2), np.zeros((2, 2, 9), np.int64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: core.count_magnitudes(ROWS, np.array([2]), False, 0, 8, COUNTS[:1]),
            ValueError,
            "columns of the rows",
        ),
        (lambda: core.count_magnitudes(ROWS, np.array([0]), False, 0, 8, COUNTS), ValueError, "counts must have shape"),
        (lambda: core.count_magnitudes(ROWS, np.array([0, 1]), False, 2**40, 8, COUNTS), ValueError, "octaves must be"),
        (lambda: core.count_magnitudes(ROWS, np.array([0, 1]), False, 0, 8, COUNTS, 0), ValueError, "n_threads >= 1"),
        (lambda: core.count_magnitudes(ROWS, COUNTS.ravel()[:2], False, 0, 8, COUNTS), ValueError, "not overlap"),
        (lambda: core.count_places(ROWS, COUNTS.ravel()[:2], False, ONE, ONE, COUNTS), ValueError, "not overlap"),
        (
            lambda: core.sum_places(ROWS, True, np.inf * ONE, ONE, 10, np.zeros((3, 2), np.int64)),
            ValueError,
            "middle must be finite",
        ),
        (
            lambda: core.count_places(ROWS, np.array([0, 1]), False, ONE, 0 * ONE, COUNTS),
            ValueError,
            "half must be pos",
        ),
        (
            lambda: core.count_places(ROWS, np.array([0, 1]), False, ONE[:1], ONE, COUNTS),
            ValueError,
            "an interval must",
        ),
        (lambda: core.sum_places(ROWS, False, ONE, ONE, 11, np.zeros((3, 2), np.int64)), ValueError, "bits must be"),
        (
            lambda: core.sum_places(ROWS, False, ONE, ONE, 10, np.zeros((2, 3, 2), np.int64)),
            ValueError,
            "must have shape",
        ),
        (
            lambda: core.sum_places(ROWS, False, ONE, ONE, 10, np.zeros((3, 2))),
            TypeError,
            "counts must have dtype int64",
        ),
        (lambda: core.count_norms(ROWS, STEPS, 0, 0, np.zeros(0, np.int64)), ValueError, "counts must have bins"),
        *(
            (lambda w=w: core.count_norms(ROWS, STEPS, 0, 0, np.zeros(3, np.int64), 1, w), error, message)
            for w, error, message in (
                (np.ones(3, np.int16), ValueError, "weights must have an entry for each row"),
                (np.array([1, 1, -1, 1], np.int16), ValueError, "weights must be between 0 and 8192"),
                (np.array([1, 1, 8193, 1], np.int16), ValueError, "weights must be between 0 and 8192"),
                (np.ones(4), TypeError, "weights must have dtype int16"),
            )
        ),
        *(
            (
                lambda p=p: core.count_norms_csr(np.ones(4), np.array(p, np.int64), STEPS, 0, 0, np.zeros(3, np.int64)),
                ValueError,
                "indptr",
            )
            for p in ([0, 2, 1, 4], [1, 4], [0, 3], [0, 5], [-1, 4], [])
        ),
        (
            lambda: core.count_norms_csr(np.ones(4), np.array([0, 4]), STEPS, 0, 0, np.zeros(0, np.int64)),
            ValueError,
            "counts must have bins",
        ),
        (
            lambda: core.count_norms_csr(
                np.ones(4), np.array([0, 4]), STEPS, 0, 0, np.zeros(3, np.int64), 1, np.ones(2, np.int16)
            ),
            ValueError,
            "weights must have an entry for each row",
        ),
        (
            lambda: core.count_norms(ROWS.astype(int), STEPS, 0, 0, np.zeros(3, np.int64)),
            TypeError,
            "rows must have dtype",
        ),
        (lambda: core.map_rows(ROWS, ONE, np.ones(3), 1.0, False, ROWS), ValueError, "location and scale"),
        (lambda: core.map_rows(ROWS, ONE, ONE, 1.0, False, np.zeros((4, 3))), ValueError, "out must have the shape"),
        (lambda: core.mix_rows(ROWS, np.eye(3), 20), ValueError, "linear must have shape"),
        (lambda: core.mix_rows(ROWS, np.eye(2), 1001), ValueError, "bits must be between"),
        (
            lambda: core.map_rows(ROWS[:2], ONE, ONE, 1.0, False, ROWS[1:3]),
            ValueError,
            "out must be the memory of rows",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
