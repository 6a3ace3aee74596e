"""A problem: a data set and the model to fit to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dpgep.data.dataset import Dataset
from dpgep.data.rows import NotFiniteError
from dpgep.models.model import Model, PublicFacts, PublicSide
from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing


class Problem(ABC):
    """Data of people and what is asked of them. Stays with the curator: a method sees ``public`` alone.

    Attributes
    ----------
    model, facts : what is asked, and of how many people within which bound.
    kind : what the data are, for messages.
    dataset : the rows; None where there are none.
    preprocessing : the public map of the rows; None where they are as they were given.
    auto : how a run buys one first; None where it does not.
    """

    model: Model
    facts: PublicFacts
    kind: str
    dataset: Dataset | None = None
    preprocessing: Preprocessing | None = None
    auto: AutoPreprocessing | None = None

    @property
    @abstractmethod
    def public(self) -> PublicSide:
        """What a method may see."""

    @property
    def n_counted(self) -> int | None:
        """The number of people where it is public, though it may have become known only by reading."""
        return self.facts.n

    def restricted(self, features: NDArray[np.intp], bound: float) -> Problem:
        """The same of some of the features, rows clipped to ``bound`` (public) after the others are dropped."""
        self.refuse("a release of some features")

    @property
    def passes(self) -> int:
        """Number of passes over rows so far."""
        return 0 if self.dataset is None else self.dataset.passes

    def keeping_sums(self) -> Problem:
        """The same, for several releases: sums of rows are kept from one to the next."""
        return self

    def naming_columns(self, error: NotFiniteError) -> NotFiniteError:
        """What refuses the data, with the names of the columns where there are any."""
        return error

    def refuse(self, purpose: str) -> NoReturn:
        """Raise ValueError: what is asked needs rows."""
        raise ValueError(
            f"{self.kind} contain no rows and cannot provide {purpose}: use method='release' (with "
            "storage='matrix'), or a problem on the rows themselves; nothing was released and no budget was spent"
        )
