"""Principal components: A = covariance (or second moment), B = I; of standardized columns, A their correlations."""

from __future__ import annotations

from dataclasses import dataclass

from dpgep.models.model import Scatter, Traits
from dpgep.models.row_model import RowModel
from dpgep.serialization import stored_as


@stored_as("pca")
@dataclass(frozen=True)
class PcaModel(RowModel):
    """max v^T A v over unit v, A the covariance of the rows (``center``) or their second moment."""

    n_features: int
    center: bool
    name = "pca"
    traits = Traits(Scatter(total=1.0), has_clipped_products=True)


@stored_as("standardized-pca")
@dataclass(frozen=True)
class StandardizedPcaModel(PcaModel):
    """max v^T C v over v^T diag(C) v = 1, C the covariance of the rows (``center``) or their second moment.

    What is known of the noise is in coordinates u = v * scale, in which the pair is (R, I), R the correlations.
    """

    name = "standardized-pca"
    traits = Traits(Scatter(total=1.0), standardized=True)
