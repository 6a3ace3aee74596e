"""Methods: algorithms that receive a curator and public numbers, never rows. Those of the papers are in `papers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpgep.methods.auto import auto
from dpgep.methods.base import MethodResult
from dpgep.methods.clipped_power import ClippedPowerOptions, clipped_power
from dpgep.methods.options import ReleaseOptions
from dpgep.methods.papers.local_gaussian import LocalGaussianOptions, local_gaussian
from dpgep.methods.papers.rayleigh_flow import FlowOptions, TruncatedFlowOptions, rayleigh_flow
from dpgep.methods.papers.simultaneous_reduction import (
    DpsrOptions,
    DpsrsOptions,
    SimultaneousReductionOptions,
    dpsr,
    sr_dp,
)
from dpgep.methods.papers.stochastic import ReducedOptions, StochasticOptions, dp_spca, dp_vrpca
from dpgep.methods.release import release
from dpgep.privacy.curator import Curator


@dataclass(frozen=True)
class Method:
    """What `solve` runs: ``run(curator, n_components, options)``, its options checked by their class.

    ``in_one_pass(options, n_features)`` says whether it reads the rows only once.
    """

    options: type[Any]
    run: Callable[[Curator, int, Any], MethodResult]
    in_one_pass: Callable[[Any, int], bool] = lambda options, n_features: False


METHODS: dict[str, Method] = {
    "release": Method(ReleaseOptions, release, ReleaseOptions.in_one_pass),
    "local-gaussian": Method(LocalGaussianOptions, local_gaussian, lambda *_: True),
    "rayleigh-flow": Method(FlowOptions, rayleigh_flow),
    "truncated-rayleigh-flow": Method(TruncatedFlowOptions, rayleigh_flow),
    "auto": Method(ReleaseOptions, auto, ReleaseOptions.in_one_pass),
    "clipped-power": Method(ClippedPowerOptions, clipped_power),
    "sr-dp": Method(SimultaneousReductionOptions, sr_dp, lambda *_: True),
    "dpsr": Method(DpsrOptions, dpsr),
    "dpsrs": Method(DpsrsOptions, dpsr),
    "dp-spca": Method(StochasticOptions, dp_spca),
    "dp-vrpca": Method(ReducedOptions, dp_vrpca),
}
