"""A data set whose rows lie in parts on the workers of a Dask cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._optional import import_extra
from dpgep.data.checksum import PassComparison
from dpgep.data.distributed_dataset import DistributedDataset, Partial, Task, merged, summed
from dpgep.data.rows import Batch

# Partial sums that one task merges: a tree of little depth, and little memory on a worker.
_FAN_IN = 4

# Bytes that every task may carry with it; vectors to be multiplied are more, for one.
_SENT_WITH_EACH = 1 << 16


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
        kept: NDArray[np.intp] | None = None,
        comparison: PassComparison | None = None,
    ) -> None:
        super().__init__(read, to_batch, n_features, bound, fewest, n, kept, comparison)
        self._parts = parts
        self._client = client

    def restricted(self, features: NDArray[np.intp], bound: float) -> DaskDataset:
        facts = (len(features), bound, self._fewest, self._n, self._client, self._kept_of(features), self._comparison)
        return DaskDataset(self._parts, self._read, self._to_batch, *facts)

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
