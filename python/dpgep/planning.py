"""`dpgep.planning.plan`: what a release will show, before there are data.

Synthetic people are drawn whose spectrum is the one that is public or hoped for: Gaussian rows about zero, groups that
differ in their means. They are summed, released and solved as `dpgep.solve` does it with ``method="release"``, many
times, from seeds that are the same in every run. No data are involved, and nothing is protected or paid.

Draws have a public number of people at most, m. For n > m their moments S are replaced by E + sqrt(m/n) (S - E), E
their mean over draws: fluctuations fall with the root of n. The stages of ``bound="auto"`` depend on n mu alone, so
they are bought from fewer people with more mu. Without noise that finds a bound which clips nobody: by how much clipped
moments of m people turn the components is added, less m/n, to what noise does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpgep._checks import require_one_of, require_people, require_positive
from dpgep._dispatch import core
from dpgep._files import Target, save
from dpgep.data.inputs import clipping_of
from dpgep.methods.base import component_count
from dpgep.methods.eigen import solve_pair
from dpgep.methods.ridge import norm_root, public_ridge, released_ridge, squared_sines
from dpgep.models.model import Adjacency, Matrix, PublicFacts
from dpgep.models.moments import NO_NOISE, MomentNoise, ReleasedMoments, goe
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.row_model import RowModel, layout_of
from dpgep.population import (
    Population,
    exact_moments,
    is_planned,
    largest_eigenvalue,
    mean_moments,
    model_named,
    moments_of_more,
    of_model,
    shares_of,
    spectrum_of,
)
from dpgep.privacy.accounting import Accounting
from dpgep.privacy.budget import Budget
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.noise import integer_noise
from dpgep.privacy.release import released_people, released_shares
from dpgep.problems.problem import MomentProblem, problem_of
from dpgep.run import prepare_table
from dpgep.serialization import Format

__all__ = ["Plan", "plan"]

Against = Literal["sample", "population"]

# People of a draw, more of many features. Public constants, as all that follow.
_PEOPLE, _PEOPLE_PER_FEATURE = 2048, 16
# Draws; this many find a bound together, and of this many one chooses a ridge, for itself and the others.
_MOST_DRAWS, _FEWEST_DRAWS, _DRAWN_FEATURES = 36, 6, 1800
_DRAWS_PER_BOUND, _DRAWS_PER_RIDGE = 6, 3
# Of the intervals over draws.
_LOW, _HIGH = 0.05, 0.95
# How far `Plan.people_for` and its like search, and how exactly.
_MOST_PEOPLE, _MOST_EPSILON, _LEAST_EPSILON = 10**12, 1e6, 1e-6
_STEP, _EXACTNESS = 4.0, 1.03
# A component with this squared sine is as much noise as signal.
_SEEN = 0.5
# Room for rounding where a bound is to clip nobody.
_ROOM = 1 + 1e-9


PLAN = Format("dpgep-plan")


@dataclass(frozen=True, eq=False)
class PlannedErrors:
    """Squared sines of the angles to the right components, in the norm of B, over the draws of a plan.

    Attributes
    ----------
    mean, low, high : (K,), of each component: the expected error, and what nine draws in ten lie between.
    span, span_low, span_high : the same of the span of all K, summed, between 0 and K.
    """

    mean: Matrix
    low: Matrix
    high: Matrix
    span: float
    span_low: float
    span_high: float

    @staticmethod
    def over(draws: Matrix) -> PlannedErrors:
        """Of draws (m, 1 + K), that of the span first."""
        mean, (low, high) = draws.mean(axis=0), np.quantile(draws, (_LOW, _HIGH), axis=0)
        return PlannedErrors(mean[1:], low[1:], high[1:], float(mean[0]), float(low[0]), float(high[0]))

    def shown(self, row: int | None = None) -> str:
        """That of a component; None: of the span."""
        if row is None:
            return f"{self.span:.2g} ({self.span_low:.2g} to {self.span_high:.2g})"
        return f"{self.mean[row]:.2g} ({self.low[row]:.2g} to {self.high[row]:.2g})"


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What `dpgep.solve` is expected to find: returned by `dpgep.planning.plan`, which says under which assumptions.

    Attributes
    ----------
    model : what is to be computed.
    n, mu : number of people, and the Gaussian-DP parameter of the budget.
    bound : on the norm of rows: as given, or as ``bound="auto"`` would find it, in units of the rows that it maps.
    share : the part of mu^2 that is left for the answer; 1 for a given bound.
    noise_level : expected operator norm of the noise in B, or in A where B is the identity, in units of such rows.
    sample : `PlannedErrors` of the noise alone, against the components of the same people at epsilon = infinity: what
        ``solution.diagnostics.expected_error`` will estimate. A given bound clips both.
    population : `PlannedErrors` of noise and sampling, against the components of the population.
    """

    model: RowModel
    n: int
    mu: float
    bound: float
    share: float
    noise_level: float
    sample: PlannedErrors
    population: PlannedErrors
    _setting: Simulation
    _epsilon: float | None
    _delta: float | None
    _accounting: Accounting

    def __post_init__(self) -> None:
        require_people("n", self.n)
        if self.n < 2:
            raise ValueError(f"a plan is for two people or more, got n = {self.n!r}")
        if not (self.mu > 0 and self.bound > 0 and 0 < self.share <= 1):
            raise ValueError("mu, bound and share of a plan must be positive")
        if not is_planned(self.model) or self._setting.model != self.model:
            raise ValueError("the setting of a plan is of another model")
        if self._epsilon is not None and self.mu != self._budget(self._epsilon).mu:
            raise ValueError(f"mu is {self.mu!r}, which is not that of epsilon = {self._epsilon!r} and the delta")
        for errors in (self.sample, self.population):
            if {part.shape for part in (errors.mean, errors.low, errors.high)} != {(self._setting.n_components,)}:
                raise ValueError(f"errors must be of {self._setting.n_components} components")

    def save(self, target: Target) -> None:
        """Write JSON, for `dpgep.load`, to a path or a binary file that is open."""
        save(PLAN.text(self).encode(), target)

    def _budget(self, epsilon: float) -> Budget:
        return Budget(epsilon=epsilon, delta=self._delta, accounting=self._accounting)

    def people_for(self, error: float, *, against: Against = "sample") -> int:
        """The least number of people, to 3 %, for an expected error of the span of at most ``error``.

        All else as planned. Raises ValueError where 10^12 people do not suffice.
        """
        found = _least(
            lambda n: self._error(against, n=math.ceil(n)),
            self._wanted(error),
            (self.n, 2, _MOST_PEOPLE),
            f"no number of people up to {_MOST_PEOPLE:.0e}",
        )
        return math.ceil(found)

    def epsilon_for(self, error: float, *, against: Against = "sample") -> float:
        """The least epsilon, to 3 %, for an expected error of the span of at most ``error``, at the plan's delta.

        Raises ValueError where no epsilon up to 10^6 suffices (``against="population"``: sampling may leave more), or
        for a plan whose budget has no delta.
        """
        if self._delta is None:
            raise ValueError("an epsilon needs a delta: plan with epsilon= and delta=, not with rho= or mu=")

        start = min(max(self._epsilon or 1.0, _LEAST_EPSILON), _MOST_EPSILON)
        return _least(
            lambda epsilon: self._error(against, mu=self._budget(epsilon).mu),
            self._wanted(error),
            (start, _LEAST_EPSILON, _MOST_EPSILON),
            f"no epsilon up to {_MOST_EPSILON:.0e}",
        )

    def smallest_eigengap(self, error: float = _SEEN) -> float:
        """The least distance of the leading eigenvalue from the next, to 3 %, at which its component can be seen.

        That is: has an expected error of at most ``error`` against that of the population. Eigenvalues from that of
        number K + 1 on are as planned; one leading eigenvalue is above them.
        """
        require_positive("error", error)
        setting, k = self._setting, self._setting.n_components
        rest, largest = setting.spectrum[k:], setting.spectrum[0]
        if not len(rest) and self.model.traits.equal_eigenvalues:
            raise ValueError(f"all {k} eigenvalues were planned to lead: plan fewer components")
        next_one = float(rest[0]) if len(rest) else 0.0
        most = largest_eigenvalue(self.model, setting.deviation) - next_one

        def spectrum(gap: float) -> Matrix:
            return of_model(self.model, np.concatenate([[next_one + gap], np.full(k - 1, next_one), rest]))

        def error_at(gap: float) -> float:
            return replace(setting, spectrum=spectrum(gap), n_components=1).outcome(self.n, self.mu).population.span

        unit = max(largest - next_one, 1e-3 * largest)
        limits = (min(unit, most / 2), 1e-9 * unit, min(most * (1 - 1e-6), 1e9 * unit))
        gap = _least(error_at, error, limits, "no eigengap that the model allows")
        return float(spectrum(gap)[0] - next_one * spectrum(gap)[0] / (next_one + gap))

    def _error(self, against: Against, *, n: int | None = None, mu: float | None = None) -> float:
        require_one_of("against", against, ("sample", "population"))
        outcome = self._setting.outcome(self.n if n is None else n, self.mu if mu is None else mu)
        return (outcome.sample if against == "sample" else outcome.population).span

    def _wanted(self, error: float) -> float:
        require_positive("error", error)
        if error >= self._setting.n_components:
            raise ValueError(
                f"error must be below K = {self._setting.n_components}, that of any {self._setting.n_components} "
                f"directions, got {error!r}"
            )
        return error

    def __repr__(self) -> str:
        setting, k = self._setting, self._setting.n_components
        budget = f"mu = {self.mu:.4g}"
        if self._epsilon is not None and self._delta is not None:
            budget = f"epsilon = {self._epsilon:g}, delta = {self._delta:.3g} ({budget})"
        bound = f"{self.bound:.3g}"
        if isinstance(setting.bound, AutoPreprocessing):
            bound += f" expected to be found, for {1 - self.share:.0%} of mu^2"
        rows = [(f"{row + 1:5d}", row) for row in range(k)]
        lines = [
            f"Plan of {self.model.name}: {k} component{'s' * (k != 1)} in {self.model.n_features} features "
            f"of {self.n} people",
            f"  privacy      {budget}, {setting.adjacency}",
            f"  bound        {bound}",
            f"  noise level  {self.noise_level:.3g}",
            "    k  expected error (5 to 95 %)         with sampling of the people",
            *(f"{name}  {self.sample.shown(row):33}  {self.population.shown(row)}" for name, row in rows),
        ]
        if k > 1:
            lines.append(f" span  {self.sample.shown():33}  {self.population.shown()}")
        return "\n".join(lines)


