"""Sources: the same rows in order from every kind of data, in bounded memory, and errors that say what to do."""

from __future__ import annotations

import contextlib
import decimal
import fcntl
import itertools
import os
import pty
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr
from conftest import chain_of, solve_seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dpgep
from dpgep._optional import MissingExtraError
from dpgep.sources import Scan, as_selection, is_source
from dpgep.sources.batches import Assembler, Columns

pytestmark = pytest.mark.usefixtures("data_errors_lead_nowhere")

N = 1000
NAMES = ["age", "weight", "height"]


@pytest.fixture(scope="module")
def people() -> tuple[NDArray[np.float64], NDArray[Any]]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((N, 3)), np.array(["a", "b", "long"])[rng.integers(0, 3, N)]


def batches_of(scan: Scan, *selections: Any) -> list[tuple[Any, ...]]:
    """One pass, every array copied: its memory is used again."""
    return [
        tuple(array.toarray() if sp.issparse(array) else array.copy() for array in batch)
        for batch in scan.read(*selections)
    ]


def rows_of(scan: Scan, *selections: Any) -> list[NDArray[Any]]:
    return [np.concatenate(arrays) for arrays in zip(*batches_of(scan, *selections), strict=True)]


def table_of(x: NDArray[Any], labels: NDArray[Any]) -> pa.Table:
    return pa.table({**dict(zip(NAMES, x.T, strict=True)), "label": labels})


def cut(n: int, pieces: int = 7) -> list[slice]:
    edges = np.linspace(0, n, pieces + 1).astype(int)
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


# --- the same rows from every kind ---


def write_folder(folder: Path, table: pa.Table) -> Path:
    for i, rows in enumerate(cut(len(table), 4)):
        pq.write_table(table.slice(rows.start, rows.stop - rows.start), folder / f"{i}.parquet", row_group_size=60)
    return folder


