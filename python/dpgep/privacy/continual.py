"""Sums of all nights so far, published every night under one budget (proofs/Nights.v; docs/mathematics.md, 13).

Of the exact sums x_t of each night t, what is published is

    w_t = c_0 x_t + c_1 x_{t-1} + ... + z_t,   c_k near binom(2k, k) / 4^k for k < keep, and 0 beyond,

on the grid 2^-6; z_t is noise of the same deviation every night. The matrix C of the c_k is triangular: the sum of any
nights is a combination of what was published. Who comes once is in one column of C, whose norm grows as the root of a
logarithm of ``keep``; so does the noise of the sum of up to that many nights. Beyond, it grows as the root of their
number: nights never end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep.models.model import Adjacency, Matrix
from dpgep.models.moments import MomentLayout
from dpgep.privacy.curator import noise_blocks
from dpgep.privacy.ledger import Charge, LedgerEntry, cost_of, mu_rounded_down
from dpgep.privacy.noise import IntegerNoise, integer_noise, moment_mu
from dpgep.problems.mergeable_moments import default_bits

# Nights whose exact sums are kept by default: a year.
KEPT = 365
# Coefficients are whole multiples of 2^-FACTOR_BITS, of which a person weighs as many in a night's sums.
FACTOR_BITS = 6
MOST_NIGHTS = 1 << 12


@dataclass(frozen=True)
class Factor:
    """The matrix C, of ``keep`` bands."""

    keep: int

    @cached_property
    def coefficients(self) -> NDArray[np.int64]:
        """(keep,), 2^6 c_k: positive, and none is larger than the one before it, as the proof needs.

        The square root's are averaged over k = 2^j to 2^{j+1} - 1: 1 % more noise than with each of them, but half as
        many steps.
        """
        edges = [0, *(1 << j for j in range(self.keep.bit_length()) if 1 << j < self.keep), self.keep]
        means = [_nearest_mean(start, end) for start, end in pairwise(edges)]
        found = np.repeat(np.array(means, np.int64), np.diff(edges))
        assert found[0] == 1 << FACTOR_BITS
        assert (np.diff(found) <= 0).all()
        assert found[-1] > 0
        return found

    @cached_property
    def steps(self) -> dict[int, int]:
        """2^6 (c_k - c_{k-1}) by k, where it is not 0 (at few): the weight in w_t of the sums of nights 1 to t - k."""
        steps = np.diff(self.coefficients, prepend=0, append=0)
        return {int(k): int(steps[k]) for k in np.flatnonzero(steps)}

    def mu_of_a_night(self, mu: float, nights: int) -> float:
        """What one night's sums may cost alone, if everything published costs ``mu`` for whoever comes so often.

        That is mu over the norm of the sum of as many neighbouring columns, rounded down.
        """
        column = np.convolve(self.coefficients, np.ones(nights, np.int64))
        squared = sum(each * each for each in column.tolist())
        return mu_rounded_down(cost_of(mu) * (1 << 2 * FACTOR_BITS) / squared)

    def mu_of_sums(self, nights: int) -> float:
        """Which part of mu a single release would take, with the noise of that many nights' sums."""
        return self.mu_of_a_night(1.0, 1) / float(np.linalg.norm(self.combination(1, nights)))

    def combination(self, first: int, last: int) -> Matrix:
        """(last,), weights of w_1 to w_last in the sum of nights ``first`` to ``last``, numbered from 1.

        Their norm is the deviation of that sum's noise, in units of one night's.
        """
        sums = _row_of_inverse(self, 1 << (last - 1).bit_length())
        weights: Matrix = sums[:last][::-1].copy()
        weights[: first - 1] -= sums[: first - 1][::-1]
        return weights


def _nearest_mean(start: int, end: int) -> int:
    """2^6 times the mean of binom(2k, k)/4^k for start <= k < end, to the nearest: they sum to 2 n binom(2n, n)/4^n."""
    first, last = (2 * n * Fraction(math.comb(2 * n, n), 4**n) for n in (start, end))
    return math.floor((last - first) / (end - start) * (1 << FACTOR_BITS) + Fraction(1, 2))


@lru_cache(maxsize=4)
def _row_of_inverse(factor: Factor, size: int) -> Matrix:
    """(size,), the last row of the inverse of C, backwards, and added up: weights in the sum of all nights."""
    c = np.ldexp(factor.coefficients.astype(np.float64), -FACTOR_BITS)
    inverse = np.zeros(size)
    inverse[0] = 1.0
    for t in range(1, size):
        known = inverse[max(0, t - len(c) + 1) : t][::-1]
        inverse[t] = -(c[1 : len(known) + 1] @ known)
    return np.asarray(np.cumsum(inverse))


@dataclass(frozen=True)
class AllNights:
    """What all nights cost, as one query, and the noise of each; on ``nights`` of them a person may come."""

    factor: Factor
    nights: int

    def require_paid(self, noise: IntegerNoise, layout: MomentLayout, adjacency: Adjacency, mu: float) -> None:
        """Raise ValueError unless ``mu`` pays for all nights of this noise."""
        if math.isinf(mu):
            return
        scales = [noise.diagonal, *[noise.sums] * layout.sums, *[noise.counts] * layout.counts]
        costs = moment_mu(noise.deviations(), layout, adjacency) if min(scales) > 0 else math.inf
        if costs > self.factor.mu_of_a_night(mu, self.nights) or 2 * noise.off_diagonal**2 < noise.diagonal**2:
            raise ValueError("the noise of a night is less than what was paid for: the register is damaged, or forged")

    def answer(self, problem: Any, mu: float, stream: core.NoiseStream, charge: Charge) -> tuple[IntegerNoise, bytes]:
        """The noise of every night, and a secret to draw it from; no row of the problem is read."""
        facts, weight_bits = replace(problem.facts, n=None), problem.weight_bits + FACTOR_BITS
        query = f"moment matrices of all nights, a person on at most {self.nights}"
        if math.isinf(mu):
            charge(LedgerEntry(query, mu, ()))
            return IntegerNoise(default_bits(weight_bits), 0, 0, 0, 0, weight_bits), stream.bytes(32)
        terms = self.factor.mu_of_a_night(mu, self.nights), problem.layout, facts.adjacency
        noise, deviations = integer_noise(*terms, None, weight_bits)
        blocks = noise_blocks(noise, deviations, facts, problem.layout)
        charge(LedgerEntry(query, mu, blocks, noise.bits + weight_bits // 2))
        return noise, stream.bytes(32)
