"""Rows that a run keeps from one pass to the next: read once where they are few, with the answers of reading again."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
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
from dpgep.data.dataset import kept_rows
from dpgep.run import Run
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
    monkeypatch.setattr(batches, "spare_memory", lambda: 0)
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
        counted, before = Counted(path), pa.total_allocated_bytes()
        solution = solved(counted, memory_limit=room)
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


def room_for(limit: int) -> Kept:
    store = Kept()
    store.limit = limit
    return store


def piece(rows: int, dtype: Any = float) -> Any:
    return (np.zeros(rows, dtype),)


def test_nothing_is_kept_of_rows_that_will_not_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_VECTOR", 0)
    pieces = [piece(50), piece(50)]
    store = room_for(800)
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
    store = room_for(800_000)
    reading = kept(store, "rows", iter([piece(1), piece(2)]), None)
    next(reading)
    reading.close()
    assert [len(part) for (part,) in kept(store, "rows", iter([piece(3)]), None)] == [3]


def test_rows_in_small_pieces_count_with_what_is_around_them() -> None:
    """Columns of one row take a hundred times the memory of their values."""
    pieces = [(batches.Columns([np.zeros(1)] * D, 1),) for _ in range(13)]
    for n, again in ((12, []), (13, pieces[:1])):
        store = room_for(50_000)
        assert list(kept(store, "rows", iter(pieces[:n]), None)) == pieces[:n]
        assert list(kept(store, "rows", iter(pieces[:1]), None)) == (again or pieces[:n])


def test_a_quarter_of_what_is_left_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was left before."""
    monkeypatch.setattr(batches, "_VECTOR", 0)
    for spare, reads in ((3 * N * ROW_BYTES, 1), (3 * N * ROW_BYTES - 1, None)):
        monkeypatch.setattr(batches, "spare_memory", lambda spare=spare: spare)
        counted = Counted(path)
        solution = solved(counted)
        assert counted.reads == (reads or solution.passes)


def test_rows_are_let_go_where_others_take_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 1)
    left, store = iter([10_000, 10_000, 1199]), room_for(10_000)
    monkeypatch.setattr(batches, "spare_memory", lambda: next(left))
    assert len(list(kept(store, "rows", iter([piece(25)] * 4), None))) == 4
    assert store == {"rows": None}


def test_all_that_a_run_keeps_is_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_VECTOR", 0)
    store = room_for(1 << 20)
    for key, left, again in (("half", 5600, False), ("the other half", 4800, False), ("one more", 4000, True)):
        monkeypatch.setattr(batches, "spare_memory", lambda left=left: left)
        assert list(kept(store, key, iter([piece(100)]), None))
        assert (list(kept(store, key, iter(()), None)) == []) == again, key


def test_small_batches_do_not_ask_the_system_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(batches, "spare_memory", lambda: asked.append(1) or 1 << 30)
    store = room_for(1 << 30)
    assert len(list(kept(store, "rows", iter([piece(10)] * 1000), None))) == 1000
    assert store
    assert len(asked) == 1


_IN_LITTLE_ADDRESS_SPACE = """
import hashlib, resource, sys, warnings
import pyarrow.dataset, pyarrow.parquet
import dpgep
warnings.simplefilter("ignore")
if sys.argv[2] != "0":
    used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]), resource.RLIM_INFINITY))
problem = dpgep.pca(dpgep.scan(sys.argv[1], progress=False), standardize=True)
released = dpgep.release(problem, seed=1, epsilon=1.0, delta=1e-9)
print(hashlib.sha256(released.second_moment.tobytes()).hexdigest())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no limit of the address space")
def test_rows_are_read_again_where_the_address_space_has_no_room_for_them(tmp_path: Path) -> None:
    """320 MB of rows in 400 MB: they would not fit beside what a pass takes, and an error would end the run."""
    path, rng = tmp_path / "rows.parquet", np.random.default_rng(0)
    table = pa.table({f"x{j}": rng.standard_normal(1_600_000) for j in range(25)})
    pa.parquet.write_table(table, path, compression="none", use_dictionary=False, row_group_size=100_000)
    del table
    few = {
        **dict.fromkeys(("DPGEP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "2"),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
    }
    digests = set()
    for room in (400_000_000, 0):
        command = [sys.executable, "-c", _IN_LITTLE_ADDRESS_SPACE, str(path), str(room)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **few})
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


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
        list(kept(room_for(800), "rows", failing(), None))
    assert [each() is None for each in held] == [True, True, False]
    del caught
    forms = dict.fromkeys(("delta", "rho", "mu")) | {"epsilon": math.inf}
    problem = dpgep.pca(np.eye(2), bound=1.0)
    run = Run.paid_by(problem, budget=None, share=None, accounting="gdp", seed=None, **forms)
    with suppress(KeyboardInterrupt), run.reserved(800):
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
    scan, store = dpgep.scan(path if kind == "Arrow" else Query(Handed(table, n_batches), "")), room_for(1 << 20)
    before = pa.total_allocated_bytes()
    assert sum(len(rows) for (rows,) in scan.read(scan[["x0", "x1"]], store=store)) == 100 * n_batches
    assert store
    assert pa.total_allocated_bytes() - before < n_batches * table.nbytes // 5


def test_kept_columns_of_an_arrow_file_take_no_more_memory_than_they_count_for(tmp_path: Path) -> None:
    """65 536 rows, as Feather has them: a little more than a power of two bytes, with what is around them."""
    table, path = pa.table({f"x{j}": np.zeros(4 << 16) for j in range(3)}), tmp_path / "rows.arrow"
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=1 << 16)
    scan, store, before = dpgep.scan(path), room_for(1 << 30), pa.total_allocated_bytes()
    assert sum(len(rows) for (rows,) in scan.read(scan[["x0", "x1"]], store=store)) == 4 << 16
    (pieces,) = store.values()
    counted = sum(batches._memory(part) for (part,) in pieces or ())
    assert pa.total_allocated_bytes() - before < 1.1 * counted
