"""A data set whose rows lie in parts on the workers of a Dask cluster: sums are made there, and merged in a tree."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._optional import import_extra
from dpgep._threads import one_thread_per_task
from dpgep.data.checksum import PassChecksum, PassComparison, combined
from dpgep.data.dataset import Dataset
from dpgep.data.row_products import StreamedProducts
from dpgep.data.rows import Batch, S, Sums

# Partial sums that one task merges: a tree of little depth, and little memory on a worker.
_FAN_IN = 4

# Bytes that every task may carry with it; vectors to be multiplied are more, for one.
_SENT_WITH_EACH = 1 << 16

# What a task hands on: the number of people, the pickled sums over them and the checksum of their rows (none of a pass
# that is not compared), or the error that their rows raised. Bytes, since Dask uses a result again when a worker is
# lost: nothing can change them.
Partial = tuple[int, bytes, bytes] | Exception


class DaskDataset(Dataset):
    """Rows in parts that Dask computes.

    ``read(*part)`` gives on a worker the arrays of the part's people, batch by batch, ``to_batch`` makes a batch of
    them, of which ``kept`` features (None: all) are clipped to ``bound``: ``n_features`` columns in all. ``n`` is the
    number of people where it is known. ``client`` is a ``distributed.Client``; None: what ``dask.compute`` uses.
    ``comparison`` is shared by all that read the same people.
    """

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
        self._parts = parts
        self._read = read
        self._to_batch = to_batch
        self._n_features = n_features
        self._fewest = fewest
        self._n = n
        self._client = client
        self._kept = kept
        self._comparison = comparison or PassComparison(
            "for rows that Dask computes differently, or in another order, each time, call persist() first"
        )
        self.bound = bound

    @property
    def n(self) -> int | None:
        return self._n

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        """One pass. The tree depends on the number of parts alone, so that sums in floating point have the same bits
        whichever worker is done first; the sums of a lost worker are computed again.

        Raises RuntimeError if workers keep dying over one part, and what the rows raise.
        """
        self.passes += 1
        key = self._comparison.key(alone=alone)
        result = self._compute(self._tree(make, key))
        if isinstance(result, Exception):
            raise result
        n, sums, checksum = result
        if n < self._fewest:
            raise ValueError(f"the data must have at least {self._fewest} rows, they have {n}")
        if key is not None:
            self._comparison.compare(checksum)
        self._n = n
        return pickle.loads(sums)  # type: ignore[no-any-return]

    def restricted(self, features: NDArray[np.intp], bound: float) -> DaskDataset:
        kept = features if self._kept is None else self._kept[features]
        facts = (len(features), bound, self._fewest, self._n, self._client, kept, self._comparison)
        return DaskDataset(self._parts, self._read, self._to_batch, *facts)

    def row_products(self) -> StreamedProducts:
        return StreamedProducts(self.accumulate, self._n_features)

    def in_memory(self, purpose: str) -> Batch:
        raise ValueError(
            f"{purpose} needs all rows in memory, but they are on the workers of a Dask cluster: bring them here with "
            '.compute() first, or use method="release"'
        )

    def _tree(self, make: Callable[[], Sums], key: bytes | None) -> Any:
        delayed = import_extra("dask", "dask").delayed
        restrict = None if self._kept is None else partial(_restricted, self._kept, self.bound)
        task = (self._read, self._to_batch, restrict, make, key)
        if len(import_extra("cloudpickle", "dask").dumps(task)) > _SENT_WITH_EACH:
            # a key of the graph, which workers hand to each other: a block of vectors travels once to each of them
            shared = delayed(task, traverse=False)
            level = [delayed(_summed, pure=False)(shared, *part) for part in self._parts]
        else:
            # with such a key, Dask would move parts to where that lies
            summed = delayed(partial(_summed, task), pure=False)
            level = [summed(*part) for part in self._parts]
        merged = delayed(_merged, pure=False)
        while len(level) > 1:
            level = [merged(*level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return level[0]

    def _compute(self, result: Any) -> Partial:
        try:
            return import_extra("dask", "dask").compute(result, scheduler=self._client)[0]  # type: ignore[no-any-return]
        except Exception as error:
            distributed = sys.modules.get("distributed")
            if distributed is None or not isinstance(error, distributed.KilledWorker):
                raise
            raise RuntimeError(
                "workers of the Dask cluster died repeatedly while summing one part of the rows, usually "
                "for lack of memory: use smaller partitions, or give workers more memory (their logs say why they "
                "died); nothing of this pass was released"
            ) from error


Task = tuple[
    Callable[..., Any], Callable[..., Batch], "Callable[[Batch], Batch] | None", Callable[[], Sums], "bytes | None"
]


def _summed(task: Task, *part: Any) -> Partial:
    """The sums over the people of one part, on a worker."""
    read, to_batch, restrict, make, key = task
    try:
        sums, n = make(), 0
        checksum = None if key is None else PassChecksum(key)
        with one_thread_per_task():
            for arrays in read(*part):
                batch = to_batch(*arrays)
                if checksum is not None:
                    checksum.add(batch.rows, batch.groups)
                sums.add(batch if restrict is None else restrict(batch))
                n += batch.n
        digest = b"" if checksum is None else checksum.digest()
        return n, pickle.dumps(sums, protocol=pickle.HIGHEST_PROTOCOL), digest
    except Exception as error:
        return _carried(error)


def _merged(first: Partial, *others: Partial) -> Partial:
    """The sums over the people of several parts, in their order; the first error, if there is one."""
    partials = (first, *others)
    for each in partials:
        if isinstance(each, Exception):
            return each
    counts, (total, *rest), digests = zip(*partials, strict=True)
    try:
        sums = pickle.loads(total)
        for each in rest:
            sums.merge(pickle.loads(each))
        digest = combined(digests) if any(digests) else b""
        return sum(counts), pickle.dumps(sums, protocol=pickle.HIGHEST_PROTOCOL), digest
    except Exception as error:
        return _carried(error)


def _carried(error: Exception) -> Exception:
    """The error as the result of a task, to be raised by the client: raised on a worker, Dask would write the rows or
    sums that the task was given to its logs. One that cannot be sent is replaced, and its message withheld.
    """
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:  # whatever it is, the error cannot be sent
        pass
    return RuntimeError(
        f"a worker raised {type(error).__name__} while summing its part of the rows, an error that cannot be sent to "
        "the client; nothing of this pass was released"
    )


def _restricted(features: NDArray[np.intp], bound: float, batch: Batch) -> Batch:
    return batch.restricted(features, bound)
