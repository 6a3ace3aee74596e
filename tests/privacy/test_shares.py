"""Noise in shares: the theorem of docs/masked.md in numbers, its limits, and scales that are large enough."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from mpmath import mp

from dpgep.models.moments import MomentLayout
from dpgep.privacy.accounting import delta_of
from dpgep.privacy.noise import (
    LARGEST_MU,
    LEAST_MU,
    LEAST_SCALE,
    MOST_ENTRIES,
    MOST_PARTIES,
    integer_noise,
    share_noise,
)

LAYOUT = MomentLayout(5, 2, sums=True, counts=True)
PRECISION = 45


def log2_distance(least: int, honest: int, entries: int, largest: int = 1 << 56) -> float:
    """Binary logarithm of a bound on the total variation between noise in shares and post-processing of real noise.

    Of ``honest`` shares with scales from ``least`` to ``largest`` in each of this many entries (docs/masked.md, (3)).
    """
    norm = math.sqrt(honest) * largest
    factor = entries * (1 + 0.65 * (honest + 1) * (honest + 1 + 2 * math.pi * norm * least))
    return (math.log(factor) - (math.pi * least) ** 2 / 2) / math.log(2)


def rounded_normal(scale: int, reach: int) -> dict[int, mpmath.mpf]:
    """P(round(scale N) = m), |m| <= reach."""
    edge = [mpmath.ncdf((mpmath.mpf(2 * m - 1)) / (2 * scale)) for m in range(-reach, reach + 2)]
    return {m: edge[m + reach + 1] - edge[m + reach] for m in range(-reach, reach + 1)}


def sum_of_shares(scales: list[int], reach: int) -> dict[int, mpmath.mpf]:
    law = {0: mpmath.mpf(1)}
    for scale in scales:
        share, total = rounded_normal(scale, reach), dict.fromkeys(range(-reach, reach + 1), mpmath.mpf(0))
        for m, p in law.items():
            for j, q in share.items():
                if abs(m + j) <= reach:
                    total[m + j] += p * q
        law = total
    return law


def dithered(scales: list[int], reach: int, uniforms: int) -> dict[int, mpmath.mpf]:
    """P(round(A N + V) = m), V of ``uniforms`` - 1 uniforms, from its characteristic function on the line.

    The trapezoidal rule adds what lies 4 reach and more away, below 10^-PRECISION.
    """
    variance, step = mpmath.mpf(sum(a * a for a in scales)), mpmath.pi / (2 * reach)
    end = mpmath.sqrt(2 * (PRECISION + 5) * mpmath.log(10) / variance)
    points = [step * j for j in range(1, math.ceil(end / step))]
    values = [mpmath.exp(-variance * t * t / 2) * mpmath.sinc(t / 2) ** uniforms for t in points]
    law = {}
    for m in range(reach + 1):
        terms = (value * mpmath.cos(m * t) for value, t in zip(values, points, strict=True))
        law[m] = law[-m] = step / mpmath.pi * (mpmath.mpf(1) / 2 + mpmath.fsum(terms))
    return law


def distance(one: dict[int, mpmath.mpf], other: dict[int, mpmath.mpf]) -> mpmath.mpf:
    """Total variation; what lies beyond the common reach is below 10^-27."""
    return sum(abs(one[m] - other[m]) for m in one) / 2


@pytest.mark.parametrize("scales", [[2, 2], [2, 2, 2], [2, 3]])
def test_a_sum_of_shares_is_nearly_post_processing(scales: list[int]) -> None:
    """The bound of Theorem 1 holds; without one uniform of the dither it does not.

    For h equal scales a the distance is about exp(-2 pi^2 a^2 (h - 1)/h), less than the bound: that of what was
    computed is neither zero nor rounding.
    """
    with mp.workdps(PRECISION):
        reach, h = 12 * math.ceil(math.hypot(*scales)), len(scales)
        law = sum_of_shares(scales, reach)
        bound = mpmath.mpf(2) ** log2_distance(min(scales), h, 1, largest=max(scales))
        found = distance(law, dithered(scales, reach, h))
        assert found < bound
        if len(set(scales)) == 1:
            expected = mpmath.exp(-2 * mpmath.pi**2 * scales[0] ** 2 * (h - 1) / h)
            assert expected / 100 < found < 100 * expected
        assert distance(law, dithered(scales, reach, h - 1)) > 100 * bound


@pytest.mark.parametrize(("least", "honest", "entries", "largest"), [(1, 1, 1, 1), (2, 9, 100, 3), (4, 400, 7, 1000)])
def test_the_distance_is_that_of_the_theorem(least: int, honest: int, entries: int, largest: int) -> None:
    """docs/masked.md, (3): the norm of the scales of all honest shares is what they sum to."""
    norm = math.hypot(*[largest] * honest)
    bound = entries * (1 + 0.65 * (honest + 1) * (honest + 1 + 2 * math.pi * norm * least))
    bound *= math.exp(-((math.pi * least) ** 2) / 2)
    assert 2.0 ** log2_distance(least, honest, entries, largest) == pytest.approx(bound, rel=1e-9)


def test_within_the_limits_the_distance_is_below_any_double() -> None:
    assert log2_distance(LEAST_SCALE, MOST_PARTIES, MOST_ENTRIES) < -466_000
    assert log2_distance(2 * LEAST_SCALE, MOST_PARTIES, MOST_ENTRIES) < -1_800_000


@pytest.mark.parametrize("total", [LEAST_MU, 1e-3, 1.0, LARGEST_MU])
@pytest.mark.parametrize("part", [1.0, 1e-3])
def test_the_margin_covers_the_distance(total: float, part: float) -> None:
    """Corollary 2, in numbers: delta at mu less delta at the mu that was drawn exceeds (1 + e^epsilon) eta."""
    if total * part < LEAST_MU:
        part = 1.0
    with mp.workdps(500):
        mu, own = mpmath.mpf(total), mpmath.mpf(total) * part
        drawn = mpmath.sqrt(mu**2 - own**2 + (own * (1 - mpmath.mpf(2) ** -40)) ** 2)

        def delta(epsilon: mpmath.mpf, mu: mpmath.mpf) -> mpmath.mpf:
            a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
            return (mpmath.erfc(-a / mpmath.sqrt(2)) - mpmath.exp(epsilon) * mpmath.erfc(-b / mpmath.sqrt(2))) / 2

        for deviations in (-0.5, 0, 1, 8, 30):
            epsilon = max(mpmath.mpf(0), mu * (mu / 2 + deviations))
            gap = delta(epsilon, mu) - delta(epsilon, drawn)
            assert gap > (1 + mpmath.exp(epsilon)) * mpmath.mpf(2) ** -400_000
            assert delta(epsilon, mu) <= delta_of(float(epsilon) * (1 - 1e-15), total)


@pytest.mark.parametrize("honest", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_shares_of_the_honest_are_the_noise_that_is_paid_for(honest: int, adjacency: str) -> None:
    mu = 0.7
    share = share_noise(mu, LAYOUT, adjacency, 20, honest)  # type: ignore[arg-type]
    whole, _ = integer_noise(mu * (1 - 2.0**-40), LAYOUT, adjacency, 20)  # type: ignore[arg-type]
    for name in ("diagonal", "off_diagonal", "sums", "counts"):
        one, all_of_it = getattr(share, name), getattr(whole, name)
        assert honest * one**2 >= all_of_it**2 > honest * (one - 1) ** 2
    assert Fraction(share.diagonal**2 * honest, whole.diagonal**2) < 1 + Fraction(1, 2**30)


def test_without_noise_there_are_no_shares() -> None:
    share = share_noise(math.inf, LAYOUT, "replace-one", 20, 3)
    assert share.diagonal == share.off_diagonal == share.sums == share.counts == 0


@pytest.mark.parametrize("mu", [1.0, math.inf])
def test_too_many_parties_and_entries_are_refused(mu: float) -> None:
    """More entries: ChaCha20 has no more than 2^38 bytes for a key."""
    wide = MomentLayout((1 << 17) + 1, 0, sums=False, counts=False)
    for layout, honest in ((LAYOUT, (1 << 16) + 1), (wide, 2)):
        with pytest.raises(ValueError, match=r"at most 2\^34 entries and 65536 parties"):
            share_noise(mu, layout, "replace-one", 20, honest)
