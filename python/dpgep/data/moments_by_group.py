"""Exact moments of each group by itself: sums over the people of one group, for each of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpgep.data.integer_moments import LOW_BITS, ExactMomentAccumulator, ExactSums
from dpgep.data.rows import Batch
from dpgep.models.moments import MomentLayout


class ExactMomentsByGroup(ExactSums):
    """As `ExactMomentAccumulator`, a moment matrix of [x; 1] for each group. ``n`` counts who is in none as well."""

    def __init__(self, layout: MomentLayout, bits: int) -> None:
        self.layout, self.bits, self.n = layout, bits, 0
        self._groups = [ExactMomentAccumulator(layout.of_one_group, bits) for _ in range(layout.n_groups)]

    def add(self, batch: Batch) -> None:
        """Add the people of a batch: all of them, or none."""
        new = type(self)(self.layout, self.bits)
        for sums, people in zip(new._groups, batch.of_groups(self.layout.n_groups), strict=True):
            sums.add(people)
        new.n = batch.n
        if self.n:
            self.merge(new)
        else:
            vars(self).update(vars(new))

    def merge(self, other: ExactMomentsByGroup, times: int = 1) -> None:
        """Add the sums over other people, of the same layout and grid, as if each were there that many ``times``."""
        if (self.layout, self.bits) != (other.layout, other.bits):
            raise ValueError("sums of different layouts or grids cannot be added")
        groups = [sums.copy() for sums in self._groups]  # an interrupt leaves those that there were
        for sums, more in zip(groups, other._groups, strict=True):
            sums.merge(more, times)
        vars(self).update(_groups=groups, n=self.n + times * other.n)

    def limbs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Stacks (G, d + 1, d + 1) of upper triangles (low, high) of the sums: a function of the sums alone."""
        low, high = zip(*(sums.carried() for sums in self._groups), strict=True)
        return np.stack(low), np.stack(high)

    @classmethod
    def of_limbs(
        cls, layout: MomentLayout, bits: int, n: int, low: NDArray[np.int64], high: NDArray[np.int64] | None
    ) -> ExactMomentsByGroup:
        """Sums over n people from what `limbs` returned."""
        if high is None:
            raise ValueError("sums by group have two limbs")
        sums = cls(layout, bits)
        people = [
            (int(h[-1, -1]) << LOW_BITS) + int(part[-1, -1]) >> 2 * bits for part, h in zip(low, high, strict=True)
        ]
        parts = zip(people, low, high, strict=True)
        sums._groups = [ExactMomentAccumulator.of_limbs(layout.of_one_group, bits, *part) for part in parts]
        sums.n = n
        return sums

    def require_possible(self) -> None:
        """Raise ValueError unless these may be sums over ``n`` people, as `limbs` returns them."""
        for sums in self._groups:
            sums.limbs()  # with as many limbs as the sums of n people have
            sums.require_possible()
        if (listed := sum(sums.n for sums in self._groups)) > self.n:
            raise ValueError(f"the groups hold {listed} of n = {self.n} people")

    def copy(self) -> ExactMomentsByGroup:
        return self.of_limbs(self.layout, self.bits, self.n, *self.limbs())


def kind_of_sums(layout: MomentLayout) -> type[ExactSums]:
    """The class of the exact sums of a layout."""
    return ExactMomentsByGroup if layout.by_group else ExactMomentAccumulator
