"""Intervals that cover both the noise of a release and the chance that made n people the people of the data.

A parametric bootstrap of moments. The truth is taken to be what the released moments may have been before the noise
(`plausible_truth`), its leading eigenvalues those released, with their repulsion undone (`before_noise`). The release
is then repeated from its beginning: people are drawn from the truth, noise of the known law is added, the pair is
solved with the same ridge, and the same estimator is applied. An interval is the estimate less quantiles of its error.

Eigenvalues of the truth are shaken by their own uncertainty in each draw. Otherwise the gaps between them would pass
for known: angles would be too small, and of two that are close by chance the larger would seem too sure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy  # its special functions are loaded when they are used

from dpgep._checks import require_one_of, require_share
from dpgep.methods.accuracy import before_noise
from dpgep.methods.eigen import Eigensystem, solve_pair
from dpgep.models.model import Matrix, MatrixPencil
from dpgep.models.moments import (
    MomentModel,
    PlausibleMoments,
    ReleasedMoments,
    goe,
    mean_factor,
    with_eigenvalues,
)

RowLaw = Literal["gaussian", "bounded"]

# Released moments of at most so many features are kept with a solution.
MOST_FEATURES = 200
# Draws that show how the noise mixes solutions, and those of the bootstrap itself: fewer of large matrices.
_MIXING_DRAWS = 40
_FEWEST_DRAWS, _MOST_DRAWS, _DRAWS_TIMES_SQUARE = 79, 199, 199 * 60**2
# Public, and the same in every run: nothing about the data depends on it.
_SEED = 0x70656F706C65


@dataclass(frozen=True, eq=False, repr=False)
class Intervals:
    """Of the eigenvalues and components of a solution, against those of the population that the people come from.

    Attributes
    ----------
    level : probability with which each interval, and each angle, holds.
    rows : "gaussian" or "bounded": what was assumed of the people.
    estimates : (K,), eigenvalues with the bias taken back that noise and the sampling of people give them.
    eigenvalues : (K, 2), low and high ends; in the units of ``solution.eigenvalues``.
    angles : (K,), degrees. The angle between the released component and that of the population, in the norm of B (of
        scores), is at most this; 90: it may be any.
    lost : (K,), whether noise alone could show the component. Of its eigenvalue the interval then says little more than
        how large it may be.
    """

    level: float
    rows: RowLaw
    estimates: Matrix
    eigenvalues: Matrix
    angles: Matrix
    lost: tuple[bool, ...]

    def __repr__(self) -> str:
        lines = [
            f"Intervals at level {self.level:g}, rows {self.rows}: noise and sampling of people",
            "    k    estimate         low        high  angle (degrees) at most",
        ]
        for row, (estimate, (low, high), angle, lost) in enumerate(
            zip(self.estimates, self.eigenvalues, self.angles, self.lost, strict=True)
        ):
            why = " (lost: noise alone could produce it)" if lost else ""
            lines.append(f"  {row + 1:3d}  {estimate:10.4g}  {low:10.4g}  {high:10.4g}  {angle:.3g}{why}")
        return "\n".join(lines)


def require_law(level: float, rows: str) -> None:
    """Raise ValueError unless the level lies between 0 and 1 and the law of the rows is known."""
    require_share("level", level)
    require_one_of("rows", rows, ("gaussian", "bounded"))


def bootstrap_intervals(
    model: MomentModel,
    released: ReleasedMoments,
    regularization: float,
    lost: tuple[bool, ...],
    bound: float,
    level: float,
    rows: RowLaw,
) -> Intervals:
    """Intervals of the leading solutions of a released pair, solved with this ridge; ``bound`` is that of the rows.

    Everything is in the coordinates of the release. Leaves ``released`` as it is.
    """
    k, found = len(lost), lost.index(True) if True in lost else len(lost)
    values = solved(model.pair(_copy(released)), regularization).values
    truth = model.plausible_population(released)
    people = _People(truth.moments, bound if rows == "bounded" else None)
    generator = np.random.default_rng(_SEED)
    right = solved(truth.pair(), 0.0)
    count = min(len(values), len(right.values))  # a B that noise made singular has fewer
    values = values[:count]
    mixing = _mixing(truth, people, right, generator)[:count, :count]
    estimates = before_noise(values, mixing)
    deviations = np.sqrt(np.diagonal(mixing))
    # all eigenvalues of a covariance are its own; elsewhere those that are not signal stay as they were
    kept = count if model.identity_b and not model.first_view_size else min(max(found, 1), count)
    shaken = np.where(np.arange(kept) < found, deviations[:kept], 0.0)
    draws = int(np.clip(_DRAWS_TIMES_SQUARE / model.n_features**2, _FEWEST_DRAWS, _MOST_DRAWS))
    errors, angles = np.empty((draws, k)), np.empty((draws, k))
    for draw in range(draws):
        shifted = estimates[:kept] + shaken * generator.standard_normal(kept)
        wanted = np.clip(np.sort(shifted)[::-1], 0.0, _below(model.largest_eigenvalue))
        moments = with_eigenvalues(model, truth.moments, right.vectors[:, :kept], right.values[:kept], wanted)
        one = replace(truth, moments=_People(moments, people.bound).drawn(generator))
        system = solved(one.noisy_pair(generator), regularization)
        drawn = before_noise(_padded(system.values, count), mixing)
        target = np.append(wanted, right.values[kept:])[:k]
        errors[draw] = drawn[:k] - target
        angles[draw] = _angles(truth, moments, right, system, k)
    return _pivoted(model, values, estimates, deviations, errors, angles, lost, level, rows)


def _pivoted(
    model: MomentModel,
    values: Matrix,
    estimates: Matrix,
    deviations: Matrix,
    errors: Matrix,
    angles: Matrix,
    lost: tuple[bool, ...],
    level: float,
    rows: RowLaw,
) -> Intervals:
    """Estimates less the quantiles of their errors, at least as wide as first order makes them."""
    n_draws, k = errors.shape
    tail = int((n_draws + 1) * (1 - level) / 2)
    ordered = np.sort(errors, axis=0)
    centred = estimates[:k] - errors.mean(axis=0)
    reach = deviations[:k] * float(scipy.special.ndtri((1 + level) / 2))
    low = np.minimum(estimates[:k] - ordered[n_draws - max(tail, 1)], centred - reach)
    high = np.maximum(estimates[:k] - ordered[max(tail, 1) - 1], centred + reach)
    found = lost.index(True) if True in lost else k
    rest = values[found:]
    if found < k and len(rest):
        least = model.centre(rest) - (high[found:] - low[found:]) / 2 / math.sqrt(len(rest))
        low[found:] = np.minimum(low[found:], least)
    # a correction counts as far as it is sure: one within the error of the eigenvalue would add more than it corrects
    correction = values[:k] - centred
    with np.errstate(invalid="ignore"):
        weight = np.nan_to_num(correction**2 / (correction**2 + deviations[:k] ** 2))
    limits = 0.0, model.largest_eigenvalue
    turned = np.sort(angles, axis=0)[min(math.ceil((n_draws + 1) * level), n_draws) - 1]
    turned[found:] = 90.0
    return Intervals(
        level,
        rows,
        np.clip(values[:k] - weight * correction, *limits),
        np.clip(np.column_stack([low, high]), *limits),
        turned,
        lost,
    )


@dataclass(frozen=True, eq=False)
class _People:
    """A population with these moments: Gaussian rows, or (``bound`` given) any rows within it.

    The scatter within groups strays as that of Gaussian rows, by T - I with T of Wishart's law between roots of the
    covariance; or, along its principal axes u and v, by as much as the bound on rows allows at most: with
    |u.x||v.x| <= b^2 (|u||v| + |u.v|)/2, Var(u.x v.x) <= b^2 (|u||v| + |u.v|)/2 sqrt(u^T C u v^T C v).
    """

    moments: ReleasedMoments
    bound: float | None

    def drawn(self, generator: np.random.Generator) -> ReleasedMoments:
        """Moments of as many people as there were."""
        m = self.moments
        shares, people = m.counts if m.sums.size else np.ones(1), max(round(m.n), 2)
        if len(shares) > 1:
            left = max(1 - float(shares.sum()), 0.0)
            numbers = generator.multinomial(people, np.append(shares, left) / (shares.sum() + left))[:-1]
        else:
            numbers = np.full(1, people)
        means = m.sums / shares if m.sums.size else np.zeros((len(m.second), 1))
        within = m.second - (means * shares) @ means.T
        root = _root(within)
        if m.sums.size:
            strays = root @ generator.standard_normal(m.sums.shape)
            means = means + strays / np.sqrt(np.maximum(numbers, 1))
        drawn_shares = numbers / people
        scatter = self._scatter(within, root, int(numbers.sum()), len(shares) * bool(m.sums.size), generator)
        total = float(numbers.sum()) / people
        return replace(
            m,
            second=scatter * total + (means * drawn_shares) @ means.T,
            sums=means * drawn_shares if m.sums.size else m.sums,
            counts=drawn_shares if len(shares) > 1 else m.counts,
        )

    def _scatter(
        self, within: Matrix, root: Matrix, people: int, lost_freedom: int, generator: np.random.Generator
    ) -> Matrix:
        """Scatter of people around the means of their groups, divided by their number."""
        d, freedom = len(within), max(people - lost_freedom, 1)
        if self.bound is None:
            factor = root @ _bartlett(d, freedom, generator)
            return np.asarray(factor @ factor.T / max(people, 1))
        values, vectors = np.linalg.eigh(within)
        quarter = vectors * np.maximum(values, 0.0) ** 0.25
        mean = float(np.linalg.norm(mean_factor(self.moments)))
        reach = self.bound + mean
        stray = quarter @ goe(d, math.sqrt(2 / freedom), generator) @ quarter.T
        return np.asarray(within + reach / math.sqrt(2) * stray)


def _bartlett(d: int, freedom: int, generator: np.random.Generator) -> Matrix:
    """T with T T^T of Wishart's law with the identity; the factors of ``freedom`` rows where those are fewer."""
    if freedom <= d:
        return generator.standard_normal((d, freedom))
    factor = np.tril(generator.standard_normal((d, d)), -1)
    factor[np.diag_indices(d)] = np.sqrt(generator.chisquare(freedom - np.arange(d)))
    return factor


