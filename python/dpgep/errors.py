"""Exceptions and warnings of the package."""

from typing import Any


class PrivacyBudgetError(ValueError):
    """A query would cost more than the budget still holds, or must not be paid from it.

    Raised before any row is read: nothing was computed, nothing was spent.
    """


class DataChangedError(ValueError):
    """A pass over a source, or over Dask's parts, read other rows than the pass before it.

    Raised before anything of that pass is released; what was paid for before stays spent.
    """


class _WarningOfSolution(UserWarning):
    """A warning that keeps the answer: where a filter makes an exception of it, what was paid for is not lost.

    Attributes
    ----------
    solution : the solution that the warning is about; None for a warning that comes before there is one.
    """

    def __init__(self, message: str, solution: Any = None) -> None:
        super().__init__(message)
        self.solution = solution


class PrivacyWarning(_WarningOfSolution):
    """The guarantee is weaker than its reader may think (a seeded run, a delta of 1/n or more)."""


class AccuracyWarning(_WarningOfSolution):
    """The released answer is dominated by noise, or a matrix was singular. Derived from released values only."""
