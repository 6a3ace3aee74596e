"""Public bins: octaves of numbers, parts of intervals, steps of norms. What lies in which is counted with noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgep.models.model import Matrix

# Octaves 2^e <= |x| < 2^(e + 1) for e from FIRST_OCTAVE on. The first and the last stand for all that is beyond:
# squares of what is found in them neither overflow nor vanish.
FIRST_OCTAVE, N_OCTAVES = -500, 1000

# Norms are counted in quarters of an octave: 2^(k/4) <= norm < 2^((k + 1)/4).
NORM_STEPS = 4

# Norms of products of rows with directions are clipped to a part of the bound between these, and counted between the
# quarters of octaves from one to the other.
LEAST_THRESHOLD, LARGEST_THRESHOLD = 2.0**-7, 1.0
PRODUCT_EDGES = 2.0 ** (np.arange(-7 * NORM_STEPS, 1) / NORM_STEPS)


def norm_quantile(shares: Matrix, share: float) -> float:
    """The first edge below which there is this share of the people, of whom ``shares`` lie between PRODUCT_EDGES."""
    reached = np.flatnonzero(np.cumsum(shares[:-1]) >= share)
    return float(PRODUCT_EDGES[reached[0]] if len(reached) else LARGEST_THRESHOLD)


def share_below(shares: Matrix, threshold: float) -> float:
    """The share of the people below the first edge that is at least ``threshold``, between 1/1024 and 1."""
    return float(np.clip(shares[: np.searchsorted(PRODUCT_EDGES, threshold) + 1].sum(), 2.0**-10, 1.0))


@dataclass(frozen=True, eq=False)
class Interval:
    """An interval for each of d columns: its middle, and half its width, which is positive."""

    middle: Matrix
    half: Matrix

    def relative(self, block: Matrix) -> Matrix:
        """Where entries lie in the intervals: from -1 to 1, which stand for all that is beyond."""
        with np.errstate(all="ignore"):
            return np.clip((block - self.middle) / self.half, -1.0, 1.0)