def _root(covariance: Matrix) -> Matrix:
    """R with R R^T = the positive part of a covariance."""
    diagonal = np.diagonal(covariance)
    if np.count_nonzero(covariance) <= np.count_nonzero(diagonal):
        return np.diag(np.sqrt(np.maximum(diagonal, 0.0)))
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def solved(pair: MatrixPencil, regularization: float) -> Eigensystem:
    """All solutions of a pair."""
    return solve_pair(pair.a, pair.b, regularization=regularization, rounding=pair.rounding)


def _mixing(truth: PlausibleMoments, people: _People, right: Eigensystem, generator: np.random.Generator) -> Matrix:
    """(r, r), variances of v_j^T (dA - lambda_i dB) v_i over repeated releases, averaged over the order of i and j."""
    v, values, exact = right.vectors, right.values, truth.pair()
    total, squares = np.zeros((len(values), len(values))), np.zeros((len(values), len(values)))
    for _ in range(_MIXING_DRAWS):
        pair = replace(truth, moments=people.drawn(generator)).noisy_pair(generator)
        strayed = v.T @ (pair.a - exact.a) @ v
        if pair.b is not None and exact.b is not None:
            strayed = strayed - values[:, None] * (v.T @ (pair.b - exact.b) @ v)
        total += strayed
        squares += strayed**2
    variances = np.maximum(squares - total**2 / _MIXING_DRAWS, 0.0) / (_MIXING_DRAWS - 1)
    return np.asarray(np.sqrt(variances * variances.T))


def _angles(
    truth: PlausibleMoments, moments: ReleasedMoments, right: Eigensystem, system: Eigensystem, k: int
) -> Matrix:
    """Degrees between the leading solutions and the right ones, in the norm of B of the truth."""
    b = replace(truth, moments=moments).pair().b
    angles = np.full(k, 90.0)
    m = min(k, len(system.values), len(right.values))
    u, v = system.vectors[:, :m], right.vectors[:, :m]
    bu, bv = (u, v) if b is None else (b @ u, b @ v)
    inner = np.abs(np.einsum("ij,ij->j", u, bv))
    norms = np.sqrt(np.einsum("ij,ij->j", u, bu) * np.einsum("ij,ij->j", v, bv))
    angles[:m] = np.degrees(np.arccos(np.minimum(inner / norms, 1.0)))
    return angles


def _padded(values: Matrix, count: int) -> Matrix:
    """As many values, with zeros where B left fewer directions."""
    return np.append(values[:count], np.zeros(max(count - len(values), 0)))


def _below(limit: float) -> float:
    return limit if math.isinf(limit) else limit * (1 - 1e-9)


def _copy(released: ReleasedMoments) -> ReleasedMoments:
    return replace(released, second=released.second.copy())
