"""The curator, the only part that holds data, and what is asked of it most: one release of all that a model needs.

It answers a query if the ledger can pay, and records the release. A query is a record in the module of its mechanism,
which says how each kind of problem answers it with noise. What it returns is public. A release has integer sums of
rows, or A and B, with exactly rounded normal noise. For A and B in matrix form the caller vouches for their
sensitivities; they are rounded to a public grid.

`Stages` answers about a table before its bound is known: exact sums with noise, each a release of its own in the
ledger. Neighbours differ in the row of one person. Where it is replaced (added or removed), the square of the change,
in units of a person, is at most

    2 d' (d')   in a histogram of d' columns: two counts (one) of each;
    2 (1)       in a histogram of norms;
    4 d (3 d)   in the sums of u, of u^2 and of the people with a value, of d columns, |u| <= 1;
    4 (1)       in a sum of rows in the unit ball.

Proof: proofs/Stages.v, which Coq checks.

Where people have weights, one who is replaced may count for nothing: that is no more than being taken out.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep._watched import watching
from dpgep.data.dataset import Dataset, PreprocessedDataset
from dpgep.data.integer_moments import LOW_BITS, IntegerMoments
from dpgep.data.integer_sums import PLACE_BITS, ColumnSums, GridSums, Integers, MagnitudeCounts, NormCounts, PlaceCounts
from dpgep.data.rows import S
from dpgep.errors import PrivacyBudgetError, PrivacyWarning, warn
from dpgep.models import PcaModel, ReleasedMatrices
from dpgep.models.bins import Interval
from dpgep.models.model import Matrix, Model, PublicFacts, PublicSide
from dpgep.models.moments import NO_NOISE, MomentLayout, MomentNoise, ReleasedGroups, ReleasedMoments
from dpgep.models.preprocessing import Preprocessing
from dpgep.privacy.ledger import IN_OCTAVES, IN_PLACES, NORMS, Charge, Ledger, LedgerEntry, NoiseBlock
from dpgep.privacy.noise import (
    COUNTS,
    MOST_SCALE_BITS,
    SECOND,
    SUMS,
    TOTAL,
    IntegerNoise,
    add_grid_noise,
    integer_noise,
    least_scale,
    matrix_deviations,
)
from dpgep.privacy.rounding import Allowance, released_matrix_allowance
from dpgep.problems.mergeable_moments import SummedProblem
from dpgep.problems.problem import MatrixProblem, MomentProblem, Problem, prepared_problem

Answer = TypeVar("Answer", covariant=True)
# Stages release on the grid 2^-_BITS of one person.
_BITS = 2 * PLACE_BITS
# No stage gets less than this part of a run's mu.
_SMALLEST_PART = 2.0**-10


def noise_stream(seed: Any = None) -> core.NoiseStream:
    """A new stream; with a seed (a whole number) it is reproducible, and a `PrivacyWarning` is issued."""
    if seed is None:
        return core.NoiseStream(transcript=watched_draws())
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    warn("a seeded run is not private: anyone who knows the seed can subtract the noise", PrivacyWarning)
    key = hashlib.sha256(f"dpgep seed {operator.index(seed)}".encode()).digest()
    return core.NoiseStream(key, transcript=watched_draws())


def watched_draws() -> core.Transcript | None:
    """For a new stream: None, but in an audit."""
    transcript = watching.get()
    return transcript.draws if transcript is not None and transcript.is_open else None


class Query(Protocol[Answer]):
    """What a method asks: `answer` is its mechanism, for ``mu``; ``charge`` records the cost before noise is drawn."""

    def answer(self, problem: Any, mu: float, stream: core.NoiseStream, charge: Charge) -> Answer: ...


class Curator:
    """Holds a problem's data; answers with noise; pays. A method may read ``public``, its ``model`` and ``facts``."""

    def __init__(self, problem: Problem, ledger: Ledger, stream: core.NoiseStream) -> None:
        self.public: PublicSide = problem.public
        self.model, self.facts = self.public.model, self.public.facts
        self._problem, self._ledger, self._stream = problem, ledger, stream

    @property
    def noiseless(self) -> bool:
        """Whether epsilon is infinite."""
        return math.isinf(self.remaining)

    @property
    def remaining(self) -> float:
        """The mu that is left."""
        return self._ledger.remaining

    @property
    def target(self) -> tuple[float, float]:
        """The (epsilon, delta) of a run; PrivacyBudgetError unless it is for this run alone."""
        return self._ledger.whole_target()

    def public_generator(self) -> np.random.Generator:
        """Randomness that need not stay secret, for starting points; reproducible where the noise is seeded."""
        return np.random.default_rng(int.from_bytes(self._stream.bytes(16), "little"))

    def answer(self, query: Query[Answer], share: float | None = None, purpose: str = "") -> Answer:
        """The answer to a query, for a ``share`` of the ledger's mu^2 (default: all that is left).

        Whether the ledger can pay is checked before data are read; ``purpose`` is shown in the ledger. Raises
        PrivacyBudgetError if it cannot, or if the ``target`` of a query about samples is not that of the ledger.
        """
        if (target := getattr(query, "target", None)) is not None and target != self._ledger.whole_target():
            raise PrivacyBudgetError(
                "answers about samples are for all of a run's (epsilon, delta), curator.target: this query is for "
                "another; no data was read and nothing was spent"
            )

        def charge(entry: LedgerEntry) -> None:
            self._ledger.record(replace(entry, query=f"{purpose}: {entry.query}"))

        mu = self._ledger.affordable(share)
        return query.answer(self._problem, mu, self._stream, charge if purpose else self._ledger.record)

    def keep_sums(self) -> None:
        """Announces several releases: their exact sums are kept, if they are sums of rows."""
        self._problem = self._problem.keeping_sums()


