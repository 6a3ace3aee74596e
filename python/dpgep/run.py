"""One run: a budget is reserved, a curator answers, and a report says what was paid.

`dpgep.solve`, `dpgep.release` and `dpgep.private_operator` are runs that differ in what they ask.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from dpgep._dispatch import core
from dpgep.errors import AccuracyWarning, PrivacyWarning
from dpgep.methods.result import MethodResult
from dpgep.models.model import Model, PublicFacts
from dpgep.privacy.accounting import Accounting
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import Curator
from dpgep.privacy.ledger import Ledger, mu_rounded_up
from dpgep.privacy.noise import noise_stream
from dpgep.problems.problem import Problem
from dpgep.solution import PrivacyReport, Solution

C = TypeVar("C", bound=Curator)

# From a warning here to whoever called the public function that made or ended the run.
_CALLER = 4


class Run:
    """A problem, the budget that pays for it (given, or of this run alone), and the stream of its noise.

    Attributes
    ----------
    report : what was paid, once the curator has answered.
    """

    report: PrivacyReport

    def __init__(
        self,
        problem: Problem,
        *,
        budget: Budget | None,
        share: float | None,
        accounting: Accounting,
        seed: int | None,
        **forms: float | None,
    ) -> None:
        self._problem = problem
        self._share = share
        self._account = _budget_of(problem, budget, share, accounting, forms)
        self._is_seeded = seed is not None
        self._known_n = problem.facts.n
        _warn_large_delta(self._account, self._known_n, None)
        self._stream = noise_stream(seed, stacklevel=_CALLER - 1)

    @contextmanager
    def curator(self, make: Callable[[Problem, Ledger, core.NoiseStream], C]) -> Iterator[C]:
        """The curator, `Curator` or one of its kinds, who answers while the budget's reservation lasts."""
        with self._account.reserve(self._share, adjacency=self._problem.facts.adjacency) as ledger:
            yield make(self._problem, ledger, self._stream)
            self.report = _report(self._problem.facts, self._account, ledger, seeded=self._is_seeded)

    def warn_of_counted(self, result: object) -> None:
        """Warn of a large delta, where the number of people became public only by reading."""
        if self._known_n is None:
            _warn_large_delta(self._account, self._problem.n_counted, result)


def solution_of(result: MethodResult, report: PrivacyReport, model: Model, method: str, *, passes: int) -> Solution:
    """What a caller gets of a method's result."""
    return Solution(
        components=result.components,
        eigenvalues=result.eigenvalues,
        privacy=report,
        diagnostics=result.diagnostics,
        mean=result.mean,
        model=model,
        method=method,
        passes=passes,
    )


def warn_of_accuracy(result: MethodResult, solution: Solution) -> None:
    """The method's warnings, now that there is a solution to carry."""
    for message in result.accuracy_warnings:
        warnings.warn(AccuracyWarning(message, solution), stacklevel=_CALLER - 1)


def _budget_of(
    problem: Problem, budget: Budget | None, share: float | None, accounting: Accounting, forms: dict[str, Any]
) -> Budget:
    if budget is None:
        if share is not None:
            raise ValueError("share is a part of a budget: pass budget= with it")
        return Budget(accounting=accounting, adjacency=problem.facts.adjacency, **forms)
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a dpgep.Budget, got {type(budget).__name__}")
    given = [name for name, value in forms.items() if value is not None]
    if given:
        raise ValueError(f"two budgets given: budget and {', '.join(given)}; give one")
    if accounting != "gdp":
        raise ValueError("accounting belongs to the budget: dpgep.Budget(..., accounting=...)")
    budget.require(problem.facts.adjacency)  # before a warning tells the number of people
    return budget


def _warn_large_delta(account: Budget, n: int | None, result: object) -> None:
    """Warn of a delta that permits publishing whole records of ``n`` people, where that is known."""
    if account.delta is not None and n is not None and account.delta >= 1 / n and math.isfinite(account.mu):
        message = (
            f"delta = {account.delta:g} is not below 1/n = {1 / n:.3g}: such a delta permits publishing whole records; "
            "choose it well below 1/n, e.g. n**-1.1 or smaller"
        )
        warnings.warn(PrivacyWarning(message, result), stacklevel=_CALLER)


def _report(facts: PublicFacts, account: Budget, ledger: Ledger, *, seeded: bool) -> PrivacyReport:
    """The guarantee of everything that the ledger holds."""
    spent = mu_rounded_up(ledger.spent)
    return PrivacyReport(
        epsilon=account.epsilon_at(spent),
        delta=account.delta,
        mu=None if any(entry.mu is None for entry in ledger.releases) else spent,
        adjacency=facts.adjacency,
        bound=facts.bound,
        releases=ledger.releases,
        exact=all(entry.rounding != "none" for entry in ledger.releases),
        seeded=seeded,
    )
