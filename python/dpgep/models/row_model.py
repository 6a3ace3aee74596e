"""Models of rows of people: what a person consists of, as plain data, and the names of the columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgep.models.moments import MomentModel

# Most names in a message.
_SHOWN = 5


@dataclass(frozen=True)
class Classes:
    """One group for each label."""

    labels: tuple[Hashable, ...]

    @property
    def n_groups(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Slices:
    """One group for each interval between neighbouring edges; the outer intervals are unbounded."""

    interior_edges: tuple[float, ...]

    @property
    def n_groups(self) -> int:
        return len(self.interior_edges) + 1


Grouping: TypeAlias = Classes | Slices
# The columns that are the indicators of one categorical column, for each such column.
Indicators: TypeAlias = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class RowModel(MomentModel):
    """A model that can be fitted to rows of people.

    ``inputs`` names what a person consists of: a row of each view and, with a ``grouping``, a label or a response.
    ``feature_names`` are those of all features, in all views. They say nothing about A and B: models of other names
    are equal. ``indicators`` are the features that are those of one categorical column, for each such column: of every
    person at most one of them is 1, the others 0.
    """

    feature_names: tuple[str, ...] | None = field(default=None, kw_only=True, compare=False, repr=False)
    indicators: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True, compare=False, repr=False)
    inputs: ClassVar[tuple[str, ...]] = ("X",)

    def __post_init__(self) -> None:
        features = [j for group in self.indicators for j in group]
        if len(set(features)) < len(features) or not all(0 <= j < self.n_features for j in features):
            raise ValueError(f"indicators must be features from 0 to {self.n_features - 1}, each once")
        if self.feature_names is None:
            return
        names: tuple[object, ...] = tuple(self.feature_names)
        if len(names) != self.n_features or not all(isinstance(name, str) for name in names):
            more = ", ..." if len(names) > _SHOWN else ""
            raise ValueError(
                f"feature_names must be {self.n_features} names, one for each feature, "
                f"got {', '.join(map(repr, names[:_SHOWN]))}{more}"
            )
        object.__setattr__(self, "feature_names", names)

    @property
    def grouping(self) -> Grouping | None:
        """How people are divided into groups; None where they are not."""
        return None

    @property
    def view_names(self) -> tuple[tuple[str, ...] | None, ...]:
        """Names of the features of each view."""
        names = self.feature_names
        return tuple(None if names is None else names[view] for view in self.views)

    @abstractmethod
    def restricted(self, features: NDArray[np.intp]) -> RowModel: ...
