"""Sliced inverse regression: A = Cov(E[x | slice of y]), B = Cov(x)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.data.groups import slice_codes, slice_edges
from dpgep.data.rows import Batch, Rows
from dpgep.data.views import as_view, check_bound, opened, width
from dpgep.models.model import Adjacency, Matrix, PublicFacts
from dpgep.models.moments import (
    MomentLayout,
    Pencil,
    PencilPart,
    ReleasedGroups,
    group_factors,
    moment_layout,
    schur_form_variance,
    total_mean,
    total_share,
)
from dpgep.problems.group_model import GroupModel
from dpgep.problems.moment_problem import MomentProblem, moment_problem


@dataclass(frozen=True)
class SirModel(GroupModel):
    """max v^T A v / v^T B v, A the covariance of slice means, B the covariance of the rows."""

    n_features: int
    interior_edges: tuple[float, ...]
    name = "sir"
    largest_eigenvalue = 1.0  # a part of the variance
    inputs = ("X", "y")

    @property
    def n_slices(self) -> int:
        return len(self.interior_edges) + 1

    @property
    def max_components(self) -> int:
        return min(self.n_features, self.n_slices - 1)

    @property
    def max_components_reason(self) -> str:
        return (
            f"inverse regression with {self.n_slices} slices and {self.n_features} features has "
            f"min(slices - 1, features) = {self.max_components} directions"
        )

    def batch(self, bound: float, *data: Any) -> Batch:
        x = as_view(data[0], "X", self.n_features)
        codes = slice_codes(data[1], x.shape[0], np.array(self.interior_edges))
        return Batch.of_codes(Rows((x,), bound), codes)

    def layout(self, facts: PublicFacts) -> MomentLayout:
        return moment_layout(self.n_features, self.n_slices, sums=True, facts=facts)

    def pencil(self, released: ReleasedGroups) -> Pencil:
        groups, weights = group_factors(released)
        factors = np.vstack([groups, total_mean(released)])
        share = total_share(released)
        of_means = PencilPart(np.append(weights, -share), moment=False)
        return Pencil(factors, of_means, PencilPart(np.append(0.0 * weights, -share)))

    def error_variances(self, released: ReleasedGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        # A = T - W and B = T
        return schur_form_variance(released, left, right, total=1.0 - eigenvalues, within=-1.0)

    def restricted(self, features: NDArray[np.intp]) -> SirModel:
        return SirModel(len(features), self.interior_edges)


def sir(
    X: Any,
    y: Any,
    *,
    slices: int = 10,
    y_range: tuple[float, float] | None = None,
    edges: Sequence[float] | None = None,
    bound: float = 1.0,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
    """Sliced inverse regression: directions of X that a response y depends on.

    Problem: A v = lambda B v with A = sum_h (n_h/n) m_h m_h^T - m m^T over slices h of y, and B the covariance of the
    rows.

    Parameters
    ----------
    X : array_like of shape (n, d)
        One row per person.
    y : array_like of shape (n,)
        The response. A replaced person may also change slice: responses are protected like rows. Infinity belongs to an
        outer slice; who has NaN counts as a person and contributes nothing else.
    slices : int
        Number of slices of equal width over ``y_range``.
    y_range : (low, high)
        Public range of y; values beyond it belong to the outer slices. Required unless ``edges`` is given.
    edges : sequence of increasing numbers
        Public slice edges, H + 1 numbers for H slices; the outer two may be infinite and do not exclude anybody. Never
        take edges from the data: one replaced person would move every quantile (see docs/errata.md).
    bound, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem
        To be passed to `dpgep.solve`. Empty slices are allowed.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, and if y is not a vector of n real numbers or the slices are not given by public facts.
    """
    bound = check_bound(bound)
    interior = slice_edges(slices, y_range, edges)
    x = opened(X, "X", adjacency)
    model = SirModel(width(x), tuple(interior.tolist()))
    return moment_problem(model, (x, y), bound=bound, adjacency=adjacency, public_n=public_n)
