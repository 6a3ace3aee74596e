"""`dpgep.load`: what was saved, from files that nobody trusts; refused unless all in it agrees.

Nothing is made that is much larger than the file, the guarantee and the noise of a release must follow from its ledger,
and sums must be possible for their number of people.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np

from dpgep.data.integer_moments import BITS, sums_of_nobody
from dpgep.data.people import weight_bits_of
from dpgep.local.aggregator import SUMS as LOCAL_SUMS
from dpgep.local.aggregator import Aggregator, StoredSums
from dpgep.local.aggregator import (
    FantopeDiagnostics as FantopeDiagnostics,  # classes that a file may name are registered
)
from dpgep.methods.base import components_of
from dpgep.methods.clipped_power import ClippedPowerDiagnostics as ClippedPowerDiagnostics
from dpgep.methods.matrix_free import OperatorDiagnostics as OperatorDiagnostics
from dpgep.methods.papers.simultaneous_reduction import ReductionDiagnostics as ReductionDiagnostics
from dpgep.methods.papers.stochastic import StochasticDiagnostics as StochasticDiagnostics
from dpgep.methods.release import ReleaseDiagnostics
from dpgep.models import MODELS as MODELS
from dpgep.models import GepModel as GepModel
from dpgep.models import TableModel
from dpgep.models.clipping import Clipping
from dpgep.models.model import Model, PublicFacts
from dpgep.models.moments import MomentLayout, ReleasedMoments
from dpgep.models.pairwise import Pairs
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import Classes, RowModel, Slices, layout_of
from dpgep.planning import PLAN, Plan
from dpgep.privacy.ledger import IN_OCTAVES, IN_PLACES
from dpgep.privacy.noise import COUNTS, SECOND, SUMS, TOTAL
from dpgep.problems.mergeable_moments import MOMENTS, Moments, StoredMoments
from dpgep.reports.report import REPORT, PrivacyReport, verify
from dpgep.results.release import RELEASE, Release, paid_noise
from dpgep.results.score_density import CELLS, SCORES, ScoreDensity
from dpgep.results.solution import SOLUTION, Solution
from dpgep.serialization import Document, Target, decoded, encoded, opened, upper_triangle_of

# Integer sums over more people have no room (docs/scale.md).
_MOST_PEOPLE = 1 << 62
# By how much deviations may differ that were added up in another order.
_ROUNDING = 1e-9


def load(source: Target | bytes) -> Any:
    """What `save` wrote: the file says whether it is a `Solution`, `Release`, `Moments`, `PrivacyReport`, `Plan`,
    `ScoreDensity` or `Aggregator` of local reports.

    What is loaded answers as before. Nothing but numbers and text is read: no file can run code.

    Parameters
    ----------
    source
        A path, a binary file that is open, or bytes.

    Raises
    ------
    ValueError
        Where the file is damaged, holds anything else, or states a guarantee that does not follow from its ledger; the
        message says where and what.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        content = bytes(source)
    else:
        content = Path(source).read_bytes() if isinstance(source, (str, os.PathLike)) else source.read()
    document = opened(content)
    if document.name == REPORT.name:
        return verify(content).privacy
    if not isinstance(document.name, str) or document.name not in _READERS:
        known = ", ".join([*_READERS, REPORT.name])
        raise ValueError(f"no format that dpgep.load reads: {str(document.name)[:60]!r}, not one of {known}")
    return _READERS[document.name](document)


def require_storable(model: Model) -> None:
    """Raise TypeError or ValueError if no file can hold a solution of this model, before there is one."""
    document = json.loads(json.dumps(encoded(model)))
    _require_model(decoded(document, Model, "the model", by="this dpgep"))


