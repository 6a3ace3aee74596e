"""The forms in which problems take people: what each source is made of, for replay_ways.py."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import io
import itertools
import math
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_sqlite.dbapi
import dask.array
import dask.dataframe
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import scipy.sparse
import zarr
from numpy.typing import NDArray
from replay_people import CLASSES, COLUMNS, REGIONS, People

import dpgep

BATCH = 4
X, Y = list(COLUMNS[:3]), list(COLUMNS[3:])
_DECLARED: dict[str, Any] = {"categories": {"region": list(REGIONS)}, "dates": ["joined"]}
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class Inputs:
    """What problems are given: two views, labels and their classes, a response."""

    x: Any
    y: Any
    labels: Any
    response: Any
    classes: tuple[Any, ...] = CLASSES


@dataclass(frozen=True)
class Form:
    """How people are handed over.

    Attributes
    ----------
    make : ``make(people, folder)``; files are always called the same.
    sources : names of the classes of `dpgep.sources` that read it; none for what is an array in memory.
    once : it can be read once, so that no bound can be bought.
    adjacencies : under which it is taken.
    holes : whether it can hold missing values.
    public : what the documentation calls public about people in this form.
    """

    make: Callable[[People, Path], Inputs]
    sources: tuple[str, ...] = ()
    once: bool = False
    adjacencies: tuple[str, ...] = ("replace-one", "add-remove")
    holes: bool = True
    public: Callable[[People], Any] | None = None


def _text(values: list[Any]) -> list[str | None]:
    """Labels as a column of text has them."""
    return [None if value is None else str(value) for value in values]


def _arrays(people: People, to_array: Callable[[Any], Any] = np.asarray) -> Inputs:
    labels = np.empty(len(people), dtype=object)
    labels[:] = people.labels
    return Inputs(to_array(people.rows[:, :3]), to_array(people.rows[:, 3:]), labels, np.array(people.response))


def _of_array(to_array: Callable[[Any], Any]) -> Callable[[People, Path], Inputs]:
    return lambda people, folder: _arrays(people, to_array)


def _float32(rows: Any) -> Any:
    largest = np.finfo(np.float32).max
    return np.clip(rows, -largest, largest).astype(np.float32)


def _whole(rows: Any) -> Any:
    return np.clip(np.rint(rows), -(2.0**62), 2.0**62).astype(np.int64)


def _bytes(rows: Any) -> Any:
    return np.abs(np.clip(np.rint(rows), -255, 255)).astype(np.uint8)


def _strided(rows: Any) -> Any:
    return np.repeat(rows, 2, axis=1)[::-1][::-1, ::2]


def _columns(people: People) -> dict[str, Any]:
    """Columns by name, as Arrow, pandas and polars take them."""
    columns: dict[str, Any] = {name: np.array(people.rows[:, j]) for j, name in enumerate(COLUMNS)}
    dates = np.array([np.iinfo(np.int64).min if day is None else day for day in people.days], dtype="M8[D]")
    return {
        **columns,
        "region": people.regions,
        "joined": dates,
        "label": _text(people.labels),
        "response": np.array(people.response),
    }


def table_of(people: People) -> Any:
    columns = _columns(people)
    holed = {name: pa.array(columns[name], from_pandas=True) for name in COLUMNS}
    texts = {name: pa.array(columns[name], pa.string()) for name in ("region", "label")}
    return pa.table({**columns, **holed, **texts, "joined": pa.array(columns["joined"], pa.date32())})


def _typed_table(people: People) -> Any:
    """A table whose numbers are whole, decimal, true or false, in half precision, or null; regions are numbers."""
    rows = np.clip(np.nan_to_num(people.rows), -1e15, 1e15)
    absent = np.isnan(people.rows)
    columns = {
        "a": pa.array(rows[:, 0].astype(np.int64), mask=absent[:, 0]),
        "b": pa.array([None if math.isnan(x) else Decimal(f"{x:.3f}") for x in _held(people, 1)], pa.decimal128(38, 3)),
        "c": pa.array(rows[:, 2] > 0, mask=absent[:, 2]),
        "p": pa.array(np.clip(rows[:, 3], -1e4, 1e4).astype(np.float16), mask=absent[:, 3]),
        "q": pa.array(np.abs(rows[:, 4]).astype(np.uint64), mask=absent[:, 4]),
        "region": pa.array([None if region is None else len(region) for region in people.regions], pa.int32()),
        "joined": pa.array([None if day is None else 86400 * day for day in people.days], pa.timestamp("s", "UTC")),
        "label": pa.array(_text(people.labels), pa.large_string()),
        "response": pa.array(np.clip(people.response, -3e38, 3e38).astype(np.float32), from_pandas=True),
    }
    return pa.table(columns)


def _dictionaries(people: People) -> Any:
    """Regions and labels as dictionaries of what occurs, in the order in which it does."""
    table = table_of(people)
    for name in ("region", "label"):
        table = table.set_column(table.column_names.index(name), name, table[name].dictionary_encode())
    return table


def _held(people: People, j: int) -> list[float]:
    return np.clip(people.rows[:, j], -1e15, 1e15).tolist()  # type: ignore[no-any-return]


def _with_lists(people: People, folder: Path) -> Inputs:
    """Columns of fixed-size lists, which are matrices."""
    widths = {"x": slice(0, 3), "y": slice(3, 5)}
    matrices = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(people.rows[:, part].ravel()), part.stop - part.start)
        for name, part in widths.items()
    }
    table = pa.table({**matrices, "label": pa.array(_text(people.labels), pa.string()), "response": people.response})
    pyarrow.parquet.write_table(table, folder / "people.parquet", row_group_size=BATCH)
    return _by_name(str(folder / "people.parquet"))


def _nullable_frame(people: People) -> Any:
    kinds = {**dict.fromkeys(COLUMNS, "Float64"), "region": "string", "label": "string", "response": "Float32"}
    frame = _frame(people)
    frame["response"] = frame["response"].clip(-3e38, 3e38)
    return frame.astype(kinds)


def _frame(people: People) -> Any:
    columns = _columns(people)
    texts = {name: pd.Series(columns[name], dtype=object) for name in ("region", "label")}
    return pd.DataFrame({**columns, **texts, "joined": columns["joined"].astype("M8[s]")})


def typed_frame(people: People) -> Any:
    kinds = {"region": (people.regions, REGIONS), "label": (_text(people.labels), CLASSES)}
    categorical = {
        name: pd.Categorical(_known(values, categories), categories=list(categories))
        for name, (values, categories) in kinds.items()
    }
    return _frame(people).assign(**categorical)


def _polars(people: People) -> Any:
    return pl.from_arrow(table_of(people))


def typed_polars(people: People) -> Any:
    kinds = {"region": (people.regions, REGIONS), "label": (_text(people.labels), CLASSES)}
    enums = [pl.Series(name, _known(values, known), dtype=pl.Enum(known)) for name, (values, known) in kinds.items()]
    return _polars(people).with_columns(enums)


def _known(values: Sequence[str | None], categories: Sequence[str]) -> list[str | None]:
    """As a column that has these categories alone holds them."""
    return [value if value in categories else None for value in values]


def _picked(frame: Any) -> Inputs:
    return Inputs(frame[[*X, "region"]], frame[Y], frame["label"], frame["response"])


def _of_arrow_frame(people: People, folder: Path) -> Inputs:
    frame = table_of(people).to_pandas(types_mapper=pd.ArrowDtype)
    return Inputs(frame[X], frame[Y], frame["label"], frame["response"])


def _of_arrow_table(people: People, folder: Path) -> Inputs:
    table = table_of(people)
    return Inputs(table.select(X), table.select(Y), table["label"], table["response"])


def _of_record_batch(people: People, folder: Path) -> Inputs:
    (batch,) = table_of(people).to_batches() or [pa.RecordBatch.from_pylist([], table_of(people).schema)]
    return Inputs(batch.select(X), batch.select(Y), batch.column("label"), batch.column("response"))


def scanned(source: Any, **options: Any) -> Inputs:
    """A scan of a table with declared categories and dates."""
    people = dpgep.scan(source, batch_rows=BATCH, **(_DECLARED | options))
    return Inputs(people[[*X, "region", "joined"]], people[Y], people["label"], people["response"])


def _of_scan(make: Callable[[People], Any], **options: Any) -> Callable[[People, Path], Inputs]:
    return lambda people, folder: scanned(make(people), **options)


def _queried(people: People, **options: Any) -> dpgep.sources.Scan:
    """Of a table of SQLite in memory, which has no dates, closed with its last user."""
    connection = adbc_driver_sqlite.dbapi.connect(":memory:")
    with contextlib.ExitStack() as unless_done:
        unless_done.callback(connection.close)
        with connection.cursor() as cursor:
            cursor.adbc_ingest("people", table_of(people).drop_columns(["joined"]))
        scan = dpgep.scan(connection, query="SELECT * FROM people", batch_rows=BATCH, **options)
        weakref.finalize(scan, unless_done.pop_all().close)
    return scan


def _of_query(people: People, folder: Path) -> Inputs:
    found = _queried(people, categories={"region": list(REGIONS)})
    return Inputs(found[[*X, "region"]], found[Y], found["label"], found["response"])


def query_types(people: People) -> list[str]:
    """What SQLite's driver makes of the first values: nobody declares them."""
    return [str(kind) for kind in _queried(people).source.types.values()]


