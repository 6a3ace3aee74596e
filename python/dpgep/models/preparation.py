"""The public map of rows that a preparation has found: z = (x - location)/scale, clipped to a bound.

The model is fitted to the z. Its components v act on them, so that those of the rows are v/scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_one_of, require_share, whole_number
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
    missing : "error", or "center": an absent value (NaN) counts as the location of its column, or as 0 where columns
        get none. Each column's location and scale are then those of the values that are there.
    """

    ranges: Mapping[str | int, tuple[float, float]] = field(default_factory=dict)
    share: float | None = None
    quantile: float | None = None
    missing: Literal["error", "center"] = "error"

    def __post_init__(self) -> None:
        if self.share is not None:
            require_share("share", self.share)
        if self.quantile not in (None, 1):
            require_share("quantile", self.quantile)
        require_one_of("missing", self.missing, ("error", "center"))

    def for_columns(self, n_columns: int, names: Sequence[str] | None) -> Auto:
        """The same with the numbers of columns for their names. Raises ValueError for ranges of others, or none."""
        numbers = {} if names is None else {name: number for number, name in enumerate(names)}
        ranges: dict[str | int, tuple[float, float]] = {
            _column(column, n_columns, numbers): _range(column, ends) for column, ends in self.ranges.items()
        }
        if len(ranges) < len(self.ranges):
            raise ValueError("ranges name a column twice, by its name and by its number")
        return replace(self, ranges=ranges)


def _column(column: object, n_columns: int, numbers: Mapping[str, int]) -> int:
    number = numbers.get(column) if isinstance(column, str) else whole_number(column)
    if number is None or not 0 <= number < n_columns:
        known = ", ".join(map(repr, list(numbers)[:20])) or f"0 to {n_columns - 1}"
        raise ValueError(f"ranges are of columns {known}, not of {column!r}")
    return number


def _range(column: object, ends: tuple[float, float]) -> tuple[float, float]:
    low, high = ends
    if not (-math.inf < low < high < math.inf and high - low < math.inf):
        raise ValueError(f"the range of column {column!r} must be (low, high), finite and ascending, got {ends!r}")
    return float(low), float(high)


@dataclass(frozen=True, eq=False)
class Preparation:
    """Where columns lie, how far they spread, and how long rows are: all public.

    Attributes
    ----------
    bound : enforced bound on the norm of mapped rows.
    location : (d,), subtracted from rows; None where nothing is.
    scale : (d,), positive; rows are divided by it. None where they are not.
    largest : entries of mapped rows are cut off at this magnitude: one wild entry must not cost its row.
    missing : whether NaN is an absent value, which is mapped to 0; else it is refused.
    kept : the share of the sum of squares of mapped rows that the bound keeps, as a released histogram showed it.
    """

    bound: float
    location: Matrix | None = None
    scale: Matrix | None = None
    largest: float = _LARGEST
    missing: bool = False
    kept: float = 1.0

    @property
    def is_identity(self) -> bool:
        """Whether rows stay as they are, but for the bound."""
        return self.location is None and self.scale is None and not self.missing

    def map(self, block: Matrix) -> None:
        """Map finite rows, in place. Each entry is a function of that entry alone."""
        with np.errstate(over="ignore"):
            if self.location is not None:
                block -= self.location
            if self.scale is not None:
                block /= self.scale
        np.clip(block, -self.largest, self.largest, out=block)
        if self.missing:
            block[np.isnan(block)] = 0.0

    def components(self, vectors: Matrix) -> Matrix:
        """Components (K, d) of rows x from those of mapped rows: the scores are the same."""
        return vectors if self.scale is None else vectors / self.scale

    def eigenvalues(self, values: Matrix) -> Matrix:
        """Eigenvalues of a model that depends on scales, whose rows have one scale, in the units of the rows.

        Rows that are cut to the bound have less variance, in all directions alike if the directions of rows do not
        depend on their lengths; this is made up for.
        """
        return values / self.kept if self.scale is None else values / self.kept * self.scale[0] ** 2

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

    def _numbers(self) -> tuple[float, ...]:
        return self.bound, self.largest, self.missing, self.kept

    def require_columns(self, n_columns: int) -> None:
        """Raise ValueError unless this is about rows of so many columns."""
        for part in self.parts().values():
            if part is not None and len(part) != n_columns:
                raise ValueError(f"this preparation is of {len(part)} columns, not of {n_columns}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Preparation):
            return NotImplemented
        same_numbers = self._numbers() == other._numbers()
        pairs = zip(self.parts().values(), other.parts().values(), strict=True)
        return same_numbers and all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]


# A public bound on row norms; "auto": one that is bought from the budget; or one that was bought before.
Bound = float | Literal["auto"] | Auto | Preparation
