"""Sliced inverse regression: A = Cov(E[x | slice of y]), B = Cov(x)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.models.groups import GroupModel
from dpgep.models.model import Matrix, Traits
from dpgep.models.moments import (
    ReleasedGroups,
    schur_form_variance,
)
from dpgep.models.row_model import Slices
from dpgep.serialization import stored_as


@stored_as("sir")
@dataclass(frozen=True)
class SirModel(GroupModel):
    """max v^T A v / v^T B v, A the covariance of slice means, B the covariance of the rows."""

    n_features: int
    interior_edges: tuple[float, ...]
    name = "sir"
    traits = Traits(noise_order=2, largest_eigenvalue=1.0)  # a part of the variance
    inputs = ("X", "y")

    @property
    def grouping(self) -> Slices:
        return Slices(self.interior_edges)

    @property
    def max_components_reason(self) -> str:
        return (
            f"inverse regression with {self.n_groups} slices and {self.n_features} features has "
            f"min(slices - 1, features) = {self.max_components} directions"
        )

    def weights_of_b(self, weights: Matrix, share: Matrix) -> Matrix:
        return np.concatenate([0.0 * weights, -share], axis=-1)

    def error_variances(self, released: ReleasedGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        # A = T - W and B = T
        return schur_form_variance(released, left, right, total=1.0 - eigenvalues, within=-1.0)

    def restricted(self, features: NDArray[np.intp]) -> SirModel:
        return SirModel(len(features), self.interior_edges)
