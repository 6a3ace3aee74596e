"""A release or a power method on clipped products, whichever the spectrum favours.

To first order in the noise, with C the median of a normal product and 12 steps, errors of the two are in the ratio

    release : clipped power = b^2 : 16 (lambda_1 + ... + lambda_K),

b the row bound (docs/mathematics.md, section 11). A tenth of mu^2 buys a few steps of the power method and the variance
along the block they end at; what is left, which costs at most a ninth more of squared error, goes to the better one.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpgep.methods.clipped_power import ClippedPowerOptions, clipped_power, probe
from dpgep.methods.release import ReleaseOptions, release
from dpgep.methods.result import MethodResult
from dpgep.privacy.curator import Curator, PublicSide

_PROBE_SHARE, _PROBE_STEPS = 0.1, 4
# Of the variance, in squared bounds, below which clipped products are better.
_SPREAD = 1 / 16


@dataclass(frozen=True, kw_only=True, eq=False)
class AutoOptions:
    """There are none: "release" and "clipped-power" have their defaults."""

    def check(self, public: PublicSide, k: int) -> None:
        """What depends on the problem. Raises before anything is released."""
        ReleaseOptions().check(public, k)


def auto(curator: Curator, n_components: int, options: AutoOptions) -> MethodResult:
    """The K leading eigenvectors by the method that a probe favours; models that have only one get a release."""
    if not _has_both(curator.public) or curator.noiseless:
        return release(curator, n_components, ReleaseOptions())
    vectors, variance, centre = probe(curator, n_components, _PROBE_STEPS, _PROBE_SHARE)
    if variance >= _SPREAD:
        return release(curator, n_components, ReleaseOptions())
    return clipped_power(curator, n_components, ClippedPowerOptions(init=vectors), 1 - _PROBE_SHARE, centre)


def _has_both(public: PublicSide) -> bool:
    return public.model.is_covariance and public.facts.n_is_public
