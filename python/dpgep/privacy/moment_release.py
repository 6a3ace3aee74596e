"""One noisy moment matrix, everything a model of rows needs: integer sums plus exactly rounded normal deviates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.models.model import Matrix, PublicFacts
from dpgep.models.moments import MomentLayout, MomentNoise, ReleasedGroups, ReleasedMoments
from dpgep.privacy.calibration import IntegerNoise, integer_noise
from dpgep.privacy.ledger import Charge, LedgerEntry, NoiseBlock
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.moment_problem import MomentProblem

Summable = MomentProblem | Moments


def release_moments(problem: Summable, mu: float, stream: core.NoiseStream, charge: Charge) -> ReleasedMoments:
    """Second moment, sums and counts for mu; without noise for mu = inf."""
    return _plain(problem, charge) if math.isinf(mu) else _exact(problem, mu, stream, charge)


def _exact(problem: Summable, mu: float, stream: core.NoiseStream, charge: Charge) -> ReleasedMoments:
    """Integer moments plus exactly rounded normal deviates: post-processing of the ideal Gaussian mechanism."""
    layout = problem.layout
    noise, deviations = integer_noise(mu, layout, problem.facts.adjacency, problem.grid_bits)
    moments = problem.integer_moments(noise.bits)
    charge(LedgerEntry("moment matrix", mu, _blocks(noise, deviations, layout), noise.bits))
    threads = thread_count()
    core.add_exact_symmetric_noise(moments.second, noise.diagonal, noise.off_diagonal, stream, threads)
    if layout.sums:
        core.add_exact_noise(moments.sums, noise.sums, stream, threads)
    if layout.counts:
        core.add_exact_noise(moments.counts, noise.counts, stream, threads)
    return _normalized(problem, moments.n, *moments.to_float(), deviations)


def _plain(problem: Summable, charge: Charge) -> ReleasedMoments:
    """No noise, and no fixed point where there are rows: what a non-private solver computes, at an infinite cost."""
    if isinstance(problem, Moments):
        moments = problem.integer_moments(problem.grid_bits)
        n, blocks, clipped = moments.n, moments.to_float(), 0.0
    else:
        sums = problem.float_moments()
        n, blocks, clipped = sums.n, problem.layout.blocks(sums.total), sums.n_clipped / max(sums.n, 1)
    charge(LedgerEntry("moment matrix", math.inf, ()))
    return replace(_normalized(problem, n, *blocks, MomentNoise(0.0, 0.0, 0.0)), clipped=clipped)


def _normalized(
    problem: Summable,
    n: int,
    second: Matrix,
    sums: Matrix,
    counts: Matrix,
    noise: MomentNoise,
) -> ReleasedMoments:
    """Released sums over people, divided by n (public, or the released total) and in the units of the data.

    Only the upper triangle of ``second`` is read; it is overwritten.
    """
    bound = row_bound(problem.facts)
    core.mirror_upper(second)
    people = released_people(problem.facts, n, counts)
    second *= bound * bound / people
    return ReleasedMoments(
        second=second,
        sums=sums * (bound / people),
        counts=released_shares(problem.layout, counts, people),
        n=people,
        noise=noise.scaled(bound * bound / people, bound / people, 1 / people),
    )


def normalized_groups(
    problem: MomentProblem, n: int, sums: Matrix, counts: NDArray[Any], noise: MomentNoise
) -> ReleasedGroups:
    """Released sums and counts of people in the unit ball, divided by their number (public, or the released total), in
    the units of the data.
    """
    bound, counts = row_bound(problem.facts), np.asarray(counts, dtype=np.float64)
    people = released_people(problem.facts, n, counts)
    return ReleasedGroups(
        sums=sums * (bound / people),
        counts=released_shares(problem.layout, counts, people),
        n=people,
        noise=noise.scaled(bound * bound / people, bound / people, 1 / people),
    )


def released_people(facts: PublicFacts, n: int, counts: Matrix) -> float:
    """Number of people to divide by: public (``n`` were counted), or the total of the released counts."""
    if facts.n is not None:
        return float(facts.n)
    return float(n) if facts.n_is_public else max(float(counts.sum()), 1.0)


def released_shares(layout: MomentLayout, counts: Matrix, people: float) -> Matrix:
    """Share of people per group: released, or public."""
    return counts / people if layout.counts else np.ones(layout.n_groups)


def row_bound(facts: PublicFacts) -> float:
    """The enforced bound on row norms, which every problem of rows has."""
    assert facts.bound is not None
    return facts.bound


def _blocks(noise: IntegerNoise, deviations: MomentNoise, layout: MomentLayout) -> tuple[NoiseBlock, ...]:
    blocks = [NoiseBlock("second moment of rows/bound, sum over people", "goe", deviations.second, noise.diagonal)]
    if layout.sums:
        blocks.append(NoiseBlock("sums of rows/bound per group", "independent", deviations.sums, noise.sums))
    if layout.counts:
        blocks.append(NoiseBlock("counts per group", "independent", deviations.counts, noise.counts))
    return tuple(blocks)
