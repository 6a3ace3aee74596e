"""`solve`, `release`, `score_density`: a budget is reserved, a curator answers, a report states what was paid.

Nothing else spends.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from dpgep._checks import require_count, require_non_negative, require_one_of
from dpgep._dispatch import core
from dpgep._threads import use_threads
from dpgep.data.dataset import ANOTHER_PASS, kept_rows
from dpgep.data.rows import NotFiniteError
from dpgep.errors import PrivacyWarning, warn
from dpgep.methods import METHODS
from dpgep.methods.base import MEMORY_LIMIT, component_count, require_capacity, require_no_scales
from dpgep.methods.preprocessing import location_and_scale, prepare
from dpgep.methods.ridge import products_ridge
from dpgep.models import PcaModel
from dpgep.models.model import Adjacency, Model, PublicFacts
from dpgep.models.moments import ReleasedMoments
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.row_model import Classes, Slices
from dpgep.privacy.accounting import Accounting
from dpgep.privacy.budget import Budget
from dpgep.privacy.clipped_products import Cells
from dpgep.privacy.curator import Curator, Stages, noise_stream, row_bound
from dpgep.privacy.curator import Release as MomentQuery
from dpgep.privacy.ledger import Ledger, LedgerEntry
from dpgep.problems.builders import table_problem
from dpgep.problems.mergeable_moments import Moments, SummedProblem, problem_from
from dpgep.problems.problem import MomentProblem, Problem, rows_of
from dpgep.reports.guarantee import PublicInputs
from dpgep.reports.report import PrivacyReport
from dpgep.results.matrix_free import AnsweringCurator, MatrixFreeRelease
from dpgep.results.release import Release
from dpgep.results.score_density import Frame, ScoreDensity, names_of
from dpgep.results.solution import Solution, solution_of, warn_of_accuracy, warn_of_scales
from dpgep.sources.batches import Kept

C = TypeVar("C", bound=Curator)
# Of a budget: a share, an amount in epsilon or in mu, or nothing of these, which is all that is left.
Part: TypeAlias = Mapping[str, float | None]

_log = logging.getLogger(__name__)

# Warn above this: e^20 = 5e8.
_LARGE_EPSILON = 20.0


class Run:
    """A problem, a part of a budget, and a noise stream."""

    report: PrivacyReport  # what was paid; this and the passes over rows are set once the curator has answered
    passes: int
    preprocessing: Preprocessing | None = None  # the public map of the rows that the curator answers about

    def __init__(self, problem: Problem, account: Budget, part: Part, *, seed: int | None = None) -> None:
        self._problem, self._account, self._part = problem, account, part
        self._is_seeded = seed is not None
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
    def reserved(self, memory_limit: int = MEMORY_LIMIT) -> Iterator[None]:
        """While the budget's reservation lasts. Rows of files kept for later passes take at most ``memory_limit``."""
        start, facts, rows = time.perf_counter(), self._problem.facts, self._problem.dataset
        before = 0 if rows is None else rows.people.passes
        store = Kept()
        store.limit = memory_limit
        token = kept_rows.set(store)
        try:
            with self._account.reserve(**self._part, adjacency=facts.adjacency, person=facts.person) as self._ledger:
                yield
                self.report = self._report()
            self.passes = 0 if rows is None else rows.people.passes - before
            model, seconds = self._problem.model, time.perf_counter() - start
            _log.info("answered %s in %d features: %.3f s", model.name, model.n_features, seconds)
        except NotFiniteError as error:
            raise self._problem.naming_columns(error) from None
        finally:
            kept_rows.reset(token)
            store.clear()  # the traceback of an error may lead to it

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

    def _report(self) -> PrivacyReport:
        """The guarantee for everything in the ledger."""
        problem = self._problem
        ranges = {} if problem.auto is None else problem.auto.ranges
        public = public_inputs(problem.model, self._n_people, ranges, problem.facts)
        return report_of(self._account, self._ledger.paid(), self._facts, public, self._is_seeded)

    def location_and_scale(self) -> Preprocessing:
        """Those of a table's columns alone, for all that is reserved."""
        problem = cast(MomentProblem, self._problem)
        assert problem.auto is not None
        self._facts = problem.facts
        return location_and_scale(_stages(problem, self._ledger, self._stream), problem.auto, problem.model)

    def warn_of_counted(self, result: object) -> None:
        """Warn of a large delta if the number of people became public only by reading."""
        if self._problem.facts.n is None:
            warn_of_delta(self._account, self._n_people, result)

    @property
    def _n_people(self) -> int | None:
        """The number of people where it is public, though it may have become known only by reading."""
        facts, rows = self._problem.facts, self._problem.dataset
        is_counted = facts.n is None and facts.adjacency == "replace-one"
        return rows.people.n if rows is not None and is_counted else facts.n


