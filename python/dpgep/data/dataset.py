"""Data sets: rows of people and their groups, in memory or read batch by batch, and sums over all of them.

Whatever the library asks of data is a sum over people. `Dataset.accumulate` makes one, wherever the rows are. Some of
the features, or rows mapped by public preprocessing, are computed batch by batch whenever rows are read.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import unchecked
from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep._watched import naming
from dpgep.data.float_sums import RowProducts, StreamedProducts
from dpgep.data.ids import Identities
from dpgep.data.rows import (
    Batch,
    NotFiniteError,
    Rows,
    S,
    Sums,
    add_weighted,
    block_height,
    clipped_blocks,
    joined_views,
)
from dpgep.models.pairwise import mark_of, part_of_values
from dpgep.models.preprocessing import Preprocessing
from dpgep.sources.batches import Kept

_log = logging.getLogger(__name__)

ANOTHER_PASS = (
    "several passes over the rows, but this source can be read only once: scan a list of batches, files, or a function "
    'that returns a fresh iterator, or use method="release" without a screen'
)

# Entries of weighted rows that are mapped at a time.
_WEIGHED_ENTRIES = 1 << 20

ONE_ROW = (
    "this is not for several rows to a person (person=), nor for weights: use a method that asks about all people, or "
    "bring the rows of each person into one"
)

# What the run in progress has read of files, for its later passes.
kept_rows: ContextVar[Kept | None] = ContextVar("kept rows", default=None)


@dataclass(eq=False)
class People:
    """Whose rows are read: one record for all data sets of theirs."""

    n: int | None  # None while nobody has counted
    passes: int = 0  # begun so far
    identities: Identities | None = None  # who they are, once their rows were read; None where nobody asks

    @property
    def name(self) -> str:
        """A random name: what tells that two releases are of the same people, also where threads ask at once."""
        if "_name" not in vars(self):
            vars(self).setdefault("_name", naming.get()(16))  # the first stays; a `cached_property` is replaced
        return str(vars(self)["_name"])


D = TypeVar("D", bound="Dataset")


class Dataset(ABC):
    """Rows of people, clipped to ``bound``."""

    bound: float
    n_features: int  # of all views
    people: People
    read_once: bool = False  # whether there can be only one pass
    at_hand: bool = False  # whether all rows are in memory: many passes cost little
    mapped: bool = False  # whether rows are mapped whenever they are read: products cannot take them as they are
    weight_bits: int = 0  # 2^weight_bits whole weights make a person, shared by their rows; 0: each has one row
    finest_bits: int = 0  # of the finest units that there are

    @property
    def unprepared(self) -> Dataset:
        """The same people, their rows as they were given."""
        return self

    def in_finest_weights(self: D) -> D:
        """The same people, weights in the finest units that there are: for sums in floating point."""
        if self.weight_bits == self.finest_bits:
            return self
        finer = copy(self)
        finer._weigh(self.finest_bits)
        return finer

    def _weigh(self, bits: int) -> None:
        """Take other units of weights."""
        self.weight_bits = bits

    def accumulate(self, make: Callable[[], S], *, alone: bool = False, logged: bool = True, weight_bits: int = 0) -> S:
        """One pass: the sums over all people, begun by ``make()``, each of whom has the weight 2^``weight_bits``.

        Who asks states the weight, since noise is in proportion to it: any other than that of these people is refused.
        ``alone`` says that they are the whole of an answer with noise of its own; ``logged`` is false of batches, whose
        number may tell how many people there are.
        """
        if weight_bits != self.weight_bits:
            raise ValueError(ONE_ROW)
        start = time.perf_counter()
        sums = self._summed(make, alone)
        if logged:
            _log.debug("pass %d over the rows: %.3f s", self.people.passes, time.perf_counter() - start)
        return sums

    @abstractmethod
    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        """What `accumulate` returns."""

    def restricted(self, features: NDArray[np.intp], bound: float) -> Dataset:
        """The same people with some of the features (ascending indices over all views), clipped to ``bound``."""
        return DerivedDataset(self, partial(_restricted, features, bound), len(features), bound)

    def row_products(self) -> RowProducts | StreamedProducts:
        """Products with the second moment of the rows."""
        if self.read_once:
            raise ValueError(f"products with vectors need {ANOTHER_PASS}")
        accumulate = partial(self.accumulate, weight_bits=self.weight_bits)
        return StreamedProducts(accumulate, self.n_features, self.weight_bits)

    @abstractmethod
    def in_memory(self, purpose: str, *, by_person: bool = False) -> Batch:
        """All rows at once; ValueError where they are not there, or have weights that who asks does not heed."""


class InMemoryDataset(Dataset):
    """All rows in one batch."""

    at_hand = True

    def __init__(self, batch: Batch) -> None:
        self._batch, self.people = batch, People(batch.n)
        self.bound, self.n_features = batch.rows.bound, batch.rows.d

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        self.people.passes += 1
        sums = make()
        sums.add(self._batch)
        return sums

    def restricted(self, features: NDArray[np.intp], bound: float) -> InMemoryDataset:
        self.people.passes += 1
        return InMemoryDataset(self._batch.restricted(features, bound))

    def row_products(self) -> RowProducts:
        self.people.passes += 1
        return RowProducts(self._batch.rows)

    def in_memory(self, purpose: str, *, by_person: bool = False) -> Batch:
        return self._batch


class DerivedDataset(Dataset):
    """The people of ``source``, whose batches become others by ``to_batches`` whenever they are read."""

    _by_column: Preprocessing | None = None  # preprocessing that kernels know, which map rows as they read them
    _grouped = True

    def __init__(
        self, source: Dataset, to_batches: Callable[[Batch], Iterable[Batch]], n_features: int, bound: float
    ) -> None:
        self._source, self._to_batches = source, to_batches
        self.bound, self.n_features, self.people = bound, n_features, source.people
        self.read_once, self.at_hand, self.mapped = source.read_once, source.at_hand, True
        self.weight_bits, self.finest_bits = source.weight_bits, source.finest_bits

    def _weigh(self, bits: int) -> None:
        self.weight_bits, self._source = bits, self._source.in_finest_weights()

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        sums = partial(_DerivedSums, self._to_batches, self._by_column, self._grouped, make)
        return self._source._summed(sums, alone).sums

    def in_memory(self, purpose: str, *, by_person: bool = False) -> Batch:
        (batch,) = self._to_batches(self._source.in_memory(purpose, by_person=by_person))
        return batch


class PreprocessedDataset(DerivedDataset):
    """Rows mapped and clipped by public ``preprocessing``; if not ``grouped``, all who have one are in one group."""

    def __init__(self, source: Dataset, preprocessing: Preprocessing, n_features: int, *, grouped: bool = True) -> None:
        to_batches = partial(preprocessed_parts, preprocessing=preprocessing, grouped=grouped)
        super().__init__(source, to_batches, n_features, preprocessing.bound)
        self._preprocessing, self._grouped, self.mapped = preprocessing, grouped, not preprocessing.is_identity
        if self.mapped and not preprocessing.pairwise and preprocessing.linear is None:
            self._by_column = preprocessing

    @property
    def unprepared(self) -> Dataset:
        return self._source

    def restricted(self, features: NDArray[np.intp], bound: float) -> PreprocessedDataset:
        preprocessing = self._preprocessing.restricted(features, bound)
        source = self._source.restricted(features, self._source.bound)
        return PreprocessedDataset(source, preprocessing, len(features), grouped=self._grouped)

    def row_products(self) -> RowProducts | StreamedProducts:
        if not self.at_hand or self.mapped or self.weight_bits:
            return super().row_products()
        self.people.passes += 1
        return RowProducts(self.in_memory("products").rows)

    def in_memory(self, purpose: str, *, by_person: bool = False) -> Batch:
        source = self._source.in_memory(purpose, by_person=by_person)
        return preprocessed(source, self._preprocessing, grouped=self._grouped)


class _DerivedSums(Sums, Generic[S]):
    """``sums``, which ``make()`` began, of batches made of others; ``by_column``: may be mapped as they are read."""

    def __init__(
        self,
        to_batches: Callable[[Batch], Iterable[Batch]],
        by_column: Preprocessing | None,
        grouped: bool,
        make: Callable[[], S],
    ) -> None:
        self._to_batches, self._by_column, self._grouped, self._make = to_batches, by_column, grouped, make
        self.sums = make()

    def add(self, batch: Batch) -> None:
        heeded = batch.weights is None or batch.weights.dtype == np.int16
        if self._by_column is not None and heeded and batch.rows.n and not batch.rows.is_sparse:
            rows = Rows(batch.rows.views, self._by_column.bound)
            people = Batch(rows, batch.groups if self._grouped else None, batch.others, batch.weights)
            if self.sums.add_mapped(people, self._by_column):
                return
        add = self.sums.add if batch.weights is None else partial(add_weighted, self.sums, self._make)
        for part in self._to_batches(batch):
            add(part)

    def weighs(self, rows: Rows) -> bool:
        return not rows.is_sparse and self.sums.weighs(rows)  # what sparse rows become may be dense

    def merge(self, other: _DerivedSums[S], times: int = 1) -> None:
        self.sums.merge(other.sums, times)


def _restricted(features: NDArray[np.intp], bound: float, batch: Batch) -> tuple[Batch]:
    return (batch.restricted(features, bound),)


def preprocessed_parts(batch: Batch, preprocessing: Preprocessing, *, grouped: bool = True) -> Iterator[Batch]:
    """The people of a batch with their rows mapped, some at a time, so that new rows take little memory."""
    n, others = batch.rows.n, batch.others
    height = max(n, 1) if preprocessing.is_identity else block_height(n, batch.rows.d)
    if batch.weights is not None:  # rows of each weight are added up in every part
        height = max(height, _WEIGHED_ENTRIES // batch.rows.d)
    for start in range(0, max(n, 1), height):
        part = batch if height >= n else unchecked(batch.part(slice(start, start + height)), others=others)
        yield preprocessed(part, preprocessing, grouped=grouped)
        others = 0


def preprocessed(batch: Batch, preprocessing: Preprocessing, *, grouped: bool = True) -> Batch:
    """A batch with its rows mapped; if not ``grouped``, without groups."""
    rows, views, bound = batch.rows, batch.rows.views, preprocessing.bound
    stays_sparse = preprocessing.location is None and preprocessing.linear is None and not preprocessing.pairwise
    if rows.is_sparse and stays_sparse:
        views = views if preprocessing.is_identity else tuple(_scaled(rows, preprocessing))
    elif not preprocessing.is_identity:
        views = (_mapped(rows, preprocessing),)
        if preprocessing.pairwise:
            views, bound = (_with_marks(Rows(views, bound), np.isnan(joined_views(rows, slice(0, rows.n)))),), 1.0
    return unchecked(batch, rows=Rows(views, bound), groups=batch.groups if grouped else None)


def _with_marks(rows: Rows, absent: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Clipped rows and the marks of what is absent, in units of the joint bound: marks are on the grid of a release."""
    n, d = absent.shape
    joint = np.empty((n, 2 * d))
    for people, block in clipped_blocks(rows):
        np.multiply(block, part_of_values(d), out=joint[people, :d])
    joint[:, d:] = np.where(absent, -mark_of(d), mark_of(d))
    return joint


