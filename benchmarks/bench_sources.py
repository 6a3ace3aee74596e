"""Reading a Parquet file into batches of rows, against pyarrow reading the same columns alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import support

import dpgep

TARGET = 0.6
COLUMNS = 100
ROWS = 20_000 if support.QUICK else 400_000
ROUNDS = 3 if support.QUICK else 7


def write(path: Path, dtype: type) -> float:
    """A file of random columns, several row groups; the sum of all values."""
    rng = np.random.default_rng(0)
    columns = [rng.standard_normal(ROWS).astype(dtype) for _ in range(COLUMNS)]
    pq.write_table(pa.table(columns, names=[f"x{i}" for i in range(COLUMNS)]), path, row_group_size=ROWS // 4)
    return float(sum(column.sum(dtype=np.float64) for column in columns))


def drain(batches: Any) -> None:
    for _ in batches:
        pass


# pyarrow's ways to read a file in batches, as they come: both read far ahead, and take more memory than a file of this
# size. Ours is judged against that for a single file.
ALONE: dict[str, Callable[[Path], object]] = {
    "ParquetFile.iter_batches": lambda path: drain(pq.ParquetFile(path).iter_batches()),
    "Dataset.to_batches": lambda path: drain(pyarrow.dataset.dataset(path).to_batches()),
}


@pytest.mark.parametrize("alone", ALONE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_parquet_into_rows(benchmark: Any, tmp_path: Path, dtype: type, alone: str) -> None:
    """Where pyarrow decodes columns, we decode them and turn them into rows."""
    path = tmp_path / "x.parquet"
    expected = write(path, dtype)
    scan = dpgep.scan(path, progress=False)
    got = 0.0
    for (x,) in scan.read(scan):
        assert x.dtype == dtype
        assert x.strides[1] == x.itemsize
        got += float(x.sum(dtype=np.float64))
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-6)

    times = support.alternate(benchmark, lambda: drain(scan.read(scan)), lambda: ALONE[alone](path), ROUNDS)
    gigabytes = ROWS * COLUMNS * np.dtype(dtype).itemsize / 1e9
    what = f"{np.dtype(dtype).name}, {ROWS} x {COLUMNS}"
    support.say(f"Parquet, {what}: rows {gigabytes / times.ours:.3g} GB/s, {alone} {gigabytes / times.theirs:.3g} GB/s")
    if alone == "ParquetFile.iter_batches":
        support.judge(f"rows from Parquet, {what}, share of pyarrow's rate", 1 / times.ratio, TARGET, at_least=True)
    else:
        support.say(f"    share {1 / times.ratio:.2f} (no target)")
