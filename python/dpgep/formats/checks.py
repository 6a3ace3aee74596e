"""What a model, a release and sums from hands that nobody trusts must be like: the same for all formats."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import Any

import numpy as np

from dpgep.models.model import Model, PublicFacts
from dpgep.models.moments import MomentLayout, ReleasedMoments
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import RowModel
from dpgep.privacy.calibration import COUNTS, SECOND, SUMS
from dpgep.reports.report import PrivacyReport

# Integer sums over more people have no room (docs/scale.md).
MOST_PEOPLE = 1 << 62
# By how much deviations may differ that were added up in another order.
_ROUNDING = 1e-9


def require_model(model: Model) -> None:
    """Raise ValueError for a model that nobody can make: without features, or with groups that are none."""
    if min(model.view_sizes or (model.n_features,)) < 1:
        raise ValueError(f"the model is of {model.n_features} features")
    classes, edges = (getattr(model, name, None) for name in ("classes", "interior_edges"))
    if classes is not None and not 2 <= len(classes) == len(set(classes)):
        raise ValueError("classes must be at least two, all different")
    if edges is not None and not (len(edges) and np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
        raise ValueError("interior_edges must be increasing numbers, at least one")


def require_released(
    model: RowModel, report: PrivacyReport, noisy: ReleasedMoments, preprocessing: Preprocessing | None
) -> None:
    """Raise ValueError unless moments, and the noise that they state, are those that the ledger has paid for."""
    report.require_consistent()
    if report.adjacency == "local" or report.mu is None:
        raise ValueError("privacy must be that of a curator's moment matrix: with a mu, and not local")
    if report.bound is None:
        raise ValueError("bound must be a positive finite number, got None")
    if preprocessing is not None:
        preprocessing.require_fits(model)
        if preprocessing.bound != report.bound:
            raise ValueError(f"bound is {report.bound!r}, and that of the preprocessing {preprocessing.bound!r}")
    blocks = report.releases[-1].noise
    layout = _layout(model, report, noisy)
    require_noise(noisy, report.mu)
    _require_people(noisy.n, layout, report)
    for name in ("second", "sums", "counts"):
        require_finite(name, getattr(noisy, name))
    stated = astuple(noisy.noise)
    if math.isfinite(report.mu):
        paid = iter(block.deviation for block in blocks)
        units = (report.bound * report.bound, report.bound, 1.0)
        parts = (True, layout.sums, layout.counts)
        expected = tuple(next(paid) * unit / noisy.n if part else 0.0 for unit, part in zip(units, parts, strict=True))
        if not all(math.isclose(a, b, rel_tol=_ROUNDING) for a, b in zip(stated, expected, strict=True)):
            raise ValueError(
                f"noise must be {expected} for n = {noisy.n!r} people and the deviations of the ledger, got {stated}"
            )


def require_noise(noisy: ReleasedMoments, mu: float | None) -> None:
    """Raise ValueError unless moments are of a number of people, with noise where there is a guarantee."""
    if not 0 < noisy.n <= MOST_PEOPLE:
        raise ValueError(f"n must be a positive number of people, got {noisy.n!r}")
    if not all(0 <= deviation < math.inf for deviation in astuple(noisy.noise)):
        raise ValueError(f"noise must be of non-negative finite deviations, got {noisy.noise}")
    if noisy.noise.second == 0 and mu is not None and math.isfinite(mu):
        raise ValueError(f"noise must be positive where mu is finite, got {noisy.noise}")


def _layout(model: RowModel, report: PrivacyReport, noisy: ReleasedMoments) -> MomentLayout:
    """The layout whose blocks have these shapes, and a deviation each in the ledger: n may be public, or counted."""
    shapes, listed = (noisy.sums.shape, noisy.counts.shape), [block.name for block in report.releases[-1].noise]
    is_noisy = report.mu is not None and math.isfinite(report.mu)
    expected = []
    for n in (1, None):
        assert report.adjacency != "local"
        layout = model.layout(PublicFacts(report.adjacency, report.bound, n))
        if shapes == ((layout.n_features, layout.n_groups * layout.sums), (layout.n_groups,)):
            names = [SECOND] + [SUMS] * layout.sums + [COUNTS] * layout.counts
            if not is_noisy or listed == names:
                return layout
            expected.append(names)
    if not expected:
        raise ValueError(f"shapes {shapes} are not those of a release of {model.name}")
    blocks = " or ".join(map(str, expected))
    raise ValueError(f"releases[-1].noise must be of the blocks {blocks}, in this order, got {listed}")


def _require_people(n: float, layout: MomentLayout, report: PrivacyReport) -> None:
    public = None if report.public is None else report.public.n_people
    is_counted = layout.counts and report.adjacency == "add-remove" and public is None
    if n < 1 or not (is_counted or n == math.floor(n)):
        raise ValueError(f"n must be at least 1, and whole where it is public, got {n!r}")
    if public is not None and n != public:
        raise ValueError(f"n is {n!r}, and the public number of people {public!r}")


def require_finite(name: str, array: Any, shape: tuple[int, ...] | None = None) -> None:
    """Raise ValueError unless an array, where there is one, has this shape and no NaN or infinity."""
    if shape is not None:
        require_shape(name, array, shape)
    if array is not None and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")


def require_shape(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an array, where there is one, has this shape."""
    if array is not None and array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