def _of_files(
    write: Callable[[People, Path], Any], path: str, n_files: int = 1, **options: Any
) -> Callable[[People, Path], Inputs]:
    """Files of the same names, of which the last ones hold the rest of the people, or nobody."""

    def make(people: People, folder: Path) -> Inputs:
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        place = folder / "people"
        place.mkdir()
        parts = [people.part(BATCH * i, BATCH * (i + 1)) for i in range(n_files - 1)]
        for i, part in enumerate([*parts, people.part(BATCH * (n_files - 1), len(people))]):
            write(part, place / path.format(i))
        return scanned(str(place if n_files > 1 else place / path.format(0)), **options)

    return make


def _write_parquet(people: People, path: Path) -> None:
    pyarrow.parquet.write_table(table_of(people), path, row_group_size=BATCH)


def _write_feather(people: People, path: Path) -> None:
    pyarrow.feather.write_feather(table_of(people), str(path), chunksize=BATCH, compression="uncompressed")


def csv_of(people: People) -> str:
    """A CSV as programs write it: what is missing is empty."""
    lines = [",".join((*COLUMNS, "region", "joined", "label", "response"))]
    for row, region, day, label, response in zip(
        people.rows.tolist(), people.regions, people.days, _text(people.labels), people.response, strict=True
    ):
        date = "" if day is None else (_EPOCH + datetime.timedelta(day)).isoformat()
        numbers = ["" if np.isnan(value) else repr(value) for value in row]
        lines.append(",".join([*numbers, _quoted(region), date, _quoted(label), repr(response)]))
    return "\n".join(lines) + "\n"


