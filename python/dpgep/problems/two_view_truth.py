"""Two views: what their noisy joint covariance may have been before the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from dpgep.models.denoise import (
    edge,
    low_rank_before_noise,
    merged_directions,
    spectrum_before_noise,
    swamped_mean,
)
from dpgep.models.model import Matrix
from dpgep.models.moments import NO_NOISE, PlausibleMoments, ReleasedMoments, total_mean
from dpgep.problems.two_views import TwoViewModel

# Directions of a kind that a larger problem is not thinned out below: a few that stand out are all different.
_FEWEST = 24


def two_view_truth(model: TwoViewModel, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
    """`Model.plausible_truth` of views whose covariances carry noise, too."""
    deviation = released.noise.second
    mean = total_mean(released) if released.sums.size else np.zeros(model.n_features)
    covariance = released.second - np.outer(mean, mean)
    x, y = slice(0, model.d_x), slice(model.d_x, None)
    signal = low_rank_before_noise(covariance[x, y], deviation / math.sqrt(2))
    cross = (signal.left * signal.sizes) @ signal.right
    share = min(most_features / model.n_features, 1.0)
    views = [
        _View.seen_through(covariance[x, x], covariance[x, y], deviation),
        _View.seen_through(covariance[y, y], covariance[y, x], deviation),
    ]
    cross, mean_x, numbers_x, values_x = views[0].merged(cross, mean[x], share)
    cross, mean_y, numbers_y, values_y = views[1].merged(cross, mean[y], share)
    joint = np.block([[np.diag(values_x), cross], [cross.T, np.diag(values_y)]])
    values, vectors = scipy.linalg.eigh(joint, check_finite=False)
    # positive, so that no correlation is beyond 1: noise of one entry between the views may have made it less
    joint = (vectors * np.maximum(values, deviation)) @ vectors.T
    mean = np.concatenate([mean_x, mean_y])
    sums = mean[:, None] if released.sums.size else np.empty((len(mean), 0))
    moments = ReleasedMoments(sums, released.counts, released.n, NO_NOISE, joint + np.outer(mean, mean))
    thinned = replace(model, d_x=len(mean_x), d_y=len(mean_y))
    return PlausibleMoments(thinned, moments, released.noise, np.concatenate([numbers_x, numbers_y]))


@dataclass(frozen=True, eq=False)
class _View:
    """A view's covariance before noise: ``values`` along the columns of ``basis``, of which the first ``n_above`` stand
    out of its noise and the others carry what the cross-covariance has elsewhere; ``rest`` in all other directions.
    """

    basis: Matrix
    values: Matrix
    n_above: int
    rest: float

    @staticmethod
    def seen_through(covariance: Matrix, cross: Matrix, deviation: float) -> _View:
        values, vectors = scipy.linalg.eigh(covariance, check_finite=False)
        shown = values > edge(len(values), deviation)
        below = vectors[:, ~shown]
        along = below @ low_rank_before_noise(below.T @ cross, deviation / math.sqrt(2)).left
        found, rotation = np.linalg.eigh(along.T @ covariance @ along)  # SciPy's refused empty ones
        known = np.concatenate(
            [spectrum_before_noise(values, deviation)[shown], spectrum_before_noise(found, deviation)]
        )
        n_rest = len(values) - len(known)
        rest = swamped_mean(float(values.sum() - known.sum()), n_rest, deviation) if n_rest else 0.0
        return _View(np.hstack([vectors[:, shown], along @ rotation]), known, int(shown.sum()), rest)

    def merged(self, cross: Matrix, mean: Matrix, share: float) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """The cross-covariance, transposed, and the mean in fewer directions; for how many each stands; its value."""
        rows = np.column_stack([cross, mean])
        known, beside = self.basis.T @ rows, mean - self.basis @ (self.basis.T @ mean)
        others = np.zeros((len(rows) - len(known), rows.shape[1]))
        others[:1, -1] = np.linalg.norm(beside)
        parts = [
            merged_directions(values, part, max(math.ceil(share * len(values)), _FEWEST))
            for values, part in (
                (self.values[: self.n_above], known[: self.n_above]),
                (np.full(len(others), self.rest), others),
            )
        ]
        parts.insert(1, (self.values[self.n_above :], known[self.n_above :], np.ones(len(known) - self.n_above)))
        merged, rows, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
        return rows[:, :-1].T, rows[:, -1], numbers, merged
