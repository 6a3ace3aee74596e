"""Noise that several parties add in shares, each without the others: docs/masked.md, section 3.

A sum of rounded normal deviates is no rounded normal deviate. But its law is, within a total variation that falls as
exp(-pi^2 a^2/2) in the least scale a, that of integer sums plus a normal deviate and an independent one, rounded: of
post-processing of a Gaussian mechanism. With a >= 2^8 the distance is below any number that a double can hold, and
`share_mu` makes room for it: every (epsilon, delta) that is stated holds as it stands.
"""

from __future__ import annotations

import math

from dpgep.models.model import Adjacency
from dpgep.models.moments import MomentLayout
from dpgep.privacy.calibration import IntegerNoise, integer_noise

# The limits of the theorem; `log2_distance` is below -466000 within them. Entries: their masks, 16 bytes each, are
# all that ChaCha20 has for one key (RFC 8439: 2^32 blocks of 64 bytes).
LEAST_SCALE, MOST_PARTIES, MOST_ENTRIES = 1 << 8, 1 << 16, 1 << 34
_LARGEST_SCALE = 1 << 56
LEAST_MU, LARGEST_MU = 2.0**-20, 32.0
# Noise is drawn for a mu that is smaller by this part than the mu that is paid.
_MARGIN = 2.0**-40


def share_noise(mu: float, layout: MomentLayout, adjacency: Adjacency, bits: int, honest: int) -> IntegerNoise:
    """The scales of one share: ``honest`` of them together, without the others, cost at most ``mu``.

    No noise for mu = inf. Raises ValueError beyond the limits of the theorem.
    """
    if layout.dimension**2 > MOST_ENTRIES or honest > MOST_PARTIES:
        raise ValueError(f"noise in shares is for at most 2^34 entries and {MOST_PARTIES} parties")
    if math.isinf(mu):
        return IntegerNoise(bits, 0, 0, 0, 0)
    if not LEAST_MU <= mu <= LARGEST_MU:
        raise ValueError(f"noise in shares needs a mu between 2^-20 and {LARGEST_MU:g}, this budget has mu = {mu:.6g}")
    whole, _ = integer_noise(mu * (1 - _MARGIN), layout, adjacency, bits)
    scales = (whole.diagonal, whole.off_diagonal, whole.sums, whole.counts)
    share = IntegerNoise(bits, *(_root_of_part(scale, honest) for scale in scales))
    if min(scale for scale in (share.diagonal, share.off_diagonal, share.sums, share.counts) if scale) < LEAST_SCALE:
        raise ValueError(
            f"a share of the noise is less than {LEAST_SCALE} steps of the grid of {bits} bits: use more bits, or a "
            "smaller budget"
        )
    return share


def log2_distance(least: int, honest: int, entries: int, largest: int = _LARGEST_SCALE) -> float:
    """Binary logarithm of a bound on the total variation between noise in shares and post-processing of real noise.

    Of ``honest`` shares with scales from ``least`` to ``largest`` in each of this many entries (docs/masked.md, (3)).
    """
    norm = math.sqrt(honest) * largest
    factor = entries * (1 + 0.65 * (honest + 1) * (honest + 1 + 2 * math.pi * norm * least))
    return (math.log(factor) - (math.pi * least) ** 2 / 2) / math.log(2)


def _root_of_part(scale: int, parts: int) -> int:
    """The least s with parts s^2 >= scale^2."""
    return math.isqrt((scale * scale - 1) // parts) + 1 if scale else 0