def release_matrices(problem: MatrixProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> ReleasedMatrices:
    """A and B (where given) for mu together; without noise for mu = inf."""
    prepared = prepare_matrices(problem, mu, partial(released_matrix_allowance, d=problem.model.n_features))
    charge(LedgerEntry("A and B", mu, matrix_blocks(problem, prepared.noise_a, prepared.noise_b)))
    a = add_grid_noise(prepared.a, prepared.noise_a, stream, symmetric=True)
    b = None if prepared.b is None else add_grid_noise(prepared.b, prepared.noise_b, stream, symmetric=True)
    return ReleasedMatrices(a, b, prepared.noise_a, prepared.noise_b)


def prepare_matrices(
    problem: MatrixProblem, mu: float, allowance: Callable[[float], tuple[Allowance, float]]
) -> ReleasedMatrices:
    """A and B before noise, and noise deviations that cost ``mu`` including rounding.

    ``allowance`` gives, for the mu of a matrix, the cost of rounding and the Frobenius norm, in deviations, up to which
    it is valid: a larger matrix, of at least some 10^6 deviations, is scaled down to that norm, which moves no two
    matrices further apart.
    """
    a, b = problem.a.copy(), None if problem.b is None else problem.b.copy()
    if math.isinf(mu):
        return ReleasedMatrices(a, b, 0.0, 0.0)
    parts = (problem.sensitivity_a > 0) + (problem.sensitivity_b > 0)
    part = mu / math.sqrt(parts) * (1 - 2.0**-50)
    rounding, radius = allowance(part)
    noise_a, noise_b = matrix_deviations(problem, rounding.within(part) * math.sqrt(parts) * (1 - 2.0**-50))
    shrink(a, radius * noise_a)
    if b is not None:
        shrink(b, radius * noise_b)
    return ReleasedMatrices(a, b, noise_a, noise_b)


def shrink(matrix: Matrix, radius: float) -> None:
    """Project a private matrix (radius > 0) onto the Frobenius ball."""
    if radius == 0:
        return
    norms = np.array([np.linalg.norm(row) for row in matrix / radius])  # no sum of more than d squares
    norm = math.sqrt(math.fsum(norms * norms))
    if norm > 1:
        matrix /= norm


def matrix_blocks(problem: MatrixProblem, noise_a: float, noise_b: float, shape: str = "goe") -> tuple[NoiseBlock, ...]:
    """The ledger's description of the noise in A and B."""
    named = [("A", noise_a, problem.sensitivity_a)]
    if problem.b is not None:
        named.append(("B", noise_b, problem.sensitivity_b))
    return tuple(NoiseBlock(name, shape if c else "none: declared public", noise) for name, noise, c in named)


@dataclass(frozen=True)
class Release:
    """Everything that the model needs, in one release."""

    def answer(
        self, problem: Problem, mu: float, stream: core.NoiseStream, charge: Charge
    ) -> ReleasedMoments | ReleasedMatrices:
        if isinstance(problem, MatrixProblem):
            return release_matrices(problem, mu, stream, charge)
        return release_moments(cast(Summable, problem), mu, stream, charge)


@dataclass(frozen=True, eq=False)
class FeatureRelease:
    """The same for some features only, with their model; rows are clipped to a public ``bound`` without the others."""

    features: NDArray[np.intp]
    bound: float

    def answer(
        self, problem: Problem, mu: float, stream: core.NoiseStream, charge: Charge
    ) -> tuple[Model, ReleasedMoments | ReleasedMatrices]:
        some = problem.restricted(self.features, self.bound)
        return some.model, Release().answer(some, mu, stream, charge)


@dataclass(frozen=True)
class LocalReports:
    """The mean of local reports x x^T + Z of all n people, in one draw: n independent GOE(s) sum to a GOE(s sqrt(n)).

    Each person spends mu on a report, as if a curator had spent mu/sqrt(n).
    """

    def answer(self, problem: Summable, mu: float, stream: core.NoiseStream, charge: Charge) -> ReleasedMoments:
        n = problem.facts.n
        if not problem.model.traits.is_second_moment or n is None:
            raise ValueError("local reports contain only x x^T, from a public number of people")

        def charge_each(entry: LedgerEntry) -> None:
            charge(replace(entry, query=f"mean of {n} local reports", mu=mu))

        return release_moments(problem, mu / math.sqrt(n), stream, charge_each)


Summable: TypeAlias = MomentProblem | SummedProblem


def release_moments(problem: Summable, mu: float, stream: core.NoiseStream, charge: Charge) -> ReleasedMoments:
    """Second moment, sums and counts for mu; without noise for mu = inf."""
    return _plain(problem, charge) if math.isinf(mu) else _exact(problem, mu, stream, charge)


def _exact(problem: Summable, mu: float, stream: core.NoiseStream, charge: Charge) -> ReleasedMoments:
    """Integer moments plus exactly rounded normal deviates: post-processing of the ideal Gaussian mechanism."""
    layout = problem.layout
    noise, deviations = integer_noise(mu, layout, problem.facts.adjacency, problem.grid_bits, problem.weight_bits)
    moments = problem.integer_moments(noise.bits)
    # of weighted rows, too, values lie on the grid 4^-b: the bits of a weight are an even number
    grid_bits = noise.bits + noise.weight_bits // 2
    charge(LedgerEntry("moment matrix", mu, noise_blocks(noise, deviations, problem.facts, layout), grid_bits))
    add_noise(moments, noise, stream)
    return normalized_moments(problem.facts, layout, moments.n, moments.to_float(), deviations)


def share_entry(
    mu: float, share: IntegerNoise, facts: PublicFacts, layout: MomentLayout, parties: int, colluding: int
) -> LedgerEntry:
    """The entry of a masked sum over sites that each add a share of the noise."""
    query = (
        f"moment matrix, masked sum of {parties} sites that follow the protocol, against whoever knows the noise of at "
        f"most {colluding} of them"
    )
    if math.isinf(mu):
        return LedgerEntry(query, mu, ())
    blocks = noise_blocks(share, summed_shares(share, parties), facts, layout)
    return LedgerEntry(
        query, mu, tuple(replace(block, scale=None) for block in blocks), share.bits + share.weight_bits // 2
    )


def summed_shares(share: IntegerNoise, parties: int) -> MomentNoise:
    """The deviations of the sum of all shares, in units of rows in the unit ball."""
    return share.deviations().scaled(*[math.sqrt(parties)] * 3)


@dataclass(frozen=True)
class NoiseShare:
    """Sums with a site's share of the noise, which are to be masked: it is less than what ``entry`` pays for."""

    noise: IntegerNoise
    entry: LedgerEntry

    def answer(self, problem: SummedProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> IntegerMoments:
        sums = problem.integer_moments(self.noise.bits)
        charge(self.entry)
        if self.noise.diagonal:
            add_noise(sums, self.noise, stream)
        return sums


def add_noise(moments: IntegerMoments, noise: IntegerNoise, stream: core.NoiseStream) -> None:
    threads, (second, sums, counts) = thread_count(), moments.high or (None, None, None)
    stack = moments.second if moments.second.ndim == 3 else moments.second[None]
    for group, matrix in enumerate(stack):
        high = second if second is None or second.ndim == 2 else second[group]
        core.add_exact_symmetric_noise(matrix, noise.diagonal, noise.off_diagonal, stream, threads, high, LOW_BITS)
    if moments.sums.size:
        core.add_exact_noise(moments.sums, noise.sums, stream, threads, sums, LOW_BITS)
    if moments.counts.size:
        core.add_exact_noise(moments.counts, noise.counts, stream, threads, counts, LOW_BITS)


def _plain(problem: Summable, charge: Charge) -> ReleasedMoments:
    """No noise, and no fixed point where there are rows: what a non-private solver computes, at infinite cost."""
    n, blocks, clipped = problem.plain_sums()
    charge(LedgerEntry("moment matrix", math.inf, ()))
    return replace(normalized_moments(problem.facts, problem.layout, n, blocks, NO_NOISE), clipped=clipped)


def normalized_moments(
    facts: PublicFacts, layout: MomentLayout, n: int, blocks: tuple[Matrix, Matrix, Matrix], noise: MomentNoise
) -> ReleasedMoments:
    """Released sums over people, divided by n (public, or the released total) and in the units of the data.

    ``blocks``: second moment, sums, counts. Only the upper triangle of the first is read; it is overwritten.
    """
    second, bound = blocks[0], row_bound(facts)
    for matrix in second if layout.by_group else (second,):
        core.mirror_upper(matrix)
    groups = normalized_groups(facts, layout, n, *blocks[1:], noise)
    second *= bound * bound / groups.n
    return ReleasedMoments(**vars(groups), second=second, mark=bound * layout.mark if layout.marked else None)


def normalized_groups(
    facts: PublicFacts, layout: MomentLayout, n: int, sums: Matrix, counts: NDArray[Any], noise: MomentNoise
) -> ReleasedGroups:
    """The same of sums and counts alone."""
    bound, counts = row_bound(facts), np.asarray(counts, dtype=np.float64)
    people = released_people(facts, n, counts)
    return ReleasedGroups(
        sums=sums * (bound / people),
        counts=released_shares(layout, counts, people),
        n=people,
        noise=noise.scaled(bound * bound / people, bound / people, 1 / people),
    )


def released_people(facts: PublicFacts, n: int, counts: Matrix) -> float:
    """Number of people to divide by: public (``n`` were counted), or the total of the released counts."""
    if facts.n is not None:
        return float(facts.n)
    return float(n) if facts.n_is_public else max(float(counts.sum()), 1.0)


def released_shares(layout: MomentLayout, counts: Matrix, people: float) -> Matrix:
    """Share of people per group: released, or public."""
    return counts / people if layout.counts else np.ones(layout.n_groups)


def row_bound(facts: PublicFacts) -> float:
    """The enforced bound on row norms, which every problem of rows has."""
    assert facts.bound is not None
    return facts.bound


def noise_blocks(
    noise: IntegerNoise, deviations: MomentNoise, facts: PublicFacts, layout: MomentLayout
) -> tuple[NoiseBlock, ...]:
    second = NoiseBlock(SECOND, "goe", deviations.second, noise.diagonal)
    return second, *group_blocks(deviations, facts, layout, noise.sums, noise.counts)


def group_blocks(
    noise: MomentNoise, facts: PublicFacts, layout: MomentLayout, sums: int | None = None, counts: int | None = None
) -> tuple[NoiseBlock, ...]:
    """Sums and counts of groups, with the integer scales of their noise where they are released on such a grid."""
    blocks = [NoiseBlock(SUMS, "independent", noise.sums, sums)] * layout.sums
    if layout.counts:
        of_counts = TOTAL if layout.n_groups == 1 and facts.weighted else COUNTS
        blocks.append(NoiseBlock(of_counts, "independent", noise.counts, counts))
    return tuple(blocks)


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Released counts or sums, in units of one person, and the deviation of their noise."""

    values: Matrix
    deviation: float


@dataclass(eq=False, repr=False)
class Stages:
    """Answers about a table before its bound is known. Pays from the ledger, with noise from the stream."""

    _dataset: Dataset
    facts: PublicFacts
    n_columns: int  # of all views
    _ledger: Ledger
    _stream: core.NoiseStream
    missing: bool = False  # whether NaN is an absent value

    def __post_init__(self) -> None:
        self.mu = self._ledger.mu  # what the whole run may spend
        # a person is 2^weight_bits in all sums, which thus are on a finer grid
        self._grid = _BITS + self._dataset.weight_bits
        self._n_threads = thread_count()
        if math.isfinite(self.mu):  # before anything is spent
            _scale(4 * self.n_columns, self.mu * _SMALLEST_PART, self._grid)
        self._count()

    @property
    def mu_left(self) -> float:
        """What is not spent."""
        return self._ledger.remaining

    def magnitudes(self, columns: NDArray[np.intp], mu: float) -> NoisyCounts:
        """(d', 2, N_OCTAVES + 1), histogram of each of some columns over zero and signed octaves."""
        counts = self._sums(partial(MagnitudeCounts, columns, missing=self.missing), mu).counts
        return self._histogram(counts, len(columns), mu, IN_OCTAVES)

    def places(self, columns: NDArray[np.intp], interval: Interval, n_bins: int, mu: float) -> NoisyCounts:
        """(d', n_bins), histogram of some columns over equal parts of their intervals."""
        counts = self._sums(partial(PlaceCounts, columns, interval, n_bins, missing=self.missing), mu).counts
        return self._histogram(counts, len(columns), mu, IN_PLACES)

    def norms(self, preprocessing: Preprocessing, starts: NDArray[np.intp], mu: float) -> NoisyCounts:
        """(n_bins,), histogram of norms of mapped rows; bins start at these quarters of octaves, the ends hold all."""
        first, last = int(starts[0]), int(starts[-1])
        counts = self._sums(partial(NormCounts, first, last - first + 1), mu, preprocessing).counts
        if len(starts) < len(counts):
            counts = np.add.reduceat(counts, starts - first)
        return self._histogram(counts, 1, mu, NORMS)

    def column_sums(self, interval: Interval, mu: float) -> NoisyCounts:
        """(3, d), sums of the columns' places u in their intervals, -1 to 1, and of u^2; how many people have one."""
        counts = self._sums(partial(ColumnSums, interval, missing=self.missing), mu).counts
        units = np.array([[PLACE_BITS], [2 * PLACE_BITS], [0]])
        squared = (4 if self._replaces else 3) * self.n_columns
        return self._noisy(counts << (_BITS - units), squared, mu, "sums of the columns and of their squares")

    def row_sum(self, preprocessing: Preprocessing, mu: float) -> NoisyCounts:
        """(d,), sum of mapped rows, clipped to the bound and in units of it."""
        layout = MomentLayout(self.n_columns, 1, sums=True, counts=False)
        sums = self._sums(partial(GridSums, layout, _BITS), mu, preprocessing).sums[:, 0]
        return self._noisy(sums, 4 if self._replaces else 1, mu, "sum of the rows")

    def second_moment(self, preprocessing: Preprocessing, mu: float) -> ReleasedMoments:
        """Second moment of mapped rows."""
        self._ledger.check(mu)
        model = PcaModel(self.n_columns, center=False)
        problem = prepared_problem(model, self.facts, self._dataset, preprocessing, grouped=False)
        return release_moments(problem, mu, self._stream, self._ledger.record)

    def _sums(self, make: Callable[[], S], mu: float, preprocessing: Preprocessing | None = None) -> S:
        """One pass over the people, all in one group of mapped rows, if the ledger can pay for what it is made for."""
        self._ledger.check(mu)
        rows = self._dataset
        if preprocessing is not None:
            rows = PreprocessedDataset(rows, preprocessing, self.n_columns, grouped=False)
        sums = rows.accumulate(make, weight_bits=rows.weight_bits)
        self._count()
        return sums

    def _count(self) -> None:
        """The number of people, where it is public and known: facts hold none that a pass over a source has found."""
        counted = self.facts.n is None and self.facts.n_is_public
        self.n = self._dataset.people.n if counted else self.facts.n

    @property
    def _replaces(self) -> bool:
        return self.facts.adjacency == "replace-one"

    def _histogram(self, counts: Integers, n_counted: int, mu: float, query: str) -> NoisyCounts:
        """A histogram that counts each person ``n_counted`` times; the counts become those on the grid."""
        counts <<= _BITS
        return self._noisy(counts, (2 if self._replaces else 1) * n_counted, mu, query)

    def _noisy(self, sums: Integers, squared: int, mu: float, query: str) -> NoisyCounts:
        """Sums on the grid plus noise, where a person changes them by at most sqrt(squared) in units of a person."""
        scale = 0 if math.isinf(mu) else _scale(squared, mu, self._grid)
        deviation = math.ldexp(scale, -self._grid)
        noise = (NoiseBlock(query, "independent", deviation, scale),) if scale else ()
        self._ledger.record(LedgerEntry(query, mu, noise, self._grid if scale else None))
        if scale:
            core.add_exact_noise(sums.reshape(-1), scale, self._stream, self._n_threads)
        return NoisyCounts(np.multiply(sums, math.ldexp(1.0, -self._grid), dtype=np.float64), deviation)


@lru_cache(maxsize=128)  # runs in a row ask for the same noise
def _scale(squared: int, mu: float, grid: int) -> int:
    """The least noise, in steps of the grid, that makes a change of sqrt(squared) people cost at most mu."""
    scale = least_scale(Fraction(squared * 4**grid), mu)
    if scale.bit_length() > MOST_SCALE_BITS:
        raise ValueError(f'mu = {mu:.3g} is too small a budget for bound="auto": use a larger one, or give a bound')
    return scale