def _scaled(rows: Rows, preprocessing: Preprocessing) -> Iterator[Any]:
    """Views of which some are sparse, divided by the scale: zeros stay zeros."""
    first, preprocessing = 0, replace(preprocessing.of_others(), unsure=())
    for view, width in zip(rows.views, rows.widths, strict=True):
        part = preprocessing.restricted(np.arange(first, first + width))
        first += width
        if hasattr(view, "tocsr"):
            entries = view.data.astype(np.float64)[None, :]
            map_rows(part.restricted(view.indices), entries, entries)
            yield type(view)((entries[0], view.indices, view.indptr), shape=view.shape)
        else:
            yield _mapped(Rows((view,), rows.bound), part)


def _mapped(rows: Rows, preprocessing: Preprocessing) -> NDArray[np.float64]:
    """All views of rows in one float64 matrix, mapped."""
    source = rows.in_one_piece(rows.n, fixed_point=False)
    if isinstance(source, np.ndarray):
        out = np.empty(source.shape)
    else:
        source = out = joined_views(rows, slice(0, rows.n))
    map_rows(preprocessing, source, out)
    return out


def map_rows(preprocessing: Preprocessing, rows: NDArray[Any], out: NDArray[np.float64]) -> None:
    """Map rows that the kernels read to ``out``, which may be the same memory."""
    if not core.map_rows(rows, *preprocessing.of_columns, out, thread_count()):
        raise NotFiniteError
    if preprocessing.linear is not None:
        core.mix_rows(out, preprocessing.linear, preprocessing.bits, thread_count())
