"""Sliced inverse regression: A = Cov(E[x | slice of y]), B = Cov(x)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.data.groups import Codes, slice_codes, slice_edges
from dpgep.data.views import opened, width
from dpgep.models.model import Adjacency, Matrix
from dpgep.models.moments import (
    ReleasedGroups,
    schur_form_variance,
)
from dpgep.models.preparation import Bound
from dpgep.problems.group_model import GroupModel
from dpgep.problems.moment_problem import RowProblem, moment_problem


@dataclass(frozen=True)
class SirModel(GroupModel):
    """max v^T A v / v^T B v, A the covariance of slice means, B the covariance of the rows."""

    n_features: int
    interior_edges: tuple[float, ...]
    name = "sir"
    largest_eigenvalue = 1.0  # a part of the variance
    inputs = ("X", "y")

    @property
    def n_groups(self) -> int:
        return len(self.interior_edges) + 1

    @property
    def max_components_reason(self) -> str:
        return (
            f"inverse regression with {self.n_groups} slices and {self.n_features} features has "
            f"min(slices - 1, features) = {self.max_components} directions"
        )

    def codes(self, values: Any, n: int) -> Codes:
        return slice_codes(values, n, np.array(self.interior_edges))

    def weights_of_b(self, weights: Matrix, share: Matrix) -> Matrix:
        return np.concatenate([0.0 * weights, -share], axis=-1)

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
    bound: Bound = "auto",
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> RowProblem:
    """Sliced inverse regression: directions of X that a response y depends on.

    Problem: A v = lambda B v with A = sum_h (n_h/n) m_h m_h^T - m m^T over slices h of y, and B the covariance of the
    rows.

    Parameters
    ----------
    X : array_like of shape (n, d)
        One row per person.
    y : array_like of shape (n,)
        The response. A replaced person may also change slice: responses are protected like rows. Infinity belongs to an
        outer slice; a person with NaN counts as a person and contributes nothing else.
    slices : int
        Number of slices of equal width over ``y_range``.
    y_range : (low, high)
        Public range of y; values outside it belong to the outer slices. Required unless ``edges`` is given.
    edges : sequence of increasing numbers
        Public slice edges, H + 1 numbers for H slices; the outer two may be infinite and exclude nobody. Never
        compute edges from the data: one replaced person would move every quantile (see docs/errata.md).
    bound : "auto", float, `Auto` or `Preparation`
        As in `dpgep.pca`. "auto" gives every column a location and a scale, for 17 to 55 % of mu^2; makes columns
        nearly uncorrelated, for 27 to 35 % more, where n and the budget are large enough (`Auto`, "full"); or, where
        the budget is too small for scales, only shifts rows. ``components * solution.scale`` has unit rows.
    adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem or TableProblem
        For `dpgep.solve`. Empty slices are allowed.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, and if y is not a vector of n real numbers or the slices are not publicly specified.
    """
    interior = slice_edges(slices, y_range, edges)
    x, names = opened(X, "X", adjacency)
    model = SirModel(width(x), tuple(interior.tolist())).named(names)
    return moment_problem(model, (x, y), bound=bound, adjacency=adjacency, public_n=public_n)
