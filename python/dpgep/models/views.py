"""Views of the same people, rows z = (x, y, ...), A between them: canonical correlations, partial least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

from dpgep.models.model import Scatter, Traits
from dpgep.models.row_model import RowModel
from dpgep.serialization import stored_as

BETWEEN, WITHIN = Scatter(total=1.0, blocks="between"), Scatter(total=1.0, blocks="within")


@dataclass(frozen=True)
class ViewsModel(RowModel):
    """Views of ``view_sizes`` features of the same people, centred or not: A and B are blocks of their covariance."""

    view_sizes: tuple[int, ...] = field()  # always known: no default, as the base has
    center: bool
    _most_views: ClassVar[float] = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "view_sizes", tuple(self.view_sizes))
        if not 2 <= len(self.view_sizes) <= self._most_views:
            or_more = "" if self._most_views == 2 else " or more"
            raise ValueError(f"{self.name} compares two views{or_more}, got {len(self.view_sizes)}")
        super().__post_init__()

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return sum(self.view_sizes)


@stored_as("cca")
@dataclass(frozen=True)
class CcaModel(ViewsModel):
    """max x^T Sxy y over x^T Sx x = y^T Sy y = 1, as A v = lambda B v with v = (x, y); lambda is the correlation.

    A = [[0, Sxy], [Syx, 0]], B = blockdiag(Sx, Sy).
    """

    name = "cca"
    traits = Traits(BETWEEN, WITHIN, has_clipped_products=True, largest_eigenvalue=1.0)


@stored_as("pls")
@dataclass(frozen=True)
class PlsModel(ViewsModel):
    """max x^T Sxy y over unit x and y, as A v = lambda v with v = (x, y); lambda is the covariance of the scores.

    A = [[0, Sxy], [Syx, 0]], B = I.
    """

    name = "pls"
    traits = Traits(BETWEEN, has_clipped_products=True)


@stored_as("multiset-cca")
@dataclass(frozen=True)
class MultisetCcaModel(ViewsModel):
    """max sum_{i != j} x_i^T S_ij x_j over sum_i x_i^T S_ii x_i = 1, with v = (x_1, ..., x_m) for m views."""

    name = "multiset-cca"
    traits = Traits(BETWEEN, WITHIN)
    _most_views = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "traits", replace(self.traits, largest_eigenvalue=len(self.view_sizes) - 1.0))
