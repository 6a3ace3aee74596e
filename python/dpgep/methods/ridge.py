"""The ridge xi of B_+ + xi I: chosen from a released pair and its known noise, or a public multiple of the noise.

The release is repeated in a simulation: its denoised values are taken for the truth, new noise of the known law is
added, the pair is solved with each candidate, and the solutions are compared with those of the supposed truth. Errors
with the ridge in use count as well that its neighbouring eigenvalues may be nearer, or in another order
(docs/mathematics.md, section 4). All of it is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import scipy.linalg

from dpgep.methods.eigen import before_noise
from dpgep.models.model import Matrix, MatrixPencil, NoisyPencil
from dpgep.privacy.products import NoisyProducts

MULTIPLES = (0.01, 0.03, 0.1, 0.3, 0.55, 1.0, 1.7, 3.0, 5.0)  # candidates, in units of the noise level of B
TIE = 1.03  # errors within this factor of the least are as good: the simulation is not sharper
# Features of the simulated problem: more of a kind (in the noise, or out of it) are thinned out to about this many.
MOST_FEATURES = 96
# Repeated releases: at least this many, and more of small matrices, whose errors scatter more, up to this many.
FEWEST_DRAWS = 4
MOST_DRAWS = 40
_DRAWN_FEATURES = 400
# Public multiples, where there is no whole pair to choose by: of noise that is averaged, or is met on a few features
# alone; and the whole noise level, which makes the noisy B positive definite.
PART = 0.3
WHOLE = 1.0
# The noise is drawn from a public seed, the same in every run: the choice is a function of the released values.
_SEED = 0
# A unit column adds nothing to a span that it leaves by less than this; errors below it are rounding.
_DEPENDENT = 1e-12
_TINY = float(np.finfo(float).tiny)
Axes: TypeAlias = "tuple[Matrix, Matrix] | None"  # eigenvalues and vectors of B, None for the identity


@dataclass(frozen=True, eq=False)
class Ridge:
    """xi, and the errors that the K leading solutions are estimated to have with it: squared sines in the norm of B."""

    regularization: float  # xi, in the units of B
    error: Matrix  # (K,), expected, between each component and the one of the pair without noise
    subspace_error: float  # the same of the span of all K, summed


def public_ridge(noise_level: float, *, n_answers: int = 1, multiple: float = PART) -> float:
    """A public multiple of the known noise level, which falls with the root of the number of answers averaged."""
    return multiple * noise_level / math.sqrt(n_answers)


def products_ridge(
    products: NoisyProducts, given: float | None, *, multiple: float = WHOLE, n_answers: int = 1
) -> float:
    """The ridge where only products with B are known: ``given``, or public; 0 where B is the identity."""
    if products.identity_b:
        return 0.0
    default = public_ridge(products.noise_level, n_answers=n_answers, multiple=multiple)
    return default if given is None else float(given)


def released_ridge(
    noisy: NoisyPencil, n_components: int, noise_level: float, given: float | None, *, sparse: bool
) -> tuple[float, Ridge | None]:
    """The ridge of a released pair with a noisy B, given or chosen, and the errors it leaves; if sparse, public."""
    if sparse or noise_level == 0:
        return public_ridge(noise_level) if given is None else given, None
    repeats = Repeats.of(noisy, n_components)
    xi = repeats.chosen(noise_level).regularization if given is None else given
    return xi, repeats.judged(xi)


@dataclass(frozen=True, eq=False)
class Repeats:
    """A supposed truth, its K + 1 leading solutions in the norm of B, and repeated releases of it.

    Of many features, thinned out to about ``MOST_FEATURES`` of a kind, and K to what is left.
    """

    truth: MatrixPencil
    root: Matrix  # R with R^T R = B
    right: Matrix  # (d, K + 1), R V
    noisy: MatrixPencil  # stacked
    k: int

    @classmethod
    def of(cls, noisy: NoisyPencil, n_components: int) -> Repeats:
        truth = noisy.plausible_truth(MOST_FEATURES)
        pair = truth.pair()
        d = len(pair.a)
        k = min(n_components, d)
        root = np.eye(d) if pair.b is None else np.asarray(scipy.linalg.cholesky(pair.b, check_finite=False))
        right = _solutions(pair, _axes(pair.b), min(k + 1, d), np.zeros(1), root)[0]
        draws = min(max(_DRAWN_FEATURES // d, FEWEST_DRAWS), MOST_DRAWS)
        return cls(pair, root, right, truth.noisy_pair(np.random.default_rng(_SEED), draws), k)

    @cached_property
    def _noisy_axes(self) -> Axes:
        return _axes(self.noisy.b)

    def errors(self, xis: Matrix) -> list[Ridge]:
        """Of the leading solutions with each xi, where the truth's gaps between eigenvalues count as known."""
        solutions = _solutions(self.noisy, self._noisy_axes, self.k, xis, self.root)
        found = squared_sines(self.right[:, : self.k], solutions).mean(axis=0)
        return [Ridge(float(xi), error[1:], float(error[0])) for xi, error in zip(xis, found, strict=True)]

    def chosen(self, noise_level: float) -> Ridge:
        """The multiple of the noise level of B, among ``MULTIPLES``, whose error of the span is least.

        Within ``TIE`` of it, the one nearest to the noise level. Of K = d components, the sum of their errors counts.
        """
        ridges = self.errors(noise_level * np.array(MULTIPLES))
        errors = np.array([ridge.subspace_error for ridge in ridges])
        if errors.max() < _DEPENDENT:
            errors = np.array([ridge.error.sum() for ridge in ridges])
        tied = np.flatnonzero(errors <= TIE * errors.min())
        return ridges[min(tied, key=lambda index: abs(math.log(MULTIPLES[index])))]

    def judged(self, xi: float) -> Ridge:
        """The errors with xi where eigenvalues of the truth are known as far as the release shows them.

        Their repulsion is undone, and in each draw they are shaken by the deviation of v^T (dA - lambda dB) v: by s_i,
        A by sum_i s_i (B v_i)(B v_i)^T. Solutions v whose eigenvalues changed places are others.
        """
        v, duals = np.linalg.solve(self.root, self.right), self.root.T @ self.right
        whole = v.T @ self.truth.a @ v
        values, strayed = np.diagonal(whole).copy(), v.T @ self.noisy.a @ v - whole
        if self.noisy.b is not None and self.truth.b is not None:
            strayed = strayed - values[:, None] * (v.T @ (self.noisy.b - self.truth.b) @ v)
        variances = np.square(strayed).mean(axis=0)
        supposed = before_noise(values, np.sqrt(variances * variances.T))
        shakes = np.random.default_rng(_SEED + 1).standard_normal((len(strayed), len(values)))
        steps = supposed - values + shakes * np.sqrt(np.diagonal(variances))
        order = np.argsort(-(values + steps), axis=-1, kind="stable")[:, : self.k]
        right = np.swapaxes(self.right.T[order], -1, -2)[:, None]
        low_rank = None
        if self.noisy.low_rank is not None:
            factors, weights = self.noisy.low_rank
            also = np.broadcast_to(duals.T, (len(steps), *duals.T.shape))
            low_rank = np.concatenate([factors, also], axis=-2), np.concatenate([weights, steps], axis=-1)
        shaken = replace(self.noisy, a=self.noisy.a + (duals * steps[:, None]) @ duals.T, low_rank=low_rank)
        solutions = _solutions(shaken, self._noisy_axes, order.shape[1], np.array([xi]), self.root)
        error = squared_sines(right, solutions).mean(axis=0)[0]
        return Ridge(xi, error[1:], float(error[0]))


