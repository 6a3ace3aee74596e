"""A problem: a data set and the model to fit to it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dpgep.models.model import Model, PublicFacts
from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing


class Problem(ABC):
    """Data of people and what is asked of them. Stays with the curator: a method sees ``model`` and ``facts`` alone.

    Attributes
    ----------
    model, facts : what is asked, and of how many people within which bound.
    passes : number of passes over rows so far.
    read_once : whether there can be only one.
    at_hand : whether rows are in memory, so that many passes over them cost little.
    mapped : whether they are mapped in each pass, so that products cannot use them as they are.
    mixes_columns : whether rows are multiplied by a matrix, so that features are no columns of the table.
    preprocessing : the public map of the rows; None where they are as they were given.
    auto : how a run buys one first; None where it does not.
    """

    model: Model
    facts: PublicFacts
    passes: int = 0
    read_once: bool = False
    at_hand: bool = False
    mapped: bool = False
    mixes_columns: bool = False
    preprocessing: Preprocessing | None = None
    auto: AutoPreprocessing | None = None

    @property
    @abstractmethod
    def largest_b(self) -> float | None:
        """A public upper bound of the largest eigenvalue of B; None where nothing public gives one."""

    @property
    def n_counted(self) -> int | None:
        """The number of people where it is public, though it may have become known only by reading."""
        return self.facts.n
