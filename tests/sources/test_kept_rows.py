"""Rows that a run keeps from one pass to the next: read once where they are few, with the answers of reading again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from conftest import solve_seeded

import dpgep
from dpgep.data.dataset import keeping_rows, kept_rows
from dpgep.sources import batches
from dpgep.sources.batches import Kept, kept
from dpgep.sources.tables import ArrowTable, Query

N, D = 3000, 4
ROW_BYTES = 8 * D


@pytest.fixture(params=["parquet", "csv"])
def path(request: Any, tmp_path: Path, rng: np.random.Generator) -> Path:
    rows = rng.standard_normal((N, D)) * [4, 3, 2, 1]
    table = pa.table({"label": rng.integers(0, 2, N), **{f"x{j}": column for j, column in enumerate(rows.T)}})
    place = tmp_path / f"rows.{request.param}"
    write = pa.parquet.write_table if request.param == "parquet" else pa.csv.write_csv
    write(table, place)
    return place


class Counted:
    """A scan that counts how often its source is read, and the problem of its numbers."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.scan, self.reads = dpgep.scan(path, **options), 0
        source = self.scan.source
        assert isinstance(source, ArrowTable)
        record_batches = source.record_batches

        def counted(names: list[str], rows: int) -> Any:
            self.reads += 1
            return record_batches(names, rows)

        source.record_batches = counted  # type: ignore[method-assign]

    @property
    def rows(self) -> Any:
        return self.scan[[f"x{j}" for j in range(D)]]


def solved(counted: Counted, **options: Any) -> Any:
    return solve_seeded(dpgep.pca(counted.rows, standardize=True), mu=50.0, n_components=2, **options)


def test_files_are_read_once_in_a_run_and_again_in_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(path)
    once = solved(counted)
    assert (counted.reads, counted.scan.passes) == (1, once.passes)
    assert once.passes > 2
    solved(counted)
    assert counted.reads == 2
    monkeypatch.setattr(batches, "KEPT_BYTES", 0)
    counted.reads = 0
    each = solved(counted)
    assert counted.reads == each.passes == once.passes
    np.testing.assert_array_equal(once.components, each.components)


def test_a_file_that_changes_in_a_run_is_as_it_was(path: Path) -> None:
    """The answer is about the rows of the first pass, of whatever the file holds later."""
    still, counted = solved(Counted(path)), Counted(path)
    read = counted.scan.read

    def read_and_change(*selections: Any, **options: Any) -> Iterator[Any]:
        yield from read(*selections, **options)
        path.write_bytes(b"")

    counted.scan.read = read_and_change  # type: ignore[method-assign]
    np.testing.assert_array_equal(solved(counted).components, still.components)


def test_kept_rows_are_few_and_end_with_the_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_VECTOR", 0)
    for room, reads in ((N * ROW_BYTES, 1), (N * ROW_BYTES - 1, None)):
        monkeypatch.setattr(batches, "KEPT_BYTES", room)
        counted, before = Counted(path), pa.total_allocated_bytes()
        solution = solved(counted)
        assert counted.reads == (reads or solution.passes)
        gc.collect()
        assert pa.total_allocated_bytes() <= before + (1 << 16)


def test_a_run_of_one_pass_keeps_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, kept_bytes = Counted(path), []
    monkeypatch.setattr(batches, "_memory", lambda part: kept_bytes.append(batches.nbytes(part)) or 0)
    assert solve_seeded(dpgep.pca(counted.rows, bound=8.0), mu=50.0, n_components=2).passes == 1
    assert not kept_bytes
    solved(counted)
    assert kept_bytes


def test_labels_and_filtered_rows_are_kept_with_their_columns(path: Path) -> None:
    counted = Counted(path, filter="x0 > 0")
    problem = dpgep.fda(counted.rows, counted.scan["label"], classes=[0, 1], adjacency="add-remove")
    assert solve_seeded(problem, mu=50.0, n_components=1).passes > 2
    assert counted.reads == 1


