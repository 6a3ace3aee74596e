"""Partial least squares: A = [[0, Sxy], [Syx, 0]], B = I."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep.models.model import Matrix, Traits
from dpgep.models.moments import Pencil, PencilPart, ReleasedGroups, mean_factor
from dpgep.models.views import TwoViewModel, block_form_variance
from dpgep.serialization import stored_as


@stored_as("pls")
@dataclass(frozen=True)
class PlsModel(TwoViewModel):
    """max x^T Sxy y over unit x and y, as A v = lambda v with v = (x, y); lambda is the covariance of the scores."""

    name = "pls"
    # eigenvalues come in pairs, lambda and -lambda: no shift is public
    traits = Traits(scale_free=False, linear_free=False, identity_b=True, has_clipped_products=True, shift=None)

    def pencil(self, released: ReleasedGroups) -> Pencil:
        mean = mean_factor(released)
        return Pencil(mean, PencilPart(-np.ones(mean.shape[:-1]), blocks="between"), None, view_sizes=self.view_sizes)

    def error_variances(self, released: ReleasedGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        return block_form_variance(released, self.views, left, right, within=0.0)
