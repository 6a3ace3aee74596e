"""A data set whose rows are those of a Spark DataFrame: its executors make the sums, and merge them in a tree.

Two functions of Arrow batches are all that Spark is asked to run: one turns a partition into one row, (its number, the
pickled `Partial` of its people), the other merges the rows of some partitions. Spark takes the output of one attempt
at a task, however many there were.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

from dpgep._optional import import_extra
from dpgep.data.distributed_dataset import DistributedDataset, Partial, Task, merged, read_again, summed
from dpgep.data.rows import Batch
from dpgep.sources import Scan, Selection
from dpgep.sources.names import Key
from dpgep.sources.source import packages_messages_withheld
from dpgep.sources.tables import pyarrow

# Partial sums that one task merges, all of which it holds.
_FAN_IN = 8
# Bytes that the driver gets for each partition: sums of more are merged by the executors until they are so few.
_AT_DRIVER = 1 << 16

_COLUMNS = ("part", "sums")
_SCHEMA = "part long, sums binary"


class SparkDataset(DistributedDataset):
    """Rows that the executors of Spark read, as a `dpgep.sources.Scan` of their DataFrame selects them."""

    whereabouts = "on the executors of Spark: bring them here with .toPandas()"
    hint = "for rows that Spark computes differently, or in another order, each time, call persist() first"

    def __init__(
        self,
        selections: tuple[Selection, ...],
        to_batch: Callable[..., Batch],
        n_features: int,
        bound: float,
        fewest: int,
    ) -> None:
        people, keys = selections[0].scan, [each.key for each in selections]
        names = list(map(str, people.source.needed(keys)))
        types = people.source.types
        schema = pyarrow().schema([(name, types[name]) for name in names])
        read = partial(_people, people.again(), keys, schema)
        super().__init__(read, to_batch, n_features, bound, fewest, people.n_rows, people)
        self._frame, self._names = people.value, names

    def _reduced(self, task: Task) -> Partial:
        """Merged are partitions whose numbers follow each other, then what became of them: a tree of the numbers alone,
        whose lower levels are on the executors.
        """
        sql = import_extra("pyspark.sql.functions", "spark")
        # by place, as SQL takes a dot in a name for a path, ${x} for a variable, and may not tell a from A; as text:
        # columns of its own take Spark milliseconds each
        frame = self._frame
        places = {name: f"c{place}" for place, name in enumerate(frame.columns)}
        placed = frame.toDF(*places.values()).selectExpr(*(places[name] for name in self._names))
        rows = placed.mapInArrow(_sum_of_partition(task), _SCHEMA)
        n_bytes = len(pickle.dumps(task[2]()))
        while n_bytes > _AT_DRIVER:
            rows = rows.groupBy(sql.expr(f"part div {_FAN_IN}")).applyInArrow(_merged_rows, _SCHEMA)
            n_bytes //= _FAN_IN
        with packages_messages_withheld("the Spark DataFrame"):
            collected = rows.collect()
        parts: dict[int, Partial] = {row.part: pickle.loads(row.sums) for row in collected}
        while len(parts) > 1:
            parts = {
                number: merged(*(parts[part] for part in group))
                for number, group in groupby(sorted(parts), key=_number_of_merged)
            }
        (result,) = parts.values() or [summed(task, iter(()))]
        return result


def _sum_of_partition(task: Task) -> Callable[[Any], Iterator[Any]]:
    """What makes of a partition's record batches one row."""

    def sum_of_partition(batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        yield _row(context.partitionId(), summed(task, batches))

    return sum_of_partition


def _merged_rows(rows: Any) -> Any:
    """One row of some, a table."""
    stored = sorted(zip(*(rows.column(name).to_pylist() for name in _COLUMNS), strict=True))
    partials = [pickle.loads(sums) for _, sums in stored]
    return pyarrow().Table.from_batches([_row(_number_of_merged(stored[0][0]), merged(*partials))])


def _number_of_merged(part: int) -> int:
    return part // _FAN_IN


def _row(part: int, sums: Partial) -> Any:
    pa = pyarrow()
    stored = pickle.dumps(sums, protocol=pickle.HIGHEST_PROTOCOL)
    return pa.RecordBatch.from_arrays([pa.array([part], pa.int64()), pa.array([stored], pa.binary())], _COLUMNS)


def _people(
    scan: Callable[[Any], Scan], keys: list[Key], schema: Any, batches: Iterator[Any]
) -> Iterator[tuple[Any, ...]]:
    """The people of a partition: one array for each key. Columns of the batches have the names of the schema."""
    pa = pyarrow()
    named = (pa.RecordBatch.from_arrays(batch.columns, schema.names) for batch in batches)
    return read_again(scan, keys, pa.RecordBatchReader.from_batches(schema, named))
