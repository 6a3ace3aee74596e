"""Rows of columns that lie apart, by the kernel and as a view that is turned into rows block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

import dpgep
from dpgep._dispatch import core
from dpgep.data.rows import Rows, clipped_blocks
from dpgep.sources.batches import Columns

pytestmark = pytest.mark.kernel


def columns_of(dtype: str, n: int, d: int) -> list[np.ndarray[Any, Any]]:
    return [np.random.default_rng([n, j]).standard_normal(n).astype(dtype) for j in range(d)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("dtype", "out_dtype"), [("f4", "f4"), ("f4", "f8"), ("f8", "f8")])
@pytest.mark.parametrize(("n", "d"), [(0, 3), (1, 1), (7, 8), (50, 17), (3000, 100), (20, 9000)])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_kernel_agrees_with_the_reference(dtype: str, out_dtype: str, n: int, d: int, n_threads: int) -> None:
    columns = columns_of(dtype, n + 5, d)
    memory = np.full((n, d + 2), 7.0, out_dtype)
    core.gather_rows(columns, 3, memory[:, 1 : d + 1], n_threads)
    np.testing.assert_array_equal(memory[:, 1 : d + 1], reference.gather_rows(columns, 3, n))
    assert (memory[:, [0, -1]] == 7.0).all()


@pytest.mark.parametrize(
    ("columns", "first", "out", "error", "message"),
    [
        ([np.zeros(4)] * 2, 1, np.zeros((4, 2)), ValueError, "a column has fewer entries than first and"),
        ([np.zeros(4)] * 2, 9, np.zeros((0, 2)), ValueError, "a column has fewer entries than first and"),
        ([np.zeros(4)] * 2, -1, np.zeros((2, 2)), ValueError, "first must be >= 0, not -1"),
        ([np.zeros(4)] * 2, 0, np.zeros((4, 3)), ValueError, "out must have 2 columns, not 3"),
        ([np.zeros(8)[::2]] * 2, 0, np.zeros((4, 2)), ValueError, "a column must have a contiguous last axis"),
        ([np.zeros((4, 1))] * 2, 0, np.zeros((4, 2)), ValueError, "a column must have ndim == 1"),
        ([np.zeros(4), np.zeros(4, "f4")], 0, np.zeros((4, 2)), TypeError, "a column must have dtype float64"),
        ([np.zeros(4, "i4")] * 2, 0, np.zeros((4, 2)), TypeError, "a column must have dtype float64, not int32"),
        ([[0.0] * 4] * 2, 0, np.zeros((4, 2)), TypeError, "columns must be NumPy arrays"),
        ([], 0, np.zeros((4, 2), "f4"), ValueError, "out must have 0 columns, not 2"),
        ([np.zeros(4)] * 2, 0, np.zeros((4, 2), "f4"), TypeError, "out must have dtype float64 for columns"),
        ([np.zeros(4)] * 2, 0, np.zeros((4, 2), "i4"), TypeError, "out must have dtype float32 or float64"),
    ],
)
def test_what_does_not_fit_is_refused(columns: Any, first: int, out: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        core.gather_rows(columns, first, out)
    with pytest.raises(ValueError, match="n_threads must satisfy n_threads >= 1"):
        core.gather_rows([np.zeros(4)], 0, np.zeros((4, 1)), 0)


def test_columns_must_not_overlap_what_is_written() -> None:
    memory = np.zeros((4, 4))
    with pytest.raises(ValueError, match="a column and out must not overlap"):
        core.gather_rows([memory[0], memory[3]], 0, memory[:, :2])


DTYPES = st.sampled_from(["f4", "f8", "i2", "?", "u1", ">f4", "i8", "g"])


@given(st.lists(DTYPES, min_size=1, max_size=12), st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_a_part_is_the_matrix_of_its_rows_and_columns(kinds: list[str], start: int, stop: int, strided: bool) -> None:
    columns = [np.arange(80).astype(kind)[:: 1 + strided][:40] for kind in kinds]
    whole = np.stack([column.astype("f8") for column in columns], axis=1)
    part = Columns(columns, 40)[start:stop]
    chosen = np.arange(0, len(kinds), 2)
    np.testing.assert_array_equal(np.asarray(part), whole[start:stop])
    np.testing.assert_array_equal(np.asarray(part[1:, chosen]), whole[start:stop][1:, chosen])
    np.testing.assert_array_equal(np.asarray(part[1:][1:].copy()), whole[start:stop][2:])
    assert part.shape == whole[start:stop].shape
    assert np.asarray(part, dtype="f8").dtype == "f8"


def test_large_parts_are_gathered_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPGEP_NUM_THREADS", "3")
    for dtype in ("f4", "i2"):  # by the kernel, by NumPy
        columns = [(9 * column).astype(dtype) for column in columns_of("f8", 60_000, 11)]
        np.testing.assert_array_equal(np.asarray(Columns(columns, 60_000)[1:]), np.stack(columns, axis=1)[1:])


@pytest.mark.parametrize("wrong", [np.zeros(49), np.zeros((50, 1)), np.zeros(1), [0.0] * 50])
def test_columns_are_vectors_of_one_length(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^the columns of a table must be vectors of the same length$"):
        Columns([np.zeros(50), wrong], 50)
    with pytest.raises(IndexError, match="with step 1"):
        Columns([np.zeros(50)], 50)[::2]


@pytest.mark.parametrize("bits", [None, 20])
@pytest.mark.parametrize(("dtype", "out"), [("f4", "f4"), ("f8", "f8"), ("u1", "u1"), ("i2", "f4"), ("i8", "f8")])
def test_clipped_blocks_of_columns_are_those_of_the_matrix(bits: int | None, dtype: str, out: str) -> None:
    columns = [(np.abs(column) * 9).astype(dtype) for column in columns_of("f8", 3000, 30)]
    matrix = np.stack(columns, axis=1)
    assert Columns(columns, 3000).dtype == out
    views: list[tuple[Any, ...]] = [
        (matrix,),
        (Columns(columns, 3000),),
        (matrix[:, :7], Columns(columns[7:], 3000)),
        (np.asfortranarray(matrix),),
    ]
    blocks = [
        np.vstack([block.copy() for _, block in clipped_blocks(Rows(each, 40.0), 0, bits, 1000)]) for each in views
    ]
    for other in blocks[1:]:
        np.testing.assert_array_equal(blocks[0], other)


@pytest.mark.usefixtures("dense_sums")
def test_booleans_are_0_or_1_whatever_their_byte_is() -> None:
    """In any memory order, as a table and as sums: masks of 0 and 255 are such."""
    x = np.tile(np.array([[2, 0, 1], [255, 1, 0], [0, 3, 255]], np.uint8), (200, 1)).view(bool)
    plain = (x.view(np.uint8) != 0).astype(float)
    forms = [x, np.asfortranarray(x), Columns([np.ascontiguousarray(column) for column in x.T], len(x)), plain]
    assert np.asfortranarray(x).view(np.uint8).max() == 255
    for other in forms[:3]:
        for bits in (None, 20):
            ours, theirs = (
                np.vstack([block.copy() for _, block in clipped_blocks(Rows((each,), 40.0), 0, bits)])
                for each in (other, plain)
            )
            np.testing.assert_array_equal(ours, theirs)
    moments = [dpgep.pca(each, bound=40.0).integer_moments(20).second for each in (forms[0], forms[1], plain)]
    np.testing.assert_array_equal(np.triu(moments[0]), np.triu(moments[2]))
    np.testing.assert_array_equal(np.triu(moments[1]), np.triu(moments[2]))


def test_matrices_with_contiguous_columns_are_read_as_tables() -> None:
    rows = np.asfortranarray(np.random.default_rng(0).standard_normal((400, 6)))
    for part in (rows, rows[3:-1], rows[:, ::-1], rows[:, 1:4], rows.astype("i8", order="F")):
        assert isinstance(Rows((part,), 1.0).in_one_piece(400, fixed_point=True), Columns)
        assert Rows((part,), 1.0).in_one_piece(400, fixed_point=False) is None
        assert Rows((part,), 1.0).in_one_piece(9, fixed_point=True) is None
        on_grid, expected = (
            np.vstack([block.copy() for _, block in clipped_blocks(Rows((each,), 2.0), 0, 20)])
            for each in (part, np.ascontiguousarray(part))
        )
        np.testing.assert_array_equal(on_grid, expected)
    for other in (rows.astype("f2"), rows.astype(">f8"), rows[::2], rows.astype(bool)):
        assert Rows((other,), 1.0).in_one_piece(400, fixed_point=True) is None
    for single in (np.arange(6.0)[None, :], rows[:, :1], np.ones((1, 1))):  # whatever their strides are
        assert Rows((single,), 1.0).in_one_piece(1, fixed_point=True) is single
        for bits in (None, 20):
            ours, theirs = (next(clipped_blocks(Rows((x,), 9.0), 0, bits))[1] for x in (single, single.copy(order="C")))
            np.testing.assert_array_equal(ours, theirs)


def test_views_that_are_neighbours_in_memory_are_read_as_one_matrix() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 9))
    whole = Rows((rows[3:, 1:4], rows[3:, 4:5], rows[3:, 5:]), 1.0).in_one_piece(1, fixed_point=False)
    np.testing.assert_array_equal(whole, rows[3:, 1:])
    assert np.shares_memory(np.asarray(whole), rows)
    others = [
        (rows[:, :4], rows[:, 5:]),
        (rows[:, 4:], rows[:, :4]),
        (rows[1:, :4], rows[:-1, 4:]),
        (rows[:, :4], rows[:, 4:].copy()),
        (rows[:, :4], rows[:, 4:].astype("f4")),
        (rows[::2, :4], rows[::2, 4:8][:, ::2]),
        (rows[:1, :4], rows[:1, 4:]),  # of one row, arrays of different owners may be neighbours
        (rows[:, :4], Columns(list(rows.T[4:].copy()), 50)),
        tuple(np.broadcast_to(rows[0], (50, 9))[:, part] for part in (slice(4), slice(4, 9))),
    ]
    for views in others:
        assert Rows(views, 1.0).in_one_piece(1, fixed_point=False) is None
