"""Exact moments of a Spark DataFrame: summed where the rows are, merged, and released on the driver.

    python examples/spark_moments.py          # a local session with two cores and simulated people

`sum_partition` and `merge_partition` are what `DataFrame.mapInArrow` wants: functions of an iterator of record batches.
A partition becomes one row with one binary column, the bytes of `dpgep.Moments`: sums over people, as private as the
rows. Since they are integers, the result has the same bits for any partitions, retries and order of merging.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import dpgep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Public facts, the same for every partition: what is asked, and the bound on the norm of a row.
FEATURES = ["height", "weight", "pulse", "age"]
CLASSES = ("no", "yes")
MODEL = dpgep.FdaModel(len(FEATURES), CLASSES)
BOUND = 2.0
# Rows that later tasks merge into one; the driver then gets so many.
MERGED = 4


def new_moments() -> dpgep.Moments:
    return dpgep.Moments(MODEL, bound=BOUND)


def sum_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The moments of the people of a partition. Nulls are refused, being NaN, and so are labels outside CLASSES."""
    moments = new_moments()
    for batch in batches:
        columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in FEATURES]
        moments.update(np.column_stack(columns), batch.column("ill").to_pylist(), n_threads=1)
    yield as_batch(moments)


def merge_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The moments of the people of several partitions."""
    yield as_batch(merged(data for batch in batches for data in batch.column("moments").to_pylist()))


def merged(stored: Iterator[bytes]) -> dpgep.Moments:
    moments = new_moments()
    for data in stored:
        moments.merge(dpgep.Moments.from_bytes(data))
    return moments


def as_batch(moments: dpgep.Moments) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([moments.to_bytes()], pa.binary())], ["moments"])


def moments_of(people: DataFrame) -> dpgep.Moments:
    """The moments of all rows: one pass over them, and nothing but sums leaves the executors."""
    sums = people.select(*FEATURES, "ill").mapInArrow(sum_partition, "moments binary")
    rows = sums.repartition(MERGED).mapInArrow(merge_partition, "moments binary").collect()
    return merged(bytes(row.moments) for row in rows)


def simulated(n: int) -> dict[str, np.ndarray]:
    """People whose illness shows in the pulse."""
    rng = np.random.default_rng(0)
    ill = rng.integers(0, 2, n)
    columns = {name: rng.standard_normal(n) / 4 for name in FEATURES}
    columns["pulse"] += 0.5 * ill
    return {**columns, "ill": np.array(CLASSES)[ill]}


def main() -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    people = spark.createDataFrame(pa.table(simulated(20_000))).repartition(8)
    moments = moments_of(people)
    spark.stop()
    solution = dpgep.solve(moments, epsilon=1.0, delta=1e-6)
    print(solution)
    print("direction:", dict(zip(FEATURES, solution.components[0].round(3).tolist(), strict=True)))


if __name__ == "__main__":
    main()
