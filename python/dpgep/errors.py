"""Exceptions and warnings of the package."""


class PrivacyBudgetError(ValueError):
    """A query would cost more than the budget still holds.

    Raised before any row is read: nothing was computed, nothing was spent.
    """


class PrivacyWarning(UserWarning):
    """The guarantee is weaker than its reader may think (a seeded run, a delta of 1/n or more)."""


class AccuracyWarning(UserWarning):
    """The released answer is dominated by noise, or a matrix was singular. Derived from released values only."""