def csv_types(people: People) -> list[str]:
    """What the values of a CSV make of the types of its columns: nobody declares them."""
    read = pyarrow.csv.read_csv(
        pa.BufferReader(csv_of(people).encode()), parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)
    )
    return [{"int64": "double", "null": "double"}.get(str(kind), str(kind)) for kind in read.schema.types]


def _quoted(text: str | None) -> str:
    return "" if text is None else '"' + text.replace('"', '""') + '"'


def _write_csv(people: People, path: Path) -> None:
    content = csv_of(people).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def _numbers(people: People) -> NDArray[np.float64]:
    """All that are numbers: columns, the class by number, a response."""
    codes = [CLASSES.index(label) if label in CLASSES else len(str(label)) + 2 for label in _text(people.labels)]
    return np.column_stack([people.rows, np.array(codes, dtype=float), np.array(people.response)])


def _by_place(source: Any) -> Inputs:
    people = dpgep.scan(source, batch_rows=BATCH)
    return Inputs(people[:3], people[[3, 4]], people[5], people[6], (0, 1))


def _by_name(source: Any) -> Inputs:
    people = dpgep.scan(source, batch_rows=BATCH)
    return Inputs(people["x"], people["y"], people["label"], people["response"])


def _by_number(source: Any) -> Inputs:
    people = dpgep.scan(source, batch_rows=BATCH)
    return Inputs(people[0], people[1], people[2], people[3])


