"""The curator: the only part that sees data and adds noise.

It answers a query if the ledger can pay for it, adds the noise, and enters the release. What it returns is public.
"""

from __future__ import annotations

import math

import numpy as np

from dpgep._dispatch import core
from dpgep.privacy.calibration import calibrate_moments
from dpgep.privacy.ledger import Ledger, NoiseBlock, Release
from dpgep.problems.gep import MatrixProblem, NoisyMatrices
from dpgep.problems.model import Matrix, Model, PublicFacts
from dpgep.problems.moments import MomentNoise, MomentProblem, NoisyMoments

Problem = MomentProblem | MatrixProblem


class Curator:
    """Holds a problem's data; answers with noise from ``stream``; pays from ``ledger``.

    ``model`` and ``facts`` are public: a method may read them.
    """

    def __init__(self, problem: Problem, ledger: Ledger, stream: core.NoiseStream) -> None:
        self.model: Model = problem.model
        self.facts: PublicFacts = problem.facts
        self._problem = problem
        self._ledger = ledger
        self._stream = stream

    def release(self) -> NoisyMoments | NoisyMatrices:
        """Everything the model needs, in one release that spends all the ledger allows."""
        if isinstance(self._problem, MatrixProblem):
            return self._release_matrices(self._problem)
        return self._release_moments(self._problem)

    def _release_moments(self, problem: MomentProblem) -> NoisyMoments:
        mu = self._ledger.mu
        self._ledger.check(mu)
        layout, facts = problem.layout, problem.facts
        noise = calibrate_moments(mu, layout, facts.adjacency)
        matrix = problem.moment_matrix()
        d = layout.n_features
        core.add_symmetric_noise(matrix[:d, :d], noise.second, "goe", self._stream)
        sums, counts = np.empty((d, 0)), np.empty(0)
        if layout.sums:
            sums = matrix[:d, d:].copy()
            core.add_noise(sums, noise.sums, self._stream)
        if layout.counts:
            counts = np.diagonal(matrix)[d:].copy()
            core.add_noise(counts, noise.counts, self._stream)
        self._ledger.record(Release("moment matrix", mu, _moment_blocks(noise, problem)))
        return _normalized(matrix[:d, :d], sums, counts, noise, facts)

    def _release_matrices(self, problem: MatrixProblem) -> NoisyMatrices:
        mu = self._ledger.mu
        self._ledger.check(mu)
        sensitivities = [c / problem.n for c in (problem.sensitivity_a, problem.sensitivity_b)]
        # (D_a/s_a)^2 + (D_b/s_b)^2 = mu^2, shared equally between the matrices that depend on data; rounded up
        parts = sum(c > 0 for c in sensitivities)
        noise_a, noise_b = (c * math.sqrt(parts) / mu * (1 + 2.0**-48) for c in sensitivities)
        a, b = problem.a.copy(), None if problem.b is None else problem.b.copy()
        core.add_symmetric_noise(a, noise_a, "goe", self._stream)
        if b is not None:
            core.add_symmetric_noise(b, noise_b, "goe", self._stream)
        blocks = [NoiseBlock("A", "goe", noise_a)] if problem.sensitivity_a else []
        blocks += [NoiseBlock("B", "goe", noise_b)] if problem.sensitivity_b else []
        self._ledger.record(Release("A and B", mu, tuple(blocks)))
        return NoisyMatrices(a, b, noise_a, noise_b)


def _moment_blocks(noise: MomentNoise, problem: MomentProblem) -> tuple[NoiseBlock, ...]:
    blocks = [NoiseBlock("second moment of rows/bound, sum over people", "goe", noise.second)]
    if problem.layout.sums:
        blocks.append(NoiseBlock("sums of rows/bound per group", "independent", noise.sums))
    if problem.layout.counts:
        blocks.append(NoiseBlock("counts per group", "independent", noise.counts))
    return tuple(blocks)


def _normalized(
    second: Matrix, sums: Matrix, counts: Matrix, noise: MomentNoise, facts: PublicFacts
) -> NoisyMoments:
    """Released sums divided by n (public, or the released total count) and in the units of the data; in place."""
    n = float(facts.n) if facts.n is not None else max(float(counts.sum()), 1.0)
    assert facts.bound is not None
    scale = facts.bound
    second *= scale * scale / n
    sums *= scale / n
    counts /= n
    if counts.size == 0:
        counts = np.ones(sums.shape[1])
    return NoisyMoments(second, sums, counts, n, noise.scaled(scale * scale / n, scale / n, 1 / n))