def _solution(document: Document) -> Solution:
    solution: Solution = document.require(SOLUTION).record(Solution, "the solution")
    components, model, mean = solution.components, solution.model, solution.mean
    if isinstance(model, TableModel):
        raise ValueError(f"the solution.model is of kind {model.name!r}, which has no components")
    if components.ndim != 2 or not components.size:
        raise ValueError(f"components must be a matrix, (K, d), got shape {components.shape}")
    k, d = components.shape
    _require_model(model)
    if model.n_features != d:
        raise ValueError(f"the model is of {model.n_features} features, the components of {d}")
    if k > model.max_components:
        raise ValueError(f"there are {k} components, but {components_of(model)}")
    _require_finite("components", components, (k, d))
    _require_finite("eigenvalues", solution.eigenvalues, (k,))
    _require_finite("mean", mean, (d,))
    if not components.any(axis=1).all():
        raise ValueError("a component must not be zero")
    _require_diagnostics(solution, k, d)
    if solution._moments is not None:
        _require_moments(solution, solution._moments, d)
    if solution.preprocessing is not None:
        solution.preprocessing.require_columns(d)
        _require_paid(solution.preprocessing, solution.privacy)
    if solution.passes < 0:
        raise ValueError(f"passes must not be negative, got {solution.passes}")
    solution.privacy.require_consistent()
    return solution


def _require_diagnostics(solution: Solution, k: int, d: int) -> None:
    found = solution.diagnostics
    stated = {"errors": found.expected_error, "bias": found.clipping_error, "span": found.expected_subspace_error}
    for name, errors in stated.items():
        _require_shape(f"diagnostics.accuracy.{name}", errors, () if name == "span" else (k,))
        if errors is not None and not np.all((errors >= 0) & (errors <= (k if name == "span" else 1))):
            raise ValueError(f"diagnostics.accuracy.{name} must be squared sines, from 0 to 1, or {k} for the span")
    _require_shape("diagnostics.eigengaps", found.eigengaps, (k,))
    _require_shape("diagnostics.accuracy.edge", found.noise_edge, (k,))
    if found.spectrum is not None and not (found.spectrum.ndim == 1 and len(found.spectrum) >= k):
        raise ValueError(f"diagnostics.spectrum must be a vector of at least {k} numbers")
    if len(found.lost) != k:
        raise ValueError(f"diagnostics.accuracy.lost must have {k} entries, got {len(found.lost)}")
    support = getattr(found, "support", None)
    if support is not None and not all(0 <= feature < d for feature in support):
        raise ValueError(f"diagnostics.support must be of features 0 to {d - 1}")
    if isinstance(found, ReleaseDiagnostics):
        _require_finite("diagnostics.scale", found.scale, (d,))
        if found.scale is not None and not (solution.components * found.scale).any(axis=1).all():
            raise ValueError("diagnostics.scale makes a component zero")


def _require_moments(solution: Solution, moments: ReleasedMoments, d: int) -> None:
    if not isinstance(solution.model, RowModel) or solution.privacy.bound is None:
        raise ValueError("moments are those of a model of rows, within a bound")
    _require_noise(moments, solution.privacy.mu)
    groups = None if solution.model.grouping is None else solution.model.grouping.n_groups
    _require_finite("moments.second", moments.second, (*_stacked(solution.model), d, d))
    _require_finite("moments.sums", moments.sums, (d, int(solution.mean is not None) if groups is None else groups))
    _require_finite("moments.counts", moments.counts, (min(moments.counts.size, 1) if groups is None else groups,))
    if moments.clipping is not None:
        _require_clipping(moments.clipping, d)
    if moments.mark is not None:
        raise ValueError("moments of a solution have no marks: they are of its columns")
    if moments.pairs is not None:
        _require_pairs(moments.pairs, d)


def _stacked(model: RowModel) -> tuple[int, ...]:
    return () if model.grouping is None else (model.grouping.n_groups,) * model.traits.by_group


