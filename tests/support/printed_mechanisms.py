"""Mechanisms with the noise that papers print, and mistakes that are easily made: negative controls of the audit.

They exist to be flagged. Each returns everything that its paper's privacy theorem covers. Rows lie in the unit ball;
functions of matrices take a `Pair`, so that a run costs microseconds. The papers are named in docs/errata.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Generator = np.random.Generator


@dataclass(frozen=True)
class Pair:
    """A and B of one data set of n people."""

    a: Matrix
    b: Matrix
    n: int


def centred_pca(x: Matrix) -> Pair:
    centred = x - x.mean(axis=0)
    return Pair(centred.T @ centred / len(x), np.eye(x.shape[1]), len(x))


def within_scatter(x: Matrix, labels: NDArray[np.intp]) -> Matrix:
    """(1/n) sum over people of (x - class mean)(x - class mean)^T."""
    means = np.stack([x[labels == c].mean(axis=0) for c in range(labels.max() + 1)])
    centred = x - means[labels]
    return np.asarray(centred.T @ centred / len(x))


def hu_fda(x: Matrix, labels: NDArray[np.intp]) -> Pair:
    """Equation (5) of Hu et al.: A is the scatter within classes, B the uncentred one of their means."""
    within = within_scatter(x, labels)
    return Pair(within, x.T @ x / len(x) - within, len(x))


def chen_fda(x: Matrix, labels: NDArray[np.intp]) -> Pair:
    """Chen et al.: A is the scatter of the class means around the mean, B that within classes."""
    within = within_scatter(x, labels)
    centred = x - x.mean(axis=0)
    return Pair(centred.T @ centred / len(x) - within, within, len(x))


def symmetric_iid(rng: Generator, shape: tuple[int, ...], deviation: float) -> Matrix:
    """Matrices whose upper triangle with its diagonal is independent, the lower one its copy."""
    z = rng.standard_normal(shape) * deviation
    upper = np.tri(shape[-1], dtype=bool).T
    return np.where(upper, z, np.swapaxes(z, -1, -2))


def symmetric_goe(rng: Generator, d: int, deviation: float) -> Matrix:
    z = rng.standard_normal((d, d)) * deviation
    return np.asarray((z + z.T) / 2)


def printed_rayleigh_flow_releases(
    pair: Pair, *, c1: float, c2: float, rho: float, iterations: int, rng: Generator
) -> tuple[Matrix, Matrix]:
    """All noisy A and B of DP-Rayleigh Flow (Hu et al., Algorithm 1, step 3): variances C^2 m / (n^2 rho)."""
    scale = math.sqrt(iterations / rho) / pair.n
    shape = (iterations, *pair.a.shape)
    return pair.a + symmetric_iid(rng, shape, c1 * scale), pair.b + symmetric_iid(rng, shape, c2 * scale)


def printed_initial_vector_release(
    pair: Pair, *, c1: float, c2: float, rho: float, rng: Generator
) -> tuple[Matrix, Matrix]:
    """Noisy A and B of the private initial vector (Hu et al., Algorithm 2, step 3): variances C^2 / (2 n^2 rho)."""
    scale = math.sqrt(1 / (2 * rho)) / pair.n
    shape = pair.a.shape
    return pair.a + symmetric_iid(rng, shape, c1 * scale), pair.b + symmetric_iid(rng, shape, c2 * scale)


def printed_largest_norm_scaling(x: Matrix, *, deviation: float, rng: Generator) -> Matrix:
    """Second moment of rows divided by the largest norm among them, with the noise that rows of norm 1 ask for."""
    scaled = x / np.linalg.norm(x, axis=1).max()
    return np.asarray(scaled.T @ scaled / len(x) + symmetric_goe(rng, x.shape[1], deviation))


def classical_deviation(sensitivity: float, epsilon: float, delta: float) -> float:
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def printed_local_record(row: Matrix, *, epsilon: float, delta: float, rng: Generator) -> Matrix:
    """What a client sends (Wang and Xu, Algorithm 1, step 2): x x^T with variance 2 log(1.25/delta)/epsilon^2."""
    return np.outer(row, row) + symmetric_iid(rng, (len(row),) * 2, classical_deviation(1.0, epsilon, delta))


def printed_dpsr(
    pair: Pair,
    *,
    c1: float,
    c2: float,
    epsilon: float,
    delta: float,
    xi: float,
    iterations: int,
    rng: Generator,
    step: float = 1.0,
) -> Matrix:
    """DPSR (Chen et al., Algorithm 2) from the identity, to its return value: eigenvalues of B in step 5 are exact."""
    factor = 2 * math.sqrt(iterations * math.log(1.25 / delta)) / (pair.n * epsilon)
    d = len(pair.b)
    v = np.eye(d)
    for _ in range(iterations):
        v = np.linalg.qr(v + step * (2 * pair.b @ v - factor * c1 * rng.standard_normal((d, d))))[0]
    basis = v / np.sqrt(np.einsum("ij,ij->j", v, pair.b @ v) + xi)
    reduced, rotation = basis.T @ pair.a @ basis, np.eye(d)
    for _ in range(iterations):
        noise = factor * c2 / xi * rng.standard_normal((d, d))
        rotation = np.linalg.qr(rotation + step * (2 * reduced @ rotation - noise))[0]
    return np.asarray(basis @ rotation)


def printed_dpsr_gradients(
    pair: Pair, *, c2: float, epsilon: float, delta: float, xi: float, iterations: int, rng: Generator
) -> Matrix:
    """The noisy gradients of DPSR's second loop in one dimension, where the iterate is 1: deviation ~ C2/(n xi)."""
    gradient = -2 * pair.a[0, 0] / (pair.b[0, 0] + xi)
    deviation = 2 * c2 * math.sqrt(iterations * math.log(1.25 / delta)) / (pair.n * epsilon * xi)
    return np.asarray(gradient + deviation * rng.standard_normal(iterations))


