"""A screen for large coordinates: noisy scores of all features from O(d) released numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgep._dispatch import core
from dpgep.privacy.calibration import calibrate_moments, calibrate_vector, matrix_deviations
from dpgep.privacy.ledger import Charge, NoiseBlock, Release, split
from dpgep.privacy.matrix_release import matrix_blocks
from dpgep.privacy.moment_release import released_people, released_shares, row_bound
from dpgep.problems.gep import MatrixProblem
from dpgep.problems.model import Matrix
from dpgep.problems.moment_problem import MomentProblem
from dpgep.problems.moments import MomentNoise, NoisyGroups

# Share of mu^2 for the number of people, where that is not public and two views are screened: a public constant.
_COUNT_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Screen:
    """Released scores, all public.

    Attributes
    ----------
    scores : (d,), diag(A)/diag(B); for two views the norm of each feature's row of their cross-covariance.
    energy : (d,), diagonal of the second moment of the rows, where there are rows.
    noise : deviation of the noise in ``energy``, or in diag(A).
    """

    scores: Matrix
    energy: Matrix | None
    noise: float


def screen_matrices(problem: MatrixProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> Screen:
    """Diagonals of A and B: parts of the matrices, so that their sensitivities serve."""
    noise_a, noise_b = matrix_deviations(problem, mu)
    a = np.diagonal(problem.a).copy()
    b = np.ones_like(a) if problem.b is None else np.diagonal(problem.b).copy()
    charge(Release("diagonals of A and B", mu, matrix_blocks(problem, noise_a, noise_b, "independent")))
    core.add_noise(a[None, :], noise_a, stream)
    core.add_noise(b[None, :], noise_b, stream)
    return Screen(_ratio(a, b, noise_b), None, noise_a)


def screen_rows(problem: MomentProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> Screen:
    """Diagonal of the second moment with the sums and counts of the model, or with the row norms of two views.

    The diagonal is a part of the moment matrix, so the calibration of that serves. For two views sums are not released:
    row norms are 1-Lipschitz in the Frobenius norm, and diagonal and row norms belong to different entries of the
    second moment, so that together they move by at most sqrt 2 (add-remove: 1). With means subtracted the covariance
    moves by at most 4, and both by at most sqrt(4^2 + 2) (sqrt(4^2 + 1)).
    """
    two_views = problem.model.first_view > 0
    noise = _two_view_deviations(problem, mu) if two_views else _deviations(problem, mu)
    bound = row_bound(problem.facts)
    exact = problem.screen_sums()
    released = np.stack([exact.energy, problem.cross_norms()] if two_views else [exact.energy])
    with_sums = problem.layout.sums and not two_views
    sums = exact.groups.sums / bound if with_sums else np.empty((len(exact.energy), 0))
    counts = exact.groups.counts.astype(np.float64)
    charge(Release("diagonal of the second moment", mu, _blocks(problem, noise, with_sums)))
    core.add_noise(released, noise.second, stream)
    if with_sums:
        core.add_noise(sums, noise.sums, stream)
    if problem.layout.counts:
        core.add_noise(counts[None, :], noise.counts, stream)
    people = released_people(problem.facts, exact.n, counts)
    released *= bound * bound / people
    noise = noise.scaled(bound * bound / people, bound / people, 1 / people)
    if two_views:
        return Screen(released[1], released[0], noise.second)
    groups = NoisyGroups(sums * (bound / people), released_shares(problem.layout, counts, people), people, noise)
    scores = _ratio(*problem.model.form(groups).diagonals(released[0]), noise.second)
    return Screen(scores, released[0], noise.second)


def _blocks(problem: MomentProblem, noise: MomentNoise, with_sums: bool) -> tuple[NoiseBlock, ...]:
    unit = "of rows/bound, sum over people"
    blocks = [NoiseBlock(f"diagonal of the second moment {unit}", "independent", noise.second)]
    if problem.model.first_view:
        blocks.append(NoiseBlock(f"row norms of the cross-covariance {unit}", "independent", noise.second))
    if with_sums:
        blocks.append(NoiseBlock("sums of rows/bound per group", "independent", noise.sums))
    if problem.layout.counts:
        blocks.append(NoiseBlock("counts per group", "independent", noise.counts))
    return tuple(blocks)


def _ratio(a: Matrix, b: Matrix, noise: float) -> Matrix:
    """The ratio of two diagonals; entries of B that are not above their noise count as that."""
    floor = max(noise, float(np.finfo(float).eps) * float(np.abs(b).max(initial=0.0)))
    return np.asarray(np.divide(a, np.maximum(b, floor), out=np.zeros_like(a), where=np.maximum(b, floor) > 0))


def _deviations(problem: MomentProblem, mu: float) -> MomentNoise:
    return calibrate_moments(mu, problem.layout, problem.facts.adjacency)


def _two_view_deviations(problem: MomentProblem, mu: float) -> MomentNoise:
    squared = (2.0 if problem.facts.adjacency == "replace-one" else 1.0) + (16.0 if problem.layout.sums else 0.0)
    if not problem.layout.counts:
        return MomentNoise(calibrate_vector(math.sqrt(squared), mu), 0.0, 0.0)
    mu_count, mu_values = split(mu, _COUNT_SHARE)
    return MomentNoise(calibrate_vector(math.sqrt(squared), mu_values), 0.0, calibrate_vector(1.0, mu_count))
