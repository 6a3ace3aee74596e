"""Rules of released class means and covariances: classifiers that are private as a whole.

Linear, with released class means m_c, the mean m of all, d_c = m_c - m, and the scatter W within classes:

    score_c(z) = (z - m)^T W_r^-1 d_c - (d_c^T W_r^-1 d_c - bias_c)/2 + log pi_c,    W_r = W_+ + ridge I,

for mapped rows z (`Preprocessing.map`, but for the bound), in which the noise is the same in all directions; weights
are then brought to the units of the columns. bias_c is the part of the square that the noise in d_c adds.

Quadratic, with C_c the covariance of a class, both as they may have been before the noise:

    score_c(z) = -(z - m_c)^T K_c^-1 (z - m_c)/2 - log det K_c/2 + log pi_c,   K_c = (1 - t_c) C_c + t_c W + xi_c I.

What the noise hides of C_c is taken from W: t_c is the expected square of the noise in C_c over that of C_c - W, at
most 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep._checks import quoted, require_non_negative, require_positive
from dpgep.methods.ridge import public_ridge
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, effective_counts, group_factors, total_mean, total_share
from dpgep.models.preprocessing import Preprocessing, location_and_scale
from dpgep.reports.report import PrivacyReport
from dpgep.results.columns import Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.group_directions import Groups
from dpgep.results.solution import absent_values, new_rows
from dpgep.sources.names import Names, listed

# Deviations by which the square of a contrast must exceed what noise alone shows. More would silence weak classes,
# fewer let empty ones win rows: measured on digits, with classes that nobody is in.
_SHOWN = 1.0
# The share of a class's covariance that is that of all from which on it is said to be in the noise.
_DROWNED = 0.5

Priors: TypeAlias = Literal["released"] | Sequence[float]


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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class QuadraticClassifier(Classifier):
    """argmax_c intercept_c - |(x - mean_c) root_c|^2/2: quadratic discriminant analysis, a covariance a class.

    Attributes
    ----------
    means : (C, d), in the units of the columns.
    roots : (C, d, d), of inverse covariances: K_c^-1 = root_c root_c^T, in these units.
    shrunk : (C,), the part of each covariance that is that within all classes, for the noise in its own.
    """

    means: Matrix
    roots: Matrix
    shrunk: Matrix

    @property
    def _n_features(self) -> int:
        return int(self.means.shape[1])

    def _scores(self, rows: Any) -> Matrix:
        rows = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)
        parts = zip(self.means, self.roots, strict=True)
        return np.column_stack([-(((rows - mean) @ root) ** 2).sum(axis=1) / 2 for mean, root in parts])

    def _drowned(self) -> list[Hashable]:
        return [label for label, part in zip(self.classes, self.shrunk, strict=True) if part > _DROWNED]


@on_one_thread_of_blas
def classifier(
    release: ReleasedColumns, columns: Columns = None, *, ridge: float | None = None, priors: Priors = "released"
) -> LinearClassifier:
    """The linear rule of the released class means and scatter of columns: private as a whole (docs/classifier.md).

    ``ridge`` is added to the eigenvalues of the scatter W, in the units of mapped rows: by default a public multiple of
    the noise level of W; without noise 0, and directions in which W is singular are left out. ``priors`` are the
    released shares of the classes, or positive numbers, divided by their sum. Raises ValueError for a release without
    classes, a negative ridge, or priors that are not one positive number for each class.
    """
    classes, features = release._classes(), release._numbers(columns)
    released, preprocessing = release._moments_of(features, grouped=True)
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
    weights = mapped / location_and_scale(preprocessing, len(mean))[1]
    centre = mean if preprocessing is None else preprocessing.mean(mean)
    return LinearClassifier(
        classes=classes,
        weights=weights,
        intercepts=np.log(shares) - (squares - by_chance) * shown / 2 - weights @ centre,
        priors=shares,
        regularization=xi,
        shown=shown,
        **_known(release, features, preprocessing),
    )


@on_one_thread_of_blas
def quadratic_classifier(
    release: ReleasedColumns, columns: Columns = None, *, ridge: float | None = None, priors: Priors = "released"
) -> QuadraticClassifier:
    """Quadratic discriminant analysis of the classes of a release by group: private as a whole, without error bars.

    Without noise it is scikit-learn's rule, of covariances divided by numbers of people. ``ridge`` is added to their
    eigenvalues, in the units of mapped rows: by default a public multiple of the noise that is left in each. ``priors``
    are the released shares of classes, or positive numbers. Raises ValueError for a release that is not by group, or of
    slices, a negative ridge, priors that are not one positive number for each class, and, without noise or a ridge, for
    a class whose columns are linearly dependent.
    """
    classes, features = release._classes(), release._numbers(columns)
    noisy, mapped = release._groups_alone(classes, features)
    groups, counts, d = Groups.of(noisy), effective_counts(noisy), len(features)
    covariances, within = groups.covariances, groups.mixed(groups.shares)
    deviations = noisy.noise.second / counts
    apart = np.square(covariances - within).sum(axis=(1, 2))
    shrunk = np.minimum(d * (d + 1) / 2 * deviations**2 / np.maximum(apart, 1e-300), 1.0)
    covariances = covariances + shrunk[:, None, None] * (within - covariances)
    if ridge is not None:
        require_non_negative("ridge", ridge)
    left = np.hypot((1 - shrunk) * deviations, shrunk * float(np.linalg.norm(groups.shares * deviations)))
    xi = np.array([public_ridge(np.sqrt(2 * d) * each) if ridge is None else float(ridge) for each in left])
    values, axes = np.linalg.eigh(covariances)
    values = np.maximum(values, 0.0) + xi[:, None]
    for label, least, largest in zip(classes, values[:, 0], values[:, -1], strict=True):
        if least <= d * np.finfo(float).eps * largest:
            raise ValueError(
                f"columns of class {quoted(label)} are linearly dependent: leave some out, or give a ridge"
            )
    location, scale = location_and_scale(mapped, d)
    roots, means = axes / np.sqrt(values)[:, None] / scale[:, None], groups.means * scale + location
    shares = class_priors(priors, counts)
    return QuadraticClassifier(
        classes=classes,
        means=means,
        roots=roots,
        shrunk=shrunk,
        intercepts=np.log(shares) - np.log(values).sum(axis=1) / 2,
        priors=shares,
        regularization=float(xi.max()),
        **_known(release, features, mapped),
    )


def _known(release: ReleasedColumns, features: NDArray[np.intp], preprocessing: Preprocessing | None) -> dict[str, Any]:
    """What a rule knows of its columns; `Preprocessing.map` cuts entries off at the limits."""
    known = {"privacy": release.report, "feature_names": release._names_of(features)}
    if preprocessing is None:
        return known
    location, scale = location_and_scale(preprocessing, len(features))
    limits = location - preprocessing.largest * scale, location + preprocessing.largest * scale
    return {**known, "limits": limits, "absent": absent_values(preprocessing, len(features))}


def label_array(classes: Sequence[Hashable]) -> NDArray[Any]:
    """Labels as an array: of their type where all have one that NumPy knows, else of objects."""
    types = {type(label) for label in classes}
    if len(types) == 1 and issubclass(next(iter(types)), (int, float, str, np.generic)):
        return np.array(list(classes))
    return np.fromiter(classes, dtype=object, count=len(classes))  # `np.array` would take labels apart that are tuples


def within_covariance(released: ReleasedMoments) -> Matrix:
    """Covariance W of mapped rows around the means of their groups, noisy: it may have negative eigenvalues."""
    factors, weights = group_factors(released)
    return np.asarray((released.second - (factors.T * weights) @ factors) / total_share(released))


def class_priors(priors: Priors, counts: Matrix) -> Matrix:
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
