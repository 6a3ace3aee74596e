"""Data sets whose rows lie on several machines: sums are made there and merged in a tree; the total comes here.

The workers of a Dask cluster read chunks of its collections, or row groups of Parquet files. The executors of Spark
read a DataFrame: one function of Arrow batches turns a partition into one row, (its number, the pickled `Partial` of
its people), another merges the rows of some partitions. Spark takes the output of one attempt at a task.
"""

from __future__ import annotations

import pickle
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial, wraps
from itertools import groupby
from typing import Any, ClassVar, TypeVar

import numpy as np

from dpgep._checks import check_not_masked
from dpgep._optional import import_extra
from dpgep._threads import one_thread_per_task
from dpgep.data.checksum import PassChecksum, PassComparison, combined
from dpgep.data.dataset import Dataset, People
from dpgep.data.ids import Identities
from dpgep.data.inputs import known_rows
from dpgep.data.people import (
    WEIGHT_BITS,
    Identified,
    SumsOfPeople,
    Weighting,
    enough_people,
    joined,
    unordered_checksum,
)
from dpgep.data.rows import Batch, S, Sums, add_weighted
from dpgep.sources import Scan, Selection, scan
from dpgep.sources.encoding import Categories
from dpgep.sources.kinds import is_dask_collection
from dpgep.sources.names import Key, Names, as_text, check_same
from dpgep.sources.source import packages_messages_withheld, replaced, without_message
from dpgep.sources.tables import pyarrow

# What a task hands on: the number of people, the pickled sums over them and the checksum of their rows (none of a pass
# that is not compared), or the error that their rows raised. Bytes, since a result is used again when a machine is
# lost: nothing can change them.
Partial = tuple[int, bytes, bytes] | Exception

# How rows are read, what makes of them a batch (or `Identified` ones), sums, the key of their checksum; and of people
# who count by weights, up to how many rows of each count alike, and the bits of a weight.
Task = tuple[
    Callable[..., Any], Callable[..., Any], Callable[[], Sums], "bytes | None", "tuple[int | None, int] | None"
]

# What a part holds of the same people: an array, or a chunk, for each input.
Part = tuple[Any, ...]

# Partial sums that one task of Dask merges: a tree of little depth, and little memory on a worker.
_DASK_FAN_IN = 4
# Piles that Dask deals rows into, whose people are in one each: a task for each part and pile.
_MOST_PILES = 64
# Bytes of rows that workers keep from one pass to the next, once dealt.
_MOST_KEPT = 1 << 31
# Bytes that every one may carry with it; vectors to be multiplied are more, for one.
_SENT_WITH_EACH = 1 << 16
# Partial sums that one task of Spark merges, all of which it holds.
_SPARK_FAN_IN = 8
# Bytes that the driver gets for each partition: sums of more are merged by the executors until they are so few.
_AT_DRIVER = 1 << 16

# Spark refuses workers with another.
_PYTHON = ".".join(map(str, sys.version_info[:2]))

_COLUMNS = ("part", "sums")
_SCHEMA = "part long, sums binary"


T = TypeVar("T")


