"""Accuracy of components of which only quotients are known: a noisy pair that is known by its products has no spectrum.

The law of the noise stands in for it. For B the identity: a semicircle around ``centre``, above which a component of
eigenvalue centre + theta shows at centre + theta + edge^2/(4 theta), with a squared sine of edge^2/(4 theta^2). For
other B the same sums are bounded with the least that the ridge leaves of B.
"""

from __future__ import annotations

import math

import numpy as np

from dpgep.methods.accuracy import FALSE_ALARM, RANK, Accuracy, log_supports, semicircle_edge
from dpgep.models.model import Matrix, Model
from dpgep.models.moments import ReleasedGroups
from dpgep.privacy.products import NoisyProducts


def products_accuracy(
    model: Model,
    products: NoisyProducts,
    eigenvalues: Matrix,
    sizes: Matrix,
    *,
    ridge: float,
    centre: float,
    sparsity: int | None = None,
) -> Accuracy:
    """`quotient_accuracy` of components found by noisy products; ``centre`` is 0 where B is not the identity."""
    return quotient_accuracy(
        eigenvalues,
        sizes,
        noise_level=products.noise_level,
        n_features=model.n_features,
        sparsity=sparsity,
        identity_b=products.identity_b,
        ridge=ridge,
        centre=centre,
        groups=products.groups,
        noise_order=model.noise_order,
    )


def quotient_accuracy(
    eigenvalues: Matrix,
    sizes: Matrix,
    *,
    noise_level: float,
    n_features: int,
    sparsity: int | None = None,
    identity_b: bool = True,
    ridge: float = 0.0,
    centre: float = 0.0,
    groups: ReleasedGroups | None = None,
    noise_order: int = 1,
) -> Accuracy:
    """Accuracy of K components from their ``eigenvalues`` and ``sizes`` u^T (B + ridge I) u, u of unit norm.

    ``noise_level`` is that of an answer, of B or of A where B is the identity; ``sparsity`` the number of features in
    use, searched for among ``n_features``; ``groups`` released sums and counts, where there are some.
    """
    k = len(eigenvalues)
    if noise_level == 0:
        return Accuracy(np.zeros(k), 0.0, (False,) * k)
    used = sparsity or n_features
    deviation = noise_level / math.sqrt(2 * n_features)
    alone = _alone(deviation, n_features, used, groups, noise_order)
    heights = (eigenvalues - centre) * sizes
    lost = tuple(bool(gone) for gone in np.cumsum(~(heights > alone)) > 0)
    found = lost.index(True) if True in lost else k
    values, size = eigenvalues[:found], sizes[:found]
    edge = deviation * math.sqrt(2 * used)
    if identity_b:
        heights = np.maximum(heights[:found], edge)
        theta = (heights + np.sqrt(heights**2 - edge**2)) / 2
        bulk, scale = (edge / (2 * theta)) ** 2, np.full(found, deviation**2 / 2)
    else:
        scale = deviation**2 / 2 * (1 + values**2)
        bulk = _squared_sine(scale * used / (max(ridge, deviation) * size * values**2))
        bulk = 1 - (1 - bulk) * (1 - np.minimum(ridge / size, 1.0))  # what the ridge holds of a component is bias
    gaps = (values[:, None] - values) ** 2 * (size[:, None] * size)
    np.fill_diagonal(gaps, np.inf)
    with np.errstate(divide="ignore"):
        among = _squared_sine((scale[:, None] / gaps).sum(axis=1))
    errors = np.ones(k)
    errors[:found] = 1 - (1 - bulk) * (1 - among)
    most = float(min(k, used - k))
    return Accuracy(errors, min(float(bulk.sum()) + k - found, most) if most >= 0 else 0.0, lost)


def _alone(deviation: float, d: int, used: int, groups: ReleasedGroups | None, noise_order: int) -> float:
    """Largest quotient v^T A v of unit vectors that noise alone hardly exceeds, v with ``used`` of d entries."""
    if noise_order == 2:
        assert groups is not None  # their means are what grows with the square of the noise
        noise = groups.noise.sums * (math.sqrt(used) + math.sqrt(max(groups.sums.shape[1] - 1, 1)) + _rank(d, used))
        return float(noise**2 / max(groups.counts.min(), groups.noise.counts, 1 / groups.n))
    edge = deviation * semicircle_edge(used, log_supports(d, used))
    if groups is None or groups.sums.size == 0:
        return edge
    # centring: -(m e^T + e m^T) with e the noise of the mean m, an outlier of the semicircle where it is strong
    mean = float(np.linalg.norm(groups.sums.sum(axis=1)))
    tilt = mean * groups.noise.sums * math.sqrt(groups.sums.shape[1]) * (math.sqrt(used) + RANK)
    bulk = deviation * math.sqrt(2 * used)
    return max(edge, tilt + bulk**2 / (4 * tilt) + RANK * deviation) if tilt > bulk / 2 else edge


def _rank(d: int, used: int) -> float:
    """Normal deviations at FALSE_ALARM, for each of the supports."""
    return math.sqrt(2 * (log_supports(d, used) - math.log(FALSE_ALARM)))


def _squared_sine(squared_tangent: Matrix) -> Matrix:
    return np.asarray(1 - 1 / (1 + squared_tangent))
