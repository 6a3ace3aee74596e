"""Two views whose canonical directions use few features, and what SciPy makes of them on these features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, toeplitz

Matrix = NDArray[np.float64]
Covariance = Literal["identity", "toeplitz"]
CORRELATIONS = (0.9, 0.75, 0.6)


@dataclass(frozen=True)
class SparseViews:
    """Rows of both views, and the features (of the joint row) that any planted direction uses."""

    x: Matrix
    y: Matrix
    features: NDArray[np.intp]

    @property
    def bound(self) -> float:
        """Longer than any joint row: nothing is clipped."""
        return 1.01 * float(np.linalg.norm(np.hstack([self.x, self.y]), axis=1).max())

    def scipy_solution(self, n_components: int) -> tuple[Matrix, Matrix]:
        """Leading correlations (K,) and directions (K, d) of the sample on the planted features."""
        rows = np.hstack([self.x, self.y])[:, self.features]
        covariance = np.cov(rows.T, bias=True)
        first = self.features < self.x.shape[1]
        within = first[:, None] == first
        values, vectors = eigh(np.where(within, 0.0, covariance), np.where(within, covariance, 0.0))
        directions = np.zeros((n_components, self.x.shape[1] + self.y.shape[1]))
        directions[:, self.features] = vectors[:, ::-1][:, :n_components].T
        return values[::-1][:n_components], directions


def sparse_views(
    seed: int,
    n_components: int,
    *,
    n: int = 2000,
    d_view: int = 50,
    covariance: Covariance = "toeplitz",
    own_features: bool = True,
) -> SparseViews:
    """Normal rows with canonical correlations CORRELATIONS[:K].

    Each view has d_view features, of covariance I or five blocks of Toeplitz matrices 0.8^|i-j| (Tan et al. 2018). A
    direction has three features of its own in each view; unless ``own_features``, all share the same three.
    """
    rng = np.random.default_rng([seed, n_components])
    within = np.eye(d_view)
    if covariance == "toeplitz":
        within = np.kron(np.eye(5), toeplitz(0.8 ** np.arange(d_view // 5)))
    left, right = (_directions(rng, within, n_components, own_features) for _ in range(2))
    between = within @ left.T @ np.diag(CORRELATIONS[:n_components]) @ right @ within
    joint = np.block([[within, between], [between.T, within]])
    rows = rng.standard_normal((n, 2 * d_view)) @ np.linalg.cholesky(joint).T
    features = np.flatnonzero(np.hstack([left, right]).any(axis=0))
    return SparseViews(rows[:, :d_view], rows[:, d_view:], features)


def _directions(rng: np.random.Generator, within: Matrix, n_components: int, own_features: bool) -> Matrix:
    """Rows (K, d) on few features, orthonormal in ``within``."""
    places = rng.permutation(len(within))
    directions = np.zeros((n_components, len(within)))
    for k, direction in enumerate(directions):
        features = places[3 * k : 3 * k + 3] if own_features else places[:3]
        direction[features] = rng.choice([-1, 1], 3) * rng.uniform(0.5, 1.5, 3)
        for earlier in directions[:k]:
            direction -= (earlier @ within @ direction) * earlier
        direction /= np.sqrt(direction @ within @ direction)
    return directions


def worst_squared_sine(rows: Matrix, reference: Matrix) -> float:
    """Squared sine of the largest angle between the spans of two sets of K rows."""
    q, r = np.linalg.qr(rows.T)[0], np.linalg.qr(reference.T)[0]
    return float(np.linalg.norm(r - q @ (q.T @ r), 2) ** 2)
