"""The Spark example: its functions of partitions on record batches, and the whole of it where Spark is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

import dpgep

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "spark_moments.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spark_moments", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_partitions_of_record_batches_sum_to_the_moments_of_all(example: ModuleType) -> None:
    columns = example.simulated(3000)
    table = pa.table(columns)
    parts = [table[:1000], table[1000:1000], table[1000:]]  # one without people
    summed = [example.sum_partition(iter(part.to_batches(max_chunksize=300))) for part in parts]
    (merged,) = example.merge_partition(batch for partition in summed for batch in partition)
    assert merged.schema.names == ["moments"]

    whole = example.new_moments()
    whole.update(np.column_stack([columns[name] for name in example.FEATURES]), columns["ill"])
    (stored,) = merged.column("moments").to_pylist()
    assert stored == whole.to_bytes()
    assert dpgep.Moments.from_bytes(stored).n == 3000


def test_a_null_is_refused(example: ModuleType) -> None:
    columns = dict(example.simulated(10))
    columns["age"] = [None, *columns["age"][1:]]
    with pytest.raises(ValueError, match="NaN or infinite"):
        list(example.sum_partition(iter(pa.table(columns).to_batches())))


ON_SPARK = """
import numpy as np, pyarrow as pa
from pyspark.sql import SparkSession
import spark_moments as example

columns = example.simulated(3000)
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
ours = example.moments_of(spark.createDataFrame(pa.table(columns)).repartition(5))
spark.stop()
whole = example.new_moments()
whole.update(np.column_stack([columns[name] for name in example.FEATURES]), columns["ill"])
print("same bytes:", ours.to_bytes() == whole.to_bytes())
"""


@pytest.mark.deep
def test_moments_on_a_local_spark_are_those_of_one_process() -> None:
    pytest.importorskip("pyspark")
    run = subprocess.run(
        [sys.executable, "-c", ON_SPARK],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPT.parent), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert "same bytes: True" in run.stdout
