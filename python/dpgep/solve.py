"""`dpgep.solve`, and the run it shares with `dpgep.release` and `dpgep.private_operator`.

A budget is reserved, a curator answers a method, and a report states what was paid.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from dpgep._checks import require_count
from dpgep._dispatch import core
from dpgep._threads import use_threads
from dpgep.data.dataset import ANOTHER_PASS
from dpgep.data.histograms import not_finite_in
from dpgep.data.rows import NotFiniteError
from dpgep.errors import AccuracyWarning, PrivacyWarning, warn
from dpgep.methods import method_named
from dpgep.methods.base import MethodResult
from dpgep.methods.preprocessing import location_and_scale, prepare
from dpgep.methods.release import ReleaseDiagnostics
from dpgep.models.model import Model, PublicFacts
from dpgep.models.preprocessing import Preprocessing
from dpgep.privacy.accounting import Accounting
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import Curator
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.noise import noise_stream
from dpgep.privacy.stages import Stages
from dpgep.problems.moment_problem import MomentProblem
from dpgep.problems.problem import Problem
from dpgep.reports.guarantee import PublicInputs
from dpgep.reports.report import PrivacyReport
from dpgep.solution import Solution

C = TypeVar("C", bound=Curator)

_log = logging.getLogger(__name__)

# Warn above this: e^20 = 5e8.
_LARGE_EPSILON = 20.0


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
        The data and the model.
    epsilon, delta, rho, mu : float
        The budget of this run, in exactly one form (see `dpgep.Budget`). ``epsilon=math.inf`` runs without noise.
    budget : Budget
        Alternatively, a budget that several runs share. ``epsilon`` alone is then what this run may add to its total
        epsilon, at the budget's delta.
    share : float in (0, 1]
        With ``budget``, instead of ``epsilon``: the fraction of its total mu^2 that this run may spend. Default: all
        that is left.
    accounting : {"gdp", "zcdp"}
        Conversion of (epsilon, delta): exact, or the papers' looser one.
    n_components : int, optional
        K. Default: all components of the model. Under ``method="release"`` more components cost no privacy.
    method : str
        "release", the default: one noisy moment matrix, from which everything else is computed, in memory or through
        products (docs/scale.md). Intervals and further questions need it. "auto": "release", except for `pca` (not
        ``standardize``) of rows in memory at high noise, n mu < 20 d^1.5, and at most d/8 components, where 1/16 of
        mu^2 buys a pilot that picks the more accurate of "release" and "clipped-power"; `Solution.method` says which.
        Where "auto" would buy a pilot, a printed release says so. "rayleigh-flow" and "truncated-rayleigh-flow":
        iterations on noisy products (docs/flows.md says when to use which). "clipped-power": a power method on clipped
        products, for pca of spread spectra, pls and cca of many columns, with less noise (docs/clipped-power.md).
        "dp-spca" and "dp-vrpca": stochastic ascent on samples of the rows, only for pca(center=False) and
        (epsilon, delta).
    seed : int, optional
        Makes the noise reproducible, for tests: anyone who knows the seed can remove the noise. Issues a warning and is
        recorded in the report.
    n_threads : int, optional
        Threads for this run; results are bit-identical for any number (BLAS included, if threadpoolctl is installed).
        Default: ``DPGEP_NUM_THREADS``, or the processors available to this process, within threadpoolctl's limit;
        beyond 1000 features LAPACK then uses its own setting (docs/distributed.md).
    **options
        Options of the method: see `dpgep.methods.options.ReleaseOptions` (``regularization``, ``sparsity``,
        ``separate_supports``, ``screen``, ``storage``, ``memory_limit``, ...) and
        `dpgep.methods.papers.rayleigh_flow.FlowOptions`, `TruncatedFlowOptions` (``n_iterations``, ``step_size``,
        ``sparsity``, ``init``, ``noise``, ``budget_split``, ...).

    Returns
    -------
    Solution

    Raises
    ------
    PrivacyBudgetError
        If the budget does not suffice, or was used under the other adjacency; raised before data are read.
    ValueError, TypeError
        If a parameter is out of range, or the data contain NaN or infinities: nothing is released, nothing is spent.
    numpy.linalg.LinAlgError
        If B is numerically zero, without noise and without regularization.

    Notes
    -----
    Under replace-one adjacency with public n, a delta of 1/n or more permits publishing whole records: it is accepted
    with a `PrivacyWarning`, as is an epsilon above 20. Failed validation of NaN is visible to the caller and not
    covered by the budget: which columns are finite is considered public.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> X = np.random.default_rng(0).standard_normal((20000, 5)) * [5, 2, 1, 1, 1] / 15
    >>> solution = dpgep.solve(dpgep.pca(X), epsilon=1.0, delta=1e-6, n_components=1)
    >>> bool(abs(solution.components[0, 0]) > 0.99)
    True
    """
    require_problem(problem)
    chosen = method_named(method)
    settings = chosen.with_options(options)
    k = component_count(problem.model, n_components)
    forms = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    run = Run(problem, budget=budget, share=share, accounting=accounting, seed=seed, **forms)
    with use_threads(n_threads), run.reserved():
        before = problem.passes
        if problem.read_once and not settings.in_one_pass(problem.model.n_features):
            raise ValueError(f"method {method!r} with these options needs {ANOTHER_PASS}")
        chosen.check(settings, problem.public, k, mixed=problem.mixes_columns)
        curator = run.curator(Curator, mixed=not settings.on_columns())
        result = chosen.run(curator, k, settings)
    passes = problem.passes - before
    name = result.method or method
    solution = solution_of(result, run.report, curator.model, name, passes=passes, preprocessing=run.preprocessing)
    run.warn_of_counted(solution)
    warn_of_accuracy(result, solution)
    return solution