TABLES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "table": lambda table, folder: table,
    "chunked table": lambda table, folder: pa.concat_tables([table.slice(0, 10), table.slice(10)]),
    "record batch": lambda table, folder: table.combine_chunks().to_batches()[0],
    "reader": lambda table, folder: table.to_reader(max_chunksize=77),
    "pandas": lambda table, folder: pd.DataFrame(table.to_pydict()),
    "pandas, Arrow's types": lambda table, folder: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, categories": lambda table, folder: pd.DataFrame(table.to_pydict()).astype({"label": "category"}),
    "polars": lambda table, folder: pl.DataFrame(table.to_pydict()),
    "polars, categories": lambda table, folder: pl.DataFrame(table.to_pydict()).cast({"label": pl.Categorical}),
    "lazy polars": lambda table, folder: pl.DataFrame(table.to_pydict()).lazy(),
    "dictionary": lambda table, folder: table.set_column(3, "label", table["label"].dictionary_encode()),
    "file": lambda table, folder: (pq.write_table(table, folder / "x.parquet"), folder / "x.parquet")[1],
    "folder": lambda table, folder: str(write_folder(folder, table)),
    "list of files": lambda table, folder: sorted(write_folder(folder, table).iterdir()),
    "dataset": lambda table, folder: pyarrow.dataset.dataset(write_folder(folder, table)),
    "dictionary of arrays": lambda table, folder: {name: table[name].to_numpy() for name in table.column_names},
    "batches of tables": lambda table, folder: table.to_batches(max_chunksize=90),
    "batches of pandas": lambda table, folder: (batch.to_pandas() for batch in table.to_batches(max_chunksize=90)),
    "batches of dictionaries": lambda table, folder: (
        lambda: ({k: np.array(v) for k, v in batch.to_pydict().items()} for batch in table.to_batches(90))
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("batch_rows", [None, 64, 10_000])
@pytest.mark.parametrize("kind", TABLES)
def test_tables_give_the_same_rows_in_the_same_order(people: Any, tmp_path: Path, kind: str, batch_rows: Any) -> None:
    x, labels = people
    scan = dpgep.scan(TABLES[kind](table_of(x, labels), tmp_path), batch_rows=batch_rows)
    selected = scan[["weight", "age"]], scan["label"], scan["height"]
    assert [each.n_columns for each in selected] == [2, None, None]
    weight_age, label, height = rows_of(scan, *selected)
    np.testing.assert_array_equal(weight_age, x[:, [1, 0]])
    np.testing.assert_array_equal(label, labels)
    np.testing.assert_array_equal(height, x[:, 2])
    assert weight_age.dtype == height.dtype == np.float64
    assert set(map(type, label.tolist())) == {str}
    one_shot = kind in ("reader", "batches of pandas")
    assert (scan.passes, scan.repeatable) == (1, not one_shot)
    assert scan.n_rows == (None if one_shot or kind.startswith(("batches", "lazy")) else N)
    if not one_shot:
        np.testing.assert_array_equal(rows_of(scan, scan[NAMES])[0], x)
        assert scan.passes == 2


def memory_map(x: NDArray[Any], folder: Path) -> Any:
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


def hdf5(x: NDArray[Any], folder: Path, **options: Any) -> Any:
    return h5py.File(folder / "x.h5", "w").create_dataset("x", data=x, **options)


MATRICES: dict[str, Callable[[NDArray[Any], Path], Any]] = {
    "array": lambda x, folder: x,
    "Fortran order": lambda x, folder: np.asfortranarray(x),
    "other byte order": lambda x, folder: x.astype(">f8"),
    "memory map": memory_map,
    "CSR": lambda x, folder: sp.csr_array(x),
    "CSC": lambda x, folder: sp.csc_matrix(x),
    "HDF5": hdf5,
    "HDF5 in chunks": lambda x, folder: hdf5(x, folder, chunks=(33, 2)),
    "Zarr": lambda x, folder: zarr.array(x),
    "list of arrays": lambda x, folder: [x[rows] for rows in cut(N)],
    "list of CSR": lambda x, folder: [sp.csr_matrix(x[rows]) for rows in cut(N)],
    "CSR and dense": lambda x, folder: [sp.csr_matrix(x[:500]), x[500:]],
    "empty batches": lambda x, folder: [x[:0], x[:7], x[7:7], x[7:]],
    "single rows": lambda x, folder: [row[None, :] for row in x],
    "generator": lambda x, folder: (x[rows] for rows in cut(N)),
    "function": lambda x, folder: lambda: (x[rows] for rows in cut(N)),
}


@pytest.mark.parametrize("batch_rows", [None, 64, 10_000])
@pytest.mark.parametrize("kind", MATRICES)
def test_matrices_give_the_same_rows_in_the_same_order(people: Any, tmp_path: Path, kind: str, batch_rows: Any) -> None:
    x = people[0]
    scan = dpgep.scan(MATRICES[kind](x, tmp_path), batch_rows=batch_rows)
    batches = batches_of(scan, scan, scan[[2, 0]], scan[1:], scan[1])
    for expected, arrays in zip((x, x[:, [2, 0]], x[:, 1:], x[:, 1]), zip(*batches, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate(arrays), expected)
    lengths = [len(batch[0]) for batch in batches]
    if batch_rows is not None:
        assert max(lengths) <= batch_rows
        assert len(lengths) <= max(2 * N // batch_rows + 2, 1)


@pytest.mark.parametrize(
    "pair",
    [
        lambda x, y: [(x[:400], y[:400]), (x[400:], y[400:])],
        lambda x, y: (x, y),
        lambda x, y: (pd.DataFrame(x), pd.Series(y)),
        lambda x, y: (pl.DataFrame(x), pl.Series(y)),
        lambda x, y: (pa.table(list(x.T), names=NAMES), pa.chunked_array([y[:5], y[5:]])),
        lambda x, y: (sp.csr_array(x), list(y)),
    ],
    ids=["batches", "arrays", "pandas", "polars", "Arrow", "CSR"],
)
def test_pairs_of_arrays_are_selected_by_position(people: Any, pair: Callable[..., Any]) -> None:
    x, labels = people
    scan = dpgep.scan(pair(x, labels), batch_rows=128)
    got = rows_of(scan, scan[1], scan[0])
    np.testing.assert_array_equal(got[0], labels)
    np.testing.assert_array_equal(got[1], x)


def test_hdf5_groups_and_their_text(people: Any, tmp_path: Path) -> None:
    x, labels = people
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"], file["label"] = x, labels.astype(object)
        scan = dpgep.scan(file, batch_rows=100)
        got = rows_of(scan, scan["x"], scan["label"])
    np.testing.assert_array_equal(got[0], x)
    assert got[1].tolist() == labels.tolist()


def test_hive_partitions_missing_columns_and_other_types(tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
    pq.write_table(pa.table({"a": [1.0, 2.0], "b": [5.0, 6.0]}), tmp_path / "year=2023" / "x.parquet")
    pq.write_table(pa.table({"a": pa.array([3], pa.int32())}), tmp_path / "year=2024" / "x.parquet")
    scan = dpgep.scan(tmp_path)
    x, year = rows_of(scan, scan[["a", "b"]], scan["year"])
    np.testing.assert_array_equal(x, [[1.0, 5.0], [2.0, 6.0], [3.0, np.nan]])
    np.testing.assert_array_equal(year, [2023, 2023, 2024])


def test_lists_of_a_fixed_size_in_a_file(tmp_path: Path) -> None:
    flat = np.arange(6000, dtype=np.float32)
    table = pa.table({"e": pa.FixedSizeListArray.from_arrays(pa.array(flat), 6), "e.x": np.arange(1000)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=130)
    scan = dpgep.scan(tmp_path / "x.parquet", batch_rows=70)
    e, x = rows_of(scan, scan["e"], scan["e.x"])
    np.testing.assert_array_equal(e, flat.reshape(-1, 6))
    np.testing.assert_array_equal(x, np.arange(1000))
    assert e.dtype == np.float32


def test_a_dataset_with_a_filter() -> None:
    table = pa.table({"a": np.arange(100.0)})
    scan = dpgep.scan(pyarrow.dataset.dataset(table).filter(pyarrow.dataset.field("a") >= 90))
    assert len(rows_of(scan, scan)[0]) == 10


def test_a_pass_can_be_left(tmp_path: Path) -> None:
    """Nothing waits for the thread that reads ahead, and the next pass begins at the first row."""
    pq.write_table(pa.table({"a": np.arange(1000.0)}), tmp_path / "x.parquet")
    scan = dpgep.scan(tmp_path / "x.parquet", batch_rows=10)
    reading = scan.read(scan["a"])
    assert next(reading)[0][0] == 0.0
    reading.close()  # type: ignore[attr-defined]
    assert next(scan.read(scan["a"]))[0][0] == 0.0


# --- any split, any dtype ---

DTYPES = ["f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "?"]


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any),
    st.lists(st.sampled_from(DTYPES), min_size=1, max_size=4),
    st.integers(1, 40),
    st.sampled_from(["table", "array", "csr"]),
)
def test_any_split_and_dtype(lengths: list[int], dtypes: list[str], batch_rows: int, kind: str) -> None:
    rng = np.random.default_rng(len(lengths))
    columns = [rng.integers(0, 2 if dtype == "?" else 100, sum(lengths)).astype(dtype) for dtype in dtypes]
    whole = np.column_stack(columns)
    edges = np.cumsum([0, *lengths])
    batches: list[Any] = []
    for start, stop in itertools.pairwise(edges):
        part = whole[start:stop]
        table = pa.table([column[start:stop] for column in columns], names=[str(i) for i in range(len(columns))])
        batches.append({"table": table, "array": part, "csr": sp.csr_array(part.astype("f8"))}[kind])
    scan = dpgep.scan(batches, batch_rows=batch_rows, n_rows=sum(lengths))
    got = batches_of(scan, scan)
    np.testing.assert_array_equal(np.concatenate([batch[0] for batch in got]), whole)
    sizes = [len(batch[0]) for batch in got]
    assert max(sizes) <= batch_rows
    assert len(sizes) <= 3 * sum(sizes) / batch_rows + 1
    if kind != "csr":
        assert {batch[0].dtype for batch in got} <= {np.dtype(each) for each in ("u1", "f4", "f8")}


# --- batches whose memory is used again ---


def refilled_arrays(x: NDArray[Any], sizes: list[int]) -> Iterator[Any]:
    buffer = np.empty((max(sizes), x.shape[1]))
    for rows in rows_of_sizes(sizes):
        buffer[: rows.stop - rows.start] = x[rows]
        yield buffer[: rows.stop - rows.start]


def refilled_pairs(x: NDArray[Any], sizes: list[int]) -> Iterator[Any]:
    """Rows that are new each time, with labels that are not."""
    buffer = np.empty(max(sizes))
    for rows in rows_of_sizes(sizes):
        buffer[: rows.stop - rows.start] = x[rows, 0]
        yield x[rows].copy(), buffer[: rows.stop - rows.start]


def refilled_mappings(x: NDArray[Any], sizes: list[int]) -> Iterator[Any]:
    return ({"a": batch[:, 0], "b": batch[:, 1], "c": batch[:, 2]} for batch in refilled_arrays(x, sizes))


def refilled_csr(x: NDArray[Any], sizes: list[int]) -> Iterator[Any]:
    data, indices = np.empty(3 * max(sizes)), np.empty(3 * max(sizes), np.int32)
    indptr = np.empty(max(sizes) + 1, np.int32)
    for rows in rows_of_sizes(sizes):
        fresh, count = sp.csr_array(x[rows]), rows.stop - rows.start
        data[: fresh.nnz], indices[: fresh.nnz], indptr[: count + 1] = fresh.data, fresh.indices, fresh.indptr
        views = data[: fresh.nnz], indices[: fresh.nnz], indptr[: count + 1]
        yield sp.csr_array(views, shape=(count, 3))


def refilled_frames(x: NDArray[Any], sizes: list[int]) -> Iterator[Any]:
    """The same frame, whose memory changes under it."""
    for size, batches in itertools.groupby(rows_of_sizes(sizes), key=lambda rows: rows.stop - rows.start):
        memory = np.empty((3, size)).T
        frame = pd.DataFrame(memory, columns=["a", "b", "c"], copy=False)
        for rows in batches:
            memory[...] = x[rows]
            yield frame


def refilled_tables(x: NDArray[Any], sizes: list[int]) -> Iterator[Any]:
    """Arrow takes NumPy's vectors as they lie."""
    columns = np.empty((3, max(sizes)))
    for rows in rows_of_sizes(sizes):
        columns[:, : rows.stop - rows.start] = x[rows].T
        yield pa.record_batch([pa.array(each[: rows.stop - rows.start]) for each in columns], names=["a", "b", "c"])


def read_batches(x: NDArray[Any], sizes: list[int]) -> Iterator[Any]:
    """Those of another scan, of columns, whose rows are made in memory that its next batch uses again."""
    tables = [pa.table(list(x[rows].T), names=["a", "b", "c"]) for rows in rows_of_sizes(sizes)]
    other = dpgep.scan(tables, batch_rows=3)
    return (batch for (batch,) in other.read(other))


REFILLED: dict[str, Callable[[NDArray[Any], list[int]], Iterator[Any]]] = {
    "rows": refilled_arrays,
    "labels": refilled_pairs,
    "columns": refilled_mappings,
    "CSR": refilled_csr,
    "pandas": refilled_frames,
    "Arrow": refilled_tables,
    "a scan": read_batches,
}


def rows_of_sizes(sizes: list[int]) -> list[slice]:
    return [slice(a, b) for a, b in itertools.pairwise(itertools.accumulate(sizes, initial=0))]


def read_refilled(scan: Scan, kind: str) -> list[NDArray[Any]]:
    selected = {"labels": lambda: (scan[0], scan[1]), "columns": lambda: (scan[["a", "b", "c"]],)}
    return rows_of(scan, *selected.get(kind, lambda: (scan,))())


@pytest.mark.parametrize("kind", REFILLED)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), batch_rows=st.sampled_from([None, 1, 2, 5, 8, 100]))
@settings(max_examples=25)
def test_memory_that_the_next_batch_uses_again_is_read_before(kind: str, sizes: list[int], batch_rows: Any) -> None:
    """Else a batch would be counted as often as batches are collected, and a person have any influence."""
    x = np.arange(3.0 * sum(sizes)).reshape(-1, 3)
    got = read_refilled(dpgep.scan(lambda: REFILLED[kind](x, sizes), batch_rows=batch_rows), kind)
    np.testing.assert_array_equal(got[0], x)
    if kind == "labels":
        np.testing.assert_array_equal(got[1], x[:, 0])


@pytest.mark.parametrize("kind", ["rows", "pairs", "mapping", "list", "CSR", "pandas", "Arrow", "Arrow's table"])
def test_memory_that_two_scans_share(kind: str) -> None:
    """The first batch is taken when a scan is made, and may have to outlast all batches of another."""
    x, shared = np.arange(1.0, 13.0).reshape(4, 3), np.empty((3, 2)).T
    csr = sp.csr_array(np.ones((2, 3)))
    batch = pa.record_batch([pa.array(column) for column in shared.T], names=["a", "b", "c"])
    makes = {
        "rows": shared,
        "pairs": (shared, shared[:, 0]),
        "mapping": {"x": shared},
        "list": list(shared),
        "CSR": csr,
        "pandas": pd.DataFrame(shared, copy=False),
        "Arrow": batch,
        "Arrow's table": pa.Table.from_batches([batch]),
    }

    def generate() -> Iterator[Any]:
        for start in (0, 2):
            shared[...] = x[start : start + 2]
            csr.data[...] = shared.ravel()
            yield makes[kind]

    scans = [dpgep.scan(generate), dpgep.scan(generate()), dpgep.scan(generate)]
    for scan in scans:
        np.testing.assert_array_equal(rows_of(scan, scan[0] if kind == "pairs" else scan)[0], x)


def test_a_release_of_refilled_memory_is_that_of_the_rows() -> None:
    x = np.random.default_rng(5).standard_normal((200, 3)) / 4
    ours, theirs = (solve_seeded(dpgep.pca(rows, bound=1.0), mu=1.0) for rows in (refilled_arrays(x, [10] * 20), x))
    np.testing.assert_array_equal(ours.components, theirs.components)
    np.testing.assert_array_equal(ours.eigenvalues, theirs.eigenvalues)


def test_batches_that_are_large_enough_are_not_copied() -> None:
    batches = [np.zeros((6, 2)), np.zeros((10, 2)), np.zeros((25, 2))]
    scan = dpgep.scan(iter([np.zeros((6, 2)), *batches]), batch_rows=10)
    got = [batch for (batch,) in scan.read(scan)][1:]
    assert [len(batch) for batch in got] == [6, 10, 8, 8, 9]
    for batch, given_batch in zip(got, [batches[0], batches[1], *[batches[2]] * 3], strict=True):
        assert np.shares_memory(batch, given_batch)


# --- dtypes and memory ---


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["f4", "f4"], "f4"),
        (["f4", "i2", "u1", "?"], "f4"),
        (["f4", "f8"], "f8"),
        (["f4", "i4"], "f8"),
        (["u1", "?"], "u1"),
        (["u2", "f2"], "f4"),
        (["i8"], "f8"),
        (["g"], "f8"),
    ],
)
def test_dtype_of_rows(dtypes: list[str], expected: str) -> None:
    assert Columns([np.zeros(1, dtype) for dtype in dtypes], 1).dtype == expected


