"""The analyses as scikit-learn estimators: components, pairs of directions, discriminants, location and scale."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, OneToOneFeatureMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from dpgep._checks import require_non_negative, require_share
from dpgep.data.inputs import fewest_rows, public_classes
from dpgep.methods.base import PairOptions, component_count
from dpgep.models.model import Matrix
from dpgep.models.preprocessing import AutoPreprocessing
from dpgep.problems.builders import cca, fda, pca, pls, sir, table_problem
from dpgep.results.classifiers import class_priors, label_array
from dpgep.results.release import Release
from dpgep.results.solution import Solution
from dpgep.run import Run, release
from dpgep.sklearn.base import Components, PrivateEstimator, Projection, values_withheld
from dpgep.sources import declared_values
from dpgep.sources.kinds import is_table


@dataclass(kw_only=True, eq=False, repr=False)
class PrivatePCA(Components):
    """Principal component analysis with differential privacy: `dpgep.pca`, by default solved from one release.

    Unlike scikit-learn's `PCA`, ``explained_variance_`` has no factor n/(n-1), and nothing limits K to n.

    Parameters that are not listed are as in `dpgep.sklearn.base.Projection`.

    Parameters
    ----------
    n_components : int, or float between 0 and 1, optional
        K, or the share of the released variance, noise included, that is to be explained: by as few components as do.
    center, standardize : bool
        As in `dpgep.pca`: whether to subtract the mean, and to divide columns by their standard deviations.
    whiten : bool
        Whether coordinates are divided by the roots of the released variances along components.
    method : {"release", "auto", "clipped-power"}
        As in `dpgep.solve`. "auto" may have less error where a release is noisy, but then no
        ``explained_variance_ratio_``, and no covariance.

    Attributes
    ----------
    n_samples_ : number of people, public or released; None where it is neither.
    singular_values_ : (K,), sqrt(n_samples_ explained_variance_) as of centred rows; 0 where noise left no variance.
    noise_variance_ : mean of the eigenvalues that were left out, as in probabilistic PCA: 0 for K = d.

    Examples
    --------
    >>> import numpy as np
    >>> from dpgep.sklearn import PrivatePCA
    >>> X = np.random.default_rng(0).standard_normal((20000, 5)) * [5, 2, 1, 1, 1]
    >>> pca = PrivatePCA(n_components=1, epsilon=1.0, delta=1e-6).fit(X)
    >>> bool(abs(pca.components_[0, 0]) > 0.99), pca.privacy_.epsilon
    (True, 1.0)
    """

    n_components: float | None = field(default=None, kw_only=False)  # type: ignore[assignment]
    center: bool = True
    standardize: bool = False
    whiten: bool = False
    method: Literal["release", "auto", "clipped-power"] = "release"

    _build: ClassVar[Any] = staticmethod(pca)

    def _fit(self, X: Any, y: Any, people: dict[str, Any]) -> None:
        if not isinstance(self.n_components, float):
            return super()._fit(X, y, people)
        require_share("n_components", self.n_components)
        if self.method != "release" or self.sparsity is not None:
            raise ValueError('n_components is a share of the variance with method="release" and without sparsity')
        released: Release = release(self._problem(*self._data(X, y), **people), **self._terms())
        spectrum = released.solve().diagnostics.spectrum
        assert spectrum is not None
        shares = np.cumsum(spectrum)
        enough = np.flatnonzero(shares > self.n_components * shares[-1])
        self._keep(released.solve(int(enough[0]) + 1 if len(enough) else 1))

    def _keep(self, solution: Solution) -> None:
        super()._keep(solution)
        moments, public = solution._moments, solution.privacy.public
        self.n_samples_ = (public and public.n_people) if moments is None else moments.n
        if self.n_samples_ is not None:
            self.singular_values_ = np.sqrt(self.n_samples_ * np.maximum(self.explained_variance_, 0.0))
        found, spectrum = solution.diagnostics, solution.diagnostics.spectrum
        if hasattr(self, "explained_variance_ratio_") and spectrum is not None:
            largest, left = float(self.explained_variance_[0]), spectrum[self.n_components_ :]
            in_units = largest / float(spectrum[0]) if largest else 1.0
            self.noise_variance_ = max(float(left.mean()), 0.0) * in_units if len(left) else 0.0
            self._deviation = found.noise_level / math.sqrt(2 * solution.model.n_features) * in_units

    def transform(self, X: Any) -> Matrix:
        """Coordinates (n, K) of rows, float32 of float32: as private as the rows are, also where these were fitted."""
        rows = self._new_rows(X)
        scores = self.solution_.transform(rows) / self._deviations
        return np.asarray(scores, dtype=np.float32 if rows.dtype == np.float32 else np.float64)

    def inverse_transform(self, X: Any) -> Matrix:
        """Rows (n, d) in the span of the components that have these coordinates (n, K)."""
        check_is_fitted(self)
        scores = check_array(X, dtype=[np.float64, np.float32])
        if scores.shape[1] != self.n_components_:
            raise ValueError(f"X must have {self.n_components_} columns, one per component, got shape {scores.shape}")
        scale = 1.0 if self.scale_ is None else self.scale_
        rows = scores * self._deviations @ np.linalg.pinv(self.components_ * scale).T * scale
        return np.asarray(rows if self.mean_ is None else rows + self.mean_, dtype=scores.dtype)

    def get_covariance(self) -> Matrix:
        """(d, d), of the model of probabilistic PCA: V^T (diag(lambda) - s I) V + s I, s the ``noise_variance_``.

        Variances below one deviation of the noise of the release count as that. Of standardized columns, in the units
        of the columns. AttributeError where ``noise_variance_`` is not known.
        """
        check_is_fitted(self)
        units = self.components_ if self.scale_ is None else self.components_ * self.scale_
        least = max(self.noise_variance_, self._deviation)
        covariance = (units.T * np.maximum(self.explained_variance_ - least, 0.0)) @ units
        covariance += least * np.eye(len(units.T))
        return np.asarray(covariance if self.scale_ is None else covariance * np.outer(self.scale_, self.scale_))

    def get_precision(self) -> Matrix:
        """(d, d), the inverse of `get_covariance`. ValueError where that is singular, which it is not with noise."""
        covariance = self.get_covariance()
        values, vectors = np.linalg.eigh(covariance)
        if not values[0] > len(values) * np.finfo(float).eps * values[-1]:
            raise ValueError("the covariance is singular, without noise: fit columns that do not determine each other")
        return np.asarray((vectors / values) @ vectors.T)

    def score_samples(self, X: Any) -> Matrix:
        """(n,), log densities of rows under a normal law of this mean and covariance: as private as the rows are."""
        rows, precision = self._new_rows(X), self.get_precision()
        rows = rows.toarray() if scipy.sparse.issparse(rows) else rows
        rows = rows if self.mean_ is None else rows - self.mean_
        squares = np.einsum("ij,jk,ik->i", rows, precision, rows, optimize=True)
        _, determinant = np.linalg.slogdet(precision)
        return np.asarray((determinant - len(precision) * math.log(2 * math.pi) - squares) / 2)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`: as private as the rows are."""
        return float(self.score_samples(X).mean())

    @property
    def _deviations(self) -> Any:
        """(K,), what coordinates are divided by."""
        if not self.whiten:
            return 1.0
        variances = self.explained_variance_
        return np.sqrt(np.maximum(variances, np.finfo(float).eps * max(float(variances[0]), np.finfo(float).tiny)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class TwoViews(Projection):
    """A projection of two views of the same people, X and y, whose bound is that of both together.

    ``transform(X)`` and ``fit_transform(X, y)`` return the coordinates of X alone, as pipelines need them;
    ``transform(X, y)`` those of both. ``x_weights_`` (d_x, K) and ``y_weights_`` (d_y, K) lie as in scikit-learn;
    ``x_mean_`` and ``y_mean_`` are released means, None without ``center``, which says whether to subtract them.
    """

    center: bool = True
    _needs_y: ClassVar[bool] = True
    #: the attribute that holds the eigenvalues
    _values: ClassVar[str]

    def _data(self, X: Any, y: Any) -> tuple[Any, ...]:
        x = self._rows(X, y=y)
        with values_withheld("y"):
            return x, y if is_table(y) else self._second(y)

    def transform(self, X: Any, y: Any = None) -> Any:
        """Coordinates (n, K) of X, or of both views: as private as the rows are, also where these were fitted."""
        rows = self._new_rows(X)
        second = () if y is None else (self._second(y, new=True),)
        return self.solution_.transform(rows, *second)

    def _second(self, y: Any, *, new: bool = False) -> Any:
        array = check_array(y, input_name="y", ensure_2d=False, **self._form(new=new))
        return array.reshape(-1, 1) if array.ndim == 1 else array

    def _keep(self, solution: Solution) -> None:
        super()._keep(solution)
        self.x_weights_, self.y_weights_ = solution.x_weights.T, solution.y_weights.T
        mean = solution.mean
        self.x_mean_, self.y_mean_ = (None if mean is None else mean[view] for view in solution.model.views)
        setattr(self, self._values, solution.eigenvalues)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.two_d_labels = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateCCA(TwoViews):
    """Canonical correlation analysis with differential privacy: `dpgep.cca`, solved from one release.

    Unlike scikit-learn's `CCA`, weights have unit norm, in units of the columns' spread. ``correlations_`` (K,) may lie
    out of [0, 1], for noise. ``regularization`` is added to the covariances of both views (default: chosen from
    released values). All else is as in `dpgep.sklearn.base.Projection`.
    """

    regularization: float | None = None
    _build: ClassVar[Any] = staticmethod(cca)
    _values: ClassVar[str] = "correlations_"


@dataclass(kw_only=True, eq=False, repr=False)
class PrivatePLS(TwoViews):
    """Partial least squares with differential privacy: `dpgep.pls`, solved from one release, as `PLSSVD` without scale.

    ``covariances_`` (K,) are those of the scores, descending, without a factor n/(n-1). All else is as in
    `dpgep.sklearn.base.Projection`.
    """

    _build: ClassVar[Any] = staticmethod(pls)
    _values: ClassVar[str] = "covariances_"


@dataclass(kw_only=True, eq=False, repr=False)
class Groups(Components):
    """Directions in which groups of people differ."""

    regularization: float | None = None
    _needs_y: ClassVar[bool] = True


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateFDA(ClassifierMixin, Groups):  # type: ignore[misc]
    """Fisher discriminant analysis with differential privacy: directions and a classifier, both from one release.

    The counterpart of scikit-learn's `LinearDiscriminantAnalysis`. The rule is made of released class means and
    scatter (`dpgep.Release.classifier`): it may be published as a whole.

    Parameters that are not listed are as in `dpgep.sklearn.base.Projection`. The rule uses all columns, also with
    ``sparsity``, and never mixes them (``precondition="full"``).

    Parameters
    ----------
    classes : sequence of labels, or "public", optional
        The public set of classes, as in `dpgep.fda`. Default: those that the type of ``y`` declares, or else the
        distinct labels, which become public, with a `dpgep.errors.PrivacyWarning`. Give them: then a label that is
        missing or none of them raises no error, which would tell that there is such a person.
    priors : sequence of numbers, optional
        Shares of the classes, in the order of ``classes_``. Default: those released.
    regularization : float, optional
        Added to the scatter within classes, for the directions. Default: chosen from released values.
    ridge : float, optional
        The same for the rule. Default: a public multiple of the noise.

    Attributes
    ----------
    classes_ : (C,), sorted.
    coef_, intercept_ : (C, d) and (C,) of the rule; for two classes (1, d) and (1,).
    priors_ : (C,), as used.
    classifier_ : `dpgep.results.classifiers.LinearClassifier`, which says more about the rule.
    """

    classes: Sequence[Hashable] | Literal["public"] | None = None
    priors: Sequence[float] | None = None
    ridge: float | None = None
    _build: ClassVar[Any] = staticmethod(fda)

    def _fit(self, X: Any, y: Any, people: dict[str, Any]) -> None:
        x = self._rows(X, y=y)
        labels, classes = self._labels(y)
        problem = self._problem(x, labels, classes=classes, **people)
        if problem.public.mixes_columns:
            raise ValueError('a rule is about columns, which this preprocessing would mix: use precondition="columns"')
        # all that may be wrong with parameters, before anything is spent
        PairOptions(**self._options()).check_model(problem.model, component_count(problem.model, self.n_components))
        priors: Literal["released"] | Sequence[float] = "released" if self.priors is None else self.priors
        class_priors(priors, np.ones(len(classes)))
        require_non_negative("ridge", 0.0 if self.ridge is None else self.ridge)
        moments: Release = release(problem, **self._terms())
        self.classifier_ = moments.classifier(ridge=self.ridge, priors=priors)
        self._keep(moments.solve(self.n_components, **self._options()))
        self.classes_, self.priors_ = label_array(classes), self.classifier_.priors
        weights, intercepts = self.classifier_.weights, self.classifier_.intercepts
        if len(classes) == 2:
            weights, intercepts = np.diff(weights, axis=0), np.diff(intercepts)
        self.coef_, self.intercept_ = weights, intercepts

    def decision_function(self, X: Any) -> Matrix:
        """Scores (n, C) of rows, the log of each class's posterior density up to a term of the row.

        Of two classes (n,), that of the second less that of the first, as scikit-learn has it.
        """
        rows = self._new_rows(X)
        scores = self.classifier_.decision_function(rows)
        return scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0]

    def predict(self, X: Any) -> NDArray[Any]:
        """The class (n,) of each row with the highest score: as private as the rows are."""
        rows = self._new_rows(X)  # refuses an estimator that is not fitted
        return self.classifier_.predict(rows)

    def predict_proba(self, X: Any) -> Matrix:
        """Probabilities (n, C) of the classes for rows that are Gaussian with one covariance within classes."""
        rows = self._new_rows(X)
        return self.classifier_.predict_proba(rows)

    def _labels(self, y: Any) -> tuple[Any, tuple[Hashable, ...]]:
        """Labels, and the classes in scikit-learn's order. Values are looked at only where they become public."""
        if (self.classes is None or isinstance(self.classes, str)) and declared_values(y) is None:
            form = {"input_name": "y", "dtype": None, "ensure_min_samples": fewest_rows(self.adjacency)}
            y = check_array(column_or_1d(y, warn=True), ensure_2d=False, **form)
            check_classification_targets(y)
        return y, tuple(sorted(public_classes(y, len(y), self.classes)))  # type: ignore[type-var]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateSIR(Groups):
    """Sliced inverse regression with differential privacy: `dpgep.sir`, solved from one release.

    ``slices``, ``y_range`` and ``edges`` are as in `dpgep.sir`: public, one of the last two must be given.
    ``regularization`` is added to the covariance (default: chosen from released values). All else is as in
    `dpgep.sklearn.base.Projection`.
    """

    slices: int = 10
    y_range: tuple[float, float] | None = None
    edges: Sequence[float] | None = None
    _build: ClassVar[Any] = staticmethod(sir)

    def _data(self, X: Any, y: Any) -> tuple[Any, ...]:
        x = self._rows(X, y=y)
        if getattr(getattr(y, "dtype", None), "kind", None) == "O":  # of numbers, or of nobody's: None is NaN
            with values_withheld("y"):
                y = np.asarray(y, dtype=np.float64)
        return x, y


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

    _centering: ClassVar[str] = 'the location of their column, missing="center"'

    def _fit(self, X: Any, y: Any, people: dict[str, Any]) -> None:
        auto = AutoPreprocessing(ranges=self.ranges or {}, missing=self.missing)
        facts: Any = {"adjacency": self.adjacency, "public_n": self.public_n, **people}
        problem = table_problem(self._rows(X), preprocessing=auto, **facts)
        run = Run.paid_by(problem, accounting="gdp", **self._terms())
        with run.reserved():
            found = run.location_and_scale()
        self.privacy_ = run.report
        run.warn_of_counted(self)
        assert found.scale is not None
        self.mean_ = found.location if self.with_mean else None
        self.scale_ = found.scale if self.with_std else None
        self.var_ = None if self.scale_ is None else self.scale_**2

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
