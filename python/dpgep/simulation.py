"""A release of synthetic people, again and again: the errors that a plan tells.

People are drawn whose spectrum is the one that is public or hoped for: Gaussian rows about zero, or of Student's law.
They are summed, released and solved as `dpgep.solve` does it with ``method="release"``, from seeds that are the same in
every run.

Draws have a public number of people at most, m. For n > m their moments S are replaced by E + sqrt(m/n) (S - E), E
their mean over draws: fluctuations fall with the root of n. The stages of ``bound="auto"`` depend on n mu alone, so
they are bought from fewer people with more mu. By how much that turns the components is added to what noise does: of
moments of m people its mean is a bias, v/m of which is chance, and of n people v/n would be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgep._checks import require_count, require_one_of, require_positive
from dpgep._dispatch import core
from dpgep.methods.base import ReleaseOptions, component_count
from dpgep.methods.eigen import solve_pair
from dpgep.methods.ridge import norm_root, public_ridge, released_ridge, squared_sines, unit_columns
from dpgep.models import MODELS, FdaModel, SirModel, ViewsModel
from dpgep.models.model import BETWEEN, TOTAL, WITHIN, WITHIN_GROUPS, Adjacency, Matrix, MatrixPencil, PublicFacts
from dpgep.models.moments import NO_NOISE, MomentNoise, ReleasedMoments, goe
from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing
from dpgep.models.row_model import Classes, MomentsPencil, RowModel, Slices, layout_of, pencil_in_units
from dpgep.privacy.continual import KEPT, Factor
from dpgep.privacy.curator import release_moments, released_people, released_shares
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.noise import integer_noise
from dpgep.problems.problem import MomentProblem, problem_of
from dpgep.run import prepare_table

# People of a draw, more of many features. Public constants, as all that follow.
_PEOPLE, _PEOPLE_PER_FEATURE = 2048, 16
# Draws; this many find a bound together, and of this many one chooses a ridge, for itself and the others.
_MOST_DRAWS, _FEWEST_DRAWS, _DRAWN_FEATURES = 36, 6, 1800
_DRAWS_PER_BOUND, _DRAWS_PER_RIDGE = 6, 3
# Of the intervals over draws.
_LOW, _HIGH = 0.05, 0.95
# Room for rounding where a bound is to clip nobody.
_ROOM = 1 + 1e-9

#: names of the models that there are populations for
PLANNED = tuple(sorted({*MODELS} - {"table", "contrastive-pca"}))

# Fluctuations of second moments fall with the root of n where fourth moments exist.
_LEAST_TAILS = 4
# Least eigenvalue of a correlation matrix: of views that are inverted.
_LEAST_CORRELATION = 1e-9
# The variance of a column that few people agree about, of the largest mean square. A public constant.
_AGREED = 1e-6
# Of released moments, what varies from draw to draw.
_BLOCKS = ("second", "sums", "counts")


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
        if row is None:
            return f"{self.span:.2g} ({self.span_low:.2g} to {self.span_high:.2g})"
        return f"{self.mean[row]:.2g} ({self.low[row]:.2g} to {self.high[row]:.2g})"


class Outcome(NamedTuple):
    """What a simulation shows; the order is that of `Plan`."""

    bound: float
    share: float
    noise_level: float
    sample: PlannedErrors
    population: PlannedErrors


class _Draw(NamedTuple):
    """Moments of the same people, without noise: of clipped rows, and of rows as they are."""

    clipped: ReleasedMoments
    whole: ReleasedMoments


class _Release(NamedTuple):
    """How rows are mapped, and draws of people."""

    mapped: Preprocessing
    mu: float  # left for the answer
    draws: list[_Draw]
    mean: ReleasedMoments  # over draws of m people, which may be others
    bias: Matrix  # (1 + K,), errors that clipping makes in the mean for m people
    chance: Matrix  # (1 + K,), and besides


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulation:
    """A population and a release of it, but for the number of people and the budget.

    People have rows ``means[group] + length * normal @ root``; groups differ in their means alone.
    """

    model: RowModel  # one that `is_planned`
    spectrum: Matrix  # all eigenvalues that a component may have, descending
    deviation: float  # of the rows in any direction without signal (of differences between groups: within them)
    shares: Matrix  # (G,), of the groups; of everybody, where there are none
    mean: float = 0.0  # of every column, in units of `deviation`
    tails: float = math.inf  # degrees of freedom of Student's law, which rows have about their means; normal rows
    # (d, d), of the columns, within views and within groups; None: mixed at random, uncorrelated within these
    correlation: Matrix | None = None
    bound: float | AutoPreprocessing
    adjacency: Adjacency
    n_components: int
    nights: int = 1  # over which the people come, once each: the release is that of the last morning of `dpgep.Nights`

    def __post_init__(self) -> None:
        require_positive("deviation", self.deviation)
        require_count("nights", self.nights)
        if self.nights > 1 and isinstance(self.bound, AutoPreprocessing):
            raise ValueError('of nights, bound="auto" depends on the first: plan with a number as bound')
        most, size = largest_eigenvalue(self.model, self.deviation), self.model.max_components
        within = (self.spectrum >= 0) & (self.spectrum < most)
        if self.spectrum.shape != (size,) or not within.all() or self.spectrum[most_signals(self.model) :].any():
            raise ValueError(f"spectrum must be {size} numbers, none negative, below {most:g}")
        shares_of(self.model, None if self.model.grouping is None else self.shares.tolist())
        if not math.isfinite(self.mean) or (self.mean and not self.model.traits.shift_free):
            raise ValueError(f"mean must be a number, 0 for a model that is not centred, got {self.mean!r}")
        if not self.tails > _LEAST_TAILS:
            raise ValueError(f"tails must be more than {_LEAST_TAILS} degrees of freedom, got {self.tails!r}")
        if self.correlation is not None:
            correlation_of(self.model, self.correlation)
        component_count(self.model, self.n_components)
        if not isinstance(self.bound, AutoPreprocessing):
            require_positive("bound", self.bound)
        signal = int((self.spectrum > 0).sum())
        if self.n_components > signal:
            raise ValueError(f"n_components = {self.n_components}, but {signal} eigenvalues are positive")

    def people(self, number: int, m: int) -> tuple[Any, ...]:
        """A draw of m people, by its number: rows of each view, and labels or responses where there are any."""
        generator, (means, root) = np.random.default_rng([1, number]), self._laws[number // _DRAWS_PER_BOUND]
        groups = np.searchsorted(np.cumsum(self.shares)[:-1], generator.random(m), side="right")
        rows, around = means[groups], generator.standard_normal((m, len(root))) @ root
        if math.isfinite(self.tails):  # of the same covariance
            around *= np.sqrt((self.tails - 2) / generator.chisquare(self.tails, (m, 1)))
        rows += around + self.mean * self.deviation
        views = tuple(rows[:, view] for view in self.model.views)
        return views if self.model.grouping is None else (*views, _values_of(self.model.grouping)[groups])

    @cached_property
    def _laws(self) -> list[tuple[Matrix, Matrix]]:
        """Of the draws that find a bound together: directions are others for others, where a bound is found."""
        parts = range(self._n_draws // _DRAWS_PER_BOUND)
        return [self._law(part if isinstance(self.bound, AutoPreprocessing) else 0) for part in parts]

    def _law(self, number: int) -> tuple[Matrix, Matrix]:
        """The means (G, d) of the groups, and the root of the covariance within them."""
        model, spectrum, deviation, shares = self.model, self.spectrum, self.deviation, self.shares
        d, traits, generator = model.n_features, model.traits, np.random.default_rng(number)
        means, covariance = np.zeros((len(shares), d)), np.diag(np.full(d, deviation**2))
        if traits.standardized:
            correlation = self.correlation
            if correlation is None:
                from scipy.stats import random_correlation  # slow to import

                correlation = random_correlation.rvs(spectrum, random_state=generator, tol=1e-8)
            values, vectors = np.linalg.eigh(correlation)
            return means, deviation * np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        leading = np.arange(most_signals(model))
        spectrum = spectrum[leading]
        if traits.a == BETWEEN:  # each component is in all views, alike
            cross = spectrum * (1.0 if traits.b is None else deviation**2) / (len(model.views) - 1)
            for one, other in combinations(model.views, 2):
                covariance[one.start + leading, other.start + leading] = cross
                covariance[other.start + leading, one.start + leading] = cross
        elif traits.of_means:
            along = np.sqrt(spectrum)[:, None] * contrasts(shares)[: len(spectrum)]
            means[:, leading] = (1.0 if traits.b is None else deviation) * along.T / np.sqrt(shares)[:, None]
            if traits.b == TOTAL:  # eigenvalues are parts of the whole variance
                covariance[leading, leading] -= deviation**2 * spectrum
        else:
            covariance = np.diag(spectrum)
        values, vectors = np.linalg.eigh(covariance)
        rotation = np.zeros((d, d))
        for view in model.views:
            size = view.stop - view.start
            rotation[view, view] = np.linalg.qr(generator.standard_normal((size, size)))[0]
        if self.correlation is not None:  # a matrix that maps rows changes no eigenvalue of A and B
            rotation = rotation @ np.linalg.cholesky(self.correlation).T
        return means @ rotation, np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ rotation)

    @property
    def assumed(self) -> str:
        law = "normal" if math.isinf(self.tails) else f"Student's law with {self.tails:g} degrees of freedom"
        columns = f"columns uncorrelated within {'views' if self.model.view_sizes else 'groups'}"
        if self.correlation is not None:
            columns = "columns correlated as given"
        elif self.model.traits.standardized:
            columns = "any columns with these eigenvalues"
        elif self.model.traits.b is None:
            columns = "columns mixed at random"
        about = f"means of {self.mean:g} deviations" if self.mean else "about zero"
        return f"{law}, {about}; {columns}"

    def outcome(self, n: int, mu: float) -> Outcome:
        """Errors of n people with this budget."""
        mu *= Factor(KEPT).mu_of_sums(self.nights) if self.nights > 1 else 1.0
        releases = self._releases(n, mu)
        shown = [each for number, release in enumerate(releases) for each in self._shown_by(release, n, number)]
        levels, *errors = (np.array(each) for each in zip(*shown, strict=True))
        share = 1.0 if math.isinf(mu) else min(float(np.mean([each.mu for each in releases])) ** 2 / mu**2, 1.0)
        bound = float(np.median([each.mapped.bound for each in releases]))
        return Outcome(bound, share, float(levels.mean()), *map(PlannedErrors.over, errors))

    def _shown_by(self, release: _Release, n: int, number: int) -> Iterator[tuple[float, Matrix, Matrix]]:
        """Of each draw, the noise level, and errors beside the sample and the population."""
        model, k, noise, bound = self.model, self.n_components, NO_NOISE, release.mapped.bound
        facts = PublicFacts(self.adjacency, bound, n if self.adjacency == "replace-one" else None)
        if math.isfinite(release.mu):
            _, deviations = integer_noise(release.mu, layout_of(model, facts), self.adjacency, None)
            noise = deviations.scaled(bound**2 / n, bound / n, 1 / n)
        population, most = _Target.of(self._pencil(release.mean, release.mapped), k), np.append(float(k), np.ones(k))
        clipping = np.zeros(1 + k)
        if isinstance(self.bound, AutoPreprocessing):  # else it clips people at epsilon = infinity as well
            clipping = release.bias + release.chance * min(self._n_drawn / n, 1.0)
        multiple = 0.0
        for index, draw in enumerate(release.draws):
            sums = moments_of_more(draw.clipped, release.mean, n, len(release.draws), self._n_drawn)
            moments = self._noisy(sums, noise, facts, np.random.default_rng([2, number, index]))
            noisy = self._pencil(moments, release.mapped)
            level = noisy.noise_of_b or 0.0
            if index % _DRAWS_PER_RIDGE == 0 and level > 0:  # the ridge that the method chooses, in units of the noise
                multiple = released_ridge(noisy, k, level, None, sparse=False)[0] / level
            found, noise_level = _directions(noisy, k, multiple * level)
            target = _Target.of(self._pencil(sums, release.mapped), k)
            sample, of_all = target.errors(found) + clipping, population.errors(found) + release.bias
            yield noise_level, np.minimum(sample, most), np.minimum(of_all, most)

    @property
    def _n_drawn(self) -> int:
        return max(_PEOPLE, _PEOPLE_PER_FEATURE * self.model.n_features)

    @property
    def _n_draws(self) -> int:
        wanted = np.clip(_DRAWN_FEATURES // self.model.n_features, _FEWEST_DRAWS, _MOST_DRAWS)
        return int(wanted) // _DRAWS_PER_BOUND * _DRAWS_PER_BOUND  # whole parts: each has a mean of its own

    def _releases(self, n: int, mu: float) -> list[_Release]:
        """Draws of min(n, m) people, each time that a bound is found for them; of a given bound, once."""
        m, bound, model = min(n, self._n_drawn), self.bound, self.model
        if not isinstance(bound, AutoPreprocessing):
            large = self._large_draws
            draws = large if m == self._n_drawn else self._draws(m)
            return [self._release(Preprocessing(bound), mu, draws, large)]
        found = []
        for first in range(0, self._n_draws, _DRAWS_PER_BOUND):
            numbers = range(first, first + _DRAWS_PER_BOUND)
            people = [self.people(number, m) for number in numbers]
            more = n / (m * len(people))  # than are there
            ledger = Ledger(mu * more)
            table = self.problem(tuple(np.concatenate(each) for each in zip(*people, strict=True)), bound)
            scaled, seed = ReleaseOptions().in_units(model.n_features), first.to_bytes(32, "little")
            preprocessing = prepare_table(table, ledger, core.NoiseStream(seed), mixed=True, scaled=scaled)
            left = mu if math.isinf(mu) else ledger.remaining / more
            draws = [self._draw(each, preprocessing) for each in people]
            large = draws
            if m < self._n_drawn:
                large = [self._draw(self.people(number, self._n_drawn), preprocessing) for number in numbers]
            found.append(self._release(preprocessing, left, draws, large))
        return found

    def _release(self, mapped: Preprocessing, mu: float, draws: list[_Draw], large: list[_Draw]) -> _Release:
        """Clipped moments differ from whole ones by a bias b^2 and v/m of chance; means over draws by a part of v/m."""
        k, count = self.n_components, len(large)
        whole, mean = (mean_moments([each[part] for each in large]) for part in (1, 0))

        def errors(one: ReleasedMoments, other: ReleasedMoments) -> Matrix:
            return _Target.of(self._pencil(other, mapped), k).errors(_directions(self._pencil(one, mapped), k, 0.0)[0])

        single = np.mean([errors(*each) for each in large], axis=0)
        together = errors(mean, whole)
        chance = np.maximum(single - together, 0.0) * count / (count - 1)
        return _Release(mapped, mu, draws, mean, np.maximum(single - chance, 0.0), chance)

    def _pencil(self, moments: ReleasedMoments, mapped: Preprocessing) -> MomentsPencil:
        pencil = cast(MomentsPencil, pencil_in_units(self.model, moments, mapped))
        return pencil if pencil.scale is None else replace(pencil, scale=mapped.scale)

    @cached_property
    def _large_draws(self) -> list[_Draw]:
        return self._draws(self._n_drawn)

    def _draws(self, m: int) -> list[_Draw]:
        assert not isinstance(self.bound, AutoPreprocessing)
        return [self._draw(self.people(number, m), self.bound) for number in range(self._n_draws)]

    def _draw(self, data: tuple[Any, ...], bound: float | Preprocessing) -> _Draw:
        rows = np.hstack(data[: len(self.model.views)])
        whole: float | Preprocessing
        if isinstance(bound, Preprocessing):
            rows = rows if bound.location is None else rows - bound.location
            rows = rows if bound.scale is None else rows / bound.scale
            largest = max(float(np.abs(rows).max()) * _ROOM, bound.largest)
            longest = largest * math.sqrt(self.model.n_features) * _ROOM
            longest *= 1.0 if bound.linear is None else float(np.linalg.norm(bound.linear, 2))
            whole = replace(bound, bound=longest, largest=largest)
        else:
            whole = max(float(np.linalg.norm(rows, axis=1).max()) * _ROOM, bound)
        return _Draw(*(exact_moments(self.problem(data, each)) for each in (bound, whole)))

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
    def of(exact: MomentsPencil, k: int) -> _Target:
        standard, pair = exact.standardization, _pair(exact)
        root = norm_root(pair.b, len(pair.a)) if standard is None else np.diag(standard.scale)
        return _Target(root, unit_columns(root @ _directions(exact, k, 0.0)[0])[None])

    def errors(self, found: Matrix) -> Matrix:
        """(1 + K,), squared sines: of the span, summed, and of each component; of one that few people lack, 1."""
        errors = squared_sines(self.right, unit_columns(self.root @ found)[None])[0]
        lacking = ~self.right[0].any(axis=0)
        return np.asarray(np.maximum(errors, np.append(lacking.sum(), lacking)))


def _directions(noisy: MomentsPencil, k: int, ridge: float) -> tuple[Matrix, float]:
    """(d, K), the leading directions of released moments, zero where B has a lower rank; the noise level."""
    level, standard, pair = noisy.noise_of_b, noisy.standardization, _pair(noisy)
    fallback = public_ridge(level) if level else 0.0
    vectors = solve_pair(pair.a, pair.b, regularization=ridge, rounding=pair.rounding, fallback=fallback).vectors[:, :k]
    if standard is not None:
        vectors = vectors / standard.scale[:, None]
    return np.hstack([vectors, np.zeros((len(vectors), k - vectors.shape[1]))]), pair.noise_level


def _pair(noisy: MomentsPencil) -> MatrixPencil:
    return replace(noisy, released=replace(noisy.released, second=noisy.released.second.copy())).pair()  # overwrites it


def _values_of(grouping: Classes | Slices) -> NDArray[Any]:
    """A label of each class, or a response in each slice, to which its lower edge belongs."""
    if isinstance(grouping, Slices):
        return np.array([-math.inf, *grouping.interior_edges])
    return np.fromiter(grouping.labels, dtype=object, count=grouping.n_groups)


def exact_moments(problem: MomentProblem) -> ReleasedMoments:
    """Moments of synthetic people, without noise; of few, who may agree, columns to be standardized vary a little."""
    moments = release_moments(problem, math.inf, core.NoiseStream(bytes(32)), lambda entry: None)
    standard = problem.model.noisy(moments).standardization
    if standard is None or standard.scale.all():
        return moments
    constant, second = np.flatnonzero(standard.scale == 0), moments.second.copy()
    second[constant, constant] += _AGREED * float(np.diagonal(moments.second).max())
    return replace(moments, second=second)


def mean_moments(draws: Sequence[ReleasedMoments]) -> ReleasedMoments:
    return replace(draws[0], **{name: np.mean([getattr(draw, name) for draw in draws], axis=0) for name in _BLOCKS})


def moments_of_more(draw: ReleasedMoments, mean: ReleasedMoments, n: int, n_draws: int, most: int) -> ReleasedMoments:
    """Moments of n people from the moments of a draw of at most ``most``, and their mean over draws."""
    if n < most:
        return replace(draw, n=float(n))
    share = math.sqrt(most / n * n_draws / (n_draws - 1))  # of what varies: the mean of all draws does, too
    pairs = {name: (getattr(mean, name), getattr(draw, name)) for name in _BLOCKS}
    return replace(draw, n=float(n), **{name: middle + share * (own - middle) for name, (middle, own) in pairs.items()})


def is_planned(model: object) -> bool:
    """Whether there are populations for a model: of scatters whose eigenvalues such rows can have."""
    if not isinstance(model, RowModel) or model.traits.by_group:
        return False
    return model.traits.a is not None and model.traits.b in (None, TOTAL, WITHIN_GROUPS, WITHIN)


def model_named(
    name: str, d: int | Sequence[int] | None, spectrum: ArrayLike | None, shares: Sequence[float] | None
) -> RowModel:
    """The model of a name, centred, with a group for each of ``shares``."""
    require_one_of("model", name, PLANNED)
    kind: Any = MODELS[name]
    found: RowModel
    if issubclass(kind, ViewsModel):
        if not isinstance(d, Sequence):
            raise ValueError(f"the {'two ' * (name != 'multiset-cca')}views of {name!r} need d=(d_x, d_y), got {d!r}")
        found = kind(tuple(require_count(f"d[{i}]", size) for i, size in enumerate(d)), center=True)
        return found
    features = require_count("d", d)
    if kind is FdaModel:
        n_classes = (1 if spectrum is None else np.size(spectrum)) + 1 if shares is None else len(shares)
        found = FdaModel(features, classes=tuple(range(n_classes)))
    elif kind is SirModel:
        n_slices = 10 if shares is None else len(shares)
        found = SirModel(features, interior_edges=tuple(map(float, range(1, n_slices))))
    else:
        found = kind(features, center=True)
    return found


def largest_eigenvalue(model: RowModel, deviation: float) -> float:
    """What no eigenvalue of a population may reach."""
    traits = model.traits
    if traits.a == BETWEEN:
        return (len(model.views) - 1) * (deviation**2 if traits.b is None else 1.0)
    if traits.standardized:
        return float(model.n_features)
    return 1.0 if traits.of_means and traits.b == TOTAL else math.inf


def usual_eigengap(model: RowModel) -> float:
    """A signal to plan for in columns of deviation 1: 1 where nothing limits eigenvalues, else 1/2."""
    return 1.0 if math.isinf(largest_eigenvalue(model, 1.0)) else 0.5


def most_signals(model: RowModel) -> int:
    """How many eigenvalues a signal may change: between views, each is in all of them."""
    return min(model.view_sizes, default=model.max_components)


def spectrum_of(model: RowModel, spectrum: ArrayLike | None, eigengap: float | None, deviation: float) -> Matrix:
    """All eigenvalues of a population, descending: as given, then as of rows without signal."""
    size, signals, traits = model.max_components, most_signals(model), model.traits
    rest = deviation**2 if traits.equal_eigenvalues and not traits.standardized else 0.0
    if eigengap is not None:
        require_positive("eigengap", eigengap)
        given = np.array([(1 - eigengap / size if traits.standardized else rest) + eigengap])
    else:
        given = np.atleast_1d(np.asarray(spectrum, dtype=float))
    most = largest_eigenvalue(model, deviation)
    if given.ndim != 1 or not 1 <= len(given) <= signals or not ((given >= 0) & (given < math.inf)).all():
        raise ValueError(f"spectrum must be 1 to {signals} finite numbers, none negative, got {spectrum!r}")
    if not (given < most).all():
        raise ValueError(f"the eigenvalues of this population must be below {most:g}, got {given.max():g}")
    if traits.standardized:
        rest = max(size - float(given.sum()), 0.0) / max(size - len(given), 1)
    return of_model(model, np.sort(np.append(given, np.full(size - len(given), rest)))[::-1])


def correlation_of(model: RowModel, correlation: ArrayLike) -> Matrix:
    """(d, d), a correlation matrix of the columns, within views; a number r is r^|i - j| in each view."""
    if not model.traits.standardized and model.traits.b is None:
        raise ValueError(f"correlation is of standardized columns, views, classes or slices: {model.name} has none")
    d, array = model.n_features, np.asarray(correlation, dtype=float)
    if array.ndim == 0:
        if not -1 < array < 1:
            raise ValueError(f"the correlation of neighbours must be between -1 and 1, got {array:g}")
        array = array ** np.abs(np.subtract.outer(range(d), range(d)))
    elif array.shape != (d, d) or not np.allclose(array, array.T) or not np.allclose(np.diagonal(array), 1.0):
        raise ValueError(f"correlation must be a number, or a symmetric {d} x {d} matrix with ones on its diagonal")
    within = np.zeros((d, d))
    for view in model.views:
        within[view, view] = array[view, view]
    if np.linalg.eigvalsh(within)[0] < _LEAST_CORRELATION:
        raise ValueError("correlation must be positive definite in each view")
    return within


def of_model(model: RowModel, values: Matrix) -> Matrix:
    return np.asarray(values * (len(values) / values.sum()) if model.traits.standardized else values)


def shares_of(model: RowModel, shares: Sequence[float] | None) -> Matrix:
    n_groups = 1 if model.grouping is None else model.grouping.n_groups
    if shares is None:
        return np.full(n_groups, 1 / n_groups)
    array = np.asarray(shares, dtype=float)
    if model.grouping is None:
        raise ValueError(f"shares are of classes or slices, which {model.name} has none of")
    if array.shape != (n_groups,) or not (array > 0).all() or abs(array.sum() - 1) > 1e-6:
        raise ValueError(f"shares must be {n_groups} positive numbers that add up to 1, got {shares!r}")
    return np.asarray(array / array.sum())


def contrasts(shares: Matrix) -> Matrix:
    """(G - 1, G), orthonormal rows, all orthogonal to the roots of the shares: means that add up to zero."""
    groups = np.arange(len(shares))
    waves = np.cos(np.pi * np.outer(groups + 0.5, groups) / len(shares)) * np.sqrt(shares)[:, None]
    return np.asarray(np.linalg.qr(waves)[0][:, 1:].T)