def _require_pairs(pairs: Pairs, d: int) -> None:
    for name, shape in {"profile": (d, d), "shares": (d, d), "errors": (d, d), "of_means": (d,)}.items():
        part = getattr(pairs, name)
        _require_finite(f"moments.pairs.{name}", part, shape)
        if not (part >= 0).all():
            raise ValueError(f"moments.pairs.{name} must not be negative")
    if not (pairs.shares > 0).all():
        raise ValueError("moments.pairs.shares must be positive")


def _require_clipping(clipping: Clipping, d: int) -> None:
    for name, shape in {"covariance": (d, d), "lost": (d,), "most": (d,)}.items():
        _require_finite(f"moments.clipping.{name}", getattr(clipping, name), shape)
    _require_finite("moments.clipping.shift", clipping.shift, (d,))
    if not ((clipping.lost >= 0) & (clipping.lost < 1)).all():
        raise ValueError(f"moments.clipping.lost must be from 0 to below 1, got {clipping.lost}")
    if not (clipping.most >= 0).all():
        raise ValueError(f"moments.clipping.most must not be negative, got {clipping.most}")
    for name, least, largest in (("doubt", 0, 1), ("without_tails", 0, 1), ("people", 1, 3)):
        if not least <= (value := getattr(clipping, name)) <= largest:
            raise ValueError(f"moments.clipping.{name} must be from {least} to {largest}, got {value!r}")


def _release(document: Document) -> Release:
    """A release whose moments, and the noise that they state, are those that the ledger has paid for."""
    release: Release = document.require(RELEASE).record(Release, "the release")
    model, report, noisy, preprocessing = release.model, release.privacy, release._noisy, release.preprocessing
    _require_model(model)
    report.require_consistent()
    if report.adjacency == "local" or report.mu is None:
        raise ValueError("privacy must be that of a curator's moment matrix: with a mu, and not local")
    if report.bound is None:
        raise ValueError("bound must be a positive finite number, got None")
    if report.release is not None:
        raise ValueError("privacy must name no release: it is that of this one")
    if preprocessing is not None:
        preprocessing.require_fits(model)
        _require_paid(preprocessing, report)
        bound = preprocessing.released_bound(model.n_features)
        if bound != report.bound:
            raise ValueError(f"bound is {report.bound!r}, and that of the preprocessing {bound!r}")
    pairwise = preprocessing is not None and preprocessing.pairwise
    columns = model.n_features * (1 + pairwise)
    _require_shape("second", noisy.second, (*_stacked(model), columns, columns))
    layout = _layout(release)
    mark = report.bound * layout.mark if layout.marked else None
    if noisy.mark != mark:
        raise ValueError(f"the mark must be {mark!r}, got {noisy.mark!r}")
    _require_noise(noisy, report.mu)
    weighted = report.public is not None and report.public.weighted
    public = None if report.public is None or weighted else report.public.n_people
    is_counted = layout.counts and (weighted or (report.adjacency == "add-remove" and public is None))
    if noisy.n < 1 or not (is_counted or noisy.n == math.floor(noisy.n)):
        raise ValueError(f"n must be at least 1, and whole where it is public, got {noisy.n!r}")
    if public is not None and noisy.n != public:
        raise ValueError(f"n is {noisy.n!r}, and the public number of people {public!r}")
    for name in ("second", "sums", "counts"):
        _require_finite(name, getattr(noisy, name))
    if noisy.clipping is not None or noisy.pairs is not None:
        raise ValueError("a release has no clipping, and no pairs: it holds what was released, of clipped rows")
    if math.isfinite(report.mu):
        paid = iter(block.deviation for block in paid_noise(report))
        units = (report.bound * report.bound, report.bound, 1.0)
        parts = (True, layout.sums, layout.counts)
        expected = tuple(next(paid) * unit / noisy.n if part else 0.0 for unit, part in zip(units, parts, strict=True))
        stated = astuple(noisy.noise)
        if not all(math.isclose(a, b, rel_tol=_ROUNDING) for a, b in zip(stated, expected, strict=True)):
            raise ValueError(f"noise must be {expected} for n = {noisy.n!r} and this ledger, got {stated}")
    return release


