"""Principal components, canonical correlations and partial least squares as scikit-learn transformers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted

from dpgep.models.model import Matrix
from dpgep.problems.builders import cca, pca, pls
from dpgep.problems.problem import MomentProblem
from dpgep.results.solution import Solution
from dpgep.sklearn.base import Components, Projection, options_of, values_withheld
from dpgep.solve import solve
from dpgep.sources.kinds import is_table


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


@dataclass(kw_only=True, eq=False, repr=False)
class TwoViews(Projection):
    """A projection of two views of the same people, X and y.

    ``transform(X)`` and ``fit_transform(X, y)`` return the coordinates of X alone, as pipelines need them;
    ``transform(X, y)`` those of both.

    Attributes
    ----------
    x_weights_, y_weights_ : (d_x, K) and (d_y, K), as scikit-learn lays them.
    x_mean_, y_mean_ : released means of the columns; None without ``center``.
    """

    center: bool = True
    sparsity: int | Literal["auto"] | None = None

    @abstractmethod
    def _problem(self, X: Any, y: Any) -> MomentProblem: ...

    def fit(self, X: Any, y: Any = None) -> TwoViews:
        """Spend the budget on pairs of directions in X (n, d_x) and y (n, d_y) or (n,): row i of each is person i."""
        x = self._rows(X, y=y)
        with values_withheld("y"):
            second = y if is_table(y) else self._second(y)
        options = options_of(sparsity=self.sparsity, regularization=getattr(self, "regularization", None))
        problem = self._problem(x, second)
        self._keep(solve(problem, n_components=self.n_components, **self._terms(), **options))
        return self

    def transform(self, X: Any, y: Any = None) -> Any:
        """Coordinates (n, K) of X, or of both views: as private as the rows are, also where these were fitted."""
        rows = self._new_rows(X)
        second = () if y is None else (self._second(y, new=True),)
        return self.solution_.transform(rows, *second)

    def _second(self, y: Any, *, new: bool = False) -> Any:
        array = check_array(y, input_name="y", ensure_2d=False, **self._people(new=new), **self._format())
        return array.reshape(-1, 1) if array.ndim == 1 else array

    def _keep(self, solution: Solution) -> None:
        super()._keep(solution)
        self.x_weights_, self.y_weights_ = solution.x_weights.T, solution.y_weights.T
        means = (None, None) if solution.mean is None else solution.model.views_of(solution.mean[None, :])
        self.x_mean_, self.y_mean_ = (None if mean is None else np.ravel(mean) for mean in means)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.two_d_labels = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateCCA(TwoViews):
    """Canonical correlation analysis with differential privacy: `dpgep.cca`, solved from one release.

    Unlike scikit-learn's `CCA`, weights have unit norm, in units of the columns' spread.

    Parameters
    ----------
    n_components : int, optional
        K. Default: as many as the smaller view has columns. They cost no privacy.
    bound, preprocessing
        As in `dpgep.cca`, of both views together.
    center : bool
        Whether to subtract the means.
    regularization : float, optional
        Added to the covariances of both views. Default: chosen from released values.
    sparsity : int or "auto", optional
        Number of columns that components use. Default: all.
    epsilon, delta, budget, share, adjacency, public_n, random_state
        As in `dpgep.sklearn.base.PrivateEstimator`: what a fit costs.

    Attributes
    ----------
    correlations_ : (K,), descending; noise may take them out of [0, 1].
    """

    regularization: float | None = None

    def _problem(self, X: Any, y: Any) -> MomentProblem:
        return cca(X, y, center=self.center, **self._described())

    def _keep(self, solution: Solution) -> None:
        super()._keep(solution)
        self.correlations_ = solution.eigenvalues


@dataclass(kw_only=True, eq=False, repr=False)
class PrivatePLS(TwoViews):
    """Partial least squares with differential privacy: `dpgep.pls`, solved from one release, as `PLSSVD` without scale.

    Parameters
    ----------
    n_components : int, optional
        K. Default: as many as the smaller view has columns. They cost no privacy.
    bound, preprocessing
        As in `dpgep.pls`, of both views together.
    center : bool
        Whether to subtract the means.
    sparsity : int or "auto", optional
        Number of columns that components use. Default: all.
    epsilon, delta, budget, share, adjacency, public_n, random_state
        As in `dpgep.sklearn.base.PrivateEstimator`: what a fit costs.

    Attributes
    ----------
    covariances_ : (K,), those of the scores, descending; no factor n/(n-1).
    """

    def _problem(self, X: Any, y: Any) -> MomentProblem:
        return pls(X, y, center=self.center, **self._described())

    def _keep(self, solution: Solution) -> None:
        super()._keep(solution)
        self.covariances_ = solution.eigenvalues