def _parts(people: People) -> dict[str, Any]:
    inputs = _arrays(people)
    return {"x": inputs.x, "y": inputs.y, "label": inputs.labels, "response": inputs.response}


def _tuples(people: People) -> Iterator[Any]:
    return (tuple(_parts(part).values()) for part in people.batches(BATCH))


def _of_h5py(people: People, folder: Path) -> Inputs:
    file = h5py.File(io.BytesIO(), "w")
    parts = _parts(people)
    for name in ("x", "y", "response"):
        file.create_dataset(name, data=parts[name])
    file.create_dataset("label", data=[str(label) for label in people.labels], dtype=h5py.string_dtype())
    return _by_name(file)


def _of_zarr(people: People, folder: Path) -> Inputs:
    numbers = _numbers(people)
    stored = zarr.create(store={}, shape=numbers.shape, chunks=(BATCH, 3), dtype=numbers.dtype)
    stored[:] = numbers
    return _by_place(stored)


def _of_memmap(people: People, folder: Path) -> Inputs:
    np.save(folder / "people.npy", _numbers(people))
    return _by_place(np.load(folder / "people.npy", mmap_mode="r"))


def _of_npy(people: People, folder: Path) -> Inputs:
    np.save(folder / "people.npy", _numbers(people))
    return _by_place(str(folder / "people.npy"))


def _of_npz(people: People, folder: Path) -> Inputs:
    parts = {name: values for name, values in _parts(people).items() if name != "label"}
    texts = np.array([f"{label!s:.30}" for label in people.labels], dtype="<U30")
    np.savez(folder / "people.npz", **parts, label=texts)
    return _by_name(str(folder / "people.npz"))


def _with_typed_labels(people: People, folder: Path) -> Inputs:
    """Labels in NumPy's type of text, which is as wide as the longest of them."""
    given = _arrays(people, _float32)
    labels = np.array([str(label) for label in people.labels], dtype=np.str_)
    return Inputs(given.x, given.y, labels, np.clip(given.response, -3e38, 3e38).astype(np.float32))


def _of_reader(people: People, folder: Path) -> Inputs:
    return scanned(pa.RecordBatchReader.from_batches(table_of(people).schema, table_of(people).to_batches(BATCH)))


def _of_stream(people: People, folder: Path) -> Inputs:
    class Stream:
        """What is known by its protocol alone."""

        def __init__(self) -> None:
            self.schema = table_of(people).schema

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return table_of(people).__arrow_c_stream__(requested_schema)

    return scanned(Stream())