def _layout(release: Release) -> MomentLayout:
    """The layout whose blocks have these shapes, and a deviation each in the ledger: n may be public, or counted."""
    model, report, noisy = release.model, release.privacy, release._noisy
    shapes, listed = (noisy.sums.shape, noisy.counts.shape), [block.name for block in report.releases[-1].noise]
    is_noisy = report.mu is not None and math.isfinite(report.mu)
    expected, inputs = [], report.public
    known = (None, None, None) if inputs is None else (inputs.person, inputs.rows, inputs.largest_weight)
    for n in (1, None):
        assert report.adjacency != "local"
        facts = PublicFacts(report.adjacency, report.bound, n, *known)
        layout = layout_of(model, facts, release.preprocessing)
        if shapes == ((layout.n_features, layout.n_groups * layout.sums), (layout.n_groups,)):
            of_counts = TOTAL if facts.weighted and layout.n_groups == 1 else COUNTS
            names = [SECOND] + [SUMS] * layout.sums + [of_counts] * layout.counts
            if not is_noisy or listed == names:
                return layout
            expected.append(names)
    if not expected:
        raise ValueError(f"shapes {shapes} are not those of a release of {model.name}")
    blocks = " or ".join(map(str, expected))
    raise ValueError(f"releases[-1].noise must be of the blocks {blocks}, in this order, got {listed}")


def _moments(document: Document) -> Moments:
    stored: StoredMoments = document.require(MOMENTS).record(StoredMoments, "the moments")
    _require_model(stored.model)
    if stored.bits not in BITS:
        raise ValueError(f"bits must be from {BITS[0]} to {BITS[-1]}, got {stored.bits}")
    inputs = stored.person, stored.rows, stored.largest_weight
    facts = PublicFacts(stored.adjacency, None, stored.public_n, *inputs)
    weight_bits = weight_bits_of(facts)
    if not 0 <= stored.n << weight_bits <= _MOST_PEOPLE:
        raise ValueError(f"n must be a number of people, from 0 to 2^{62 - weight_bits}, got {stored.n}")
    most = stored.n << weight_bits
    if not (0 <= stored.weight <= most and (facts.weighted or stored.weight == most)):
        raise ValueError(f"weight must be that of n = {stored.n} people, got {stored.weight}")
    layout = layout_of(stored.model, facts, stored.preprocessing)
    size = layout.n_matrices * layout.dimension * (layout.dimension + 1) // 2
    _require_shape("low", stored.low, (size,))
    _require_shape("high", stored.high, (size,))
    low, high = (None if limb is None else upper_triangle_of(limb, *layout.shape) for limb in (stored.low, stored.high))
    assert low is not None
    sums = sums_of_nobody(layout, stored.bits).of_limbs(layout, stored.bits, stored.weight, low, high)
    sums.require_possible()
    given = {each.name: getattr(stored, each.name) for each in fields(stored)}
    n, *_ = (given.pop(name) for name in ("n", "weight", "low", "high"))
    return Moments._of_sums(sums, given, n)


def _plan(document: Document) -> Plan:
    plan: Plan = document.require(PLAN).record(Plan, "the plan")
    _require_model(plan.model)
    return plan


# ---- parts of several formats ----


def _require_paid(preprocessing: Preprocessing, report: PrivacyReport) -> None:
    """Raise ValueError where histograms that were bought of these people have less noise than was paid for."""
    paid: dict[str, list[float]] = {IN_OCTAVES: [math.inf], IN_PLACES: [math.inf]}
    bought = [entry for entry in report.releases if entry.query in paid]
    for entry in bought:
        paid[entry.query].append(sum(block.deviation for block in entry.noise))
    for query, found in zip(paid, (preprocessing.magnitudes, preprocessing.places), strict=True):
        stated = np.reshape([] if found is None else found.deviation, (-1, 1))
        if bought and not np.isclose(stated, paid[query], rtol=_ROUNDING, atol=0).any(axis=1).all():
            raise ValueError(f"the ledger has not paid for the noise of the {query}")