def prepare_table(
    problem: MomentProblem, ledger: Ledger, stream: core.NoiseStream, *, mixed: bool, scaled: bool = False
) -> Preprocessing:
    """The preprocessing of a table, bought from ``ledger``: see `prepare`."""
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


def report_of(
    account: Budget, paid: tuple[tuple[LedgerEntry, ...], float], facts: PublicFacts, public: PublicInputs, seeded: bool
) -> PrivacyReport:
    """The guarantee for what was paid of a budget: entries of a ledger, and their mu together."""
    entries, spent = paid
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


def public_inputs(
    model: Model, n_people: int | None, ranges: Mapping[Any, tuple[float, float]], facts: PublicFacts
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
        person=facts.person,
        rows=facts.rows,
        largest_weight=facts.largest_weight,
    )


def solve(
    problem: Problem | Moments,
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
    problem : from `dpgep.pca`, `cca`, `multiset_cca`, `pls`, `fda`, `sir` or `gep`; or `dpgep.Moments`
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
        Options of the method: see `dpgep.methods.base.ReleaseOptions` (``regularization``, ``sparsity``,
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
    problem = problem if isinstance(problem, Problem) else problem_from(problem)
    chosen, public = METHODS[method], problem.public
    settings, k = chosen.checked(options, public, n_components)
    if public.read_once and not settings.in_one_pass(problem.model.n_features):
        raise ValueError(f"method {method!r} with these options needs {ANOTHER_PASS}")
    forms = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    run = Run.paid_by(problem, budget=budget, share=share, accounting=accounting, seed=seed, **forms)
    with use_threads(n_threads), run.reserved(getattr(settings, "memory_limit", MEMORY_LIMIT)):
        curator = run.curator(Curator, **chosen.admits(settings, public))
        result = chosen.run(curator, k, settings)
    name = result.method or method
    kept = result.moments if name == "release" else None
    asked = None if kept is None else _release(problem, run, kept)
    solution = solution_of(
        result,
        run.report,
        curator.model,
        name,
        passes=run.passes,
        preprocessing=run.preprocessing,
        release=asked,
    )
    run.warn_of_counted(solution)
    warn_of_accuracy(result, solution)
    return solution


def score_density(
    solution: Solution,
    problem: Problem,
    *,
    components: int | tuple[int, int] | None = None,
    cells: int = 64,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    budget: Budget | None = None,
    share: float | None = None,
    accounting: Accounting = "gdp",
    seed: int | None = None,
    n_threads: int | None = None,
) -> ScoreDensity:
    """The distribution of people's scores on two components, or one, as a histogram on a released frame: a score plot.

    The frame is public: G by G cells (G of one score) about the released mean, 3.5 released deviations to each side.
    Counts of people in its cells, by group where the problem has classes or slices, move by sqrt(2) for a replaced
    person and by 1 for one who is added or removed, in Euclidean norm; they are released with exactly rounded normal
    noise, and paid for in addition to the solution.

    Parameters
    ----------
    solution : Solution
        With the components, by ``method="release"``. Public: it costs nothing more.
    problem : from `dpgep.pca`, `cca`, `fda`, ...
        The rows, and whose they are: as for the solution. Without a bound, the solution's preprocessing is used.
    components : (int, int), or int, optional
        Which two components, from 1, or which single one. Of two views always a single one: the score of each view.
        Default: the first two, or the first where there is one alone.
    cells : 16, 32, 64 or 128
        G. Noise of a cell does not depend on it; finer cells hold fewer people.
    epsilon, delta, rho, mu, budget, share, accounting, seed, n_threads
        As for `solve`.

    Returns
    -------
    ScoreDensity
        ``dpgep.plot.scores`` draws it.

    Raises
    ------
    PrivacyBudgetError
        If the budget does not suffice; raised before data are read.
    ValueError
        For components that are not there, a solution without released moments, rows of another width, and where the
        number of people is not public. Nothing is spent.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> X = np.random.default_rng(0).standard_normal((20000, 5)) * [5, 2, 1, 1, 1] / 15
    >>> budget, problem = dpgep.Budget(epsilon=1.0, delta=1e-6), dpgep.pca(X)
    >>> solution = dpgep.solve(problem, budget=budget, share=0.5, n_components=2)
    >>> scores = dpgep.score_density(solution, problem, budget=budget)
    >>> scores.density.shape, round(float(scores.density.sum()), 6)
    ((1, 64, 64), 1.0)
    """
    frame = Frame.of(solution, components, cells)
    rows = rows_of(problem, "scores of people")
    if rows.auto is not None and solution.preprocessing is not None:
        rows = rows.prepared(solution.preprocessing)
    if rows.auto is not None or rows.layout.n_features != frame.weights.shape[1]:
        raise ValueError("the problem must be of the rows of the solution: the same columns, and a bound of its own")
    if (rows.preprocessing is None) != (solution.preprocessing is None):
        raise ValueError("the problem must map rows as that of the solution does: give both the same bound")
    asked, edges = frame.in_bounds(row_bound(rows.facts))
    counted = replace(rows, model=PcaModel(frame.weights.shape[1], center=False))
    forms = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    run = Run.paid_by(counted, budget=budget, share=share, accounting=accounting, seed=seed, **forms)
    with use_threads(n_threads), run.reserved():
        found = run.curator(Curator).answer(Cells(asked, edges))
    return ScoreDensity(
        found.values, found.deviation, frame.edges, found.n, frame.axes, names_of(rows.model.grouping), run.report
    )


def _release(problem: Any, run: Run, noisy: ReleasedMoments) -> Release:
    """What a run released about the people of a problem, which shows scales that it had bought."""
    if run.preprocessing is not None:
        run.preprocessing = run.preprocessing.shown_by(noisy)
    population = problem.population_id if problem.dataset is None else problem.dataset.people.name
    return Release(problem.model, run.report, noisy, frozenset([population]), run.preprocessing)


@overload
def release(data: Any, labels: Any = None, *, storage: Literal["matrix"] = "matrix", **arguments: Any) -> Release: ...


@overload
def release(data: Any, labels: Any = None, *, storage: Literal["operator"], **arguments: Any) -> MatrixFreeRelease: ...


def release(  # type: ignore[misc]  # the forms above leave out what it takes
    data: Any,
    labels: Any = None,
    *,
    classes: Sequence[Hashable] | Literal["public"] | None = None,
    y: Any = None,
    slices: int | None = None,
    y_range: tuple[float, float] | None = None,
    edges: Sequence[float] | None = None,
    by_group: bool | None = None,
    bound: Bound | None = None,
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    adjacency: Adjacency | None = None,
    public_n: int | None = None,
    person: Any = None,
    rows: int | None = None,
    weights: Any = None,
    largest_weight: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    budget: Budget | None = None,
    share: float | None = None,
    accounting: Accounting = "gdp",
    storage: Literal["matrix", "operator"] = "matrix",
    regularization: float | None = None,
    memory_limit: int | None = None,
    seed: int | None = None,
    n_threads: int | None = None,
) -> Release | MatrixFreeRelease:
    """One noisy release of the moments of people, from which everything else is computed at no further cost.

    Of rows, released are M = (1/n) sum x x^T and the mean, or, with ``labels`` or ``y``, sums and counts of each group:
    all questions of `Release` are then answered, about any columns, for the price of one. Of a problem, what it needs:
    `dpgep.solve` is this, and its first question.

    Parameters
    ----------
    data : array_like of shape (n, d); or a problem, from `dpgep.pca` and the like; or `dpgep.Moments`
        One row per person, as in `dpgep.pca`: an array, a table with names, a `dpgep.scan`, a Dask or Spark collection.
        With a problem, the parameters down to ``largest_weight`` belong to it.
    labels, classes
        The class of each person, as in `dpgep.fda`, for `Release.fda` and `Release.classifier`. Groups add to the noise
        of all answers: give them only where they are asked for. A person without one counts as a person and contributes
        nothing else, in all questions.
    y, slices, y_range, edges
        Or a response, as in `dpgep.sir`, for `Release.sir`: ``slices`` (default 10) of equal width over the public
        ``y_range``, or public ``edges``.
    by_group : bool, optional
        Whether the second moment of each group is released by itself, for `Release.of_group` and
        questions that compare groups: at the same price, as nobody is in two groups at once. Answers about everybody
        then add up the noise of all groups.
    bound, preprocessing, adjacency, public_n, person, rows, weights, largest_weight
        As in `dpgep.pca`. ``bound="auto"``, the default, gives every column a location and a scale, for 17 to 55 % of
        mu^2, so that columns in units of their own are released equally well. All columns then have noise of the same
        size relative to their scale, and a question about a few columns has the noise of all: leave out columns that
        nobody asks about. Where only the largest of columns in one unit matter, as in a spectrum,
        ``AutoPreprocessing(precondition=None)`` leaves the scales as they are.
    epsilon, delta, rho, mu, budget, share, accounting, seed, n_threads
        As in `dpgep.solve`.
    storage : {"matrix", "operator"}
        "operator": of a problem, no matrix is formed. The noisy pencil is known through its products, for any
        eigensolver, in any dimension. It has the law of the other release; answers are rounded to a public grid, and
        the data must not change while it is used.
    regularization : float, optional
        Of an operator: the multiple of the identity added to B, >= 0, in the units of B, not chosen by looking at the
        data. Default: the known noise level, which makes the noisy B positive definite. Unused where B is the identity.
    memory_limit : int, optional
        Of an operator: bytes for stored answers, 24 d per direction queried (32 d for a private pair of matrices), and
        for rows of files that are kept for later passes. Default 4 GiB for each.

    Returns
    -------
    Release or `dpgep.results.matrix_free.MatrixFreeRelease`
        The latter with ``storage="operator"``.

    Raises
    ------
    PrivacyBudgetError
        If the budget does not suffice; raised before data are read.
    TypeError, ValueError
        As `dpgep.solve`, `fda` and `sir`, and for a ``memory_limit`` too small for a few products: nothing is released
        or spent.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> X = np.random.default_rng(0).standard_normal((20000, 4)) @ (np.eye(4) + 0.5) * [1, 10, 100, 1000]
    >>> people = dpgep.release(X, epsilon=1.0, delta=1e-6)
    >>> two, one = people.pca([0, 1], standardize=True), people.cca([0, 1], [2, 3], n_components=1)
    >>> two.privacy == one.privacy == people.report  # paid once
    True

    Two hospitals, each with its own budget:

    >>> north, south = (dpgep.release(dpgep.pca(X[i::2] / 3e3, bound=1.0), epsilon=1.0, delta=1e-6) for i in (0, 1))
    >>> (north + south).solve(n_components=1).privacy.epsilon
    1.0

    Products, for an eigensolver of SciPy:

    >>> from scipy.sparse.linalg import eigsh
    >>> Z = np.random.default_rng(0).standard_normal((20000, 50)) * np.r_[5, np.ones(49)] / 15
    >>> operator = dpgep.release(dpgep.pca(Z, bound=1.0), storage="operator", epsilon=1.0, delta=1e-6)
    >>> values, vectors = eigsh(operator.a, k=1, which="LA")
    >>> bool(abs(vectors[0, 0]) > 0.99)
    True
    """
    require_one_of("storage", storage, ("matrix", "operator"))
    groups = {"labels": labels, "classes": classes, "y": y, "slices": slices, "y_range": y_range, "edges": edges}
    groups["by_group"] = by_group
    facts = {"bound": bound, "preprocessing": preprocessing, "adjacency": adjacency, "public_n": public_n}
    facts.update({"person": person, "rows": rows, "weights": weights, "largest_weight": largest_weight})
    given = {name: value for name, value in {**groups, **facts}.items() if value is not None}
    if isinstance(data, Moments):
        data = problem_from(data)
    problem = data if isinstance(data, Problem) else _table(data, **given)
    if problem is data and given:
        raise TypeError(f"{' and '.join(given)} belong to the problem: give them to the function that builds it")
    forms = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    run = partial(Run.paid_by, problem, budget=budget, share=share, accounting=accounting, seed=seed, **forms)
    with use_threads(n_threads):
        if storage == "operator":
            return _operator(problem, run, regularization, MEMORY_LIMIT if memory_limit is None else memory_limit)
        if regularization is not None or memory_limit is not None:
            raise TypeError('regularization and memory_limit are of storage="operator": give the former to a question')
        return _moments(problem, run)


def _table(X: Any, *, labels: Any = None, y: Any = None, **rest: Any) -> MomentProblem:
    """The problem of all moments of rows."""
    cuts = [name for name in ("slices", "y_range", "edges") if name in rest]
    if labels is not None and (y is not None or cuts):
        raise ValueError("groups are classes of labels or slices of a response y: give one of them")
    if y is not None and "edges" not in rest:
        rest.setdefault("slices", 10)
    return table_problem(X, labels if y is None else y, **rest)


def _moments(problem: Problem, start: Callable[[], Run]) -> Release:
    if problem.kind not in (MomentProblem.kind, SummedProblem.kind):
        raise TypeError(
            f"data must be rows, dpgep.Moments, or a problem of rows: pca, cca, pls, fda or sir; got {problem!r}"
        )
    run = start()
    with run.reserved():
        noisy = run.curator(Curator, scaled=True).answer(MomentQuery())
    assert isinstance(noisy, ReleasedMoments)
    found = _release(problem, run, noisy)
    run.warn_of_counted(found)
    warn_of_scales(run.preprocessing, problem.model.feature_names, found)
    return found


def _operator(
    problem: Problem, start: Callable[[], Run], regularization: float | None, memory_limit: int
) -> MatrixFreeRelease:
    component_count(problem.model, None)  # a table has none, and says so
    require_count("memory_limit (in bytes)", memory_limit)
    if regularization is not None:
        require_non_negative("regularization", regularization)
    run = start()
    require_no_scales(problem.public)
    require_capacity(problem.public, 1, memory_limit)
    with run.reserved(memory_limit):
        curator = run.curator(partial(AnsweringCurator, memory_limit=memory_limit))
        ridge = products_ridge(curator.paid, regularization)
    found = MatrixFreeRelease(curator, run.report, ridge, memory_limit, run.preprocessing)
    run.warn_of_counted(found)
    return found
