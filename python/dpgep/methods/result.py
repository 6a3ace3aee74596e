"""What a method hands to the solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


class Diagnostics(Protocol):
    """What the released values say about their own accuracy. Nothing in it costs privacy."""

    @property
    def noise_level(self) -> float:
        """Expected operator norm of the noise in B, or in A where B is the identity."""

    @property
    def regularization(self) -> float:
        """The multiple of the identity added to B (0 where B is the identity)."""

    def table(self, eigenvalues: Matrix) -> list[str]:
        """Lines for the solution's printed form: a heading, and a line for each component."""


@dataclass(frozen=True, eq=False)
class MethodResult:
    """Components (K, d), eigenvalues (K,), the mean; ``accuracy_warnings`` become warnings once the solution exists."""

    components: Matrix
    eigenvalues: Matrix
    mean: Matrix | None
    diagnostics: Diagnostics
    accuracy_warnings: tuple[str, ...]


def oriented(rows: Matrix) -> Matrix:
    """Unit rows whose largest entry is positive: eigenvectors have no sign of their own."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    largest = np.take_along_axis(unit, np.abs(unit).argmax(axis=1)[:, None], axis=1)
    return np.ascontiguousarray(unit * np.sign(largest))
