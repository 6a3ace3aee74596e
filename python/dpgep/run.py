"""A run: a budget is reserved, a curator answers a method, and a report states what was paid. Nothing else spends."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar, cast

from dpgep._dispatch import core
from dpgep.data.dataset import ANOTHER_PASS
from dpgep.data.rows import NotFiniteError
from dpgep.errors import PrivacyWarning, warn
from dpgep.methods.preprocessing import location_and_scale, prepare
from dpgep.models.model import Model, PublicFacts
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import Classes, Slices
from dpgep.privacy.accounting import Accounting
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import Curator
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.noise import noise_stream
from dpgep.privacy.stages import Stages
from dpgep.problems.problem import MomentProblem, Problem
from dpgep.reports.guarantee import PublicInputs
from dpgep.reports.report import PrivacyReport

C = TypeVar("C", bound=Curator)
# Of a budget: a share, an amount in epsilon or in mu, or nothing of these, which is all that is left.
Part: TypeAlias = Mapping[str, float | None]

_log = logging.getLogger(__name__)

# Warn above this: e^20 = 5e8.
_LARGE_EPSILON = 20.0


class Run:
    """A problem, a part of a budget, and a noise stream.

    Attributes
    ----------
    report, passes : what was paid, and the number of passes over rows; set once the curator has answered.
    preprocessing : the public map of the rows that the curator answers about; None where they are as they were given.
    """

    report: PrivacyReport
    passes: int
    preprocessing: Preprocessing | None = None

    def __init__(self, problem: Problem, account: Budget, part: Part, *, seed: int | None = None) -> None:
        self._problem, self._account, self._part = problem, account, part
        self._is_seeded, self._known_n = seed is not None, problem.facts.n
        self._stream = noise_stream(seed)

    @classmethod
    def paid_by(
        cls,
        problem: Problem,
        *,
        budget: Budget | None,
        share: float | None,
        accounting: Accounting,
        seed: int | None,
        **forms: float | None,
    ) -> Run:
        """A run that a caller pays for: in one form, or by a part of a budget that several runs share."""
        account = _budget_of(problem, budget, share, accounting, forms)
        warn_of_epsilon(account)
        warn_of_delta(account, problem.facts.n, None)
        part: Part = {"share": share, "epsilon": None if budget is None else forms["epsilon"]}
        return cls(problem, account, part, seed=seed)

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """While the budget's reservation lasts."""
        start, facts, rows = time.perf_counter(), self._problem.facts, self._problem.dataset
        before = 0 if rows is None else rows.people.passes
        try:
            with self._account.reserve(**self._part, adjacency=facts.adjacency, person=facts.person) as self._ledger:
                yield
                public = _public_inputs_of(self._problem)
                self.report = _report(self._facts, self._account, self._ledger, public, seeded=self._is_seeded)
            self.passes = 0 if rows is None else rows.people.passes - before
            model, seconds = self._problem.model, time.perf_counter() - start
            _log.info("answered %s in %d features: %.3f s", model.name, model.n_features, seconds)
        except NotFiniteError as error:
            raise self._problem.naming_columns(error) from None

    def curator(
        self,
        make: Callable[[Problem, Ledger, core.NoiseStream], C],
        *,
        mixed: bool = False,
        scaled: bool = False,
    ) -> C:
        """The curator, a `Curator` or a subclass; of a problem that asks for it, prepared first: `prepare`."""
        problem = self._problem
        if problem.auto is not None:
            table = cast(MomentProblem, problem)  # no other problem buys preprocessing
            preprocessing = prepare_table(table, self._ledger, self._stream, mixed=mixed, scaled=scaled)
            problem = table.prepared(preprocessing)
            self._ledger.begin()
        self.preprocessing = problem.preprocessing
        self._facts = problem.facts
        return make(problem, self._ledger, self._stream)

    def location_and_scale(self) -> Preprocessing:
        """Those of a table's columns alone, for all that is reserved."""
        problem = cast(MomentProblem, self._problem)
        assert problem.auto is not None
        self._facts = problem.facts
        return location_and_scale(_stages(problem, self._ledger, self._stream), problem.auto, problem.model)

    def warn_of_counted(self, result: object) -> None:
        """Warn of a large delta if the number of people became public only by reading."""
        if self._known_n is None:
            warn_of_delta(self._account, self._problem.n_counted, result)


