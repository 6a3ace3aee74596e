"""One noisy moment matrix, everything a model of rows needs: integer sums plus exactly rounded normal deviates."""

from __future__ import annotations

import math

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.privacy.calibration import IntegerNoise, calibrate_moments, moment_mu, on_grid
from dpgep.privacy.ledger import Charge, NoiseBlock, Release
from dpgep.problems.model import Matrix
from dpgep.problems.moments import MomentLayout, MomentNoise, MomentProblem, NoisyMoments


def release_moments(problem: MomentProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> NoisyMoments:
    """Second moment, sums and counts for mu; without noise for mu = inf."""
    return _plain(problem, charge) if math.isinf(mu) else _exact(problem, mu, stream, charge)


def _exact(problem: MomentProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> NoisyMoments:
    """Integer moments plus exactly rounded normal deviates: post-processing of the ideal Gaussian mechanism."""
    layout, adjacency = problem.layout, problem.facts.adjacency
    noise = on_grid(calibrate_moments(mu, layout, adjacency))
    deviations = noise.deviations()
    if moment_mu(deviations, layout, adjacency) > mu:
        raise ArithmeticError(f"integer noise scales {noise} do not keep mu = {mu}; nothing was read or spent")
    moments = problem.integer_moments(noise.bits)
    charge(Release("moment matrix", mu, _blocks(noise, layout), noise.bits))
    threads = thread_count()
    core.add_exact_symmetric_noise(moments.second, noise.diagonal, noise.off_diagonal, stream, threads)
    if layout.sums:
        core.add_exact_noise(moments.sums, noise.sums, stream, threads)
    if layout.counts:
        core.add_exact_noise(moments.counts, noise.counts, stream, threads)
    return _normalized(problem, *moments.to_float(), deviations, stream)


def _plain(problem: MomentProblem, charge: Charge) -> NoisyMoments:
    """No noise, no fixed point: what a non-private solver computes, on the ledger as an infinite cost."""
    blocks = problem.layout.blocks(problem.moment_matrix())
    charge(Release("moment matrix", math.inf, ()))
    return _normalized(problem, *blocks, MomentNoise(0.0, 0.0, 0.0))


def _normalized(
    problem: MomentProblem,
    second: Matrix,
    sums: Matrix,
    counts: Matrix,
    noise: MomentNoise,
    stream: core.NoiseStream | None = None,
) -> NoisyMoments:
    """Released sums over people, divided by n (public, or the released total) and in the units of the data.

    Only the upper triangle of ``second`` is read; it is overwritten.
    """
    bound = problem.rows.bound
    # draws nothing: makes the lower triangle the upper
    core.add_symmetric_noise(second, 0.0, "goe", stream or core.NoiseStream())
    people = released_people(problem, counts)
    second *= bound * bound / people
    return NoisyMoments(
        second=second,
        sums=sums * (bound / people),
        counts=released_shares(problem, counts, people),
        n=people,
        noise=noise.scaled(bound * bound / people, bound / people, 1 / people),
    )


def released_people(problem: MomentProblem, counts: Matrix) -> float:
    """Number of people to divide by: public, or the total of the released counts."""
    n = problem.facts.n
    return float(n) if n is not None else max(float(counts.sum()), 1.0)


def released_shares(problem: MomentProblem, counts: Matrix, people: float) -> Matrix:
    """Share of people per group: released, or public."""
    return counts / people if problem.layout.counts else np.ones(problem.layout.n_groups)


def _blocks(noise: IntegerNoise, layout: MomentLayout) -> tuple[NoiseBlock, ...]:
    deviations = noise.deviations()
    blocks = [NoiseBlock("second moment of rows/bound, sum over people", "goe", deviations.second, noise.diagonal)]
    if layout.sums:
        blocks.append(NoiseBlock("sums of rows/bound per group", "independent", deviations.sums, noise.sums))
    if layout.counts:
        blocks.append(NoiseBlock("counts per group", "independent", deviations.counts, noise.counts))
    return tuple(blocks)