class DistributedDataset(Dataset):
    """Rows in parts that other machines read.

    ``read(*part)`` gives there the arrays of the part's people, batch by batch, ``to_batch`` makes a batch of them.
    ``n`` is the number of people where it is known; ``people`` is the scan that they are of, which checks their number.

    With ``weighting``, of which columns are the last arrays, ``to_batch`` makes `Coded` rows of all others: whose rows
    are in several parts, has all of them brought to one in each pass.
    """

    #: where the rows are, and how to bring them here
    whereabouts: ClassVar[str]
    #: what to do about rows that change
    hint: ClassVar[str]

    def __init__(
        self,
        read: Callable[..., Iterator[tuple[Any, ...]]],
        to_batch: Callable[..., Any],
        n_features: int,
        bound: float,
        fewest: int,
        *,
        n: int | None = None,
        people: Scan | None = None,
        weighting: Weighting | None = None,
        identities: Identities | None = None,
    ) -> None:
        self._read = read
        self._weighting = weighting
        self._to_batch = to_batch if weighting is None else partial(Identified.of, to_batch, weighting)
        if weighting is not None:
            self.weight_bits, self.finest_bits = WEIGHT_BITS, weighting.finest_bits
        self._several_rows = weighting is not None and weighting.person is not None
        self._fewest = fewest
        self._scan = people
        self._comparison = PassComparison(self.hint)
        self._n_bytes = 0  # of all rows, once they were read
        self.bound, self.n_features, self.people = bound, n_features, People(n, identities=identities)

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        """The tree depends on the parts alone, so that sums in floating point have the same bits whichever machine is
        done first; the sums of one that is lost are computed again.
        """
        self.people.passes += 1
        key = self._comparison.key(alone=alone)
        identities = self.people.identities
        left_out = () if identities is None or identities.left_out is None else (identities.left_out,)
        weights = None if self._weighting is None else (self._weighting.most_alike, self.weight_bits, *left_out)
        result = self._reduced((self._read, self._to_batch, make, key, weights))
        if isinstance(result, Exception):
            raise result
        n, stored, checksum = result
        self._n_bytes = n * 8 * self.n_features
        if self._scan is not None:
            self._scan.check_rows(n)
        sums: Any = pickle.loads(stored)
        if self._several_rows:
            n = sums.n_people()
        self.people.n = enough_people(n, self._fewest)
        if key is not None:
            self._comparison.compare(checksum)
        if self._several_rows and identities is not None:
            identities.add_rows(sums.whose)
        return sums.sums if self._several_rows else sums  # type: ignore[no-any-return]

    @abstractmethod
    def _reduced(self, task: Task) -> Partial:
        """What `summed` gives of all parts, merged in a tree by `merged`."""

    def in_memory(self, purpose: str, *, by_person: bool = False) -> Batch:
        where = f'they are {self.whereabouts} first, or use method="release"'
        raise ValueError(f"{purpose} needs all rows in memory, but {where}")


def _carrying(work: Callable[..., T]) -> Callable[..., T | Exception]:
    """Work on another machine whose result is the first error that it is given, or the error that it raises: raised
    there, it would be written to logs with the rows or sums that the task was given (Dask), or with its text (Spark).
    One that cannot be sent is replaced, and its message withheld.
    """

    @wraps(work)
    def carried(*given: Any) -> T | Exception:
        for each in given:
            if isinstance(each, Exception):
                return each
        try:
            with one_thread_per_task():
                return work(*given)
        except Exception as error:
            with suppress(Exception):  # whatever it is, the error cannot be sent
                if type(pickle.loads(pickle.dumps(error))) is type(error):
                    return error
            return RuntimeError(
                f"a worker raised {type(error).__name__} while summing its part of the rows, an error that cannot be "
                "sent to the client; nothing of this pass was released"
            )

    return carried


@_carrying
def summed(task: Task, *part: Any) -> Partial:
    """The sums over the people of one part, where it is read."""
    read, to_batch, make, key, weights = task
    sums, n, checksum = make(), 0, None if key is None else PassChecksum(key)
    for arrays in read(*part):
        people = batch = to_batch(*arrays)
        if weights is not None:
            batch = people.weighed(None, *weights)
        if checksum is not None:
            checksum.add(people.rows, people.groups, getattr(people, "units", None))
        add_weighted(sums, make, batch)
        n += batch.n if weights is None else people.rows.n
    return n, _pickled(sums), b"" if checksum is None else checksum.digest()


@_carrying
def gathered(*piles: list[Identified]) -> Identified | None:
    """All rows of the people in these piles."""
    return joined([batch for pile in piles for batch in pile])


@_carrying
def summed_people(task: Task, people: Identified | None) -> Partial:
    """The sums over people, all of whose rows these are."""
    _, _, make, key, weights = task
    assert weights is not None
    sums = SumsOfPeople(make, people, *weights)
    digest = b"" if key is None else unordered_checksum(people, key)
    return 0 if people is None else people.rows.n, _pickled(sums), digest


def summed_partition(task: Task, *part: Any) -> Partial:
    """The sums over the people of one part, which has all of their rows."""
    return summed_people(task, gathered(_pile(dealt(task[0], task[1], 1, *part), 0)))


