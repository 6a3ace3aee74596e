"""Exceptions and warnings of the package."""

import os
import sys
import warnings
from typing import Any

__all__ = ["AccuracyWarning", "DataChangedError", "DataError", "PrivacyBudgetError", "PrivacyWarning"]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class PrivacyBudgetError(ValueError):
    """A query exceeds the remaining budget, or may not be paid from it.

    Raised before any row is read: nothing was computed, nothing was spent.
    """


class DataError(ValueError):
    """Data could not be read or converted. The message names files, columns and types, never a value.

    Nothing of the pass was released; what was paid for before stays spent.
    """


class DataChangedError(DataError):
    """Two passes over a source, or over partitions of Dask or Spark, read different rows.

    Raised before anything of the later pass is released; what was paid for before stays spent.
    """


class _WarningOfSolution(UserWarning):
    """A warning that carries the answer: if a filter turns it into an exception, what was paid for is not lost.

    Attributes
    ----------
    solution : the solution that the warning is about; None for a warning that comes before there is one.
    """

    def __init__(self, message: str, solution: Any = None) -> None:
        super().__init__(message)
        self.solution = solution


class PrivacyWarning(_WarningOfSolution):
    """The guarantee is weaker than it may appear (a seeded run, a delta of 1/n or more)."""


class AccuracyWarning(_WarningOfSolution):
    """The released answer is dominated by noise, or a matrix was singular. Computed from released values only."""


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this package that called it, however deep in the package the warning arises."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def warn_inaccurate(message: str, solution: Any = None) -> None:
    """An `AccuracyWarning` about an answer, where there is one."""
    warn(AccuracyWarning(message, solution))