def corrected_dpsr(
    pair: Pair,
    *,
    sensitivity_a: float,
    sensitivity_b: float,
    mu: float,
    xi: float,
    iterations: int,
    rng: Generator,
    step: float = 1.0,
) -> tuple[Matrix, list[Matrix]]:
    """DPSR made sound: (return value, all noisy gradients).

    Eigenvalues of B come from its last *noisy* gradient. Given the noisy basis, the gradient 2 A~ V of the second loop
    moves by at most 2 D_A/min(eigenvalue + xi). All 2 m gradients together cost mu.
    """
    share = math.sqrt(2 * iterations) / mu
    d = len(pair.b)
    v, transcript = np.eye(d), []
    for _ in range(iterations):
        gradient = 2 * pair.b @ v + share * 2 * sensitivity_b * rng.standard_normal((d, d))
        eigenvalues = np.maximum(np.einsum("ij,ij->j", v, gradient) / 2, 0.0)
        previous, v = v, np.linalg.qr(v + step * gradient)[0]
        transcript.append(gradient)
    basis = previous / np.sqrt(eigenvalues + xi)
    reduced, rotation = basis.T @ pair.a @ basis, np.eye(d)
    deviation = share * 2 * sensitivity_a / float((eigenvalues + xi).min())
    for _ in range(iterations):
        gradient = 2 * reduced @ rotation + deviation * rng.standard_normal((d, d))
        rotation = np.linalg.qr(rotation + step * gradient)[0]
        transcript.append(gradient)
    return np.asarray(basis @ rotation), transcript


@dataclass(frozen=True)
class VarianceReduction:
    """One epoch of DP-VRPCA (Shang et al., Algorithm 2) on n - 1 rows e2 and one last row, which is e1 or zero.

    ``deviation`` of the noise in each of ``steps`` gradients; ``start`` is the angle of the epoch's first vector to e1.
    """

    n: int
    steps: int
    deviation: float
    step_size: float
    start: float

    def transcripts(self, last_is_e1: bool, batch: int, rng: Generator) -> Iterator[tuple[Matrix, Matrix]]:
        """Endless (noisy gradients (steps, 2), iterates before each of them (steps, 2)), simulated batch by batch."""
        start = np.array([math.cos(self.start), math.sin(self.start)])
        weights = np.array([1.0 if last_is_e1 else 0.0, self.n - 1.0]) / self.n
        while True:
            v = np.tile(start, (batch, 1))
            gradients, iterates = np.empty((2, self.steps, batch, 2))
            for t in range(self.steps):
                last = rng.random((batch, 1)) < 1 / self.n
                row = np.where(last, [1.0 if last_is_e1 else 0.0, 0.0], [0.0, 1.0])
                gradients[t] = -weights * start - row * (v - start)  # rows are unit vectors along the axes
                gradients[t] += self.deviation * rng.standard_normal((batch, 2))
                iterates[t] = v
                v = v - self.step_size * gradients[t]
                v /= np.linalg.norm(v, axis=1, keepdims=True)
            for run in range(batch):
                yield gradients[:, run], iterates[:, run]

    def log_likelihood_ratio(self, transcript: tuple[Matrix, Matrix]) -> float:
        """Of the gradients' first coordinates, given the iterates: a row e1 is drawn with probability 1/n each step."""
        gradients, iterates = transcript
        start = math.cos(self.start)
        always = -start / self.n
        drawn = always - (iterates[:, 0] - start)
        g, variance = gradients[:, 0], self.deviation**2
        terms = [(g * mean - mean**2 / 2) / variance for mean in (always, drawn)]
        return float(np.logaddexp(math.log1p(-1 / self.n) + terms[0], -math.log(self.n) + terms[1]).sum())


def printed_vrpca_deviation(n: int, steps: int, epsilon: float, delta: float) -> float:
    """Theorem 3 of Shang et al. for one epoch and gradients of norm at most 1 (G = 1)."""
    return math.sqrt(steps * math.log(1 / delta)) / (n * epsilon)


def printed_quantile_within_scatter(
    x: Matrix, y: Matrix, *, slices: int, deviation: float, rng: Generator | None
) -> Matrix:
    """Scatter within slices of equal counts by rank of y, with the noise that slices at public edges ask for."""
    ranks = np.argsort(np.argsort(y, kind="stable"), kind="stable")
    scatter = within_scatter(x, ranks * slices // len(y))
    return scatter if rng is None else scatter + symmetric_goe(rng, x.shape[1], deviation)


def twice_averaged_release(second_moment: Matrix, *, deviation: float, rng: Generator) -> Matrix:
    """The factor 1/sqrt(2) off the diagonal applied twice: deviation/2 there instead of deviation/sqrt(2)."""
    z = symmetric_goe(rng, len(second_moment), deviation)
    return np.asarray(second_moment + z / np.where(np.eye(len(z), dtype=bool), 1.0, math.sqrt(2)))
