"""Where a released matrix is kept: in memory, or known by its products alone. Decided from public numbers only."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dpgep.methods.options import whole_number
from dpgep.privacy.curator import PublicSide
from dpgep.privacy.products import direction_bytes

Storage = Literal["matrix", "operator"]
STORAGES = ("auto", "matrix", "operator")

# Bytes that a release may take beside the data: a public constant, which the machine does not change.
MEMORY_LIMIT = 4 << 30
# Products that a component needs answers to at least, with each of its views: a start, and some steps.
_FEWEST_STEPS = 8


def matrix_bytes(d: int) -> int:
    """Memory of a release that holds its matrix: about four of d x d doubles."""
    return 4 * 8 * d * d


def choose_storage(storage: str, d: int, memory_limit: int) -> Storage:
    """The storage asked for; under "auto" the matrix where it fits."""
    if storage == "auto":
        return "matrix" if matrix_bytes(d) <= memory_limit else "operator"
    return "matrix" if storage == "matrix" else "operator"


def require_memory_limit(value: Any) -> None:
    number = whole_number(value)
    if number is None or number < 1:
        raise ValueError(f"memory_limit must be a whole number of bytes, at least 1, got {value!r}")


def directions_in(memory_limit: int, public: PublicSide, copies: int) -> int:
    """How many directions can be asked of lazy noise and remembered, with ``copies`` of each in the method."""
    d = public.model.n_features
    n_matrices = 2 if public.largest_b is None else 1  # only pairs of matrices have a B that nothing bounds
    return memory_limit // (direction_bytes(d, n_matrices) + copies * 8 * d)


def require_capacity(public: PublicSide, k: int, memory_limit: int, *, copies: int = 0) -> None:
    """Raise ValueError where ``memory_limit`` does not serve K components by products."""
    d = public.model.n_features
    needed = min(d, _FEWEST_STEPS * k * len(public.model.views_of(np.empty((1, d)))))
    fits = directions_in(memory_limit, public, copies)
    if needed > fits:
        raise ValueError(
            f"{k} components of {d} features need the answers to some {needed} products, and {fits} fit into "
            f"memory_limit = {memory_limit}: give a smaller n_components (its default is all), or raise memory_limit"
        )
