"""A model of rows: public mathematics, and how a batch of people's data becomes rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.data.rows import Batch
from dpgep.models.moments import MomentModel


class RowModel(MomentModel):
    """A model that can be fitted to rows of people; ``inputs`` names what a person consists of."""

    inputs: tuple[str, ...] = ("X",)

    def data(self, X: Any, y: Any) -> tuple[Any, ...]:
        """What people consist of: X alone, or X and ``y``. Raises TypeError for too little or too much."""
        data = (X,) if y is None else (X, y)
        if len(data) != len(self.inputs):
            raise TypeError(f"{self.name} needs {' and '.join(self.inputs)} of every person")
        return data

    @abstractmethod
    def batch(self, bound: float, *data: Any) -> Batch:
        """The people of one batch of data (rows, and what belongs to them), checked and converted."""

    @abstractmethod
    def restricted(self, features: NDArray[np.intp]) -> RowModel: ...
