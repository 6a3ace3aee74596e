"""`dpgep.compare`: methods tried on public or synthetic data, beside the answer without noise."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep import plot
from dpgep._checks import require_count
from dpgep._optional import import_extra
from dpgep._progress import progress_bar
from dpgep.errors import AccuracyWarning, PrivacyWarning
from dpgep.methods.ridge import norm_root, squared_sines
from dpgep.models.model import Matrix
from dpgep.models.preparation import Preparation
from dpgep.privacy.curator import Curator
from dpgep.problems.problem import Problem
from dpgep.solution import Solution
from dpgep.solve import Run, component_count, require_problem, solve

# Of the intervals over runs.
_LOW, _HIGH = 0.1, 0.9
_MARKERS = "osD^vP*X"


@dataclass(frozen=True, eq=False)
class Trial:
    """One run.

    Attributes
    ----------
    method, epsilon, repeat : which.
    error : squared sines of the span of all K components and that of the solution without noise, summed.
    expected_error : what the run said of it, from its released values.
    seconds : how long it took.
    """

    method: str
    epsilon: float
    repeat: int
    error: float
    expected_error: float
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Errors of several methods at several epsilon: returned by `dpgep.compare`.

    Attributes
    ----------
    trials : all runs.
    n_components : K; errors lie between 0 and K.
    """

    trials: tuple[Trial, ...]
    n_components: int

    @property
    def methods(self) -> list[str]:
        """Their names, in the order given."""
        return list(dict.fromkeys(trial.method for trial in self.trials))

    @property
    def epsilons(self) -> list[float]:
        """Ascending."""
        return sorted({trial.epsilon for trial in self.trials})

    def errors(self, method: str, epsilon: float) -> Matrix:
        """Of each run of a method at this epsilon."""
        found = [each.error for each in self.trials if (each.method, each.epsilon) == (method, epsilon)]
        if not found:
            raise KeyError(f"no runs of {method!r} at epsilon = {epsilon!r}")
        return np.array(found)

    def to_frame(self) -> Any:
        """All runs as a pandas DataFrame, one row each."""
        return import_extra("pandas", "pandas").DataFrame([vars(trial) for trial in self.trials])

    def plot(self, ax: Any = None) -> Any:
        """Median errors against epsilon, with the interval of eight runs in ten; returns the Matplotlib axes."""
        finite = [epsilon for epsilon in self.epsilons if math.isfinite(epsilon)]
        for number, method in enumerate(self.methods):
            runs = [self.errors(method, epsilon) for epsilon in finite]
            low, middle, high = np.array([np.quantile(each, (_LOW, 0.5, _HIGH)) for each in runs]).T
            color = plot.GROUPS[number % len(plot.GROUPS)]
            label = f"squared sines of {self.n_components} components" if self.n_components > 1 else "squared sine"
            ax = plot.privacy_curve(finite, middle, low=low, high=high, color=color, ylabel=f"error: {label}", ax=ax)
            ax.lines[-1].set_label(method)
            ax.lines[-1].set_marker(_MARKERS[number % len(_MARKERS)])
        ax.set_yscale("log")
        ax.legend(frameon=False)
        return ax

    def __repr__(self) -> str:
        width = max(map(len, self.methods))
        lines = [f"Error of the span of {self.n_components} components, between 0 and {self.n_components}"]
        lines.append(f"  {'method':{width}}   epsilon   median  (10 to 90 %)          expected   seconds")
        for method in self.methods:
            for epsilon in self.epsilons:
                chosen = [each for each in self.trials if (each.method, each.epsilon) == (method, epsilon)]
                low, middle, high = np.quantile([each.error for each in chosen], (_LOW, 0.5, _HIGH))
                expected = np.median([each.expected_error for each in chosen])
                seconds = np.median([each.seconds for each in chosen])
                spread = f"({low:.2g} to {high:.2g})"
                lines.append(
                    f"  {method:{width}}  {epsilon:8g}  {middle:7.2g}  {spread:20}  {expected:8.2g}  {seconds:8.2g}"
                )
        return "\n".join(lines)


