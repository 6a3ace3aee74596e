"""The quadratic rule of released means and covariances of classes: a classifier that is private as a whole.

score_c(z) = -(z - m_c)^T K_c^-1 (z - m_c)/2 - log det K_c/2 + log pi_c,   K_c = (1 - t_c) C_c + t_c W + xi_c I,

with C_c the covariance of a class, W that within all classes, both as they may have been before the noise. What the
noise hides of C_c is taken from W: t_c is the expected square of the noise in C_c over that of C_c - W, at most 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpgep._checks import quoted, require_non_negative
from dpgep.methods.ridge import public_ridge
from dpgep.models.model import Matrix
from dpgep.models.moments import effective_counts
from dpgep.results.classifier import Classifier, class_priors, cut_off
from dpgep.results.columns import Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.group_directions import Groups
from dpgep.results.solution import absent_values

# The share of a class's covariance that is that of all from which on it is said to be in the noise.
_DROWNED = 0.5


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
def quadratic_classifier(
    release: ReleasedColumns,
    columns: Columns = None,
    *,
    ridge: float | None = None,
    priors: Literal["released"] | Sequence[float] = "released",
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
    roots, means = axes / np.sqrt(values)[:, None], groups.means
    if mapped is not None:
        roots = roots if mapped.linear is None else mapped.linear @ roots
        roots = roots if mapped.scale is None else roots / mapped.scale[:, None]
        means = np.stack([mapped.mean(mean) for mean in means])
    shares = class_priors(priors, counts)
    return QuadraticClassifier(
        classes=tuple(classes),
        means=means,
        roots=roots,
        shrunk=shrunk,
        intercepts=np.log(shares) - np.log(values).sum(axis=1) / 2,
        priors=shares,
        regularization=float(xi.max()),
        privacy=release.report,
        feature_names=release._names_of(features),
        absent=absent_values(mapped, d),
        limits=cut_off(mapped, d),
    )
