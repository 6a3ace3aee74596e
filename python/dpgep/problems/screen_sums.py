"""Sums over people that score features: energies of all, and row norms of the cross-covariance of two views."""

from __future__ import annotations

import numpy as np

from dpgep.problems.model import Matrix
from dpgep.problems.moments import MomentLayout
from dpgep.problems.people import Batch
from dpgep.problems.row_products import GroupSums, RowProducts


class ScreenSums:
    """Sums of clipped rows scaled to the unit ball: O(d) numbers for one view, a d_x x d_y matrix for two.

    Attributes
    ----------
    energy : (d,), diagonal of the second moment, not divided by n.
    groups : counts and sums per group.
    """

    def __init__(self, layout: MomentLayout, first_view: int) -> None:
        d, self._d_x = layout.n_features, first_view
        self._centred = layout.sums
        self.energy = np.zeros(d)
        self.groups = GroupSums(d, layout.n_groups, with_sums=layout.sums)
        self._cross = np.zeros((first_view, d - first_view)) if first_view else np.empty((0, 0))

    @property
    def n(self) -> int:
        return self.groups.n

    def add(self, batch: Batch) -> None:
        rows = RowProducts(batch.rows, batch.groups, len(self.groups.counts), with_sums=self._centred)
        self.groups.merge(rows)
        if batch.rows.is_sparse and not self._d_x:
            self.energy += rows.energy() / batch.rows.bound**2
            return
        for _, block in batch.rows.clipped_blocks(0):
            self.energy += np.einsum("ij,ij->j", block, block)
            if self._d_x:
                self._cross += block[:, : self._d_x].T @ block[:, self._d_x :]

    def merge(self, other: ScreenSums) -> None:
        self.energy += other.energy
        self.groups.merge(other.groups)
        self._cross += other._cross

    def cross_norms(self, bound: float) -> Matrix:
        """(d,), norm of each feature's row of sum (x - m_x)(y - m_y)^T, the means subtracted where there are sums."""
        cross = self._cross
        if self._centred:
            sums = self.groups.sums[:, 0] / bound
            cross = cross - np.outer(sums[: self._d_x], sums[self._d_x :]) / max(self.n, 1)
        return np.concatenate([np.linalg.norm(cross, axis=1), np.linalg.norm(cross, axis=0)])
