"""Location and scale of columns as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_array, check_is_fitted

from dpgep.models.preprocessing import AutoPreprocessing
from dpgep.problems.builders import table_problem
from dpgep.run import Run
from dpgep.sklearn.base import PrivateEstimator


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateScaler(OneToOneFeatureMixin, PrivateEstimator):  # type: ignore[misc]
    """Columns less their means, over their standard deviations, both bought with differential privacy.

    The counterpart of scikit-learn's `StandardScaler`. No range of the columns has to be known: histograms over powers
    of two show where values lie, and sums within the intervals found follow, as for ``bound="auto"``
    (docs/your-table.md). Values beyond an interval, about 0.5 % of the people at either end, count as its end there.

    Before `PrivatePCA`, `PrivateCCA`, `PrivateFDA` or `PrivateSIR` it is a waste: these buy location and scale
    themselves, for a part of their budget.

    Parameters
    ----------
    with_mean, with_std : bool
        Whether to subtract the mean and to divide by the deviation. Sparse rows cannot be shifted. Both are paid for in
        any case, together.
    ranges : {column: (low, high)}, optional
        Public ranges of columns, by number or name, as of `dpgep.AutoPreprocessing`: they make the rest cheaper.
    missing : {"error", "center"}
        Whether NaN is refused, or counts for nothing, and becomes 0.
    epsilon, delta, budget, share, adjacency, public_n, random_state
        As in `dpgep.sklearn.base.PrivateEstimator`: what a fit costs.

    Attributes
    ----------
    mean_, scale_, var_ : (d,), means, deviations and their squares (no factor n/(n-1)); None where they are not used.
    privacy_ : the `dpgep.PrivacyReport`: what this fit cost.
    n_features_in_, feature_names_in_ : of X.
    """

    with_mean: bool = True
    with_std: bool = True
    ranges: Mapping[str | int, tuple[float, float]] | None = None
    missing: Literal["error", "center"] = "error"

    _centering: ClassVar[str] = 'missing="center"'

    def fit(self, X: Any, y: Any = None) -> PrivateScaler:
        """Spend the budget on location and scale of the columns of X (n, d), a person per row; ``y`` is ignored."""
        auto = AutoPreprocessing(ranges=self.ranges or {}, missing=self.missing)
        problem = table_problem(self._rows(X), preprocessing=auto, adjacency=self.adjacency, public_n=self.public_n)
        run = Run(problem, accounting="gdp", **self._terms())
        with run.reserved():
            found = run.location_and_scale()
        self.privacy_ = run.report
        run.warn_of_counted(self)
        assert found.scale is not None
        self.mean_ = found.location if self.with_mean else None
        self.scale_ = found.scale if self.with_std else None
        self.var_ = None if self.scale_ is None else self.scale_**2
        return self

    def transform(self, X: Any) -> Any:
        """(X - mean_)/scale_: as private as the rows are, also where these were fitted."""
        rows = self._new_rows(X)
        if scipy.sparse.issparse(rows):
            return rows.astype(np.float64) if self.scale_ is None else rows.multiply(1 / self.scale_).tocsr()
        rows = rows.astype(np.float64)
        if self.mean_ is not None:
            rows -= self.mean_
        if self.scale_ is not None:
            rows /= self.scale_
        if self.missing == "center":
            rows[np.isnan(rows)] = 0.0
        return rows

    def inverse_transform(self, X: Any) -> Any:
        """X scale_ + mean_."""
        check_is_fitted(self)
        rows = check_array(X, dtype=np.float64, copy=True, accept_sparse="csr" if not self.with_mean else False)
        if scipy.sparse.issparse(rows):
            return rows if self.scale_ is None else rows.multiply(self.scale_).tocsr()
        if self.scale_ is not None:
            rows *= self.scale_
        return rows if self.mean_ is None else rows + self.mean_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.with_mean
        tags.input_tags.allow_nan = self.missing == "center"
        return tags