def test_arrays_that_can_be_read_as_they_lie_are_not_copied() -> None:
    for dtype in (np.float32, np.float64, np.uint8):
        x = np.zeros((100, 4), dtype)
        scan = dpgep.scan(x, batch_rows=30)
        assert all(np.shares_memory(x, batch) for part in ([x], [x[:, 1:3]]) for (batch,) in scan.read(scan) if part)
        assert all(np.shares_memory(x, batch) for (batch,) in scan.read(scan[1:3]))
    flat = np.arange(1000, dtype=np.float32)
    table = pa.table({"e": pa.FixedSizeListArray.from_arrays(pa.array(flat), 4)})
    scan = dpgep.scan(table, batch_rows=250)
    assert scan["e"].n_columns == 4
    ((batch,),) = scan.read(scan["e"])
    assert batch.__array_interface__["data"][0] == table["e"].chunk(0).values.buffers()[1].address
    np.testing.assert_array_equal(batch, flat.reshape(-1, 4))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("width", [1, 100, 128, 512])
@pytest.mark.parametrize("rows", [1, 4095, 4097, 9000])
def test_turning_columns_into_rows(width: int, rows: int) -> None:
    rng = np.random.default_rng(0)
    columns = [rng.standard_normal(rows) for _ in range(width)]
    assemble = Assembler()
    for start in (0, rows // 3):  # the second in memory that is used again
        got = assemble([Columns(columns, rows)[start:]])
        np.testing.assert_array_equal(got, np.stack(columns, axis=1)[start:])
        assert got.strides[1] == 8


def test_batches_are_bounded_in_bytes_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgep.sources.batches.BATCH_BYTES", 1 << 12)
    dense = dpgep.scan(np.zeros((1000, 16)))
    assert max(len(x) for (x,) in dense.read(dense)) == 32
    wide = sp.csr_array((np.random.default_rng(0).random((500, 10_000)) < 1e-3).astype(float))
    scan = dpgep.scan(wide)
    sizes = [x.nnz * 12 for (x,) in scan.read(scan)]
    assert 2 < len(sizes) < 40
    assert max(sizes) < 2 << 12


# --- what is null ---


def nulls() -> pa.Table:
    return pa.table(
        {
            "f": pa.array([1.0, None, 3.0], pa.float32()),
            "i": pa.array([1, None, 3], pa.uint8()),
            "b": pa.array([True, None, False]),
            "d": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal(3)]),
            "s": pa.array(["x", None, "y"]),
            "t": pa.array([0, None, 1], pa.timestamp("s")),
            "e": pa.array([[1.0, 2.0], None, [None, 4.0]], pa.list_(pa.float32(), 2)),
        }
    )


