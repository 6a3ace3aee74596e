"""Two cores of a local Spark against one: exact moments of a Parquet file, the same bits; and what Spark users have.

Sessions alternate, one at a time, each on as many processors as Spark is told of: a task's Java and its Python worker
would otherwise take two, whatever ``local[1]`` says. Beside them, not private: Spark's own ``RowMatrix`` (its principal
components), and all rows brought to the driver by ``toPandas`` and solved there. Needs PySpark and Java; skipped
without.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import support

import dpgep

pytest.importorskip("pyspark")

TARGET = 1.6
ROUNDS = 1 if support.QUICK else 3
N_PARTS = 4 if support.QUICK else 8
N_FEATURES = 40 if support.QUICK else 500
N = 4_000 if support.QUICK else 80_000

PROGRAM = """
import io, json, sys, time, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
import dpgep
folder, n_parts, d, run = sys.argv[1:]
options = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "6g"}
options |= {"spark.sql.files.maxPartitionBytes": "1g", "spark.sql.files.openCostInBytes": "1g"}

def ours(people):
    sums = io.BytesIO()
    moments = dpgep.Moments(dpgep.models.PcaModel(int(d), center=True), bound=1.0)
    moments.update(people)
    moments.save(sums)
    return sums.getvalue()

def no_rows(batches):
    for batch in batches:
        yield batch.slice(0, 0)

def reading(people):
    return people.mapInArrow(no_rows, people.schema).count()

def row_matrix(people):
    from pyspark.mllib.linalg import Vectors
    from pyspark.mllib.linalg.distributed import RowMatrix
    return RowMatrix(people.rdd.map(Vectors.dense)).computePrincipalComponents(5).toArray()

def collected(people):
    return dpgep.solve(dpgep.pca(people.toPandas(), bound=1.0), epsilon=1.0, delta=1e-6, n_components=5)

cores, what = run.split()
spark = SparkSession.builder.master(f"local[{cores}]").config(map=options).getOrCreate()
people = spark.read.parquet(*[f"{folder}/{i}.parquet" for i in range(int(n_parts))])
for _ in range(3):  # the first starts the workers and warms Java
    start = time.perf_counter()
    result = globals()[what](people)
    seconds = time.perf_counter() - start
same = what != "ours" or result == open(f"{folder}/sums", "rb").read()
print(json.dumps([run, seconds, same]), flush=True)
spark.stop()
"""


def seconds(folder: Path, *runs: str) -> list[float]:
    """Of each run, ``"CORES WHAT"``, the last time in a process of its own; asserts that ours has the right bits."""
    return [_seconds(folder, run) for run in runs]


def _seconds(folder: Path, run: str) -> float:
    command = [sys.executable, "-c", PROGRAM, str(folder), str(N_PARTS), str(N_FEATURES), run]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    processors = sorted(os.sched_getaffinity(0))[: int(run.split()[0])]
    pinned = partial(os.sched_setaffinity, 0, processors)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1800, preexec_fn=pinned)
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    name, spent, is_same = found
    assert (name, is_same) == (run, True)
    return float(spent)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows in one file for each part."""
    path = tmp_path_factory.mktemp("people")
    for i in range(N_PARTS):
        rows = np.random.default_rng(i).standard_normal((N // N_PARTS, N_FEATURES)) / 28
        pyarrow.parquet.write_table(
            pa.table({f"x{j}": column for j, column in enumerate(rows.T)}),
            path / f"{i}.parquet",
            use_dictionary=False,
            compression="NONE",
        )
    return path


def test_two_cores_against_one(folder: Path, benchmark: Any) -> None:
    whole = dpgep.Moments(dpgep.models.PcaModel(N_FEATURES, center=True), bound=1.0)
    start = time.perf_counter()
    for i in range(N_PARTS):
        whole.update(pyarrow.parquet.read_table(folder / f"{i}.parquet"), n_threads=1)
    alone = time.perf_counter() - start
    (folder / "sums").write_bytes(support.bytes_of(whole))
    found = benchmark.pedantic(seconds, (folder, *["1 ours", "2 ours"] * ROUNDS), rounds=1)
    one, two = statistics.median(found[::2]), statistics.median(found[1::2])
    support.say(
        f"exact moments of {N} x {N_FEATURES} in {N_PARTS} partitions: two cores {two:.3g} s, one {one:.3g} s (medians "
        f"of {ROUNDS}, alternating); without Spark, one thread {alone:.3g} s"
    )
    support.judge("exact moments on Spark, speed-up by a second core", one / two, TARGET, at_least=True)


def test_what_else_spark_does_with_these_rows(folder: Path) -> None:
    names = {
        "2 reading": "rows to Python and no sums",
        "2 collected": "toPandas, then dpgep.solve on the driver",
        "2 row_matrix": "RowMatrix.computePrincipalComponents, not private",
    }
    for name, each in zip(names.values(), seconds(folder, *names), strict=True):
        support.say(f"two cores of Spark, {N} x {N_FEATURES}: {name} {each:.3g} s")
