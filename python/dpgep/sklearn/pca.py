"""Principal components as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted

from dpgep.models.model import Matrix
from dpgep.problems.pca import pca
from dpgep.sklearn.base import Components, options_of
from dpgep.solve import solve


@dataclass(kw_only=True, eq=False, repr=False)
class PrivatePCA(Components):
    """Principal component analysis with differential privacy: `dpgep.pca`, by default solved from one release.

    Unlike scikit-learn's `PCA`, ``explained_variance_`` has no factor n/(n-1), and nothing limits K to n.

    Parameters
    ----------
    n_components : int, optional
        K. Default: as many as columns. They cost no privacy.
    bound, preprocessing
        As in `dpgep.pca`.
    center, standardize : bool
        As in `dpgep.pca`: whether to subtract the mean, and to divide columns by their standard deviations.
    sparsity : int or "auto", optional
        Number of columns that components use. Default: all.
    method : {"release", "auto", "clipped-power"}
        As in `dpgep.solve`. "auto" may have less error where a release is noisy, but then no
        ``explained_variance_ratio_``.
    epsilon, delta, budget, share, adjacency, public_n, random_state
        As in `dpgep.sklearn.base.PrivateEstimator`: what a fit costs.

    Examples
    --------
    >>> import numpy as np
    >>> from dpgep.sklearn import PrivatePCA
    >>> X = np.random.default_rng(0).standard_normal((20000, 5)) * [5, 2, 1, 1, 1]
    >>> pca = PrivatePCA(n_components=1, epsilon=1.0, delta=1e-6).fit(X)
    >>> bool(abs(pca.components_[0, 0]) > 0.99), pca.privacy_.epsilon
    (True, 1.0)
    """

    center: bool = True
    standardize: bool = False
    sparsity: int | Literal["auto"] | None = None
    method: Literal["release", "auto", "clipped-power"] = "release"

    def fit(self, X: Any, y: Any = None) -> PrivatePCA:
        """Spend the budget on the components of the rows X (n, d), one per person; ``y`` is ignored."""
        problem = pca(self._rows(X), center=self.center, standardize=self.standardize, **self._described())
        options = options_of(sparsity=self.sparsity)
        self._keep(solve(problem, n_components=self.n_components, method=self.method, **self._terms(), **options))
        return self

    def inverse_transform(self, X: Any) -> Matrix:
        """Rows (n, d) in the span of the components that have these coordinates (n, K)."""
        check_is_fitted(self)
        scores = check_array(X)
        if scores.shape[1] != self.n_components_:
            raise ValueError(f"X must have {self.n_components_} columns, one per component, got shape {scores.shape}")
        scale = 1.0 if self.scale_ is None else self.scale_
        rows = scores @ np.linalg.pinv(self.components_ * scale).T * scale
        return np.asarray(rows if self.mean_ is None else rows + self.mean_)