@pytest.mark.parametrize("kind", ["Arrow", "pandas", "pandas, Arrow's types", "polars", "Parquet"])
def test_null_becomes_nan_and_no_row_is_dropped(kind: str, tmp_path: Path) -> None:
    table, source = nulls(), {"Arrow": nulls}.get(kind, lambda: None)()
    if kind == "pandas":
        source = table.drop_columns(["e", "d"]).to_pandas(types_mapper={pa.uint8(): pd.UInt8Dtype()}.get)
    elif kind == "pandas, Arrow's types":
        source = table.drop_columns(["e"]).to_pandas(types_mapper=pd.ArrowDtype)
    elif kind == "polars":
        source = pl.from_arrow(table)
    elif kind == "Parquet":
        pq.write_table(table.drop_columns(["e"]), tmp_path / "x.parquet")  # lists that are null: from pyarrow 18
        source = tmp_path / "x.parquet"
    scan = dpgep.scan(source)
    x, i = rows_of(scan, scan[["f", "i"]], scan["i"])
    np.testing.assert_array_equal(x, [[1, 1], [np.nan, np.nan], [3, 3]])
    np.testing.assert_array_equal(i, [1, np.nan, 3])
    (s,) = rows_of(scan, scan["s"])
    assert s[[0, 2]].tolist() == ["x", "y"]
    assert s[1] != s[1]  # as dpgep.fda looks for missing labels
    (t,) = rows_of(scan, scan["t"])
    assert t[1] != t[1]
    if kind != "pandas":
        (b, d) = rows_of(scan, scan["b"], scan["d"])
        assert [b[0], b[2], d[0], d[2]] == [True, False, 1.5, 3.0]
        assert b[1] != b[1]
        assert d[1] != d[1]
    if kind in ("Arrow", "polars"):
        (e,) = rows_of(scan, scan["e"])
        np.testing.assert_array_equal(e, [[1, 2], [np.nan, np.nan], [np.nan, 4]])


def test_missing_labels_are_refused_by_the_models() -> None:
    scan = dpgep.scan(nulls())
    (labels,) = rows_of(scan, scan["s"])
    with pytest.raises(ValueError, match="labels contain NaN"):
        dpgep.fda(np.zeros((3, 2)), labels, bound=1.0)


def test_labels_of_text_and_numbers_are_not_mixed() -> None:
    scan = dpgep.scan([(np.zeros((1, 2)), ["1"]), (np.zeros((1, 2)), [1])])
    assert rows_of(scan, scan[1])[0].tolist() == ["1", 1]
    scan = dpgep.scan([(np.zeros((2, 2)), ["1", 1])])
    assert rows_of(scan, scan[1])[0].tolist() == ["1", 1]


# --- passes ---


@pytest.mark.parametrize("make", [lambda x: iter([x, x]), lambda x: pa.table({"x": x[:, 0]}).to_reader()])
def test_a_second_pass_over_an_iterator_is_refused(make: Callable[..., Any]) -> None:
    scan = dpgep.scan(make(np.ones((4, 2))))
    assert not scan.repeatable
    rows_of(scan, scan)
    with pytest.raises(RuntimeError, match=r"only once.*pass a list of batches, or a function"):
        scan.read(scan)
    assert scan.passes == 1


