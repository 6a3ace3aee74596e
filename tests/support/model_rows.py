"""A model of each kind, and rows for it: people with two measured vectors, labels and responses."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import Matrix

import dpgep
from dpgep.models.row_model import Classes, RowModel, input_names

D = 5
_EACH = [
    dpgep.models.PcaModel(D, center=True),
    dpgep.models.StandardizedPcaModel(D, center=True),
    dpgep.models.CcaModel((2, D - 2), center=True),
    dpgep.models.PlsModel((2, D - 2), center=True),
    dpgep.models.MultisetCcaModel((1, 1, D - 2), center=True),
    dpgep.models.FdaModel(D, ("a", "b", "c")),
    dpgep.models.SirModel(D, (-0.5, 0.0, 0.5)),
    dpgep.models.ContrastivePcaModel(D, Classes(("b", "c")), 0.5),
]
MODELS: dict[str, RowModel] = {model.name: model for model in _EACH}
assert {*MODELS, "table"} == set(dpgep.models.MODELS), "a model that no test adds up"


def dataset(rng: np.random.Generator, n: int = 500) -> tuple[Matrix, Any, Matrix]:
    """Rows inside and beyond the bound, with labels and responses."""
    x = rng.standard_normal((n, D)) * rng.choice([0.1, 0.4, 3.0], (n, 1))
    return x, np.array(["a", "b", "c"])[rng.integers(0, 3, n)], rng.uniform(-1, 1, n)


def arguments(name: str, rows: Any, chosen: Any = slice(None)) -> tuple[Any, ...]:
    """What the model's ``inputs`` name, of the people chosen."""
    model, (x, labels, y) = MODELS[name], rows
    groups = {"labels": labels, "y": y}
    views = [x[chosen, view] for view in model.views]
    return (*views, *(groups[each][chosen] for each in input_names(model)[len(views) :]))