def plan(
    model: RowModel | str,
    *,
    n: int,
    d: int | Sequence[int] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    accounting: Accounting = "gdp",
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | None = None,
    spectrum: ArrayLike | None = None,
    eigengap: float | None = None,
    deviation: float = 1.0,
    shares: Sequence[float] | None = None,
    n_components: int = 1,
    adjacency: Adjacency = "replace-one",
) -> Plan:
    """The error to expect of `dpgep.solve`, without data: from public numbers and a spectrum that is hoped for.

    Synthetic rows are Gaussian about zero, with this spectrum, in columns that are mixed at random (within each view);
    groups differ in their means alone. They are released and solved as ``method="release"`` does it, dense, with the
    ridge that it chooses. Rows with heavier tails lose more to the bound, and rows far from zero more to the noise of
    their mean: subtract public locations first. The same arguments give the same plan.

    Parameters
    ----------
    model : RowModel or str
        `dpgep.models.PcaModel(20, True)` and the like, also one of your own; or a name, "pca", "standardized-pca",
        "cca", "pls", "multiset-cca", "fda" or "sir", centred, with ``d``.
    n : int
        Number of people.
    d : int, or (d_x, d_y), or more for "multiset-cca"
        Of a model given by name: number of features. "fda" and "sir" have a group for each of ``shares``; default, as
        many classes as the spectrum distinguishes and ten slices.
    epsilon, delta, rho, mu, accounting
        The budget, as in `dpgep.solve`.
    bound : float or "auto"
        As in the problem. A number is in the units of ``deviation`` and, for PCA and PLS, of the root of ``spectrum``.
        "auto": the share of its stages and the bound that it finds are found on synthetic rows, too.
    preprocessing : `AutoPreprocessing`, optional
        As in the problem, without ``ranges``.
    spectrum : array_like
        The eigenvalues that are public or hoped for, at most as many as the model has; the others are given by rows
        without signal. PCA: of the covariance, others ``deviation``^2. Standardized PCA: of the correlation matrix,
        scaled so that all add up to d, others alike. CCA: canonical correlations below 1, of views whose covariance is
        ``deviation``^2 I; of m views, m - 1 times the correlation of two. PLS: singular values of the cross-covariance
        of such views, below ``deviation``^2. FDA: variances of class means over those within classes. SIR: parts of
        variances, below 1. Others 0.
    eigengap : float
        Alternatively, a spectrum with one eigenvalue that is larger than all others by this much.
    deviation : float
        Standard deviation of the rows in any direction without signal (FDA: within classes).
    shares : sequence of float
        Shares of people per class or slice, which add up to 1. Default: all alike.
    n_components : int
        K, 1 by default. Of components with equal eigenvalues only the span means something.
    adjacency : {"replace-one", "add-remove"}
        As in the problem; under "add-remove" the number of people is protected.

    Returns
    -------
    Plan
        Expected errors, of the noise alone and with sampling of the people, and what would be needed for others:
        `Plan.people_for`, `Plan.epsilon_for`, `Plan.smallest_eigengap`.

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range, or the budget is too small for any release.

    Notes
    -----
    About a second for up to 100 features. Methods other than "release", sparse components and screens are
    not planned: try them on public or synthetic rows (docs/examples/comparing.md).

    Examples
    --------
    >>> import dpgep
    >>> plan = dpgep.planning.plan("pca", n=20000, d=20, epsilon=1.0, delta=1e-6, spectrum=[4.0])
    >>> bool(plan.sample.span < plan.population.span < 0.01)
    True
    """
    people, budget = require_people("n", n), Budget(epsilon=epsilon, delta=delta, rho=rho, mu=mu, accounting=accounting)
    if people < 2:
        raise ValueError(f"a plan is for two people or more, got n = {n!r}")
    require_positive("deviation", deviation)
    if (spectrum is None) == (eigengap is None):
        raise ValueError("give either a spectrum or an eigengap")
    if isinstance(model, str):
        model = model_named(model, d, spectrum, shares)
    elif d is not None:
        raise ValueError("d belongs to a model that is given by name")
    if not is_planned(model):
        raise TypeError(
            f"model must be a model of rows that plans know, such as dpgep.models.PcaModel(20, True), got "
            f"{type(model).__name__}"
        )
    clipping = clipping_of(bound, preprocessing)
    if isinstance(clipping, Preprocessing):
        raise TypeError("preprocessing is of rows in their own units: give its bound, and a spectrum of mapped rows")
    if isinstance(clipping, AutoPreprocessing) and clipping.ranges:
        raise ValueError("ranges are in units of columns, which a plan does not know: plan without them")
    setting = Simulation(
        model=model,
        spectrum=spectrum_of(model, spectrum, eigengap, float(deviation)),
        deviation=float(deviation),
        shares=shares_of(model, shares),
        bound=clipping,
        adjacency=adjacency,
        n_components=component_count(model, n_components),
    )
    outcome = setting.outcome(people, budget.mu)
    return Plan(model, people, budget.mu, *outcome, setting, budget.epsilon, budget.delta, accounting)


