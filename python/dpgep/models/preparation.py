"""The public map of rows that a preparation has found: z = (x - location)/scale, clipped to a bound.

The model is fitted to the z. Its components v act on them, so that those of the rows are v/scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_share, whole_number
from dpgep.models.model import Matrix

# Where entries of mapped rows are cut off at the latest, so that no sum of their squares overflows.
_LARGEST = 2.0**500


@dataclass(frozen=True)
class Auto:
    """How a bound is bought from the budget of a run, and with it location and scale where the model allows.

    Attributes
    ----------
    ranges : public ranges of columns, {column: (low, high)}, by number or, of tables, by name: they make the stages
        cheaper. Values beyond are counted at the ends while location and scale are looked for.
    share : share of mu^2 for location and scale. Default: as little as serves n people, d columns and this budget.
    quantile : share of the people whose rows are not to be cut to the bound. Default: what balances noise and bias;
        eigenvalues want a larger one than directions.
    """

    ranges: Mapping[str | int, tuple[float, float]] = field(default_factory=dict)
    share: float | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        if self.share is not None:
            require_share("share", self.share)
        if self.quantile not in (None, 1):
            require_share("quantile", self.quantile)

    def for_columns(self, n_columns: int) -> Auto:
        """The same, checked against a number of columns. Raises ValueError for ranges of others, or that are none."""
        for column, ends in self.ranges.items():
            if whole_number(column) is None or not 0 <= int(column) < n_columns:
                raise ValueError(f"ranges are of columns 0 to {n_columns - 1}, got {column!r}")
            low, high = ends
            if not (-math.inf < low < high < math.inf):
                raise ValueError(
                    f"the range of column {column!r} must be (low, high), finite and ascending, got {ends!r}"
                )
        return self


@dataclass(frozen=True, eq=False)
class Preparation:
    """Where columns lie, how far they spread, and how long rows are: all public.

    Attributes
    ----------
    bound : enforced bound on the norm of mapped rows.
    location : (d,), subtracted from rows; None where nothing is.
    scale : (d,), positive; rows are divided by it. None where they are not.
    largest : entries of mapped rows are cut off at this magnitude: one wild entry must not cost its row.
    """

    bound: float
    location: Matrix | None = None
    scale: Matrix | None = None
    largest: float = _LARGEST

    @property
    def is_identity(self) -> bool:
        """Whether rows stay as they are, but for the bound."""
        return self.location is None and self.scale is None

    def map(self, block: Matrix) -> None:
        """Map finite rows, in place. Each entry is a function of that entry alone."""
        with np.errstate(over="ignore"):
            if self.location is not None:
                block -= self.location
            if self.scale is not None:
                block /= self.scale
        np.clip(block, -self.largest, self.largest, out=block)

    def components(self, vectors: Matrix) -> Matrix:
        """Components (K, d) of rows x from those of mapped rows: the scores are the same."""
        return vectors if self.scale is None else vectors / self.scale

    def eigenvalues(self, values: Matrix) -> Matrix:
        """Eigenvalues of a model that depends on scales, whose rows have one scale, in the units of the rows."""
        return values if self.scale is None else values * self.scale[0] ** 2

    def spread(self, scale: Matrix) -> Matrix:
        """Deviations of columns from those of mapped rows."""
        return scale if self.scale is None else scale * self.scale

    def mean(self, mean: Matrix) -> Matrix:
        """The mean of rows x from that of mapped rows."""
        if self.scale is not None:
            mean = mean * self.scale
        return mean if self.location is None else mean + self.location

    def restricted(self, features: NDArray[np.intp], bound: float | None = None) -> Preparation:
        """The same for some of the features, rows clipped to a bound of their own if one is given."""
        return replace(
            self,
            bound=self.bound if bound is None else bound,
            location=None if self.location is None else self.location[features],
            scale=None if self.scale is None else self.scale[features],
        )

    def parts(self) -> dict[str, Matrix | None]:
        """The arrays, by name."""
        return {"location": self.location, "scale": self.scale}

    def require_columns(self, n_columns: int) -> None:
        """Raise ValueError unless this is about rows of so many columns."""
        for part in self.parts().values():
            if part is not None and len(part) != n_columns:
                raise ValueError(f"this preparation is of {len(part)} columns, not of {n_columns}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Preparation):
            return NotImplemented
        same_numbers = (self.bound, self.largest) == (other.bound, other.largest)
        pairs = zip(self.parts().values(), other.parts().values(), strict=True)
        return same_numbers and all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]


# A public bound on row norms; "auto": one that is bought from the budget; or one that was bought before.
Bound = float | Literal["auto"] | Auto | Preparation