@_carrying
def dealt(
    read: Callable[..., Iterator[tuple[Any, ...]]], identified: Callable[..., Identified], n_piles: int, *part: Any
) -> list[list[Identified]]:
    """Copies of the rows of a part in piles: which a person's rows are in, follows from the id alone."""
    piles: list[list[Identified]] = [[] for _ in range(n_piles)]
    for arrays in read(*part):
        batch = identified(*arrays)
        places = batch.whose[:, 0] % np.uint64(n_piles)
        for place, pile in enumerate(piles):
            pile.append(batch.taken(np.flatnonzero(places == place)))
    return piles


@_carrying
def _pile(piles: list[list[Identified]], place: int) -> list[Identified]:
    return piles[place]


@_carrying
def merged(first: Partial, *others: Partial) -> Partial:
    """The sums over the people of several parts, in their order. Those of one part, and their checksum, stay the same:
    how often it is merged with nothing follows from the size of the sums.
    """
    if not others:
        return first
    counts, (total, *rest), digests = zip(*(first, *others), strict=True)
    sums = pickle.loads(total)
    for each in rest:
        sums.merge(pickle.loads(each))
    return sum(counts), _pickled(sums), combined(digests) if any(digests) else b""


def _pickled(found: Any) -> bytes:
    return pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL)


def read_again(scan: Callable[[Any], Scan], keys: list[Key], part: Any) -> Iterator[tuple[Any, ...]]:
    """The people of a part of a scan, on another machine: one array for each key."""
    people = scan(part)
    yield from people.read(*(people[key] for key in keys))


class DaskDataset(DistributedDataset):
    """Rows in ``parts`` that Dask computes, on ``client``, or by what ``dask.compute`` uses."""

    whereabouts = "on the workers of a Dask cluster: bring them here with .compute()"
    hint = "for rows that Dask computes differently, or in another order, each time, call persist() first"

    def __init__(self, parts: Sequence[tuple[Any, ...]], *given: Any, client: Any = None, **of_people: Any) -> None:
        super().__init__(*given, **of_people)
        self._parts = parts
        self._client = client
        self._piles: Sequence[Any] = ()

    def _reduced(self, task: Task) -> Partial:
        """Raises RuntimeError if workers keep dying over one part, DataError if Dask cannot compute the rows."""
        dask = import_extra("dask", "dask")
        with replaced(_of_dask):
            result = dask.compute(self._tree(task), scheduler=self._client)
        return result[0]  # type: ignore[no-any-return]

    def _tree(self, task: Task) -> Any:
        delayed = import_extra("dask", "dask").delayed
        if self._several_rows:
            level = self._sums_of_piles(task)
        elif len(import_extra("cloudpickle", "dask").dumps(task)) > _SENT_WITH_EACH:
            # a key of the graph, which workers hand to each other: a block of vectors travels once to each of them
            shared = delayed(task, traverse=False)
            level = [delayed(summed, pure=False)(shared, *part) for part in self._parts]
        else:
            # with such a key, Dask would move parts to where that lies
            sum_part = delayed(partial(summed, task), pure=False)
            level = [sum_part(*part) for part in self._parts]
        merge = delayed(merged, pure=False)
        while len(level) > 1:
            level = [merge(*level[i : i + _DASK_FAN_IN]) for i in range(0, len(level), _DASK_FAN_IN)]
        return level[0]

    def _sums_of_piles(self, task: Task) -> list[Any]:
        """Sums over piles that parts are dealt into, kept from the second pass on, once known to be small."""
        dask = import_extra("dask", "dask")
        delayed, piles = dask.delayed, self._piles
        if not piles:
            n_piles = min(len(self._parts), _MOST_PILES)
            deal = delayed(partial(dealt, task[0], task[1], n_piles), pure=False)
            take, gather = delayed(_pile), delayed(gathered)
            parts = [deal(*part) for part in self._parts]
            piles = [gather(*(take(part, place) for part in parts)) for place in range(n_piles)]
            if 0 < self._n_bytes <= _MOST_KEPT:
                self._piles = piles = dask.persist(*piles, scheduler=self._client)
        add = delayed(partial(summed_people, task), pure=False)
        return [add(pile) for pile in piles]