class Outcome(NamedTuple):
    """What a simulation shows; the order is that of `Plan`."""

    bound: float
    share: float
    noise_level: float
    sample: PlannedErrors
    population: PlannedErrors


class _Draw(NamedTuple):
    """Moments of clipped rows of people, without noise, and (1 + K,) the errors that clipping them has made."""

    moments: ReleasedMoments
    beside: Matrix


class _Release(NamedTuple):
    """A bound, the mu left for the answer, draws of people whose rows it clips, and the mean of draws of m people."""

    bound: float
    mu: float
    draws: list[_Draw]
    mean: ReleasedMoments


@dataclass(frozen=True, eq=False)
class Simulation(Population):
    """A population and a release of it, but for the number of people and the budget."""

    bound: float | AutoPreprocessing
    adjacency: Adjacency
    n_components: int

    def __post_init__(self) -> None:
        super().__post_init__()
        component_count(self.model, self.n_components)
        if not isinstance(self.bound, AutoPreprocessing):
            require_positive("bound", self.bound)
        signal = int((self.spectrum > 0).sum())
        if self.n_components > signal:
            raise ValueError(f"n_components = {self.n_components}, but {signal} eigenvalues are positive")

    def outcome(self, n: int, mu: float) -> Outcome:
        """Errors of n people with this budget."""
        releases = self._releases(n, mu)
        parts = [self._part(release, n, number) for number, release in enumerate(releases)]
        levels, of_sample, of_population = (np.concatenate(each) for each in zip(*parts, strict=True))
        share = 1.0 if math.isinf(mu) else min(float(np.mean([each.mu for each in releases])) ** 2 / mu**2, 1.0)
        bound = float(np.median([each.bound for each in releases]))
        errors = PlannedErrors.over(of_sample), PlannedErrors.over(of_population)
        return Outcome(bound, share, float(levels.mean()), *errors)

    def _part(self, release: _Release, n: int, number: int) -> tuple[Matrix, Matrix, Matrix]:
        """Of each draw, the noise level, and errors beside the sample and the population."""
        model, k, noise = self.model, self.n_components, NO_NOISE
        facts = PublicFacts(self.adjacency, release.bound, n if self.adjacency == "replace-one" else None)
        if math.isfinite(release.mu):
            _, deviations = integer_noise(release.mu, layout_of(model, facts), self.adjacency, None)
            noise = deviations.scaled(release.bound**2 / n, release.bound / n, 1 / n)
        population, most = _Target.of(model, release.mean, k), np.append(float(k), np.ones(k))
        shown, multiple = [], 0.0
        for index, draw in enumerate(release.draws):
            sums = moments_of_more(draw.moments, release.mean, n, len(release.draws), self._n_drawn)
            noisy = self._noisy(sums, noise, facts, np.random.default_rng([2, number, index]))
            level = model.noisy(noisy).noise_of_b or 0.0
            if index % _DRAWS_PER_RIDGE == 0 and level > 0:  # the ridge that the method chooses, in units of the noise
                multiple = released_ridge(model.noisy(noisy), k, level, None, sparse=False)[0] / level
            found, noise_level = _directions(model, noisy, k, multiple * level)
            sample = _Target.of(model, sums, k).errors(found) + draw.beside * min(self._n_drawn / n, 1.0)
            shown.append((np.array([noise_level]), np.minimum(sample, most), population.errors(found)))
        levels, of_sample, of_population = (np.array(each) for each in zip(*shown, strict=True))
        return levels, of_sample, of_population

    @property
    def _n_drawn(self) -> int:
        return max(_PEOPLE, _PEOPLE_PER_FEATURE * self.model.n_features)

    @property
    def _n_draws(self) -> int:
        wanted = np.clip(_DRAWN_FEATURES // self.model.n_features, _FEWEST_DRAWS, _MOST_DRAWS)
        return int(wanted) // _DRAWS_PER_BOUND * _DRAWS_PER_BOUND  # whole parts: each has a mean of its own

    def _releases(self, n: int, mu: float) -> list[_Release]:
        """Draws of min(n, m) people, each time that a bound is found for them; of a given bound, once."""
        m, bound = min(n, self._n_drawn), self.bound
        if not isinstance(bound, AutoPreprocessing):
            large = self._large_draws
            draws = large if m == self._n_drawn else self._draws(m, bound)
            return [_Release(bound, mu, draws, mean_moments([draw.moments for draw in large]))]
        found = []
        for first in range(0, self._n_draws, _DRAWS_PER_BOUND):
            numbers = range(first, first + _DRAWS_PER_BOUND)
            people = [self.people(number, m) for number in numbers]
            more = n / (m * len(people))  # than are there
            ledger = Ledger(mu * more)
            table = self.problem(tuple(np.concatenate(each) for each in zip(*people, strict=True)), bound)
            preprocessing = prepare_table(table, ledger, core.NoiseStream(first.to_bytes(32, "little")), mixed=True)
            left = mu if math.isinf(mu) else ledger.remaining / more
            draws = [self._draw(each, preprocessing) for each in people]
            if m < self._n_drawn:
                people = [self.people(number, self._n_drawn) for number in numbers]
                mean = mean_moments([exact_moments(self.problem(each, preprocessing)) for each in people])
            else:
                mean = mean_moments([draw.moments for draw in draws])
            found.append(_Release(preprocessing.bound, left, draws, mean))
        return found

    @cached_property
    def _large_draws(self) -> list[_Draw]:
        """Draws of m people, which serve any larger number where the bound is given."""
        assert not isinstance(self.bound, AutoPreprocessing)
        return self._draws(self._n_drawn, self.bound)

    def _draws(self, m: int, bound: float) -> list[_Draw]:
        return [self._draw(self.people(number, m), bound) for number in range(self._n_draws)]

    def _draw(self, data: tuple[Any, ...], bound: float | Preprocessing) -> _Draw:
        moments, k = exact_moments(self.problem(data, bound)), self.n_components
        if not isinstance(bound, Preprocessing):  # it also holds without noise
            return _Draw(moments, np.zeros(1 + k))
        longest = bound.largest * math.sqrt(self.model.n_features) * _ROOM
        if bound.linear is not None:
            longest *= float(np.linalg.norm(bound.linear, 2))
        unclipped = exact_moments(self.problem(data, replace(bound, bound=longest)))
        found, _ = _directions(self.model, moments, k, 0.0)
        return _Draw(moments, _Target.of(self.model, unclipped, k).errors(found))

    def problem(self, data: tuple[Any, ...], bound: float | AutoPreprocessing | Preprocessing) -> MomentProblem:
        """The problem of people whose rows are clipped to a bound, or mapped first."""
        clipping: dict[str, Any] = {"bound" if isinstance(bound, float) else "preprocessing": bound}
        return problem_of(self.model, *data, **clipping, adjacency=self.adjacency)

    def _noisy(
        self, exact: ReleasedMoments, noise: MomentNoise, facts: PublicFacts, generator: np.random.Generator
    ) -> ReleasedMoments:
        """Moments with noise, divided by the number of people, or by the one released."""
        n, layout = exact.n, layout_of(self.model, facts)
        second = exact.second + goe(len(exact.second), noise.second, generator)
        sums = exact.sums + noise.sums * generator.standard_normal(exact.sums.shape)
        counts = exact.counts + layout.counts * noise.counts * generator.standard_normal(exact.counts.shape)
        people = released_people(facts, int(n), counts * n)
        more = n / people
        shares = released_shares(layout, counts * n, people)
        return ReleasedMoments(sums * more, shares, people, noise.scaled(more, more, more), second * more)


@dataclass(frozen=True, eq=False)
class _Target:
    """The right components: ``right`` (1, d, K), orthonormal after ``root``, whose square is B."""

    root: Matrix
    right: Matrix

    @staticmethod
    def of(model: RowModel, moments: ReleasedMoments, k: int) -> _Target:
        noisy = model.noisy(_copy(moments))
        standard, pair = noisy.standardization, noisy.pair()
        root = norm_root(pair.b, len(pair.a)) if standard is None else np.diag(standard.scale)
        return _Target(root, _units(root @ _directions(model, moments, k, 0.0)[0])[None])

    def errors(self, found: Matrix) -> Matrix:
        """(1 + K,), squared sines: of the span, summed, and of each component; of one that few people lack, 1."""
        errors = squared_sines(self.right, _units(self.root @ found)[None])[0]
        lacking = ~self.right[0].any(axis=0)
        return np.asarray(np.maximum(errors, np.append(lacking.sum(), lacking)))


def _units(columns: Matrix) -> Matrix:
    norms = np.linalg.norm(columns, axis=0)
    return np.asarray(columns / np.where(norms > 0, norms, 1.0))


def _directions(model: RowModel, moments: ReleasedMoments, k: int, ridge: float) -> tuple[Matrix, float]:
    """(d, K), the leading directions of released moments, zero where B has a lower rank; the noise level."""
    noisy = model.noisy(_copy(moments))
    level, standard, pair = noisy.noise_of_b, noisy.standardization, noisy.pair()
    fallback = public_ridge(level) if level else 0.0
    vectors = solve_pair(pair.a, pair.b, regularization=ridge, rounding=pair.rounding, fallback=fallback).vectors[:, :k]
    if standard is not None:
        vectors = vectors / standard.scale[:, None]
    return np.hstack([vectors, np.zeros((len(vectors), k - vectors.shape[1]))]), pair.noise_level


def _copy(moments: ReleasedMoments) -> ReleasedMoments:
    return replace(moments, second=moments.second.copy())  # pairs overwrite it


def _least(
    error_at: Callable[[float], float], wanted: float, limits: tuple[float, float, float], nothing: str
) -> float:
    """The least argument, to ``_EXACTNESS``, of a falling function whose value is at most ``wanted``.

    ``limits``: where to start, the least, and the largest argument; ValueError, with ``nothing``, if that is too small.
    """
    start, lowest, highest = map(float, limits)
    error, low, high = cache(error_at), start, start
    while error(high) > wanted:
        if high >= highest:
            raise ValueError(f"{nothing} leaves an expected error of {wanted:g}: {error(high):.3g} is left")
        low, high = high, min(_STEP * high, highest)
    while error(low) <= wanted and low > lowest:
        low, high = max(low / _STEP, lowest), low
    if error(low) <= wanted:
        return low
    for step in itertools.count(1):
        if high <= _EXACTNESS * low:
            break
        # every third step halves, whatever the errors are like
        middle = math.sqrt(low * high) if step % 3 == 0 else _between(low, error(low), high, error(high), wanted)
        low, high = (low, middle) if error(middle) <= wanted else (middle, high)
    return high


def _between(low: float, above: float, high: float, below: float, wanted: float) -> float:
    """Where a power law through both ends takes the value, a step of the search away from either."""
    near = 1 + 0.9 * (_EXACTNESS - 1)
    if not 0 < below < above < math.inf:
        return math.sqrt(low * high)
    share = math.log(above / wanted) / math.log(above / below)
    middle = low * math.exp(share * math.log(high / low))
    return min(max(middle, low * near), high / near)