def prepare_table(
    problem: MomentProblem, ledger: Ledger, stream: core.NoiseStream, *, mixed: bool, scaled: bool = False
) -> Preprocessing:
    """The preprocessing of a table, bought from ``ledger``; its columns may be ``mixed``.

    ``scaled``: columns of a model that depends on scales may be divided by scales of their own.
    """
    assert problem.auto is not None
    if problem.dataset.read_once:
        raise ValueError(f'bound="auto" needs {ANOTHER_PASS}')
    return prepare(
        _stages(problem, ledger, stream),
        problem.auto,
        problem.model,
        shifted=problem.can_shift,
        mixed=mixed and not problem.is_sparse,
        scaled=scaled and not problem.is_sparse,
        grouped=problem.layout.n_groups > 1,
    )


def _stages(problem: MomentProblem, ledger: Ledger, stream: core.NoiseStream) -> Stages:
    table = (problem.dataset, problem.facts, problem.model.n_features)
    return Stages(*table, ledger, stream, missing=problem.takes_missing)


def _budget_of(
    problem: Problem, budget: Budget | None, share: float | None, accounting: Accounting, forms: dict[str, Any]
) -> Budget:
    if budget is None:
        if share is not None:
            raise ValueError("share is a fraction of a budget: pass budget= as well")
        return Budget(accounting=accounting, adjacency=problem.facts.adjacency, **forms)
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a dpgep.Budget, got {type(budget).__name__}")
    given = [name for name, value in forms.items() if value is not None]
    if given not in ([], ["epsilon"]):
        raise ValueError(
            f"two budgets given: budget and {', '.join(given)}; give only one, or of a budget a share, or an amount in "
            "epsilon alone"
        )
    if accounting != "gdp":
        raise ValueError("accounting belongs to the budget: dpgep.Budget(..., accounting=...)")
    budget.require(problem.facts.adjacency, problem.facts.person)  # before a warning tells the number of people
    return budget


def warn_of_epsilon(account: Budget) -> None:
    """Warn of an epsilon under which odds may change by a factor that protects nobody."""
    if account.epsilon is not None and _LARGE_EPSILON < account.epsilon < math.inf:
        message = (
            f"epsilon = {account.epsilon:g} gives almost no protection: an observer's odds about a person can change "
            f"by a factor of e^{account.epsilon:g}; values up to about 10 are usual"
        )
        warn(PrivacyWarning(message))


def warn_of_delta(account: Budget, n: int | None, result: object) -> None:
    """Warn of a delta that permits publishing whole records of ``n`` people, if n is known."""
    if account.delta is not None and n is not None and account.delta >= 1 / n and math.isfinite(account.mu):
        message = (
            f"delta = {account.delta:g} is not below 1/n = {1 / n:.3g}: such a delta permits publishing whole records; "
            "choose it well below 1/n, e.g. n**-1.1 or smaller"
        )
        warn(PrivacyWarning(message, result))


def _public_inputs_of(problem: Problem) -> PublicInputs:
    ranges = {} if problem.auto is None else problem.auto.ranges
    facts = problem.facts
    found = public_inputs(problem.model, problem.n_counted, ranges, person=facts.person)
    return replace(found, rows=facts.rows, largest_weight=facts.largest_weight)


def public_inputs(
    model: Model, n_people: int | None, ranges: Mapping[Any, tuple[float, float]], *, person: str | None = None
) -> PublicInputs:
    """What is public about a problem: the model, what was declared, and the number of people where it is."""
    names, grouping = model.feature_names, getattr(model, "grouping", None)
    return PublicInputs(
        problem=model.name,
        n_features=model.n_features,
        n_people=n_people,
        feature_names=names,
        classes=tuple(map(str, grouping.labels)) if isinstance(grouping, Classes) else None,
        edges=grouping.interior_edges if isinstance(grouping, Slices) else None,
        ranges=tuple((names[j] if names and isinstance(j, int) else j, *ends) for j, ends in ranges.items()),
        person=person,
    )


def _report(
    facts: PublicFacts, account: Budget, ledger: Ledger, public: PublicInputs, *, seeded: bool
) -> PrivacyReport:
    """The guarantee for everything in the ledger."""
    entries, spent = ledger.releases, ledger.spent_mu
    return PrivacyReport(
        epsilon=account.epsilon_at(spent),
        delta=account.delta,
        mu=None if any(entry.mu is None for entry in entries) else spent,
        adjacency=facts.adjacency,
        bound=facts.bound,
        releases=entries,
        exact=all(entry.noise for entry in entries),
        seeded=seeded,
        public=public,
    )
