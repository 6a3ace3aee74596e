"""Factor analysis of released correlations: R = L F L^T + Psi, loadings L, factors of correlations F, Psi diagonal.

Least squares (minres, Harman and Jones 1966): the Psi that minimizes the squares of all but the k leading eigenvalues
of R - Psi, whose leading eigenvectors are the loadings before a rotation. Noise of a release has about the same size
in all entries of R, which is what least squares suit; a likelihood would need an R without negative eigenvalues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dpgep._checks import require_count, require_one_of, require_share
from dpgep._optional import data_frame
from dpgep.models.clipping import clipping_reach, longer_by
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, goe, standardization_of, total_mean
from dpgep.models.pairwise import require_no_pairs
from dpgep.models.plausible import bartlett, root_of
from dpgep.results.columns import Answer, Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.estimates import correlation_of

Rotation = Literal["varimax", "promax"]
# The least share of a variance that is a column's own.
_LEAST = 0.005
# Releases of columns without factors of which the largest eigenvalues count: 1 in 20 is above all of them.
_NULL_DRAWS = 19
_DRAWS = 80
# Change at which a fit, and a rotation, have converged, and most steps of each.
_CONVERGED, _MOST_STEPS = 1e-9, 1000
# The least part of the decrease that the gradient promises of a step, and rounding of squares.
_DECREASE, _ROUNDING = 1e-4, 1e-13
_POWER = 4  # of promax
# Public, and the same in every run: nothing about the data depends on it.
_SEED = 0x666163746F72


@dataclass(frozen=True, eq=False, repr=False)
class Factors(Answer):
    """What columns have in common: standardized column = loadings @ factors + its own part.

    Attributes
    ----------
    loadings : (d, k), in the order of the factors' sizes, the sum of each column of them positive.
    uniqueness : (d,), shares of the columns' variances that no factor explains, at least 0.005.
    factor_correlation : (k, k); the identity but for promax.
    eigenvalues : (d,), of the released correlations, the largest first.
    recommended : number of factors by parallel analysis: of eigenvalues above the ones of columns without factors, with
        as many people and the noise of the release (at a level of 5 % each).
    rotation : "varimax", "promax", or None for principal axes.
    names : of the columns; numbers as text where they have none.
    """

    loadings: Matrix
    uniqueness: Matrix
    factor_correlation: Matrix
    eigenvalues: Matrix
    recommended: int
    rotation: Rotation | None
    names: tuple[str, ...]
    _released: ReleasedMoments

    _absence: ClassVar[str] = "loadings are drawn towards 0"

    def intervals(self, level: float = 0.9) -> Matrix:
        """(d, k, 2), intervals that each hold a loading of the population: k factors, the same rotation.

        Of a parametric bootstrap: Gaussian people are drawn from these factors, the known noise is added, and the fit
        repeated; it takes 80 times as long as the question. They hold in part what clipping may have taken.
        """
        from scipy.special import ndtri

        require_share("level", level)
        generator, released = np.random.default_rng(_SEED), self._released
        truth = self.loadings @ self.factor_correlation @ self.loadings.T + np.diag(self.uniqueness)
        drawn = [self._refitted(_redrawn(released, truth, generator)) for _ in range(_DRAWS)]
        half = float(ndtri((1 + level) / 2)) * np.sqrt(np.mean((np.array(drawn) - self.loadings) ** 2, axis=0))
        mean = total_mean(released)
        restored = released.second - np.outer(mean, mean)
        reaches = clipping_reach(
            released.clipping, self.loadings, restored, lambda each: self._refitted(_standardized(each))
        )
        below, above = (half + longer_by(half, reach, level) for reach in reaches)
        return np.stack([self.loadings - below, self.loadings + above], axis=-1)

    def _refitted(self, correlation: Matrix) -> Matrix:
        """Loadings of other correlations, in the order and with the signs of these."""
        from scipy.optimize import linear_sum_assignment

        loadings, _ = _rotated(_minres(correlation, self.loadings.shape[1], self.uniqueness)[0], self.rotation)
        products = self.loadings.T @ loadings
        _, order = linear_sum_assignment(-np.abs(products))
        return np.asarray(loadings[:, order] * np.where(np.take_along_axis(products, order[:, None], 1) < 0, -1, 1).T)

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row for each column: its loadings and its uniqueness."""
        labels = [*(f"factor {k + 1}" for k in range(self.loadings.shape[1])), "uniqueness"]
        return data_frame(np.column_stack([self.loadings, self.uniqueness]), self.names, labels)

    def __repr__(self) -> str:
        k = self.loadings.shape[1]
        title = (
            f"{k} factor{'s' * (k != 1)} of {len(self.names)} columns, {self.n_people:.0f} people, "
            f"{self.rotation or 'no rotation'}; parallel analysis recommends {self.recommended}"
        )
        entries = ", ".join(f"{value:.2f}" for value in self.factor_correlation[np.triu_indices(k, 1)])
        between = [f"  correlations of the factors: {entries}"] * (k > 1 and self.rotation == "promax")
        numbers = np.column_stack([self.loadings, self.uniqueness])
        rows = [[name, *(f"{value:.3f}" for value in row)] for name, row in zip(self.names, numbers, strict=True)]
        heading = ["", *(f"factor {j + 1}" for j in range(k)), "uniqueness"]
        return self._printed(title, *between, table=[heading, *rows])