def _of_dask(error: Exception) -> Exception:
    """What is raised in the place of an error of the collection's own tasks, or of the cluster."""
    distributed = sys.modules.get("distributed")
    if distributed is None or not isinstance(error, distributed.KilledWorker):
        return without_message("the Dask collection", error)
    return RuntimeError(
        "Dask workers died repeatedly while summing one part of the rows, usually for lack of memory: use smaller "
        "partitions or give workers more memory; nothing of this pass was released"
    )


def dask_parts(data: tuple[Any, ...]) -> list[Part]:
    """Parts of collections with the same rows: what each holds of the same people, columns whole, as delayed objects.

    Collections that are not cut alike are cut as the first Dask array is, arrays in memory too.
    """
    frames = [each for each in data if is_dask_collection(each) and not hasattr(each, "chunks")]
    if len(frames) == len(data) > 1 and len({each.npartitions for each in data}) == 1:
        return _joint_partitions(data)
    first = next(filter(is_dask_collection, data))
    cut = None if known_rows(first) is None else first.chunks[0]  # sizes along the rows, where they are known
    columns = [_delayed_chunks(each, cut) for each in data]
    if len({len(column) for column in columns}) > 1:
        found = f"inputs for the same people must have the same partitions, got {[len(c) for c in columns]} of them"
        raise ValueError(f"{found}: take both from one DataFrame, or give arrays known sizes, compute_chunk_sizes()")
    return list(zip(*columns, strict=True))


def read_chunks(columns: Sequence[tuple[Names, Categories] | None], *chunks: Any) -> Iterator[Part]:
    """The people of a part, on a worker: arrays as they are, pandas through their own source.

    ``columns`` are the names and categories of each collection: what a partition says of its own need not be the same;
    None of what is taken as it is.
    """
    if len(chunks) == 1 and isinstance(chunks[0], tuple):  # of `_joint_partitions`
        chunks = chunks[0]
    yield tuple(chunk if its is None else _array(chunk, *its) for chunk, its in zip(chunks, columns, strict=True))


def _joint_partitions(frames: tuple[Any, ...]) -> list[Part]:
    """One delayed tuple for each partition, of what each frame holds of its people.

    Optimized apart, two collections of one frame may end in different partitions: Dask merges those of Parquet where
    few columns are read, and where it does so for one of two sets of files, fails to compute both. Simplified together,
    they keep theirs; files are read once, and only the columns that are needed.
    """
    dataframe, pandas = import_extra("dask.dataframe", "dask"), import_extra("pandas", "dask")
    joint = dataframe.map_partitions(
        _together, *frames, meta=pandas.Series(dtype=object), enforce_metadata=False, align_dataframes=False
    )
    return [(part,) for part in joint.simplify().to_delayed(optimize_graph=False)]


def _together(*chunks: Any) -> Part:
    return chunks


def _delayed_chunks(values: Any, cut: tuple[int, ...] | None) -> list[Any]:
    if not is_dask_collection(values):
        if cut is None:
            found = "an array in memory cannot be aligned with a Dask collection of unknown chunk sizes"
            raise ValueError(f"{found}: put it into the same DataFrame, or make it a Dask array with the same chunks")
        check_not_masked(values, "the array")
        array = np.asarray(values)
        values = import_extra("dask.array", "dask").from_array(array, chunks=(cut, *array.shape[1:]))
    if hasattr(values, "chunks"):
        known = cut is not None and known_rows(values) is not None
        if known and known_rows(values) != sum(cut or ()):
            raise ValueError("inputs for the same people must have the same number of rows")
        columns = dict.fromkeys(range(1, values.ndim), -1)
        values = values.rechunk({0: cut, **columns} if known else columns)
    return list(np.ravel(values.to_delayed()))


def _array(chunk: Any, names: Names, categories: Categories) -> Any:
    if not hasattr(chunk, "iloc"):
        return chunk
    is_vector = chunk.ndim == 1
    if not is_vector:
        check_same(as_text(chunk.columns), names, "a partition")
    frame = chunk.to_frame("values") if is_vector else chunk
    source = scan(frame, batch_rows=max(1, len(frame)), progress=False, categories=categories)
    selected = source["values"] if is_vector else source[list(frame.columns)]
    for (array,) in source.read(selected):
        return array
    return np.empty(0 if is_vector else (0, selected.n_columns or 0))