def _chunks(n: int) -> tuple[int, ...]:
    """Whole chunks, and what is left; of nobody, one."""
    return (*itertools.repeat(BATCH, n // BATCH), *[n % BATCH] * (n % BATCH > 0 or n == 0))


def _of_dask_arrays(people: People, folder: Path) -> Inputs:
    inputs, chunks = _arrays(people), _chunks(len(people))
    values = (
        dask.array.from_array(array, chunks=(chunks, *array.shape[1:]))
        for array in (inputs.x, inputs.y, inputs.labels, inputs.response)
    )
    return Inputs(*values)


def _of_dask_frames(people: People, folder: Path) -> Inputs:
    return _picked(dask.dataframe.from_pandas(typed_frame(people), npartitions=max(1, len(people) // BATCH)))


FORMS: dict[str, Form] = {
    "arrays of float64": Form(_of_array(np.array)),
    "arrays of float32": Form(_with_typed_labels),
    "arrays of int64": Form(_of_array(_whole), holes=False),
    "arrays of uint8": Form(_of_array(_bytes), holes=False),
    "arrays of booleans": Form(_of_array(lambda rows: rows > 0), holes=False),
    "arrays in Fortran order": Form(_of_array(np.asfortranarray)),
    "views with strides": Form(_of_array(_strided)),
    "nested lists": Form(_of_array(lambda rows: rows.tolist()), adjacencies=("replace-one",)),
    "SciPy's CSR": Form(_of_array(scipy.sparse.csr_array)),
    "SciPy's CSC": Form(_of_array(scipy.sparse.csc_matrix)),
    "pandas": Form(lambda people, folder: _picked(typed_frame(people))),
    "pandas, types of Arrow": Form(_of_arrow_frame),
    "polars": Form(lambda people, folder: _picked(typed_polars(people))),
    "Arrow table": Form(_of_arrow_table),
    "Arrow record batch": Form(_of_record_batch),
    "scan of pandas": Form(_of_scan(_frame), ("Frame",)),
    "scan of polars": Form(_of_scan(_polars), ("Stream",)),
    "scan of a polars LazyFrame": Form(_of_scan(lambda people: _polars(people).lazy()), ("LazyFrame",)),
    "scan of an Arrow table": Form(_of_scan(table_of), ("Stream",)),
    "scan of any Arrow stream": Form(_of_stream, ("Stream",)),
    "scan of pandas, nullable types": Form(_of_scan(_nullable_frame), ("Frame",)),
    "scan of many types": Form(_of_scan(_typed_table, categories={"region": [5, 7]}), ("Stream",)),
    "scan of Arrow dictionaries": Form(_of_scan(_dictionaries), ("Stream",)),
    "columns of lists": Form(_with_lists, ("ParquetFiles",)),
    "RecordBatchReader": Form(_of_reader, ("Stream",), once=True),
    "query of SQLite": Form(_of_query, ("Query",), public=query_types),
    "pyarrow Dataset": Form(_of_scan(lambda people: pyarrow.dataset.dataset(table_of(people))), ("Dataset",)),
    "Parquet file": Form(_of_files(_write_parquet, "people.parquet"), ("ParquetFiles",)),
    "Parquet folder": Form(_of_files(_write_parquet, "people-{}.parquet", 3), ("ParquetFiles",)),
    "CSV file": Form(_of_files(_write_csv, "people.csv"), ("CsvFiles",), public=csv_types),
    "compressed CSV": Form(_of_files(_write_csv, "people.csv.gz"), ("CsvFiles",), public=csv_types),
    "Arrow file": Form(_of_files(_write_feather, "people.arrow"), ("ArrowFiles",)),
    "Arrow folder": Form(_of_files(_write_feather, "people-{}.feather", 2), ("ArrowFiles",)),
    "rows that pass a filter": Form(
        _of_files(_write_parquet, "people.parquet", filter="a < 0.5 and region != 'south'"),
        ("Filtered", "ParquetFiles"), adjacencies=("add-remove",),
    ),
    "NPY file": Form(_of_npy, ("Array",)),
    "NPZ file": Form(_of_npz, ("SideBySide",)),
    "memory map": Form(_of_memmap, ("Array",)),
    "h5py": Form(_of_h5py, ("SideBySide",)),
    "Zarr": Form(_of_zarr, ("Array",)),
    "mapping of arrays": Form(lambda people, folder: _by_name(_parts(people)), ("SideBySide",)),
    "tuple of arrays": Form(lambda people, folder: _by_number(tuple(_parts(people).values())), ("SideBySide",)),
    "list of batches": Form(lambda people, folder: _by_number(list(_tuples(people))), ("Batches", "SideBySide")),
    "generator of batches": Form(
        lambda people, folder: _by_number(_tuples(people)), ("Batches", "SideBySide"), once=True
    ),
    "function that returns batches": Form(
        lambda people, folder: _by_number(lambda: _tuples(people)), ("Batches", "SideBySide")
    ),
    "batches of tables": Form(
        lambda people, folder: scanned([_frame(part) for part in people.batches(BATCH)]),
        ("Batches", "Frame"),
    ),
    "Dask arrays": Form(_of_dask_arrays),
    "Dask DataFrame": Form(_of_dask_frames),
}  # fmt: skip
