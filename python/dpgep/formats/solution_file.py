"""The file of a solution: format "dpgep-solution" (docs/formats.md). It holds what `Solution` shows, and no more."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import numpy as np

from dpgep._dispatch import core
from dpgep.formats.checks import require_finite, require_model, require_noise, require_shape
from dpgep.formats.codec import Kinds, decoded, encoded, parsed, require_format
from dpgep.local.sparse import FantopeDiagnostics
from dpgep.methods.base import Diagnostics
from dpgep.methods.clipped_power import ClippedPowerDiagnostics
from dpgep.methods.matrix_free import OperatorDiagnostics
from dpgep.methods.papers.rayleigh_flow import FlowDiagnostics
from dpgep.methods.papers.simultaneous_reduction import ReductionDiagnostics
from dpgep.methods.papers.stochastic import StochasticDiagnostics
from dpgep.methods.release import ReleaseDiagnostics
from dpgep.models.gep import GepModel
from dpgep.models.groups import GroupModel
from dpgep.models.model import Model
from dpgep.models.moments import ReleasedMoments
from dpgep.models.registry import MODELS
from dpgep.models.row_model import RowModel
from dpgep.models.table import TableModel

FORMAT, VERSION = "dpgep-solution", 1


S = TypeVar("S")

_FLOW = {"flow": FlowDiagnostics}
_KINDS: Kinds = {
    Model: {**{name: model for name, model in MODELS.items() if model is not TableModel}, GepModel.name: GepModel},
    Diagnostics: {
        "release": ReleaseDiagnostics,
        "operator": OperatorDiagnostics,
        "reduction": ReductionDiagnostics,
        "clipped power": ClippedPowerDiagnostics,
        "stochastic": StochasticDiagnostics,
        "fantope": FantopeDiagnostics,
        **_FLOW,
    },
    FlowDiagnostics: _FLOW,
}


def written(solution: Any) -> str:
    """The JSON text of a solution. Raises TypeError for classes of people that are no text, numbers or booleans."""
    _require_plain_classes(solution.model)
    document = encoded(solution, _KINDS)
    document["moments"] = document.pop("_moments")
    return json.dumps({"format": FORMAT, "version": VERSION, "dpgep": core.__version__, **document}, allow_nan=False)


def require_storable(model: Model) -> None:
    """Raise TypeError or ValueError if no file can hold a solution of this model, before there is one."""
    _require_plain_classes(model)
    document = json.loads(json.dumps(encoded(model, _KINDS)))
    require_model(decoded(document, Model, "the model", kinds=_KINDS, by="this dpgep"))


def _require_plain_classes(model: Model) -> None:
    for label in getattr(model, "classes", ()):
        plain = label.item() if isinstance(label, np.generic) else label
        if not isinstance(plain, (str, int, float)) or (isinstance(plain, float) and not math.isfinite(plain)):
            raise TypeError(f"classes must be text, numbers or booleans to be stored, and finite, got {label!r}")


def read(kind: type[S], text: str | bytes) -> S:
    """The solution, of class ``kind``, in a JSON text. Raises ValueError, which says what is wrong, for others."""
    document = parsed(text)
    by = require_format(document, FORMAT, VERSION)
    document["_moments"] = document.pop("moments", None)
    solution: S = decoded(document, kind, "the solution", kinds=_KINDS, by=by)
    _check(solution)
    return solution


def _check(solution: Any) -> None:
    """Raise ValueError for parts that do not fit each other."""
    components, model, mean = solution.components, solution.model, solution.mean
    if components.ndim != 2 or not components.size:
        raise ValueError(f"components must be a matrix, (K, d), got shape {components.shape}")
    k, d = components.shape
    require_model(model)
    if model.n_features != d:
        raise ValueError(f"the model is of {model.n_features} features, the components of {d}")
    if k > model.max_components:
        raise ValueError(f"there are {k} components, but {model.max_components_reason}")
    require_finite("components", components, (k, d))
    require_finite("eigenvalues", solution.eigenvalues, (k,))
    require_finite("mean", mean, (d,))
    if not components.any(axis=1).all():
        raise ValueError("a component must not be zero")
    _check_diagnostics(solution, k, d)
    _check_moments(solution, d)
    if solution.preprocessing is not None:
        for name, part in solution.preprocessing.parts().items():
            if part is not None and len(part) != d:
                raise ValueError(f"{name} of the preprocessing is of {len(part)} columns, not of {d}")
    if solution.passes < 0:
        raise ValueError(f"passes must not be negative, got {solution.passes}")
    solution.privacy.require_consistent()


def _check_diagnostics(solution: Any, k: int, d: int) -> None:
    found = solution.diagnostics
    require_shape("diagnostics.accuracy.errors", found.expected_error, (k,))
    require_shape("diagnostics.eigengaps", found.eigengaps, (k,))
    require_shape("diagnostics.noise_edge", found.noise_edge, (k,))
    if len(found.lost) != k:
        raise ValueError(f"diagnostics.accuracy.lost must have {k} entries, got {len(found.lost)}")
    support = getattr(found, "support", None)
    if support is not None and not all(0 <= feature < d for feature in support):
        raise ValueError(f"diagnostics.support must be of features 0 to {d - 1}")
    if isinstance(found, ReleaseDiagnostics):
        require_finite("diagnostics.scale", found.scale, (d,))
        if found.scale is not None and not (solution.components * found.scale).any(axis=1).all():
            raise ValueError("diagnostics.scale makes a component zero")


def _check_moments(solution: Any, d: int) -> None:
    moments: ReleasedMoments | None = solution._moments
    if moments is None:
        return
    if not isinstance(solution.model, RowModel) or solution.privacy.bound is None:
        raise ValueError("moments are those of a model of rows, within a bound")
    require_noise(moments, solution.privacy.mu)
    groups = solution.model.n_groups if isinstance(solution.model, GroupModel) else None
    require_finite("moments.second", moments.second, (d, d))
    require_finite("moments.sums", moments.sums, (d, int(solution.mean is not None) if groups is None else groups))
    require_finite("moments.counts", moments.counts, (min(moments.counts.size, 1) if groups is None else groups,))
