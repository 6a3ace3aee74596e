"""`dpgep.solve`, and what it shares with `dpgep.release` and `dpgep.private_operator`: one run.

A budget is reserved, a curator answers a method, and a report says what was paid.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from dpgep._checks import require_count
from dpgep._dispatch import core
from dpgep._threads import checked_threads, use_threads
from dpgep.data.dataset import ANOTHER_PASS
from dpgep.errors import AccuracyWarning, PrivacyWarning
from dpgep.methods import METHODS, Method
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


def solve(
    problem: Problem,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    budget: Budget | None = None,
    share: float | None = None,
    accounting: Accounting = "gdp",
    n_components: int | None = None,
    method: str = "release",
    seed: int | None = None,
    n_threads: int | None = None,
    **options: Any,
) -> Solution:
    """Leading solutions of A v = lambda B v under differential privacy.

    Parameters
    ----------
    problem : from `dpgep.pca`, `cca`, `pls`, `fda`, `sir` or `gep`
        The data and what is asked of them.
    epsilon, delta, rho, mu : float
        The budget of this run, in exactly one form (see `dpgep.Budget`). ``epsilon=math.inf`` runs without noise.
    budget : Budget
        Instead: a budget that several runs share.
    share : float in (0, 1]
        With ``budget``: the fraction of its total mu^2 this run may spend; default, all that is left.
    accounting : {"gdp", "zcdp"}
        Conversion of (epsilon, delta): exact, or the papers' looser one.
    n_components : int, optional
        K; default: all the model has. Under ``method="release"`` more components cost no privacy.
    method : str
        "release": one noisy moment matrix, everything else computed from it; held in memory, or known by its products
        (docs/scale.md). "rayleigh-flow" and "truncated-rayleigh-flow": iterations on noisy products (docs/flows.md says
        when to use which). "dp-spca" and "dp-vrpca": stochastic ascent on samples of the rows, for pca(center=False)
        and (epsilon, delta) alone.
    seed : int, optional
        Makes the noise reproducible, for tests: whoever knows the seed can remove it. Warns, and is marked in the
        report.
    n_threads : int, optional
        Threads for this run, with the same bits for any number (BLAS included, if threadpoolctl is installed). Default:
        ``DPGEP_NUM_THREADS``, or the processors of this process, within the limit that threadpoolctl has set; LAPACK
        then uses as many as it is set to (docs/distributed.md).
    **options
        Of the method: see `dpgep.methods.release.ReleaseOptions` (``regularization``, ``sparsity``,
        ``separate_supports``, ``screen``, ``storage``, ``memory_limit``, ...) and
        `dpgep.methods.papers.rayleigh_flow.FlowOptions`, `TruncatedFlowOptions` (``n_iterations``, ``step_size``,
        ``sparsity``, ``init``, ``noise``, ``budget_split``, ...).

    Returns
    -------
    Solution

    Raises
    ------
    PrivacyBudgetError
        If the budget cannot pay, or has paid under the other adjacency, before data is read.
    ValueError, TypeError
        If a parameter is out of range, or the data contain NaN or infinities: nothing is released, nothing is spent.
    numpy.linalg.LinAlgError
        If B is zero to rounding, without noise and without regularization.

    Notes
    -----
    Under replace-one adjacency with public n, a delta of 1/n or more permits publishing whole records: it is accepted
    with a `PrivacyWarning`. That validation fails on NaN is visible to the caller and not covered by the budget:
    whether the data are finite is taken as public.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> X = np.random.default_rng(0).standard_normal((20000, 5)) * [5, 2, 1, 1, 1] / 15
    >>> solution = dpgep.solve(dpgep.pca(X), epsilon=1.0, delta=1e-6, n_components=1)
    >>> bool(abs(solution.components[0, 0]) > 0.99)
    True
    """
    require_problem(problem)
    chosen, settings = method_of(method, options)
    k = component_count(problem.model, n_components)
    forms = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    run = Run(problem, budget=budget, share=share, accounting=accounting, seed=seed, **forms)
    with use_threads(checked_threads(n_threads)), run.curator(Curator) as curator:
        before = problem.passes
        if problem.read_once and not chosen.in_one_pass(settings, problem.model.n_features):
            raise ValueError(f"method {method!r} with these options needs {ANOTHER_PASS}")
        settings.check(curator.public, k)
        result = chosen.run(curator, k, settings)
    solution = solution_of(result, run.report, curator.model, method, passes=problem.passes - before)
    run.warn_of_counted(solution)
    warn_of_accuracy(result, solution)
    return solution


def require_problem(problem: Any) -> None:
    """Raise TypeError for what is not a problem."""
    if not isinstance(problem, Problem):
        raise TypeError(
            "problem must come from dpgep.pca, cca, pls, fda, sir or gep, or be dpgep.Moments; "
            f"got {type(problem).__name__}"
        )


def method_of(name: str, options: dict[str, Any]) -> tuple[Method, Any]:
    """The method and its checked options."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; known: {', '.join(sorted(METHODS))}")
    method = METHODS[name]
    known = [field.name for field in dataclasses.fields(method.options)]
    for option in options:
        if option not in known:
            raise TypeError(f"method {name!r} has no option {option!r}; its options: {', '.join(known)}")
    return method, method.options(**options)


def component_count(model: Model, n_components: Any) -> int:
    """K: all that the model has by default."""
    largest = model.max_components
    if n_components is None:
        return largest
    k = require_count("n_components", n_components)
    if k > largest:
        raise ValueError(f"n_components = {n_components} is too many: {model.max_components_reason}")
    return k


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
    entries, spent = ledger.releases, mu_rounded_up(ledger.spent)
    return PrivacyReport(
        epsilon=account.epsilon_at(spent),
        delta=account.delta,
        mu=None if any(entry.mu is None for entry in entries) else spent,
        adjacency=facts.adjacency,
        bound=facts.bound,
        releases=entries,
        exact=all(entry.rounding != "none" for entry in entries),
        seeded=seeded,
    )
