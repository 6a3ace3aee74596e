"""A data set in parts that the workers of a Dask cluster read: chunks of collections, row groups of Parquet files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dpgep._optional import import_extra
from dpgep.data.distributed_dataset import DistributedDataset, Partial, Task, merged, summed
from dpgep.data.rows import Batch
from dpgep.data.views import check_not_masked, known_rows
from dpgep.sources import Scan, scan
from dpgep.sources.encoding import Categories
from dpgep.sources.kinds import is_dask_collection
from dpgep.sources.names import Names, as_text, check_same

# Partial sums that one task merges: a tree of little depth, and little memory on a worker.
_FAN_IN = 4

# Bytes that every task may carry with it; vectors to be multiplied are more, for one.
_SENT_WITH_EACH = 1 << 16

Part = tuple[Any, ...]


class DaskDataset(DistributedDataset):
    """Rows in parts that Dask computes; ``client`` is a ``distributed.Client``, None: what ``dask.compute`` uses.

    All else as in `DistributedDataset`.
    """

    whereabouts = "on the workers of a Dask cluster: bring them here with .compute()"
    hint = "for rows that Dask computes differently, or in another order, each time, call persist() first"

    def __init__(
        self,
        parts: Sequence[tuple[Any, ...]],
        read: Callable[..., Iterator[tuple[Any, ...]]],
        to_batch: Callable[..., Batch],
        n_features: int,
        bound: float,
        fewest: int,
        n: int | None = None,
        client: Any = None,
        people: Scan | None = None,
    ) -> None:
        super().__init__(read, to_batch, n_features, bound, fewest, n, people)
        self._parts = parts
        self._client = client

    def _reduced(self, task: Task) -> Partial:
        """Raises RuntimeError if workers keep dying over one part."""
        try:
            result = import_extra("dask", "dask").compute(self._tree(task), scheduler=self._client)
            return result[0]  # type: ignore[no-any-return]
        except Exception as error:
            distributed = sys.modules.get("distributed")
            if distributed is None or not isinstance(error, distributed.KilledWorker):
                raise
            raise RuntimeError(
                "Dask workers died repeatedly while summing one part of the rows, usually for lack of memory: use "
                "smaller partitions or give workers more memory; nothing of this pass was released"
            ) from error

    def _tree(self, task: Task) -> Any:
        delayed = import_extra("dask", "dask").delayed
        if len(import_extra("cloudpickle", "dask").dumps(task)) > _SENT_WITH_EACH:
            # a key of the graph, which workers hand to each other: a block of vectors travels once to each of them
            shared = delayed(task, traverse=False)
            level = [delayed(summed, pure=False)(shared, *part) for part in self._parts]
        else:
            # with such a key, Dask would move parts to where that lies
            sum_part = delayed(partial(summed, task), pure=False)
            level = [sum_part(*part) for part in self._parts]
        merge = delayed(merged, pure=False)
        while len(level) > 1:
            level = [merge(*level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return level[0]


def dask_parts(data: tuple[Any, ...]) -> list[Part]:
    """Parts of collections with the same rows: what each holds of the same people, columns whole, as delayed objects.

    Collections that are not cut alike are cut as the first Dask array is, arrays in memory too. Raises ValueError where
    they have different numbers of rows, or where the sizes of the chunks are not known and their numbers differ.
    """
    if len(data) > 1 and all(_is_frame(each) for each in data) and len({each.npartitions for each in data}) == 1:
        return _joint_partitions(data)
    cut = next(map(_row_chunks, filter(is_dask_collection, data)))
    columns = [_delayed_chunks(each, cut) for each in data]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(
            f"inputs for the same people must have the same partitions, got {[len(c) for c in columns]} of "
            "them: take both from one DataFrame, or give arrays chunks of known sizes with compute_chunk_sizes()"
        )
    return list(zip(*columns, strict=True))


def read_chunks(columns: Sequence[tuple[Names, Categories]], *chunks: Any) -> Iterator[Part]:
    """The people of a part, on a worker: arrays as they are, pandas through their own source.

    ``columns`` are the names and categories of each collection: what a partition says of its own need not be the same.
    Raises ValueError for a partition of other columns, or in another order.
    """
    if len(chunks) == 1 and isinstance(chunks[0], tuple):  # of `_joint_partitions`
        chunks = chunks[0]
    yield tuple(_array(chunk, *its) for chunk, its in zip(chunks, columns, strict=True))


def _is_frame(values: Any) -> bool:
    """Whether this is a Dask DataFrame or Series."""
    return is_dask_collection(values) and not hasattr(values, "chunks")


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


def _row_chunks(values: Any) -> tuple[int, ...] | None:
    """Sizes of the chunks along the rows; None for a DataFrame, or where they are not known."""
    return values.chunks[0] if known_rows(values) is not None else None


def _delayed_chunks(values: Any, cut: tuple[int, ...] | None) -> list[Any]:
    if not is_dask_collection(values):
        values = _from_memory(values, cut)
    if hasattr(values, "chunks"):
        known = cut is not None and known_rows(values) is not None
        if known and known_rows(values) != sum(cut or ()):
            raise ValueError("inputs for the same people must have the same number of rows")
        columns = dict.fromkeys(range(1, values.ndim), -1)
        values = values.rechunk({0: cut, **columns} if known else columns)
    return list(np.ravel(values.to_delayed()))


def _from_memory(values: Any, cut: tuple[int, ...] | None) -> Any:
    """An array in memory, cut as the collection beside it."""
    if cut is None:
        raise ValueError(
            "an array in memory cannot be aligned with a Dask collection of unknown chunk sizes: put it into the same "
            "DataFrame, or make it a Dask array with the same chunks"
        )
    check_not_masked(values, "the array")
    array = np.asarray(values)
    return import_extra("dask.array", "dask").from_array(array, chunks=(cut, *array.shape[1:]))


def _array(chunk: Any, names: Names, categories: Categories) -> Any:
    """A chunk as the models take it."""
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
