"""Iterables of batches as sources: lists, generators, functions that start one; a batch is a small source itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from dpgep.sources import arrow, kinds
from dpgep.sources.declared import BOOLEANS, Declared
from dpgep.sources.rebatch import Pieces
from dpgep.sources.source import Key, Source


class Batches(Source):
    """What an iterable yields, batch after batch. Keys: those of the first batch, which is taken at once.

    ``values`` is an iterable, or a function without arguments that returns one; ``open_batch`` makes a source of a
    batch. An iterator can be read once.
    """

    n_rows = None

    def __init__(self, values: Any, open_batch: Callable[[Any], Source]) -> None:
        self._values = values
        self._open_batch = open_batch
        self.repeatable = callable(values) or not isinstance(values, Iterator)
        self._begun: tuple[Source, Iterator[Any]] | None = self._begin()

    def width(self, key: Key) -> int | None:
        return self._first().width(key)

    def declared(self, key: Key) -> Declared | None:
        # categories of the first batch need not be those of another; those of (0, 1) equal booleans
        declared = self._first().declared(key)
        return declared if declared is BOOLEANS else None

    def pieces(self, keys: Sequence[Key], batch_rows: int | None) -> Iterator[Pieces]:
        """As of any source; a piece may be overwritten when the next is asked for, as an iterable may reuse memory."""
        (batch, rest), self._begun = self._begun or self._begin(), None
        while True:
            for key in keys:
                batch.width(key)  # refuses a batch that lacks a column, or holds text in it
            yield from batch.pieces(keys, batch_rows)
            try:
                following = next(rest)
            except StopIteration:
                return
            batch = self._open_batch(following)

    def _first(self) -> Source:
        if self._begun is None:
            if not self.repeatable:
                raise RuntimeError("the batches have already been read: select columns before reading")
            self._begun = self._begin()
        return self._begun[0]

    def _begin(self) -> tuple[Source, Iterator[Any]]:
        """The first batch, and an iterator over the others."""
        batches = self._values() if callable(self._values) else self._values
        if not isinstance(batches, Iterable):
            raise TypeError(f"the function must return an iterable of batches, got {type(batches).__name__}")
        iterator = iter(batches)
        try:
            first = next(iterator)
        except StopIteration:
            raise ValueError(
                "no batches were yielded, so the number of columns is unknown: for empty data, yield one batch "
                "without rows, np.empty((0, columns))"
            ) from None
        # lists hold their batches anyway; an iterable may make them in memory that another pass over it uses again
        return self._open_batch(first if isinstance(batches, Sequence) else _lasting(first)), iterator


def _lasting(batch: Any) -> Any:
    """The batch, copied where it lies in memory that its maker may fill again; what lies in files stays there."""
    if kinds.is_record_batch(batch) or kinds.is_arrow_table(batch):
        return arrow.copied(batch)
    if isinstance(batch, np.memmap):
        return batch
    if isinstance(batch, np.ndarray) or scipy.sparse.issparse(batch) or kinds.is_frame(batch) or kinds.is_series(batch):
        return batch.copy()
    if isinstance(batch, tuple):
        return tuple(map(_lasting, batch))
    if isinstance(batch, list):
        return list(map(_lasting, batch))
    if isinstance(batch, Mapping):
        return {name: _lasting(values) for name, values in batch.items()}
    return batch