def require_problem(problem: Any) -> None:
    """Raise TypeError for anything but a problem, and for a table, which asks nothing."""
    if not isinstance(problem, Problem):
        raise TypeError(
            "problem must come from dpgep.pca, cca, pls, fda, sir or gep, or be dpgep.Moments; "
            f"got {type(problem).__name__}"
        )
    component_count(problem.model, None)  # a table has none, and says so


def component_count(model: Model, n_components: Any) -> int:
    """K: by default all components of the model."""
    largest = model.max_components
    if n_components is None:
        return largest
    k = require_count("n_components", n_components)
    if k > largest:
        raise ValueError(f"n_components = {n_components} is too many: {model.max_components_reason}")
    return k


class Run:
    """A problem, its budget (given, or for this run alone), and its noise stream.

    Attributes
    ----------
    report : what was paid; set once the curator has answered.
    preprocessing : the public map of the rows that the curator answers about; None where they are as they were given.
    """

    report: PrivacyReport
    preprocessing: Preprocessing | None = None

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
        self._amount = forms["epsilon"] if budget is not None else None
        self._account = _budget_of(problem, budget, share, accounting, forms)
        self._is_seeded = seed is not None
        self._known_n = problem.facts.n
        warn_of_epsilon(self._account)
        warn_of_delta(self._account, self._known_n, None)
        self._stream = noise_stream(seed)

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """While the budget's reservation lasts."""
        start, adjacency = time.perf_counter(), self._problem.facts.adjacency
        try:
            with self._account.reserve(self._share, epsilon=self._amount, adjacency=adjacency) as self._ledger:
                yield
                public = _public_inputs_of(self._problem)
                self.report = _report(self._facts, self._account, self._ledger, public, seeded=self._is_seeded)
            model, seconds = self._problem.model, time.perf_counter() - start
            _log.info("answered %s in %d features: %.3f s", model.name, model.n_features, seconds)
        except NotFiniteError as error:
            raise self._naming_columns(error) from None

    def curator(self, make: Callable[[Problem, Ledger, core.NoiseStream], C], *, mixed: bool = False) -> C:
        """The curator, a `Curator` or a subclass; of a problem that asks for it, prepared first: `prepare`."""
        problem = self._problem
        if isinstance(problem, MomentProblem) and problem.auto is not None:
            preprocessing = prepare_table(problem, self._ledger, self._stream, mixed=mixed)
            problem = problem.prepared(preprocessing)
            self._ledger.begin()
        self.preprocessing = problem.preprocessing
        self._facts = problem.facts
        return make(problem, self._ledger, self._stream)

    def location_and_scale(self) -> Preprocessing:
        """Those of a table's columns alone, for all that is reserved."""
        problem = self._problem
        assert isinstance(problem, MomentProblem)
        assert problem.auto is not None
        self._facts = problem.facts
        return location_and_scale(_stages(problem, self._ledger, self._stream), problem.auto)

    def _naming_columns(self, error: NotFiniteError) -> NotFiniteError:
        """What refuses the rows, with the names of the columns."""
        problem = self._problem
        if isinstance(problem, MomentProblem):
            return not_finite_in(problem.model, problem.dataset, missing=problem.takes_missing)
        return error

    def warn_of_counted(self, result: object) -> None:
        """Warn of a large delta if the number of people became public only by reading."""
        if self._known_n is None:
            warn_of_delta(self._account, self._problem.n_counted, result)


