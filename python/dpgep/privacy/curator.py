"""The curator: the only part that sees data and adds noise.

It answers a query if the ledger can pay for it, adds the noise, and enters the release. What it returns is public.
"""

from __future__ import annotations

import math

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.privacy.calibration import IntegerNoise, calibrate_moments, moment_mu, on_grid
from dpgep.privacy.ledger import Ledger, NoiseBlock, Release
from dpgep.problems.gep import MatrixProblem, NoisyMatrices
from dpgep.problems.model import Matrix, Model, PublicFacts
from dpgep.problems.moments import MomentLayout, MomentNoise, MomentProblem, NoisyMoments

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
        mu = self._ledger.mu
        self._ledger.check(mu)
        if isinstance(self._problem, MatrixProblem):
            return self._release_matrices(self._problem, mu)
        if math.isinf(mu):
            return self._plain_moments(self._problem)
        return self._release_moments(self._problem, mu)

    def _release_moments(self, problem: MomentProblem, mu: float) -> NoisyMoments:
        """Integer moments plus exactly rounded normal deviates: post-processing of the ideal Gaussian mechanism."""
        layout, adjacency = problem.layout, problem.facts.adjacency
        noise = on_grid(calibrate_moments(mu, layout, adjacency))
        deviations = noise.deviations()
        if moment_mu(deviations, layout, adjacency) > mu:
            raise ArithmeticError(f"integer noise scales {noise} do not keep mu = {mu}; nothing was read or spent")
        moments = problem.integer_moments(noise.bits)
        stream, threads = self._stream, thread_count()
        core.add_exact_symmetric_noise(moments.second, noise.diagonal, noise.off_diagonal, stream, threads)
        if layout.sums:
            core.add_exact_noise(moments.sums, noise.sums, stream, threads)
        if layout.counts:
            core.add_exact_noise(moments.counts, noise.counts, stream, threads)
        self._ledger.record(Release("moment matrix", mu, _blocks(noise, layout), noise.bits))
        return self._normalized(problem, *moments.to_float(), deviations)

    def _plain_moments(self, problem: MomentProblem) -> NoisyMoments:
        """No noise, no fixed point: what a non-private solver computes, on the ledger as an infinite cost."""
        matrix = problem.moment_matrix()
        self._ledger.record(Release("moment matrix", math.inf, ()))
        return self._normalized(problem, *problem.layout.blocks(matrix), MomentNoise(0.0, 0.0, 0.0))

    def _release_matrices(self, problem: MatrixProblem, mu: float) -> NoisyMatrices:
        constants = (problem.sensitivity_a, problem.sensitivity_b)
        # (D_a/s_a)^2 + (D_b/s_b)^2 = mu^2, shared equally between the matrices that depend on data; rounded up
        parts = sum(c > 0 for c in constants)
        noise_a, noise_b = (c / problem.n * math.sqrt(parts) / mu * (1 + 2.0**-48) for c in constants)
        if any(
            c > 0 and noise < 1e-290 and mu < math.inf for c, noise in zip(constants, (noise_a, noise_b), strict=True)
        ):
            raise ValueError("the noise underflows: rescale A, B and their sensitivities to larger units")
        a, b = problem.a.copy(), None if problem.b is None else problem.b.copy()
        core.add_symmetric_noise(a, noise_a, "goe", self._stream)
        if b is not None:
            core.add_symmetric_noise(b, noise_b, "goe", self._stream)
        named = [("A", noise_a, constants[0])] + ([] if b is None else [("B", noise_b, constants[1])])
        blocks = (NoiseBlock(name, "goe" if c else "none: declared public", noise) for name, noise, c in named)
        self._ledger.record(Release("A and B", mu, tuple(blocks)))
        return NoisyMatrices(a, b, noise_a, noise_b)

    def _normalized(
        self, problem: MomentProblem, second: Matrix, sums: Matrix, counts: Matrix, noise: MomentNoise
    ) -> NoisyMoments:
        """Released sums over people, divided by n (public, or the released total) and in the units of the data.

        Only the upper triangle of ``second`` is read; it is overwritten.
        """
        n, bound = problem.facts.n, problem.rows.bound
        core.add_symmetric_noise(second, 0.0, "goe", self._stream)  # draws nothing: makes the lower triangle the upper
        people = float(n) if n is not None else max(float(counts.sum()), 1.0)
        second *= bound * bound / people
        return NoisyMoments(
            second=second,
            sums=sums * (bound / people),
            counts=counts / people if problem.layout.counts else np.ones(problem.layout.n_groups),
            n=people,
            noise=noise.scaled(bound * bound / people, bound / people, 1 / people),
        )


def _blocks(noise: IntegerNoise, layout: MomentLayout) -> tuple[NoiseBlock, ...]:
    deviations = noise.deviations()
    blocks = [NoiseBlock("second moment of rows/bound, sum over people", "goe", deviations.second, noise.diagonal)]
    if layout.sums:
        blocks.append(NoiseBlock("sums of rows/bound per group", "independent", deviations.sums, noise.sums))
    if layout.counts:
        blocks.append(NoiseBlock("counts per group", "independent", deviations.counts, noise.counts))
    return tuple(blocks)
