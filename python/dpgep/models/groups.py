"""Groups of people: discriminant directions of classes, and sliced inverse regression.

A is the scatter of the groups' means, T - W, at most of rank groups - 1.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from dpgep.models.model import Scatter, Traits
from dpgep.models.row_model import Classes, RowModel, Slices
from dpgep.serialization import stored_as

MEANS = Scatter(total=1.0, within=-1.0)


@stored_as("fda")
@dataclass(frozen=True)
class FdaModel(RowModel):
    """max v^T A v / v^T B v, A the scatter of class means around the mean, B the scatter of rows around class means."""

    n_features: int
    classes: tuple[Hashable, ...]
    name = "fda"
    traits = Traits(MEANS, Scatter(within=1.0))

    @property
    def grouping(self) -> Classes:
        return Classes(self.classes)


@stored_as("sir")
@dataclass(frozen=True)
class SirModel(RowModel):
    """max v^T A v / v^T B v, A the covariance of slice means, Cov(E[x | slice of y]), B the covariance of the rows."""

    n_features: int
    interior_edges: tuple[float, ...]
    name = "sir"
    traits = Traits(MEANS, Scatter(total=1.0), largest_eigenvalue=1.0)  # a part of the variance

    @property
    def grouping(self) -> Slices:
        return Slices(self.interior_edges)
