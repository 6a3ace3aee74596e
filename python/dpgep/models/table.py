"""The moments of a table, from which any number of questions are answered: no question by itself."""

from __future__ import annotations

from dataclasses import dataclass

from dpgep.models.model import Traits
from dpgep.models.row_model import Grouping, RowModel
from dpgep.serialization import stored_as


@stored_as("table")
@dataclass(frozen=True)
class TableModel(RowModel):
    """Moments of a table, and of groups of its people: of classes, or of slices of a response between edges."""

    n_features: int
    grouping: Grouping | None = None
    name = "table"
    traits = Traits(asks_sizes=True)  # questions are about columns

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grouping is not None and self.grouping.n_groups < 2:
            raise ValueError(f"a table with groups needs at least 2, got {self.grouping.n_groups}")
