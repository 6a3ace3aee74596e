"""Discriminant directions: A = between-class scatter, B = within-class scatter."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.models.groups import GroupModel
from dpgep.models.model import Matrix
from dpgep.models.moments import (
    ReleasedGroups,
    schur_form_variance,
)
from dpgep.models.row_model import Classes
from dpgep.serialization import stored_as


@stored_as("fda")
@dataclass(frozen=True)
class FdaModel(GroupModel):
    """max v^T A v / v^T B v, A the scatter of class means around the mean, B the scatter of rows around class means."""

    n_features: int
    classes: tuple[Hashable, ...]
    name = "fda"
    inputs = ("X", "labels")

    @property
    def grouping(self) -> Classes:
        return Classes(self.classes)

    @property
    def max_components_reason(self) -> str:
        return (
            f"discriminant analysis of {len(self.classes)} classes and {self.n_features} features has "
            f"min(classes - 1, features) = {self.max_components} directions"
        )

    def weights_of_b(self, weights: Matrix, share: Matrix) -> Matrix:
        return np.concatenate([-weights, 0.0 * share], axis=-1)

    def error_variances(self, released: ReleasedGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        # A = T - W and B = W
        return schur_form_variance(released, left, right, total=1.0, within=-(1.0 + eigenvalues))

    def restricted(self, features: NDArray[np.intp]) -> FdaModel:
        return FdaModel(len(features), self.classes)
