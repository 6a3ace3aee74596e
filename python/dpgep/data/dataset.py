"""Data sets: rows of people and their groups, in memory or read batch by batch, and sums over all of them.

Whatever the library asks of data is a sum over people. `Dataset.accumulate` makes one, wherever the rows are.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpgep._names import random_name
from dpgep.data.checksum import PassChecksum, PassComparison
from dpgep.data.float_sums import RowProducts, StreamedProducts
from dpgep.data.rows import Batch, S
from dpgep.sources import Selection

_log = logging.getLogger(__name__)

ANOTHER_PASS = (
    "several passes over the rows, but this source can be read only once: scan a list of batches, files, or a function "
    'that returns a fresh iterator, or use method="release" without a screen'
)


class Dataset(ABC):
    """Rows of people, clipped to ``bound``.

    Attributes
    ----------
    bound : enforced bound on row norms.
    passes : number of passes over the rows begun so far.
    read_once : whether there can be only one.
    at_hand : whether all rows are in memory: many passes cost little.
    mapped : whether rows are mapped whenever they are read, so that products cannot take them as they are.
    """

    bound: float
    passes: int = 0
    read_once: bool = False
    at_hand: bool = False
    mapped: bool = False

    @cached_property
    def population_id(self) -> str:
        """A random name of these people: what tells that two releases are of the same."""
        return random_name()

    @property
    @abstractmethod
    def n(self) -> int | None:
        """Number of people; None while nobody has counted."""

    @property
    def unprepared(self) -> Dataset:
        """The same people, their rows as they were given."""
        return self

    def accumulate(self, make: Callable[[], S], *, alone: bool = False) -> S:
        """One pass: the sums over all people, begun by ``make()``.

        ``alone`` says that they are the whole of an answer with noise of its own. Raises DataChangedError if the pass
        read other rows than the first that was not alone.
        """
        start = time.perf_counter()
        sums = self._summed(make, alone)
        _log.debug("pass %d over the rows: %.3f s", self.passes, time.perf_counter() - start)
        return sums

    @abstractmethod
    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        """What `accumulate` returns."""

    @abstractmethod
    def restricted(self, features: NDArray[np.intp], bound: float) -> Dataset:
        """The same people with some of the features (ascending indices over all views), clipped to ``bound``."""

    @abstractmethod
    def row_products(self) -> RowProducts | StreamedProducts:
        """Products with the second moment of the rows."""

    @abstractmethod
    def in_memory(self, purpose: str) -> Batch:
        """All rows at once; ValueError where they are not there."""


class InMemoryDataset(Dataset):
    """All rows in one batch."""

    at_hand = True

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.bound = batch.rows.bound

    @property
    def n(self) -> int:
        return self._batch.n

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        self.passes += 1
        sums = make()
        sums.add(self._batch)
        return sums

    def restricted(self, features: NDArray[np.intp], bound: float) -> InMemoryDataset:
        self.passes += 1
        return InMemoryDataset(self._batch.restricted(features, bound))

    def row_products(self) -> RowProducts:
        self.passes += 1
        return RowProducts(self._batch.rows)

    def in_memory(self, purpose: str) -> Batch:
        return self._batch


class StreamedDataset(Dataset):
    """Rows that a `dpgep.Scan` reads, one batch after the other, as often as they are needed.

    ``to_batch`` makes a batch of the arrays of the selections, of which ``kept`` features (None: all) are clipped to
    ``bound``: ``n_features`` columns in all. ``comparison`` is shared by all that read the same people.
    """

    def __init__(
        self,
        selections: tuple[Selection, ...],
        to_batch: Callable[..., Batch],
        n_features: int,
        bound: float,
        fewest: int,
        kept: NDArray[np.intp] | None = None,
        comparison: PassComparison | None = None,
    ) -> None:
        self._selections = selections
        self._to_batch = to_batch
        self._n_features = n_features
        self._fewest = fewest
        self._kept = kept
        self._comparison = comparison or PassComparison("a scanned function must yield the same rows at every call")
        self._counted: int | None = None
        self.bound = bound
        self.read_once = not selections[0].scan.repeatable

    @property
    def n(self) -> int | None:
        return self._selections[0].scan.n_rows if self._counted is None else self._counted

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        sums = make()
        key = None if self.read_once else self._comparison.key(alone=alone)
        checksum = None if key is None else PassChecksum(key)
        for batch in self._batches(checksum):
            sums.add(batch)
        if checksum is not None:
            self._comparison.compare(checksum.digest())
        return sums

    def _batches(self, checksum: PassChecksum | None) -> Iterator[Batch]:
        """One pass over the source. Raises ValueError at its end if there are too few rows."""
        self.passes += 1
        n = 0
        for arrays in self._selections[0].scan.read_apart(*self._selections):
            batch = self._to_batch(*arrays)
            n += batch.n
            if checksum is not None:
                checksum.add(batch.rows, batch.groups)
            yield batch if self._kept is None else batch.restricted(self._kept, self.bound)
        if n < self._fewest:
            raise ValueError(f"the source must have at least {self._fewest} rows, it has {n}")
        self._counted = n

    def restricted(self, features: NDArray[np.intp], bound: float) -> StreamedDataset:
        kept = features if self._kept is None else self._kept[features]
        return StreamedDataset(
            self._selections, self._to_batch, len(features), bound, self._fewest, kept, self._comparison
        )

    def row_products(self) -> StreamedProducts:
        if self.read_once:
            raise ValueError(f"products with vectors need {ANOTHER_PASS}")
        return StreamedProducts(self.accumulate, self._n_features)

    def in_memory(self, purpose: str) -> Batch:
        raise ValueError(
            f"{purpose} needs all rows in memory, but they are read from a source in batches: load them into an "
            'array first, or use method="release"'
        )
