"""The algorithms of Chen, Huang, Lee, Chen, Tsai with the constants and steps that the paper prints, in NumPy.

They are here to reproduce the paper's experiments and are **not private at all**: the eigenvalues of B are read off
the data, and show in the singular values of what is returned (docs/errata.md, docs/reduction.md). What the paper leaves
open is settled here, and said where it is. V holds vectors in columns, as the paper does.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Generator = np.random.Generator

# C_1/n and C_2/n are said to bound changes of the gradients 2 B v and 2 A v; the paper gives no value. 2 x 4 and 2 x 8
# would be in order for scatters within and between classes. With 1 the recalls of its Table 2 come out, nearly.
C1, C2 = 1.0, 1.0
# Of the paper's experiments: regularization ratio, number of iterations of each loop, largest of the step sizes.
XI, N_ITERATIONS, STEP_SIZE = 0.01, 15, 1.0


def simultaneous_reduction(a: Matrix, b: Matrix, xi: float = 0.0) -> tuple[Matrix, Matrix]:
    """Algorithm 1, not private: eigenvalues, descending, and eigenvectors in columns; B + xi I in place of B."""
    values, vectors = scipy.linalg.eigh(b)
    basis = vectors / np.sqrt(values + xi)
    found, rotation = scipy.linalg.eigh(basis.T @ a @ basis)
    return found[::-1], basis @ rotation[:, ::-1]


def printed_sr_dp(
    a: Matrix, b: Matrix, k: int, *, n: int, epsilon: float, delta: float, rng: Generator, xi: float = XI
) -> Matrix:
    """SR+DP of section 6: noise on A and on B, "respectively", then Algorithm 1. The paper says no more.

    Here: the classical deviation of Lemma 7 for each, as if either were the only release. A noisy B has negative
    eigenvalues; they count as zero.
    """
    factor = math.sqrt(2 * math.log(1.25 / delta)) / (n * epsilon)
    noisy_a = a + _symmetric(len(a), factor * C2, rng)
    values, vectors = scipy.linalg.eigh(b + _symmetric(len(b), factor * C1, rng))
    basis = vectors / np.sqrt(np.maximum(values, 0.0) + xi)
    return np.asarray((basis @ scipy.linalg.eigh(basis.T @ noisy_a @ basis)[1][:, : -k - 1 : -1]).T)


def printed_dpsr(
    a: Matrix,
    b: Matrix,
    k: int,
    *,
    n: int,
    epsilon: float,
    delta: float,
    rng: Generator,
    sparsity: int | None = None,
    xi: float = XI,
    n_iterations: int = N_ITERATIONS,
    step_size: float = STEP_SIZE,
) -> Matrix:
    """DPSR (Algorithm 2), or DPSRS (Algorithm 3) where a sparsity is given: (K, d), in rows.

    The printed gradients lack a sign: J_1 = -v^T B v descends along +2 B v. Columns of the starts are unit vectors, not
    orthogonal ones, as printed.
    """
    log = math.log(1.25 * (1 if sparsity is None else n_iterations) / delta)
    factor = 2 * math.sqrt(n_iterations * log) / (n * epsilon) if math.isfinite(epsilon) else 0.0
    v = _ascend(b, _unit_columns(len(b), len(b), rng), factor * C1, sparsity, n_iterations, step_size, rng)
    eigenvalues = np.einsum("ij,ij->j", v, b @ v)  # step 5: of the data itself
    basis = v / np.sqrt(eigenvalues + xi)
    reduced = basis.T @ a @ basis
    u = _ascend(reduced, _unit_columns(len(b), k, rng), factor * C2 / xi, sparsity, n_iterations, step_size, rng)
    return np.asarray((basis @ u).T)


def _ascend(
    matrix: Matrix, v: Matrix, deviation: float, sparsity: int | None, n: int, step_size: float, rng: Generator
) -> Matrix:
    for _ in range(n):
        noise = deviation * rng.standard_normal(v.shape)
        v = scipy.linalg.qr(v + step_size * (2 * matrix @ v - noise), mode="economic")[0]
        if sparsity is not None:
            smallest = np.argsort(-np.abs(v), axis=0, kind="stable")[sparsity:]
            np.put_along_axis(v, smallest, 0.0, axis=0)
            v = scipy.linalg.qr(v, mode="economic")[0]
    return v


def _unit_columns(d: int, k: int, rng: Generator) -> Matrix:
    v = rng.standard_normal((d, k))
    return np.asarray(v / np.linalg.norm(v, axis=0))


def _symmetric(d: int, deviation: float, rng: Generator) -> Matrix:
    upper = np.triu(deviation * rng.standard_normal((d, d)))
    return np.asarray(upper + np.triu(upper, 1).T)