class SparkDataset(DistributedDataset):
    """Rows that the executors of Spark read, as a `dpgep.sources.Scan` of their DataFrame selects them."""

    whereabouts = "on the executors of Spark: bring them here with .toPandas()"
    hint = "for rows that Spark computes differently, or in another order, each time, call persist() first"

    def __init__(
        self, selections: tuple[Selection, ...], *given: Any, weighting: Weighting | None = None, **of_people: Any
    ) -> None:
        people, keys = selections[0].scan, [each.key for each in selections]
        names = list(map(str, people.source.needed(keys)))
        types = people.source.types
        schema = pyarrow().schema([(name, types[name]) for name in names])
        read = partial(_people, people.again(), keys, schema)
        n = None if weighting is not None and weighting.person is not None else people.n_rows
        super().__init__(read, *given, n=n, people=people, weighting=weighting, **of_people)
        self._sum = summed_partition if self._several_rows else summed
        self._frame, self._names = people.value, names
        # ids stand after everything but weights
        self._key = str(keys[-1 if weighting is None else -len(weighting.columns)])

    def _reduced(self, task: Task) -> Partial:
        """Partitions whose numbers follow each other are merged: a tree, whose lower levels are on the executors."""
        sql = import_extra("pyspark.sql.functions", "spark")
        # by place, as SQL takes a dot in a name for a path, ${x} for a variable, and may not tell a from A; as text:
        # columns of its own take Spark milliseconds each
        frame = self._frame
        places = {name: f"c{place}" for place, name in enumerate(frame.columns)}
        placed = frame.toDF(*places.values()).selectExpr(*(places[name] for name in self._names))
        if self._several_rows:
            placed = placed.repartition(places[self._key])
        rows = placed.mapInArrow(_sum_of_partition(self._sum, task), _SCHEMA)
        n_bytes = len(pickle.dumps(task[2]()))
        while n_bytes > _AT_DRIVER:
            rows = rows.groupBy(sql.expr(f"part div {_SPARK_FAN_IN}")).applyInArrow(_merged_rows, _SCHEMA)
            n_bytes //= _SPARK_FAN_IN
        # which Python workers have is no fact that an error may tell, as its text may quote values
        with packages_messages_withheld(f"the Spark DataFrame (workers need Python {_PYTHON}: PYSPARK_PYTHON)"):
            collected = rows.collect()
        parts: dict[int, Partial] = {row.part: pickle.loads(row.sums) for row in collected}
        while len(parts) > 1:
            parts = {
                number: merged(*(parts[part] for part in group))
                for number, group in groupby(sorted(parts), key=_number_of_merged)
            }
        (result,) = parts.values() or [self._sum(task, iter(()))]
        return result


def _sum_of_partition(add: Callable[..., Partial], task: Task) -> Callable[[Any], Iterator[Any]]:
    """What makes of a partition's record batches one row."""

    def sum_of_partition(batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        yield _row(context.partitionId(), add(task, batches))

    return sum_of_partition


def _merged_rows(rows: Any) -> Any:
    stored = sorted(zip(*(rows.column(name).to_pylist() for name in _COLUMNS), strict=True))
    partials = [pickle.loads(sums) for _, sums in stored]
    return pyarrow().Table.from_batches([_row(_number_of_merged(stored[0][0]), merged(*partials))])


def _number_of_merged(part: int) -> int:
    return part // _SPARK_FAN_IN


def _row(part: int, sums: Partial) -> Any:
    pa = pyarrow()
    return pa.RecordBatch.from_arrays([pa.array([part], pa.int64()), pa.array([_pickled(sums)], pa.binary())], _COLUMNS)


def _people(
    scan: Callable[[Any], Scan], keys: list[Key], schema: Any, batches: Iterator[Any]
) -> Iterator[tuple[Any, ...]]:
    """The people of a partition: one array for each key. Columns of the batches have the names of the schema."""
    pa = pyarrow()
    named = (pa.RecordBatch.from_arrays(batch.columns, schema.names) for batch in batches)
    return read_again(scan, keys, pa.RecordBatchReader.from_batches(schema, named))
