"""A release or a power method on clipped products, whichever the spectrum favours.

To first order in the noise, with C the median of a normal product and 12 steps, errors of the two are in the ratio

    release : clipped power = b^2 : 16 (lambda_1 + ... + lambda_K),

b the row bound (docs/mathematics.md, section 11). Public numbers decide first: a release it is where only one can be
had, and where its noise is small beside b^2/d, the mean variance of rows as long as the bound. Elsewhere a twentieth of
mu^2 buys a few steps of the power method and the variance along the block they end at; what is left, which costs a
nineteenth more of squared error, goes to the better one.

Not the default: a direction that few people have is clipped away before a probe finds it, and the errors that clipped
products state do not count that bias.
"""

from __future__ import annotations

from dataclasses import replace

from dpgep.methods.clipped_power import VALUES_SHARE, ClippedPowerOptions, clipped_power, probe
from dpgep.methods.release import ReleaseOptions, release
from dpgep.methods.result import MethodResult
from dpgep.privacy.curator import Curator

_PROBE_SHARE, _PROBE_STEPS = 0.05, 4
# Of the variance, in squared bounds, below which clipped products are better.
_SPREAD = 1 / 16
# The edge of a release's noise, 2 b^2 sqrt(d)/(n mu), in units of b^2/d, up to which there is nothing to choose: what
# stands out by one such unit is then found with a squared sine of (0.1/2)^2.
_SMALL_NOISE = 0.1


def auto(curator: Curator, n_components: int, options: ReleaseOptions) -> MethodResult:
    """The K leading eigenvectors by the method that a probe favours, by a release where there is nothing to choose."""
    if not _is_open(curator, n_components, options):
        return replace(release(curator, n_components, options), method="release")
    vectors, variance, centre = probe(curator, n_components, _PROBE_STEPS, _PROBE_SHARE)
    if variance >= _SPREAD:
        # in memory, whose exact sums are refused for no budget: nothing is refused after a payment
        return replace(release(curator, n_components, replace(options, storage="matrix")), method="release")
    init = ClippedPowerOptions(init=vectors)
    return replace(clipped_power(curator, n_components, init, 1 - _PROBE_SHARE, centre), method="clipped-power")


def _is_open(curator: Curator, k: int, options: ReleaseOptions) -> bool:
    """Whether it is worth a probe which is better; a function of public numbers.

    K components hold at least the part K/d of all variance: clipped products cannot win by much where that is a
    sixteenth. Rows that are not in memory would be read many times.
    """
    public, d = curator.public, curator.model.n_features
    n = public.facts.n
    if not (public.model.is_covariance and public.at_hand and options == ReleaseOptions()):
        return False
    if k / d > _SPREAD or options.storage_for(d) != "matrix":
        return False
    if n is None or 2 * d**1.5 <= _SMALL_NOISE * n * curator.remaining:
        return False
    return curator.affords_clipped_products(_PROBE_SHARE * VALUES_SHARE)