def _require_model(model: Model) -> None:
    """Raise ValueError for a model that nobody can make: without features, or with groups that are none."""
    if min(model.view_sizes or (model.n_features,)) < 1:
        raise ValueError(f"the model is of {model.n_features} features")
    groups = getattr(model, "grouping", None)
    if isinstance(groups, Classes) and not 2 <= len(groups.labels) == len(set(groups.labels)):
        raise ValueError("classes must be at least two, all different")
    edges = groups.interior_edges if isinstance(groups, Slices) else (0.0,)
    if not (len(edges) and np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
        raise ValueError("interior_edges must be increasing numbers, at least one")


def _require_noise(noisy: ReleasedMoments, mu: float | None) -> None:
    """Raise ValueError unless moments are of a number of people, with noise where there is a guarantee."""
    if not 0 < noisy.n <= _MOST_PEOPLE:
        raise ValueError(f"n must be a positive number of people, got {noisy.n!r}")
    if not all(0 <= deviation < math.inf for deviation in astuple(noisy.noise)):
        raise ValueError(f"noise must be of non-negative finite deviations, got {noisy.noise}")
    if noisy.noise.second == 0 and mu is not None and math.isfinite(mu):
        raise ValueError(f"noise must be positive where mu is finite, got {noisy.noise}")


def _require_finite(name: str, array: Any, shape: tuple[int, ...] | None = None) -> None:
    if shape is not None:
        _require_shape(name, array, shape)
    if array is not None and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")


def _require_shape(name: str, array: Any, shape: tuple[int, ...]) -> None:
    if array is not None and np.shape(array) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {np.shape(array)}")


def _scores(document: Document) -> ScoreDensity:
    found: ScoreDensity = document.require(SCORES).record(ScoreDensity, "the scores")
    k, size = len(found.axes), found.edges.shape[-1] - 1
    if k not in (1, 2) or size not in CELLS:
        raise ValueError(f"scores are of people in {', '.join(map(str, CELLS))} cells of one component or each of two")
    _require_finite("edges", found.edges, (k, size + 1))
    if not (np.diff(found.edges) > 0).all():
        raise ValueError("edges must ascend")
    public, groups = found.privacy.public, found.groups
    if not 0 < found.n <= _MOST_PEOPLE or (public is not None and public.n_people not in (None, found.n)):
        raise ValueError(f"n must be the public number of people, got {found.n}")
    if groups is not None and not 0 < len(groups) == len(set(groups)):
        raise ValueError("groups must be at least one, all different")
    _require_finite("shares", found.shares, (1 if groups is None else len(groups), *k * (size,)))
    if not np.abs(found.shares).max() < 2.0**500:
        raise ValueError("shares must be below 2^500, so that they can be added up")
    found.privacy.require_consistent()
    paid = [block.deviation for entry in found.privacy.releases for block in entry.noise]
    if len(found.privacy.releases) != 1 or not math.isclose(found.deviation * found.n, sum(paid), rel_tol=_ROUNDING):
        raise ValueError("the deviation of the shares is not that of the noise that the ledger has paid for")
    moved, mu = math.sqrt(2 if found.privacy.adjacency == "replace-one" else 1), found.privacy.mu or 0.0
    if not sum(paid) * mu >= moved * (1 - _ROUNDING) and mu < math.inf:
        raise ValueError(f"the noise in a cell costs more than mu = {mu:.4g}, which the ledger has paid")
    return found


_READERS: dict[str, Callable[[Document], Any]] = {
    SOLUTION.name: _solution,
    RELEASE.name: _release,
    MOMENTS.name: _moments,
    PLAN.name: _plan,
    SCORES.name: _scores,
    LOCAL_SUMS.name: lambda document: Aggregator.restored(document.require(LOCAL_SUMS).record(StoredSums, "the sums")),
}