def test_batches_are_asked_for_when_they_are_needed() -> None:
    asked: list[int] = []

    def generate() -> Iterator[NDArray[Any]]:
        for i in range(5):
            asked.append(i)
            yield np.full((2, 3), float(i))

    scan = dpgep.scan(generate(), batch_rows=2)
    assert scan[:2].n_columns == 2
    assert asked == [0]  # the first tells the columns, and is not lost
    reading = scan.read(scan)
    assert asked == [0]
    assert next(reading)[0][0, 0] == 0.0
    assert asked in ([0], [0, 1])
    assert [batch[0, 0] for (batch,) in reading] == [1, 2, 3, 4]
    assert asked == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="already been read"):
        scan[0]


def test_an_error_of_the_iterable_passes_through() -> None:
    def generate() -> Iterator[NDArray[Any]]:
        yield np.ones((2, 3))
        raise OSError("the disk is gone")

    scan = dpgep.scan(generate)
    with pytest.raises(OSError, match="the disk is gone"):
        rows_of(scan, scan)


def test_n_rows_is_checked_before_a_pass_ends() -> None:
    x = np.ones((10, 2))
    for wrong in (9, 11):
        scan = dpgep.scan([x[:5], x[5:]], n_rows=wrong, batch_rows=5)
        assert scan.n_rows == wrong
        with pytest.raises(ValueError, match=f"does not have n_rows = {wrong} rows"):
            rows_of(scan, scan)
        with pytest.raises(ValueError, match=f"n_rows = {wrong} is not the number of rows"):
            dpgep.scan(x, n_rows=wrong)
    assert len(rows_of(s := dpgep.scan([x], n_rows=10), s)[0]) == 10


@pytest.mark.parametrize(
    "read",
    [
        lambda x: dpgep.scan(x, n_rows=5),
        lambda x: dpgep.scan((x, x[:-1])),
        lambda x: rows_of(scan := dpgep.scan([(x[:2], x[:2, 0]), (x, x[:-1, 0])]), scan[0], scan[1]),
        lambda x: dpgep.scan(np.zeros((len(x), 2, 2))),
        lambda x: rows_of(scan := dpgep.scan(Uneven(x)), scan),
    ],
)
def test_errors_do_not_show_the_number_of_rows(read: Callable[[NDArray[Any]], Any]) -> None:
    """Under add-remove it is secret."""
    with pytest.raises(ValueError, match="row") as raised:
        read(np.ones((737, 2)))
    assert not any(number in str(raised.value) for number in ("737", "736"))


class Uneven:
    """An array whose slices are shorter than its shape says."""

    def __init__(self, x: NDArray[Any]) -> None:
        self.shape, self.dtype, self._x = (737, 2), x.dtype, x[:-1]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return self._x[rows]


def test_no_rows_are_data_and_no_batches_are_none() -> None:
    for source in (
        np.empty((0, 3)),
        [np.empty((0, 3))],
        iter([np.empty((0, 3))]),
        pa.table([pa.array([], "f8")] * 3, names=NAMES),
    ):
        solution = solve_seeded(
            dpgep.pca(dpgep.scan(source), adjacency="add-remove", bound=1.0), mu=1.0, n_components=2
        )
        assert solution.components.shape == (2, 3)
    for empty in ([], iter([]), list):
        with pytest.raises(ValueError, match=r"no batches.*yield one, np\.empty"):
            dpgep.scan(empty)


def test_a_pass_that_differs_from_the_one_before_is_refused() -> None:
    exhausted = iter([np.ones((3, 2)), np.ones((3, 2))])
    scan = dpgep.scan(lambda: exhausted)
    rows_of(scan, scan)
    with pytest.raises(ValueError, match=r"no batches were yielded|a different number of rows"):
        rows_of(scan, scan)
    lengths = iter([2, 3])
    scan = dpgep.scan(lambda: [np.ones((next(lengths), 2))])
    rows_of(scan, scan)
    with pytest.raises(
        ValueError, match=r"a different number of rows than the previous one.*must start from the beginning"
    ):
        rows_of(scan, scan)


# --- only what is needed ---


def test_only_the_selected_columns_are_read(tmp_path: Path) -> None:
    """The bytes of the others are destroyed: whoever reads them fails."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({name: np.random.default_rng(0).random(5000) for name in "abc"}), path, compression="none")
    row_group = pq.ParquetFile(path).metadata.row_group(0)
    raw = bytearray(path.read_bytes())
    for i in (0, 2):
        chunk = row_group.column(i)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        raw[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(raw)
    scan = dpgep.scan(path)
    (b,) = rows_of(scan, scan["b"])
    np.testing.assert_array_equal(b, np.random.default_rng(0).random(5000))
    with pytest.raises(OSError, match=r".+"):
        rows_of(scan, scan["a"])


MEMORY = """
    import sys
    import pyarrow.parquet as pq
    import dpgep

    def most():  # of this program: getrusage also counts the one that started it
        for line in open("/proc/self/status"):
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024

    scan = dpgep.scan(sys.argv[1])
    for x, in scan.read(scan):
        break
    start = most()
    total = 0.0
    for x, in scan.read(scan):
        total += x.sum()
    scanned = most()
    rows = pq.read_table(sys.argv[1])  # control: needs all of it
    print(total, scanned - start, most() - start)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux says what a program has used at most")
@pytest.mark.parametrize(
    ("n_rows", "rows_in_a_group"),
    [(1 << 20, 1 << 16), *(pytest.param(1 << 21, rows, marks=pytest.mark.deep) for rows in (1 << 16, 1 << 21))],
)
def test_memory_is_bounded(tmp_path: Path, n_rows: int, rows_in_a_group: int) -> None:
    """A gigabyte of rows (or half of it), in row groups or one, in 256 MB beyond the memory of the first batch."""
    path, column = tmp_path / "x.parquet", np.random.default_rng(0).integers(0, 100, n_rows).astype(np.float64)
    pq.write_table(pa.table({f"x{i}": column for i in range(64)}), path, row_group_size=rows_in_a_group)
    command = [sys.executable, "-c", textwrap.dedent(MEMORY), str(path)]
    settings = {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings}, check=True)
    total, scanned, whole = map(float, done.stdout.split())
    assert total == 64 * column.sum()
    assert scanned < 1 << 28 < 48 * column.nbytes < whole


