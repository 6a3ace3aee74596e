"""Which columns hold NaN or infinite values: looked up once rows were refused, to name them in the message."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpgep.data.blocks import block_height, joined_views
from dpgep.data.rows import Batch, NotFiniteError, Rows
from dpgep.models.model import view_labels

if TYPE_CHECKING:
    from dpgep.data.dataset import Dataset
    from dpgep.models.moments import MomentModel


class NotFiniteColumns:
    """Which of d columns hold an infinity or, if it does not stand for ``missing`` values, a NaN."""

    def __init__(self, d: int, missing: bool) -> None:
        self.found = np.zeros(d, dtype=bool)
        self._missing = missing

    def add(self, batch: Batch) -> None:
        first = 0
        for view, width in zip(batch.rows.views, batch.rows.widths, strict=True):
            found = self.found[first : first + width]
            if hasattr(view, "tocsr"):
                found[view.indices[self._marked(view.data.astype(np.float64))]] = True
            else:
                self._add_dense(Rows((view,), batch.rows.bound), found)
            first += width

    def merge(self, other: NotFiniteColumns) -> None:
        self.found |= other.found

    def _add_dense(self, rows: Rows, found: NDArray[np.bool_]) -> None:
        height = block_height(rows.n, rows.d)
        for start in range(0, rows.n, height):
            found |= self._marked(joined_views(rows.part(slice(start, start + height)))).any(axis=0)

    def _marked(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.isinf(values) if self._missing else ~np.isfinite(values)


def not_finite_in_batch(model: MomentModel, batch: Batch, *, missing: bool) -> NotFiniteError:
    """The error about a batch that was refused, with the names of its columns."""
    columns = NotFiniteColumns(model.n_features, missing)
    columns.add(batch)
    return NotFiniteError(_labels(model, columns.found))


def not_finite_in(model: MomentModel, dataset: Dataset, *, missing: bool) -> NotFiniteError:
    """The error about people who were refused, with the names of columns where they can be read again.

    The message depends on all people, in whatever order and parts they are read: on nobody's place among them.
    """
    if dataset.read_once:
        return NotFiniteError()
    raw = dataset.unprepared
    return NotFiniteError(
        _labels(model, raw.accumulate(partial(NotFiniteColumns, model.n_features, missing), alone=True).found)
    )


def _labels(model: MomentModel, found: NDArray[np.bool_]) -> tuple[str, ...]:
    """Names of the columns in quotes, or their numbers: where there are several views, each with its view."""
    if model.feature_names is not None:
        return tuple(repr(name) for name, is_in in zip(model.feature_names, found, strict=True) if is_in)
    views = model.views
    labels = [""] if len(views) == 1 else [f" of {label}" for label in view_labels(len(views))]
    places = zip(labels, views, strict=True)
    return tuple(f"{j}{which}" for which, view in places for j in np.flatnonzero(found[view]).tolist())
