"""How much rows count: whose each is (``person=``), up to how many of a person count alike (``rows=``), ``weights=``.

A row of weight w, one of m rows of its person, counts w/W/max(m, M) of a person, W the largest weight and M the rows
that count alike: all rows of a person add up to at most one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpgep._checks import require_count, require_positive
from dpgep.data.groups import as_vector
from dpgep.data.ids import IDS, WEIGHTS, Numbers, name_of, split_off
from dpgep.sources import Scan, as_vector_of_values

# Weights are whole numbers of these units of the largest one: what sums in floating point can tell apart.
UNIT_BITS = 40
# More rows that count alike than this would have a weight of less than one whole unit of a release.
_MOST_ROWS = 1 << 12


NO_PUBLIC_N = "public_n is a number of people: sums over weighted people are divided by their total weight"


@dataclass(frozen=True, eq=False)
class Weighting:
    """What users pass as ``person``, ``rows``, ``weights`` and ``largest_weight``; checked, but for what rows hold.

    ``name`` is what reports call the ids, once columns were split off.
    """

    person: Any = None
    rows: int | None = None
    weights: Any = None
    largest_weight: float | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.rows is not None:
            if self.person is None:
                raise ValueError("rows says how many rows of a person count alike: give person, whose each row is")
            require_count("rows", self.rows, largest=_MOST_ROWS)
        if self.weights is None and self.largest_weight is not None:
            raise ValueError("largest_weight bounds weights: give these as well")
        if self.weights is not None:
            if self.largest_weight is None:
                raise ValueError(
                    "weights need largest_weight, which is public and must not follow from the data: larger ones are "
                    "cut off at it"
                )
            require_positive("largest_weight", self.largest_weight)

    @property
    def most_alike(self) -> int | None:
        """Up to how many rows of a person count alike; None where the rows of each person add up to one exactly.

        Of people who may count less, how much they count together depends on the data.
        """
        return None if self.weights is None and self.rows is None else self.rows or 1

    def split_off(self, views: Sequence[Any]) -> tuple[tuple[Any, ...], Weighting]:
        """The data without columns of ids and of weights, and these columns in place of their names."""
        kept, person = split_off(views, self.person, IDS)
        kept, weights = split_off(kept, self.weights, WEIGHTS)
        return kept, replace(self, person=person, weights=weights, name=name_of(self.person))

    @property
    def columns(self) -> tuple[Any, ...]:
        """The ids and the weights, as far as there are any."""
        return tuple(each for each in (self.person, self.weights) if each is not None)

    def bare(self) -> Weighting:
        """The same without these columns, of which it knows whether they are there: for where rows are read."""
        person, weights = (None if each is None else True for each in (self.person, self.weights))
        return replace(self, person=person, weights=weights)

    def require_of(self, source: Scan) -> None:
        """Raise ValueError for columns of another source."""
        for column, given in ((IDS, self.person), (WEIGHTS, self.weights)):
            if given is not None and getattr(given, "scan", None) is not source:
                raise ValueError(f"{column.name} must come from the source of the rows, to be read together with them")

    def units(self, weights: Any, n_rows: int) -> Numbers | None:
        """(n,), weights in units of 2^-UNIT_BITS of the largest, to which they are cut; below zero they are none.

        None without weights: each row has all of these units.
        """
        if self.largest_weight is None:
            return None
        values = as_vector(as_vector_of_values(weights), "weights", n_rows)
        if np.isnan(values).any():
            raise ValueError("weights has missing values: drop these rows, or give them the weight 0")
        with np.errstate(over="ignore"):
            parts = np.clip(values / self.largest_weight, 0.0, 1.0)
        return np.asarray(np.rint(np.ldexp(parts, UNIT_BITS)).astype(np.int64))
