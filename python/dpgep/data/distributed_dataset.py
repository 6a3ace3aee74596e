"""A data set whose rows lie on several machines: sums are made there and merged in a tree; the total comes here."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from dpgep._threads import one_thread_per_task
from dpgep.data.checksum import PassChecksum, PassComparison, combined
from dpgep.data.dataset import Dataset
from dpgep.data.rows import Batch, S, Sums
from dpgep.sources import Scan
from dpgep.sources.names import Key

# What a task hands on: the number of people, the pickled sums over them and the checksum of their rows (none of a pass
# that is not compared), or the error that their rows raised. Bytes, since a result is used again when a machine is
# lost: nothing can change them.
Partial = tuple[int, bytes, bytes] | Exception

Task = tuple[Callable[..., Any], Callable[..., Batch], Callable[[], Sums], "bytes | None"]


class DistributedDataset(Dataset):
    """Rows in parts that other machines read.

    ``read(*part)`` gives there the arrays of the part's people, batch by batch, ``to_batch`` makes a batch of
    them: ``n_features`` columns in all, clipped to ``bound``. ``n`` is the number of people where it is known;
    ``people`` is the scan that they are of, if they are of one: it checks their number.
    """

    #: where the rows are, and how to bring them here
    whereabouts: ClassVar[str]
    #: what to do about rows that change
    hint: ClassVar[str]

    def __init__(
        self,
        read: Callable[..., Iterator[tuple[Any, ...]]],
        to_batch: Callable[..., Batch],
        n_features: int,
        bound: float,
        fewest: int,
        n: int | None,
        people: Scan | None = None,
    ) -> None:
        self._read = read
        self._to_batch = to_batch
        self._fewest = fewest
        self._n = n
        self._people = people
        self._comparison = PassComparison(self.hint)
        self.bound, self.n_features = bound, n_features

    @property
    def n(self) -> int | None:
        return self._n

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        """One pass. The tree depends on the parts alone, so that sums in floating point have the same bits whichever
        machine is done first; the sums of one that is lost are computed again. Raises what the rows raise.
        """
        self.passes += 1
        key = self._comparison.key(alone=alone)
        result = self._reduced((self._read, self._to_batch, make, key))
        if isinstance(result, Exception):
            raise result
        n, sums, checksum = result
        if self._people is not None:
            self._people.check_rows(n)
        if n < self._fewest:
            raise ValueError(f"the data must have at least {self._fewest} rows, they have {n}")
        if key is not None:
            self._comparison.compare(checksum)
        self._n = n
        return pickle.loads(sums)  # type: ignore[no-any-return]

    @abstractmethod
    def _reduced(self, task: Task) -> Partial:
        """What `summed` gives of all parts, merged in a tree by `merged`."""

    def in_memory(self, purpose: str) -> Batch:
        raise ValueError(
            f'{purpose} needs all rows in memory, but they are {self.whereabouts} first, or use method="release"'
        )


def summed(task: Task, *part: Any) -> Partial:
    """The sums over the people of one part, where it is read."""
    read, to_batch, make, key = task
    try:
        sums, n = make(), 0
        checksum = None if key is None else PassChecksum(key)
        with one_thread_per_task():
            for arrays in read(*part):
                batch = to_batch(*arrays)
                if checksum is not None:
                    checksum.add(batch.rows, batch.groups)
                sums.add(batch)
                n += batch.n
        digest = b"" if checksum is None else checksum.digest()
        return n, pickle.dumps(sums, protocol=pickle.HIGHEST_PROTOCOL), digest
    except Exception as error:
        return _carried(error)


def merged(first: Partial, *others: Partial) -> Partial:
    """The sums over the people of several parts, in their order; the first error, if there is one.

    Those of one part are what they were, as is its checksum: how often it is merged with nothing follows from the size
    of the sums.
    """
    if not others:
        return first
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
    """The error as the result of a task, to be raised by the client: raised there, it would be written to logs
    with the rows or sums that the task was given (Dask), or with its text (Spark). One that cannot be sent is replaced,
    and its message withheld.
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


def read_again(scan: Callable[[Any], Scan], keys: list[Key], part: Any) -> Iterator[tuple[Any, ...]]:
    """The people of a part of a scan, on another machine: one array for each key."""
    people = scan(part)
    yield from people.read(*(people[key] for key in keys))
