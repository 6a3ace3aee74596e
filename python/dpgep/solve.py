"""`dpgep.solve`: a run of a method, and its result in the units of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpgep._checks import require_count
from dpgep._threads import use_threads
from dpgep.data.dataset import ANOTHER_PASS
from dpgep.errors import AccuracyWarning, warn
from dpgep.methods import method_named
from dpgep.methods.base import MethodResult
from dpgep.methods.release import ReleaseDiagnostics
from dpgep.models.model import Model
from dpgep.models.preprocessing import Preprocessing
from dpgep.privacy.accounting import Accounting
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import Curator
from dpgep.problems.problem import Problem
from dpgep.reports.report import PrivacyReport
from dpgep.run import Run
from dpgep.solution import Solution


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
        before, public = problem.passes, problem.public
        if public.read_once and not settings.in_one_pass(problem.model.n_features):
            raise ValueError(f"method {method!r} with these options needs {ANOTHER_PASS}")
        chosen.check(settings, public, k)
        curator = run.curator(Curator, mixed=not settings.on_columns())
        result = chosen.run(curator, k, settings)
    passes = problem.passes - before
    name = result.method or method
    solution = solution_of(result, run.report, curator.model, name, passes=passes, preprocessing=run.preprocessing)
    run.warn_of_counted(solution)
    warn_of_accuracy(result, solution)
    return solution


def require_problem(problem: Any) -> None:
    """Raise TypeError for anything but a problem."""
    if not isinstance(problem, Problem):
        raise TypeError(
            "problem must come from dpgep.pca, cca, pls, fda, sir or gep, or be dpgep.Moments; "
            f"got {type(problem).__name__}"
        )


def component_count(model: Model, n_components: Any) -> int:
    """K: by default all components of the model."""
    largest = model.max_components
    if n_components is None:
        return largest
    k = require_count("n_components", n_components)
    if k > largest:
        raise ValueError(f"n_components = {n_components} is too many: {model.max_components_reason}")
    return k


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
