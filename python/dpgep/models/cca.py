"""Canonical correlations: A = [[0, Sxy], [Syx, 0]], B = blockdiag(Sx, Sy)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep.models.model import Matrix, Traits
from dpgep.models.moments import Pencil, PencilPart, PlausibleMoments, ReleasedGroups, ReleasedMoments, mean_factor
from dpgep.models.views import TwoViewModel, ViewsModel, block_form_variance, truth_of_views
from dpgep.serialization import stored_as


class CorrelationModel(ViewsModel):
    """A the blocks of the covariance between views, B the blocks within them."""

    traits = Traits(shift=1.0)  # A + B is a covariance: no eigenvalue is below -1

    def pencil(self, released: ReleasedGroups) -> Pencil:
        mean = mean_factor(released)
        weights = -np.ones(mean.shape[:-1])
        between, within = PencilPart(weights, blocks="between"), PencilPart(weights, blocks="within")
        return Pencil(mean, between, within, view_sizes=self.view_sizes)

    def error_variances(self, released: ReleasedGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        return block_form_variance(released, self.views, left, right, within=-eigenvalues)

    def plausible_truth(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        return truth_of_views(self, released, most_features)


@stored_as("cca")
@dataclass(frozen=True)
class CcaModel(CorrelationModel, TwoViewModel):
    """max x^T Sxy y over x^T Sx x = y^T Sy y = 1, as A v = lambda B v with v = (x, y); lambda is the correlation."""

    name = "cca"
    traits = Traits(has_clipped_products=True, largest_eigenvalue=1.0, shift=1.0)
