"""Sums of arrays with the rounding errors of every addition: the error of many terms is that of a few."""

from __future__ import annotations

import numpy as np

from dpgep.models.model import Matrix


class CompensatedSum:
    """An array summed term by term; what rounding loses of each sum is summed beside it (Knuth 1998, 4.2.2)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._sum, self._lost = np.zeros(shape), np.zeros(shape)

    @property
    def total(self) -> Matrix:
        return np.asarray(self._sum + self._lost)

    def add(self, term: Matrix) -> None:
        total = self._sum + term
        of_term = total - self._sum
        self._lost += (self._sum - (total - of_term)) + (term - of_term)
        self._sum = total

    def merge(self, other: CompensatedSum) -> None:
        self.add(other._sum)
        self._lost += other._lost
