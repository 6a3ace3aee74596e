"""What released moments may have been before the noise, and the law of people drawn from such a population."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import scipy.linalg

from dpgep.models import moments, null
from dpgep.models.model import Matrix, MatrixPencil, Model, NoisyPencil
from dpgep.models.moments import MomentNoise, ReleasedGroups, ReleasedMoments

# Directions of a kind that a larger problem is not thinned out below: a few that stand out are all different.
_FEWEST = 24


@dataclass(frozen=True, eq=False)
class PlausibleMoments:
    """Moments that may have been before the noise of a release, and that noise.

    ``before`` is the pencil of these moments. ``numbers`` (d,): for how many directions of the whole problem each
    feature stands. The variance of its noise is as many times larger. ``basis`` (d', sum of numbers): the directions
    themselves, in their order, as columns; None where some of them are not known.
    """

    before: Any  # a `MomentsPencil`, which makes these records
    noise: MomentNoise
    numbers: Matrix
    basis: Matrix | None = None

    @classmethod
    def of(
        cls,
        pencil: NoisyPencil,
        before: ReleasedMoments,
        numbers: Matrix,
        basis: Matrix | None = None,
        model: Model | None = None,
    ) -> PlausibleMoments:
        """What the moments of a released pencil may have been; ``model``: its model of as many features."""
        model = pencil.model.restricted(np.arange(len(numbers))) if model is None else model
        return cls(replace(pencil, model=model, released=before), pencil.released.noise, numbers, basis)

    def of_people(self, before: ReleasedMoments) -> PlausibleMoments:
        """The same of other moments before the noise."""
        return replace(self, before=replace(self.before, released=before))

    def pair(self) -> MatrixPencil:
        before = self.before.released
        pair: MatrixPencil = replace(self.before, released=replace(before, second=before.second.copy())).pair()
        return pair

    def noisy_pair(self, generator: np.random.Generator, n_draws: int | None = None) -> MatrixPencil:
        before, noise = self.before.released, self.noise
        roots, mean_root = np.sqrt(self.numbers), math.sqrt(float(self.numbers.mean()))
        shapes = before.sums.shape, before.counts.shape, before.second.shape
        of_sums, of_counts, of_second = moments.normals(generator, n_draws, *shapes)
        sums = before.sums + noise.sums * roots[:, None] * of_sums
        counts = before.counts + noise.counts * of_counts
        second = before.second + moments.goe_of(of_second, noise.second) * np.maximum.outer(roots, roots)
        noisy = ReleasedMoments(sums, counts, before.n, noise.scaled(mean_root, mean_root, 1.0), second)
        pair: MatrixPencil = replace(self.before, released=noisy).pair()
        return pair


def truth_of_rows(pencil: NoisyPencil, covariance: Matrix, most_features: int) -> PlausibleMoments:
    """Of a ``covariance``, B the identity: of rows around their mean, or around the means of their groups."""
    released, a = pencil.released, pencil.model.traits.a
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = null.spectrum_before_noise(values[::-1], released.noise.second), null.upright(vectors[:, ::-1])
    rows = (released.sums.T @ vectors).T
    if len(values) > most_features:  # half of them as they are
        half = most_features // 2
        rest = null.merged_directions(values[half:], rows[half:], most_features - half)
        parts = (values[:half], rows[:half], np.ones(half)), rest
        values, rows, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
    else:
        numbers = np.ones(len(values))
    between = (rows / released.counts if a is not None and a.within else rows) @ rows.T
    before = replace(released, sums=rows, noise=moments.NO_NOISE, second=np.diag(values) + between)
    return PlausibleMoments.of(pencil, before, numbers, vectors)


def truth_of_columns(pencil: NoisyPencil) -> PlausibleMoments:
    """Of standardized columns, or of columns in units of their own, as they were released: noise is isotropic there."""
    model, released = pencil.model, pencil.released
    mean, deviation = moments.mean_factor(released), released.noise.second
    covariance = released.second - mean.T @ mean
    several, between = bool(model.view_sizes), _signal_between(covariance, model.views, deviation)
    for (i, x), (j, y) in permutations(enumerate(model.views), 2):
        covariance[x, y] = between[i][j]
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0) if several else null.spectrum_before_noise(values[::-1], deviation)[::-1]
    second = (vectors * values) @ vectors.T + mean.T @ mean
    before = replace(released, second=second, noise=moments.NO_NOISE)
    return PlausibleMoments.of(pencil, before, np.ones(len(values)), None if several else np.eye(len(values)), model)


def truth_of_views(pencil: NoisyPencil, most_features: int) -> PlausibleMoments:
    """Of several views, whose covariances carry noise."""
    model, released, deviation = pencil.model, pencil.released, pencil.released.noise.second
    mean = moments.total_mean(released) if released.sums.size else np.zeros(model.n_features)
    covariance = released.second - np.outer(mean, mean)
    share = min(most_features / model.n_features, 1.0)
    views, sizes = model.views, model.view_sizes
    # the views that were thinned out take the place of the rows and columns of the others, one after another
    joint, means = _signal_between(covariance, views, deviation), np.split(mean, np.cumsum(sizes)[:-1])
    numbers: list[Matrix] = []
    for i, view in enumerate(views):
        others = np.delete(np.arange(model.n_features), view)
        beside, released_cross = [joint[i][j] for j in range(len(views)) if j != i], covariance[view][:, others]
        cross, means[i], number, spectrum = _view(
            covariance[view, view], released_cross, np.hstack(beside), means[i], deviation, share
        )
        ends = np.cumsum([block.shape[1] for block in beside])[:-1]
        for j, block in zip((j for j in range(len(views)) if j != i), np.split(cross, ends, axis=1), strict=True):
            joint[i][j], joint[j][i] = block, block.T
        joint[i][i] = np.diag(spectrum)
        numbers.append(number)
    whole = np.block(joint)
    values, vectors = scipy.linalg.eigh(whole, check_finite=False)
    # positive, so that no correlation is beyond 1: noise of one entry between the views may have made it less
    whole = (vectors * np.maximum(values, deviation)) @ vectors.T
    mean = np.concatenate(means)
    sums = mean[:, None] if released.sums.size else np.empty((len(mean), 0))
    before = ReleasedMoments(sums, released.counts, released.n, moments.NO_NOISE, whole + np.outer(mean, mean))
    kept = np.concatenate([view.start + np.arange(len(number)) for view, number in zip(views, numbers, strict=True)])
    return PlausibleMoments.of(pencil, before, np.concatenate(numbers), model=model.restricted(kept))


def _signal_between(covariance: Matrix, views: Sequence[slice], deviation: float) -> list[list[Any]]:
    """The blocks between views before noise; those within a view are left out."""
    blocks: list[list[Any]] = [[None] * len(views) for _ in views]
    for (i, x), (j, y) in combinations(enumerate(views), 2):
        signal = null.low_rank_before_noise(covariance[x, y], deviation / math.sqrt(2))
        blocks[i][j] = (signal.left * signal.sizes) @ signal.right
        blocks[j][i] = blocks[i][j].T
    return blocks


def _view(
    covariance: Matrix, released: Matrix, cross: Matrix, mean: Matrix, deviation: float, share: float
) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """A view's covariance before noise in fewer directions: ``cross`` and ``mean`` there, for how many each stands, and
    its value. First those that stand out of the noise, then those that carry what the ``released`` cross-covariance has
    elsewhere, and all others, of one value.
    """
    values, vectors = scipy.linalg.eigh(covariance, check_finite=False)
    shown = values > null.edge(len(values), deviation)
    below = vectors[:, ~shown]
    along = below @ null.low_rank_before_noise(below.T @ released, deviation / math.sqrt(2)).left
    found, rotation = np.linalg.eigh(along.T @ covariance @ along)  # SciPy's refused empty ones
    above, middle = null.spectrum_before_noise(values, deviation)[shown], null.spectrum_before_noise(found, deviation)
    n_above, n_rest = len(above), len(values) - len(above) - len(middle)
    left = float(values.sum() - np.concatenate([above, middle]).sum())
    rest = null.swamped_mean(left, n_rest, deviation) if n_rest else 0.0
    basis = null.upright(np.hstack([vectors[:, shown], along @ rotation]))
    rows = np.column_stack([cross, mean])
    known, others = basis.T @ rows, np.zeros((n_rest, rows.shape[1]))
    others[:1, -1] = np.linalg.norm(mean - basis @ (basis.T @ mean))
    most = [max(math.ceil(share * n), _FEWEST) for n in (n_above, n_rest)]
    parts = [
        null.merged_directions(above, known[:n_above], most[0]),
        (middle, known[n_above:], np.ones(len(middle))),
        null.merged_directions(np.full(n_rest, rest), others, most[1]),
    ]
    merged, rows, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
    return rows[:, :-1], rows[:, -1], numbers, merged


def truth_of_groups(pencil: NoisyPencil, most_features: int) -> PlausibleMoments:
    """Of groups, whose means and scatter W carry noise. Along directions of the means, besides those in which W stands
    out, W is known to the deviation of one entry, however many features there are.
    """
    released = pencil.released
    factors, weights = moments.group_factors(released)
    scatter = released.second - (factors.T * weights) @ factors
    values, vectors = scipy.linalg.eigh(scatter, overwrite_a=True, check_finite=False)
    noise, counts, total = released.noise, 1 / weights, released.sums.sum(axis=1)
    shares = counts / counts.sum()
    covariance = released.second - np.outer(total, total) / counts.sum()
    contrasts = released.sums - np.outer(total, shares)
    # coordinates in which W is diagonal: where it stands out of the noise, along the sums elsewhere, and the rest
    shown = values > null.edge(len(values), noise.second)
    above, below = null.upright(vectors[:, shown]), vectors[:, ~shown]
    seen = null.low_rank_before_noise(above.T @ contrasts, noise.sums)
    hidden = null.low_rank_before_noise(below.T @ contrasts, noise.sums)
    along = below @ hidden.left
    quotients = along.T @ covariance @ along - _scatter(hidden, counts)
    found, rotation = np.linalg.eigh(quotients)  # SciPy 1.12 refuses empty ones
    along = null.upright(along @ rotation)
    hidden_rows = along.T @ below @ hidden.left @ _rows(hidden)
    upper = null.spectrum_before_noise(values, noise.second)[shown]
    middle = null.spectrum_before_noise(found, noise.second)
    parts = [
        null.merged_directions(upper, seen.left @ _rows(seen) + np.outer(above.T @ total, shares), most_features),
        (middle, hidden_rows + np.outer(along.T @ total, shares), np.ones(len(middle))),
    ]
    n_left = len(values) - len(upper) - len(middle)
    if n_left:  # no signal there but the mean of all, along one direction
        trace = np.trace(covariance) - np.trace(_scatter(seen, counts)) - np.trace(_scatter(hidden, counts))
        flat = np.full(n_left, null.swamped_mean(float(trace - upper.sum() - middle.sum()), n_left, noise.second))
        beside = total - above @ (above.T @ total) - along @ (along.T @ total)
        rest = np.vstack([np.linalg.norm(beside) * shares, np.zeros((n_left - 1, len(shares)))])
        parts.append(null.merged_directions(flat, rest, most_features))
    values, sums, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
    before = ReleasedMoments(sums, counts, released.n, moments.NO_NOISE, np.diag(values) + (sums / counts) @ sums.T)
    return PlausibleMoments.of(pencil, before, numbers)


def _rows(contrasts: null.LowRank) -> Matrix:
    """Sums of the groups, less their share of the sum of all, along the left vectors."""
    return np.asarray(contrasts.sizes[:, None] * contrasts.right)


def _scatter(contrasts: null.LowRank, counts: Matrix) -> Matrix:
    """The scatter of means along the left vectors: less than that of the rows, as noise has turned the vectors."""
    rows = np.sqrt(contrasts.overlaps)[:, None] * _rows(contrasts)
    return np.asarray((rows / counts) @ rows.T)


@dataclass(frozen=True, eq=False)
class SampledPeople:
    """A of as many people as were released, Gaussian rows of a population in which A shows nothing.

    That is, where A is a moment itself, A = ``level`` I; views that are independent; groups of the same mean. Long
    tails of independent columns change neither correlations nor means of this many people, to first order.
    """

    model: Model
    freedom: int
    level: float
    root: Matrix

    @classmethod
    def of(cls, model: Model, released: ReleasedMoments, level: float) -> SampledPeople:
        """``level``: the mean of the eigenvalues that were released."""
        mean, means = moments.mean_factor(released), model.traits.of_means
        within = released.second - mean.T @ mean
        if means:
            factors, weights = moments.group_factors(released)
            within = released.second - (factors.T * weights) @ factors
        elif model.view_sizes:
            within = scipy.linalg.block_diag(*(within[view, view] for view in model.views))
        else:
            within = np.eye(0)  # known: a multiple of the identity
        n = released.n if released.pairs is None else released.n * released.pairs.sampled
        return cls(model, max(round(n) - 1, 1), max(level, 0.0), root_of(within))

    def moved(self, groups: ReleasedGroups, generator: np.random.Generator) -> ReleasedGroups:
        """Sums of groups of people whose means are the same in the population."""
        if not self.model.traits.of_means:
            return groups
        deviations = np.sqrt(moments.effective_counts(groups) / groups.n)[..., None, :]
        return replace(
            groups, sums=groups.sums + deviations * (self.root @ generator.standard_normal(groups.sums.shape))
        )

    def scatter(self, generator: np.random.Generator) -> Matrix:
        """What the sampling of people adds to A, where A is no scatter of means."""
        d, traits = self.model.n_features, self.model.traits
        if traits.of_means:
            return np.zeros((d, d))
        factor = bartlett(d, self.freedom, generator) / np.sqrt(self.freedom)
        if not self.model.view_sizes:
            if traits.standardized:
                factor /= np.linalg.norm(factor, axis=1, keepdims=True)
            return np.asarray(self.level * (factor @ factor.T - np.eye(d)))
        if traits.b is not None:  # relative to the scatter within views of the same people
            for view in self.model.views:
                orthonormal = np.linalg.qr(factor[view].T)[0].T
                factor[view] = 0.0
                factor[view][: len(orthonormal)] = orthonormal
        between = factor @ factor.T
        for view in self.model.views:
            between[view, view] = 0.0
        return np.asarray(self.root @ between @ self.root.T)


def bartlett(d: int, freedom: int, generator: np.random.Generator) -> Matrix:
    """T with T T^T of Wishart's law with the identity; the factors of ``freedom`` rows where those are fewer."""
    if freedom <= d:
        return generator.standard_normal((d, freedom))
    factor = np.tril(generator.standard_normal((d, d)), -1)
    factor[np.diag_indices(d)] = np.sqrt(generator.chisquare(freedom - np.arange(d)))
    return factor


def root_of(covariance: Matrix) -> Matrix:
    """R with R R^T = the positive part of a covariance."""
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:  # singular
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
