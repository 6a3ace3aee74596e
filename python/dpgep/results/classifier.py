"""The linear rule of released class means and scatter: a classifier that is private as a whole."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep._checks import require_non_negative, require_positive
from dpgep.methods.ridge import public_ridge
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, effective_counts, group_factors, total_mean, total_share
from dpgep.models.preprocessing import Preprocessing
from dpgep.reports.report import PrivacyReport
from dpgep.results.solution import absent_values, new_rows
from dpgep.sources.names import Names, listed

# Deviations by which the square of a contrast must exceed what noise alone shows. More would silence weak classes,
# fewer let empty ones win rows: measured on digits, with classes that nobody is in.
_SHOWN = 1.0


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Classifier(ABC):
    """A rule from released values alone: the class of the highest score.

    The whole rule is covered by the guarantee, unlike one that was trained on rows after a private projection: it may
    be published, and rows of anybody may be classified. A prediction is no more private than its row.

    Attributes
    ----------
    classes : the C public classes.
    intercepts : (C,), of the scores, log priors included.
    priors : (C,), shares of the classes: those released, or as given.
    regularization : what was added to the eigenvalues of covariances within classes, in the units of mapped rows.
    privacy : PrivacyReport of the release.
    feature_names : names of the columns; None where the data have none.
    absent : (d,), what absent values (NaN) count as; None where they are not expected.
    limits : lowest and highest values (d,) of the columns: values beyond are cut off, as they were in the release. A
        column that hardly varied there has a small scale, and a value far from it would decide alone.
    """

    classes: tuple[Hashable, ...]
    intercepts: Matrix
    priors: Matrix
    regularization: float
    privacy: PrivacyReport
    feature_names: Names = None
    absent: Matrix | None = None
    limits: tuple[Matrix, Matrix] | None = None

    def decision_function(self, X: Any) -> Matrix:
        """Scores (n, C) of rows, the log of each class's posterior density up to a term of the row.

        Two classes have two columns, unlike in scikit-learn. Columns of a table must be those of the release, in its
        order: ValueError names those that are not. An array needs as many columns.
        """
        rows = new_rows(X, self._n_features, self.absent, self.feature_names, "X")
        if self.limits is not None:
            rows = np.clip(rows.toarray() if hasattr(rows, "toarray") else rows, *self.limits)
        return self._scores(rows) + self.intercepts

    def predict(self, X: Any) -> NDArray[Any]:
        """The class (n,) of each row with the highest score."""
        return np.asarray(label_array(self.classes)[self.decision_function(X).argmax(axis=1)])

    def predict_proba(self, X: Any) -> Matrix:
        """Probabilities (n, C) of the classes for rows that are Gaussian within classes, as the rule assumes.

        Noise, the ridge against it, and rows of another distribution all bias them: where noise is large they say
        which rows are surer than others, not how sure.
        """
        scores = self.decision_function(X)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    @property
    @abstractmethod
    def _n_features(self) -> int: ...

    @abstractmethod
    def _scores(self, rows: Any) -> Matrix:
        """(n, C), without intercepts."""

    @abstractmethod
    def _drowned(self) -> list[Hashable]:
        """Classes that the noise hides."""

    def __repr__(self) -> str:
        lines = [
            f"{type(self).__name__} of {len(self.classes)} classes in {self._n_features} features",
            f"  privacy      {self.privacy}",
            f"  ridge        {self.regularization:.3g}",
            f"  classes      {listed(self.classes, math.inf)}",
        ]
        if drowned := self._drowned():
            lines.append(f"  in the noise {listed(drowned)}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LinearClassifier(Classifier):
    """argmax_c weights_c . x + intercept_c: linear discriminant analysis, of one covariance within classes.

    Attributes
    ----------
    weights : (C, d), in the units of the columns.
    shown : (C,), whether the mean of a class stands out of the noise. A class where it does not is taken to lie at the
        mean of all: it wins only where no other class is likelier than its prior.
    """

    weights: Matrix
    shown: NDArray[np.bool_]

    @property
    def _n_features(self) -> int:
        return int(self.weights.shape[1])

    def _scores(self, rows: Any) -> Matrix:
        return np.asarray(rows @ self.weights.T, dtype=np.float64)

    def _drowned(self) -> list[Hashable]:
        return [label for label, shown in zip(self.classes, self.shown, strict=True) if not shown]


def classifier(
    released: ReleasedMoments,
    preprocessing: Preprocessing | None,
    classes: Sequence[Hashable],
    privacy: PrivacyReport,
    *,
    ridge: float | None = None,
    priors: Literal["released"] | Sequence[float] = "released",
    feature_names: Names = None,
) -> LinearClassifier:
    """Linear discriminant analysis of a release.

    With released class means m_c, the mean m of all, d_c = m_c - m, and the scatter W within classes,

        score_c(z) = (z - m)^T W_r^-1 d_c - (d_c^T W_r^-1 d_c - bias_c)/2 + log pi_c,    W_r = W_+ + ridge I,

    for mapped rows z (`Preprocessing.map`, but for the bound), in which the noise is the same in all directions;
    weights are then brought to the units of the columns. bias_c is the part of the square that the noise in d_c adds.
    All of it is post-processing: see `Release.classifier` for ``ridge`` and ``priors``. Moments are of groups, one for
    each of the ``classes``, with the second moment of all together.
    """
    counts, mean, share = effective_counts(released), total_mean(released), total_share(released)
    contrasts = released.sums / counts - mean[:, None]
    # the variance of the noise in each entry of S_c/n_c - sum_g S_g/share
    own, others = 1 / counts - 1 / share, (len(counts) - 1) / share**2
    noise = released.noise.sums**2 * (own**2 + others)
    values, vectors = scipy.linalg.eigh(within_covariance(released), check_finite=False)
    xi = public_ridge(released.second_noise_level) if ridge is None else float(ridge)
    require_non_negative("ridge", xi)
    sizes = np.maximum(values, 0.0) + xi
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > released.rounding)
    rotated = vectors.T @ contrasts
    squares, by_chance = inverse @ rotated**2, noise * inverse.sum()
    shown = squares >= by_chance + _SHOWN * noise * math.sqrt(2 * float(np.sum(inverse**2)))
    mapped = (vectors @ (inverse[:, None] * rotated * shown)).T
    shares = class_priors(priors, counts)
    weights, centre = mapped, mean
    if preprocessing is not None:
        scale = np.ones(len(mean)) if preprocessing.scale is None else preprocessing.scale
        weights = (mapped if preprocessing.linear is None else mapped @ preprocessing.linear.T) / scale
        centre = preprocessing.mean(mean)
    return LinearClassifier(
        classes=tuple(classes),
        weights=weights,
        intercepts=np.log(shares) - (squares - by_chance) * shown / 2 - weights @ centre,
        priors=shares,
        regularization=xi,
        shown=shown,
        privacy=privacy,
        feature_names=feature_names,
        absent=absent_values(preprocessing, len(mean)),
        limits=cut_off(preprocessing, len(mean)),
    )


def cut_off(preprocessing: Preprocessing | None, d: int) -> tuple[Matrix, Matrix] | None:
    """Where `Preprocessing.map` cuts entries off, in the units of the columns."""
    if preprocessing is None:
        return None
    scale = np.ones(d) if preprocessing.scale is None else preprocessing.scale
    location = np.zeros(d) if preprocessing.location is None else preprocessing.location
    return location - preprocessing.largest * scale, location + preprocessing.largest * scale


def label_array(classes: Sequence[Hashable]) -> NDArray[Any]:
    """Labels as an array: of their type where all have one that NumPy knows, else of objects."""
    types = {type(label) for label in classes}
    if len(types) == 1 and issubclass(next(iter(types)), (int, float, str, np.generic)):
        return np.array(list(classes))
    labels = np.empty(len(classes), dtype=object)
    for number, label in enumerate(classes):
        labels[number] = label  # a slice would take labels that are tuples apart
    return labels


def within_covariance(released: ReleasedMoments) -> Matrix:
    """Covariance W of mapped rows around the means of their groups, noisy: it may have negative eigenvalues."""
    factors, weights = group_factors(released)
    return np.asarray((released.second - (factors.T * weights) @ factors) / total_share(released))


def class_priors(priors: Literal["released"] | Sequence[float], counts: Matrix) -> Matrix:
    """Shares of the classes: those released, or numbers that the caller gave, over their sum."""
    if isinstance(priors, str):
        if priors != "released":
            raise ValueError(f'priors must be "released" or a positive number for each class, got {priors!r}')
        return np.asarray(counts / counts.sum())
    if len(priors) != len(counts):
        raise ValueError(f"priors must have one number for each of the {len(counts)} classes, got {len(priors)}")
    for prior in priors:
        require_positive("each of priors", prior)
    shares = np.asarray(priors, dtype=np.float64)
    return np.asarray(shares / shares.sum())
