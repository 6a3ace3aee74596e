"""Discriminant analysis and sliced inverse regression as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from dpgep._checks import require_non_negative
from dpgep.data.groups import public_classes
from dpgep.methods.base import PairOptions, component_count
from dpgep.models.model import Matrix
from dpgep.problems.builders import fda, sir
from dpgep.results.classifier import class_priors, label_array
from dpgep.results.release import Release
from dpgep.sklearn.base import Components, options_of, values_withheld
from dpgep.solve import release, solve
from dpgep.sources import declared_values


@dataclass(kw_only=True, eq=False, repr=False)
class Groups(Components):
    """Directions in which groups of people differ."""

    regularization: float | None = None
    sparsity: int | Literal["auto"] | None = None

    def _options(self) -> dict[str, Any]:
        return options_of(regularization=self.regularization, sparsity=self.sparsity)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateFDA(ClassifierMixin, Groups):  # type: ignore[misc]
    """Fisher discriminant analysis with differential privacy: directions and a classifier, both from one release.

    The counterpart of scikit-learn's `LinearDiscriminantAnalysis`. The rule is made of released class means and
    scatter (`dpgep.Release.classifier`): it may be published as a whole.

    Parameters
    ----------
    n_components : int, optional
        K. Default: the smaller of classes - 1 and columns. They cost no privacy.
    classes : sequence of labels, or "public", optional
        The public set of classes, as in `dpgep.fda`. Default: those that the type of ``y`` declares, or else the
        distinct labels, which become public, with a `dpgep.PrivacyWarning`. Give them: then a label that is missing or
        none of them raises no error, which would tell that there is such a person.
    priors : sequence of numbers, optional
        Shares of the classes, in the order of ``classes_``. Default: those released.
    regularization : float, optional
        Added to the scatter within classes, for the directions. Default: chosen from released values.
    ridge : float, optional
        The same for the rule. Default: a public multiple of the noise.
    sparsity : int or "auto", optional
        Number of columns that components use; the rule uses all. Default: all.
    bound, preprocessing
        As in `dpgep.fda`; columns are never mixed (``precondition="full"``), since the rule is about columns.
    epsilon, delta, budget, share, adjacency, public_n, random_state
        As in `dpgep.sklearn.base.PrivateEstimator`: what a fit costs.

    Attributes
    ----------
    classes_ : (C,), sorted.
    coef_, intercept_ : (C, d) and (C,) of the rule; for two classes (1, d) and (1,).
    priors_ : (C,), as used.
    classifier_ : `dpgep.results.classifier.LinearClassifier`, which says more about the rule.
    """

    classes: Sequence[Hashable] | Literal["public"] | None = None
    priors: Sequence[float] | None = None
    ridge: float | None = None

    def fit(self, X: Any, y: Any = None) -> PrivateFDA:
        """Spend the budget on class means and scatter of the rows X (n, d) with labels y (n,), a person each."""
        x = self._rows(X, y=y)
        labels, classes = self._labels(y)
        problem = fda(x, labels, classes=classes, **self._described())
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
        self.coef_, self.intercept_ = (
            (weights, intercepts) if len(classes) > 2 else (np.diff(weights, axis=0), np.diff(intercepts))
        )
        return self

    def decision_function(self, X: Any) -> Matrix:
        """Scores (n, C) of rows, the log of each class's posterior density up to a term of the row.

        Of two classes (n,), that of the second less that of the first, as scikit-learn has it.
        """
        rows = self._new_rows(X)
        scores = self.classifier_.decision_function(rows)
        return scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0]

    def predict(self, X: Any) -> NDArray[Any]:
        """The class (n,) of each row with the highest score: as private as the rows are."""
        rows = self._new_rows(X)
        return self.classifier_.predict(rows)

    def predict_proba(self, X: Any) -> Matrix:
        """Probabilities (n, C) of the classes for rows that are Gaussian with one covariance within classes."""
        rows = self._new_rows(X)
        return self.classifier_.predict_proba(rows)

    def _labels(self, y: Any) -> tuple[Any, tuple[Hashable, ...]]:
        """Labels, and the classes in scikit-learn's order. Values are looked at only where they become public."""
        if (self.classes is None or isinstance(self.classes, str)) and declared_values(y) is None:
            y = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=None, input_name="y", **self._people())
            check_classification_targets(y)
        return y, tuple(sorted(public_classes(y, len(y), self.classes)))  # type: ignore[type-var]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateSIR(Groups):
    """Sliced inverse regression with differential privacy: `dpgep.sir`, solved from one release.

    Parameters
    ----------
    n_components : int, optional
        K. Default: the smaller of slices - 1 and columns. They cost no privacy.
    slices, y_range, edges
        As in `dpgep.sir`: public, ``y_range`` or ``edges`` must be given.
    regularization : float, optional
        Added to the covariance. Default: chosen from released values.
    sparsity : int or "auto", optional
        Number of columns that components use. Default: all.
    bound, preprocessing
        As in `dpgep.sir`.
    epsilon, delta, budget, share, adjacency, public_n, random_state
        As in `dpgep.sklearn.base.PrivateEstimator`: what a fit costs.
    """

    slices: int = 10
    y_range: tuple[float, float] | None = None
    edges: Sequence[float] | None = None

    def fit(self, X: Any, y: Any = None) -> PrivateSIR:
        """Spend the budget on the directions of X (n, d) that the response y (n,) depends on, a person each."""
        x = self._rows(X, y=y)
        cuts: dict[str, Any] = {"slices": self.slices, "y_range": self.y_range, "edges": self.edges}
        if getattr(getattr(y, "dtype", None), "kind", None) == "O":  # of numbers, or of nobody's: None is NaN
            with values_withheld("y"):
                y = np.asarray(y, dtype=np.float64)
        problem = sir(x, y, **cuts, **self._described())
        self._keep(solve(problem, n_components=self.n_components, **self._terms(), **self._options()))
        return self
