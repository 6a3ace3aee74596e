"""Correspondence analysis of categorical columns of a release, with numbers or without: what goes together.

Indicators of Q columns have shares p, numbers deviations s. With D = diag(p), or s^2, and C the released covariance of
them all, the eigenvectors v of

    S = D^-1/2 C D^-1/2,   S v = lambda v,   g = lambda^1/2 D^-1/2 v (of a number lambda^1/2 v),

have principal coordinates g: means of standardized scores over people of a category, and correlations of numbers with
scores. Without numbers lambda/Q are the principal inertias of the table of indicators. Within a column S is known: 1
across D^1/2 1. Of two columns noise has the variance v/2 a_i b_j in axes (i, j) of its own
(`dpgep.results.contingency`), and people add 1/n. An error E of S moves lambda^1/2 v to first order by
lambda^1/2 sum_l (v_l^T E v)/(lambda - lambda_l) v_l + (v^T E v)/(2 lambda^1/2) v.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep._checks import require_share
from dpgep._optional import data_frame
from dpgep._show import with_intervals
from dpgep.methods.eigen import leading_first
from dpgep.models.clipping import clipping_reach, longer_by
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, standardization_of, total_mean
from dpgep.results.columns import Answer, Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.contingency import Variables, categories_of

# Releases of columns that do not depend on each other, all of whose eigenvalues a dimension must exceed.
_NULL_DRAWS = 19
# Categories that are printed.
_SHOWN = 20
# Variance of an entry over samples of people, in 1/n: entries of columns that go together stray together.
_TOGETHER = 1.5
# Squared gaps between eigenvalues: what noise adds on average, and what is left at least, in variances of the noise;
# and what counts as a square at all.
_PUSHED, _LEAST_GAP, _ROOT = 8.0, 2.0, 1e-24


@dataclass(frozen=True, eq=False, repr=False)
class CorrespondenceAnalysis(Answer):
    """Correspondence analysis of Q categorical columns with J categories, and P numbers, in k dimensions.

    Attributes
    ----------
    columns : (Q,), names of the categorical columns; ``numbers`` (P,), of the others: none for `mca`.
    categories : (J,), as "column=category".
    shares : (J,), of people; noise may have made them negative.
    eigenvalues : (k,), of S; for `mca` of S/Q, principal inertias of the table of indicators: 1/Q without dependence.
        Noise may have made the last negative.
    coordinates : (J + P, k), of categories, principal ones, whose mean over people is 0 for each column; and of
        numbers, their correlations with the dimension.
    low, high : (J + P, k), ends of intervals of the population's coordinates, one by one, at ``level``: for the noise
        and the sampling of people, to first order. They are long where the next eigenvalue is near, and infinite where
        a dimension does not stand out.
    recommended : number of leading dimensions that stand out: larger than in any of 19 releases with as many people and
        as much noise, of columns that do not depend on each other.
    level : the probability that an interval covers its coordinate.
    """

    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    shares: Matrix
    eigenvalues: Matrix
    coordinates: Matrix
    low: Matrix
    high: Matrix
    recommended: int
    level: float

    _absence: ClassVar[str] = "correlations are drawn towards 0"

    @property
    def inertia_shares(self) -> Matrix:
        """(k,), eigenvalues over their sum, which is J - Q + P, or (J - Q)/Q for `mca`."""
        q = len(self.columns)
        total = len(self.categories) - q + len(self.numbers)
        return np.asarray(self.eigenvalues * (1 if self.numbers else q) / total)

    @property
    def corrected(self) -> Matrix:
        """(k,), (Q/(Q - 1) (lambda - 1/Q))^2, or 0 below 1/Q (Benzecri); of two columns, of their table.

        Raises ValueError where there are numbers.
        """
        if self.numbers:
            raise ValueError("corrected eigenvalues are of categories alone: use mca")
        q = len(self.columns)
        return np.asarray((q / (q - 1) * np.maximum(self.eigenvalues - 1 / q, 0.0)) ** 2)

    def to_frame(self) -> Any:
        """The coordinates as a pandas DataFrame, a row for each category and number."""
        names = [f"dimension {j}" for j in range(1, len(self.eigenvalues) + 1)]
        return data_frame(self.coordinates.copy(), [*self.categories, *self.numbers], names)

    def __repr__(self) -> str:
        k = len(self.eigenvalues)
        rows = [["", "share", *(f"dimension {j}" for j in range(1, k + 1))]]
        above = {"eigenvalue": self.eigenvalues} | ({} if self.numbers else {"corrected": self.corrected})
        for name, each in above.items():
            rows.append([name, "", *(f"{value:.4f}" for value in each)])
        names = [*self.categories, *self.numbers]
        shares = [*(f"{share:.3f}" for share in self.shares), *[""] * len(self.numbers)]
        for j, (name, share) in enumerate(zip(names[:_SHOWN], shares, strict=False)):
            rows.append([name, share, *with_intervals(self.coordinates[j], self.low[j], self.high[j], ".3f")])
        numbers = f" and {len(self.numbers)} number{'s' * (len(self.numbers) > 1)}" * bool(self.numbers)
        title = (
            f"Correspondence of {len(self.columns)} column{'s' * (len(self.columns) > 1)}, "
            f"{len(self.categories)} categories{numbers}, "
            f"{self.n_people:.0f} people; intervals at {self.level:.0%}, noise and sampling"
        )
        shown = self._printed(title, f"  {self.recommended} of {k} dimensions stand out of the noise", table=rows)
        left = len(names) - _SHOWN
        return shown + f"\n  ... {left} more" * (left > 0)


@on_one_thread_of_blas
def mca(
    release: ReleasedColumns, columns: Sequence[str] | None = None, *, n_components: int = 2, level: float = 0.9
) -> CorrespondenceAnalysis:
    """Multiple correspondence analysis of categorical columns (default: all); of two, correspondence analysis.

    Raises ValueError for fewer than two categorical columns, unknown ones, one twice, more dimensions than J - Q, and
    for ``missing="pairwise"``.
    """
    names = tuple(release._categories if columns is None else columns)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"mca needs at least two different categorical columns, got {', '.join(names) or 'none'}")
    return _analysis(release, names, np.empty(0, np.intp), n_components, level)


@on_one_thread_of_blas
def famd(
    release: ReleasedColumns, columns: Columns = None, *, n_components: int = 2, level: float = 0.9
) -> CorrespondenceAnalysis:
    """Factor analysis of mixed data: principal components of numbers, standardized, and of categories together.

    Default: of all columns. Raises ValueError without a number, without a categorical column, for unknown ones, one
    twice, more dimensions than J - Q + P, and for ``missing="pairwise"``.
    """
    asked = set(release._numbers(columns).tolist())
    names = tuple(name for name, group in release._categories.items() if group and asked >= set(group))
    numbers = np.array(sorted(asked.difference(*(release._categories[name] for name in names))), dtype=np.intp)
    if not (names and len(numbers)):
        raise ValueError("famd needs numbers and a categorical column: mca is of categories alone, pca of numbers")
    return _analysis(release, names, numbers, n_components, level)


def _analysis(
    release: ReleasedColumns, names: tuple[str, ...], numbers: NDArray[np.intp], n_components: int, level: float
) -> CorrespondenceAnalysis:
    require_share("level", level)
    found, noisy = categories_of(release, names, "correspondence analysis", numbers)
    q, p, mean = len(names), len(numbers), total_mean(noisy)
    to_axes, to_columns, same, noise = _axes(found, noisy, p)
    d, covariance = len(noise), noisy.second - np.outer(mean, mean)
    if not 1 <= n_components <= d:
        raise ValueError(f"n_components must be 1 to {d} for these columns, got {n_components}")

    def leading(of_columns: Matrix) -> tuple[Matrix, Matrix]:
        """Eigenvalues (d,) and vectors (d, d) of S, the largest first."""
        return leading_first(np.where(same, np.eye(d), to_axes @ of_columns @ to_axes.T))

    def coordinates_of(values: Matrix, vectors: Matrix) -> Matrix:
        """(J + P, k), the largest of each dimension positive."""
        scores = to_columns @ vectors[:, :n_components] * np.sqrt(np.maximum(values[:n_components], 0.0))
        return np.asarray(scores * np.sign(scores[np.abs(scores).argmax(axis=0), np.arange(n_components)]))

    def of_others(other: Matrix) -> Matrix:
        """Coordinates for the correlations of another covariance, with the signs of these."""
        variances = np.maximum(np.diagonal(covariance), 0.0)
        ratios = np.sqrt(variances / np.maximum(np.diagonal(other), 1e-300))
        moved = coordinates_of(*leading(other * np.outer(ratios, ratios)))
        return np.asarray(moved * np.where(np.sum(moved * coordinates, axis=0) < 0, -1.0, 1.0))

    people = (1.0 if noisy.clipping is None else noisy.clipping.people) / noisy.n
    values, vectors = leading(covariance)
    draws = np.random.default_rng(0).standard_normal((_NULL_DRAWS, d, d))
    independent = np.eye(d) + draws * np.where(same, 0.0, np.sqrt(noise + people))
    null = np.linalg.eigvalsh(independent)[:, ::-1][:, :n_components]
    coordinates = coordinates_of(values, vectors)
    errors = _errors(to_columns, coordinates, values, vectors, np.where(same, 0.0, noise + _TOGETHER * people))
    shares, divisors = (np.concatenate([getattr(each, of) for each in found]) for of in ("shares", "divisors"))
    of_shares = noisy.noise.sums**2 * np.concatenate([each.squares for each in found]) + divisors / noisy.n
    errors[: len(divisors)] += (coordinates[: len(divisors)] / divisors[:, None]) ** 2 * of_shares[:, None]
    half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(errors)
    recommended = int(np.cumprod(values[:n_components] > null.max(axis=0)).sum())
    half[:, recommended:] = np.inf  # noise may have made these dimensions
    reaches = clipping_reach(noisy.clipping, coordinates, covariance, of_others)
    below, above = (half + longer_by(half, reach, level) for reach in reaches)
    labels = tuple(f"{each}={label}" for each, of in zip(names, found, strict=True) for label in of.labels)
    of_columns = names, release._labels_of(numbers), labels, shares, values[:n_components] / (1 if p else q)
    estimates = coordinates, coordinates - below, coordinates + above
    known = {**release._known(noisy.n), "absent": release._absent and bool(p)}
    return CorrespondenceAnalysis(*of_columns, *estimates, recommended, level, **known)


def _axes(found: list[Variables], noisy: ReleasedMoments, p: int) -> tuple[Matrix, Matrix, NDArray[np.bool_], Matrix]:
    """Axes in which categories and p numbers have the unit variance, d = J - Q + P of them.

    (d, q), of mapped columns; (J + P, d), what makes coordinates of categories and numbers from vectors; (d, d), which
    axes are of one column; (d, d), variances of the noise of entries.
    """
    axes, scales = zip(*(each.whitened(noisy) for each in found), strict=True)
    standard, mean, noise = standardization_of(noisy), total_mean(noisy), noisy.noise
    known = ~standard.drowned & (standard.scale > 0)
    units = np.where(known, 1 / np.where(known, standard.scale, 1.0), 0.0)[len(mean) - p :]
    of_numbers = units**2 * (noise.second**2 / 2 + noise.sums**2 * mean[len(mean) - p :] ** 2)
    scale = np.concatenate([*(each * noise.second**2 / 2 for each in scales), of_numbers])
    of_axes = (
        axis.T @ (each.forms * each.restored / np.sqrt(each.divisors)[:, None])
        for axis, each in zip(axes, found, strict=True)
    )
    roots = np.concatenate([*(np.sqrt(each.divisors) for each in found), np.ones(p)])
    to_axes = scipy.linalg.block_diag(*of_axes, np.diag(units))
    to_columns = scipy.linalg.block_diag(*axes, np.eye(p)) / roots[:, None]
    same = scipy.linalg.block_diag(*(np.ones((len(each), len(each))) for each in scales), np.eye(p)) > 0
    return to_axes, to_columns, same, np.outer(scale, scale) / (noise.second**2 / 2 or 1.0)


def _errors(to_columns: Matrix, coordinates: Matrix, values: Matrix, vectors: Matrix, variances: Matrix) -> Matrix:
    """(J + P, k), squared errors, for independent errors E_ij = E_ji of these variances.

    And what they add to an eigenvalue on average, as an error.
    """
    errors = np.empty_like(coordinates)
    for j, vector in enumerate(vectors.T[: coordinates.shape[1]]):
        value = max(float(values[j]), 0.0)
        turns = _form_variances(vectors.T, vector, variances)
        # noise has pushed eigenvalues apart
        gaps = np.sqrt(np.maximum((value - values) ** 2 - _PUSHED * turns, _LEAST_GAP * turns) + _ROOT)
        gaps = np.copysign(gaps, value - values)
        gaps[j], turns[j] = 2 * value + _ROOT, 0.0
        moved = to_columns @ (vectors * (math.sqrt(value) / gaps)) @ vectors.T
        inflated = coordinates[:, j] * np.sum(turns / gaps) / gaps[j]
        errors[:, j] = _form_variances(moved, vector, variances) + inflated**2
    return errors


def _form_variances(left: Matrix, right: Matrix, variances: Matrix) -> Matrix:
    """(r,), variances of u^T E v for rows u of ``left`` and the vector v."""
    both = left * right
    return np.asarray(left**2 @ (variances @ right**2) + np.sum(both @ variances * both, axis=1))