def compare(
    problem: Problem,
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]] = ("release",),
    epsilons: Sequence[float] = (0.1, 1.0, 10.0),
    *,
    delta: float,
    n_components: int = 1,
    repeats: int = 10,
    seed: int = 0,
    progress: bool | None = None,
) -> Comparison:
    """Errors of methods on PUBLIC or synthetic data, beside the solution without noise.

    **Never for data of people who are to be protected.** All runs are seeded, their errors are differences to the exact
    answer, and no budget is charged: what this returns, even which method is best, is no more private than the data.
    Use it to choose on public or synthetic rows, then run `dpgep.solve` on the private ones.

    Parameters
    ----------
    problem : from `dpgep.pca`, `cca`, `pls`, `fda`, `sir` or `gep`, or `dpgep.Moments`
        Public or synthetic data, that can be read many times.
    methods : sequence of names, or mapping
        Methods of `dpgep.solve`; or, by names of your own, the options of `solve` for each, as in
        ``{"dense": {}, "ten features": {"sparsity": 10}, "flow": {"method": "rayleigh-flow"}}``.
    epsilons : sequence of float
        Privacy parameters, `math.inf` among them or not.
    delta : float
        Of all runs.
    n_components : int
        K, 1 by default.
    repeats : int
        Runs of each method at each epsilon, with noise of their own.
    seed : int
        Of the first runs; the next ones have the next numbers.
    progress : bool, optional
        Whether to show a bar on stderr (extra ``progress``). Default: in a terminal, after one second.

    Returns
    -------
    Comparison
        With a table (``print``), `Comparison.to_frame` and `Comparison.plot`. Errors are beside method "release" at
        epsilon = infinity without ridge, in the norm of its B.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.solve`.
    """
    require_problem(problem)
    k = component_count(problem.model, n_components)
    settings = {name: dict(methods[name]) if isinstance(methods, Mapping) else {"method": name} for name in methods}
    if isinstance(methods, str) or not settings:
        raise ValueError(f"methods must be a sequence of names or a mapping of options, got {methods!r}")
    if not len(epsilons):
        raise ValueError("epsilons must hold at least one number")
    require_count("repeats", repeats)
    exact = _Exact.of(problem, k)
    runs = [
        (name, epsilon, repeat)
        for name in settings
        for epsilon in sorted(map(float, epsilons))
        for repeat in range(repeats)
    ]
    trials = []
    with progress_bar(progress, "compare", len(runs), "runs") as bar:
        for name, epsilon, repeat in runs:
            start, budget = time.perf_counter(), {"epsilon": epsilon, "delta": delta}
            solution = _seeded(problem, seed + repeat, n_components=k, **budget, **settings[name])
            seconds = time.perf_counter() - start
            expected = float(solution.diagnostics.expected_subspace_error)
            trials.append(Trial(name, epsilon, repeat, exact.error(solution), expected, seconds))
            bar.update(1)
    return Comparison(tuple(trials), k)


@dataclass(frozen=True, eq=False)
class _Exact:
    """The solution without noise, (1, d, K) after ``root``, whose square is B, in the units of a preparation."""

    root: Matrix
    right: Matrix
    preparation: Preparation | None

    @staticmethod
    def of(problem: Problem, k: int) -> _Exact:
        run = Run(problem, budget=None, share=None, accounting="gdp", seed=None, epsilon=math.inf)
        with run.reserved():
            curator = run.curator(Curator)
            model, released = curator.model, curator.release()
            standard, pair = model.standardization(released), model.pair(released)
        root = norm_root(pair.b, len(pair.a)) if standard is None else np.diag(standard.scale)
        preparation = run.preparation if model.scale_free else None  # else components are those of mapped rows
        solution = _seeded(problem, 0, epsilon=math.inf, n_components=k, regularization=0.0)
        return _Exact(root, _columns(solution, root, preparation), preparation)

    def error(self, solution: Solution) -> float:
        """Squared sines of the span, summed; of components that are missing 1."""
        found = _columns(solution, self.root, self.preparation)
        missing = self.right.shape[2] - found.shape[2]
        return float(squared_sines(self.right, np.pad(found, ((0, 0), (0, 0), (0, missing))))[0, 0])


def _columns(solution: Solution, root: Matrix, preparation: Preparation | None) -> Matrix:
    """(1, d, K), components of mapped rows as unit columns in the norm of B."""
    components = solution.components
    if preparation is not None:
        if preparation.scale is not None:
            components = components * preparation.scale
        if preparation.linear is not None:
            components = np.linalg.solve(preparation.linear, components.T).T
    columns = root @ components.T
    norms = np.linalg.norm(columns, axis=0)
    return np.asarray(columns / np.where(norms > 0, norms, 1.0))[None]


def _seeded(problem: Problem, seed: int, **arguments: Any) -> Solution:
    """A run of which nothing is private, and nothing is said about that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.simplefilter("ignore", AccuracyWarning)
        return solve(problem, seed=seed, **arguments)