def _axes(b: Matrix | None) -> Axes:
    if b is None:
        return None
    values, vectors = np.linalg.eigh(b)
    return values, vectors


def _solutions(pair: MatrixPencil, axes: Axes, k: int, regularizations: Matrix, root: Matrix) -> Matrix:
    """R V (..., m, d, K) with unit columns, V the leading solutions of A v = lambda (B_+ + xi I) v for each of m xi, R
    the ``root`` with R^T R = B of the truth, ``axes`` the eigenvalues and vectors of B. A column is zero where
    B_+ + xi I has rank below K.
    """
    if axes is None:
        vectors = np.linalg.eigh(pair.a)[1][..., ::-1]
        return np.repeat(vectors[..., None, :, :k], len(regularizations), axis=-3)
    values, basis = axes
    scales = np.maximum(values, 0.0)[..., None, :] + regularizations[:, None]
    scales = np.where(scales > pair.rounding, 1 / np.sqrt(np.maximum(scales, np.finfo(float).tiny)), 0.0)
    return unit_columns((root @ basis)[..., None, :, :] @ (scales[..., None] * _leading(pair, basis, scales, k)))


def unit_columns(columns: Matrix) -> Matrix:
    """(..., d, K), of norm 1 where they are not zero."""
    norms = np.linalg.norm(columns, axis=-2, keepdims=True)
    return np.asarray(columns / np.where(norms > 0, norms, 1.0))


def _leading(pair: MatrixPencil, basis: Matrix, scales: Matrix, k: int) -> Matrix:
    """(..., m, d, K), leading eigenvectors of D U^T A U D for the ``basis`` U and m diagonal D = ``scales``."""
    transposed = basis.swapaxes(-1, -2)
    if pair.low_rank is None or 2 * pair.low_rank[0].shape[-2] >= basis.shape[-1]:
        whitened = (transposed @ pair.a @ basis)[..., None, :, :] * scales[..., None] * scales[..., None, :]
        return np.asarray(np.linalg.eigh(whitened)[1][..., : -k - 1 : -1])
    factors, weights = pair.low_rank
    q, triangle = np.linalg.qr((transposed @ factors.swapaxes(-1, -2))[..., None, :, :] * scales[..., None])
    small = (triangle * weights[..., None, None, :]) @ triangle.swapaxes(-1, -2)
    return np.asarray(q @ np.linalg.eigh(small)[1][..., : -k - 1 : -1])


def norm_root(b: Matrix | None, d: int) -> Matrix:
    """R with R^T R = B also of a singular B, whose eigenvalues count as at least 1e-12 of the largest."""
    if b is None:
        return np.eye(d)
    values, vectors = np.linalg.eigh(b)
    return np.asarray(np.sqrt(np.maximum(values, max(_DEPENDENT * values[-1], _TINY)))[:, None] * vectors.T)


def squared_sines(right: Matrix, found: Matrix) -> Matrix:
    """(..., m, 1 + K): for the spans, summed, then for each column; a zero one is at a right angle to everything."""
    q, triangle = np.linalg.qr(found)
    q *= np.abs(np.diagonal(triangle, axis1=-2, axis2=-1))[..., None, :] > _DEPENDENT
    wanted = np.linalg.qr(right)[0]
    of_spans = np.sum((wanted - q @ (q.swapaxes(-1, -2) @ wanted)) ** 2, axis=(-2, -1))
    cosines = np.sum(right * found, axis=-2, keepdims=True)
    of_columns = np.sum((right - cosines * found) ** 2, axis=-2)
    return np.concatenate([of_spans[..., None], of_columns], axis=-1)