@on_one_thread_of_blas
def factors(
    release: ReleasedColumns,
    columns: Columns = None,
    n_factors: int | None = None,
    *,
    rotation: Rotation | None = "varimax",
) -> Factors:
    """Factors of columns by least squares; by default as many as parallel analysis recommends, and at least one.

    Rotations are as in R's ``factanal``: varimax of loadings of unit rows, and promax of power 4 after it. Raises
    ValueError for fewer than three columns, more factors than their correlations determine, (d - k)^2 < d + k, and
    ``missing="pairwise"``.
    """
    if rotation is not None:
        require_one_of("rotation", rotation, ("varimax", "promax"))
    features = release._numbers(columns)
    d = require_count("the number of columns", len(features), least=3)
    most = math.floor(d + (1 - math.sqrt(8 * d + 1)) / 2)
    require_no_pairs(release._of_everybody[0], "factors")
    noisy, _ = release._judged(features, sizes=False)
    correlation = correlation_of(noisy)
    eigenvalues: Matrix = np.asarray(np.linalg.eigvalsh(correlation)[::-1], dtype=np.float64)
    generator = np.random.default_rng(_SEED)
    null = np.array([np.linalg.eigvalsh(_redrawn(noisy, np.eye(d), generator))[::-1] for _ in range(_NULL_DRAWS)])
    recommended = int(np.cumprod(eigenvalues > null.max(axis=0)).sum())
    if n_factors is None:
        n_factors = min(max(recommended, 1), most)
    require_count("n_factors", n_factors, largest=most)
    found, uniqueness = _minres(correlation, n_factors, np.full(d, 0.5))
    loadings, between = _rotated(found, rotation)
    found_of = loadings, uniqueness, between, eigenvalues, recommended, rotation
    return Factors(*found_of, release._labels_of(features), noisy, **release._known(noisy.n))


def _redrawn(released: ReleasedMoments, truth: Matrix, generator: np.random.Generator) -> Matrix:
    """Correlations of a release like this one of Gaussian people with correlations ``truth``."""
    d, noise, standard = len(truth), released.noise, standardization_of(released)
    inverse = 1 / np.where(standard.scale > 0, standard.scale, 1.0)
    freedom = max(round(released.n / (1.0 if released.clipping is None else released.clipping.people)) - 1, 1)
    people = root_of(truth) @ bartlett(d, freedom, generator) / math.sqrt(freedom)
    mean, of_mean = total_mean(released) * inverse, noise.sums * generator.standard_normal(d) * inverse
    moved = np.outer(mean, noise.counts * generator.standard_normal() * mean - of_mean)
    return _standardized(
        people @ people.T + goe(d, noise.second, generator) * np.outer(inverse, inverse) + (moved + moved.T)
    )


