"""Confidence intervals for privacy noise and sampling error together.

A parametric bootstrap of moments. The truth is taken to be what the released moments may have been before the noise
(`plausible_truth`), its leading eigenvalues those released, with their repulsion undone (`before_noise`). The release
is then repeated from its beginning: people are drawn from the truth, noise of the known law is added, the pair is
solved with the same ridge, and the same estimator is applied. An interval is the estimate less quantiles of its error.

Eigenvalues of the truth are shaken by their own uncertainty in each draw. Otherwise the gaps between them would pass
for known: angles would be too small, and of two that are close by chance the larger would seem too sure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy  # its special functions are loaded when they are used

from dpgep._checks import require_one_of, require_share
from dpgep.errors import warn_inaccurate
from dpgep.methods.eigen import Eigensystem, before_noise, null_eigenvalue, solve_pair
from dpgep.models.clipping import Clipping, longer_by
from dpgep.models.model import Matrix, MatrixPencil
from dpgep.models.moments import (
    ReleasedMoments,
    correlation_form_variance,
    correlations,
    goe,
    mean_factor,
    of_group,
    of_groups,
    standardization_of,
)
from dpgep.models.pairwise import require_no_pairs
from dpgep.models.plausible import PlausibleMoments, bartlett, root_of
from dpgep.models.row_model import MomentsPencil, with_eigenvalues
from dpgep.sources.names import Names

RowLaw = Literal["gaussian", "bounded"]

# Features of the simulated problem: more of a kind are thinned out to about this many.
_WHOLE = 64
# Rounds, and draws in each, by which eigenvalues of a truth are found.
_ROUNDS, _ROUND_DRAWS = 3, 12
# Draws that show how the noise mixes solutions, and those of the bootstrap itself: fewer of large matrices.
_MIXING_DRAWS = 40
_FEWEST_DRAWS, _MOST_DRAWS, _DRAWS_TIMES_SQUARE = 79, 159, 159 * 48**2
# Of a pair, a correction within this many deviations of an eigenvalue that was found is left out.
_SURE = 2.0
# Of a covariance, this many times what the bootstrap would leave out of the corrections is left out.
_CAUTION = 2.0
# Shares of a variance from which on what clipping took, and what it may have hidden, is warned of: the latter of rows
# that are longer than Gaussian ones by this much. Of what noise alone hides all tables would be warned.
_MUCH, _UNSEEN, _LONGER = 0.25, 0.15, 0.3
# The same where as much again may have been there, or intervals do not hold clipping, by rows unlike Gaussian ones
# too: of 50 tables of normal columns none has lost as much, of log-normal ones all but one, and one of 25 is as unlike.
_SOME, _AGAIN, _UNLIKE = 0.05, 2.0, 0.55
# A ridge of more than this part of the average variance shows that noise drowns them.
_DROWNED = 0.5
# Halvings of [-1, 1] by which the end of an interval of correlations is found.
_HALVINGS = 40
# Public, and the same in every run: nothing about the data depends on it.
_SEED = 0x70656F706C65


@dataclass(frozen=True, eq=False, repr=False)
class Intervals:
    """Of a solution's eigenvalues and components, as estimates of the population that the people come from.

    Attributes
    ----------
    level : probability with which each interval, and each angle, holds.
    row_law : "gaussian" or "bounded": what was assumed of the people.
    estimates : (K,), eigenvalues corrected for the bias that noise and the sampling of people cause.
    eigenvalues : (K, 2), low and high ends; in the units of ``solution.eigenvalues``.
    angles : (K,), degrees. The angle between the released component and that of the population, in the norm of B (of
        scores), is at most this; 90: it may be any.
    lost : (K,), whether noise alone could produce the component. The interval of its eigenvalue then says little more
        than how large it may be.
    loadings : (K, d, 2), low and high ends of the weight of each feature in each component, one by one, with the signs
        of ``solution.components``; of standardized columns, of ``components * scale``, whose rows have unit norm. -1 to
        1 where a component is lost. For PCA; None elsewhere.
    """

    level: float
    row_law: RowLaw
    estimates: Matrix
    eigenvalues: Matrix
    angles: Matrix
    lost: tuple[bool, ...]
    loadings: Matrix | None = None

    def __repr__(self) -> str:
        lines = [
            f"Intervals at level {self.level:g}, rows {self.row_law}: noise and sampling of people",
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
    noisy: MomentsPencil,
    regularization: float,
    lost: tuple[bool, ...],
    bound: float,
    level: float,
    rows: RowLaw,
    components: Matrix | None = None,
) -> Intervals:
    """Intervals of the leading solutions of a released pair, solved with this ridge; ``bound`` is that of the rows.

    ``components`` (K, d) are those solutions, as rows: their loadings have intervals, too, where the basis is known.

    Of moments that were put back as they were before a bound clipped rows, they hold what clipping may have done, too:
    eigenvalues and angles of other covariances that may have been there (`Clipping`) are held in part, and for bounded
    rows all of them.

    Everything is in the coordinates of the release. Leaves ``noisy`` as it is.
    """
    k, found = len(lost), lost.index(True) if True in lost else len(lost)
    model, clipping = noisy.model, noisy.released.clipping
    if clipping is not None:
        clipping = replace(clipping, doubt=1.0) if rows == "bounded" else clipping
        noisy = replace(noisy, released=replace(noisy.released, n=noisy.released.n / clipping.people))
    values = whole_system(noisy, regularization).values
    truth = noisy.plausible_truth(max(_WHOLE, k + _WHOLE // 2))
    scales = truth.pair().b
    if scales is not None and regularization > _DROWNED * float(np.trace(scales)) / len(scales):
        warn_inaccurate(
            "noise drowns the variances of the columns: eigenvalues are drawn towards zero, and intervals may not hold "
            "that. Ask about fewer columns, or release with more people or a larger epsilon"
        )
    world = _World(truth, bound if rows == "bounded" else None, regularization, solved(truth.pair(), 0.0), scales)
    # eigenvalues of a covariance are all its own; elsewhere those beyond the components stay as they were
    whole = model.traits.identity_b and not model.view_sizes
    kept = min(len(truth.numbers) if whole else max(found, 1), len(world.right.values))
    merged = values[: len(world.right.values)]
    if whole:  # of merged directions, their means
        first = np.append(0, np.cumsum(truth.numbers)[:-1]).astype(int)
        merged = np.add.reduceat(values, first) / truth.numbers
    mixing = world.mixing()
    estimates = before_noise(merged, mixing) if whole else world.matched(merged[:kept])
    deviations = np.sqrt(np.diagonal(mixing))[:kept]
    shaken = np.where(np.arange(kept) < found, deviations, 0.0)
    centre = estimates
    if model.traits.standardized:  # eigenvalues cannot be chosen: they belong to a diagonal of 1
        centre, shaken = world.right.values[:kept], np.zeros(kept)
    n_draws = int(np.clip(_DRAWS_TIMES_SQUARE / len(truth.numbers) ** 2, _FEWEST_DRAWS, _MOST_DRAWS))
    generator = np.random.default_rng(_SEED)
    errors, angles = np.zeros((n_draws, kept)), np.full((n_draws, k), 90.0)
    strays = np.zeros((n_draws, kept))
    m, leading = min(k, kept), list[Matrix]()

    def strayed_by(drawn: Matrix, wanted: Matrix) -> Matrix:
        """Differences of eigenvalues of a covariance, their repulsion undone; of a pair, ridge and noise scale them."""
        if whole:
            return before_noise(drawn, mixing) - wanted
        return np.asarray(drawn[: len(wanted)] / np.maximum(wanted, 1e-3 * max(float(drawn[0]), 1e-300)))

    def undone(errors: Matrix) -> Matrix:
        return np.asarray(estimates[:m] - errors if whole else merged[:m] / np.maximum(errors, 1e-300))

    for draw in range(n_draws):
        wanted = world.possible(np.sort(centre + shaken * generator.standard_normal(kept))[::-1])
        system = world.drawn(wanted, generator)
        drawn = _padded(system.values, len(merged))
        errors[draw], strays[draw] = strayed_by(drawn, wanted), drawn[:kept] - wanted
        leading.append(system.vectors[:, :m])
        left = leading[-1].shape[1]  # noise may leave B fewer directions
        angles[draw, :left] = degrees(leading[-1], world.right.vectors[:, :left], world.b)
    low, estimate, high = np.zeros(k), np.zeros(k), np.zeros(k)
    ordered, tail = np.sort(errors, axis=0)[:, :m], max(int((n_draws + 1) * (1 - level) / 2), 1)
    centred = undone(ordered.mean(axis=0))
    reach = deviations[:m] * float(scipy.special.ndtri((1 + level) / 2))
    low[:m] = np.minimum(undone(ordered[n_draws - tail]), centred - reach)
    high[:m] = np.maximum(undone(ordered[tail - 1]), centred + reach)
    if whole:
        estimate[:m] = merged[:m] - _share_taken_back(strays, errors) * (merged - estimates)[:m]
    else:  # of a component that is found, a correction within its error would add more than it takes away
        correction = merged[:m] - centred
        unsure = np.where(np.arange(m) < found, _SURE * deviations[:m], 0.0)
        weight = np.maximum(1 - (unsure / np.maximum(np.abs(correction), 1e-300)) ** 2, 0.0)
        estimate[:m] = merged[:m] - weight * correction
    high[m:] = high[m - 1]
    if found < k:
        rest = values[found:]
        least = null_eigenvalue(model, rest) - (high[found:] - low[found:]) / 2 / math.sqrt(len(rest))
        low[found:] = np.minimum(low[found:], least)
    turned = np.sort(angles, axis=0)[min(math.ceil((n_draws + 1) * level), n_draws) - 1]
    if clipping is not None:
        below, above, strayed = _moved(noisy, clipping, regularization, k)
        half = (high - low)[: len(below)] / 2
        low[: len(below)] -= longer_by(half, below, level)
        high[: len(above)] += longer_by(half, above, level)
        turned[: len(strayed)] = np.minimum(turned[: len(strayed)] + strayed, 90.0)
    turned[found:] = 90.0
    estimate = np.clip(estimate, low, high)
    limits = model.traits.least_eigenvalue, model.traits.largest_eigenvalue
    ends = np.clip(np.column_stack([low, high]), *limits)
    loadings = None
    if components is not None and truth.basis is not None:
        loadings = _loadings(components, truth, world.right.vectors[:, : min(found, m)], leading, tail)
    return Intervals(level, rows, np.clip(estimate, *limits), ends, turned, lost, loadings)


def correlation_intervals(
    released: ReleasedMoments, level: float = 0.9, rows: RowLaw = "gaussian", bound: float | None = None
) -> tuple[Matrix, Matrix]:
    """Low and high ends (d, d) for each entry of the correlation matrix of released columns.

    The correlations rho that the released one, r, does not reject: |r - rho| <= z sqrt(p + v(rho)/n), p the variance of
    the noise in r to first order, v(rho) = (1 - rho^2)^2 for Gaussian rows. For any rows within ``bound``, with
    a = x_i/s_i and b = x_j/s_j for centred rows, r strays by the mean of q = a b - rho (a^2 + b^2)/2, and
    v(rho) = max |q| E|q|, with E|q| <= 1 - rho^2 and |q| <= |x|^2 (1/s_i^2 + 1/s_j^2)(1 + |rho|)/4.

    A column that is constant, or varies less than the noise in its variance, may have any correlation: -1 to 1.
    """
    require_law(level, rows)
    if rows == "bounded" and bound is None:
        raise ValueError('rows="bounded" needs the bound on row norms')
    if rows == "bounded":
        require_no_pairs(released, "intervals for bounded rows")
    standard, d = standardization_of(released), len(released.second)
    known = ~standard.drowned & (standard.scale > 0)
    low, high = -np.ones((d, d)), np.ones((d, d))
    served = np.flatnonzero(known)
    np.fill_diagonal(low, np.where(known, 1.0, -1.0))
    if not len(served):
        return low, high
    part = released.restricted(served)
    mean = mean_factor(part)
    covariance = part.second - mean.T @ mean
    matrix = correlations(covariance, standardization_of(part))
    of_noise = correlation_form_variance(part, np.eye(len(served)), np.eye(len(served)))
    squares = None
    if bound is not None and rows == "bounded":
        inverse = 1 / standard.scale[served] ** 2
        longest = bound + float(np.linalg.norm(mean_factor(released)))
        squares = longest**2 * np.add.outer(inverse, inverse)
    block = np.ix_(served, served)
    low[block], high[block] = not_rejected(matrix, of_noise, part, released.n, level, squares)
    if part.clipping is not None:
        half = (high - low)[block] / 2
        reaches = _widened(matrix, np.diagonal(covariance), part.clipping)
        below, above = (longer_by(half, reach, level) for reach in reaches)
        low[block], high[block] = np.maximum(low[block] - below, -1.0), np.minimum(high[block] + above, 1.0)
    low[served, served] = high[served, served] = 1.0
    if released.pairs is not None:
        low, high = np.where(released.pairs.shown, low, -1.0), np.where(released.pairs.shown, high, 1.0)
    return low, high


def not_rejected(
    matrix: Matrix, of_noise: Matrix, released: ReleasedMoments, n: float, level: float, squares: Matrix | None
) -> tuple[Matrix, Matrix]:
    """The least and largest rho with |r - rho| <= z sqrt(p + v(rho)/n) for each correlation r, v the same for -rho.

    Of any rows within a bound, ``squares`` are at least a^2 + b^2 (`correlation_intervals`); None for Gaussian rows.
    """
    reach = float(scipy.special.ndtri((1 + level) / 2))
    longer = 1.0 if released.clipping is None else released.clipping.people

    def of_people(rho: Matrix) -> Matrix:
        if squares is not None:
            return np.asarray((1 - rho**2) * (1 + np.abs(rho)) * squares / 4)
        return longer * ((1 - rho**2) ** 2 if released.pairs is None else released.pairs.correlation_variances(rho))

    def largest(sign: float) -> Matrix:
        """Of sign times the correlations."""
        lower, upper = np.full(matrix.shape, -1.0), np.ones(matrix.shape)
        for _ in range(_HALVINGS):
            rho = (lower + upper) / 2
            within = rho - sign * matrix <= reach * np.sqrt(of_noise + of_people(rho) / n)
            lower, upper = np.where(within, rho, lower), np.where(within, upper, rho)
        return upper

    return -largest(-1.0), largest(1.0)


def warn_of_clipping(released: ReleasedMoments, names: Names, *, sizes: bool, held: bool = True) -> None:
    """Warn of columns that a bound may have taken much from that was not put back: intervals hold it in part.

    And, for an answer about ``sizes``, means and variances, of rows whose tails the release does not show. Where it is
    not ``held`` in intervals, of any clipping unlike that of Gaussian rows.
    """
    clipping = released.clipping
    if clipping is None:
        return
    mean = mean_factor(released)
    restored = np.maximum(np.diagonal(released.second) - np.einsum("ij,ij->j", mean, mean), 0.0)
    before = np.maximum(np.diagonal(clipping.covariance), 0.0) / (1 - clipping.lost)
    lost = 1 - np.divide(restored, before, out=np.ones_like(before), where=before > restored)
    largest = np.argsort(-lost, kind="stable")[:2]
    columns = " and ".join(str(j) if names is None else repr(names[j][:20]) for j in largest.tolist() if lost[j] > 0)
    if not held and (lost.max() >= _SOME or clipping.without_tails > _UNLIKE):
        warn_inaccurate(
            f"clipping has taken from {f'columns such as {columns}' if columns else 'rows'} what is not put back here: "
            "intervals may not hold that. Logarithms or ranks of long tails, or more budget help"
        )
        return
    if sizes and clipping.unseen > _UNSEEN and clipping.longer > _LONGER:
        warn_inaccurate(
            f"few long rows may hold {min(clipping.unseen, 1.0):.0%} more of the variances than was seen, perhaps of "
            f"{columns or 'any column'}: intervals hold that in part. Logarithms or ranks of long tails help"
        )
    if (lost >= np.where(sizes & (clipping.most > _AGAIN * restored), _SOME, _MUCH)).any():
        warn_inaccurate(
            f"clipping has taken about {lost.max():.0%} of the variance of columns such as {columns}: "
            "intervals hold what that does in part. Their logarithms or ranks, or more budget help"
        )


def _moved(noisy: MomentsPencil, clipping: Clipping, regularization: float, k: int) -> tuple[Matrix, Matrix, Matrix]:
    """By how much eigenvalues may be less and more for what clipping did, and solutions turned (degrees), (k,) each."""
    released, mean = noisy.released, mean_factor(noisy.released)
    pair = _pair_of(noisy)
    base = solved(pair, regularization)
    values, vectors = base.values[:k], base.vectors[:, :k]

    def solution_of(covariance: Matrix) -> tuple[Matrix, Matrix]:
        """Eigenvalues of rows with this covariance, and by how much solutions differ."""
        moments = replace(released, second=covariance + mean.T @ mean)
        other = solved(replace(noisy, released=moments).pair(), regularization)
        return other.values[:k], degrees(other.vectors[:, :k], vectors, pair.b)

    restored = released.second - mean.T @ mean
    others, strayed = zip(*map(solution_of, clipping.others(restored, vectors)), strict=True)
    below, above = clipping.widened(values, np.min(others, axis=0), np.max(others, axis=0))
    grown, turned = solution_of(clipping.grown(restored))
    above = np.maximum(above, grown - values)
    larger = np.maximum(clipping.most - np.diagonal(restored), 0.0)
    # tails of all columns, and of every second one, every second two, ... or the others: of one, but not of another
    places = np.arange(len(larger))
    halves = [places >> bit & 1 for bit in range((len(larger) - 1).bit_length())]
    chosen = [np.ones_like(places), *halves, *(1 - half for half in halves)]
    smaller, alone = zip(*(solution_of(restored + np.diag(larger * each)) for each in chosen), strict=True)
    below = np.maximum(below, values - smaller[0])
    return below, above, np.maximum(clipping.doubt * np.maximum(np.max(strayed, axis=0), turned), np.max(alone, axis=0))


def degrees(vectors: Matrix, others: Matrix, b: Matrix | None) -> Matrix:
    """Angles between columns, one by one, in the norm of B (None: the identity); 90 where noise left B no norm."""
    bu, bv = (vectors, others) if b is None else (b @ vectors, b @ others)
    inner = np.abs(np.einsum("ij,ij->j", vectors, bv))
    squares = np.maximum([np.einsum("ij,ij->j", *each) for each in ((vectors, bu), (others, bv))], 0.0)
    norms = np.sqrt(squares[0]) * np.sqrt(squares[1])
    cosines = np.divide(inner, norms, out=np.zeros_like(inner), where=norms > 0)
    return np.asarray(np.degrees(np.arccos(np.minimum(cosines, 1.0))))


def _widened(correlation: Matrix, variances: Matrix, clipping: Clipping) -> tuple[Matrix, Matrix]:
    """(below, above) by which intervals are longer for what clipping may have done to correlations."""
    low, high = clipping.entries()
    scale, of_clipped = (np.sqrt(np.maximum(np.diagonal(each), 1e-300)) for each in (low, clipping.covariance))
    ends = [np.clip(end / np.outer(scale, scale), -1.0, 1.0) for end in (low, high)]
    more = 2 * correlation - clipping.covariance / np.outer(of_clipped, of_clipped)  # twice as much was lost
    below, above = clipping.widened(correlation, np.minimum(ends[0], more), np.maximum(ends[1], more))
    # columns may have tails of their own
    alone = np.sqrt(np.maximum(variances, 0.0) / np.maximum(np.maximum(clipping.most, variances), 1e-300))
    nearer = correlation * (1 - np.outer(alone, alone))
    return np.maximum(below, nearer), np.maximum(above, -nearer)


@dataclass(frozen=True, eq=False)
class _World:
    """A truth, of Gaussian rows, or (``bound`` given) any within it; the solutions of its pair, and B (None: I).

    The scatter within groups strays as that of Gaussian rows, by T - I with T of Wishart's law between roots of the
    covariance; or, along its principal axes u and v, by as much as the bound on rows allows at most: rows x about their
    mean m are no longer than b = bound + |m|, so that with |u.x||v.x| <= b^2 (|u||v| + |u.v|)/2,
    Var(u.x v.x) <= b^2 (|u||v| + |u.v|)/2 sqrt(u^T C u v^T C v).
    """

    truth: PlausibleMoments
    bound: float | None
    regularization: float
    right: Eigensystem
    b: Matrix | None

    def possible(self, eigenvalues: Matrix) -> Matrix:
        """The nearest eigenvalues that a truth can have."""
        traits = self.truth.before.model.traits
        return np.clip(eigenvalues, traits.least_eigenvalue, traits.largest_eigenvalue * (1 - 1e-9))

    def matched(self, values: Matrix) -> Matrix:
        """Eigenvalues of a truth of which releases have these on average."""
        wanted = self.possible(values)
        for _ in range(_ROUNDS):
            generator = np.random.default_rng(_SEED)
            systems = [self.drawn(wanted, generator) for _ in range(_ROUND_DRAWS)]
            mean = np.mean([_padded(system.values, len(values)) for system in systems], axis=0)
            wanted = np.sort(self.possible(wanted * np.clip(values / np.maximum(mean, 1e-300), 0.1, 10)))[::-1]
        return wanted

    def drawn(self, eigenvalues: Matrix, generator: np.random.Generator) -> Eigensystem:
        """Solutions of one more release of people from the truth with these leading eigenvalues."""
        m, right = len(eigenvalues), self.right
        moments = with_eigenvalues(self.truth.before, right.vectors[:, :m], right.values[:m], eigenvalues)
        return solved(self._released(moments, generator), self.regularization)

    def _released(self, moments: ReleasedMoments, generator: np.random.Generator) -> MatrixPencil:
        """The pair of one more release of people, divided by their number, which may be noisy as well."""
        moments, noise = self._people(moments, generator), self.truth.noise.counts
        if noise and len(moments.counts) == 1:
            total = max(1 + noise * generator.standard_normal(), noise)
            moments = replace(moments, second=moments.second / total, sums=moments.sums / total)
        return self.truth.of_people(moments).noisy_pair(generator)

    def mixing(self) -> Matrix:
        """(r, r), variances of v_j^T (dA - lambda_i dB) v_i over repeated releases; both orders of i and j averaged."""
        exact, generator = self.truth.pair(), np.random.default_rng(_SEED)
        system = solved(self.truth.pair(), self.regularization)
        v, values = system.vectors, system.values
        total, squares = np.zeros((2, len(values), len(values)))
        for _ in range(_MIXING_DRAWS):
            pair = self._released(self.truth.before.released, generator)
            strayed = v.T @ (pair.a - exact.a) @ v
            if pair.b is not None and exact.b is not None:
                strayed -= values[:, None] * (v.T @ (pair.b - exact.b) @ v)
            total += strayed
            squares += strayed**2
        variances = np.maximum(squares - total**2 / _MIXING_DRAWS, 0.0) / (_MIXING_DRAWS - 1)
        return np.asarray(np.sqrt(variances * variances.T))

    def _people(self, m: ReleasedMoments, generator: np.random.Generator) -> ReleasedMoments:
        """Moments of as many people as there were."""
        if m.by_group:
            groups = (of_group(m, group) for group in range(len(m.counts)))
            return of_groups([self._people(group, generator) for group in groups], m)
        roots, has_means = np.sqrt(self.truth.numbers), bool(m.sums.size)
        shares, people = m.counts if has_means else np.ones(1), max(round(m.n), 2)
        numbers = np.full(1, people)
        if len(shares) > 1:
            left = max(1 - float(shares.sum()), 0.0)
            numbers = generator.multinomial(people, np.append(shares, left) / (shares.sum() + left))[:-1]
        means = m.sums / shares if has_means else np.zeros((len(m.second), 1))
        within = m.second - (means * shares) @ means.T
        root = root_of(within)
        if has_means:
            strays = roots[:, None] * (root @ generator.standard_normal(m.sums.shape))
            means = means + strays / np.sqrt(np.maximum(numbers, 1))
        total, d, shares_drawn = int(numbers.sum()), len(within), numbers / people
        freedom = max(total - len(shares) * has_means, 1)
        if self.bound is None:
            factor = root @ bartlett(d, freedom, generator)
            strayed = factor @ factor.T / max(total, 1) - within
        else:
            values, vectors = np.linalg.eigh(within)
            quarter = (vectors * np.maximum(values, 0.0) ** 0.25) @ vectors.T
            reach = self.bound + float(np.linalg.norm(mean_factor(m)))
            strayed = reach / math.sqrt(2) * (quarter @ goe(d, math.sqrt(2 / freedom), generator) @ quarter)
        scatter = within + strayed * np.maximum.outer(roots, roots)
        return replace(
            m,
            second=scatter * (total / people) + (means * shares_drawn) @ means.T,
            sums=means * shares_drawn if has_means else m.sums,
            counts=shares_drawn if len(shares) > 1 else m.counts,
        )


def _loadings(components: Matrix, truth: PlausibleMoments, right: Matrix, drawn: Sequence[Matrix], tail: int) -> Matrix:
    """(K, d, 2): loadings less quantiles of how far leading vectors of draws stray from the ``right`` ones.

    A direction that stands for several of the basis is spread over them at random: of theirs, its share is known alone.
    """
    assert truth.basis is not None
    numbers, basis, generator = truth.numbers.astype(int), truth.basis, np.random.default_rng(_SEED)
    right = right[:, : int(np.argmax(np.append(numbers, 2) > 1))]  # these stand for themselves
    first, m = np.append(0, np.cumsum(numbers)[:-1]), right.shape[1]

    def along_basis(vectors: Matrix) -> Matrix:
        shares = generator.standard_normal(len(basis.T))
        shares /= np.repeat(np.sqrt(np.add.reduceat(shares**2, first)), numbers)
        shares[np.repeat(numbers == 1, numbers)] = 1.0
        return np.asarray(basis @ (np.repeat(vectors, numbers, axis=0) * shares[:, None]))

    strays = [along_basis(each[:, :m] * _signs(each[:, :m], right) - right) for each in drawn]
    ordered = np.sort(np.array(strays) * _signs(along_basis(right), components[:m].T), axis=0)
    ends = np.tile([-1.0, 1.0], (*components.shape, 1))
    ends[:m, :, 0], ends[:m, :, 1] = components[:m] - ordered[-tail].T, components[:m] - ordered[tail - 1].T
    return np.asarray(np.clip(ends, -1.0, 1.0))


def _signs(vectors: Matrix, others: Matrix) -> Matrix:
    """(k,), the signs with which columns point the way that others do."""
    return np.where(np.einsum("ij,ij->j", vectors, others) < 0, -1.0, 1.0)


def _share_taken_back(strays: Matrix, errors: Matrix) -> float:
    """The share of its correction that is taken from each eigenvalue of a covariance, found or not.

    ``strays``, ``errors``: (draws, eigenvalues) of the bootstrap, before and after the whole correction c. The least
    mean squared error has the share w = <strays, c>/<c, c>; one for all eigenvalues, as only together do they show how
    sure it is. Eigenvalues that were merged make corrections seem surer than they are: 1 - 2(1 - w), if positive.
    """
    corrections = strays - errors
    best = float(np.vdot(strays, corrections)) / max(float(np.vdot(corrections, corrections)), 1e-300)
    return max(1 - _CAUTION * max(1 - best, 0.0), 0.0)


def solved(pair: MatrixPencil, regularization: float) -> Eigensystem:
    """All solutions of a pair."""
    return solve_pair(pair.a, pair.b, regularization=regularization, rounding=pair.rounding)


def _padded(values: Matrix, count: int) -> Matrix:
    """As many values, with zeros where B left fewer directions."""
    return np.append(values[:count], np.zeros(max(count - len(values), 0)))


def whole_system(noisy: MomentsPencil, regularization: float) -> Eigensystem:
    """All solutions of a released pair, which stays as it is."""
    return solved(_pair_of(noisy), regularization)


def _pair_of(noisy: MomentsPencil) -> MatrixPencil:
    """A pair of its own, which may be overwritten."""
    return replace(noisy, released=replace(noisy.released, second=noisy.released.second.copy())).pair()
