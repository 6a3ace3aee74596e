"""Canonical correlations by ascent on clipped residuals: A v = lambda B v without a noisy B (docs/clipped-power.md).

A step takes v, the clipped gradient g and the last change p, and solves the problem within their span, of which the
second moment of few coordinates is bought. (Rayleigh and Ritz; without noise, LOBPCG of Knyazev 2001.) So steps have
the best lengths whatever the condition of B, and noise in g is weighed against that in v.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy  # its special functions are loaded when they are used
import scipy.linalg

from dpgep.models.bins import LARGEST_THRESHOLD, LEAST_THRESHOLD, norm_quantile, share_below
from dpgep.models.model import Matrix
from dpgep.privacy import clipped_products
from dpgep.privacy.curator import Curator

# Shares of mu^2: of looks at the norms of products, of the second moments of few coordinates.
_LOOKS_SHARE, _RITZ_SHARE = 0.06, 0.2
# Steps with r = 0, a power method on the cross-covariance: they find a direction where there was none.
_POWER_STEPS = 3
# Few coordinates are clipped to this many times the length that normal ones of mean variance have.
_RITZ_THRESHOLD = 1.5
_RECENT = 3  # this many last steps tell how far the vectors still move
_LEAST_RESIDUAL = 1e-4  # 1 - r^2 counts as at least this


class ResidualAscent:
    """K canonical pairs from ``start`` (K, d), orthonormal in each view, for ``share`` of mu^2.

    ``options``, of "clipped-power": a threshold "auto" is the quantile of the norms of residuals, bought at the start,
    when residuals are first asked for, and half way.
    """

    def __init__(self, curator: Curator, start: Matrix, options: Any, share: float) -> None:
        self._curator, self._options, n_iterations = curator, options, options.n_iterations
        self._location: Matrix | None = None
        self._power = min(_POWER_STEPS, n_iterations)
        self._look_at = {0, self._power, (self._power + n_iterations) // 2} - {n_iterations}
        self._each = share * (1 - _LOOKS_SHARE - _RITZ_SHARE) / n_iterations
        self._each_look = share * _LOOKS_SHARE / (2 * len(self._look_at))
        self._each_ritz = share * _RITZ_SHARE / (n_iterations - self._power + 1)
        require_affordable(curator, min(self._each, self._each_ritz))
        self.vectors, self.values, self._change = start, np.zeros(len(start)), start[:0]  # values descend
        self._moves: list[Matrix] = []
        # of each view: deviation of a product with a unit vector, in bounds; C over the size of a residual
        self._sizes, self._ratios = np.ones(2), np.ones(2)
        self.thresholds: list[float] = []  # C of both views, step by step
        self.deviation = 0.0  # of the noise of one answer, as if it were that of a released matrix and B the identity
        self.kept = 1.0  # share of the people whose residuals were not clipped
        self.n_coordinates = 0  # of the last second moment
        self.coordinate_noise = 0.0  # there, the deviation of the noise in an entry over the least variance

    def run(self, location: Matrix | None) -> None:
        """All steps; the mean of the rows is ``location``, None for 0."""
        self._location = location
        x, y = self._curator.model.views
        for step in range(self._power):
            answer = self._gradient(step)
            first = self.vectors[:, x] if step == 0 else polar(answer[:, x])  # the first view decides on signs
            self.vectors = np.hstack([first, polar(answer[:, y])])
        # the last one takes all that is left: shares that are rounded may be a bit more than there is
        shares = [self._each_ritz] * (self._options.n_iterations - self._power) + [None]
        self._solve_within(self.vectors, shares[0])
        for step, share in enumerate(shares[1:], self._power):
            self._solve_within(np.vstack([self.vectors, self._gradient(step), self._change]), share)

    @property
    def moved(self) -> Matrix:
        """(K,), squared sines by which the last steps turned the vectors, in the norm of B."""
        return np.asarray(np.minimum(np.sum(self._moves[-_RECENT:], axis=0), 1.0))

    def _gradient(self, step: int) -> Matrix:
        """(K, d), the gradient for the vectors as they are, clipped and noisy."""
        x, y = self._curator.model.views
        by_first, by_second = self.vectors.copy(), self.vectors.copy()
        by_first[:, y] *= -self.values[:, None]
        by_second[:, x] *= -self.values[:, None]
        directions = np.vstack([by_first, by_second])
        length = float(np.linalg.norm(directions, 2)) * (1 + 2.0**-40)
        directions /= length
        size = math.sqrt(float(np.maximum(1 - self.values**2, _LEAST_RESIDUAL).sum())) / length
        if step in self._look_at and not self._curator.noiseless:
            self._look(np.split(directions, 2), size, step)
        thresholds = self._thresholds_now(size)
        asked = clipped_products.Asked(directions, self._location)
        answer = self._curator.answer(clipped_products.ClippedMean(asked, thresholds), self._each, f"step {step + 1}")
        self.thresholds.extend(thresholds)
        self.deviation = length * self._against_scores(answer.deviation, thresholds, step)
        return answer.values * length

    def _look(self, halves: list[Matrix], size: float, step: int) -> None:
        """Buy how long the residuals of both views are."""
        asked = (clipped_products.ProductNorms(clipped_products.Asked(half, self._location)) for half in halves)
        norms = [self._curator.answer(each, self._each_look).values for each in asked]
        quantiles = np.array([norm_quantile(each, self._options.quantile) for each in norms])
        self._ratios = quantiles / size
        if step == 0:  # their median is known of normal products
            median = math.sqrt(2 * float(scipy.special.gammaincinv(len(self.values) / 2, 0.5)))
            self._sizes = np.array([norm_quantile(each, 0.5) for each in norms]) / median
        self.kept = min(share_below(each, c) for each, c in zip(norms, self._thresholds_now(size), strict=True))

    def _thresholds_now(self, size: float) -> clipped_products.Thresholds:
        if self._curator.noiseless:
            return LARGEST_THRESHOLD, LARGEST_THRESHOLD
        if self._options.threshold != "auto":
            return (float(self._options.threshold),) * 2
        first, second = np.clip(self._ratios * size, LEAST_THRESHOLD, LARGEST_THRESHOLD).tolist()
        return first, second

    def _against_scores(self, deviation: float, thresholds: clipped_products.Thresholds, step: int) -> float:
        """Root mean square of the noise in the entries, each divided by the deviations of its column and its score."""
        assert self._curator.facts.bound is not None
        x, y = self._curator.model.views
        shares = np.array([x.stop, y.stop - x.stop]) / y.stop
        columns = self._sizes * self._curator.facts.bound
        scores = columns[::-1] if step < self._power else np.ones(2)  # later ones have unit variance
        squares = np.square(thresholds[::-1])
        return deviation * math.sqrt(float(shares @ (squares / (columns * scores) ** 2)) / float(shares @ squares))

    def _solve_within(self, rows: Matrix, share: float | None) -> None:
        """The leading pairs within the span of ``rows`` (m, d) in each view; the first K are the pairs so far."""
        views, k = self._curator.model.views, len(self.values)
        bases, coordinates = zip(*(np.linalg.qr(rows[:, view].T) for view in views), strict=True)
        width, n_coordinates = bases[0].shape[1], sum(basis.shape[1] for basis in bases)
        halves = (slice(0, width), slice(width, n_coordinates))  # a view has no more of them than columns
        directions = np.zeros((n_coordinates, rows.shape[1]))
        for half, view, size, basis in zip(halves, views, self._sizes, bases, strict=True):
            # coordinates of both views of one size: their norm is clipped
            directions[half, view] = basis.T * (self._sizes.min() / size * (1 - 2.0**-40))
        wanted, threshold = _RITZ_THRESHOLD * math.sqrt(n_coordinates) * float(self._sizes.min()), LARGEST_THRESHOLD
        if not self._curator.noiseless:
            threshold = min(max(wanted, LEAST_THRESHOLD), LARGEST_THRESHOLD)
        asked = clipped_products.Asked(directions, self._location)
        moment = self._curator.answer(clipped_products.ClippedMoment(asked, (threshold,)), share, "few coordinates")
        # with eigenvalues of at least the deviation of an entry
        values, vectors = scipy.linalg.eigh((moment.values + moment.values.T) / 2)
        floor = max(moment.deviation, float(values[-1]) * 2.0**-40, np.finfo(float).tiny)
        joint = (vectors * np.maximum(values, floor)) @ vectors.T
        self.n_coordinates = n_coordinates
        self.coordinate_noise = moment.deviation / float(np.diag(joint).min())
        roots = [np.asarray(np.linalg.cholesky(joint[half, half]), dtype=np.float64) for half in halves]
        # correlations, and orthonormal coefficients (m, K) of both views, in coordinates whitened by the roots
        half = scipy.linalg.solve_triangular(roots[0], joint[halves[0], halves[1]], lower=True)
        left, correlations, right = np.linalg.svd(scipy.linalg.solve_triangular(roots[1], half.T, lower=True).T)
        self.values, whitened = correlations[:k], (left[:, :k], right[:k].T)
        old, parts, moves = self.vectors, [], []
        for half, view, root, pair, before in zip(halves, views, roots, whitened, coordinates, strict=True):
            old_pair = np.linalg.qr(root.T @ before[:, :k])[0]
            moves.append(np.maximum(0.0, 1 - np.sum((old_pair.T @ pair) ** 2, axis=0)))
            parts.append(scipy.linalg.solve_triangular(root, pair, lower=True, trans="T").T @ directions[half, view])
        self._moves.append(np.mean(moves, axis=0))
        self.vectors = np.hstack(parts)
        spans = (np.linalg.qr(old[:, view].T)[0] for view in views)
        self._change = np.hstack([part - part @ span @ span.T for part, span in zip(parts, spans, strict=True)])


def require_affordable(curator: Curator, share: float) -> None:
    """Raise ValueError where this share of mu^2 is too little for an answer, or people are too many. Reads nothing."""
    if not curator.answer(clipped_products.AffordsClippedProducts(), share):
        raise ValueError(
            "the budget is too little for clipped products, or people are too many (2^26; 2^25 in public_n): use more "
            "of it, fewer steps, or a release"
        )


def polar(block: Matrix) -> Matrix:
    """The orthonormal rows nearest to the rows of ``block``: a sum of blocks stays near each of them."""
    left, _, right = np.linalg.svd(block, full_matrices=False)
    return np.ascontiguousarray(left @ right)
