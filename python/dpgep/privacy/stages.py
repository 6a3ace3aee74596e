"""The stages of preprocessing: exact sums over a table, with noise. Each is a release of its own in the ledger.

Neighbours differ in the row of one person. Where it is replaced (added or removed), the square of the change, in units
of a person, is at most

    2 d' (d')   in a histogram of d' columns: two counts (one) of each;
    2 (1)       in a histogram of norms;
    4 d (3 d)   in the sums of u, of u^2 and of the people with a value, of d columns, |u| <= 1: with D = |u - t|,
                (u - t)^2 + (u^2 - t^2)^2 = D^2 (1 + (u + t)^2) <= D^2 (1 + (2 - D)^2), which grows in D, up to 4 at
                D = 2; and where one of two has no value, u^2 + u^4 + 1 <= 3: the number of people is free;
    4 (1)       in a sum of rows in the unit ball.

Where people have weights, one who is replaced may count for nothing: that is no more than being taken out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.dataset import Dataset, PreprocessedDataset
from dpgep.data.integer_sums import PLACE_BITS, ColumnSums, GridSums, Integers, MagnitudeCounts, NormCounts, PlaceCounts
from dpgep.data.rows import S
from dpgep.models import PcaModel
from dpgep.models.bins import Interval
from dpgep.models.model import Matrix, PublicFacts
from dpgep.models.moments import MomentLayout, ReleasedMoments
from dpgep.models.preprocessing import Preprocessing
from dpgep.privacy.curator import release_moments
from dpgep.privacy.ledger import Ledger, LedgerEntry, NoiseBlock
from dpgep.privacy.noise import MOST_SCALE_BITS, least_scale
from dpgep.problems.problem import prepared_problem

# Everything is released on the grid 2^-_BITS of one person.
_BITS = 2 * PLACE_BITS
# No stage gets less than this part of a run's mu.
_SMALLEST_PART = 2.0**-10


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Released counts or sums, in units of one person, and the deviation of their noise."""

    values: Matrix
    deviation: float