def prepare_table(problem: MomentProblem, ledger: Ledger, stream: core.NoiseStream, *, mixed: bool) -> Preprocessing:
    """The preprocessing of a table, bought from ``ledger``; its columns may be ``mixed``."""
    assert problem.auto is not None
    if problem.read_once:
        raise ValueError(f'bound="auto" needs {ANOTHER_PASS}')
    return prepare(
        _stages(problem, ledger, stream),
        problem.auto,
        problem.model,
        shifted=problem.can_shift,
        mixed=mixed and not problem.is_sparse,
        grouped=problem.model.layout(problem.facts).n_groups > 1,
    )


def _stages(problem: MomentProblem, ledger: Ledger, stream: core.NoiseStream) -> Stages:
    table = (problem.dataset, problem.facts, problem.model.n_features)
    return Stages(*table, ledger, stream, missing=problem.takes_missing)


def solution_of(
    result: MethodResult,
    report: PrivacyReport,
    model: Model,
    method: str,
    *,
    passes: int,
    preprocessing: Preprocessing | None,
) -> Solution:
    """The caller's view of a method's result, in the units of the rows."""
    components, eigenvalues, mean, diagnostics = result.components, result.eigenvalues, result.mean, result.diagnostics
    if preprocessing is not None:
        if model.scale_free:
            components = preprocessing.components(components)
        else:
            eigenvalues = preprocessing.eigenvalues(eigenvalues)
            if diagnostics.noise_edge is not None:
                diagnostics = replace(diagnostics, noise_edge=preprocessing.eigenvalues(diagnostics.noise_edge))
        mean = None if mean is None else preprocessing.mean(mean)
        if isinstance(diagnostics, ReleaseDiagnostics) and diagnostics.scale is not None:
            diagnostics = replace(diagnostics, scale=preprocessing.spread(diagnostics.scale))
    return Solution(
        components=components,
        eigenvalues=eigenvalues,
        privacy=report,
        diagnostics=diagnostics,
        mean=mean,
        preprocessing=preprocessing,
        model=model,
        method=method,
        passes=passes,
        _moments=result.moments,
    )


def warn_of_accuracy(result: MethodResult, solution: Solution) -> None:
    """The method's warnings, now that there is a solution to attach."""
    for message in result.accuracy_warnings:
        warn(AccuracyWarning(message, solution))


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
    budget.require(problem.facts.adjacency)  # before a warning tells the number of people
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
    return public_inputs(problem.model, problem.n_counted, ranges)


def public_inputs(model: Model, n_people: int | None, ranges: Mapping[Any, tuple[float, float]]) -> PublicInputs:
    """What is public about a problem: the model, what was declared, and the number of people where it is."""
    names, classes = model.feature_names, getattr(model, "classes", None)
    return PublicInputs(
        problem=model.name,
        n_features=model.n_features,
        n_people=n_people,
        feature_names=names,
        classes=None if classes is None else tuple(map(str, classes)),
        edges=getattr(model, "interior_edges", None),
        ranges=tuple((names[j] if names and isinstance(j, int) else j, *ends) for j, ends in ranges.items()),
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
        exact=all(entry.rounding != "none" for entry in entries),
        seeded=seeded,
        public=public,
    )
