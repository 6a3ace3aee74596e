"""Models of groups, FDA and SIR: what their noisy sums and scatter may have been before the noise.

A is the scatter of the groups' means, at most of rank groups - 1. So the directions of the means count besides those in
which the scatter W within groups stands out of the noise: along a direction that was not found in the noise of W, W is
known to the deviation of one entry, however many features there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import scipy.linalg

from dpgep.models.model import Matrix, PublicFacts, Traits
from dpgep.models.moments import (
    NO_NOISE,
    MomentLayout,
    Pencil,
    PencilPart,
    PlausibleMoments,
    ReleasedGroups,
    ReleasedMoments,
    group_factors,
    groups_alone,
    moment_layout,
    total_mean,
    total_shares,
)
from dpgep.models.null import (
    LowRank,
    edge,
    low_rank_before_noise,
    merged_directions,
    spectrum_before_noise,
    swamped_mean,
    upright,
)
from dpgep.models.row_model import Grouping, RowModel

# Numbers in sums of simulated releases that are held at once.
_AT_ONCE = 1 << 20


class GroupModel(RowModel):
    """A model whose A is the scatter of noisy group means; what people's groups are, and what B is, are its own."""

    traits = Traits(noise_order=2)

    @property
    @abstractmethod
    def grouping(self) -> Grouping: ...

    @property
    def n_groups(self) -> int:
        return self.grouping.n_groups

    @abstractmethod
    def weights_of_b(self, weights: Matrix, share: Matrix) -> Matrix:
        """Weights of the groups' sums and of the mean in B, whose other part is the second moment."""

    @property
    def max_components(self) -> int:
        return min(self.n_features, self.n_groups - 1)

    def layout(self, facts: PublicFacts) -> MomentLayout:
        return moment_layout(self.n_features, self.n_groups, sums=True, facts=facts)

    def pencil(self, released: ReleasedGroups) -> Pencil:
        groups, weights = group_factors(released)
        share = total_shares(released)[..., None]
        factors = np.concatenate([groups, total_mean(released)[..., None, :]], axis=-2)
        scatter = PencilPart(np.concatenate([weights, -share], axis=-1), moment=False)
        return Pencil(factors, scatter, PencilPart(self.weights_of_b(weights, share)))

    def leading_noise(
        self, released: ReleasedGroups, values: Matrix, basis: Matrix | None, seed: int, n_draws: int
    ) -> Matrix:
        generator, at_once = np.random.default_rng(seed), max(1, _AT_ONCE // released.sums.size)
        parts = [min(at_once, n_draws - first) for first in range(0, n_draws, at_once)]
        pencils = [self.pencil(groups_alone(released, generator, part)) for part in parts]
        return np.concatenate([_leading_of_rank(pencil, basis) for pencil in pencils])

    def mean(self, released: Any) -> Matrix | None:
        return total_mean(released)

    def plausible_truth(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        factors, weights = group_factors(released)
        scatter = released.second - (factors.T * weights) @ factors
        values, vectors = scipy.linalg.eigh(scatter, overwrite_a=True, check_finite=False)
        noise, counts, total = released.noise, 1 / weights, released.sums.sum(axis=1)
        shares = counts / counts.sum()
        covariance = released.second - np.outer(total, total) / counts.sum()
        contrasts = released.sums - np.outer(total, shares)
        # coordinates in which W is diagonal: where it stands out of the noise, along the sums elsewhere, and the rest
        shown = values > edge(len(values), noise.second)
        above, below = upright(vectors[:, shown]), vectors[:, ~shown]
        seen = low_rank_before_noise(above.T @ contrasts, noise.sums)
        hidden = low_rank_before_noise(below.T @ contrasts, noise.sums)
        along = below @ hidden.left
        quotients = along.T @ covariance @ along - _scatter(hidden, counts)
        found, rotation = np.linalg.eigh(quotients)  # SciPy 1.12 refuses empty ones
        along = upright(along @ rotation)
        hidden_rows = along.T @ below @ hidden.left @ _rows(hidden)
        upper = spectrum_before_noise(values, noise.second)[shown]
        middle = spectrum_before_noise(found, noise.second)
        parts = [
            merged_directions(upper, seen.left @ _rows(seen) + np.outer(above.T @ total, shares), most_features),
            (middle, hidden_rows + np.outer(along.T @ total, shares), np.ones(len(middle))),
        ]
        n_left = len(values) - len(upper) - len(middle)
        if n_left:  # no signal there but the mean of all, along one direction
            trace = np.trace(covariance) - np.trace(_scatter(seen, counts)) - np.trace(_scatter(hidden, counts))
            flat = np.full(n_left, swamped_mean(float(trace - upper.sum() - middle.sum()), n_left, noise.second))
            beside = total - above @ (above.T @ total) - along @ (along.T @ total)
            rest = np.vstack([np.linalg.norm(beside) * shares, np.zeros((n_left - 1, len(shares)))])
            parts.append(merged_directions(flat, rest, most_features))
        values, sums, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
        moments = ReleasedMoments(sums, counts, released.n, NO_NOISE, np.diag(values) + (sums / counts) @ sums.T)
        return PlausibleMoments(self.restricted(np.arange(len(values))), moments, noise, numbers)


def _leading_of_rank(pencil: Pencil, basis: Matrix | None) -> Matrix:
    """Largest eigenvalues of V^T F^T diag(w) F V, the A of each of several releases, V the ``basis``; at least 0."""
    columns = (pencil.factors if basis is None else pencil.factors @ basis).swapaxes(-1, -2)
    if columns.shape[-2] > columns.shape[-1]:  # that of R diag(w) R^T, where the columns of V^T F^T are Q R
        columns = np.asarray(np.linalg.qr(columns, mode="r"))
    small = (columns * pencil.a.weights[:, None, :]) @ columns.swapaxes(-1, -2)
    return np.maximum(np.linalg.eigvalsh(small)[:, -1], 0.0)


def _rows(contrasts: LowRank) -> Matrix:
    """Sums of the groups, less their share of the sum of all, along the left vectors."""
    return np.asarray(contrasts.sizes[:, None] * contrasts.right)


def _scatter(contrasts: LowRank, counts: Matrix) -> Matrix:
    """The scatter of means along the left vectors: less than that of the rows, as noise has turned the vectors."""
    rows = np.sqrt(contrasts.overlaps)[:, None] * _rows(contrasts)
    return np.asarray((rows / counts) @ rows.T)
