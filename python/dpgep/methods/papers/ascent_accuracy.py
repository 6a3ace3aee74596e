"""How far a stochastic ascent ends from the leading eigenvectors: what its own steps show of it, at no cost.

A step moves V across its span by eta times the residual R = (I - V^T V) A V + xi, xi the noise of the answer and of the
sample. Near the end, with t the tangent of the angle between component k and an eigenvector of eigenvalue mu,

    t <- (1 + eta mu)/(1 + eta lambda_k) t + eta/(1 + eta lambda_k) xi:

a known function of the steps, of lambda_k - mu, and of the variance of xi, which is that of R about its mean over the
last steps. Where the ascent has not arrived, the mean of R exceeds its own error, and shows (lambda_k - mu) t itself.
Steps are functions of released answers.

Which other eigenvalues there are is not known: they are taken to fall geometrically from the last component's, and to
add up to the variance that is left, by the mean of all variances, which quotients of random directions show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpgep.methods.accuracy import Accuracy
from dpgep.methods.eigen import leading_first
from dpgep.models.model import Matrix

# A block and the steps to take from it; the block after them, and the mean of the noisy quotients.
Ascend = Callable[[Matrix, Matrix], tuple[Matrix, Matrix]]

# This number of further eigenvalues stands for all the others.
_NODES = 48
# An ascent has not arrived if it is this many times as far off as noise explains; squared sines not worth a word.
_BEYOND_NOISE, _UNSAID = 2.0, 1e-5


@dataclass(frozen=True, eq=False)
class Trace:
    """What m steps showed, on the directions of the mean of their quotients.

    Attributes
    ----------
    vectors : (K, d), the block after the last step, turned to these directions by ``rotation``^T.
    values : (K,), their quotients.
    residuals : (K,), squared norms of the mean residuals, without what their own error adds.
    scatter : (K,), squared norms of the residuals about their mean; 0 of a single step.
    entries : (K, K), variances of the entries of the mean quotient.
    """

    vectors: Matrix
    rotation: Matrix
    values: Matrix
    residuals: Matrix
    scatter: Matrix
    entries: Matrix

    @classmethod
    def of(cls, ascend: Ascend, vectors: Matrix, steps: Matrix, n_scattered: int) -> Trace:
        """Take the steps one by one; the last ``n_scattered`` show the residuals."""
        k, m = len(vectors), len(steps)
        quotients, total, squares = np.empty((m, k, k)), np.zeros_like(vectors), np.zeros((k, k))
        for row, step in enumerate(steps):
            moved, quotients[row] = ascend(vectors, steps[row : row + 1])
            if row >= m - n_scattered:
                # moved = T (V + eta G): what is across V is eta (I + eta G V^T)^-1 of the residual
                across = np.linalg.pinv(moved @ vectors.T) @ moved - vectors
                residual = (np.eye(k) + step * quotients[row]) @ across / step
                total += residual
                squares += residual @ residual.T
            vectors = moved
        values, rotation = leading_first(quotients.mean(axis=0))
        mean, freedom = rotation.T @ (total / n_scattered), max(n_scattered - 1, 1)
        lengths = np.einsum("ij,ij->i", mean, mean)
        of_all = np.diagonal(rotation.T @ squares @ rotation) / n_scattered
        scatter = np.maximum(of_all - lengths, 0.0) * n_scattered / freedom
        turned = rotation.T @ quotients @ rotation
        entries = turned.var(axis=0, ddof=1) / m if m > 1 else np.zeros((k, k))
        residuals = np.maximum(lengths - scatter / n_scattered, 0.0)
        return cls(rotation.T @ vectors, rotation, values, residuals, scatter, entries)


@dataclass(frozen=True, eq=False)
class Ascent:
    """The steps of an ascent, from the first, and what is known of the noise that stays in its answers.

    Attributes
    ----------
    steps : (T,), step sizes.
    total : sum of all variances; as much again as the components have where it is not known.
    variance : of an entry, of the noise in what all answers of the last epoch share; 0 where they share none.
    """

    steps: Matrix
    total: float | None
    variance: float = 0.0

    def accuracy(self, trace: Trace, known: Accuracy, noise: Matrix) -> tuple[Accuracy, Matrix]:
        """The accuracy of components, some of them lost by ``known``; and which may not have arrived.

        ``noise`` (K,) is the variance of the noise in an entry of a residual.
        """
        values, (k, d) = trace.values, trace.vectors.shape
        found = known.lost.index(True) if True in known.lost else k
        if k == d:  # there is nothing across the span
            left, begun, far = np.zeros((3, k))
        else:
            others, numbers = self._others(values[: max(found, 1)], d - k)
            left, begun = self._tangents(values, trace.scatter, noise, others, numbers)
            far = trace.residuals / _gap(values, numbers @ others / (d - k)) ** 2
        outside = _squared_sine(np.maximum(left, far))
        gaps = (values[:, None] - values) ** 2
        np.fill_diagonal(gaps, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            among = _squared_sine(np.where(trace.entries > 0, trace.entries / gaps, 0.0).sum(axis=1))
        errors, strays = np.ones(k), np.ones(k)
        errors[:found], strays[:found] = (1 - (1 - outside) * (1 - among))[:found], outside[:found]
        accuracy = Accuracy(errors, min(float(strays.sum()), float(min(k, d - k))), known.lost)
        unsure = np.maximum(far, begun) > np.maximum(_BEYOND_NOISE * left, _UNSAID)
        return accuracy, unsure & ~np.array(known.lost)

    def _others(self, values: Matrix, n: int) -> tuple[Matrix, Matrix]:
        """Other eigenvalues, n in all: some of them, and for how many each stands."""
        last, known = max(float(values[-1]), 0.0), float(np.maximum(values, 0.0).sum())
        left = known if self.total is None else max(self.total - known, 0.0)
        ratio = left / (left + last) if left > 0 else 0.0
        places = np.unique(np.round(np.geomspace(1, n, _NODES)))
        return last * ratio**places, np.diff(places, append=n + 1)

    def _tangents(
        self, values: Matrix, scatter: Matrix, noise: Matrix, others: Matrix, numbers: Matrix
    ) -> tuple[Matrix, Matrix]:
        """(K,), squared tangents that are left by noise and by samples, and of those at which the ascent began.

        Noise is the same in all directions. What samples add lies between that and the proportions of the eigenvalues:
        a third is taken to have these. In a random block tangents are about 1.
        """
        steps, n = self.steps[:, None], float(numbers.sum())
        grown = np.log1p(steps * np.maximum(values, 0.0))
        added, begun = np.zeros((2, len(others), len(values)))
        for row, other in enumerate(others):
            kept = np.log1p(steps * other) - grown
            after = np.cumsum(kept[::-1], axis=0)[::-1]
            added[row] = np.sum((steps / (1 + steps * other)) ** 2 * np.exp(2 * after), axis=0)
            begun[row] = np.exp(2 * after[0])
        total = float(numbers @ others)
        parts = (2 / n + (others / total if total > 0 else 1 / n)) / 3
        of_one = np.minimum(noise, scatter / n) + np.outer(parts, np.maximum(scatter - n * noise, 0.0))
        shared = self.variance / np.array([_gap(values, other) for other in others]) ** 2
        return np.asarray(numbers @ (added * of_one + shared)), np.asarray(numbers @ begun)


def _gap(values: Matrix, other: float) -> Matrix:
    tiny = 1e-9 * max(float(np.abs(values).max()), np.finfo(float).tiny)
    return np.asarray(np.maximum(values - other, tiny))


def _squared_sine(squared_tangent: Matrix) -> Matrix:
    return np.asarray(1 - 1 / (1 + squared_tangent))
