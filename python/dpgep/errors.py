"""Exceptions and warnings of the package."""

from typing import Any


class PrivacyBudgetError(ValueError):
    """A query would cost more than the budget still holds.

    Raised before any row is read: nothing was computed, nothing was spent.
    """


class PrivacyWarning(UserWarning):
    """The guarantee is weaker than its reader may think (a seeded run, a delta of 1/n or more)."""


class AccuracyWarning(UserWarning):
    """The released answer is dominated by noise, or a matrix was singular. Derived from released values only.

    Attributes
    ----------
    solution : the solution that the warning is about: where a filter turns the warning into an exception, the answer,
        which is paid for, is still here.
    """

    def __init__(self, message: str, solution: Any = None) -> None:
        super().__init__(message)
        self.solution = solution