def write_narrow(name: str, folder: Path) -> Path:
    """160 MB of whole numbers, a digit each in a CSV."""
    path, lines, columns = folder / name, 200_000, 100
    names = [f"x{j}" for j in range(columns)]
    if name.endswith("csv"):
        with path.open("w") as file:
            file.write(",".join(names) + "\n")
            for _ in range(lines // 1000):
                file.write((",".join("1" * columns) + "\n") * 1000)
        return path
    table = pa.table(dict.fromkeys(names, np.ones(lines)))
    if name.endswith("parquet"):
        pq.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, path, compression="uncompressed", chunksize=1 << 12)
    return path


@pytest.mark.one_in(2)
@pytest.mark.parametrize("batch_rows", [None, 1000])
@pytest.mark.parametrize("name", ["x.csv", "x.feather", "x.parquet"])
def test_a_run_that_takes_its_time_has_few_rows_in_memory(name: str, batch_rows: int | None, tmp_path: Path) -> None:
    """Whatever reads ahead of it stops by itself: pyarrow's scan of a data set went on to the end of a CSV."""
    scan = dpgep.scan(write_narrow(name, tmp_path), batch_rows=batch_rows)
    before, held = pa.total_allocated_bytes(), -1
    batches = scan.read(scan, apart=True)
    rows = next(batches)[0].shape[0]
    while (now := pa.total_allocated_bytes() - before) != held:  # until it has stopped
        held = now
        time.sleep(0.3)
    assert held < 112 << 20
    assert rows + sum(x.shape[0] for (x,) in batches) == 200_000


# --- errors ---


@pytest.mark.parametrize(
    ("source", "key", "error", "message"),
    [
        (table_of(np.ones((2, 3)), np.array(["a", "b"])), "size", ValueError, "no column 'size'; available: 'age'"),
        (
            table_of(np.ones((2, 3)), np.array(["a", "b"])),
            ["age", "label"],
            TypeError,
            r"'label' \(string\) is not numeric",
        ),
        (pd.DataFrame({"a": ["x"]}), ["a"], TypeError, r"column 'a' \(\w+\) is not numeric: select others"),
        (pd.DataFrame({"a": [1]}), ["b"], ValueError, "no column 'b'; available: 'a'"),
        (pl.DataFrame({"a": ["x"]}), None, TypeError, r"column 'a' \(String\) is not numeric"),
        (pa.table({"a": [[1.0], [2.0, 3.0]]}), "a", TypeError, "only nested columns of fixed-size lists"),
        (pa.table({"a": pa.array([[1.0]], pa.list_(pa.float64(), 1))}), ["a"], ValueError, "'a' is a matrix: select"),
        (pa.table({"a": [1.0]}), [], ValueError, "no columns selected"),
        (pa.table({"a": [1.0]}), ["a", "a"], ValueError, "'a' is selected twice"),
        (pa.table({"a": [1.0]}), slice(1), TypeError, "by name, not by a slice"),
        ((np.ones((2, 2)), np.ones(2)), 2, ValueError, "no part 2; available: 0, 1"),
        ((np.ones((2, 2)), np.ones(2)), None, ValueError, "select a part first"),
        ({"x": np.ones((2, 2)), "y": np.ones(2)}, ["x"], ValueError, "a matrix: select it separately, source['x']"),
        ({"x": np.array(["a"])}, ["x"], TypeError, r"column 'x' \(str_\) is not numeric: select others"),
        (np.ones((2, 2)), "x", ValueError, "has no column names: select columns by position, from 0 to 1; got 'x'"),
        (np.ones((2, 2)), [0, 2], ValueError, "from 0 to 1; got 2"),
        (np.ones((2, 2)), slice(2, 2), ValueError, "selects none of the 2 columns"),
        (np.ones((2, 2), complex), None, TypeError, r"is complex \(complex128\)"),
        (np.ones(2), 0, ValueError, "is a vector"),
    ],
)
def test_a_bad_selection_is_refused_at_once(source: Any, key: Any, error: type[Exception], message: str) -> None:
    scan = dpgep.scan(source)
    with pytest.raises(error, match=message.replace("[", r"\[")):
        as_selection(scan) if key is None else scan[key]
    assert scan.passes == 0


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        (3, {}, TypeError, "cannot scan of type builtins.int: pass paths of Parquet"),
        (None, {}, TypeError, "cannot scan of type builtins.NoneType"),
        (pl.LazyFrame({"a": [1]}).group_by("a"), {}, TypeError, "cannot scan of type polars"),
        ([], {}, ValueError, "no batches were yielded"),
        (lambda: 3, {}, TypeError, "must return an iterable of batches, got int"),
        ((), {}, ValueError, "the collection is empty"),
        (["x", 1], {}, TypeError, "a batch is of type builtins.str"),
        (np.ma.masked_array(np.ones((2, 2))), {}, TypeError, "masked array: fill or drop"),
        ([np.ma.masked_array(np.ones((2, 2)))], {}, TypeError, "masked array: fill or drop"),
        ((np.ones((2, 2)), np.ones(3)), {}, ValueError, "must have the same number of rows"),
        ([(np.ones((2, 2)), 3.0)], {}, TypeError, "part 1 is of type float: it must be an array"),
        (np.ones((2, 2, 2)), {}, ValueError, "one row per person"),
        (np.ones((2, 2)), {"n_rows": 0}, ValueError, "n_rows must be a whole number of at least 1, got 0"),
        (np.ones((2, 2)), {"batch_rows": 1.5}, ValueError, "batch_rows must be a whole number of at least 1, got 1.5"),
        (np.ones((2, 2)), {"progress": "yes"}, ValueError, "progress must be True, False or None, got 'yes'"),
    ],
)
def test_a_bad_source_is_refused_at_once(source: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dpgep.scan(source, **options)


def test_paths_without_parquet_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no Parquet files in"):
        dpgep.scan(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing\.parquet"):
        dpgep.scan(tmp_path / "nothing.parquet")
    (tmp_path / "x.parquet").write_text("a\n1\n")
    with pytest.raises(pa.ArrowInvalid, match=r"x\.parquet'. Is this a 'parquet' file"):
        dpgep.scan(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([np.ones((2, 2)), np.ones((2, 3))], r"widths of the selections change from \[2\] to \[3\]"),
        ([np.ones((2, 2)), np.ones(2)], r"change from \[2\] to \[None\]"),
        ([pa.table({"a": [1.0]}), pa.table({"b": [1.0], "c": [2.0]})], "a batch lacks 'a' and has 'b', 'c' besides"),
        ([pa.table({"a": [1.0]}), pa.table({"a": ["x"]})], r"'a' \(string\) is not numeric"),
        ([np.ones((2, 2)), np.ma.masked_array(np.ones((2, 2)))], "masked array"),
        ([np.ones((2, 2)), "x"], "a batch is of type builtins.str"),
    ],
)
def test_a_bad_batch_ends_the_pass(batches: list[Any], message: str) -> None:
    scan = dpgep.scan(batches)
    with pytest.raises((TypeError, ValueError), match=message):
        rows_of(scan, scan)


def test_a_batch_that_lacks_a_column_ends_the_pass() -> None:
    scan = dpgep.scan([pa.table({"a": [1.0]}), pa.table({"b": [1.0]})])
    with pytest.raises(ValueError, match="no column 'a'; available: 'b'"):
        rows_of(scan, scan["a"])


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (pa.array([1, 2]), pa.array(["secret77", "3"]), "column 'x' is int64 in the first file and string in another"),
        (pa.array(["a"]), pa.array([37.25]), "column 'x' is string in the first file and double in another"),
        (pa.array([1]), pa.array([37], pa.timestamp("s")), r"'x' is int64 .* and timestamp\[ms\] in another"),
        (pa.array(["a"]), pa.array([b"secret77"]), "'x' is string .* and binary in another"),
        (pa.array([[1.0]], pa.list_(pa.float64(), 1)), pa.array([37.25]), "fixed_size_list.* and double in another"),
    ],
)
def test_files_with_other_kinds_of_values_are_refused_by_type(
    first: pa.Array, second: pa.Array, message: str, tmp_path: Path
) -> None:
    for name, values in (("a", first), ("b", second), ("c", second.slice(0, 0))):
        pq.write_table(pa.table({"x": values}), tmp_path / f"{name}.parquet")
    for files in (["a", "b"], ["a", "c"]):  # without rows as well: types alone decide
        scan = dpgep.scan([tmp_path / f"{name}.parquet" for name in files])
        with pytest.raises(TypeError, match=message) as raised:
            rows_of(scan, scan["x"])
        assert not any(part in str(raised.value) for part in ("37", "secret"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1, 2]), pa.array([37.25, None])),
        (pa.array([1.5]), pa.array([2**53 + 2])),
        (pa.array([1], pa.int8()), pa.array([1000, -1])),
        (pa.array([1, 2]), pa.array([decimal.Decimal("37.25")])),
        (pa.array([1, 2]), pa.array([True, None])),
        (pa.array([1.0]), pa.array([None], pa.null())),
        (pa.array(["a", "b"]), pa.array(["c", None]).dictionary_encode()),
        (pa.array(["a", "b"]), pa.array(["c", None], pa.large_string())),
        (pa.array([0], pa.timestamp("s")), pa.array([1], pa.timestamp("us"))),
    ],
)
def test_files_with_the_same_kind_of_values_are_read_whatever_the_values(
    first: pa.Array, second: pa.Array, tmp_path: Path
) -> None:
    for name, values in (("a", first), ("b", second)):
        pq.write_table(pa.table({"x": values}), tmp_path / f"{name}.parquet")
    scan = dpgep.scan(tmp_path)
    expected = pd.Series([*first.to_pylist(), *second.to_pylist()], dtype=object).to_list()
    (got,) = rows_of(scan, scan["x"])
    if isinstance(expected[0], int | float):
        np.testing.assert_array_equal(got, np.array([np.nan if v is None else float(v) for v in expected]))
        np.testing.assert_array_equal(rows_of(scan, scan[["x"]])[0][:, 0], got)
    else:
        theirs = [None if pd.isna(value) else pd.Timestamp(value) if got.dtype.kind == "M" else value for value in got]
        assert theirs == expected