def _standardized(covariance: Matrix) -> Matrix:
    scale = np.sqrt(np.maximum(np.diagonal(covariance), _LEAST * np.abs(np.diagonal(covariance)).max()))
    matrix: Matrix = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _minres(correlation: Matrix, k: int, start: Matrix) -> tuple[Matrix, Matrix]:
    """Loadings (d, k) on principal axes, and Psi (d,): by projected Newton steps, halved until squares become less.

    With V the eigenvectors of squares l_m^2 that count, P = V V^T, and the others v_j, the second derivatives are P o P
    + 2 sum_j v_j v_j^T o V diag(l_m/(l_m - l_j)) V^T; the first term alone, positive, serves where they are not.
    """
    psi, low = start, np.arange(len(start)) < len(start) - k

    def squares(psi: Matrix) -> tuple[float, Matrix, Matrix]:
        values, vectors = np.linalg.eigh(correlation - np.diag(psi))
        return float(np.sum(values[low | (values < 0)] ** 2)) / 2, values, vectors

    least, values, vectors = squares(psi)
    for _ in range(_MOST_STEPS):
        counted = low | (values < 0)
        v, w = vectors[:, counted], values[counted]
        gradient = -(v**2) @ w
        free = np.flatnonzero(np.where(gradient > 0, psi > _LEAST, psi < 1))
        if not (np.abs(gradient[free]) > _CONVERGED).any():
            break
        curved = np.zeros_like(correlation)
        for value, u in zip(values[~counted], vectors[:, ~counted].T, strict=True):  # or equal: no curvature
            curved += 2 * np.outer(u, u) * ((v * np.divide(w, w - value, out=np.zeros_like(w), where=w != value)) @ v.T)
        block, product = np.ix_(free, free), (v @ v.T) ** 2
        hessian = (product + curved)[block]
        if np.linalg.eigvalsh(hessian)[0] <= 0:
            hessian = product[block]
        step, share = np.zeros(len(psi)), 1.0
        step[free] = np.linalg.lstsq(hessian, -gradient[free], rcond=None)[0]
        while share > _CONVERGED:
            tried = np.clip(psi + share * step, _LEAST, 1.0)
            found, values, vectors = squares(tried)
            if found <= least * (1 + _ROUNDING) + _DECREASE * gradient @ (tried - psi):
                break
            share /= 2
        psi, least = tried, found
    return vectors[:, : -k - 1 : -1] * np.sqrt(np.maximum(values[: -k - 1 : -1], 0.0)), psi


def _rotated(loadings: Matrix, rotation: Rotation | None) -> tuple[Matrix, Matrix]:
    """Rotated loadings, in their order and with their signs, and the correlations of the factors."""
    turn = np.eye(loadings.shape[1])
    if rotation is not None:
        turn = _varimax(loadings)
    if rotation == "promax":
        target = loadings @ turn
        oblique = turn @ np.linalg.lstsq(target, target * np.abs(target) ** (_POWER - 1), rcond=None)[0]
        turn = oblique * np.sqrt(np.diagonal(np.linalg.pinv(oblique.T @ oblique)))
    turned, back = loadings @ turn, np.linalg.pinv(turn)
    order = np.argsort(-np.sum(turned**2, axis=0), kind="stable")
    signs = np.where(turned.sum(axis=0) < 0, -1.0, 1.0)[order]
    return turned[:, order] * signs, (back @ back.T)[np.ix_(order, order)] * np.outer(signs, signs)


def _varimax(loadings: Matrix) -> Matrix:
    """The rotation (k, k) for which the squares of loadings, of unit rows, vary most within factors (Kaiser 1958)."""
    lengths = np.linalg.norm(loadings, axis=1, keepdims=True)
    unit = loadings / np.where(lengths > 0, lengths, 1.0)
    turn, reached = np.eye(loadings.shape[1]), 0.0
    for _ in range(_MOST_STEPS):
        turned = unit @ turn
        u, sizes, v = np.linalg.svd(unit.T @ (turned**3 - turned * np.mean(turned**2, axis=0)))
        turn = u @ v
        if sizes.sum() <= reached * (1 + 1e-14):
            break
        reached = float(sizes.sum())
    return turn
