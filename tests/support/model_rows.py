"""A model of each kind, and rows for it: people with two measured vectors, labels and responses."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import Matrix

import dpgep

D = 5
MODELS = {
    "pca": dpgep.models.PcaModel(D, center=True),
    "standardized-pca": dpgep.models.StandardizedPcaModel(D, center=True),
    "cca": dpgep.models.CcaModel(2, D - 2, center=True),
    "pls": dpgep.models.PlsModel(2, D - 2, center=True),
    "multiset-cca": dpgep.models.MultisetCcaModel((1, 1, D - 2), center=True),
    "fda": dpgep.models.FdaModel(D, ("a", "b", "c")),
    "sir": dpgep.models.SirModel(D, (-0.5, 0.0, 0.5)),
}


def dataset(rng: np.random.Generator, n: int = 500) -> tuple[Matrix, Any, Matrix]:
    """Rows inside and beyond the bound, with labels and responses."""
    x = rng.standard_normal((n, D)) * rng.choice([0.1, 0.4, 3.0], (n, 1))
    return x, np.array(["a", "b", "c"])[rng.integers(0, 3, n)], rng.uniform(-1, 1, n)


def arguments(name: str, rows: Any, chosen: Any = slice(None)) -> tuple[Any, ...]:
    x, labels, y = rows
    return {
        "pca": lambda: (x[chosen],),
        "standardized-pca": lambda: (x[chosen],),
        "cca": lambda: (x[chosen, :2], x[chosen, 2:]),
        "pls": lambda: (x[chosen, :2], x[chosen, 2:]),
        "multiset-cca": lambda: (x[chosen, :1], x[chosen, 1:2], x[chosen, 2:]),
        "fda": lambda: (x[chosen], labels[chosen]),
        "sir": lambda: (x[chosen], y[chosen]),
    }[name]()