def text_that_is_none() -> pa.Array:
    """A column of text whose second value is not UTF-8."""
    return pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 9], np.int32)), pa.py_buffer(b"asecret7\xff")]
    )


def failing(error: Exception, first: Any = None) -> Iterator[Any]:
    yield pa.table({"x": ["a", "b"]}) if first is None else first
    raise error


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pa.table({"x": text_that_is_none()}), "column 'x' of type string cannot be read: ArrowInvalid"),
        (lambda: failing(pa.ArrowInvalid("secret7")), "the source cannot be read: ArrowInvalid, whose message is supp"),
        (lambda: failing(pd.errors.OutOfBoundsDatetime("secret7")), "the source cannot be read: OutOfBoundsDatetime"),
        (lambda: failing(pl.exceptions.InvalidOperationError("secret7")), "the source cannot .*: InvalidOperationErr"),
        (lambda: {"x": text_that_is_none()}, "a column of type string cannot be read: ArrowInvalid"),
    ],
)
def test_errors_of_other_packages_do_not_show_values(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        rows_of(scan := dpgep.scan(make()), scan["x"])
    assert not any("secret" in repr(error) for error in chain_of(raised.value))


@pytest.mark.parametrize("error", [ValueError("secret7"), OSError("secret7")])
def test_errors_on_the_other_side_of_a_stream_do_not_show_values(error: Exception) -> None:
    class Query:
        """As of a database: rows are made as they are asked for."""

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            schema = pa.schema([("x", pa.float64())])
            batches = (part for table in failing(error, pa.table({"x": [1.0]})) for part in table.to_batches())
            return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__()

    scan = dpgep.scan(Query())
    with pytest.raises(dpgep.errors.DataError, match="the stream cannot be read") as raised:
        rows_of(scan, scan["x"])
    assert not any("secret" in repr(each) for each in chain_of(raised.value))


@pytest.mark.parametrize("error", [ValueError("secret7"), MemoryError("secret7")])
@pytest.mark.parametrize("values", [[1.5, 2.5], pd.array([1, None]), ["a", None]])
def test_errors_of_pandas_columns_do_not_show_values(
    error: Exception, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    scan = dpgep.scan(pd.DataFrame({"x": values}))
    selected = [scan["x"]] if values == ["a", None] else [scan["x"], scan[["x"]]]
    monkeypatch.setattr(pd.Series, "to_numpy", fail)
    for selection in selected:
        with pytest.raises((dpgep.errors.DataError, MemoryError), match="column 'x' of type") as raised:
            rows_of(scan, selection)
        assert not any("secret" in repr(error) for error in chain_of(raised.value))
        assert isinstance(raised.value, MemoryError) == isinstance(error, MemoryError)


def test_a_lack_of_memory_stays_one() -> None:
    with pytest.raises(MemoryError, match="not enough memory to read the source") as raised:
        rows_of(scan := dpgep.scan(failing(pa.ArrowMemoryError("malloc of size 737 failed"))), scan["x"])
    assert list(chain_of(raised.value)) == [raised.value]


def test_selections_of_another_scan_are_refused() -> None:
    one, other = dpgep.scan(np.ones((2, 2))), dpgep.scan(np.ones((2, 2)))
    for selections in ([other], [one, other[0]], []):
        with pytest.raises(ValueError, match="selection of this scan"):
            one.read(*selections)
    assert one.passes == 0
    assert dpgep.scan(one) is one
    with pytest.raises(TypeError, match="already a scan"):
        dpgep.scan(one, n_rows=2)
    with pytest.raises(TypeError, match="already belongs to a scan"):
        dpgep.scan(one[0])


def test_the_only_array_of_a_mapping_declares_its_values() -> None:
    whole = as_selection({"y": np.array([True, False, True])})
    assert (whole.n_columns, whole.declared) == (None, (False, True))


def test_a_lazy_query_reads_what_is_needed_and_quotes_no_value() -> None:
    table = pl.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["4", "5", "secret"]}).cast({"a": pl.Float32})
    scan = dpgep.scan(table.lazy().with_columns(pl.col("b").cast(pl.Int64)).filter(pl.col("a") > 1))
    assert scan.n_rows is None
    np.testing.assert_array_equal(rows_of(scan, scan[["a"]])[0], [[2.0], [3.0]])
    with pytest.raises(dpgep.errors.DataError, match="message is suppressed") as caught:
        rows_of(scan, scan["b"])
    assert "secret" not in str(caught.value)
    with pytest.raises(dpgep.errors.DataError, match="the LazyFrame cannot be read"):
        dpgep.scan(table.lazy().select("c"))
    declared = dpgep.scan(table.lazy().with_columns(pl.lit("x", pl.Enum(["x", "y"])).alias("c")))
    assert as_selection(declared["c"]).declared == ("x", "y")
    assert declared[["c", "a"]].names == ("c=x", "c=y", "a")


