"""Methods: algorithms that receive a curator and public numbers, never rows. Those of the papers are in `papers`."""

from __future__ import annotations

from dataclasses import replace

from dpgep._checks import suggestion
from dpgep.methods import base
from dpgep.methods.auto import select_method
from dpgep.methods.base import Data, Method
from dpgep.methods.clipped_power import ClippedPowerDiagnostics, ClippedPowerOptions, clipped_power
from dpgep.methods.matrix_free import OperatorDiagnostics
from dpgep.methods.papers import simultaneous_reduction as reduction
from dpgep.methods.papers.rayleigh_flow import FlowDiagnostics, FlowOptions, TruncatedFlowOptions, rayleigh_flow
from dpgep.methods.papers.stochastic import ReducedOptions, StochasticDiagnostics, StochasticOptions, dp_spca, dp_vrpca
from dpgep.methods.release import ReleaseDiagnostics, local_gaussian, release

_ROWS: tuple[Data, ...] = ("rows", "streams")
_PAIRS: tuple[Data, ...] = (*_ROWS, "matrices")
_ANY: tuple[Data, ...] = (*_PAIRS, "sums")
_SAMPLED = base.given_bound("samples of people cost the whole budget, so that nothing is left to find a bound with")
_LOCAL = base.REPLACE_ONE, base.KNOWN_N, base.given_bound("clients clip their own rows"), base.ONE_ROW_EACH
_UNWEIGHTED = base.EQUAL_WEIGHTS, base.SECOND_MOMENT

_CLIPPED = base.EQUAL_WEIGHTS, base.CLIPPED_PRODUCTS, base.OF_TRAITS, base.PUBLIC_N
_PRODUCTS = base.PRODUCTS, base.OF_TRAITS

_RELEASES = (ReleaseDiagnostics, OperatorDiagnostics)
_RELEASE = Method("release", release, base.ReleaseOptions, _RELEASES, _ANY, keeps_moments=True)
_LOCAL_GAUSSIAN = replace(
    _RELEASE,
    name="local-gaussian",
    run=local_gaussian,
    options=base.PairOptions,
    diagnostics=(ReleaseDiagnostics,),
    data=("rows", "sums"),
    needs=(*_UNWEIGHTED, *_LOCAL),
)
_DPSR = Method("dpsr", reduction.dpsr, reduction.DpsrOptions, (reduction.ReductionDiagnostics,), _PAIRS, _PRODUCTS)
_SR_DP = replace(
    _RELEASE,
    name="sr-dp",
    run=reduction.sr_dp,
    options=reduction.SimultaneousReductionOptions,
    diagnostics=(ReleaseDiagnostics,),
)
_FLOW = Method("rayleigh-flow", rayleigh_flow, FlowOptions, (FlowDiagnostics,), _PAIRS, _PRODUCTS, by_products={})
_SAMPLES = (*_UNWEIGHTED, base.OF_TRAITS, _SAMPLED, base.KNOWN_N)
_SPCA = Method("dp-spca", dp_spca, StochasticOptions, (StochasticDiagnostics,), ("rows",), _SAMPLES, whole_budget=True)


class _Methods(dict[str, Method]):
    """Methods by name. Raises ValueError for other names."""

    def __missing__(self, name: str) -> Method:
        hint = suggestion(name, self) or f"; known: {', '.join(sorted(self))}"
        raise ValueError(f"unknown method {name!r}{hint}")


METHODS = _Methods(
    (method.name, method)
    for method in (
        replace(_RELEASE, in_units=True, by_products={"storage": "operator"}),
        replace(_RELEASE, name="auto", run=select_method, diagnostics=(*_RELEASES, ClippedPowerDiagnostics)),
        Method("clipped-power", clipped_power, ClippedPowerOptions, (ClippedPowerDiagnostics,), _ROWS, _CLIPPED),
        _LOCAL_GAUSSIAN,
        _FLOW,
        replace(_FLOW, name="truncated-rayleigh-flow", options=TruncatedFlowOptions),
        _SR_DP,
        _DPSR,
        replace(_DPSR, name="dpsrs", options=reduction.DpsrsOptions),
        _SPCA,
        replace(_SPCA, name="dp-vrpca", run=dp_vrpca, options=ReducedOptions),
    )
)
