"""Noisy A and B of a problem in matrix form, in floating point: their sensitivities are the caller's word."""

from __future__ import annotations

from dpgep._dispatch import core
from dpgep.privacy.calibration import matrix_deviations
from dpgep.privacy.ledger import Charge, NoiseBlock, Release
from dpgep.problems.gep import MatrixProblem, NoisyMatrices


def release_matrices(problem: MatrixProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> NoisyMatrices:
    """A and B (where given) for mu together; without noise for mu = inf."""
    noise_a, noise_b = matrix_deviations(problem, mu)
    a, b = problem.a.copy(), None if problem.b is None else problem.b.copy()
    charge(Release("A and B", mu, matrix_blocks(problem, noise_a, noise_b)))
    core.add_symmetric_noise(a, noise_a, "goe", stream)
    if b is not None:
        core.add_symmetric_noise(b, noise_b, "goe", stream)
    return NoisyMatrices(a, b, noise_a, noise_b)


def matrix_blocks(problem: MatrixProblem, noise_a: float, noise_b: float, shape: str = "goe") -> tuple[NoiseBlock, ...]:
    """What the ledger says of the noise in A and B."""
    named = [("A", noise_a, problem.sensitivity_a)]
    if problem.b is not None:
        named.append(("B", noise_b, problem.sensitivity_b))
    return tuple(NoiseBlock(name, shape if c else "none: declared public", noise) for name, noise, c in named)