def test_several_columns_of_one_name_are_refused() -> None:
    scan = dpgep.scan(pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]))
    with pytest.raises(ValueError, match="several columns named 'a'"):
        scan["a"]


@pytest.mark.parametrize(("module", "extra"), [("pyarrow", "arrow"), ("tqdm", "progress")])
def test_a_missing_package_is_named(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    def read() -> None:
        scan = dpgep.scan(pl.DataFrame({"a": [1.0]}) if extra == "arrow" else np.ones((2, 2)), progress=True)
        rows_of(scan, scan)

    with pytest.raises(MissingExtraError, match=rf"pip install 'dpgep\[{extra}\]'"):
        read()


def test_pandas_needs_no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    scan = dpgep.scan(pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]}))
    np.testing.assert_array_equal(rows_of(scan, scan)[0], [[1, 1], [2, 2]])


def test_what_is_a_source() -> None:
    x = np.ones((2, 2))
    table = pa.table({"a": [1.0]})
    sources = [
        "folder",
        Path("folder"),
        table,
        table.to_batches()[0],
        table.to_reader(),
        pyarrow.dataset.dataset(table),
        pd.DataFrame(x),
        pl.DataFrame(x),
        (row for row in [x]),
        lambda: [x],
        zarr.array(x),
        s := dpgep.scan(x),
        s[:1],
    ]
    others = [x, sp.csr_array(x), x.tolist(), ["a", "b"], pd.Series([1]), pl.Series([1]), table["a"], (1, 2), 3, None]
    assert [is_source(each) for each in sources] == [True] * len(sources)
    assert [is_source(each) for each in others] == [False] * len(others)
    assert as_selection(x).n_columns == 2
    assert as_selection(s).scan is s
    assert as_selection(selection := s[:1]) is selection


# --- the progress bar ---


def shown(progress: bool | None, delay: float, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a pass of 0.4 seconds writes to stderr, where a bar that nobody asked for appears after ``delay``."""
    monkeypatch.setattr("dpgep._optional._DELAY", delay)
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(theirs, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        scan = dpgep.scan([np.ones((500, 2))] * 4, n_rows=2000, batch_rows=500, progress=progress)
        for _ in scan.read(scan):
            time.sleep(0.1)
    with os.fdopen(ours, "rb") as written:
        parts = []
        with contextlib.suppress(OSError):  # Linux: the other end of a terminal is closed
            parts.extend(iter(lambda: os.read(written.fileno(), 1 << 12), b""))
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("progress", "delay", "terminal", "shows"),
    [
        (None, 0.15, True, True),
        (None, 1e9, True, False),  # over by then
        (None, 0.15, False, False),
        (True, 1e9, False, True),
        (False, 0.15, True, False),
    ],
)
def test_progress_bar(
    progress: bool | None, delay: float, terminal: bool, shows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = shown(progress, delay, terminal, monkeypatch)
    assert ("pass 1" in written) == shows, written
    if shows:
        assert "2.00k/2.00k" in written
        assert "rows/s" in written
    else:
        assert written.strip() == ""


def test_a_notebook_without_widgets_shows_a_bar_of_text_and_no_warning() -> None:
    """In a process that has a kernel of Jupyter in its modules, and whose stderr is no terminal."""
    code = (
        "import sys, types, numpy as np, dpgep, dpgep._optional as optional\n"
        "shell = types.SimpleNamespace(config={KERNEL})\n"
        "sys.modules['IPython'] = types.SimpleNamespace(get_ipython=lambda: shell)\n"
        "sys.modules['ipywidgets'] = None\n"
        "optional._DELAY = -1.0\n"
        "scan = dpgep.scan(np.ones((100, 2)))\n"
        "list(scan.read(scan))"
    )
    shown = {
        kernel: subprocess.run(
            [sys.executable, "-W", "error", "-c", code.replace("KERNEL", kernel)], capture_output=True, text=True
        ).stderr
        for kernel in ("'IPKernelApp': {}", "'TerminalIPythonApp': {}")
    }
    assert "100/100" in shown["'IPKernelApp': {}"]
    assert "Warning" not in shown["'IPKernelApp': {}"]
    assert shown["'TerminalIPythonApp': {}"] == ""
