"""Methods: algorithms that receive a curator and public numbers, never rows. Those of the papers are in `papers`."""

from __future__ import annotations

from dataclasses import replace

from dpgep._checks import suggestion
from dpgep.methods.auto import select_method
from dpgep.methods.base import (
    CLIPPED_PRODUCTS,
    EQUAL_WEIGHTS,
    KNOWN_N,
    ONE_ROW_EACH,
    PRODUCTS,
    PUBLIC_N,
    REPLACE_ONE,
    SECOND_MOMENT,
    Data,
    Method,
    PairOptions,
    ReleaseOptions,
    given_bound,
)
from dpgep.methods.clipped_power import ClippedPowerDiagnostics, ClippedPowerOptions, clipped_power
from dpgep.methods.matrix_free import OperatorDiagnostics
from dpgep.methods.papers.rayleigh_flow import FlowDiagnostics, FlowOptions, TruncatedFlowOptions, rayleigh_flow
from dpgep.methods.papers.simultaneous_reduction import (
    DpsrOptions,
    DpsrsOptions,
    ReductionDiagnostics,
    SimultaneousReductionOptions,
    dpsr,
    sr_dp,
)
from dpgep.methods.papers.stochastic import ReducedOptions, StochasticDiagnostics, StochasticOptions, dp_spca, dp_vrpca
from dpgep.methods.release import ReleaseDiagnostics, local_gaussian, release

_ANY: tuple[Data, ...] = ("rows", "streams", "matrices", "sums")
_ROWS: tuple[Data, ...] = ("rows", "streams")
_DPSR = Method("dpsr", dpsr, DpsrOptions, (ReductionDiagnostics,), (*_ROWS, "matrices"), (PRODUCTS,))
_FLOW = replace(
    _DPSR, name="rayleigh-flow", run=rayleigh_flow, options=FlowOptions, diagnostics=(FlowDiagnostics,), by_products={}
)
_SPCA = Method(
    "dp-spca",
    dp_spca,
    StochasticOptions,
    (StochasticDiagnostics,),
    ("rows",),
    (
        EQUAL_WEIGHTS,
        SECOND_MOMENT,
        given_bound("samples of people cost the whole budget, so that nothing is left to find a bound with"),
        KNOWN_N,
    ),
    whole_budget=True,
)
_RELEASE = Method(
    "release",
    release,
    ReleaseOptions,
    (ReleaseDiagnostics, OperatorDiagnostics),
    _ANY,
    keeps_moments=True,
    in_units=True,
)


class _Methods(dict[str, Method]):
    """Methods by name. Raises ValueError for other names."""

    def __missing__(self, name: str) -> Method:
        hint = suggestion(name, self) or f"; known: {', '.join(sorted(self))}"
        raise ValueError(f"unknown method {name!r}{hint}")


METHODS = _Methods(
    (method.name, method)
    for method in (
        replace(_RELEASE, by_products={"storage": "operator"}),
        replace(
            _RELEASE,
            name="auto",
            run=select_method,
            diagnostics=(*_RELEASE.diagnostics, ClippedPowerDiagnostics),
            in_units=False,
        ),
        Method(
            "clipped-power",
            clipped_power,
            ClippedPowerOptions,
            (ClippedPowerDiagnostics,),
            _ROWS,
            (EQUAL_WEIGHTS, CLIPPED_PRODUCTS, PUBLIC_N),
        ),
        Method(
            "local-gaussian",
            local_gaussian,
            PairOptions,
            (ReleaseDiagnostics,),
            ("rows", "sums"),
            (
                EQUAL_WEIGHTS,
                SECOND_MOMENT,
                REPLACE_ONE,
                KNOWN_N,
                given_bound("clients clip their own rows"),
                ONE_ROW_EACH,
            ),
            keeps_moments=True,
        ),
        _FLOW,
        replace(_FLOW, name="truncated-rayleigh-flow", options=TruncatedFlowOptions),
        Method("sr-dp", sr_dp, SimultaneousReductionOptions, (ReleaseDiagnostics,), _ANY, keeps_moments=True),
        _DPSR,
        replace(_DPSR, name="dpsrs", options=DpsrsOptions),
        _SPCA,
        replace(_SPCA, name="dp-vrpca", run=dp_vrpca, options=ReducedOptions),
    )
)
