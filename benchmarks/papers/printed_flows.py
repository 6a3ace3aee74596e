"""The algorithms of Hu, Xiang, Liu, Wang (AISTATS 2023) with the constants and steps that the paper prints, in NumPy.

They are here to reproduce the paper's experiments, and are **not private as claimed**: rows are divided by the largest
norm in the data, PCA is centred but calibrated for a second moment, the initial vector spends its budget twice
(docs/errata.md, docs/mathematics.md). What the paper leaves open is settled here, and said where it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Generator = np.random.Generator
Name = Literal["pca", "cca", "fda"]

# (C1, C2) of Assumption 1. PCA: the sensitivity of the second moment, to which the proof refers for the covariance;
# B = I moves with nobody, so it gets no noise, but each of its m turns is still charged rho/(2m). CCA: the proof's
# last line, which says FDA. FDA: the proof's last line says C1 = 4, C2 = 7.
CONSTANTS: dict[Name, tuple[float, float]] = {"pca": (1.0, 0.0), "cca": (12.0, 12.0), "fda": (4.0, 7.0)}


@dataclass(frozen=True)
class Moments:
    """Sums over n people, divided by n: x x^T (d, d); x by class (C, d); the share of each class (C,)."""

    n: int
    second: Matrix
    sums: Matrix
    shares: Matrix

    def of_first(self, d: int) -> Moments:
        """Of the first d features."""
        return Moments(self.n, self.second[:d, :d], self.sums[:, :d], self.shares)

    def scaled(self, bound: float) -> Moments:
        """Of the rows divided by ``bound``; the paper takes the largest norm in the data."""
        return Moments(self.n, self.second / bound**2, self.sums / bound, self.shares)


def pair(name: Name, moments: Moments, *, centred_classes: bool = False) -> tuple[Matrix, Matrix]:
    """A and B of section 3 of the paper.

    FDA: A is the scatter of class means, B that within classes, the reverse of equation (5). As printed, (5) has no
    solution: its B has the rank of the number of classes, so the quotient is unbounded wherever there are more
    features, and there would be no v* to compare with. The text asks for between over within; the experiments must
    have done that. The means are uncentred, as in (5); `dpgep.fda` centres them (``centred_classes``).
    """
    mean = moments.sums.sum(axis=0)
    covariance = moments.second - np.outer(mean, mean)
    if name == "pca":
        return covariance, np.eye(len(mean))
    if name == "cca":
        view = np.arange(len(mean)) < len(mean) // 2
        crossed = view[:, None] != view
        return np.where(crossed, covariance, 0.0), np.where(crossed, 0.0, covariance)
    between = (moments.sums / np.maximum(moments.shares, 1 / moments.n)[:, None]).T @ moments.sums
    within = moments.second - between
    return (between - np.outer(mean, mean) if centred_classes else between), within


def printed_rho(epsilon: float, delta: float) -> float:
    """The conversion of the supplement, section 1."""
    if math.isinf(epsilon):
        return epsilon
    t = math.log(1 / delta)
    return (math.sqrt(epsilon + t) - math.sqrt(t)) ** 2


def flow_deviation(c: float, n: int, rho: Matrix | float, n_iterations: int) -> Matrix:
    """Algorithms 1 and 3, step 3: sigma^2 = C^2 m/(n^2 rho), m the number of iterations; for each rho."""
    return np.asarray(c / n * np.sqrt(n_iterations / np.asarray(rho)))


def noise_matrix(d: int, deviation: float, rng: Generator) -> Matrix:
    """Symmetric, the upper triangle with its diagonal independent of the given deviation."""
    upper = np.triu(deviation * rng.standard_normal((d, d)))
    return np.asarray(upper + np.triu(upper, 1).T)


def noise_product(v: Matrix, deviation: Matrix | float, rng: Generator) -> Matrix:
    """Z v for rows v (R, d) of unit norm and a fresh `noise_matrix` Z each, in distribution and without the matrix.

    Cov(Z v) = sigma^2 (I + v v^T - diag(v_i^2)), so Z v is sigma (sqrt(1 - v_i^2) g_i + v_i h) with g, h independent
    (docs/mathematics.md, section 2; `tests/support/reference.py`, `noise_times_vector` with "iid").
    """
    g, h = rng.standard_normal(v.shape), rng.standard_normal((len(v), 1))
    return np.asarray(deviation * (np.sqrt(np.maximum(1 - v**2, 0.0)) * g + v * h))


def rayleigh_flow(
    a: Matrix,
    b: Matrix,
    start: Matrix,
    *,
    sparsity: int | None = None,
    deviations: tuple[Matrix | float, Matrix | float] = (0.0, 0.0),
    n_iterations: int,
    step_size: float,
    rng: Generator | None = None,
) -> Matrix:
    """DP-Rayleigh Flow (Algorithm 1), or DP-Truncated Rayleigh Flow (Algorithm 3) where a sparsity is given.

    From each row of ``start`` (R, d), truncated first, the last iterates (R, d). ``deviations``: of the noise on A and
    on B, numbers or (R, 1). Only products with the noisy matrices are used, and the quotient is one of them: their law
    is all that is drawn. Without noise these are the flows of Tan, Wang, Liu, Zhang 2018.
    """
    rng = np.random.default_rng() if rng is None else rng
    v = _normalized(start, sparsity)
    for _ in range(n_iterations):
        av = v @ a + noise_product(v, deviations[0], rng)
        bv = v @ b + noise_product(v, deviations[1], rng)
        quotient = np.sum(v * av, axis=1, keepdims=True) / np.sum(v * bv, axis=1, keepdims=True)
        v = _normalized(v + step_size / quotient * (av - quotient * bv), sparsity)
    return v


def truncated(v: Matrix, sparsity: int) -> Matrix:
    """Rows with all but their largest entries in modulus set to 0."""
    largest = np.argpartition(-np.abs(v), sparsity - 1, axis=1)[:, :sparsity]
    out = np.zeros_like(v)
    np.put_along_axis(out, largest, np.take_along_axis(v, largest, axis=1), axis=1)
    return out


def _normalized(v: Matrix, sparsity: int | None) -> Matrix:
    v = v if sparsity is None else truncated(v, sparsity)
    return np.asarray(v / np.linalg.norm(v, axis=1, keepdims=True))


def private_initial_vector(
    a: Matrix,
    b: Matrix,
    *,
    c1: float,
    c2: float,
    n: int,
    rho: float,
    rng: Generator,
    phi: float | None = None,
    penalty: float = 1.0,
    tolerance: float = 1e-6,
    most_iterations: int = 2000,
) -> Matrix:
    """Algorithm 2 with K = 1: variances C^2/(2 n^2 rho), each of which spends all of rho.

    ``phi`` by default as in Theorem 5 without its constants: lambda_max(B) lambda_1 (sqrt(d/n) + sqrt(d)/(n sqrt(rho)))
    of the data itself, for which the paper pays nothing. ``penalty`` and ``tolerance`` are its nu and beta. The square
    root of a noisy B with negative eigenvalues is left open: they count as zero here. The lasso problem of step 4 is
    solved by accelerated proximal gradients.
    """
    d = len(a)
    if phi is None:
        largest = float(np.linalg.eigvalsh(b)[-1])
        phi = largest * leading(a, b)[0] * math.sqrt(d) * (1 / math.sqrt(n) + 1 / (n * math.sqrt(rho)))
    noisy_a = a + noise_matrix(d, c1 / (n * math.sqrt(2 * rho)), rng)
    noisy_b = b + noise_matrix(d, c2 / (n * math.sqrt(2 * rho)), rng)
    values, vectors = np.linalg.eigh(noisy_b)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    p, h, gamma = np.zeros((3, d, d))
    for _ in range(most_iterations):
        previous, p = p, _lasso(p, root, h - gamma, noisy_a, phi, penalty)
        image = root @ p @ root
        h = _fantope(gamma + image)
        gamma = gamma + image - h
        if np.linalg.norm(p - previous) <= tolerance:
            break
    return np.asarray(np.linalg.eigh((p + p.T) / 2)[1][:, -1])


def leading(a: Matrix, b: Matrix) -> tuple[float, Matrix]:
    """Largest lambda of A v = lambda B v on the range of B, and its v of unit Euclidean norm."""
    scale = np.sqrt(np.maximum(np.diagonal(b), 0.0))
    scale = 1 / np.where(scale > 0, scale, 1.0)  # features of any unit have the same say in what counts as zero
    values, vectors = np.linalg.eigh(b * np.outer(scale, scale))
    kept = values > 1e-9 * values[-1]
    basis = scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
    found, inner = np.linalg.eigh(basis.T @ a @ basis)
    v = basis @ inner[:, -1]
    return float(found[-1]), np.asarray(v / np.linalg.norm(v))


def _lasso(start: Matrix, root: Matrix, target: Matrix, a: Matrix, phi: float, penalty: float) -> Matrix:
    """argmin_P penalty/2 |S P S - target|_F^2 - tr(A P) + phi |P|_1, S = root."""
    step = 1 / (penalty * float(np.linalg.norm(root, 2)) ** 4)
    p, ahead, momentum = start, start, 1.0
    for _ in range(100):
        gradient = penalty * root @ (root @ ahead @ root - target) @ root - a
        moved = ahead - step * gradient
        new = np.sign(moved) * np.maximum(np.abs(moved) - step * phi, 0.0)
        next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / next_momentum * (new - p)
        moved_by, p, momentum = float(np.linalg.norm(new - p)), new, next_momentum
        if moved_by <= 1e-9 * float(np.linalg.norm(new)):
            break
    return p


def _fantope(w: Matrix) -> Matrix:
    """Step 5: eigenvalues lowered by the least gamma >= 0 and cut to [0, 1] so that their sum is at most 1."""
    values, vectors = np.linalg.eigh((w + w.T) / 2)
    low, high = 0.0, max(float(values[-1]), 0.0)
    if np.clip(values, 0.0, 1.0).sum() <= 1:
        high = 0.0
    for _ in range(60 if high else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(values - middle, 0.0, 1.0).sum() > 1 else (low, middle)
    return np.asarray((vectors * np.clip(values - high, 0.0, 1.0)) @ vectors.T)
