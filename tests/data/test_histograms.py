"""Histograms and sums of a table against NumPy, and what one person can change of them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpgep.data.dataset import InMemoryDataset, PreprocessedDataset, preprocessed
from dpgep.data.integer_sums import PLACE_BITS, ColumnSums, MagnitudeCounts, NormCounts, PlaceCounts
from dpgep.data.rows import Batch, NotFiniteError, Rows, Sums, block_height, plain_blocks
from dpgep.models.bins import FIRST_OCTAVE, N_OCTAVES, NORM_STEPS, Interval
from dpgep.models.preprocessing import Preprocessing
from dpgep.sources.batches import Columns

ANY = st.floats(allow_nan=False, allow_infinity=False, width=64)
FIRST_NORM, N_NORMS = NORM_STEPS * FIRST_OCTAVE, NORM_STEPS * N_OCTAVES


def batch_of(rows: Any) -> Batch:
    return Batch(Rows((rows,), 1.0))


def sums(make: Any, rows: Any) -> Any:
    made = make()
    made.add(batch_of(rows))
    return made.counts


def tables(n: int, d: int, elements: Any = ANY) -> Any:
    return hnp.arrays(np.float64, (n, d), elements=elements)


def makers(d: int) -> dict[str, Any]:
    """What is summed, with the largest squared change of a replaced and of an added row."""
    interval = Interval(np.linspace(-1.0, 1.0, d), np.full(d, 2.0))
    return {
        "magnitudes": (lambda: MagnitudeCounts(np.arange(d)), 2 * d, d, 1),
        "places": (lambda: PlaceCounts(np.arange(d), interval, 8), 2 * d, d, 1),
        "norms": (lambda: NormCounts(FIRST_NORM, N_NORMS), 2, 1, 1),
        "sums": (lambda: ColumnSums(interval), 4 * d, 3 * d, np.array([[2**PLACE_BITS], [4**PLACE_BITS], [1]])),
    }


def test_magnitudes_are_octaves() -> None:
    ends = [0.0, -0.0, 5e-324, 2.0**-1022, 0.75, 1.0, 1.999, 2.0, -3.0, 1.7e308, -1.7e308]
    counts = sums(lambda: MagnitudeCounts(np.arange(1)), np.array(ends)[:, None])[0]
    expected = np.zeros((2, N_OCTAVES + 1), dtype=int)
    for x in ends:
        octave = 0 if x == 0 else min(max(math.frexp(x)[1] - 1 - FIRST_OCTAVE + 1, 1), N_OCTAVES)
        expected[int(x < 0), octave] += 1
    np.testing.assert_array_equal(counts, expected)
    assert counts.sum() == len(ends)


def test_magnitudes_against_the_logarithm() -> None:
    x = np.random.default_rng(0).standard_normal((1000, 3)) * [1e-3, 1.0, 1e7]
    counts = sums(lambda: MagnitudeCounts(np.arange(3)), x)
    for j in range(3):
        for octave in range(-40, 40):
            inside = np.floor(np.log2(np.abs(x[:, j]))) == octave
            at = octave - FIRST_OCTAVE + 1
            assert counts[j, 0, at] == np.sum(inside & (x[:, j] > 0))
            assert counts[j, 1, at] == np.sum(inside & (x[:, j] < 0))


def test_places_against_numpy() -> None:
    x = np.random.default_rng(1).standard_normal((1000, 4))
    interval = Interval(np.array([0.5, -1.0]), np.array([1.0, 0.3]))
    counts = sums(lambda: PlaceCounts(np.array([1, 3]), interval, 5), x)
    for row, j in enumerate((1, 3)):
        low, high = interval.middle[row] - interval.half[row], interval.middle[row] + interval.half[row]
        expected = np.histogram(np.clip(x[:, j], low, high), bins=5, range=(low, high))[0]
        np.testing.assert_array_equal(counts[row], expected)


def test_column_sums_against_numpy() -> None:
    x = np.random.default_rng(2).standard_normal((500, 3)) * 2
    interval = Interval(np.array([0.0, 1.0, -1.0]), np.array([1.0, 2.0, 0.5]))
    u = np.clip((x - interval.middle) / interval.half, -1, 1)
    first, second, people = sums(lambda: ColumnSums(interval), x)
    assert people.tolist() == [500] * 3
    np.testing.assert_allclose(first / 2**PLACE_BITS, u.sum(axis=0), atol=500 * 2.0**-PLACE_BITS)
    np.testing.assert_allclose(second / 4**PLACE_BITS, (u * u).sum(axis=0), atol=1000 * 2.0**-PLACE_BITS)


@pytest.mark.parametrize("scale", [1.0, 2.0**-300, 2.0**300, 2.0**-480])
def test_norms_against_numpy(scale: float) -> None:
    x = np.random.default_rng(3).standard_normal((2000, 7)) * np.exp2(np.arange(2000) % 11)[:, None]
    counts = sums(lambda: NormCounts(FIRST_NORM, N_NORMS), x * scale)
    steps = np.floor(NORM_STEPS * np.log2(np.linalg.norm(x, axis=1))) + NORM_STEPS * math.log2(scale)
    np.testing.assert_array_equal(counts, np.bincount(steps.astype(int) - FIRST_NORM, minlength=N_NORMS))


def test_rows_of_zeros_have_the_smallest_norm() -> None:
    assert sums(lambda: NormCounts(-8, 16), np.zeros((5, 3)))[0] == 5
    assert sums(lambda: NormCounts(-8, 16), scipy.sparse.csr_array((5, 3)))[0] == 5


@pytest.mark.parametrize("name", makers(1))
def test_sparse_rows_as_dense_ones(name: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((300, 6)) * (rng.random((300, 6)) < 0.4)
    np.testing.assert_array_equal(sums(makers(6)[name][0], scipy.sparse.csr_array(x)), sums(makers(6)[name][0], x))


@pytest.mark.parametrize("name", makers(1))
@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8, np.bool_])
def test_other_types_as_float64(name: str, dtype: Any) -> None:
    x = (np.random.default_rng(5).standard_normal((200, 4)) * 20).astype(dtype)
    expected = sums(makers(4)[name][0], x.astype(np.float64))
    np.testing.assert_array_equal(sums(makers(4)[name][0], x), expected)
    np.testing.assert_array_equal(sums(makers(4)[name][0], np.asfortranarray(x)), expected)


@pytest.mark.parametrize("name", makers(1))
@settings(max_examples=40, deadline=None)
@given(rows=tables(6, 3), other=tables(1, 3), unit=tables(6, 3, st.floats(-4, 4)))
def test_what_one_person_changes(name: str, rows: Any, other: Any, unit: Any) -> None:
    make, replaced, added, of_one = makers(3)[name]
    for table, row in ((rows, other), (unit, other), (unit, unit[-1:] + 1.0)):
        before = sums(make, table)
        after = sums(make, np.vstack([row, table[1:]]))
        without = sums(make, table[1:])
        assert np.sum(((before - after) / of_one) ** 2) <= replaced
        assert np.sum(((before - without) / of_one) ** 2) <= added


@pytest.mark.parametrize("name", makers(1))
def test_the_largest_change_is_attained(name: str) -> None:
    make, replaced, added, of_one = makers(3)[name]
    one, other = np.full((1, 3), 10.0), np.full((1, 3), -30.0)
    assert np.sum(((sums(make, one) - sums(make, other)) / of_one) ** 2) == replaced
    assert np.sum((sums(make, one) / of_one) ** 2) == added


@pytest.mark.parametrize("name", makers(1))
def test_any_order_and_any_batches(name: str) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((5000, 6)) * np.exp2(rng.integers(-20, 20, (5000, 1)))
    whole = sums(makers(6)[name][0], x)
    pieces, others = makers(6)[name][0](), makers(6)[name][0]()
    shuffled = x[rng.permutation(len(x))]
    for start in range(0, 3000, 7):
        pieces.add(batch_of(shuffled[start : min(start + 7, 3000)]))
    others.add(batch_of(shuffled[3000:]))
    pieces.merge(others)
    np.testing.assert_array_equal(pieces.counts, whole)


@pytest.mark.parametrize("name", makers(1))
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_not_finite(name: str, wrong: float, form: Any) -> None:
    x = np.ones((10, 3))
    x[4, 1] = wrong
    with pytest.raises(NotFiniteError):
        sums(makers(3)[name][0], form(x))


# --- Mapped rows ---------------------------------------------------------------------------------------


def maps_of(d: int) -> list[Preprocessing]:
    location, scale = np.linspace(-3.0, 1e3, d), np.exp2(np.arange(d) / 3.0)
    return [
        Preprocessing(2.0),
        Preprocessing(2.0, location),
        Preprocessing(2.0, scale=scale),
        Preprocessing(2.0, location, scale, largest=6.0),
    ]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, scipy.sparse.csr_array])
def test_an_image_is_a_function_of_its_row_alone(number: int, form: Any) -> None:
    """Permuted, split or with people removed, the images of the others keep their bits."""
    preprocessing, rng = maps_of(9)[number], np.random.default_rng(7)
    x = rng.standard_normal((257, 9)) * 100

    def images(rows: Any) -> Any:
        (view,) = preprocessed(batch_of(form(rows)), preprocessing).rows.views
        return view.toarray() if scipy.sparse.issparse(view) else view

    whole, order = images(x), rng.permutation(len(x))
    np.testing.assert_array_equal(images(x[order]), whole[order])
    for start, stop in ((0, 1), (1, 257), (100, 103)):
        np.testing.assert_array_equal(images(x[start:stop]), whole[start:stop])


@pytest.mark.parametrize("number", range(4))
def test_images_against_the_formula(number: int) -> None:
    preprocessing, x = maps_of(4)[number], np.random.default_rng(8).standard_normal((50, 4)) * 100
    z = x.copy()
    if preprocessing.location is not None:
        z = z - preprocessing.location
    if preprocessing.scale is not None:
        z = z / preprocessing.scale
    (view,) = preprocessed(batch_of(x), preprocessing).rows.views
    np.testing.assert_array_equal(view, np.clip(z, -preprocessing.largest, preprocessing.largest))
    assert preprocessed(batch_of(x), preprocessing).rows.bound == 2.0


def test_entries_beyond_float64_are_cut_off() -> None:
    preprocessing = Preprocessing(1.0, np.array([-1e150]), np.array([1e-150]))
    (view,) = preprocessed(batch_of(np.array([[1.7e308], [0.0]])), preprocessing).rows.views
    assert np.isfinite(view).all()
    assert view[0, 0] == 2.0**500


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("name", makers(3))
def test_long_columns_are_counted_where_they_lie(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever number of threads: as their rows are, of which the last do not fill those that stand side by side."""
    n = (1 << 16) + 3
    rows = (5 * np.random.default_rng(0).standard_normal((n, 3))).astype(dtype)
    table = Columns(list(np.vstack([rows[:2], rows]).T.copy()), n + 2)[2:]
    make = makers(3)[name][0]
    for threads in ("1", "3"):
        monkeypatch.setenv("DPGEP_NUM_THREADS", threads)
        np.testing.assert_array_equal(sums(make, table), sums(make, rows.astype(float)))
    if name != "norms":  # some of the columns, of two views, with and without values that are missing
        half = np.array([2.0, 0.5])
        interval, columns = Interval(np.zeros(2), half), np.array([0, 2])
        some = {
            "magnitudes": partial(MagnitudeCounts, columns),
            "places": partial(PlaceCounts, columns, interval, 8),
            "sums": partial(ColumnSums, Interval(np.zeros(3), np.array([2.0, 1.0, 0.5]))),
        }[name]
        holes = np.where(rows > 4, np.nan, rows.astype(float))
        views = Columns([holes[:, 0].copy()], n), Columns(list(holes[:, 1:].T.copy()), n)
        found, expected = some(missing=True), some(missing=True)
        found.add(Batch(Rows(views, 1.0)))
        expected.add(batch_of(holes))
        np.testing.assert_array_equal(found.counts, expected.counts)
        with pytest.raises(NotFiniteError):
            some(missing=False).add(Batch(Rows(views, 1.0)))


