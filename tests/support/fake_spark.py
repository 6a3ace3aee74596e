"""As much of PySpark as `dpgep` asks for, without Java: DataFrames of an Arrow table in partitions."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from unittest import mock

import pyarrow as pa

_SUMS = pa.schema([("part", pa.int64()), ("sums", pa.binary())])


class DataFrame:
    """Partitions of a table, or the rows that a task makes of each."""

    def __init__(self, partitions: list[Any]) -> None:
        self.partitions = partitions
        self.columns = partitions[0].column_names

    def limit(self, n: int) -> DataFrame:
        return DataFrame([each.slice(0, n) for each in self.partitions])

    def toArrow(self) -> Any:
        return pa.concat_tables(self.partitions)

    def toDF(self, *names: str) -> DataFrame:
        return DataFrame([each.rename_columns(list(names)) for each in self.partitions])

    def selectExpr(self, *names: str) -> DataFrame:
        return DataFrame([each.select(list(names)) for each in self.partitions])

    def repartition(self, name: str) -> DataFrame:
        """Rows of equal values in one partition, the last come first."""
        table, n = self.toArrow(), len(self.partitions)
        places = [hash(value) % n for value in table[name].to_pylist()]
        return DataFrame([table.take([i for i, at in enumerate(places) if at == place][::-1]) for place in range(n)])

    def mapInArrow(self, task: Callable[[Any], Iterator[Any]], schema: str) -> DataFrame:
        rows = []
        for number, table in enumerate(self.partitions):
            _Context.partition = number
            rows.append(pa.Table.from_batches(list(task(iter(table.to_batches(3)))), _SUMS))
        return DataFrame(rows)

    def groupBy(self, expression: str) -> _Groups:
        return _Groups(self, int(expression.rpartition(" ")[-1]))

    def collect(self) -> list[Any]:
        return [types.SimpleNamespace(**row) for table in self.partitions for row in table.to_pylist()]


class _Groups:
    def __init__(self, frame: DataFrame, fan_in: int) -> None:
        self._rows, self._fan_in = frame.toArrow().to_pylist(), fan_in

    def applyInArrow(self, task: Callable[[Any], Any], schema: str) -> DataFrame:
        rows = sorted(self._rows, key=lambda row: row["part"])
        groups = groupby(rows, key=lambda row: row["part"] // self._fan_in)
        return DataFrame([task(pa.Table.from_pylist(list(group)[::-1], _SUMS)) for _, group in groups])


class _Context:
    partition = 0

    @staticmethod
    def get() -> _Context:
        return _Context()

    def partitionId(self) -> int:
        return _Context.partition


@contextmanager
def in_place_of_pyspark() -> Iterator[None]:
    """Whoever imports PySpark in this block gets what is here."""
    functions = types.SimpleNamespace(expr=str)
    modules = {
        "pyspark": types.SimpleNamespace(TaskContext=_Context),
        "pyspark.sql": types.SimpleNamespace(DataFrame=DataFrame, functions=functions),
        "pyspark.sql.functions": functions,
    }
    with mock.patch.dict(sys.modules, modules):  # type: ignore[arg-type]
        yield