def piece(rows: int, dtype: Any = float) -> Any:
    return (np.zeros(rows, dtype),)


def test_nothing_is_kept_of_rows_that_will_not_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "KEPT_BYTES", 800)
    monkeypatch.setattr(batches, "_VECTOR", 0)
    pieces = [piece(50), piece(50)]
    store: Kept = {}
    for key, source, n_rows, again in (
        ("known to be too many", [piece(50), piece(51)], 101, True),
        ("objects", [piece(13, object)], None, True),
        ("as many as there is room for", pieces, 100, False),
        ("one more", [piece(1)], 1, True),
    ):
        assert list(kept(store, key, iter(source), n_rows)) == source, key
        assert (list(kept(store, key, iter(()), n_rows)) == []) == again, key
    assert list(kept(store, "as many as there is room for", iter(()), None)) == pieces


def test_an_interrupted_pass_is_not_kept() -> None:
    store: Kept = {}
    reading = kept(store, "rows", iter([piece(1), piece(2)]), None)
    next(reading)
    reading.close()
    assert [len(part) for (part,) in kept(store, "rows", iter([piece(3)]), None)] == [3]


def test_rows_in_small_pieces_count_with_what_is_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of one row take a hundred times the memory of their values."""
    monkeypatch.setattr(batches, "KEPT_BYTES", 50_000)
    pieces = [(batches.Columns([np.zeros(1)] * D, 1),) for _ in range(13)]
    for n, again in ((12, []), (13, pieces[:1])):
        store: Kept = {}
        assert list(kept(store, "rows", iter(pieces[:n]), None)) == pieces[:n]
        assert list(kept(store, "rows", iter(pieces[:1]), None)) == (again or pieces[:n])


def test_an_error_keeps_no_rows() -> None:
    """Its traceback lives for as long as somebody looks at it."""

    def failing() -> Iterator[Any]:
        for _ in range(3):
            found = piece(1)
            held.append(weakref.ref(found[0]))
            yield found
        del found
        raise ValueError("the end")

    held: list[Any] = []
    with pytest.raises(ValueError, match="the end") as caught:
        list(kept({}, "rows", failing(), None))
    assert [each() is None for each in held] == [True, True, False]
    del caught
    with suppress(KeyboardInterrupt), keeping_rows():
        store = kept_rows.get()
        assert store is not None
        store["rows"] = [piece(1)]
        raise KeyboardInterrupt
    assert not store


class Handed:
    """A connection whose batches come as a driver's do: columns of one piece of memory."""

    def __init__(self, table: pa.Table, n_batches: int) -> None:
        self._of_driver, self._n_batches = table, n_batches

    def cursor(self) -> Any:
        return nullcontext(self)

    def execute(self, query: str) -> None: ...

    def fetch_record_batch(self) -> Any:
        batches = (pa.ipc.read_record_batch(*self._written()) for _ in range(self._n_batches))
        return pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(self._of_driver.schema, batches))

    def _written(self) -> Any:
        return self._of_driver.to_batches()[0].serialize(), self._of_driver.schema


@pytest.mark.parametrize("kind", ["Arrow", "query"])
def test_few_columns_of_many_do_not_hold_the_others(kind: str, tmp_path: Path) -> None:
    """Those of an Arrow file's batch lie in one piece, as do those that a database hands over."""
    table, path, n_batches = pa.table({f"x{j}": np.zeros(100) for j in range(200)}), tmp_path / "rows.arrow", 20
    with pa.ipc.new_file(path, table.schema) as file:
        for _ in range(n_batches):
            file.write_table(table)
    scan, store = dpgep.scan(path if kind == "Arrow" else Query(Handed(table, n_batches), "")), Kept()
    before = pa.total_allocated_bytes()
    assert sum(len(rows) for (rows,) in scan.read(scan[["x0", "x1"]], store=store)) == 100 * n_batches
    assert store
    assert pa.total_allocated_bytes() - before < n_batches * table.nbytes // 5