@pytest.mark.parametrize("weighted", [False, True])
def test_norms_of_mapped_columns_are_those_of_mapped_rows(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    n = (1 << 16) + 3
    rng = np.random.default_rng(0)
    rows, preprocessing = rng.standard_normal((n, 3)), maps_of(3)[3]
    weights = rng.integers(0, 9, n).astype(np.int16) if weighted else None
    monkeypatch.setenv("DPGEP_NUM_THREADS", "3")
    found, expected = NormCounts(FIRST_NORM, N_NORMS), NormCounts(FIRST_NORM, N_NORMS)
    for total, view in ((found, Columns(list(rows.T.copy()), n)), (expected, rows)):
        assert total.add_mapped(Batch(Rows((view,), 2.0), weights=weights), preprocessing)
    np.testing.assert_array_equal(found.counts, expected.counts)


def test_mapped_sums_keep_groups_and_those_without() -> None:
    preprocessing, x = maps_of(3)[3], np.random.default_rng(9).standard_normal((60000, 3))
    groups = np.random.default_rng(9).integers(0, 4, len(x))
    seen: list[Batch] = []

    class Record(Sums):
        def add(self, batch: Batch) -> None:
            seen.append(Batch(Rows((batch.rows.views[0].copy(),), batch.rows.bound), batch.groups, batch.others))

        def merge(self, other: Any) -> None:
            raise AssertionError

    batch = Batch(Rows((x,), 1.0), groups, 17)
    PreprocessedDataset(InMemoryDataset(batch), preprocessing, 3).accumulate(Record)
    assert len(seen) > 1
    assert sum(batch.n for batch in seen) == len(x) + 17
    np.testing.assert_array_equal(np.concatenate([batch.groups for batch in seen]), groups)
    whole = preprocessed(batch_of(x), preprocessing).rows.views[0]
    np.testing.assert_array_equal(np.concatenate([batch.rows.views[0] for batch in seen]), whole)


def test_rows_of_two_views_are_copied_while_they_fit_the_cache() -> None:
    """As for sums in floating point: in larger blocks a histogram of both took a tenth longer, and twice the memory."""
    rows = Rows((np.ones((30_000, 10)), np.zeros((30_000, 10))), 1.0)
    heights = [len(block) for _, block in plain_blocks(rows, rows.n, fixed_point=False)]
    assert sum(heights) == rows.n
    assert max(heights) <= block_height(rows.n, rows.d)
