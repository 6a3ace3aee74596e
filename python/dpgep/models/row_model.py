"""Models of rows of people: what a person consists of, as plain data, and the names of the columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgep.models.model import Matrix, Model, PublicFacts, Traits
from dpgep.models.moments import MomentLayout, ReleasedMoments, together
from dpgep.models.pairwise import require_pairs
from dpgep.models.pencil import MomentsPencil
from dpgep.models.preprocessing import Preprocessing

M = TypeVar("M", bound="RowModel")

# Most names in a message.
_SHOWN = 5


@dataclass(frozen=True)
class Classes:
    """One group for each label."""

    labels: tuple[Hashable, ...]
    input: ClassVar[str] = "labels"  # what they are called among the inputs of a model

    @property
    def n_groups(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Slices:
    """One group for each interval between neighbouring edges; the outer intervals are unbounded."""

    interior_edges: tuple[float, ...]
    input: ClassVar[str] = "y"

    @property
    def n_groups(self) -> int:
        return len(self.interior_edges) + 1


Grouping: TypeAlias = Classes | Slices
# The columns that are the indicators of one categorical column, for each such column.
Indicators: TypeAlias = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class RowModel(Model):
    """A model that can be fitted to rows of people: ``traits`` say what A and B are.

    A person consists of a row of each view and, with a ``grouping``, a label or a response. ``feature_names`` are those
    of all features, in all views. They say nothing about A and B: models of other names are equal. ``indicators`` are
    the features that are those of one categorical column, for each such column: of every person at most one of them is
    1, the others 0. A model with a field ``center`` that is false takes second moments in place of covariances.
    """

    feature_names: tuple[str, ...] | None = field(default=None, kw_only=True, compare=False, repr=False)
    indicators: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(getattr(self, "name", None), str):
            raise TypeError(f'{type(self).__name__} has no name: its class needs one, as in name = "within-pca"')
        if not getattr(self, "center", True):
            object.__setattr__(self, "traits", _uncentred(self.traits))
        a, b = self.traits.a, self.traits.b
        if a is not None and (a.blocks == "whole" or self.grouping is not None) == (len(self.view_sizes) > 0):
            raise ValueError(f"{self.name}: a model of several views has no groups, and a is of blocks between views")
        if self.grouping is None and any(part is not None and part.within for part in (a, b)):
            raise ValueError(f"{self.name}: the scatter within groups needs a grouping, such as Classes or Slices")
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
    def max_components(self) -> int:
        """All features; between views as many as there are outside the largest; of means of groups, one less."""
        if self.traits.a is None:
            raise TypeError(
                "dpgep.solve needs a question, and a table asks none: call dpgep.release(X, epsilon=...) first, "
                "then .pca(), .cca(...), .regression(...) on the release, at no further cost"
            )
        if self.traits.of_means and self.grouping is not None:
            return min(self.n_features, self.grouping.n_groups - 1)
        return self.n_features - max(self.view_sizes, default=0)

    def noisy(self, released: ReleasedMoments, scale: Matrix | None = None) -> MomentsPencil:
        """A and B from released moments; of columns divided by ``scale``, in units of their own."""
        released = together(released)
        if released.pairs is not None:
            require_pairs(self)
        return MomentsPencil(self, released, scale)

    def restricted(self: M, features: NDArray[np.intp]) -> M:
        sizes = tuple(int(((view.start <= features) & (features < view.stop)).sum()) for view in self.views)
        changed: dict[str, Any] = {"view_sizes": sizes} if self.view_sizes else {"n_features": len(features)}
        return replace(self, feature_names=None, indicators=(), **changed)


@cache
def _uncentred(traits: Traits) -> Traits:
    """One record for all models that are alike."""
    return replace(traits, shift_free=False)


def layout_of(model: RowModel, facts: PublicFacts, preprocessing: Preprocessing | None = None) -> MomentLayout:
    """Blocks to release: sums of what is centred; counts of groups always, the total alone only where n is not public.

    Sensitivities follow from it alone: a model cannot state others. Marks of what is absent add up to the number of
    people, which must be exact.
    """
    if preprocessing is not None and preprocessing.pairwise:
        counts = facts.adjacency == "add-remove" or facts.weighted
        return MomentLayout(2 * model.n_features, 1, sums=True, counts=counts, marked=True)
    d, sums, groups = model.n_features, model.traits.shift_free, model.grouping
    if groups is not None and groups.n_groups > 1:
        return MomentLayout(d, groups.n_groups, sums=True, counts=True, by_group=model.traits.by_group)
    if facts.n is None and not facts.n_is_public:
        return MomentLayout(d, 1, sums=sums, counts=True)
    return MomentLayout(d, int(sums), sums=sums, counts=False)


def view_labels(n_views: int) -> tuple[str, ...]:
    """What views are called: X, X and Y, or X1, X2 and so on."""
    return ("X", "Y")[:n_views] if n_views <= 2 else tuple(f"X{i}" for i in range(1, n_views + 1))


def input_names(model: RowModel) -> tuple[str, ...]:
    """What a person consists of: a row of each view, and a label or a response."""
    views = view_labels(len(model.views))
    return views if model.grouping is None else (*views, model.grouping.input)


def names_of_views(model: Model) -> list[tuple[str, ...] | None]:
    """Names of the features of each view; None where they have none."""
    names = model.feature_names
    return [None if names is None else names[view] for view in model.views]
