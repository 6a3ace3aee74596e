"""The moment matrix in floating point: the sums over people for a solution without noise."""

from __future__ import annotations

import numpy as np

from dpgep.data.blocks import add_products, moment_blocks
from dpgep.data.row_products import RowProducts
from dpgep.data.rows import Batch
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout

# A row of the bound's norm is multiplied by 1 less some rounding.
_CLIPPED = 1 - 1e-9


class FloatSums:
    """Upper triangle (row-major) of the sum over people of z z^T, z = [x; e(group)], x scaled to the unit ball.

    ``n_clipped`` of the ``n`` people had rows beyond the bound.
    """

    def __init__(self, layout: MomentLayout) -> None:
        self._layout = layout
        self.n = 0
        self.n_clipped = 0
        self.total: Matrix = np.zeros((layout.dimension,) * 2)

    def add(self, batch: Batch) -> None:
        for people, block in moment_blocks(batch, self._layout.n_groups):
            add_products([(people, block)], self.total)
            factors = RowProducts(batch.rows.part(people)).factors
            self.n_clipped += int(np.count_nonzero(factors < _CLIPPED))
        self.n += batch.n

    def merge(self, other: FloatSums) -> None:
        self.total += other.total
        self.n += other.n
        self.n_clipped += other.n_clipped
