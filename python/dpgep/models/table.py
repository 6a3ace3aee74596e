"""The moments of a table, from which any number of questions are answered: no question by itself."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpgep.models.fda import FdaModel
from dpgep.models.groups import GroupModel
from dpgep.models.model import Matrix, PublicFacts, Traits
from dpgep.models.moments import MomentLayout, Pencil, ReleasedGroups, moment_layout, total_mean
from dpgep.models.row_model import Classes, Grouping, RowModel, Slices
from dpgep.models.sir import SirModel
from dpgep.serialization import stored_as


@stored_as("table")
@dataclass(frozen=True)
class TableModel(RowModel):
    """Moments of a table, and of groups of its people: of ``classes``, or of slices of a response between edges."""

    n_features: int
    classes: tuple[Hashable, ...] | None = None
    interior_edges: tuple[float, ...] | None = None
    name = "table"
    traits = Traits(linear_free=False, asks_sizes=True)  # questions are about columns

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes is not None and self.interior_edges is not None:
            raise ValueError("the groups of a table are classes or slices of a response, not both")
        if self.grouping is not None and self.grouping.n_groups < 2:
            raise ValueError(f"a table with groups needs at least 2, got {self.grouping.n_groups}")

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("X",) if self.grouping is None else ("X", "groups")

    @property
    def grouping(self) -> Grouping | None:
        if self.classes is not None:
            return Classes(self.classes)
        return None if self.interior_edges is None else Slices(self.interior_edges)

    @property
    def group_model(self) -> GroupModel | None:
        """The model of the groups; None where all people are in one."""
        if self.classes is not None:
            return FdaModel(self.n_features, self.classes)
        return None if self.interior_edges is None else SirModel(self.n_features, self.interior_edges)

    def layout(self, facts: PublicFacts) -> MomentLayout:
        n_groups = 0 if self.grouping is None else self.grouping.n_groups
        return moment_layout(self.n_features, n_groups, sums=True, facts=facts)

    def mean(self, released: ReleasedGroups) -> Matrix | None:
        return total_mean(released)

    def restricted(self, features: NDArray[np.intp]) -> TableModel:
        return TableModel(len(features), self.classes, self.interior_edges)

    @property
    def max_components(self) -> int:
        raise _no_question()

    @property
    def max_components_reason(self) -> str:
        raise _no_question()

    def pencil(self, released: ReleasedGroups) -> Pencil:
        raise _no_question()

    def error_variances(self, released: ReleasedGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> NoReturn:
        raise _no_question()


def _no_question() -> TypeError:
    return TypeError(
        "dpgep.solve needs a question, and a table asks none: call dpgep.release(X, epsilon=...) first, "
        "then .pca(), .cca(...), .regression(...) on the release, at no further cost"
    )
