"""`dpgep.planning.plan`: what a release will show, before there are data.

No data are involved, and nothing is protected or paid: a plan is what a simulation shows (`dpgep.simulation`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dpgep import simulation
from dpgep._checks import require_count, require_one_of, require_people, require_positive
from dpgep.data.inputs import clipping_of
from dpgep.methods.base import component_count
from dpgep.models.model import Adjacency, Matrix
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.row_model import RowModel
from dpgep.privacy.accounting import Accounting, epsilon_of, epsilon_of_rho, rho_from_mu
from dpgep.privacy.budget import Budget
from dpgep.privacy.ledger import down, up
from dpgep.serialization import Format, Target, save
from dpgep.simulation import PlannedErrors, Simulation

__all__ = ["Plan", "plan"]

Against = Literal["sample", "population"]

# How far `Plan.people_for` and its like search, and how exactly.
_MOST_PEOPLE, _MOST_EPSILON, _LEAST_EPSILON = 10**12, 1e6, 1e-6
_STEP, _EXACTNESS = 4.0, 1.03
# A component with this squared sine is as much noise as signal.
_SEEN = 0.5

PLAN = Format("dpgep-plan")


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What `dpgep.solve` is expected to find: returned by `dpgep.planning.plan`, which says under which assumptions.

    Attributes
    ----------
    model : what is to be computed.
    n, mu : number of people, and the Gaussian-DP parameter of the budget.
    bound : on the norm of rows: as given, or as ``bound="auto"`` would find it, in units of the rows that it maps.
    share : the part of mu^2 that is left for the answer; 1 for a given bound.
    noise_level : expected operator norm of the noise in B, or in A where B is the identity, in such units.
    sample : `PlannedErrors` of the noise alone, against the components of the same people at epsilon = infinity: what
        ``solution.diagnostics.expected_error`` will estimate. A given bound clips both.
    population : `PlannedErrors` of noise and sampling, against the components of the population.
    releases : how many releases there are to be, each for ``mu``: see `Plan.epsilon_after`.
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
    releases: int = 1

    def __post_init__(self) -> None:
        require_people("n", self.n)
        require_count("releases", self.releases)
        if self.n < 2:
            raise ValueError(f"a plan is for two people or more, got n = {self.n!r}")
        if not (self.mu > 0 and self.bound > 0 and 0 < self.share <= 1):
            raise ValueError("mu, bound and share of a plan must be positive")
        if not simulation.is_planned(self.model) or self._setting.model != self.model:
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

    def mu_after(self, releases: int) -> float:
        """The Gaussian-DP parameter of this many releases about the same people, each as planned: mu sqrt(k).

        Gaussian mechanisms compose in mu^2 under either adjacency, whatever was released before the next is chosen.
        Rounded up. A person who is in one of the releases alone has mu still.
        """
        return self.mu * math.sqrt(require_count("releases", releases)) * (1 + 2.0**-50)

    def epsilon_after(self, releases: int) -> float:
        """The epsilon, at the plan's delta, of this many releases about the same people: rounded up.

        ValueError for a plan whose budget has no delta: see `Plan.mu_after`.
        """
        mu, delta = self.mu_after(releases), self._given_delta()
        if releases == 1 and self._epsilon is not None:
            return self._epsilon
        return epsilon_of(mu, delta) if self._accounting == "gdp" else epsilon_of_rho(rho_from_mu(mu), delta)

    def _given_delta(self) -> float:
        if self._delta is None:
            raise ValueError("an epsilon needs a delta: plan with epsilon= and delta=, not with rho= or mu=")
        return self._delta

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
        self._given_delta()
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
        number K + 1 on are as planned; one leading eigenvalue is above them. Of given correlations of standardized
        columns, eigenvalues alone are kept.
        """
        require_positive("error", error)
        setting, k = self._setting, self._setting.n_components
        alike = replace(setting, correlation=None) if self.model.traits.standardized else setting
        rest, largest = setting.spectrum[k:], setting.spectrum[0]
        if not len(rest) and self.model.traits.equal_eigenvalues:
            raise ValueError(f"all {k} eigenvalues were planned to lead: plan fewer components")
        next_one = float(rest[0]) if len(rest) else 0.0
        most = simulation.largest_eigenvalue(self.model, setting.deviation) - next_one

        def spectrum(gap: float) -> Matrix:
            return simulation.of_model(self.model, np.concatenate([[next_one + gap], np.full(k - 1, next_one), rest]))

        def error_at(gap: float) -> float:
            return replace(alike, spectrum=spectrum(gap), n_components=1).outcome(self.n, self.mu).population.span

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
        lines = [
            f"Plan of {self.model.name}: {k} component{'s' * (k != 1)} in {self.model.n_features} features "
            f"of {self.n} people",
            f"  privacy      {budget}, {setting.adjacency}",
            *self._together(),
            f"  rows         {setting.assumed}",
            f"  bound        {bound}",
            f"  noise level  {self.noise_level:.3g}",
            "    k  expected error (5 to 95 %)         with sampling of the people",
            *(f"{i + 1:5d}  {self.sample.shown(i):33}  {self.population.shown(i)}" for i in range(k)),
        ]
        if k > 1:
            lines.append(f" span  {self.sample.shown():33}  {self.population.shown()}")
        return "\n".join(lines)

    def _together(self) -> Iterator[str]:
        """What several releases reveal together, and what each may cost if all are to stay within the budget."""
        if (nights := self._setting.nights) > 1:
            yield f"  nights       {nights}, of other people each: the last morning of dpgep.Nights, all for one budget"
        if self.releases == 1:
            return
        together, each = f"mu = {up(self.mu_after(self.releases))}", self.mu / math.sqrt(self.releases)
        alone = f"mu = {down(each)}"
        if self._epsilon is not None and self._delta is not None:
            together = f"epsilon = {up(self.epsilon_after(self.releases), 3)} ({together})"
            alone = f"epsilon = {down(epsilon_of(each, self._delta), 3)}"
        together += f" together; within the budget: {alone} each"
        yield f"  releases     {self.releases} about the same people: {together}"


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
    mean: float = 0.0,
    tails: float = math.inf,
    correlation: ArrayLike | None = None,
    n_components: int = 1,
    adjacency: Adjacency = "replace-one",
    releases: int = 1,
    nights: int = 1,
) -> Plan:
    """The error to expect of `dpgep.solve`, without data: from public numbers and a spectrum that is hoped for.

    Synthetic rows are Gaussian about zero, with this spectrum, in columns that are mixed at random (within each view);
    groups differ in their means alone. They are released and solved as ``method="release"`` does it, dense, with the
    ridge that it chooses. What errors hang on besides can be given: long tails, which lose more to the bound, by
    ``tails``; correlated columns, where B is nearly singular, by ``correlation``; rows far from zero, which cost the
    noise of their mean, by ``mean``. The same arguments give the same plan.

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
    mean : float
        Of every column, in units of ``deviation``, in a centred model. Default: 0, as if public locations were
        subtracted.
    tails : float
        Degrees of freedom, above 4, of Student's law, which rows have about their means, with the same covariance: long
        rows are long in all columns. Default: infinite, normal rows. About 5 for incomes, say, or daily returns.
    correlation : float, or array_like of shape (d, d)
        Of the columns: a matrix; or that of neighbours, r, for r^|i - j| between columns i and j. Standardized PCA: in
        place of a spectrum. CCA, FDA, SIR: within each view, class or slice, together with a spectrum; default: none.
    n_components : int
        K, 1 by default. Of components with equal eigenvalues only the span means something.
    adjacency : {"replace-one", "add-remove"}
        As in the problem; under "add-remove" the number of people is protected.
    releases : int
        How many releases there will be about the same people, each with this budget: the plan says what a person's
        guarantee is after all of them.
    nights : int
        Over how many nights the people come, once each: the plan is of the last morning's release of `dpgep.Nights`,
        for one budget. Needs a number as ``bound``.

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
    if isinstance(model, str):
        model = simulation.model_named(model, d, spectrum, shares)
    elif d is not None:
        raise ValueError("d belongs to a model that is given by name")
    if not simulation.is_planned(model):
        raise TypeError(
            f"model must be a model of rows that plans know, such as dpgep.models.PcaModel(20, True), got "
            f"{type(model).__name__}"
        )
    given = None if correlation is None else simulation.correlation_of(model, correlation)
    if given is not None and model.traits.standardized:
        if (spectrum, eigengap) != (None, None):
            raise ValueError("give either a correlation matrix or its eigenvalues")
        spectrum = np.maximum(np.linalg.eigvalsh(given)[::-1], 0.0)
    elif (spectrum is None) == (eigengap is None):
        raise ValueError("give either a spectrum or an eigengap")
    clipping = clipping_of(bound, preprocessing)
    if isinstance(clipping, Preprocessing):
        raise TypeError("preprocessing is of rows in their own units: give its bound, and a spectrum of mapped rows")
    if isinstance(clipping, AutoPreprocessing) and clipping.ranges:
        raise ValueError("ranges are in units of columns, which a plan does not know: plan without them")
    setting = Simulation(
        model=model,
        spectrum=simulation.spectrum_of(model, spectrum, eigengap, float(deviation)),
        deviation=float(deviation),
        shares=simulation.shares_of(model, shares),
        mean=float(mean),
        tails=float(tails),
        correlation=given,
        bound=clipping,
        adjacency=adjacency,
        n_components=component_count(model, n_components),
        nights=nights,
    )
    outcome = setting.outcome(people, budget.mu)
    return Plan(
        model, people, budget.mu, *outcome, setting, budget.epsilon, budget.delta, accounting,
        require_count("releases", releases),
    )  # fmt: skip


def _least(
    error_at: Callable[[float], float], wanted: float, limits: tuple[float, float, float], nothing: str
) -> float:
    """The least argument, to ``_EXACTNESS``, of a falling function with at most the value ``wanted``."""
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
