"""`dpgep.solve`: problem and budget in, solution out."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

from dpgep._checks import require_count
from dpgep._threads import checked_threads, use_threads
from dpgep.data.dataset import ANOTHER_PASS
from dpgep.errors import AccuracyWarning, PrivacyWarning
from dpgep.methods import METHODS, Method
from dpgep.methods.result import MethodResult
from dpgep.models.model import Model, PublicFacts
from dpgep.privacy.accounting import Accounting
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import Curator, Problem
from dpgep.privacy.ledger import Ledger, mu_rounded_up
from dpgep.privacy.streams import noise_stream
from dpgep.problems.gep import MatrixProblem
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.moment_problem import MomentProblem
from dpgep.solution import PrivacyReport, Solution


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
    account = budget_of(problem, budget, share, accounting, epsilon=epsilon, delta=delta, rho=rho, mu=mu)
    warn_large_delta(account, problem.facts.n, stacklevel=3)
    threads = checked_threads(n_threads)
    stream = noise_stream(seed, stacklevel=2)
    with use_threads(threads), account.reserve(share, adjacency=problem.facts.adjacency) as ledger:
        before = problem.passes
        _check_passes(problem, method, chosen.in_one_pass(settings, problem.model.n_features))
        curator = Curator(problem, ledger, stream)
        settings.check(curator.public, k)
        result = chosen.run(curator, k, settings)
        report = privacy_report(problem.facts, account, ledger, seeded=seed is not None)
    solution = solution_of(result, report, curator.model, method, passes=problem.passes - before)
    warn_large_delta(account, n_counted(problem), solution, stacklevel=3)
    for caution in result.accuracy_warnings:
        warnings.warn(AccuracyWarning(caution, solution), stacklevel=2)
    return solution


def require_problem(problem: Any) -> None:
    """Raise TypeError for what is not a problem."""
    if not isinstance(problem, (MomentProblem, Moments, MatrixProblem)):
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


def _check_passes(problem: Problem, method: str, in_one_pass: bool) -> None:
    if isinstance(problem, MomentProblem) and problem.dataset.read_once and not in_one_pass:
        raise ValueError(f"method {method!r} with these options needs {ANOTHER_PASS}")


def component_count(model: Model, n_components: Any) -> int:
    """K: all that the model has by default."""
    largest = model.max_components
    if n_components is None:
        return largest
    k = require_count("n_components", n_components)
    if k > largest:
        raise ValueError(f"n_components = {n_components} is too many: {model.max_components_reason}")
    return k


def budget_of(
    problem: Problem,
    budget: Budget | None,
    share: float | None,
    accounting: Accounting,
    **forms: float | None,
) -> Budget:
    """The budget that pays for ``problem``: given, or of this run alone."""
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


def warn_large_delta(account: Budget, n: int | None, solution: Any = None, *, stacklevel: int) -> None:
    """Warn of a delta that permits publishing whole records of ``n`` people, where that is known."""
    if account.delta is not None and n is not None and account.delta >= 1 / n and math.isfinite(account.mu):
        message = (
            f"delta = {account.delta:g} is not below 1/n = {1 / n:.3g}: such a delta permits publishing whole records; "
            "choose it well below 1/n, e.g. n**-1.1 or smaller"
        )
        warnings.warn(PrivacyWarning(message, solution), stacklevel=stacklevel)


def n_counted(problem: Problem) -> int | None:
    """The public number of people of a source, where it became known only by reading it."""
    if not isinstance(problem, MomentProblem) or problem.facts.n is not None or not problem.facts.n_is_public:
        return None
    return problem.dataset.n


def privacy_report(facts: PublicFacts, account: Budget, ledger: Ledger, *, seeded: bool) -> PrivacyReport:
    """The guarantee of everything that the ledger holds."""
    covering = mu_rounded_up(ledger.spent)
    mu = None if any(release.mu is None for release in ledger.releases) else covering
    return PrivacyReport(
        epsilon=account.epsilon_at(covering),
        delta=account.delta,
        mu=mu,
        adjacency=facts.adjacency,
        bound=facts.bound,
        releases=ledger.releases,
        exact=all(release.rounding != "none" for release in ledger.releases),
        seeded=seeded,
    )


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