class Stages:
    """Answers about a table before its bound is known. Pays from ``ledger``, with noise from ``stream``.

    Attributes
    ----------
    facts : public facts.
    n_columns : number of columns of all views.
    n : the number of people where it is public and known.
    mu : what the whole run may spend.
    """

    def __init__(
        self,
        dataset: Dataset,
        facts: PublicFacts,
        n_columns: int,
        ledger: Ledger,
        stream: core.NoiseStream,
        *,
        missing: bool = False,
    ) -> None:
        self.facts = facts
        self.n_columns = n_columns
        self._dataset = dataset
        self._missing = missing
        self.mu = ledger.mu
        self._ledger = ledger
        self._stream = stream
        # a person is 2^weight_bits in all sums, which thus are on a finer grid
        self._grid = _BITS + dataset.weight_bits
        if math.isfinite(self.mu):  # before anything is spent
            _scale(4 * n_columns, self.mu * _SMALLEST_PART, self._grid)
        self._count()

    @property
    def mu_left(self) -> float:
        """What is not spent."""
        return self._ledger.remaining

    def magnitudes(self, columns: NDArray[np.intp], mu: float) -> NoisyCounts:
        """(d', 2, N_OCTAVES + 1), histogram of each of some columns over zero and signed octaves."""
        counts = self._sums(partial(MagnitudeCounts, columns, missing=self._missing), mu).counts
        return self._histogram(counts, len(columns), mu, "histograms of the columns' magnitudes")

    def places(self, columns: NDArray[np.intp], interval: Interval, n_bins: int, mu: float) -> NoisyCounts:
        """(d', n_bins), histogram of some columns over equal parts of their intervals."""
        counts = self._sums(partial(PlaceCounts, columns, interval, n_bins, missing=self._missing), mu).counts
        return self._histogram(counts, len(columns), mu, "histograms of columns within intervals")

    def norms(self, preprocessing: Preprocessing, starts: NDArray[np.intp], mu: float) -> NoisyCounts:
        """(n_bins,), histogram of the norms of mapped rows, over bins that start at these quarters of octaves.

        Smaller norms are in the first bin, larger ones in the last.
        """
        first, last = int(starts[0]), int(starts[-1])
        counts = self._sums(partial(NormCounts, first, last - first + 1), mu, preprocessing).counts
        return self._histogram(np.add.reduceat(counts, starts - first), 1, mu, "histogram of row norms")

    def column_sums(self, interval: Interval, mu: float) -> NoisyCounts:
        """(3, d), sums of the columns' places u in their intervals, -1 to 1, and of u^2; how many people have one."""
        counts = self._sums(partial(ColumnSums, interval, missing=self._missing), mu).counts
        units = np.array([[PLACE_BITS], [2 * PLACE_BITS], [0]])
        squared = (4 if self._replaces else 3) * self.n_columns
        return self._noisy(counts << (_BITS - units), squared, mu, "sums of the columns and of their squares")

    def row_sum(self, preprocessing: Preprocessing, mu: float) -> NoisyCounts:
        """(d,), sum of mapped rows, clipped to the bound and in units of it."""
        layout = MomentLayout(self.n_columns, 1, sums=True, counts=False)
        sums = self._sums(partial(GridSums, layout, _BITS), mu, preprocessing).sums[:, 0]
        return self._noisy(sums, 4 if self._replaces else 1, mu, "sum of the rows")

    def second_moment(self, preprocessing: Preprocessing, mu: float) -> ReleasedMoments:
        """Second moment of mapped rows."""
        self._ledger.check(mu)
        model = PcaModel(self.n_columns, center=False)
        problem = prepared_problem(model, self.facts, self._dataset, preprocessing, grouped=False)
        return release_moments(problem, mu, self._stream, self._ledger.record)

    def _sums(self, make: Callable[[], S], mu: float, preprocessing: Preprocessing | None = None) -> S:
        """One pass over the people, all in one group of mapped rows, if the ledger can pay for what it is made for.

        Each is paid for by itself; that all read the same rows is checked for the user's sake.
        """
        self._ledger.check(mu)
        rows = self._dataset
        if preprocessing is not None:
            rows = PreprocessedDataset(rows, preprocessing, self.n_columns, grouped=False)
        sums = rows.accumulate(make, weight_bits=rows.weight_bits)
        self._count()
        return sums

    def _count(self) -> None:
        """Public facts hold no number that a pass over a source has found."""
        counted = self.facts.n is None and self.facts.n_is_public
        self.n = self._dataset.people.n if counted else self.facts.n

    @property
    def _replaces(self) -> bool:
        return self.facts.adjacency == "replace-one"

    def _histogram(self, counts: Integers, n_counted: int, mu: float, query: str) -> NoisyCounts:
        """A histogram that counts each person ``n_counted`` times."""
        return self._noisy(counts << _BITS, (2 if self._replaces else 1) * n_counted, mu, query)

    def _noisy(self, sums: Integers, squared: int, mu: float, query: str) -> NoisyCounts:
        """Sums on the grid plus noise, where a person changes them by at most sqrt(squared) in units of a person."""
        scale = 0 if math.isinf(mu) else _scale(squared, mu, self._grid)
        deviation = math.ldexp(scale, -self._grid)
        noise = (NoiseBlock(query, "independent", deviation, scale),) if scale else ()
        self._ledger.record(LedgerEntry(query, mu, noise, self._grid if scale else None))
        if scale:
            core.add_exact_noise(sums.reshape(-1), scale, self._stream, thread_count())
        return NoisyCounts(np.ldexp(sums.astype(np.float64), -self._grid), deviation)


@lru_cache(maxsize=128)  # runs in a row ask for the same noise
def _scale(squared: int, mu: float, grid: int) -> int:
    """The least noise, in steps of the grid, that makes a change of sqrt(squared) people cost at most mu."""
    scale = least_scale(Fraction(squared * 4**grid), mu)
    if scale.bit_length() > MOST_SCALE_BITS:
        raise ValueError(f'mu = {mu:.3g} is too small a budget for bound="auto": use a larger one, or give a bound')
    return scale
