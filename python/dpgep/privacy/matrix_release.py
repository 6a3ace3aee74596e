"""Noisy A and B of a problem in matrix form, on a public grid; the caller vouches for their sensitivities."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from dpgep._dispatch import core
from dpgep.models.gep import ReleasedMatrices
from dpgep.models.model import Matrix
from dpgep.privacy.calibration import matrix_deviations
from dpgep.privacy.ledger import Charge, LedgerEntry, NoiseBlock
from dpgep.privacy.noise import add_symmetric_grid_noise
from dpgep.privacy.rounding import Allowance, released_matrix_allowance
from dpgep.problems.gep import MatrixProblem


def release_matrices(problem: MatrixProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> ReleasedMatrices:
    """A and B (where given) for mu together; without noise for mu = inf."""
    prepared = prepare_matrices(problem, mu, partial(released_matrix_allowance, d=problem.model.n_features))
    charge(LedgerEntry("A and B", mu, matrix_blocks(problem, prepared.noise_a, prepared.noise_b)))
    a = add_symmetric_grid_noise(prepared.a, prepared.noise_a, stream)
    b = None if prepared.b is None else add_symmetric_grid_noise(prepared.b, prepared.noise_b, stream)
    return ReleasedMatrices(a, b, prepared.noise_a, prepared.noise_b)


def prepare_matrices(
    problem: MatrixProblem, mu: float, allowance: Callable[[float], tuple[Allowance, float]]
) -> ReleasedMatrices:
    """A and B before noise, and noise deviations that cost ``mu`` including rounding.

    ``allowance`` gives, for the mu of a matrix, the cost of rounding and the Frobenius norm, in deviations, up to which
    it is valid: a larger matrix, of at least some 10^6 deviations, is scaled down to that norm, which moves no two
    matrices further apart.
    """
    a, b = problem.a.copy(), None if problem.b is None else problem.b.copy()
    if math.isinf(mu):
        return ReleasedMatrices(a, b, 0.0, 0.0)
    parts = (problem.sensitivity_a > 0) + (problem.sensitivity_b > 0)
    part = mu / math.sqrt(parts) * (1 - 2.0**-50)
    rounding, radius = allowance(part)
    noise_a, noise_b = matrix_deviations(problem, rounding.within(part) * math.sqrt(parts) * (1 - 2.0**-50))
    shrink(a, radius * noise_a)
    if b is not None:
        shrink(b, radius * noise_b)
    return ReleasedMatrices(a, b, noise_a, noise_b)


def shrink(matrix: Matrix, radius: float) -> None:
    """Project a private matrix (radius > 0) onto the Frobenius ball."""
    if radius == 0:
        return
    norms = np.array([np.linalg.norm(row) for row in matrix / radius])  # no sum of more than d squares
    norm = math.sqrt(math.fsum(norms * norms))
    if norm > 1:
        matrix /= norm


def matrix_blocks(problem: MatrixProblem, noise_a: float, noise_b: float, shape: str = "goe") -> tuple[NoiseBlock, ...]:
    """The ledger's description of the noise in A and B."""
    named = [("A", noise_a, problem.sensitivity_a)]
    if problem.b is not None:
        named.append(("B", noise_b, problem.sensitivity_b))
    return tuple(NoiseBlock(name, shape if c else "none: declared public", noise) for name, noise, c in named)
