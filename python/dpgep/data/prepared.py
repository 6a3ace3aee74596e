"""A data set whose rows are mapped by a public preprocessing, block by block, whenever they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from dpgep.data.blocks import joined_views
from dpgep.data.dataset import ANOTHER_PASS, Dataset
from dpgep.data.float_sums import RowProducts, StreamedProducts
from dpgep.data.rows import Batch, NotFiniteError, Rows, S, block_height
from dpgep.models.preprocessing import Preprocessing


class PreparedDataset(Dataset):
    """The people of ``dataset``, their rows mapped and clipped by ``preprocessing``. Nothing is copied as a whole.

    If not ``grouped``, all who have a row are in one group.
    """

    def __init__(
        self, dataset: Dataset, preprocessing: Preprocessing, n_features: int, *, grouped: bool = True
    ) -> None:
        self._dataset = dataset
        self._preprocessing = preprocessing
        self._n_features = n_features
        self._grouped = grouped
        self.bound = preprocessing.bound
        self.read_once = dataset.read_once
        self.at_hand, self.mapped = dataset.at_hand, not preprocessing.is_identity

    @property
    def n(self) -> int | None:
        return self._dataset.n

    @property
    def passes(self) -> int:  # type: ignore[override]
        return self._dataset.passes

    @property
    def unprepared(self) -> Dataset:
        return self._dataset

    @property
    def population_id(self) -> str:
        return self._dataset.population_id

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        prepared = partial(PreparedSums, self._preprocessing, make, grouped=self._grouped)
        return self._dataset._summed(prepared, alone).sums

    def restricted(self, features: NDArray[np.intp], bound: float) -> PreparedDataset:
        preprocessing = self._preprocessing.restricted(features, bound)
        dataset = self._dataset.restricted(features, self._dataset.bound)
        return PreparedDataset(dataset, preprocessing, len(features), grouped=self._grouped)

    def row_products(self) -> RowProducts | StreamedProducts:
        if self.at_hand and not self.mapped:
            self._dataset.passes += 1
            return RowProducts(self.in_memory("products").rows)
        if self.read_once:
            raise ValueError(f"products with vectors need {ANOTHER_PASS}")
        return StreamedProducts(self.accumulate, self._n_features)

    def in_memory(self, purpose: str) -> Batch:
        return prepared_batch(self._dataset.in_memory(purpose), self._preprocessing)


class PreparedSums(Generic[S]):
    """Sums over people of mapped rows; ``sums`` is what ``make()`` began. ``grouped``: as of `PreparedDataset`."""

    def __init__(self, preprocessing: Preprocessing, make: Callable[[], S], *, grouped: bool = True) -> None:
        self._preprocessing = preprocessing
        self._grouped = grouped
        self.sums = make()

    def add(self, batch: Batch) -> None:
        for part in _parts(batch, self._preprocessing):
            self.sums.add(part if self._grouped else Batch(part.rows, None, part.others))

    def merge(self, other: PreparedSums[S]) -> None:
        self.sums.merge(other.sums)


def prepared_batch(batch: Batch, preprocessing: Preprocessing) -> Batch:
    """A batch with its rows mapped."""
    return Batch(_mapped(batch.rows, preprocessing), batch.groups, batch.others)


def checked_block(rows: Rows, *, missing: bool) -> NDArray[np.float64]:
    """A copy of all views of rows in one float64 matrix. Raises NotFiniteError for infinities, and for NaN if it does
    not stand for ``missing`` values.
    """
    block = joined_views(rows, slice(0, rows.n))
    _check(block, missing)
    return block


def _check(values: NDArray[np.float64], missing: bool) -> None:
    if np.isinf(values).any() if missing else not np.isfinite(values).all():
        raise NotFiniteError


def _parts(batch: Batch, preprocessing: Preprocessing) -> Iterator[Batch]:
    """The people of a batch, some at a time, so that mapped rows take little memory."""
    if preprocessing.is_identity:
        yield prepared_batch(batch, preprocessing)
        return
    height, others = block_height(batch.rows.n, batch.rows.d), batch.others
    for start in range(0, max(batch.rows.n, 1), height):
        part = prepared_batch(batch.part(slice(start, start + height)), preprocessing)
        yield Batch(part.rows, part.groups, others)
        others = 0


def _mapped(rows: Rows, preprocessing: Preprocessing) -> Rows:
    if preprocessing.is_identity:
        return Rows(rows.views, preprocessing.bound)
    if rows.is_sparse and preprocessing.location is None and preprocessing.linear is None:
        return Rows(tuple(_scaled(rows, preprocessing)), preprocessing.bound)
    block = checked_block(rows, missing=preprocessing.missing)
    preprocessing.map(block)
    return Rows((block,), preprocessing.bound)


def _scaled(rows: Rows, preprocessing: Preprocessing) -> Iterator[Any]:
    """Views of which some are sparse, divided by the scale: zeros stay zeros."""
    first = 0
    for view, width in zip(rows.views, rows.widths, strict=True):
        part = preprocessing.restricted(np.arange(first, first + width))
        first += width
        if hasattr(view, "tocsr"):
            yield _scaled_csr(view, part)
        else:
            block = checked_block(Rows((view,), rows.bound), missing=part.missing)
            part.map(block)
            yield block


def _scaled_csr(view: Any, preprocessing: Preprocessing) -> Any:
    entries = view.data.astype(np.float64)
    _check(entries, preprocessing.missing)
    preprocessing.restricted(view.indices).map(entries)
    return type(view)((entries, view.indices, view.indptr), shape=view.shape)
