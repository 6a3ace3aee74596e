"""What clients and server agree on, all of it public: how long records may be, and how much noise each report carries.

For records x, x' of norm at most R, |x x^T - x' x'^T|_F <= sqrt(2) R^2, attained by orthogonal ones. So x x^T + Z with
Z GOE of deviation s = sqrt(2) R^2/mu is mu-GDP between any two records. Wang and Xu (2020, Algorithm 1) print
sensitivity 1, the classical deviation, and independent noise on the triangle; docs/errata.md has the consequences.

The program works with integers: a record becomes an integer vector of norm at most 2^b, its products get normal
deviates of integer scale, rounded exactly. That is the mechanism above, rounded, so it keeps mu (docs/local.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from dpgep._checks import require_count
from dpgep.data.views import check_bound
from dpgep.models.moments import MomentLayout, MomentNoise
from dpgep.privacy.budget import Budget
from dpgep.privacy.calibration import MOST_BITS, RECORD, IntegerNoise, calibrate_moments, moment_mu, on_grid
from dpgep.privacy.ledger import LedgerEntry, NoiseBlock, cost_of, equal_parts, mu_rounded_up

LARGEST_DIM = 1 << 16  # beyond it a report has 17 GB

# Clients may have another SciPy than the server: roots found there may differ in the last digits.
_SAME_DEVIATION = 1e-9
# A standard normal vector of length m is longer than sqrt(m) + 40 with probability below exp(-800).
_FARTHEST = 40.0


@dataclass(frozen=True)
class LocalMechanism:
    """x -> x x^T + Z for one record, |x| <= bound, Z GOE; made by `calibrate`.

    Attributes
    ----------
    dim : length of a record.
    bound : largest norm of a record; longer ones are shrunk to it by the client.
    epsilon, delta : guarantee of everything that one person sends; delta is None for epsilon = inf (no noise).
    records_per_person : how many reports that guarantee covers: each is mu/sqrt(records_per_person)-GDP.
    deviation : standard deviation of a diagonal entry of Z, in units of bound^2: an integer multiple of 4^-b.
    bits : b: records are integer vectors of norm at most 2^b, reports integer multiples of bound^2 4^-b.
    """

    dim: int
    bound: float
    epsilon: float
    delta: float | None
    records_per_person: int
    deviation: float
    bits: int

    @property
    def size(self) -> int:
        """Number of entries of a report: the upper triangle, d (d + 1)/2."""
        return self.dim * (self.dim + 1) // 2

    @property
    def unit(self) -> float:
        """What a 1 in a report stands for: bound^2 4^-bits, in the units of x x^T."""
        return math.ldexp(self.bound * self.bound, -2 * self.bits)

    @property
    def noise(self) -> IntegerNoise:
        """Integer deviations of the entries of Z, in units of bound^2 4^-bits; zero without noise."""
        if not self.is_noisy:
            return IntegerNoise(self.bits, 0, 0, 0, 0)
        return on_grid(MomentNoise(self.deviation, 0.0, 0.0), self.bits)

    @property
    def is_noisy(self) -> bool:
        """False for epsilon = inf."""
        return self.deviation > 0

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of one report, rounded down."""
        return equal_parts(Budget(epsilon=self.epsilon, delta=self.delta).mu, self.records_per_person)

    def releases(self) -> tuple[LedgerEntry, ...]:
        """What one person releases."""
        if not self.is_noisy:
            return (LedgerEntry("local report", math.inf, ()),) * self.records_per_person
        block = NoiseBlock(RECORD, "goe", self.deviation, self.noise.diagonal)
        return (LedgerEntry("local report", self.mu, (block,), self.bits),) * self.records_per_person

    def spent_mu(self) -> float:
        """Gaussian-DP parameter of all reports of one person together, rounded up."""
        mu = self.mu
        return mu if math.isinf(mu) else mu_rounded_up(cost_of(mu) * self.records_per_person)

    def largest_norm(self, n: int) -> float:
        """In units of bound^2: a sum of n honest reports is longer with probability below exp(-800)."""
        noise = self.deviation * math.sqrt(n) * (math.sqrt(self.size) + _FARTHEST)
        return (n + noise) * (1 + 1e-6)  # float32

    def largest_entry(self) -> int:
        """Modulus of an entry of one report, in units of the grid, exceeded with probability below exp(-790)."""
        return (1 << (2 * self.bits)) + int(_FARTHEST) * self.noise.diagonal

    def mismatch(self, other: LocalMechanism) -> str | None:
        """The first thing, in words, in which ``other`` differs; None if it is the same mechanism."""
        if self == other:
            return None
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if field.name == "deviation" and math.isclose(mine, theirs, rel_tol=_SAME_DEVIATION):
                continue
            if mine != theirs:
                return f"{field.name} = {theirs}, not {mine}"
        return None


def calibrate(dim: Any, bound: Any, epsilon: Any, delta: Any, *, records_per_person: Any = 1) -> LocalMechanism:
    """The least noise on the grid that keeps (epsilon, delta) for one person; every rounding is toward more.

    Raises TypeError or ValueError for a parameter out of range.
    """
    d, records = require_count("dim", dim, largest=LARGEST_DIM), require_count("records_per_person", records_per_person)
    radius = check_bound(bound)
    budget = Budget(epsilon=epsilon, delta=delta)
    assert budget.epsilon is not None
    if math.isinf(budget.mu):
        return LocalMechanism(d, radius, math.inf, None, records, 0.0, MOST_BITS)
    layout, mu = MomentLayout(d, 0, sums=False, counts=False), equal_parts(budget.mu, records)
    integers = on_grid(calibrate_moments(mu, layout, "replace-one"))
    noise = integers.deviations()
    if moment_mu(noise, layout, "replace-one") > mu:
        raise ArithmeticError(f"integer noise scales {integers} exceed mu = {mu}")
    return LocalMechanism(d, radius, budget.epsilon, budget.delta, records, noise.second, integers.bits)
