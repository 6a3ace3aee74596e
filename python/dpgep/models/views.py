"""What models of several views of the same people share: joint rows z = (x, y, ...) and the covariance of z."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep.models.model import Matrix, PublicFacts, traits_of, view_labels
from dpgep.models.moments import (
    NO_NOISE,
    MomentLayout,
    PlausibleMoments,
    ReleasedGroups,
    ReleasedMoments,
    moment_layout,
    rank_two_squares,
    squares,
    symmetric_form_variance,
    total_mean,
)
from dpgep.models.null import (
    edge,
    low_rank_before_noise,
    merged_directions,
    spectrum_before_noise,
    swamped_mean,
    upright,
)
from dpgep.models.row_model import RowModel


class ViewsModel(RowModel):
    """Views of ``view_sizes`` features of the same people, centred or not: A and B are blocks of their covariance."""

    center: bool

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return view_labels(len(self.view_sizes))

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return sum(self.view_sizes)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "traits", traits_of(type(self), shift_free=self.center))

    def layout(self, facts: PublicFacts) -> MomentLayout:
        return moment_layout(self.n_features, 0, sums=self.center, facts=facts)

    def restricted(self, features: NDArray[np.intp]) -> ViewsModel:
        return self.resized([int(((view.start <= features) & (features < view.stop)).sum()) for view in self.views])

    @abstractmethod
    def resized(self, sizes: Sequence[int]) -> ViewsModel:
        """The same model of views of other numbers of features."""

    def plausible_population(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        return truth_of_views(self, released, most_features)

    def mean(self, released: ReleasedGroups) -> Matrix | None:
        return total_mean(released) if self.center else None


@dataclass(frozen=True)
class TwoViewModel(ViewsModel):
    """Two views, of d_x and d_y features."""

    d_x: int
    d_y: int
    center: bool

    @property
    def view_sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.d_x, self.d_y

    @property
    def max_components(self) -> int:
        return min(self.d_x, self.d_y)

    @property
    def max_components_reason(self) -> str:
        return f"{self.name.upper()} of {self.d_x} and {self.d_y} features has min = {self.max_components} pairs"

    def resized(self, sizes: Sequence[int]) -> TwoViewModel:
        d_x, d_y = sizes
        return replace(self, d_x=d_x, d_y=d_y, feature_names=None, indicators=())


def block_form_variance(
    released: ReleasedGroups, views: Sequence[slice], left: Any, right: Matrix, within: Matrix | float
) -> Matrix:
    """Var of u_j^T dT_i v_i, shape (k, r), dT_i the derivative of the covariance, its diagonal blocks times ``within``.

    The blocks carry independent noise: first the second moment, diagonal blocks (GOE) and the others (entries of
    variance s^2/2), then the sums of each view. The noise of n itself (add-remove) is of smaller order and left out.
    """
    weight = np.broadcast_to(within, right.shape[1])[:, None]
    parts = [(left[view], right[view]) for view in views]
    variance = weight**2 * sum(symmetric_form_variance(u, v) for u, v in parts)
    for (ux, vx), (uy, vy) in combinations(parts, 2):
        # |u_x v_y^T + v_x u_y^T|_F^2 / 2
        variance += np.outer(squares(vy), squares(ux)) / 2 + np.outer(squares(vx), squares(uy)) / 2
        variance += (vx.T @ ux) * (vy.T @ uy)
    variance *= released.noise.second**2
    if released.sums.size:
        mean = total_mean(released)
        along = [(mean[view] @ u, mean[view] @ v) for view, (u, v) in zip(views, parts, strict=True)]
        for i, (u, v) in enumerate(parts):
            # noise in this view's sums meets the mean of its own part and of the other parts (weight 1)
            others = along[:i] + along[i + 1 :]
            a_left = -(weight * along[i][0] + sum(of_left for of_left, _ in others))
            a_right = -(weight[:, 0] * along[i][1] + sum(of_right for _, of_right in others))
            variance += released.noise.sums**2 * rank_two_squares(u, v, a_left[:, None, :], a_right[:, None])
    return np.asarray(variance)


# Directions of a kind that a larger problem is not thinned out below: a few that stand out are all different.
_FEWEST = 24


def truth_of_views(model: ViewsModel, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
    """`Model.plausible_truth` of views whose covariances carry noise, too."""
    deviation = released.noise.second
    mean = total_mean(released) if released.sums.size else np.zeros(model.n_features)
    covariance = released.second - np.outer(mean, mean)
    share = min(most_features / model.n_features, 1.0)
    views, sizes = model.views, model.view_sizes
    # the views that were thinned out take the place of the rows and columns of the others, one after another
    joint, means = _signal_between(covariance, views, deviation), np.split(mean, np.cumsum(sizes)[:-1])
    numbers: list[Matrix] = []
    for i, view in enumerate(views):
        others = np.delete(np.arange(model.n_features), view)
        seen = _View.seen_through(covariance[view, view], covariance[view][:, others], deviation)
        beside = [joint[i][j] for j in range(len(views)) if j != i]
        cross, means[i], number, spectrum = seen.merged(np.hstack(beside), means[i], share)
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
    moments = ReleasedMoments(sums, released.counts, released.n, NO_NOISE, whole + np.outer(mean, mean))
    thinned = model.resized([len(number) for number in numbers])
    return PlausibleMoments(thinned, moments, released.noise, np.concatenate(numbers))


def _signal_between(covariance: Matrix, views: Sequence[slice], deviation: float) -> list[list[Any]]:
    """The blocks between views before noise; those within a view are left out."""
    blocks: list[list[Any]] = [[None] * len(views) for _ in views]
    for (i, x), (j, y) in combinations(enumerate(views), 2):
        signal = low_rank_before_noise(covariance[x, y], deviation / math.sqrt(2))
        blocks[i][j] = (signal.left * signal.sizes) @ signal.right
        blocks[j][i] = blocks[i][j].T
    return blocks


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
        basis = upright(np.hstack([vectors[:, shown], along @ rotation]))
        return _View(basis, known, int(shown.sum()), rest)

    def merged(self, cross: Matrix, mean: Matrix, share: float) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """The cross-covariance and the mean in fewer directions; for how many each stands; its value."""
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
        return rows[:, :-1], rows[:, -1], numbers, merged
